"""The words of verdicts, which page, terminal, JSON, JUnit and evidence share, and the rows of verdicts.json."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType

from vestige.artifacts.audits import (
    CLAIMS,
    FROM_LOGS,
    LEVELS,
    STATEMENTS,
    AuditOutcome,
    GroupLine,
    Outcome,
    ReversalLine,
    StoredLine,
    VerdictLine,
    read_outcome,
)
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import QuestionType
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate, to_json
from vestige.core.files import read_json, write_rows
from vestige.core.text import Fields, Record, TextByName, grouped, one_line

WORDS: Mapping[Outcome, str] = {"holds": "pass", "fails": "fail", "inconclusive": "inconclusive"}
"""The words for verdicts: a claim that holds is a test that the model passes."""

ASSUMED = "if the controls never saw the data"
"""The assumption about controls of unknown origin: scores alone do not reveal knowledge that all controls share."""
ALIKE = "if the base model differs from those of the bank as they differ from each other"
"""The assumption behind verdicts with predicted controls."""

_TYPES: Mapping[QuestionType, str] = {
    "own words": "free replies",
    "letter options": "options by letter",
    "text options": "options by text",
    "forced answer": "forced answers",
}
_THREE: tuple[QuestionType, ...] = ("own words", "letter options", "text options")
"""The question types of the third paper (2506.00688). A pass needs two."""

AUC = "AUC"
"""The beginning of the metric names of membership scores."""

_BOUNDED = {
    "leakage": "{} left",
    "leakage_vs_chance": "{} left",
    "recovery": "{} comes back",
    "harm": "{} lost",
    "injection": "{} learnt from the retain set",
}
"""The unit of an estimate by metric. In bits it is how much likelier the answers are."""

_ZERO = {"leakage": "a control", "leakage_vs_chance": "guessing"}
"""The level without remaining knowledge, by metric."""
_OF_TARGET = (*_ZERO, "recovery")
"""Metrics in shares of the target's knowledge."""
MORE_THAN_TARGET = "more than the target itself knows in this form"
"""Why a share of the target's knowledge ends at 100 %."""

UNCHANGED = "is a copy of the target: it has the target's own weights, and nothing was unlearned"
"""The message for an unlearned model that equals the target."""

BOUNDS_SAID = "Intervals hold in 95 % of audits: “at least”, their end, is too high in 2.5 %; “at most” too low in 4 %."
"""The levels of all that is printed, stated once. `metrics` has the numbers."""


def qualification(v: VerdictLine) -> str:
    """Return a qualification such as `free replies only` if a pass rests on fewer than two question types."""
    if v.outcome != "holds" or not STATEMENTS[v.claim].controls or not v.question_types:
        return ""
    if sum(kind in v.question_types for kind in _THREE) > 1:
        return ""
    return f"{' and '.join(_TYPES[kind] for kind in v.question_types if kind in _TYPES)} only"


UNTESTED = "not tested"


def is_tested(outcome: AuditOutcome, v: VerdictLine) -> bool:
    """Return whether remaining knowledge was tested. Otherwise, no claim counts as tested.

    Logs contain no attacks and no data checks, and seldom membership scores.
    """
    if outcome.evidence_level not in FROM_LOGS or v.outcome != "inconclusive" or v.claim == "not expressed":
        return True
    if v.claim == "indistinguishable":
        return any(line.subject == v.subject for line in outcome.membership)
    return v.decides is not None


def outcome_word(outcome: AuditOutcome, v: VerdictLine) -> str:
    """The verdict in a word: pass, fail, inconclusive, or not tested."""
    if is_tested(outcome, v):
        return WORDS[v.outcome]
    return UNTESTED


def verdict_word(outcome: AuditOutcome, v: VerdictLine) -> str:
    """Return the verdict in words, as in `pass` or `pass, free replies only`."""
    return ", ".join(part for part in (outcome_word(outcome, v), qualification(v)) if part)


def tested_claims(outcome: AuditOutcome) -> dict[str, list[VerdictLine]]:
    """Return the verdicts on the tested claims, by unlearned model."""
    tested = [line for line in outcome.verdicts if is_tested(outcome, line) and line.subject in outcome.unlearned]
    return grouped(tested, lambda line: line.subject)


