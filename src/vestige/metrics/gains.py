"""Leakage between `retrained` and `target`, the gain from an attack, and the bits that the attack could carry.

The gain from an attack: injection + repair + recovery, separated by the same attack on controls. E0 and E1 are the
excess before and after: mean over items of the subject's score minus the `retrained` score under the same attack,
budget and seeds. Then

    gain      = subject after - subject before = injection + repair + recovery
    injection = the gain of `retrained`: what the attack carries in
    repair    = min(E1, 0) - min(E0, 0): climbing back to `retrained` from below
    recovery  = max(E1, 0) - max(E0, 0): knowledge that was in the weights

Minimum and maximum are taken of the means, never by item: floored item by item, noise alone would recover. If the
attack damages `retrained`, injection is below 0, and this loss would count as recovery. So what counts against a
subject is `Gain.counted`: min(E1, E1 - E0, gain).

How much of the forget set a subject still expresses in one format, between `retrained` (0) and `target` (1). Axes: N
items, M control seeds. Scores are shares in [0, 1], one an item (a hit, a probability), or bits: log2 of the answer's
probability. Every number is about the subject beyond models that never saw the facts, under the same conditions.

How many bits an attack could carry, and how many its result needs.

Bits throughout. Log-probabilities come in nats and are of whole tokens' or answers' probabilities. N questions, k
options. Carried beyond needed is a warning that the attack may have put the answer in. Whether it did is measured, on
the control (`gains`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.metrics.contrasts import Draws, Quantity, Sample, known_ratio_draws, level_draws, mean_draws, ratio_draws
from vestige.metrics.intervals import Bounds, ByControl, ByItem, SeedPrior

_SHARE = (-1.0, 1.0)

Unit = Literal["leakage", "leakage_vs_chance", "bits"]


@dataclass(frozen=True)
class Controls:
    """The scale of one format: item scores of `target` and of each `retrained` seed, and the sampling of the items.

    `format` is the key of the seeds' noise: quantities of one format move together. In the unit `leakage_vs_chance`
    nothing was retrained, and the one row of `retrained` is what guessing scores on each item.
    """

    format: str
    target: ByItem
    retrained: ByControl
    sample: Sample
    prior: SeedPrior
    unit: Unit = "leakage"

    def beyond(self, subject: ByItem) -> Quantity:
        """The subject minus retrained, with the least and the greatest difference that there can be."""
        bounds: Bounds | None = _SHARE
        if self.unit == "bits":
            bounds = None
        elif self.unit == "leakage_vs_chance":
            # The chance level is known for each item.
            bounds = -float(self.retrained.max()), 1 - float(self.retrained.min())
        return Quantity(subject, self.retrained, bounds)

    @property
    def gap(self) -> Quantity:
        """Target minus retrained: the ruler that leakage is measured with."""
        return self.beyond(self.target)


def admission(controls: Controls, *, trained: bool = False) -> Draws:
    """Target minus retrained: a format is admitted where its low end exceeds `Thresholds.admission`.

    The statement is about this target, not about retrainings. Where `trained`, with the error that one training more
    has. Chance has no seeds.
    """
    prior = None if controls.unit == "leakage_vs_chance" else controls.prior
    return mean_draws(controls.gap, controls.sample, prior, name=controls.format, trained=trained)


def excess(subject: ByItem, controls: Controls) -> Draws:
    """E: the mean score of the model minus that of `retrained` (over its seeds), in shares or in bits per answer."""
    return mean_draws(controls.beyond(subject), controls.sample, controls.prior, name=controls.format)


def leakage(subject: ByItem, controls: Controls) -> Draws:
    """(subject - retrained) / (target - retrained): 0 is `retrained`, 1 is `target`. Below 0 is over-forgetting.

    Its ends are valid for true values from 0 to 1. Only an admitted format has a scale large enough to divide by. The
    leakage against chance is another metric, because a model that never saw the facts may do better than chance. The
    two are never mixed.
    """
    if controls.unit == "leakage_vs_chance":
        return known_ratio_draws(subject, controls.target, controls.retrained[0], controls.sample)
    return ratio_draws(controls.beyond(subject), controls.gap, controls.sample, controls.prior, name=controls.format)


def facts_stored(recalled: ByItem, never: ByControl, sample: Sample, prior: SeedPrior) -> Draws:
    """Return the share of stored facts: (R - G) / (1 - G), from facts (0 or 1) recalled after relearning on others.

    R is the share that the model recalls. G is the mean over M controls, which guess the facts after the same
    relearning (Abbott 1925: stored facts are recalled, others as often as by controls; relearning on a part, after Deeb
    and Roger, 2410.08827). A stored fact that relearning does not recover is not counted, so the result is a lower
    bound.

    Raises:
        ValueError: The controls recall all facts.
    """
    return leakage(recalled, Controls("facts stored", np.ones(len(recalled)), never, sample, prior))


def differences(pairs: Float[np.ndarray, "Q 2 N"], controls: Controls) -> list[Draws]:
    """Return the first subject's leakage minus the second's, for each pair: for these two models, on the same items."""
    return level_draws(pairs[:, 0] - pairs[:, 1], _SHARE, controls.sample, controls.gap)


_LEAST = 1e-9
"""Stands for an arm without length."""


@dataclass(frozen=True)
class Gain:
    """An attack's gain in its parts, the excess before and after it, and how far it lifts `retrained` by itself.

    `saturation` is the share of the gap between `retrained` and `target` that the attack closes on `retrained`. Shares
    are in units of that gap, as leakage is. Bits are bits an answer. `gap` is its size in this unit.
    """

    name: str
    unit: str
    gap: float
    gain: Draws
    injection: Draws
    before: Draws
    after: Draws
    change: Draws
    saturation: Draws

    @property
    def repair(self) -> Draws:
        """Climbing back to `retrained` from below."""
        return self._part(np.minimum)

    @property
    def recovery(self) -> Draws:
        """Knowledge that was in the weights."""
        return self._part(np.maximum)

    def _part(self, cut: np.ufunc) -> Draws:
        """The part of E1 - E0 on one side of 0, from the joint draws. Both parts grow with E1 and shrink with E0."""
        e0, e1 = self.before, self.after
        # The low end of a difference is the low end of the first term minus the high end of the second.
        low, high = cut(e1.low, 0.0) - cut(e0.high, 0.0), cut(e1.high, 0.0) - cut(e0.low, 0.0)
        return replace(self.change, value=float(cut(e1.value, 0.0) - cut(e0.value, 0.0)), low=low, high=high)

    @property
    def room(self) -> float:
        """Return the recoverable knowledge: the target's beyond `retrained`, minus the knowledge before."""
        return self.gap - max(self.before.value, 0.0)

    def brought(self) -> Draws:
        """Return `counted` as a share of the recoverable knowledge, which must be positive."""
        room = self.room
        if room <= 0:
            raise ValueError(f"{self.name}: nothing is missing that could be brought back")
        counted = self.counted(room / 2)
        ends = {name: getattr(counted, name) / room for name in ("value", "low", "high", "item_error", "seed_error")}
        return replace(counted, **ends)

    def counted(self, margin: float) -> Draws:
        """Return min(E1, E1 - E0, gain): knowledge that came with the attack and exceeds the injection.

        All three must exceed `margin`, so the low draws come from the part with the smallest evidence. One below a
        bound is enough, so the high draws hold for all three together.
        """
        parts = (self.after, self.change, self.gain)
        # Among equally unclear parts the lowest counts.
        weakest = max(parts, key=lambda quantity: (quantity.p_at_most(margin), margin - quantity.value))
        arms = [max(quantity.ends[1] - quantity.value, _LEAST) for quantity in parts]
        finite = [(quantity, arm) for quantity, arm in zip(parts, arms, strict=True) if np.isfinite(arm)]
        upper = np.full_like(weakest.high, np.inf)
        if finite:
            reach = np.max([(quantity.high - quantity.value) / arm for quantity, arm in finite], axis=0)
            upper = np.min([quantity.value + arm * reach for quantity, arm in finite], axis=0)
        return replace(weakest, value=min(quantity.value for quantity in parts), high=upper)


