"""How far judges agree, and how far scores vary over seeds, generations, judges and prompts.

Axes: N items or prompts, S seeds of the model, G generations from each, J judges. A run's score is a mean over prompts.

t-tests of a change, two-sided, with their 95 % intervals. Axes: R runs of the first side, R2 of the second, N pairs.
Every test is of second minus first. A test of nothing is refused with its reason (`ValueError`) and never NaN: fewer
than two values to take a spread from, or no spread at all, since runs that repeat one number are no evidence of how
they would vary.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr, stdtrit
from scipy.stats import rankdata

from vestige.metrics.intervals import LEVEL


class Agreement(NamedTuple):
    """Two judges on the `n` items that both judged. `difference` is the mean of second minus first.

    `spearman` and `kappa` are None where one judge gives all items one score, since then they are not defined.
    """

    n: int
    equal: float
    within_one: float
    difference: float
    spearman: float | None
    kappa: float | None


class Parts(NamedTuple):
    """Variance of a run's score, by source; as estimated by moments, so that a value below 0 means "none found"."""

    seed: float
    generation: float
    judge: float
    seed_by_judge: float
    rest: float


def agreement(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> Agreement:
    """Agreement of two judges; NaN is "not judged", and an item counts only if both judged it.

    kappa is Cohen's with squared weights on the scores as they are: 1 - mean (a - b)^2 / mean over all pairs of items
    (a_i - b_j)^2 (J. Cohen, Weighted kappa, Psychological Bulletin 70, 1968).
    """
    both = ~(np.isnan(first) | np.isnan(second))
    a, b = first[both], second[both]
    if not len(a):
        raise ValueError("no item was judged by both, so there is no agreement")
    gap = b - a
    # The mean over all pairs, without making them: var(a) + var(b) + (mean a - mean b)^2.
    expected = a.var() + b.var() + (a.mean() - b.mean()) ** 2
    spread = a.min() < a.max() and b.min() < b.max()
    return Agreement(
        n=len(a),
        equal=float((gap == 0).mean()),
        within_one=float((np.abs(gap) <= 1).mean()),
        difference=float(gap.mean()),
        spearman=float(np.corrcoef(rankdata(a), rankdata(b))[0, 1]) if spread else None,
        kappa=float(1 - (gap**2).mean() / expected) if spread else None,
    )


class TTest(NamedTuple):
    """A two-sided t-test of second minus first: `difference` with its 95 % interval, t, degrees of freedom, p."""

    difference: float
    low: float
    high: float
    t: float
    dof: float
    p: float


def student_test(first: Float[np.ndarray, " R"], second: Float[np.ndarray, " R2"]) -> TTest:
    """Student's two-sample t-test: equal variances, pooled."""
    n, m = _sizes(first, second)
    pooled = ((n - 1) * first.var(ddof=1) + (m - 1) * second.var(ddof=1)) / (n + m - 2)
    return _test(float(second.mean() - first.mean()), math.sqrt(pooled * (1 / n + 1 / m)), float(n + m - 2))


def welch_test(first: Float[np.ndarray, " R"], second: Float[np.ndarray, " R2"]) -> TTest:
    """Welch's two-sample t-test: variances of their own, degrees of freedom after Welch and Satterthwaite."""
    n, m = _sizes(first, second)
    a, b = first.var(ddof=1) / n, second.var(ddof=1) / m
    dof = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1)) if a + b else n + m - 2
    return _test(float(second.mean() - first.mean()), math.sqrt(a + b), float(dof))


def paired_test(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"]) -> TTest:
    """The t-test of the differences of N pairs against 0, with N - 1 degrees of freedom."""
    n = len(first)
    if n < 2:
        raise ValueError(f"a paired t-test needs two pairs, got {n}")
    gaps = second - first
    return _test(float(gaps.mean()), float(gaps.std(ddof=1)) / math.sqrt(n), float(n - 1))


def _sizes(first: Float[np.ndarray, " R"], second: Float[np.ndarray, " R2"]) -> tuple[int, int]:
    if min(len(first), len(second)) < 2:
        raise ValueError(f"a t-test needs two runs on each side, got {len(first)} and {len(second)}")
    return len(first), len(second)


def _test(difference: float, error: float, dof: float) -> TTest:
    if not all(math.isfinite(x) for x in (difference, error)):
        raise ValueError("a t-test needs finite values")
    # Rounding leaves a spread of some 1e-16 where values are equal; a difference is not tested against that.
    if error <= 1e-12 * max(1.0, abs(difference)):
        raise ValueError("all values are equal, so there is no spread to test against")
    t, arm = difference / error, float(stdtrit(dof, (1 + LEVEL) / 2)) * error
    return TTest(difference, difference - arm, difference + arm, t, dof, float(2 * stdtr(dof, -abs(t))))
