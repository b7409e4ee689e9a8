"""From one table of scores to a run that is judged as any other: its plan, its models' folders, its verdicts.

The same plan, judgement and files come of the scores as of an audit's own answers, so that a verdict can be given again
at other margins.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vestige.artifacts.audits import AskedPlace, AuditOutcome, AuditPlan, PlannedAttack, write_plan
from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import SubjectSpec, Summary, write_collected, write_scores, write_spec, write_summary
from vestige.auditing.gather import GIVEN
from vestige.auditing.run import judge_plan
from vestige.auditing.scored import ROLES, SPLITS, QuestionScore, ScoreTable, Unfit, formats_in, score_table
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.files import locked, write_json, write_jsonl, write_text
from vestige.core.ids import content_id, slug
from vestige.core.items import ForgetSet
from vestige.core.settings import read_toml, to_toml
from vestige.core.store import SCHEMA
from vestige.core.text import closest, listed, one_line
from vestige.metrics.verdicts import Thresholds

VERSION = 2
"""Of how a table, and logs, become item scores."""
COMMAND = "judge"
"""What run.toml names a run of scores by."""
EVAL = "table"
"""What the evaluation is called whose scores a table brings."""

UNSEEN = (
    "The weights of no model were seen, only scores: that each model is what it is called, that all were asked alike, "
    "and that the retrained models never saw the forget set, is as whoever made the scores says."
)
NOTHING_ASKED: Mapping[str, Any] = {
    "evals": (),
    "forms": (),
    "relearn": (),
    "quantize": (),
    "ablate": (),
    "in_context": (),
    "suppress": False,
}
"""Of the settings of an audit those that ask and attack models, which a table takes the place of."""


def judge_table(
    run: RunFolder,
    rows: Iterable[QuestionScore],
    *,
    forget: str,
    margins: Mapping[str, Any] | None = None,
    source: str = "a table of scores",
    digests: Mapping[str, str] | None = None,
    untested: Sequence[str] = (),
    banked: Mapping[str, str] | None = None,
) -> AuditOutcome:
    """Judge the models of one table; evidence, plan, outcome and verdicts lie in `run`.

    `forget` names the forget set, `margins` are `Thresholds`. `source` says where the scores are from, `digests` those
    of the models' own files by name where they are known; otherwise they are of the scores. `untested` says in
    sentences what could not be read. `banked` names the laboratories of controls from the bank.
    """
    run.refuse_others_files()
    with locked(run.lock):
        if run.settings.exists() and read_toml(run.settings).get("command") != COMMAND:
            raise InputError(
                f"{run.path} holds a run of another command; choose another folder for judgements of scores"
            )
        write_text(run.settings, to_toml({"command": COMMAND, "scores": one_line(source, width=500)}))
        read = score_table(rows)
        names = _names_by_role(read)
        notes = (*_refuse_copies(read), *_drop_unasked(read))
        splits = {split: tuple(i for i, its in read.splits.items() if its == split) for split in SPLITS}
        splits = {split: items for split, items in splits.items() if items}
        # By item the first that asks for the same fact.
        first: dict[str, str] = {}
        leads = {item: first.setdefault(read.about["fact"].get(item, item), item) for item in splits["forget"]}
        folders = {name: f"models/{slug(f'{forget} {name}')}" for name in read.roles}
        evaluations: list[AskedPlace] = []
        for name, path in folders.items():
            spec = _spec(read, name, forget, splits["forget"], (source, (digests or {}).get(name, "")))
            evaluations += _write_model(run, SubjectFolder(run.path / path), spec, read, (forget, splits))
        plan = AuditPlan(
            forget=forget,
            target=names["target"][0],
            unlearned=tuple(names["unlearned"]),
            retrained=tuple(names["retrained"]),
            suppressed=next(iter(names["placebo"]), ""),
            folders=folders,
            splits=splits,
            edges={},
            scopes={},
            attacks=_attacks(read, splits["forget"]),
            settings=settings_of(margins or {}).identity(),
            seed=0,
            evaluations=tuple(evaluations),
            untested=(UNSEEN, *untested, *notes),
            data=content_id([splits["forget"], splits.get("retain", ())], length=32),
            sizes={split: len(items) for split, items in splits.items()},
            facts={item: lead for item, lead in leads.items() if lead != item},
            groups={item: group for item, group in read.about["group"].items() if read.splits[item] == "forget"},
            formats=formats_in(read),
            evidence_level="logs",
            banked=banked or {},
        )
        write_plan(run.audit(forget), plan)
        return judge_plan(run, run.audit(forget), plan)


def settings_of(margins: Mapping[str, Any]) -> AuditSettings:
    """The settings of an audit that asks nothing, at these margins; anything else is refused by name."""
    for name in margins:
        if name not in Thresholds.model_fields:
            hint = closest(name, list(Thresholds.model_fields))
            raise InputError(f"{one_line(name, width=40)} is no margin, and nothing else can be set of scores; {hint}")
    return AuditSettings.build({**NOTHING_ASKED, **margins}, where="margins of the judgement")


def _names_by_role(read: ScoreTable) -> dict[str, list[str]]:
    """The models in each role; refused where they cannot be judged."""
    names: dict[str, list[str]] = {role: [m for m, its in read.roles.items() if its == role] for role in ROLES}
    if len(names["target"]) != 1:
        many = f"has {len(names['target'])} ({listed(names['target'])})" if names["target"] else "has none"
        raise InputError(f"a judgement has one target, the model before unlearning, and the table {many}; give it one")
    if not names["unlearned"]:
        raise InputError("no model of the table is unlearned, so there is nothing to judge; give one this role")
    if len(names["placebo"]) > 1:
        raise InputError(f"a judgement has one placebo, and the table has {listed(names['placebo'])}; name one")
    if "forget" not in read.splits.values():
        raise InputError("no item of the table is in the split forget, so there is nothing to judge")
    if not names["retrained"] and not read.chances:
        raise InputError(
            "the table has neither a retrained model nor the column chance, so that nothing says what a model that "
            "never knew would score; give the scores of one as retrained"
        )
    return names


def _refuse_copies(read: ScoreTable) -> tuple[str, ...]:
    """Refuse a control with the scores of another model throughout, and say in a sentence which subjects are alike.

    Two trainings may well give the same hits, or nothing at all, but not the same graded scores. Of one that is
    unlearned a copy, or one that differs in nothing from the target, takes nothing from the others.
    """
    first: dict[str, str] = {}
    alike = []
    for (name, attack), tables in read.values.items():
        # Two trainings may well have the same hits; the same probabilities they have never.
        graded = any(len(set(table.values())) > 2 for key, table in tables.items() if not key.endswith("/chance"))
        if attack or not graded:
            continue
        same = first.setdefault(content_id(tables), name)
        if same == name:
            continue
        both = f"{one_line(name, width=60)} and {one_line(same, width=60)} have the same scores on every question"
        if "retrained" in (read.roles[name], read.roles[same]):
            raise Unfit(name, f"{both}, so they are one model, or one log under two names; leave one out.")
        alike.append(f"{both}.")
    return tuple(alike)


def _drop_unasked(read: ScoreTable) -> tuple[str, ...]:
    """Take out the scores of the forget set that no unlearned model has, and say in a sentence which these are.

    What only controls were asked is no part of what was tested: without this it would keep every claim open.
    """
    unlearned = {key for (name, _), tables in read.values.items() if read.roles[name] == "unlearned" for key in tables}
    # What is kept is asked of target and subject, and may well be asked of neither control.
    keys = {key for tables in read.values.values() for key in tables if not key.endswith("/kept")}
    dropped = sorted(key for key in keys - unlearned if not key.endswith("/chance"))
    for tables in read.values.values():
        for key in dropped:
            tables.pop(key, None)
    names = listed([key.removesuffix("/score") for key in dropped])
    return (f"No unlearned model has these scores of the forget set: {names}.",) if dropped else ()


def _attacks(read: ScoreTable, forget: Sequence[str]) -> tuple[PlannedAttack, ...]:
    """Each attack that the rows name; what it showed is not known, so that of no fact it is known to have shown it."""
    tested: dict[str, set[str]] = {}
    for (_, attack), tables in read.values.items():
        if attack:
            tested.setdefault(attack, set()).update(*tables.values())
    return tuple(
        # Nobody says what it showed, so that it counts as one that showed no answers.
        PlannedAttack(name, EVAL, "unknown", 0, (GIVEN,), tuple(i for i in forget if i in items), False, {})
        for name, items in tested.items()
    )


def _spec(
    read: ScoreTable, name: str, forget: str, forget_items: Sequence[str], origin: tuple[str, str]
) -> SubjectSpec:
    """What a model is by its role; `origin` is where its scores are from, and the digest of its files or ""."""
    role, (source, digest) = read.roles[name], origin
    scores = [[attack, tables] for (model, attack), tables in read.values.items() if model == name]
    forgotten = (ForgetSet(forget, tuple(sorted(forget_items)), ()),) if role in ("retrained", "unlearned") else ()
    return SubjectSpec.of(
        ROLES[role],
        name,
        source,
        {},
        method=name if role == "unlearned" else "",
        forget=forget if forgotten else "",
        data=digest or content_id(scores, length=64),
        version=VERSION,
        forgotten=forgotten,
    )


def _write_model(
    run: RunFolder,
    folder: SubjectFolder,
    spec: SubjectSpec,
    read: ScoreTable,
    view: tuple[str, Mapping[str, tuple[str, ...]]],
) -> Iterator[AskedPlace]:
    """One model's folder, as an audit would have left it, with its scores in the place of evaluations.

    `view` is the forget set's name and its splits.
    """
    # What another table left under this name must not be taken for an answer of this one.
    shutil.rmtree(folder.path, ignore_errors=True)
    write_spec(folder.spec, spec)
    write_json(folder.done, {"schema": SCHEMA, "digest": spec.data, "files": {}})
    for attack, tables in [(a, tables) for (model, a), tables in read.values.items() if model == spec.name]:
        items = dict.fromkeys(item for table in tables.values() for item in table)
        texts = read.texts.get((spec.name, attack), {})
        evaluation = folder.evaluation(EVAL, content_id([spec.data, attack, VERSION]))
        write_json(evaluation.identity, {"schema": SCHEMA, "eval": EVAL, "model": spec.data, "attack": attack})
        write_jsonl(evaluation.records, ({"item": item, **_shown(texts.get(item, {}))} for item in items))
        write_collected(evaluation, len(items))
        write_scores(evaluation, ({"item": i, **{k: t[i] for k, t in tables.items() if i in t}} for i in items))
        if not attack:
            scored = {split: tuple(item for item in ids if item in items) for split, ids in view[1].items()}
            write_summary(evaluation, Summary(EVAL, VERSION, spec, view[0], scored, ()))
        point = GIVEN if attack else ""
        yield AskedPlace(spec.name, attack, point, EVAL, evaluation.path.relative_to(run.path).as_posix())


def _shown(texts: Mapping[str, str]) -> dict[str, str]:
    """A record has its three texts or none, as the list of single facts shows them together."""
    return {name: texts.get(name, "") for name in ("question", "answer", "reply")} if "reply" in texts else {}
