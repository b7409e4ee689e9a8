"""Make products of matrices come out as they might on another processor, while tests run.

    SHAKEN_BY=1 pytest tests/...

Processors sum the terms of a product in different orders, so their results differ in the last digits. Here the terms
are summed in another order, and each result in float32 is then changed by up to `SHAKE` of itself (default 2e-7, up
to three units in the last place). The change follows from the result's bits, its position and `SHAKEN_BY`, so the same
input still gives the same bytes, as on any one machine. Whole numbers are left: their sums are exact in any order.
Each value of `SHAKEN_BY` is another processor. A test that fails under one of them rests on a near-tie, on a threshold
or on how an overflow falls, and so fails on somebody's machine.

Only the thread that runs the tests is affected, and processes forked from it. Measured memory is larger than without.
"""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

SHAKE = float(os.environ.get("SHAKE", "2e-7"))
PROCESSOR = int(os.environ.get("SHAKEN_BY", "1"))
# Their last two positional arguments are the factors.
REORDERED = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}
PRODUCTS = REORDERED | {
    torch.ops.aten.mv,
    torch.ops.aten.addmv,
    torch.ops.aten.dot,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu,
    torch.ops.mkldnn._linear_pointwise,
}


class OtherProcessor(TorchDispatchMode):
    """While it is entered, every product of matrices is summed in another order and its results are changed."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        product = func.overloadpacket
        out = func(*(reordered(args) if product in REORDERED else args), **kwargs)
        if product not in PRODUCTS:
            return out
        if "out" in kwargs:
            return out.copy_(shaken(out))
        if isinstance(out, tuple):
            return (shaken(out[0]), *out[1:])
        return shaken(out)


def reordered(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments of a product, whose two factors are last, with the terms of each sum in another order."""
    *others, left, right = args
    if not all(_plain(factor) for factor in (left, right)):
        return args
    order = _order(left.shape[-1])
    return (*others, left.index_select(-1, order), right.index_select(-2, order))


def shaken(result: Tensor) -> Tensor:
    """`result` (any shape) with each element that is no whole number changed by at most SHAKE of itself."""
    if not _plain(result) or result.dtype != torch.float32 or not result.numel():
        return result
    bits = result.contiguous().view(torch.int32).flatten()
    position = torch.arange(len(bits), dtype=torch.int32)
    # Knuth's multiplicative hash; the product wraps around to 32 bits.
    hashed = (bits ^ (position * 40503 + PROCESSOR * 7919)) * -1640531535
    changed = result * (1 + SHAKE * (hashed.float() / 2**31)).view(result.shape)
    return torch.where(result == result.round(), result, changed)


def _plain(value: object) -> bool:
    return type(value) is Tensor and value.device.type == "cpu" and not value.is_mkldnn


@cache
def _order(terms: int) -> Tensor:
    return torch.randperm(terms, generator=torch.Generator().manual_seed(PROCESSOR))


def pytest_configure(config: pytest.Config) -> None:
    """Enter the mode for the whole run."""
    mode = OtherProcessor()
    mode.__enter__()
    config.add_cleanup(lambda: mode.__exit__(None, None, None))
