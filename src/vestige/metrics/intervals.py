"""95 % intervals for means over items and over training seeds, and what another training would have scored.

95 % intervals for the mean of per-item scores that stay honest with few items, and never claim certainty. Axes: N
items, K clusters, R resamples. The choice of methods was measured: docs/metrics.md has the coverage and the widths,
`python -m benchmarks.coverage` makes them. In short:

- scores that are all 0 or 1: Wilson.
- other scores with known bounds: Gaffke. The Bayesian bootstrap with one more observation at each bound in turn: the
  low end is the 2.5 % quantile of sum(D_i x_i) + D_0 a, the high end the 97.5 % quantile of sum(D_i x_i) + D_0 b, with
  D uniform over the simplex and [a, b] the bounds (N. Gaffke, Three test statistics for a nonparametric one-sided
  hypothesis on the mean of a nonnegative variable, Math. Methods Statist. 14, 2005; E. Learned-Miller and P. Thomas, A
  new confidence interval for the mean of a bounded random variable, 1905.06208). No distribution is known whose mean it
  covers in less than 95 % of samples, though that is proven in special cases only. For 0/1 scores it is
  Clopper-Pearson. The percentile bootstrap covers 62 % at n = 20 and p = 0.05.
- scores without bounds (bits, nats): on either side the further end of Student's t and of the studentised bootstrap.
  The bootstrap's errors are at least a tenth of the sample's, so that resamples of one score alone, which few or tied
  scores often give, move the ends as far as they can tell and no further. One score, or equal ones, have no interval:
  the ends are infinite, and `method` gives the reason.
- scores in clusters (the items of one edge): the interval over items, its arms widened by sqrt(design effect) times t(K
  - 1) / z, the correction of E. Korn and B. Graubard, Confidence intervals for proportions with small expected number
  of positive counts estimated from survey data, Survey Methodology 24, 1998. Below 5 clusters this is invalid, so the
  interval is over the items of just these clusters, and `method` records it.

An interval depends on the scores and the seed, not on their order.

What another training would have scored on these very facts: the arithmetic of the scope `these`.

Axes: M controls (trainings that never saw), N facts, R resamples. `*B` are audits, many at once in benchmarks.

The facts are given, so their selection is not random. The training is random: the mean score of one training over the
facts has the variance V = sigma^2 / N + tau^2, sigma^2 being the seed x fact variance and tau^2 a seed's common effect
on several facts, all facts or one contract's. The subject is one training more, so that subject - mean of M controls
has the variance V (1 + 1 / M).

The variance of the M means estimates V whatever tau^2 is, but with M - 1 degrees of freedom alone. It is moderated as
by G. Smyth (Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3, 2004):

    V = max(sigma^2 / N, (w (sigma^2 / N + share sigma^2) + (M - 1) s^2) / (w + M - 1)), Student's t with w + M - 1

degrees of freedom, or in shares up to three times as many if most of V is sigma^2 / N, which is known with many.
docs/verdicts.md derives it and has its coverage next to other methods'. `python -m benchmarks.planted_bounds` counts
it.

One interval for a mean over items and over training seeds, where all seeds answered the same items, and a test. Axes: S
seeds, N items. Two sources of chance count, each once:

- the sample of items: the interval of `interval_of_mean` for the items' means over the seeds, clustered by edge;
- how the seeds fell: Student's t over the S means, one a seed, with S - 1 degrees of freedom. They are means over
  the same items, so items do not spread them.

The two are independent, so their arms are added in quadrature, and the ends are kept within the bounds. A seed's effect
on a single item is in both, which errs on the wide side.
"""

import hashlib
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped, UInt

from vestige.core.seeds import generator
from vestige.core.text import Items
from vestige.metrics.distributions import t_quantile, t_quantiles

LEVEL = 0.95
RESAMPLES = 10_000
LEAST_CLUSTERS = 5
"""With fewer, the spread between clusters is not estimated: the interval is for these clusters only."""

LEAST_ERROR = 0.1
"""The minimum standard error of a resample, as a share of the sample's. It bounds the ends if scores are few or tied.
"""

_TAIL = (1 - LEVEL) / 2
# Squares of smaller differences are rounded to 0; the design effect does not depend on the scale.
_LEAST_SPREAD = 1e-100
_Z = t_quantile(math.inf, 1 - _TAIL)
_DRAWS_AT_ONCE = 1_000_000
_DRAWS_KEPT = 4_010_000

