"""Single facts that are given away, and a verdict for each contract or person.

Single facts are those that a subject gives away and no model that never knew does, as it is or after an attack. What is
asked for in the model's own words counts as stated where any such format has the answer, in any wording; forced answers
are read in bits, of all facts, and of those that one training alone states. After an attack a fact counts that was
gained by it, beside being given away.

A verdict for each contract or person of the forget set, where the data say which item is whose. Facts that one group
has lost must not hide those that another still has. Every group is judged by its own facts in every admitted format and
in bits, against the same controls. A group fails where one of its quantities is shown to exceed the narrow margin, by
step-down max-T over all groups and formats and the whole set. Bounds hold for all groups at once. A group of one fact
has no spread of its own: it is left to the tests of single facts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from vestige.artifacts.audits import AuditPlan, Claim, FactLine, GroupLine, PlannedAttack
from vestige.auditing.formats import BITS, FORMATS, Scale, Tested, exceeds_controls
from vestige.auditing.ground import BITS_KEY, Ground, shown
from vestige.auditing.matrix import Expressed, bits_of, leak, leak_evidence
from vestige.auditing.scores import Source
from vestige.core.estimates import Estimate
from vestige.metrics.contrasts import holm, simultaneous, step_down
from vestige.metrics.gains import Controls
from vestige.metrics.intervals import LEVEL, spread
from vestige.metrics.membership import firsts
from vestige.metrics.planning import Found, extreme, stated, stated_alone
from vestige.metrics.verdicts import Evidence, Margins, Verdict

_TAIL = (1 - LEVEL) / 2
_NAMED = 3
"""Groups that a reason names; all of them are in the outcome."""


class Grouped(NamedTuple):
    """The verdict that groups fail a claim, None where none does; every group's line; what could not be judged."""

    verdict: Verdict | None
    lines: tuple[GroupLine, ...]
    left_out: tuple[str, ...]


NO_GROUPS = Grouped(None, (), ())


class _Judged(NamedTuple):
    """One quantity of one group, its band over all groups and its corrected p-value."""

    group: str
    n_facts: int
    one: Evidence
    band: Estimate
    p: float


