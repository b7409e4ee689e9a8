"""Products by oneDNN: equal to torch's own to rounding."""

import pytest
import torch
from families import small_model
from torch.nn.functional import linear

from vestige.models import products
from vestige.models.products import multiplies_by_onednn, onednn_products, onednn_works
from vestige.models.reading import way_of

pytestmark = pytest.mark.portable

needs_onednn = pytest.mark.skipif(not onednn_works(), reason="this torch has no oneDNN")


@needs_onednn
@pytest.mark.parametrize(("outputs", "inputs", "bias"), [(192, 192, True), (512, 192, False), (67, 32, True)])
def test_products_are_those_of_torch_but_for_rounding(outputs, inputs, bias):
    draw = torch.Generator().manual_seed(0)
    layer = torch.nn.Linear(inputs, outputs, bias=bias)
    model = small_model("llama")
    model.extra = layer
    rows = torch.randn(300, inputs, generator=draw)
    with torch.inference_mode(), onednn_products(model):
        for n in (1, 2, 9, 300):
            assert torch.allclose(layer(rows[:n]), linear(rows[:n], layer.weight, layer.bias), atol=1e-4)


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
    # After an error within it too.
    with pytest.raises(IndexError), onednn_products(model):
        model(torch.tensor([[67]]))
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_only_float32_models_on_a_cpu_multiply_by_onednn():
    model = small_model("llama")
    assert multiplies_by_onednn(model) == onednn_works()
    assert not multiplies_by_onednn(model.bfloat16())


@needs_onednn
def test_within_itself_it_changes_nothing_and_ends_with_the_outer_one():
    model = small_model("llama")
    with onednn_products(model):
        outer = {m: m.__dict__.get("forward") for m in model.modules()}
        with onednn_products(model):
            assert {m: m.__dict__.get("forward") for m in model.modules()} == outer
        assert {m: m.__dict__.get("forward") for m in model.modules()} == outer
    assert not any("forward" in m.__dict__ for m in model.modules())


def test_a_layer_whose_products_somebody_else_has_taken_over_is_left_to_them():
    model = small_model("llama")
    layer = model.model.layers[0].mlp.up_proj

    def own(x):
        return linear(x, layer.weight)

    layer.forward = own
    with onednn_products(model):
        assert layer.forward is own
    assert layer.forward is own


def missing(*_given):
    raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")


def changed(*_given):
    raise RuntimeError("mkldnn::_linear_pointwise() is missing value for argument 'binary'")


def wrong(layer, x):
    return linear(x, layer.weight, layer.bias) + 1e-3


@pytest.mark.parametrize("product", [missing, changed, wrong])
def test_a_torch_whose_call_is_missing_changed_or_wrong_multiplies_by_its_own(monkeypatch, product):
    monkeypatch.setattr(products, "_product", product)
    model = small_model("llama")
    assert not multiplies_by_onednn(model)
    assert way_of(model).name == "shared"
