"""The one place where token ids become logits: which rows share a pass, and logits only where they are read.

If a GPU's memory is too small for a pass, the pass is split and repeated. How rows are cut into passes changes no
number beyond rounding. A process that ran short once keeps its passes small.

Axes: B rows, T positions, K positions read, V vocabulary. Rows are padded on the right to the longest of their pass, so
the last digits of a row's numbers depend on the rows with it: whoever must come to the same bytes twice, as a resumed
run must, gives the same rows together again.
"""

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, ParamSpec, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from vestige.artifacts.provenance import happened

# What a pass of its own costs besides its tokens, in tokens: weights read, kernels started. Measured on the tiny shape
# of `benchmarks.scoring`; from a half to twice as many make little difference.
PASS_TOKENS = 64
# A GPU is filled by thousands of tokens first: there a pass costs so many times as much, and holds as many more tokens.
GPU_COST, GPU_TOKENS = 32, 8


def padded_width(n_tokens: int) -> int:
    """The next multiple of eight: for kernels that are made anew for each shape."""
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
    # best[k]: the least cost of the k shortest rows; begins[k]: where the last pass over them begins.
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
    """Logits in float32 at `positions` of every row. The rest of the vocabulary projection is never computed.

    Goes through the root module, so that hooks placed on it (sharding, adapters) run.
    """
    # No mask: rows are padded on the right, and a causal model does not look there.
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
            # Not in the handler, where the error holds on to the tensors of the pass.
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
