"""Rows end to end in one pass, against a pass a row."""

import pytest
import torch
from families import FAMILIES, small_model

from vestige.models import forward as packing
from vestige.models.forward import Packed, Pass, logits_read, packs, reads_packed

pytestmark = pytest.mark.portable

LENGTHS = (7, 3, 12, 1, 4, 5)
ROWS = [[3 + (7 * i + 5 * k) % 60 for k in range(n)] for i, n in enumerate(LENGTHS)]


def end_to_end() -> Pass:
    return Pass(torch.tensor([[t for r in ROWS for t in r]]), torch.arange(sum(LENGTHS)), Packed.of(LENGTHS))


@pytest.mark.parametrize("cost", [0, 1000], ids=["an attention a length", "one attention"])
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_rows_end_to_end_give_the_logits_and_gradients_of_a_pass_a_row(monkeypatch, family, cost):
    monkeypatch.setattr(packing, "_ATTENTION_TOKENS", cost)
    model = small_model(family)
    packed = end_to_end()
    found = logits_read(model, [packed], packed.read)
    expected = torch.cat([model(torch.tensor([r])).logits[0] for r in ROWS])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    towards = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    one = torch.autograd.grad((found * towards).sum(), list(model.parameters()))
    other = torch.autograd.grad((expected * towards).sum(), list(model.parameters()))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


def test_attention_of_rows_apart_is_used_and_without_it_the_mask_gives_the_same(monkeypatch):
    model, packed = small_model("llama"), end_to_end()
    seen = []
    apart = packing._apart
    monkeypatch.setattr(packing, "_apart", lambda *given: seen.append(given) or apart(*given))
    found = packed.through(model)
    assert len(seen) == model.config.num_hidden_layers
    monkeypatch.setattr(packing.PackedAttention, "_is_ours", lambda *_: False)
    torch.testing.assert_close(packed.through(model), found, atol=1e-5, rtol=1e-4)
    assert len(seen) == model.config.num_hidden_layers


@pytest.mark.parametrize("family", FAMILIES)
def test_known_families_without_a_window_are_read_end_to_end(family):
    model = small_model(family)
    windowed = getattr(model.config, "sliding_window", None) is not None and family == "mistral"
    assert reads_packed(model, ROWS[0]) == (family in ("llama", "mistral", "qwen2") and not windowed)


def test_a_window_other_formats_and_other_attention_are_not_read_end_to_end():
    assert not reads_packed(small_model("mistral", sliding_window=4), ROWS[0])
    assert reads_packed(small_model("mistral", sliding_window=None), ROWS[0])
    assert not reads_packed(small_model("llama").bfloat16(), ROWS[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert not reads_packed(small_model("llama"), ROWS[0])
    model = small_model("llama")
    model.set_attn_implementation("eager")
    assert not reads_packed(model, ROWS[0])


def test_a_model_that_heeds_neither_places_nor_mask_is_not_read_end_to_end(monkeypatch):
    model = small_model("llama")
    own = model.forward
    monkeypatch.setattr(model, "forward", lambda *a, position_ids=None, attention_mask=None, **k: own(*a, **k))
    assert not reads_packed(model, ROWS[0])


def test_a_pass_holds_one_row_or_no_more_tokens_than_a_mask_may_have(monkeypatch):
    monkeypatch.setattr(packing, "MOST_TOKENS", 10)
    assert packs([3, 12, 4, 3, 5]) == [[0, 3, 2], [4], [1]]
