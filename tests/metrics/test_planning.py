import math
from dataclasses import replace

import numpy as np
import pytest

from vestige.metrics.contrasts import Draws
from vestige.metrics.intervals import wilson
from vestige.metrics.planning import detectable, items_needed, items_without_hits


def draws(item_error, seed_error, n=100):
    nothing = np.zeros(10)
    return Draws(0.0, nothing, nothing, n, "", item_error, seed_error)


def test_a_margin_of_0_05_needs_73_items_without_a_hit():
    assert items_without_hits(0.05) == 73
    assert wilson(0, 73).high <= 0.05 < wilson(0, 72).high
    assert [items_without_hits(m) for m in (0.1, 0.2)] == [35, 16]
    with pytest.raises(ValueError, match="between 0 and 1"):
        items_without_hits(0.0)


def test_items_needed_by_hand():
    # z(96 %) + z(80 %) = 1.75069 + 0.84162 = 2.59231. An error of 0.04 at n = 100 is 0.4 / sqrt(n);
    # 2.59231 x 0.4 / sqrt(n) = 0.05 at n = 430.1.
    assert items_needed(draws(0.04, 0.0), 0.05, bounded=True) == 431
    # Seeds that take half of the variance leave half of it for the items.
    seeds = 0.05 / 2.59231 / math.sqrt(2)
    assert items_needed(draws(0.04, seeds), 0.05, bounded=True) == pytest.approx(861, abs=1)
    # Known with 6 degrees of freedom: t(96 %) = 2.10431, and 2.94593 x 0.4 / sqrt(n) = 0.05 at n = 555.4.
    assert items_needed(replace(draws(0.04, 0.0), df=6.0), 0.05, bounded=True) == 556


def test_where_seeds_alone_are_too_wide_no_number_of_items_suffices():
    assert items_needed(draws(0.04, 0.05 / 2.59), 0.05, bounded=True) is None


def test_items_without_noise_still_need_to_be_seen():
    # (1 - d)^n = 0.05 at d = 0.05 / 1.05: n = ln 0.04 / ln 0.952381 = 65.97.
    assert items_needed(draws(0.0, 0.0), 0.05, bounded=True) == 66


def test_the_detectable_effect_by_hand():
    # Without bounds: 2 + 2.80159 x sqrt(0.3^2 + 0.4^2) = 3.4008 bits.
    assert detectable(draws(0.3, 0.4), 2.0, bounded=False) == pytest.approx(3.4008, abs=1e-4)
    # With bounds the effect x has a spread of its own: x - 0.05 = 2.80159 sqrt(x (1 - x) / 20) at x = 0.3485.
    found = detectable(draws(0.0, 0.0, n=20), 0.05, bounded=True)
    assert found is not None
    assert found - 0.05 == pytest.approx(2.80159 * math.sqrt(found * (1 - found) / 20), abs=1e-5)
    assert found == pytest.approx(0.349, abs=0.005)


def test_what_no_effect_would_show_is_none():
    assert detectable(draws(0.4, 0.0, n=3), 0.05, bounded=True) is None
    assert detectable(draws(math.inf, 0.0), 0.05, bounded=True) is None
