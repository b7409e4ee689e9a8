"""One training run: what is minimised, on which rows, in which order, and where its state is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from vestige import losses
from vestige.training.batching import Plan, RowSource
from vestige.training.checkpoints import Checkpoints
from vestige.training.parallel import ALONE, World
from vestige.training.settings import TrainingSettings
from vestige.training.step import Needs, Objective, ReferenceRow, Step


@dataclass(frozen=True)
class Job:
    """What `train` is given besides the model. `layer` is the block that an objective on activations reads.

    `world` says who trains it together: a matter of speed and memory, and no part of what comes out.
    """

    objective: Objective
    rows: RowSource
    plan: Plan
    settings: TrainingSettings
    seed: int
    checkpoints: Checkpoints
    log: Path
    references: Mapping[str, ReferenceRow] = field(default_factory=dict)
    layer: int | None = None
    world: World = ALONE


@dataclass(frozen=True)
class Finetune:
    """NLL(train), mean over the tokens of the effective batch."""

    needs: ClassVar[Needs] = Needs(policy=frozenset({"train"}))

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        train = step.policy("train")
        return {"train": losses.nll(train.logp, train.mask, n_tokens=train.n_tokens)}
