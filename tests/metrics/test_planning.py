import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.planted_bounds import LEFT, LEFT_BITS, WORLDS, simulate

from vestige.metrics.contrasts import Draws
from vestige.metrics.planning import (
    Design,
    Wanted,
    all_held,
    detectable,
    failed,
    held,
    items_needed,
    least_shown,
    needed,
    said_needed,
)
from vestige.metrics.trainings import PRIOR, PRIOR_BITS, Noise


def draws(item_error, seed_error, n=100):
    nothing = np.zeros(10)
    return Draws(0.0, nothing, nothing, n, "", item_error, seed_error)


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


def noise(fact=0.064, common=0.0001, ruler=0.85):
    """Of shares, as the tiny model's controls have it: seed x fact variance and tau^2."""
    return Noise(fact, common, ruler, 1.0, PRIOR)


BITS = Noise(27.0, 0.88**2, 1.0, None, PRIOR_BITS)


def test_a_plan_says_how_often_verdicts_come_out_as_drawn_audits_do():
    # 400 drawn audits of 40 facts: a share of 0.8 is known to within 0.04. Guesses on 30 % of facts with p from
    # beta(3, 3) have the variance 0.3 x (1/4 - 1/28) = 0.064; those in bits have tails that the plan does not know.
    for world, controls, own, wide, narrow, left in (
        ("steady", 3, noise(), 0.2, 0.05, LEFT),
        ("steady", 5, noise(), 0.2, 0.05, LEFT),
        ("steady, 3 wordings", 5, noise(), 0.2, 0.05, LEFT),
        ("bits", 3, BITS, 6.0, 2.0, LEFT_BITS),
    ):
        drawn = next(w for w in WORLDS if w.name == world)
        row, design = simulate(drawn, 40, controls, 400), Design(40, controls, drawn.wordings)
        assert held(Wanted(own, wide), design) == pytest.approx(row.holds, abs=0.05), (world, controls)
        assert failed(Wanted(own, narrow), design, left) == pytest.approx(row.fails, abs=0.05), (world, controls)


def test_what_a_plan_holds_by_hand():
    # No noise but the one unlike pair: 20 facts and 2 controls, sigma^2 = 1/2 / 20, V = 1.5 x .025 x (1/20 + .05) / 2.5
    # = .0015, most of it sigma^2 / N, so that t has three times 2.5 degrees; the arm is t(96 %) sqrt(V x 1.5).
    still, arm = noise(0.0, 0.0, 1.0), 2.0235 * 0.0015**0.5 * 1.5**0.5
    assert [held(Wanted(still, arm + more), Design(20, 2)) for more in (-0.001, 0.001)] == [0.0, 1.0]
    # One control shows nothing of two trainings; what is to stay on both sides is held more rarely.
    assert held(Wanted(still, 0.9), Design(20, 1)) == 0.0
    assert held(Wanted(BITS, 6.0, both=True), Design(40, 3)) < held(Wanted(BITS, 6.0), Design(40, 3))
    # Two quantities that have nothing to do with one another, and two that are one.
    one = held(Wanted(BITS, 6.0), Design(40, 3))
    assert all_held([Wanted(BITS, 6.0)] * 2, Design(40, 3), together=0.0) == pytest.approx(one**2, abs=1e-6)
    assert all_held([Wanted(BITS, 6.0)] * 2, Design(40, 3), together=0.999) == pytest.approx(one, abs=0.02)


def test_a_plan_names_what_helps_and_nothing_that_does_not():
    few = Design(25, 3)
    found = needed([Wanted(noise(), 0.2)], few)
    assert set(found) == {"controls", "wordings", "facts"}
    for what, n in found.items():
        assert held(Wanted(noise(), 0.2), few._replace(**{what: n})) >= 0.8
        assert held(Wanted(noise(), 0.2), few._replace(**{what: n - 1})) < 0.8
    assert said_needed({"controls": 4, "wordings": 2, "facts": 50}, few) == (
        "4 controls in place of 3, 2 wordings of each fact in place of 1, or 50 facts in place of 25"
    )
    # Where a seed moves all facts together, neither facts nor wordings help.
    together = Wanted(Noise(27.0, 3.0, 1.0, None, PRIOR_BITS), 6.0)
    assert set(needed([together], few)) == {"controls"}
    # One control decides nothing, whatever is asked of it.
    assert set(needed([Wanted(noise(), 0.2)], Design(100, 1))) == {"controls"}


def test_the_least_effect_that_a_plan_would_show():
    wanted, design = Wanted(noise(), 0.05), Design(40, 5)
    found = least_shown(wanted, design)
    assert failed(wanted, design, found) == pytest.approx(0.8, abs=1e-3)
    assert least_shown(wanted, design, tests=5) > found
    assert least_shown(wanted, Design(4, 2)) is None
