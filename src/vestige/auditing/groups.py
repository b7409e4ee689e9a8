"""A verdict for each contract or person of the forget set, and for single facts that no control reveals.

Facts lost in one group must not hide facts that remain in another. Every group is judged by its own facts in every
admitted format and in bits, against the same controls. A group fails if one of its quantities significantly exceeds the
narrow margin, by step-down max-T over all groups and formats and the whole set, and if chance does not put any
control's group this far out. A claim passes if each group is significantly below the margin of groups. A group of one
fact has no spread of its own, so only the tests of single facts cover it.

Single facts that a subject reveals and no control reveals:

The subject is tested as it is or after an attack. A fact in the model's own words counts as stated if any such format
has the answer, in any wording. Forced answers (in bits) and options are tested each by its score, and all formats
together. After an attack, a fact counts only if it is revealed and the attack raised its score.

The number of stored facts is estimated even if no single fact can be identified (`facts_stored_in`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vestige.artifacts.audits import AuditPlan, FactLine, GroupLine, PlannedAttack, StoredLine
from vestige.artifacts.scores import Format, Source, Sourced
from vestige.auditing.formats import BITS, Expressed, Scale, TestedFormats, clustered, reached
from vestige.auditing.ground import ClaimEvidence, Ground, groups_of, shown
from vestige.auditing.recovery import AttackAbility
from vestige.core.estimates import Estimate
from vestige.core.text import Items, Names, Sentences, first_of, grouped
from vestige.metrics.contrasts import Draws, holm, simultaneous, step_down
from vestige.metrics.distributions import t_quantile
from vestige.metrics.gains import facts_stored
from vestige.metrics.intervals import LEVEL, SeedPrior, shared, spread
from vestige.metrics.planning import (
    ALONE_CONTROLS,
    LEAST_CONTROLS,
    SUSPECT,
    TAIL_INDEX,
    UNNAMED_CONTROLS,
    FactTest,
    Standing,
    Together,
    extreme,
    fewer_than_guesses,
    masked_among,
    standings,
    stated,
)
from vestige.metrics.verdicts import ClaimVerdict, Evidence, Margins

_TAIL = (1 - LEVEL) / 4
"""Groups and single facts share 2.5 % of error. The mean has another 2.5 %."""


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

    `null` is None if trainings are not resampled.
    """

    scales: dict[str, Scale]
    null: float | None


def parts_of(ground: Ground, tested: TestedFormats) -> dict[str, ScaleByGroup]:
    """Return the scales by group of the forget set, by format. They are the same for every subject."""
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
    # The whole set is tested as well, since its mean may exceed the margin if no group's does.
    evidence = [*(e for _, e, _ in quantities), *whole]
    margins = [ground.thresholds.margins(e.unit) for e in evidence]
    p_values = step_down([e.draws for e in evidence], [m.narrow for m in margins])
    bands = simultaneous([e.draws for _, e, _ in quantities])
    rows = []
    for (group, e, null), m, p, interval in zip(quantities, margins, p_values, bands, strict=False):
        band = e.draws.estimate(e.metric, e.unit, interval)
        rarity = _rarity(e.draws, m.narrow, null, len(ground.plan.retrained))
        # The rarity is computed for each format, so Bonferroni's factor corrects it.
        rows.append(_GroupQuantity(group, len(groups[group]), e, band, max(p, len(parts) * rarity), m))
    lines = tuple(_line(subject, of_group) for of_group in grouped(rows, lambda row: row.group).values())
    exceeding = [line.group for line in lines if line.exceeds]
    if len(exceeding) == 1 and 0 < len(ground.plan.retrained) < ALONE_CONTROLS:
        # An effect on one group is one event, which a few controls do not rule out.
        known = shown(exceeding[0])
        doubt = f"{known} alone looks known, and {ALONE_CONTROLS} controls are needed to tell that from luck"
        return ClaimEvidence((), left_out, (doubt, *_unbounded(ground, rows)), groups=lines)
    return ClaimEvidence(_verdict(rows, lines), left_out, _unbounded(ground, rows), groups=lines)


