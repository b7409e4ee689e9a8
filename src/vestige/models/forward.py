"""The only place where token ids become logits. It groups rows into passes and computes only required logits.

If a GPU's memory is too small for a pass, the pass is split and repeated. How rows are cut into passes changes no
number beyond rounding. A process that ran short once keeps its passes small.

Axes: B rows, T positions, K positions read, V vocabulary. Rows are padded on the right to the longest of their pass, so
the last digits of a row's numbers depend on the rows with it: whoever must come to the same bytes twice, as a resumed
run must, gives the same rows together again.

Logits at chosen positions only, laid end to end: the output head never sees the others.

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

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from vestige.artifacts.provenance import happened
from vestige.core.errors import InputError, NotFinite

# The fixed cost of a separate pass, in tokens: reading weights, starting kernels. Measured on the tiny shape of
# `benchmarks.scoring`. Half to twice the value makes little difference.
PASS_TOKENS = 64
# A GPU is saturated only by thousands of tokens. There, the fixed cost and the budget are multiplied by these factors.
GPU_COST, GPU_TOKENS = 32, 8


def padded_width(n_tokens: int) -> int:
    """Return the next multiple of eight, for kernels that are built for each shape."""
    return -(-n_tokens // 8) * 8


def passes_by_length(
    lengths: Sequence[int], *, pass_tokens: int = PASS_TOKENS, token_budget: int | None = None, before: int = 0
) -> list[list[int]]:
    """Indices of the rows of each pass: the cheapest split of the rows sorted by length.

    A pass over n rows costs n times its longest row, and `pass_tokens` more. It holds one row, or at most
    `token_budget` tokens with its padding and the `before` tokens of each row. Longest first, so that the largest
    buffers are taken before memory is in pieces.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    # best[k]: minimum cost of the k shortest rows; begins[k]: start of the last pass over them.
    best, begins = [0], [0]
    for stop in range(1, len(order) + 1):
        width = max(1, lengths[order[stop - 1]])
        if token_budget is None:
            first = 0
        else:
            first = max(0, stop - max(1, token_budget // (before + width)))
        costs = [best[start] + (stop - start) * width + pass_tokens for start in range(first, stop)]
        best.append(min(costs))
        begins.append(first + costs.index(best[-1]))
    passes: list[list[int]] = []
    stop = len(order)
    while stop:
        passes.append(order[begins[stop] : stop])
        stop = begins[stop]
    return passes


def batches_by_length(
    lengths: Sequence[int], device: torch.device, *, token_budget: int, pass_tokens: int = PASS_TOKENS, before: int = 0
) -> Iterator[tuple[int, list[int]]]:
    """The width of each pass, which is its longest row's, with the indices of its rows.

    Budget and cost are a CPU's. On another `device` they are larger.
    """
    cost, times = (1, 1) if device.type == "cpu" else (GPU_COST, GPU_TOKENS)
    passes = passes_by_length(lengths, pass_tokens=cost * pass_tokens, token_budget=times * token_budget, before=before)
    for rows in passes:
        yield max(lengths[i] for i in rows), rows


def right_padded(rows: Sequence[Sequence[int]], width: int, device: torch.device) -> Int[Tensor, "B T"]:
    """Token ids, with zeros behind each row. Under a causal mask later tokens do not affect earlier ones."""
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return ids.to(device)


def padded_passes(
    rows: Sequence[Sequence[int]], device: torch.device, *, token_budget: int
) -> Iterator[tuple[list[int], Int[Tensor, "B T"]]]:
    """The numbers of the rows of each pass, with their token ids."""
    for width, numbers in batches_by_length([len(row) for row in rows], device, token_budget=token_budget):
        yield numbers, right_padded([rows[i] for i in numbers], width, device)


def logits_at(model: PreTrainedModel, ids: Int[Tensor, "B T"], positions: Int[Tensor, " K"]) -> Float[Tensor, "B K V"]:
    """Return logits in float32 at `positions` of every row. Other positions are never projected.

    Goes through the root module, so that hooks placed on it (sharding, adapters) run.
    """
    # No mask is needed: rows are padded on the right, where a causal model does not look.
    out = model(input_ids=ids, use_cache=False, logits_to_keep=positions)
    logits: Tensor = out.logits
    return logits.float()


P = ParamSpec("P")
R = TypeVar("R")

LEAST_TOKENS = 64
"""A pass of fewer tokens is not halved again."""

_HALVINGS = "passes_halved_for_want_of_memory"


def smaller(budget: int) -> int:
    """A budget of rows or tokens, halved as often as memory ran short in this process. One at least."""
    return max(1, budget >> happened[_HALVINGS])


def halve() -> None:
    """Record that memory was insufficient, and free torch's cache."""
    happened[_HALVINGS] += 1
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def within_memory(run: Callable[P, R]) -> Callable[P, R]:
    """Call `run`, and halve its `token_budget` if the GPU's memory is too small. Without effect on a CPU."""
    default = inspect.signature(run).parameters["token_budget"].default

    @functools.wraps(run)
    def tried(*args: P.args, **kwargs: P.kwargs) -> R:
        budget = int(kwargs.get("token_budget", default))  # type: ignore[call-overload]
        while True:
            kwargs["token_budget"] = smaller(budget)
            try:
                return run(*args, **kwargs)
            except torch.OutOfMemoryError:
                if smaller(budget) <= LEAST_TOKENS:
                    raise
            # Not in the handler, because there the error still references the tensors of the pass.
            halve()

    return tried


@contextmanager
def on_threads(n: int) -> Iterator[None]:
    """Inside the context torch uses `n` threads: the split of a sum decides its last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Precision = Literal["float32", "bfloat16"]


def attention(device: str, precision: Precision) -> AbstractContextManager[object]:
    """Within it a model of `precision` computes attention as is best on `device`.

    On a CPU attention of bfloat16 is computed in float32: its backward pass takes two to four times as long in bfloat16
    (torch 2.13, rows of 24 to 120 tokens), while products with weights take a quarter.
    """
    if (device, precision) == ("cpu", "bfloat16"):
        return Float32Attention()
    return nullcontext()


class OwnAttention(TorchFunctionMode, ABC):
    """Inside the context `attend` replaces a model's calls of `scaled_dot_product_attention`. Nothing more changes.

    It is a class because torch intercepts functions that way.
    """

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        return (self.attend if function is scaled_dot_product_attention else function)(*args, **options)

    @abstractmethod
    def attend(self, *args: Any, **options: Any) -> torch.Tensor:
        """Return the attention's output. torch's own function can be called."""


class Float32Attention(OwnAttention):
    """Attention in float32 that gives bfloat16."""

    def attend(self, *args: Any, **options: Any) -> torch.Tensor:
        wide = [a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
        if isinstance(options.get("attn_mask"), torch.Tensor) and options["attn_mask"].is_floating_point():
            options["attn_mask"] = options["attn_mask"].float()
        with torch.autocast("cpu", enabled=False):
            attended: torch.Tensor = scaled_dot_product_attention(*wide, **options)  # type: ignore[arg-type]
            return attended.to(torch.bfloat16)


# The limit exists because a mask has the square of this size.
MOST_TOKENS = 1024
# The fixed cost of a separate attention, in tokens.
_ATTENTION_TOKENS = 32
# These families have causal, full attention and use the given positions.
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
    # No token attends to the padding, and the padding has no gradient.
    spread = [a[0].transpose(0, 1).flatten(1).index_select(0, packed.take).split(sizes) for a in args]
    outputs = []
    for (rows, tokens), *parts in zip(packed.shapes, *spread, strict=True):
        heads = [p.view(rows, tokens, -1, width).transpose(1, 2) for p in parts]
        out = scaled_dot_product_attention(*heads, **options)
        outputs.append(out.transpose(1, 2).reshape(rows * tokens, n_heads * width))
    together = torch.cat(outputs).index_select(0, packed.back)
    return together.view(1, n_tokens, n_heads, width).transpose(1, 2)


# The number of tokens for testing a way of reading.
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
    """Return the same from logits at every position: for models with an unexpected head, and as the oracle."""
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
    # Two passes with reversed positions, so that a wrong order is detected.
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
    # The second row is the end of the first, so that positions running across rows are detected.
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
    # A non-finite model is within no tolerance.
    return actual.shape == expected.shape and (actual - expected).abs().max().item() <= tolerance


def _chosen(hidden: Float[Tensor, "B T D"], read: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
    return hidden.flatten(0, -2).index_select(0, read)


@contextmanager
def _head_given(model: PreTrainedModel, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Module):
        raise InputError(f"{type(model).__name__} names no output head for its logits. Choose another model")
    handle = head.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()
