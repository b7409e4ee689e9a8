"""Agreement and t-tests, against arithmetic and SciPy."""

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.agreement import agreement, paired_test, student_test, welch_test


def test_agreement_by_hand_and_without_what_one_did_not_judge():
    a, b = np.array([1.0, 2, 3, 4, np.nan, 9]), np.array([1.0, 3, 3, 6, 5, np.nan])
    found = agreement(a, b)
    # Four items: gaps 0, 1, 0, 2.
    assert (found.n, found.equal, found.within_one, found.difference) == (4, 0.5, 0.75, 0.75)
    # Weighted kappa: observed mean square 5/4; over all pairs var 1.25 + var 3.1875 + 0.75^2 = 5.
    assert found.kappa == pytest.approx(1 - 1.25 / 5)
    assert found.spearman == pytest.approx(stats.spearmanr(a[:4], b[:4]).statistic)


def test_kappa_is_the_mean_over_all_pairs():
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 11, 30).astype(float), rng.integers(1, 11, 30).astype(float)
    pairs = ((a[:, None] - b[None]) ** 2).mean()
    assert agreement(a, b).kappa == pytest.approx(1 - ((a - b) ** 2).mean() / pairs)
    assert agreement(a, a).kappa == 1
    assert agreement(a, 11 - a).kappa < 0


def test_a_judge_that_says_one_thing_only_has_no_correlation_rather_than_none_at_all():
    found = agreement(np.array([1.0, 2, 3]), np.array([5.0, 5, 5]))
    assert found.spearman is None
    assert found.kappa is None
    assert found.n == 3
    with pytest.raises(ValueError, match="no item"):
        agreement(np.array([np.nan]), np.array([1.0]))


def test_the_t_tests_are_scipys():
    rng = np.random.default_rng(1)
    a, b = rng.normal(7.8, 0.1, 3), rng.normal(4.5, 1.2, 9)
    theirs = {
        student_test: stats.ttest_ind(b, a, equal_var=True),
        welch_test: stats.ttest_ind(b, a, equal_var=False),
        paired_test: stats.ttest_rel(b[:3], a),
    }
    for test, wanted in theirs.items():
        ours = test(a, b[:3] if test is paired_test else b)
        assert (ours.t, ours.p, ours.dof) == pytest.approx((wanted.statistic, wanted.pvalue, wanted.df), rel=1e-12)
        assert (ours.low, ours.high) == pytest.approx(tuple(wanted.confidence_interval(0.95)))


def test_pairs_by_hand():
    # Differences -1, -2, -3: mean -2, SD 1, error 1 / sqrt(3), so t = -2 sqrt(3) with 2 degrees of freedom, for which
    # p = 1 - |t| / sqrt(2 + t^2) = 1 - 2 sqrt(3) / sqrt(14).
    found = paired_test(np.array([5.0, 6, 7]), np.array([4.0, 4, 4]))
    assert (found.difference, found.t, found.dof) == pytest.approx((-2, -2 * np.sqrt(3), 2))
    assert found.p == pytest.approx(1 - 2 * np.sqrt(3) / np.sqrt(14))


def test_a_test_of_nothing_is_refused_with_its_reason():
    with pytest.raises(ValueError, match="two runs on each side, got 1 and 2"):
        welch_test(np.array([1.0]), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="no spread"):
        student_test(np.array([1.0, 1.0]), np.array([2.0, 2.0]))
    with pytest.raises(ValueError, match="two pairs, got 1"):
        paired_test(np.array([1.0]), np.array([2.0]))
    # Rounding leaves these differences a spread of 1e-16, which is none.
    with pytest.raises(ValueError, match="no spread"):
        paired_test(np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.2, 0.3]) + 0.7)
    with pytest.raises(ValueError, match="finite"):
        student_test(np.array([1.0, np.nan]), np.array([1.0, 2.0]))