def in_one_group(ground: Ground, tested: TestedFormats, expressed: Expressed, subject: str) -> str:
    """Return a sentence if one group's luck may explain a mean above the narrow margin, otherwise "".

    This is possible with few controls, if no quantity exceeds its margin without the group that contributes most.
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
        # Without the group that contributes most, does the sum of the others exceed the margin's share of their gap?
        inside = {name: np.isin(scale.items, members) for name, members in groups.items()}
        most = max(inside, key=lambda name: float(beyond[inside[name]].sum()))
        elsewhere = ~inside[most]
        if elsewhere.any() and beyond[elsewhere].sum() > margin * gap[elsewhere].sum():
            return ""
    if not most:
        return ""
    return f"without {shown(most)} no mean is above its margin, and {ALONE_CONTROLS} controls tell one group from luck"


def _parts(ground: Ground, scale: Scale, groups: Mapping[str, Sequence[str]]) -> ScaleByGroup:
    """Return the scale over each group's facts: at least two, with the target clearly above its controls.

    A training's common effect on a group is estimated from all G groups with G (M - 1) degrees of freedom, instead of
    from the prior of the whole set.
    """
    there = {group: tuple(item for item in members if item in scale.places) for group, members in groups.items()}
    # One fact has no spread. The tests of single facts cover it.
    several = {group: items for group, items in there.items() if len(items) > 1}
    prior = _prior(scale, [[scale.places[item] for item in items] for items in several.values()])
    scales = {group: _part(ground, scale, items, prior) for group, items in several.items()}
    parts = {group: part for group, part in scales.items() if part.is_clear}
    if scale.unit not in ("leakage", "bits") or not scale.controls.sample.fixed:
        return ScaleByGroup(parts, None)
    nulls = [_standing_of_controls(part) for part in parts.values()]
    m = len(scale.controls.retrained)
    # At least the maximum of this many normal draws, since a few controls can be alike by chance.
    least = t_quantile(math.inf, 1 - 1 / max(3, m * len(parts)))
    return ScaleByGroup(parts, max([least, *nulls]))


def _part(ground: Ground, scale: Scale, items: Items, prior: SeedPrior) -> Scale:
    """Return the scale over one group's facts."""
    # Groups share their draws if trainings are random. If questions are random, each group has its own.
    fixed = scale.controls.sample.fixed
    sample = ground.sample(items, "forget" if fixed else f"forget, {items[0]}", fixed=fixed)
    part = scale.on(items, sample)
    return replace(part, controls=replace(part.controls, prior=prior))


