"""The judge on planted subjects: a few fixed audits here; how often it errs is counted by `benchmarks.planted`."""

import dataclasses

import numpy as np
import pytest
from benchmarks import planted, planted_cases, planted_exams
from benchmarks.planted_cases import FORMATS, QUANTIZE, RELEARN, Exam, Planted, draw_case

from vestige.artifacts.scores import Source
from vestige.auditing.judge import judge
from vestige.metrics.verdicts import Thresholds

DEFAULT = Thresholds()
KEYS = ("generate/rouge1_recall", "forced/probability", "option_text_mean/probability", "generate_paraphrase/leaked")


def verdicts(outcome):
    return {(v.subject, v.claim): v.outcome for v in outcome.verdicts}


def test_what_a_large_audit_takes_is_measured_on_one_that_is_judged():
    found = planted.cost(40, controls=2, methods=2, attacks=1)
    assert (found.facts, found.controls, found.methods, found.attacks) == (40, 2, 2, 1)
    assert found.cpu_seconds > 0
    assert found.most_mb >= found.drawn_mb > 0
    outcome = judge(draw_case(planted.large(40, 2, 2, 1), 1), resamples=200)
    assert {v.subject for v in outcome.verdicts} == {"method 0", "method 1"}
    assert {gain.attack for gain in outcome.gains} >= {"relearn retain n=0"}


def exam(name, thresholds, n=200):
    return next(e for e in planted_exams.exams(n, 5, thresholds) if e.name == name)


def leakage(case, subject, key, attack="", point=""):
    """(subject - retrained) / (target - retrained), the subject and `retrained` after the attack."""
    forget, scores = case.plan.splits["forget"], case.scores

    def never(*where):
        return scores.rows([Source(r, *where) for r in case.plan.retrained], key, forget).mean()

    gap = scores.of(Source("target"), key, forget).mean() - never()
    return (scores.of(Source(subject, attack, point), key, forget).mean() - never(attack, point)) / gap


def test_planted_leaks_are_as_large_as_stated():
    # 30 audits of 100 questions, about facts like these. A share of .3 at correlation .1 in 5 edges has the standard
    # error sqrt(.3 x .7 x (1 + 19 x .1) / 100) = .08 an audit, so .015 over 30; guesses of one seed add .06 and .011.
    subjects = (Planted("leaks", {}, leak=dict.fromkeys(FORMATS, 0.3)), Planted("hides", {}, back=0.4))
    one = Exam("truth", subjects, Thresholds(scope="population"), attacks=(RELEARN, QUANTIZE), n_items=100)
    cases = [draw_case(one, r) for r in range(30)]
    for key in KEYS:
        for subject, where, level in (
            ("leaks", ("", ""), 0.3),
            ("hides", ("", ""), 0.0),
            ("hides", (RELEARN.name, "2"), 0.4),
            ("hides", (QUANTIZE.name, "given"), 0.0),
        ):
            found = np.mean([leakage(case, subject, key, *where) for case in cases])
            assert found == pytest.approx(level, abs=0.06), (key, subject, where)


def test_of_these_facts_a_planted_leak_is_exact():
    known = Planted("knows", {}, leak={"generate": 0.3})
    case = draw_case(Exam("exact", (known,), DEFAULT, n_items=40), 0)
    facts = case.plan.splits["forget"]

    def scores(who):
        return case.scores.of(Source(who), KEYS[0], facts)

    # What the subject knows and a guess would not have given: 30 % of what the target knows, to the fact.
    whole = np.isclose(scores("knows"), 1) & np.isclose(scores("target"), 1)
    guessed = np.mean([np.isclose(scores(r), 1) for r in case.plan.retrained], axis=0)
    assert whole[guessed == 0].sum() <= round(0.3 * np.isclose(scores("target"), 1).sum()) <= whole.sum()