NEXT_STEP = "Next: attack its weights, vestige audit --target TARGET --unlearned MODEL."
MORE_LOGS = "Next: add controls, --logs retrained:NAME=FILE (public ones: vestige list controls)."
FIRST_REASONS = "Next: see the reasons, vestige audit --why --output-dir DIR."
SAME_SCORES = "Next: evaluate all models in the same scores (vestige audit --why names the missing ones)."
NOT_ASKED = "not asked of"
"""Part of the reason that names a missing score."""
_ENOUGH = 5
"""With this number of controls, further ones decide little."""
AGAIN = "Next: unlearn again, and add the new model's log, --logs unlearned:NAME=FILE."


def lacks_scores(line: VerdictLine) -> bool:
    """Whether a score that a model lacks keeps the claim open."""
    return line.outcome == "inconclusive" and any(NOT_ASKED in gap for gap in line.left_out)


def logs_said(outcome: AuditOutcome) -> tuple[str, str]:
    """The answer of an audit of logs, and the next step.

    The answer states the number of models that pass all claims of a log audit, and names the best model. Models are
    ranked by the number of tested claims that do not hold, and then by the remaining knowledge in the format of
    `compared`.
    """
    tested = tested_claims(outcome)
    if not tested:
        return "No model could be judged.", FIRST_REASONS
    passed = [name for name, lines in tested.items() if all(line.outcome == "holds" for line in lines)]
    left = outcome.compared[1]

    def rank(name: str) -> tuple[int, float]:
        not_held = sum(line.outcome != "holds" for line in tested[name])
        return not_held, left[name].value if name in left else math.inf

    best = min(tested, key=rank)
    shown = [line for line in tested[best] if line.decides is not None or line.outcome == "fails"]
    claims = f"the {len(shown)} of {len(CLAIMS)} claims that these logs test"
    outcomes = {line.outcome for lines in tested.values() for line in lines}
    if passed:
        next_step = NEXT_STEP
    elif "inconclusive" not in outcomes:
        next_step = AGAIN
    elif any(map(lacks_scores, tested[best])):
        next_step = SAME_SCORES
    elif len(outcome.retrained) < _ENOUGH:
        next_step = MORE_LOGS
    else:
        next_step = FIRST_REASONS
    if len(tested) > 1:
        amount = ""
        if best in left:
            amount = f"; best: {one_line(best, width=40)}, {percentage(max(0.0, possible(left[best]).value))} left"
        models = f"{len(passed)} of {len(tested)} models {'passes' if len(passed) == 1 else 'pass'}"
        return f"{models} {claims}{amount}.", next_step
    name = one_line(best, width=60)
    failed = [line.claim for line in tested[best] if line.outcome == "fails"]
    undecided = [line.claim for line in tested[best] if line.outcome == "inconclusive"]
    if failed:
        return f"{name} FAILS {', '.join(failed)} ({claims}).", AGAIN
    if undecided:
        return f"{name} is OPEN in {', '.join(undecided)} ({claims}).", next_step
    return f"{name} passes {claims}.", next_step


def tested_said(outcome: AuditOutcome) -> str:
    """Return the number of tested facts, as in `100 facts`, or `30 of 100 facts` if fewer can be judged."""
    lines = [v for v in outcome.verdicts if v.claim == "not expressed" and v.n_asked]
    # A collapsed model without tested facts does not affect the others.
    least = min((v.n_tested for v in lines if v.n_tested), default=0 if lines else outcome.n_judged)
    facts = "fact" if outcome.n_judged == 1 else "facts"
    if least < outcome.n_judged:
        return f"{least:,} of {outcome.n_judged:,} {facts}"
    return f"{least:,} {facts}"


def percentage(x: float) -> str:
    """Return a share as in `42 %` or `-7 %`. Values that round to zero have no sign."""
    return f"{round(100 * x) + 0.0:.0f} %"


def sized(x: float, unit: str) -> str:
    """Return a size, as in `12 %` or `9.2 bits`."""
    # Adding 0 removes the sign of a zero.
    if unit == "bits":
        return f"{round(x, 1) + 0.0:.1f} bits"
    return percentage(x)


def bound_said(outcome: AuditOutcome, v: VerdictLine) -> str:
    """Return the evidence of a verdict: `87 % left (at least 75 %), choose; states 2 facts`.

    "" where nothing was measured. One quantity, with its estimate, its bound and the form of question or the attack
    that it was measured by. A claim that single facts fail has their number too, one that a contract or person fails by
    itself that quantity.
    """
    amount = measured(v)
    if amount:
        amount += f", {v.decides}"
    elif v.outcome == "fails":
        amount = _worst_group(outcome, v)
    return "; ".join(part for part in (amount, facts_said(outcome, v)) if part)


