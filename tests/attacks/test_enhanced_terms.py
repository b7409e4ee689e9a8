"""Each term by hand."""

import math

import torch

from vestige.attacks.enhanced import EnhancedSettings
from vestige.attacks.enhanced_objective import Terms, distance, forcing, repetition, turned_away


def test_forcing_bounds_each_token_and_not_their_mean():
    # p = 0.9 is past the clamp of 0.6 and counts as -ln 0.6; p = 0.1 counts as -ln 0.1.
    logp = torch.tensor([[0.9, 0.1], [0.7, 0.6]]).log()
    expected = torch.tensor([(-math.log(0.6) - math.log(0.1)) / 2, -math.log(0.6)])
    torch.testing.assert_close(forcing(logp, 0.6), expected)


def test_a_clamp_of_one_is_none():
    logp = torch.tensor([[0.9, 0.1]]).log()
    torch.testing.assert_close(forcing(logp, 1.0), torch.tensor([-(math.log(0.9) + math.log(0.1)) / 2]))


def test_a_token_past_the_clamp_has_no_gradient():
    logp = torch.tensor([[0.9, 0.1]]).log().requires_grad_()
    forcing(logp, 0.6).sum().backward()
    assert logp.grad.tolist() == [[0.0, -0.5]]


def test_distance_is_the_mean_norm_over_layers_and_places():
    # Two layers, two places: distances 5 and 0, then 13 and 2; mean (5 + 0 + 13 + 2) / 4 = 5.
    subject = torch.tensor([[[[3.0, 4.0], [1.0, 1.0]], [[5.0, 12.0], [2.0, 0.0]]]])
    target = torch.tensor([[[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]])
    torch.testing.assert_close(distance(subject, target, scaled=False), torch.tensor([5.0]))


def test_a_scaled_distance_is_by_the_square_of_each_layers_norm():
    # First layer: norms of the target 3 and 5, mean 4; distances 1 and 1: 100 * 1 / 16 each.
    # Second layer: norms 10 and 10; distances 10 and 0: 100 * 10 / 100 and 0. Mean (6.25 + 6.25 + 10 + 0) / 4.
    target = torch.tensor([[[[3.0, 0.0], [0.0, 5.0]], [[10.0, 0.0], [0.0, 10.0]]]])
    subject = torch.tensor([[[[4.0, 0.0], [0.0, 6.0]], [[0.0, 0.0], [0.0, 10.0]]]])
    torch.testing.assert_close(distance(subject, target, scaled=True), torch.tensor([5.625]))


def test_the_distance_from_oneself_is_nothing_and_pulls_nowhere():
    stream = torch.randn(2, 1, 3, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    found = distance(stream, stream.detach().clone(), scaled=False)
    found.sum().backward()
    assert found.tolist() == [0.0, 0.0]
    assert not stream.grad.any()


def test_turning_away_is_one_less_the_cosine():
    # cos 0, 1 and -1: 1 - cos is 1, 0 and 2, with a mean of 1; length does not count.
    subject = torch.tensor([[[[0.0, 3.0], [2.0, 0.0], [-5.0, 0.0]]]])
    without = torch.tensor([[[1.0, 0.0], [7.0, 0.0], [1.0, 0.0]]])
    torch.testing.assert_close(turned_away(subject, without), torch.tensor([1.0]))


def test_repetition_counts_what_comes_again_and_divides_by_the_length():
    # Token 7 three times: 2 ** 1.5; token 8 twice: 1; token 9 once: 0; six tokens.
    found = repetition([(7, 8, 7, 9, 7, 8), (1, 2, 3, 4, 5, 6)], 1.5)
    torch.testing.assert_close(found, torch.tensor([(2**1.5 + 1) / 6, 0.0]))


def test_the_loss_is_forcing_and_the_weighed_others():
    terms = Terms(*(torch.tensor([value]) for value in (1.0, 10.0, 100.0, 1000.0, 10000.0)))
    # 1 + 2 * 10 + 3 * 100 + 4 * 1000 + 5 * 10000.
    settings = EnhancedSettings(distance=2.0, representation=3.0, fluency=4.0, repetition=5.0)
    assert terms.weighed(settings).tolist() == [54321.0]


def test_a_term_without_weight_is_left_out_even_where_it_is_no_number():
    terms = Terms(*(torch.tensor([value]) for value in (1.0, math.inf, math.nan, 2.0, 3.0)))
    assert terms.weighed(EnhancedSettings(distance=0.0, repetition=0.0)).tolist() == [4.0]
