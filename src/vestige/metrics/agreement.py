"""How far judges agree, how far scores vary over seeds, generations and judges, and whether a change is more than that.

Axes: N items, R runs, S seeds of the model, G generations from each, J judges. A run's score is its mean over prompts.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtr, stdtrit
from scipy.stats import rankdata

_LEVEL = 0.95


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


class TTest(NamedTuple):
    """A two-sided t-test of second minus first: `difference` with its 95 % interval, t, degrees of freedom, p."""

    difference: float
    low: float
    high: float
    t: float
    dof: float
    p: float


class Parts(NamedTuple):
    """Variance of a run's score, by source; as estimated by moments, so that a value below 0 means "none found"."""

    seed: float
    generation: float
    judge: float
    seed_by_judge: float
    rest: float


class Change(NamedTuple):
    """One judge's scores before and after, mean and standard deviation over runs, with three tests of the change.

    `student` and `welch` take every run for independent, as the paper does. `over_seeds` is Welch's test on the means
    of seeds: generations from one model share its training, so this is the one to believe. It is None where one side
    has a single seed.
    """

    before_mean: float
    before_sd: float
    after_mean: float
    after_sd: float
    student: TTest
    welch: TTest
    over_seeds: TTest | None


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


def flags_agree(first: Bool[np.ndarray, " N"], second: Bool[np.ndarray, " N"]) -> float | None:
    """Cohen's kappa of two yes-or-no judges: (agreement - chance) / (1 - chance). None where both always say one."""
    p, q = first.mean(), second.mean()
    chance = p * q + (1 - p) * (1 - q)
    return None if chance == 1 else float(((first == second).mean() - chance) / (1 - chance))


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


def _sizes(first: Float[np.ndarray, " R"], second: Float[np.ndarray, " R2"]) -> tuple[int, int]:
    if min(len(first), len(second)) < 2:
        raise ValueError(f"a t-test needs two runs on each side, got {len(first)} and {len(second)}")
    return len(first), len(second)


def _test(difference: float, error: float, dof: float) -> TTest:
    if not error:
        # No spread at all: runs that repeat one number are no evidence of how they would vary.
        raise ValueError("all runs of each side are equal, so there is no spread to test against")
    t, arm = difference / error, float(stdtrit(dof, (1 + _LEVEL) / 2)) * error
    return TTest(difference, difference - arm, difference + arm, t, dof, float(2 * stdtr(dof, -abs(t))))


def variance_parts(scores: Float[np.ndarray, "S G J"]) -> Parts:
    """Components of variance of the balanced design: generations nested in seeds, judges crossed with both.

    From expected mean squares: E MS(S) = e + J g + G sj + G J s; E MS(G in S) = e + J g; E MS(J) = e + G sj + S G j;
    E MS(S x J) = e + G sj; E MS(rest) = e (Searle, Casella and McCulloch, Variance Components, 1992).
    """
    s, g, j = scores.shape
    if min(s, g, j) < 2:
        raise ValueError(f"the design needs two of each, got {s} seeds, {g} generations, {j} judges")
    grand, by_seed, by_judge = scores.mean(), scores.mean((1, 2)), scores.mean((0, 1))
    by_run, by_pair = scores.mean(2), scores.mean(1)
    ms_seed = g * j * np.sum((by_seed - grand) ** 2) / (s - 1)
    ms_run = j * np.sum((by_run - by_seed[:, None]) ** 2) / (s * (g - 1))
    ms_judge = s * g * np.sum((by_judge - grand) ** 2) / (j - 1)
    ms_pair = g * np.sum((by_pair - by_seed[:, None] - by_judge + grand) ** 2) / ((s - 1) * (j - 1))
    rest = scores - by_run[..., None] - by_pair[:, None, :] + by_seed[:, None, None]
    ms_rest = np.sum(rest**2) / (s * (g - 1) * (j - 1))
    return Parts(
        seed=float((ms_seed - ms_run - ms_pair + ms_rest) / (g * j)),
        generation=float((ms_run - ms_rest) / j),
        judge=float((ms_judge - ms_pair) / (s * g)),
        seed_by_judge=float((ms_pair - ms_rest) / g),
        rest=float(ms_rest),
    )


def changes(before: Float[np.ndarray, "S G J"], after: Float[np.ndarray, "S2 G2 J"]) -> list[Change]:
    """The change of each judge's score, in the judges' order, as in 2511.00030, Table 6 and appendix C.1."""
    return [_change(before[:, :, k], after[:, :, k]) for k in range(before.shape[2])]


def _change(before: Float[np.ndarray, "S G"], after: Float[np.ndarray, "S2 G2"]) -> Change:
    b, a = before.ravel(), after.ravel()
    seeds = welch_test(before.mean(1), after.mean(1)) if min(len(before), len(after)) > 1 else None
    sd = [float(x.std(ddof=1)) for x in (b, a)]
    return Change(float(b.mean()), sd[0], float(a.mean()), sd[1], student_test(b, a), welch_test(b, a), seeds)
