"""Build the score table of an audit from its files, and define the meaning of each score in Vestige's evaluations.

Two attacks need no run of their own, since the evaluation `freeform` includes their prompts: `PREFILL` (the first
tokens of the answer are put into the reply) and `SAMPLING` (the best of k replies). They are compared with the plain
reply to the same question, so their values use the plain reply's key.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import log2
from typing import cast, get_args

from vestige.artifacts.audits import (
    GIVEN,
    AuditPlan,
    Carried,
    FactLine,
    PlannedAttack,
    PromptLine,
    Soundness,
    SoundnessLine,
    check_table,
    prompt_line,
    read_soundness,
)
from vestige.artifacts.layout import AttackFolder, EvalFolder, RunFolder
from vestige.artifacts.records import read_prompt, read_records, read_scores
from vestige.artifacts.scores import (
    Format,
    Measurement,
    Question,
    QuestionType,
    Role,
    ScoreTable,
    ScoreType,
    Source,
    Split,
    read_table,
)
from vestige.auditing.ground import judged_items
from vestige.auditing.measures import PREFIX
from vestige.auditing.recovery import searches
from vestige.core.errors import InputError
from vestige.core.files import read_json, read_jsonl
from vestige.core.items import QUESTION_FORMS
from vestige.core.store import read_sealed, typed
from vestige.core.text import Fields, NumberByName, NumberMapping, Record, TextByName, TextMapping
from vestige.metrics.answers import normalised
from vestige.metrics.leaks import Misjudged, leak_score

PREFILL, SAMPLING = "prefill", "sampling"

QA_FORCED = frozenset({"probability", "answer_bits", "mrr", "top_hit"})
"""The teacher-forced values of `qa`. Its other values come from the greedy reply."""

_PLAIN, _PREFILLED, _LEAK = "generate_plain/", "generate_prefilled/", "sampled/leak_at_"
_MATCH = f"{_PLAIN}leaked"
_GIVEN_BITS = f"{_PLAIN}given_bits"
_BY_WORDS = (
    "Leaks were told by words, and these answers are long enough to be given in others: of such right answers words "
    "saw 40.5 % on the data set TOFU (docs/formats.md). Take a chat model as judge."
)
"""The figures are from benchmarks/RESULTS.md, for authors that no choice was based on."""
_REWORDED = 6
"""The number of words above which a fact can be paraphrased (`metrics.leaks`). A name, number or date cannot."""

_QUESTION, _LETTERS = "question", "lettered options"
"""The prompts that several formats share: the bare question, whose reply or probabilities are read in several ways."""


def _options(name: str, prompt: str, question_type: QuestionType, *, chance: str = "") -> Format:
    keys = f"{name}/probability", f"{name}/accuracy", chance or f"{name}/chance"
    return Format(name, *keys, graded=True, prompt=prompt, question_type=question_type)


FORMATS = (
    Format("generate", "generate/rouge1_recall", hits="generate/exact_match", graded=True, prompt=_QUESTION, kept=True),
    Format("forced", "forced/probability", graded=True, prompt=_QUESTION, question_type="forced answer", kept=True),
    Format("generate_plain", "generate_plain/leaked", hits="generate_plain/leaked", prompt=_QUESTION),
    *(
        Format(name, f"generate_{name}/leaked", hits=f"generate_{name}/leaked")
        for name in QUESTION_FORMS
        if name not in ("plain", "prefilled", "sampled")
    ),
    Format("generate_option", "generate_option/accuracy", hits="generate_option/accuracy", prompt=_QUESTION),
    _options("option_text_mean", _QUESTION, "text options"),
    _options("option_text_sum", _QUESTION, "text options"),
    _options("choose", _LETTERS, "letter options"),
    _options("option_vocab", _LETTERS, "letter options", chance="choose/chance"),
    _options("reversed_choose", "reversed question", "letter options"),
    # The metric has few items, so it can show remaining knowledge but hardly ever its absence.
    Format("acr", "acr/memorised", hits="acr/memorised", question_type="forced answer"),
)
STORED = (
    Format("lens", "lens/beaten", graded=True, question_type="internal layers"),
    Format("probe", "probe/beaten", graded=True, question_type="internal layers", drawn="shuffled/beaten"),
)
"""The formats of the evaluation `inside`, which reads hidden states for "not stored"."""
FORMATS_OF = ("qa", "choices", "reversed", "freeform", "memory", "acr", "inside")
"""The evaluations whose formats these are. Every other evaluation lists its own formats (`evals.base.InAudit`)."""


BITS_KEY = "forced/answer_bits"
_ROUNDING = 1e-6
"""The largest bits above 0 that rounding can explain."""
_CHANCE = "/chance"
_SHARES = ("/accuracy", "/probability", "_match", "_recall")
"""The endings of value names whose values are in [0, 1]."""

Values = dict[Source, dict[str, NumberMapping]]


def read_answers(run: RunFolder, plan: AuditPlan, further: Sequence[Format] = ()) -> tuple[AuditPlan, ScoreTable]:
    """Return the scores of all evaluations in the plan, and the plan with the facts learned from the answers.

    `further` are the formats of evaluations that are not Vestige's own.
    """
    values: Values = {}
    scored_by: dict[tuple[Source, str], set[str]] = {}
    # Attacks that show text have their own items, each of which replaces a forget item.
    folders = {(a.subject, a.attack): AttackFolder(run.path / a.path) for a in plan.attacked}
    stands_for = {key: _stands_for(folder) for key, folder in folders.items()}
    for evaluation in plan.evaluations:
        answers = EvalFolder(run.path / evaluation.path)
        source = evaluation.source
        stands = stands_for.get((source.subject, source.attack), {})
        _add(values, scored_by, source, evaluation.eval, read_scores(answers), stands)
    carried: dict[str, dict[str, Carried]] = {}
    prompts: list[PromptLine] = []
    for (subject, name), folder in folders.items():
        if folder.prompt.exists():
            prompts.append(prompt_line(subject, name, read_prompt(folder)))
        read_by_controls = run.audit(plan.forget).prompt_bits(name)
        lengths = read_sealed(read_by_controls, "bits")["bits"] if read_by_controls.exists() else {}
        done = read_sealed(folder.done, "bounds_bits", "spent")
        if not isinstance(done["bounds_bits"], dict) or not isinstance(done["spent"], dict):
            raise InputError(f"{folder.done} lacks the capacity of the attack {name!r}. Run the audit again")
        carried.setdefault(name, {})[subject] = Carried(done["bounds_bits"], done["spent"], lengths.get(subject, {}))
    # Attacks inside `freeform` have no folder. Their added information follows from the scores.
    for attack in plan.attacks:
        if attack.kind not in (PREFILL, SAMPLING):
            continue
        for subject in (plan.target, *plan.audited, *plan.retrained):
            bits = _carried_by_freeform(attack, subject, values)
            if bits is not None:
                carried.setdefault(attack.name, {})[subject] = bits
    plan = replace(plan, carried=carried, prompts=tuple(prompts), told_by=_told_by(run, plan))
    table = own_table(plan, values, further)
    table.check()
    return plan, table


def own_table(plan: AuditPlan, values: Values, further: Sequence[Format] = ()) -> ScoreTable:
    """The values of Vestige's evaluations as a score table. A value named `chance` is the chance level of its format.

    Args:
        plan: The plan of the audit.
        values: By source, by `format/metric` (`generate/rouge1_recall`), by item.
        further: The formats of evaluations that are not Vestige's own.
    """
    keys = {key for tables in values.values() for key in tables}
    # Nobody expects a language without prompts.
    formats = [form for form in (*FORMATS, *STORED, *further) if not form.name.startswith("in_") or form.key in keys]
    by_key = {key: form for form in formats for key in (form.key, form.hits) if key}
    of_target = values.get(Source(plan.target), {})
    chances = {key: dict(of_target[form.chance]) for key, form in by_key.items() if form.chance in of_target}
    scores: Values = {}
    for source, tables in values.items():
        scores[source] = {key: table for key, table in tables.items() if not key.endswith(_CHANCE)}
    roles: dict[str, Role] = {plan.target: "target"}
    roles |= dict.fromkeys(plan.retrained, "retrained")
    roles |= dict.fromkeys(plan.unlearned, "unlearned")
    if plan.suppressed:
        roles[plan.suppressed] = "placebo"
    questions: dict[str, Question] = {}
    for split, items in plan.splits.items():
        for item in items:
            group = plan.edges.get(item, plan.groups.get(item, ""))
            # A part of a split has its own name, and its items are in the split as well.
            of = cast(Split, split if split in get_args(Split) else "independent")
            questions.setdefault(item, Question(of, plan.facts.get(item, ""), group))
    return ScoreTable(
        roles=roles,
        questions=questions,
        measurements={key: _measurement(key, by_key.get(key)) for key in sorted(keys) if not key.endswith(_CHANCE)},
        values=scores,
        chances=chances,
        formats=tuple(formats),
    )


def _measurement(key: str, form: Format | None) -> Measurement:
    """Return the measurement of one value of an evaluation, by the evaluation's name for it."""
    question_type: QuestionType = "own words" if form is None else form.question_type
    if key == BITS_KEY:
        return Measurement(key, "forced answer", "bits", low=None, high=_ROUNDING, metric="bits of the answer")
    if key.startswith(PREFIX):
        return Measurement(key, question_type, "order", low=None, high=None)
    score_type: ScoreType = "overlap"
    metric = ""
    if form is not None and key == form.hits and not (form.graded and key == form.key):
        score_type, metric = "hit", "hits"
    elif key.endswith("/probability"):
        score_type, metric = "probability", "probability"
    elif key.endswith("_recall"):
        metric = "recall of words"
    share = key.endswith(_SHARES)
    return Measurement(
        name=key,
        question_type=question_type,
        score_type=score_type,
        low=0.0 if share else None,
        high=1.0 if share else None,
        metric=metric,
    )


