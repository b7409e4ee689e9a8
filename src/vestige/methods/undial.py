"""UNDIAL: self-distillation towards the reference with the answer's tokens made less likely."""

from typing import ClassVar

from pydantic import PositiveFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class UNDIAL(Settings):
    """Cross-entropy with the reference's forget answers, each answer token's logit lowered by beta. No retain term.

    `beta` is in nats. The authors name 3, 10 and 30, and use 10 in OpenUnlearning. Their code counts every position.
    OpenUnlearning's code also trains on prompt and padding and lowers token V - 100 there, to which the ignore label
    -100 points. Here only answers count.
    """

    paper: ClassVar[str] = "Dong et al., UNDIAL: Self-Distillation with Adjusted Logits, 2402.10052"
    needs: ClassVar[Needs] = Needs(distributions=frozenset({"forget"}))
    version: ClassVar[int] = 1

    beta: PositiveFloat = 10.0
    """By how many nats the logit of each answer token is lowered."""

    def terms(self, step: Step) -> Terms:
        policy, reference = step.policy_distributions("forget"), step.reference_distributions("forget")
        undial = losses.undial(
            policy.logp, reference.logp, policy.tokens, policy.mask, beta=self.beta, n_tokens=policy.n_tokens
        )
        return {"undial": undial}
