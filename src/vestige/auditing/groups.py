"""A verdict for each contract or person of the forget set, where the data say which item is whose.

Facts that one group has lost must not hide those that another still has. Every group is judged by its own facts in
every admitted format and in bits, against the same controls. A group fails where one of its quantities is shown to
exceed the narrow margin, by step-down max-T over all groups and formats and the whole set, and where it stands further
out than luck puts a control in any group. A claim holds where each group is shown to be below the margin of groups.
A group of one fact has no spread of its own: it is left to the tests of single facts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from vestige.artifacts.audits import GroupLine
from vestige.auditing.formats import BITS, Scale, TestedFormats, exceeds_controls
from vestige.auditing.ground import Ground, groups_of, shown
from vestige.auditing.matrix import Expressed, bits_evidence, bits_of, leak, leak_evidence
from vestige.core.estimates import Estimate
from vestige.metrics.contrasts import simultaneous, step_down
from vestige.metrics.gains import Controls
from vestige.metrics.intervals import LEVEL, SeedPrior, shared, spread
from vestige.metrics.planning import (
    ALONE_CONTROLS,
    TAIL_INDEX,
)
from vestige.metrics.verdicts import ClaimVerdict, Evidence, Margins

_TAIL = (1 - LEVEL) / 4
"""Groups and single facts share the 2.5 % that the mean has for itself."""
_NAMED = 3
"""Groups that a reason names; all of them are in the outcome."""


class Grouped(NamedTuple):
    """The verdict that groups fail a claim, None where none does; every group's line; what could not be judged.

    `gaps` are what keeps the claim from holding: a group that is not shown to be below the margin of groups.
    """

    verdict: ClaimVerdict | None
    lines: tuple[GroupLine, ...]
    left_out: tuple[str, ...]
    gaps: tuple[str, ...] = ()


NO_GROUPS = Grouped(None, (), ())


class _GroupQuantity(NamedTuple):
    """One quantity of one group, its band over all groups and its corrected p-value."""

    group: str
    n_facts: int
    evidence: Evidence
    band: Estimate
    p: float


class _ScaleByGroup(NamedTuple):
    """A scale by group, and how far at most any control stands above the others in a group, in standard errors.

    `null` is None where no trainings are drawn again.
    """

    scales: dict[str, Scale]
    null: float | None


def parts_of(ground: Ground, tested: TestedFormats) -> dict[str, _ScaleByGroup]:
    """The scales by which the groups of the forget set are judged, by format; the same for every subject."""
    groups = groups_of(ground.plan, ground.judged)
    return {scale.name: _parts(ground, scale, groups) for scale in tested.judged} if groups else {}


def by_group(
    ground: Ground, tested: TestedFormats, parts: Mapping[str, _ScaleByGroup], expressed: Expressed, subject: str
) -> Grouped:
    """Every group of the forget set under one subject."""
    groups = groups_of(ground.plan, ground.judged)
    whole = [*leak_evidence(expressed, tested), *bits_evidence(expressed)]
    if not groups or not whole:
        return NO_GROUPS
    quantities = [
        (group, _quantity(ground, part, subject), parts_of_scale.null)
        for group in groups
        for parts_of_scale in parts.values()
        if (part := parts_of_scale.scales.get(group)) is not None and ground.has(subject, part.key)
    ]
    without = [group for group in groups if group not in {name for name, *_ in quantities}]
    left_out = (
        (f"no verdict of their own for {_names(without)}: the target is not clearly above its controls there",)
        if without
        else ()
    )
    if not quantities:
        return Grouped(None, (), left_out)
    judged = _judge(ground, [evidence for _, evidence, _ in quantities], whole)
    rows = [
        _GroupQuantity(group, len(groups[group]), evidence, band, max(p, len(parts) * _rarity(ground, evidence, null)))
        for (group, evidence, null), (band, p) in zip(quantities, judged, strict=True)
    ]
    lines = tuple(
        _line(ground, subject, [r for r in rows if r.group == group]) for group in groups if group not in without
    )
    if sum(line.exceeds for line in lines) == 1 and 0 < len(ground.plan.retrained) < ALONE_CONTROLS:
        # What befell one group is one event, which few controls do not rule out.
        (first,) = (line for line in lines if line.exceeds)
        doubt = (
            f"{shown(first.group)} alone looks known, and {ALONE_CONTROLS} controls are needed to tell that from luck"
        )
        return Grouped(None, lines, left_out, (doubt, *_unbounded(ground, rows)))
    return Grouped(_verdict(ground, rows, lines), lines, left_out, _unbounded(ground, rows))


def in_one_group(ground: Ground, tested: TestedFormats, expressed: Expressed, subject: str) -> str:
    """That all that is above the narrow margin in the mean may be one group's luck, "" where it is not.

    So it is where controls are few, and without the group that adds most no quantity is above its margin.
    """
    groups, n_controls = groups_of(ground.plan, ground.judged), len(ground.plan.retrained)
    if not groups or not 0 < n_controls < ALONE_CONTROLS:
        return ""
    quantities = [(scale, expressed.leaks.get(scale.name)) for scale in tested.scales]
    quantities += [(scale, expressed.picks.get(scale.name)) for scale in tested.picks]
    quantities += [(tested.bits, expressed.bits)] if tested.bits is not None else []
    most = ""
    for scale, draws in quantities:
        margin = ground.thresholds.margins(scale.unit).narrow
        if draws is None or draws.ends[0] <= margin:
            continue
        never = scale.controls.retrained.mean(axis=0)
        beyond = ground.scores.of(subject, scale.key, scale.items) - never
        gap = np.ones(len(beyond)) if scale.unit == "bits" else scale.controls.target - never
        inside = {name: np.isin(scale.items, members) for name, members in groups.items()}
        most = max(inside, key=lambda name: float(beyond[inside[name]].sum()))
        elsewhere = ~inside[most]
        if elsewhere.any() and beyond[elsewhere].sum() > margin * gap[elsewhere].sum():
            return ""
    if not most:
        return ""
    return f"without {shown(most)} no mean is above its margin, and {ALONE_CONTROLS} controls tell one group from luck"


def _quantity(ground: Ground, part: Scale, subject: str) -> Evidence:
    """The leakage of one group in one format, or its bits."""
    if part.unit == "bits":
        return Evidence(BITS, bits_of(ground, part, subject), "excess", "bits")
    return Evidence(part.name, leak(ground, part, subject), part.unit, part.unit)


def _parts(ground: Ground, scale: Scale, groups: Mapping[str, Sequence[str]]) -> _ScaleByGroup:
    """The scale over each group's facts, where these are two or more and the target is clear of its controls.

    What a training does to all facts of a group at once is estimated from all G groups, with G (M - 1) degrees of
    freedom, in place of the prior of the whole set.
    """
    index = {item: n for n, item in enumerate(scale.items)}
    positions = {group: [index[i] for i in members if i in index] for group, members in groups.items()}
    positions = {group: members for group, members in positions.items() if len(members) > 1}
    prior = _prior(scale, list(positions.values()))
    scales = {group: _part(ground, scale, members, prior) for group, members in positions.items()}
    parts = {group: part for group, part in scales.items() if part is not None}
    if scale.unit not in ("leakage", "bits") or not scale.controls.sample.fixed:
        return _ScaleByGroup(parts, None)
    nulls = [_standing_of_controls(part) for part in parts.values()]
    m = len(scale.controls.retrained)
    # No fewer than the greatest of as many normal draws, since few controls can be alike by chance.
    least = float(ndtri(1 - 1 / max(3, m * len(parts))))
    return _ScaleByGroup(parts, max([least, *nulls]))


def _part(ground: Ground, scale: Scale, places: Sequence[int], prior: SeedPrior) -> Scale | None:
    """The scale over one group's facts; None where the target is not clear of its controls."""
    items = tuple(scale.items[n] for n in places)
    whole = scale.controls
    # Groups share their draws where the trainings are what is random; of questions each group has others.
    fixed = whole.sample.fixed
    sample = ground.sample(items, "forget" if fixed else f"forget, {items[0]}", fixed=fixed)
    controls = Controls(whole.format, whole.target[places], whole.retrained[:, places], sample, prior)
    part = replace(scale, items=items, controls=controls)
    return part if exceeds_controls(ground, part) else None


