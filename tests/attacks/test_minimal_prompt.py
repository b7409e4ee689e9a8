"""Which lengths are tried: the reference's traces, its gap, and a bisection that finds the same answers."""

import math

import pytest

from vestige.evals.compression import bisection, shortest, stepwise


def from_(least):
    """An attempt that succeeds at `least` tokens or more."""
    return lambda n_tokens, steps: n_tokens >= least


def lengths(found):
    return [one.n_tokens for one in found]


@pytest.mark.parametrize(
    ("least", "tried"),
    [
        (3, [5, 4, 3, 2]),
        (8, [5, 10, 9, 8, 7]),
        (6, [5, 10, 9, 8, 7, 6]),
        (1, [5, 4, 3, 2, 1]),
    ],
)
def test_the_reference_tries_one_fewer_after_success_and_five_more_after_failure(least, tried):
    found = stepwise(from_(least), bound=30, steps=200)
    assert (lengths(found), shortest(found)) == (tried, least)


def test_the_reference_grows_its_steps_by_a_fifth_after_each_failure_and_cuts_them_to_whole_ones():
    # 200 x 1.2 = 240; 8 fails again at 7: 240 x 1.2 = 288; 288 x 1.2 = 345.6; 345 x 1.2 = 414.
    assert [t.steps for t in stepwise(from_(8), bound=30, steps=200)] == [200, 240, 240, 240, 240]
    assert [t.steps for t in stepwise(from_(99), bound=26, steps=200)] == [200, 240, 288, 345, 414]


def test_what_is_not_found_is_no_number():
    # The released code would say 10, and a ratio of 2 / 10 = 0.2, of a text of two tokens and 5 x 2 = 10 at most.
    found = stepwise(from_(99), bound=10, steps=200)
    assert (lengths(found), shortest(found)) == ([5], None)
    assert shortest(bisection(from_(99), bound=10, steps=200)) is None


@pytest.mark.parametrize("least", [6, 7, 8, 9])
def test_the_reference_never_tries_the_lengths_below_a_bound_of_ten_and_the_bisection_does(least):
    assert shortest(stepwise(from_(least), bound=10, steps=200)) is None
    assert shortest(bisection(from_(least), bound=10, steps=200)) == least


@pytest.mark.parametrize("bound", [2, 3, 6, 7, 10, 16, 31, 60])
def test_where_success_is_monotone_the_bisection_finds_every_length_that_there_is_and_what_the_reference_finds(bound):
    for least in range(1, bound + 3):
        ours, theirs = bisection(from_(least), bound=bound, steps=7), stepwise(from_(least), bound=bound, steps=7)
        assert shortest(ours) == (least if least < bound else None)
        # The reference tries 5 tokens whatever the bound.
        assert shortest(theirs) in (shortest(ours), None) or bound <= 5
        assert len(lengths(ours)) == len(set(lengths(ours)))
        assert {t.steps for t in ours} == {7}


@pytest.mark.parametrize("bound", [12, 16, 30, 60])
def test_the_bisection_makes_fewer_searches_over_all_lengths_and_never_more_than_log2_of_the_bound(bound):
    ours = [len(bisection(from_(m), bound=bound, steps=1)) for m in range(1, bound)]
    theirs = [len(stepwise(from_(m), bound=bound, steps=1)) for m in range(1, bound)]
    assert sum(ours) < sum(theirs)
    assert max(ours) == math.ceil(math.log2(bound)) < max(theirs)


def test_where_success_is_not_monotone_the_bisection_still_returns_a_length_that_succeeded():
    # Succeeds at 3 and at 8 or more: 15 succeeds, 7 fails, 11 and 9 and 8 succeed; 3 is never looked at.
    found = bisection(lambda n, steps: n == 3 or n >= 8, bound=30, steps=1)
    assert (lengths(found), shortest(found)) == ([15, 7, 11, 9, 8], 8)


def test_the_least_that_succeeded_is_taken_not_the_last_that_was_tried():
    found = stepwise(from_(4), bound=30, steps=1)
    assert [(t.n_tokens, t.success) for t in found] == [(5, True), (4, True), (3, False)]
    assert shortest(found) == 4


def test_a_text_of_one_token_has_no_shorter_prompt_so_nothing_is_tried():
    assert bisection(from_(1), bound=1, steps=1) == []