Bounds = tuple[float, float]
ByItem = Float[np.ndarray, " N"]
"""One score, or another number, for each of N items or facts."""
ByControl = Float[np.ndarray, "M N"]
"""Such numbers for M controls, one row each."""
ByResample = Float[np.ndarray, " R"]
ByAudit = Float[np.ndarray, "*B"]


class Interval(NamedTuple):
    """A 95 % interval and how it was found, in words for `Estimate.interval`. Undetermined ends are infinite."""

    low: float
    high: float
    method: str


def interval_of_mean(
    values: ByItem,
    *,
    clusters: Sequence[str] | None = None,
    bounds: Bounds | None = (0.0, 1.0),
    seed: int,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return an interval for the mean of the scores `values`.

    `clusters` names the cluster of each item. `bounds` are the lowest and highest possible score (not the observed
    ones), or None without bounds. Without bounds, a single score or equal scores have infinite ends.
    """
    scores = _checked(values, bounds)
    labels = None if clusters is None else np.asarray(clusters, dtype=str)
    if labels is not None and len(labels) != len(scores):
        raise ValueError(f"{len(scores)} scores but {len(labels)} cluster names")
    n_clusters = 0 if labels is None else len(np.unique(labels))
    if bounds is not None and n_clusters < LEAST_CLUSTERS and np.isin(scores, bounds).all():
        unit = wilson(int((scores == bounds[1]).sum()), len(scores))
        low, high = (bounds[0] + (bounds[1] - bounds[0]) * end for end in (unit.low, unit.high))
        interval = Interval(low, high, unit.method)
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
    # Without hits, or with hits only, the end is exactly 0 or 1. Rounding would miss it slightly.
    low = 0.0 if hits == 0 else (centre - arm) / total
    high = 1.0 if hits == n else (centre + arm) / total
    return Interval(low, high, "Wilson")


def gaffke(values: ByItem, *, bounds: Bounds, seed: int, resamples: int = RESAMPLES) -> Interval:
    """Gaffke's interval for scores in `bounds`. See the module's docstring."""
    # The scores are sorted, so that the order of the items does not change their weights.
    scores = np.sort(_checked(values, bounds))
    lows, highs = [], []
    for weights, total in _repeated(_exponential, len(scores) + 1, seed, resamples):
        shared = weights[:, 1:] @ scores
        lows.append((shared + weights[:, 0] * bounds[0]) / total)
        highs.append((shared + weights[:, 0] * bounds[1]) / total)
    low = float(np.quantile(np.concatenate(lows), _TAIL))
    high = float(np.quantile(np.concatenate(highs), 1 - _TAIL))
    return Interval(max(low, bounds[0]), min(high, bounds[1]), "Gaffke")


_Draws = Callable[[int, int, int], Iterator[Any]]
"""Draws for a number of items, a seed and a number of resamples, one portion of the resamples at a time."""


def _repeated(draws: _Draws, n: int, seed: int, resamples: int) -> Iterable[Any]:
    """The portions of `draws`. Those of up to 400 items stay in memory for the next metric of as many items."""
    if n * resamples <= _DRAWS_KEPT:
        return _kept_draws(draws, n, seed, resamples)
    return draws(n, seed, resamples)


@lru_cache(maxsize=2)
def _kept_draws(draws: _Draws, n: int, seed: int, resamples: int) -> tuple[Any, ...]:
    return tuple(draws(n, seed, resamples))


def _exponential(n: int, seed: int, resamples: int) -> Iterator[tuple[Float[np.ndarray, "R N"], ByResample]]:
    """Weights of `n` parts for each resample, and their sums."""
    rng = generator(seed, "gaffke")
    for size in _chunks(n, resamples):
        weights = rng.standard_exponential((size, n))
        yield weights, weights.sum(axis=1)


def _counts(n: int, seed: int, resamples: int) -> Iterator[Float[np.ndarray, "R N"]]:
    return resample_counts(generator(seed, "studentised"), n, resamples)


def resample_counts(rng: np.random.Generator, n: int, resamples: int) -> Iterator[Float[np.ndarray, "R N"]]:
    """Yield the count of each of `n` items in each resample, one portion of the resamples at a time."""
    for size in _chunks(n, resamples):
        places = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
        yield np.bincount(places.ravel(), minlength=size * n).reshape(size, n).astype(float)


def studentised_bootstrap(values: ByItem, *, seed: int, resamples: int = RESAMPLES) -> Interval:
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
    error, apart, ratios = scores.std(ddof=1) / math.sqrt(n), scores - mean, []
    for counts in _repeated(_counts, n, seed, resamples):
        shift = counts @ apart / n
        errors = np.sqrt(np.maximum(counts @ apart**2 / n - shift**2, 0.0) / (n - 1))
        ratios.append(shift / np.maximum(errors, LEAST_ERROR * error))
    low, high = np.quantile(np.concatenate(ratios), [_TAIL, 1 - _TAIL])
    t = t_quantile(n - 1, 1 - _TAIL)
    below, above = max(float(high), t), max(float(-low), t)
    return Interval(mean - below * float(error), mean + above * float(error), "studentised bootstrap and t")


def design_effect(values: ByItem, labels: Shaped[np.ndarray, " N"]) -> float:
    """Variance of the mean with clusters drawn, over its variance with items drawn. Taken as at least 1.

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


def cluster_factor(values: ByItem, labels: Shaped[np.ndarray, " N"]) -> float:
    """Return the factor by which clusters widen an interval: sqrt(design effect) t(K - 1) / z."""
    t = t_quantile(len(np.unique(labels)) - 1, 1 - _TAIL)
    return math.sqrt(design_effect(values, labels)) * t / _Z


def _widened(interval: Interval, scores: ByItem, labels: Shaped[np.ndarray, " N"], bounds: Bounds | None) -> Interval:
    k = len(np.unique(labels))
    # The items are sorted, so that their order does not change the last digit.
    order = np.lexsort((scores, labels))
    scores, labels = scores[order], labels[order]
    factor = cluster_factor(scores, labels)
    mean = float(scores.mean())
    low, high = mean - (mean - interval.low) * factor, mean + (interval.high - mean) * factor
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(low, high, f"{interval.method}, widened for {k} clusters")


def _checked(values: ByItem, bounds: Bounds | None) -> ByItem:
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


class SeedPrior(NamedTuple):
    """The prior on the spread of seeds: tau^2 is `share` of the seed x item variance.

    `weight` is its number of degrees of freedom. For a part of the facts `noise` is the seed x item variance of all
    facts, in place of its own: a few facts without a control's guess may still be guessed. `pair` is the distance of
    the two unlike answers that are added to the observed ones, in ranges of the score. `shift` is the variance, in
    sigma^2, of what another recipe does to all facts alike, which its own controls cannot show. `laboratory` is the
    standard deviation of what another laboratory does to a difference, in scores.
    """

    share: float
    weight: float
    noise: float | None = None
    pair: float = 1.0
    shift: float = 0.0
    laboratory: float = 0.0

    def scaled(self, target: ByItem, control: ByControl) -> "SeedPrior":
        """The prior with the pair of a graded score: as far apart as target and controls, in the root mean square."""
        return self._replace(pair=float(np.sqrt(np.mean((target - control.mean(axis=0)) ** 2))))


LABORATORY = 0.04
"""The effect of a laboratory's training and evaluation on a graded score, in gaps of target and controls. Left out in
turn, those that train alike differ by 0.003 in probability, 0.009 in overlap and 0.028 in truth share, in the root mean
square (`python -m benchmarks.priors`).
"""

Kind = Literal["hits", "graded", "placements", "bits"]
"""Hits are right or wrong. Graded are probabilities, overlaps and truth shares. Placements make an AUC."""


PRIORS = {
    kind: SeedPrior(row["share"], row["weight"])
    for kind, row in tomllib.loads(files(__package__).joinpath("priors.toml").read_text(encoding="utf-8")).items()
}
"""The priors for the scope `these`, by `Kind`. The file lists their sources."""
POPULATION_HITS, POPULATION = SeedPrior(0.002, 4.0), SeedPrior(0.03, 4.0)
"""The priors for the scope `population`: for hits and for other scores."""
PRIOR, PRIOR_GRADED, PRIOR_BITS = PRIORS["hits"], PRIORS["graded"], PRIORS["bits"]

TYPICAL, TYPICAL_BITS = 0.005, 0.04
"""tau^2 over sigma^2 as the tiny model's controls have it (docs/verdicts.md): what plans go by, not verdicts."""

_MOST_DF = 3.0
_DIRECTIONS = 256
"""Directions onto which residuals are projected: correlations between quantities are kept to within 0.06."""


class Noise(NamedTuple):
    """The known or assumed variation between the scores of two trainings.

    `fact` is sigma^2 of a scored fact, `common` tau^2, both for scores with the range `width` (None: bits). `ruler` is
    the score difference that equals a quantity of 1. If not `trained`, the subject is fixed and only controls vary.
    """

    fact: float
    common: float
    ruler: float
    width: float | None
    prior: SeedPrior
    trained: bool = True


Width = float | ByAudit | None
"""The range of one score, or None without bounds (bits). For many audits, one value each or one for all."""


class TrainingSpread(NamedTuple):
    """sigma^2 (`noise`), V (`variance`), and the degrees of freedom that V is known with."""

    noise: ByAudit
    variance: ByAudit
    df: ByAudit


def spread(
    control: Float[np.ndarray, "*B M N"], differences: Float[np.ndarray, "*B N"], prior: SeedPrior, *, width: Width
) -> TrainingSpread:
    """Return the spread of a training's mean.

    `differences` are those between subject and controls. One control shows no interaction, so the smaller of two upper
    bounds replaces it: the variance between facts, and half the variance of the differences. Scores with a range get
    one more unlike pair (1/2 (pair width)^2), since a few equal answers do not rule out a different one.
    """
    noise, variance_of_means = _seen(control, differences)
    return moderated(noise, variance_of_means, control.shape[-2:], prior, width=width)


def _seen(control: Float[np.ndarray, "*B M N"], differences: Float[np.ndarray, "*B N"]) -> tuple[ByAudit, ByAudit]:
    """sigma^2, and the variance of the controls' means. It is 0 for one control."""
    m, n = control.shape[-2:]
    means = control.mean(axis=-1)
    noise = variance_of_means = np.zeros(means.shape[:-1])
    if m > 1:
        noise = interaction_variance(control)
        variance_of_means = means.var(axis=-1, ddof=1)
    elif n > 1:
        noise = np.minimum(control[..., 0, :].var(axis=-1, ddof=1), differences.var(axis=-1, ddof=1) / 2)
    # For one audit, the result is a number and not a zero-dimensional array.
    return np.asarray(noise), np.asarray(variance_of_means)


def moderated(
    noise: ByAudit, variance_of_means: ByAudit, size: tuple[int, ...], prior: SeedPrior, *, width: Width
) -> TrainingSpread:
    """V from sigma^2 (`noise`) and the variance of the controls' means (`seen`). `size` is (M, N)."""
    m, n = size
    if width is not None:
        pairs = max(1, m - 1) * (n - 1)
        noise = (pairs * noise + (prior.pair * width) ** 2 / 2) / (pairs + 1)
    if prior.noise is not None:
        noise = np.full_like(noise, prior.noise)
    df = prior.weight + m - 1
    variance = np.maximum(noise / n, (prior.weight * noise * (1 / n + prior.share) + (m - 1) * variance_of_means) / df)
    variance = variance + prior.shift * noise
    # Satterthwaite's formula: the part above sigma^2 / N has few degrees of freedom, and sigma^2 / N has many.
    from_noise, from_training = (noise / n) ** 2 / max(1, max(1, m - 1) * (n - 1)), (variance - noise / n) ** 2 / df
    there = from_noise + from_training > 0
    effective_df = np.divide(variance**2, from_noise + from_training, out=np.full_like(variance, df), where=there)
    return TrainingSpread(noise, variance, np.clip(effective_df, df, df if width is None else _MOST_DF * df))


def likely(control: ByControl, differences: ByItem, typical: float) -> tuple[float, float]:
    """sigma^2 and tau^2 as they most likely are, for plans: without the caution that verdicts owe to few controls.

    tau^2 is the means' variance beyond sigma^2 / N, next to a share `typical` of sigma^2 that weighs as four controls.
    """
    m, n = control.shape
    noise, variance_of_means = (float(value) for value in _seen(control, differences))
    return noise, (4 * typical * noise + (m - 1) * max(0.0, variance_of_means - noise / n)) / (m + 3)


def interaction(control: Float[np.ndarray, "*B M N"]) -> Float[np.ndarray, "*B M N"]:
    """Return each score's residual after removing the means of its training and its fact."""
    rows, columns = control.mean(axis=-1, keepdims=True), control.mean(axis=-2, keepdims=True)
    residuals: Float[np.ndarray, "*B M N"] = control - rows - columns + control.mean(axis=(-2, -1), keepdims=True)
    return residuals


def interaction_variance(control: Float[np.ndarray, "*B M N"]) -> ByAudit:
    """Mean square of the interaction, by its (M - 1)(N - 1) degrees of freedom."""
    m, n = control.shape[-2:]
    # numpy returns a scalar for one table, so the result is converted to an array.
    return np.asarray((interaction(control) ** 2).sum(axis=(-2, -1)) / max(1, (m - 1) * (n - 1)))


def shared(control: ByControl, groups: Sequence[Sequence[int]]) -> float:
    """Return tau^2 of a training's common effect on one group's facts, with G (M - 1) degrees of freedom.

    It is the variance of a group's means beyond its seed x fact noise, averaged over groups of two facts or more.
    """
    tables = [control[:, group] for group in groups]
    variances = [rows.mean(axis=1).var(ddof=1) - interaction_variance(rows) / rows.shape[1] for rows in tables]
    return max(0.0, float(np.mean(variances)))


def joint_noise(residuals: ByControl, facts: Items, df: float, *, name: str, seed: int, resamples: int) -> ByResample:
    """Student's t, one draw per resample. Draws of two quantities correlate as their residuals do.

    The same trainings answer the same facts in every format and at every stage, so the covariance of residuals by
    training and fact estimates the covariance of the errors (Gaussian copula). Every t has exactly its own quantiles.
    Without variation, the draws are the independent ones of `name`.
    """
    # Subjects of one audit differ only in their scores, so in one format all have the same residuals.
    digest = hashlib.blake2b(residuals.tobytes(), digest_size=16).digest()
    key = (digest, residuals.shape, facts, name if not residuals.any() else "", seed, resamples)
    if key not in _RANKS:
        if len(_RANKS) >= _MOST_RANKS:
            del _RANKS[next(iter(_RANKS))]
        _RANKS[key] = _ranks(residuals, facts, name=name, seed=seed, resamples=resamples)
    # All degrees of freedom share the ranks. Only the quantiles differ.
    draws: ByResample = t_quantiles(df, resamples)[_RANKS[key]]
    return draws


_RANKS: dict[tuple[object, ...], UInt[np.ndarray, " R"]] = {}
_MOST_RANKS = 2_000
"""The number for 400 contracts in five formats, which take 80 MB."""


def _ranks(residuals: ByControl, facts: Items, *, name: str, seed: int, resamples: int) -> UInt[np.ndarray, " R"]:
    """Return the rank of each resample."""
    projected = np.tensordot(residuals, _places(facts, len(residuals), seed), axes=2)
    length = float(np.linalg.norm(projected))
    if length > 0:
        projections = _directions(seed, resamples) @ (projected / length)
    else:
        projections = generator(seed, "trainings", name).standard_normal(resamples)
    places = np.empty(resamples, dtype=np.uint32)
    # Ties between normal draws have probability 0, so any sorting algorithm gives this order.
    places[np.argsort(projections)] = np.arange(resamples, dtype=np.uint32)
    return places


@lru_cache(maxsize=2)
def _directions(seed: int, resamples: int) -> Float[np.ndarray, "R D"]:
    # Column order makes a product with one vector twice as fast.
    return np.asfortranarray(generator(seed, "trainings").standard_normal((resamples, _DIRECTIONS)))


@lru_cache(maxsize=4)
def _places(facts: Items, m: int, seed: int) -> Float[np.ndarray, "M N D"]:
    """Return a direction for each training and fact, from the fact's name, so that overlapping sets share it."""
    rows = [generator(seed, "fact", fact).standard_normal((m, _DIRECTIONS)) for fact in facts]
    return np.stack(rows, axis=1) / math.sqrt(_DIRECTIONS)


def interval_over_seeds(
    scores: Float[np.ndarray, "S N"],
    *,
    clusters: Sequence[str] | None,
    bounds: Bounds,
    seed: int,
    resamples: int = RESAMPLES,
) -> Interval:
    """A 95 % interval for the mean of `scores`. `clusters` as in `interval_of_mean`.

    One seed gives no information on seeds.
    """
    items = interval_of_mean(scores.mean(axis=0), clusters=clusters, bounds=bounds, seed=seed, resamples=resamples)
    n_seeds = len(scores)
    if n_seeds < 2:
        return items._replace(method=f"{items.method}, one seed only")
    mean, per_seed = float(scores.mean()), scores.mean(axis=1)
    t = t_quantile(n_seeds - 1, (1 + LEVEL) / 2)
    arm = t * float(per_seed.std(ddof=1)) / math.sqrt(n_seeds)
    # Items and seeds are independent, so their errors add in quadrature.
    low = max(bounds[0], mean - math.hypot(mean - items.low, arm))
    high = min(bounds[1], mean + math.hypot(items.high - mean, arm))
    return Interval(low, high, f"{items.method}, and t over {n_seeds} seeds")