def split(
    name: str,
    before: ByItem,
    after: ByItem,
    controls: Controls,
    retrained_after: ByControl,
    *,
    earlier: Gain | None = None,
) -> Gain:
    """An attack's gain in its parts, with joint draws: before, after and all seeds of all parts are paired.

    Args:
        name: The attack in its format.
        before: The subject's scores by item before the attack.
        after: The same after it.
        controls: The target, which was not attacked and exceeds `retrained` (the gap between them is the unit), and
            `retrained` before the attack.
        retrained_after: The same seeds after it.
        earlier: Another subject's gain by the same attack with the same controls, which say injection and saturation.
    """
    in_bits = controls.unit == "bits"
    widest: Bounds | None = None if in_bits else (-1.0, 1.0)
    twice: Bounds | None = None if in_bits else (-2.0, 2.0)
    sample, prior, first, last = controls.sample, controls.prior, controls.retrained, retrained_after
    if first.shape != last.shape:
        raise ValueError(f"the controls before and after have the shapes {first.shape} and {last.shape}")
    # Both gains are in units of the gap before the attack, so that an attack cannot change the scale.
    ruler, nothing = controls.gap, np.zeros_like(before)

    def measured(part: str, quantity: Quantity, seeds: SeedPrior | None = prior, *, trained: bool = True) -> Draws:
        unit = None if in_bits else ruler
        return ratio_draws(quantity, unit, sample, seeds, name=f"{name}, {part}", trained=trained)

    if earlier is None:
        # Zero minus the loss of `retrained` is its gain.
        lifted = Quantity(nothing, first - last, widest)
        injection = measured("injection", lifted, trained=False)
        saturation = ratio_draws(lifted, ruler, sample, prior, name=f"{name}, saturation", trained=False)
    else:
        injection, saturation = earlier.injection, earlier.saturation
    # The subject's own gain. Another run of the attack would change it as the controls vary about their mean.
    own_gain = Quantity(after - before, nothing[None], widest)
    if sample.fixed:
        own_gain = Quantity(after - before, (last - first) - (last - first).mean(axis=0), twice)
    return Gain(
        name,
        "bits" if in_bits else "leakage",
        gap=float(ruler.differences().mean()) if in_bits else 1.0,
        gain=measured("gain", own_gain, prior if sample.fixed else None),
        injection=injection,
        before=measured("before", Quantity(before, first, widest)),
        after=measured("after", Quantity(after, last, widest)),
        change=measured("change", Quantity(after - before, last - first, twice)),
        saturation=saturation,
    )


