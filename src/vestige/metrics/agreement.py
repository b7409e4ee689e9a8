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


class PromptParts(NamedTuple):
    """Variance of a single answer's score, by source; as estimated by moments, so that below 0 means "none found".

    `model_by_prompt` is which prompts a model does worse on than its siblings, `generation` what drawing the answer
    again changes. With a single model `model` and `model_by_prompt` are None, and the latter is part of `prompt`.
    """

    model: float | None
    prompt: float
    model_by_prompt: float | None
    generation: float


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


def prompt_parts(scores: Float[np.ndarray, "S G N"]) -> PromptParts:
    """Components of variance of single answers: models crossed with prompts, generations drawn anew for each of both.

    From expected mean squares: E MS(S) = e + G sn + G N s; E MS(N) = e + G sn + S G n; E MS(S x N) = e + G sn;
    E MS(within) = e. A generation is no level of its own: what is drawn for one prompt has nothing to do with the next.
    """
    s, g, n = scores.shape
    if min(g, n) < 2:
        raise ValueError(f"the design needs two generations and two prompts, got {g} and {n}")
    cells = scores.mean(1)
    by_model, by_prompt, grand = cells.mean(1), cells.mean(0), cells.mean()
    within = float(np.sum((scores - cells[:, None, :]) ** 2) / (s * n * (g - 1)))
    ms_prompt = float(s * g * np.sum((by_prompt - grand) ** 2) / (n - 1))
    if s == 1:
        return PromptParts(None, (ms_prompt - within) / g, None, within)
    ms_model = float(g * n * np.sum((by_model - grand) ** 2) / (s - 1))
    ms_cell = float(g * np.sum((cells - by_model[:, None] - by_prompt + grand) ** 2) / ((s - 1) * (n - 1)))
    return PromptParts(
        model=(ms_model - ms_cell) / (g * n),
        prompt=(ms_prompt - ms_cell) / (s * g),
        model_by_prompt=(ms_cell - within) / g,
        generation=within,
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
