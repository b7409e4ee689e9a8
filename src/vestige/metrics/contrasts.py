"""The excess of a model's item scores over its controls', for several quantities at once.

Axes: N items, M control seeds, Q quantities, R resamples, which the quantities share. A quantity is a mean over items
of `subject - mean over seeds of control`, or the ratio of two. In a `fixed` `Sample`, the statement is about its items,
and only the trainings are random (`intervals.spread`). Otherwise three sources of chance count:

- The sample of items. Scores with bounds: Gaffke's resamples (`intervals`), one more item at the worst bound. Scores
  without (bits): the studentised bootstrap, below 8 items Student's t. All quantities of one `Sample` share their
  resamples, so that formats, subjects, before and after are paired. Items of one edge: arms widened by sqrt(design
  effect) t(K - 1) / z from 5 edges on, and the additional item has the weight 1 + (items an edge - 1) x 0.05, since an
  unseen edge brings several: otherwise rare hits in few edges hold falsely. With fewer edges, only these are spoken of.
- The training seeds: a seed's common effect on all items has the standard deviation tau, so the controls' mean has the
  error tau / sqrt(M), and the subject, one more training, has tau itself. tau^2 is estimated by analysis of variance
  (the variance of the seeds' means beyond that of seed x item noise), moderated as by G. Smyth (Linear models and
  empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3, 2004) by a stated `SeedPrior`, without which two or three
  controls would carry no verdict and one no statement.

So an interval is for the subject's knowledge beyond controls in general, not beyond these few.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vestige.core.estimates import Estimate
from vestige.core.seeds import generator
from vestige.core.text import Items, Names
from vestige.metrics.distributions import gamma_of_exponential, t_quantiles
from vestige.metrics.intervals import (
    LEAST_CLUSTERS,
    LEAST_ERROR,
    LEVEL,
    RESAMPLES,
    TYPICAL,
    TYPICAL_BITS,
    Bounds,
    ByControl,
    ByItem,
    ByResample,
    Interval,
    Noise,
    SeedPrior,
    cluster_factor,
    interaction,
    interaction_variance,
    joint_noise,
    likely,
    resample_counts,
    spread,
)

EDGE_CORRELATION = 0.05
"""The assumed correlation between items of an unseen edge, chosen by us. benchmarks/results/verdicts.md has the errors
if it is 0.3.
"""

LEAST_RESAMPLED = 8
"""With fewer scores without bounds the draws are Student's t around the mean: so few make few different resamples."""

BOUND = 0.96
"""The confidence of a one-sided bound: a point more than the 95 % that is promised, for scores that are not normal."""

_TAIL, _MIDDLE = (1 - LEVEL) / 2, 0.5
_KEPT = 50_000_000
"""Weights that a sample keeps in memory (8 bytes each). Longer ones are drawn again at each use."""


class Quantity(NamedTuple):
    """Item scores of a subject and, by seed, of its controls. `bounds` are the least and greatest difference.

    Without bounds (bits) they are None. `subject` may itself be a difference, before and after.
    """

    subject: ByItem
    control: ByControl
    bounds: Bounds | None

    def differences(self) -> ByItem:
        """The subject's score less the mean of the controls', by item."""
        differences: ByItem = self.subject - self.control.mean(axis=0)
        return differences


