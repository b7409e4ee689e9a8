"""The formats of an audit, and the check that each separates the target from controls.

Controls come first: a format is admitted if the target's excess over `retrained` (or over chance, without retrained
models) is clearly above `Thresholds.admission`. Leakage is not reported in any other format.

For each subject and format: how much of the forget set it still expresses, the worst case, and whether formats agree.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from vestige.artifacts.audits import FormatLine, MatrixCell, PlannedAttack, ReversalLine, WorstLine
from vestige.artifacts.scores import Format, Source, Sourced
from vestige.auditing.ground import SHARE, Ground, groups_of
from vestige.core.estimates import Estimate
from vestige.core.text import Items, Names, Sentences, TextByName, listed
from vestige.metrics.contrasts import Draws, Sample, simultaneous, worst_case
from vestige.metrics.gains import Controls, Unit, admission, differences, excess, leakage
from vestige.metrics.intervals import LABORATORY, ByControl, ByItem, SeedPrior, interval_over_seeds, shared, spread
from vestige.metrics.planning import LEAST_CONTROLS, more_than_guesses
from vestige.metrics.trainings import same_pattern
from vestige.metrics.verdicts import TAIL, Evidence, least_p, over_forgotten, reversals, steady

BITS = "forced, bits"
"""The printed name of forced answers in bits."""

_HALF = 0.5
"""The share of wrong answers that the true one beats by chance."""
_LOWER = 0.25
"""The quantile of the controls' scores that represents an unknown fact."""
_FEW = 0.5
"""Facts that all controls know keep no claim open up to this share of the wide margin."""
_FEW_APART = 0.8
"""The same for facts that one control knows and others do not. A training may prefer its own options, or guess a
contract.
"""
_FAR = 0.25
"""A control below this share of the way to the target does not know the fact."""
_DIFFERING = 0.75
"""Trainings that guess the same facts differ in fewer hits than this share of the differences by chance."""
_LUCKY = 0.2
"""Above this probability, luck explains the facts on which all controls are like the target."""
_GUESSED = 0.1
"""If a fact is guessed at least this often, all controls may guess it."""
LEAST_BITS = math.log2(0.001)
"""A less likely answer does not count as revealed, however unlikely it is under an unexposed model."""
_EIGHTH = -3.0
"""The distance in bits from the target to exposed controls, if bits are the only scores."""
_ALIKE = 0.5
"""A control that is closer to the target than to the other controls is rejected."""

_LUCK = 0.01
"""Above this probability, guesses explain the options on which all controls are right."""


@dataclass(frozen=True)
class Scale:
    """The scores of one format (or bits) and of its controls over its items. `retrained` names the controls.

    `retrained` is empty if the reference is chance, which is known for each item. `key` is the name of the score in
    use, `key` or `hits` of the format. On `n_like` items controls score like the target, so these cannot be judged.
    They count as known if a claim would pass.
    """

    ground: Ground
    form: Format
    key: str
    items: Items
    retrained: Names
    controls: Controls
    n_like: int = 0

    @property
    def name(self) -> str:
        """The name of the format."""
        return self.form.name

    @property
    def unit(self) -> Unit:
        """The unit of the quantities."""
        return self.controls.unit

    @property
    def graded(self) -> bool:
        """Whether the scores are graded and not correct/incorrect."""
        return self.form.graded and self.key == self.form.key

    def scores(self, source: Sourced) -> ByItem:
        """Return the scores of one source by item."""
        return self.ground.scores.of(source, self.key, self.items)

    @cached_property
    def places(self) -> dict[str, int]:
        """The position of each item."""
        return {item: n for n, item in enumerate(self.items)}

    def on(self, items: Items, sample: Sample) -> "Scale":
        """Return the scale over a part of its items, including those that are like the target."""
        places = [self.places[item] for item in items]
        controls = self.controls
        rows = controls.retrained[:, places]
        return replace(
            self,
            items=items,
            controls=replace(controls, target=controls.target[places], retrained=rows, sample=sample),
            n_like=0,
        )

    def after(self, attack: PlannedAttack) -> "Scale":
        """Return the scale with the target after an attack."""
        scores = self.scores(Source.after(self.ground.plan.target, attack))
        return replace(self, controls=replace(self.controls, target=scores))

    @property
    def gap(self) -> Draws:
        """The target's excess over its controls."""
        # The draws are not cached: hundreds of groups in each format would take more memory than all scores.
        return admission(self.controls)

    @property
    def least_gap(self) -> float:
        """The bound that the gap must clearly exceed."""
        thresholds = self.ground.thresholds
        if self.unit == "bits":
            return thresholds.of_gap(float(self.controls.gap.differences().mean())).delta_bits
        return thresholds.admission

    @cached_property
    def is_clear(self) -> bool:
        """Whether the target exceeds its controls clearly enough to admit the format."""
        graded = self.unit == "leakage" and self.graded
        if graded and self.name in self.ground.plan.predicted:
            return True
        return self.gap.ends[0] > self.least_gap or (graded and is_steady(self.controls, self.ground))

    def evidence(self, subject: str) -> Evidence:
        """Return the subject's knowledge beyond the controls: leakage, or the excess in bits."""
        in_bits = self.unit == "bits"
        quantity = excess if in_bits else leakage
        draws = quantity(self.scores(subject), self.controls)
        if self.n_like:
            # At the upper end, the subject counts as knowing the facts on which controls are like the target.
            share = self.n_like / len(self.items)
            most = float(self.controls.gap.differences().mean()) if in_bits else 1.0
            draws = replace(draws, high=(1 - share) * draws.high + share * most)
        return Evidence(self.name, draws, "excess" if in_bits else self.unit, self.unit)


