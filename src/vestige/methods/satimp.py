"""SatImp: ascent weighted by saturation and importance, strongest on tokens that are likely but not certain."""

from typing import ClassVar

from pydantic import NonNegativeFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class SatImp(Settings):
    """Mean over the forget answers' tokens of p^beta1 (1 - p)^beta2 log p, plus retain_weight NLL(retain).

    The weight is constant. It is largest at p = beta1 / (beta1 + beta2): 0.067 at p = 5/6 for the defaults, so that the
    term is small next to GA's. Both 0 with retain_weight 1 is GD. This follows the paper's abstract and the code's
    formula and retain weight, with beta1 and beta2 from the authors' contribution to OpenUnlearning, whose
    configuration has had the weights of the two terms swapped. The paper sums over tokens. The code takes the mean.
    """

    paper: ClassVar[str] = "Yang et al., Exploring Criteria of Loss Reweighting, 2505.11953"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget", "retain"}))
    version: ClassVar[int] = 1

    beta1: NonNegativeFloat = 5.0
    """Saturation: exponent of p. Higher leaves out tokens that are already unlikely."""
    beta2: NonNegativeFloat = 1.0
    """Importance: exponent of 1 - p. Higher leaves out tokens that are nearly certain."""
    retain_weight: float = 0.1
    """Weight of NLL(retain)."""

    def terms(self, step: Step) -> Terms:
        forget, retain = step.policy("forget"), step.policy("retain")
        ascent = losses.weighted_ascent(
            forget.logp, forget.mask, saturation=self.beta1, importance=self.beta2, n_tokens=forget.n_tokens
        )
        return {
            "forget": ascent,
            "retain": self.retain_weight * losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens),
        }
