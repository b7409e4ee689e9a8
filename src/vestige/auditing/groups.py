"""A verdict for each contract or person of the forget set, where the data say which item is whose.

Facts that one group has lost must not hide those that another still has. Every group is judged by its own facts in
every admitted format and in bits, against the same controls. A group fails if one of its quantities significantly
exceeds the narrow margin, by step-down max-T over all groups and formats and the whole set, and if chance does not put
any control's group this far out. A claim holds if each group is significantly below the margin of groups. A group of
one fact has no spread of its own: it is left to the tests of single facts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from vestige.artifacts.audits import GroupLine
from vestige.auditing.formats import Expressed, Scale, TestedFormats
from vestige.auditing.ground import ClaimEvidence, Ground, groups_of, shown
from vestige.core.estimates import Estimate
from vestige.core.text import Items, Sentences, listed
from vestige.metrics.contrasts import Draws, simultaneous, step_down
from vestige.metrics.intervals import LEVEL, SeedPrior, shared, spread
from vestige.metrics.planning import ALONE_CONTROLS, TAIL_INDEX
from vestige.metrics.verdicts import ClaimVerdict, Evidence, Margins

_TAIL = (1 - LEVEL) / 4
"""Groups and single facts share the 2.5 % that the mean has for itself."""
_NAMED = 3
"""Names in a reason. The outcome has all."""


class _GroupQuantity(NamedTuple):
    """One quantity of one group, its band over all groups and its corrected p-value."""

    group: str
    n_facts: int
    evidence: Evidence
    band: Estimate
    p: float
    margins: Margins


class ScaleByGroup(NamedTuple):
    """A scale by group, and the largest deviation of any control from the others in a group, in standard errors.

    `null` is None where no trainings are drawn again.
    """

    scales: dict[str, Scale]
    null: float | None


def parts_of(ground: Ground, tested: TestedFormats) -> dict[str, ScaleByGroup]:
    """The scales by which the groups of the forget set are judged, by format. The same for every subject."""
    groups = groups_of(ground.plan, ground.judged)
    if groups:
        return {scale.name: _parts(ground, scale, groups) for scale in tested.judged}
    return {}


def by_group(ground: Ground, parts: Mapping[str, ScaleByGroup], expressed: Expressed, subject: str) -> ClaimEvidence:
    """Return the groups of the forget set that fail a claim for one model, and those that keep it from passing.

    The absence of failing groups is no evidence for the claim.
    """
    groups = groups_of(ground.plan, ground.judged)
    whole = [*expressed.evidence.values()]
    if not groups or not whole:
        return ClaimEvidence()
    quantities: list[tuple[str, Evidence, float | None]] = []
    for group in groups:
        for by_group_of_scale in parts.values():
            scale = by_group_of_scale.scales.get(group)
            if scale is not None and ground.has(subject, scale.key):
                quantities.append((group, scale.evidence(subject), by_group_of_scale.null))
    tested = {group for group, *_ in quantities}
    without = [group for group in groups if group not in tested]
    left_out: Sentences = ()
    if without:
        names = first_of(without)
        left_out = (f"no verdict of their own for {names}: the target is not clearly above its controls there",)
    if not quantities:
        return ClaimEvidence(left_out=left_out)
    # The whole set is tested along, since its margin may be exceeded where no group's is.
    evidence = [*(e for _, e, _ in quantities), *whole]
    margins = [ground.thresholds.margins(e.unit) for e in evidence]
    p_values = step_down([e.draws for e in evidence], [m.narrow for m in margins])
    bands = simultaneous([e.draws for _, e, _ in quantities])
    rows = []
    for (group, e, null), m, p, interval in zip(quantities, margins, p_values, bands, strict=False):
        band = e.draws.estimate(e.metric, e.unit, interval)
        rarity = _rarity(e.draws, m.narrow, null, len(ground.plan.retrained))
        # Rarity was asked of each format, which Bonferroni's factor pays for.
        rows.append(_GroupQuantity(group, len(groups[group]), e, band, max(p, len(parts) * rarity), m))
    by_name: dict[str, list[_GroupQuantity]] = {}
    for row in rows:
        by_name.setdefault(row.group, []).append(row)
    lines = tuple(_line(subject, of_group) for of_group in by_name.values())
    exceeding = [line.group for line in lines if line.exceeds]
    if len(exceeding) == 1 and 0 < len(ground.plan.retrained) < ALONE_CONTROLS:
        # What befell one group is one event, which few controls do not rule out.
        known = shown(exceeding[0])
        doubt = f"{known} alone looks known, and {ALONE_CONTROLS} controls are needed to tell that from luck"
        return ClaimEvidence((), left_out, (doubt, *_unbounded(ground, rows)), groups=lines)
    return ClaimEvidence(_verdict(rows, lines), left_out, _unbounded(ground, rows), groups=lines)


def in_one_group(ground: Ground, tested: TestedFormats, expressed: Expressed, subject: str) -> str:
    """Return a sentence if one group's luck may explain a mean above the narrow margin, otherwise "".

    This is possible with few controls, if no quantity exceeds its margin without the group that adds most.
    """
    groups, n_controls = groups_of(ground.plan, ground.judged), len(ground.plan.retrained)
    if not groups or not 0 < n_controls < ALONE_CONTROLS:
        return ""
    by_name = expressed.evidence | expressed.picks
    most = ""
    for scale in (*tested.scales, *tested.picks, *tested.bits):
        evidence = by_name.get(scale.name)
        margin = ground.thresholds.margins(scale.unit).narrow
        if evidence is None or evidence.draws.ends[0] <= margin:
            continue
        never = scale.controls.retrained.mean(axis=0)
        beyond = scale.scores(subject) - never
        gap = np.ones(len(beyond)) if scale.unit == "bits" else scale.controls.target - never
        # Without the group that adds most, is the sum of the others above the margin's share of their gap?
        inside = {name: np.isin(scale.items, members) for name, members in groups.items()}
        most = max(inside, key=lambda name: float(beyond[inside[name]].sum()))
        elsewhere = ~inside[most]
        if elsewhere.any() and beyond[elsewhere].sum() > margin * gap[elsewhere].sum():
            return ""
    if not most:
        return ""
    return f"without {shown(most)} no mean is above its margin, and {ALONE_CONTROLS} controls tell one group from luck"


def _parts(ground: Ground, scale: Scale, groups: Mapping[str, Sequence[str]]) -> ScaleByGroup:
    """The scale over each group's facts, where these are two or more and the target is clear of its controls.

    A training's common effect on a group is estimated from all G groups with G (M - 1) degrees of freedom, in place of
    the prior of the whole set.
    """
    there = {group: tuple(item for item in members if item in scale.places) for group, members in groups.items()}
    # One fact has no spread, and is left to the tests of single facts.
    several = {group: items for group, items in there.items() if len(items) > 1}
    prior = _prior(scale, [[scale.places[item] for item in items] for items in several.values()])
    scales = {group: _part(ground, scale, items, prior) for group, items in several.items()}
    parts = {group: part for group, part in scales.items() if part.is_clear}
    if scale.unit not in ("leakage", "bits") or not scale.controls.sample.fixed:
        return ScaleByGroup(parts, None)
    nulls = [_standing_of_controls(part) for part in parts.values()]
    m = len(scale.controls.retrained)
    # No fewer than the greatest of as many normal draws, since few controls can be alike by chance.
    least = float(ndtri(1 - 1 / max(3, m * len(parts))))
    return ScaleByGroup(parts, max([least, *nulls]))


def _part(ground: Ground, scale: Scale, items: Items, prior: SeedPrior) -> Scale:
    """The scale over one group's facts."""
    # Groups share their draws where the trainings are what is random; of questions each group has others.
    fixed = scale.controls.sample.fixed
    sample = ground.sample(items, "forget" if fixed else f"forget, {items[0]}", fixed=fixed)
    part = scale.on(items, sample)
    return replace(part, controls=replace(part.controls, prior=prior))


