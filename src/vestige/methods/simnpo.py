"""SimNPO: negative preference optimisation without a reference, on length-normalised answers."""

from typing import ClassVar

from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor

from vestige import losses
from vestige.methods.base import Needs, Settings, Step


class SimNPO(Settings):
    """forget_weight x -(2 / beta) mean log sigmoid(-beta mean logp per token - gamma) + retain_weight NLL(retain).

    Defaults are those of the released command for TOFU forget05. Its authors' model card puts the 0.1375 on the
    retain term instead; the code that made the model has it here. `gamma` stands as in the paper, not times beta.
    """

    paper: ClassVar[str] = "Fan et al., Simplicity Prevails: Rethinking NPO for LLM Unlearning, 2410.07163, Eq. 4"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget", "retain"}))
    version: ClassVar[int] = 1

    beta: PositiveFloat = 2.5
    gamma: float = 0.0
    forget_weight: float = 0.1375
    retain_weight: float = 1.0

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        forget, retain = step.policy("forget"), step.policy("retain")
        simnpo = losses.simnpo(forget.logp, forget.mask, beta=self.beta, gamma=self.gamma, n_rows=forget.n_rows)
        return {
            "simnpo": self.forget_weight * simnpo,
            "retain": self.retain_weight * losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens),
        }
