"""Models compared by their logs: the difference, its clusters, missing questions, and hostile names."""

import gzip
import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vestige.api import compare, judge
from vestige.api.auditing import short_names
from vestige.auditing.compare import ComparedScore, _finding
from vestige.cli.app import app
from vestige.core.errors import InputError


def rows(path: Path, scores: dict[str, float]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": f"q{n}", "question": f"Where is {n}?", "score": s}) for n, s in scores.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_difference_is_taken_question_by_question_in_any_order(tmp_path: Path):
    first = rows(tmp_path / "a/rows.jsonl", {str(n): float(n % 2) for n in range(40)})
    second = rows(tmp_path / "b/rows.jsonl", {str(n): 1.0 for n in reversed(range(40))})
    (score,) = compare(first, second).scores
    assert (score.first, score.model, score.n, score.difference) == ("a", "b", 40, 0.5)
    assert score.low > 0.25
    assert score.p_holm == pytest.approx(2 / 20_001, rel=2)
    assert score.finding == "higher"
    # Differences are 0 or 1: variance 20 * 0.25 / 39 * 2 = 10 / 39; 7.849 (10 / 39) / 0.25 = 8.05.
    # The interval of shares needs more than that: its arm shrinks by 1 / n at the fastest.
    assert score.needed == math.ceil(40 * (0.5 - score.low) / 0.5) > 9


def test_questions_of_one_document_widen_the_interval(tmp_path: Path):
    first = rows(tmp_path / "a.jsonl", {str(n): 0.0 for n in range(40)})
    second = rows(tmp_path / "b.jsonl", {str(n): float(n < 20) for n in range(40)})
    documents = {f"q{n}": f"document {n // 4}" for n in range(40)}
    (alone,) = compare(first, second).scores
    (clustered,) = compare(first, second, clusters=documents).scores
    assert (alone.n_clusters, clustered.n_clusters) == (40, 10)
    assert clustered.high - clustered.low > 1.5 * (alone.high - alone.low)


def test_questions_that_a_log_lacks_leave_the_finding_open(tmp_path: Path):
    first = rows(tmp_path / "a.jsonl", {str(n): float(n < 20) for n in range(40)})
    second = rows(tmp_path / "b.jsonl", {str(n): float(n >= 10) for n in range(20)})
    # The 20 questions that the second log lacks could all be right there, and 10 others are wrong.
    (score,) = compare(first, second).scores
    assert (score.n, score.n_missing, score.finding) == (20, 20, "open")
    ended = CliRunner().invoke(app, ["compare", str(first), str(second)])
    assert ended.exit_code == 4, ended.output


def test_the_command_ends_with_3_where_a_model_scores_lower_and_escapes_names(tmp_path: Path):
    first = rows(tmp_path / "a.jsonl", {str(n): 1.0 for n in range(40)})
    second = rows(tmp_path / "b|<script>.jsonl", {str(n): 0.0 for n in range(40)})
    ended = CliRunner().invoke(app, ["compare", str(first), str(second), "--output", str(tmp_path / "out.md")])
    assert ended.exit_code == 3, ended.output
    assert "-1.000" in ended.output
    assert "<script>" not in (tmp_path / "out.md").read_text()


def test_a_table_of_several_models_needs_no_second_file(tmp_path: Path):
    lines = ["model,role,item,score"]
    lines += [f"old,unlearned,q{n},{n % 2}" for n in range(20)]
    lines += [f"new,unlearned,q{n},1" for n in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (score,) = compare(tmp_path / "t.csv").scores
    assert (score.first, score.model, score.difference) == ("old", "new", 0.5)


def test_logs_without_a_common_question_or_a_second_model_are_refused(tmp_path: Path):
    first = rows(tmp_path / "a.jsonl", {str(n): 1.0 for n in range(9)})
    second = rows(tmp_path / "b.jsonl", {str(n): 1.0 for n in range(10, 19)})
    with pytest.raises(InputError, match="no question"):
        compare(first, second)
    with pytest.raises(InputError, match="at least two models"):
        compare(first)
    with pytest.raises(InputError, match="no such log"):
        compare(first, tmp_path / "missing.jsonl")
    with pytest.raises(InputError, match="same file"):
        short_names([first, first])


def test_the_page_has_each_row_and_each_question_with_all_replies_and_hostile_texts_do_nothing(tmp_path: Path):
    paths = []
    for name, score in (("a", 1.0), ("<script>b", 0.0)):
        lines = [{"id": f"q{n}", "question": f"Where is {n}?", "score": score, "reply": f"<i>{n}"} for n in range(9)]
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("\n".join(map(json.dumps, lines)) + "\n")
    compared = compare(*paths)
    page = compared.page
    assert page.count("<tr class=") == len(compared.scores) == 1
    assert "-1.000" in page
    assert "&lt;script&gt;b" in page
    assert "<script>b" not in page
    assert page.count('<details class="question"') == 9
    assert page.count("&lt;i&gt;4") == 2
    assert "<i>" not in page
    ended = CliRunner().invoke(app, ["compare", *map(str, paths), "--output", str(tmp_path / "out.html")])
    assert ended.exit_code == 3, ended.output
    assert (tmp_path / "out.html").read_text() == page


def test_the_questions_needed_never_contradict_the_interval(tmp_path: Path):
    first = rows(tmp_path / "a.jsonl", {str(n): 0.50 + n / 1000 for n in range(24)})
    second = rows(tmp_path / "b.jsonl", {str(n): 0.45 + n / 1000 for n in range(24)})
    (score,) = compare(first, second).scores
    # Equal differences have no variance, but the interval still allows for a rare large one.
    assert (score.finding, score.low < 0 < score.high, score.p_holm < 0.05) == ("no difference shown", True, True)
    assert score.needed == math.ceil(24 * (score.high + 0.05) / 0.05) > 24


def test_names_of_logs_are_the_parts_of_their_paths_that_differ():
    logs = [Path(f"saves/{name}/evals{end}/TOFU_EVAL.json") for name, end in (("full", "_forget01"), ("npo", ""))]
    assert short_names(logs) == ["full", "npo"]
    assert short_names([Path("a/x.json"), Path("a/y.json"), Path("b/x.json")]) == ["a/x", "a/y", "b/x"]


def test_a_finding_needs_the_test_and_the_interval():
    values = {
        "task": "forget",
        "score": "probability",
        "first": "a",
        "model": "b",
        "mean_first": 0.5,
        "mean_model": 0.4,
    }
    values |= {"difference": -0.1, "p_value": 0.001, "p_holm": 0.001, "n": 100, "n_clusters": 100, "n_missing": 0}
    found = [ComparedScore(**values, low=-0.2, high=high, needed=9, finding="lower") for high in (-0.01, 0.01)]
    assert [_finding(row, 0.001) for row in found] == ["lower", "no difference shown"]
    assert _finding(found[0], 0.06) == "no difference shown"


def audit_of(folder: Path, known: dict[str, int], documents: int = 20) -> Path:
    """An audit of scores: 40 questions, of which each model knows the first ones."""
    table = []
    roles = {"target": "target", "base": "target", "fresh": "retrained"}
    for model, right in {**known, "fresh": 0}.items():
        for n in range(40):
            row = {"model": model, "role": roles.get(model, "unlearned"), "item": f"q{n}"}
            table.append({**row, "format": "generate", "group": f"d{n % documents}", "score": float(n < right)})
    judge(table, output_dir=folder)
    return folder


def test_models_of_two_audits_are_compared_by_name(tmp_path: Path):
    first = audit_of(tmp_path / "a", {"target": 40, "npo": 30, "ga": 20})
    second = audit_of(tmp_path / "b", {"target": 40, "ga": 0, "new": 5, "npo": 30})
    compared = compare(first, second)
    ga, npo = ((s.first, s.model, s.difference, s.finding) for s in compared.scores)
    assert ga == ("a: ga", "b: ga", -0.5, "lower")
    assert npo == ("a: npo", "b: npo", 0.0, "no difference shown")
    # A curve for each model over the audits, and the verdicts of each audit.
    assert (compared.page.count("<polyline"), "generate on forget, from a: ga" in compared.page) == (2, True)
    verdicts = {(v["model"], v["claim"]): v["verdict"] for v in compared.verdicts}
    assert (verdicts["a: ga", "not expressed"], verdicts["b: ga", "not expressed"]) == ("fail", "inconclusive")
    assert "| a: ga | not expressed | fail |  |" in compared.markdown
    # Within one audit the target is the one that all are compared with.
    assert [(s.first, s.model) for s in compare(first).scores] == [("a: target", "a: npo"), ("a: target", "a: ga")]


def test_checkpoints_of_two_audits_are_compared_with_the_target(tmp_path: Path):
    first = audit_of(tmp_path / "a", {"target": 40, "step 1": 30})
    second = audit_of(tmp_path / "b", {"target": 40, "step 2": 10})
    # The second target answers as the first, and the third does not.
    scores = compare(first, second, audit_of(tmp_path / "c", {"target": 39, "step 3": 3})).scores
    assert [s.model for s in scores] == ["a: step 1", "b: step 2", "c: target", "c: step 3"]
    assert ({s.first for s in scores}, [s.mean_model for s in scores]) == ({"a: target"}, [0.75, 0.25, 0.975, 0.075])
    (table,) = second.glob("audit/*/scores.jsonl.gz")
    table.write_bytes(gzip.compress(gzip.decompress(table.read_bytes()).replace(b"1.0", b"0.0", 1)))
    with pytest.raises(InputError, match="changed after it was written"):
        compare(first, second)


def test_no_difference_of_five_groups_is_called_none(tmp_path: Path):
    # The smallest p-value of five signs is 2 / 32.
    first = audit_of(tmp_path / "a", {"target": 40, "ga": 40}, documents=5)
    second = audit_of(tmp_path / "b", {"target": 40, "ga": 0}, documents=5)
    scores = compare(first, second).scores
    assert [(s.p_value, s.finding) for s in scores] == [(0.0625, "open")]
