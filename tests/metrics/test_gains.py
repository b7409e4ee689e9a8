from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.metrics.contrasts import Sample
from vestige.metrics.gains import Controls, admission, differences, excess, facts_stored, leakage, split
from vestige.metrics.intervals import PRIOR as HITS
from vestige.metrics.intervals import SeedPrior

PRIOR = SeedPrior(0.002, 4.0)


def sample(n, resamples=2000):
    return Sample(tuple(f"{i:04}" for i in range(n)), None, seed=0, resamples=resamples)


def hits(k, n):
    """The first k of n items."""
    return (np.arange(n) < k).astype(float)


def controls(target, retrained, form="generate", unit="leakage"):
    return Controls(form, np.array(target), np.array(retrained), sample(len(target)), PRIOR, unit)


def leakage_vs_chance(subject, target, chance, shared):
    return leakage(subject, Controls("x", target, chance[None], shared, PRIOR, "leakage_vs_chance"))


def gain(before, after, first, last, target, unit="leakage", resamples=2000):
    made = Controls("x", target, first, sample(len(before), resamples), PRIOR, unit)
    return split("x", before, after, made, last)


def test_leakage_by_hand():
    # Target 1, 1, 1, 0: 3/4. Two retrained seeds, 1 and 0 hits of 4: 1/8. Subject 2 of 4: (1/2 - 1/8) / (3/4 - 1/8).
    scale = controls([1.0, 1, 1, 0], [[1.0, 0, 0, 0], [0.0, 0, 0, 0]])
    subject = np.array([1.0, 1.0, 0.0, 0.0])
    assert leakage(subject, scale).value == pytest.approx(0.6)
    assert excess(subject, scale).value == pytest.approx(0.375)
    assert admission(scale).value == pytest.approx(0.625)


def test_retrained_is_0_and_target_is_1():
    rng = np.random.default_rng(0)
    target, never = (rng.random(40) < 0.95).astype(float), (rng.random((3, 40)) < 0.2).astype(float)
    scale = controls(target, never)
    assert leakage(target, scale).value == 1
    assert leakage(never.mean(axis=0), scale).value == pytest.approx(0)
    assert np.mean([leakage(seed, scale).value for seed in never]) == pytest.approx(0)


def test_below_retrained_leakage_is_negative():
    assert leakage(np.zeros(4), controls([1.0, 1, 1, 1], [[1.0, 0, 0, 0]])).value == pytest.approx(-1 / 3)


def test_a_clear_format_is_told_from_one_at_chance():
    rng = np.random.default_rng(1)
    known = controls(np.ones(60), (rng.random((3, 60)) < 0.3).astype(float))
    chance = controls((rng.random(60) < 0.27).astype(float), (rng.random((3, 60)) < 0.25).astype(float))
    assert admission(known).ends[0] > 0.2
    assert admission(chance).ends[0] < 0.2


def test_the_interval_of_leakage_holds_the_truth():
    # 300 audits of 60 items: half of the items leak, three never seen seeds guess a fifth. 285 of 300 is 95 %.
    rng, covered = np.random.default_rng(2), 0
    shared = sample(60, resamples=1000)
    for _ in range(300):
        never = (rng.random((4, 60)) < 0.2).astype(float)
        subject = np.maximum(never[0], rng.random(60) < 0.5)
        low, high = leakage(subject, Controls("x", np.ones(60), never[1:], shared, PRIOR)).ends
        covered += low <= 0.5 <= high
    assert covered >= 280


def test_leakage_against_chance_is_another_metric():
    # Four options, chance 1/4: a subject at 1/2 and a target at 1 are at (1/2 - 1/4) / (1 - 1/4) = 1/3.
    subject = np.array([1.0, 1.0, 0.0, 0.0])
    found = leakage_vs_chance(subject, np.ones(4), np.full(4, 0.25), sample(4))
    assert found.value == pytest.approx(1 / 3)
    assert found.seed_error == 0
    assert "control" not in found.method


def test_no_hit_against_a_chance_of_0_is_0_at_least():
    # The one more item weighs w = 1 - 0.025^(1/12) = 0.265 at most. All of it a hit, and the target's no: w / (1 - w).
    low, high = leakage_vs_chance(np.zeros(12), np.ones(12), np.zeros(12), sample(12, 20_000)).ends
    assert low == 0
    assert high == pytest.approx(0.265 / 0.735, abs=0.01)
    # Chance 1/4: no hit is never below -1/4, and the target at least at (1 - w) - 1/4: -0.25 / 0.485.
    low = leakage_vs_chance(np.zeros(12), np.ones(12), np.full(12, 0.25), sample(12, 20_000)).ends[0]
    assert low == pytest.approx(-0.515, abs=0.02)


