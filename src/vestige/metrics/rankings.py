"""Whether formats agree: on the order of methods, pair by pair, and on the verdict.

Axes: S subjects (methods), R resamples. Orders are of these models; another training may come out elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.core.estimates import Estimate
from vestige.metrics.bands import holm
from vestige.metrics.contrasts import Draws
from vestige.metrics.intervals import LEVEL, interval_of_mean
from vestige.metrics.verdicts import Evidence, Outcome

_TAIL = (1 - LEVEL) / 2


class Reversal(NamedTuple):
    """Two subjects of which the first leaks more in one format and less in the other; `p` after Holm's correction."""

    first: str
    second: str
    more_in: str
    less_in: str
    p: float


class Reliability(NamedTuple):
    """How the verdict from all formats but one foretells that of the one left out, over subjects and formats.

    `agreement` is over the cases in which both are decided; None where there is none.
    """

    agree: int
    contradict: int
    undecided: int
    agreement: Estimate | None


def kendall_tau_b(first: Float[np.ndarray, "r S"], second: Float[np.ndarray, "r S"]) -> Float[np.ndarray, " r"]:
    """(concordant - discordant) / sqrt((pairs not tied in one) (pairs not tied in the other)), row by row.

    M. Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945. Not a number where one row is all ties.
    """
    left, right = np.triu_indices(first.shape[1], k=1)
    one, other = np.sign(first[:, left] - first[:, right]), np.sign(second[:, left] - second[:, right])
    pairs = np.sqrt(np.abs(one).sum(axis=1) * np.abs(other).sum(axis=1))
    found: Float[np.ndarray, " r"] = np.divide(
        (one * other).sum(axis=1), pairs, out=np.full(len(one), np.nan), where=pairs > 0
    )
    return found


def agreement_of_orders(first: Sequence[Draws], second: Sequence[Draws]) -> Estimate:
    """Kendall's tau-b of the subjects' values in two formats, with percentiles over the resamples that they share.

    Resamples in which one format ties all subjects say nothing about an order and are left out.
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(f"an order needs the same two subjects or more, got {len(first)} and {len(second)}")
    values = [np.array([[one.value for one in side]]) for side in (first, second)]
    found = float(kendall_tau_b(values[0], values[1])[0])
    if np.isnan(found):
        raise ValueError("all subjects are tied in one format, so there is no order to agree on")
    rows = [np.stack([(one.low + one.high) / 2 for one in side], axis=1) for side in (first, second)]
    drawn = kendall_tau_b(rows[0], rows[1])
    low, high = np.quantile(drawn[~np.isnan(drawn)], [_TAIL, 1 - _TAIL])
    low, high = min(float(low), found), max(float(high), found)
    return Estimate("kendall_tau_b", "correlation", found, low, high, len(first), "percentiles over shared resamples")


def reversals(differences: Mapping[tuple[str, str], Mapping[str, Draws]]) -> tuple[Reversal, ...]:
    """The pairs of subjects whose order is reversed between two formats, each direction being significant.

    `differences` has, for each pair (first, second) and format, the draws of first - second (`leakage.difference`).
    A reversal's p-value is the greater of its two one-sided ones; all pairs of subjects and formats are corrected for
    by Holm's method, and 2.5 % decides.
    """
    found = []
    for (first, second), formats in differences.items():
        for one, other in combinations(formats, 2):
            for more, less in ((one, other), (other, one)):
                p = max(formats[more].p_at_most(0.0), formats[less].p_at_least(0.0))
                found.append(Reversal(first, second, more, less, p))
    corrected = holm([reversal.p for reversal in found])
    return tuple(r._replace(p=p) for r, p in zip(found, corrected, strict=True) if p <= _TAIL)


def reliability(
    evidence: Mapping[str, Sequence[Evidence]], decide: Callable[[Sequence[Evidence]], Outcome], *, seed: int
) -> Reliability:
    """The verdict from all formats but one against that of the one left out, for each subject and format."""
    agree = contradict = undecided = 0
    hits, subjects = [], []
    for subject, formats in evidence.items():
        for index, left_out in enumerate(formats):
            rest = [*formats[:index], *formats[index + 1 :]]
            if not rest:
                raise ValueError(f"{subject}: one format cannot be foretold from no other")
            foretold, seen = decide(rest), decide([left_out])
            if "inconclusive" in (foretold, seen):
                undecided += 1
                continue
            agree, contradict = agree + (foretold == seen), contradict + (foretold != seen)
            hits.append(float(foretold == seen))
            subjects.append(subject)
    if not hits:
        return Reliability(agree, contradict, undecided, None)
    low, high, said = interval_of_mean(np.array(hits), clusters=subjects, seed=seed)
    share = float(np.mean(hits))
    return Reliability(
        agree, contradict, undecided, Estimate("agreement_of_verdicts", "share", share, low, high, len(hits), said)
    )
