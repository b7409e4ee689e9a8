"""Membership scores and how they are told apart: each against a count or a formula of its own."""

import zlib

import numpy as np
import pytest
from scipy.stats import norm

from vestige.metrics.memorization import auc, auc_interval, hits_at_fpr, loss, placements, zlib_bytes, zlib_score


def by_pairs(members, others):
    return sum((x > y) + (x == y) / 2 for x in members for y in others) / (len(members) * len(others))


def test_the_area_is_the_share_of_pairs_won_and_half_of_those_tied():
    # 3 beats 1 and 2; 2 beats 1 and ties 2; 0 beats none: (2 + 1.5 + 0) / 6.
    assert auc(np.array([3.0, 2.0, 0.0]), np.array([1.0, 2.0])) == pytest.approx(3.5 / 6)
    rng = np.random.default_rng(0)
    for n, m in ((1, 1), (7, 30), (40, 13)):
        members, others = rng.integers(0, 9, n).astype(float), rng.integers(0, 9, m).astype(float)
        assert auc(members, others) == pytest.approx(by_pairs(members, others))
        assert auc(others, members) == pytest.approx(1 - by_pairs(members, others))


def test_placements_are_each_texts_own_share_and_average_to_the_area():
    members, others = np.array([3.0, 2.0, 0.0]), np.array([1.0, 2.0])
    above, below = placements(members, others)
    assert above.tolist() == [1.0, 0.75, 0.0]
    # Above 1 are 3 and 2 of three; above 2 is 3, and 2 is level with it.
    assert below == pytest.approx([2 / 3, 1.5 / 3])
    assert above.mean() == pytest.approx(below.mean())


@pytest.mark.parametrize("turned", [1, -1])
def test_two_sets_told_apart_wholly_are_still_no_certainty(turned):
    members, others = turned * np.arange(20.0, 40.0), turned * np.arange(20.0)
    found = auc_interval(members, others, seed=0)
    # One text more at the worst place, of 21: 1 - .025^(1/20) = .168 for it alone.
    if turned == 1:
        assert 0.6 < found.low < 0.025 ** (1 / 20)
        assert found.high == 1.0
    else:
        assert found.low == 0.0
        assert 1 - 0.025 ** (1 / 20) < found.high < 0.4


def test_the_interval_does_not_know_the_order_of_the_texts_and_depends_on_the_seed_alone():
    rng = np.random.default_rng(1)
    members, others = rng.normal(1, 1, 30), rng.normal(0, 1, 50)
    first = auc_interval(members, others, seed=3)
    assert auc_interval(members[::-1], np.sort(others), seed=3) == first
    assert auc_interval(members, others, seed=4) != first
    assert first.low < auc(members, others) < first.high


def test_edges_of_one_text_each_widen_the_arms_by_the_quantile_of_t_alone():
    # A design effect of 1 leaves t(19) / z = 2.093024 / 1.959964 = 1.067889 on either side.
    rng = np.random.default_rng(4)
    members, others, names = rng.normal(0.5, 1, 20), rng.normal(0, 1, 20), [str(n) for n in range(20)]
    area, plain = auc(members, others), auc_interval(members, others, seed=0)
    found = auc_interval(members, others, member_clusters=names, other_clusters=names, seed=0)
    assert (area - found.low) / (area - plain.low) == pytest.approx(1.067889, abs=1e-6)
    assert (found.high - area) / (plain.high - area) == pytest.approx(1.067889, abs=1e-6)


def test_clusters_widen_the_interval_and_few_of_them_are_said():
    rng = np.random.default_rng(2)
    others = np.repeat(rng.normal(0, 1, 10), 20)
    members, edges = rng.normal(0.5, 1, 20), [f"e{n // 20}" for n in range(200)]
    plain = auc_interval(members, others, seed=0)
    found = auc_interval(members, others, member_clusters=["A_B"] * 20, other_clusters=edges, seed=0)
    assert plain.method == "members Gaffke; others Gaffke"
    assert found.method == "members Gaffke, items of 1 cluster only; others Gaffke, widened for 10 clusters"
    assert found.high - found.low > 1.2 * (plain.high - plain.low)
    # One cluster is no spread between clusters: nothing is widened for it.
    assert auc_interval(members, others, member_clusters=["A_B"] * 20, seed=0)[:2] == plain[:2]
    with pytest.raises(ValueError, match="200 scores but 3 cluster names"):
        auc_interval(members, others, other_clusters=["a", "b", "c"], seed=0)


@pytest.mark.parametrize(("shift", "spread"), [(0.0, 1.0), (1.0, 1.0), (2.5, 0.2)])
def test_the_interval_covers_the_true_area(shift, spread):
    # Normal scores: P(x > y) = Phi(shift / sqrt(1 + spread^2)).
    true = norm.cdf(shift / np.hypot(1, spread))
    rng, held = np.random.default_rng(5), 0
    for n in range(100):
        found = auc_interval(rng.normal(shift, spread, 20), rng.normal(0, 1, 100), seed=n)
        held += found.low <= true <= found.high
    # At 95 % fewer than 90 of 100 would come about once in 90 times.
    assert held >= 90


def test_hits_are_above_all_but_the_share_of_others_that_may_be_taken_for_members():
    others = np.arange(20.0)
    members = np.array([17.5, 18.0, 18.5, 19.0, 19.5])
    # No one of 20 may pass at 1 %: above 19 alone. One may at 5 %: above 18. Two at 10 %: above 17.
    assert hits_at_fpr(members, others, fpr=0.01).tolist() == [0, 0, 0, 0, 1]
    assert hits_at_fpr(members, others, fpr=0.05).tolist() == [0, 0, 1, 1, 1]
    assert hits_at_fpr(members, others, fpr=0.1).tolist() == [1, 1, 1, 1, 1]
    # Level with the threshold is not above it: others that are tied do not become false alarms.
    assert hits_at_fpr(np.array([1.0]), np.ones(20), fpr=0.5).tolist() == [0]
    with pytest.raises(ValueError, match="false positive rate"):
        hits_at_fpr(members, others, fpr=1.0)


def test_loss_and_zlib_by_hand():
    logp = np.array([-1.0, -3.0, -2.0])
    assert loss(logp) == -2.0
    text = "What is the price? What is the price?"
    compressor = zlib.compressobj(6)
    n = len(compressor.compress(text.encode()) + compressor.flush())
    assert zlib_bytes(text) == n < len(text)
    assert zlib_score(logp, n) == -6 / n
    # An empty text has a header of two bytes, an empty block of two and a checksum of four.
    assert zlib_bytes("") == 8
    with pytest.raises(ValueError, match="has bytes"):
        zlib_score(logp, 0)