def is_steady(controls: Controls, ground: Ground) -> bool:
    """Whether another training would hardly change the gap of a graded score."""
    return steady(admission(controls, trained=True), ground.thresholds)


class FormatRead(NamedTuple):
    """One format with scores, and whether its scale is usable."""

    scale: Scale
    line: FormatLine


class TestedFormats(NamedTuple):
    """The formats with scores, bits if they are admitted, and sentences on unreadable formats.

    `picks` are the picks of admitted formats that are judged by the probability of the right option.
    """

    reads: tuple[FormatRead, ...]
    untested: Sentences
    bits: tuple[Scale, ...] = ()
    picks: tuple[Scale, ...] = ()

    @property
    def against(self) -> str:
        """Return the reference: retrained models or chance."""
        if any(scale.retrained for scale in self.judged):
            return "retrained"
        return "chance"

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The admitted formats."""
        return tuple(read.scale for read in self.reads if read.line.admitted)

    def asked_of(self, ground: Ground, subject: str) -> tuple[Scale, ...]:
        """Return the formats of `judged` in which the subject has scores."""
        return tuple(scale for scale in self.judged if ground.has(subject, scale.key))

    @property
    def judged(self) -> tuple[Scale, ...]:
        """The admitted formats, followed by bits."""
        return (*self.scales, *self.bits)

    @property
    def bits_alone(self) -> bool:
        """Whether bits alone measure the forced answer of a fact."""
        return any(_alone(scale, self.scales) for scale in self.bits)

    @property
    def not_admitted(self) -> Sentences:
        """The formats that are not admitted, each with its reason."""
        return tuple(f"{r.line.format}: not admitted, {r.line.reason}" for r in self.reads if not r.line.admitted)


def read_formats(ground: Ground) -> TestedFormats:
    """Read every format with scores of the target, its controls, and the reasons for unreadable formats."""
    reads: list[FormatRead] = []
    untested: list[str] = []
    absent = []
    for form in ground.formats:
        if not any(ground.has(ground.plan.target, key) for key in (form.key, form.hits)):
            absent.append(form.name)
            continue
        scale = _scale(ground, form, untested)
        if scale is not None:
            reads.append(FormatRead(scale, _line(scale)))
    if absent:
        untested.append(f"Formats that were not asked: {', '.join(absent)}.")
    admitted_scales = [read.scale for read in reads if read.line.admitted]
    bits = _bits(ground, untested, admitted_scales) if ground.has(ground.plan.target, ground.scores.bits) else ()
    if ground.plan.retrained and not bits and all(ground.chances(scale.form) for scale in admitted_scales):
        # No other question format separates a shared preference of all controls from shared training.
        scales = [replace(read.scale, n_like=_like_target(read.scale, alone=True)) for read in reads]
        reads = [FormatRead(scale, _line(scale)) for scale in scales]
        admitted_scales = [read.scale for read in reads if read.line.admitted]
    picks = filter(None, map(_picks, admitted_scales))
    return TestedFormats(reads=tuple(reads), bits=bits, untested=tuple(untested), picks=tuple(picks))


def read_stored(ground: Ground) -> TestedFormats:
    """Read the formats of hidden states, with their controls.

    A probe whose control task is above chance is not admitted.
    """
    reads: list[FormatRead] = []
    untested: list[str] = []
    for form in (form for form in ground.scores.formats if form.inside):
        scale = _scale(ground, form, untested) if ground.has(ground.plan.target, form.key) else None
        if scale is None:
            continue
        line = _line(scale)
        if form.drawn:
            shuffled = ground.scores.of(ground.plan.target, form.drawn, scale.items)
            level = ground.level(shuffled, scale.controls.sample, "beaten")
            if level.low > _HALF:
                why = f"a probe fitted on drawn answers tells the true ones too ({level})"
                line = replace(line, admitted=False, reason=why)
        reads.append(FormatRead(scale, line))
    if not reads and not untested and any(e.eval == "inside" for e in ground.plan.evaluations):
        untested.append("The blocks of the target could not be read, so nothing is said of what they hold.")
    return TestedFormats(tuple(reads), tuple(untested))


def unlike_controls(ground: Ground) -> TextByName:
    """Return the `retrained` models that answer like the target, by name, each with the format and the size.

    Such a model is past the midpoint between the other controls and the target, in a format that clearly separates the
    two (in means by `admission`, or by the bound for a graded score). Either it was trained on the forget set, or it is
    the wrong model.
    """
    plan, thresholds = ground.plan, ground.thresholds
    reasons: TextByName = {}
    forms = [(form, thresholds.admission) for form in ground.formats]
    if ground.scores.bits:
        # For a smaller gap, one training's luck could reach the midpoint.
        forms.append((Format(BITS, ground.scores.bits), thresholds.delta_wide_bits))
    for form, least in forms:
        names = [name for name in plan.retrained if ground.has(name, form.key)]
        if not ground.has(plan.target, form.key) or len(names) < 2:
            continue
        items = ground.scores.common([plan.target, *names], form.key, ground.judged)
        if not items:
            continue
        target, *rows = ground.scores.rows([plan.target, *names], form.key, items)
        means = [float(row.mean()) for row in rows]
        knows = float(target.mean())
        for number, (name, mean) in enumerate(zip(names, means, strict=True)):
            rest_mean = float(np.mean(means[:number] + means[number + 1 :]))
            if mean - rest_mean <= _ALIKE * (knows - rest_mean):
                continue
            # Another recipe may raise every score, but the pattern over questions stays that of the controls.
            if same_pattern(rows[number], np.delete(rows, number, axis=0).mean(axis=0), target):
                continue
            # A control must not be excluded because means are far apart by luck.
            clear = knows - rest_mean > least
            if form.graded and not clear:
                clear = is_steady(
                    _controls(ground, form, form.key, items, names[:number] + names[number + 1 :]), ground
                )
            if clear:
                comparison = f"the target {knows:.2f} and the other controls {rest_mean:.2f}"
                reasons.setdefault(name, f"in {form.name} it scores {mean:.2f}, {comparison}")
    return reasons


def _scale(ground: Ground, form: Format, untested: list[str]) -> Scale | None:
    plan, against_chance = ground.plan, not ground.plan.retrained
    # The chance level is known for correct/incorrect scores only.
    key = form.hits if against_chance or not ground.has(plan.target, form.key) else form.key
    chances = ground.chances(form)
    if against_chance and not any(chances.values()):
        # Unexposed models guess some answers in their own words, at an unknown rate.
        untested.append(
            f"The format {form.name} is left out, since no retrained control was given and what guessing scores is not "
            "known."
        )
        return None
    retrained = tuple(name for name in plan.retrained if ground.has(name, key))
    if not against_chance and not retrained:
        untested.append(f"The format {form.name} is left out, since no retrained model was asked in it.")
        return None
    items = _common(ground, key, retrained, untested, form.name)
    if against_chance:
        items = tuple(item for item in items if chances.get(item))
    if not items:
        untested.append(f"The format {form.name} is left out, since no judged item was asked of all.")
        return None
    if not against_chance:
        controls = _controls(ground, form, key, items, retrained)
        scale = Scale(ground, form, key, items, retrained, controls)
        return replace(scale, n_like=_like_target(scale))
    rows = np.array([chances[item] for item in items])
    # The chance level is known, so the questions are resampled and not the trainings.
    sample, target = ground.sample(items, fixed=False), ground.scores.of(plan.target, key, items)
    controls = Controls(form.name, target, rows[None], sample, ground.prior("hits"), "leakage_vs_chance")
    return Scale(ground, form, key, items, (), controls)


def _controls(ground: Ground, form: Format, key: str, items: Sequence[str], retrained: Sequence[str]) -> Controls:
    """Return the target's and the controls' scores in one format, with the unit and the prior of their score type."""
    target, *controls = ground.scores.rows([ground.plan.target, *retrained], key, items)
    rows, prior = np.stack(controls), ground.prior("hits")
    unit: Unit = "leakage"
    if key == ground.scores.bits:
        prior, unit = ground.prior("bits"), "bits"
    elif form.graded and key == form.key:
        prior = ground.prior("graded").scaled(target, rows)
    laboratories = {ground.plan.banked[name] for name in retrained if name in ground.plan.banked}
    if laboratories:
        gap = max(0.0, float((target - rows.mean(axis=0)).mean()))
        # The target has its own laboratory, so its variance adds to the variance of the mean over the controls'
        # laboratories.
        prior = prior._replace(laboratory=LABORATORY * gap * math.sqrt(1 + 1 / len(laboratories)))
    prior = prior._replace(laboratory=ground.plan.predicted.get(form.name, prior.laboratory))
    prior = clustered(ground, prior, target, rows, items, width=None if unit == "bits" else 1.0)
    return Controls(form.name, target, rows, ground.sample(items), prior, unit)


def clustered(
    ground: Ground, prior: SeedPrior, target: ByItem, rows: ByControl, items: Sequence[str], width: float | None = 1.0
) -> SeedPrior:
    """Return the prior with the variation that trainings show in all facts of a contract at once."""
    index = {item: n for n, item in enumerate(items)}
    groups = []
    for members in groups_of(ground.plan, items).values():
        if len(members) > 1:
            groups.append([index[item] for item in members])
    if ground.thresholds.scope != "these" or len(groups) < 2 or len(rows) < 2:
        return prior
    # `moderated` multiplies the share by this noise. It is 0 if the controls differ only by a constant.
    noise = float(spread(rows, target - rows.mean(axis=0), prior, width=width).noise)
    if noise:
        return prior._replace(share=max(prior.share, shared(rows, groups) / (len(groups) * noise)))
    return prior


def _picks(scale: Scale) -> Scale | None:
    """Return the picks behind a format of options. None if there are none, or the target is not clearly ahead in them.

    A subject can spread its probability over all options and still rank the right one first.
    """
    ground, form = scale.ground, scale.form
    if not ground.chances(form) or scale.key != form.key or form.hits == form.key:
        return None
    sources = (ground.plan.target, *scale.retrained)
    if ground.scores.common(sources, form.hits, scale.items) != scale.items:
        return None
    controls = _controls(ground, form, form.hits, scale.items, scale.retrained)
    picks = replace(scale, form=form._replace(name=f"{form.name}, picks"), key=form.hits, controls=controls)
    if picks.is_clear:
        return picks
    return None


def _alone(bits: Scale, scales: Sequence[Scale]) -> bool:
    """Whether bits measure a fact whose forced answer no admitted format measures by its probability."""
    in_shares: set[str] = set()
    for scale in scales:
        if scale.form.forced:
            in_shares.update(scale.items)
    return not in_shares.issuperset(bits.items)


def _bits(ground: Ground, untested: list[str], admitted: Sequence[Scale]) -> tuple[Scale, ...]:
    """Return forced answers in bits, if the target clearly exceeds its controls. One item has no interval."""
    key = ground.scores.bits
    form = Format(BITS, key, question_type=ground.scores.measurements[key].question_type)
    scale = _scale(ground, form, untested)
    if scale is None:
        return ()
    if len(scale.items) < 2:
        untested.append("Nothing is said in bits: there is 1 judged item asked of all, and an interval needs two.")
        return ()
    if not scale.is_clear:
        gap = scale.gap.estimate("excess", "bits")
        untested.append(
            f"Bits are not judged: the target's excess over retrained is {gap}, not clearly above {scale.least_gap:g} "
            "bits an answer."
        )
        return ()
    return (replace(scale, n_like=_like_target(scale, alone=_alone(scale, admitted))),)


def reached(
    scores: Float[np.ndarray, "*M N"], target: ByItem, usual: ByItem, *, in_bits: bool
) -> Bool[np.ndarray, "*M N"]:
    """Return the revealed facts: at least half as likely as under the target, or halfway to it from `usual`."""
    if in_bits:
        return np.asarray(scores >= np.maximum(target + math.log2(_HALF), LEAST_BITS))
    return np.asarray((target > usual) & (scores - usual >= _HALF * (target - usual)))


def _like_target(scale: Scale, *, alone: bool = False) -> int:
    """Return the number of facts on which controls are at least halfway to the target and guessing does not explain it.

    On such facts, nobody can tell knowledge of the subject from knowledge of the controls. The halfway point is
    measured from the chance level, or from the lower quartile of the controls' scores if the chance level is unknown.
    In bits it is half of the target's probability. If bits are `alone`, one eighth in the controls' mean is enough: no
    other score separates trainings that know a fact with different confidence. If options are `alone`, a preference
    shared by all models explains the hits.
    """
    ground, form = scale.ground, scale.form
    target, rows = scale.controls.target, scale.controls.retrained
    if form.ratio:
        return 0
    in_bits = scale.unit == "bits"
    sources = (ground.plan.target, *scale.retrained)
    # The probability per token of a forced answer is the same reading as its bits, which are better for single facts.
    bits = ground.scores.bits
    if form.question_type == "forced answer" and ground.scores.common(sources, bits, scale.items) == scale.items:
        whole = ground.scores.rows(sources, bits, scale.items)
        target, rows, in_bits = whole[0], whole[1:], True
    chances = ground.chances(form)
    usual = float(np.quantile(rows.mean(axis=0), _LOWER)) if scale.graded else 0.0
    base = np.array([chances.get(item, usual) for item in scale.items])
    like = reached(rows, target, base, in_bits=in_bits)
    if in_bits:
        far_below = rows < target + _EIGHTH
    else:
        like &= target - base > ground.thresholds.admission
        far_below = rows - base < _FAR * (target - base)
    luck = ground.plan.luck
    unlikely = np.array([item not in luck or luck[item].chance < _GUESSED for item in scale.items])
    n_apart = _each_apart(scale, like & unlikely, far_below)
    if alone and in_bits:
        like |= rows.mean(axis=0) >= target + _EIGHTH
    times = like.sum(axis=0)
    same = times == len(rows)
    n_same = int(same.sum())
    # A few facts that all models guess stay below the margin.
    few = n_same <= _FEW * ground.thresholds.delta_wide * len(scale.items)
    # All models may prefer the same option, which is then right as often as one guess.
    preferred = not in_bits and not alone and chances and more_than_guesses(n_same, base) > _LUCK
    # Luck that makes all M controls right makes M - 1 of them right at least as often.
    n_almost = int((times == len(rows) - 1).sum())
    if few or preferred or more_than_guesses(n_same, np.full(n_same + n_almost, _HALF)) > _LUCKY:
        return n_apart
    return int((same & unlikely).sum()) + n_apart


def _each_apart(scale: Scale, like: Bool[np.ndarray, "M N"], far_below: Bool[np.ndarray, "M N"]) -> int:
    """Return the number of facts on which one control is like the target and half of the others or more are far below.

    This is the mean over controls, or 0 if models that never saw the facts reach it: they guess the same facts. In
    public logs such facts are at most 1 %. Controls that were taught a part of the facts each know other facts.
    """
    m, n = like.shape
    if m < LEAST_CONTROLS or scale.ground.plan.evidence_level in ("verified", "predicted"):
        return 0
    if not scale.graded and scale.unit == "leakage":
        times, share = like.sum(axis=0), like.mean()
        by_chance = m * (m - 1) * n * share * (1 - share)
        differing = (times * (m - times)).sum()
        # Nobody can tell which picked options were guessed.
        if any(scale.ground.chances(scale.form).values()) or differing < _DIFFERING * by_chance:
            return 0
    apart = like & (2 * far_below.sum(axis=0) >= m - 1)
    n_apart = float(apart.sum() / m)
    if n_apart > _FEW_APART * scale.ground.thresholds.delta_wide * n:
        return math.ceil(n_apart)
    return 0


def _common(ground: Ground, key: str, retrained: Names, untested: list[str], name: str) -> Items:
    """The judged items on which target and controls have a score."""
    plan = ground.plan
    sources = (plan.target, *retrained)
    items = ground.scores.common(sources, key, ground.judged)
    n = len(ground.judged)
    if items and len(items) < n:
        without = n - len(items)
        untested.append(f"In the format {name}, {without} of {n} judged items have no value in one model or more.")
    missing = [model for model in plan.retrained if model not in retrained]
    if missing and retrained:
        untested.append(f"The format {name} was not asked of {listed(missing)}.")
    return items


def _line(scale: Scale) -> FormatLine:
    ground, gap = scale.ground, scale.gap
    controls, metric = scale.controls, scale.key.partition("/")[2] or "score"
    rows, sample = np.asarray(controls.retrained), controls.sample
    retrained = None
    if scale.unit == "leakage":
        interval = interval_over_seeds(
            rows, clusters=sample.clusters, bounds=SHARE, seed=sample.seed, resamples=sample.resamples
        )
        level, error = float(rows.mean()), 1.96 * ground.plan.predicted.get(scale.name, 0.0)
        low, high = min(interval[0], level - error), max(interval[1], level + error)
        retrained = Estimate(metric, "share", level, max(0.0, low), min(1.0, high), sample.n, interval.method)
    estimate = gap.estimate("admission", "share")
    predicted = scale.name in ground.plan.predicted
    alone = "predicted" if predicted else "retrained"
    control = alone if scale.unit == "leakage" else "chance"
    needed = f"{ground.thresholds.admission:g}"
    if gap.ends[0] > scale.least_gap:
        why = f"all of it above {needed}"
    elif predicted and scale.is_clear:
        why = "of which the held-out error of the prediction is at most a quarter"
    elif scale.is_clear:
        why = f"of which another training would move less than a share of {needed}"
    else:
        why = f"which is not clearly above {needed}"
    reason = f"the target exceeds {control} by {estimate}, {why}"
    of_target = ground.level(controls.target, sample, metric)
    return FormatLine(
        scale.name, metric, of_target, retrained, estimate, scale.is_clear, reason, scale.form.prompt, scale.n_like
    )


class Expressed(NamedTuple):
    """One unlearned subject's knowledge in the admitted formats, and its other scores.

    `picks` is the leakage by picked option, in formats judged by the probability of the right option.
    """

    evidence: dict[str, Evidence]
    excess: dict[str, Draws]
    not_asked: Names
    picks: dict[str, Evidence]

    @property
    def leaks(self) -> dict[str, Evidence]:
        """The leakage by format."""
        return {name: evidence for name, evidence in self.evidence.items() if evidence.unit != "bits"}

    @property
    def draws(self) -> dict[str, Draws]:
        """The draws of the leakage by format."""
        return {name: evidence.draws for name, evidence in self.leaks.items()}

    @property
    def bits(self) -> list[Evidence]:
        """The excess in bits. It is empty if bits were not read."""
        return [evidence for evidence in self.evidence.values() if evidence.unit == "bits"]


_AT_ONCE = 256
"""Subjects whose levels are drawn together, for 20 MB of draws."""


Levels = dict[tuple[str, str], Estimate]
"""The mean score by format and subject."""


def levels_of(ground: Ground, tested: TestedFormats) -> Levels:
    """Return the levels of all subjects, which share sets of draws."""
    levels: Levels = {}
    for scale, line in tested.reads:
        subjects = [name for name in ground.plan.audited if ground.has(name, scale.key)]
        for start in range(0, len(subjects), _AT_ONCE):
            portion = subjects[start : start + _AT_ONCE]
            rows = np.stack([scale.scores(name) for name in portion])
            of_rows = ground.levels(rows, scale.controls.sample, line.metric)
            levels |= {(scale.name, name): level for name, level in zip(portion, of_rows, strict=True)}
    return levels


def compares_orders(tested: TestedFormats, n_methods: int, resamples: int) -> bool:
    """Return whether to compare the orders of methods. The cost is quadratic in their number, so it is limited."""
    n_scales = len(tested.scales)
    n_pairs = math.comb(n_methods, 2) * n_scales * (n_scales - 1)
    return least_p(n_pairs, resamples) <= TAIL


def subject_lines(
    ground: Ground, tested: TestedFormats, levels: Levels, subject: str, expressed: Expressed
) -> tuple[list[MatrixCell], list[WorstLine]]:
    """Return one subject's cells for every format, and its largest leakage."""
    draws = expressed.draws
    worst = []
    bands = {}
    if draws:
        worst.append(worst_line(subject, tested.scales[0].unit, draws))
        bands = dict(zip(draws, simultaneous(list(draws.values())), strict=True))
    cells = []
    for scale, _ in tested.reads:
        level = levels.get((scale.name, subject))
        if level is None:
            continue
        leaked = band = None
        if scale.name in draws:
            leaked = draws[scale.name].estimate(scale.unit, scale.unit)
            band = draws[scale.name].estimate(scale.unit, scale.unit, bands[scale.name])
        cells.append(MatrixCell(subject, scale.name, level, leaked, band, _is_below(ground, expressed, scale)))
    return cells, worst


