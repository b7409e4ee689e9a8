from vestige.auditing.formats import Expressed, _comparisons
from vestige.metrics.verdicts import TAIL, least_p


def expressed(*formats):
    return Expressed(dict.fromkeys(formats), {}, None, (), {})


def test_comparisons_are_ordered_pairs_of_formats_that_both_models_have():
    # a and b share two formats (2 comparisons); c shares one with each (none); a and d share three (6), b and d two.
    models = {
        "a": expressed("x", "y", "z"),
        "b": expressed("x", "y"),
        "c": expressed("x"),
        "d": expressed("x", "y", "z"),
    }
    assert _comparisons(models) == 2 + 6 + 2


def test_beyond_so_many_comparisons_nothing_can_be_significant():
    assert least_p(249, 9_999) < TAIL < least_p(251, 9_999)
    assert least_p(10**9, 9_999) == 1.0
