"""Means over questions and training seeds, their intervals, and paired differences.

A frame has one row per question: `value` (a score from 0 to 1), `item` (the question), `seed` (the training), and any
further columns that say which model and method it is of. `Results.items()` gives such a frame. Two sources of chance
count: the draw of questions, and the training. If a column `edge` names the contract or person of each question,
contracts or persons are resampled.

Paired differences of two models on the same questions.

Two models answered the same N questions, so the difference of their scores is taken question by question. The interval
is `interval_of_mean` of these differences, clustered by document or group (E. Miller, Adding Error Bars to Evals,
2411.00640, section 4). The test flips the sign of each cluster's sum at random: without a true difference both signs
are equally likely. For independent right-or-wrong answers it is the exact McNemar test.

Axes: N questions, K clusters.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed, generator, random_words
from vestige.core.text import Fields, NumberByName
from vestige.metrics.contrasts import holm
from vestige.metrics.distributions import betainc, t_quantile
from vestige.metrics.intervals import (
    LEAST_CLUSTERS,
    LEVEL,
    Bounds,
    ByItem,
    design_effect,
    interval_of_mean,
    interval_over_seeds,
)

if TYPE_CHECKING:
    from pandas import DataFrame

RESAMPLES = 4_000
"""Draws of the bootstrap behind one interval."""


def pool(
    frames: "DataFrame | Iterable[DataFrame]",
    *,
    by: Sequence[str] = ("split", "metric"),
    compare: str | None = None,
    match: str | None = "item",
) -> "DataFrame":
    """Pool scores of questions over training seeds. Pandas writes the table as CSV, LaTeX or Markdown.

    Args:
        frames: One or several frames, with the columns `value`, `item`, `seed` and the columns in `by`.
        by: The columns that tell one row of the table from another.
        compare: A column whose values are compared, such as `method`. The rows are then differences, second less first.
        match: The column that pairs questions of both sides. Take `attribute` where the two sides ask the same
            questions about other contracts, and None where the sides ask other questions (two samples).

    Returns:
        Without `compare` one row per group: `mean`, the 95 % interval `low` to `high`, `sd` over the seeds' means
        (missing for one seed), and the numbers of `items` and `seeds`. With `compare` one row per group and pair:
        `difference`, `low`, `high`, `t`, `df`, `p`, and `p_holm`, which counts all tests of one metric and split.

    Raises:
        InputError: A column is missing, a value is missing or outside 0 to 1, or one side asks a question twice.

    Example:
        >>> table = vestige.pool(frames, by=("method", "split", "metric"))
        >>> tests = vestige.pool(frames, by=("split", "metric"), compare="method")
        >>> print(tests.to_markdown(index=False))
    """
    import pandas

    if isinstance(frames, pandas.DataFrame):
        table = frames
    else:
        table = pandas.concat(list(frames), ignore_index=True)
    columns = [name for name in by if name != compare]
    _check(table, [*columns, "value", "item", "seed", match or "item", compare or "item"])
    rows: list[Fields] = []
    for key, group in table.groupby(columns, sort=False, dropna=False):
        place = dict(zip(columns, key, strict=True))
        if compare is None:
            rows.append({**place, **_mean(group, seed=derive_seed(0, "pool", *map(str, key)))})
            continue
        for first, second in itertools.combinations(group[compare].unique(), 2):
            sides = [group[group[compare] == side] for side in (first, second)]
            rows.append({**place, "first": first, "second": second, **_compared(sides[0], sides[1], match)})
    pooled = pandas.DataFrame(rows)
    if compare is None or pooled.empty:
        return pooled
    return _corrected(pooled, columns)


def _check(table: "DataFrame", columns: Sequence[str]) -> None:
    for name in columns:
        if name not in table.columns:
            raise InputError(f"The frame has no column {name!r}. Its columns are {', '.join(map(str, table.columns))}.")
    values = table["value"]
    if values.isna().any() or values.min() < 0 or values.max() > 1:
        raise InputError("A value is missing or outside 0 to 1. Pool metrics that are shares, and drop unasked rows.")


class _Scores(NamedTuple):
    """Scores with one row per seed and one column per question, and the questions' clusters if there are several."""

    table: "DataFrame"
    clusters: list[str] | None


def _scores(group: "DataFrame", name: str) -> _Scores:
    """The scores of one group. `name` is the column that names a question."""
    if group.duplicated(["seed", name]).any():
        raise InputError(f"Two rows of one group and seed have the same {name!r}. Add a column to tell them apart.")
    table = group.pivot(index="seed", columns=name, values="value")
    if table.isna().any(axis=None):
        raise InputError("A question was not asked at every seed of its group. Ask all seeds the same questions.")
    if "edge" not in group.columns:
        return _Scores(table, None)
    edge_of = group.drop_duplicates(name).set_index(name)["edge"]
    edges = edge_of.loc[table.columns]
    if edges.isna().any() or edges.nunique() < 2:
        return _Scores(table, None)
    return _Scores(table, [str(edge) for edge in edges])


def _mean(group: "DataFrame", *, seed: int) -> Fields:
    scores = _scores(group, "item")
    values = scores.table.to_numpy(dtype=float)
    interval = interval_over_seeds(values, clusters=scores.clusters, bounds=(0.0, 1.0), seed=seed, resamples=RESAMPLES)
    by_seed = values.mean(axis=1)
    sd = math.nan
    if len(by_seed) > 1:
        sd = float(by_seed.std(ddof=1))
    return {
        "mean": float(values.mean()),
        "low": interval.low,
        "high": interval.high,
        "sd": sd,
        "items": values.shape[1],
        "seeds": values.shape[0],
    }


