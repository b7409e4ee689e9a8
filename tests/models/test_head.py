"""Logits at chosen positions, against logits everywhere."""

import pytest
import torch
from families import FAMILIES, small_model

from vestige.models.forward import Pass, hidden_read, how_to_read, logits_read, logits_read_plain

pytestmark = pytest.mark.portable

ROWS = ([5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19])


def passes() -> tuple[list[Pass], torch.Tensor]:
    """The first row alone, read at 2 and 5; then the others, read at 1, and at 0 and 3; asked for last pass first."""
    return [
        Pass(torch.tensor([ROWS[0]]), torch.tensor([2, 5])),
        Pass(torch.tensor([ROWS[1], ROWS[2]]), torch.tensor([1, 4 + 0, 4 + 3])),
    ], torch.tensor([2, 3, 4, 0, 1])


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_read_at_chosen_places_are_those_of_a_pass_of_their_own_with_their_gradients(family):
    model = small_model(family)
    found = logits_read(model, *passes())
    at = ((1, 1), (2, 0), (2, 3), (0, 2), (0, 5))
    expected = torch.stack([model(torch.tensor([ROWS[row]])).logits[0, place] for row, place in at])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    towards = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    weights = [p for p in model.parameters() if p.requires_grad]
    one = torch.autograd.grad((found * towards).sum(), weights, allow_unused=True)
    other = torch.autograd.grad((expected * towards).sum(), weights, allow_unused=True)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_read_the_short_way(family):
    assert how_to_read(small_model(family), ROWS[0]) is logits_read


def test_a_model_that_treats_places_differently_behind_its_head_is_read_the_plain_way(monkeypatch):
    model = small_model("llama")
    scaled = model.forward

    def by_place(*args, **kwargs):
        out = scaled(*args, **kwargs)
        out.logits = out.logits * torch.arange(1.0, 1.0 + out.logits.shape[1])[:, None]
        return out

    monkeypatch.setattr(model, "forward", by_place)
    assert how_to_read(model, ROWS[0]) is logits_read_plain


def test_what_the_head_is_given_gives_its_logits_and_leaves_no_hook_behind():
    model = small_model("llama")
    both, order = passes()
    hidden = torch.cat([hidden_read(model, one) for one in both])[order]
    torch.testing.assert_close(model.lm_head(hidden), logits_read(model, both, order))
    assert not model.lm_head._forward_pre_hooks


def test_dropout_of_a_model_in_training_does_not_hide_that_the_short_way_is_right():
    model = small_model("llama", attention_dropout=0.5).train()
    assert how_to_read(model, ROWS[0]) is logits_read
    assert model.training
