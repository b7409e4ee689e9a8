"""Where each unlearned model stands between its two anchors: pure functions from estimates to findings.

The measure is mean ROUGE-1 recall of greedy answers, in [0, 1]. The anchors are `target`, which knows the
forget set, and `retrained`, which never did.

    excess   = subject - retrained, on the forget set
    leakage  = excess / (target - retrained): 0 for retrained, 1 for target
    loss     = target - subject, on the retain set

The interval of a difference is found from the intervals of its two sides (MOVER: Zou and Donner,
"Construction of confidence limits about effect measures: a general approach", Statistics in Medicine 27,
2008). It takes the sides as independent; scores on the same items go together, so it is too wide rather than
too narrow. The interval of the leakage is that of the excess over the measured gap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from vestige.core.estimates import Estimate
from vestige.report.evidence import Cell, Evidence, Subject, greedy_rouge

ADMISSION_GAP = 0.2
"""Methods are compared where the lower bound of target minus retrained exceeds this."""

TOLERATED_LOSS = 0.1
"""The rest is `kept` where the loss's upper bound is below this, `lost` where its lower bound is above it."""

Level = Literal["above", "level", "below", "unclear"]
Rest = Literal["kept", "lost", "unclear"]


class Difference(NamedTuple):
    """A difference of two estimates, or a ratio to one, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """What one model, or several of one role, still say and keep.

    `forget` is over the answers that are compared, `whole` over all of the forget set, `retain` over the
    retain set.
    """

    forget: Estimate
    whole: Estimate | None
    retain: Estimate | None


@dataclass(frozen=True)
class Comparison:
    """One model against its anchors. `rest` is None where a score on the retain set is missing."""

    excess: Difference
    leakage: Difference
    level: Level
    rest: Rest | None


@dataclass(frozen=True)
class MethodFinding:
    """One unlearned model; `comparison` is None where the anchors allow none."""

    subject: Subject
    standing: Standing
    comparison: Comparison | None


@dataclass(frozen=True)
class Finding:
    """What the estimates say about one forget set.

    `scope` names the answers that are compared: `free` (those that the retain set does not give away) where
    the run tells them apart for every model, otherwise `all`. `gap` is target minus retrained on them;
    `admitted` says whether it is wide enough to compare methods. Where an audit has `judged` them, they are not
    compared here: a page has one arithmetic, that of the verdicts.
    """

    forget: str
    scope: str
    target: Standing | None
    retrained: Standing | None
    n_retrained: int
    gap: Difference | None
    admitted: bool
    methods: tuple[MethodFinding, ...]
    judged: bool = False


def difference(a: Estimate, b: Estimate) -> Difference:
    """The difference a - b by MOVER: low = d - sqrt((a - a.low)^2 + (b.high - b)^2), and high likewise."""
    value = a.value - b.value
    return Difference(
        value,
        value - math.hypot(a.value - a.low, b.high - b.value),
        value + math.hypot(a.high - a.value, b.value - b.low),
    )


def pooled(estimates: Sequence[Estimate]) -> Estimate | None:
    """One estimate for the models of one role: their mean, within the envelope of their intervals."""
    if not estimates:
        return None
    first = estimates[0]
    return Estimate(
        metric=first.metric,
        unit=first.unit,
        value=math.fsum(e.value for e in estimates) / len(estimates),
        low=min(e.low for e in estimates),
        high=max(e.high for e in estimates),
        n=min(e.n for e in estimates),
        interval=first.interval if len(estimates) == 1 else f"envelope of {len(estimates)} models",
    )


def level_of(excess: Difference, gap: float) -> Level:
    """Above or below a model that never knew, at its level, or unclear: half the gap is still possible."""
    if excess.low > 0:
        return "above"
    if excess.high < 0:
        return "below"
    return "level" if excess.high < gap / 2 else "unclear"


def rest_of(loss: Difference) -> Rest:
    """Whether the loss on the retain set is tolerable, or cannot be told."""
    if loss.high < TOLERATED_LOSS:
        return "kept"
    return "lost" if loss.low > TOLERATED_LOSS else "unclear"


def compare(own: Standing, target: Standing, retrained: Standing) -> Comparison:
    """One model against its anchors.

    A model at the level of `retrained` on the answers compared, yet below it on the whole forget set, counts
    as below: it withholds what a model that never knew would say, and can be told apart by it.
    """
    excess = difference(own.forget, retrained.forget)
    gap = target.forget.value - retrained.forget.value
    level = level_of(excess, gap)
    if level == "level" and own.whole and retrained.whole and difference(own.whole, retrained.whole).high < 0:
        level = "below"
    return Comparison(
        excess=excess,
        leakage=Difference(*(x / gap for x in excess)),
        level=level,
        rest=rest_of(difference(target.retain, own.retain)) if target.retain and own.retain else None,
    )


def find(evidence: Evidence, forget: str, *, judged: bool = False) -> Finding:
    """The finding for one forget set; without comparisons where an audit has `judged` it."""
    targets, controls, unlearned = (evidence.of(r, forget) for r in ("target", "retrained", "unlearned"))
    free = greedy_rouge("forget", "free")
    scope = "free" if all(free in s.results[forget] for s in (*targets, *controls, *unlearned)) else "all"
    target, retrained = _standing(targets, forget, scope), _standing(controls, forget, scope)
    gap = difference(target.forget, retrained.forget) if target and retrained else None
    admitted = gap is not None and gap.low > ADMISSION_GAP and not judged
    standings = [(subject, _standing([subject], forget, scope)) for subject in unlearned]
    methods = tuple(
        MethodFinding(s, own, compare(own, target, retrained) if admitted and target and retrained else None)
        for s, own in standings
        if own
    )
    return Finding(forget, scope, target, retrained, len(controls), gap, admitted, methods, judged)


def _standing(subjects: Sequence[Subject], forget: str, scope: str) -> Standing | None:
    def score(cell: Cell) -> Estimate | None:
        return pooled([s.results[forget][cell] for s in subjects if cell in s.results[forget]])

    own = score(greedy_rouge("forget", scope))
    return Standing(own, score(greedy_rouge("forget")), score(greedy_rouge("retain"))) if own else None
