"""Quantisation: the weights of a model's blocks, rounded to 8 or 4 bits. What fine differences hid may come back.

Weight-only, round to nearest, symmetric, in place. The rounded values are kept in the model's own number format, so
that nothing more changes. With w the weights of one scale and q = 2^(bits - 1) - 1 (127 or 7):

    s = max |w| / q        w' = s * clip(round(w / s), -q, q)        computed in float32; round half to even

In 8 bits a scale belongs to an output channel. In 4 bits to GROUP weights of one that follow each other along the
inputs, the last group being the rest. NF4 (T. Dettmers et al., QLoRA, 2305.14314) has s = max |w| and w' = s times the
nearest of 16 levels that a normal weight is as likely to be near. Its groups run on through the whole matrix, as in
bitsandbytes. Rounding to 4 bits can restore unlearned knowledge: Z. Zhang et al., Catastrophic failure of LLM
unlearning via quantization, 2410.16454.

Axes: O outputs, I inputs, N groups, G weights of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from vestige.attacks.planning import GIVEN, NOTHING, Attack, AttackSettings, Ended, Splits, Work
from vestige.core.errors import InputError

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor, nn
    from transformers import PreTrainedModel
    from transformers.pytorch_utils import Conv1D

    from vestige.models.load import LoadedModel

Bits = Literal["nf4", 4, 8]
# The block size of QLoRA and bitsandbytes, so that NF4 matches theirs bit for bit.
GROUP = 64
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634),
    *(0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""The levels of 4-bit NormalFloat, as bitsandbytes has them (`create_normal_map`, appendix E of the paper)."""


class QuantizeSettings(AttackSettings):
    """Round the weights without calibration data. Every forget item is tested."""

    kind: ClassVar[str] = "quantize"
    amount: ClassVar[str] = "bits"
    weights: ClassVar[str] = "rounded weights"

    bits: Bits = 4
    """Bits of a weight; nf4 has QLoRA's 16 levels."""

    @property
    def called(self) -> str:
        """Return the name, which contains the number of bits."""
        if self.bits == "nf4":
            return "quantize nf4"
        return f"quantize {self.bits} bits"

    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Nothing is random, so the seed has no effect."""
        return self.at_once(self.kind, splits)

    def run(self, work: Work, loaded: LoadedModel) -> Ended:
        """Round and ask."""
        done = quantize(loaded.model, self.bits)
        work.ask(GIVEN, lambda: loaded, work.on_progress)
        notes = {"matrices_rounded": done.n_matrices, "weights_rounded": done.n_weights, "error": done.relative_error}
        return Ended({"nothing shown": 0.0}, NOTHING, NOTHING, notes)


class Rounded(NamedTuple):
    """The number of rounded matrices and weights, and the relative root mean square change."""

    n_matrices: int
    n_weights: int
    relative_error: float


def rounded(weight: Float[Tensor, "O I"], bits: Bits) -> Float[Tensor, "O I"]:
    """Return the weights rounded to their nearest levels, in their own number format. A scale of zeros leaves zeros."""
    from torch.nn.functional import pad

    if bits == "nf4":
        rows = weight.float().reshape(1, -1)
    else:
        rows = weight.float()
    group = GROUP
    if bits == 8:
        group = rows.shape[1]
    # The last group is padded with zeros, which change no scale.
    parts = pad(rows, (0, -rows.shape[1] % group)).reshape(-1, group)
    if bits == "nf4":
        near = _nearest_nf4(parts)
    else:
        near = _nearest(parts, 2 ** (bits - 1) - 1)
    return near.view(len(rows), -1)[:, : rows.shape[1]].reshape(weight.shape).to(weight.dtype)


def _nearest(parts: Float[Tensor, "N G"], top: int) -> Float[Tensor, "N G"]:
    import torch

    scale = parts.abs().amax(dim=1, keepdim=True) / top
    levels = torch.where(scale > 0, parts / scale, 0.0).round().clamp(-top, top)
    return levels * scale


def _nearest_nf4(parts: Float[Tensor, "N G"]) -> Float[Tensor, "N G"]:
    import torch

    levels = torch.tensor(NF4, device=parts.device)
    scale = parts.abs().amax(dim=1, keepdim=True)
    # Midpoints between levels are compared: distances to all 16 levels would take 16 times the memory.
    nearest = torch.bucketize(torch.where(scale > 0, parts / scale, 0.0), (levels[1:] + levels[:-1]) / 2)
    return levels[nearest] * scale


def quantize(model: PreTrainedModel, bits: Bits) -> Rounded:
    """Round every matrix of a linear layer inside the blocks, in place. Embeddings, head and norms stay as they are."""
    import torch
    from transformers.pytorch_utils import Conv1D

    layers = linear_layers(model)
    n_weights = 0
    squares = errors = 0.0
    for module in layers:
        # GPT-2's layers store inputs first.
        turned = isinstance(module, Conv1D)
        if turned:
            weight = module.weight.T
        else:
            weight = module.weight
        with torch.no_grad():
            near = rounded(weight, bits)
            errors += float((near.float() - weight.float()).square().sum())
            squares += float(weight.float().square().sum())
            module.weight.copy_(near.T if turned else near)
        n_weights += weight.numel()
    return Rounded(len(layers), n_weights, (errors / squares) ** 0.5 if squares else 0.0)


def linear_layers(model: PreTrainedModel) -> list[nn.Linear | Conv1D]:
    """Return the linear layers inside the blocks. Raise InputError if most weights are elsewhere, as in fused experts.

    An attack that leaves most weights unchanged would make the model look resistant.
    """
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    from vestige.models.blocks import blocks

    layers = [m for m in blocks(model).modules() if isinstance(m, nn.Linear | Conv1D)]
    parameters = {id(p): p.numel() for p in blocks(model).parameters()}
    whole = sum(parameters.values())
    within = 0
    for layer in layers:
        # A matrix that two layers share counts once.
        within += sum(parameters.pop(id(p), 0) for p in layer.parameters())
    if 2 * within <= whole:
        raise InputError(
            f"{whole - within:,} of the {whole:,} weights of the blocks of this {type(model).__name__} are in no "
            "linear layer, and those alone are changed. Leave this attack out"
        )
    return layers
