"""The page and the numbers of a study's tables, by hand."""

import numpy as np
import pytest

from vestige.core.estimates import Estimate
from vestige.studies.hole_study_tables import PaperTable, Part, cell, change_tests, named, number, page

HALF = Estimate("holes", "share", 0.5, 0.25, 0.75, 4, "wilson")


def test_the_page_is_grids_under_their_titles():
    table = PaperTable(2, "diversity", (Part(("model", "n"), (("npo", "4"),)),), ("A remark.",), ())
    expected = "# T\n\nA fact.\n\n## Table 2: diversity\n\n| model | n |\n| --- | --- |\n| npo | 4 |\n\nA remark.\n"
    assert page("T", ["A fact."], [table]) == expected


def test_a_name_cannot_break_out_of_its_cell():
    assert named("a|b<c>*") == "a\\|b\\<c\\>\\*"
    assert "\n" not in named("a\n| b |")


def test_an_estimate_as_a_cell_and_as_numbers():
    assert cell(HALF) == "0.50 [0.25, 0.75]"
    assert number("npo", "D_AP", HALF)["interval"] == "wilson"


def test_the_three_t_tests_of_the_same_prompts_by_hand():
    # Differences -2, -4, -3: mean -3, SD 1, t = -3 / (1 / sqrt 3) = -5.196, 2 degrees of freedom.
    found = change_tests(np.array([9.0, 9.0, 10.0]), np.array([7.0, 5.0, 7.0]), list("abc"))
    assert (found["p, paired t"].t, found["p, paired t"].dof) == (pytest.approx(-5.19615), 2)
    assert all(test.p is not None for test in found.values())


def test_prompts_made_from_one_thing_are_one_observation_of_the_paired_test_alone():
    # Changes -2, -4 of one origin, -3 and -5 of two others: means -3, -3, -5, whose t is -11/3 / (2/3) = -5.5.
    before, after = np.array([9.0, 9.0, 10.0, 10.0]), np.array([7.0, 5.0, 7.0, 5.0])
    found = change_tests(before, after, list("aabc"))
    assert (found["p, paired t"].t, found["p, paired t"].dof) == (pytest.approx(-5.5), 2)
    assert found["p, Welch t"].difference == pytest.approx(-3.5)


def test_a_test_of_nothing_says_why_and_is_no_number():
    found = change_tests(np.array([10.0, 10.0]), np.array([3.0, 3.0]), list("ab"))
    assert found["p, paired t"].why_not.startswith("all values are equal")
    assert [test.p for test in found.values()] == [None] * 3
