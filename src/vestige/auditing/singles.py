"""Single facts that are given away: those that a subject gives away and no model that never knew does.

As it is or after an attack. What is asked for in the model's own words counts as stated where any such format has the
answer, in any wording. Forced answers (in bits) and options are tested each by its score, and all formats together.
After an attack a fact counts that was gained by it, beside being given away.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vestige.artifacts.audits import AuditPlan, Claim, FactLine, Format, PlannedAttack
from vestige.auditing.formats import BITS, FORMATS, Scale, formats_of
from vestige.auditing.ground import BITS_KEY, Ground, groups_of
from vestige.auditing.scores import Source
from vestige.metrics.contrasts import holm
from vestige.metrics.intervals import LEVEL
from vestige.metrics.membership import firsts
from vestige.metrics.planning import (
    ALONE_CONTROLS,
    LEAST_CONTROLS,
    Found,
    Standing,
    Together,
    extreme,
    standings,
    stated,
)
from vestige.metrics.verdicts import Verdict

_TAIL = (1 - LEVEL) / 2
STATED, FIRST = "stated", "ranked first"
TOGETHER = "all formats together"
_SUSPECT = 0.1
"""A claim does not hold where single facts look given away at this level: with few controls they can show no more."""
_OWN_WORDS = {"generate", "generate_plain", "perturbed", "paraphrase", "few_shot", "cloze"}
HALF = 0.5
"""A fact is given away that is half as likely as to the target, or scored half of the way from controls to it."""
_LEAST_BITS = math.log2(0.001)
"""An answer that is less likely is not given away, however unlikely who never knew finds it."""


class _Test(NamedTuple):
    """One test: by stated answers or by scores, as the subject is or after an attack.

    `alone`: what was found may come of one event, and the controls are too few for that. `says` are the facts that the
    subject states.
    """

    by: str
    attack: str
    items: tuple[str, ...]
    found: Found
    controls: int = 0
    alone: bool = False
    says: frozenset[str] = frozenset()

    def __str__(self) -> str:
        after = f" after {self.attack}" if self.attack else ""
        n, of = int(self.found.facts.sum()), len(self.items)
        p = f"(p = {_rounded(self.found.p)}"
        if self.by == FIRST:
            return f"it ranks the true answer of {n} of {self.found.null:.0f} facts{after} before all alternatives {p})"
        model = ", if luck strikes each contract and answer by itself"
        p += model if self.found.p < 1 / (self.controls + 1) else ""
        if self.by == STATED:
            return f"it states {n} of {of} facts{after} that no control states {p})"
        many = "1 fact" if n == 1 else f"{n} facts"
        size = f"{p}, z up to {self.found.size:.1f}, theirs up to {self.found.null:.1f})"
        if self.by == BITS:
            return f"it gives {many} of {of}{after} more bits than any control could {size}"
        where = "in all formats together" if self.by == TOGETHER else f"in {self.by}"
        return f"it gives {many} of {of}{after} away {where}, beyond any control {size}"


def _rounded(p: float) -> str:
    """What is smaller than a thousandth says no more than that."""
    return f"{p:.2g}" if p >= 0.001 else "0.001 or less"


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
    compared = [one for one in scales if one.unit in ("leakage", "bits")]
    if compared and len(_controls(compared)) < LEAST_CONTROLS:
        return Singles(None, (), (f"single facts were not tested, which takes {LEAST_CONTROLS} retrained models",))
    tests = []
    for attack in dict.fromkeys(attack.name for attack, _ in attacks) if attacks else [""]:
        used = [s for s in scales if not attacks or any(a.name == attack and f == s.name for a, f in attacks)]
        planned = next((a for a, _ in attacks if a.name == attack), None)
        tests += _tests(ground, subject, used, planned)
    corrected = holm([one.found.p for one in tests])
    failing = [(p, one) for p, one in zip(corrected, tests, strict=True) if p <= _TAIL and not one.alone]
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
                by = f"{STATED}, {one.by}" if item in one.says and one.by != STATED else one.by
                line = FactLine(subject, one.attack, item, by, p)
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


def _controls(scales: Sequence[Scale]) -> tuple[str, ...]:
    """The `retrained` that were asked in all of these: a training that was not asked in one is no control."""
    first, *others = scales
    return tuple(one for one in first.retrained if all(one in scale.retrained for scale in others))


def _tests(ground: Ground, subject: str, scales: Sequence[Scale], attack: PlannedAttack | None) -> list[_Test]:
    ranked = next((s for s in scales if s.unit == "leakage_vs_alternatives"), None)
    if ranked is not None:
        return _ranked(ground, ranked, subject, attack)
    # Forced answers are read in bits, where they are: their probability a token is the same reading.
    by_bits = any(scale.unit == "bits" for scale in scales)
    used = [s for s in scales if s.unit == "bits" or (s.unit == "leakage" and not (by_bits and s.name == "forced"))]
    if not used:
        return []
    who = subject, *_controls(used)
    together, known = _together(ground.plan, ground.judged)
    tests = _by_scores(ground, used, who, attack, together)
    # Where nothing says which facts are of one contract, all may come at once.
    at_once = together if known else (*together, np.zeros(len(ground.judged), dtype=int))
    words = _by_words(ground, used, who, attack, at_once)
    few = len(who) <= ALONE_CONTROLS
    place, stated_by_it = {item: n for n, item in enumerate(ground.judged)}, words[1] if words else frozenset()
    return [
        _Test(
            by,
            "" if attack is None else attack.name,
            items,
            # What was found of all judged facts, as of those that were asked.
            found._replace(facts=found.facts[[place[item] for item in items]]),
            len(who) - 1,
            few and (found.events < 2 or not known),
            stated_by_it,
        )
        for by, items, found in (*tests, *([words[0]] if words else []))
    ]


_Named = tuple[str, tuple[str, ...], Found]
"""A test's name, the facts that were asked, and what it found, of all judged facts."""


