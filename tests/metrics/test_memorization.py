"""Memorised sentences, and bits of information."""

import math
from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from vestige.metrics import gains as info
from vestige.metrics.memorization import (
    choice_probability,
    compression_ratio,
    exact_memorization,
    extraction_strength,
    forget_quality,
    harmonic_mean,
    leak_at_k,
    memorised,
    mink,
    minkpp,
    mrr,
    privleak,
    top_hit,
    truth_ratio,
    truth_ratio_score,
)


@pytest.mark.parametrize(
    ("correct", "strength", "exact"),
    [
        ([False, False, True, True], 0.5, 0.5),  # two tokens must be given of four
        ([False, False, False, False], 0.0, 0.0),
        ([True, True, True, True], 1.0, 1.0),
        ([True, True, True, False], 0.0, 0.75),  # only the whole text makes the last token right
    ],
)
def test_strength_counts_from_the_last_mistake_and_exactness_counts_all(correct, strength, exact):
    assert extraction_strength(np.array(correct)) == strength
    assert exact_memorization(np.array(correct)) == exact


@pytest.mark.parametrize(("n", "leaked", "k", "value"), [(10, 1, 5, 0.5), (4, 2, 2, 5 / 6), (3, 0, 2, 0), (3, 2, 2, 1)])
def test_leaks_at_k_by_hand(n, leaked, k, value):
    # 1 - C(9,5)/C(10,5) = 1 - 126/252; 1 - C(2,2)/C(4,2) = 1 - 1/6.
    assert leak_at_k([1.0] * leaked + [0.0] * (n - leaked), k) == pytest.approx(value)


@pytest.mark.parametrize("k", range(1, 7))
def test_graded_leaks_at_k_are_the_mean_of_the_greatest_over_all_draws(k):
    scores = [0.2, 0.9, 0.0, 0.5, 0.5, 0.1]
    assert leak_at_k(scores, k) == pytest.approx(np.mean([max(drawn) for drawn in combinations(scores, k)]))


@pytest.mark.parametrize(("n", "k"), [(0, 1), (3, 4), (3, 0)])
def test_leaks_that_cannot_be_are_refused(n, k):
    with pytest.raises(ValueError, match="not defined"):
        leak_at_k([0.5] * n, k)


def test_lowest_tokens_by_hand_and_standardised():
    rows = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])
    logs = np.log(rows)
    logp = logs[np.arange(4), [0, 2, 0, 1]]
    mean = (rows * logs).sum(1)
    variance = (rows * logs**2).sum(1) - mean**2
    # The two lowest of four: (ln 0.1 + ln 0.3) / 2.
    # Standardised 0.633092, 1, -2, -0.544990: (-2 - 0.544990) / 2.
    assert mink(logp, k=0.5) == pytest.approx((math.log(0.1) + math.log(0.3)) / 2)
    assert mink(logp, k=0.5) == pytest.approx(-1.753279, abs=1e-6)
    assert (logp - mean) / np.sqrt(variance) == pytest.approx([0.633092, 1.0, -2.0, -0.544990], abs=1e-6)
    assert minkpp(logp, mean, variance, k=0.5) == pytest.approx(-1.272495, abs=1e-6)


def test_at_least_one_token_counts_and_a_uniform_prediction_says_nothing():
    assert mink(np.array([-1.0, -3.0]), k=0.1) == -3.0
    assert minkpp(np.array([-math.log(3)]), np.array([-math.log(3)]), np.array([0.0]), k=1.0) == 0.0


@pytest.mark.parametrize(("unlearned", "retrained", "value"), [(0.0, 0.5, -100), (1.0, 0.5, 100), (0.3, 0.48, -37.5)])
def test_privacy_leakage_by_hand(unlearned, retrained, value):
    assert privleak(unlearned, retrained) == pytest.approx(value)


@pytest.mark.parametrize(("unlearned", "retrained"), [(0.5, 0.0), (1.2, 0.5), (0.5, -0.1), (math.nan, 0.5)])
def test_privacy_leakage_refuses_what_is_no_area(unlearned, retrained):
    with pytest.raises(ValueError, match="AUC"):
        privleak(unlearned, retrained)


@pytest.mark.parametrize(
    ("mean", "ratio", "score"), [("arithmetic", 0.450636, 0.549364), ("geometric", 0.367879, 0.632121)]
)
def test_the_two_truth_ratios_by_hand(mean, ratio, score):
    # Arithmetic: (e^-1.2 + e^-2 + e^-2.8) / 3 / e^-1. Geometric: e^(1 - (1.2 + 2 + 2.8) / 3) = e^-1.
    found = truth_ratio(1.0, np.array([1.2, 2.0, 2.8]), mean=mean)
    assert found == pytest.approx(ratio, abs=1e-6)
    assert truth_ratio_score(found, forget=False) == pytest.approx(score, abs=1e-6)
    assert truth_ratio_score(found, forget=True) == pytest.approx(ratio, abs=1e-6)


