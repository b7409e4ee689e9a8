"""A 95 % interval for a mean of scores that differ by item and by training seed, both of which were drawn.

Axes: N scores, one for each item and seed that were looked at; not every item needs every seed. With r the score less
the mean, C the clusters of items, S the seeds:

    V_C = K / (K - 1) sum over clusters (sum r)^2 / N^2,    V_S = S / (S - 1) sum over seeds (sum r)^2 / N^2.

The interval is the mean plus or minus t times the root of V = V_C + V_S. A. C. Cameron, J. B. Gelbach and D. L. Miller
(Robust inference with multiway clustering, J. Bus. Econ. Stat. 29, 2011) take off what both count, the clusters at one
seed, and have min(K, S) - 1 degrees of freedom. With three seeds that would be two degrees whatever the seeds do, so
ours are Satterthwaite's, V^2 / (V_C^2 / (K - 1) + V_S^2 / (S - 1)), and nothing is taken off, which makes up for what
so few seeds leave unknown. In simulations it covers 92 to 98 % with three seeds or more (docs/prevention.md), and 89 %
with two, which are refused.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from vestige.metrics.intervals import LEAST_CLUSTERS, LEVEL, Interval

LEAST_SEEDS = 3
"""With fewer, the spread between seeds is not estimated."""


def two_way_interval(
    values: Float[np.ndarray, " N"], *, seeds: Sequence[int], items: Sequence[str], clusters: Sequence[str]
) -> Interval:
    """The interval of the mean of `values`; `clusters` names what items hang together by, such as their edge.

    With less than 5 clusters the items stand for themselves, and `method` says so.
    """
    scores = np.asarray(values, dtype=float)
    if not len(scores) or not np.isfinite(scores).all():
        raise ValueError("an interval needs finite scores")
    if not len(scores) == len(seeds) == len(items) == len(clusters):
        raise ValueError(f"{len(scores)} scores, but {len(seeds)} seeds, {len(items)} items, {len(clusters)} clusters")
    names, said = (clusters, "clusters") if len(set(clusters)) >= LEAST_CLUSTERS else (items, "items")
    _, group = np.unique(np.asarray(names, dtype=str), return_inverse=True)
    _, seed = np.unique(np.asarray(seeds), return_inverse=True)
    k, s = int(group.max()) + 1, int(seed.max()) + 1
    if k < 2 or s < LEAST_SEEDS:
        raise ValueError(f"{k} {said} and {s} seeds: an interval needs 2 and {LEAST_SEEDS}")
    # Sorted, so that the order of the scores does not reach the last digit.
    order = np.lexsort((scores, seed, group))
    mean = float(scores[order].mean())
    rest, group, seed = scores[order] - mean, group[order], seed[order]
    by_group, by_seed = _variance(rest, group), _variance(rest, seed)
    total = by_group + by_seed
    method = f"{s} seeds x {k} {said}"
    if total == 0:
        return Interval(mean, mean, f"no spread: {method}, all alike")
    df = total**2 / (by_group**2 / (k - 1) + by_seed**2 / (s - 1))
    arm = float(stdtrit(df, (1 + LEVEL) / 2)) * math.sqrt(total)
    return Interval(mean - arm, mean + arm, f"two-way robust, {method}")


def _variance(rest: Float[np.ndarray, " N"], labels: Int[np.ndarray, " N"]) -> float:
    """What the groups of one kind add to the variance of the mean."""
    _, group = np.unique(labels, return_inverse=True)
    sums = np.bincount(group, weights=rest)
    k = len(sums)
    return k / (k - 1) * float((sums**2).sum()) / len(rest) ** 2
