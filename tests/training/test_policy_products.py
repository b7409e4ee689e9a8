"""Lean products are those of peft and torch, forwards and backwards, and row by row."""

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from vestige.training.adapters import add_lora
from vestige.training.policy.products import LeanProducts
from vestige.training.settings import TrainingSettings

pytestmark = pytest.mark.portable

IDS = torch.randint(0, 64, (3, 12), generator=torch.Generator().manual_seed(0))


def adapted(model: PreTrainedModel) -> PreTrainedModel:
    """A model with adapters whose second factor is no longer 0."""
    torch.set_num_threads(1)
    add_lora(model.eval(), TrainingSettings(lora_rank=4, lora_alpha=12, lora_dropout=0.0, lora_targets="all"), seed=0)
    draw = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            parameter.data.normal_(std=0.1, generator=draw)
    return model


def llama() -> PreTrainedModel:
    # 192 x 192 is above the size from which oneDNN multiplies without gradients too; biases are there and not 0.
    config = LlamaConfig(
        vocab_size=256, hidden_size=192, intermediate_size=200, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attention_bias=True, mlp_bias=True, initializer_range=0.1, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.data.normal_(std=0.1)
    return adapted(model)


def gpt2() -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model("gpt2", vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2)
        return adapted(AutoModelForCausalLM.from_config(config))


def gradients(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(IDS).logits.float().square().mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("make", [llama, gpt2])
def test_logits_and_gradients_are_those_of_peft(make):
    model = make()
    lean = LeanProducts.of(model, "float32")
    # Of a GPT-2, whose layers keep their weights transposed, only the head is taken over.
    assert len(lean.adapted) == (14 if make is llama else 0)
    assert lean.head is not None
    plain = gradients(model)
    with torch.no_grad():
        expected = model(IDS).logits
        with lean.used():
            torch.testing.assert_close(model(IDS).logits, expected, atol=1e-4, rtol=1e-4)
    with lean.used():
        torch.testing.assert_close(model(IDS).logits, expected, atol=1e-4, rtol=1e-4)
        found = gradients(model)
    assert found.keys() == plain.keys()
    assert all(".lora_" in name for name in found)
    for name, gradient in plain.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5 * gradient.abs().max().item() + 1e-9, rtol=1e-3)


def test_afterwards_the_model_is_as_before():
    model = llama()
    with torch.no_grad():
        before = model(IDS).logits
        with LeanProducts.of(model, "float32").used():
            pass
        assert torch.equal(model(IDS).logits, before)
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_bfloat16_products_are_near_and_adapters_get_gradients_in_float32():
    wide, narrow = llama(), llama()
    for module in narrow.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)) and not any(p.requires_grad for p in module.parameters()):
            module.to(torch.bfloat16)
    expected = gradients(wide)
    with torch.autocast("cpu", torch.bfloat16), LeanProducts.of(narrow, "bfloat16").used():
        found = gradients(narrow)
    assert {g.dtype for g in found.values()} == {torch.float32}
    for name, gradient in expected.items():
        assert nn.functional.cosine_similarity(found[name].flatten(), gradient.flatten(), dim=0) > 0.99


def test_layers_that_are_trained_or_drop_out_are_left_alone():
    model = llama()
    dropping = next(m for m in LeanProducts.of(model, "float32").adapted)
    dropping.lora_dropout["default"] = nn.Dropout(0.1)
    model.get_output_embeddings().weight.requires_grad_(True)
    lean = LeanProducts.of(model, "float32")
    assert len(lean.adapted) == 13
    assert lean.head is None
