"""Measures of every subject that accompany its claims: published metrics, bits, and lost knowledge.

Forget quality, model utility, extraction strength, memorisation, PrivLeak, and how far retain-only tuning lifts a model
that never saw the facts (RGI). Their definitions are in `metrics.memorization`, `metrics.information`.

The capacity of an attack and the information that its result needs (bits in all): the capacity is the information added
to `retrained`, by the least upper bound, each a mean over the seeds. A searched prompt differs between models, so its
capacity is the capacity of the subject's own prompt. The need is counted in the three ways of the literature, together
with the gained bits. A warning and no verdict: whether answers were carried in is measured, on `retrained`
(`recovery`).

The claim `utility preserved`: how much lower than the target the subject scores on retained knowledge. The
loss always has the error of another training. In the scope `these` it concerns the items of the split: with all items
scored nothing else is uncertain, and with a part of the items only the others are unknown (arms times
sqrt(1 - share asked), the correction for a finite population).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from vestige.artifacts.audits import BudgetLine, KeptLine, MeasureLine, MembershipLine, PlannedAttack
from vestige.artifacts.records import SEEN_BOUND, TOKENS_BOUND
from vestige.artifacts.scores import Source
from vestige.artifacts.verdicts import percentage
from vestige.auditing.ground import ClaimEvidence, Ground, shown
from vestige.core.text import Items, NumberByName, Sentences, TextByName
from vestige.metrics import information
from vestige.metrics.contrasts import Draws, Quantity, mean_draws
from vestige.metrics.intervals import ByItem
from vestige.metrics.memorization import forget_quality, harmonic_mean
from vestige.metrics.trainings import kept_error
from vestige.metrics.verdicts import Evidence, stays_below

SPLITS = ("retain", "independent", "factual")


@dataclass
class KeptKnowledge:
    """The target's score minus the model's, for every split. `lines` are the scores of the models that were read."""

    ground: Ground
    lines: list[KeptLine] = field(default_factory=list)

    @property
    def untested(self) -> Sentences:
        """The splits without items, in a sentence."""
        absent = [split for split in SPLITS if not self.ground.plan.splits.get(split)]
        if absent:
            return (f"The data hold no items of these splits: {', '.join(absent)}.",)
        return ()

    def losses(self, subject: str) -> ClaimEvidence:
        """Return the losses of one model. Keeping the draws of all models would take too much memory."""
        ground = self.ground
        plan, least = ground.plan, ground.thresholds.admission
        harms, left_out, missing = [], [], []
        keys = [(form.name, form.key) for form in ground.formats if form.kept]
        for split in SPLITS:
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
    """Name in a sentence the controls that answer retain questions far worse than the target. None in the best case.

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
            # By more than what still lets a model pass as having kept it.
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
    # With all items asked the mean is a number, and nothing is drawn.
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
    """The loss with the error of another training: a weaker recipe must not look like damage by unlearning."""
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
    # Utilities compare only over the items, and those sets and scores, that all subjects have.
    parts: dict[tuple[str, str], Items] = {}
    for split in SPLITS:
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
    # Against all other retrained seeds pooled: their items count once a seed.
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
        # A truth ratio that rounding left a digit below 0 is 0.
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
            least, (need, inputs) = information.capacity(bounds), _need(ground, attack, subject)
            gained = need.get("gain", 0.0)
            ratio = information.prompt_data_entropy_ratio(least.bits, gained) if gained > 0 else None
            lines.append(BudgetLine(subject, attack.name, bounds, least.bits, least.bound, need, inputs, ratio))
    return tuple(lines)


def _bounds(ground: Ground, attack: PlannedAttack, subject: str) -> NumberByName:
    """Means over `retrained`. Without `retrained` the subject's own values are used, and the names mark this.

    A prompt was searched on the subject, so the prompt's bounds are the subject's, with the code length under
    `retrained`.
    """
    carried = ground.plan.carried.get(attack.name, {})
    controls = [carried[name] for name in ground.plan.retrained if name in carried]
    means: NumberByName = {}
    for name in controls[0].bounds_bits if controls else ():
        bits = [control.bounds_bits[name] for control in controls if name in control.bounds_bits]
        if len(bits) == len(controls):
            means[name] = float(np.mean(bits))
    # A search finds another prompt on every model, so that nothing is averaged over controls.
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
        # A log-probability that rounding left a digit above 0 is 0.
        nats = np.minimum(scores.of(before, key, items), 0.0) * math.log(2)
        need["code_length"] = information.code_length(nats)
        inputs |= {"answers": float(len(items)), "bits an answer before": float(-nats.mean() / math.log(2))}
        if scores.common([after], key, items) == items:
            reached = np.minimum(scores.of(after, key, items), 0.0) * math.log(2)
            need["gain"] = information.need_of_gain(nats, reached)
            inputs["bits an answer after"] = float(-reached.mean() / math.log(2))
    right = f"{OPTION}/accuracy"
    chances = scores.chances.get(right, {})
    items = tuple(item for item in scores.common([subject], right, attack.tested) if item in chances)
    options = np.rint(1 / np.array([chances[item] for item in items])) if items else np.zeros(1)
    k = int(options[0])
    # Questions with differing numbers of options have no one k to count with.
    if k >= 2 and (options == k).all():
        values = scores.of(subject, right, items)
        # Options that are tied share the answer, so the sum need not be whole.
        n, wrong, accuracy = len(items), round(float((1 - values).sum())), float(values.mean())
        need |= {
            "wrong_answers": information.need_wrong_answers(wrong, k),
            "rate_distortion": information.need_rate_distortion(n, min(1.0, accuracy), k),
        }
        inputs |= {"questions": float(n), "wrong": float(wrong), "options": float(k), "accuracy": accuracy}
    return need, inputs