def _prior(scale: Scale, groups: Sequence[Sequence[int]]) -> SeedPrior:
    """Return the prior of a group's mean, estimated from all groups together."""
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
    """The largest distance of a control above the others in a group, in standard errors."""
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
    """Return the probability that a training exceeds the most extreme control by this factor, for tails like z^-4.

    Luck within a group is skewed: most trainings guess none of its facts, but a training that guesses a name guesses
    many.
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


STATED = "stated"
TOGETHER = "all formats together"


class _Test(NamedTuple):
    """One test: by stated answers or by scores, before or after an attack.

    With `alone`, the finding fails nothing, because it comes from a ratio, or may come from one event with few
    controls. `says` are the facts that the subject states.
    """

    by: str
    attack: str
    items: Items
    result: FactTest
    controls: int = 0
    alone: bool = False
    says: frozenset[str] = frozenset()

    def __str__(self) -> str:
        after = f" after {self.attack}" if self.attack else ""
        n, of = int(self.result.facts.sum()), len(self.items)
        # Values below 0.001 are not printed in detail.
        p = f"(p = {self.result.p:.2g}" if self.result.p >= 0.001 else "(p = 0.001 or less"
        model = ", if luck strikes each contract and answer by itself"
        p += model if self.result.p < 1 / (self.controls + 1) else ""
        if self.by == STATED:
            return f"it states {n} of {of} facts{after} that no control states {p})"
        many = "1 fact" if n == 1 else f"{n} facts"
        size = f"{p}, up to {self.result.size:.1f} standard deviations out, a control up to {self.result.null:.1f})"
        if self.by == BITS:
            return f"it gives {many} of {of}{after} more bits than any control could {size}"
        where = "in all formats together" if self.by == TOGETHER else f"in {self.by}"
        return f"it gives {many} of {of}{after} away {where}, beyond any control {size}"


_TOO_FEW = f"single facts were not tested, which takes {LEAST_CONTROLS} retrained models"


def single_facts(
    ground: Ground, subject: str, scales: Sequence[Scale], attacks: Sequence[tuple[PlannedAttack, str]]
) -> ClaimEvidence:
    """Test single facts for one claim, with Holm's correction over all: which fail it, and which keep it from passing.

    `scales` are the admitted formats with scores of the model. `attacks` are those that count, each with its format, or
    none for the unattacked model.
    """
    graded = [test for test in scales if test.unit in ("leakage", "bits")]
    if graded and (ground.plan.predicted or len(_controls(graded)) < LEAST_CONTROLS):
        return ClaimEvidence(gaps=(_TOO_FEW,))
    ratios = _ratios(scales)
    by_name = {attack.name: attack for attack, _ in attacks}
    tests = [] if attacks else _tests(ground, subject, scales, None)
    for name, attack in by_name.items():
        formats = {form for of, form in attacks if of.name == name}
        tests += _tests(ground, subject, [scale for scale in scales if scale.name in formats], attack)
    corrected = holm([test.result.p for test in tests])
    positive = [(p, test) for p, test in zip(corrected, tests, strict=True) if test.result.facts.any()]
    failing = [(p, test) for p, test in positive if p <= _TAIL and not test.alone]
    if not failing:
        # Evidence too weak to fail a claim can be too strong for it to pass.
        near = [test for p, test in positive if p <= max(SUSPECT, 1 / test.controls)]
        why = ("by a ratio alone" if test.by in ratios else "too few to be sure" for test in near)
        said = (f"single facts may be given away, {reason}: {test}" for reason, test in zip(why, near, strict=True))
        return ClaimEvidence(gaps=(*said, *_untested(ground, subject, scales, attacks)))
    reason = "; ".join(str(test) for _, test in failing)
    lines: dict[tuple[str, str], FactLine] = {}
    # If several tests find a fact, it is listed once, by the test with the smallest p-value.
    for p, test in sorted(failing, key=lambda pair: pair[0]):
        for item, is_given in zip(test.items, test.result.facts.tolist(), strict=True):
            if is_given:
                by = f"{STATED}, {test.by}" if item in test.says and test.by != STATED else test.by
                line = FactLine(subject, test.attack, item, by, p)
                lines.setdefault((test.attack, item), _with_bits(ground, line, by_name.get(test.attack)))
    verdict = ClaimVerdict("fails", reason, ground.thresholds.margins("leakage"), "leakage", ())
    return ClaimEvidence((verdict,), facts=tuple(lines.values()))


def _untested(
    ground: Ground, subject: str, scales: Sequence[Scale], attacks: Sequence[tuple[PlannedAttack, str]]
) -> Iterator[str]:
    """List the reasons against a pass: formats without a test of single facts, and facts that may be masked."""
    if attacks:
        return
    for scale in scales:
        if not ground.has(subject, scale.key):
            continue
        if scale.unit == "leakage_vs_chance":
            yield from _against_chance(ground, scale, subject)
        elif scale.unit in ("leakage", "bits"):
            yield from _against_controls(ground, scale, subject, _TAIL / len(scales))


def _against_chance(ground: Ground, scale: Scale, subject: str) -> Iterator[str]:
    hits = scale.scores(subject)
    guesses = _guesses(ground, scale)
    n, of = int(hits.sum()), len(hits)
    if n:
        yield f"{_TOO_FEW}: in {scale.name} it is right on {n} of {of} facts"
    p = fewer_than_guesses(hits, guesses)
    if p <= _TAIL:
        yield (
            f"in {scale.name} it is right on {n} of {of} facts, and guessing on {guesses.sum():.1f} (p = {p:.2g}): it "
            "avoids right answers, which can mask those that it knows"
        )


def _against_controls(ground: Ground, scale: Scale, subject: str, level: float) -> Iterator[str]:
    if not (scale.unit == "bits" or scale.graded) and _guesses(ground, scale).any():
        yield f"single facts were not tested in {scale.name}, since whoever guesses is right on some of them"
    scores = scale.scores(subject)
    controls = scale.controls.retrained
    given_away = reached(scores, scale.controls.target, controls.mean(axis=0), in_bits=scale.unit == "bits")
    alone = given_away & (scores > controls.max(axis=0))
    rest = ~alone
    if not alone.any() or not rest.any():
        return
    groups = groups_of(ground.plan, scale.items)
    labels_by_item = {item: n for n, members in enumerate(groups.values()) for item in members}
    labels = None
    if groups:
        # A fact without a known group is its own group.
        numbers = [labels_by_item.get(item, len(groups) + n) for n, item in enumerate(scale.items)]
        labels = np.unique(np.array(numbers)[rest], return_inverse=True)[1]
    p = masked_among(scores[rest], controls[:, rest], labels)
    if p <= level:
        n = int(alone.sum())
        yield (
            f"in {scale.name} it alone gives {n} {'fact' if n == 1 else 'facts'} away, and it scores lower on the "
            f"others than a control does (p = {p:.2g}): it may mask what it knows"
        )


def _guesses(ground: Ground, scale: Scale) -> Float[np.ndarray, " N"]:
    """Return the probability of a correct guess by fact."""
    chances = ground.chances(scale.form)
    return np.array([chances.get(item, 0.0) for item in scale.items])


def _with_bits(ground: Ground, line: FactLine, attack: PlannedAttack | None) -> FactLine:
    """Add the bits of the answer and its bits under the controls, if all models have forced answers."""
    sources = [Source.after(name, attack) for name in (line.subject, *ground.plan.retrained)]
    key = ground.scores.bits
    if not ground.scores.common(sources, key, (line.item,)):
        return line
    bits, *never = ground.scores.rows(sources, key, (line.item,))[:, 0].tolist()
    return replace(line, bits=bits, never=(min(never), max(never)) if never else None)


def _ratios(scales: Sequence[Scale]) -> frozenset[str]:
    """Return the formats whose scores are ratios of probabilities."""
    return frozenset(scale.name for scale in scales if scale.form.ratio)


def _controls(scales: Sequence[Scale]) -> Names:
    """Return the `retrained` models with scores in all of these formats. Other trainings are not controls."""
    first, *further = scales
    return tuple(name for name in first.retrained if all(name in scale.retrained for scale in further))


def _tests(ground: Ground, subject: str, scales: Sequence[Scale], attack: PlannedAttack | None) -> list[_Test]:
    name = "" if attack is None else attack.name
    # Forced answers are tested in bits if available: their probability per token is the same reading.
    by_bits = any(scale.unit == "bits" for scale in scales)
    used = [s for s in scales if s.unit == "bits" or (s.unit == "leakage" and not (by_bits and s.form.forced))]
    if not used:
        return []
    ratios = _ratios(used)
    trial = _Trial(ground, (subject, *_controls(used)), attack)
    together, has_groups = _together(ground.plan, ground.judged)
    tests = _by_scores(trial, used, together)
    # Without known contracts, all facts may be guessed together.
    at_once = together if has_groups else (*together, np.zeros(len(ground.judged), dtype=int))
    words, says = _by_words(trial, used, at_once)
    few = len(trial.names) <= (ALONE_CONTROLS if has_groups else UNNAMED_CONTROLS)
    index = {item: n for n, item in enumerate(ground.judged)}
    results = []
    for by, items, result in (*tests, *words):
        one_event = few and (result.events < 2 or not has_groups)
        # Map the facts from all judged items to the tested items.
        of_items = result._replace(facts=result.facts[[index[item] for item in items]])
        alone = by in ratios or one_event
        controls = len(trial.names) - 1
        results.append(
            _Test(by=by, attack=name, items=items, result=of_items, controls=controls, alone=alone, says=says)
        )
    return results


_Named = tuple[str, Items, FactTest]
"""A test's name, its facts, and its findings over all judged facts."""


