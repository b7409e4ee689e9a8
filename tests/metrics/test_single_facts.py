import numpy as np
import pytest

from vestige.metrics.single_facts import extreme, least_given_away, standing, stated, stated_alone


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


def test_a_seed_that_lifts_all_answers_gives_no_fact_away():
    rng = np.random.default_rng(3)
    control, subject = rng.normal(size=(5, 1, 40)), rng.normal(size=(1, 40))
    lifted = extreme(subject + 8, control)
    assert lifted.p > 0.1
    assert not lifted.facts.any()
    # One that is lower throughout hides nothing by it.
    lower = subject - 8
    lower[0, 4] = 30
    assert np.flatnonzero(extreme(lower, control).facts).tolist() == [4]
    # The lower median of two is the lesser; of one fact nothing is taken off.
    assert standing(np.array([4.0, 1.0]), np.array([[-1.0, -1.0], [1.0, 1.0]])) == pytest.approx([3 / np.sqrt(3), 0.0])
    assert standing(np.array([4.0]), np.array([[-1.0], [1.0]])) == pytest.approx([4 / np.sqrt(3)])


def test_what_tells_a_known_fact_from_a_guess_is_how_sure_it_is():
    # Each control alone states three facts of a hundred, no surer than other guesses; the subject states four others.
    rng = np.random.default_rng(4)
    control = rng.standard_t(4, (3, 1, 100))
    theirs = np.zeros((3, 100), dtype=bool)
    for m in range(3):
        theirs[m, 3 * m : 3 * m + 3] = True
    subject, mine = np.full((1, 100), -3.0), np.zeros(100, dtype=bool)
    mine[50:54] = True
    subject[0, 50:54] = 7.0
    alone = stated_alone(mine, theirs)
    assert stated(mine, theirs).p > 0.0125
    found = extreme(subject, control, alone)
    assert (found.p, np.flatnonzero(found.facts).tolist()) == (pytest.approx(4.0**-4), [50, 51, 52, 53])
    # Guesses of its own, as sure as theirs, are none of them.
    guessed = extreme(np.where(mine, 0.5, subject), control, alone)
    assert guessed.p > 0.0125
    # A fact that a control states too is not the subject's alone, and who states nothing alone has no test.
    shared = stated_alone(theirs[0], theirs)
    assert not shared.subject.any()
    assert extreme(subject, control, shared) is None


def test_how_few_facts_fail_a_claim():
    # Three tests share 2.5 %: (M + 1)^-J is at most a third of it.
    assert [least_given_away(m) for m in (2, 3, 5, 10)] == [None, 4, 3, 2]
    assert 4.0**-4 <= 0.025 / 3 < 4.0**-3