def _by_scores(
    ground: Ground, scales: Sequence[Scale], who: Sequence[str], attack: PlannedAttack | None, together: Together
) -> list[_Named]:
    """The format in which a graded score tells most, corrected for their number, and all formats together."""
    asked = {scale.name: _items(ground, scale, scale.key, who, attack) for scale in scales}
    stand = {
        scale.name: one
        for scale in scales
        if (items := asked[scale.name]) and (one := _standings(ground, scale, items, who, attack)) is not None
    }
    graded = {form.name for form in formats_of(ground.case) if form.graded} - _OWN_WORDS | {BITS}
    singly = [(name, extreme([one], together)) for name, one in stand.items() if name in graded]
    found: list[_Named] = []
    if singly:
        name, most = min(singly, key=lambda test: test[1].p)
        found.append((name, asked[name], most._replace(p=min(1.0, len(singly) * most.p))))
    if len(stand) > 1:
        every = {i for name in stand for i in asked[name]}
        items = tuple(i for i in ground.judged if i in every)
        found.append((TOGETHER, items, extreme(list(stand.values()), together)))
    return found


def _by_words(
    ground: Ground, scales: Sequence[Scale], who: Sequence[str], attack: PlannedAttack | None, together: Together
) -> tuple[_Named, frozenset[str]] | None:
    """How many facts the subject states, in any format of its own words, that no control does; and which it states."""
    hits = {form.name: form.hits for form in formats_of(ground.case) if _counts_words(form)}
    asked = [(hits[s.name], _items(ground, s, hits[s.name], who, attack)) for s in scales if s.name in hits]
    asked = [(key, items) for key, items in asked if items]
    if not asked:
        return None
    says = [_says(ground, asked, Source.after(one, attack)) for one in who]
    if attack is not None:
        # What the subject stated before was not brought back; what a control did is no fact that it alone states.
        says[0] -= _says(ground, asked, Source(who[0]))
    states = np.array([[i in own for i in ground.judged] for own in says])
    found = stated(states[0], states[1:], together)
    every = {i for _, own in asked for i in own}
    items = tuple(i for i in ground.judged if i in every)
    return None if found is None else ((STATED, items, found), frozenset(says[0]))


