"""A decoder's blocks, found and left out."""

import pytest
import torch
from families import FAMILIES, small_model
from torch import nn

from vestige.core.errors import InputError
from vestige.models.blocks import block_output, blocks, continued_from, gives_hidden_states_alone, output_projection

IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])
PROJECTIONS = {"phi": "mlp.fc2", "gpt2": "mlp.c_proj"}


@pytest.mark.parametrize("family", FAMILIES)
def test_blocks_and_their_output_projection_are_found(family):
    found = blocks(small_model(family))
    assert len(found) == 3
    assert output_projection(found[0]) == PROJECTIONS.get(family, "mlp.down_proj")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_blocks_output_is_that_of_a_whole_pass(family):
    model = small_model(family)
    expected = model(IDS, output_hidden_states=True).hidden_states[2]
    torch.testing.assert_close(block_output(model, IDS, 1), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_goes_on_from_a_blocks_output_without_what_lies_below(family):
    model = small_model(family)
    assert gives_hidden_states_alone(model, IDS)
    expected = block_output(model, IDS, 2)
    entering = block_output(model, IDS, 0).detach()
    with torch.no_grad():
        for parameter in blocks(model)[0].parameters():
            parameter.fill_(torch.nan)
    torch.testing.assert_close(continued_from(model, IDS, entering, start=1, layer=2), expected)
    assert block_output(model, IDS, 2).isnan().all(), "the blocks are back in their place"


def test_a_model_whose_blocks_cannot_be_told_apart_is_refused():
    model = small_model("llama")
    model.more = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)])
    with pytest.raises(InputError, match="has 2 lists of 3 blocks"):
        blocks(model)


def test_a_block_without_a_known_output_projection_names_what_it_has():
    with pytest.raises(InputError, match=r"setting parameters, out of inner"):
        output_projection(nn.ModuleDict({"inner": nn.Linear(1, 1)}))
