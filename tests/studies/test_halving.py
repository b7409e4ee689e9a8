"""Which candidates go on, and which is chosen: by hand, at the limits, and in a made-up world whose best is known."""

import math
from collections.abc import Callable

import pytest

from vestige.core.errors import InputError
from vestige.studies.halving import (
    Candidate,
    Goal,
    Point,
    Rung,
    chosen,
    foreseen,
    log_grid,
    parse_goal,
    parse_grid,
    promoted,
    rung_sizes,
)

FORGET = Goal("forget", 0.3)


def rates(*values: float) -> list[Candidate]:
    return [Candidate(v, None) for v in values]


def test_a_log_grid_has_equal_ratios_and_rates_that_can_be_typed():
    assert log_grid(1e-6, 1e-3, 4) == (1e-6, 1e-5, 1e-4, 1e-3)
    # 10 ** (1/2) = 3.1622...
    assert log_grid(1e-5, 1e-4, 3) == (1e-5, 3.16e-5, 1e-4)
    assert parse_grid("1e-6:1e-3:4") == log_grid(1e-6, 1e-3, 4)
    assert parse_grid("3e-5, 1e-5") == (3e-5, 1e-5)


@pytest.mark.parametrize("text", ["1e-3:1e-6:8", "0:1:3", "1:2:1", "1:2:x", "a,b", "", "1:2", "1:1.0001:9"])
def test_a_grid_that_is_none_is_refused(text):
    with pytest.raises(InputError):
        parse_grid(text)


def test_goals_are_written_and_read():
    assert parse_goal(" forget <= 0.3") == FORGET
    assert str(parse_goal("retain>=0.95")) == "retain>=0.95"


@pytest.mark.parametrize("text", ["forget>=0.3", "retain<=0.3", "forget<=", "forget<=nan", "holes<=1", "forget=0.3"])
def test_a_goal_that_means_nothing_is_refused(text):
    with pytest.raises(InputError, match="is not of the form"):
        parse_goal(text)


def test_each_rung_trains_half_as_many_twice_as_far():
    # 8 candidates of 100 steps: 8 to step 25, 4 to 50, 2 to the end.
    assert rung_sizes(8, 100, 3, 2) == [(25, 8), (50, 4), (100, 2)]
    assert rung_sizes(9, 90, 3, 3) == [(10, 9), (30, 3), (90, 1)]
    # Rungs that would be the same step are one, and the last always trains to the end.
    assert rung_sizes(8, 2, 3, 2) == [(1, 8), (2, 4)]
    assert rung_sizes(1, 100, 1, 2) == [(100, 1)]


def test_a_rate_is_foretold_by_the_higher_rate_that_stands_where_it_will_end():
    # At half the way, rates 1, 2, 4 stand at the effective rates 0.5, 1, 2; so rate 1 ends where rate 2 stands now.
    candidates = rates(1, 2, 4)
    first = {0: Point(0.9, 1.0), 1: Point(0.6, 0.9), 2: Point(0.1, 0.5)}
    assert foreseen(candidates, 0.5, first) == {0: Point(0.6, 0.9), 1: Point(0.1, 0.5), 2: Point(0.1, 0.5)}
    # Half way between the effective rates 1 and 2, in logarithms, lies sqrt(2): the mean of the two points.
    between = foreseen(rates(math.sqrt(2), 2, 4), 0.5, first)[0]
    assert between == pytest.approx(Point(0.35, 0.7))


def test_at_the_last_rung_a_candidate_is_what_it_is():
    late = {0: Point(0.5, 0.8), 1: Point(0.0, 0.1), 2: None}
    assert foreseen(rates(1, 2, 4), 1.0, late) == late


def test_strengths_foretell_only_their_own():
    candidates = [Candidate(1, 0.1), Candidate(1, 9.0), Candidate(2, 0.1), Candidate(2, 9.0)]
    scores = {0: Point(1, 1), 1: Point(0.8, 1), 2: Point(0.5, 0.5), 3: Point(0.4, 0.9)}
    ends = foreseen(candidates, 0.5, scores)
    assert (ends[0], ends[1]) == (Point(0.5, 0.5), Point(0.4, 0.9))


def test_a_candidate_that_broke_down_neither_goes_on_nor_foretells():
    candidates, scores = rates(1, 2), {0: Point(0.6, 0.9), 1: None}
    assert foreseen(candidates, 0.5, scores) == scores
    assert promoted(FORGET, candidates, 0.5, scores, 2) == (0,)
    assert promoted(FORGET, candidates, 0.5, {0: None, 1: None}, 2) == ()