def _counts_words(form: Format) -> bool:
    """Whether a format counts answers in the model's own words, which nobody guesses by chance."""
    return form.name in _OWN_WORDS or (form not in FORMATS and bool(form.hits) and not form.chance and not form.graded)


def _together(plan: AuditPlan, items: Sequence[str]) -> tuple[tuple[Int[np.ndarray, " N"], ...], bool]:
    """The ways in which facts can be guessed together, and whether contracts or persons are one of them."""
    known = groups_of(plan, items)
    own = {item: label for label, group in known.items() for item in group}
    labelled = [own, *plan.alike.values()] if known else list(plan.alike.values())
    found = []
    for labels in labelled:
        # A fact of which it is not known is by itself.
        names = [f"label {labels[item]}" if item in labels else f"item {item}" for item in items]
        found.append(np.unique(names, return_inverse=True)[1])
    return tuple(found), bool(known)


def _standings(
    ground: Ground, scale: Scale, items: tuple[str, ...], who: Sequence[str], attack: PlannedAttack | None
) -> Standing | None:
    """How the subject and its controls stand by fact in one format, over all judged facts: 0 where it was not asked."""
    rows = np.stack([_rows(ground, scale.key, items, one, attack) for one in who])
    target = ground.scores.of(Source(ground.plan.target), scale.key, items)
    if scale.unit == "bits":
        reached = rows[0, 0] >= np.maximum(target + math.log2(HALF), _LEAST_BITS)
    else:
        usual = rows[1:, 0].mean(axis=0)
        reached = (target > usual) & (rows[0, 0] - usual >= HALF * (target - usual))
    one = standings(rows[0], rows[1:], reached, None if scale.unit == "bits" else scale.controls.prior.pair)
    if one is None:
        return None
    place = {item: n for n, item in enumerate(ground.judged)}
    whole = Standing(*(np.zeros((*part.shape[:-1], len(place))) for part in one))
    for part, every in zip(one, whole, strict=True):
        every[..., [place[item] for item in items]] = part
    return whole


def _ranked(ground: Ground, scale: Scale, subject: str, attack: PlannedAttack | None) -> list[_Test]:
    """How many true answers rank first, against how many would by chance."""
    items, known = _items(ground, scale, scale.key, (subject, *scale.retrained), attack), ground.case.ranked
    if not items:
        return []
    before = known.of(Source(subject), items) if attack is not None else ()
    after, units = known.of(Source.after(subject, attack), items), known.units_of(items)
    test = firsts(after, units, before=before, seed=ground.plan.seed, resamples=ground.resamples)
    size, of = float(test.facts.sum()), float(test.of)
    return [_Test(FIRST, attack.name if attack is not None else "", items, Found(test.p, test.facts, size, of))]


def _items(ground: Ground, scale: Scale, key: str, who: Sequence[str], attack: PlannedAttack | None) -> tuple[str, ...]:
    """The scale's facts that all were asked under `key`, as they are and after the attack."""
    sources = [Source(one) for one in who] + [Source.after(one, attack) for one in who]
    asked = None if attack is None else set(attack.tested)
    return ground.scores.common(sources, key, [i for i in scale.items if asked is None or i in asked])


def _rows(
    ground: Ground, key: str, items: tuple[str, ...], one: str, attack: PlannedAttack | None
) -> Float[np.ndarray, "K N"]:
    """Scores by fact; after an attack they and what it added to them."""
    after = ground.scores.of(Source.after(one, attack), key, items)
    return after[None] if attack is None else np.stack([after, after - ground.scores.of(Source(one), key, items)])


def _says(ground: Ground, asked: Sequence[tuple[str, tuple[str, ...]]], source: Source) -> set[str]:
    """The facts that are stated in any of the formats, by their keys."""
    return {
        i
        for key, own in asked
        for i, hit in zip(own, ground.scores.of(source, key, own).tolist(), strict=True)
        if hit > 0
    }