def _compared(first: "DataFrame", second: "DataFrame", match: str | None) -> Fields:
    """Second less first over the seeds of both, and with `match` over the questions of both."""
    left, right = _scores(first, match or "item"), _scores(second, match or "item")
    seeds = left.table.index.intersection(right.table.index)
    if not len(seeds):
        raise InputError("Two sides share no seed. Compare models that were trained with the same seeds.")
    if match is None:
        one, other = left.table.loc[seeds].to_numpy(dtype=float), right.table.loc[seeds].to_numpy(dtype=float)
        by_seed = other.mean(axis=1) - one.mean(axis=1)
        parts = [_spread(one, left.clusters), _spread(other, right.clusters)]
        return {**_test(by_seed, parts), "items": one.shape[1] + other.shape[1], "seeds": len(seeds)}
    items = left.table.columns.intersection(right.table.columns)
    if not len(items):
        raise InputError(f"Two sides share no {match!r}. Compare models with scores on the same questions.")
    differences = (right.table.loc[seeds, items] - left.table.loc[seeds, items]).to_numpy(dtype=float)
    clusters = None
    if left.clusters is not None:
        cluster_of = dict(zip(left.table.columns, left.clusters, strict=True))
        clusters = [cluster_of[item] for item in items]
    test = _test(differences.mean(axis=1), [_spread(differences, clusters)])
    return {**test, "items": len(items), "seeds": len(seeds)}


def _spread(scores: Float[np.ndarray, "S N"], clusters: Sequence[str] | None) -> tuple[float, int]:
    """The variance of the mean over N questions (averaged over seeds), and its degrees of freedom.

    From five clusters on, return the variance between clusters, with a factor of k / (k - 1).
    """
    values = scores.mean(axis=0)
    n = len(values)
    if clusters is None or len(set(clusters)) < LEAST_CLUSTERS:
        if n < 2:
            return 0.0, 0
        return float(values.var(ddof=1)) / n, n - 1
    _, places = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    sums = np.bincount(places, weights=values - values.mean())
    k = len(sums)
    return k / (k - 1) * float((sums**2).sum()) / n**2, k - 1


def _test(by_seed: Float[np.ndarray, " S"], parts: list[tuple[float, int]]) -> NumberByName:
    """The mean difference with its 95 % interval and t-test against 0.

    `parts` are variances over questions with their degrees of freedom. The variance of the seeds' differences over S is
    added. Degrees of freedom are Satterthwaite's. One seed gives no information on seeds. Without any spread there is
    no test.
    """
    mean, n_seeds = float(by_seed.mean()), len(by_seed)
    spreads = [part for part in parts if part[1]]
    if n_seeds > 1:
        spreads.append((float(by_seed.var(ddof=1)) / n_seeds, n_seeds - 1))
    total = sum(variance for variance, _ in spreads)
    if total < 1e-24 or len(spreads) < len(parts):
        return {"difference": mean, "low": math.nan, "high": math.nan, "t": math.nan, "df": math.nan, "p": math.nan}
    df = total**2 / sum(variance**2 / freedom for variance, freedom in spreads)
    t = mean / math.sqrt(total)
    arm = t_quantile(df, (1 + LEVEL) / 2) * math.sqrt(total)
    return {
        "difference": mean,
        "low": max(-1.0, mean - arm),
        "high": min(1.0, mean + arm),
        "t": t,
        "df": df,
        "p": 2 * betainc(df / 2, df / 2, 1 / (1 + math.exp(2 * math.asinh(abs(t) / math.sqrt(df))))),
    }


def _corrected(rows: "DataFrame", columns: Sequence[str]) -> "DataFrame":
    """The rows with `p_holm`: all tests of one split and metric are one family."""
    family = [name for name in columns if name in ("split", "metric")]
    rows["p_holm"] = math.nan
    tested = rows[rows["p"].notna()]
    groups = [tested.index]
    if family:
        groups = [group.index for _, group in tested.groupby(family, sort=False)]
    for index in groups:
        rows.loc[index, "p_holm"] = list(holm(list(rows.loc[index, "p"])))
    return rows


def reversals(table: "DataFrame", *, of: str, across: str, value: str = "mean") -> "DataFrame":
    """The pairs that two metrics rank in opposite order (2506.00688, Figure 6).

    Args:
        table: Pooled means.
        of: The ranked column, such as `method`.
        across: The column whose values rank it, such as `metric`.
        value: The column ranked by.

    Returns:
        One row per pair and pair of metrics: the two names, the metrics, and both differences (second minus first).

    Raises:
        KeyError: A column is missing.

    Example:
        >>> means = pool(scores, by=("method", "metric"))  # doctest: +SKIP
        >>> reversals(means, of="method", across="metric")  # doctest: +SKIP
    """
    import pandas

    means = table.pivot_table(index=of, columns=across, values=value, sort=False)
    rows = []
    for first, second in itertools.combinations(means.index, 2):
        step = means.loc[second] - means.loc[first]
        for one, other in itertools.combinations(means.columns, 2):
            if step[one] * step[other] < 0:
                rows.append((first, second, one, other, step[one], step[other]))
    return pandas.DataFrame(rows, columns=["first", "second", "by", "and_by", "difference", "and_difference"])


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
    first: ByItem,
    second: ByItem,
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


def _cluster_sums(differences: ByItem, labels: Sequence[str] | None) -> Float[np.ndarray, " K"]:
    if labels is None:
        return differences
    _, places = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    return np.bincount(places, weights=differences)


def _worst(first: ByItem, second: ByItem, bounds: Bounds) -> Bounds:
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
    # Equal sums differ in the last digits if they were added in another order.
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


def questions_needed(differences: ByItem, difference: float, *, clusters: Sequence[str] | None = None) -> int:
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
