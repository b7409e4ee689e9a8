"""t-tests against SciPy and arithmetic, and what is refused with its reason."""

import numpy as np
import pytest
from scipy import stats

from vestige.metrics.agreement import paired_test, student_test, welch_test


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
