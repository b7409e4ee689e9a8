"""Controls that are predicted from other base models: the formula, when it refuses, and the command."""

import json
import sys

import numpy as np
import pytest
from benchmarks import without_controls

import vestige
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import Measurement
from vestige.auditing.logs import model_scores
from vestige.auditing.predicted import NOT_ENOUGH, NeverSaw, predict, predicting, with_predicted
from vestige.auditing.questions import LogColumn
from vestige.auditing.table import judge_table
from vestige.core.errors import InputError
from vestige.logs import read_log
from vestige.logs.bank import banked
from vestige.logs.folders import LogGroup
from vestige.logs.log import GivenLog, How, LogPart

N = 40
T_975 = {2: 4.302653, 3: 3.182446}
"""Student's t at 0.975 by degrees of freedom."""


def rows(*levels):
    """A model of each of the bases a, b, c, ... with this mean on two questions."""
    return [
        NeverSaw(base, "lab", np.array([level - 0.02, level + 0.02]))
        for base, level in zip("abcd", levels, strict=False)
    ]


def test_the_error_is_that_of_each_base_held_out():
    prediction = predict(rows(0.1, 0.2, 0.3), {}, 0.9)
    # From the other two: 0.25 for 0.1, 0.2 for 0.2, 0.15 for 0.3.
    held_out = np.sqrt((0.15**2 + 0.0 + 0.15**2) / 3)
    assert prediction.error == pytest.approx(T_975[2] / 1.96 * held_out, rel=1e-5)
    assert [row.mean() for row in prediction.rows.values()] == pytest.approx([0.2, 0.2, 0.2])
    assert prediction.rows["a"] == pytest.approx([1 - 0.92 * 0.8 / 0.9, 1 - 0.88 * 0.8 / 0.9])
    assert prediction.rows["c"] == pytest.approx([0.28 * 0.2 / 0.3, 0.32 * 0.2 / 0.3])


def test_a_score_that_follows_the_targets_half_way_is_moved():
    targets = {"a": 0.6, "b": 0.7, "c": 0.8}
    prediction = predict(rows(0.5, 0.55, 0.6, 0.9), targets, 0.9)
    # d has no target: with k = 1/2 it has no part, and a, b and c predict each other exactly.
    assert list(prediction.rows) == ["a", "b", "c"]
    assert prediction.level == pytest.approx(0.55 + 0.5 * (0.9 - 0.7))
    assert prediction.error == pytest.approx(0.0, abs=1e-9)


def test_each_laboratory_of_a_base_is_held_out_by_itself():
    other = NeverSaw("a", "another", np.array([0.3, 0.3]))
    prediction = predict([*rows(0.1, 0.2, 0.2), other], {}, 0.9)
    # a is 0.2 in the mean, as b and c are. Each of its laboratories is 0.1 off.
    assert prediction.error == pytest.approx(T_975[2] / 1.96 * np.sqrt(0.1**2 / 3), rel=1e-5)
    assert predict(rows(0.1, 0.2), {}, 0.9) is None


def column(name, role, row, base=""):
    items = tuple(f"q{n}" for n in range(len(row)))
    part = LogPart("forget", Measurement("probability", "own words", "probability"), np.array(row), items, items, items)
    return LogColumn(GivenLog(role, name, None, base=base), part, items)


def bank(*levels, target=0.9):
    columns = []
    for base, level in zip("abcd", levels, strict=False):
        columns.append(column(f"never {base}", "retrained", [level] * 4, base))
        columns.append(column(f"target {base}", "placebo", [target] * 4, base))
    return columns


@pytest.mark.parametrize(
    ("columns", "target", "why"),
    [
        (bank(0.1, 0.1), 0.9, "has no 3 base models"),
        (bank(0.1, 0.1, 0.1), 0.5, r"the target \(0.500\) is unlike those of the bank \(0.900 to 0.900\)"),
        (bank(0.1, 0.4, 0.7), 0.9, "0.500 above the prediction, whose held-out error is 0.8"),
    ],
)
def test_what_is_too_far_from_the_bank_is_refused(columns, target, why):
    with pytest.raises(InputError, match=why):
        with_predicted([*columns, column("full", "target", [target] * 4), column("u", "unlearned", [0.5] * 4)])


def test_the_models_of_the_bank_do_not_stay():
    columns = [*bank(0.1, 0.12, 0.14), column("full", "target", [0.9] * 4), column("u", "unlearned", [0.5] * 4)]
    predicted = with_predicted(columns)
    names = [one.entry.name for one in predicted.columns]
    assert names == ["full", "u", "predicted from a", "predicted from b", "predicted from c"]
    assert predicted.errors.keys() == {"probability"}


