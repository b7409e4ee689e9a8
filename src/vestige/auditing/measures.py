"""Measurements next to the claims about every subject: published metrics, bits, lost knowledge, membership.

Published metrics: forget quality, model utility, extraction strength, memorisation, PrivLeak, and the gain of an
unexposed model from retain-only tuning (RGI). Their definitions are in `metrics.memorization` and `metrics.gains`.

Capacity and information: the capacity of an attack is the information added to `retrained`, by the smallest upper
bound, as a mean over the seeds. The result also needs information, in bits, which is counted in the three ways of the
literature, together with the gained bits. A searched prompt differs between models, so its capacity is that of the
subject's own prompt. This gives a warning and no verdict: `recovery` measures on `retrained` whether an attack added
the answers.

The claim `utility preserved`: how much lower than the target the subject scores on retained knowledge. The loss always
includes the error of another training. In the scope `these` it concerns the items of the split: if all items have
scores there is no other uncertainty, and if only a part has scores the other items are unknown (interval arms times
sqrt(1 - share asked), the correction for a finite population).

Membership: how well a score separates the forget set from holdout items (AUC), compared with `retrained`.

Axes: N forget items, H holdout items, M seeds of `retrained`. The placement of a forget item is the share of holdout
items with lower scores (ties count half). The placement of a holdout item is the share of forget items with higher
scores. The mean of either is the AUC, and its variance is var(forget placements) / N + var(holdout placements) / H (E.
DeLong, D. DeLong and D. Clarke-Pearson, Comparing the areas under two or more correlated receiver operating
characteristic curves, Biometrics 44, 1988). In the scope `population`, items of both kinds are resampled, each by its
own placements and independently of the other kind. Subjects are paired: their placements are subtracted item by item.
In the scope `these`, the training is resampled, and its AUC varies by the placements of both kinds.

A score is admitted if the target itself fails by it: it differs from the controls by more than the wide margin, and
clearly by more than the narrow one. A score by which the target would pass (every model finds the holdout items
unlikely) can show a difference but never its absence.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from vestige.artifacts.audits import BudgetLine, KeptLine, MeasureLine, MembershipLine, PlannedAttack
from vestige.artifacts.records import SEEN_BOUND, TOKENS_BOUND
from vestige.artifacts.scores import Source
from vestige.artifacts.verdicts import percentage
from vestige.auditing.ground import KEPT_SPLITS, SHARE, ClaimEvidence, Ground, common_bounds, shown
from vestige.auditing.settings import MemberScore
from vestige.core.estimates import Estimate
from vestige.core.text import Items, Names, NumberByName, Sentences, TextByName
from vestige.metrics.contrasts import Draws, Quantity, mean_draws
from vestige.metrics.gains import (
    capacity,
    code_length,
    need_of_gain,
    need_rate_distortion,
    need_wrong_answers,
    prompt_data_entropy_ratio,
)
from vestige.metrics.intervals import ByItem, SeedPrior, wilson
from vestige.metrics.memorization import forget_quality, harmonic_mean, placements, privleak
from vestige.metrics.trainings import kept_error
from vestige.metrics.verdicts import Evidence, stays_below


@dataclass
class KeptKnowledge:
    """The target's score minus the model's, for every split. `lines` are the scores of the evaluated models."""

    ground: Ground
    lines: list[KeptLine] = field(default_factory=list)

    @property
    def untested(self) -> Sentences:
        """Return the splits without items, in a sentence."""
        absent = [split for split in KEPT_SPLITS if not self.ground.plan.splits.get(split)]
        if absent:
            return (f"The data hold no items of these splits: {', '.join(absent)}.",)
        return ()

    def losses(self, subject: str) -> ClaimEvidence:
        """Return the losses of one model. Keeping the draws of all models would take too much memory."""
        ground = self.ground
        plan, least = ground.plan, ground.thresholds.admission
        harms, left_out, missing = [], [], []
        keys = [(form.name, form.key) for form in ground.formats if form.kept]
        for split in KEPT_SPLITS:
            if not plan.splits.get(split):
                continue
            keys_asked = [
                form_key for form_key in keys if ground.scores.common([plan.target], form_key[1], plan.splits[split])
            ]
            if not keys_asked:
                missing.append(f"{split}: not asked of the target")
            for form, key in keys_asked:
                name = f"{split}, {form}"
                items = ground.scores.common([plan.target, subject], key, plan.splits[split])
                if not items:
                    missing.append(f"{name}: not asked of target and subject")
                    continue
                target, scores = ground.scores.rows([plan.target, subject], key, items)
                if float(target.mean()) <= least:
                    knows = f"the target scores {target.mean():.2f} itself, not above {least:g}"
                    left_out.append(f"{name}: {knows}: there is nothing to keep")
                    continue
                draws = _loss(ground, name, items, Quantity(target, scores[None], (-1.0, 1.0)))
                draws = _with_training(ground, key, items, scores, draws)
                harms.append(Evidence(name, draws, "harm", "share"))
                self.lines.append(KeptLine(subject, split, form, draws.estimate("harm", "share")))
        return ClaimEvidence(ground.verdicts(stays_below, harms), tuple(left_out), tuple(missing))


def weak_controls(ground: Ground) -> Sentences:
    """Return a sentence about the controls that answer retain questions far worse than the target. Usually empty.

    Such a control had a different or too short training, so its missing answers about the forget set show no
    forgetting. The warning changes no verdict, because the direction of the error is unknown.
    """
    plan, levels = ground.plan, TextByName()
    keys = [form.key for form in ground.formats if form.kept]
    for name in plan.retrained:
        for key in keys:
            items = ground.scores.common([plan.target, name], key, plan.splits.get("retain", ()))
            if not items:
                continue
            target, control = (float(row.mean()) for row in ground.scores.rows([plan.target, name], key, items))
            # The bound is the largest loss at which a model still passes "utility preserved".
            if target - control > ground.thresholds.delta_wide:
                levels.setdefault(name, f"{shown(name)} {percentage(control)} of {percentage(target)}")
    if not levels:
        return ()
    each = ", ".join(levels.values())
    return (
        f"{len(levels)} of {len(plan.retrained)} controls answer the retained questions far worse than the target "
        f"({each}): they do not know what it was taught to keep, so a difference from them is no sign of the forgotten "
        "facts alone, and verdicts that rest on them may be wrong. Train controls as the target was trained.",
    )


def _loss(ground: Ground, name: str, items: Items, quantity: Quantity) -> Draws:
    """Return the loss over the scored items, as a statement about the items of the split, or about similar items."""
    split = name.partition(",")[0]
    there = ground.plan.sizes.get(split, 0)
    these = ground.thresholds.scope != "population"
    # If all items have scores, the mean is exact and nothing is resampled.
    exact = these and there == len(items)
    draws = mean_draws(quantity, ground.sample(items, "kept", fixed=exact), None, name=name, trained=False)
    if exact:
        return replace(draws, method="all items asked")
    if not these or there < len(items):
        return draws
    # The correction for a finite population.
    unknown = math.sqrt(1 - len(items) / there)
    method = f"{draws.method}, {len(items)} of {there} items asked"
    low, high = (draws.value + unknown * (end - draws.value) for end in (draws.low, draws.high))
    return replace(draws, low=low, high=high, method=method, item_error=unknown * draws.item_error)


def _with_training(ground: Ground, key: str, items: Items, subject: ByItem, draws: Draws) -> Draws:
    """Return the loss with the error of another training: a weaker recipe must not look like damage by unlearning."""
    controls = [n for n in ground.plan.retrained if ground.scores.common([n], key, items) == items]
    trainings = ground.scores.rows([ground.plan.target, *controls], key, items)
    low, high = kept_error(trainings, trainings[0] - subject)
    shown_by = f"{len(controls)} controls" if len(controls) > 1 else "public ones"
    sample = ground.sample(items, "kept", fixed=False)
    low_error, high_error = (error * sample.noise("another training", df) for error, df in (low, high))
    return replace(
        draws,
        low=draws.low + low_error,
        high=draws.high + high_error,
        seed_error=math.hypot(draws.seed_error, low[0]),
        method=f"{draws.method}, another training as {shown_by}",
    )


RATIOS = (("forget_quality", "geometric"), ("forget_quality_arithmetic", "arithmetic"))
MEANS = (
    ("extraction_strength", "memory/extraction_strength", "share of the answer that needs not be given"),
    ("exact_memorization", "memory/exact_memorization", "share of answer tokens that are the first choice"),
    ("verbatim_memorization", "memory/verbatim", "ROUGE-L F1 of the continuation of the text's first part"),
    ("knowledge_memorization", "memory/knowledge", "ROUGE-L F1 of the reply"),
)
UTILITY = ("forced/probability", "generate/rougeL_recall", "memory/truth_ratio_score")


def read_measures(ground: Ground, membership: tuple[MembershipLine, ...]) -> tuple[MeasureLine, ...]:
    """Compute all measures that the scores allow."""
    plan = ground.plan
    lines: list[MeasureLine] = []
    subjects = (plan.target, *plan.retrained, *plan.unlearned)
    # Utilities are comparable only over items, sets and scores that all subjects share.
    parts: dict[tuple[str, str], Items] = {}
    for split in KEPT_SPLITS:
        for key in UTILITY:
            items = ground.scores.common(subjects, key, plan.splits.get(split, ()))
            if items:
                parts[split, key] = items
    for subject in subjects:
        lines += _of_subject(ground, subject, parts)
    lines += [
        MeasureLine(line.subject, f"privleak, {line.score}", line.privleak, "per cent, against the mean of retrained")
        for line in membership
        if line.privleak is not None
    ]
    return tuple(lines)


def _of_subject(ground: Ground, subject: str, utility: Mapping[tuple[str, str], Items]) -> Iterator[MeasureLine]:
    """Forget quality, utility over the items that all subjects have, and means of memorisation."""
    # All other retrained seeds are pooled: an item counts once for each seed.
    others_retrained = [name for name in ground.plan.retrained if name != subject]
    for measure, form in RATIOS:
        key = f"memory/truth_ratio_{form}"
        retrained = [name for name in others_retrained if ground.has(name, key)]
        items = ground.scores.common((subject, *retrained), key, ground.plan.splits["forget"])
        if retrained and items:
            scores = ground.scores.of(subject, key, items)
            pooled = ground.scores.rows(retrained, key, items).ravel()
            seeds = f"{len(retrained)} retrained seed{'s pooled' if len(retrained) > 1 else ''}"
            description = f"KS p-value, {form} truth ratios of {len(items)} items against those of {seeds}"
            yield MeasureLine(subject, measure, forget_quality(scores, pooled), description)
    if utility:
        # Rounding can leave a truth ratio slightly below 0.
        values = [max(0.0, float(ground.scores.of(subject, key, items).mean())) for (_, key), items in utility.items()]
        splits, keys = (", ".join(dict.fromkeys(names)) for names in zip(*utility, strict=True))
        description = f"harmonic mean of {len(utility)}: {keys} on {splits} (TOFU's takes nine, on its own three sets)"
        yield MeasureLine(subject, "model_utility", harmonic_mean(values), description)
    for measure, key, description in MEANS:
        items = ground.scores.common([subject], key, ground.plan.splits["forget"])
        if items:
            value = float(ground.scores.of(subject, key, items).mean())
            yield MeasureLine(subject, measure, value, f"{description}, mean of {len(items)} forget items")


OPTION = "option_text_mean"
"""The multiple-choice questions whose wrong answers are counted."""


def read_budget(ground: Ground) -> tuple[BudgetLine, ...]:
    """Return a line for each unlearned subject and attack with known capacity."""
    lines = []
    for subject in ground.plan.unlearned:
        for attack in ground.plan.attacks:
            bounds = _bounds(ground, attack, subject)
            if not bounds:
                continue
            least, (need, inputs) = capacity(bounds), _need(ground, attack, subject)
            gained = need.get("gain", 0.0)
            ratio = prompt_data_entropy_ratio(least.bits, gained) if gained > 0 else None
            lines.append(BudgetLine(subject, attack.name, bounds, least.bits, least.bound, need, inputs, ratio))
    return tuple(lines)


def _bounds(ground: Ground, attack: PlannedAttack, subject: str) -> NumberByName:
    """Return means over `retrained`. Without `retrained` the subject's own values are used, and the names mark this.

    A prompt was searched on the subject, so the prompt's bounds are the subject's, with the code length under
    `retrained`.
    """
    carried = ground.plan.carried.get(attack.name, {})
    controls = [carried[name] for name in ground.plan.retrained if name in carried]
    means = {name: float(np.mean(bits)) for name, bits in common_bounds(controls).items()}
    # A search finds another prompt on every model, so there is no mean over controls.
    own_carry = carried.get(subject)
    if own_carry is not None and own_carry.points_bits:
        bounds = {"code length of the prompt, under retrained": own_carry.points_bits[attack.points[-1]]}
        bounds |= {name: bits for name, bits in own_carry.bounds_bits.items() if name == TOKENS_BOUND}
        if SEEN_BOUND in means:
            bounds["code length of the answers that the search saw, under retrained"] = means[SEEN_BOUND]
        return bounds
    if means and not attack.searches:
        return means
    if own_carry is not None:
        return {f"{name}, on the subject itself": bits for name, bits in own_carry.bounds_bits.items()}
    return {}


def _need(ground: Ground, attack: PlannedAttack, subject: str) -> tuple[NumberByName, NumberByName]:
    """Count the information that the result needs, and return the counts with their inputs.

    The counts are: the bits to write the answers for a reader with the subject's knowledge, the gained bits, and two
    counts from wrong answers to questions with k options, k being 1 / chance.
    """
    scores, before, after = ground.scores, Source(subject), Source.after(subject, attack)
    need, inputs = NumberByName(), NumberByName()
    key = scores.bits
    if items := scores.common([before], key, attack.tested):
        # Rounding can leave a log-probability slightly above 0.
        nats = np.minimum(scores.of(before, key, items), 0.0) * math.log(2)
        need["code_length"] = code_length(nats)
        inputs |= {"answers": float(len(items)), "bits an answer before": float(-nats.mean() / math.log(2))}
        if scores.common([after], key, items) == items:
            reached = np.minimum(scores.of(after, key, items), 0.0) * math.log(2)
            need["gain"] = need_of_gain(nats, reached)
            inputs["bits an answer after"] = float(-reached.mean() / math.log(2))
    right = f"{OPTION}/accuracy"
    chances = scores.chances.get(right, {})
    items = tuple(item for item in scores.common([subject], right, attack.tested) if item in chances)
    options = np.rint(1 / np.array([chances[item] for item in items])) if items else np.zeros(1)
    k = int(options[0])
    # Questions with different numbers of options have no common k.
    if k >= 2 and (options == k).all():
        values = scores.of(subject, right, items)
        # Tied options share the answer, so the sum may be fractional.
        n, wrong, accuracy = len(items), round(float((1 - values).sum())), float(values.mean())
        need |= {
            "wrong_answers": need_wrong_answers(wrong, k),
            "rate_distortion": need_rate_distortion(n, min(1.0, accuracy), k),
        }
        inputs |= {"questions": float(n), "wrong": float(wrong), "options": float(k), "accuracy": accuracy}
    return need, inputs


PREFIX = "membership/"
"""Scores of the answers. Scores of whole texts (`membership_text/`) are in the evaluation and not judged."""
LOGP = "membership/logp_nats"
"""The input of the reference score: log p under the subject minus log p under the first `retrained`."""

FALSE = 0.01
"""The share of holdout items falsely classified as members for the true positive rate: TPR at 1 % FPR."""

_LEAST_AUC = 1e-9
"""Below this value PrivLeak would divide by 0."""


class _Placed(NamedTuple):
    """The placements of the forget and the holdout items under one subject."""

    forget: ByItem
    holdout: Float[np.ndarray, " H"]


class _PlacedScore(NamedTuple):
    """One membership score: its placements by subject, and its controls among `retrained`."""

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
        """Return the subject's AUC minus the mean AUC of `retrained`. None if there are no placements."""
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
        """Resample both kinds of items. Seeds count once, in the forget items' placements."""
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
        # An AUC is a share, but the sum of two errors can exceed its range.
        auc = Estimate("auc", "share", draws.value, max(low, 0.0), min(high, 1.0), draws.n, draws.method)
        relative = None
        if self.controls:
            mean = float(np.mean([self.placed[control].forget.mean() for control in self.controls]))
            # MUSE counts holdout texts as positive. Rounding makes equal sets of pairs differ slightly.
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
        # An item is a hit if it is above all but this many holdout items. Ties count as above.
        hits = (placed.forget >= 1 - math.floor(n * FALSE) / n - 1e-9).astype(float)
        low, high, method = wilson(int(hits.sum()), len(hits))
        return Estimate("tpr_at_1_percent_fpr", "share", float(hits.mean()), low, high, len(hits), method)


