"""One interval for a mean over items and over training seeds, where all seeds answered the same items, and a test.

Axes: S seeds, N items. Two things could have come out otherwise, and each is counted once:

- which items were asked: the interval of `intervals` for the items' means over the seeds, clustered by edge;
- how the seeds fell: Student's t over the S means, one a seed, with S - 1 degrees of freedom. They are means over
  the same items, so items do not spread them.

The two are independent, so their arms are added in quadrature, and the ends are kept within the bounds. What a seed
does to one item and not to the others is in both, which errs on the wide side.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr, stdtrit

from vestige.metrics.intervals import LEAST_CLUSTERS, LEVEL, RESAMPLES, Bounds, Interval, interval_of_mean


def interval_over_seeds(
    scores: Float[np.ndarray, "S N"],
    *,
    clusters: Sequence[str] | None,
    bounds: Bounds,
    seed: int,
    resamples: int = RESAMPLES,
) -> Interval:
    """A 95 % interval for the mean of `scores`; `clusters` as in `interval_of_mean`. One seed says nothing of seeds."""
    items = interval_of_mean(scores.mean(axis=0), clusters=clusters, bounds=bounds, seed=seed, resamples=resamples)
    n_seeds = len(scores)
    if n_seeds < 2:
        return items._replace(method=f"{items.method}, one seed only")
    mean, per_seed = float(scores.mean()), scores.mean(axis=1)
    t = float(stdtrit(n_seeds - 1, (1 + LEVEL) / 2))
    arm = t * float(per_seed.std(ddof=1)) / math.sqrt(n_seeds)
    low = max(bounds[0], mean - math.hypot(mean - items.low, arm))
    high = min(bounds[1], mean + math.hypot(items.high - mean, arm))
    return Interval(low, high, f"{items.method}, and t over {n_seeds} seeds")


class Contrast(NamedTuple):
    """Second less first with its 95 % interval and a two-sided t-test against 0; without spread there is no test."""

    difference: float
    low: float
    high: float
    t: float | None
    df: float
    p: float | None
    method: str


Labels = Sequence[str] | None


def contrast_over_seeds(
    first: Float[np.ndarray, "S N"],
    second: Float[np.ndarray, "S M"],
    *,
    paired: bool,
    clusters: tuple[Labels, Labels] = (None, None),
) -> Contrast:
    """The difference of two means over items and seeds; the seeds are the same on both sides, in the same order.

    `paired`: so are the items. The variance of the difference is that of the items' means over the seeds (paired: of
    their differences; by cluster from 5 on), plus that of the seeds' differences over S; degrees of freedom are
    Satterthwaite's. As in `interval_over_seeds`, what a seed does to one item alone is in both.
    """
    if len(first) != len(second) or (paired and first.shape != second.shape):
        raise ValueError(f"scores of the shapes {first.shape} and {second.shape} cannot be compared")
    if paired:
        parts = [_spread_of_mean((second - first).mean(axis=0), clusters[0])]
    else:
        parts = [_spread_of_mean(s.mean(axis=0), c) for s, c in zip((first, second), clusters, strict=True)]
    by_seed = second.mean(axis=1) - first.mean(axis=1)
    n_seeds, difference = len(by_seed), float(by_seed.mean())
    method = f"{'paired' if paired else 'unpaired'} items, " + (f"{n_seeds} seeds" if n_seeds > 1 else "one seed only")
    if n_seeds > 1:
        parts.append((float(by_seed.var(ddof=1)) / n_seeds, n_seeds - 1))
    total = sum(v for v, _ in parts)
    if total < 1e-24 or not all(df for _, df in parts):
        return Contrast(difference, difference, difference, None, 0.0, None, f"no spread: {method}")
    df = total**2 / sum(v**2 / df for v, df in parts)
    t, arm = difference / math.sqrt(total), float(stdtrit(df, (1 + LEVEL) / 2)) * math.sqrt(total)
    p = float(2 * stdtr(df, -abs(t)))
    return Contrast(difference, max(-1.0, difference - arm), min(1.0, difference + arm), t, df, p, method)


def _spread_of_mean(values: Float[np.ndarray, " N"], labels: Labels) -> tuple[float, int]:
    """The variance of the mean of items, or of items in clusters where there are enough, and its degrees of freedom."""
    n, rest = len(values), values - values.mean()
    if labels is None or len(set(labels)) < LEAST_CLUSTERS:
        return (float(values.var(ddof=1)) / n, n - 1) if n > 1 else (0.0, 0)
    _, group = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    sums = np.bincount(group, weights=rest)
    k = len(sums)
    return k / (k - 1) * float((sums**2).sum()) / n**2, k - 1