def _prior(scale: Scale, groups: Sequence[Sequence[int]]) -> SeedPrior:
    """What all groups together show of how a training's mean over one varies.

    Estimate from all groups together how a training's group mean varies.
    """
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
    if variance > 0:
        return float(apart.max()) / math.sqrt(variance * m / (m - 1))
    return 0.0


def _rarity(draws: Draws, margin: float, null: float | None, n_controls: int) -> float:
    """The chance that a training goes so much further than the furthest control, did tails fall as z^-4.

    Luck in a group is skewed: most trainings guess none of its facts, and one that guesses a name guesses many.
    """
    if null is None:
        return 0.0
    beyond, error = draws.value - margin, math.hypot(draws.item_error, draws.seed_error)
    if beyond <= 0 or error == 0:
        return float(beyond <= 0)
    return float(1 / (1 + n_controls * (beyond / error / null) ** TAIL_INDEX))


def _unbounded(ground: Ground, rows: Sequence[_GroupQuantity]) -> Sentences:
    """Return the groups that are not significantly below the margin for a claim about all groups."""
    wide = {row.evidence.unit: ground.thresholds.of_group(row.evidence.unit) for row in rows}
    over = [row for row in rows if row.evidence.draws.bounds[1] >= wide[row.evidence.unit]]
    if not over:
        return ()
    worst = max(over, key=lambda row: row.evidence.draws.bounds[1] / wide[row.evidence.unit])
    names = first_of(list(dict.fromkeys(row.group for row in over)))
    margin = f"{wide[worst.evidence.unit]:g}{' bits' if worst.evidence.unit == 'bits' else ''}"
    return (
        f"not shown of each group by itself: {names} may have more than {margin} left "
        f"(of {shown(worst.group)} {worst.evidence}, at most {worst.evidence.draws.bounds[1]:.2f})",
    )


