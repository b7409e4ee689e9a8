"""Subjects by formats: how much of the forget set each still expresses, the worst case, and whether formats agree."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from vestige.artifacts.audits import MatrixCell, ReversalLine, WorstLine
from vestige.auditing.formats import BITS, Scale, TestedFormats, ranks
from vestige.auditing.ground import BITS_KEY, Ground
from vestige.core.estimates import Estimate
from vestige.metrics.contrasts import Draws, simultaneous, worst_case
from vestige.metrics.gains import differences, excess, excess_bits, leakage, leakage_vs_chance
from vestige.metrics.verdicts import (
    Evidence,
    over_forgotten,
    reversals,
)


class Expressed(NamedTuple):
    """What one unlearned subject expresses, in the admitted formats that it was asked in, and in those it was not.

    `picks` are its leaks by the option picked, where the format is judged by the probability of the right one.
    """

    leaks: dict[str, Draws]
    excess: dict[str, Draws]
    bits: Draws | None
    not_asked: tuple[str, ...]
    picks: dict[str, Draws]


class Matrix(NamedTuple):
    """The lines of the matrix, and by subject the draws behind them; `never` judges each control by the others."""

    cells: tuple[MatrixCell, ...]
    worst: tuple[WorstLine, ...]
    never: tuple[WorstLine, ...]
    reversals: tuple[ReversalLine, ...]
    expressed: dict[str, Expressed]


def bits_evidence(expressed: Expressed) -> list[Evidence]:
    """The excess in bits; none where bits were not read."""
    return [] if expressed.bits is None else [Evidence(BITS, expressed.bits, "excess", "bits")]


def leak_evidence(expressed: Expressed, tested: TestedFormats) -> list[Evidence]:
    """The leakage in every admitted format; the metric is named for what 0 stands for."""
    unit = {scale.name: scale.unit for scale in tested.scales}
    return [Evidence(name, draws, unit[name], unit[name]) for name, draws in expressed.leaks.items()]


def build_matrix(ground: Ground, tested: TestedFormats) -> Matrix:
    """All subjects in all formats; the positive control is not compared with the methods."""
    expressed = {subject: expressed_in(ground, tested, subject) for subject in ground.plan.audited}
    levels = _levels(ground, tested)
    cells = [
        cell for subject in ground.plan.audited for cell in _cells(ground, tested, subject, expressed[subject], levels)
    ]
    metric = tested.scales[0].unit if tested.scales else ""
    worst = [
        worst_line(subject, metric, expression.leaks) for subject, expression in expressed.items() if expression.leaks
    ]
    methods = {subject: expression for subject, expression in expressed.items() if subject != ground.plan.suppressed}
    return Matrix(
        tuple(cells),
        tuple(worst),
        _never(ground, tested),
        _reversals(ground, tested.scales, methods),
        expressed,
    )


def worst_line(subject: str, metric: str, draws: Mapping[str, Draws]) -> WorstLine:
    """The greatest of several quantities by name, which share their resamples."""
    value, (low, high, method) = worst_case(list(draws.values()))
    n = min(quantity.n for quantity in draws.values())
    where = max(draws, key=lambda name: draws[name].value)
    return WorstLine(subject, Estimate(metric, metric, value, low, high, n, method), where)


def _never(ground: Ground, tested: TestedFormats) -> tuple[WorstLine, ...]:
    """Every control as if it were a subject, against the others: how far models that never knew differ."""
    lines = []
    for name in ground.plan.retrained:
        leaks = {}
        for scale in (scale for scale in tested.scales if name in scale.retrained and len(scale.retrained) > 1):
            other_rows = np.delete(scale.controls.retrained, scale.retrained.index(name), axis=0)
            if scale.controls.target.mean() > other_rows.mean():
                scores = ground.scores.of(name, scale.key, scale.items)
                leaks[scale.name] = leakage(scores, replace(scale.controls, retrained=other_rows))
        if leaks:
            lines.append(worst_line(name, "leakage", leaks))
    return tuple(lines)


def leak(ground: Ground, scale: Scale, subject: str) -> Draws:
    """The subject's leakage in one admitted format."""
    values, controls = ground.scores.of(subject, scale.key, scale.items), scale.controls
    if scale.unit == "leakage_vs_alternatives":
        return ranks(ground, scale.items, subject, length=float(controls.gap.differences().mean()))
    if scale.unit == "leakage_vs_chance":
        return leakage_vs_chance(values, controls.target, controls.retrained[0], controls.sample)
    return leakage(values, controls)


