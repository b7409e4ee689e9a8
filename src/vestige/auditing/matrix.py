"""Subjects by formats: how much of the forget set each still expresses, the worst case, and whether formats agree."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from vestige.artifacts.audits import MatrixCell, ReversalLine, WorstLine
from vestige.auditing.formats import Scale, TestedFormats
from vestige.auditing.ground import Ground
from vestige.core.estimates import Estimate
from vestige.core.text import Names, Sentences
from vestige.metrics.contrasts import Draws, simultaneous, worst_case
from vestige.metrics.gains import differences, excess, leakage
from vestige.metrics.verdicts import TAIL, Evidence, least_p, over_forgotten, reversals


class Expressed(NamedTuple):
    """What one unlearned subject expresses, in the admitted formats that it was asked in, and in those it was not.

    `picks` are its leaks by the option picked, where the format is judged by the probability of the right one.
    """

    leaks: dict[str, Evidence]
    excess: dict[str, Draws]
    bits: Evidence | None
    not_asked: Names
    picks: dict[str, Evidence]

    @property
    def bits_evidence(self) -> list[Evidence]:
        """The excess in bits. None where bits were not read."""
        return [] if self.bits is None else [self.bits]


class Matrix(NamedTuple):
    """The lines of the matrix, and by subject the draws behind them. `never` judges each control by the others."""

    cells: tuple[MatrixCell, ...]
    worst: tuple[WorstLine, ...]
    never: tuple[WorstLine, ...]
    reversals: tuple[ReversalLine, ...]
    expressed: dict[str, Expressed]
    untested: Sentences = ()


def build_matrix(ground: Ground, tested: TestedFormats) -> Matrix:
    """All subjects in all formats. The positive control is not compared with the methods."""
    expressed = {subject: expressed_in(ground, tested, subject) for subject in ground.plan.audited}
    metric = tested.scales[0].unit if tested.scales else ""
    worst = tuple(worst_line(subject, metric, _draws(e)) for subject, e in expressed.items() if e.leaks)
    methods = {subject: e for subject, e in expressed.items() if subject != ground.plan.suppressed}
    cells = tuple(_cells(ground, tested, expressed))
    never = _never(ground, tested)
    # Without this limit the cost would grow with the square of the number of models.
    if least_p(_comparisons(methods), ground.resamples) > TAIL:
        untested = (
            f"Whether scores rank the {len(methods)} models in other orders was not tested: the pairs are too many."
        )
        return Matrix(cells, worst, never, (), expressed, (untested,))
    return Matrix(cells, worst, never, _reversals(ground, tested.scales, methods), expressed)


def _comparisons(expressed: Mapping[str, Expressed]) -> int:
    """The number of ordered pairs of formats over all pairs of models that have both."""
    n = 0
    sets = Counter(frozenset(one.leaks) for one in expressed.values())
    for one, times in sets.items():
        n += times * (times - 1) // 2 * len(one) * (len(one) - 1)
    for one, other in combinations(sets, 2):
        shared = len(one & other)
        n += sets[one] * sets[other] * shared * (shared - 1)
    return n


def _draws(expressed: Expressed) -> dict[str, Draws]:
    return {name: evidence.draws for name, evidence in expressed.leaks.items()}


def worst_line(subject: str, metric: str, draws: Mapping[str, Draws]) -> WorstLine:
    """The greatest of several quantities by name, which share their resamples."""
    value, (low, high, method) = worst_case(list(draws.values()))
    # What is said of all formats rests on no more facts than the one that has fewest.
    n = min(quantity.n for quantity in draws.values())
    where = max(draws, key=lambda name: draws[name].value)
    return WorstLine(subject, Estimate(metric, metric, value, low, high, n, method), where)


def _never(ground: Ground, tested: TestedFormats) -> tuple[WorstLine, ...]:
    """Every control as if it were a subject, against the others: how far models that never knew differ."""
    lines = []
    for name in ground.plan.retrained:
        leaks = {}
        for scale in tested.scales:
            if name not in scale.retrained or len(scale.retrained) < 2:
                continue
            # As a subject it must be none of its own controls.
            other_rows = np.delete(scale.controls.retrained, scale.retrained.index(name), axis=0)
            if scale.controls.target.mean() > other_rows.mean():
                leaks[scale.name] = leakage(scale.scores(name), replace(scale.controls, retrained=other_rows))
        if leaks:
            lines.append(worst_line(name, "leakage", leaks))
    return tuple(lines)


def expressed_in(ground: Ground, tested: TestedFormats, subject: str) -> Expressed:
    """What one subject expresses in the admitted formats."""
    leaks: dict[str, Evidence] = {}
    beyond: dict[str, Draws] = {}
    not_asked: list[str] = []
    bits: Evidence | None = None
    for scale in tested.judged:
        if not ground.has(subject, scale.key):
            not_asked.append(scale.name)
        elif scale.unit == "bits":
            bits = scale.evidence(subject)
        else:
            leaks[scale.name] = scale.evidence(subject)
            if scale.unit == "leakage":
                beyond[scale.name] = excess(scale.scores(subject), scale.controls)
    picks = {
        scale.name: scale.evidence(subject)
        for scale in tested.picks
        if ground.scores.common([subject], scale.key, scale.items) == scale.items
    }
    return Expressed(leaks, beyond, bits, tuple(not_asked), picks)


def _cells(ground: Ground, tested: TestedFormats, expressed: Mapping[str, Expressed]) -> list[MatrixCell]:
    """By subject the mean score in every format that it was asked in, and what it leaks in those that are admitted."""
    cells: dict[str, list[MatrixCell]] = {subject: [] for subject in expressed}
    bands = {
        subject: dict(zip(e.leaks, simultaneous(list(_draws(e).values())), strict=True))
        for subject, e in expressed.items()
        if e.leaks
    }
    for scale, line in tested.reads:
        subjects = [name for name in expressed if ground.has(name, scale.key)]
        if not subjects:
            continue
        rows = np.stack([scale.scores(name) for name in subjects])
        levels = ground.levels(rows, scale.controls.sample, line.metric)
        for subject, level in zip(subjects, levels, strict=True):
            leaked = band = None
            if scale.name in expressed[subject].leaks:
                draws = expressed[subject].leaks[scale.name].draws
                leaked = draws.estimate(scale.unit, scale.unit)
                band = draws.estimate(scale.unit, scale.unit, bands[subject][scale.name])
            shares, bits = expressed[subject].excess.get(scale.name), expressed[subject].bits
            # Over-forgetting, in shares, and for forced answers in bits as well.
            below = shares is not None and over_forgotten(shares, ground.thresholds.delta)
            if scale.form.forced and bits is not None:
                below = below or over_forgotten(bits.draws, ground.thresholds.delta_bits)
            cells[subject].append(MatrixCell(subject, scale.name, level, leaked, band, below))
    return [cell for of_subject in cells.values() for cell in of_subject]


def _reversals(ground: Ground, scales: Sequence[Scale], expressed: dict[str, Expressed]) -> tuple[ReversalLine, ...]:
    apart: dict[tuple[str, str], dict[str, Draws]] = {}
    for scale in scales:
        asked = [name for name, of_subject in expressed.items() if scale.name in of_subject.leaks]
        pairs = list(combinations(asked, 2))
        if not pairs:
            continue
        rows = [ground.scores.rows(pair, scale.key, scale.items) for pair in pairs]
        # An order of methods is about questions like these: on given questions any two models differ.
        controls = replace(scale.controls, sample=ground.sample(scale.items, fixed=False))
        for pair, draws in zip(pairs, differences(np.stack(rows), controls), strict=True):
            apart.setdefault(pair, {})[scale.name] = draws
    ordered = {pair: apart[pair] for pair in combinations(expressed, 2) if pair in apart}
    return tuple(ReversalLine(*reversal) for reversal in reversals(ordered))
