"""How often the 95 % intervals cover the mean, and how wide they are: `python -m benchmarks.coverage`.

Samples are drawn from distributions whose mean is known. The tables of docs/metrics.md come from the
defaults, which take a quarter of an hour on one core. Axes: N items.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Float
from scipy import stats

from vestige.auditing.compare import compare
from vestige.metrics.intervals import gaffke, interval_of_mean

Sample = Float[np.ndarray, " N"]
Ends = tuple[float, float]
Method = Callable[[Sample], Ends]

ITEMS_PER_CLUSTER = 20
"""As in PISTOL: twenty questions per contract."""
_BOOTSTRAP_RESAMPLES = 1000


@dataclass(frozen=True)
class Case:
    """A distribution of scores with a known mean."""

    name: str
    mean: float
    draw: Callable[[np.random.Generator, int], Sample]


def _zeros_and_ones(zero: float, one: float) -> Callable[[np.random.Generator, int], Sample]:
    """Zero and one with these probabilities, uniform between them otherwise."""

    def draw(rng: np.random.Generator, n: int) -> Sample:
        which = rng.random(n)
        return np.where(which < zero, 0.0, np.where(which < zero + one, 1.0, rng.random(n)))

    return draw


BOUNDED = (
    Case("0/1, p = 0.05", 0.05, _zeros_and_ones(0.95, 0.05)),
    Case("0/1, p = 0.5", 0.5, _zeros_and_ones(0.5, 0.5)),
    Case("0/1, p = 0.95", 0.95, _zeros_and_ones(0.05, 0.95)),
    Case("beta(2, 5)", 2 / 7, lambda rng, n: rng.beta(2, 5, n)),
    Case("beta(0.2, 1.8)", 0.1, lambda rng, n: rng.beta(0.2, 1.8, n)),
    Case("beta(20, 1)", 20 / 21, lambda rng, n: rng.beta(20, 1, n)),
    Case("80 % at 0, 10 % at 1", 0.15, _zeros_and_ones(0.8, 0.1)),
    Case("90 % at 1", 0.95, _zeros_and_ones(0.0, 0.9)),
    Case("97 % at 0, 3 % at 0.5", 0.015, lambda rng, n: np.where(rng.random(n) < 0.97, 0.0, 0.5)),
)
UNBOUNDED = (
    Case("normal", 0.0, lambda rng, n: rng.normal(size=n)),
    Case("exponential", 1.0, lambda rng, n: rng.exponential(size=n)),
    Case("lognormal(0, 1)", math.exp(0.5), lambda rng, n: rng.lognormal(size=n)),
    Case(
        "90 % near 0, 10 % large",
        0.9 * 0.05 + 0.1 * 10,
        lambda rng, n: rng.exponential(np.where(rng.random(n) < 0.9, 0.05, 10.0)),
    ),
)
FEW = (
    Case("half at 0, half at 1", 0.5, lambda rng, n: (rng.random(n) < 0.5).astype(float)),
    Case("90 % at 0, 10 % at 1", 0.1, lambda rng, n: (rng.random(n) < 0.1).astype(float)),
    Case("normal, 5 % 10 higher", 0.5, lambda rng, n: rng.normal(10.0 * (rng.random(n) < 0.05))),
)
CLUSTERED = ((0.5, 0.0), (0.5, 0.05), (0.5, 0.3), (0.1, 0.05), (0.1, 0.3), (0.9, 0.1), (0.02, 0.2))
"""Mean and intraclass correlation of 0/1 items; a cluster's own mean is beta distributed."""


@dataclass(frozen=True)
class Row:
    """One method on one case: the share of samples whose interval holds the mean, and the mean width."""

    bench: str
    case: str
    n: int
    method: str
    coverage: float
    width: float
    samples: int


