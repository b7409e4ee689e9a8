"""Products with weights by oneDNN where torch would take a slower library: float32 on a CPU, without gradients.

On AMD processors torch's own float32 products use half of the vector unit (MKL, torch 2.13). oneDNN computes the same
sums in full float32, in another order: results agree to rounding. A row's bytes do not depend on how many rows are
multiplied with it, from two rows on (`tests/models/test_products.py` looks; torch's own need four).

Axes: ... rows, I inputs, O outputs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel


def multiplies_by_onednn(model: PreTrainedModel) -> bool:
    """Whether this is a model of float32 on a CPU where torch was built with oneDNN."""
    return model.device.type == "cpu" and model.dtype == torch.float32 and torch.backends.mkldnn.is_available()


@contextmanager
def onednn_products(model: PreTrainedModel) -> Iterator[None]:
    """Within it the linear layers of a model multiply by oneDNN. There are no gradients through them."""
    layers = [m for m in model.modules() if type(m) is nn.Linear and m.weight.dtype == torch.float32]
    for layer in layers:
        # Found before the class's own. A module in between would change the names of weights.
        layer.__dict__["forward"] = partial(_product, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["forward"]


def _product(layer: nn.Linear, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
    # torch has no public name for it; inductor compiles `linear` into this very call.
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, layer.weight, layer.bias, "none", [], "")
    return found
