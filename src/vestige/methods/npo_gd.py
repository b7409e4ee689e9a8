"""NPO + GD: negative preference optimisation on what to forget, descent on what to keep."""

from typing import ClassVar

from pydantic import PositiveFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class NPOGD(Settings):
    """NPO(forget) + retain_weight NLL(retain): the paper's NPO+RT.

    NPO sums over an answer's tokens and NLL is a mean over tokens, as in the released code. The paper writes the retain
    term as a sum too, which weighs it more by the length of an answer.
    """

    paper: ClassVar[str] = "Zhang et al., Negative Preference Optimization, 2404.05868, Eq. 3 and Section 4.1"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget", "retain"}), reference=frozenset({"forget"}))
    version: ClassVar[int] = 1

    beta: PositiveFloat = 0.1
    """Inverse temperature. Towards 0 the gradient approaches gradient ascent."""
    retain_weight: float = 1.0
    """Weight of NLL(retain)."""

    def terms(self, step: Step) -> Terms:
        forget, frozen, retain = step.policy("forget"), step.reference("forget"), step.policy("retain")
        logp = losses.row_logp(forget.logp, forget.mask), losses.row_logp(frozen.logp, frozen.mask)
        return {
            "npo": losses.npo(*logp, beta=self.beta, n_rows=forget.n_rows),
            "retain": self.retain_weight * losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens),
        }
