"""What all parts of a judgement stand on: the case, its thresholds, the items that are judged, and how they are drawn.

Axes: N items, M seeds of `retrained`. Scores are shares in [0, 1], or bits (log2 of an answer's probability) where a
key ends in `_bits`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from vestige.artifacts.audits import AuditPlan
from vestige.auditing.scores import Case, Scores, Sourced, column
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.seeds import derive_seed
from vestige.core.text import one_line
from vestige.metrics.contrasts import Sample, level_draws
from vestige.metrics.intervals import Bounds, ByItem, Kind, SeedPrior
from vestige.metrics.verdicts import Thresholds

SHARE: Bounds = (0.0, 1.0)
BITS_KEY = "forced/answer_bits"
_ROUNDING = 1e-6
"""Bits that rounding may leave above 0."""
OTHER_RECIPE = 3.0
"""The variance of what another recipe does to all facts alike, in seed x fact variances (docs/verdicts.md)."""
CURVE = "curve"
CURVE_RESAMPLES = 2_000
"""Points of curves are many and decide nothing, so that a coarser interval is enough for the eye."""
_KEPT = 2
"""Samples kept at a time whose items are drawn: their weights take up to 400 MB each."""


@dataclass(frozen=True)
class Ground:
    """A case with what follows from it once: `judged` are the forget items that the first three claims rest on.

    A fact is asked in so many `wordings` on average. `doubts` speak against the controls: while there is one, no claim
    holds that rests on them. `doubts_of` do so for one subject.
    """

    case: Case
    thresholds: Thresholds
    judged: tuple[str, ...]
    apart: str
    resamples: int
    wordings: float = 1.0
    doubts: tuple[str, ...] = ()
    doubts_of: Mapping[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, tuple[str, ...], bool], Sample] = field(default_factory=dict, repr=False)

    @property
    def plan(self) -> AuditPlan:
        """What was asked of whom."""
        return self.case.plan

    @property
    def scores(self) -> Scores:
        """The values by source, key and item."""
        return self.case.scores

    def about(self, subject: str) -> "Ground":
        """The ground of the claims about one subject, with the doubts of it."""
        doubt = self.doubts_of.get(subject)
        return self if doubt is None else replace(self, doubts=(*self.doubts, doubt))

    def has(self, source: Sourced, key: str) -> bool:
        """Whether the source was asked what `key` measures."""
        return bool(self.scores.table(source, key))

    def sample(self, items: Sequence[str], purpose: str = "forget", *, fixed: bool | None = None) -> Sample:
        """The draws of these items. All quantities over the same items and purpose share them and are paired.

        Samples of two purposes are independent of one another. `fixed` says that the statement is about these items; it
        is the scope's, unless what is asked for is one model's level or a comparison with chance.
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

    def prior(self, kind: Kind) -> SeedPrior:
        """The prior of the thresholds, with the shift of another recipe where a control was trained by one."""
        prior = self.thresholds.prior(kind)
        return prior._replace(shift=OTHER_RECIPE) if self.plan.recipes else prior

    def level(self, values: ByItem, sample: Sample, metric: str) -> Estimate:
        """The mean score of one subject over the items of `sample`, as of items like them."""
        return self.levels(values[None], sample, metric)[0]

    def levels(
        self, rows: Float[np.ndarray, "Q N"], sample: Sample, metric: str, *, bounds: Bounds | None = SHARE
    ) -> list[Estimate]:
        """The same of several subjects or stages, a row each, from one set of draws; without bounds in bits."""
        # A level is one model's: no training is drawn again, so that the questions are.
        if sample.fixed:
            sample = self.sample(sample.items, "level", fixed=False)
        unit = "bits" if bounds is None else "share"
        return [draws.estimate(metric, unit) for draws in level_draws(rows, bounds, sample)]


def groups_of(plan: AuditPlan, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The items of each contract, person or other group; none where fewer than two are known."""
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
    """A subject's name as it stands in a sentence; names come from whoever asked for the audit."""
    return one_line(name, width=60)


def judged_items(plan: AuditPlan) -> tuple[tuple[str, ...], str]:
    """The forget items that the retain set does not give away, where it is known which, and what was set apart."""
    forget = plan.splits.get("forget", ())
    if not forget:
        raise InputError(f"forget set {shown(plan.forget)!r}: the plan names no item of it; give the audit its items")
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


def checked(case: Case) -> Case:
    """The case, or an InputError that names the attack without a stage, or the first value that is out of bounds."""
    for attack in case.plan.attacks:
        if not attack.points:
            raise InputError(f"the attack {shown(attack.name)!r} has no stage at which models are asked; plan it again")
    for source, table in case.scores.values.items():
        for key, values in table.items():
            share = key.endswith(("/accuracy", "/probability", "/chance", "_match", "_recall"))
            low, high = (0.0, 1.0) if share else (-math.inf, _ROUNDING if key == BITS_KEY else math.inf)
            array = column(values).array
            for n in np.flatnonzero(~(np.isfinite(array) & (low <= array) & (array <= high)))[:1]:
                where = " ".join(one_line(part) for part in (*source, key, list(values)[n]) if part)
                kind = "share" if share else "log-probability" if key == BITS_KEY else "number"
                raise InputError(f"{where}: {array[n]} is no {kind}; evaluate it again")
    return case
