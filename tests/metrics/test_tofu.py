"""TOFU's tables: the figures of its published logs, as far as their summaries determine them."""

from math import comb

import numpy as np
import pytest

from vestige.metrics.tofu import SetScores, forget_quality, tofu_utility


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


def test_utility_is_the_harmonic_mean_of_nine_numbers():
    same = SetScores(0.9, 0.8, 0.7)
    # 9 / (3 / 0.9 + 3 / 0.8 + 3 / 0.7)
    assert tofu_utility(same, same, same) == pytest.approx(0.791623, abs=1e-6)
    # 9 / (1/0.5 + 8/1) = 0.9, whichever of the nine it is.
    one = SetScores(1.0, 1.0, 1.0)
    for place in range(3):
        low = SetScores(*(0.5 if k == place else 1.0 for k in range(3)))
        for sets in ((low, one, one), (one, low, one), (one, one, low)):
            assert tofu_utility(*sets) == pytest.approx(0.9)
    assert tofu_utility(same, same, SetScores(0.9, 0.0, 0.7)) == 0
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        tofu_utility(same, same, SetScores(0.9, 1.2, 0.7))
