"""Logits at chosen positions only, laid end to end: the output head never sees the others.

The head runs inside the model's own forward pass, with the hidden states cut down to the positions that are read. So
whatever a model does to its logits afterwards (soft caps, scales) is done, and hooks on the root module run. Several
passes over rows of different widths share one product of the head: each but the last is stopped where the head would
begin.

Axes: B rows, T positions, D hidden width, N positions read, V vocabulary.

Rows laid end to end in one pass: products with weights see all their tokens and no padding.

Attention alone is computed row by row, of rows of like length together. The model gets positions that begin anew with
each row, and a mask that separates rows. If it calls torch's attention with that mask, it gets the same from separate
rows. A model that computes its attention otherwise uses the mask, and is right too.

Axes: N tokens end to end, P the tokens of rows padded to their neighbours, H heads, W width of a head.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from vestige.core.errors import InputError, NotFinite
from vestige.models.forward import OwnAttention, passes_by_length

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
    groups: list[list[int]] = [[]]
    room = MOST_TOKENS
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if groups[-1] and lengths[i] > room:
            groups.append([])
            room = MOST_TOKENS
        groups[-1].append(i)
        room -= lengths[i]
    return groups


@dataclass(frozen=True)
class Packed:
    """The positions of concatenated rows' tokens: in their row, and among rows padded to their neighbours.

    `shapes` are rows and width of each attention. `take` finds the tokens for them, one after another, the first token
    in place of padding, and `back` brings them end to end again.
    """

    places: Int[Tensor, "1 N"]
    mask: Bool[Tensor, "1 1 N N"]
    shapes: tuple[tuple[int, int], ...]
    take: Int[Tensor, " P"]
    back: Int[Tensor, " N"]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Packed":
        """Return the packing of rows with these lengths, in this order."""
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
        return cls(places[None], mask[None, None], tuple(shapes), take.clamp(min=0), back)


class PackedAttention(OwnAttention):
    """Attention under the mask of `packed` is computed row by row."""

    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self._packed = packed

    def attend(self, *args: Any, **options: Any) -> Tensor:
        if not self._is_ours(options.get("attn_mask")):
            return scaled_dot_product_attention(*args, **options)
        return _apart(self._packed, args, {**options, "attn_mask": None, "is_causal": True})

    def _is_ours(self, mask: object) -> bool:
        own = self._packed.mask
        return isinstance(mask, Tensor) and (mask.data_ptr(), mask.shape) == (own.data_ptr(), own.shape)


def _apart(
    packed: Packed, args: Sequence[Float[Tensor, "1 H N W"]], options: Mapping[str, Any]
) -> Float[Tensor, "1 H N W"]:
    n_heads, n_tokens, width = args[0].shape[1:]
    sizes = [rows * tokens for rows, tokens in packed.shapes]
    # What stands in the padding is seen by no token, and has no gradient.
    spread = [a[0].transpose(0, 1).flatten(1).index_select(0, packed.take).split(sizes) for a in args]
    outputs = []
    for (rows, tokens), *parts in zip(packed.shapes, *spread, strict=True):
        heads = [p.view(rows, tokens, -1, width).transpose(1, 2) for p in parts]
        out = scaled_dot_product_attention(*heads, **options)
        outputs.append(out.transpose(1, 2).reshape(rows * tokens, n_heads * width))
    together = torch.cat(outputs).index_select(0, packed.back)
    return together.view(1, n_tokens, n_heads, width).transpose(1, 2)


# So many tokens show whether a way of reading is right.
_TRIED = 16


@dataclass(frozen=True)
class Pass:
    """Rows that go through the model together. `read` counts positions row after row through the whole of `ids`.

    With `packed` they are concatenated into one.
    """

    ids: Int[Tensor, "B T"]
    read: Int[Tensor, " N"]
    packed: Packed | None = None

    def through(self, model: PreTrainedModel) -> Float[Tensor, "B T V"]:
        """The model's logits."""
        if self.packed is None:
            logits: Tensor = model(input_ids=self.ids, use_cache=False).logits
            return logits
        where = {"attention_mask": self.packed.mask, "position_ids": self.packed.places}
        with PackedAttention(self.packed):
            found: Tensor = model(input_ids=self.ids, use_cache=False, **where).logits
        return found


