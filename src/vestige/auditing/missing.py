"""Scores that are missing count against the model: as known where a claim would pass, as unknown where it would fail.

The reference is every question that any model has a score on by one measurement. A question that the target or a
control lacks is untested. Missing scores are filled twice, once each way, and a verdict needs the worse of both. One
subject's missing scores change no other subject's.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vestige.artifacts.audits import AuditOutcome, AuditPlan, VerdictLine
from vestige.artifacts.scores import Source
from vestige.auditing.ground import Case, judged_items
from vestige.auditing.measures import SPLITS

Tables = dict[Source, dict[str, Mapping[str, float]]]


@dataclass
class Missing:
    """The questions without a score: by subject its own, and those that the target or a control lacks.

    Questions are of the forget set, or of a split that was to be kept (`kept`).
    """

    own: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    shared: set[str] = field(default_factory=set)
    kept: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    asked_to_keep: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.shared or any(self.own.values()) or any(self.kept.values()))


@dataclass
class _Filling:
    """The scores during imputation, and the list of missing scores."""

    plan: AuditPlan
    values: Tables
    chances: dict[str, dict[str, float]]
    known: bool
    missing: Missing = field(default_factory=Missing)

    def put(self, source: Source, key: str, scores: Mapping[str, float]) -> None:
        """Add scores to the table of one source."""
        if scores:
            self.values[source][key] = {**self.values[source][key], **scores}


def filled(case: Case, *, known: bool) -> tuple[Case, Missing]:
    """The case in which no score is missing.

    Args:
        case: The case, with questions for items.
        known: Whether missing scores of a model count as knowledge. Missing retain scores then count as lost.

    Returns:
        The case, and the missing scores. Without `known` the questions that the target or a control lacks are left out.
    """
    plan = case.plan
    values: Tables = {source: dict(tables) for source, tables in case.scores.values.items()}
    filling = _Filling(plan, values, dict(case.scores.chances), known)
    keys = [case.scores.bits]
    for form in case.scores.formats:
        keys += [form.key, form.hits]
    stages = dict.fromkeys((source.attack, source.point) for source in values)
    for attack, point in stages:
        for key in filter(None, dict.fromkeys(keys)):
            _fill_forgotten(filling, key, attack, point)
    for form in case.scores.formats:
        if form.kept:
            for split in SPLITS:
                _fill_kept(filling, form.key, plan.splits.get(split, ()))
    if filling.missing:
        case = replace(case, scores=replace(case.scores, values=values, chances=filling.chances))
    return case, filling.missing


def _fill_forgotten(filling: _Filling, key: str, attack: str, point: str) -> None:
    """Fill the scores of the forget set by one measurement, at one stage of one attack."""
    plan, values = filling.plan, filling.values

    forget = frozenset(plan.splits["forget"])

    def asked(names: Sequence[str]) -> list[Source]:
        sources = [Source(name, attack, point) for name in names]
        return [source for source in sources if not forget.isdisjoint(values.get(source, {}).get(key, ()))]

    controls = asked(plan.retrained)
    subjects = asked(plan.audited)
    target = Source(plan.target)
    # After an attack the target itself need not have been asked.
    compared = controls if attack else [*asked([plan.target]), *controls]
    if forget.isdisjoint(values.get(target, {}).get(key, ())):
        return
    having = [values[source][key].keys() for source in (*compared, *subjects)]
    asked_of_any = set().union(*having)
    reference = [item for item in plan.splits["forget"] if item in asked_of_any]
    if all(items >= set(reference) for items in having):
        return
    untested = set[str]()
    for source in compared:
        untested |= set(reference) - values[source][key].keys()
    filling.missing.shared |= untested
    of_target = values[target][key]
    chances = filling.chances.get(key, {})
    of_controls = [{i: score for i, score in values[source][key].items() if i in forget} for source in controls]
    usual = {item: _usual(of_controls, item, chances) for item in reference}
    typical = float(np.mean([of_target[item] for item in reference if item in of_target] or [1.0]))
    knows = {item: of_target.get(item, typical) for item in reference}
    for source in subjects:
        own = values[source][key]
        lacks = {item for item in reference if item not in own}
        filling.missing.own[source.subject] |= lacks
        if filling.known:
            filling.put(source, key, {item: max(own.get(item, -np.inf), knows[item]) for item in lacks | untested})
        else:
            filling.put(source, key, {item: usual[item] for item in lacks})
    if not filling.known:
        return
    for source in controls:
        filling.put(source, key, {item: usual[item] for item in reference if item not in values[source][key]})
    if not attack:
        filling.put(target, key, {item: knows[item] for item in reference if item not in of_target})
        if chances:
            guess = float(np.mean(list(chances.values())))
            filling.chances[key] = {**{item: guess for item in reference if item not in chances}, **chances}


def _usual(tables: Sequence[Mapping[str, float]], item: str, chances: Mapping[str, float]) -> float:
    """Return the controls' mean score on a question, or on all questions if no control has this one."""
    if not tables:
        return chances.get(item, 0.0)
    there = [table[item] for table in tables if item in table]
    if there:
        return float(np.mean(there))
    return float(np.mean(np.concatenate([[*table.values()] for table in tables])))


