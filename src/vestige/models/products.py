"""Products with weights by oneDNN where torch would take a slower library: float32 on a CPU, without gradients.

On AMD processors torch's own float32 products use half of the vector unit (MKL, torch 2.13). oneDNN computes the same
sums in full float32, in another order: results agree to rounding. Choosing between the two by shape is worth 1 to 4 %
(benchmarks/results/speed.md).

Attention in bfloat16 on a CPU is computed in float32: its backward pass takes two to four times as long in bfloat16
(torch 2.13, rows of 24 to 120 tokens), while products with weights take a quarter.

Axes: ... rows, I inputs, O outputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel


def multiplies_by_onednn(model: PreTrainedModel) -> bool:
    """Whether this is a model of float32 on a CPU, and this torch has a oneDNN that gives what torch itself does."""
    return model.device.type == "cpu" and model.dtype == torch.float32 and onednn_works()


@torch.inference_mode()
def onednn_works() -> bool:
    """Whether a small product by oneDNN is right: the call has no public name, so a torch may lack it or change it."""
    if not torch.backends.mkldnn.is_available():
        return False
    layer = nn.utils.skip_init(nn.Linear, 8, 4)
    layer.weight.copy_(torch.arange(32.0).view(4, 8))
    layer.bias.copy_(torch.arange(4.0))
    rows = torch.eye(8)
    try:
        product = _product(layer, rows)
    except (AttributeError, RuntimeError, TypeError):
        return False
    # Small whole numbers: exact in any order.
    return torch.equal(product, linear(rows, layer.weight, layer.bias))


@contextmanager
def on_threads(n: int) -> Iterator[None]:
    """Within it torch computes with `n` threads, whatever the shell says: how a sum is cut decides its last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def onednn_products(model: PreTrainedModel, when: bool = True) -> Iterator[None]:
    """Within it the linear layers of a model multiply by oneDNN, `when` they are to. They have no gradients then.

    Layers whose products somebody else has taken over are left alone, and so are layers elsewhere than on the CPU.
    """
    layers = [m for m in model.modules() if type(m) is nn.Linear and _is_ours(m)] if when else []
    try:
        for layer in layers:
            # Found before the class's own. A module in between would change the names of weights.
            layer.__dict__["forward"] = partial(_product, layer)
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _is_ours(layer: nn.Linear) -> bool:
    weight = layer.weight
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and "forward" not in layer.__dict__


def _product(layer: nn.Linear, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
    # torch has no public name for it; inductor compiles `linear` into this very call.
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, layer.weight, layer.bias, "none", [], "")
    return product


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
