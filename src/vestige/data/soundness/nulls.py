"""Whether a guesser that never saw the forget set picks its right options more often than chance has it.

The null hypothesis: the right option is any of an item's own, so that no guess can know it. The guesses stay as they
are and the right option is drawn anew among the item's own, `draws` times. Items of one edge may err alike: from 5
edges on the drawn deviations are widened by sqrt(design effect) t(K - 1) / z, as intervals are (`metrics.intervals`).

Axes: N questions, K options (at most), R draws. Values are shares of the pick, or gains in them.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from vestige.core.estimates import Estimate
from vestige.core.seeds import generator
from vestige.metrics.information import need_rate_distortion
from vestige.metrics.intervals import LEAST_CLUSTERS, LEVEL, Bounds, design_effect, interval_of_mean

_TAIL = (1 - LEVEL) / 2
_AT_ONCE = 2_000_000
ABOVE_CHANCE = "accuracy above chance"

Values = Float[np.ndarray, " K"]


class Outcome(NamedTuple):
    """What a guesser gets: its mean above chance, the p-value of the null, and both again item by item.

    `bits` are those an answer that a guesser of this accuracy needs at least (rate-distortion), 0 at chance.
    """

    p: float
    effect: Estimate
    accuracy: float
    chance: float
    bits: float
    above: Float[np.ndarray, " N"]


def picks(scores: Values) -> Values:
    """The share of the pick of each option: all of it to the greatest score, equal shares to those tied."""
    best = scores >= scores.max() - 1e-12
    shares: Values = best / best.sum()
    return shares


def above_own_options(
    values: Sequence[Values],
    right: Sequence[int],
    edges: Sequence[str] | None,
    *,
    seed: int,
    draws: int,
    bounds: Bounds = (-1.0, 1.0),
) -> Outcome:
    """The mean over items of the right option's value less the mean of all the item's options, against the null.

    `bounds` are the least and the greatest that this can be of one item.
    """
    means = np.array([float(v.mean()) for v in values])
    above = np.array([float(v[r]) for v, r in zip(values, right, strict=True)]) - means
    low, high, said = interval_of_mean(above, clusters=edges, bounds=bounds, seed=seed)
    found = float(above.mean())
    null = _drawn(values, means, seed=seed, draws=draws) * _wider(above, edges)
    p = (1 + int(np.count_nonzero(null >= found - 1e-12))) / (draws + 1)
    accuracy, chance = found + float(means.mean()), float(means.mean())
    options = round(float(np.median([len(v) for v in values])))
    bits = need_rate_distortion(1, min(1.0, max(0.0, accuracy)), options) if 0 < chance < 1 else 0.0
    effect = Estimate(ABOVE_CHANCE, "share", found, min(low, found), max(high, found), len(values), said)
    return Outcome(p, effect, accuracy, chance, bits, above)


def _drawn(values: Sequence[Values], means: Float[np.ndarray, " N"], *, seed: int, draws: int) -> Values:
    """Means above chance with the right options drawn anew."""
    sizes = np.array([len(v) for v in values])
    table = np.zeros((len(values), int(sizes.max())))
    for row, v, mean in zip(table, values, means, strict=True):
        row[: len(v)] = v - mean
    rng, parts = generator(seed, "right options drawn anew"), []
    at_once = max(1, min(draws, _AT_ONCE // len(values)))
    for start in range(0, draws, at_once):
        size = min(at_once, draws - start)
        drawn = (rng.random((size, len(values))) * sizes).astype(np.int64)
        parts.append(table[np.arange(len(values)), drawn].mean(axis=1))
    return np.concatenate(parts)


def _wider(above: Float[np.ndarray, " N"], edges: Sequence[str] | None) -> float:
    """How much wider chance is where the items of an edge err alike; 1 with few edges, which are then all there is."""
    k = 0 if edges is None else len(set(edges))
    if edges is None or k < LEAST_CLUSTERS:
        return 1.0
    effect = design_effect(above, np.asarray(edges, dtype=str))
    return math.sqrt(effect) * float(stdtrit(k - 1, 1 - _TAIL) / -ndtri(_TAIL))


def counts_p_value(groups: Sequence[Sequence[int]], *, seed: int, draws: int) -> float:
    """The p-value of "all are equally likely" for counts in one or more groups, by drawing multinomials.

    The statistic is the sum of the groups' chi-squares; exact up to the number of draws, however small the counts.
    """
    rng, found, null = generator(seed, "counts drawn anew"), 0.0, np.zeros(draws)
    for counts in groups:
        observed = np.asarray(counts, dtype=float)
        n, k = int(observed.sum()), len(observed)
        if n:
            expected = n / k
            found += float(((observed - expected) ** 2).sum() / expected)
            drawn = rng.multinomial(n, np.full(k, 1 / k), size=draws)
            null += ((drawn - expected) ** 2).sum(axis=1) / expected
    return (1 + int(np.count_nonzero(null >= found - 1e-9))) / (draws + 1)


def items_needed(margin: float, chance: float) -> int:
    """How many items an interval of arm `margin` needs at chance (normal approximation)."""
    return math.ceil(float(ndtri(_TAIL)) ** 2 * chance * (1 - chance) / margin**2)