def test_both_sides_of_the_bound_go_on_in_turn():
    candidates = rates(1, 2, 4, 8, 16)
    last = {0: Point(1.0, 1.0), 1: Point(0.35, 0.98), 2: Point(0.2, 0.9), 3: Point(0.1, 0.8), 4: Point(0.0, 0.1)}
    # Within the bound, best first: 2, 3, 4; beyond it, nearest first: 1, 0. In turn: 2, 1, 3, 0, 4.
    for n, left in ((1, (2,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (0, 1, 2, 3))):
        assert promoted(FORGET, candidates, 1.0, last, n) == left
    # With a bound on the retain score: within it 2, 1, 0 (least answered first), beyond it 3, 4.
    assert promoted(Goal("retain", 0.85), candidates, 1.0, last, 3) == (1, 2, 3)


def test_where_no_answer_has_changed_yet_the_higher_rates_go_on():
    unmoved, ruined = dict.fromkeys(range(4), Point(1.0, 1.0)), dict.fromkeys(range(4), Point(0.0, 0.0))
    for goal in (FORGET, Goal("retain", 0.9)):
        assert promoted(goal, rates(1, 2, 4, 8), 0.5, unmoved, 2) == (2, 3)
        assert promoted(goal, rates(1, 2, 4, 8), 0.5, ruined, 2) == (0, 1)


def halved(
    candidates: list[Candidate], world: Callable[[int, Rung], Point]
) -> tuple[int | None, list[dict[int, Point]]]:
    rungs = [Rung(25, 0.4, 8), Rung(50, 0.7, 4), Rung(100, 1.0, 2)]
    left, scores = tuple(range(8)), []
    for number, rung in enumerate(rungs):
        scores.append({n: world(n, rung) for n in left})
        if number < 2:
            left = promoted(FORGET, candidates, rung.progress, scores[-1], rungs[number + 1].n_candidates)
    return chosen(FORGET, scores[-1]), scores


def test_half_trained_rates_do_not_win_by_being_the_first_to_forget():
    """A world of one curve: forgetting rises with the effective rate, and so does the damage."""
    candidates = rates(*(2.0**k for k in range(8)))

    def world(n: int, rung: Rung) -> Point:
        effective = candidates[n].rate * rung.progress
        return Point(1 / (1 + (effective / 3) ** 4), 1 / (1 + (effective / 20) ** 2))

    best, scores = halved(candidates, world)
    # Rate 4 is the lowest that ends within the bound: 1 / (1 + (4/3)^4) = 0.24.
    assert best == 2
    # At the first rung it still answers 1 / (1 + (1.6/3)^4) = 0.93, and as it stands would come after higher rates.
    at_first = sorted(scores[0], key=lambda n: (FORGET.shortfall(scores[0][n]), -scores[0][n].retain))
    assert 2 not in at_first[:4]


def test_a_method_that_stops_moving_early_is_calibrated_all_the_same():
    """Task arithmetic on the tiny model: what is known already has no gradient, so the forecast is far too dark."""
    forget = (1.0, 1.0, 0.9, 0.7, 0.43, 0.2, 0.0, 0.1)
    retain = (1.0, 1.0, 1.0, 1.0, 0.95, 0.9, 0.41, 0.09)
    candidates = rates(1e-5, 2.13e-5, 4.54e-5, 9.69e-5, 2.06e-4, 4.4e-4, 9.38e-4, 2e-3)
    assert halved(candidates, lambda n, _: Point(forget[n], retain[n]))[0] == 5


def test_the_choice_is_within_the_bound_if_anything_is():
    ends = {0: Point(0.31, 1.0), 1: Point(0.3, 0.5), 2: Point(0.1, 0.6), 3: None}
    assert chosen(FORGET, ends) == 2
    assert chosen(Goal("retain", 0.55), ends) == 2
    # Out of reach: the nearest, and of equally near ones the better.
    assert chosen(Goal("forget", 0.0), {0: Point(0.2, 0.9), 1: Point(0.1, 0.1), 2: Point(0.1, 0.2)}) == 2
    # Equally well kept: the one with more forgotten. Equals: the first of the grid, the lowest rate.
    assert chosen(FORGET, {0: Point(0.2, 0.9), 1: Point(0.1, 0.9)}) == 1
    assert chosen(Goal("retain", 0.5), {0: Point(0.2, 0.8), 1: Point(0.2, 0.9)}) == 1
    assert chosen(FORGET, {4: Point(0, 1), 1: Point(0, 1)}) == 1
    assert chosen(FORGET, {0: None}) is None
