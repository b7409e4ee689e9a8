"""Paired differences of two models on the same questions.

Two models answered the same N questions, so the difference of their scores is taken question by question. The interval
is `interval_of_mean` of these differences, clustered by document or group (E. Miller, Adding Error Bars to Evals,
2411.00640, section 4). The test flips the sign of each cluster's sum at random: without a true difference both signs
are equally likely. For independent right-or-wrong answers it is the exact McNemar test.

Axes: N questions, K clusters.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.core.seeds import generator, random_words
from vestige.metrics.intervals import Bounds, design_effect, interval_of_mean

ByQuestion = Float[np.ndarray, " N"]

_EXACT = 12
"""Up to this many clusters that differ, all sign patterns are enumerated."""
_FLIPS = 20_000
_Z_SUM = 1.959964 + 0.841621
"""Standard normal quantiles for a two-sided level of 5 % and a power of 80 %."""


class PairedDifference(NamedTuple):
    """The mean of second minus first over the questions that both answered, in units of the score.

    `low` and `high` are the ends of a 95 % interval. `worst_low` and `worst_high` are the means that the difference
    could have if every missing question had gone one way or the other.
    """

    value: float
    low: float
    high: float
    p_value: float
    n: int
    n_clusters: int
    n_missing: int
    worst_low: float
    worst_high: float
    method: str


def paired_difference(
    first: ByQuestion,
    second: ByQuestion,
    *,
    clusters: Sequence[str] | None = None,
    bounds: Bounds | None = (0.0, 1.0),
    seed: int = 0,
) -> PairedDifference:
    """Compare two models on the same questions.

    Args:
        first: Scores of the first model by question, shape (N,). NaN is a missing score.
        second: Scores of the second model on the same questions, shape (N,).
        clusters: The document or group of each question, if questions share one.
        bounds: The least and greatest possible score, or None for scores without bounds, such as bits.
        seed: Seed of the resamples.

    Returns:
        The mean difference with interval, p-value, and the range that missing scores leave open.

    Raises:
        ValueError: If the shapes differ or no question has both scores.

    Example:
        >>> a, b = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0])
        >>> paired_difference(a, b).value
        0.25
    """
    if first.shape != second.shape:
        raise ValueError(f"the models have scores of the shapes {first.shape} and {second.shape}")
    known = ~(np.isnan(first) | np.isnan(second))
    if not known.any():
        raise ValueError("no question has a score of both models")
    differences = (second - first)[known]
    labels = None
    if clusters is not None:
        labels = [label for label, both in zip(clusters, known, strict=True) if both]
    possible = None
    if bounds is not None:
        width = bounds[1] - bounds[0]
        possible = (-width, width)
    interval = interval_of_mean(differences, clusters=labels, bounds=possible, seed=seed)
    sums = _cluster_sums(differences, labels)
    lowest, highest = _worst(first, second, bounds or (-math.inf, math.inf))
    return PairedDifference(
        value=float(differences.mean()),
        low=interval.low,
        high=interval.high,
        p_value=sign_flip_p_value(sums, seed=seed),
        n=len(differences),
        n_clusters=len(sums),
        n_missing=int((~known).sum()),
        worst_low=lowest,
        worst_high=highest,
        method=interval.method,
    )


def _cluster_sums(differences: ByQuestion, labels: Sequence[str] | None) -> Float[np.ndarray, " K"]:
    if labels is None:
        return differences
    _, places = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    return np.bincount(places, weights=differences)


def _worst(first: ByQuestion, second: ByQuestion, bounds: Bounds) -> Bounds:
    """The least and greatest mean of second - first that missing scores allow."""
    low, high = bounds
    least = np.nan_to_num(second, nan=low) - np.nan_to_num(first, nan=high)
    most = np.nan_to_num(second, nan=high) - np.nan_to_num(first, nan=low)
    return float(least.mean()), float(most.mean())


def sign_flip_p_value(sums: Float[np.ndarray, " K"], *, seed: int = 0) -> float:
    """Two-sided p-value of the sum of `sums` under random signs.

    With at most `_EXACT` nonzero sums, all sign patterns are enumerated. Otherwise `_FLIPS` patterns are drawn, and the
    observed one is included (B. Phipson and G. Smyth, 2010), so that no p-value is zero.

    Example:
        >>> sign_flip_p_value(np.array([1.0, 1.0, 1.0, 0.0]))
        0.25
    """
    magnitudes = np.abs(sums[sums != 0])
    if not len(magnitudes):
        return 1.0
    observed = abs(float(sums.sum()))
    # Equal sums that were added in another order differ in the last digits.
    threshold = observed * (1 - 1e-9)
    if len(magnitudes) <= _EXACT:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(magnitudes))))
        return float(np.mean(np.abs(signs @ magnitudes) >= threshold))
    draws = generator(seed, "sign flips", str(len(magnitudes)))
    extreme = 0
    step = 1000
    for _ in range(_FLIPS // step):
        words = random_words(draws, step * len(magnitudes)).reshape(step, len(magnitudes))
        signs = np.where(words & np.uint64(1), 1.0, -1.0)
        extreme += int((np.abs(signs @ magnitudes) >= threshold).sum())
    return (extreme + 1) / (_FLIPS + 1)


def questions_needed(differences: ByQuestion, difference: float, *, clusters: Sequence[str] | None = None) -> int:
    """The number of questions that show a true `difference` with a power of 80 % at a two-sided level of 5 %.

    n = (1.96 + 0.84)^2 variance design_effect / difference^2, with the variance of the paired differences (2411.00640,
    section 5). `differences` are the observed paired differences.

    Raises:
        ValueError: If `difference` is not positive or there are fewer than two differences.
    """
    if difference <= 0 or len(differences) < 2:
        raise ValueError("a sample size needs a positive difference and at least two paired scores")
    variance = float(np.var(differences, ddof=1))
    if clusters is not None:
        variance *= max(1.0, design_effect(differences, np.asarray(clusters, dtype=str)))
    return max(2, math.ceil(_Z_SUM**2 * variance / difference**2))
