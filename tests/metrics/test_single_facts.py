import numpy as np
import pytest

from vestige.metrics.single_facts import extreme, standing, stated


def test_the_standing_of_a_fact_by_hand():
    # Two others at -1 and 1 on both facts: each has the variance 2, as has the moderated one; 4 / sqrt(2 x 1.5).
    others = np.array([[-1.0, -1.0], [1.0, 1.0]])
    assert standing(np.array([4.0, 0.0]), others) == pytest.approx([4 / np.sqrt(3), 0.0])


def test_one_stated_fact_is_found_among_many_that_are_over_forgotten():
    rng = np.random.default_rng(0)
    control = -50 + 5 * rng.normal(size=(5, 1, 40))
    subject = np.full((1, 40), -70.0)
    assert extreme(subject, control).p > 0.5
    subject[0, 7] = 0.0
    found = extreme(subject, control)
    assert found.p < 0.005
    assert np.flatnonzero(found.facts).tolist() == [7]
    # What was so before an attack was not brought back by it: both scores have to be extreme.
    gained = np.concatenate([subject, np.zeros((1, 40))])
    both = np.concatenate([control, 5 * rng.normal(size=(5, 1, 40))], axis=1)
    assert extreme(gained, both).p > 0.5


def test_the_p_value_of_the_extreme_fact_by_its_formula():
    rng = np.random.default_rng(1)
    control, subject = rng.normal(size=(4, 1, 30)), np.zeros((1, 30))
    subject[0, 3] = 12
    found = extreme(subject, control)
    assert found.p == pytest.approx(1 / (1 + 4 * (found.size / found.null) ** 4))
    # Five facts just beyond every control: all of the five greatest are the subject's.
    subject[0, 3:8] = control.max() + 4
    found = extreme(subject, control)
    assert (int(found.facts.sum()), found.p) == (5, pytest.approx(5.0**-5))
    assert found.null > 2.4  # the greatest of 120 normal draws
    assert found.null == pytest.approx(
        max(standing(control[i, 0], np.delete(control[:, 0], i, axis=0)).max() for i in range(4))
    )


def test_facts_that_the_subject_alone_states_are_counted_against_what_a_control_alone_does():
    control = np.zeros((3, 20), dtype=bool)
    control[0, 0] = control[1, :2] = True
    subject = np.zeros(20, dtype=bool)
    subject[[0, 5, 6, 7]] = True
    found = stated(subject, control)
    # Fact 0 two controls state; 1 one alone; 5, 6 and 7 the subject alone: 3 of 4 at 1/4, and all 4.
    assert found.p == pytest.approx(4 * 0.25**3 * 0.75 + 0.25**4)
    assert np.flatnonzero(found.facts).tolist() == [5, 6, 7]
    assert stated(np.zeros(20, dtype=bool), control).p == 1.0


def test_two_controls_do_not_tell_what_a_training_alone_states():
    assert stated(np.ones(5, dtype=bool), np.zeros((2, 5), dtype=bool)) is None
    assert extreme(np.ones((1, 5)), np.zeros((2, 1, 5))) is None


def test_a_training_that_never_knew_is_rarely_accused_for_a_single_fact():
    rng = np.random.default_rng(2)
    bits = rng.standard_t(4, (300, 5, 1, 30)) * np.exp(rng.normal(0, 0.5, (300, 1, 1, 30)))
    assert sum(extreme(one[0], one[1:]).p <= 0.025 for one in bits) <= 0.05 * 300
    hits = rng.random((300, 5, 40)) < np.where(rng.random((300, 1, 40)) < 0.3, 0.5, 0.0)
    assert sum(stated(one[0], one[1:]).p <= 0.025 for one in hits) <= 0.05 * 300
