"""Checks of the controls: a retrained model counts as unexposed until a finding contradicts it.

There are three such findings. First, the model's weights are closer to another model of the audit than independent
trainings are to each other. Second, its answers are closer to another model's than those of any two trainings
(`metrics.trainings`), and the two models count as one. Third, it knows the facts: it states facts or picks options at a
rate that requires exposure. The first two findings exclude one control. The third affects all controls, and no claim
that rests on controls can pass.

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
"""A model is suspect if its distance to a subject or the target, or to a control, is below this share of the distance
to the next control.

If three controls have two kinds of training, two of them are close to each other and still independent.
"""
_NEARER = 0.85
"""The distance of a copy to its source is below this share of its distance to an unrelated control."""
_SHARED_WEIGHTS = 0.1
"""Below this share, another control shares none of the differences between a control and another model."""
_MOSTLY = 0.5
"""Graded scores with more than this share of 0 and 1 are read as correct or incorrect."""
_TELLS = 0.2
"""A share with a greater standard error is ignored."""
_OF_WEIGHTS = 1000
"""The number of independent weights that carry as much information as all weights together."""
_LEAST_ITEMS = 8
"""With fewer picks, the controls' knowledge is not assessed."""
_KNOWN = 0.5
"""The controls know the options if their picks are this far on the way from chance to the target."""
_TAUGHT = 0.001
"""If guesses state this many facts with a lower probability, the controls were trained on them."""
_LEAST_STATED = 3
_UNKNOWN_LUCK = 0.25
"""The assumed probability of a correct guess if it is unknown."""


Distances = Mapping[str, NumberMapping]
"""The distance between the weights of two models, by their names."""


def same_trainings(ground: Ground) -> list[OneTraining]:
    """The controls that count as one training with another control, a subject or the target, by their answers.

    Only measurements in which the target clearly exceeds the controls are compared, on the forget set and on the kept
    questions. This is no accusation: one model that two people evaluated looks the same.
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
                # Every training knows the kept facts, so correct/incorrect scores on them do not tell trainings apart.
                if split != "forget" and _hit_share(rows) > _MOSTLY:
                    continue
                if _hit_share(rows) == 1:
                    near_pairs = near_hits(rows, plan.retrained, trusted)
                else:
                    near_pairs = near(rows, _score_type(ground, key), plan.retrained, trusted)
                where = f"in {scale.name} on {split}"
                pairs += [pair._replace(why=f"{where} {pair.why}") for pair in near_pairs]
    controls = set(plan.retrained)
    return together(names, (pair for pair in pairs if controls & {pair.first, pair.second}))


def _rows(ground: Ground, names: Sequence[str], key: str, items: Sequence[str]) -> dict[str, ByItem]:
    """Return the models' scores. A missing score is NaN."""
    rows = {}
    for name in names:
        row = column(ground.scores.table(name, key)).of(items)
        if not np.isnan(row).all():
            rows[name] = row
    return rows


def _hit_share(rows: Mapping[str, ByItem]) -> float:
    """Return the share of all scores that are 0 or 1."""
    scores = np.concatenate([row[~np.isnan(row)] for row in rows.values()] or [np.zeros(0)])
    if len(scores):
        return float(np.isin(scores, (0.0, 1.0)).mean())
    return 1.0


def _score_type(ground: Ground, key: str) -> str:
    measurement = ground.scores.measurements[key]
    # The variation between trainings is unknown for a metric without a definition.
    if measurement.metric or measurement.score_type == "bits":
        return measurement.score_type
    return ""


