"""How products and attention are computed on a CPU: by how many threads, and attention of bfloat16 in float32.

The backward pass of attention takes two to four times as long in bfloat16 there (torch 2.13, rows of 24 to 120 tokens),
while products with weights take a quarter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode


@contextmanager
def on_threads(n: int) -> Iterator[None]:
    """Within it torch computes with `n` threads, whatever the shell says: how a sum is cut decides its last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Precision = Literal["float32", "bfloat16"]


def attention(device: str, precision: Precision) -> AbstractContextManager[object]:
    """Within it a model of `precision` computes attention as is best on `device`."""
    return Float32Attention() if (device, precision) == ("cpu", "bfloat16") else nullcontext()


class OwnAttention(TorchFunctionMode, ABC):
    """Within it `attend` is asked where a model calls `scaled_dot_product_attention`; nothing else changes.

    A class, since that is torch's way to stand between a model and the functions that it calls.
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
        """What attention gives here; torch's own can be called."""


class Float32Attention(OwnAttention):
    """Attention in float32 that gives bfloat16."""

    def attend(self, *args: Any, **options: Any) -> torch.Tensor:
        wide = [a.float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
        if isinstance(options.get("attn_mask"), torch.Tensor) and options["attn_mask"].is_floating_point():
            options["attn_mask"] = options["attn_mask"].float()
        with torch.autocast("cpu", enabled=False):
            attended: torch.Tensor = scaled_dot_product_attention(*wide, **options)  # type: ignore[arg-type]
            return attended.to(torch.bfloat16)
