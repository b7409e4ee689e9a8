from vestige.metrics.verdicts import TAIL, least_p


def test_beyond_so_many_comparisons_nothing_can_be_significant():
    assert least_p(249, 9_999) < TAIL < least_p(251, 9_999)
    assert least_p(10**9, 9_999) == 1.0