def test_the_one_more_item_is_the_worst_for_either_end():
    # Half of 12 against 0: the worst for the low end is one that the target knows and the subject does not, which makes
    # it Clopper and Pearson's, the 2.5 % quantile of beta(6, 7) = 0.211; one that neither knows: beta(6, 6)'s 0.234.
    low = leakage_vs_chance(hits(6, 12), np.ones(12), np.zeros(12), sample(12, 20_000)).ends[0]
    assert low == pytest.approx(0.211, abs=0.01)


def test_a_known_control_admits_by_its_own_bounds():
    # 12 of 12 against 1/4, the one more item a miss: (1 - w) - 1/4 = 0.485; with -1 as its worst it were 0.287.
    scale = controls(np.ones(12), np.full((1, 12), 0.25), unit="leakage_vs_chance")
    assert admission(scale).ends[0] == pytest.approx(0.485, abs=0.015)
    assert admission(scale).seed_error == 0


@pytest.mark.slow
@pytest.mark.parametrize("truth", [0.0, 0.5, 1.0, 1.2])
def test_the_interval_of_leakage_against_chance_holds_the_truth(truth):
    # 300 audits of 40 items of two or four options. The target knows 3/5 of them. 285 of 300 is 95 %.
    rng, covered = np.random.default_rng(5), 0
    shared = sample(40, resamples=500)
    for _ in range(300):
        chance = rng.choice([0.5, 0.25], 40)
        guessed = rng.random((2, 40)) < chance
        target = np.maximum(guessed[0], rng.random(40) < 0.6).astype(float)
        subject = np.maximum(guessed[1], rng.random(40) < 0.6 * truth).astype(float)
        low, high = leakage_vs_chance(subject, target, chance, shared).ends
        covered += low <= truth <= high
    assert covered >= 280


def test_excess_in_bits_by_hand():
    # Subject -1, -3; seeds -2, -4 and -4, -6: (-2) - (-4) = 2 bits more an answer.
    scale = controls([0.0, 0.0], [[-2.0, -4.0], [-4.0, -6.0]], "bits", "bits")
    found = excess(np.array([-1.0, -3.0]), scale)
    assert found.value == pytest.approx(2)


def test_the_difference_of_two_subjects_needs_no_zero():
    rng = np.random.default_rng(3)
    scale = controls(np.ones(40), (rng.random((3, 40)) < 0.2).astype(float))
    first, second = (rng.random(40) < 0.7).astype(float), (rng.random(40) < 0.4).astype(float)
    apart, reverse = differences(np.array([[first, second], [second, first]]), scale)
    assert apart.value == pytest.approx(leakage(first, scale).value - leakage(second, scale).value)
    assert reverse.value == pytest.approx(-apart.value)
    assert apart.seed_error == 0


def test_fewer_controls_make_wider_intervals():
    rng = np.random.default_rng(4)
    widths = {m: [] for m in (1, 3, 10)}
    for _ in range(40):
        never = (rng.random((11, 60)) < 0.25).astype(float)
        for m, found in widths.items():
            low, high = leakage(never[0], Controls("x", np.ones(60), never[1 : m + 1], sample(60, 500), PRIOR)).ends
            found.append(high - low)
    assert np.mean(widths[1]) > np.mean(widths[3]) > np.mean(widths[10])


def spread(mean, n=12):
    """Values around a mean, exactly."""
    return mean + np.linspace(-3, 3, n)


def bits(before, after, control_before, control_after, target=-0.04):
    first, last = (np.stack([spread(mean)] * 2) for mean in (control_before, control_after))
    return gain(spread(before), spread(after), first, last, spread(target), "bits")


def test_ga_on_a_tiny_model_is_fourteen_bits_of_repair_and_seven_of_recovery():
    # Measured: GA 1e-4 from -38.0 by 21.1 bits after retain-only relearning, retrained from -24.0 by -0.1.
    # E0 = -14.0, E1 = -16.9 + 24.1 = 7.2: injection -0.1, repair 14.0, recovery 7.2, and -0.1 + 14.0 + 7.2 = 21.1.
    found = bits(-38.0, -16.9, -24.0, -24.1)
    parts = [found.gain, found.injection, found.repair, found.recovery, found.before, found.after]
    assert [one.value for one in parts] == pytest.approx([21.1, -0.1, 14.0, 7.2, -14.0, 7.2])
    assert found.unit == "bits"


def test_tuning_on_the_answers_is_injection_and_saturates():
    # Retrained from -24.0 by 22.1: all of it carried in, 22.1 / 23.96 of its gap to the target.
    found = bits(-24.0, -1.9, -24.0, -1.9)
    assert [found.injection.value, found.repair.value, found.recovery.value] == pytest.approx([22.1, 0, 0], abs=1e-9)
    assert found.saturation.value == pytest.approx(22.1 / 23.96)


def test_a_subject_that_stays_below_retrained_is_repaired_only():
    # E0 = -14, E1 = -9: five bits of repair.
    found = bits(-38.0, -33.0, -24.0, -24.0)
    assert (found.repair.value, found.recovery.value) == pytest.approx((5, 0))