def _is_below(ground: Ground, expressed: Expressed, scale: Scale) -> bool:
    """Whether a subject knows clearly less than its controls, in shares and, for forced answers, also in bits."""
    shares = expressed.excess.get(scale.name)
    if shares is not None and over_forgotten(shares, ground.thresholds.delta):
        return True
    limit = ground.thresholds.delta_bits
    return scale.form.forced and any(over_forgotten(bits.draws, limit) for bits in expressed.bits)


def worst_line(subject: str, metric: str, draws: Mapping[str, Draws]) -> WorstLine:
    """Return the largest of several quantities, which share their resamples."""
    value, (low, high, method) = worst_case(list(draws.values()))
    # The number of facts behind all formats together is that of the format with the fewest.
    n = min(quantity.n for quantity in draws.values())
    where = max(draws, key=lambda name: draws[name].value)
    return WorstLine(subject, Estimate(metric, metric, value, low, high, n, method), where)


def never_lines(ground: Ground, tested: TestedFormats) -> tuple[WorstLine, ...]:
    """Treat every control as a subject and compare it with the others: this shows how unexposed models differ."""
    lines = []
    for name in ground.plan.retrained:
        leaks = {}
        for scale in tested.scales:
            if name not in scale.retrained or len(scale.retrained) < 2:
                continue
            # A control must not be its own control.
            other_rows = np.delete(scale.controls.retrained, scale.retrained.index(name), axis=0)
            if scale.controls.target.mean() > other_rows.mean():
                leaks[scale.name] = leakage(scale.scores(name), replace(scale.controls, retrained=other_rows))
        if leaks:
            lines.append(worst_line(name, "leakage", leaks))
    return tuple(lines)


