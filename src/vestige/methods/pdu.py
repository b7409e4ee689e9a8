"""PDU: flatten the distributions on what to forget, with a multiplier that holds the loss on what to keep."""

from typing import ClassVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from vestige import losses
from vestige.core.text import NumberMapping
from vestige.methods.base import Needs, Settings, Step, Terms


class PDU(Settings):
    """mean (max - mean logit)^2 on forget + dual NLL(retain). Then dual += dual_rate (NLL(retain) - bound), from 0 up.

    Set `bound` above the target's NLL. `hold_steps` is the paper's warm-up. All tokens count alike, as in the paper's
    code. Its text averages each answer's tokens first.
    """

    paper: ClassVar[str] = "Entesari et al., Constrained Entropic Unlearning, 2506.05314"
    needs: ClassVar[Needs] = Needs(policy=frozenset({"retain"}), policy_distributions=frozenset({"forget"}))
    version: ClassVar[int] = 1

    bound: NonNegativeFloat = Field(0.3, description="Highest NLL(retain) that is admitted, in nats per token.")
    dual: NonNegativeFloat = Field(100.0, description="Multiplier of NLL(retain) at the start.")
    dual_rate: NonNegativeFloat = Field(5.0, description="Change of the multiplier a step, per nat beyond the bound.")
    hold_steps: NonNegativeInt = Field(0, description="Steps before the multiplier begins to change.")

    def start(self) -> dict[str, float]:
        return {"dual": self.dual, "steps": 0.0}

    def advance(self, state: NumberMapping, observed: NumberMapping) -> dict[str, float]:
        excess = observed["retain_nll"] - self.bound if state["steps"] >= self.hold_steps else 0.0
        return {"dual": max(0.0, state["dual"] + self.dual_rate * excess), "steps": state["steps"] + 1}

    def terms(self, step: Step) -> Terms:
        forget, retain = step.policy_distributions("forget"), step.policy("retain")
        nll = losses.nll(retain.logp, retain.mask, n_tokens=retain.n_tokens)
        step.observe("retain_nll", nll)
        margin = losses.logit_margin(forget.logp, forget.mask, n_tokens=forget.n_tokens)
        return {"flatten": margin, "retain": step.state["dual"] * nll}