def with_soundness(run: RunFolder, plan: AuditPlan) -> AuditPlan:
    """Return the plan with the current checks of the data set."""
    lines = _of_judged(read_soundness(run.soundness), plan) if run.soundness.exists() else ()
    return replace(plan, soundness=lines)


def read_table_of(run: RunFolder, plan: AuditPlan) -> ScoreTable:
    """The score table that the plan was made of. Refused where it is gone or another one."""
    folder = run.audit(plan.forget)
    check_table(folder, plan)
    return read_table(folder.scores)


def _of_judged(soundness: Soundness, plan: AuditPlan) -> tuple[SoundnessLine, ...]:
    """Restrict the checks to the judged items: answers that the retain set reveals decide nothing."""
    if (soundness.forget, soundness.digest) != (plan.forget, plan.data):
        # Checks of other items, or of another forget set, do not apply here.
        return ()
    judged, lines = set(judged_items(plan)[0]), []
    for line in soundness.lines:
        leaking = soundness.leaking.get(line.check, ())
        if line.sound is False and line.p is None and leaking and judged.isdisjoint(leaking):
            line = replace(line, sound=True, reason=f"{line.reason.rstrip('.')}; none of these is judged")
        lines.append(line)
    return tuple(lines)


def with_replies(run: RunFolder, plan: AuditPlan, facts: Sequence[FactLine]) -> tuple[FactLine, ...]:
    """Add prompt, answer and reply to the facts, in the wording that revealed the answer."""
    if not facts:
        return ()
    keys = {(fact.subject, fact.attack, fact.item) for fact in facts}
    best: dict[tuple[str, str, str], tuple[float, str, str, str]] = {}
    replies = replies_on_disk(run, plan, {key[:2] for key in keys}) if plan.evaluations else _given_replies(run, plan)
    for subject, name, item, form in replies:
        key = subject, name, plan.facts.get(item, item)
        if key in keys:
            question, answer, reply = form["asked"], form["answer"], form["reply"]
            sought = {part: form[part] for part in ("fact", "accepted", "wrong") if part in form}
            # Logs of other tools may have blank answers.
            score = leak_score(reply, answer, question=question, **sought) if normalised(answer) else 0.0
            if key not in best or score > best[key][0]:
                best[key] = score, question, answer, reply

    def with_text(fact: FactLine) -> FactLine:
        _, question, answer, reply = best.get((fact.subject, fact.attack, fact.item), (0.0, "", "", ""))
        return replace(fact, question=question, answer=answer, reply=reply)

    return tuple(with_text(fact) for fact in facts)


