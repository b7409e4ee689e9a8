"""RR: turn one block's hidden states away on the forget set, and hold them on the retain set."""

from typing import ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from vestige import losses
from vestige.core.text import NumberMapping
from vestige.methods.base import Needs, Step, Terms
from vestige.methods.steering import BOTH, BlockSettings


class RR(BlockSettings):
    """(1 - s) alpha mean max(0, cos(h, h_ref)) on forget + s alpha mean |h - h_ref| on retain, s = step / schedule.

    Circuit breakers. The authors read blocks 10 and 20 of 32 on forget and all blocks on retain (their mean counts
    padding), and train all lower blocks with rank 16, 150 steps of 16 rows, a rate of 1e-4 and an alpha of 5. Here one
    block is read. Start at the full rate (warmup_epochs=0): later the norm's corner at h_ref keeps states in place.
    """

    paper: ClassVar[str] = "Zou et al., Alignment and Robustness with Circuit Breakers, 2406.04313, Algorithm 1"
    needs: ClassVar[Needs] = Needs(activations=BOTH, reference_activations=BOTH)
    version: ClassVar[int] = 1

    alpha: PositiveFloat = Field(10.0, description="Weight of both terms together.")
    schedule: PositiveInt = Field(300, description="Steps in which all weight passes to what is kept; twice the run's.")

    def start(self) -> dict[str, float]:
        return {"step": 1.0}

    def advance(self, state: NumberMapping, observed: NumberMapping) -> dict[str, float]:
        return {"step": state["step"] + 1}

    def terms(self, step: Step) -> Terms:
        share = min(1.0, step.state["step"] / self.schedule)
        forget, retain = step.activations("forget"), step.activations("retain")
        before = {split: step.reference_activations(split).hidden for split in BOTH}
        away = losses.rerouting(forget.hidden, before["forget"], forget.mask, n_rows=forget.n_rows)
        drift = losses.activation_norm(retain.hidden, before["retain"], retain.mask, n_rows=retain.n_rows)
        return {"forget": self.alpha * (1 - share) * away, "retain": self.alpha * share * drift}
