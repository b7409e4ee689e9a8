"""Shares told by a judge who errs: the estimate is right on average, and the interval holds the judge's error too."""

import numpy as np
import pytest

from vestige.metrics.misjudged import Misjudged, corrected_share


def test_a_judge_that_does_not_err_changes_nothing_but_the_interval():
    value, low, high = corrected_share(30.0, 100, Misjudged(0, 50, 0, 50))
    assert value == pytest.approx(0.3)
    assert low < 0.21
    assert high > 0.39


def test_the_estimate_is_rogan_and_gladens():
    # 0.4 told, sensitivity 0.8, specificity 0.9: (0.4 + 0.9 - 1) / (0.8 + 0.9 - 1).
    assert corrected_share(40.0, 100, Misjudged(2, 10, 1, 10))[0] == pytest.approx(0.3 / 0.7)
    assert corrected_share(0.0, 100, Misjudged(2, 10, 1, 10))[0] == 0


def test_the_interval_is_wider_the_less_the_judge_was_measured():
    widths = [
        high - low for _, low, high in (corrected_share(20.0, 100, Misjudged(m // 5, m, 0, m)) for m in (5, 20, 80))
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 1.5 * widths[2]


def test_a_judge_no_better_than_chance_tells_nothing():
    assert corrected_share(7.0, 10, Misjudged(9, 10, 9, 10)) == (0.7, 0.0, 1.0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("miss", "alarm", "labelled"), [(0.05, 0.02, 20), (0.3, 0.1, 30), (0.2, 0.05, 60)])
def test_the_interval_holds_the_truth_at_its_rate(share, miss, alarm, labelled):
    rng, held, runs, n = np.random.default_rng(0), 0, 400, 100
    for _ in range(runs):
        leaks = int(rng.binomial(n, share))
        seen = rng.binomial(leaks, 1 - miss) + rng.binomial(n - leaks, alarm)
        error = Misjudged(int(rng.binomial(labelled, miss)), labelled, int(rng.binomial(labelled, alarm)), labelled)
        _, low, high = corrected_share(float(seen), n, error)
        held += low <= share <= high
    assert held / runs > 0.93


def test_what_is_no_count_is_refused():
    with pytest.raises(ValueError, match="no share"):
        corrected_share(3.0, 2, Misjudged(0, 1, 0, 1))