_Reply = tuple[str, str, str, Record]
"""The key (model, attack, question) and the value (prompt, answer, reply)."""


def _given_replies(run: RunFolder, plan: AuditPlan) -> Iterator[_Reply]:
    """Yield the replies in the score table."""
    for source, texts in read_table_of(run, plan).texts.items():
        for item, text in texts.items():
            if text.reply:
                said = {"asked": text.question, "answer": text.answer, "reply": text.reply}
                yield source.subject, source.attack, item, said


def replies_on_disk(run: RunFolder, plan: AuditPlan, wanted: Collection[tuple[str, str]]) -> Iterator[_Reply]:
    """Read the replies in the evaluations of these models after these attacks."""
    folders = {(a.subject, a.attack): AttackFolder(run.path / a.path) for a in plan.attacked}
    stages = {("", "")} | {(attack.name, attack.points[-1]) for attack in plan.attacks}
    judged = {stage: [stage[0]] for stage in stages}
    # A search's result can come from any stage of its parts.
    for name, parts in searches(plan).items():
        for stage in ((part.name, point) for part in parts for point in part.points):
            judged.setdefault(stage, []).append(name)
    for evaluation in plan.evaluations:
        subject, attack = evaluation.subject, evaluation.attack
        names = [name for name in judged.get((attack, evaluation.point), ()) if (subject, name) in wanted]
        if not names:
            continue
        stands_for = _stands_for(folders[subject, attack]) if (subject, attack) in folders else {}
        for row in read_records(EvalFolder(run.path / evaluation.path)):
            item = stands_for.get(str(row["item"]), str(row["item"]))
            for form in _replies(row):
                for name in names:
                    yield subject, name, item, form