def groups_of(plan: AuditPlan, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The items of each contract, person or other group; none where fewer than two are known."""
    found: dict[str, list[str]] = {}
    for item in items:
        label = plan.edges.get(item, plan.groups.get(item))
        if label is not None:
            found.setdefault(label, []).append(item)
    return {label: tuple(own) for label, own in found.items()} if len(found) > 1 else {}


Parts = Mapping[str, tuple[Scale, ...]]
"""By group every format that its target is clear of controls in, and bits, over the group's facts."""


def parts_of(ground: Ground, tested: Tested) -> Parts:
    """The scales by which the groups of the forget set are judged, the same for every subject."""
    scales = [*tested.scales, *([tested.bits] if tested.bits is not None else [])]
    noises = [_noise(scale) for scale in scales]
    places = [{item: n for n, item in enumerate(scale.items)} for scale in scales]
    found: dict[str, tuple[Scale, ...]] = {}
    for group, own in groups_of(ground.plan, ground.judged).items():
        parts = (
            _part(ground, scale, own, [there[i] for i in own if i in there], noise)
            for scale, there, noise in zip(scales, places, noises, strict=True)
        )
        found[group] = tuple(part for part in parts if part is not None)
    return found


def by_group(ground: Ground, tested: Tested, parts: Parts, found: Expressed, subject: str) -> Grouped:
    """Every group of the forget set under one subject."""
    groups = groups_of(ground.plan, ground.judged)
    whole = leak_evidence(found, tested) + (
        [Evidence(BITS, found.bits, "excess", "bits")] if found.bits is not None else []
    )
    if not groups or not whole:
        return NO_GROUPS
    quantities = [(group, one) for group in groups for one in _quantities(ground, parts[group], subject)]
    without = [group for group in groups if group not in {name for name, _ in quantities}]
    left_out = (
        (f"no verdict of their own for {_names(without)}: the target is not clearly above its controls there",)
        if without
        else ()
    )
    if not quantities:
        return Grouped(None, (), left_out)
    judged = _judge(ground, [one for _, one in quantities], whole)
    rows = [
        _Judged(group, len(groups[group]), one, band, p)
        for (group, one), (band, p) in zip(quantities, judged, strict=True)
    ]
    lines = tuple(
        _line(ground, subject, [r for r in rows if r.group == group]) for group in groups if group not in without
    )
    return Grouped(_verdict(ground, rows, lines), lines, left_out)


def _quantities(ground: Ground, parts: Sequence[Scale], subject: str) -> Iterator[Evidence]:
    """The leakage of one group in each format in which it can be measured, and its bits."""
    for part in parts:
        if not ground.has(Source(subject), part.key):
            continue
        if part.unit == "bits":
            yield Evidence(BITS, bits_of(ground, part, subject), "excess", "bits")
        else:
            yield Evidence(part.name, leak(ground, part, subject), part.unit, part.unit)


def _part(ground: Ground, scale: Scale, items: Sequence[str], places: list[int], noise: float) -> Scale | None:
    """The scale over one group's facts; None where these are fewer than two, or the target is not clear of controls."""
    if len(places) < 2:
        return None
    kept = tuple(scale.items[n] for n in places)
    whole = scale.controls
    # Groups share their draws where the trainings are what is random; of questions each group has others.
    fixed = whole.sample.fixed
    sample = ground.sample(kept, "forget" if fixed else f"forget, {items[0]}", fixed=fixed)
    prior = whole.prior._replace(least=noise)
    controls = Controls(whole.format, whole.target[places], whole.retrained[:, places], sample, prior)
    part = replace(scale, items=kept, controls=controls)
    return part if exceeds_controls(ground, part) else None


def _noise(scale: Scale) -> float:
    """The seed x fact variance over all facts: no group is taken to be steadier than the whole."""
    controls = scale.controls
    apart = controls.target - controls.retrained.mean(axis=0)
    width = None if scale.unit == "bits" else 1.0
    return float(spread(controls.retrained, apart, controls.prior, width=width).noise)


def _judge(ground: Ground, quantities: Sequence[Evidence], whole: Sequence[Evidence]) -> list[tuple[Estimate, float]]:
    """The band and the corrected p-value of each quantity; the whole set's are tested along."""
    draws = [one.draws for one in (*quantities, *whole)]
    margins = [ground.thresholds.margins(one.unit).narrow for one in (*quantities, *whole)]
    p_values = step_down(draws, margins)[: len(quantities)]
    bands = simultaneous([one.draws for one in quantities])
    found = []
    for one, (low, high, said), p in zip(quantities, bands, p_values, strict=True):
        found.append((Estimate(one.metric, one.unit, one.draws.value, low, high, one.draws.n, said), p))
    return found


def _line(ground: Ground, subject: str, rows: Sequence[_Judged]) -> GroupLine:
    """What says most against a group: what is surest beyond its margin, else what may reach furthest."""

    def margins(row: _Judged) -> Margins:
        return ground.thresholds.margins(row.one.unit)

    failing = [row for row in rows if row.p <= _TAIL]
    if failing:
        main = min(failing, key=lambda row: (row.p, -row.band.value / margins(row).narrow))
    else:
        main = max(rows, key=lambda row: row.band.high / margins(row).wide)
    return GroupLine(subject, main.group, main.n_facts, main.one.name, main.band, main.p, bool(failing))


def _verdict(ground: Ground, rows: Sequence[_Judged], lines: Sequence[GroupLine]) -> Verdict | None:
    failing = sorted((line for line in lines if line.exceeds), key=lambda line: line.p)
    if not failing:
        return None
    first = failing[0]
    (main,) = (row for row in rows if (row.group, row.one.name) == (first.group, first.by))
    margins = ground.thresholds.margins(main.one.unit)
    unit = " bits" if main.one.unit == "bits" else ""
    more = f", and so are {_names([line.group for line in failing[1:]])}" if len(failing) > 1 else ""
    said = (
        f"of {shown(first.group)} alone {main.one} is above the margin of {margins.narrow:g}{unit} "
        f"(p = {main.p:.2g} among {len(lines)} groups){more}"
    )
    evidence = tuple(
        Evidence(f"{row.group}, {row.one.name}", row.one.draws, row.one.metric, row.one.unit)
        for line in failing
        for row in rows
        if (row.group, row.one.name) == (line.group, line.by)
    )
    return Verdict("fails", said, margins, main.one.unit, evidence, decides=evidence[0].name)


def _names(groups: Sequence[str]) -> str:
    more = len(groups) - _NAMED
    names = ", ".join(map(shown, groups[:_NAMED]))
    return f"{names} and {more} more" if more > 0 else names


STATED, FIRST = "stated", "ranked first"
SURE = "stated, bits"
"""Facts that the subject alone states, with more bits than any that a control alone states."""
_SUSPECT = 0.1
"""A claim does not hold where single facts look given away at this level: with few controls they can show no more."""
_OWN_WORDS = {"generate", "generate_plain", "paraphrase", "few_shot", "cloze"}
_HITS = {form.name: form.hits for form in FORMATS if form.name in _OWN_WORDS}


class _Test(NamedTuple):
    """One test: by stated or by forced answers, as the subject is or after an attack."""

    by: str
    attack: str
    items: tuple[str, ...]
    found: Found

    def __str__(self) -> str:
        after = f" after {self.attack}" if self.attack else ""
        n, of, p = int(self.found.facts.sum()), len(self.items), f"(p = {self.found.p:.2g})"
        if self.by == FIRST:
            return f"it ranks the true answer of {n} of {self.found.null:.0f} facts{after} before all alternatives {p}"
        if self.by == STATED:
            return f"it states {n} of {of} facts{after} that no model that never knew states {p}"
        many = "1 fact" if n == 1 else f"{n} facts"
        size = f"z up to {self.found.size:.1f}, theirs up to {self.found.null:.1f}"
        if self.by == SURE:
            return (
                f"it alone states {many} of {of}{after}, more surely than any model that never knew states one alone "
                f"{p[:-1]}, {size})"
            )
        return f"it gives {many} of {of}{after} more bits than any model that never knew could {p[:-1]}, {size})"


class Singles(NamedTuple):
    """The verdict that single facts fail a claim, None where they do not; the facts; what keeps it from holding."""

    verdict: Verdict | None
    lines: tuple[FactLine, ...]
    gaps: tuple[str, ...] = ()


NO_SINGLES = Singles(None, ())


def single_facts(
    ground: Ground, claim: Claim, subject: str, scales: Sequence[Scale], attacks: Sequence[tuple[PlannedAttack, str]]
) -> Singles:
    """The tests of one claim, with Holm's correction for all of them.

    `scales` are the admitted ones that the subject was asked in; `attacks` those that count, each with the format that
    it counts in, or none, where the subject is judged as it is.
    """
    tests = []
    for attack in dict.fromkeys(attack.name for attack, _ in attacks) if attacks else [""]:
        used = [s for s in scales if not attacks or any(a.name == attack and f == s.name for a, f in attacks)]
        planned = next((a for a, _ in attacks if a.name == attack), None)
        tests += _tests(ground, subject, used, planned)
    corrected = holm([one.found.p for one in tests])
    failing = [(p, one) for p, one in zip(corrected, tests, strict=True) if p <= _TAIL]
    if not failing:
        near = [one for p, one in zip(corrected, tests, strict=True) if p <= _SUSPECT and one.by != FIRST]
        return Singles(None, (), tuple(f"single facts may be given away, too few to be sure: {one}" for one in near))
    said = "; ".join(str(one) for _, one in failing)
    by_name = {attack.name: attack for attack, _ in attacks}
    lines: dict[tuple[str, str], FactLine] = {}
    # A fact that several tests find is listed once, by the test that is surest of it.
    for p, one in sorted(failing, key=lambda pair: pair[0]):
        for item, given in zip(one.items, one.found.facts.tolist(), strict=True):
            if given:
                line = FactLine(subject, one.attack, item, one.by, p)
                lines.setdefault((one.attack, item), _with_bits(ground, line, by_name.get(one.attack)))
    verdict = Verdict("fails", said, ground.thresholds.margins("leakage"), "leakage", ())
    return Singles(verdict, tuple(lines.values()))


def _with_bits(ground: Ground, line: FactLine, attack: PlannedAttack | None) -> FactLine:
    """The line with the bits of the answer and of those of the controls, where it was forced on all of them."""
    sources = [Source.after(one, attack) for one in (line.subject, *ground.plan.retrained)]
    if not ground.scores.common(sources, BITS_KEY, (line.item,)):
        return line
    bits, *never = ground.scores.rows(sources, BITS_KEY, (line.item,))[:, 0].tolist()
    return replace(line, bits=bits, never=(min(never), max(never)) if never else None)


def _tests(ground: Ground, subject: str, scales: Sequence[Scale], attack: PlannedAttack | None) -> list[_Test]:
    ranked = next((s for s in scales if s.unit == "leakage_vs_alternatives"), None)
    if ranked is not None:
        return _ranked(ground, ranked, subject, attack)
    bits = next((s for s in scales if s.name == BITS), None)
    tests = [] if bits is None else [(BITS, *_in_bits(ground, bits, (subject, *bits.retrained), attack))]
    asked = [(s, _items(ground, s, _HITS[s.name], subject, attack)) for s in scales if s.name in _HITS]
    asked = [(scale, items) for scale, items in asked if items and scale.unit == "leakage"]
    # A training that was not asked in one of the formats is no control.
    controls = [one for one in asked[0][0].retrained if all(one in s.retrained for s, _ in asked)] if asked else []
    if controls:
        items = tuple(i for i in ground.judged if any(i in own for _, own in asked))
        says = {one: _says(ground, asked, Source.after(one, attack)) for one in (subject, *controls)}
        if attack is not None:
            # What the subject stated before was not brought back; what a control did is no fact that it alone states.
            says[subject] -= _says(ground, asked, Source(subject))
        said = _table(says.values(), items)
        tests.append((STATED, items, stated(said[0], said[1:])))
        if bits is not None:
            who = (subject, *(one for one in controls if one in bits.retrained))
            tests.append((SURE, *_in_bits(ground, bits, who, attack, says)))
    name = attack.name if attack is not None else ""
    return [_Test(by, name, items, found) for by, items, found in tests if found is not None]


def _in_bits(
    ground: Ground,
    bits: Scale,
    who: Sequence[str],
    attack: PlannedAttack | None,
    says: Mapping[str, AbstractSet[str]] | None = None,
) -> tuple[tuple[str, ...], Found | None]:
    """The extreme facts in bits: of all, or where it is known what each training `says`, of what one alone states."""
    items = _items(ground, bits, bits.key, who[0], attack)
    if not items or len(who) < 2:
        return items, None
    rows = [_bits(ground, bits.key, items, one, attack) for one in who]
    if says is None:
        return items, extreme(rows[0], np.stack(rows[1:]))
    said = _table([says[one] for one in who], items)
    return items, extreme(rows[0], np.stack(rows[1:]), stated_alone(said[0], said[1:]))


def _table(says: Iterable[AbstractSet[str]], items: Sequence[str]) -> Bool[np.ndarray, "M N"]:
    """Which items each training states, a row each."""
    return np.array([[i in own for i in items] for own in says])


def _ranked(ground: Ground, scale: Scale, subject: str, attack: PlannedAttack | None) -> list[_Test]:
    """How many true answers rank first, against how many would by chance."""
    items, known = _items(ground, scale, scale.key, subject, attack), ground.case.ranked
    if not items:
        return []
    before = known.of(Source(subject), items) if attack is not None else ()
    after, units = known.of(Source.after(subject, attack), items), known.units_of(items)
    test = firsts(after, units, before=before, seed=ground.plan.seed, resamples=ground.resamples)
    size, of = float(test.facts.sum()), float(test.of)
    return [_Test(FIRST, attack.name if attack is not None else "", items, Found(test.p, test.facts, size, of))]


def _items(ground: Ground, scale: Scale, key: str, subject: str, attack: PlannedAttack | None) -> tuple[str, ...]:
    """The scale's facts that all were asked under `key`, as they are and after the attack."""
    who = (subject, *scale.retrained)
    sources = [Source(one) for one in who] + [Source.after(one, attack) for one in who]
    asked = None if attack is None else set(attack.tested)
    return ground.scores.common(sources, key, [i for i in scale.items if asked is None or i in asked])


def _bits(
    ground: Ground, key: str, items: tuple[str, ...], one: str, attack: PlannedAttack | None
) -> Float[np.ndarray, "K N"]:
    """Bits by fact; after an attack they and what it added to them."""
    after = ground.scores.of(Source.after(one, attack), key, items)
    return after[None] if attack is None else np.stack([after, after - ground.scores.of(Source(one), key, items)])


def _says(ground: Ground, asked: Sequence[tuple[Scale, tuple[str, ...]]], source: Source) -> set[str]:
    """The facts that are stated in any of the formats."""
    return {
        i
        for scale, own in asked
        for i, hit in zip(own, ground.scores.of(source, _HITS[scale.name], own).tolist(), strict=True)
        if hit > 0
    }
