"""95 % intervals for the mean of per-item scores that stay honest with few items, and never claim certainty.

Axes: N items, K clusters, R resamples. What is chosen, and why, was measured: docs/metrics.md has the
coverage and the widths, `python -m benchmarks.coverage` makes them. In short:

- scores that are all 0 or 1: Wilson.
- other scores with known bounds: Gaffke. The Bayesian bootstrap with one more observation at each bound in
  turn: the low end is the 2.5 % quantile of sum(D_i x_i) + D_0 a, the high end the 97.5 % quantile of sum(D_i
  x_i) + D_0 b, with D uniform over the simplex and [a, b] the bounds (N. Gaffke, Three test statistics for a
  nonparametric one-sided hypothesis on the mean of a nonnegative variable, Math. Methods Statist. 14, 2005;
  E. Learned-Miller and P. Thomas, A new confidence interval for the mean of a bounded random variable,
  1905.06208). No distribution is known whose mean it covers in less than 95 % of samples, though that is
  proven in special cases only; for 0/1 scores it is Clopper-Pearson. The percentile bootstrap covers 62 % at
  n = 20 and p = 0.05.
- scores without bounds (bits, nats): on either side the further end of Student's t and of the studentised bootstrap.
  The bootstrap's errors are at least a tenth of the sample's, so that resamples of one score alone, which few or tied
  scores often give, move the ends as far as they can tell and no further. One score, or equal ones, have no interval:
  the ends are infinite, and `method` says why.
- scores in clusters (the items of one edge): the interval over items, its arms widened by sqrt(design effect)
  times t(K - 1) / z, the correction of E. Korn and B. Graubard, Confidence intervals for proportions with
  small expected number of positive counts estimated from survey data, Survey Methodology 24, 1998. Below 5
  clusters that says nothing any more, so the interval is over the items of just these clusters, and `method`
  says so.

An interval depends on the scores and the seed, not on their order.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from scipy.special import ndtri, stdtrit

from vestige.core.seeds import generator

LEVEL = 0.95
RESAMPLES = 10_000
LEAST_CLUSTERS = 5
"""With fewer, the spread between clusters is not estimated: the interval speaks of those at hand only."""

LEAST_ERROR = 0.1
"""Of the sample's standard error: the least of a resample's. It bounds the ends where scores are few or tied."""

_TAIL = (1 - LEVEL) / 2
# Squares of smaller differences are rounded to 0; the design effect does not depend on the scale.
_LEAST_SPREAD = 1e-100
_Z = float(ndtri(1 - _TAIL))
_DRAWS_AT_ONCE = 1_000_000

Bounds = tuple[float, float]


class Interval(NamedTuple):
    """A 95 % interval and how it was found, in words for `Estimate.interval`; ends that nothing tells are infinite."""

    low: float
    high: float
    method: str


def interval_of_mean(
    values: Float[np.ndarray, " N"],
    *,
    clusters: Sequence[str] | None = None,
    bounds: Bounds | None = (0.0, 1.0),
    seed: int,
    resamples: int = RESAMPLES,
) -> Interval:
    """An interval for the mean of the scores `values`.

    `clusters` names the cluster of each item. `bounds` are the least and greatest score that are possible
    (not those observed), or None where there are none; then one score alone or equal ones have infinite ends.
    """
    scores = _checked(values, bounds)
    labels = None if clusters is None else np.asarray(clusters, dtype=str)
    if labels is not None and len(labels) != len(scores):
        raise ValueError(f"{len(scores)} scores but {len(labels)} cluster names")
    n_clusters = 0 if labels is None else len(np.unique(labels))
    if bounds is not None and n_clusters < LEAST_CLUSTERS and np.isin(scores, bounds).all():
        interval = _scaled_wilson(scores, bounds)
    elif bounds is not None:
        interval = gaffke(scores, bounds=bounds, seed=seed, resamples=resamples)
    else:
        interval = studentised_bootstrap(scores, seed=seed, resamples=resamples)
    if labels is None or math.isinf(interval.low):
        return interval
    if n_clusters < LEAST_CLUSTERS:
        few = f"{n_clusters} cluster" + ("" if n_clusters == 1 else "s")
        return interval._replace(method=f"{interval.method}, items of {few} only")
    return _widened(interval, scores, labels, bounds)


def wilson(hits: int, n: int) -> Interval:
    """The score interval for `hits` of `n` (E. B. Wilson, JASA 22, 1927). Undefined, so refused, at n = 0."""
    if not (n >= 1 and 0 <= hits <= n):
        raise ValueError(f"{hits} of {n} is no proportion")
    share = hits / n
    centre = share + _Z**2 / (2 * n)
    arm = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
    total = 1 + _Z**2 / n
    # At no hit and at all hits the end is 0 or 1 exactly; rounding would miss it by a digit.
    low = 0.0 if hits == 0 else (centre - arm) / total
    high = 1.0 if hits == n else (centre + arm) / total
    return Interval(low, high, "Wilson")


def gaffke(values: Float[np.ndarray, " N"], *, bounds: Bounds, seed: int, resamples: int = RESAMPLES) -> Interval:
    """Gaffke's interval for scores in `bounds`; see the module's docstring."""
    scores = np.sort(_checked(values, bounds))
    rng = generator(seed, "gaffke")
    lows, highs = [], []
    for size in _chunks(len(scores) + 1, resamples):
        weights = rng.standard_exponential((size, len(scores) + 1))
        total = weights.sum(axis=1)
        shared = weights[:, 1:] @ scores
        lows.append((shared + weights[:, 0] * bounds[0]) / total)
        highs.append((shared + weights[:, 0] * bounds[1]) / total)
    low = float(np.quantile(np.concatenate(lows), _TAIL))
    high = float(np.quantile(np.concatenate(highs), 1 - _TAIL))
    return Interval(max(low, bounds[0]), min(high, bounds[1]), "Gaffke")


def studentised_bootstrap(values: Float[np.ndarray, " N"], *, seed: int, resamples: int = RESAMPLES) -> Interval:
    """[m - t_high s, m - t_low s]: t are quantiles of (m* - m) / s* over resamples, s the standard error.

    B. Efron, Nonparametric standard errors and confidence intervals, Canadian J. Statist. 9, 1981. An s* is at least s
    / 10, and t_high at least, t_low at most, Student's quantile. One score and equal scores have infinite ends.
    """
    scores = np.sort(_checked(values, None))
    n, mean = len(scores), float(scores.mean())
    if n < 2:
        return Interval(-math.inf, math.inf, "too few: one score")
    if scores[0] == scores[-1]:
        return Interval(-math.inf, math.inf, f"no spread: all {n} scores are equal")
    rng, error, ratios = generator(seed, "studentised"), scores.std(ddof=1) / math.sqrt(n), []
    for size in _chunks(n, resamples):
        ratios.append(studentised(scores[rng.integers(0, n, (size, n))], mean, error))
    low, high = np.quantile(np.concatenate(ratios), [_TAIL, 1 - _TAIL])
    t = float(stdtrit(n - 1, 1 - _TAIL))
    below, above = max(float(high), t), max(float(-low), t)
    return Interval(mean - below * float(error), mean + above * float(error), "studentised bootstrap and t")


def studentised(drawn: Float[np.ndarray, "R N"], mean: float, error: float) -> Float[np.ndarray, " R"]:
    """(m* - m) / s* of resamples; s*, their standard error, is taken as at least a tenth of `error`, the sample's."""
    errors = drawn.std(axis=1, ddof=1) / math.sqrt(drawn.shape[1])
    found: Float[np.ndarray, " R"] = (drawn.mean(axis=1) - mean) / np.maximum(errors, LEAST_ERROR * error)
    return found