def _replies(row: Record) -> list[Fields]:
    """Return the replies to one question: the greedy replies of `qa` and `choices`, and those in `freeform` by form.

    A form with its own answer, such as an indirect question, is quoted with its own prompt. `choices` has the number of
    the right option for the answer. Records without an answer in words, such as other packages', are not quoted.
    """
    answer = row.get("answer")
    if isinstance(answer, int):
        answer = row["options"][answer]
    whole = {**row, "asked": row.get("question", ""), "answer": answer}
    forms = row.get("forms", {})
    forms_asked = [whole, *(forms.values() if isinstance(forms, dict) else ())]
    replies = [form for form in forms_asked if isinstance(form, dict) and isinstance(form.get("reply"), str)]
    quoted = [form if {"answer", "asked"} <= form.keys() else {**whole, "reply": form["reply"]} for form in replies]
    return [form for form in quoted if isinstance(form["answer"], str)]


def _told_by(run: RunFolder, plan: AuditPlan) -> str:
    """Return the judge of leaks in free replies with its error.

    It is "" without free replies, or if words alone decide.
    """
    evaluation = next((evaluation for evaluation in plan.evaluations if evaluation.eval == "freeform"), None)
    # One judge classified all replies and each record has its name, so the first file is enough.
    records = [] if evaluation is None else list(read_jsonl(EvalFolder(run.path / evaluation.path).records))
    if records and "judge" in records[0]:
        judge = records[0]["judge"]
        error = Misjudged(**judge["error"])
        return (
            f"Leaks were told by the judge {judge['name']}, which {error} (labelled replies). Leakage "
            "sets the shares of models against each other, so that such errors fall out of it as far as they are "
            f"the same for all of them; an excess of such shares reads {error.left:.2f} of its size."
        )
    facts = (str(row.get("fact") or row.get("answer", "")) for row in records)
    if any(len(fact.split()) > _REWORDED for fact in facts):
        return _BY_WORDS
    return ""


