"""Adversarial compression by hand: ratios, shares, and what was not found."""

import pytest

from vestige.metrics.compression import compression, compression_ratio, memorised, paired
from vestige.metrics.intervals import wilson


def test_a_text_is_memorised_where_the_prompt_is_strictly_shorter():
    assert compression_ratio(12, 4) == 3.0
    assert memorised(12, 11)
    assert not memorised(12, 12)
    assert not memorised(12, None)


@pytest.mark.parametrize(("text", "prompt"), [(0, 3), (3, 0)])
def test_nothing_has_no_ratio(text, prompt):
    with pytest.raises(ValueError, match="have no ratio"):
        compression_ratio(text, prompt)


def test_what_was_not_found_counts_in_the_share_and_in_no_mean():
    # 12/4 = 3, 12/6 = 2, not found, 10/20 = 0.5: two of four memorised; mean of three ratios 5.5 / 3.
    found = compression([12, 12, 9, 10], [4, 6, None, 20], seed=0)
    assert (found.n, found.n_found, found.n_not_found) == (4, 3, 1)
    assert found.share == 0.5
    assert found.share_interval == wilson(2, 4)
    assert found.ratio == pytest.approx(5.5 / 3)
    assert found.ratio_interval is not None
    assert found.ratio_interval.low < 5.5 / 3 < found.ratio_interval.high


def test_with_nothing_found_there_is_no_ratio_and_with_one_no_interval():
    none = compression([12, 12], [None, None], seed=0)
    assert (none.share, none.ratio, none.ratio_interval, none.n_not_found) == (0.0, None, None, 2)
    one = compression([12, 12], [None, 6], seed=0)
    assert (one.ratio, one.ratio_interval) == (2.0, None)


def test_no_items_are_refused():
    with pytest.raises(ValueError, match="without items"):
        compression([], [], seed=0)


def test_items_are_compared_pair_by_pair_and_what_was_found_is_shorter_than_what_was_not():
    # Shorter in the first: 3 < 7, 5 < not found, 1 < 2, 4 < 9, 2 < 8; in the second: 6 > 5; same 4; neither one.
    first = [3, 5, 1, 4, 2, 6, 4, None]
    second = [7, None, 2, 9, 8, 5, 4, None]
    found = paired(first, second)
    assert found[:4] == (5, 1, 1, 1)
    # 5 of 6 heads: 2 x (C(6,5) + C(6,6)) / 2^6 = 14/64.
    assert found.p == pytest.approx(14 / 64)
    assert paired(second, first)[:4] == (1, 5, 1, 1)


def test_where_no_item_differs_nothing_is_shown():
    assert paired([2, None], [2, None]) == (0, 0, 1, 1, 1.0)
