"""Probabilities and quantiles beside scipy's, from the middle to far tails."""

import numpy as np
import pytest
from scipy import special

from vestige.metrics import distributions as ours

TAILS = np.array([1e-40, 1e-12, 1e-5, 0.01, 0.025, 0.3, 0.499, 0.7, 0.975, 1 - 1e-6, 1 - 1e-12])
pytestmark = pytest.mark.portable


@pytest.mark.parametrize("df", [1.0, 1.7, 2.0, 4.4, 30.0, 399.0, 1e5])
def test_student_and_chi_squared_are_scipys(df):
    # scipy's own quantile of df 1.7 is wrong at 1e-40; its probability is not. scipy 1.14 errs by 3e-11.
    assert special.stdtr(df, ours.stdtrit(df, TAILS)[:8]) == pytest.approx(TAILS[:8], rel=1e-11)
    assert ours.stdtrit(df, TAILS[1:]) == pytest.approx(special.stdtrit(df, TAILS[1:]), rel=5e-11)
    assert ours.chdtri(df, TAILS) == pytest.approx(special.chdtri(df, TAILS), rel=1e-12)
    middles = (np.arange(2000) + 0.5) / 2000
    assert ours.t_quantiles(df, 2000) == pytest.approx(special.stdtrit(df, middles), rel=5e-11, abs=1e-12)


def test_an_array_of_degrees_of_freedom():
    df = np.linspace(2, 90, 40)
    assert ours.stdtrit(df, 0.975) == pytest.approx(special.stdtrit(df, 0.975), rel=5e-11)


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.5, 30.0), (30.0, 0.5), (3.5, 8.0), (200.0, 3.0), (1.0, 5000.0)])
def test_beta_is_scipys(a, b):
    for x in (1e-9, 1e-3, 0.2, 0.5, 0.99):
        assert ours.betainc(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-11)


@pytest.mark.parametrize("shape", [1.0, 1.3, 6.0, 40.0])
def test_gamma_weights_are_at_the_quantiles_of_the_exponential_ones(shape):
    values = np.random.default_rng(0).standard_exponential(5000)
    expected = np.where(
        values > 0.7, special.gammainccinv(shape, np.exp(-values)), special.gammaincinv(shape, -np.expm1(-values))
    )
    assert ours.gamma_of_exponential(shape, values) == pytest.approx(expected, rel=3e-12)


def test_the_normal_distribution_is_scipys_and_ends_at_infinity():
    assert ours.ndtri([0.0, *TAILS, 1.0]) == pytest.approx(special.ndtri([0.0, *TAILS, 1.0]), rel=1e-14)
    assert ours.ndtr([-38.0, -5.0, 0.0, 9.0]) == pytest.approx(special.ndtr([-38.0, -5.0, 0.0, 9.0]), rel=1e-14)


def test_a_root_is_found_between_its_ends():
    assert ours.root(lambda x: x**3 - 2, 0.0, 4.0) == pytest.approx(2 ** (1 / 3), abs=1e-8)