def test_shares_are_in_units_of_the_gap_before_the_attack():
    # Target 1, retrained 0.2 -> 0.4, subject 0.4 -> 0.8: gain 0.4, injection 0.2, E0 0.2, E1 0.4, by the gap of 0.8.
    hit = np.array([1.0] * 2 + [0.0] * 8), np.array([1.0] * 4 + [0.0] * 6), np.array([1.0] * 8 + [0.0] * 2)
    found = gain(hit[1], hit[2], hit[0][None], hit[1][None], np.ones(10))
    values = [found.gain, found.injection, found.repair, found.recovery, found.before, found.after, found.saturation]
    assert [one.value for one in values] == pytest.approx([0.5, 0.25, 0, 0.25, 0.25, 0.5, 0.25])
    assert found.unit == "leakage"


def test_no_hits_before_and_after_may_have_been_a_loss_as_well_as_a_recovery():
    nothing = np.zeros((1, 20))
    found = gain(nothing[0], nothing[0], nothing, nothing, np.ones(20))
    # One item more could be a hit before, or after: 1 - 0.025^(1/20) = 0.168 of 20, by the rest 0.2025.
    assert found.recovery.ends == pytest.approx((-0.2025, 0.2025), abs=0.04)
    assert found.recovery.value == 0


shares = st.lists(st.floats(0, 1), min_size=6, max_size=6).map(np.array)


@settings(max_examples=40, deadline=None)
@given(before=shares, after=shares, first=shares, last=shares)
def test_the_parts_add_up_and_their_intervals_hold_them(before, after, first, last):
    found = gain(before, after, 0.5 * first[None], last[None], np.ones(6), resamples=100)
    parts = found.injection.value + found.repair.value + found.recovery.value
    assert found.gain.value == pytest.approx(parts, abs=1e-9)
    assert found.after.value - found.before.value == pytest.approx(found.change.value, abs=1e-9)
    for one in (found.gain, found.injection, found.repair, found.recovery, found.change):
        assert one.ends[0] <= one.value <= one.ends[1]


def test_noise_alone_is_not_recovered():
    # A retrained model as the subject. Every model learns at random. Floored item by item, it would recover 0.1.
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        first = (rng.random((4, 60)) < 0.2).astype(float)
        last = np.maximum(first, rng.random((4, 60)) < 0.2)
        found.append(gain(first[0], last[0], first[1:], last[1:], np.ones(60), resamples=400))
    assert abs(np.mean([one.change.value for one in found])) < 0.02
    assert sum(one.recovery.ends[0] > 0 for one in found) <= 6
    assert sum(one.after.ends[0] > 0 for one in found) <= 6


def test_controls_of_other_seeds_before_and_after_are_refused():
    # With shape checks on, as here, the annotations say so first; without, the function does.
    with pytest.raises((ValueError, TypeError)):
        gain(np.ones(3), np.ones(3), np.zeros((2, 3)), np.zeros((1, 3)), np.ones(3))


def test_the_share_of_facts_stored_by_hand():
    # 7 of 10 recalled where two controls guess 2 and 4: (7/10 - 3/10) / (1 - 3/10) = 4/7.
    share = facts_stored(hits(7, 10), np.stack([hits(2, 10), hits(4, 10)]), replace(sample(10), fixed=True), HITS)
    assert share.value == pytest.approx(4 / 7)
    assert share.ends[0] < 4 / 7 < share.ends[1]
    with pytest.raises(ValueError, match="length 0"):
        facts_stored(hits(10, 10), np.ones((2, 10)), sample(10), HITS)


def planted(rng, n, controls, stored):
    """Facts of which some are stored, and who recalls them after relearning: a subject and controls that guess.

    A third can be guessed, each as often as beta(3, 3) says. A training's luck moves all of them and each contract.
    """
    contracts = np.arange(n) // 10
    holds = rng.random(n) < stored * 2 * rng.random(n // 10)[contracts]
    odds = np.where(rng.random(n) < 1 / 3, np.log(1 / rng.beta(3, 3, n) - 1), np.inf)

    def guesses():
        luck = 0.2 * rng.standard_normal() + 0.3 * rng.standard_normal(n // 10)[contracts]
        return rng.random(n) < 1 / (1 + np.exp(odds + luck))

    return holds, (holds | guesses()).astype(float), np.array([guesses() for _ in range(controls)], dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize("n_controls", [3, 5])
@pytest.mark.parametrize("stored", [0.0, 0.1, 0.34, 0.5])
def test_the_interval_of_the_share_of_facts_stored_holds_what_was_planted(n_controls, stored):
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, n_controls])
        holds, recalled, never = planted(rng, 50, n_controls, stored)
        share = facts_stored(recalled, never, replace(sample(50), fixed=True), HITS)
        covered += share.ends[0] <= holds.mean() <= share.ends[1]
    assert covered / 200 >= 0.93
