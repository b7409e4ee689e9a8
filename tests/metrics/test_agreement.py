"""Agreement of judges, against arithmetic and SciPy."""

import numpy as np
import pytest
from benchmarks.judge_labels import agreement
from scipy import stats


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