def design_effect(values: Float[np.ndarray, " N"], labels: Shaped[np.ndarray, " N"]) -> float:
    """Variance of the mean with clusters drawn, over its variance with items drawn; taken as at least 1.

    K/(K-1) sum_c (sum_{i in c} (x_i - m))^2 / n^2, over s^2 / n. Needs two clusters.
    """
    scores = np.asarray(values, dtype=float)
    _, cluster = np.unique(labels, return_inverse=True)
    n, k = len(scores), int(cluster.max()) + 1
    if k < 2:
        raise ValueError("one cluster has no spread between clusters")
    if scores.min() == scores.max():
        return 1.0
    if np.ptp(scores) < _LEAST_SPREAD:
        scores = scores / np.abs(scores).max()
    residuals = np.bincount(cluster, weights=scores - scores.mean())
    clustered = k / (k - 1) * float((residuals**2).sum()) / n**2
    return max(1.0, clustered / (float(scores.var(ddof=1)) / n))


def _widened(
    interval: Interval,
    scores: Float[np.ndarray, " N"],
    labels: Shaped[np.ndarray, " N"],
    bounds: Bounds | None,
) -> Interval:
    k = len(np.unique(labels))
    # Sorted, so that the order of the items does not reach the last digit.
    order = np.lexsort((scores, labels))
    scores, labels = scores[order], labels[order]
    factor = math.sqrt(design_effect(scores, labels)) * float(stdtrit(k - 1, 1 - _TAIL)) / _Z
    mean = float(scores.mean())
    low, high = mean - (mean - interval.low) * factor, mean + (interval.high - mean) * factor
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(low, high, f"{interval.method}, widened for {k} clusters")


def _scaled_wilson(scores: Float[np.ndarray, " N"], bounds: Bounds) -> Interval:
    """Wilson for scores that are each at one of the bounds."""
    interval = wilson(int((scores == bounds[1]).sum()), len(scores))
    width = bounds[1] - bounds[0]
    return Interval(bounds[0] + width * interval.low, bounds[0] + width * interval.high, interval.method)


def _checked(values: Float[np.ndarray, " N"], bounds: Bounds | None) -> Float[np.ndarray, " N"]:
    scores = np.asarray(values, dtype=float)
    if scores.ndim != 1 or not len(scores):
        raise ValueError(f"an interval needs a row of scores, got the shape {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("an interval needs finite scores")
    if bounds is not None:
        low, high = bounds
        if not low < high:
            raise ValueError(f"the bounds {bounds} are not two numbers in rising order")
        if scores.min() < low or scores.max() > high:
            raise ValueError(f"scores from {scores.min()} to {scores.max()} leave the bounds {bounds}")
    return scores


def _chunks(n: int, resamples: int) -> list[int]:
    """Sizes that make up `resamples`, so that a chunk of resamples of `n` items stays small in memory."""
    size = max(1, min(resamples, _DRAWS_AT_ONCE // n))
    return [min(size, resamples - start) for start in range(0, resamples, size)]
