"""Products by oneDNN: equal to torch's own to rounding, and a row's bytes whatever is multiplied with it."""

import pytest
import torch
from families import small_model
from torch.nn.functional import linear

from vestige.models.products import multiplies_by_onednn, onednn_products

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@needs_onednn
@pytest.mark.parametrize(("outputs", "inputs", "bias"), [(192, 192, True), (512, 192, False), (67, 32, True)])
def test_a_rows_bytes_do_not_depend_on_how_many_rows_there_are(outputs, inputs, bias):
    draw = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(inputs, outputs, bias=bias)
    model = small_model("llama")
    model.extra = layer
    rows = torch.randn(300, inputs, generator=draw)
    with torch.inference_mode(), onednn_products(model):
        whole = layer(rows)
        assert torch.allclose(whole, linear(rows, layer.weight, layer.bias), atol=1e-4)
        for n in (2, 3, 7, 8, 9, 16, 31, 64, 100, 257):
            assert torch.equal(layer(rows[:n]), whole[:n])
            assert torch.equal(layer(rows[-n:].contiguous()), whole[-n:])


@needs_onednn
def test_a_model_is_left_as_it_was_and_its_weights_keep_their_names():
    model, ids = small_model("llama"), torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10]])
    names = list(model.state_dict())
    with torch.inference_mode():
        before = model(ids).logits
        with onednn_products(model):
            inside = model(ids).logits
            assert list(model.state_dict()) == names
        assert torch.equal(model(ids).logits, before)
    assert torch.allclose(inside, before, atol=1e-5)
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_only_float32_models_on_a_cpu_multiply_by_onednn():
    model = small_model("llama")
    assert multiplies_by_onednn(model) == torch.backends.mkldnn.is_available()
    assert not multiplies_by_onednn(model.bfloat16())