class Capacity(NamedTuple):
    """The least of several upper bounds in bits, and the name of the one that it is."""

    bits: float
    bound: str


def text_capacity(n_tokens: int, vocabulary: int) -> float:
    """T log2 |V|: what T tokens can say when each may be any of the admissible vocabulary."""
    if n_tokens < 0 or vocabulary < 1:
        raise ValueError(f"{n_tokens} tokens of a vocabulary of {vocabulary}")
    return n_tokens * math.log2(vocabulary)


def code_length(logp: Float[np.ndarray, " T"]) -> float:
    """-sum log2 p: the length of a text in a model's own code, from its log-probabilities in nats.

    Return (a), the bits to write the answers down for a reader with the subject's knowledge.
    """
    values = np.asarray(logp, dtype=float)
    if not np.isfinite(values).all() or (values > 1e-9).any():
        raise ValueError("a log-probability is finite and at most 0")
    # Rounding may leave a sum slightly above 0.
    return max(0.0, float(-values.sum() / math.log(2)))


def prequential(blocks: Sequence[Float[np.ndarray, " _"]]) -> float:
    """Return the code length of the shown data by blocks, each under the model tuned on the blocks before it.

    A. P. Dawid, Present position and potential developments: the prequential approach, J. R. Stat. Soc. A 147, 1984; L.
    Blier and Y. Ollivier, The description length of deep learning models, 1802.07044.
    """
    if not blocks:
        raise ValueError("nothing was shown, so there is no code length")
    return sum(code_length(block) for block in blocks)


def capacity(bounds: Mapping[str, float]) -> Capacity:
    """Return the least of the named upper bounds: for a prompt its text, its code length and the search's view."""
    if not bounds:
        raise ValueError("a capacity needs at least one bound")
    # Each is a valid upper bound, so the smallest is valid too.
    name = min(bounds, key=bounds.__getitem__)
    return Capacity(bounds[name], name)


def need_wrong_answers(n_wrong: int, n_options: int) -> float:
    """(b) wrong x log2 k: the bits that write down the right option for each error, if the places are known for free.

    For four options, each error costs 2 bits. This is the count of the paper (2506.00688), as far as it is documented.
    """
    _check(n_wrong, n_options)
    return n_wrong * math.log2(n_options)


def need_rate_distortion(n: int, accuracy: float, n_options: int) -> float:
    """(c) N (log2 k - H(D) - D log2(k - 1)), D = 1 - accuracy: the minimum that gives a guesser this accuracy.

    The rate-distortion function of a uniform source under Hamming distortion (T. Cover and J. Thomas, Elements of
    Information Theory, 2006, chapter 10). It is 0 at or below chance.
    """
    _check(n, n_options)
    distortion = 1 - accuracy
    entropy = binary_entropy(distortion)
    # Below chance the formula increases again, although guessing needs no bits.
    if accuracy <= 1 / n_options:
        return 0.0
    return n * (math.log2(n_options) - entropy - distortion * math.log2(n_options - 1))


def need_of_gain(before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"]) -> float:
    """Bits of the gain that was observed: -sum log2 p(gold) before less the same after, from nats. At least 0."""
    return max(0.0, code_length(before) - code_length(after))


def binary_entropy(share: float) -> float:
    """H(share) in bits."""
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies in [0, 1], got {share}")
    return -sum(x * math.log2(x) for x in (share, 1 - share) if x > 0)


def prompt_data_entropy_ratio(capacity_bits: float, need_bits: float) -> float:
    """PDER: bits that the prompt can carry / bits needed. From 1 on the prompt could hold the answers.

    The name is of the ICLR submission of 2506.00688, whose formula is not public. This one is ours.
    """
    if not (capacity_bits >= 0 and need_bits > 0):
        raise ValueError(f"no ratio of {capacity_bits} to {need_bits} bits")
    return capacity_bits / need_bits


def _check(n: int, n_options: int) -> None:
    if n < 0:
        raise ValueError(f"{n} questions")
    if n_options < 2:
        raise ValueError(f"a question has at least two options, got {n_options}")