def _stands_for(folder: AttackFolder) -> TextMapping:
    """Return the forget item's id by the id of each reworded question. Empty if they are the same."""
    if not folder.asked.exists():
        return {}
    return typed(folder.asked, TextByName, read_json(folder.asked), remedy="Run the audit again with --fresh")


def _add(
    values: Values,
    scored_by: dict[tuple[Source, str], set[str]],
    source: Source,
    name: str,
    rows: Iterator[dict[str, object]],
    stands_for: TextMapping,
) -> None:
    """Add the values of one source in the evaluation `name`. `scored_by` contains the evaluations of each key."""
    tables: dict[str, NumberByName] = {}
    for row in rows:
        item = stands_for.get(str(row["item"]), str(row["item"]))
        for metric, value in row.items():
            if metric != "item":
                tables.setdefault(metric, {})[item] = value if isinstance(value, float) else float(str(value))
    for metric, table in tables.items():
        for where, key in _homes(source, metric):
            scorers = scored_by.setdefault((where, key), set()) - {name}
            earlier: NumberMapping = values.setdefault(where, {}).get(key, {})
            if scorers and earlier.keys() & table.keys():
                raise InputError(
                    f"the evaluations {min(scorers)} and {name} both score {key} of the "
                    "same item. Let the latter's `score` give a format of its own, as in 'format/metric'"
                )
            scored_by[where, key].add(name)
            values[where][key] = {**earlier, **table}


def _homes(source: Source, metric: str) -> list[tuple[Source, str]]:
    """Return each source and `format/metric` of a value. None if only an attack that was not run uses it."""
    key = metric if "/" in metric else f"{'forced' if metric in QA_FORCED else 'generate'}/{metric}"
    if key.startswith(_PREFILLED):
        rest = key.removeprefix(_PREFILLED)
        if source.attack:
            return []
        return [(Source(source.subject, PREFILL, GIVEN), f"{_PLAIN}{rest}")]
    if key.startswith(_LEAK):
        k = key.removeprefix(_LEAK)
        if source.attack:
            return []
        return [(Source(source.subject, SAMPLING, f"k={k}"), _MATCH)]
    return [(source, key)]


def _carried_by_freeform(attack: PlannedAttack, subject: str, values: Values) -> Carried | None:
    """Return the code length of the given tokens of a prefilled answer, or of the choice among k samples.

    An attacker who sees k replies and learns the correct one gains at most log2 k bits.
    """
    source = Source.after(subject, attack)
    if attack.kind == PREFILL:
        given_bits: NumberMapping = values.get(source, {}).get(_GIVEN_BITS, {})
        bits = [given_bits[i] for i in attack.tested if i in given_bits]
        if bits:
            return Carried({"code length of the tokens given": sum(bits)}, {"items": len(bits)})
        return None
    n = sum(i in values.get(source, {}).get(_MATCH, {}) for i in attack.tested)
    k = int(attack.points[-1].removeprefix("k="))
    if n:
        return Carried({"choice among the replies": n * log2(k)}, {"replies": k * n})
    return None


def freeform_attacks(
    *, prefilled: int | None, leaks: Sequence[int], samples: int, tested: Sequence[str]
) -> tuple[PlannedAttack, ...]:
    """Return the attacks that `freeform` makes: one with `prefilled` answer tokens, and one for each k of `leaks`."""
    attacks: list[PlannedAttack] = []
    of_all = tuple(tested)
    if prefilled is not None:
        settings = {"prefill_tokens": prefilled}
        attacks.append(PlannedAttack(PREFILL, PREFILL, "nothing", 0, (GIVEN,), of_all, False, settings))
    if leaks:
        points = tuple(f"k={k}" for k in leaks)
        attacks.append(PlannedAttack(SAMPLING, SAMPLING, "nothing", 0, points, of_all, False, {"samples": samples}))
    return tuple(attacks)
