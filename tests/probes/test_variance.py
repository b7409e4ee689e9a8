"""The numbers of a table of variance, by hand: 3 prompts of 2 origins, 2 generations of a target and 2 models."""

import numpy as np
import pytest

from vestige.artifacts.holes import GradedAnswer, Outcome
from vestige.metrics import intervals
from vestige.probes.variance import TARGET, judge_parts_of, pairs_of, rows_of

ORIGINS = {"p1": "a", "p2": "a", "p3": "b"}
GRADES = {
    TARGET: ((9, 9, 9), (9, 9, 6)),
    "u1": ((3, 3, 3), (3, 3, 6)),
    "u2": ((1, 1, 1), (1, 1, 4)),
}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)


def scored(grade, grades=GRADES, **more):
    """An answer for each grade, prompt by prompt, with what `grade` makes of it."""
    return [
        GradedAnswer(p, "adjacent", ORIGINS[p], p, model, g, "said", *grade(model, g, p, runs[g][n]), **more)
        for n, p in enumerate(ORIGINS)
        for model, runs in grades.items()
        for g in range(len(runs))
    ]


def row_of(answers, judge="j"):
    (row,), unjudged = rows_of(answers, [judge], seed=0)
    assert unjudged == {}
    return row


def test_means_shares_and_tests_by_hand():
    row = row_of(scored(lambda model, g, p, x: ({"j": float(x)},)))
    assert (row.n, row.n_judged, row.failures_before, row.failures_after) == (3, 3, {}, {})
    # Run means: 9, 8 before; 3, 4, 1, 2 after, with sums of squares 1/2 and 5 about their means.
    assert (row.before.n_runs, row.before.mean, row.before.sd) == pytest.approx((2, 8.5, np.sqrt(1 / 2)))
    assert (row.after.n_runs, row.after.mean, row.after.sd) == pytest.approx((4, 2.5, np.sqrt(5 / 3)))
    assert (row.before.lowest, row.after.lowest) == pytest.approx((0, 5 / 12))
    assert (row.change.value, row.change.n) == (-6, 3)
    assert "2 clusters" in row.change.interval
    # Student: pooled variance (1/2 + 5) / 4, times 1/2 + 1/4. Welch: 1/4 + 5/12.
    student, welch = row.tests.student, row.tests.welch
    assert (student.t, student.dof) == pytest.approx((-6 / np.sqrt(5.5 / 4 * 3 / 4), 4))
    assert (welch.t, welch.dof) == pytest.approx((-6 / np.sqrt(2 / 3), (2 / 3) ** 2 / (1 / 16 + (5 / 12) ** 2 / 3)))
    # Models: 3.5 and 1.5 from 8.5, so -5 and -7. Origins: a has -7 twice, b has -4.
    over_models, over_prompts = row.tests.over_models, row.tests.over_prompts
    assert (over_models.difference, over_models.t, over_models.dof) == pytest.approx((-6, -6, 1))
    assert (over_prompts.difference, over_prompts.t, over_prompts.dof) == pytest.approx((-5.5, -5.5 / 1.5, 1))
    # Cells 3, 3, 4.5 and 1, 1, 2.5; p3 varies by 1.5 within. Mean squares: models 12, prompts 3, both 0, within 1.5.
    parts = row.parts
    found = (parts.model, parts.prompt, parts.model_by_prompt, parts.generation)
    assert found == pytest.approx((12 / 6, 3 / 4, -1.5 / 2, 1.5))


def test_numbers_are_over_the_prompts_that_a_judge_graded_in_every_run():
    def grade(model, g, p, x):
        lost = (model, g, p) == ("u2", 1, "p3")
        return ({}, {"j": "unreadable"}) if lost else ({"j": float(x)},)

    row = row_of(scored(grade))
    assert (row.n, row.n_judged, row.failures_before, row.failures_after) == (3, 2, {}, {"unreadable": 1})
    # p3, which is 6 and 4 elsewhere, is left out on both sides: 9 before, 3 and 1 after.
    assert (row.before.mean, row.after.mean, row.change.value) == (9, 2, -7)
    # Nothing but the models varies any more, and tests without any spread say so.
    assert row.tests.student.p is not None
    assert row.tests.over_prompts == Outcome(why_not="a paired t-test needs two pairs, got 1")


def test_one_model_and_one_generation_leave_tests_and_parts_out_with_their_reasons():
    one = {TARGET: ((9, 8, 7),), "u1": ((3, 2, 1),)}
    row = row_of(scored(lambda model, g, p, x: ({"j": float(x)},), one))
    assert (row.before.sd, row.after.sd) == (None, None)
    assert "two runs on each side, got 1 and 1" in row.tests.student.why_not
    assert "two pairs, got 1" in row.tests.over_models.why_not
    assert "no spread" in row.tests.over_prompts.why_not, "each prompt lost 6"
    assert "two generations" in row.parts.why_not
    assert row.parts.generation is None


def test_judges_are_compared_and_one_that_never_graded_has_no_row():
    def grade(model, g, p, x):
        graded = {"j": float(x)} | ({"k": x + 1.0} if p != "p3" else {})
        return graded, {"never": "not judged"} | ({} if "k" in graded else {"k": "empty"})

    answers = scored(grade)
    rows, unjudged = rows_of(answers, ["j", "k", "never"], seed=0)
    assert [(r.judge, r.n_judged) for r in rows] == [("j", 3), ("k", 2)]
    assert unjudged == {"adjacent": {"never": {"not judged": 18}}}
    (pair,) = pairs_of(answers, ["j", "k", "never"])
    # 12 answers to p1 and p2, of which k says 1 more each time.
    assert (pair.first, pair.second, pair.n, pair.equal, pair.within_one) == ("j", "k", 12, 0, 1)
    assert (pair.difference, pair.spearman) == pytest.approx((1, 1))
    (parts,) = judge_parts_of(answers, ["j", "k"])
    # Over p1 and p2 run means are 3, 3, 1, 1 and one more by k: judges bring 1/2, models 2, the rest nothing.
    found = (parts.model, parts.generation, parts.judge, parts.model_by_judge, parts.rest)
    assert found == pytest.approx((2, 0, 0.5, 0, 0))
    assert judge_parts_of(answers, ["j", "never"])[0].why_not == "no prompt was graded by every judge in every run"
    assert "two of each" in judge_parts_of(answers, ["j"])[0].why_not


def test_criteria_are_means_over_the_answers_that_have_them():
    names = ("relevancy", "accuracy", "completeness", "fluency", "consistency")
    low, high = dict.fromkeys(names, 1.0) | {"fluency": 4.0}, dict.fromkeys(names, 5.0)
    answers = scored(lambda model, g, p, x: ({"j": float(x)}, {}, {"j": high if model == TARGET else low}))
    rows = {r.criterion: r for r in row_of(answers).criteria}
    assert list(rows) == list(names)
    fluency = rows["fluency"]
    assert (fluency.n_before, fluency.n_after, fluency.before, fluency.after) == (6, 12, 5, 4)
    assert rows["accuracy"].after == 1
    unasked = scored(lambda model, g, p, x: ({"j": float(x)}, {}, {}, {"j": "not judged"}))
    assert (row_of(unasked).criteria, row_of(unasked).criteria_failures) == ((), {"not judged": 18})