def measured(v: VerdictLine) -> str:
    """Return the deciding estimate and its bound, as in `87 % left (at least 75 %)`, or ""."""
    if v.decides is None or v.at_least is None or v.at_most is None:
        return ""
    e = v.evidence[v.decides]
    cut = possible(replace(e, unit=v.unit, low=v.at_least, high=v.at_most))
    low, value, high = cut.low, cut.value, cut.high
    if v.claim == "indistinguishable":
        # Both directions count, so the bounds are for the absolute difference.
        low, high = max(low, -high, 0.0), max(high, -low)
        amount = _differs(v, e.metric).format(sized(abs(value), v.unit))
    elif v.unit == "bits":
        amount = f"{sized(value, v.unit)} likelier"
    else:
        low, high = max(low, 0.0), max(high, 0.0)
        amount = _BOUNDED.get(e.metric, "{}").format(percentage(value))
        if round(100 * value) < 0 and e.metric in _ZERO:
            amount += f", less than {_ZERO[e.metric]}"
        elif exceeds_target(e):
            amount += f", {MORE_THAN_TARGET}"
    if v.outcome == "fails":
        bound = f"at least {sized(low, v.unit)}"
    elif high < v.wide:
        bound = f"at most {sized(high, v.unit)}"
        bound += " where it was tested" if v.outcome == "inconclusive" else ""
    else:
        bound = f"{sized(low, v.unit)} to {sized(high, v.unit)}"
    return f"{amount} ({bound})"


def possible(e: Estimate) -> Estimate:
    """The estimate and its interval, cut to values that a reader can use.

    The normal approximation can leave the range, as in a difference of two AUCs of less than -1. Shares of the target's
    knowledge exceed 1 where the target knows little in this form.
    """
    ranges = {"auc": (0.0, 1.0), "AUC difference": (-1.0, 1.0), "stored": (0.0, 1.0)}
    least, most = ranges.get(e.metric, (-math.inf, math.inf))
    if e.metric in _OF_TARGET and e.unit != "bits":
        # A level can be below a control's.
        most = 1.0
    low, value, high = (min(max(number, least), most) for number in (e.low, e.value, e.high))
    return replace(e, low=low, value=value, high=high)


def exceeds_target(e: Estimate) -> bool:
    """Return whether a share of the target's knowledge is more than all of it."""
    return e.metric in _OF_TARGET and e.unit != "bits" and round(100 * e.value) > 100


def stored_said(line: StoredLine) -> str:
    """Return, for example, `relearning others brought back about 34 of 100 facts (at least 27)`, or "".

    If an interval covers more than half of the facts, no number of facts is printed.
    """
    share = possible(line.share)
    if share.high - share.low > 0.5:
        return ""
    about = round(share.n * min(max(share.value, 0.0), 1.0))
    return f"relearning others brought back about {about} of {share.n} facts (at least {round(share.n * share.low)})"


def _differs(v: VerdictLine, metric: str) -> str:
    """Return the difference between a model and unexposed ones, with its direction if significant."""
    quantity = "membership" if metric.startswith(AUC) else "answers"
    if v.outcome != "fails":
        return f"{quantity} {{}} off"
    by_unit = ("unlikely", "likely") if v.unit == "bits" else ("rarely right", "often right")
    directions = ("low", "high") if quantity == "membership" else by_unit
    return f"{quantity} {{}} too {directions[v.at_least is not None and v.at_least > 0]}"


def _worst_group(outcome: AuditOutcome, v: VerdictLine) -> str:
    """Return, for example, `A_B: 40 % left (at least 22 %)`, or "" if no group fails the claim alone."""
    groups = [g for g in outcome.groups if (g.subject, g.claim) == (v.subject, v.claim) and g.exceeds]
    worst = min(groups, key=lambda g: (g.p, -g.size.value), default=None)
    if worst is None:
        return ""
    size = possible(worst.size)
    words = f"{sized(size.value, size.unit)} {'likelier' if size.unit == 'bits' else 'left'}"
    return f"{worst.group}: {words} (at least {sized(size.low, size.unit)})"


