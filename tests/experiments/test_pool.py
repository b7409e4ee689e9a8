"""Pooling, worked out by hand."""

import math

import pandas
import pytest

from vestige.core.errors import InputError
from vestige.metrics.pooling import pool, reversals


def frame(method, scores, metric="m"):
    """`scores` by seed, an item a column."""
    rows = []
    for seed, values in enumerate(scores):
        for item, value in enumerate(values):
            rows.append({"method": method, "metric": metric, "seed": seed, "item": str(item), "value": value})
    return pandas.DataFrame(rows)


def test_a_mean_over_questions_and_seeds():
    (row,) = pool(frame("a", [[1, 0], [1, 1]]), by=["method"]).to_dict("records")
    assert row["mean"] == 0.75
    # The seeds' means are 0.5 and 1: half of the squared difference is 0.125.
    assert row["sd"] == pytest.approx(math.sqrt(0.125))
    assert (row["items"], row["seeds"]) == (2, 2)
    assert 0 <= row["low"] < 0.75 < row["high"] <= 1


def test_one_seed_has_no_spread_of_seeds():
    table = pool(frame("a", [[1, 0]]), by=["method"])
    assert math.isnan(table["sd"].iloc[0])
    assert table.to_markdown(index=False).startswith("| method   |   mean |")
    assert r"\begin{tabular}" in table.to_latex()


def test_a_paired_difference_with_its_test():
    first, second = frame("a", [[0.1, 0.2], [0.3, 0.4]]), frame("b", [[0.3, 0.6], [0.3, 0.6]])
    (row,) = pool([first, second], by=["metric"], compare="method").to_dict("records")
    # Differences 0.2, 0.4 (seed 0) and 0, 0.2: the questions' means are 0.1, 0.3 and the seeds' 0.3, 0.1. Each has a
    # variance of 0.02 and adds 0.01 with one degree of freedom: t = 0.2 / sqrt(0.02), df = 0.02 ** 2 / (2 * 0.01 ** 2).
    assert (row["first"], row["second"]) == ("a", "b")
    assert row["difference"] == pytest.approx(0.2)
    assert row["t"] == pytest.approx(math.sqrt(2))
    assert row["df"] == pytest.approx(2)
    # Student's t with two degrees of freedom has p = 1 - t / sqrt(t ** 2 + 2).
    assert row["p"] == pytest.approx(1 - math.sqrt(2) / 2)
    assert row["p_holm"] == row["p"]


def test_holm_counts_the_tests_of_one_metric():
    sides = [frame("a", [[0.1, 0.2], [0.3, 0.4]]), frame("b", [[0.3, 0.6], [0.3, 0.6]])]
    # c repeats a: b and c differ as b and a do, and a and c cannot be tested.
    frames = [*sides, frame("c", [[0.1, 0.2], [0.3, 0.4]])]
    frames += [part.assign(metric="other") for part in sides]
    rows = pool(frames, by=["metric"], compare="method")
    of_m = rows[rows["metric"] == "m"]
    p = 1 - math.sqrt(2) / 2
    assert of_m["p"].isna().tolist() == [False, True, False]
    assert of_m["p_holm"].dropna().tolist() == pytest.approx([2 * p, 2 * p])
    assert rows[rows["metric"] == "other"]["p_holm"].tolist() == pytest.approx([p])


def test_two_samples_have_the_variance_of_both():
    # Without pairing: 0.5 / 2 + 0.02 / 2 of the questions, one degree of freedom each.
    first, second = frame("a", [[0.0, 1.0]]), frame("b", [[0.6, 0.8]])
    (row,) = pool([first, second], by=["metric"], compare="method", match=None).to_dict("records")
    assert row["difference"] == pytest.approx(0.2)
    assert row["t"] == pytest.approx(0.2 / math.sqrt(0.25 + 0.01))
    assert row["df"] == pytest.approx(0.26**2 / (0.25**2 + 0.01**2))


def test_questions_about_one_contract_are_one_draw():
    values = [1, 1, 1, 1, 0, 0, 0, 0, 1, 0]
    table = frame("b", [values])
    table["edge"] = [str(place // 2) for place in range(10)]
    zero = table.assign(method="a", value=0.0)
    (row,) = pool([zero, table], by=["metric"], compare="method").to_dict("records")
    # Five contracts with sums of deviations 1, 1, -1, -1, 0 from 0.5: variance 5 / 4 * 4 / 10 ** 2, df 4.
    assert row["t"] == pytest.approx(0.5 / math.sqrt(0.05))
    assert row["df"] == pytest.approx(4)


@pytest.mark.parametrize("value", [math.nan, 1.5])
def test_a_missing_or_impossible_score_is_refused(value):
    with pytest.raises(InputError, match="missing or outside"):
        pool(frame("a", [[0.5, value]]), by=["method"])


def test_a_question_that_one_seed_lacks_is_refused():
    table = frame("a", [[0.5, 0.5], [0.5, 0.5]]).iloc[:3]
    with pytest.raises(InputError, match="not asked at every seed"):
        pool(table, by=["method"])


def test_metrics_that_rank_methods_in_opposite_order():
    means = pandas.DataFrame(
        {"method": ["a", "b", "a", "b"], "metric": ["m", "m", "n", "n"], "mean": [0.2, 0.5, 0.6, 0.4]}
    )
    (row,) = reversals(means, of="method", across="metric").to_dict("records")
    assert (row["first"], row["second"], row["by"], row["and_by"]) == ("a", "b", "m", "n")
    assert (row["difference"], row["and_difference"]) == pytest.approx((0.3, -0.2))
    assert reversals(means.iloc[:2], of="method", across="metric").empty