def bits_of(ground: Ground, scale: Scale, subject: str) -> Draws:
    """The subject's excess in bits over the items of a scale in bits."""
    values, controls = ground.scores.of(subject, scale.key, scale.items), scale.controls
    return excess_bits(values, controls.retrained, controls.sample, controls.prior)


def expressed_in(ground: Ground, tested: TestedFormats, subject: str) -> Expressed:
    """What one subject expresses in the admitted formats."""
    leaks, beyond, not_asked = {}, {}, []
    for scale in tested.scales:
        if not ground.has(subject, scale.key):
            not_asked.append(scale.name)
            continue
        leaks[scale.name] = leak(ground, scale, subject)
        if scale.unit == "leakage":
            beyond[scale.name] = excess(ground.scores.of(subject, scale.key, scale.items), scale.controls)
    bits = None
    if tested.bits is not None and ground.has(subject, BITS_KEY):
        bits = bits_of(ground, tested.bits, subject)
    elif tested.bits is not None:
        not_asked.append(tested.bits.name)
    picks = {
        scale.name: leak(ground, scale, subject)
        for scale in tested.picks
        if ground.scores.common([subject], scale.key, scale.items) == scale.items
    }
    return Expressed(leaks, beyond, bits, tuple(not_asked), picks)


def _levels(ground: Ground, tested: TestedFormats) -> dict[tuple[str, str], Estimate]:
    """The mean score of every subject in every format that it was asked in."""
    levels: dict[tuple[str, str], Estimate] = {}
    for scale, _, line in tested.reads:
        names = [name for name in ground.plan.audited if ground.has(name, scale.key)]
        if names:
            rows = ground.scores.rows(names, scale.key, scale.items)
            rows_levels = ground.levels(rows, scale.controls.sample, line.metric)
            levels |= {(name, scale.name): level for name, level in zip(names, rows_levels, strict=True)}
    return levels


def _cells(
    ground: Ground,
    tested: TestedFormats,
    subject: str,
    expressed: Expressed,
    levels: Mapping[tuple[str, str], Estimate],
) -> list[MatrixCell]:
    bands = (
        dict(zip(expressed.leaks, simultaneous(list(expressed.leaks.values())), strict=True)) if expressed.leaks else {}
    )
    cells = []
    for scale, _, _ in tested.reads:
        if (subject, scale.name) not in levels:
            continue
        leaked = band = None
        if scale.name in expressed.leaks:
            leaked = expressed.leaks[scale.name].estimate(scale.unit, scale.unit)
            low, high, method = bands[scale.name]
            band = Estimate(scale.unit, scale.unit, leaked.value, low, high, leaked.n, method)
        cells.append(
            MatrixCell(
                subject, scale.name, levels[subject, scale.name], leaked, band, _below(ground, expressed, scale.name)
            )
        )
    return cells


def _below(ground: Ground, expressed: Expressed, name: str) -> bool:
    """Over-forgetting, in shares, and for forced answers in bits as well."""
    if name == "forced" and expressed.bits is not None and over_forgotten(expressed.bits, ground.thresholds.delta_bits):
        return True
    return name in expressed.excess and over_forgotten(expressed.excess[name], ground.thresholds.delta)


def _reversals(ground: Ground, scales: Sequence[Scale], expressed: dict[str, Expressed]) -> tuple[ReversalLine, ...]:
    apart: dict[tuple[str, str], dict[str, Draws]] = {pair: {} for pair in combinations(expressed, 2)}
    for scale in scales:
        pairs = [pair for pair in apart if all(scale.name in expressed[name].leaks for name in pair)]
        if not pairs:
            continue
        rows = [ground.scores.rows(pair, scale.key, scale.items) for pair in pairs]
        # An order of methods is about questions like these: on given questions any two models differ.
        controls = replace(scale.controls, sample=ground.sample(scale.items, fixed=False))
        for pair, draws in zip(pairs, differences(np.stack(rows), controls), strict=True):
            apart[pair][scale.name] = draws
    return tuple(
        ReversalLine(*reversal) for reversal in reversals({pair: draws for pair, draws in apart.items() if draws})
    )
