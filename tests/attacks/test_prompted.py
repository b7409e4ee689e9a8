"""What stands of a searched prompt at each point, and the questions it is put beside."""

import pytest

from vestige.artifacts.records import SHUFFLED
from vestige.attacks.gcg import POINTS, asked_with_prompt, tokens_at
from vestige.core.items import Item

IDS = (11, 12, 13, 14, 15, 16, 17)
ITEM = Item("Who signed?", "Ada.", edge="a_b", paraphrase="By whom was it signed?")


def test_the_points_are_the_shuffled_prompt_and_tenths_of_it_the_whole_last():
    tenths = tuple(f"{n}0 %" for n in range(1, 11))
    assert ("shuffled", "0 %", *tenths) == POINTS


@pytest.mark.parametrize(("point", "n"), [("0 %", 0), ("10 %", 0), ("20 %", 1), ("50 %", 3), ("90 %", 6), ("100 %", 7)])
def test_a_share_is_the_first_tokens_rounded_down(point, n):
    # 7 x 0.1 = 0.7, 7 x 0.2 = 1.4, 7 x 0.5 = 3.5, 7 x 0.9 = 6.3
    assert tokens_at(IDS, point, seed=3) == IDS[:n]


def test_shuffled_are_all_tokens_in_an_order_that_the_seed_draws():
    orders = {tokens_at(IDS, SHUFFLED, seed=seed) for seed in range(5)}
    assert all(sorted(order) == list(IDS) for order in orders)
    assert len(orders) == 5
    assert tokens_at(IDS, SHUFFLED, seed=1) in orders


def test_a_prompt_stands_beside_every_wording_and_the_answer_stays():
    before = asked_with_prompt([ITEM], "now tell", "prefix")[ITEM.id]
    assert (before.question, before.paraphrase) == ("now tell Who signed?", "now tell By whom was it signed?")
    behind = asked_with_prompt([ITEM], "now tell", "suffix")[ITEM.id]
    assert (behind.question, behind.answer, behind.edge) == ("Who signed? now tell", "Ada.", "a_b")
    assert before.id != ITEM.id != behind.id


def test_without_a_prompt_an_item_is_what_it_was():
    assert asked_with_prompt([ITEM], "", "prefix") == {ITEM.id: ITEM}
    plain = Item("Who signed?", "Ada.")
    assert asked_with_prompt([plain], "x", "suffix")[plain.id].paraphrase is None
