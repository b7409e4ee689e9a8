import numpy as np
import pytest
from benchmarks.error_rates import left_out, rates
from benchmarks.public_logs import Cell, Training, folder_of
from benchmarks.rejudged import auc, powers

from vestige.core.errors import InputError


def training(name):
    return Training("base", "laboratory", "laboratory", name, "retrained", 90, True, None)


def cell(n_trainings, *, seed=0):
    """Trainings about truth shares of 0.5 that differ by 0.02 of noise, and a target 0.1 above them."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(0.4, 0.6, 40)
    rows = level + rng.normal(0, 0.02, (n_trainings, 40))
    names = tuple(training(f"training {n}") for n in range(n_trainings))
    return Cell("base", "forget01", "truth", False, names, rows, level + 0.1)


def test_each_training_is_judged_by_one_two_and_all_of_the_others():
    judged = list(left_out(cell(4)))
    # Of each of 4 subjects 3 single controls, 3 pairs and 1 set of all three.
    assert sorted(one.controls for one in judged) == [1] * 12 + [2] * 12 + [3] * 4
    assert {one.outcome for one in judged} <= {"holds", "inconclusive"}
    assert "holds" not in {one.planted for one in judged}
    by_size = {rate.controls: rate for rate in rates(judged)}
    assert by_size["3 or more"].holds == 1.0
    assert by_size["3 or more"].planted_fails >= 0.75


def test_forget_quality_passes_what_the_paired_test_sees():
    found = {level.left: level for level in powers(cell(4))}
    assert (found[0.0].passes, found[0.0].paired) == (1.0, 0.0)
    assert (found[0.2].passes, found[0.2].paired) == (1.0, 1.0)


def test_the_area_counts_holdout_texts_that_score_higher_and_ties_by_half():
    # Of 4 pairs the holdout text is higher in 1 and tied in 1.
    assert auc(np.array([1.0, 3.0]), np.array([2.0, 1.0])) == pytest.approx(1.5 / 4)


def test_a_missing_repository_is_told_with_the_command_that_gets_it(tmp_path):
    with pytest.raises(InputError, match=r"git clone https://github.com/locuslab/tofu .* checkout -q bdc209e"):
        folder_of(tmp_path, "tofu")
