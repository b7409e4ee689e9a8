"""Where RMU reads and trains, and the directions it steers to."""

import pytest
import torch
from fake_step import fake_step

from vestige.core.errors import InputError
from vestige.methods.rmu import RMU
from vestige.methods.steering import direction, steered


@pytest.mark.parametrize(
    ("n_blocks", "read", "update"),
    [(32, 7, (5, 6, 7)), (14, 7, (5, 6, 7)), (8, 4, (2, 3, 4)), (4, 2, (0, 1, 2)), (3, 1, (0, 1)), (1, 0, (0,))],
)
def test_the_papers_block_is_read_where_the_model_is_deep_enough_and_the_middle_one_else(n_blocks, read, update):
    layers = RMU().layers(n_blocks, "mlp.down_proj")
    assert (layers.read, layers.update, layers.parameters) == (read, update, ("mlp.down_proj",))


def test_layers_and_modules_that_are_named_win():
    rmu = RMU.build({"layer": 2, "update_layers": [1, 0, 1], "parameters": ["mlp.up_proj", "mlp.down_proj"]})
    layers = rmu.layers(3, "mlp.c_proj")
    assert (layers.read, layers.update, layers.parameters) == (2, (0, 1), ("mlp.up_proj", "mlp.down_proj"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layer": 3}, "layer = 3: the model has blocks 0 to 2"),
        ({"layer": -1}, "layer = -1"),
        ({"layer": 1, "update_layers": [1, 2]}, r"update_layers = \[1, 2\]: only blocks 0 to 1"),
        ({"update_layers": []}, r"update_layers = \[\]"),
        ({"update_layers": [-1, 0]}, r"update_layers = \[-1, 0\]"),
    ],
)
def test_layers_that_cannot_be_read_or_trained_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        RMU.build(settings).layers(3, "mlp.down_proj")


def test_a_direction_is_a_unit_vector_of_positive_entries_one_for_each_topic_and_seed():
    found = [direction("A_B", width=64, seed=0), direction("A_C", width=64, seed=0), direction("A_B", width=64, seed=1)]
    for unit in found:
        assert unit.norm().item() == pytest.approx(1)
        assert (unit >= 0).all()
    torch.testing.assert_close(found[0], direction("A_B", width=64, seed=0), rtol=0, atol=0)
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_rows_are_steered_to_the_direction_of_their_own_topic():
    step = fake_step()
    step.topics = ("A_C", "A_C")
    together = steered(step.activations("forget"), 6.5, 0)
    step.topics = ("A_B", "A_C")
    apart = steered(step.activations("forget"), 6.5, 0)
    assert together.shape == (2, 4, 3)
    torch.testing.assert_close(together[0], together[1])
    torch.testing.assert_close(apart[1], together[1])
    torch.testing.assert_close(apart[0], 6.5 * direction("A_B", width=3, seed=0).float().expand(4, 3))
    assert not torch.equal(apart[0], apart[1])
