"""From the values of items to estimates by split, scope and edge, for every evaluation alike.

A mean over items, with an interval; items of one edge share parties and template, so they are clustered by edge.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vestige.artifacts.records import Result
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.seeds import derive_seed
from vestige.core.text import one_line
from vestige.evals.base import Record, View
from vestige.metrics.intervals import interval_of_mean

BITS, SHARE = "bits", "share"


class Measure(NamedTuple):
    """The name of a value in tables: the format it was asked in, the metric, and its unit (a `share` alone has bounds).

    One that is `known`, such as chance, has no uncertainty.
    """

    format: str
    metric: str
    unit: str
    known: bool = False


def results(
    records: Sequence[Record],
    scores: Sequence[Mapping[str, float]],
    view: View,
    measure: Callable[[str], Measure],
    *,
    seed: int,
) -> tuple[Result, ...]:
    """The estimates of every split and scope of `view` and of every edge; `measure` says what a score's key means."""
    by_id = {r["item"]: (r["edge"], s) for r, s in zip(records, scores, strict=True)}
    _check(by_id, view)
    found = []
    for (split, scope), ids in _groups(records, view).items():
        for key in dict.fromkeys(m for i in ids for m in by_id[i][1]):
            named = measure(key)
            rows = [(edge, s[key]) for edge, s in (by_id[i] for i in ids) if key in s]
            interval_seed = derive_seed(seed, "interval", key, view.forget)
            found.append(Result(split, scope, named.format, "", _estimate(named, rows, interval_seed)))
    return tuple(found)


def _check(by_id: Mapping[str, object], view: View) -> None:
    """Refuse to sum up nothing, or to leave out what was not asked."""
    if not view.splits.get("forget") and not view.splits.get(view.forget):
        raise InputError(f"the forget set {one_line(view.forget, width=60)!r} holds no items to sum up")
    missing = [i for ids in view.splits.values() for i in ids if i not in by_id]
    if missing:
        raise InputError(
            f"{len(missing)} items of the splits of forget set {one_line(view.forget, width=60)!r} have no record, "
            f"{missing[0]} among them; evaluate on the items of all splits"
        )


def _groups(records: Sequence[Record], view: View) -> dict[tuple[str, str], list[str]]:
    """Item ids by split and scope; those without items are left out."""
    groups = {(split, "all"): list(ids) for split, ids in view.splits.items()}
    for scope in ("entailed", "guessable", "free"):
        groups["forget", scope] = [i for i in view.splits.get("forget", ()) if view.scopes.get(i) == scope]
    for record in records:
        if record["edge"] is not None:
            groups.setdefault((f"edge:{record['edge']}", "all"), []).append(record["item"])
    return {place: ids for place, ids in groups.items() if ids}


def _estimate(measure: Measure, rows: Sequence[tuple[str | None, float]], seed: int) -> Estimate:
    values = [value for _, value in rows]
    if measure.known:
        mean = sum(values) / len(values)
        return Estimate(measure.metric, measure.unit, mean, mean, mean, len(values), "known")
    edges = [edge for edge, _ in rows if edge is not None]
    interval = interval_of_mean(
        np.array(values),
        clusters=edges if len(edges) == len(rows) and len(set(edges)) > 1 else None,
        bounds=(0.0, 1.0) if measure.unit == SHARE else None,
        seed=seed,
    )
    return Estimate(
        metric=measure.metric,
        unit=measure.unit,
        value=sum(values) / len(values),
        low=interval.low,
        high=interval.high,
        n=len(values),
        interval=interval.method,
    )
