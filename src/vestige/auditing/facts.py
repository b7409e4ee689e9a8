"""Facts and their wordings: several questions that ask for one fact are one unit, with the mean of their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from vestige.artifacts.audits import AuditPlan
from vestige.auditing.scores import Case, Ranked, Scores
from vestige.core.items import Scope

_WORST: tuple[Scope, ...] = ("entailed", "guessable", "free")


def by_fact(case: Case) -> Case:
    """The case with facts for items: each under the id of its first wording, with the mean of the values there are.

    A fact is tested by an attack where all of its wordings are, since one that was shown gives away the others; and
    what the retain set gives away of one wording, it gives away of the fact.
    """
    plan = case.plan
    if not plan.facts:
        return case
    wordings: dict[str, list[str]] = {}
    for item in plan.splits.get("forget", ()):
        wordings.setdefault(plan.facts.get(item, item), []).append(item)
    several = {fact: items for fact, items in wordings.items() if len(items) > 1}
    values = {
        source: {key: _merged(table, several) for key, table in tables.items()}
        for source, tables in case.scores.values.items()
    }
    return replace(case, plan=_plan_by_fact(plan, wordings), scores=Scores(values), ranked=_ranked(case, several))


def _ranked(case: Case, several: Mapping[str, Sequence[str]]) -> Ranked:
    """With the mean of those wordings that were asked with the alternatives of the first that has any."""
    known = case.ranked
    units, scores = dict(known.units), {source: dict(table) for source, table in known.scores.items()}
    for fact, items in several.items():
        lead = next((known.units[item] for item in items if item in known.units), None)
        if lead is None:
            continue
        units[fact] = lead
        for table in scores.values():
            there = {item: table.pop(item) for item in items if item in table}
            alike = [row for item, row in there.items() if known.units[item] == lead]
            if alike:
                table[fact] = np.mean(alike, axis=0)
    return replace(known, scores=scores, units=units)


def _merged(table: Mapping[str, float], several: Mapping[str, Sequence[str]]) -> dict[str, float]:
    found = dict(table)
    for fact, items in several.items():
        there = [found.pop(item) for item in items if item in found]
        if there:
            found[fact] = float(np.mean(there))
    return found


def _plan_by_fact(plan: AuditPlan, wordings: Mapping[str, Sequence[str]]) -> AuditPlan:
    def tested(items: Sequence[str]) -> tuple[str, ...]:
        asked = set(items)
        return tuple(fact for fact, own in wordings.items() if asked.issuperset(own))

    def scope(items: Sequence[str]) -> Scope:
        own = {plan.scopes.get(item, "free") for item in items}
        return next(scope for scope in _WORST if scope in own)

    return replace(
        plan,
        splits={**plan.splits, "forget": tuple(wordings)},
        scopes={**plan.scopes, **{fact: scope(items) for fact, items in wordings.items()}},
        attacks=tuple(replace(attack, tested=tested(attack.tested)) for attack in plan.attacks),
        facts={},
    )
