"""The item scores that an audit rests on, and everything else that a judgement of them needs.

Several questions that ask for one fact are one unit, with the mean of their scores (`by_fact`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vestige.artifacts.audits import AuditPlan, Format, PlannedAttack, PromptLine, SoundnessLine
from vestige.artifacts.scores import ScoreColumn
from vestige.core.items import Scope
from vestige.metrics.intervals import ByControl, ByItem


class Source(NamedTuple):
    """Whose scores: a subject as it is, or (`attack`, `point`) as an attack left it at one stage."""

    subject: str
    attack: str = ""
    point: str = ""

    @classmethod
    def after(cls, subject: str, attack: PlannedAttack | None) -> "Source":
        """A subject as the last stage of an attack left it; without one as it is."""
        return cls(subject) if attack is None else cls(subject, attack.name, attack.points[-1])


Sourced = Source | str
"""Whose scores; those of a subject as it is by its name alone."""


def _source(source: Sourced) -> Source:
    return Source(source) if isinstance(source, str) else source


def column(table: Mapping[str, float]) -> ScoreColumn:
    """The table as a column, which it may be already."""
    return table if isinstance(table, ScoreColumn) else ScoreColumn(tuple(table), table.values())


@dataclass(frozen=True)
class Scores:
    """Values by source, then by `format/metric` (`generate/rouge1_recall`, `forced/answer_bits`), then by item id.

    Items that an attack asked in other words stand under the ids of the items that they stand for.
    """

    values: Mapping[Source, Mapping[str, Mapping[str, float]]]

    def __post_init__(self) -> None:
        """Hold tables as columns: an audit of thousands of facts has millions of values."""
        columns = {source: {key: column(table) for key, table in of.items()} for source, of in self.values.items()}
        object.__setattr__(self, "values", columns)

    def keys(self, source: Sourced) -> tuple[str, ...]:
        """The `format/metric` keys that a source has."""
        return tuple(self.values.get(_source(source), {}))

    def table(self, source: Sourced, key: str) -> Mapping[str, float]:
        """The values by item id; none where the source was not asked."""
        return self.values.get(_source(source), {}).get(key, {})

    def common(self, sources: Sequence[Sourced], key: str, items: Sequence[str]) -> tuple[str, ...]:
        """Those of `items`, in their order, that have a value under `key` in every source."""
        # Sets of keys are compared at once: nearly all tables have all items, of which there may be thousands.
        there = dict.fromkeys(items).keys()
        for source in sources:
            table = self.table(source, key).keys()
            if not there <= table:
                there = dict.fromkeys(i for i in there if i in table).keys()
        return tuple(i for i in items if i in there)

    def of(self, source: Sourced, key: str, items: Sequence[str]) -> ByItem:
        """The values of `items` in their order; every one of them has to be there (see `common`)."""
        values = column(self.table(source, key)).of(items)
        if np.isnan(values).any():
            raise KeyError(f"{source} has no {key} of some of these questions")
        return values

    def rows(self, sources: Sequence[Sourced], key: str, items: Sequence[str]) -> ByControl:
        """The values of several sources, a row each."""
        return np.stack([self.of(source, key, items) for source in sources])


class Carried(NamedTuple):
    """What one attack carried into one subject: upper bounds in bits, by name, and steps or tokens spent.

    `points_bits` has the code length under `retrained` of what stands of a searched prompt at each point.
    """

    bounds_bits: Mapping[str, float]
    spent: Mapping[str, float]
    points_bits: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Ranked:
    """What each item would score were each of its alternatives the true answer, the true one first; by source, item.

    Items of one of the `units` have the same answer and alternatives. `lengths` are the answers' numbers of tokens, as
    the target reads them, and `revealed` the items whose true answer these tell.
    """

    scores: Mapping[Source, Mapping[str, Float[np.ndarray, "..."]]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    lengths: Mapping[str, Int[np.ndarray, "..."]] = field(default_factory=dict)
    revealed: frozenset[str] = frozenset()

    def of(self, source: Sourced, items: Sequence[str]) -> list[Float[np.ndarray, "..."]]:
        """Those of `items` in their order; every one of them has to be there."""
        table = self.scores[_source(source)]
        return [table[i] for i in items]

    def units_of(self, items: Sequence[str]) -> list[str]:
        """The units of `items` in their order."""
        return [self.units[i] for i in items]


@dataclass(frozen=True)
class Case:
    """One audit before it is judged. `carried` is by attack and subject; `soundness` what is known of the data set.

    `prompts` are those that searches found, in the plan's order; `ranked` is what `exposure` read of alternatives.
    `told_by` says who told leaks in free replies, and with what error.
    `searched` has by the name of a search of relearning the attacks that it chose from (`recovery.with_searches`);
    `formats` are those of evaluations that are not Vestige's own. `collapsed` says by subject and format why its scores
    there are left out. `repeats` has by format an earlier one in which the target was asked and replied the same.
    """

    plan: AuditPlan
    scores: Scores
    carried: Mapping[tuple[str, str], Carried]
    soundness: tuple[SoundnessLine, ...] = ()
    prompts: tuple[PromptLine, ...] = ()
    ranked: Ranked = field(default_factory=Ranked)
    told_by: str = ""
    searched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    formats: tuple[Format, ...] = ()
    collapsed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    repeats: Mapping[str, str] = field(default_factory=dict)

    def search_of(self, attack: str) -> str:
        """The search that an attack is a part of, or ""."""
        return next((name for name, parts in self.searched.items() if attack in parts), "")


_WORST: tuple[Scope, ...] = ("entailed", "guessable", "free")


def by_fact(case: Case) -> Case:
    """The case with facts for items: each under the id of its first wording, with the mean of the values there are.

    A fact is tested by an attack where all of its wordings are, since one that was shown gives away the others; and
    what the retain set gives away of one wording, it gives away of the fact.
    """
    plan = case.plan
    if not plan.facts:
        return case
    # In the order of the plan, so that a fact has the id of its first wording.
    wordings: dict[str, list[str]] = {}
    for item in plan.splits.get("forget", ()):
        wordings.setdefault(plan.facts.get(item, item), []).append(item)
    several = {fact: items for fact, items in wordings.items() if len(items) > 1}
    values: dict[Source, dict[str, Mapping[str, float]]] = {source: {} for source in case.scores.values}
    for source, tables in case.scores.values.items():
        for key, table in tables.items():
            merged = dict(table)
            for fact, items in several.items():
                there = [merged.pop(item) for item in items if item in merged]
                if there:
                    merged[fact] = float(np.mean(there))
            values[source][key] = merged
    return replace(case, plan=_plan_by_fact(plan, wordings), scores=Scores(values), ranked=_ranked(case, several))


def _ranked(case: Case, several: Mapping[str, Sequence[str]]) -> Ranked:
    """With the mean of those wordings that were asked with the alternatives of the first that has any."""
    ranked = case.ranked
    units, scores = dict(ranked.units), {source: dict(table) for source, table in ranked.scores.items()}
    for fact, items in several.items():
        lead = next((ranked.units[item] for item in items if item in ranked.units), None)
        if lead is None:
            continue
        units[fact] = lead
        for table in scores.values():
            there = {item: table.pop(item) for item in items if item in table}
            # Among other alternatives a rank has another chance, and is no part of the mean.
            alike = [row for item, row in there.items() if ranked.units[item] == lead]
            if alike:
                table[fact] = np.mean(alike, axis=0)
    return replace(ranked, scores=scores, units=units)


def _plan_by_fact(plan: AuditPlan, wordings: Mapping[str, Sequence[str]]) -> AuditPlan:
    def tested(items: Sequence[str]) -> tuple[str, ...]:
        # A wording that was shown gives away the others, so that all of them have to be tested.
        items_asked = set(items)
        return tuple(fact for fact, fact_items in wordings.items() if items_asked.issuperset(fact_items))

    def scope(items: Sequence[str]) -> Scope:
        scopes = {plan.scopes.get(item, "free") for item in items}
        return next(scope for scope in _WORST if scope in scopes)

    return replace(
        plan,
        splits={**plan.splits, "forget": tuple(wordings)},
        scopes={**plan.scopes, **{fact: scope(items) for fact, items in wordings.items()}},
        attacks=tuple(replace(attack, tested=tested(attack.tested)) for attack in plan.attacks),
        facts={},
    )