@pytest.fixture
def folder(tmp_path):
    """Logs of OpenUnlearning: a target, a model that keeps half of what it knows, and one that never saw the set."""
    key = "bank:tofu/llama-3.2-3b/forget01"
    (full,) = banked(key, "the forget set", "target")
    never = banked(key, "the forget set")[-1]
    scores = {}
    for name, given in (("full", full), ("never", never)):
        log = read_log(given.path, How(key=given.key))
        scores[name] = next(one.scores for one in log.parts if (one.split, one.name) == ("forget", "probability"))
    half = (scores["full"] + scores["never"]) / 2
    model = "tofu_Llama-3.2-3B-Instruct"
    places = {
        f"eval/{model}_full/evals_forget01": scores["full"] * 0.999,
        f"unlearn/{model}_forget01_Half/evals": half,
        f"unlearn/{model}_forget01_Never/evals": scores["never"] * 0.999,
    }
    for place, values in places.items():
        by_index = {}
        for n, value in enumerate(values.tolist()):
            by_index[str(n)] = {"prob": value, "avg_loss": -float(np.log(value))}
        log = {"forget_Q_A_Prob": {"agg_value": float(np.mean(values)), "value_by_index": by_index}}
        file = tmp_path / "saves" / place / "TOFU_EVAL.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(log))
    return tmp_path / "saves"


@pytest.mark.slow
def test_the_command_fails_a_model_that_knows_and_passes_none(folder, tmp_path, monkeypatch, capsys):
    from vestige.cli.app import run

    words = ["audit", "--logs", str(folder), "--without-controls", "--output-dir", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["vestige", *words])
    with pytest.raises(SystemExit) as ended:
        run()
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 3
    assert "predicted controls, none was retrained" in said
    assert NOT_ENOUGH in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "predicted controls, none was retrained" in page
    rows_of = json.loads((tmp_path / "run" / "verdicts.json").read_text())
    verdicts = {row["subject"]: row for row in rows_of if row["claim"] == "not expressed"}
    assert {name: row["verdict"] for name, row in verdicts.items()} == {"Half": "fail", "Never": "inconclusive"}
    assert verdicts["Half"]["evidence_level"] == "predicted controls, none was retrained"


@pytest.mark.slow
def test_python_judges_a_folder_without_controls(folder, tmp_path):
    audit = vestige.judge(folder, output_dir=tmp_path / "run", without_controls=True)
    assert audit["Half"].not_expressed.verdict == "fail"
    assert audit["Never"].not_expressed.verdict == "inconclusive"
    with pytest.raises(InputError, match="Give a folder of logs"):
        vestige.judge([{"model": "a"}], without_controls=True)


def test_a_forget_set_that_the_bank_does_not_know_is_refused():
    own = GivenLog("unlearned", "u", None)
    with pytest.raises(InputError, match=r"TOFU's forget sets forget01, forget05, forget10, and not for 'tofu .*07'"):
        predicting(LogGroup("tofu Llama-3.2-3B-Instruct forget07", (own,)))
    with pytest.raises(InputError, match="retain99 is one"):
        predicting(LogGroup("forget01", (own, GivenLog("retrained", "retain99", None))))


def test_a_score_far_beyond_the_targets_fails_no_model(tmp_path):
    # A broken model prefers anything. Its score is as far above the target as the target is above the controls, twice.
    levels = {"full": ("target", 0.5), "knows": ("unlearned", 0.5), "broken": ("unlearned", 0.99)}
    columns = bank(0.3, 0.31, 0.32, target=0.5)
    columns = [one._replace(items=ITEMS, part=spread(one.part)) for one in columns]
    for name, (role, level) in levels.items():
        one = column(name, role, [level] * 4)
        columns.append(one._replace(items=ITEMS, part=spread(one.part)))
    predicted = with_predicted(columns)
    outcome = judge_table(
        RunFolder(tmp_path / "run"),
        model_scores(predicted.columns),
        forget="forget01",
        source="planted",
        predicted=predicted,
    )
    found = {line.subject: line.outcome for line in outcome.verdicts if line.claim == "not expressed"}
    assert found == {"knows": "fails", "broken": "inconclusive"}


ITEMS = tuple(f"q{n}" for n in range(N))


def spread(part):
    """The part with its mean level on N questions."""
    scores = part.scores.mean() + 0.01 * np.cos(np.arange(N))
    return part._replace(scores=scores, ids=ITEMS, prompts=ITEMS, questions=ITEMS)


def test_a_matrix_of_rank_one_is_completed():
    # In log-odds the second half is twice the first, in both bases, and so in the new one: 1 and -1 give 2 and -2.
    start = np.array([[0.5, -0.5], [1.5, -1.5], [0.0, 0.0]])
    found = without_controls._completed(start, 2 * start, np.array([1.0, -1.0]))
    assert found == pytest.approx((1 / (1 + np.exp(-2)) + 1 / (1 + np.exp(2))) / 2)
    one_sided = without_controls._completed(start[:, :1], 2 * start[:, :1], np.array([1.0]))
    assert one_sided == pytest.approx(1 / (1 + np.exp(-2)))
    assert np.isnan(without_controls._completed(np.zeros((3, 2)), start, np.zeros(2)))


def test_intervals_of_the_page_on_rules_without_controls():
    # Clopper and Pearson: 1 - 0.025 ** (1 / 10).
    assert without_controls.share(0, 10) == "0 of 10 [0.0, 30.8]"


def test_weights_without_controls_are_refused_with_the_reason(monkeypatch, capsys):
    from vestige.cli.app import run

    words = ["audit", "--data", "d", "--target", "t", "--unlearned", "u", "--without-controls"]
    monkeypatch.setattr(sys, "argv", ["vestige", *words])
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    assert "no bank has other data. Retrain models" in " ".join(capsys.readouterr().err.split())
