"""Whether two models are one training, by numbers that can be worked out by hand."""

import numpy as np
import pytest

from vestige.metrics.trainings import (
    Near,
    OneTraining,
    agreement,
    as_equal_by_chance,
    distance,
    effective_questions,
    equal_by_chance,
    kept_error,
    near,
    near_hits,
    same_pattern,
    together,
)

ALTERNATING = np.tile([0.0, 1.0], 10)
"""Twenty questions with variance 1/4."""


def test_effective_questions_are_all_of_an_even_spread_and_one_of_a_single_outlier():
    assert effective_questions(ALTERNATING) == pytest.approx(20)
    # Deviations 0.9 and nine times -0.1: (0.81 + 0.09)^2 / (0.6561 + 0.0009).
    assert effective_questions(np.eye(10)[0]) == pytest.approx(0.81 / 0.657)
    # Rounding makes the mean of equal scores differ from them.
    assert effective_questions(np.full(20, 0.6)) == 0


def test_the_error_of_another_training_on_retained_questions_by_hand():
    # One unlike pair among 50 makes sigma^2 = 0.5 / 50, and V = sigma^2 / 50. Means 0.2 apart have the variance 0.02.
    known, alike = np.tile([[0.9], [0.7]], 50), (5 * 0.01 / 50 + 0.02) / 6
    assert kept_error(known[:1], np.zeros(50)) == (
        (pytest.approx(np.sqrt(0.085**2 + 2 * 0.01 / 50)), 5),
        (pytest.approx(np.sqrt(0.055**2 + 2 * 0.01 / 50)), 5),
    )
    assert kept_error(known, np.zeros(50))[0] == (pytest.approx(np.sqrt(0.085**2 * 5 / 6 + 2 * alike)), 6)
    # Three controls at the level of the target: (3 x 49 x 0 + 0.5) / (3 x 49 + 1) is sigma^2, and V is sigma^2 / 50.
    low, high = kept_error(np.full((4, 50), 0.9), np.zeros(50))
    assert low == high == (pytest.approx(np.sqrt(0.04**2 * 5 / 8 + 2 * 0.5 / 148 / 50)), 8)


def test_a_distance_is_in_units_of_the_spread_between_questions():
    # All differ by 0.1, over the root of 0.25 + 0.16.
    second = ALTERNATING + np.where(ALTERNATING > 0, -0.1, 0.1)
    assert distance(ALTERNATING, second) == pytest.approx(0.1 / np.sqrt(0.25 + 0.16))
    assert distance(ALTERNATING, ALTERNATING) == 0
    # The same pattern at another level is another training.
    assert distance(ALTERNATING, ALTERNATING + 3) == pytest.approx(3 / np.sqrt(0.5))
    assert distance(1000 * ALTERNATING, 1000 * second) == pytest.approx(distance(ALTERNATING, second))


def test_nothing_is_said_of_too_few_questions():
    assert distance(ALTERNATING[:10], ALTERNATING[:10]) is None
    missing = ALTERNATING.copy()
    missing[:10] = np.nan
    assert distance(ALTERNATING, missing) is None
    # All models fail at all questions, or one question makes all of the spread.
    assert distance(np.zeros(100), np.zeros(100)) is None
    assert distance(np.eye(100)[0], np.eye(100)[0]) is None


def test_a_pattern_is_that_of_the_controls_whatever_the_level():
    target = 1 - ALTERNATING
    assert same_pattern(ALTERNATING + 5, ALTERNATING, target)
    assert not same_pattern(target, ALTERNATING, target)
    # Where no question differs from another, the level decides.
    assert not same_pattern(np.full(20, 0.9), np.zeros(20), np.ones(20))


