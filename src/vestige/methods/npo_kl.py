"""NPO + KL: negative preference optimisation, while the distributions on what to keep stay the reference's."""

from typing import ClassVar

from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor

from vestige import losses
from vestige.methods.base import Needs, Settings, Step


class NPOKL(Settings):
    """NPO(forget) + kl_weight KL(reference || policy) on the retain answers' positions.

    The direction is the released code's, and that of our `kl`; the paper's Section 2 writes KL(policy || reference).
    The code also counts prompt and padding.
    """

    paper: ClassVar[str] = "Zhang et al., Negative Preference Optimization, 2404.05868, Eq. 3 and Section 2"
    needs: ClassVar[Needs] = Needs(frozenset({"forget"}), frozenset({"forget"}), frozenset({"retain"}))
    version: ClassVar[int] = 1

    beta: PositiveFloat = 0.1
    kl_weight: float = 1.0

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        forget, frozen = step.policy("forget"), step.reference("forget")
        logp = losses.row_logp(forget.logp, forget.mask), losses.row_logp(frozen.logp, frozen.mask)
        policy, reference = step.policy_distributions("retain"), step.reference_distributions("retain")
        kl = losses.kl(policy.logp, reference.logp, policy.mask, n_tokens=policy.n_tokens)
        return {
            "npo": losses.npo(*logp, beta=self.beta, n_rows=forget.n_rows),
            "kl": self.kl_weight * kl,
        }