class _Reached(Exception):
    """The head's input is known. The head itself is not wanted."""


def logits_read(model: PreTrainedModel, passes: Sequence[Pass], order: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
    """Logits at the positions that the passes read, taken in `order` from the passes' positions end to end."""
    before = [hidden_read(model, p) for p in passes[:-1]]

    def cut(hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "1 N D"]:
        read = torch.cat([*before, _chosen(hidden, passes[-1].read)])
        return read.index_select(0, order)[None]

    with _head_given(model, cut):
        return passes[-1].through(model)[0]


def hidden_read(model: PreTrainedModel, batch: Pass) -> Float[Tensor, "N D"]:
    """Return the head's input at the requested positions. The head is not computed."""
    kept: list[Tensor] = []

    def stop(hidden: Float[Tensor, "B T D"]) -> Tensor:
        kept.append(_chosen(hidden, batch.read))
        raise _Reached

    with _head_given(model, stop):
        try:
            batch.through(model)
        except _Reached:
            return kept[0]
    raise AssertionError("the model ran without its output head")


def logits_read_plain(model: PreTrainedModel, passes: Sequence[Pass], order: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
    """The same from logits at every position: for a model whose head is not reached as expected, and as the oracle."""
    logits = [p.through(model).flatten(0, 1).index_select(0, p.read) for p in passes]
    return torch.cat(logits).index_select(0, order)


LogitsRead = Callable[[PreTrainedModel, Sequence[Pass], Int[Tensor, " N"]], Float[Tensor, "N V"]]
"""A function that reads logits: `logits_read` or `logits_read_plain`."""


@torch.no_grad()
def how_to_read(model: PreTrainedModel, ids: Sequence[int]) -> LogitsRead:
    """Return `logits_read` if it agrees with the plain way on the first tokens of one row. Otherwise, the plain way.

    The two agree if they are within 1e-4 of the largest logit in float32, and 1/64 in narrower numbers.
    """
    row = torch.tensor([list(ids[:_TRIED])], device=model.device)
    every = torch.arange(row.shape[1], device=row.device)
    first, second = every[::2], every[1:2]
    passes = [Pass(row, first), Pass(row, second)]
    # Two passes, and their places backwards, so that a wrong order would show.
    order = torch.arange(len(first) + len(second), device=row.device).flip(0)
    try:
        with evaluating(model):
            logits = logits_read(model, passes, order)
            expected = logits_read_plain(model, passes, order)
    except NotFinite:
        raise
    except InputError:
        return logits_read_plain
    if _same(logits, expected):
        return logits_read
    return logits_read_plain


@torch.no_grad()
def reads_packed(model: PreTrainedModel, ids: Sequence[int]) -> bool:
    """Return whether rows of this model may be concatenated: it `can_pack`, and a test with two rows agrees."""
    if not can_pack(model):
        return False
    tried = list(ids[:_TRIED])
    # The second is the end of the first, so that places which go on across rows would show.
    rows = [tried, tried[len(tried) // 2 :]]
    every = torch.arange(sum(map(len, rows)))
    together = Pass(torch.tensor([[*rows[0], *rows[1]]]), every, Packed.of([len(r) for r in rows]))
    with evaluating(model):
        expected = torch.cat([model(input_ids=torch.tensor([r]), use_cache=False).logits[0] for r in rows])
        return _same(together.through(model)[0], expected)


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model is in evaluation mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _same(actual: Float[Tensor, "N V"], expected: Float[Tensor, "N V"]) -> bool:
    tolerance = (1e-4 if actual.dtype == torch.float32 else 1 / 64) * expected.abs().max().item()
    # A model that is no longer finite is within no tolerance.
    return actual.shape == expected.shape and (actual - expected).abs().max().item() <= tolerance


def _chosen(hidden: Float[Tensor, "B T D"], read: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
    return hidden.flatten(0, -2).index_select(0, read)


@contextmanager
def _head_given(model: PreTrainedModel, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Module):
        raise InputError(f"{type(model).__name__} names no output head, so its logits cannot be read at chosen places")
    handle = head.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()