def test_pairs_are_near_on_the_scale_of_the_public_logs_unless_their_records_say_that_they_were_trained_apart():
    # Distances 0.02 / sqrt(0.25 + 0.23) = 0.029 and 0.1 / sqrt(0.41) = 0.156.
    rows = {
        "a": ALTERNATING,
        "b": ALTERNATING + np.where(ALTERNATING > 0, -0.02, 0.02),
        "c": ALTERNATING + np.where(ALTERNATING > 0, -0.1, 0.1),
    }
    assert [(p.first, p.second) for p in near(rows, "probability", rows)] == [("a", "b")]
    assert list(near(rows, "probability", rows, ("a", "b", "c"))) == []
    # Recorded trainings may be nearer than the public ones: then no other pair is judged by less.
    rows["d"] = ALTERNATING + np.where(ALTERNATING > 0, -0.05, 0.05)
    assert [(p.first, p.second) for p in near(rows, "probability", rows, ("a", "b"))] == []
    assert ("b", "d") in [(p.first, p.second) for p in near(rows, "probability", rows)]


def test_hits_are_equal_by_luck_as_often_as_the_difficulty_of_questions_says():
    # Agreement 1/2 and share 1/2: q ~ Beta(1/2, 1/2), E[q^2] = 3/8, so two models agree on 3/4 of the questions.
    assert equal_by_chance(1, 0.5, 0.5, 2) == pytest.approx(0.75)
    assert equal_by_chance(10, 0.5, 0.5, 2) == pytest.approx(0.75**10)
    # Three: 2 x E[q^3] = 2 x (1/2 x 3/4 x 5/6).
    assert equal_by_chance(1, 0.5, 0.5, 3) == pytest.approx(0.625)
    assert equal_by_chance(100, 0.0, 0.8, 5) == pytest.approx(1)
    assert equal_by_chance(100, 0.5, 1.0, 5) == 1
    # At most one of two questions differs, each with 1/4: 1 - 1/16.
    assert as_equal_by_chance(1, 2, 0.5, 0.5) == pytest.approx(15 / 16)


def test_agreement_is_beyond_luck():
    # Four of forty differ, where luck would give twenty.
    first = np.tile([0.0, 1.0], 20)
    second = first.copy()
    second[:4] = 1 - second[:4]
    assert agreement(first, second) == pytest.approx(0.8)
    assert agreement(first[:10], second[:10]) is None


def hits(seed, n=100, share=0.4):
    return (np.random.default_rng(seed).random(n) < share).astype(float)


def test_equal_hits_are_one_training_where_others_show_that_trainings_differ_or_many_are_equal():
    assert [p.first + p.second for p in near_hits({"a": hits(1), "b": hits(1), "c": hits(2)}, ())] == ["ab"]
    # Two alone may be alike, as those of the public logs are; five may not.
    assert list(near_hits({"a": hits(1), "b": hits(1)}, ())) == []
    five = {name: hits(1) for name in "abcde"}
    assert [p.second for p in near_hits(five, ())] == ["b", "c", "d", "e"]
    assert list(near_hits(five, (), tuple(five))) == []
    # Nobody knows anything, and all are equal.
    assert list(near_hits({name: np.zeros(1000) for name in "abcde"}, ())) == []


def test_what_a_further_model_was_not_asked_hides_no_copies():
    five = {name: hits(1) for name in "abcde"}
    for place, row in enumerate(five.values()):
        row[place] = np.nan
    little = np.full(len(five["a"]), np.nan)
    little[10] = five["a"][10]
    assert [p.second for p in near_hits({**five, "further": little}, ())] == ["b", "c", "d", "e"]


def test_hits_that_differ_hardly_are_one_training():
    first = hits(1, n=1000)
    second = first.copy()
    second[0] = 1 - second[0]
    # Expected are 2 x 0.4 x 0.6 x (1 - 0.93) = 3.4 %, or 34.
    (pair,) = near_hits({"a": first, "b": second}, "a")
    assert (pair.first, pair.second) == ("a", "b")
    assert pair.why.startswith("their hits differ in 1 of 1000 questions")


def test_pairs_that_share_a_model_are_one_group():
    pairs = [Near("a", "b", "first"), Near("c", "d", "second"), Near("b", "e", "third")]
    assert together("eabcd", pairs) == [OneTraining(("c", "d"), "second"), OneTraining(("e", "a", "b"), "first")]
    assert together("abc", []) == []