def _line(subject: str, rows: Sequence[_GroupQuantity]) -> GroupLine:
    """Return the strongest evidence against a group: the most certain excess, or the widest bound."""
    failing = [row for row in rows if row.p <= _TAIL]
    if failing:
        main = min(failing, key=lambda row: (row.p, -row.band.value / row.margins.narrow))
    else:
        main = max(rows, key=lambda row: row.band.high / row.margins.wide)
    return GroupLine(subject, main.group, main.n_facts, main.evidence.name, main.band, main.p, bool(failing))


def _verdict(rows: Sequence[_GroupQuantity], lines: Sequence[GroupLine]) -> tuple[ClaimVerdict, ...]:
    failing = sorted((line for line in lines if line.exceeds), key=lambda line: line.p)
    if not failing:
        return ()
    by_line = {(row.group, row.evidence.name): row for row in rows}
    decisive = [by_line[line.group, line.by] for line in failing]
    main = decisive[0]
    in_bits = " bits" if main.evidence.unit == "bits" else ""
    further = f", and so are {first_of([line.group for line in failing[1:]])}" if len(failing) > 1 else ""
    reason = (
        f"of {shown(main.group)} alone {main.evidence} is above the margin of {main.margins.narrow:g}{in_bits} "
        f"(p = {main.p:.2g} by Student's t among {len(lines)} groups){further}"
    )
    evidence = tuple(row.evidence._replace(name=f"{row.group}, {row.evidence.name}") for row in decisive)
    unit = main.evidence.unit
    return (ClaimVerdict("fails", reason, main.margins, unit, evidence, decides=evidence[0].name),)


def first_of(groups: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    n_further = len(groups) - _NAMED
    names = listed(groups[:_NAMED])
    if n_further > 0:
        return f"{names} and {n_further} more"
    return names