def expressed_in(ground: Ground, tested: TestedFormats, subject: str) -> Expressed:
    """Return one subject's knowledge in the admitted formats."""
    evidence: dict[str, Evidence] = {}
    beyond: dict[str, Draws] = {}
    for scale in tested.asked_of(ground, subject):
        evidence[scale.name] = scale.evidence(subject)
        if scale.unit == "leakage":
            beyond[scale.name] = excess(scale.scores(subject), scale.controls)
    not_asked = tuple(scale.name for scale in (*tested.judged, *tested.picks) if not ground.has(subject, scale.key))
    picks = {scale.name: scale.evidence(subject) for scale in tested.picks if scale.name not in not_asked}
    return Expressed(evidence, beyond, not_asked, picks)


def reversal_lines(
    ground: Ground, scales: Sequence[Scale], expressed: Mapping[str, Expressed]
) -> tuple[ReversalLine, ...]:
    """Return the pairs of methods that two formats rank in opposite orders."""
    # One format has one order, and the draws of all pairs of many models would fill the memory.
    if len(scales) < 2:
        return ()
    apart: dict[tuple[str, str], dict[str, Draws]] = {}
    for scale in scales:
        asked = [name for name, of_subject in expressed.items() if scale.name in of_subject.leaks]
        pairs = list(combinations(asked, 2))
        if not pairs:
            continue
        rows = [ground.scores.rows(pair, scale.key, scale.items) for pair in pairs]
        # A ranking is a statement about similar questions: on the given questions, any two models differ.
        controls = replace(scale.controls, sample=ground.sample(scale.items, fixed=False))
        for pair, draws in zip(pairs, differences(np.stack(rows), controls), strict=True):
            apart.setdefault(pair, {})[scale.name] = draws
    ordered = {pair: apart[pair] for pair in combinations(expressed, 2) if pair in apart}
    return reversals(ordered)
