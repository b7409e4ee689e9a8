"""Blocks under the lowest trained one: computed once a row, and nothing changes by that."""

import pytest
import torch

from vestige.models.blocks import block_output, blocks
from vestige.training import backward
from vestige.training.backward import ForwardStep, FrozenBelow, PassPlan
from vestige.training.step import Needs, Slice

pytestmark = pytest.mark.portable

NEEDS = Needs(activations=frozenset({"forget"}))


@pytest.fixture
def model(fresh):
    made = fresh().model.train()
    made.requires_grad_(False)
    blocks(made)[1].mlp.down_proj.requires_grad_(True)
    return made


def read(model, rows, below) -> ForwardStep:
    slices = {"forget": Slice(rows, len(rows), sum(r.n_tokens for r in rows))}
    return ForwardStep(NEEDS, slices, {}).run(model, 1, PassPlan(below=below))


def test_activations_and_gradients_are_those_of_a_whole_pass(model, rows):
    trained = blocks(model)[1].mlp.down_proj.weight
    below = FrozenBelow.of(model, 1, rows[0])
    assert below.lowest == 1
    gradients = []
    for how in (None, below):
        found = read(model, rows[:5], how).activations("forget")
        gradients += torch.autograd.grad(found.hidden[found.mask].square().sum(), [trained])
        for hidden, row in zip(found.hidden, rows, strict=False):
            alone = block_output(model, torch.tensor([row.ids]), 1)[0]
            torch.testing.assert_close(hidden[: len(row.ids)], alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


def test_what_is_kept_is_what_would_be_computed_again_whatever_the_neighbours(model, rows, monkeypatch):
    kept, alone = FrozenBelow(1), FrozenBelow(1)
    read(model, rows[:7], kept)
    for row in rows[:7]:
        read(model, [row], alone)
    assert all(torch.equal(kept.kept[r.key], alone.kept[r.key]) for r in rows[:7])
    again = read(model, rows[:7], kept)
    monkeypatch.setattr(backward, "KEPT_BYTES", 0)
    forgetful = FrozenBelow(1)
    fresh = read(model, rows[:7], forgetful)
    assert not forgetful.kept
    assert torch.equal(again.activations("forget").hidden, fresh.activations("forget").hidden)


def test_kept_rows_are_not_computed_again(model, rows):
    below = FrozenBelow(1)
    before = read(model, rows[:3], below).activations("forget").hidden
    with torch.no_grad():
        blocks(model)[0].mlp.down_proj.weight.fill_(torch.nan)
    assert torch.equal(read(model, rows[:3], below).activations("forget").hidden, before)


@pytest.mark.parametrize("why", ["dropout", "trained from the first block", "trained embeddings", "trained above"])
def test_blocks_are_not_left_out_where_that_would_change_anything(model, rows, why):
    if why == "dropout":
        blocks(model)[0].register_forward_hook(lambda _, __, out: torch.nn.functional.dropout(out, 0.1))
    elif why == "trained from the first block":
        blocks(model)[0].mlp.up_proj.requires_grad_(True)
    elif why == "trained embeddings":
        model.get_input_embeddings().requires_grad_(True)
    else:
        blocks(model)[1].mlp.down_proj.requires_grad_(False)
        blocks(model)[2].mlp.down_proj.requires_grad_(True)
    assert FrozenBelow.of(model, 1, rows[0]) is None
