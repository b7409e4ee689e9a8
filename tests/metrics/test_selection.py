import numpy as np
import pytest

from vestige.metrics.selection import as_diverse_as
from vestige.metrics.vendi import vendi

EYE = np.eye(6)
# Share 2/3 and 1/3 of the spectrum: Vendi / n = 0.629961.
REFERENCE = EYE[[0, 0, 1]]


def test_the_greatest_size_that_is_as_diverse_is_chosen():
    # Four kinds, then copies of the first: Vendi / n is 1, 1, then with 3, 1, 1, 1 of six
    # exp(1/2 ln 2 + 3/6 ln 6) / 6 = 0.577350, below the reference's 0.629961.
    found = as_diverse_as(REFERENCE, EYE[[0, 1, 2, 3, 0, 0, 0]], step=2)
    assert [s.n for s in found.subsets] == [2, 4, 6, 7]
    assert [s.share for s in found.subsets[:3]] == pytest.approx([1, 1, 0.577350], abs=5e-7)
    assert found.reference.share == pytest.approx(0.629961, abs=5e-7)
    assert found.n == 4


def test_a_subset_that_is_less_diverse_does_not_stop_the_growth():
    # Two of a kind first (1/2), then four new kinds: of six, exp(1/3 ln 3 + 2/3 ln 6) / 6 = 0.793701.
    found = as_diverse_as(REFERENCE, EYE[[0, 0, 1, 2, 3, 4]], step=2)
    assert [s.share for s in found.subsets] == pytest.approx([0.5, 2**1.5 / 4, 0.793701], abs=5e-7)
    assert found.n == 6


def test_as_diverse_is_enough():
    assert as_diverse_as(REFERENCE, REFERENCE * 7, step=3).n == 3


def test_none_is_chosen_where_no_subset_is_as_diverse():
    assert as_diverse_as(EYE, EYE[[0, 0, 0, 0]], step=2).n == 0
    assert as_diverse_as(EYE, np.empty((0, 6))).n == 0


def test_the_order_of_the_score_reaches_reference_and_subsets():
    rows = np.random.default_rng(0).normal(size=(9, 6))
    found = as_diverse_as(REFERENCE, rows, step=5, q=2.0)
    assert found.reference == vendi(REFERENCE, q=2.0)
    assert found.subsets[-1].score == pytest.approx(vendi(rows, q=2.0).score, abs=1e-12)


def test_a_step_of_nothing_is_refused():
    with pytest.raises(ValueError, match="by at least 1, not by 0"):
        as_diverse_as(EYE, EYE, step=0)
