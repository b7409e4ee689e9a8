"""Leakage between `retrained` and `target`, and what an attack gains.

What an attack brought: injection + repair + recovery, told apart by the same attack on models that never knew. E0 and
E1 are the excess before and after: mean over items of the subject's score less that of `retrained` under the same
attack, budget and seeds. Then

    gain      = subject after - subject before = injection + repair + recovery
    injection = the gain of `retrained`: what the attack carries in
    repair    = min(E1, 0) - min(E0, 0): climbing back to `retrained` from below
    recovery  = max(E1, 0) - max(E0, 0): knowledge that was in the weights

Minimum and maximum are taken of the means, never by item: floored item by item, noise alone would recover. Where the
attack damages `retrained`, injection is below 0, and what is lost there would be booked as recovery. So what counts
against a subject is `Gain.counted`: min(E1, E1 - E0, gain).

How much of the forget set a subject still expresses in one format, between `retrained` (0) and `target` (1). Axes: N
items, M control seeds. Scores are shares in [0, 1], one an item (a hit, a probability), or bits: log2 of the answer's
probability. Every number is about the subject beyond models that never knew, under the same conditions.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from vestige.metrics.contrasts import (
    Draws,
    Quantity,
    Sample,
    known_ratio_draws,
    level_draws,
    mean_draws,
    ratio_draws,
)
from vestige.metrics.intervals import (
    Bounds,
    ByControl,
    ByItem,
    SeedPrior,
)

_SHARE = (-1.0, 1.0)


@dataclass(frozen=True)
class Controls:
    """One format's scale: item scores of `target` and of each `retrained` seed, and how the items were drawn.

    `format` names it, and with it the seeds' noise: what is computed in one format moves together.
    """

    format: str
    target: ByItem
    retrained: ByControl
    sample: Sample
    prior: SeedPrior

    @property
    def gap(self) -> Quantity:
        """Target minus retrained: the ruler that leakage is measured with."""
        return Quantity(self.target, self.retrained, _SHARE)


def admission(controls: Controls) -> Draws:
    """Target minus retrained, in shares: a format is admitted where its low end exceeds `Thresholds.admission`.

    The statement is about this target, whatever another training would have made of it.
    """
    return mean_draws(controls.gap, controls.sample, controls.prior, name=controls.format, trained=False)


def gap_in_bits(controls: Controls) -> Draws:
    """`admission` where the scores are bits, which have no bounds."""
    quantity = controls.gap._replace(bounds=None)
    return mean_draws(quantity, controls.sample, controls.prior, name="bits", trained=False)


def gap_of_a_training(controls: Controls) -> Draws:
    """Target minus retrained with the error that one training more has: that of a leakage, in units of this gap."""
    return mean_draws(controls.gap, controls.sample, controls.prior, name=controls.format)


def admission_vs_chance(controls: Controls) -> Draws:
    """The same where nothing was retrained and `controls.retrained` is what guessing scores, without seeds.

    It is known on each item, so that differences lie in [-max(chance), 1 - min(chance)].
    """
    chance = controls.gap.control
    quantity = controls.gap._replace(bounds=(-float(chance.max()), 1 - float(chance.min())))
    return mean_draws(quantity, controls.sample, None, name=controls.format, trained=False)


def excess(subject: ByItem, controls: Controls) -> Draws:
    """E in shares: the mean score of the subject less that of `retrained` (over its seeds)."""
    quantity = Quantity(subject, controls.retrained, _SHARE)
    return mean_draws(quantity, controls.sample, controls.prior, name=controls.format)


def leakage(subject: ByItem, controls: Controls) -> Draws:
    """(subject - retrained) / (target - retrained): 0 is `retrained`, 1 is `target`. Below 0 is over-forgetting.

    Its ends hold for true values from 0 to 1. An admitted format is what makes the scale worth dividing by.
    """
    quantity = Quantity(subject, controls.retrained, _SHARE)
    return ratio_draws(quantity, controls.gap, controls.sample, controls.prior, name=controls.format)


def leakage_vs_chance(
    subject: ByItem,
    target: ByItem,
    chance: ByItem,
    sample: Sample,
) -> Draws:
    """(subject - chance) / (target - chance), `chance` being what guessing scores on each item.

    Another metric than `leakage`: a model that never knew may do better than chance, so the two are never mixed.
    Chance has no seeds, so none are counted, and is known on each item: differences lie in [-max(chance), 1 -
    min(chance)], so that no hit against a chance of 0 is 0 at least.
    """
    return known_ratio_draws(subject, target, chance, sample, name="chance")


def excess_bits(subject: ByItem, retrained: ByControl, sample: Sample, prior: SeedPrior) -> Draws:
    """E in bits an answer: mean of log2 p(answer) on the subject less the same on `retrained` (over its seeds)."""
    return mean_draws(Quantity(subject, retrained, None), sample, prior, name="bits")


def facts_stored(recalled: ByItem, never: ByControl, sample: Sample, prior: SeedPrior) -> Draws:
    """The share of the facts that are stored: (R - G) / (1 - G), of facts (0 or 1) recalled after relearning on others.

    R is the share that the subject recalls and G the mean over M controls, which guess them after the same relearning
    (Abbott 1925: what is stored is recalled, the rest as often as controls do; the relearning on a part, after Deeb and
    Roger, 2410.08827). A stored fact that relearning does not bring back counts as gone, so it is a lower bound.
    Raises ValueError where the controls recall all.
    """
    return leakage(recalled, Controls("facts stored", np.ones(len(recalled)), never, sample, prior))


def differences(pairs: Float[np.ndarray, "Q 2 N"], controls: Controls) -> list[Draws]:
    """The first subject's leakage less the second's, of each pair: of these two models, on the same items."""
    return level_draws(pairs[:, 0] - pairs[:, 1], _SHARE, controls.sample, controls.gap)


_LEAST = 1e-9
"""Stands for an arm without length."""


@dataclass(frozen=True)
class Attacked:
    """Item scores of one attack in one format, all shares or all bits, before and after.

    The rows of `control_before` and `control_after` are the same seeds of `retrained`. `target` was not attacked.
    """

    name: str
    before: ByItem
    after: ByItem
    control_before: ByControl
    control_after: ByControl
    target: ByItem
    in_bits: bool


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
        # The low end of a difference has the low end of what is added and the high one of what is taken off.
        low, high = cut(e1.low, 0.0) - cut(e0.high, 0.0), cut(e1.high, 0.0) - cut(e0.low, 0.0)
        return replace(self.change, value=float(cut(e1.value, 0.0) - cut(e0.value, 0.0)), low=low, high=high)

    @property
    def room(self) -> float:
        """What there was to bring back: what the target knows beyond `retrained`, less what was there before."""
        return self.gap - max(self.before.value, 0.0)

    def brought(self) -> Draws:
        """What counts (`counted`) as a share of what there was to bring back, which must be something."""
        room = self.room
        if room <= 0:
            raise ValueError(f"{self.name}: nothing is missing that could be brought back")
        counted = self.counted(room / 2)
        ends = {name: getattr(counted, name) / room for name in ("value", "low", "high", "item_error", "seed_error")}
        return replace(counted, **ends)

    def counted(self, margin: float) -> Draws:
        """min(E1, E1 - E0, gain): what is there after the attack, came with it, and is more than it carried in.

        Its low draws are those of the part that exceeds `margin` least clearly, since all three have to. Its high draws
        hold for all three at once, since any of them below a bound is enough.
        """
        parts = (self.after, self.change, self.gain)
        # Of parts that are equally unclear the lowest counts.
        weakest = max(parts, key=lambda quantity: (quantity.p_at_most(margin), margin - quantity.value))
        arms = [max(quantity.ends[1] - quantity.value, _LEAST) for quantity in parts]
        finite = [(quantity, arm) for quantity, arm in zip(parts, arms, strict=True) if np.isfinite(arm)]
        upper = np.full_like(weakest.high, np.inf)
        if finite:
            reach = np.max([(quantity.high - quantity.value) / arm for quantity, arm in finite], axis=0)
            upper = np.min([quantity.value + arm * reach for quantity, arm in finite], axis=0)
        return replace(weakest, value=min(quantity.value for quantity in parts), high=upper)


def split(attacked: Attacked, sample: Sample, prior: SeedPrior, *, earlier: Gain | None = None) -> Gain:
    """The gain in its parts, with joint draws: before, after and all seeds of all parts are paired.

    The target must exceed `retrained`, as it does in an admitted format: the gap between them is the unit. `earlier` is
    another subject's gain by the same attack with the same controls, which say injection and saturation.
    """
    widest: Bounds | None = None if attacked.in_bits else (-1.0, 1.0)
    twice: Bounds | None = None if attacked.in_bits else (-2.0, 2.0)
    before, after, target = attacked.before, attacked.after, attacked.target
    first, last = attacked.control_before, attacked.control_after
    if first.shape != last.shape:
        raise ValueError(f"the controls before and after have the shapes {first.shape} and {last.shape}")
    # The gap before the attack is the unit on both sides, so that an attack cannot shrink its own ruler.
    ruler, nothing = Quantity(target, first, widest), np.zeros_like(before)

    def measured(
        quantity_name: str, quantity: Quantity, seed_prior: SeedPrior | None = prior, *, trained: bool = False
    ) -> Draws:
        name, unit = f"{attacked.name}, {quantity_name}", None if attacked.in_bits else ruler
        return ratio_draws(quantity, unit, sample, seed_prior, name=name, trained=trained)

    e0 = measured("before", Quantity(before, first, widest), trained=True)
    e1 = measured("after", Quantity(after, last, widest), trained=True)
    change = measured("change", Quantity(after - before, last - first, twice), trained=True)
    # Nothing less what `retrained` lost is what it gained.
    lifted = Quantity(nothing, first - last, widest)
    # The subject's own gain. Another run of the attack would have moved it as it moves the controls about their mean.
    own_gain = Quantity(after - before, nothing[None], widest)
    if sample.fixed:
        own_gain = Quantity(after - before, (last - first) - (last - first).mean(axis=0), twice)
    return Gain(
        attacked.name,
        "bits" if attacked.in_bits else "leakage",
        gap=float(ruler.differences().mean()) if attacked.in_bits else 1.0,
        gain=measured("gain", own_gain, prior if sample.fixed else None, trained=True),
        injection=earlier.injection if earlier else measured("injection", lifted),
        before=e0,
        after=e1,
        change=change,
        saturation=earlier.saturation
        if earlier
        else ratio_draws(lifted, ruler, sample, prior, name=f"{attacked.name}, saturation", trained=False),
    )


def against_alternatives(name: str, before: Draws, after: Draws, change: Draws) -> Gain:
    """The gain of an attack under which the alternatives to the true answers are too: what it carries in is known as 0.

    `change` is after less before, with the noise that both share.
    """
    # Alternatives are attacked with the truth, so that what is carried in lifts both.
    nothing = replace(change, value=0.0, low=np.zeros_like(change.low), high=np.zeros_like(change.high))
    nothing = replace(nothing, method="known: alternatives are under the same attack", item_error=0.0)
    return Gain(
        name,
        "leakage_vs_alternatives",
        gap=1.0,
        gain=change,
        injection=nothing,
        before=before,
        after=after,
        change=change,
        saturation=nothing,
    )
