"""What the estimates of one forget set are read against: the answers that are shown, and the models that never knew.

A mean and an envelope, no verdict: a page has one arithmetic, that of the audit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vestige.core.estimates import Estimate
from vestige.report.evidence import Evidence, greedy_rouge


@dataclass(frozen=True)
class Finding:
    """One forget set.

    `scope` names the answers that are shown: `free` (those that the retain set does not give away) where the run tells
    them apart for every model, otherwise `all`; `never` is what models that never knew score in them.
    """

    forget: str
    scope: str
    never: Estimate | None


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


def find(evidence: Evidence, forget: str) -> Finding:
    """What there is to read the estimates of one forget set against."""
    roles = [evidence.of(role, forget) for role in ("target", "retrained", "unlearned")]
    free = greedy_rouge("forget", "free")
    scope = "free" if all(free in s.results[forget] for own in roles for s in own) else "all"
    cell = greedy_rouge("forget", scope)
    return Finding(forget, scope, pooled([s.results[forget][cell] for s in roles[1] if cell in s.results[forget]]))
