"""NPO + KL: negative preference optimisation, while the distributions on what to keep stay the reference's."""

from typing import ClassVar, Literal

from pydantic import PositiveFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class NPOKL(Settings):
    """NPO(forget) + kl_weight KL(policy || reference) on the retain answers' positions.

    The reverse direction is the paper's (Section 2). The released code has the forward one, KL(reference || policy),
    as our `kl` has: direction = "forward". The code also counts prompt and padding, here only answers count.
    """

    paper: ClassVar[str] = "Zhang et al., Negative Preference Optimization, 2404.05868, Eq. 3 and Section 2"
    needs: ClassVar[Needs] = Needs(frozenset({"forget"}), frozenset({"forget"}), frozenset({"retain"}))
    version: ClassVar[int] = 2

    beta: PositiveFloat = 0.1
    """Inverse temperature. Towards 0 the gradient approaches gradient ascent."""
    kl_weight: float = 1.0
    """Weight of KL between policy and reference on retain."""
    direction: Literal["reverse", "forward"] = "reverse"
    """Direction of KL: reverse is KL(policy || reference), forward the other."""

    def terms(self, step: Step) -> Terms:
        forget, frozen = step.policy("forget"), step.reference("forget")
        logp = losses.row_logp(forget.logp, forget.mask), losses.row_logp(frozen.logp, frozen.mask)
        policy, reference = step.policy_distributions("retain"), step.reference_distributions("retain")
        # `losses.kl(a, b)` is KL(b || a): with its arguments exchanged it gives the reverse direction.
        pair = (policy.logp, reference.logp) if self.direction == "forward" else (reference.logp, policy.logp)
        return {
            "npo": losses.npo(*logp, beta=self.beta, n_rows=forget.n_rows),
            "kl": self.kl_weight * losses.kl(*pair, policy.mask, n_tokens=policy.n_tokens),
        }
