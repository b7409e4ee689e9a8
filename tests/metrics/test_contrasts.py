import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from vestige.metrics.contrasts import (
    BOUND,
    Draws,
    Quantity,
    Sample,
    holm,
    level_draws,
    mean_draws,
    ratio_draws,
    seed_variance,
    simultaneous,
    step_down,
    worst_case,
)
from vestige.metrics.intervals import SeedPrior, design_effect, gaffke, studentised_bootstrap

SHARE = (-1.0, 1.0)
NONE = SeedPrior(share=0.0, weight=1.0)


def sample(n, clusters=None, resamples=4000):
    return Sample(tuple(f"{i:04}" for i in range(n)), clusters, seed=0, resamples=resamples)


def test_without_seeds_the_ends_are_gaffkes():
    scores = np.random.default_rng(0).random(30)
    found = mean_draws(Quantity(scores, np.zeros((1, 30)), (0.0, 1.0)), sample(30), NONE, name="x")
    assert found.value == pytest.approx(scores.mean())
    assert found.ends == pytest.approx(gaffke(scores, bounds=(0.0, 1.0), seed=1)[:2], abs=0.01)


def test_without_bounds_the_ends_are_those_of_the_studentised_bootstrap():
    scores = np.random.default_rng(0).exponential(size=40)
    found = mean_draws(Quantity(scores, np.zeros((1, 40)), None), sample(40, resamples=10_000), NONE, name="x")
    low, high, _ = studentised_bootstrap(scores, seed=1)
    # That interval has the further end of this and of Student's t on either side.
    assert found.ends[1] == pytest.approx(high, abs=0.05)
    assert low <= found.ends[0] < scores.mean()