def test_truth_ratios_score_by_the_split():
    assert truth_ratio_score(4.0, forget=True) == 0.25
    assert truth_ratio_score(4.0, forget=False) == 0
    assert truth_ratio_score(0.0, forget=True) == 0
    assert truth_ratio_score(0.0, forget=False) == 1
    with pytest.raises(ValueError, match="not negative"):
        truth_ratio_score(-0.1, forget=True)
    with pytest.raises(ValueError, match="not negative"):
        truth_ratio_score(math.nan, forget=False)


def test_choice_probability_by_hand():
    # p = 1/2 against 1/4 and 1/4: 1/2.
    assert choice_probability(math.log(2), np.log([4.0, 4.0])) == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0.3, 0.5, 0.6, 0.7], 0.228571),  # D = 0.75
        (range(5), range(10, 15), 0.0079365),  # 2 / C(10, 5)
        (range(40), range(100, 140), 1.8603e-23),
        ([0.5, 0.5, 1, 2, 7], [1, 1, 9, 9], 0.563492),  # with ties
    ],
)
def test_forget_quality_by_hand_and_under_inversion(first, second, p):
    a, b = np.array(first, dtype=float) + 1, np.array(second, dtype=float) + 1
    assert forget_quality(a, b) == pytest.approx(p, rel=1e-4)
    assert forget_quality(1 / a, 1 / b) == pytest.approx(p, rel=1e-4)
    assert forget_quality(a, b) == pytest.approx(stats.ks_2samp(a, b).pvalue, rel=1e-13)


def test_the_harmonic_mean_by_hand():
    # 9 / (3 / 0.9 + 3 / 0.8 + 3 / 0.7)
    assert harmonic_mean([0.9, 0.8, 0.7] * 3) == pytest.approx(0.791623, abs=1e-6)
    assert harmonic_mean([0.9, 0.0]) == 0
    with pytest.raises(ValueError, match="from 0 up"):
        harmonic_mean([0.5, -0.1])
    with pytest.raises(ValueError, match="from 0 up"):
        harmonic_mean([0.5, math.nan])


@pytest.mark.parametrize(
    "empty",
    [
        lambda: extraction_strength(np.array([], dtype=bool)),
        lambda: exact_memorization(np.array([], dtype=bool)),
        lambda: mink(np.array([]), k=0.2),
        lambda: truth_ratio(1.0, np.array([]), mean="geometric"),
        lambda: choice_probability(1.0, np.array([])),
        lambda: forget_quality(np.array([]), np.array([1.0])),
        lambda: harmonic_mean([]),
        lambda: mrr(np.array([])),
        lambda: top_hit(np.array([])),
        lambda: compression_ratio(0, 3),
        lambda: compression_ratio(3, 0),
    ],
)
def test_nothing_has_no_value(empty):
    with pytest.raises(ValueError, match=r"no |nothing"):
        empty()


def test_a_score_that_is_no_number_is_refused_and_not_sorted_away():
    with pytest.raises(ValueError, match="not a number"):
        mink(np.array([-1.0, math.nan]), k=0.5)


@pytest.mark.parametrize("k", [0.0, 1.1])
def test_a_share_of_tokens_lies_between_0_and_1(k):
    with pytest.raises(ValueError, match="share"):
        mink(np.array([-1.0]), k=k)


def test_reciprocal_rank_and_hits_by_hand():
    # (1 + 1/2 + 1/4 + 1/200) / 4 = 1.755 / 4; three of four rank 100 or better.
    ranks = np.array([1.0, 2.0, 4.0, 200.0])
    assert mrr(ranks) == pytest.approx(0.43875)
    assert top_hit(ranks) == 0.75
    assert top_hit(ranks, m=200) == 1.0


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan")])
def test_a_rank_below_one_is_refused(bad):
    for function in (mrr, top_hit):
        with pytest.raises(ValueError, match="count from 1"):
            function(np.array([2.0, bad]))


