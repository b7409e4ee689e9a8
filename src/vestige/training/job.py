"""One training run: what is minimised, on which rows, in which order, and where its state is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vestige.training.batching import Plan, RowSource
from vestige.training.checkpoints import Checkpoints
from vestige.training.parallel import ALONE, World
from vestige.training.settings import TrainingSettings
from vestige.training.step import Objective, ReferenceRow


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
