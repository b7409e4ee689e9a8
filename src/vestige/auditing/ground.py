"""The shared state of a judgement: case, thresholds, judged items, resampling, and the scores that are missing.

Axes: N items, M seeds of `retrained`. Scores are shares in [0, 1], or bits (log2 of an answer's probability) if a key
ends in `_bits`.

Missing scores count against the model: as known if a claim would pass, as unknown if it would fail.

The reference is every question that any model has a score on by one measurement. A question is untested if the target
or a control has no score on it. Missing scores are filled twice, once each way, and a verdict needs the worse of both.
One subject's missing scores change no other subject's verdict.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from vestige.artifacts.audits import AuditOutcome, AuditPlan, Carried, FactLine, GroupLine, VerdictLine
from vestige.artifacts.scores import Format, ScoreTable, Source, Sourced
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.items import Scope
from vestige.core.seeds import derive_seed
from vestige.core.text import Items, Names, NumberByName, NumberMapping, Sentences, TextMapping, grouped, one_line
from vestige.metrics.contrasts import Sample, level_draws
from vestige.metrics.intervals import Bounds, ByItem, Kind, SeedPrior
from vestige.metrics.verdicts import ClaimVerdict, Evidence, Thresholds

SHARE: Bounds = (0.0, 1.0)
KEPT_SPLITS = ("retain", "independent", "factual")
"""The splits that an unlearned model has to keep."""
OTHER_RECIPE = 3.0
"""The variance of another recipe's common effect on all facts, in units of the seed x fact variance (docs/verdicts.md).
"""
CURVE = "curve"
CURVE_RESAMPLES = 2_000
"""Curves have many points and decide nothing, so a coarser interval is enough."""
_KEPT = 2
"""The number of cached samples with random items: their weights take up to 400 MB each."""


@dataclass(frozen=True)
class Case:
    """The input of a judgement: plan and scores.

    `searched` maps the name of a relearning search to the attacks that it chose from (`recovery.with_searches`).
    """

    plan: AuditPlan
    scores: ScoreTable
    searched: Mapping[str, Names] = field(default_factory=dict)

    def search_of(self, attack: str) -> str:
        """Return the search that an attack belongs to, or ""."""
        return next((name for name, parts in self.searched.items() if attack in parts), "")


@dataclass(frozen=True)
class ClaimEvidence:
    """The evidence of one claim about one model, or a part of it.

    Attributes:
        parts: The verdict on each part of the claim. One failing part fails the claim. It passes if all parts pass.
        left_out: Findings that decide nothing, each with the reason.
        gaps: Missing evidence, without which the claim cannot pass. A claim can still fail.
        besides: Further evidence for a passing claim.
        facts: The single facts that fail the claim.
        groups: Findings by contract or person.
    """

    parts: tuple[ClaimVerdict, ...] = ()
    left_out: Sentences = ()
    gaps: Sentences = ()
    besides: str = ""
    facts: tuple[FactLine, ...] = ()
    groups: tuple[GroupLine, ...] = ()

    def __add__(self, other: "ClaimEvidence") -> "ClaimEvidence":
        """Combine two pieces of evidence."""
        both = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return ClaimEvidence(**both)


@dataclass(frozen=True, kw_only=True)
class Ground(Case):
    """A case with its derived values: `judged` are the forget items behind the first three claims.

    A fact has `wordings` questions on average. `doubts` are reasons not to trust the controls. With one, no claim that
    depends on controls passes. `doubts_of` are such reasons for one model. `collapsed` gives by model and format the
    reason that scores are left out.
    """

    thresholds: Thresholds
    judged: Items
    apart: str
    resamples: int
    wordings: float = 1.0
    doubts: Sentences = ()
    doubts_of: TextMapping = field(default_factory=dict)
    collapsed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    samples: dict[tuple[str, Items, bool], Sample] = field(default_factory=dict, repr=False)

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats with a reply or a forced answer."""
        return tuple(form for form in self.scores.formats if not form.inside)

    def chances(self, form: Format) -> NumberMapping:
        """Return the chance level by question. Empty if it is 0 or unknown."""
        return self.scores.chances.get(form.key, {})

    def about(self, subject: str) -> "Ground":
        """Return the ground of the claims about one subject, with its own doubts."""
        doubt = self.doubts_of.get(subject)
        if doubt is None:
            return self
        return replace(self, doubts=(*self.doubts, doubt))

    def has(self, source: Sourced, key: str) -> bool:
        """Return whether the source has scores of the forget set under `key`."""
        # Scores on retained items do not imply scores on the forget set.
        return not self.forget.isdisjoint(self.scores.table(source, key))

    @property
    def forget(self) -> frozenset[str]:
        """All forget items."""
        return _as_set(self.plan.splits["forget"])

    def sample(self, items: Sequence[str], purpose: str = "forget", *, fixed: bool | None = None) -> Sample:
        """Return the bootstrap draws of these items.

        All quantities over the same items and purpose share the draws and are paired. Samples of two purposes are
        independent. `fixed` means that the statement is about exactly these items. It defaults to the scope, except for
        one model's level or a comparison with chance.
        """
        is_fixed = self.thresholds.scope == "these" if fixed is None else fixed
        key = (purpose, tuple(items), is_fixed)
        if key not in self.samples:
            # Only random samples hold weights. Fixed samples are small, so all are cached.
            random_keys = [k for k in self.samples if not k[2]]
            if not is_fixed and len(random_keys) >= _KEPT:
                self.samples.pop(random_keys[0])
            edges = self.plan.edges
            clusters = None
            if any(item in edges for item in items):
                # An item without an edge is its own cluster.
                clusters = tuple(f"edge {edges[i]}" if i in edges else f"item {i}" for i in items)
            self.samples[key] = Sample(
                items=key[1],
                clusters=clusters,
                seed=derive_seed(self.plan.seed, "judge", purpose),
                resamples=CURVE_RESAMPLES if purpose == CURVE else self.resamples,
                fixed=is_fixed,
                wordings=self.wordings if is_fixed else 1.0,
            )
        return self.samples[key]

    def verdicts(self, rule: Callable[..., ClaimVerdict], evidence: Sequence[Evidence]) -> tuple[ClaimVerdict, ...]:
        """Return the verdict of a rule on all quantities of a claim. Empty without quantities."""
        if evidence:
            return (rule(evidence, self.thresholds),)
        return ()

    def prior(self, kind: Kind) -> SeedPrior:
        """Return the prior of the thresholds, with a shift if a control was trained by another recipe."""
        prior = self.thresholds.prior(kind)
        if self.plan.recipes:
            return prior._replace(shift=OTHER_RECIPE)
        return prior

    def level(self, values: ByItem, sample: Sample, metric: str) -> Estimate:
        """Return the mean score of one subject over the items of `sample`, as a statement about similar items."""
        return self.levels(values[None], sample, metric)[0]

    def levels(
        self, rows: Float[np.ndarray, "Q N"], sample: Sample, metric: str, *, bounds: Bounds | None = SHARE
    ) -> list[Estimate]:
        """Return the mean scores of several subjects or stages (rows) from one set of draws. Without bounds: bits."""
        # A level belongs to one model, so the questions are resampled and not the trainings.
        if sample.fixed:
            sample = self.sample(sample.items, "level", fixed=False)
        unit = "bits" if bounds is None else "share"
        return [draws.estimate(metric, unit) for draws in level_draws(rows, bounds, sample)]


