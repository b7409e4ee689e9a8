"""Checks of the controls: a retrained model represents an unexposed model until a finding contradicts it.

Three things do. Its weights lie nearer to another model's of the audit than trainings lie to each other. Its answers
are nearer to another model's than any two trainings (`metrics.trainings`): the two count as one. Or it knows: it states
facts and picks options as nobody could who never saw them. The first two findings exclude one control.
The third finding affects all controls, and no claim that rests on controls can hold.

Axes: M controls, N items.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from vestige.artifacts.audits import FROM_LOGS, AuditPlan
from vestige.artifacts.scores import Format, column
from vestige.auditing.formats import Expressed, Scale, TestedFormats, read_formats
from vestige.auditing.ground import Ground, shown
from vestige.core.items import Luck
from vestige.core.text import NumberMapping, Sentences, TextByName
from vestige.metrics.intervals import ByItem
from vestige.metrics.planning import more_than_guesses
from vestige.metrics.trainings import Near, OneTraining, near, near_hits, together

NEAR, NEAR_CONTROL = 0.1, 0.01
"""Models nearer to a subject or the target, or to a control, than this share of the distance to the next control.

Among three controls of two kinds, two are near to each other and still independent trainings.
"""
_NEARER = 0.85
"""A copy is nearer to its source than this share of its distance to an unrelated control."""
_SHARED_WEIGHTS = 0.1
"""Below this share, another control shares none of the differences between a control and another model."""
_MOSTLY = 0.5
"""Graded scores with more than this share of 0 and 1 are read as correct or incorrect."""
_TELLS = 0.2
"""A share with a greater standard error is ignored."""
_OF_WEIGHTS = 1000
"""All weights together tell as much as so many that had nothing in common."""
_LEAST_ITEMS = 8
"""With fewer picks, the controls' knowledge is not assessed."""
_KNOWN = 0.5
"""Controls whose picks are this far from chance to the target know the options."""
_TAUGHT = 0.001
"""The chance that guesses state so many facts, below which the controls were taught them."""
_LEAST_STATED = 3
_UNKNOWN_LUCK = 0.25
"""The assumed probability of a correct guess if it is unknown."""


Distances = Mapping[str, NumberMapping]
"""How far models lie from each other, by two names."""


def same_trainings(ground: Ground) -> list[OneTraining]:
    """The controls that count as one training with another control, a subject or the target, by their answers.

    Only measurements are compared in which the target clearly exceeds the controls, on the forget set and on the kept
    questions. This accuses nobody: one model that two people evaluated looks the same.
    """
    plan = ground.plan
    names = (*plan.retrained, *plan.unlearned, plan.target)
    trusted = plan.retrained if plan.evidence_level == "verified" else ()
    pairs: list[Near] = []
    for scale in read_formats(ground).judged:
        if scale.unit not in ("leakage", "bits"):
            continue
        for key in filter(None, dict.fromkeys((scale.key, scale.form.hits))):
            for split, items in plan.splits.items():
                compared = ground.judged if split == "forget" else items
                rows = _rows(ground, names, key, compared)
                # Kept facts that every training knows are hit by all of them, and tell no training from another.
                if split != "forget" and _hit_share(rows) > _MOSTLY:
                    continue
                if _hit_share(rows) == 1:
                    near_pairs = near_hits(rows, trusted, plan.retrained)
                else:
                    near_pairs = near(rows, _score_type(ground, key), trusted, plan.retrained)
                where = f"in {scale.name} on {split}"
                pairs += [pair._replace(why=f"{where} {pair.why}") for pair in near_pairs]
    controls = set(plan.retrained)
    return together(names, (pair for pair in pairs if controls & {pair.first, pair.second}))


def _rows(ground: Ground, names: Sequence[str], key: str, items: Sequence[str]) -> dict[str, ByItem]:
    """Return the models' scores. NaN where a question is missing."""
    rows = {}
    for name in names:
        row = column(ground.scores.table(name, key)).of(items)
        if not np.isnan(row).all():
            rows[name] = row
    return rows


def _hit_share(rows: Mapping[str, ByItem]) -> float:
    """The share of all scores that are 0 or 1."""
    scores = np.concatenate([row[~np.isnan(row)] for row in rows.values()] or [np.zeros(0)])
    if len(scores):
        return float(np.isin(scores, (0.0, 1.0)).mean())
    return 1.0


def _score_type(ground: Ground, key: str) -> str:
    measurement = ground.scores.measurements[key]
    # How a metric without a definition varies between trainings is not known.
    if measurement.metric or measurement.score_type == "bits":
        return measurement.score_type
    return ""


def seen(plan: AuditPlan, name: str) -> bool:
    """Whether the model's weights were there to be looked at."""
    return plan.evidence_level not in FROM_LOGS and name not in plan.unseen


