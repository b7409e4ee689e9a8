"""How much of the forget set a subject still expresses in one format, between `retrained` (0) and `target` (1).

Axes: N items, M control seeds. Scores are shares in [0, 1], one an item (a hit, a probability), or bits: log2 of the
answer's probability. Every number is about the subject beyond models that never knew, under the same conditions.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vestige.metrics.contrasts import Draws, Quantity, Sample, known_ratio_draws, mean_draws, ratio_draws
from vestige.metrics.trainings import SeedPrior

_SHARE = (-1.0, 1.0)


@dataclass(frozen=True)
class Controls:
    """One format's scale: item scores of `target` and of each `retrained` seed, and how the items were drawn.

    `format` names it, and with it the seeds' noise: what is computed in one format moves together.
    """

    format: str
    target: Float[np.ndarray, " N"]
    retrained: Float[np.ndarray, "M N"]
    sample: Sample
    prior: SeedPrior

    @property
    def gap(self) -> Quantity:
        """Target minus retrained: the ruler that leakage is measured with."""
        return Quantity(np.asarray(self.target, dtype=float), np.asarray(self.retrained, dtype=float), _SHARE)


def admission(controls: Controls) -> Draws:
    """Target minus retrained, in shares: a format is admitted where its low end exceeds `Thresholds.admission`.

    The statement is about this target, whatever another training would have made of it.
    """
    return mean_draws(controls.gap, controls.sample, controls.prior, name=controls.format, trained=False)


def admission_vs_chance(controls: Controls) -> Draws:
    """The same where nothing was retrained and `controls.retrained` is what guessing scores, without seeds.

    It is known on each item, so that differences lie in [-max(chance), 1 - min(chance)].
    """
    chance = controls.gap.control
    quantity = controls.gap._replace(bounds=(-float(chance.max()), 1 - float(chance.min())))
    return mean_draws(quantity, controls.sample, None, name=controls.format, trained=False)


def excess(subject: Float[np.ndarray, " N"], controls: Controls) -> Draws:
    """E in shares: the mean score of the subject less that of `retrained` (over its seeds)."""
    quantity = Quantity(np.asarray(subject, dtype=float), controls.gap.control, _SHARE)
    return mean_draws(quantity, controls.sample, controls.prior, name=controls.format)


def leakage(subject: Float[np.ndarray, " N"], controls: Controls) -> Draws:
    """(subject - retrained) / (target - retrained): 0 is `retrained`, 1 is `target`. Below 0 is over-forgetting.

    Its ends hold for true values from 0 to 1; an admitted format is what makes the scale worth dividing by.
    """
    quantity = Quantity(np.asarray(subject, dtype=float), controls.gap.control, _SHARE)
    return ratio_draws(quantity, controls.gap, controls.sample, controls.prior, name=controls.format)


def leakage_vs_chance(
    subject: Float[np.ndarray, " N"],
    target: Float[np.ndarray, " N"],
    chance: Float[np.ndarray, " N"],
    sample: Sample,
) -> Draws:
    """(subject - chance) / (target - chance), `chance` being what guessing scores on each item.

    Another metric than `leakage`: a model that never knew may do better than chance, so the two are never mixed.
    Chance has no seeds, so none are counted, and is known on each item: differences lie in [-max(chance), 1 -
    min(chance)], so that no hit against a chance of 0 is 0 at least.
    """
    subject, target = np.asarray(subject, dtype=float), np.asarray(target, dtype=float)
    return known_ratio_draws(subject, target, np.asarray(chance, dtype=float), sample, name="chance")


def excess_bits(
    subject: Float[np.ndarray, " N"], retrained: Float[np.ndarray, "M N"], sample: Sample, prior: SeedPrior
) -> Draws:
    """E in bits an answer: mean of log2 p(answer) on the subject less the same on `retrained` (over its seeds)."""
    quantity = Quantity(np.asarray(subject, dtype=float), np.asarray(retrained, dtype=float), None)
    return mean_draws(quantity, sample, prior, name="bits")


def difference(first: Float[np.ndarray, " N"], second: Float[np.ndarray, " N"], controls: Controls) -> Draws:
    """The first subject's leakage less the second's: of these two models, on the same items."""
    apart = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    quantity = Quantity(apart, np.zeros((1, len(apart))), _SHARE)
    return ratio_draws(quantity, controls.gap, controls.sample, None, name="difference")