def test_counts_of_batches_add_up_and_the_same_command_goes_on(tmp_path):
    exam = Exam("quick", (Planted("never knew", {"not expressed": True}),), DEFAULT, n_items=4, formats=())
    chosen = [("power", dataclasses.replace(exam, membership=(), kept=False))]
    file, never = tmp_path / "counts.jsonl", float("inf")
    list(planted.count(chosen, 2, file, never))
    (first,) = planted.added(planted.read(file))
    list(planted.count(chosen, 3, file, never))
    (row,) = planted.added(planted.read(file))
    assert (first.audits, row.audits, row.first) == (2, 3, 0)
    assert row.holds + row.fails + row.inconclusive == 3
    whole = planted.counted("quick", planted.truth(chosen[0][1]), [planted.sit(chosen[0][1], n) for n in range(3)])
    assert whole == [row]
    with pytest.raises(ValueError, match="where 3 is next"):
        planted.added([row, dataclasses.replace(row, first=2)])
    assert list(planted.count(chosen, 400, None, 0.0)) == []


def test_the_bars_of_the_powers_are_read_from_the_counts():
    bar = next(one for one in planted_exams.powers() if one.share is not None)
    beside = next(one for one in planted_exams.powers() if one.beside)
    rows = [planted.Row(bar.exam.name, "", bar.claim, "false", 0, 79, 21, 100)]
    rows += [
        planted.Row(beside.beside, "", beside.claim, "false", 0, 90, 10, 100),
        planted.Row(beside.exam.name, "", beside.claim, "false", 0, 86, 14, 100),
    ]
    said = planted.power_table(rows)
    assert "fails 0.790 [0.700, 0.858] | 0 of 100 | 0.80, **missed** |" in said
    assert "fails 0.860 [0.779, 0.915] | 0 of 100 | 0.85, met |" in said


def test_a_planted_harm_is_lost_of_every_split_that_is_to_be_kept():
    one = Exam("harm", (Planted("harms", {}, harm=0.15), Planted("keeps", {})), DEFAULT, n_items=20)
    cases = [draw_case(one, r) for r in range(20)]
    for subject, level in (("harms", 0.15), ("keeps", 0.0)):
        for split in planted_cases.KEPT:
            lost = [
                np.subtract(*(c.scores.of(Source(who), KEYS[0], c.plan.splits[split]) for who in ("target", subject)))
                for c in cases
            ]
            # 20 x 100 differences of 0 and 1 at .15: a standard error of .008.
            assert np.mean(lost) == pytest.approx(level, abs=0.03)


def test_an_audit_depends_on_its_exam_and_repetition_alone():
    one = exam("attacked", DEFAULT, n=40)
    assert draw_case(one, 3) == draw_case(one, 3)
    assert draw_case(one, 3) != draw_case(one, 4)


@pytest.mark.parametrize(("true", "wrong", "power"), [("true", 3, 0.5), ("false", 5, 0.3), ("neither", 8, None)])
def test_a_verdict_errs_by_what_is_true(true, wrong, power):
    # 5 times `holds`, 3 times `fails`, 2 times open.
    row = planted.Row("", "", "", true, 5, 3, 2, 10)
    assert (row.wrong, row.right) == (wrong, None if power is None else power * 10)
    assert "**" in planted.exam_table([row])
    assert "**" not in planted.exam_table([dataclasses.replace(row, holds=0, fails=0, inconclusive=10)])


@pytest.mark.slow
def test_no_wrong_verdict_on_subjects_that_are_asked_and_what_is_large_is_found():
    one = exam("asked", DEFAULT)
    case = draw_case(one, 1)
    outcome = judge(case, resamples=2_000)
    found = verdicts(outcome)
    for subject in one.subjects:
        for claim, true in subject.true.items():
            assert found[subject.name, claim] != {True: "fails", False: "holds"}.get(true), (subject.name, claim)
    for subject, claim in (
        ("knows all", "not expressed"),
        ("knows 0.3", "not expressed"),
        ("knows 0.5 by option only", "not expressed"),
        ("knows all", "indistinguishable"),
        ("over-forgotten", "indistinguishable"),
        ("refuses", "indistinguishable"),
        ("harms 0.15", "utility preserved"),
    ):
        assert found[subject, claim] == "fails", (subject, claim)
    for subject, claim in (
        ("never knew", "indistinguishable"),
        ("never knew", "utility preserved"),
        ("over-forgotten", "not expressed"),
    ):
        assert found[subject, claim] == "holds", (subject, claim)
    assert [line.format for line in outcome.formats if line.admitted] == list(FORMATS)
    assert {c.subject for c in outcome.matrix if c.over_forgotten} >= {"over-forgotten", "refuses"}
