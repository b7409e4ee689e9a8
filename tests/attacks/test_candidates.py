"""Proposals: by hand, against nanoGCG's operations on the same random numbers, and exhaustively."""

import numpy as np
import pytest
import torch

from vestige.attacks.gcg import Vocabulary, best_tokens, swapped, swaps_by_gradient, without_repeats


def test_swaps_by_hand():
    # Place 0: token 4 has the least gradient, then 1; token 0 is not admissible. Place 1: 2, then 4.
    gradient = torch.tensor([[-9.0, -1.0, 0.0, 2.0, -3.0], [-9.0, 1.0, -2.0, 0.5, -1.0]])
    best = best_tokens(gradient, Vocabulary((1, 2, 3, 4)), 2)
    assert best.tolist() == [[4, 1], [2, 4]]
    places, ranks = np.array([[0], [1], [1]]), np.array([[1], [0], [1]])
    assert swapped((7, 8), best, places, ranks) == [(1, 8), (7, 2), (7, 4)]
    assert swapped((7, 8), best, np.array([[1, 0]]), np.array([[0, 0]])) == [(4, 2)]


def as_nanogcg_samples(ids, grad, positions, ranks, topk, not_allowed):
    """What nanoGCG 0.3.0 computes in `sample_ids_from_grad`, its two random draws handed in."""
    grad = grad.clone()
    grad[:, not_allowed] = float("inf")
    topk_ids = (-grad).topk(topk, dim=1).indices
    values = torch.gather(topk_ids[positions], 2, ranks[..., None]).squeeze(2)
    return ids.repeat(len(positions), 1).scatter_(1, positions, values)


@pytest.mark.parametrize("replaced", [1, 3])
def test_sampling_is_nanogcgs_given_the_same_random_numbers(replaced):
    width, topk, n_tokens, size = 64, 8, 6, 50
    gradient = torch.randn(n_tokens, size, generator=torch.Generator().manual_seed(0))
    admissible = Vocabulary(tuple(range(5, size, 2)))
    prompt = tuple(range(5, 5 + n_tokens))
    ours = swaps_by_gradient(
        prompt, gradient, admissible, width=width, topk=topk, replaced=replaced, rng=np.random.default_rng(3)
    )
    rng = np.random.default_rng(3)
    positions = torch.argsort(torch.tensor(rng.random((width, n_tokens))))[..., :replaced]
    ranks = torch.tensor(rng.integers(0, topk, (width, replaced)))
    out = torch.tensor([i for i in range(size) if i not in admissible.ids])
    theirs = as_nanogcg_samples(torch.tensor(prompt), gradient, positions, ranks, topk, out)
    assert ours == [tuple(row) for row in theirs.tolist()]


def test_wide_enough_draws_are_all_one_token_swaps():
    admissible, prompt = Vocabulary((2, 4, 6, 8, 9)), (2, 3, 8)
    gradient = torch.randn(3, 10, generator=torch.Generator().manual_seed(1))
    # 15 swaps, 1000 draws: one is missed with a probability of 15 (14 / 15)^1000, which is 10^-29.
    drawn = swaps_by_gradient(
        prompt, gradient, admissible, width=1000, topk=5, replaced=1, rng=np.random.default_rng(0)
    )
    every = {(*prompt[:at], token, *prompt[at + 1 :]) for at in range(3) for token in admissible.ids}
    assert set(drawn) == every
    assert len(drawn) == 1000
    assert len(without_repeats(drawn)) == len(every) == 14