def percentile(values: Sample, rng: np.random.Generator) -> Ends:
    """The percentile bootstrap, as a comparison."""
    means = values[rng.integers(0, len(values), (_BOOTSTRAP_RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def student(values: Sample) -> Ends:
    """Student's t, as a comparison."""
    arm = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - arm), float(values.mean() + arm)


def two_stage(values: Sample, rng: np.random.Generator) -> Ends:
    """The percentile bootstrap that draws clusters and then items of each, as a comparison."""
    scores = values.reshape(-1, ITEMS_PER_CLUSTER)
    k = len(scores)
    clusters = rng.integers(0, k, (_BOOTSTRAP_RESAMPLES, k, 1))
    items = rng.integers(0, ITEMS_PER_CLUSTER, (_BOOTSTRAP_RESAMPLES, k, ITEMS_PER_CLUSTER))
    low, high = np.quantile(scores[clusters, items].mean(axis=(1, 2)), [0.025, 0.975])
    return float(low), float(high)


def of_means(values: Sample) -> Ends:
    """Gaffke's interval of the clusters' means, as a comparison."""
    return gaffke(values.reshape(-1, ITEMS_PER_CLUSTER).mean(axis=1), bounds=(0.0, 1.0), seed=0)[:2]


def independent(cases: tuple[Case, ...], bounds: Ends | None, samples: int) -> Iterator[Row]:
    """Independent scores at n = 20, 60 and 400, without bounds also at 2 to 8, by our interval and the two usual ones.

    Samples of equal scores without bounds have no interval; the others count.
    """
    for n in (20, 60, 400) if bounds else (*range(2, 9), 20, 60, 400):
        for case in cases if n > 8 else (*cases, *FEW):
            rng = np.random.default_rng([n, (*cases, *FEW).index(case)])
            methods: dict[str, Method] = {
                "ours": lambda x: interval_of_mean(x, bounds=bounds, seed=0)[:2],
                "percentile": lambda x, rng=rng: percentile(x, rng),  # type: ignore[misc]
                "student": student,
            }
            # Where n is large the methods agree, and a fourth of the samples shows it.
            drawn = [case.draw(rng, n) for _ in range(samples if n < 400 else samples // 4)]
            drawn = drawn if bounds else [x for x in drawn if np.ptp(x)]
            for name, method in methods.items():
                yield _row("interval of the mean", case.name, n, name, case.mean, [method(x) for x in drawn])


def clustered(samples: int) -> Iterator[Row]:
    """0/1 items in K clusters of twenty: our interval, and what else could be done."""
    for k in (2, 3, 4, 5, 8, 10, 20, 40):
        labels = [str(i // ITEMS_PER_CLUSTER) for i in range(k * ITEMS_PER_CLUSTER)]
        for mean, icc in CLUSTERED:
            rng = np.random.default_rng([k, CLUSTERED.index((mean, icc))])
            drawn = [_clusters(rng, k, mean, icc) for _ in range(samples)]
            methods: dict[str, Method] = {
                "ours": lambda x, labels=labels: interval_of_mean(x, clusters=labels, seed=0)[:2],  # type: ignore[misc]
                "items only": lambda x: interval_of_mean(x, seed=0)[:2],
                "clusters, then items": lambda x, rng=rng: two_stage(x, rng),  # type: ignore[misc]
                "Gaffke of means": of_means,
            }
            for name, method in methods.items():
                case = f"p = {mean}, icc = {icc}"
                yield _row("clusters", case, k, name, mean, [method(x) for x in drawn])


def _clusters(rng: np.random.Generator, k: int, mean: float, icc: float) -> Sample:
    if icc == 0:
        means = np.full(k, mean)
    else:
        size = 1 / icc - 1
        means = rng.beta(mean * size, (1 - mean) * size, k)
    return (rng.random((k, ITEMS_PER_CLUSTER)) < means[:, None]).astype(float).ravel()


def _row(bench: str, case: str, n: int, method: str, mean: float, found: list[Ends]) -> Row:
    covered = sum(low - 1e-9 <= mean <= high + 1e-9 for low, high in found)
    width = sum(high - low for low, high in found)
    return Row(bench, case, n, method, covered / len(found), width / len(found), len(found))


def _table(rows: list[Row]) -> str:
    """Rows as a Markdown table: a line for each case and n, and `coverage (width)` for each method."""
    methods = list(dict.fromkeys(row.method for row in rows))
    lines = [f"| scores | n | {' | '.join(methods)} |", f"| --- | --- |{' --- |' * len(methods)}"]
    for case, n in dict.fromkeys((row.case, row.n) for row in rows):
        cells = {row.method: row for row in rows if (row.case, row.n) == (case, n)}
        shown = " | ".join(f"{cells[m].coverage:.3f} ({cells[m].width:.3f})" for m in methods)
        lines.append(f"| {case} | {n} | {shown} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Pair:
    """Two planted models on the same questions: their true mean difference, and how their scores are drawn.

    `sizes` are the questions of each cluster. `shared` is the intraclass correlation of a question's difference in its
    cluster. `ties` is the share of questions on which both models have the same score. `missing` is the share of
    questions that each model lacks, drawn for each model on its own.
    """

    name: str
    sizes: tuple[int, ...]
    difference: float
    graded: bool = False
    shared: float = 0.0
    ties: float = 0.0
    missing: float = 0.0

    def draw(self, rng: np.random.Generator) -> list[dict[str, object]]:
        """The rows of a table of scores with both models."""
        clusters = np.repeat(np.arange(len(self.sizes)), self.sizes)
        n = len(clusters)
        untied = 1 - self.ties
        # Among the untied questions the second model is better with this probability.
        better = 0.5 + self.difference / (2 * untied)
        chance = np.full(len(self.sizes), better)
        if self.shared:
            strength = 1 / self.shared - 1
            chance = rng.beta(better * strength, (1 - better) * strength, len(self.sizes))
        signs = np.where(rng.random(n) < chance[clusters], 1.0, -1.0)
        signs[rng.random(n) < self.ties] = 0.0
        equal = (rng.random(n) < 0.5).astype(float)
        if self.graded:
            first, second = 0.5 - signs / 4, 0.5 + signs / 4
            shift = rng.uniform(-0.25, 0.25, n)
            scores = {"first": first + shift, "second": second + shift}
        else:
            scores = {"first": np.where(signs, signs < 0, equal), "second": np.where(signs, signs > 0, equal)}
        rows: list[dict[str, object]] = []
        for model, values in scores.items():
            asked = rng.random(n) >= self.missing
            for item in np.flatnonzero(asked).tolist():
                row = {"model": model, "role": "unlearned", "item": str(item), "score": float(values[item])}
                rows.append({**row, "group": f"document {clusters[item]}"} if max(self.sizes) > 1 else row)
        return rows

    def true_difference(self) -> float:
        """The mean difference: a graded pair differs by half of what a right and a wrong answer differ by."""
        if self.graded:
            return self.difference / 2
        return self.difference


_ALONE = (1,) * 100
_UNEVEN = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15) * 3
PAIRS = (
    Pair("right or wrong, no difference", _ALONE, 0.0),
    Pair("right or wrong", _ALONE, 0.3),
    Pair("right or wrong, 20 questions", (1,) * 20, 0.3),
    Pair("graded", _ALONE, 0.3, graded=True),
    Pair("80 % ties", _ALONE, 0.1, ties=0.8),
    Pair("95 % ties, no difference", (1,) * 200, 0.0, ties=0.95),
    Pair("20 clusters of 5", (5,) * 20, 0.2, shared=0.3),
    Pair("20 clusters of 5, no difference", (5,) * 20, 0.0, shared=0.3),
    Pair("30 clusters of 1 to 15", _UNEVEN, 0.2, shared=0.2),
    Pair("8 clusters of 10, graded", (10,) * 8, 0.2, graded=True, shared=0.2),
    Pair("20 % of questions in one log only", _ALONE, 0.3, missing=0.11),
    Pair("clusters, half ties, 20 % in one log only", (5,) * 20, 0.2, shared=0.2, ties=0.5, missing=0.11),
)


def compared(samples: int) -> Iterator[Row]:
    """`vestige compare` on planted pairs: coverage of the difference, and how often the finding has a wrong sign.

    Without a true difference both signs are wrong. The second row of a case counts the findings that are not wrong.
    """
    for number, pair in enumerate(PAIRS):
        rng = np.random.default_rng([number, len(pair.sizes)])
        true = pair.true_difference()
        ends: list[Ends] = []
        wrong = 0
        for sample in range(samples):
            with TemporaryDirectory() as folder:
                table = Path(folder) / "pair.jsonl"
                table.write_text("".join(f"{json.dumps(row)}\n" for row in pair.draw(rng)), encoding="utf-8")
                (row,) = compare({"pair": table}, seed=sample).rows
            ends.append((row.low, row.high))
            wrong += (row.finding == "higher" and true <= 0) or (row.finding == "lower" and true >= 0)
        yield _row("compare", pair.name, sum(pair.sizes), "95 % interval", true, ends)
        yield Row("compare", pair.name, sum(pair.sizes), "finding not wrong", 1 - wrong / samples, 0.0, samples)


PARTS = ("bounded", "unbounded", "clusters", "compare")


def _rows(part: str, samples: int) -> Iterator[Row]:
    if part == "clusters":
        return clustered(samples // 4)
    if part == "compare":
        return compared(2 * samples // 5)
    if part == "bounded":
        return independent(BOUNDED, (0.0, 1.0), samples)
    return independent(UNBOUNDED, None, samples)


def main() -> None:
    """Print the tables, or one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="one table only")
    parser.add_argument("--json", action="store_true", help="one JSON object per case and method")
    sizes = "samples per case (clusters: a fourth, compare: two fifths)"
    parser.add_argument("--samples", type=int, default=1000, help=sizes)
    options = parser.parse_args()
    for name in PARTS if options.part is None else (options.part,):
        part = _rows(name, options.samples)
        if options.json:
            for row in part:
                print(json.dumps(asdict(row)), flush=True)
        else:
            print(_table(list(part)), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
