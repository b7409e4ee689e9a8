"""What a terminal of a given width shows: tables, lists of names, and the findings of `vestige doctor`."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from tests.small import SPEC
from typer.testing import CliRunner

from vestige.artifacts.audits import FactLine, GroupLine
from vestige.artifacts.records import Result, Summary
from vestige.cli import doctor
from vestige.cli.app import app
from vestige.cli.doctor import matrix_rates, said_of_rates, stored_rates
from vestige.cli.setup import in_columns
from vestige.core.estimates import Estimate
from vestige.methods import listed
from vestige.report.text import fact_in_words, groups_in_words, print_results

SPLITS = ("forget", "retain", "independent", "independent_employment", "factual")
METRICS = ("exact_match", "share_truncated", "rouge1_recall")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_metric_or_number_is_cut(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    subject = dataclasses.replace(SPEC, subject="target", name="target", method="")
    results = []
    for m in METRICS:
        for n, split in enumerate(SPLITS):
            results.append(Result(split, "all", "generate", "", Estimate(m, "share", 0.42, 0.36, 0.48, 240 + n, "w")))
    print_results(Summary("qa", 1, subject, "edge:A_B", {}, tuple(results)))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    words = shown.replace("│", " ").replace("┃", " ").split()
    assert set(METRICS) <= set(words)
    assert width < 100 or set(SPLITS) <= set(words)
    for n in range(len(SPLITS)):
        assert shown.count(f"0.42 [0.36, 0.48], n = {240 + n}") == len(METRICS)
    assert shown.count("forget set edge:A_B") == 1
    # Split by split, and in each first what people look for.
    assert [word for word in words if word in METRICS] == ["exact_match", "rouge1_recall", "share_truncated"] * 5


def test_a_list_keeps_within_the_width_with_later_lines_under_the_first():
    rows = [row._asdict() for row in listed()]
    lines = in_columns(rows, 100).splitlines()
    assert max(map(len, lines)) <= 100
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == [row["name"] for row in rows]
    indent = 2 + max(map(len, names))
    assert all(line[: indent - 1].strip() == "" for line in lines if line.startswith(" "))
    # Nothing is lost in wrapping.
    told = " ".join(" ".join(lines).split())
    assert all(row["about"] in told and row["paper"] in told for row in rows)


def test_what_is_favoured_among_options_is_not_called_likely():
    fact = FactLine("ga", "", "i", "option_text_mean", 0.001, "How many?", "4661.", "4644.", -24.4, (-41.5, -35.3))
    assert fact_in_words(fact) == (
        "ga, choice of an option (per token): How many?: favours this answer among the options: '4661.' (-24.4 bits; "
        "controls: -41.5 to -35.3), and replies '4644.'"
    )
    assert "finds this answer likelier than any control does: '4661.'" in fact_in_words(
        dataclasses.replace(fact, by="forced, bits")
    )


def test_every_person_has_a_line_those_first_that_fail():
    def line(group, value, unit, exceeds):
        size = Estimate("leakage", unit, value, value - 0.2, value + 0.1, 4, "t")
        return GroupLine("ga", group, 4, "generate", size, 0.001 if exceeds else 0.9, exceeds)

    groups = (
        line("Ann", 0.25, "leakage", False),
        line("Zo\u00eb", 0.95, "leakage", True),
        line("Bo", 3.0, "bits", False),
    )
    assert groups_in_words(SimpleNamespace(groups=groups)) == [
        "Zo\u00eb (4 facts), ga: 95 % left (75 % to 100 %), written answer, above the margin",
        "Ann (4 facts), ga: 25 % left (5 % to 35 %), written answer",
        "Bo (4 facts), ga: 3.0 bits likelier (2.8 bits to 3.1 bits), written answer",
    ]
    many = groups_in_words(SimpleNamespace(groups=groups * 4))
    assert (len(many), many[-1]) == (11, "and 2 more, in the report")


def told(*words):
    ended = CliRunner().invoke(app, ["doctor", *map(str, words), "--json"])
    return ended.exit_code, {row["name"].split()[0]: row for row in json.loads(ended.stdout)}


def test_a_machine_on_which_the_tests_run_is_fit_and_nothing_is_left_behind(tmp_path):
    code, rows = told(tmp_path / "not yet")
    assert code == 0
    assert {row["state"] for row in rows.values()} <= {"ok", "note"}
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_folder_for_runs_nor_is_what_lies_below_it(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        code, rows = told(place)
        assert (code, rows["folder"]["state"]) == (2, "fault")


def test_what_stops_a_run_is_a_fault_and_the_exit_code_says_so(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor, "write_text", refused)
    code, rows = told(tmp_path)
    assert (code, rows["folder"]["state"]) == (2, "fault")


def test_a_faster_number_format_is_said_with_the_time_that_it_saves():
    assert said_of_rates({"float32": 100.0, "bfloat16": 400.0}) == (
        "matrix products: 100 GFLOP/s in float32, 400 in bfloat16; with --dtype bfloat16 products take 75% less time, "
        "and answers differ slightly"
    )
    assert "saves no time here" in said_of_rates({"float32": 100.0, "bfloat16": 90.0})


def test_measured_rates_are_stored_for_this_version_of_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("VESTIGE_HOME", str(tmp_path))
    assert said_of_rates(stored_rates()) == "matrix products: not measured yet. Run `vestige doctor`"
    assert matrix_rates() == stored_rates() != {}
    monkeypatch.setattr(doctor, "version", lambda package: "0.0")
    assert stored_rates() is None


@pytest.mark.parametrize(("listed", "state"), [("GPU 0: some card", "fault"), ("", "note")])
def test_a_card_that_torch_does_not_see_is_a_fault(monkeypatch, listed, state):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda _: "nvidia-smi")
    monkeypatch.setattr(
        doctor.subprocess, "run", lambda *_, **__: doctor.subprocess.CompletedProcess([], 0, listed, "")
    )
    found = {f.name: f for f in doctor._torch()}
    assert (found["arithmetic"].state, found["cards"].state) == ("ok", state)
