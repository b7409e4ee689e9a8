"""Paired differences, worked by hand and beside scipy."""

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.pooling import paired_difference, questions_needed, sign_flip_p_value

pytestmark = pytest.mark.portable


def test_four_questions_by_hand():
    first, second = np.array([1.0, 0.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0])
    compared = paired_difference(first, second)
    assert (compared.value, compared.n, compared.n_missing) == (0.25, 4, 0)
    # One question differs, and both its signs give a sum of 1.
    assert compared.p_value == 1.0
    assert compared.low < 0 < 0.25 < compared.high


def test_right_or_wrong_answers_give_the_exact_mcnemar_test():
    # 9 questions only the second model answers, 2 only the first: a binomial test of 9 of 11.
    first = np.array([0.0] * 9 + [1.0] * 2 + [1.0] * 20)
    second = np.array([1.0] * 9 + [0.0] * 2 + [1.0] * 20)
    expected = stats.binomtest(9, 11).pvalue
    assert paired_difference(first, second).p_value == pytest.approx(expected, rel=1e-12)


def test_many_clusters_are_drawn_and_agree_with_the_binomial_test():
    sums = np.array([1.0] * 30 + [-1.0] * 14)
    assert sign_flip_p_value(sums) == pytest.approx(stats.binomtest(30, 44).pvalue, abs=0.003)


def test_questions_of_one_document_count_as_one_sign():
    first = np.zeros(12)
    second = np.ones(12)
    documents = ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    # Three clusters with the same sign: 2 of 8 patterns are as extreme.
    assert paired_difference(first, second, clusters=documents).p_value == 0.25
    assert paired_difference(first, second).p_value == pytest.approx(2 / 2**12)


def test_a_missing_score_leaves_the_range_that_it_could_fill():
    first, second = np.array([1.0, 1.0, np.nan, 0.0]), np.array([1.0, np.nan, 1.0, 1.0])
    compared = paired_difference(first, second)
    assert (compared.value, compared.n, compared.n_missing) == (0.5, 2, 2)
    # Question 2: 0 or 1 less 1. Question 3: 1 less 1 or 0. So (0 - 1 + 0 + 1) / 4 and (0 + 0 + 1 + 1) / 4.
    assert (compared.worst_low, compared.worst_high) == (0.0, 0.5)


def test_questions_needed_by_hand():
    # Differences -1, 0, 0, 1 have the variance 2/3: (1.959964 + 0.841621)^2 (2/3) / 0.1^2 = 523.3.
    assert questions_needed(np.array([-1.0, 0.0, 0.0, 1.0]), 0.1) == 524
    with pytest.raises(ValueError, match="positive"):
        questions_needed(np.array([1.0, 0.0]), 0.0)


def test_no_common_question_is_an_error():
    with pytest.raises(ValueError, match="no question"):
        paired_difference(np.array([np.nan, 1.0]), np.array([1.0, np.nan]))
