"""Rows laid end to end in one pass: products with weights see all their tokens and no padding.

Attention alone is computed row by row, of rows of like length together. The model is given places that begin anew with
each row, and a mask that lets no row see another; where it asks torch for attention with that mask, it gets the same
from the rows apart. A model that computes its attention otherwise uses the mask, and is right too.

Axes: N tokens end to end, P the tokens of rows padded to their neighbours, H heads, W width of a head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from vestige.models.forward import passes_by_length
from vestige.models.products import OwnAttention

# A mask is a square of them.
MOST_TOKENS = 1024
# What an attention of its own costs, in tokens.
_ATTENTION_TOKENS = 32
# Attention of these is causal and full, and reads places as they are given.
_FAMILIES = ("llama", "mistral", "qwen2")


def can_pack(model: PreTrainedModel) -> bool:
    """Whether rows of this model may share a pass: a known family in float32 on a CPU, without a sliding window."""
    config = model.config
    windows = config.model_type == "mistral" and config.sliding_window is not None
    windows |= bool(getattr(config, "use_sliding_window", False))
    plain = config.model_type in _FAMILIES and not windows and config._attn_implementation == "sdpa"
    on_cpu = model.device.type == "cpu" and model.dtype == torch.float32
    return plain and on_cpu and not torch.is_autocast_enabled("cpu")


def packs(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of the rows of each pass, shortest first: one row, or at most `MOST_TOKENS` tokens."""
    found: list[list[int]] = [[]]
    room = MOST_TOKENS
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if found[-1] and lengths[i] > room:
            found.append([])
            room = MOST_TOKENS
        found[-1].append(i)
        room -= lengths[i]
    return found


@dataclass(frozen=True)
class Packed:
    """Where the tokens of rows end to end stand: in their row, and among rows padded to their neighbours.

    `shapes` are rows and width of each attention; `take` finds the tokens for them, one after another, where `real`
    says which are no padding, and `back` brings them end to end again.
    """

    places: Int[Tensor, "1 N"]
    mask: Bool[Tensor, "1 1 N N"]
    shapes: tuple[tuple[int, int], ...]
    take: Int[Tensor, " P"]
    real: Float[Tensor, "P 1"]
    back: Int[Tensor, " N"]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Packed":
        """Of rows of these lengths, in this order."""
        sizes = torch.tensor(lengths)
        starts = sizes.cumsum(0) - sizes
        owners = torch.repeat_interleave(torch.arange(len(lengths)), sizes)
        shapes, takes = [], []
        for rows in passes_by_length(lengths, pass_tokens=_ATTENTION_TOKENS):
            width = max(lengths[i] for i in rows)
            at = torch.arange(width)[None]
            takes.append(torch.where(at < sizes[rows][:, None], starts[rows][:, None] + at, -1).flatten())
            shapes.append((len(rows), width))
        take = torch.cat(takes)
        back = torch.empty(len(owners), dtype=torch.long)
        back[take[take >= 0]] = (take >= 0).nonzero()[:, 0]
        numbers = torch.arange(len(owners))
        mask = (owners[:, None] == owners[None]) & (numbers[:, None] >= numbers[None])
        places = numbers - starts[owners]
        real = (take >= 0).float()[:, None]
        return cls(places[None], mask[None, None], tuple(shapes), take.clamp(min=0), real, back)


class PackedAttention(OwnAttention):
    """Attention under the mask of `packed` is computed row by row."""

    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self._packed = packed

    def attend(self, *args: Any, **named: Any) -> Tensor:
        if not self._is_ours(named.get("attn_mask")):
            return scaled_dot_product_attention(*args, **named)
        return _apart(self._packed, args, {**named, "attn_mask": None, "is_causal": True})

    def _is_ours(self, mask: object) -> bool:
        own = self._packed.mask
        return isinstance(mask, Tensor) and (mask.data_ptr(), mask.shape) == (own.data_ptr(), own.shape)


def _apart(
    packed: Packed, args: Sequence[Float[Tensor, "1 H N W"]], named: Mapping[str, Any]
) -> Float[Tensor, "1 H N W"]:
    n_heads, n_tokens, width = args[0].shape[1:]
    sizes = [rows * tokens for rows, tokens in packed.shapes]
    given = [_Spread.apply(a[0].transpose(0, 1), packed).split(sizes) for a in args]  # type: ignore[no-untyped-call]
    found = []
    for (rows, tokens), *parts in zip(packed.shapes, *given, strict=True):
        heads = [p.view(rows, tokens, -1, width).transpose(1, 2) for p in parts]
        out = scaled_dot_product_attention(*heads, **named)
        found.append(out.transpose(1, 2).reshape(rows * tokens, n_heads * width))
    together: Tensor = _Gathered.apply(torch.cat(found), packed)  # type: ignore[no-untyped-call]
    return together.view(1, n_tokens, n_heads, width).transpose(1, 2)


class _Spread(torch.autograd.Function):
    """Tokens end to end to rows padded to their neighbours. What stands in the padding is seen by no token."""

    @staticmethod
    def forward(context: Any, tokens: Float[Tensor, "N H W"], packed: Packed) -> Float[Tensor, "P D"]:
        context.packed, context.heads = packed, tokens.shape[1:]
        return tokens.reshape(len(tokens), -1).index_select(0, packed.take)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # Each token stands in one place, and padding has no gradient.
        found = gradients[0].index_select(0, context.packed.back)
        return found.view(-1, *context.heads), None


class _Gathered(torch.autograd.Function):
    """The other way."""

    @staticmethod
    def forward(context: Any, tokens: Float[Tensor, "P D"], packed: Packed) -> Float[Tensor, "N D"]:
        context.packed = packed
        return tokens.index_select(0, packed.back)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0].index_select(0, context.packed.take).mul_(context.packed.real), None
