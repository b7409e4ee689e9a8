"""Products with frozen weights and their adapters, forwards and backwards, as few and as fast as they go.

y = x W' + bias + scale (x A') B' is one node of the graph with five saved tensors, where peft's own way makes three
products, a scaling, a sum and casts. In float32 on a CPU large products are oneDNN's, which are the same sums in
another order at up to twice the rate of torch's own (`models/products.py`), gradients too. Without gradients, which
library multiplies depends on the weight alone, so that a row's bytes do not depend on its neighbours.

Axes: ... rows, N rows end to end, I inputs, O outputs, R the adapter's rank.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from vestige.models.products import onednn_works
from vestige.training.adapters import ADAPTER
from vestige.training.policy.settings import Precision

# With the few rows of decoding, a weight of fewer numbers is multiplied faster by torch itself; an adapter's are.
LEAST_NUMBERS = 2**15


@dataclass(frozen=True)
class LeanProducts:
    """The layers of one model whose products are made here: adapted ones, and the frozen output head."""

    adapted: tuple[LoraLinear, ...]
    head: nn.Linear | None
    precision: Precision
    onednn: bool

    @classmethod
    def of(cls, model: PreTrainedModel, precision: Precision) -> "LeanProducts":
        """Plain linear layers with plain adapters; all others go on as they are."""
        adapted = tuple(m for m in model.modules() if isinstance(m, LoraLinear) and _is_plain(m))
        head = model.get_output_embeddings()
        frozen = head if type(head) is nn.Linear and not head.weight.requires_grad else None
        return cls(adapted, frozen, precision, model.device.type == "cpu" and onednn_works())

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within it the model multiplies as said above."""
        # Found before the class's own. A module in between would change the names of weights.
        for layer in self.adapted:
            layer.__dict__["forward"] = partial(self._adapted, layer)
        if self.head is not None:
            self.head.__dict__["forward"] = partial(self._frozen, self.head)
        try:
            yield
        finally:
            for layer in self.adapted:
                layer.__dict__.pop("forward", None)
            if self.head is not None:
                self.head.__dict__.pop("forward", None)

    def _adapted(self, layer: LoraLinear, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
        base, down, up = layer.get_base_layer(), layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
        assert isinstance(base, nn.Linear)
        assert isinstance(down, Tensor)
        assert isinstance(up, Tensor)
        if layer.disable_adapters:
            return self._frozen(base, x)
        scale, given = layer.scaling[ADAPTER], self._given(x)
        if not torch.is_grad_enabled():
            # Of few rows, the products with adapters cost less as they are stored, in float32, than in bfloat16.
            adapter = linear(linear(x.to(down.dtype), down), up)
            return self._frozen(base, given).add_(adapter, alpha=scale)
        found: Tensor = _Adapted.apply(  # type: ignore[no-untyped-call]
            given, base.weight, base.bias, down, up, scale, self.onednn
        )
        return found

    def _frozen(self, layer: nn.Linear, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
        given, onednn = self._given(x), self._onednn(layer.weight)
        found: Tensor = _Frozen.apply(given, layer.weight, layer.bias, onednn)  # type: ignore[no-untyped-call]
        return found

    def _given(self, x: Float[Tensor, "... I"]) -> Float[Tensor, "... I"]:
        return x.bfloat16() if self.precision == "bfloat16" else x

    def _onednn(self, weight: Float[Tensor, "O I"]) -> bool:
        return self.onednn and (torch.is_grad_enabled() or weight.numel() >= LEAST_NUMBERS)


def _is_plain(layer: LoraLinear) -> bool:
    base = layer.get_base_layer()
    return (
        type(base) is nn.Linear
        and not base.weight.requires_grad
        and (base.bias is None or not base.bias.requires_grad)
        and list(layer.lora_A) == [ADAPTER]
        and not layer.lora_variant
        and not layer.merged
        and isinstance(layer.lora_dropout[ADAPTER], nn.Identity)
        and layer.lora_A[ADAPTER].bias is None
        and layer.lora_B[ADAPTER].bias is None
    )


def times(
    x: Float[Tensor, "N I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None, onednn: bool
) -> Float[Tensor, "N O"]:
    """The sum over I, of tensors in one number format."""
    if onednn and x.dtype == torch.float32:
        found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return found
    return linear(x, weight, bias)


def add_times(
    into: Float[Tensor, "N O"],
    x: Float[Tensor, "N I"],
    weight: Float[Tensor, "O I"],
    onednn: bool,
    *,
    scale: float = 1.0,
) -> None:
    """Add the sum over I times `scale`."""
    if onednn and x.dtype == torch.float32:
        into.add_(times(x, weight, None, onednn), alpha=scale)
    else:
        into.addmm_(x, weight.T, alpha=scale)


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, onednn: bool) -> Tensor:
        weight = weight.to(x.dtype)
        context.save_for_backward(weight)
        context.onednn = onednn
        found = times(x.flatten(0, -2), weight, None if bias is None else bias.to(x.dtype), onednn)
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (weight,), (gradient,) = context.saved_tensors, gradients
        if not context.needs_input_grad[0]:
            return None, None, None, None
        found = times(gradient.flatten(0, -2), weight.T, None, context.onednn)
        return found.unflatten(0, gradient.shape[:-1]), None, None, None


class _Adapted(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        down: Tensor,
        up: Tensor,
        scale: float,
        onednn: bool,
    ) -> Tensor:
        rows = x.flatten(0, -2)
        weight, narrow_down, narrow_up = (w.to(x.dtype) for w in (weight, down, up))
        inner = times(rows, narrow_down, None, onednn)
        found = times(rows, weight, None if bias is None else bias.to(x.dtype), onednn)
        add_times(found, inner, narrow_up, onednn, scale=scale)
        context.save_for_backward(rows, weight, narrow_down, narrow_up, inner)
        context.scale, context.onednn, context.formats = scale, onednn, (down.dtype, up.dtype)
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, down, up, inner = context.saved_tensors
        (gradient,), onednn = gradients, context.onednn
        outer = gradient.flatten(0, -2)
        between = times(outer, up.T, None, onednn).mul_(context.scale)
        of_down = times(between.T, rows.T, None, onednn).to(context.formats[0])
        of_up = times(outer.T, inner.T, None, onednn).to(context.formats[1]).mul_(context.scale)
        if not context.needs_input_grad[0]:
            return None, None, None, of_down, of_up, None, None
        of_x = times(outer, weight.T, None, onednn)
        add_times(of_x, between, down.T, onednn)
        return of_x.unflatten(0, gradient.shape[:-1]), None, None, of_down, of_up, None, None
