"""What an error says of a name that nobody knows."""

from vestige.core.text import closest


def test_a_name_like_none_of_many_is_told_their_number_and_not_a_wall_of_names():
    assert closest("npoo", ["npo", "ga"]) == "did you mean 'npo'?"
    assert closest("x", ["npo", "ga"]) == "known: ga, npo"
    assert closest("x", [f"task_{n}" for n in range(1200)]) == "none of the 1,200 known names is close to it"
