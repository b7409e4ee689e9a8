"""Membership: how well a score separates the forget set from holdout items (AUC), compared with `retrained`.

Axes: N forget items, H holdout items, M seeds of `retrained`. The placement of a forget item is the share of holdout
items with lower scores (ties count half). The placement of a holdout item is the share of forget items with higher
scores. The mean of either is the AUC, and its variance is var(forget placements) / N + var(holdout placements) / H (E.
DeLong, D. DeLong and D. Clarke-Pearson, Comparing the areas under two or more correlated receiver operating
characteristic curves, Biometrics 44, 1988). So where items are drawn again (the scope `population`), both kinds are,
each by its own placements, independently of one another, and subjects are paired: their placements are subtracted item
by item. In the scope `these`, the training is resampled, and its AUC varies by the placements of both kinds.

A score is admitted by which the target itself fails: it differs from the controls by more than the wide margin, and
clearly by more than the narrow one. One in which the target would pass (every model finds the holdout items unlikely)
can show a difference and never that there is none.
"""

import math
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from vestige.artifacts.audits import MembershipLine
from vestige.auditing.ground import SHARE, Ground
from vestige.auditing.settings import MemberScore
from vestige.core.estimates import Estimate
from vestige.core.text import Items, Names, Sentences, TextByName
from vestige.metrics.contrasts import Draws, Quantity, mean_draws
from vestige.metrics.intervals import ByItem, SeedPrior, wilson
from vestige.metrics.membership import placements, privleak
from vestige.metrics.verdicts import Evidence

PREFIX = "membership/"
"""Scores of the answers. Those of whole texts (`membership_text/`) are in the evaluation and not judged."""
LOGP = "membership/logp_nats"
"""The inputs of the reference score: log p on the subject minus log p on the first `retrained`."""

FALSE = 0.01
"""The share of holdout items wrongly taken for members at which the true positive rate is measured: TPR at 1 % FPR."""

_LEAST_AUC = 1e-9
"""Below it PrivLeak has nothing to divide by."""


class _Placed(NamedTuple):
    """Placements of the forget and of the holdout items on one subject."""

    forget: ByItem
    holdout: Float[np.ndarray, " H"]


class _PlacedScore(NamedTuple):
    """One membership score: its placements by subject, and which `retrained` are its controls."""

    ground: Ground
    key: str
    forget: Items
    holdout: Items
    placed: dict[str, _Placed]
    controls: Names

    @property
    def name(self) -> str:
        return f"membership, {self.key}"

    def difference(self, subject: str) -> Draws | None:
        """Return the subject's AUC minus the mean AUC of `retrained`. None where there is none."""
        if not self.controls:
            return None
        rows, placed = [self.placed[name] for name in self.controls], self.placed[subject]
        prior = self.ground.prior("placements")
        if self.ground.thresholds.scope == "these":
            quantity = Quantity(_components(placed), np.stack([_components(row) for row in rows]), None)
            sample = self.ground.sample((*self.forget, *self.holdout), "membership")
            return mean_draws(quantity, sample, prior, name=self.name)
        forget = Quantity(placed.forget, np.stack([row.forget for row in rows]), (-1.0, 1.0))
        holdout = Quantity(placed.holdout, np.stack([row.holdout for row in rows]), (-1.0, 1.0))
        return self.joined(forget, holdout, prior)

    def joined(self, forget: Quantity, holdout: Quantity, prior: SeedPrior | None) -> Draws:
        """Both kinds of items drawn again. Seeds count once, in the forget items' placements."""
        first = mean_draws(forget, self.ground.sample(self.forget, fixed=False), prior, name=self.name)
        second = mean_draws(holdout, self.ground.sample(self.holdout, "holdout", fixed=False), None, name=self.name)
        return Draws(
            value=first.value,
            low=first.low + second.low - second.value,
            high=first.high + second.high - second.value,
            n=first.n + second.n,
            method=f"{first.method}, forget and holdout items drawn",
            item_error=math.hypot(first.item_error, second.item_error),
            seed_error=first.seed_error,
        )

    def line(self, subject: str, difference: Draws | None) -> MembershipLine:
        """Return the displayed line of the subject."""
        placed = self.placed[subject]
        forget, holdout = (Quantity(kind, np.zeros((1, len(kind))), SHARE) for kind in placed)
        draws = self.joined(forget, holdout, None)
        low, high = draws.ends
        # An AUC is a share; the sum of two errors may reach beyond.
        auc = Estimate("auc", "share", draws.value, max(low, 0.0), min(high, 1.0), draws.n, draws.method)
        relative = None
        if self.controls:
            mean = float(np.mean([self.placed[control].forget.mean() for control in self.controls]))
            # MUSE counts holdout texts as positive. Equal sets of pairs differ by what rounding left of their sums.
            relative = round(privleak(1 - draws.value, 1 - mean), 9) + 0.0 if mean < 1 - _LEAST_AUC else None
        estimate = None if difference is None else difference.estimate("auc_difference", "share")
        return MembershipLine(subject, self.key, auc, estimate, relative, self.members(placed))

    def members(self, placed: _Placed) -> Estimate | None:
        """Return the share of forget items above all but 1 % of these holdout items.

        It is None with fewer than 100 holdout items.
        """
        n = len(self.holdout)
        if n * FALSE < 1:
            return None
        # Placed above all but so many, ties counting as above.
        hits = (placed.forget >= 1 - math.floor(n * FALSE) / n - 1e-9).astype(float)
        low, high, method = wilson(int(hits.sum()), len(hits))
        return Estimate("tpr_at_1_percent_fpr", "share", float(hits.mean()), low, high, len(hits), method)


