"""Relearning as an attacker does it, who tries rates, ranks and epochs and keeps what works best.

All runs on the same items are one attack more. Of the facts it is judged on, those of one half choose: each model is
taken at the stage at which it scores most on them, and counts with its scores there on the other half; then the other
way round. So no fact chooses for itself, and noise alone is not found. Models that never knew are searched in the same
way, so that what a search carries in, it carries in there too. The runs are then parts of the search: they are shown,
and count for nothing beside it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vestige.artifacts.audits import AuditPlan, PlannedAttack
from vestige.auditing.formats import EXPOSURE, FORMATS
from vestige.auditing.ground import BITS_KEY, judged_items
from vestige.auditing.scores import Carried, Case, Scores, Source
from vestige.core.seeds import derive_seed

CHOSEN = "chosen"
"""The one point of a search."""
_RANKS = f"{EXPOSURE}/score"
_KEYS = tuple(dict.fromkeys((BITS_KEY, _RANKS, *(key for form in FORMATS for key in (form.key, form.hits) if key))))


def searches(plan: AuditPlan) -> dict[str, tuple[PlannedAttack, ...]]:
    """By the name of a search the attacks that it chooses from: relearning on the same items, in several stages."""
    found: dict[tuple[str, int, tuple[str, ...]], list[PlannedAttack]] = {}
    for attack in plan.attacks:
        if attack.kind == "relearn" and not attack.shows_answers:
            found.setdefault((attack.material, attack.n_shown, attack.tested), []).append(attack)
    return {
        f"{parts[0].name}, searched": tuple(parts)
        for parts in found.values()
        if sum(len(part.points) for part in parts) > 1
    }


def with_searches(case: Case) -> Case:
    """The case with its searches, each before its parts; one that a model lacks a stage of is no part, and counts."""
    plan = case.plan
    who = [Source(one) for one in (plan.target, *plan.audited, *plan.retrained)]
    values = {source: dict(tables) for source, tables in case.scores.values.items()}
    attacks, carried, parts_of, ranked = list(plan.attacks), dict(case.carried), {}, dict(case.ranked.scores)
    for name, runs in searches(plan).items():
        parts = [part for part in runs if all(_asked(case, one, part) for one in who[1:])]
        first, second = _halves(plan, runs[0], name)
        if not first or not second or sum(len(part.points) for part in parts) < 2:
            continue
        for one in who:
            if all(_asked(case, one, part) for part in parts):
                searched, stages = (
                    one._replace(attack=name, point=CHOSEN),
                    dict(_chosen(case, one, parts, (first, second))),
                )
                values[searched] = {key: {i: values[at][key][i] for i, at in of.items()} for key, of in stages.items()}
                ranked[searched] = {i: case.ranked.scores[at][i] for i, at in stages.get(_RANKS, {}).items()}
                carried |= _carried(case, name, one.subject, parts)
        search = replace(parts[0], name=name, points=(CHOSEN,), settings={"parts": [part.name for part in parts]})
        attacks.insert(attacks.index(parts[0]), search)
        parts_of[name] = tuple(part.name for part in parts)
    return replace(
        case,
        plan=replace(plan, attacks=tuple(attacks)),
        scores=Scores(values),
        carried=carried,
        ranked=replace(case.ranked, scores=ranked),
        searched=parts_of,
    )


def _asked(case: Case, one: Source, part: PlannedAttack) -> bool:
    return all(one._replace(attack=part.name, point=point) in case.scores.values for point in part.points)


def _halves(plan: AuditPlan, attack: PlannedAttack, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The judged facts that the attack tests, in two halves drawn by the seed."""
    judged = set(judged_items(plan)[0])
    facts = [i for i in attack.tested if i in judged]
    drawn = sorted(facts, key=lambda fact: derive_seed(plan.seed, "halves of a search", name, fact))
    return tuple(drawn[::2]), tuple(drawn[1::2])


def _chosen(
    case: Case, one: Source, parts: Sequence[PlannedAttack], halves: tuple[tuple[str, ...], tuple[str, ...]]
) -> Iterator[tuple[str, dict[str, Source]]]:
    """By key the stage at which each fact of one model counts: that which is best on the other half."""
    stages = [one._replace(attack=part.name, point=point) for part in parts for point in part.points]
    for key in _KEYS:
        if not all(case.scores.values[stage].get(key) for stage in stages):
            continue
        first, second = (case.scores.common(stages, key, half) for half in halves)
        if first and second:
            best, other = (
                max(stages, key=lambda stage: float(case.scores.of(stage, key, by).mean())) for by in (second, first)
            )
            yield key, {**dict.fromkeys(first, best), **dict.fromkeys(second, other)}


def _carried(case: Case, name: str, subject: str, parts: Sequence[PlannedAttack]) -> dict[tuple[str, str], Carried]:
    """What a search carries: as much as its greatest part, and the choice of a stage, twice; it spends what all do."""
    known = [case.carried.get((part.name, subject)) for part in parts]
    each = [one for one in known if one is not None]
    if len(each) < len(parts):
        return {}
    choice = 2 * math.log2(sum(len(part.points) for part in parts))
    bounds = {
        bound: max(one.bounds_bits[bound] for one in each) + choice
        for bound in each[0].bounds_bits
        if all(bound in one.bounds_bits for one in each)
    }
    spent = {what: sum(one.spent.get(what, 0.0) for one in each) for what in each[0].spent}
    return {(name, subject): Carried(bounds, spent)}
