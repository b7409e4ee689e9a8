"""Connectivity as a dose: what is left of a contract regressed on its number of neighbours (PISTOL, section 4)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vestige.metrics.intervals import slope_over_clusters
from vestige.studies.cells import Member
from vestige.studies.results import PooledResults, ResultGroup, with_holm

LEAST_CONTRACTS = 10
"""Forgotten one at a time; fewer tell nothing of others."""


class DoseRow(NamedTuple):
    """The slope of a score by one neighbour, over contracts at random; `p_holm` counts those of one split and score."""

    model: str
    data: str
    method: str
    rate: str
    split: str
    metric: str
    slope: float
    low: float
    high: float
    t: float | None
    df: float
    p: float | None
    p_holm: float | None
    contracts: int
    trainings: int
    least: float
    most: float


def doses(results: PooledResults) -> tuple[DoseRow, ...]:
    """A regression for each method, rate, split and score of which enough contracts were forgotten one at a time."""
    report, rows = results.study.settings.report, list[DoseRow]()
    kinds = dict.fromkeys(g._replace(forget="") for g in results.groups if not g.attack and g.method != "target")
    for split in report.splits:
        for metric in report.metrics:
            rows += with_holm([row for kind in kinds for row in _slopes(results, kind, split, metric)])
    return tuple(rows)


def _slopes(results: PooledResults, kind: ResultGroup, split: str, metric: str) -> Iterator[DoseRow]:
    """The one of a kind of models, if there is: of the contracts and trainings that have a score."""
    alone: dict[str, tuple[ResultGroup, Member]] = {}
    for (data, forget), members in results.study.members.items():
        group = kind._replace(forget=forget)
        if data == kind.data and group in results.groups:
            # Several selectors in turn, or several edges in one, are no dose of one contract.
            single = (m for m in members if m.connectivity is not None and m.name.count("edge:") == len(m.steps) == 1)
            alone |= {m.id: (group, m) for m in single if "," not in m.steps[0]}
    scores = {key: _by_seed(results, *group_member, split, metric) for key, group_member in alone.items()}
    scores = {key: by_seed for key, by_seed in scores.items() if by_seed}
    # A slope over a few contracts has an interval that says nothing, and looks like a finding.
    if len(scores) < LEAST_CONTRACTS:
        return
    # Trainings that all contracts have: else a seed would be taken for a contract's doing.
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in scores.values())))
    dose = np.array([alone[key][1].connectivity for key in scores], dtype=float)
    if seeds and np.ptp(dose):
        values = np.array([[by_seed[seed] for by_seed in scores.values()] for seed in seeds])
        slope = slope_over_clusters(values, dose)
        settings = (kind.model, kind.data, kind.method, kind.rate, split, metric)
        counts = (len(scores), len(seeds), float(dose.min()), float(dose.max()))
        yield DoseRow(*settings, *slope[:6], None, *counts)


def _by_seed(results: PooledResults, group: ResultGroup, member: Member, split: str, metric: str) -> dict[str, float]:
    """The mean score over a split of the models that forgot one contract, by seed."""
    evaluation, _, name = metric.partition(".")
    ids = [item.id for item in results.items(group, member.name, split)]
    means = {}
    for seed, by_member in results.asked[group].items():
        values = results.by_item(by_member[member.name], evaluation) if member.name in by_member else {}
        item_scores = [values[i][name] for i in ids if name in values.get(i, {})]
        if item_scores:
            means[seed] = float(np.mean(item_scores))
    return means