@lru_cache(maxsize=8)
def _as_set(items: Items) -> frozenset[str]:
    return frozenset(items)


def groups_of(plan: AuditPlan, items: Sequence[str]) -> dict[str, Items]:
    """Return the items of each contract, person or other group, or None if fewer than two groups are known."""
    groups = grouped(items, lambda item: plan.edges.get(item, plan.groups.get(item)))
    groups.pop(None, None)
    if len(groups) < 2:
        # A single group is the whole set, which the claim itself covers.
        return {}
    return {str(label): tuple(members) for label, members in groups.items()}


def common_bounds(each: Sequence[Carried]) -> dict[str, list[float]]:
    """Return the upper bounds in bits that all runs of an attack have, by the bound's name."""
    bounds = {}
    for name in each[0].bounds_bits if each else ():
        bits = [carried.bounds_bits[name] for carried in each if name in carried.bounds_bits]
        if len(bits) == len(each):
            bounds[name] = bits
    return bounds


def shown(name: str) -> str:
    """Return a subject's name so that it cannot alter a sentence. The user of the audit chooses names."""
    return one_line(name, width=60)


def judged_items(plan: AuditPlan) -> tuple[Items, str]:
    """Return the forget items that the retain set does not reveal, as far as known, and the items set apart."""
    forget = plan.splits.get("forget", ())
    if not forget:
        raise InputError(f"forget set {shown(plan.forget)!r}: the plan has no items. Give the audit its items")
    # Plain questions and answers have no known scope, and all are judged.
    scopes = [plan.scopes.get(item, "free") for item in forget]
    free = tuple(item for item, scope in zip(forget, scopes, strict=True) if scope == "free")
    counts_text = f"{scopes.count('entailed')} entailed, {scopes.count('guessable')} guessable"
    if len(free) == len(forget):
        return forget, ""
    if not free:
        return forget, f"The retain set gives every answer of the forget set away ({counts_text}), so all are judged."
    apart = f"{len(forget) - len(free)} of the {len(forget)} forget items ({counts_text})"
    return free, f"Not judged, because the retain set gives the answers away: {apart}."