class _Trial(NamedTuple):
    """A subject and its controls by name, the subject first, before or after an attack on all of them."""

    ground: Ground
    names: Sequence[str]
    attack: PlannedAttack | None

    def after(self, name: str) -> Source:
        return Source.after(name, self.attack)

    def items(self, scale: Scale, key: str) -> Items:
        """Return the scale's facts that all models share under `key`, before and after the attack."""
        sources: list[Sourced] = [*self.names, *map(self.after, self.names)]
        tested = set(scale.items if self.attack is None else self.attack.tested)
        return self.ground.scores.common(sources, key, [i for i in scale.items if i in tested])

    def rows(self, key: str, items: Items, name: str) -> Float[np.ndarray, "K N"]:
        """Return scores by fact. After an attack the rows are the later scores and the increases."""
        scores = self.ground.scores
        after = scores.of(self.after(name), key, items)
        if self.attack is None:
            return after[None]
        return np.stack([after, after - scores.of(name, key, items)])

    def in_words(self, scales: Sequence[Scale]) -> list[tuple[str, Items]]:
        """Return the keys of the formats in the model's own words, each with the facts that all models share."""
        asked = []
        for scale in scales:
            if _counts_words(self.ground, scale.form):
                asked.append((scale.form.hits, self.items(scale, scale.form.hits)))
        return [(key, items) for key, items in asked if items]

    def says(self, formats: Sequence[tuple[str, Items]], source: Source) -> set[str]:
        """Return the facts that are stated in any format, by their keys."""
        stated_facts: set[str] = set()
        for key, items in formats:
            hits = self.ground.scores.of(source, key, items).tolist()
            stated_facts.update(item for item, hit in zip(items, hits, strict=True) if hit > 0)
        return stated_facts