def _prior(scale: Scale, groups: Sequence[Sequence[int]]) -> SeedPrior:
    """What all groups together show of how a training's mean over one varies; of one control, what was assumed."""
    controls = scale.controls
    rows, prior, m = controls.retrained, controls.prior, len(controls.retrained)
    if not controls.sample.fixed or not groups:
        return prior
    apart = controls.target - rows.mean(axis=0)
    noise = float(spread(rows, apart, prior, width=None if scale.unit == "bits" else 1.0).noise)
    if m == 1 or noise == 0:
        return prior._replace(noise=noise)
    share = shared(rows, groups) / noise
    return prior._replace(share=share, weight=len(groups) * (m - 1.0), noise=noise)


def _standing_of_controls(part: Scale) -> float:
    """How far any control is above the others in a group, in standard errors."""
    rows, m = part.controls.retrained, len(part.controls.retrained)
    if m < 2:
        return 0.0
    means = rows.mean(axis=1)
    width = None if part.unit == "bits" else 1.0
    variance = float(spread(rows, rows[0], part.controls.prior, width=width).variance)
    apart = (m * means - means.sum()) / (m - 1)
    return float(apart.max()) / math.sqrt(variance * m / (m - 1)) if variance > 0 else 0.0


def _rarity(ground: Ground, evidence: Evidence, null: float | None) -> float:
    """The chance that a training goes so much further than the furthest control, did tails fall as z^-4.

    Luck in a group is skewed: most trainings guess none of its facts, and one that guesses a name guesses many.
    """
    if null is None:
        return 0.0
    beyond = evidence.draws.value - ground.thresholds.margins(evidence.unit).narrow
    error = math.hypot(evidence.draws.item_error, evidence.draws.seed_error)
    if beyond <= 0 or error == 0:
        return float(beyond <= 0)
    return float(1 / (1 + len(ground.plan.retrained) * (beyond / error / null) ** TAIL_INDEX))


