"""Controls are earned: a model given as retrained stands for one that never knew until something speaks against it.

Three things do. Its weights lie nearer to another model's of the audit than trainings lie to each other. Its answers
differ from an unlearned model's or the target's less than by a training of its own. Or it knows: it states facts, picks
options and ranks answers as nobody could who never saw them. The first two are said of one control, which is left out;
the third of all of them, and then no claim holds that rests on controls.

Axes: M controls, N items.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Float

from vestige.artifacts.audits import GIVEN, AuditPlan, Format
from vestige.auditing.formats import Scale, TestedFormats, formats_of
from vestige.auditing.ground import BITS_KEY, Ground, shown
from vestige.auditing.matrix import Expressed
from vestige.core.estimates import Estimate
from vestige.core.items import Luck

NEAR, NEAR_CONTROL = 0.1, 0.01
"""What lies nearer to a subject or the target, or to a control, than this share of the way to the next control.

Of three controls of which one is of another kind two are near to each other, and are none the less trainings.
"""
_NEARER = 0.85
"""A copy is nearer than this to what it was made of, as a share of how far it is from a control that is none."""
_SHARED_WEIGHTS, _SHARED_ANSWERS = 0.1, 0.2
"""Below these shares another control has nothing of what a control differs from another model by."""
_TELLS = 0.2
"""A share with a greater standard error says nothing."""
_BY_ITEM = 5
"""So many answers tell as much as one would that had nothing in common with the others."""
_OF_WEIGHTS = 1000
"""All weights together tell as much as so many that had nothing in common."""
_LEAST_ITEMS = 8
"""With fewer answers nothing is said of how alike models are."""
_KNOWN = 0.5
"""Controls that pick the right option this far from chance to the target know what they pick."""
_TAUGHT = 0.001
"""The chance that guesses state so many facts, below which the controls were taught them."""
_LEAST_STATED = 3
_UNKNOWN_LUCK = 0.25
"""Taken for the chance of a guess where nothing is known of it."""


Distances = Mapping[str, Mapping[str, float]]
"""How far models lie from each other, by two names."""


def made_of_others(ground: Ground) -> dict[str, str]:
    """The controls that are another model of the audit or made of it, by name, each with the reason.

    A training that began with nothing of another model's differs from it by its own luck and by that model's, and the
    latter is in what every other control differs from it by too. What was made of the other model has none of it.
    """
    answers, n = _distances_of_answers(ground)
    reasons = _copies(ground, ground.plan.apart, "weights", _SHARED_WEIGHTS, _OF_WEIGHTS)
    for name, why in _copies(ground, answers, "answers", _SHARED_ANSWERS, n / _BY_ITEM).items():
        reasons.setdefault(name, why)
    return reasons


def seen(plan: AuditPlan, name: str) -> bool:
    """Whether the model's weights were there to be looked at."""
    return plan.evidence_level != "logs" and name not in plan.unseen


def _copies(ground: Ground, apart: Distances, kind: str, least: float, n: float) -> dict[str, str]:
    """By distances alone, which are sums of squares of so many independent numbers."""
    plan = ground.plan
    controls = [name for name in plan.retrained if name in apart]
    reasons: dict[str, str] = {}
    for number, name in enumerate(controls):
        to = apart[name]
        for origin in (plan.target, *plan.unlearned, *controls):
            # Of two controls of one start among others, the target alone may lie as far as trainings of that start do.
            trainings = [*controls, plan.target] if origin in controls else controls
            partners = [x for x in trainings if x in to and x not in (name, origin)]
            if origin == name or origin not in to:
                continue
            # Of two controls that are copies of one another, the first stays.
            first = origin not in controls or controls.index(origin) < number
            next_one = min((to[x] for x in partners), default=0.0)
            least_way = (NEAR_CONTROL if origin in controls else NEAR) * next_one
            # Weights that are seen have a digest, which tells the very same from others that merely answer alike.
            tied = to[origin] == 0 and (kind == "weights" or not seen(plan, name))
            if first and (tied or 0 < to[origin] < least_way):
                size = f"{to[origin] / next_one:.2g} of the way to the next control" if to[origin] else "the very same"
                made = "so it was made of it"
                # From distances alone a sole control of the target's start looks the same.
                made += ", or no other control began where it did" if (kind, origin) == ("weights", plan.target) else ""
                reasons.setdefault(name, f"its {kind} lie next to those of {shown(origin)} ({size}), {made}")
            partner_shares = (_shared(apart, name, x, origin, n) for x in partners if x in apart and origin in apart[x])
            shares = [share for share in partner_shares if share is not None]
            if shares and max(shares) < least:
                reasons.setdefault(
                    name,
                    f"other controls share nothing of what its {kind} differ from those of {shown(origin)} by (at most "
                    f"{max(max(shares), 0.0):.2f}, and about one half between trainings), so it was made of it",
                )
    return reasons


def _shared(apart: Distances, name: str, partner: str, origin: str, n: float) -> float | None:
    """How much of what `one` differs from `other` by its partner differs from it by too: about one half of a training.

    The slope of the partner's differences on its own, which follows from the three distances. None where a partner lies
    too far off to tell; 1 where it is no further off, as it would be from a copy.
    """
    to_origin, partner_to_origin, to_partner = apart[name][origin], apart[partner][origin], apart[name][partner]
    if not 0 < to_origin < _NEARER * to_partner:
        return 1.0
    slope = (to_origin**2 + partner_to_origin**2 - to_partner**2) / (2 * to_origin**2)
    # A slope that is too unsteady says nothing, which happens with few answers and with partners far off.
    error = np.sqrt(max(0.0, (partner_to_origin / to_origin) ** 2 - slope**2) / n)
    return float(slope) if error < _TELLS else None