def exact_ks(n: int, h: int) -> float:
    """P(D >= h/n) of two samples of n: 2 sum_j (-1)^(j-1) C(2n, n - jh) / C(2n, n) (Gnedenko and Korolyuk, 1951)."""
    return 2 * sum((-1) ** (j - 1) * comb(2 * n, n - j * h) for j in range(1, n // h + 1)) / comb(2 * n, n)


@pytest.mark.parametrize(
    ("who", "distance", "p"),
    [
        ("llama2 full against retain90, geometric", 0.396667, 1.834e-21),
        ("llama2 full against retain90, arithmetic", 0.41, 6.032e-23),
        ("phi, geometric", 0.346667, 2.194e-16),
        ("phi, arithmetic", 0.356667, 2.431e-17),
    ],
)
def test_forget_quality_of_published_logs(who, distance, p):
    # The logs hold 300 items a model. The test depends on ranks alone, so any two samples at this distance give its p:
    # h of the first stand below all of the second.
    n, h = 300, round(distance * 300)
    assert h / n == pytest.approx(distance, abs=1e-6)
    retrained = np.arange(n, dtype=float)
    assert forget_quality(retrained - h, retrained) == pytest.approx(p, rel=1e-3)
    assert exact_ks(n, h) == pytest.approx(p, rel=1e-3)


def test_a_text_is_memorised_where_the_prompt_is_strictly_shorter():
    assert compression_ratio(12, 4) == 3.0
    assert memorised(12, 11)
    assert not memorised(12, 12)
    assert not memorised(12, None)


@pytest.mark.parametrize(("vocabulary", "bits"), [(1, 0.0), (32000, 1496.58), (50257, 1561.7), (128256, 1696.9)])
def test_a_hundred_tokens_carry_about_1500_bits(vocabulary, bits):
    assert info.text_capacity(100, vocabulary) == pytest.approx(bits, abs=0.05)


def test_the_papers_prefix_by_hand():
    # log2 32000 = 14.9658: 96 tokens reach 1430 bits and 95 do not; 171 reach 2546; 1496.58 / 1430 = 1.0466.
    assert info.text_capacity(95, 32000) < 1430 <= info.text_capacity(96, 32000)
    assert info.text_capacity(170, 32000) < 2546 <= info.text_capacity(171, 32000)
    assert info.prompt_data_entropy_ratio(info.text_capacity(100, 32000), 1430.0) == pytest.approx(1.0466, abs=1e-4)


def test_two_bits_for_each_wrong_answer():
    # 715 wrong of 1273 make 1430. At the stated accuracy of 39.9 % 765 are wrong, which makes 1530.
    assert info.need_wrong_answers(715, 4) == 1430
    assert info.need_wrong_answers(765, 4) == 1530


def test_rate_distortion_reaches_1430_at_84_3_per_cent():
    assert info.need_rate_distortion(1273, 0.843, 4) == pytest.approx(1430, abs=3)
    assert info.need_rate_distortion(1273, 1.0, 4) == pytest.approx(2546)
    assert info.need_rate_distortion(1273, 0.25, 4) == info.need_rate_distortion(1273, 0.1, 4) == 0
    assert info.need_rate_distortion(100, 0.2501, 4) == pytest.approx(0, abs=1e-3)


def test_the_code_length_that_makes_1430_bits():
    # A geometric mean of 0.459 a question, 0.779 nats.
    assert info.code_length(np.full(1273, math.log(0.459))) == pytest.approx(1430, abs=1)
    assert info.code_length(np.log([0.5, 0.25])) == pytest.approx(3)


def test_a_prequential_code_adds_its_blocks():
    # The first block under the untouched model, 1 + 1 bits. The second under the tuned one, 0.5 bits in all.
    blocks = [np.log([0.5, 0.5]), np.array([-0.5 * math.log(2)])]
    assert info.prequential(blocks) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="nothing was shown"):
        info.prequential([])


def test_the_capacity_is_the_least_bound_and_says_which():
    found = info.capacity({"text": 300.0, "code length": 120.5, "seen by the search": 800.0})
    assert found == (120.5, "code length")


def test_the_need_of_a_gain_is_what_the_answers_became_likelier():
    before, after = np.log([0.25, 0.5]), np.log([0.5, 0.5])
    assert info.need_of_gain(before, after) == pytest.approx(1)
    assert info.need_of_gain(after, before) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: info.text_capacity(-1, 100),
        lambda: info.need_wrong_answers(3, 1),
        lambda: info.need_rate_distortion(3, 1.5, 4),
        lambda: info.code_length(np.array([0.5])),
        lambda: info.code_length(np.array([-math.inf])),
        lambda: info.prompt_data_entropy_ratio(100.0, 0.0),
        lambda: info.capacity({}),
    ],
)
def test_what_is_not_a_number_of_bits_is_refused(call):
    with pytest.raises(ValueError):
        call()
