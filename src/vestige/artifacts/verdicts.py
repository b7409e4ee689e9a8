"""verdicts.json: every verdict of every audit of a run in the rows that outside tools rely on; bounds in words."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vestige.artifacts.audits import CLAIMS, LEVELS, AuditOutcome, GroupLine, VerdictLine
from vestige.core.estimates import to_json

_ONE_SIDED = {
    "leakage": "{} left",
    "leakage_vs_chance": "{} left",
    "leakage_vs_alternatives": "{} left",
    "recovery": "{} comes back",
    "harm": "loses {}",
    "injection": "{} learnt from what was kept",
}
"""By metric, what is bounded; in bits it is how much likelier the answers are."""


def bound_said(outcome: AuditOutcome, v: VerdictLine) -> str:
    """The bound behind a verdict in words, as in `at most 0.12 left` or `at least 9.2 bits likelier`; "" without one.

    A claim that single facts fail has their number too, one that a contract or person fails by itself its bound.
    """
    n = n_facts(outcome, v)
    after = " under attack" if v.claim == "not recoverable" else ""
    facts = f"{n} fact{'s' if n > 1 else ''} given away{after}" if n else ""
    bound = _bound(v) or (_worst_group(outcome, v) if v.outcome == "fails" else "")
    return "; ".join(part for part in (bound, facts) if part)


def _worst_group(outcome: AuditOutcome, v: VerdictLine) -> str:
    """As in `A_B: at least 0.22 left`; "" where no group fails the claim by itself."""
    found = [g for g in outcome.groups if (g.subject, g.claim) == (v.subject, v.claim) and g.exceeds]
    worst = min(found, key=lambda g: (g.p, -g.size.value), default=None)
    if worst is None:
        return ""
    unit = worst.size.unit
    return f"{worst.group}: at least {_size(worst.size.low, unit)} {'likelier' if unit == 'bits' else 'left'}"


BOUNDS_SAID = (
    "Intervals are of 95 %. “At least” is their lower end (97.5 % one-sided), “at most” a bound of 96 % one-sided, "
    "which can lie within them."
)
"""The levels of all that is printed, stated once; `metrics` has the numbers."""


def controls_said(outcome: AuditOutcome) -> str:
    """How many controls there are and what is known of where they come from, as in `5 controls as given, ...`."""
    n, words = len(outcome.retrained), LEVELS[outcome.evidence_level]
    return f"{n} {words.replace('controls', 'control', 1) if n == 1 else words}" if n else words


def n_facts(outcome: AuditOutcome, v: VerdictLine) -> int:
    """How many single facts fail the claim."""
    return len({f.item for f in outcome.facts if (f.subject, f.claim) == (v.subject, v.claim)})


def _bound(v: VerdictLine) -> str:
    low, high = v.at_least, v.at_most
    if v.decides is None or low is None or high is None:
        return ""
    metric = v.evidence[v.decides].metric
    if v.claim == "indistinguishable":
        return _two_sided(v, metric, low, high)
    if v.outcome == "fails":
        size = f"at least {_size(low, v.unit)}"
    elif high < v.wide:
        # Below 0 it is no leak either; that it is less than nothing would only be misread.
        size = f"at most {_size(max(high, 0.0), v.unit)}"
    else:
        size = f"{_size(low, v.unit, unit_said=False)} to {_size(high, v.unit)}"
    if v.unit == "bits":
        words = f"{size} come back" if metric == "recovery" else f"{size} likelier"
    else:
        words = _ONE_SIDED.get(metric, "{}").format(size)
    return words + (" where it was tested" if v.outcome == "inconclusive" and high < v.wide else "")


def _two_sided(v: VerdictLine, metric: str, low: float, high: float) -> str:
    """Of what may differ from models that never knew on neither side."""
    what = "membership AUC" if metric.startswith("AUC") else "answers"
    if v.outcome == "fails":
        ways = ("high", "low") if what != "answers" else ("often right", "rarely right")
        if v.unit == "bits":
            ways = "likely", "unlikely"
        return f"{what} at least {_size(max(low, -high), v.unit)} too {ways[low < 0]}"
    reach = max(high, -low)
    if reach < v.wide:
        tested = " where it was tested" if v.outcome == "inconclusive" else ""
        return f"{what} within {_size(reach, v.unit)} of theirs{tested}"
    return f"{what} {_size(low, v.unit, unit_said=False)} to {_size(high, v.unit)} off"


def _size(x: float, unit: str, *, unit_said: bool = True) -> str:
    """As in `0.12` or `9.2 bits`."""
    if unit == "bits":
        return f"{x:.1f}{' bits' if unit_said else ''}"
    return f"{x:.2f}"


def verdict_rows(outcomes: Sequence[AuditOutcome]) -> list[dict[str, Any]]:
    """The rows of verdicts.json, which outside tools rely on."""
    first = {
        (o.forget, subject, claim): {"time": o.first.time, "verdict": said, "thresholds": o.first.thresholds}
        for o in outcomes
        if o.first is not None
        for subject, claim, said in o.first.verdicts
    }
    return [
        {
            "subject": v.subject,
            "forget": outcome.forget,
            "claim": v.claim,
            "statement": CLAIMS[v.claim],
            "verdict": v.outcome,
            "bound": bound_said(outcome, v),
            "at_least": v.at_least,
            "at_most": v.at_most,
            "against": v.against,
            "evidence_level": LEVELS[outcome.evidence_level],
            "unchanged_weights": v.subject in outcome.unchanged,
            "reason": v.reason,
            "first": first.get((outcome.forget, v.subject, v.claim)),
            "numbers": {name: asdict(estimate) for name, estimate in v.evidence.items()},
            "facts": [asdict(f) for f in outcome.facts if (f.subject, f.claim) == (v.subject, v.claim)],
            "groups": [to_json(g) for g in outcome.groups if g.subject == v.subject and v.claim == GroupLine.claim],
            "left_out": list(v.left_out),
            "items_needed": v.items_needed,
            "needed": v.needed,
            "detectable": v.detectable,
            "decides": v.decides,
            "thresholds": {"margin": v.margin, "wide": v.wide, "unit": v.unit, **outcome.thresholds},
        }
        for outcome in outcomes
        for v in outcome.verdicts
    ]