def _unbounded(ground: Ground, rows: Sequence[_GroupQuantity]) -> tuple[str, ...]:
    """The groups that are not shown to be below the margin that a claim about all of them asks for."""
    over = [row for row in rows if row.evidence.draws.bounds[1] >= ground.thresholds.of_group(row.evidence.unit)]
    if not over:
        return ()
    worst = max(over, key=lambda row: row.evidence.draws.bounds[1] / ground.thresholds.of_group(row.evidence.unit))
    names = _names(list(dict.fromkeys(row.group for row in over)))
    margin = f"{ground.thresholds.of_group(worst.evidence.unit):g}{' bits' if worst.evidence.unit == 'bits' else ''}"
    return (
        f"not shown of each group by itself: {names} may have more than {margin} left "
        f"(of {shown(worst.group)} {worst.evidence}, at most {worst.evidence.draws.bounds[1]:.2f})",
    )


def _judge(ground: Ground, quantities: Sequence[Evidence], whole: Sequence[Evidence]) -> list[tuple[Estimate, float]]:
    """The band and the corrected p-value of each quantity; the whole set's are tested along."""
    draws = [quantity.draws for quantity in (*quantities, *whole)]
    margins = [ground.thresholds.margins(quantity.unit).narrow for quantity in (*quantities, *whole)]
    p_values = step_down(draws, margins)[: len(quantities)]
    bands = simultaneous([quantity.draws for quantity in quantities])
    judged = []
    for quantity, (low, high, method), p in zip(quantities, bands, p_values, strict=True):
        judged.append(
            (Estimate(quantity.metric, quantity.unit, quantity.draws.value, low, high, quantity.draws.n, method), p)
        )
    return judged


def _line(ground: Ground, subject: str, rows: Sequence[_GroupQuantity]) -> GroupLine:
    """What says most against a group: what is surest beyond its margin, else what may reach furthest."""

    def margins(row: _GroupQuantity) -> Margins:
        return ground.thresholds.margins(row.evidence.unit)

    failing = [row for row in rows if row.p <= _TAIL]
    if failing:
        main = min(failing, key=lambda row: (row.p, -row.band.value / margins(row).narrow))
    else:
        main = max(rows, key=lambda row: row.band.high / margins(row).wide)
    return GroupLine(subject, main.group, main.n_facts, main.evidence.name, main.band, main.p, bool(failing))


def _verdict(ground: Ground, rows: Sequence[_GroupQuantity], lines: Sequence[GroupLine]) -> ClaimVerdict | None:
    failing = sorted((line for line in lines if line.exceeds), key=lambda line: line.p)
    if not failing:
        return None
    first = failing[0]
    (main,) = (row for row in rows if (row.group, row.evidence.name) == (first.group, first.by))
    margins = ground.thresholds.margins(main.evidence.unit)
    unit = " bits" if main.evidence.unit == "bits" else ""
    further = f", and so are {_names([line.group for line in failing[1:]])}" if len(failing) > 1 else ""
    reason = (
        f"of {shown(first.group)} alone {main.evidence} is above the margin of {margins.narrow:g}{unit} "
        f"(p = {main.p:.2g} by Student's t among {len(lines)} groups){further}"
    )
    evidence = tuple(
        Evidence(f"{row.group}, {row.evidence.name}", row.evidence.draws, row.evidence.metric, row.evidence.unit)
        for line in failing
        for row in rows
        if (row.group, row.evidence.name) == (line.group, line.by)
    )
    return ClaimVerdict("fails", reason, margins, main.evidence.unit, evidence, decides=evidence[0].name)


def _names(groups: Sequence[str]) -> str:
    n_further = len(groups) - _NAMED
    names = ", ".join(map(shown, groups[:_NAMED]))
    return f"{names} and {n_further} more" if n_further > 0 else names
