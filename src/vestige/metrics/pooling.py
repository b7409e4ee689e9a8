"""One interval for a mean over items and over training seeds, where all seeds answered the same items.

Axes: S seeds, N items. Two things could have come out otherwise, and each is counted once:

- which items were asked: the interval of `intervals` for the items' means over the seeds, clustered by edge;
- how the seeds fell: Student's t over the S means, one a seed, with S - 1 degrees of freedom. They are means over
  the same items, so items do not spread them.

The two are independent, so their arms are added in quadrature, and the ends are kept within the bounds. What a seed
does to one item and not to the others is in both, which errs on the wide side.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from vestige.metrics.intervals import LEVEL, RESAMPLES, Bounds, Interval, interval_of_mean


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