def _components(placed: _Placed) -> Float[np.ndarray, " K"]:
    """Return values of all N + H items whose mean is the AUC, with both kinds' variances."""
    auc, n = float(placed.forget.mean()), len(placed.forget) + len(placed.holdout)
    # Each kind is scaled as if it were all items, so the variance of the mean is the sum of both variances.
    kinds = [auc + n / len(kind) * (kind - auc) for kind in placed]
    return np.concatenate(kinds)


@dataclass
class Membership:
    """The membership scores, and the lines of each by name.

    `blind` contains, by name, the reason why a score that does not separate target and controls is not admitted.
    """

    scores: tuple[_PlacedScore, ...]
    blind: dict[str, str]
    untested: Sentences
    lines_of: dict[str, list[MembershipLine]]

    @property
    def lines(self) -> tuple[MembershipLine, ...]:
        """Return the lines of the target, controls and all subjects, by score."""
        return tuple(chain.from_iterable(self.lines_of.values()))

    def differences(self, subject: str) -> tuple[list[Evidence], list[str]]:
        """Return one model's differences from `retrained`, and the scores that it lacks."""
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
    """Read every membership score of target and controls. Empty without holdout items."""
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
    # A single control would be compared with itself.
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
    # The names are sorted, so the order in an evaluation's file has no effect.
    names = {key.removeprefix(PREFIX): key for key in sorted(keys) if key != LOGP}
    if LOGP in keys and len(ground.plan.retrained) > 1:
        names["reference"] = LOGP
    left_out = set(get_args(MemberScore)) - set(ground.plan.settings.get("membership", get_args(MemberScore)))
    return {name: key for name, key in names.items() if name not in left_out}


def _score(ground: Ground, name: str, key: str) -> _PlacedScore | None:
    plan = ground.plan
    # The reference model cannot also be a control.
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
