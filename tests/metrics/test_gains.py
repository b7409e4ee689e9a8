import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vestige.metrics.contrasts import Sample
from vestige.metrics.gains import Attacked, split
from vestige.metrics.trainings import SeedPrior

PRIOR = SeedPrior(0.002, 4.0)


def sample(n, resamples=500):
    return Sample(tuple(f"{i:04}" for i in range(n)), None, seed=0, resamples=resamples)


def spread(mean, n=12):
    """Values around a mean, exactly."""
    return mean + np.linspace(-3, 3, n)


def bits(before, after, control_before, control_after, target=-0.04):
    return Attacked(
        "relearn",
        spread(before),
        spread(after),
        np.stack([spread(control_before)] * 2),
        np.stack([spread(control_after)] * 2),
        spread(target),
        in_bits=True,
    )


def test_ga_on_a_tiny_model_is_fourteen_bits_of_repair_and_seven_of_recovery():
    # Measured: GA 1e-4 from -38.0 by 21.1 bits after retain-only relearning, retrained from -24.0 by -0.1.
    # E0 = -14.0, E1 = -16.9 + 24.1 = 7.2: injection -0.1, repair 14.0, recovery 7.2, and -0.1 + 14.0 + 7.2 = 21.1.
    found = split(bits(-38.0, -16.9, -24.0, -24.1), sample(12), PRIOR)
    parts = [found.gain, found.injection, found.repair, found.recovery, found.before, found.after]
    assert [one.value for one in parts] == pytest.approx([21.1, -0.1, 14.0, 7.2, -14.0, 7.2])
    assert found.unit == "bits"


def test_tuning_on_the_answers_is_injection_and_saturates():
    # Retrained from -24.0 by 22.1: all of it carried in, 22.1 / 23.96 of its gap to the target.
    found = split(bits(-24.0, -1.9, -24.0, -1.9), sample(12), PRIOR)
    assert [found.injection.value, found.repair.value, found.recovery.value] == pytest.approx([22.1, 0, 0], abs=1e-9)
    assert found.saturation.value == pytest.approx(22.1 / 23.96)


def test_a_subject_that_stays_below_retrained_is_repaired_only():
    # E0 = -14, E1 = -9: five bits of repair.
    found = split(bits(-38.0, -33.0, -24.0, -24.0), sample(12), PRIOR)
    assert (found.repair.value, found.recovery.value) == pytest.approx((5, 0))


def test_shares_are_in_units_of_the_gap_before_the_attack():
    # Target 1, retrained 0.2 -> 0.4, subject 0.4 -> 0.8: gain 0.4, injection 0.2, E0 0.2, E1 0.4, by the gap of 0.8.
    hit = np.array([1.0] * 2 + [0.0] * 8), np.array([1.0] * 4 + [0.0] * 6), np.array([1.0] * 8 + [0.0] * 2)
    attacked = Attacked("x", hit[1], hit[2], hit[0][None], hit[1][None], np.ones(10), in_bits=False)
    found = split(attacked, sample(10), PRIOR)
    values = [found.gain, found.injection, found.repair, found.recovery, found.before, found.after, found.saturation]
    assert [one.value for one in values] == pytest.approx([0.5, 0.25, 0, 0.25, 0.25, 0.5, 0.25])
    assert found.unit == "leakage"


def test_no_hits_before_and_after_may_have_been_a_loss_as_well_as_a_recovery():
    nothing = np.zeros((1, 20))
    found = split(
        Attacked("x", nothing[0], nothing[0], nothing, nothing, np.ones(20), in_bits=False), sample(20), PRIOR
    )
    # One item more could be a hit before, or after: 1 - 0.025^(1/20) = 0.168 of 20, by the rest 0.2025.
    assert found.recovery.ends == pytest.approx((-0.2025, 0.2025), abs=0.04)
    assert found.recovery.value == 0


shares = st.lists(st.floats(0, 1), min_size=6, max_size=6).map(np.array)


@settings(max_examples=40, deadline=None)
@given(before=shares, after=shares, first=shares, last=shares)
def test_the_parts_add_up_and_their_intervals_hold_them(before, after, first, last):
    attacked = Attacked("x", before, after, 0.5 * first[None], last[None], np.ones(6), in_bits=False)
    found = split(attacked, sample(6, 100), PRIOR)
    parts = found.injection.value + found.repair.value + found.recovery.value
    assert found.gain.value == pytest.approx(parts, abs=1e-9)
    assert found.after.value - found.before.value == pytest.approx(found.change.value, abs=1e-9)
    for one in (found.gain, found.injection, found.repair, found.recovery, found.change):
        assert one.ends[0] <= one.value <= one.ends[1]


def test_noise_alone_is_not_recovered():
    # A retrained model as the subject; every model learns at random. Floored item by item, it would recover 0.1.
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        first = (rng.random((4, 60)) < 0.2).astype(float)
        last = np.maximum(first, rng.random((4, 60)) < 0.2)
        attacked = Attacked("x", first[0], last[0], first[1:], last[1:], np.ones(60), in_bits=False)
        found.append(split(attacked, sample(60, 400), PRIOR))
    assert abs(np.mean([one.change.value for one in found])) < 0.02
    assert sum(one.recovery.ends[0] > 0 for one in found) <= 6
    assert sum(one.after.ends[0] > 0 for one in found) <= 6


def test_controls_of_other_seeds_before_and_after_are_refused():
    # With shape checks on, as here, the annotations say so first; without, the function does.
    def made():
        return Attacked("x", np.ones(3), np.ones(3), np.zeros((2, 3)), np.zeros((1, 3)), np.ones(3), False)

    with pytest.raises((ValueError, TypeError)):
        split(made(), sample(3), PRIOR)