def _distances_of_answers(ground: Ground) -> tuple[Distances, int]:
    """The root mean square of what two models' answers differ by, over all questions, and of how many.

    In bits, or without these in the first graded score that there is: hits are too often the same.
    """
    plan = ground.plan
    names = (plan.target, *plan.unlearned, *plan.retrained)
    graded = [BITS_KEY, *(form.key for form in formats_of(ground.case) if form.graded)]
    key = next((key for key in graded if all(ground.has(name, key) for name in names)), BITS_KEY)
    names = tuple(name for name in names if ground.has(name, key))
    items = ground.scores.common(names, key, [i for ids in plan.splits.values() for i in ids])
    if len(names) < 2 or len(items) < _LEAST_ITEMS:
        return {}, 0
    rows = dict(zip(names, ground.scores.rows(names, key, items), strict=True))
    if any(len(np.unique(row)) < _LEAST_ITEMS for row in rows.values()):
        return {}, 0
    apart = {
        first: {
            second: float(np.sqrt(np.mean((rows[first] - rows[second]) ** 2))) for second in names if second != first
        }
        for first in names
    }
    return apart, len(items)


def knowing(
    ground: Ground, tested: TestedFormats, silenced: Expressed | None, exposure_error: Estimate | None
) -> tuple[str, ...]:
    """In a sentence each, what the controls know that nobody could who never saw it; nothing in the best case.

    `silenced` is what the positive control expresses, `exposure_error` the controls' leakage against alternatives.
    """
    if not ground.plan.retrained:
        return ()
    reasons = [reason for form in formats_of(ground.case) if (reason := _stated(ground, form))]
    reasons += [reason for scale in tested.scales if (reason := _picked(scale))]
    # Alternatives of whoever wrote them can be told from the truth by a model that never knew it.
    least = ground.thresholds.delta_wide if ground.plan.alternatives == GIVEN else ground.thresholds.delta
    if exposure_error is not None and exposure_error.low > least:
        reasons.append(
            "the controls rank the true answers above alternatives, as who never knew them cannot: their leakage is "
            f"{exposure_error}"
        )
    below = [
        f"{name} ({leak.draws.ends[1]:.2f} at most)"
        for name, leak in (silenced.leaks if silenced is not None else {}).items()
        if leak.draws.ends[1] < -_KNOWN
    ]
    if below:
        reasons.append(f"the target that was taught to keep silent answers far less than the controls, in {below[0]}")
    return tuple(reasons)


def _stated(ground: Ground, form: Format) -> str:
    """That the controls state more facts in their own words than guesses from what is kept would."""
    if not form.hits or form.chance:
        return ""
    plan = ground.plan
    sources = (plan.target, *plan.retrained)
    if not all(ground.has(source, form.hits) for source in sources):
        return ""
    items = ground.scores.common(sources, form.hits, ground.judged)
    target, *rows = ground.scores.rows(sources, form.hits, items) if items else [np.zeros(0)]
    knows = target >= 0.5
    most: Bool[np.ndarray, " N"] = knows & (np.mean(rows, axis=0) >= 0.5)
    lots: dict[str, list[int]] = {}
    chance = np.zeros(len(items))
    for number in np.flatnonzero(knows).tolist():
        luck = plan.luck.get(items[number], Luck(items[number], _UNKNOWN_LUCK))
        chance[number] = luck.chance
        lots.setdefault(luck.answer, []).append(number)
    # One guess answers all facts of a lot, so that these count as one.
    hits, expected = sum(bool(most[lot].any()) for lot in lots.values()), sum(chance.tolist())
    counts = np.ones(1)
    for lot in lots.values():
        hit = min(1.0, sum(chance[lot].tolist()))
        counts = np.convolve(counts, [1 - hit, hit])
    n, of = int(most.sum()), int(knows.sum())
    # The chance of so many hits or more, each with its own chance and by itself.
    p = float(min(1.0, counts[hits:].sum()))
    if hits < _LEAST_STATED or p > _TAUGHT or n - expected <= ground.thresholds.delta * of:
        return ""
    return (
        f"in {form.name} the controls state {n} of the {of} facts that the target states, of which guesses from what "
        f"is kept would give {expected:.1f} (p = {p:.1g}): they were taught them, or they were known before"
    )


def _picked(scale: Scale) -> str:
    """That the controls pick the right option more often than guessing does, by half of what the target does."""
    scores, form = scale.ground.scores, scale.form
    if scale.unit != "leakage" or not (form.hits and form.chance):
        return ""
    sources = (scale.ground.plan.target, *scale.retrained)
    items = scores.common(sources, form.hits, scale.items)
    items = scores.common(sources[:1], form.chance, items)
    if len(items) < _LEAST_ITEMS:
        return ""
    target, *rows = scores.rows(sources, form.hits, items)
    chance = scores.of(sources[0], form.chance, items)
    picked: Float[np.ndarray, " N"] = np.mean(rows, axis=0)
    beyond = picked - chance - _KNOWN * (target - chance)
    # Two standard errors: each format is looked at, and a doubt keeps every claim from holding.
    if beyond.mean() <= 2 * beyond.std(ddof=1) / np.sqrt(len(items)):
        return ""
    return (
        f"in {form.name} the controls pick the right option in {picked.mean():.2f} of the facts, where guessing gives "
        f"{chance.mean():.2f} and the target {target.mean():.2f}"
    )