def facts_said(outcome: AuditOutcome, v: VerdictLine) -> str:
    """The number of single facts that fail the claim, stated ones and merely likelier ones.

    A fact that is only likelier than to any control was not given away in any reply.
    """
    by: TextByName = {}
    for fact in outcome.facts:
        if (fact.subject, fact.claim) == (v.subject, v.claim):
            # A fact that several tests find counts once, and as stated if any test says so.
            by[fact.item] = f"{by.get(fact.item, '')} {fact.by}"
    n_stated = sum("stated" in ways for ways in by.values())
    likelier = len(by) - n_stated
    return " and ".join(
        words.format(f"{n} fact{'s' if n > 1 else ''}")
        for n, words in (
            (n_stated, "states {} that no control states"),
            (likelier, "finds {} likelier than any control does"),
        )
        if n
    )


def reversal_said(line: ReversalLine) -> str:
    """A sentence that names two models whose order differs between two formats."""
    first, second = (one_line(name, width=60) for name in (line.first, line.second))
    return (
        f"The order of {first} and {second} is reversed: {first} leaks more in {line.more_in} and less in "
        f"{line.less_in} (p = {line.p:.2g})."
    )


def controls_said(outcome: AuditOutcome) -> str:
    """Return the number of controls and the evidence for their origin, as in `5 controls as given, ...`."""
    n, words = len(outcome.retrained), LEVELS[outcome.evidence_level]
    if n:
        return f"{n} {words.replace('controls', 'control', 1) if n == 1 else words}"
    return words


def verdict_rows(outcomes: Sequence[AuditOutcome]) -> list[Fields]:
    """The rows of verdicts.json, which outside tools rely on."""
    first = {
        (o.forget, subject, claim): {"time": o.first.time, "verdict": WORDS[was], "thresholds": o.first.thresholds}
        for o in outcomes
        if o.first is not None
        for subject, claim, was in o.first.verdicts
    }
    rows = []
    for outcome in outcomes:
        # The rows of an audit share these lists, so that `write_rows` encodes each once.
        warnings, earlier = list(outcome.warnings), [asdict(judgement) for judgement in outcome.earlier]
        for v in outcome.verdicts:
            rows.append(
                {
                    "subject": v.subject,
                    "forget": outcome.forget,
                    "claim": v.claim,
                    "statement": CLAIMS[v.claim],
                    "verdict": outcome_word(outcome, v),
                    "qualification": qualification(v),
                    "question_types": list(v.question_types),
                    "tested": v.n_tested,
                    "asked": v.n_asked,
                    "reversals": [asdict(r) for r in outcome.reversals if v.subject in (r.first, r.second)],
                    "earlier": earlier,
                    "bound": bound_said(outcome, v),
                    "at_least": v.at_least,
                    "at_most": v.at_most,
                    "against": v.against,
                    "evidence_level": LEVELS[outcome.evidence_level],
                    "unchanged_weights": v.subject in outcome.unchanged,
                    "warnings": warnings,
                    "sealed": outcome.sealed,
                    "reason": v.reason,
                    "first": first.get((outcome.forget, v.subject, v.claim)),
                    "numbers": {name: asdict(estimate) for name, estimate in v.evidence.items()},
                    "facts": [asdict(f) for f in outcome.facts if (f.subject, f.claim) == (v.subject, v.claim)],
                    "groups": [
                        to_json(g) for g in outcome.groups if g.subject == v.subject and v.claim == GroupLine.claim
                    ],
                    "stored": [
                        to_json(s) for s in outcome.stored if s.subject == v.subject and v.claim == "not recoverable"
                    ],
                    "left_out": list(v.left_out),
                    "items_needed": v.items_needed,
                    "needed": v.needed,
                    "detectable": v.detectable,
                    "decides": v.decides,
                    "thresholds": {"margin": v.margin, "wide": v.wide, "unit": v.unit, **outcome.thresholds},
                    "margins_bits": list(outcome.margins_bits),
                    "rules": outcome.rules,
                }
            )
    return rows


Earlier = Mapping[tuple[str, str, str], Record]
"""Rows of a verdicts.json by forget set, model and claim."""
_RANKS = {"pass": 0, UNTESTED: 1, "inconclusive": 1, "fail": 2}