@dataclass(frozen=True)
class Sample:
    """The items, by name, and the number of resamples.

    An item's weights depend on the names and `seed`, not on the order of the items and not on their scores. If `fixed`,
    the statement is about these items: only the trainings are resampled. An item has `wordings` questions.
    """

    items: Items
    clusters: Names | None
    seed: int
    resamples: int = RESAMPLES
    fixed: bool = False
    wordings: float = 1.0

    def __post_init__(self) -> None:
        """Reject values that cannot be resampled."""
        if not self.items:
            raise ValueError("no items, so nothing to draw from")
        if len(set(self.items)) != len(self.items):
            raise ValueError("an item's name comes twice")
        if self.clusters is not None and len(self.clusters) != len(self.items):
            raise ValueError(f"{len(self.items)} items but {len(self.clusters)} cluster names")

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.items)

    @cached_property
    def order(self) -> Int[np.ndarray, " N"]:
        """Return the order of the items by name, so that the input order has no effect."""
        return np.argsort(np.asarray(self.items), kind="stable")

    @cached_property
    def names(self) -> Items:
        """The items in the order of their names."""
        return tuple(self.items[n] for n in self.order)

    @cached_property
    def labels(self) -> Int[np.ndarray, " N"] | None:
        """The number of each item's cluster in the order of names. None below 5 clusters, which are not resampled."""
        if self.clusters is None or len(set(self.clusters)) < LEAST_CLUSTERS:
            return None
        return np.unique(np.asarray(self.clusters)[self.order], return_inverse=True)[1]

    @property
    def unseen(self) -> float:
        """Return the weight of the additional item: 1, or that of an edge if edges are resampled."""
        if self.labels is None:
            return 1.0
        return 1 + (self.n / (int(self.labels.max()) + 1) - 1) * EDGE_CORRELATION

    @property
    def said(self) -> str:
        """The clusters in words, for `Estimate.interval`."""
        if self.clusters is None:
            return ""
        k = len(set(self.clusters))
        few = f", items of {k} cluster{'' if k == 1 else 's'} only"
        if self.labels is None:
            return few
        return f", widened for {k} clusters"

    def weights(self) -> Iterator[Float[np.ndarray, "r K"]]:
        """Draws from the simplex over the items and one more, which comes first and counts `unseen`."""
        if self.resamples * (self.n + 1) <= _KEPT:
            yield _kept(self.seed, self.n, self.unseen, self.resamples)
        else:
            yield from _drawn(self.seed, self.n, self.unseen, self.resamples, max(1, _KEPT // (self.n + 1)))

    def noise(self, name: str, df: float) -> ByResample:
        """Student's t with `df` degrees of freedom, one draw a resample."""
        return _noise(self.seed, name, df, self.resamples)


# All models with the same number of questions share their weights.
@lru_cache(maxsize=8)
def _kept(seed: int, n: int, unseen: float, resamples: int) -> Float[np.ndarray, "R K"]:
    weights = next(_drawn(seed, n, unseen, resamples, resamples))
    weights.flags.writeable = False
    return weights


def _drawn(seed: int, n: int, unseen: float, resamples: int, at_once: int) -> Iterator[Float[np.ndarray, "r K"]]:
    rng = generator(seed, "shared resamples")
    for start in range(0, resamples, at_once):
        weights = rng.standard_exponential((min(at_once, resamples - start), n + 1))
        # An exponential weight becomes a gamma weight at the same quantile. The other weights do not change.
        weights[:, 0] = gamma_of_exponential(unseen, weights[:, 0])
        weights /= weights.sum(axis=1, keepdims=True)
        yield weights


@lru_cache(maxsize=256)
def _noise(seed: int, name: str, df: float, resamples: int) -> ByResample:
    # Random draws would move the 97.5 % quantile by up to 6 %.
    noise = t_quantiles(df, resamples)[generator(seed, "seeds of controls", name).permutation(resamples)]
    # All quantities of one name share the cached array, so it must not be changed.
    noise.flags.writeable = False
    return noise


class PlanBasis(NamedTuple):
    """The variation of one training's scores, with the numbers of controls and wordings."""

    noise: Noise
    controls: int
    wordings: float


@dataclass(frozen=True)
class Draws:
    """A quantity's value and range: `low` draws for the lower end, `high` for the upper end.

    `item_error` and `seed_error` are the standard errors by items and by seeds. The first shrinks with more items. `df`
    are the degrees of freedom that they are known with, where that is Student's. Then `planned` is the value for a plan
    with more controls, wordings or facts.
    """

    value: float
    low: ByResample
    high: ByResample
    n: int
    method: str
    item_error: float
    seed_error: float
    df: float = math.inf
    planned: PlanBasis | None = None

    @cached_property
    def ends(self) -> Bounds:
        """The 95 % interval, which contains the value. It is infinite if the items do not show their spread."""
        return self._around_value(_TAIL)

    @cached_property
    def bounds(self) -> Bounds:
        """Return the lower and the upper end, each with the confidence `BOUND`. They hold the value."""
        return self._around_value(1 - BOUND)

    def _around_value(self, tail: float) -> Bounds:
        if np.isinf(self.low).any():
            return -math.inf, math.inf
        low, high = self._marks[tail]
        return min(low, self.value), max(high, self.value)

    @property
    def tails(self) -> Bounds:
        """The quantiles that leave 2.5 % of the low draws below and of the high ones above."""
        return self._marks[_TAIL]

    @property
    def middles(self) -> Bounds:
        """The medians of the low and of the high draws."""
        return self._marks[_MIDDLE]

    @cached_property
    def _marks(self) -> dict[float, Bounds]:
        """The quantiles that are read, by the tail. One sort is faster than a partition for each."""
        tails = _TAIL, 1 - BOUND, _MIDDLE
        low = np.sort(self.low)
        # Both ends of a training's draws are one array, which is sorted once.
        high = low if self.high is self.low else np.sort(self.high)
        return {tail: (_quantile(low, tail), _quantile(high, 1 - tail)) for tail in tails}

    def p_at_most(self, margin: float) -> float:
        """One-sided p-value of "at most `margin`"."""
        return float((np.count_nonzero(self.low <= margin) + 1) / (len(self.low) + 1))

    def p_at_least(self, margin: float) -> float:
        """One-sided p-value of "at least `margin`"."""
        return float((np.count_nonzero(self.high >= margin) + 1) / (len(self.high) + 1))

    def estimate(self, metric: str, unit: str, interval: Interval | None = None) -> Estimate:
        """Return the value with its own interval, or with `interval`, which covers several quantities at once."""
        low, high, method = interval or (*self.ends, self.method)
        return Estimate(metric, unit, self.value, low, high, self.n, method)


def _quantile(ordered: ByResample, share: float) -> float:
    """`np.quantile`, or `np.median` of a half, of sorted draws."""
    n = len(ordered)
    if share == _MIDDLE:
        return float(ordered[(n - 1) // 2 : n // 2 + 1].mean())
    place = (n - 1) * share
    below = math.floor(place)
    low, high = ordered[below : below + 2].tolist()
    part = place - below
    if part < 0.5:
        return float(low + (high - low) * part)
    return float(high - (high - low) * (1 - part))


def mean_draws(
    quantity: Quantity, sample: Sample, prior: SeedPrior | None, *, name: str, trained: bool = True
) -> Draws:
    """Draws of the mean difference. `name` names the seeds' noise: quantities of one name move together.

    `trained` is False if the statement is about this very subject and not about retrainings. Without a `prior` seeds do
    not count: the control is no trained model.
    """
    return ratio_draws(quantity, None, sample, prior, name=name, trained=trained)


def ratio_draws(
    quantity: Quantity,
    ruler: Quantity | None,
    sample: Sample,
    prior: SeedPrior | None,
    *,
    name: str,
    trained: bool = True,
) -> Draws:
    """Draws of the mean difference in units of the ruler's, which must be clearly above 0 (an admitted format).

    The ends follow E. Fieller (Some problems in interval estimation, J. R. Stat. Soc. B 16, 1954): the ratios q whose
    contrast `difference - q ruler` may be 0. The additional item has the quantity's bound and no ruler, which is the
    worst case for q from 0 to 1. Without a ruler it is `mean_draws`.
    """
    scores = _checked(quantity, sample)
    unit = None if ruler is None else _checked(ruler, sample).differences()
    if sample.fixed:
        return _over_trainings(
            scores, 1.0 if unit is None else _length(unit), sample, prior, name=name, trained=trained
        )
    (read,) = _over_items(scores.differences()[None], quantity.bounds, unit, sample)
    return _with_seeds(read, scores, sample, prior, name=name, trained=trained)


def _over_items(
    rows: Float[np.ndarray, "Q N"], bounds: Bounds | None, unit: ByItem | None, sample: Sample
) -> list["_ItemDraws"]:
    """Return resampled mean differences, in units of the mean of `unit` if given."""
    kind, ends_by_row = "studentised bootstrap" if bounds is None else "Gaffke", _item_draws(rows, bounds, sample)
    if unit is None:
        return [
            _ItemDraws(float(row.mean()), *ends, row, 1.0, kind) for row, ends in zip(rows, ends_by_row, strict=True)
        ]
    ((bottoms, _),) = _item_draws(unit[None], None if bounds is None else (0.0, 0.0), sample)
    # With few items, a resample may have no scale left and any ratio is possible: the worst is used.
    length, safe = _length(unit), np.maximum(bottoms, 1e-9)
    read = []
    for row, (low, high) in zip(rows, ends_by_row, strict=True):
        value = float(row.mean())
        residuals = (row - value / length * unit) / length
        read.append(_ItemDraws(value / length, low / safe, high / safe, residuals, length, f"{kind}, Fieller"))
    return read


def _length(unit: ByItem) -> float:
    """The mean of a ruler's differences, which has to be something."""
    length = float(unit.mean())
    if length <= 0:
        raise ValueError(f"the scale has the length {length:g}: the target does not exceed its control")
    return length


def known_ratio_draws(subject: ByItem, target: ByItem, control: ByItem, sample: Sample) -> Draws:
    """Draws of (subject - control) / (target - control) in means of shares, if the control is known for each item.

    The ends are Fieller's, for every true value. On the additional item, subject and target can be anywhere in [0, 1]
    and the control between its minimum and its maximum. A contrast is linear in each, so its worst value is at a
    corner.
    """
    top = _checked(Quantity(subject, control[None], (-1.0, 1.0)), sample)
    tops, unit = top.differences(), _checked(Quantity(target, control[None], (-1.0, 1.0)), sample).differences()
    length = _length(unit)
    value = float(tops.mean()) / length
    (above, extra), (below, _) = _shared(tops, sample), _shared(unit, sample)

    def corners(scored: float) -> Float[np.ndarray, "4 R"]:
        ratios = [
            (above + extra * (scored - guessed)) / np.maximum(below + extra * (knows - guessed), 1e-9)
            for guessed in (float(control.min()), float(control.max()))
            for knows in (0.0, 1.0)
        ]
        return np.stack(ratios)

    residuals = (tops - value * unit) / length
    read = _ItemDraws(value, corners(0.0).min(axis=0), corners(1.0).max(axis=0), residuals, length, "Gaffke, Fieller")
    return _with_seeds(read, top, sample, None, name="chance", trained=False)


def seed_variance(
    control: ByControl, differences: ByItem, labels: Int[np.ndarray, " N"] | None, prior: SeedPrior
) -> tuple[float, float]:
    """Return tau^2, the variance of a seed's common effect on all items, and its degrees of freedom.

    Two-way analysis of variance, seeds x items (x clusters, where `labels` has them): tau^2 = variance of the seeds'
    means less the interaction's mean square over their number, at least 0. Then (weight share noise + (M - 1) tau^2) /
    (weight + M - 1), noise being the seed x item variance. One seed shows no interaction: the spread of `differences`,
    half from the subject, represents it.
    """
    m, n = control.shape
    if m == 1:
        return prior.share * float(differences.var(ddof=1) if n > 1 else 0.0) / 2, prior.weight
    noise = float(interaction_variance(control))
    if labels is None:
        variance = control.mean(axis=1).var(ddof=1) - noise / n
    else:
        k = int(labels.max()) + 1
        # A cluster is weighted by its items, so that the seeds' means are means over items.
        sums = np.stack([np.bincount(labels, weights=row) for row in control]) * k / n
        variance = sums.mean(axis=1).var(ddof=1) - interaction_variance(sums) / k
    df = prior.weight + m - 1
    return float((prior.weight * prior.share * noise + (m - 1) * max(0.0, float(variance))) / df), df


class _ItemDraws(NamedTuple):
    """A quantity before the seed error: `residuals` by item make its error, `length` is its ruler's."""

    value: float
    low: ByResample
    high: ByResample
    residuals: ByItem
    length: float
    kind: str


def _with_seeds(
    read: _ItemDraws, scores: Quantity, sample: Sample, prior: SeedPrior | None, *, name: str, trained: bool
) -> Draws:
    m, value = len(scores.control), read.value
    error = float(read.residuals.std(ddof=1)) / math.sqrt(sample.n) if sample.n > 1 else math.inf
    wider = 1.0 if sample.labels is None else cluster_factor(read.residuals, sample.labels)
    seed_error, noise, seeds = 0.0, np.zeros(sample.resamples), ""
    if prior is not None:
        variance, df = seed_variance(scores.control, scores.differences(), sample.labels, prior)
        seed_error = math.hypot(math.sqrt(variance * (1 / m + trained)), prior.laboratory) / read.length
        noise = seed_error * sample.noise(name, df)
        seeds = f", {m} control seed{'' if m == 1 else 's'}"
    return Draws(
        value=value,
        low=value + wider * (read.low - value) + noise,
        high=value + wider * (read.high - value) + noise,
        n=sample.n,
        method=f"{read.kind}{sample.said}{seeds}",
        item_error=wider * error,
        seed_error=seed_error,
    )


def _over_trainings(
    scores: Quantity, length: float, sample: Sample, prior: SeedPrior | None, *, name: str, trained: bool
) -> Draws:
    """Add the training error to a quantity of these items, in units of the `length` of its ruler.

    Without a `prior` there is no training to draw again, and the value is exact. The ruler's own error is left out: at
    a true ratio q the controls' mean counts 1 - q times in the contrast, so that from 0 to 2 it only shrinks the error.
    """
    value, (m, n) = float(scores.differences().mean()) / length, scores.control.shape
    if prior is None:
        # All resamples are views of one number in memory.
        exact = np.broadcast_to(value, sample.resamples)
        return Draws(value, exact, exact, n, "these items, exactly", 0.0, 0.0)
    width = None if scores.bounds is None else (scores.bounds[1] - scores.bounds[0]) / 2
    if width is None and m == n == 1:
        far = np.full(sample.resamples, math.inf)
        return Draws(value, -far, far, n, "one item and one control tell no spread", math.inf, math.inf)
    estimate = spread(scores.control, scores.differences(), prior, width=width)
    per_training = math.sqrt(1 / m + trained) / length
    rest = interaction(scores.control) if m > 1 else scores.differences()[None] - scores.differences().mean()
    noise = joint_noise(rest, sample.names, float(estimate.df), name=name, seed=sample.seed, resamples=sample.resamples)
    error = math.hypot(math.sqrt(float(estimate.variance)) * per_training, prior.laboratory / length)
    draws = value + error * noise
    by_items = float(estimate.noise) / n
    fact, common = likely(scores.control, scores.differences(), TYPICAL_BITS if width is None else TYPICAL)
    return Draws(
        value=value,
        low=draws,
        high=draws,
        n=n,
        method=f"these items, t over {m} control seed{'' if m == 1 else 's'}",
        item_error=math.sqrt(by_items) * per_training,
        seed_error=math.sqrt(max(0.0, error**2 - by_items * per_training**2)),
        df=float(estimate.df),
        planned=PlanBasis(Noise(fact, common, length, width, prior, trained), m, sample.wordings),
    )


def level_draws(
    rows: Float[np.ndarray, "Q N"], bounds: Bounds | None, sample: Sample, ruler: Quantity | None = None
) -> list[Draws]:
    """Draws of the means of several rows over the same items, with no control and no seed to count.

    With a ruler they are differences in its units (`ratio_draws`). The resamples are gone through once for all rows.
    """
    if sample.fixed:
        raise ValueError("items that are given are not drawn again")
    nothing = np.zeros((1, sample.n))
    scores = [_checked(Quantity(row, nothing, bounds), sample) for row in rows]
    unit = None if ruler is None else _checked(ruler, sample).differences()
    read = _over_items(np.stack([row.subject for row in scores]), bounds, unit, sample)
    pairs = zip(read, scores, strict=True)
    return [_with_seeds(item_draws, row, sample, None, name="", trained=False) for item_draws, row in pairs]


def _item_draws(
    rows: Float[np.ndarray, "Q N"], bounds: Bounds | None, sample: Sample
) -> list[tuple[ByResample, ByResample]]:
    """Low and high draws of the mean of each row, whose items are in the order of names."""
    if bounds is not None:
        middles, extra = _shared(rows, sample)
        return [(middle + extra * bounds[0], middle + extra * bounds[1]) for middle in middles]
    ends = [(draws, draws) for draws in _studentised(rows, sample)]
    if sample.n >= LEAST_RESAMPLED:
        return ends
    # One score, or a few equal ones, give no estimate of their spread, so the mean is unbounded.
    far = np.full(sample.resamples, math.inf)
    return [(-far, far) if np.ptp(row) == 0 else end for row, end in zip(rows, ends, strict=True)]


def _shared(values: Float[np.ndarray, "*Q N"], sample: Sample) -> tuple[Float[np.ndarray, "*Q R"], ByResample]:
    """Return the items' weights in the mean of each resample, and the additional item's weight."""
    shared, extra = [], []
    for weights in sample.weights():
        shared.append(weights[:, 1:] @ values.T)
        extra.append(weights[:, 0])
    return np.ascontiguousarray(np.concatenate(shared).T), np.concatenate(extra)


def _studentised(rows: Float[np.ndarray, "Q N"], sample: Sample) -> Float[np.ndarray, "Q R"]:
    """Draws of the mean of each row by the studentised bootstrap, or Student's t below `LEAST_RESAMPLED` items."""
    n, means = sample.n, rows.mean(axis=1, keepdims=True)
    apart = rows - means
    # Rounding can move the mean of equal scores slightly away from them.
    errors = np.where(np.ptp(rows, axis=1, keepdims=True) > 0, np.sqrt((apart**2).sum(axis=1, keepdims=True)), 0.0)
    errors /= math.sqrt(n * max(1, n - 1))
    if n < LEAST_RESAMPLED:
        few: Float[np.ndarray, "Q R"] = means - sample.noise("few items", float(max(1, n - 1))) * errors
        return few
    rng, ratios = generator(sample.seed, "shared studentised"), []
    for counts in resample_counts(rng, n, sample.resamples):
        shift, squares = (apart @ counts.T) / n, (apart**2 @ counts.T) / n
        deviations = np.sqrt(np.maximum(squares - shift**2, 0.0) / (n - 1))
        ratios.append(shift / np.maximum(np.maximum(deviations, LEAST_ERROR * errors), 1e-300))
    draws: Float[np.ndarray, "Q R"] = means - np.concatenate(ratios, axis=1) * errors
    return draws


def _checked(quantity: Quantity, sample: Sample) -> Quantity:
    """The quantity with its items in the order of their names."""
    subject, control = np.asarray(quantity.subject, dtype=float), np.asarray(quantity.control, dtype=float)
    if subject.shape != (sample.n,) or control.ndim != 2 or control.shape[1] != sample.n or not len(control):
        raise ValueError(f"{sample.n} items, but scores of the shapes {subject.shape} and {control.shape}")
    if not (np.isfinite(subject).all() and np.isfinite(control).all()):
        raise ValueError("a score is not finite")
    ordered = Quantity(subject[sample.order], control[:, sample.order], quantity.bounds)
    if quantity.bounds is not None:
        low, high = quantity.bounds
        differences = ordered.differences()
        if differences.min() < low - 1e-9 or differences.max() > high + 1e-9:
            raise ValueError(f"differences from {differences.min()} to {differences.max()} leave {quantity.bounds}")
    return ordered


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values in the given order: sorted, the i-th of m times m - i + 1, never falling, at most 1.

    S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6, 1979.
    """
    m, adjusted, reached = len(p_values), [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(m), key=p_values.__getitem__)):
        p = p_values[index]
        if not 0 <= p <= 1:
            raise ValueError(f"a p-value lies in [0, 1], got {p}")
        reached = max(reached, min(1.0, (m - rank) * p))
        adjusted[index] = reached
    return tuple(adjusted)


def step_down(draws: Sequence[Draws], margins: Sequence[float], *, below: bool = False) -> tuple[float, ...]:
    """Adjusted p-values of "at most its margin" (`below`: "at least"), in the given order, from the shared resamples.

    Step-down max-T: J. Romano and M. Wolf, Exact and approximate stepdown methods for multiple hypothesis testing, J.
    Am. Stat. Assoc. 100, 2005. Errors and distances from the margins are in units of each quantity's own arm, so that
    shares and bits have one scale, and quantities that move together cost no more than one.
    """
    if len(draws) != len(margins):
        raise ValueError(f"{len(draws)} quantities but {len(margins)} margins")
    if not draws:
        return ()
    read: list[tuple[ByResample, float, float, float]] = []
    for quantity, margin in zip(draws, margins, strict=True):
        values, edge, centre = quantity.low, margin, quantity.middles[0]
        if below:
            values, edge, centre = -quantity.high, -margin, -quantity.middles[1]
        if not math.isfinite(centre):
            # Its value is unknown, so it never exceeds its margin and does not affect the others.
            read.append((values, centre, 0.0, -math.inf))
            continue
        arm = centre - (float(np.quantile(values, _TAIL)) if below else quantity.tails[0])
        beyond = (centre - edge) / arm if arm > 0 else math.copysign(math.inf, centre - edge)
        read.append((values, centre, arm, beyond))
    reached = [distance for *_, distance in read]
    order = np.argsort(-np.array(reached), kind="stable")
    # For each resample, the largest error of each quantity and of all less significant ones, starting with the least
    # significant.
    greatest, alone = np.full(len(draws[0].low), -math.inf), [0.0] * len(draws)
    for i in reversed(order.tolist()):
        values, centre, arm, _ = read[i]
        # A value without error exceeds its margin or does not. It has no common scale with the others.
        np.maximum(greatest, (centre - values) / arm if arm > 0 else 0.0, out=greatest)
        # Rounding of the quotients must not separate values that `Draws.p_at_most` treats as equal.
        alone[i] = float((np.count_nonzero(greatest >= reached[i] - 1e-12) + 1) / (len(greatest) + 1))
    adjusted, so_far = [0.0] * len(draws), 0.0
    for i in order.tolist():
        so_far = max(so_far, alone[i])
        adjusted[i] = so_far
    return tuple(adjusted)


def worst_case(draws: Sequence[Draws]) -> tuple[float, Interval]:
    """The greatest of the quantities: a value that is too high in half of all samples, and a 95 % interval.

    The greatest estimate is too high, the more so the more there are. Value and low end come instead from V.
    Chernozhukov, S. Lee and A. Rosen (Intersection bounds, Econometrica 81, 2013): max_q (value_q - c arm_q), arm_q the
    lower arm of q alone, c the median and the 97.5 % quantile of the greatest error in arms over shared resamples. The
    high end is the greatest of the high ends: the quantity that is truly worst rarely exceeds its own.
    """
    if not draws:
        raise ValueError("the worst of no quantities")
    values = np.array([quantity.value for quantity in draws])
    ends = np.array([quantity.ends for quantity in draws])
    arms = values - ends[:, 0]
    greatest = _greatest_error(draws, np.where(arms > 0, arms, 1.0))
    middle, far = np.quantile(greatest, [0.5, 1 - _TAIL])
    # The band is at least as wide as one quantity's own interval.
    low = float((values - max(1.0, float(far)) * arms).max())
    value = float((values - max(0.0, float(middle)) * arms).max())
    high = float(ends[:, 1].max())
    method = f"greatest of {len(draws)}, simultaneous band" if len(draws) > 1 else draws[0].method
    return value, Interval(low, high, method)


def simultaneous(draws: Sequence[Draws]) -> tuple[Interval, ...]:
    """Intervals that hold all quantities at once in 95 % of samples, by the greatest error in arms over resamples."""
    intervals = []
    ends = np.array([quantity.ends for quantity in draws])
    values = np.array([quantity.value for quantity in draws])
    lower, upper = values - ends[:, 0], ends[:, 1] - values
    below = _greatest_error(draws, np.where(lower > 0, lower, 1.0))
    above = _greatest_error(draws, np.where(upper > 0, upper, 1.0), high=True)
    down, up = (max(1.0, float(np.quantile(error, 1 - _TAIL))) for error in (below, above))
    for value, low, high, quantity in zip(values, lower, upper, draws, strict=True):
        method = f"{quantity.method}, simultaneous over {len(draws)}" if len(draws) > 1 else quantity.method
        intervals.append(Interval(float(value - down * low), float(value + up * high), method))
    return tuple(intervals)


def _greatest_error(draws: Sequence[Draws], arms: Float[np.ndarray, " Q"], *, high: bool = False) -> ByResample:
    """Return by resample the greatest error of any quantity in units of its arm. Each is centred at its median."""
    lengths = {len(quantity.low) for quantity in draws}
    if len(lengths) != 1:
        raise ValueError(f"the quantities have {sorted(lengths)} resamples, so they share none")
    greatest = np.full(lengths.pop(), -math.inf)
    for quantity, arm in zip(draws, arms.tolist(), strict=True):
        error = quantity.high - quantity.middles[1] if high else quantity.middles[0] - quantity.low
        np.maximum(greatest, error / arm, out=greatest)
    return greatest
