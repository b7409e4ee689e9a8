"""From what each model got on each question to the table: means with intervals, and differences to the first model.

Pure. A difference is over the questions that both models have a value of, pair by pair. The number of a group is the
mean over all questions of its parts; its interval is for these parts, which are all that there are and not drawn.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vestige.artifacts.bench import BenchItem, BenchResult, TaskRun
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.metrics.intervals import Bounds, interval_of_mean


@dataclass(frozen=True)
class Contestant:
    """One model's results, by task."""

    name: str
    digest: str
    runs: Mapping[str, TaskRun]


class Wanted(NamedTuple):
    """A line of the table: a task, or a group with its `parts`; `of_parts` is how many the group has."""

    name: str
    parts: tuple[str, ...]
    of_parts: int = 0
    part_of: str = ""


def bench_table(models: Sequence[Contestant], wanted: Sequence[Wanted], *, seed: int) -> tuple[BenchResult, ...]:
    """Every number of every line under every model, in the order wanted; what nothing was measured of has none."""
    return tuple(
        result
        for line in wanted
        for metric in _metrics(models, line)
        for model in models
        if (result := _result(models[0], model, line, metric, seed=seed)) is not None
    )


def _metrics(models: Sequence[Contestant], line: Wanted) -> list[str]:
    runs = [model.runs[part] for model in models for part in line.parts if part in model.runs]
    return list(dict.fromkeys(metric for run in runs for metric in run.units))


def _result(first: Contestant, model: Contestant, line: Wanted, metric: str, *, seed: int) -> BenchResult | None:
    runs = [model.runs[part] for part in line.parts if part in model.runs and metric in model.runs[part].units]
    values = {key: item for run in runs for key, item in _valued(run, metric)}
    if not values:
        return None
    failures: dict[str, int] = {}
    for run in runs:
        for reason, n in run.failures.items():
            failures[reason] = failures.get(reason, 0) + n
    value = _estimate(metric, runs[0], [i.values[metric] for i in values.values()], values, seed=seed)
    is_group = line.of_parts > 0
    return BenchResult(
        model=model.name,
        digest=model.digest,
        task=line.name,
        metric=metric,
        value=value,
        n=value.n,
        version=runs[0].version,
        shots=runs[0].shots,
        difference=None if model is first else _difference(first, runs, metric, values, seed=seed),
        parts=tuple(run.task for run in runs) if is_group else (),
        of_parts=line.of_parts,
        part_of=line.part_of,
        failures=failures,
    )


_Key = tuple[str, int]


def _valued(run: TaskRun, metric: str) -> Iterator[tuple[_Key, BenchItem]]:
    return (((run.task, item.number), item) for item in run.items if metric in item.values)


def _difference(
    first: Contestant, runs: Sequence[TaskRun], metric: str, values: Mapping[_Key, BenchItem], *, seed: int
) -> Estimate | None:
    """The mean of each question's value less that under the first model; None without a common question."""
    theirs = {
        key: item for run in runs if run.task in first.runs for key, item in _valued(first.runs[run.task], metric)
    }
    both = {key: item for key, item in values.items() if key in theirs}
    for key, item in both.items():
        if theirs[key].content != item.content:
            raise InputError(
                f"question {key[1]} of {key[0]} was another when {first.name} was asked: the data changed in between; "
                "use another --output-dir"
            )
    if not both:
        return None
    apart = [item.values[metric] - theirs[key].values[metric] for key, item in both.items()]
    return _estimate(f"difference of {metric}", runs[0], apart, both, seed=seed, metric=metric)


def _estimate(
    name: str,
    run: TaskRun,
    values: Sequence[float],
    items: Mapping[_Key, BenchItem],
    *,
    seed: int,
    metric: str = "",
) -> Estimate:
    """A mean with its interval; of differences where `metric` names what of."""
    bounds: Bounds | None = run.bounds[metric or name]
    if metric and bounds is not None:
        bounds = (bounds[0] - bounds[1], bounds[1] - bounds[0])
    clusters = [item.cluster for item in items.values()] if all(item.cluster for item in items.values()) else None
    scores = np.asarray(values, dtype=float)
    low, high, method = interval_of_mean(scores, clusters=clusters, bounds=bounds, seed=seed)
    return Estimate(name, run.units[metric or name], float(scores.mean()), low, high, len(scores), method)
