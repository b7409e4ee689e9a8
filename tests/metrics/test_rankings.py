import numpy as np
import pytest
from scipy import stats

from vestige.metrics.contrasts import Draws, Sample
from vestige.metrics.leakage import Controls, difference, leakage
from vestige.metrics.rankings import agreement_of_orders, kendall_tau_b, reliability, reversals
from vestige.metrics.trainings import SeedPrior
from vestige.metrics.verdicts import Evidence, Thresholds, stays_below

N = 80
SAMPLE = Sample(tuple(f"{i:04}" for i in range(N)), None, seed=0, resamples=2000)


def scale(form, rng):
    return Controls(form, np.ones(N), (rng.random((3, N)) < 0.1).astype(float), SAMPLE, SeedPrior(0.002, 4.0))


def knows(share, rng):
    return (rng.random(N) < share).astype(float)


def test_tau_b_by_hand_and_as_scipy_has_it():
    # 1, 2, 3 against 1, 3, 2: two pairs agree and one does not, (2 - 1) / 3.
    assert kendall_tau_b(np.array([[1.0, 2, 3]]), np.array([[1.0, 3, 2]]))[0] == pytest.approx(1 / 3)
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 4, (2, 50, 6)).astype(float)
    for ours, one, other in zip(kendall_tau_b(first, second), first, second, strict=True):
        assert ours == pytest.approx(stats.kendalltau(one, other).statistic, nan_ok=True)


def test_orders_that_agree_and_orders_that_are_reversed():
    rng = np.random.default_rng(1)
    levels = (0.1, 0.4, 0.7, 0.95)
    one, other = scale("choose", rng), scale("generate", rng)
    first = [leakage(knows(level, rng), one) for level in levels]
    same = agreement_of_orders(first, [leakage(knows(level, rng), other) for level in levels])
    turned = agreement_of_orders(first, [leakage(knows(level, rng), other) for level in levels[::-1]])
    assert (same.value, turned.value) == (1, -1)
    assert same.low > 0.3
    assert turned.high < -0.3
    with pytest.raises(ValueError, match="two subjects"):
        agreement_of_orders(first[:1], first[:1])
    with pytest.raises(ValueError, match="tied"):
        agreement_of_orders(first, [first[0]] * 4)


def planted(second_in_generate, rng):
    """NPO leaks more than GA in CHOOSE; in GENERATE GA leaks 0.5 and NPO what is asked for."""
    forms = {"choose": (0.2, 0.7), "generate": (0.5, second_in_generate), "option": (0.4, 0.4)}
    return {
        ("ga", "npo"): {
            form: difference(knows(a, rng), knows(b, rng), scale(form, rng)) for form, (a, b) in forms.items()
        }
    }


def test_a_planted_reversal_is_found_and_only_it():
    found = reversals(planted(0.1, np.random.default_rng(2)))
    assert [(r.first, r.second, r.more_in, r.less_in) for r in found] == [("ga", "npo", "generate", "choose")]
    assert found[0].p <= 0.025


def test_one_significant_direction_is_no_reversal():
    # NPO leaks more in CHOOSE, and 0.06 less in GENERATE, which 80 items do not show.
    assert reversals(planted(0.44, np.random.default_rng(3))) == ()
    assert reversals({}) == ()


def test_a_reversal_is_corrected_for_the_number_of_pairs():
    def draws(below, above):
        """Of 999 resamples, so many at or below 0, and so many at or above."""
        low, high = np.ones(999), -np.ones(999)
        low[:below], high[:above] = -1, 1
        return Draws(0.0, low, high, 10, "", 0.0, 0.0)

    def found(wrong):
        pair = {"a": draws(wrong, 999), "b": draws(999, wrong)}
        return reversals({("x", "y"): pair})

    # (wrong + 1) / 1000 in both directions; either of two orientations could have been found, so twice that.
    assert [r.p for r in found(9)] == pytest.approx([0.02])
    assert found(19) == ()


def test_equal_methods_are_rarely_reversed():
    rng, found = np.random.default_rng(4), 0
    for _ in range(60):
        apart = {
            pair: {form: difference(knows(0.3, rng), knows(0.3, rng), scale(form, rng)) for form in ("a", "b", "c")}
            for pair in (("x", "y"), ("x", "z"), ("y", "z"))
        }
        found += bool(reversals(apart))
    assert found <= 3


def evidence(level, form, rng):
    return Evidence(form, leakage(knows(level, rng), scale(form, rng)), "leakage", "leakage")


def test_reliability_counts_agreements_and_contradictions():
    rng = np.random.default_rng(5)
    forms = ("a", "b", "c")
    found = reliability(
        {
            "all leak": [evidence(0.9, form, rng) for form in forms],
            "none leaks": [evidence(0.0, form, rng) for form in forms],
            # Only in "a": the others foretell `holds` for it, and it tells them `fails`.
            "one leaks": [evidence(0.9, "a", rng), evidence(0.0, "b", rng), evidence(0.0, "c", rng)],
        },
        lambda rest: stays_below("claim", rest, Thresholds(delta=0.3, delta_wide=0.3)).outcome,
        seed=0,
    )
    assert (found.agree, found.contradict, found.undecided) == (6, 3, 0)
    assert found.agreement is not None
    assert (found.agreement.value, found.agreement.n) == (pytest.approx(2 / 3), 9)


def test_undecided_verdicts_foretell_nothing():
    rng = np.random.default_rng(6)
    subject = [evidence(0.3, form, rng) for form in ("a", "b")]
    found = reliability({"x": subject}, lambda rest: "inconclusive", seed=0)
    assert (found.undecided, found.agreement) == (2, None)
    with pytest.raises(ValueError, match="no other"):
        reliability({"x": subject[:1]}, lambda rest: "holds", seed=0)
