"""CE-U: cross-entropy unlearning, towards the model's own distribution over all tokens but the answer's."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class CEU(Settings):
    """Mean over the forget answers' tokens of -log(1 - p). Nothing to keep, no reference and nothing to set.

    The paper draws the model to its own distribution with the answer's token ruled out, held constant: the gradient is
    this one's. It neither vanishes where p is near 1, as GA's does, nor grows where p is small. The released code
    leaves out each answer's first token. Here all count.
    """

    paper: ClassVar[str] = "Yang, CE-U: Cross Entropy Unlearning, 2503.01224"
    needs: ClassVar[Needs] = Needs(policy_distributions=frozenset({"forget"}))
    version: ClassVar[int] = 1

    def terms(self, step: Step) -> Terms:
        policy = step.policy_distributions("forget")
        return {"ce_u": losses.ce_u(policy.logp, policy.tokens, policy.mask, n_tokens=policy.n_tokens)}