def _by_scores(trial: _Trial, scales: Sequence[Scale], together: Together) -> list[_Named]:
    """Test the graded format with the strongest evidence (corrected), and all formats together."""
    stand: dict[str, tuple[Items, Standing]] = {}
    singly = []
    for scale in scales:
        items = trial.items(scale, scale.key)
        standing = _standings(trial, scale, items) if items else None
        if standing is None:
            continue
        stand[scale.name] = items, standing
        # An answer in the model's own words is tested by whether it is stated.
        counted = _counts_words(trial.ground, scale.form) and bool(trial.items(scale, scale.form.hits))
        if scale.unit == "bits" or (scale.form.graded and not counted):
            singly.append((scale.name, items, extreme([standing], together)))
    tests: list[_Named] = []
    # A ratio is tested separately, so that it corrects nothing and hides no fact that fails a claim.
    ratios = _ratios(scales)
    for of_kind in ([t for t in singly if t[0] not in ratios], [t for t in singly if t[0] in ratios]):
        if of_kind:
            name, items, most = min(of_kind, key=lambda test: test[2].p)
            tests.append((name, items, most._replace(p=min(1.0, len(singly) * most.p))))
    both = [entry for name, entry in stand.items() if name not in ratios]
    if len(both) > 1:
        every = {i for items, _ in both for i in items}
        items = tuple(i for i in trial.ground.judged if i in every)
        tests.append((TOGETHER, items, extreme([standing for _, standing in both], together)))
    return tests


def _by_words(trial: _Trial, scales: Sequence[Scale], together: Together) -> tuple[list[_Named], frozenset[str]]:
    """Count the facts that the subject states in its own words and no control states, and return which it states."""
    formats, judged = trial.in_words(scales), trial.ground.judged
    if not formats:
        return [], frozenset()
    says = [trial.says(formats, trial.after(name)) for name in trial.names]
    if trial.attack is not None:
        # An attack did not recover facts that the subject stated before it. Facts stated by a control are not the
        # subject's alone.
        says[0] -= trial.says(formats, Source(trial.names[0]))
    states = np.array([np.isin(judged, [*of_model]) for of_model in says])
    result = stated(states[0], states[1:], together)
    if result is None:
        return [], frozenset()
    every = set().union(*(items for _, items in formats))
    return [(STATED, tuple(i for i in judged if i in every), result)], frozenset(says[0])


def facts_stored_in(
    ground: Ground, tested: TestedFormats, ability: AttackAbility
) -> tuple[tuple[StoredLine, ...], str]:
    """Estimate by subject the number of stored facts, and the reason if it is unknown, or "".

    The estimate uses relearning on the largest part of the forget set, at the stage that a search of rates chose on
    other facts. A fact is recalled if any admitted format in the model's own words contains it. The interval is about
    these facts and covers the variation of another training's recall. It begins at 0 if one group's luck could explain
    it.
    """
    plan = ground.plan
    parts = [a for a in plan.attacks if (a.kind, a.material) == ("relearn", "forget_part")]
    attack = max((a for a in parts if not ground.search_of(a.name)), key=lambda a: a.n_shown, default=None)
    takes = f"an admitted format in the model's own words, asked after relearning of it and {LEAST_CONTROLS} controls"
    not_counted = f"How many facts are stored was not estimated, which takes {takes}."
    if not plan.attacks or not plan.retrained or ground.doubts:
        return (), ""
    if attack is None:
        return (), not_counted
    weak = next((line for line in ability.lines if line.attack == attack.name and not line.able), None)
    if weak is not None:
        why = f"{attack.name} was not shown able to bring facts back ({weak.why_not})"
        return (), f"How many facts are stored has no lower bound: {why}."
    lines = []
    for subject in plan.audited:
        if subject in ground.doubts_of:
            continue
        after = {name: Source.after(name, attack) for name in (subject, *plan.retrained)}
        names = [name for name, source in after.items() if ground.scores.keys(source)]
        trial = _Trial(ground, names, attack)
        formats = trial.in_words(tested.scales)
        # All models must have the same formats for a fact, so that they have equal chances to recall it.
        everywhere = set(ground.judged).intersection(*(of_format for _, of_format in formats)) if formats else set()
        items = [i for i in ground.judged if i in everywhere]
        recalled_facts = [trial.says(formats, after[name]) for name in names]
        recalled = np.array([np.isin(items, [*facts]) for facts in recalled_facts], dtype=float)
        if subject not in names or len(names) <= LEAST_CONTROLS or not items or recalled[1:].all():
            continue
        stored = _stored(ground, items, recalled)
        if stored.low > 0 and _of_one_group(ground, items, recalled):
            stored = replace(stored, low=0.0)
        share, *controls = recalled.mean(axis=1).tolist()
        lines.append(StoredLine(subject, attack.name, stored, share, tuple(controls)))
    return tuple(lines), "" if lines else not_counted


