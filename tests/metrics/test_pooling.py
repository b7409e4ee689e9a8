import math

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.intervals import interval_of_mean
from vestige.metrics.pooling import contrast_over_seeds, interval_over_seeds


def test_seeds_that_agree_add_nothing():
    scores = np.array([[0.0, 0.5, 1.0, 1.0]] * 3)
    alone = interval_of_mean(scores[0], seed=0)
    pooled = interval_over_seeds(scores, clusters=None, bounds=(0.0, 1.0), seed=0)
    assert (pooled.low, pooled.high) == pytest.approx((alone.low, alone.high))
    assert pooled.method == "Gaffke, and t over 3 seeds"


def test_the_arms_of_items_and_seeds_add_in_quadrature():
    # Means 0.4, 0.5, 0.6 a seed: sd 0.1, t(2) = 4.302653, arm 4.302653 x 0.1 / sqrt(3) = 0.248414.
    scores = np.array([[0.4] * 40, [0.5] * 40, [0.6] * 40])
    items = interval_of_mean(np.full(40, 0.5), seed=0)
    pooled = interval_over_seeds(scores, clusters=None, bounds=(0.0, 1.0), seed=0)
    assert 0.5 - pooled.low == pytest.approx(math.sqrt((0.5 - items.low) ** 2 + 0.248414**2), abs=1e-6)
    assert pooled.high - 0.5 == pytest.approx(math.sqrt((items.high - 0.5) ** 2 + 0.248414**2), abs=1e-6)


def test_the_ends_stay_within_the_bounds():
    scores = np.array([[0.0] * 4, [0.0] * 4, [1.0] * 4])
    pooled = interval_over_seeds(scores, clusters=None, bounds=(0.0, 1.0), seed=0)
    assert (pooled.low, pooled.high) == (0.0, 1.0)


def test_one_seed_is_said():
    pooled = interval_over_seeds(np.array([[0.0, 1.0, 1.0]]), clusters=None, bounds=(0.0, 1.0), seed=0)
    assert pooled.method == "Wilson, one seed only"


@pytest.mark.slow
def test_the_truth_is_covered_whatever_part_the_seeds_have():
    # Logits: an item's own, a seed's own, and noise; the truth is the mean over very many of each.
    rng = np.random.default_rng(0)

    def draw(n_seeds: int, n_items: int, spread: float) -> np.ndarray:
        logits = (
            rng.normal(0, 1.5, n_items) + rng.normal(0, spread, (n_seeds, 1)) + rng.normal(0, 1, (n_seeds, n_items))
        )
        return 1 / (1 + np.exp(-logits))

    for spread in (0.0, 1.0):
        truth = draw(1500, 1500, spread).mean()
        hits = 0
        for k in range(200):
            found = interval_over_seeds(draw(3, 20, spread), clusters=None, bounds=(0.0, 1.0), seed=k)
            hits += found.low <= truth <= found.high
        # Of 200 intervals of 95 %, 182 or more hold the truth in 99 of 100 such tests.
        assert hits >= 182, (spread, hits)


def test_a_difference_between_paired_items_counts_items_and_seeds():
    first = np.array([[0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.5]])
    # By item the mean differences are 0.1, 0.1, 0.3, 0.3 (variance 0.04 / 3, over 4 items); by seed 0.15 and 0.25.
    second = first + np.array([[0.05, 0.05, 0.25, 0.25], [0.15, 0.15, 0.35, 0.35]])
    found = contrast_over_seeds(first, second, paired=True)
    by_item, by_seed = 0.04 / 3 / 4, 0.005 / 2
    assert found.difference == pytest.approx(0.2)
    assert found.t == pytest.approx(0.2 / math.sqrt(by_item + by_seed))
    assert found.df == pytest.approx((by_item + by_seed) ** 2 / (by_item**2 / 3 + by_seed**2 / 1))
    assert found.low < 0.2 < found.high
    assert found.p == pytest.approx(2 * stats.t.sf(found.t, found.df))
    back = contrast_over_seeds(second, first, paired=True)
    assert (back.difference, back.t, back.p) == pytest.approx((-0.2, -found.t, found.p))


def test_unpaired_sides_bring_their_own_spread_and_clusters_from_five_on():
    first, second = np.array([[0.0, 0.2, 0.4]]), np.array([[0.1, 0.3, 0.5, 0.7, 0.9]])
    found = contrast_over_seeds(first, second, paired=False)
    welch = stats.ttest_ind(second[0], first[0], equal_var=False)
    assert (found.t, found.p, found.df) == pytest.approx((welch.statistic, welch.pvalue, welch.df))
    # Ten items in five clusters of equal ones are five items.
    doubled = np.repeat(second, 2, axis=1)
    clustered = contrast_over_seeds(first, doubled, paired=False, clusters=(None, list("aabbccddee")))
    assert clustered.t == pytest.approx(found.t)
    assert contrast_over_seeds(first, doubled, paired=False).t > found.t


def test_without_spread_there_is_no_test():
    found = contrast_over_seeds(np.zeros((3, 4)), np.ones((3, 4)), paired=True)
    assert (found.difference, found.t, found.p) == (1.0, None, None)
