"""RMU: one block's activations are steered to a random direction on what to forget, and held on what to keep."""

from typing import ClassVar

from pydantic import Field

from vestige.methods.base import Needs, Step, Terms
from vestige.methods.steering import BlockSettings, distance, steered


class RMU(BlockSettings):
    """mean (h - steering u)^2 on forget + alpha mean (h - h_ref)^2 on retain, h the output of one block.

    The means are over rows, tokens (including the question's) and the width. The paper sums over the width. u is one
    unit vector per topic, uniform on [0, 1) before normalisation. The defaults are the paper's for Zephyr-7B. Its
    values for Yi-34B are 300, 350 and block 15. The authors' code has 20 and 100 and counts padding. OpenUnlearning has
    2 and 1, trains all weights, and divides by the wrong axis. Choose a steering length above the usual length of the
    hidden states: on the tiny model, where it is 12, steering and alpha of 30 (2e-3, 40 epochs) forget five contracts
    and keep 0.96 of the rest.
    """

    paper: ClassVar[str] = "Li et al., The WMDP Benchmark, 2403.03218, Section 4"
    needs: ClassVar[Needs] = Needs(
        activations=frozenset({"forget", "retain"}), reference_activations=frozenset({"retain"})
    )
    version: ClassVar[int] = 1

    steering: float = Field(6.5, description="Length of the vector that activations on forget are steered to.")
    alpha: float = Field(1200.0, description="Weight of the distance to the reference's activations on retain.")
    steering_seed: int = Field(0, description="Seed of the steering direction.")

    def terms(self, step: Step) -> Terms:
        forget, retain = step.activations("forget"), step.activations("retain")
        away = distance(forget, steered(forget, self.steering, self.steering_seed))
        drift = distance(retain, step.reference_activations("retain").hidden)
        return {"forget": away, "retain": self.alpha * drift}