def _fill_kept(filling: _Filling, key: str, items: Sequence[str]) -> None:
    """Fill the scores of one split that was to be kept."""
    plan, values = filling.plan, filling.values
    sources = [Source(name) for name in (plan.target, *plan.audited)]
    having = {source: values[source].get(key, {}) for source in sources if source in values}
    asked_of_any = set[str]().union(*(table.keys() for table in having.values()))
    reference = [item for item in items if item in asked_of_any]
    all_asked = set(reference)
    filling.missing.asked_to_keep |= all_asked
    of_target = having.get(Source(plan.target), {})
    there = [of_target[item] for item in reference if item in of_target]
    if not there:
        return
    typical = float(np.mean(there))
    for source, table in having.items():
        # Another measurement of the same split is filled by itself.
        if source.subject == plan.target or all_asked.isdisjoint(table.keys()):
            continue
        lacks = all_asked - (table.keys() & of_target.keys())
        filling.missing.kept[source.subject] |= lacks
        lost = {item: 0.0 if filling.known else of_target.get(item, typical) for item in lacks}
        filling.put(source, key, {item: score for item, score in lost.items() if filling.known or item in of_target})
    if filling.known:
        filling.put(Source(plan.target), key, {i: typical for i in reference if i not in of_target})


def with_missing(unknown: AuditOutcome, known: AuditOutcome, plan: AuditPlan, missing: Missing) -> AuditOutcome:
    """Return the outcome that counts missing scores against each claim.

    Args:
        unknown: The outcome with missing scores as unknown. A claim that fails in this outcome fails.
        known: The outcome with missing scores as known. A claim holds if it holds in both.
        plan: The plan of the audit.
        missing: The questions without a score.
    """
    of_known = {(line.subject, line.claim): line for line in (*known.verdicts, *known.control)}

    def merged(lines: Sequence[VerdictLine]) -> tuple[VerdictLine, ...]:
        return tuple(_worse(line, of_known[line.subject, line.claim], plan, missing) for line in lines)

    notes = []
    if missing.shared:
        n = len(_facts(plan, missing.shared))
        notes.append(
            f"The target or a control has no score on {n} of {_n_facts(plan)} facts. These facts are untested, and "
            "they count as known where a claim would pass."
        )
    untested = (*notes, *unknown.untested)
    return replace(unknown, verdicts=merged(unknown.verdicts), control=merged(unknown.control), untested=untested)


def _facts(plan: AuditPlan, items: Iterable[str]) -> set[str]:
    """The judged facts that these questions ask for."""
    judged = set(judged_items(plan)[0])
    return {plan.facts.get(item, item) for item in items if item in judged}


def _n_facts(plan: AuditPlan) -> int:
    return len(_facts(plan, plan.splits["forget"]))


def _worse(line: VerdictLine, known: VerdictLine, plan: AuditPlan, missing: Missing) -> VerdictLine:
    """One claim about one subject, by the worse of its two verdicts."""
    if line.claim == "utility preserved":
        lacks = missing.kept[line.subject]
        of, what = len(missing.asked_to_keep), "retained questions"
    else:
        lacks = _facts(plan, missing.own[line.subject] | missing.shared)
        of, what = _n_facts(plan), "facts"
    line = replace(line, n_tested=of - len(lacks), n_asked=of)
    if not lacks or line.claim == "benchmark valid":
        return line
    gap = f"{len(lacks)} of {of} {what} have no score of the model, the target or a control"
    left_out = (*line.left_out, gap)
    if line.outcome == "fails":
        return replace(line, left_out=left_out)
    if line.outcome == known.outcome == "holds":
        return replace(known, left_out=(*known.left_out, gap), n_tested=line.n_tested, n_asked=of)
    counts = "lost" if line.claim == "utility preserved" else "known"
    reason = f"{line.reason.rstrip('.')}. But {gap}, and they count as {counts} for a pass."
    most = [bound for bound in (line.at_most, known.at_most) if bound is not None]
    at_most = max(most) if most and line.unit == known.unit else line.at_most
    return replace(line, outcome="inconclusive", reason=reason, left_out=left_out, at_most=at_most, items_needed=None)