def write_verdicts(
    run: RunFolder, to: Path | None = None, *, known: Mapping[Path, AuditOutcome] = MappingProxyType({})
) -> list[AuditOutcome]:
    """Rebuild verdicts.json from the sealed outcomes of all audits of a run.

    Args:
        run: The run.
        to: The file to write in place of the run's own.
        known: Outcomes by the folder of their audit, which were just written or read.

    Returns:
        The outcomes.
    """
    outcomes = [known.get(audit.path) or read_outcome(audit) for audit in run.audits()]
    write_rows(to or run.verdicts, verdict_rows(outcomes))
    return outcomes


def read_baseline(path: Path) -> Earlier:
    """The verdicts to compare others with.

    In a run's folder they are made anew from the sealed outcomes, since anybody can edit verdicts.json.

    Args:
        path: A run's folder, or a verdicts.json.

    Raises:
        InputError: There are no verdicts, or an outcome of the run was changed after it was written.
    """
    file = path / "verdicts.json" if path.is_dir() else path
    run, where = RunFolder(file.parent), one_line(str(file), width=200)
    if file.name == run.verdicts.name and (audits := run.audits()):
        # As they would come from the file, where a tuple is a list.
        stored = json.loads(json.dumps(verdict_rows([read_outcome(audit) for audit in audits])))
    elif file.is_file():
        stored = read_json(file)
    else:
        raise InputError(f"there is no {where} to compare the verdicts with. Give a run's folder or its verdicts.json")
    try:
        rows = {(row["forget"], row["subject"], row["claim"]): row for row in stored}
        # A row without margins could be held against none.
        if rows and all(row["verdict"] in _RANKS and set(_margins(row)) for row in rows.values()):
            return rows
    # Foreign JSON may contain anything instead of a row.
    except (TypeError, KeyError, AttributeError):
        pass
    raise InputError(f"{where} is not the verdicts.json of an audit. Give a run's folder or its verdicts.json")


def _margins(row: Record) -> Fields:
    # These three belong to the claim. The others belong to the whole audit.
    return {name: value for name, value in row["thresholds"].items() if name not in ("margin", "wide", "unit")}


def comparable(baseline: Earlier, forget: str, margins: Record, rules: object) -> None:
    """Reject a baseline without verdicts on this forget set, or with other margins or rules."""
    of_set = [row for (name, _, _), row in baseline.items() if name == forget]
    if not of_set:
        raise InputError("the baseline has no verdict on the audited forget set. Give an audit of the same forget set")
    for row in of_set:
        if _margins(row) != margins:
            raise InputError("the baseline was judged at other margins. Judge it again at these (--rejudge)")
        if row.get("rules") != rules:
            raise InputError("the baseline was judged by another version's rules. Judge it again (--rejudge)")


def regressions(rows: Sequence[Record], baseline: Earlier) -> list[tuple[Record, str]]:
    """Return the rows of `verdict_rows` that are worse than in the baseline, each with its earlier verdict.

    A model is matched by name, or, with one model in each file, without its name. A claim that is new must pass, and a
    claim that passed before and is missing now is inconclusive. Raises InputError where the baseline is not
    `comparable`.
    """
    subjects = {subject for _, subject, _ in baseline}
    # A single model on both sides is the same candidate under another name.
    alone = next(iter(subjects)) if len(subjects) == len({row["subject"] for row in rows}) == 1 else None
    sets, baseline_sets = {row["forget"]: row for row in rows}, {forget for forget, _, _ in baseline}
    # Only forget sets that the baseline contains are compared. If it contains none, the first is rejected.
    for forget in [name for name in sets if name in baseline_sets] or sets:
        comparable(baseline, forget, _margins(sets[forget]), sets[forget].get("rules"))
    worse = []
    for row in rows:
        earlier = baseline.get((row["forget"], alone or row["subject"], row["claim"]), {"verdict": "pass"})
        if _RANKS[row["verdict"]] > _RANKS[earlier["verdict"]]:
            worse.append((row, str(earlier["verdict"])))
    # The order is that of the rows, since the order of a set differs between processes.
    judged = dict.fromkeys((row["forget"], alone or row["subject"], row["claim"]) for row in rows)
    for forget, subject in dict.fromkeys(key[:2] for key in judged):
        gone = [key for key in baseline if key[:2] == (forget, subject) and key not in judged]
        for claim in (key[2] for key in gone if baseline[key]["verdict"] == "pass"):
            row = {"subject": subject, "claim": f"{claim} (not judged any more)", "verdict": "inconclusive"}
            worse.append((row, "pass"))
    return worse