def _components(placed: _Placed) -> Float[np.ndarray, " K"]:
    """Return values of all N + H items whose mean is the AUC, with both kinds' variances."""
    auc, n = float(placed.forget.mean()), len(placed.forget) + len(placed.holdout)
    # Each kind counts as if it were all items, so that the variance of the mean is the sum of both.
    kinds = [auc + n / len(kind) * (kind - auc) for kind in placed]
    return np.concatenate(kinds)


@dataclass
class Membership:
    """The membership scores, and by name the lines of each.

    `blind` has by name the reason that a score without separation of target and controls is not admitted.
    """

    scores: tuple[_PlacedScore, ...]
    blind: dict[str, str]
    untested: Sentences
    lines_of: dict[str, list[MembershipLine]]

    @property
    def lines(self) -> tuple[MembershipLine, ...]:
        """The lines of target, controls and all subjects that were read, by score."""
        return tuple(chain.from_iterable(self.lines_of.values()))

    def differences(self, subject: str) -> tuple[list[Evidence], list[str]]:
        """Return one model's differences to `retrained`, and the scores that were not read on it."""
        differences: list[Evidence] = []
        missing: list[str] = []
        for score in self.scores:
            if subject not in score.placed:
                missing.append(f"{score.name}: not read on it")
                continue
            apart = score.difference(subject)
            if apart is not None:
                blind = score.name in self.blind
                differences.append(Evidence(score.name, apart, "AUC difference", "share", fails_only=blind))
            self.lines_of[score.name].append(score.line(subject, apart))
        return differences, missing


def read_membership(ground: Ground) -> Membership:
    """Read every membership score of target and controls. Without holdout items there are none."""
    plan = ground.plan
    if not plan.splits.get("holdout"):
        return Membership((), {}, ("No holdout items were given, so membership could not be tested.",), {})
    scores = [score for name, key in _names(ground).items() if (score := _score(ground, name, key)) is not None]
    if not scores:
        reason = "No membership score was read on forget and holdout items of target and subjects."
        return Membership((), {}, (reason,), {})
    lines: dict[str, list[MembershipLine]] = {}
    blind: dict[str, str] = {}
    narrow, wide = ground.thresholds.delta, ground.thresholds.delta_wide
    for score in scores:
        target_gap = score.difference(plan.target)
        if target_gap is not None and not (target_gap.value > wide and target_gap.ends[0] > narrow):
            by = target_gap.estimate("AUC difference", "share")
            demand = f"not by more than {wide:g}, and clearly by more than {narrow:g}"
            blind[score.name] = (
                f"{score.name}: not admitted, the target differs from retrained models by {by}, {demand}"
            )
        known = [name for name in (plan.target, *plan.retrained) if name in score.placed]
        lines[score.name] = [score.line(name, None) for name in known]
    untested: Sentences = ()
    if any(len(score.holdout) * FALSE >= 1 for score in scores):
        untested = ("The share of members found at 1 % false positives is told and not judged.",)
    # One would be held against itself.
    if LOGP in _keys(ground) and len(plan.retrained) < 2:
        untested += (
            "The membership score reference was not made: it needs two retrained models, one to refer to and one as "
            "the control.",
        )
    return Membership(tuple(scores), blind, untested, lines)


def _keys(ground: Ground) -> Names:
    orders = {name for name, its in ground.scores.measurements.items() if its.score_type == "order"}
    return tuple(key for key in ground.scores.keys(ground.plan.target) if key in orders)


def _names(ground: Ground) -> TextByName:
    """Return the requested membership scores by name. `gradient_norm` has a setting of its own."""
    keys = _keys(ground)
    # By name, whatever the order in which an evaluation wrote them.
    names = {key.removeprefix(PREFIX): key for key in sorted(keys) if key != LOGP}
    if LOGP in keys and len(ground.plan.retrained) > 1:
        names["reference"] = LOGP
    left_out = set(get_args(MemberScore)) - set(ground.plan.settings.get("membership", get_args(MemberScore)))
    return {name: key for name, key in names.items() if name not in left_out}


def _score(ground: Ground, name: str, key: str) -> _PlacedScore | None:
    plan = ground.plan
    # What others are held against cannot be one of the controls too.
    reference = plan.retrained[0] if name == "reference" else ""
    subjects = [s for s in (plan.target, *plan.retrained, *plan.audited) if ground.has(s, key)]
    if reference and reference not in subjects:
        return None
    forget = ground.scores.common(subjects, key, plan.splits["forget"])
    holdout = ground.scores.common(subjects, key, plan.splits["holdout"])
    if not forget or not holdout:
        return None

    def read(subject: str, items: Items) -> ByItem:
        values: ByItem = ground.scores.of(subject, key, items)
        if reference:
            values = values - ground.scores.of(reference, key, items)
        return values

    placed = {s: _Placed(*placements(read(s, forget), read(s, holdout))) for s in subjects if s != reference}
    controls = tuple(s for s in plan.retrained if s in placed)
    return _PlacedScore(ground, name, forget, holdout, placed, controls)
