"""The blocks that methods on activations read and train, and their steering directions.

Axes: B rows, D hidden width. Blocks are numbered from 0.
"""

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from vestige import losses
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.training.batching import Split
from vestige.training.step import Activations, Layers

PAPER_LAYER = 7
"""The block that RMU's authors read in Zephyr-7B (32 blocks), training it and the two below."""
BOTH: frozenset[Split] = frozenset({"forget", "retain"})


class BlockSettings(Settings):
    """Settings of a method on activations: its block, and the trained parameters."""

    layer: int | None = Field(None, description="Block that is read, from 0; by default 7, or a shallow one's middle.")
    update_layers: tuple[int, ...] | None = Field(None, description="Trained blocks; by default `layer` and two below.")
    parameters: tuple[str, ...] | None = Field(None, description="Modules trained there; default: the MLP's last one.")

    def layers(self, n_blocks: int, output_projection: str) -> Layers:
        """The block that is read and those that are trained, RMU's where they are not named.

        Its paper's block is a quarter of the way up the model. If that is beyond the middle, the middle one is read:
        block 1 of 3, 4 of 8, 7 from 14 blocks on. A block above the one that is read would get no gradient, so it is
        refused.
        """
        if self.layer is None:
            read = min(PAPER_LAYER, n_blocks // 2)
        else:
            read = self.layer
        # Blocks below the first are left out: an early block that is read may have fewer than two below it.
        update = range(max(0, read - 2), read + 1) if self.update_layers is None else self.update_layers
        trained = tuple(sorted(set(update)))
        if not 0 <= read < n_blocks:
            raise InputError(f"layer = {read}: the model has blocks 0 to {n_blocks - 1}. Choose another block")
        if not trained or trained[0] < 0 or trained[-1] > read:
            raise InputError(
                f"update_layers = {list(trained)}: only blocks 0 to {read}, the one that is read, can learn from it. "
                "Choose among them, or raise layer"
            )
        return Layers(read, trained, self.parameters or (output_projection,))


def steered(read: Activations, steering: float, seed: int) -> Float[Tensor, "B T D"]:
    """Return each token's steering target: `steering` times the direction of its row's topic."""
    width = read.hidden.shape[-1]
    # Drawn again at each step, since they follow from seed and topic: a resumed run has nothing to take up.
    directions = {topic: direction(topic, width=width, seed=seed) for topic in sorted(set(read.topics))}
    towards = steering * torch.stack([directions[topic] for topic in read.topics])
    return towards.to(read.hidden).unsqueeze(1).expand_as(read.hidden)


def direction(topic: str, *, width: int, seed: int) -> Float[Tensor, " D"]:
    """The unit vector of a topic: entries uniform on [0, 1) before it is normalised, as in RMU's paper."""
    # By numpy, so that it is the same on every device.
    vector = torch.from_numpy(generator(seed, "steering direction", topic).random(width))
    unit: Tensor = vector / vector.norm()
    return unit


def distance(read: Activations, target: Float[Tensor, "B T D"]) -> Float[Tensor, ""]:
    """Return the distance of the hidden states from `target`."""
    return losses.activation_distance(read.hidden, target, read.mask, n_rows=read.n_rows)
