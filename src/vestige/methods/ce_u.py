"""CE-U: cross-entropy unlearning, towards the model's own distribution over all tokens but the answer's."""

from typing import ClassVar

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class CEU(Settings):
    """Mean of -log(1 - p) over the tokens of the forget answers. No retain set, no reference, no settings.

    The paper trains the model towards its own distribution without the answer's token, held constant. That loss has the
    same gradient. It does not vanish near p = 1 as GA's does, and does not grow for small p. The released code leaves
    out each answer's first token. Here all tokens count.
    """

    paper: ClassVar[str] = "Yang, CE-U: Cross Entropy Unlearning, 2503.01224"
    needs: ClassVar[Needs] = Needs(policy_distributions=frozenset({"forget"}))
    version: ClassVar[int] = 1

    def terms(self, step: Step) -> Terms:
        policy = step.policy_distributions("forget")
        return {"ce_u": losses.ce_u(policy.logp, policy.tokens, policy.mask, n_tokens=policy.n_tokens)}