def _stored(ground: Ground, items: Sequence[str], recalled: Float[np.ndarray, "S N"]) -> Estimate:
    """Return the stored share for the first of the models. The others are its controls."""
    # A fact is recalled in any wording, so several wordings do not reduce its variance.
    sample = replace(ground.sample(items, "facts stored", fixed=True), wordings=1.0)
    prior = clustered(ground, ground.prior("hits"), np.ones(len(items)), recalled[1:], items)
    return facts_stored(recalled[0], recalled[1:], sample, prior).estimate("stored", "share")


def _of_one_group(ground: Ground, items: Sequence[str], recalled: Float[np.ndarray, "S N"]) -> bool:
    """Return whether the estimate vanishes without the group that adds most, or no groups are known.

    A training guesses a contract's facts together. If this happens in 5 % of ten contracts, 6 % (with five controls) to
    13 % (with three) of the controls would otherwise seem to store facts.
    """
    groups = groups_of(ground.plan, items)
    if not groups:
        return len(recalled) - 1 < UNNAMED_CONTROLS
    beyond = recalled[0] - recalled[1:].mean(axis=0)
    inside = [np.isin(items, members) for members in groups.values()]
    elsewhere = ~max(inside, key=lambda group: float(beyond[group].sum()))
    rest = recalled[:, elsewhere]
    if not elsewhere.any() or rest[1:].all():
        return True
    return _stored(ground, [i for i, other in zip(items, elsewhere, strict=True) if other], rest).low <= 0


def _counts_words(ground: Ground, form: Format) -> bool:
    """Whether a format counts answers that cannot be guessed by chance, such as answers in the model's own words."""
    if not form.hits or (form.graded and form.hits == form.key):
        return False
    return not any(ground.chances(form).values())


def _together(plan: AuditPlan, items: Sequence[str]) -> tuple[tuple[Int[np.ndarray, " N"], ...], bool]:
    """Return the groupings of facts that can be guessed together, and whether contracts or persons are used."""
    groups = groups_of(plan, items)
    labels_by_item = {item: label for label, group in groups.items() for item in group}
    labelled = [labels_by_item, *plan.alike.values()] if groups else list(plan.alike.values())
    groupings = []
    for labels in labelled:
        # A fact without a known label or group is independent.
        names = [f"label {labels[item]}" if item in labels else f"item {item}" for item in items]
        groupings.append(np.unique(names, return_inverse=True)[1])
    return tuple(groupings), bool(groups)


def _standings(trial: _Trial, scale: Scale, items: Items) -> Standing | None:
    """Return the positions of the subject and its controls by fact in one format. A missing score counts as 0."""
    rows = np.stack([trial.rows(scale.key, items, name) for name in trial.names])
    target = trial.ground.scores.of(trial.ground.plan.target, scale.key, items)
    in_bits = scale.unit == "bits"
    given_away = reached(rows[0, 0], target, rows[1:, 0].mean(axis=0), in_bits=in_bits)
    standing = standings(rows[0], rows[1:], given_away, None if in_bits else scale.controls.prior.pair)
    if standing is None:
        return None
    index = {item: n for n, item in enumerate(trial.ground.judged)}
    whole = Standing(*(np.zeros((*part.shape[:-1], len(index))) for part in standing))
    for part, every in zip(standing, whole, strict=True):
        every[..., [index[item] for item in items]] = part
    return whole
