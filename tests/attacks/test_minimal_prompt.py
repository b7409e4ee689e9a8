"""Which lengths of a minimal prompt are tried."""

import math

import pytest

from vestige.evals.compression import shortest


def tried(succeeds, bound):
    """The lengths that are tried, and the length that is found."""
    lengths = []

    def attempt(n_tokens):
        lengths.append(n_tokens)
        return succeeds(n_tokens)

    return lengths, shortest(attempt, bound=bound)


@pytest.mark.parametrize("bound", [2, 3, 6, 7, 10, 16, 31, 60])
def test_where_success_is_monotone_the_least_length_is_found_in_log2_searches(bound):
    for least in range(1, bound + 3):
        lengths, found = tried(lambda n, least=least: n >= least, bound)
        assert found == (least if least < bound else None)
        assert len(lengths) == len(set(lengths)) <= math.ceil(math.log2(bound))


def test_where_success_is_not_monotone_a_length_that_succeeded_is_found():
    # Succeeds at 3 and at 8 or more: 15 succeeds, 7 fails, 11 and 9 and 8 succeed; 3 is never looked at.
    assert tried(lambda n: n == 3 or n >= 8, 30) == ([15, 7, 11, 9, 8], 8)


def test_a_text_of_one_token_has_no_shorter_prompt_so_nothing_is_tried():
    assert tried(lambda n: True, 1) == ([], None)
