import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics.bands import holm, simultaneous, worst_case
from vestige.metrics.contrasts import Quantity, Sample, mean_draws
from vestige.metrics.trainings import SeedPrior

NONE = SeedPrior(share=0.0, weight=1.0)
SAMPLE = Sample(tuple(f"{i:04}" for i in range(100)), None, seed=0, resamples=2000)


def draws(scores):
    return mean_draws(Quantity(scores, np.zeros((1, len(scores))), (0.0, 1.0)), SAMPLE, NONE, name="x")


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1: 0.04, 0.06, 0.06 (never falling), 0.5.
    assert holm([0.03, 0.5, 0.01, 0.02]) == pytest.approx((0.06, 0.5, 0.04, 0.06))
    assert holm([]) == ()
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="lies in"):
        holm([1.1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_no_correction_and_bonferronis(p_values):
    for p, corrected in zip(p_values, holm(p_values), strict=True):
        assert p <= corrected <= min(1, len(p_values) * p) + 1e-12


def test_the_worst_of_one_is_that_one():
    one = draws(np.random.default_rng(0).random(100))
    value, interval = worst_case([one])
    assert value == pytest.approx(one.value, abs=0.002)
    assert interval[:2] == pytest.approx(one.ends, abs=0.002)


def test_the_worst_of_equal_formats_is_not_the_luckiest_one():
    # Eight formats, all truly 0.3, on 100 items each their own: the greatest mean is too high nearly always, the
    # value in about half of 100 samples, the low end in 2 or 3, and the high end is rarely too low.
    rng = np.random.default_rng(1)
    plain, value_high, low_high, high_low = 0, 0, 0, 0
    for _ in range(100):
        found = [draws((rng.random(100) < 0.3).astype(float)) for _ in range(8)]
        value, (low, high, _) = worst_case(found)
        plain += max(one.value for one in found) > 0.3
        value_high, low_high, high_low = value_high + (value > 0.3), low_high + (low > 0.3), high_low + (high < 0.3)
    assert plain > 94
    # Shared resamples take the formats for correlated as their scores are, here not at all.
    assert 25 <= value_high <= 70
    assert low_high <= 7
    assert high_low <= 3


def test_a_band_holds_all_formats_at_once_and_contains_each_ones_own():
    rng, held = np.random.default_rng(2), 0
    for _ in range(100):
        # One latent score an item makes the formats agree in part.
        level = rng.random(100)
        found = [draws((0.5 * level + 0.5 * rng.random(100) < 0.4).astype(float)) for _ in range(4)]
        band = simultaneous(found)
        assert all(b.low <= one.ends[0] and b.high >= one.ends[1] for b, one in zip(band, found, strict=True))
        truth = stats.triang(0.5).cdf(0.4)
        held += all(b.low <= truth <= b.high for b in band)
    assert held >= 91


def test_resamples_that_are_not_shared_are_refused():
    one = draws(np.ones(100))
    other = Sample(SAMPLE.items, None, seed=0, resamples=50)
    few = mean_draws(Quantity(np.ones(100), np.zeros((1, 100)), (0.0, 1.0)), other, NONE, name="x")
    with pytest.raises(ValueError, match="share none"):
        worst_case([one, few])
    with pytest.raises(ValueError, match="no quantities"):
        worst_case([])
