import numpy as np
import pytest
from scipy.special import stdtrit

from vestige.metrics.contrasts import Quantity, Sample, mean_draws, ratio_draws
from vestige.metrics.trainings import PRIOR, SeedPrior, interaction, joint_noise, spread


def sample(n, **changes):
    return Sample(tuple(f"{i:04}" for i in range(n)), None, seed=0, resamples=4000, fixed=True, **changes)


def test_the_spread_by_hand():
    control = np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    # Each row's mean is 0.5: what rows and columns leave is -1/2, 0, 0, 1/2 and its opposite; 4 / 4 over 1 x 3.
    assert interaction(control).tolist() == [[-0.5, 0, 0, 0.5], [0.5, 0, 0, -0.5]]
    found = spread(control, np.zeros(4), SeedPrior(0.1, 2.0), width=None)
    assert found.noise == pytest.approx(1 / 3)
    # The means do not differ, so that the prior alone is there: 2 (1/12 + 1/30) / 3 is below 1/12.
    assert (found.variance, found.df) == (pytest.approx(1 / 12), 3.0)
    # One unlike pair more: (3 x 1/3 + 1/2) / 4.
    assert spread(control, np.zeros(4), SeedPrior(0.1, 2.0), width=1.0).noise == pytest.approx(0.375)
    # Means of 0 and 1, and no interaction: s^2 = 0.5, with one degree of freedom of three.
    apart = np.array([[0.0] * 4, [1.0] * 4])
    assert spread(apart, np.zeros(4), SeedPrior(0.1, 2.0), width=None).variance == pytest.approx(0.5 / 3)


def test_many_audits_are_read_at_once_as_each_by_itself():
    rng = np.random.default_rng(0)
    control, differences = rng.random((5, 3, 7)), rng.random((5, 7))
    together = spread(control, differences, PRIOR, width=1.0)
    alone = [spread(c, d, PRIOR, width=1.0).variance for c, d in zip(control, differences, strict=True)]
    assert together.variance == pytest.approx(alone)


def test_an_interval_is_students_with_the_moderated_variance():
    rng = np.random.default_rng(1)
    control, subject = rng.normal(size=(5, 30)), rng.normal(size=30)
    drawn = mean_draws(Quantity(subject, control, None), sample(30), PRIOR, name="x")
    found = spread(control, subject - control.mean(axis=0), PRIOR, width=None)
    arm = 2.501859 * np.sqrt(found.variance * (1 + 1 / 5))  # t(5.5), 97.5 %
    assert drawn.ends == pytest.approx((drawn.value - arm, drawn.value + arm), rel=2e-3)
    # Of a given subject, only the controls' mean is in doubt.
    given = mean_draws(Quantity(subject, control, None), sample(30), PRIOR, name="x", trained=False)
    assert given.ends[1] - given.value == pytest.approx(arm / np.sqrt(6), rel=2e-3)
    # In units of a ruler of length 2.
    ruler = Quantity(control.mean(axis=0) + 2, control, None)
    ratio = ratio_draws(Quantity(subject, control, None), ruler, sample(30), PRIOR, name="x")
    assert ratio.ends[1] - ratio.value == pytest.approx(arm / 2, rel=2e-3)


def test_without_a_training_to_draw_again_a_difference_is_exact():
    drawn = mean_draws(Quantity(np.ones(4), np.zeros((1, 4)), None), sample(4), None, name="x")
    assert (drawn.value, *drawn.ends) == (1.0, 1.0, 1.0)


def test_the_order_of_facts_and_clusters_change_nothing():
    rng = np.random.default_rng(2)
    control, subject, turned = rng.random((3, 12)), rng.random(12), rng.permutation(12)
    names = tuple(f"{i:04}" for i in range(12))
    plain = mean_draws(Quantity(subject, control, (-1.0, 1.0)), sample(12), PRIOR, name="x")
    other = Sample(tuple(names[i] for i in turned), tuple("abcdef" * 2), seed=0, resamples=4000, fixed=True)
    again = mean_draws(Quantity(subject[turned], control[:, turned], (-1.0, 1.0)), other, PRIOR, name="x")
    assert plain.ends == pytest.approx(again.ends)


def test_draws_of_two_quantities_go_together_as_their_residuals_do():
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(2, 4, 50))
    facts = tuple(map(str, range(50)))

    def drawn(residuals, name):
        return joint_noise(residuals, facts, 6.0, name=name, seed=0, resamples=4000)

    half = drawn(first + second, "c")
    assert np.corrcoef(drawn(first, "a"), drawn(second, "b"))[0, 1] == pytest.approx(0, abs=0.15)
    assert np.corrcoef(drawn(first, "a"), half)[0, 1] == pytest.approx(np.sqrt(0.5), abs=0.1)
    assert drawn(first, "a").tolist() == drawn(2 * first, "other").tolist()
    # Where nothing varies, the name decides.
    nothing = np.zeros((4, 50))
    assert abs(np.corrcoef(drawn(nothing, "a"), drawn(nothing, "b"))[0, 1]) < 0.1


def test_one_fact_and_one_control_tell_nothing():
    one = Quantity(np.zeros(1), np.zeros((1, 1)), None)
    assert mean_draws(one, sample(1), PRIOR, name="x").ends == (-np.inf, np.inf)


def test_bounds_of_seven_controls_hold_for_a_training_that_never_knew():
    # 600 audits of 20 facts, of which a third can be guessed, with seeds that shift all facts.
    rng = np.random.default_rng(4)
    chance = np.where(rng.random(20) < 0.3, 0.5, 0.0) + rng.normal(0, 0.03, (600, 8, 1))
    scores = (rng.random((600, 8, 20)) < chance).astype(float)
    apart = scores[:, 0] - scores[:, 1:].mean(axis=1)
    found = spread(scores[:, 1:], apart, PRIOR, width=1.0)
    arm = stdtrit(found.df, 0.975) * np.sqrt(found.variance * (1 + 1 / 7))
    assert np.mean(np.abs(apart.mean(axis=1)) > arm) <= 0.05
