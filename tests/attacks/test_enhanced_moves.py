"""Moves by hand, and draws by counting."""

import numpy as np
import pytest

from vestige.attacks.enhanced import Lengths
from vestige.attacks.enhanced_moves import (
    deleted,
    drawn_order,
    exchanged,
    inserted,
    move_shares,
    sampled_tokens,
)

SHARES = {"gcg": 0.7, "delete": 0.1, "insert": 0.1, "swap": 0.1}
RAMP = Lengths(32, 100, 1000)


def test_the_least_length_rises_in_a_line_and_stays():
    # 32 + 68 * 250 / 1000 = 49.
    assert [RAMP.least(step) for step in (0, 250, 1000, 1499)] == [32.0, 49.0, 100.0, 100.0]
    assert Lengths(3, 8, 0).least(0) == 8.0


def test_a_prompt_that_is_too_short_is_only_inserted_into():
    assert move_shares(SHARES, 48, 250, RAMP) == {"insert": 1.0}


def test_an_insertion_puts_in_what_is_lacking_and_four_at_most():
    # At step 250 the least is 49, at step 251 it is 49.068.
    assert [RAMP.to_insert(n, 250) for n in (60, 49, 48, 46, 30)] == [1, 1, 1, 3, 4]
    assert RAMP.to_insert(48, 251) == 2


def test_between_least_and_most_every_move_is_made():
    assert move_shares(SHARES, 60, 250, RAMP) == pytest.approx(SHARES)


def test_nothing_is_inserted_into_a_prompt_of_full_length():
    # 0.7, 0.1 and 0.1 of 0.9.
    expected = {"gcg": 7 / 9, "delete": 1 / 9, "swap": 1 / 9}
    assert move_shares(SHARES, 100, 1200, RAMP) == pytest.approx(expected)
    assert move_shares({"insert": 1.0, "gcg": 0.0}, 100, 1200, RAMP) == {"swap": 1.0}


def test_the_last_token_is_not_deleted():
    assert "delete" not in move_shares(SHARES, 1, 0, Lengths(1, 5, 10))


def test_moves_are_drawn_by_their_shares_and_each_once():
    rng = np.random.default_rng(0)
    orders = [drawn_order(SHARES, rng) for _ in range(2000)]
    assert all(sorted(order) == sorted(SHARES) for order in orders)
    # 0.7 of 2000 with a standard deviation of 20.
    assert sum(order[0] == "gcg" for order in orders) == pytest.approx(1400, abs=80)


def test_each_change_by_hand():
    assert deleted((1, 2, 3), [0, 2]) == [(2, 3), (1, 2)]
    assert inserted((1, 2, 3), [[(0, 8)], [(3, 9)]]) == [(8, 1, 2, 3), (1, 2, 3, 9)]
    assert inserted((1, 2, 3), [[(3, 7), (1, 9), (1, 8), (0, 6)]]) == [(6, 1, 8, 9, 2, 3, 7)]
    assert exchanged((1, 2, 3), [1, 1], [8, 9]) == [(1, 8, 3), (1, 9, 3)]


def test_sampled_tokens_follow_the_models_distribution():
    # One draw of k = 1 has token i with its probability: 0.5, 0.3, 0.2 at the first place, and 20 alone at the second.
    logits = np.log(np.array([[0.5, 0.3, 0.2], [1e-30, 1.0, 1e-30]]))
    ids = np.array([10, 20, 30])
    rng = np.random.default_rng(0)
    found = [sampled_tokens(logits, ids, np.array([0, 1]), 1, rng) for _ in range(4000)]
    counts = [sum(first == token for first, _ in found) for token in (10, 20, 30)]
    # Standard deviations of 32, 29 and 25.
    assert counts == pytest.approx([2000, 1200, 800], abs=110)
    assert {second for _, second in found} == {20}


def test_draws_at_one_place_share_the_k_tokens_that_were_drawn_without_replacement():
    logits, ids = np.zeros((1, 50)), np.arange(50)
    found = sampled_tokens(logits, ids, np.zeros(500, dtype=int), 3, np.random.default_rng(1))
    # 500 uniform draws of three tokens leave none of them out.
    assert len(set(found)) == 3
