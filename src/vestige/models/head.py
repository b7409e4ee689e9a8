"""Logits at chosen positions only, laid end to end: the output head never sees the others.

The head is reached through the model's own forward pass, with the hidden states that it is given cut down to the
positions that are read. So whatever a model does to its logits afterwards (soft caps, scales) is done, and hooks on
the root module run. Several passes over rows of different widths share one product of the head: each but the last is
stopped where the head would begin.

Axes: B rows, T positions, D hidden width, N positions read, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from vestige.core.errors import InputError, NotFinite
from vestige.models.packing import Packed, PackedAttention, can_pack

# So many tokens show whether a way of reading is right.
_TRIED = 16


@dataclass(frozen=True)
class Pass:
    """Rows that go through the model together. `read` counts positions row after row through the whole of `ids`.

    With `packed` they stand end to end in one.
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
    """The hidden states that the head is given are known; the head itself is not wanted."""


def logits_read(model: PreTrainedModel, passes: Sequence[Pass], order: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
    """Logits at the positions that the passes read, taken in `order` from the passes' positions end to end."""
    before = [_before_head(model, one) for one in passes[:-1]]

    def cut(hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "1 N D"]:
        read = torch.cat([*before, _chosen(hidden, passes[-1].read)])
        return read.index_select(0, order)[None]

    with _head_given(model, cut):
        return passes[-1].through(model)[0]


def hidden_read(model: PreTrainedModel, one: Pass) -> Float[Tensor, "N D"]:
    """What the head is given at the positions read; the head is not computed."""
    return _before_head(model, one)


def _before_head(model: PreTrainedModel, one: Pass) -> Float[Tensor, "N D"]:
    kept: list[Tensor] = []

    def stop(hidden: Float[Tensor, "B T D"]) -> Tensor:
        kept.append(_chosen(hidden, one.read))
        raise _Reached

    with _head_given(model, stop):
        try:
            one.through(model)
        except _Reached:
            return kept[0]
    raise AssertionError("the model ran without its own head")


def logits_read_plain(model: PreTrainedModel, passes: Sequence[Pass], order: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
    """The same from logits at every position: for a model whose head is not reached as expected, and as the oracle."""
    found = []
    for one in passes:
        found.append(one.through(model).flatten(0, 1).index_select(0, one.read))
    return torch.cat(found).index_select(0, order)


LogitsRead = Callable[[PreTrainedModel, Sequence[Pass], Int[Tensor, " N"]], Float[Tensor, "N V"]]
"""How logits are read: `logits_read` or `logits_read_plain`."""


@torch.no_grad()
def how_to_read(model: PreTrainedModel, ids: Sequence[int]) -> LogitsRead:
    """`logits_read` where it gives what the plain way gives on the first tokens of one row; else the plain way.

    The two agree where they are within 1e-4 of the largest logit in float32, and 1/64 of it in narrower numbers.
    """
    was_training = model.training
    model.eval()
    row = torch.tensor([list(ids[:_TRIED])], device=model.device)
    every = torch.arange(row.shape[1], device=row.device)
    first, second = every[::2], every[1:2]
    passes = [Pass(row, first), Pass(row, second)]
    order = torch.arange(len(first) + len(second), device=row.device).flip(0)
    try:
        found = logits_read(model, passes, order)
        expected = logits_read_plain(model, passes, order)
    except NotFinite:
        raise
    except InputError:
        return logits_read_plain
    finally:
        model.train(was_training)
    return logits_read if _same(found, expected) else logits_read_plain


@torch.no_grad()
def reads_packed(model: PreTrainedModel, ids: Sequence[int]) -> bool:
    """Whether rows of this model may stand end to end: it `can_pack`, and two do on which it was tried."""
    if not can_pack(model):
        return False
    was_training = model.training
    model.eval()
    tried = list(ids[:_TRIED])
    rows = [tried, tried[len(tried) // 2 :]]
    every = torch.arange(sum(map(len, rows)))
    together = Pass(torch.tensor([[*rows[0], *rows[1]]]), every, Packed.of([len(r) for r in rows]))
    try:
        expected = torch.cat([model(input_ids=torch.tensor([r]), use_cache=False).logits[0] for r in rows])
        return _same(together.through(model)[0], expected)
    finally:
        model.train(was_training)


def _same(found: Float[Tensor, "N V"], expected: Float[Tensor, "N V"]) -> bool:
    tolerance = (1e-4 if found.dtype == torch.float32 else 1 / 64) * expected.abs().max().item()
    # A model that is no longer finite is within no tolerance.
    return found.shape == expected.shape and (found - expected).abs().max().item() <= tolerance


def _chosen(hidden: Float[Tensor, "B T D"], read: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
    return hidden.flatten(0, -2).index_select(0, read)


@contextmanager
def _head_given(model: PreTrainedModel, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Module):
        raise InputError(f"{type(model).__name__} names no output head, so its logits cannot be read at chosen places")
    handle = head.register_forward_pre_hook(lambda _, given: (change(given[0]), *given[1:]))
    try:
        yield
    finally:
        handle.remove()
