"""RMU: one block's activations are steered to a random direction on what to forget, and held on what to keep.

Axes: B rows, D hidden width. Blocks are numbered from 0.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from vestige import losses
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.methods.base import Layers, Needs, Settings, Step, Terms
from vestige.training.step import Activations

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
    drawn = {topic: direction(topic, width=width, seed=seed) for topic in sorted(set(read.topics))}
    towards = steering * torch.stack([drawn[topic] for topic in read.topics])
    return towards.to(read.hidden).unsqueeze(1).expand_as(read.hidden)


def direction(topic: str, *, width: int, seed: int) -> Float[Tensor, " D"]:
    """The unit vector of a topic: entries uniform on [0, 1) before it is normalised, as in RMU's paper."""
    drawn = torch.from_numpy(generator(seed, "steering direction", topic).random(width))
    unit: Tensor = drawn / drawn.norm()
    return unit


def distance(read: Activations, target: Float[Tensor, "B T D"]) -> Float[Tensor, ""]:
    """How far what was read is from `target`."""
    return losses.activation_distance(read.hidden, target, read.mask, n_rows=read.n_rows)


class RMU(Settings):
    """mean (h - steering u)^2 on forget + alpha mean (h - h_ref)^2 on retain, h the output of one block.

    Means over rows, a row's tokens (the question's too) and the width; the paper sums over the width, a factor on both
    terms. u is one unit vector a topic, its entries uniform on [0, 1) before it is normalised. Trained are `parameters`
    (the MLP's output projection) of `update_layers` (`layer` and the two below). The defaults are the paper's for
    Zephyr-7B; Yi-34B had 300, 350 and block 15, the code's own are 20 and 100, and it counts padding. OpenUnlearning
    has 2 and 1, trains everything, and divides by the wrong axis.
    """

    paper: ClassVar[str] = "Li et al., The WMDP Benchmark, 2403.03218, Section 4"
    needs: ClassVar[Needs] = Needs(
        activations=frozenset({"forget", "retain"}), reference_activations=frozenset({"retain"})
    )
    version: ClassVar[int] = 1

    steering: float = 6.5
    alpha: float = 1200.0
    layer: int | None = None
    update_layers: tuple[int, ...] | None = None
    parameters: tuple[str, ...] | None = None
    steering_seed: int = 0

    def layers(self, n_blocks: int, output_projection: str) -> Layers:
        return chosen_layers(self.layer, self.update_layers, self.parameters or (output_projection,), n_blocks)

    def terms(self, step: Step) -> Terms:
        forget, retain = step.activations("forget"), step.activations("retain")
        away = distance(forget, steered(forget, self.steering, self.steering_seed))
        held = distance(retain, step.reference_activations("retain").hidden)
        return {"forget": away, "retain": self.alpha * held}
