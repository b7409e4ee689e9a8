"""SimNPO: negative preference optimisation without a reference, on length-normalised answers."""

from typing import ClassVar

from pydantic import PositiveFloat

from vestige import losses
from vestige.methods.base import Needs, Settings, Step, Terms


class SimNPO(Settings):
    """forget_weight x -(2 / beta) mean log sigmoid(-beta mean logp per token - gamma) + retain_weight NLL(retain).

    The retain weight is the paper's lambda (Eq. 1, searched in 0.05 to 0.25), beta and lambda come from the authors'
    model card for TOFU forget05. Their command, with 0.1375 on the forget term and 1 on the other, weighs the two 53
    times otherwise: forget_weight = 0.1375, retain_weight = 1. Their code takes `gamma` times beta, the paper as here.
    Their WMDP configuration has another loss, NPO on a mean over tokens.
    """

    paper: ClassVar[str] = "Fan et al., Simplicity Prevails: Rethinking NPO for LLM Unlearning, 2410.07163, Eq. 4"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"forget", "retain"}))
    version: ClassVar[int] = 2

    beta: PositiveFloat = 2.5
    """Inverse temperature, on the mean log-probability per token."""
    gamma: float = 0.0
    """Margin that is subtracted within the sigmoid."""
    forget_weight: float = 1.0
    """Weight of the term on the answers to forget."""
    retain_weight: float = 0.1375
    """Weight of NLL(retain)."""

    def terms(self, step: Step) -> Terms:
        forget, retain = step.policy("forget"), step.policy("retain")
        simnpo = losses.simnpo(forget.logp, forget.mask, beta=self.beta, gamma=self.gamma, n_rows=forget.n_rows)
        return {
            "simnpo": self.forget_weight * simnpo,
            "retain": self.retain_weight * losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens),
        }
