"""Damage to the weights: by hand, and gradients against the loss of transformers itself."""

import pytest
import torch
from tests.attacks.conftest import ITEMS, labelled_loss

from vestige.attacks.damage import damages, greatest, importance
from vestige.attacks.quantize import linear_layers
from vestige.models.scoring import answer_loss


def by_name(before, forget, retain, seed=0):
    return {name: next(make()) for name, make in damages([before], [forget], [retain], seed=seed).items()}


def test_the_greatest_entries_and_all_that_equal_the_last_of_them():
    values = torch.tensor([[4.0, 1.0], [3.0, 2.0]])
    assert greatest(values, 0.5).tolist() == [[True, False], [True, False]]
    assert greatest(values, 0.1).sum() == 0, "0.4 of an entry rounds to none"
    assert greatest(torch.tensor([[2.0, 2.0, 1.0, 0.0]]), 0.25).tolist() == [[True, True, False, False]]


def test_the_set_difference_and_the_smallest_by_hand():
    # Of 200 weights 5 % are 10: places 0 to 9 matter most to forgotten answers; 2.5 % are 5, places 5 to 9 to retained.
    place = torch.arange(200.0)[None]
    weight = place + 1
    retain = -(place - 7).abs()
    results = by_name(weight, 200 - place, retain)
    zeros = {name: (matrix == 0).nonzero()[:, 1].tolist() for name, matrix in results.items()}
    assert zeros["set difference q=0.05 p=0.025"] == [0, 1, 2, 3, 4]
    assert zeros["set difference q=0.005 p=0.05"] == [0]
    assert zeros["set difference q=0.01 p=0.005"] == [0, 1]
    assert zeros["magnitude 0.1"] == list(range(20))
    assert zeros["magnitude 0.5"] == list(range(100))
    assert torch.equal(results["magnitude 0.1"][0, 20:], weight[0, 20:])
    assert len(results) == 16 + 5 + 9
    # Where forgotten answers need two weights alone, no share takes more.
    few = by_name(weight, (place < 2).float(), retain)
    assert (few["set difference q=0.05 p=0.005"] == 0).sum() == 2


def test_noise_is_a_share_of_the_root_mean_square_and_each_draw_another():
    weight = torch.full((100, 100), 3.0)
    zeros = torch.zeros_like(weight)
    noise = {name: matrix - weight for name, matrix in by_name(weight, zeros, zeros).items() if "noise" in name}
    for name, added in noise.items():
        sigma = float(name.split()[1].rstrip(","))
        # 10,000 draws: the standard deviation is within 3 % of its own.
        assert float(added.std()) == pytest.approx(3 * sigma, rel=0.03)
        assert abs(float(added.mean())) < 0.1 * sigma
    assert not torch.equal(noise["noise 0.01, draw 0"], noise["noise 0.01, draw 1"])
    again = by_name(weight, zeros, zeros)
    assert torch.equal(again["noise 0.01, draw 0"], noise["noise 0.01, draw 0"] + weight)
    assert not torch.equal(by_name(weight, zeros, zeros, seed=1)["noise 0.01, draw 0"], again["noise 0.01, draw 0"])


def test_the_importance_is_the_weight_times_the_gradient_of_transformers_own_loss(nano):
    encoded = [nano.prompter.encode(i.question, i.answer) for i in ITEMS[:11]]
    weights = [layer.weight for layer in linear_layers(nano.model)]
    with torch.no_grad():
        torch.testing.assert_close(answer_loss(nano.model, encoded), labelled_loss(nano.model, encoded))
    found = importance(nano.model, weights, encoded)
    parts = encoded[:8], encoded[8:]
    gradients = [torch.autograd.grad(labelled_loss(nano.model, part), weights) for part in parts]
    for n, weight in enumerate(weights):
        torch.testing.assert_close(found[n], (weight * (gradients[0][n] + gradients[1][n])).abs().detach())
