"""Goals and grids: how they are written, what they refuse, and how scores are ranked, by hand."""

import pytest

from vestige.core.errors import InputError
from vestige.studies.goals import Goal, log_grid, parse_goal, parse_grid

FORGET = Goal("forget", 0.3)


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


@pytest.mark.parametrize(
    ("goal", "scores", "best"),
    [
        # The best of those within the bound.
        (FORGET, [(0.31, 1.0), (0.3, 0.5), (0.1, 0.6)], 2),
        (Goal("retain", 0.55), [(0.31, 1.0), (0.3, 0.5), (0.1, 0.6)], 2),
        # Out of reach: the nearest, and of equally near ones the better.
        (Goal("forget", 0.0), [(0.2, 0.9), (0.1, 0.1), (0.1, 0.2)], 2),
        # Equally well kept: the one with more forgotten, and the other way round.
        (FORGET, [(0.2, 0.9), (0.1, 0.9)], 1),
        (Goal("retain", 0.5), [(0.2, 0.8), (0.2, 0.9)], 1),
    ],
)
def test_scores_are_ranked_by_the_bound_and_then_by_the_other_score(goal, scores, best):
    assert min(range(len(scores)), key=lambda n: goal.rank(*scores[n])) == best
