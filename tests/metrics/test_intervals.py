import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics import intervals
from vestige.metrics.intervals import design_effect, gaffke, interval_of_mean, studentised_bootstrap, wilson


def test_wilson_by_hand_at_the_ends():
    # z^2 = 3.841459. 0 of 20: the high end is z^2 / (20 + z^2) = 0.161125; 73 items bring it to 0.05.
    assert wilson(0, 20)[:2] == pytest.approx((0.0, 0.161125), abs=1e-6)
    assert wilson(0, 73).high == pytest.approx(0.05, abs=1e-4)
    assert wilson(20, 20)[:2] == pytest.approx((1 - 0.161125, 1.0), abs=1e-6)
    assert wilson(0, 20).low == 0
    assert wilson(20, 20).high == 1


def test_wilson_is_scipys():
    theirs = stats.binomtest(7, 31).proportion_ci(method="wilson")
    assert wilson(7, 31)[:2] == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize(("hits", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_proportion(hits, n):
    with pytest.raises(ValueError, match="no proportion"):
        wilson(hits, n)


def test_scores_of_0_and_1_get_wilson():
    values = np.array([1.0] * 7 + [0.0] * 24)
    assert interval_of_mean(values, seed=0) == wilson(7, 31)


def test_scores_at_other_bounds_get_wilson_scaled():
    # 7 of 31 at the upper bound; [-1, 1] is twice as wide and begins at -1.
    values = np.array([1.0] * 7 + [-1.0] * 24)
    found = interval_of_mean(values, bounds=(-1.0, 1.0), seed=0)
    assert found[:2] == pytest.approx([2 * end - 1 for end in wilson(7, 31)[:2]])


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (1, 20), (10, 20), (57, 60)])
def test_gaffke_is_clopper_pearson_for_proportions(hits, n):
    theirs = stats.binomtest(hits, n).proportion_ci(method="exact")
    values = np.array([1.0] * hits + [0.0] * (n - hits))
    assert gaffke(values, bounds=(0.0, 1.0), seed=1)[:2] == pytest.approx((theirs.low, theirs.high), abs=0.006)


def test_gaffke_of_equal_scores_by_hand():
    # All 20 at 0.5: the high end is 0.5 + 0.5 D, D the weight of one of 21: P(D > d) = (1 - d)^20 = 0.025,
    # so d = 1 - 0.025^(1/20) = 0.168433, and the ends are 0.5 -+ 0.084217.
    found = gaffke(np.full(20, 0.5), bounds=(0.0, 1.0), seed=3)
    assert found[:2] == pytest.approx((0.5 - 0.084217, 0.5 + 0.084217), abs=0.003)


def test_one_score_says_little_but_something():
    # n = 1: D is uniform, so the low end is 0.025 x 0.8 = 0.02 and the high end 0.8 + 0.2 x 0.975 = 0.995.
    assert interval_of_mean(np.array([0.8]), seed=0)[:2] == pytest.approx((0.02, 0.995), abs=0.01)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=30),
    n_clusters=st.integers(0, 8),
)
def test_an_interval_holds_the_mean_stays_in_bounds_and_is_never_a_point(values, n_clusters):
    scores = np.array(values)
    clusters = [str(i % n_clusters) for i in range(len(values))] if n_clusters else None
    low, high, method = interval_of_mean(scores, clusters=clusters, seed=0)
    assert 0 <= low <= scores.mean() + 1e-9
    assert scores.mean() - 1e-9 <= high <= 1
    assert high - low > 0.05
    assert method


def test_the_seed_and_the_scores_decide_and_the_order_does_not():
    rng = np.random.default_rng(0)
    scores, clusters = rng.random(60) ** 5, np.repeat([f"edge {i}" for i in range(6)], 10)
    for bounds in ((0.0, 1.0), None):
        once = interval_of_mean(scores, clusters=list(clusters), bounds=bounds, seed=5)
        for _ in range(10):
            mixed = rng.permutation(60)
            assert interval_of_mean(scores[mixed], clusters=list(clusters[mixed]), bounds=bounds, seed=5) == once
        assert interval_of_mean(scores, clusters=list(clusters), bounds=bounds, seed=6) != once


def test_bounds_shift_and_stretch_the_interval():
    scores = np.random.default_rng(1).random(40)
    plain = interval_of_mean(scores, seed=0)
    wide = interval_of_mean(10 * scores - 3, bounds=(-3.0, 7.0), seed=0)
    assert wide[:2] == pytest.approx([10 * end - 3 for end in plain[:2]])


def test_the_design_effect_by_hand():
    # Two clusters, 1 1 1 1 and 0 0 0 0: mean 1/2, residual sums 2 and -2, so the variance of the mean over
    # clusters is 2/1 x (4 + 4) / 64 = 1/4. Over items: s^2 = 8 x 1/4 / 7 = 2/7, / 8 = 1/28. Effect 28/4 = 7.
    scores = np.array([1.0] * 4 + [0.0] * 4)
    assert design_effect(scores, np.array(list("aaaabbbb"))) == pytest.approx(7)
    # Alike clusters differ less than chance would have it; the effect is taken as 1.
    assert design_effect(scores, np.array(list("abababab"))) == 1
    assert design_effect(np.ones(4), np.array(list("aabb"))) == 1
    with pytest.raises(ValueError, match="one cluster"):
        design_effect(scores, np.array(["a"] * 8))


