"""WGA: weighted gradient ascent, which leaves alone the tokens that are already forgotten."""

from typing import ClassVar

from pydantic import NonNegativeFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class WGA(Settings):
    """Mean over the forget answers' tokens of p^alpha log p, the weight p^alpha held constant. Nothing to keep.

    alpha 0 is GA. Alpha 1 cancels the 1 / p of its gradient. The paper sums over an answer's tokens. Its code takes the
    mean over all tokens, and so do we. OpenUnlearning calls alpha beta and adds NLL(retain) with weight 1.
    """

    paper: ClassVar[str] = "Wang et al., Rethinking LLM Unlearning Objectives: A Gradient Perspective, 2502.19301"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget"}))
    version: ClassVar[int] = 1

    alpha: NonNegativeFloat = 1.0
    """Exponent of the weight p^alpha; 0 is GA."""

    def terms(self, step: Step) -> Terms:
        forget = step.policy("forget")
        ascent = losses.weighted_ascent(
            forget.logp, forget.mask, saturation=self.alpha, importance=0.0, n_tokens=forget.n_tokens
        )
        return {"forget": ascent}