def made_of_others(ground: Ground) -> TextByName:
    """Return the controls whose weights were copied or derived from another model of the audit, each with the reason.

    An independent training differs from the other model by both trainings' randomness, and every other control shares
    the other model's part. A model derived from the other model does not have this part.
    """
    plan, apart = ground.plan, ground.plan.apart
    controls = [name for name in plan.retrained if name in apart]
    reasons: TextByName = {}
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
            if first and (to[origin] == 0 or 0 < to[origin] < least_way):
                if to[origin]:
                    size = f"{to[origin] / next_one:.2g} of the way to the next control"
                else:
                    size = "the very same, or in another order"
                made = "so it was made of it"
                # From distances alone a sole control of the target's start looks the same.
                made += ", or no other control began where it did" if origin == plan.target else ""
                reasons.setdefault(name, f"its weights lie next to those of {shown(origin)} ({size}), {made}")
            partner_shares = (_shared(apart, name, x, origin) for x in partners if x in apart and origin in apart[x])
            shares = [share for share in partner_shares if share is not None]
            if shares and max(shares) < _SHARED_WEIGHTS:
                reasons.setdefault(
                    name,
                    f"its weights seem to be made from those of {shown(origin)}. Of the difference the other controls "
                    f"share at most {max(max(shares), 0.0):.2f} (independent trainings: about one half)",
                )
    return reasons


def _shared(apart: Distances, name: str, partner: str, origin: str) -> float | None:
    """How much of what `one` differs from `other` by its partner differs from it by too: about one half of a training.

    The slope of the partner's differences on its own, which follows from the three distances. Returns None if a partner
    is too distant to decide, and 1 if it is no more distant than from a copy.
    """
    to_origin, partner_to_origin, to_partner = apart[name][origin], apart[partner][origin], apart[name][partner]
    if not 0 < to_origin < _NEARER * to_partner:
        return 1.0
    slope = (to_origin**2 + partner_to_origin**2 - to_partner**2) / (2 * to_origin**2)
    # A slope that is too unsteady says nothing, which happens with partners far off.
    error = np.sqrt(max(0.0, (partner_to_origin / to_origin) ** 2 - slope**2) / _OF_WEIGHTS)
    if error < _TELLS:
        return float(slope)
    return None


def knowing(ground: Ground, tested: TestedFormats, silenced: Expressed | None) -> Sentences:
    """Describe in sentences the controls' knowledge that requires exposure to the facts. Nothing in the best case.

    `silenced` is the knowledge that the positive control expresses.
    """
    if not ground.plan.retrained:
        return ()
    reasons = [reason for form in ground.formats if (reason := _stated(ground, form))]
    reasons += [reason for scale in tested.scales if (reason := _picked(scale))]
    below = [
        f"{name} ({leak.draws.ends[1]:.2f} at most)"
        for name, leak in (silenced.leaks if silenced is not None else {}).items()
        if leak.draws.ends[1] < -_KNOWN
    ]
    if below:
        reasons.append(f"the target that was taught to keep silent answers far less than the controls, in {below[0]}")
    return tuple(reasons)


def _stated(ground: Ground, form: Format) -> str:
    """The finding that the controls state more facts in their own words than the retain set allows them to guess."""
    if not form.hits or ground.chances(form):
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
    lucky = np.array([min(1.0, sum(chance[lot].tolist())) for lot in lots.values()])
    n, of = int(most.sum()), int(knows.sum())
    # The chance of so many hits or more, each with its own chance and by itself.
    p = more_than_guesses(hits, lucky)
    if hits < _LEAST_STATED or p > _TAUGHT or n - expected <= ground.thresholds.delta * of:
        return ""
    return (
        f"in {form.name} the controls state {n} of the {of} facts that the target states, of which guesses from what "
        f"is kept would give {expected:.1f} (p = {p:.1g}): they were taught them, or they were known before"
    )


def _picked(scale: Scale) -> str:
    """The finding that the controls pick the right option above chance by half of the target's margin."""
    scores, form = scale.ground.scores, scale.form
    chances = scale.ground.chances(form)
    if scale.unit != "leakage" or not (form.hits and chances):
        return ""
    sources = (scale.ground.plan.target, *scale.retrained)
    items = scores.common(sources, form.hits, scale.items)
    items = tuple(item for item in items if item in chances)
    if len(items) < _LEAST_ITEMS:
        return ""
    target, *rows = scores.rows(sources, form.hits, items)
    chance = np.array([chances[item] for item in items])
    picked: Float[np.ndarray, " N"] = np.mean(rows, axis=0)
    beyond = picked - chance - _KNOWN * (target - chance)
    # Two standard errors: each format is looked at, and a doubt keeps every claim from holding.
    if beyond.mean() <= 2 * beyond.std(ddof=1) / np.sqrt(len(items)):
        return ""
    return (
        f"in {form.name} the controls pick the right option in {picked.mean():.2f} of the facts, where guessing gives "
        f"{chance.mean():.2f} and the target {target.mean():.2f}"
    )