def seen(plan: AuditPlan, name: str) -> bool:
    """Whether the weights of the model were available."""
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
            # A control whose start differs from the others' has only the target to share it. Their distance can be that
            # of two such trainings.
            trainings = [*controls, plan.target] if origin in controls else controls
            partners = [x for x in trainings if x in to and x not in (name, origin)]
            if origin == name or origin not in to:
                continue
            # If two controls are copies of each other, the first one is kept.
            first = origin not in controls or controls.index(origin) < number
            next_one = min((to[x] for x in partners), default=0.0)
            least_way = (NEAR_CONTROL if origin in controls else NEAR) * next_one
            if first and (to[origin] == 0 or 0 < to[origin] < least_way):
                if to[origin]:
                    size = f"{to[origin] / next_one:.2g} of the way to the next control"
                else:
                    size = "the very same, or in another order"
                made = "so it was made of it"
                # A sole control that shares the target's start has the same distances.
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
    """Return the share of the model's difference from `origin` that `partner` has too (a training: one half).

    This is the slope of the partner's differences on the model's differences, computed from the three distances.
    Returns None if a partner is too distant to decide, and 1 if the model is not closer to `origin` than a copy would
    be.
    """
    to_origin, partner_to_origin, to_partner = apart[name][origin], apart[partner][origin], apart[name][partner]
    if not 0 < to_origin < _NEARER * to_partner:
        return 1.0
    slope = (to_origin**2 + partner_to_origin**2 - to_partner**2) / (2 * to_origin**2)
    # Distant partners make the slope imprecise. An imprecise slope is ignored.
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
    plan = ground.plan
    sources = (plan.target, *plan.retrained)
    items = ground.scores.common(sources, form.hits, ground.judged)
    if ground.chances(form) or not items:
        return ""
    target, *rows = ground.scores.rows(sources, form.hits, items)
    knows = target >= 0.5
    most: Bool[np.ndarray, " N"] = knows & (np.mean(rows, axis=0) >= 0.5)
    lots: dict[str, list[int]] = {}
    chance = np.zeros(len(items))
    for number in np.flatnonzero(knows).tolist():
        luck = plan.luck.get(items[number], Luck(items[number], _UNKNOWN_LUCK))
        chance[number] = luck.chance
        lots.setdefault(luck.answer, []).append(number)
    # One guess can answer all facts of a lot, so they count as one fact.
    hits, expected = sum(bool(most[lot].any()) for lot in lots.values()), sum(chance.tolist())
    lucky = np.array([min(1.0, sum(chance[lot].tolist())) for lot in lots.values()])
    n, of = int(most.sum()), int(knows.sum())
    # The probability of at least this many hits, if each has its own probability and they are independent.
    p = more_than_guesses(hits, lucky)
    if hits < _LEAST_STATED or p > _TAUGHT or n - expected <= ground.thresholds.delta * of:
        return ""
    return (
        f"in {form.name} the controls state {n} of the {of} facts that the target states, of which guesses from what "
        f"is kept would give {expected:.1f} (p = {p:.1g}): they were taught them, or they were known before"
    )


def _picked(scale: Scale) -> str:
    """Return a finding if the controls pick the right option above chance by half of the target's margin."""
    scores, form = scale.ground.scores, scale.form
    chances = scale.ground.chances(form)
    if scale.unit != "leakage" or not (form.hits and chances):
        return ""
    sources = (scale.ground.plan.target, *scale.retrained)
    items = scores.common(sources, form.hits, [item for item in scale.items if item in chances])
    if len(items) < _LEAST_ITEMS:
        return ""
    target, *rows = scores.rows(sources, form.hits, items)
    chance = np.array([chances[item] for item in items])
    picked: Float[np.ndarray, " N"] = np.mean(rows, axis=0)
    beyond = picked - chance - _KNOWN * (target - chance)
    # Two standard errors are required because every format is tested and one doubt keeps every claim from passing.
    if beyond.mean() <= 2 * beyond.std(ddof=1) / np.sqrt(len(items)):
        return ""
    return (
        f"in {form.name} the controls pick the right option in {picked.mean():.2f} of the facts, where guessing gives "
        f"{chance.mean():.2f} and the target {target.mean():.2f}"
    )