def test_clusters_widen_the_arms_by_the_design_effect_and_t():
    scores = np.random.default_rng(2).random(200)
    clusters = np.repeat([str(i) for i in range(10)], 20)
    scores[clusters < "5"] *= 0.5
    items = interval_of_mean(scores, seed=0)
    found = interval_of_mean(scores, clusters=list(clusters), seed=0)
    factor = math.sqrt(design_effect(scores, clusters)) * stats.t.ppf(0.975, 9) / stats.norm.ppf(0.975)
    assert factor > 1.5
    assert found.low == pytest.approx(scores.mean() - factor * (scores.mean() - items.low))
    assert found.high == pytest.approx(scores.mean() + factor * (items.high - scores.mean()))
    assert found.method == "Gaffke, widened for 10 clusters"


def test_few_clusters_are_spoken_of_alone_and_the_method_says_so():
    scores = np.array([1.0] * 30 + [0.0] * 10)
    for n, named in ((1, "1 cluster"), (4, "4 clusters")):
        found = interval_of_mean(scores, clusters=[str(i % n) for i in range(40)], seed=0)
        assert found == (*wilson(30, 40)[:2], f"Wilson, items of {named} only")
    assert "widened for 5" in interval_of_mean(scores, clusters=[str(i % 5) for i in range(40)], seed=0).method


def test_scores_without_bounds_get_the_studentised_bootstrap():
    # Symmetric scores: close to Student's t.
    scores = stats.norm.ppf((np.arange(200) + 0.5) / 200)
    found = interval_of_mean(scores, bounds=None, seed=0)
    arm = stats.t.ppf(0.975, 199) * scores.std(ddof=1) / math.sqrt(200)
    assert found[:2] == pytest.approx((-arm, arm), abs=0.01)
    assert found.method == "studentised bootstrap and t"
    # Scores with a long tail to the right: a longer arm to the right.
    skewed = np.exp(scores[::4])
    low, high, _ = studentised_bootstrap(skewed, seed=0)
    assert high - skewed.mean() > 1.2 * (skewed.mean() - low)


def test_without_bounds_one_score_and_equal_scores_have_no_interval():
    assert interval_of_mean(np.array([3.0]), bounds=None, seed=0) == (-math.inf, math.inf, "too few: one score")
    equal = interval_of_mean(np.full(6, 0.8), clusters=list("abcdef"), bounds=None, seed=0)
    assert equal == (-math.inf, math.inf, "no spread: all 6 scores are equal")


@pytest.mark.parametrize("n", range(2, 9))
@pytest.mark.parametrize("ties", [False, True])
def test_few_scores_without_bounds_are_neither_certain_nor_absurd(n, ties):
    scores = np.r_[np.full(n - 1, 20 / 6), 20 / 3] if ties else np.random.default_rng(n).normal(size=n)
    # A tie that rounding broke is one still.
    for values in (scores, scores * (1 + 1e-15 * np.arange(n))):
        low, high, _ = interval_of_mean(values, bounds=None, seed=0)
        arm = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / math.sqrt(n)
        assert values.mean() - 10.5 * np.ptp(values) < low <= values.mean() - arm + 1e-9
        assert values.mean() + arm - 1e-9 <= high < values.mean() + 10.5 * np.ptp(values)


@pytest.mark.slow
@pytest.mark.parametrize("n", range(2, 9))
@pytest.mark.parametrize(
    ("draw", "mean", "least"),
    [
        (lambda rng, n: rng.normal(size=n), 0.0, 0.91),
        (lambda rng, n: rng.exponential(size=n), 1.0, 0.86),
        (lambda rng, n: (rng.random(n) < 0.3).astype(float), 0.3, 0.95),
    ],
)
def test_few_scores_without_bounds_are_covered(n, draw, mean, least, monkeypatch):
    # 150 samples; the least is two standard errors below what docs/metrics.md measures.
    monkeypatch.setattr(intervals, "RESAMPLES", 1000)
    rng = np.random.default_rng(n)
    found = [interval_of_mean(draw(rng, n), bounds=None, seed=0) for _ in range(150)]
    assert np.mean([low <= mean <= high for low, high, _ in found]) >= least


@pytest.mark.parametrize(
    ("values", "bounds", "said"),
    [
        ([], (0.0, 1.0), "needs a row of scores"),
        ([0.5, math.nan], (0.0, 1.0), "finite"),
        ([0.5, 1.5], (0.0, 1.0), "leave the bounds"),
        ([0.5], (1.0, 0.0), "rising order"),
        ([math.inf], None, "finite"),
    ],
)
def test_what_has_no_interval_is_refused(values, bounds, said):
    with pytest.raises(ValueError, match=said):
        interval_of_mean(np.array(values), bounds=bounds, seed=0)


def test_every_score_needs_its_cluster():
    with pytest.raises(ValueError, match="3 scores but 2 cluster names"):
        interval_of_mean(np.array([0.1, 0.2, 0.3]), clusters=["a", "b"], seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng: (rng.random(20) < 0.05).astype(float), 0.05),
        (lambda rng: np.where(rng.random(20) < 0.9, 1.0, rng.random(20)), 0.95),
        (lambda rng: rng.beta(0.2, 1.8, 20), 0.1),
    ],
)
def test_the_interval_covers_the_mean_where_the_percentile_bootstrap_does_not(draw, mean):
    # 300 samples of 20: nominally 285 are covered. The percentile bootstrap covers 187, 235 and 264 or so.
    rng = np.random.default_rng(7)
    found = [interval_of_mean(draw(rng), seed=0) for _ in range(300)]
    assert sum(low <= mean <= high for low, high, _ in found) >= 273


def test_the_design_effect_does_not_depend_on_the_scale_however_small():
    labels = np.array(["a", "a", "b", "b", "c"])
    values = np.array([0.0, 1.0, 1.0, 1.0, 0.0])
    assert design_effect(values * 3e-295, labels) == pytest.approx(design_effect(values, labels))
