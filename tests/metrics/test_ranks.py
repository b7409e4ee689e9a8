import numpy as np
import pytest

from vestige.metrics.memorization import mrr, mrr_pistol_batch_weighted, top_hit


def test_reciprocal_rank_and_hits_by_hand():
    # (1 + 1/2 + 1/4 + 1/200) / 4 = 1.755 / 4; three of four rank 100 or better.
    ranks = np.array([1.0, 2.0, 4.0, 200.0])
    assert mrr(ranks) == pytest.approx(0.43875)
    assert top_hit(ranks) == 0.75
    assert top_hit(ranks, m=200) == 1.0


@pytest.mark.parametrize(
    ("n", "weight"),
    [
        (20, 32 / 36),  # the first 16 count twice, the last 4 once: 0.889, not 0.8
        (200, 208 / 1448),  # 13 batches: 16 (13 + 12 + ... + 2) + 8; 0.1436, not 0.08
        (16, 1.0),
    ],
)
def test_the_first_batch_weighs_too_much_in_pistols_mean(n, weight):
    first_only = (np.arange(n) < 16).astype(float)
    assert mrr_pistol_batch_weighted(first_only) == pytest.approx(weight)


def test_equal_values_are_their_own_mean_whatever_the_weights():
    assert mrr_pistol_batch_weighted(np.full(50, 0.3)) == pytest.approx(0.3)


@pytest.mark.parametrize("function", [mrr, top_hit, mrr_pistol_batch_weighted])
def test_nothing_has_no_mean(function):
    with pytest.raises(ValueError, match="no "):
        function(np.array([]))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_a_rank_below_one_is_refused(bad):
    for function in (mrr, top_hit):
        with pytest.raises(ValueError, match="count from 1"):
            function(np.array([2.0, bad]))