_WORST: tuple[Scope, ...] = ("entailed", "guessable", "free")


def by_fact(case: Case) -> Case:
    """Return the case with one item for each fact: the id of its first wording and the mean of its values.

    A fact is attacked only if all of its wordings are held out, because one shown wording reveals the others. If the
    retain set reveals one wording, it reveals the fact.
    """
    plan = case.plan
    if not plan.facts:
        return case
    # The order is the plan's, so a fact has the id of its first wording.
    wordings = grouped(plan.splits.get("forget", ()), lambda item: plan.facts.get(item, item))
    several = {fact: items for fact, items in wordings.items() if len(items) > 1}

    def merged(table: NumberMapping) -> NumberByName:
        scores = dict(table)
        for fact, items in several.items():
            there = [scores.pop(item) for item in items if item in scores]
            if there:
                scores[fact] = float(np.mean(there))
        return scores

    values = {}
    for source, tables in case.scores.values.items():
        values[source] = {key: merged(table) for key, table in tables.items()}
    chances = {key: merged(table) for key, table in case.scores.chances.items()}
    scores = replace(case.scores, values=values, chances=chances)
    return replace(case, plan=_plan_by_fact(plan, wordings), scores=scores)


def _plan_by_fact(plan: AuditPlan, wordings: Mapping[str, Sequence[str]]) -> AuditPlan:
    def tested(items: Sequence[str]) -> Items:
        # A wording that was shown reveals the others, so all wordings must be tested.
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


Tables = dict[Source, dict[str, Mapping[str, float]]]


@dataclass
class Missing:
    """The questions without a score: each subject's own, and those that the target or a control lacks.

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
    stages = dict.fromkeys((source.attack, source.point) for source in values)
    for attack, point in stages:
        for key in case.scores.judged_keys:
            _fill_forgotten(filling, key, attack, point)
    for form in case.scores.formats:
        if form.kept:
            for split in KEPT_SPLITS:
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
    # After an attack, the target itself need not have a score.
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
        # Another measurement of the same split is filled separately.
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


def with_kept_counts(line: VerdictLine, missing: Missing) -> VerdictLine:
    """Return a verdict on "utility preserved" with its numbers of retained questions. Other verdicts do not change."""
    if line.claim != "utility preserved":
        return line
    n_asked = len(missing.asked_to_keep)
    n_tested = n_asked - len(missing.kept[line.subject]) if line.evidence else 0
    return replace(line, n_tested=n_tested, n_asked=n_asked)


def _worse(line: VerdictLine, known: VerdictLine, plan: AuditPlan, missing: Missing) -> VerdictLine:
    """Return the worse of one claim's two verdicts about one subject."""
    if line.claim == "utility preserved":
        lacks = missing.kept[line.subject]
        of, what = len(missing.asked_to_keep), "retained questions"
    else:
        lacks = _facts(plan, missing.own[line.subject] | missing.shared)
        of, what = _n_facts(plan), "facts"
    line = with_kept_counts(replace(line, n_tested=of - len(lacks), n_asked=of), missing)
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
