"""Quantisation: the weights of a model's blocks, rounded to 8 or 4 bits. What fine differences hid may come back.

Weight-only, round to nearest, symmetric, in place; the rounded values are kept in the model's own number format, so
that nothing else changes. With w the weights of one scale and q = 2^(bits - 1) - 1 (127 or 7):

    s = max |w| / q        w' = s * clip(round(w / s), -q, q)        computed in float32; round half to even

In 8 bits a scale belongs to an output channel; in 4 bits to GROUP weights of one that follow each other along the
inputs, the last group being the rest. These are whole-number levels and not the NF4 of QLoRA. That rounding to 4 bits
can bring back what was unlearned: Z. Zhang et al., Catastrophic failure of LLM unlearning via quantization, 2410.16454.

Axes: O outputs, I inputs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from vestige.attacks.planning import GIVEN, NOTHING, Attack, AttackSettings, Ended, Splits, Work
from vestige.core.errors import InputError
from vestige.models.blocks import blocks
from vestige.models.load import LoadedModel

Bits = Literal[4, 8]
GROUP = 64


class QuantizeSettings(AttackSettings):
    """Rounding the weights: nothing is shown, and every forget item is asked."""

    amount: ClassVar[str] = "bits"
    weights: ClassVar[str] = "rounded weights"

    bits: Bits = 4
    """Bits of a weight."""

    @property
    def called(self) -> str:
        """By the bits."""
        return f"quantize {self.bits} bits"

    @classmethod
    def in_audit(cls, asked: Mapping[str, Any]) -> Iterable[Self]:
        """One for each number of bits."""
        return [cls(bits=bits) for bits in asked["quantize"]]

    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Nothing is drawn, so the seed changes nothing."""
        return self.at_once("quantize", splits)

    def run(self, work: Work, loaded: LoadedModel) -> Ended:
        """Round and ask."""
        done = quantize(loaded.model, self.bits)
        work.ask(GIVEN, lambda: loaded, work.on_progress)
        notes = {
            "matrices_rounded": done.n_matrices,
            "weights_rounded": done.n_weights,
            "error": done.relative_error,
        }
        return Ended({"nothing shown": 0.0}, NOTHING, NOTHING, notes)


class Rounded(NamedTuple):
    """How many matrices and weights were rounded, and by how much in the root mean square, relative to the weights."""

    n_matrices: int
    n_weights: int
    relative_error: float


def rounded(weight: Float[Tensor, "O I"], bits: Bits) -> Float[Tensor, "O I"]:
    """The weights at their nearest levels, in their own number format. A scale of zeros leaves zeros."""
    group = weight.shape[1] if bits == 8 else GROUP
    parts = [_nearest(part.float(), 2 ** (bits - 1) - 1) for part in weight.split(group, dim=1)]
    return torch.cat(parts, dim=1).to(weight.dtype)


def _nearest(part: Float[Tensor, "O G"], top: int) -> Float[Tensor, "O G"]:
    scale = part.abs().amax(dim=1, keepdim=True) / top
    levels = torch.where(scale > 0, part / scale, 0.0).round().clamp(-top, top)
    return levels * scale


@torch.no_grad()
def quantize(model: PreTrainedModel, bits: Bits) -> Rounded:
    """Round every matrix of a linear layer inside the blocks, in place; embeddings, head and norms stay as they are.

    Refused, and nothing rounded, where most of the blocks' weights are in no linear layer, as with fused experts.
    """
    layers = [m for m in blocks(model).modules() if isinstance(m, nn.Linear | Conv1D)]
    _refuse_little(model, layers)
    n_matrices = n_weights = 0
    squares = errors = 0.0
    for module in layers:
        # GPT-2's layers keep inputs first.
        turned = isinstance(module, Conv1D)
        weight = module.weight.T if turned else module.weight
        near = rounded(weight, bits)
        errors += float((near.float() - weight.float()).square().sum())
        squares += float(weight.float().square().sum())
        module.weight.copy_(near.T if turned else near)
        n_matrices, n_weights = n_matrices + 1, n_weights + weight.numel()
    return Rounded(n_matrices, n_weights, (errors / squares) ** 0.5 if squares else 0.0)


def _refuse_little(model: PreTrainedModel, layers: Sequence[nn.Module]) -> None:
    """An attack that leaves most weights as they were would look like a model that withstands it."""
    reached = {id(p) for layer in layers for p in layer.parameters()}
    sizes = [(id(p) in reached, p.numel()) for p in blocks(model).parameters()]
    within, whole = sum(n for is_rounded, n in sizes if is_rounded), sum(n for _, n in sizes)
    if 2 * within <= whole:
        raise InputError(
            f"{whole - within:,} of the {whole:,} weights of the blocks of this {type(model).__name__} are in no "
            "linear layer, and those alone are rounded; leave this attack out"
        )