@pytest.mark.parametrize("values", [[-3.0, -40.0], [2.0, 0.5, 0.8], [0.1] * 6 + [5.0], [0.1] * 19 + [5.0], [0.1, 0.1]])
def test_few_and_tied_scores_without_bounds_are_never_certain_and_their_ends_never_absurd(values):
    scores = np.array(values)
    found = mean_draws(Quantity(scores, np.zeros((1, len(scores))), None), sample(len(scores)), NONE, name="x")
    low, high = found.ends
    spread = np.ptp(scores)
    if spread == 0:
        assert (low, high, found.p_at_most(-1e9)) == (-math.inf, math.inf, 1.0)
        assert str(found.estimate("E", "bits")) == "0.10 [no interval], n = 2"
    else:
        assert scores.mean() - 15 * spread < low < scores.mean() - 0.04 * spread
        assert scores.mean() + 0.04 * spread < high < scores.mean() + 15 * spread


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), None], ids=["shares", "bits"])
@pytest.mark.parametrize("clusters", [False, True])
def test_the_levels_of_several_rows_are_those_of_each(n, bounds, clusters):
    rng = np.random.default_rng(n)
    rows = np.stack([rng.random(n), np.full(n, 0.25), np.ones(n), rng.random(n) ** 8])
    drawn_from = sample(n, tuple(f"e{i % 8}" for i in range(n)) if clusters else None, resamples=1000)
    for row, many in zip(rows, level_draws(rows, bounds, drawn_from), strict=True):
        one = mean_draws(Quantity(row, np.zeros((1, n)), bounds), drawn_from, None, name="x", trained=False)
        assert (many.value, many.n, many.method) == (one.value, one.n, one.method)
        assert (many.ends, many.item_error) == (pytest.approx(one.ends), pytest.approx(one.item_error))
        np.testing.assert_allclose(many.low, one.low, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(many.high, one.high, rtol=1e-9, atol=1e-12)


def test_the_differences_of_several_rows_are_those_of_each():
    rng = np.random.default_rng(0)
    rows, ruler = rng.random((3, 40)) - 0.5, Quantity(np.ones(40), rng.random((2, 40)) / 3, SHARE)
    for row, many in zip(rows, level_draws(rows, SHARE, sample(40), ruler), strict=True):
        one = ratio_draws(Quantity(row, np.zeros((1, 40)), SHARE), ruler, sample(40), None, name="x")
        assert (many.value, many.seed_error, many.method) == (one.value, 0.0, one.method)
        np.testing.assert_allclose([many.low, many.high], [one.low, one.high], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("below", [False, True])
def test_step_down_is_the_greatest_error_of_all_that_are_less_significant(below):
    rng = np.random.default_rng(0)
    table = rng.random((6, 60)) + rng.random((6, 1))
    draws = [mean_draws(Quantity(t - 1, np.zeros((1, 60)), SHARE), sample(60), None, name="x") for t in table]
    margins = [0.0, 0.1, 0.0, -0.1, 0.2, 0.0]
    # As it is defined, with the whole table of errors in memory.
    drawn = np.array([-one.high if below else one.low for one in draws])
    edges = np.array([-margin if below else margin for margin in margins])
    centres = np.median(drawn, axis=1)
    arms = centres - np.quantile(drawn, 0.025, axis=1)
    errors, reached = (centres[:, None] - drawn) / arms[:, None], (centres - edges) / arms
    order, expected, so_far = np.argsort(-reached, kind="stable"), [0.0] * 6, 0.0
    for place, i in enumerate(order.tolist()):
        greatest = errors[order[place:]].max(axis=0)
        so_far = max(so_far, (np.count_nonzero(greatest >= reached[i] - 1e-12) + 1) / 4001)
        expected[i] = so_far
    assert step_down(draws, margins, below=below) == tuple(expected)
    assert 0 < min(expected) < 0.5 < max(expected)


def test_few_scores_without_bounds_get_students_t():
    scores = np.array([1.0, 2.0, 4.0])
    found = mean_draws(Quantity(scores, np.zeros((1, 3)), None), sample(3, resamples=100_000), NONE, name="x")
    # t(2) = 4.3027, s = 1.5275, so 7/3 -+ 3.795.
    assert found.ends == pytest.approx((7 / 3 - 3.795, 7 / 3 + 3.795), rel=0.05)


def test_a_ratio_by_hand_and_its_ends_are_fiellers():
    # Differences 0, 1, 1, 0 against a ruler of 1, 1, 1, 1: 2/4. The ruler is constant, so the ratio of draws with the
    # extra item D at -1 or 1 and no ruler is (sum D_i x_i -+ D_0) / (1 - D_0).
    unit = Quantity(np.ones(4), np.zeros((1, 4)), SHARE)
    found = ratio_draws(
        Quantity(np.array([0.0, 1.0, 1.0, 0.0]), np.zeros((1, 4)), SHARE), unit, sample(4), NONE, name=""
    )
    assert found.value == 0.5
    # At the low end q the contrast x - q ruler reaches 0 in 2.5 % of its own draws.
    low, high = found.ends
    for q, side in ((low, 0), (high, 1)):
        contrast = np.array([0.0, 1.0, 1.0, 0.0]) - q
        weights = next(sample(4).weights())
        drawn = weights[:, 1:] @ contrast + weights[:, 0] * SHARE[side]
        share = np.mean(drawn <= 0) if side == 0 else np.mean(drawn >= 0)
        assert share == pytest.approx(0.025, abs=0.002)


def test_no_hits_at_all_leave_room_for_one_more_item():
    # 20 items at 0: the extra item's weight D has P(D > d) = (1 - d)^20, so 2.5 % lie above d = 0.1684, which is
    # d / (1 - d) = 0.2025 of the ruler. 76 items bring that below 0.05.
    def high(n):
        unit = Quantity(np.ones(n), np.zeros((1, n)), SHARE)
        nothing = Quantity(np.zeros(n), np.zeros((1, n)), SHARE)
        return ratio_draws(nothing, unit, sample(n, resamples=40_000), NONE, name="").ends[1]

    assert high(20) == pytest.approx(0.2025, abs=0.006)
    assert high(70) > 0.05 > high(82)


def test_a_ratio_that_is_the_same_everywhere_has_no_spread_though_its_ruler_has():
    # Ten edges on which the ruler is 0.1 to 1 and the difference half of it: the ratio is 0.5 on each.
    unit = np.repeat(np.linspace(0.1, 1, 10), 10)
    drawn = sample(100, tuple(str(i // 10) for i in range(100)))
    found = ratio_draws(
        Quantity(unit / 2, np.zeros((1, 100)), SHARE), Quantity(unit, np.zeros((1, 100)), SHARE), drawn, NONE, name=""
    )
    assert found.value == pytest.approx(0.5)
    assert found.item_error == pytest.approx(0, abs=1e-12)


def test_the_variance_between_seeds_by_hand():
    # Seeds 0.2 and 0.4 on every item: the means' variance is 0.02, nothing interacts.
    control = np.array([[0.2] * 4, [0.4] * 4])
    assert seed_variance(control, np.zeros(4), None, NONE)[0] == pytest.approx(0.02 / 2)
    # The prior has weight 1 and share 0, the data one degree of freedom: (0 + 1 x 0.02) / 2, on 2 degrees.
    assert seed_variance(control, np.zeros(4), None, NONE)[1] == 2
    # Seed 1 is right where seed 2 is wrong: equal means, interaction mean square 4 x 0.25 x 2 / (1 x 3) = 2/3.
    crossed = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    assert seed_variance(crossed, np.zeros(4), None, NONE)[0] == 0
    assert seed_variance(crossed, np.zeros(4), None, SeedPrior(0.3, 4.0))[0] == pytest.approx(4 * 0.3 * (2 / 3) / 5)
    # Means 3/4 and 1/4: variance 1/8. Every item is 1/4 off what row and column say, 8 / 16 / 3 = 1/6; 1/8 - 1/6 / 4.
    partly = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert seed_variance(partly, np.zeros(4), None, SeedPrior(0.0, 0.0))[0] == pytest.approx(1 / 12)
    # One seed: half the variance of the differences, 1/3, stands for the interaction.
    alone = seed_variance(np.zeros((1, 4)), np.array([0.0, 0.0, 1.0, 1.0]), None, SeedPrior(0.3, 4.0))
    assert alone == (pytest.approx(0.3 * (1 / 3) / 2), 4.0)


def test_the_variance_between_seeds_is_found_and_clusters_do_not_pass_for_it():
    rng = np.random.default_rng(1)
    steady, shifting = [], []
    labels = np.repeat(np.arange(10), 20)
    for _ in range(200):
        # What a seed does to one edge (sd 0.2) moves its mean by 0.2 / sqrt(10) = 0.063 and is no common effect.
        table = np.repeat(rng.normal(0, 0.2, (4, 10)), 20, axis=1) + rng.normal(0, 0.3, (4, 200))
        steady.append(seed_variance(table, table[0], labels, SeedPrior(0.0, 0.0))[0])
        shifting.append(seed_variance(table + rng.normal(0, 0.5, (4, 1)), table[0], labels, SeedPrior(0.0, 0.0))[0])
    assert math.sqrt(np.mean(shifting)) == pytest.approx(0.5, rel=0.1)
    assert math.sqrt(np.mean(steady)) < 0.06


def test_seeds_that_differ_widen_the_interval_by_one_training_and_the_controls_mean():
    # All items alike: the items' part is small at n = 2000; three seeds at 0.3, 0.5, 0.7 have variance 0.04, the
    # prior (share 0, weight 4) makes 2 x 0.04 / 6 of it on 6 degrees of freedom. A subject adds one training.
    control = np.repeat(np.array([[0.3], [0.5], [0.7]]), 2000, axis=1)
    quantity = Quantity(np.full(2000, 0.5), control, SHARE)
    error = math.sqrt(0.08 / 6 * (1 + 1 / 3))
    found = mean_draws(quantity, sample(2000, resamples=10_000), SeedPrior(0.0, 4.0), name="x")
    assert found.seed_error == pytest.approx(error)
    assert found.ends[1] == pytest.approx(error * stats.t.ppf(0.975, 6), abs=0.03)
    still = mean_draws(quantity, sample(2000, resamples=2000), SeedPrior(0.0, 4.0), name="x", trained=False)
    assert still.seed_error == pytest.approx(math.sqrt(0.08 / 6 / 3))


def test_clusters_widen_the_arms_and_few_are_spoken_of_alone():
    scores = np.random.default_rng(2).random(200)
    edges = tuple(str(i // 20) for i in range(200))
    scores[:100] *= 0.5
    quantity = Quantity(scores, np.zeros((1, 200)), (0.0, 1.0))
    items, found = (mean_draws(quantity, sample(200, c), NONE, name="x") for c in (None, edges))
    factor = math.sqrt(design_effect(scores, np.array(edges))) * stats.t.ppf(0.975, 9) / stats.norm.ppf(0.975)
    assert found.item_error == pytest.approx(factor * items.item_error)
    # The edge that was not seen makes the arms a little longer still.
    assert 1 < (found.value - found.ends[0]) / (factor * (items.value - items.ends[0])) < 1.1
    assert 1 < (found.ends[1] - found.value) / (factor * (items.ends[1] - items.value)) < 1.1
    assert "widened for 10 clusters" in found.method
    few = mean_draws(quantity, sample(200, tuple(str(i % 3) for i in range(200))), NONE, name="x")
    assert few.ends == items.ends
    assert "items of 3 clusters only" in few.method


def test_an_edge_that_was_not_seen_counts_for_several_items():
    # Ten edges of 20: 1 + 19 x 0.05 = 1.95 items. Its weight among 200 others is beta(1.95, 200) distributed; the arm
    # is widened by t(9) / z.
    drawn = sample(200, tuple(str(i // 20) for i in range(200)), resamples=20_000)
    assert drawn.unseen == pytest.approx(1.95)
    found = mean_draws(Quantity(np.zeros(200), np.zeros((1, 200)), (0.0, 1.0)), drawn, NONE, name="x")
    expected = stats.beta(1.95, 200).ppf(0.975) * stats.t.ppf(0.975, 9) / stats.norm.ppf(0.975)
    assert found.ends[1] == pytest.approx(expected, rel=0.05)


def test_the_order_of_the_items_changes_nothing():
    rng = np.random.default_rng(3)
    names, edges = [f"{i:03}" for i in range(120)], [f"edge {i // 20}" for i in range(120)]
    subject, control = rng.random(120), rng.random((3, 120))
    unit = np.ones(120)

    def found(order):
        drawn = Sample(tuple(names[i] for i in order), tuple(edges[i] for i in order), seed=5, resamples=500)
        quantity, ruler = (Quantity(x[order], control[:, order], SHARE) for x in (subject, unit))
        return ratio_draws(quantity, ruler, drawn, SeedPrior(0.01, 4.0), name="x").ends

    assert found(rng.permutation(120)) == pytest.approx(found(np.arange(120)), abs=1e-12)


def test_long_samples_are_drawn_in_parts_and_come_out_the_same(monkeypatch):
    scores = np.random.default_rng(4).random(50)
    quantity = Quantity(scores, np.zeros((1, 50)), (0.0, 1.0))
    whole = mean_draws(quantity, sample(50), NONE, name="x").ends
    monkeypatch.setattr("vestige.metrics.contrasts._KEPT", 7000)
    assert mean_draws(quantity, sample(50), NONE, name="x").ends == pytest.approx(whole, abs=1e-12)


def test_the_p_value_and_the_interval_agree():
    rng = np.random.default_rng(5)
    for _ in range(20):
        quantity = Quantity((rng.random(40) < 0.4).astype(float), (rng.random((3, 40)) < 0.2).astype(float), SHARE)
        found = mean_draws(quantity, sample(40), SeedPrior(0.01, 4.0), name="x")
        low, high = found.ends
        assert found.p_at_most(low - 0.01) < 0.025 < found.p_at_most(low + 0.01)
        assert found.p_at_least(high + 0.01) < 0.025 < found.p_at_least(high - 0.01)


def test_what_cannot_be_compared_is_refused():
    ones = np.ones(4)
    with pytest.raises(ValueError, match="4 items, but scores of the shapes"):
        mean_draws(Quantity(np.ones(3), np.ones((1, 3)), SHARE), sample(4), NONE, name="x")
    with pytest.raises(ValueError, match="does not exceed its control"):
        ratio_draws(Quantity(ones, ones[None], SHARE), Quantity(ones, ones[None], SHARE), sample(4), NONE, name="x")
    with pytest.raises(ValueError, match="leave"):
        mean_draws(Quantity(2 * ones, 0 * ones[None], SHARE), sample(4), NONE, name="x")
    with pytest.raises(ValueError, match="not finite"):
        mean_draws(Quantity(math.inf * ones, 0 * ones[None], None), sample(4), NONE, name="x")
    with pytest.raises(ValueError, match="twice"):
        Sample(("a", "a"), None, seed=0)
    with pytest.raises(ValueError, match="no items"):
        Sample((), None, seed=0)
    with pytest.raises(ValueError, match="2 items but 1 cluster"):
        Sample(("a", "b"), ("x",), seed=0)


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


def test_noise_has_the_quantiles_of_student():
    noise = Sample(("a",), None, 3).noise("a training", 5.0)
    # Of a table of Student's t with 5 degrees of freedom. Drawn values are up to 6 % off.
    assert np.quantile(noise, [0.025, 0.5, 0.975]) == pytest.approx([-2.5706, 0, 2.5706], abs=0.003)
    assert not np.array_equal(noise, Sample(("a",), None, 3).noise("another", 5.0))


@pytest.mark.parametrize("n", [2, 999, 2000])
def test_the_ends_are_the_quantiles_of_the_draws_to_the_last_digit(n):
    low, high = np.random.default_rng(n).normal(size=(2, n))
    draws = Draws(value=0.0, low=low, high=high, n=5, method="", item_error=0.0, seed_error=0.0)
    assert draws.tails == (np.quantile(low, (1 - 0.95) / 2), np.quantile(high, 1 - (1 - 0.95) / 2))
    assert draws.bounds == (min(np.quantile(low, 1 - BOUND), 0.0), max(np.quantile(high, BOUND), 0.0))
    assert draws.middles == (np.median(low), np.median(high))
