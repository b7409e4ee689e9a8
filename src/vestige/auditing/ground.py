"""The shared state of a judgement: the case, its thresholds, the judged items, and the resampling.

Axes: N items, M seeds of `retrained`. Scores are shares in [0, 1], or bits (log2 of an answer's probability) where a
key ends in `_bits`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from vestige.artifacts.audits import AuditPlan, FactLine, GroupLine
from vestige.artifacts.scores import Format, ScoreTable, Sourced
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.items import Scope
from vestige.core.seeds import derive_seed
from vestige.core.text import Items, Names, NumberByName, NumberMapping, Sentences, TextMapping, one_line
from vestige.metrics.contrasts import Sample, level_draws
from vestige.metrics.intervals import Bounds, ByItem, Kind, SeedPrior
from vestige.metrics.verdicts import ClaimVerdict, Evidence, Thresholds

SHARE: Bounds = (0.0, 1.0)
OTHER_RECIPE = 3.0
"""The variance of what another recipe does to all facts alike, in seed x fact variances (docs/verdicts.md)."""
CURVE = "curve"
CURVE_RESAMPLES = 2_000
"""Points of curves are many and decide nothing, so that a coarser interval is enough for the eye."""
_KEPT = 2
"""Samples kept at a time whose items are drawn: their weights take up to 400 MB each."""


@dataclass(frozen=True)
class Case:
    """The input of a judgement: plan and scores.

    `searched` has by the name of a search of relearning the attacks that it chose from (`recovery.with_searches`).
    """

    plan: AuditPlan
    scores: ScoreTable
    searched: Mapping[str, Names] = field(default_factory=dict)

    def search_of(self, attack: str) -> str:
        """The search that an attack is a part of, or ""."""
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
        """Both together."""
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
        """What guessing scores by question. Empty where it is 0 or not known."""
        return self.scores.chances.get(form.key, {})

    def about(self, subject: str) -> "Ground":
        """Return the ground of the claims about one subject, with its own doubts."""
        doubt = self.doubts_of.get(subject)
        if doubt is None:
            return self
        return replace(self, doubts=(*self.doubts, doubt))

    def has(self, source: Sourced, key: str) -> bool:
        """Return whether the source has scores of the forget set under `key`."""
        # That a model was asked what is kept says nothing of whether it was asked what is forgotten.
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
            # Only random samples hold weights; fixed ones are small, and all are kept.
            random_keys = [k for k in self.samples if not k[2]]
            if not is_fixed and len(random_keys) >= _KEPT:
                self.samples.pop(random_keys[0])
            edges = self.plan.edges
            clusters = None
            if any(item in edges for item in items):
                # An item without an edge is a cluster of its own.
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
        """Return the verdict of a rule on all quantities of a claim, or None without quantities."""
        if evidence:
            return (rule(evidence, self.thresholds),)
        return ()

    def prior(self, kind: Kind) -> SeedPrior:
        """The prior of the thresholds, with a shift if a control was trained by another recipe."""
        prior = self.thresholds.prior(kind)
        if self.plan.recipes:
            return prior._replace(shift=OTHER_RECIPE)
        return prior

    def level(self, values: ByItem, sample: Sample, metric: str) -> Estimate:
        """The mean score of one subject over the items of `sample`, as of items like them."""
        return self.levels(values[None], sample, metric)[0]

    def levels(
        self, rows: Float[np.ndarray, "Q N"], sample: Sample, metric: str, *, bounds: Bounds | None = SHARE
    ) -> list[Estimate]:
        """The same of several subjects or stages, a row each, from one set of draws. Without bounds in bits."""
        # A level is one model's: no training is drawn again, so that the questions are.
        if sample.fixed:
            sample = self.sample(sample.items, "level", fixed=False)
        unit = "bits" if bounds is None else "share"
        return [draws.estimate(metric, unit) for draws in level_draws(rows, bounds, sample)]


@lru_cache(maxsize=8)
def _as_set(items: Items) -> frozenset[str]:
    return frozenset(items)


def groups_of(plan: AuditPlan, items: Sequence[str]) -> dict[str, Items]:
    """Return the items of each contract, person or other group, or None if fewer than two groups are known."""
    groups: dict[str, list[str]] = {}
    for item in items:
        label = plan.edges.get(item, plan.groups.get(item))
        if label is not None:
            groups.setdefault(label, []).append(item)
    if len(groups) < 2:
        # One group is the whole set, of which the claim itself speaks.
        return {}
    return {label: tuple(members) for label, members in groups.items()}


def shown(name: str) -> str:
    """A subject's name unchanged in a sentence. Names come from whoever asked for the audit."""
    return one_line(name, width=60)


def judged_items(plan: AuditPlan) -> tuple[Items, str]:
    """Return the forget items that the retain set does not reveal, as far as known, and the items set apart."""
    forget = plan.splits.get("forget", ())
    if not forget:
        raise InputError(f"forget set {shown(plan.forget)!r}: the plan has no items. Give the audit its items")
    # Of plain questions and answers no scope is known, and all are judged.
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
    """Return the case with facts as items. Each has the id of its first wording and the mean of its values.

    A fact is attacked only if all of its wordings are held out, because one shown wording reveals the others. If the
    retain set reveals one wording, it reveals the fact.
    """
    plan = case.plan
    if not plan.facts:
        return case
    # In the order of the plan, so that a fact has the id of its first wording.
    wordings: dict[str, list[str]] = {}
    for item in plan.splits.get("forget", ()):
        wordings.setdefault(plan.facts.get(item, item), []).append(item)
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
