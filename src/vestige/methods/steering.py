"""Where a method on activations reads and trains, and the directions that it steers to.

Axes: B rows, D hidden width. Blocks are numbered from 0.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import losses
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.training.step import Activations, Layers

PAPER_LAYER = 7
"""The block that RMU's authors read in Zephyr-7B (32 blocks), training it and the two below."""


def chosen_layers(
    layer: int | None, update: tuple[int, ...] | None, parameters: tuple[str, ...], n_blocks: int
) -> Layers:
    """The block that is read and those that are trained, the paper's where they are not named.

    The paper's block is a quarter of the way up its model. Where that lies beyond the middle, the middle one is read:
    block 1 of 3, 4 of 8, 7 from 14 blocks on. A block above the one that is read would get no gradient, so it is
    refused.
    """
    read = min(PAPER_LAYER, n_blocks // 2) if layer is None else layer
    trained = tuple(range(max(0, read - 2), read + 1)) if update is None else tuple(sorted(set(update)))
    if not 0 <= read < n_blocks:
        raise InputError(f"rmu.layer = {read}: the model has blocks 0 to {n_blocks - 1}; choose one of them")
    if not trained or trained[0] < 0 or trained[-1] > read:
        raise InputError(
            f"rmu.update_layers = {list(trained)}: only blocks 0 to {read}, the one that is read, can learn from it; "
            "choose among them, or raise rmu.layer"
        )
    return Layers(read, trained, parameters)


def steered(read: Activations, steering: float, seed: int) -> Float[Tensor, "B T D"]:
    """Where each token is steered to: `steering` times the direction of its row's topic."""
    width = read.hidden.shape[-1]
    directions = {topic: direction(topic, width=width, seed=seed) for topic in sorted(set(read.topics))}
    towards = steering * torch.stack([directions[topic] for topic in read.topics])
    return towards.to(read.hidden).unsqueeze(1).expand_as(read.hidden)


def direction(topic: str, *, width: int, seed: int) -> Float[Tensor, " D"]:
    """The unit vector of a topic: entries uniform on [0, 1) before it is normalised, as in RMU's paper."""
    vector = torch.from_numpy(generator(seed, "steering direction", topic).random(width))
    unit: Tensor = vector / vector.norm()
    return unit


def distance(read: Activations, target: Float[Tensor, "B T D"]) -> Float[Tensor, ""]:
    """How far what was read is from `target`."""
    return losses.activation_distance(read.hidden, target, read.mask, n_rows=read.n_rows)
