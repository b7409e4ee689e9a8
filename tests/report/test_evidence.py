import csv
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import METHODS, items, spec, write_run, write_subject

from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.records import note_bytes, write_spec
from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json
from vestige.core.store import write_sealed
from vestige.report import build_report
from vestige.report.contents import read_contents
from vestige.report.evidence import read_evidence
from vestige.report.page import render

pytestmark = pytest.mark.slow


def test_a_run_without_subjects_is_refused(tmp_path):
    with pytest.raises(InputError, match="no subject to report on"):
        build_report(tmp_path)
    with pytest.raises(InputError, match="no subject to report on"):
        build_report(tmp_path / "absent")


def test_subjects_come_in_the_order_base_target_retrained_unlearned(run):
    evidence = read_evidence(RunFolder(run))
    # Of two forget sets each control and method has one.
    twice = [label for label in ("retrained", *METHODS) for _ in range(2)]
    assert [s.label for s in evidence.subjects] == ["base", "target", *twice]
    assert evidence.forgets == ("edge:A_B", "edge:A_C")
    assert evidence.missing == ()


def test_two_runs_of_one_method_are_told_apart_by_the_settings_in_which_they_differ(tmp_path):
    run = RunFolder(tmp_path)
    for rate in (1e-4, 5e-4):
        own = spec("unlearned", "edge:A_B", "ga", rate=rate)
        write_subject(run.cell("ga", own.settings_id), own, items(), ["edge:A_B"])
    labels = [s.label for s in read_evidence(run).subjects]
    assert labels == ["ga (rate 0.0001)", "ga (rate 0.0005)"]


def test_twins_with_the_same_settings_are_told_apart_by_their_folders(tmp_path):
    run = RunFolder(tmp_path)
    for name in ("one", "two"):
        write_subject(run.control(name), spec("target", ""), items(), ["edge:A_B"])
    assert [s.label for s in read_evidence(run).subjects] == ["target (one)", "target (two)"]


def test_a_partly_finished_run_says_what_is_missing(tmp_path):
    run = RunFolder(write_run(tmp_path / "demo"))
    started = spec("unlearned", "edge:A_B", "gd")
    write_spec(run.cell("gd", "new").spec, started)
    unfinished = next(run.path.glob("cells/ga-edge=A_B-*"))
    for summary in unfinished.glob("evals/*/summary-*.json"):
        summary.unlink()
    for summary in run.path.glob("models/retrained-edge=A_C/evals/*/summary-*.json"):
        summary.unlink()
    run.settings.unlink()
    page = render(read_contents(run))
    missing = read_evidence(run).missing
    assert missing == (
        "The run has no run.toml, so what was asked is not shown.",
        "models/retrained-edge=A_C is made but not evaluated on A_C.",
        f"cells/{unfinished.name} is made but not evaluated on A_B.",
        "cells/gd-new is not finished: it has no done.json.",
        "A_C has no evaluated retrained model to compare with.",
    )
    assert "5 remarks about this run" in page


def test_subjects_without_any_summary_still_give_a_report(tmp_path):
    run = RunFolder(tmp_path)
    write_spec(run.control("target").spec, spec("target", ""))
    page = render(read_contents(run))
    assert "Nothing has been forgotten in this run yet" in page
    assert "models/target is not finished" in page


def evaluated_on(run, asked, name, day):
    """An evaluation of the target on these items, under a name, of a day."""
    folder = run.control("target")
    before = {place.path for place in folder.evaluations()}
    write_subject(folder, spec("target", ""), asked, ["edge:A_B"])
    (place,) = (place for place in folder.evaluations() if place.path not in before)
    write_sealed(place.provenance, {"times": {"started": f"2026-11-{day}T10:00:00+00:00"}})
    return place.path.rename(place.path.with_name(name))


def remarks(run):
    return [m for m in read_evidence(run).missing if "more than once" in m]


def test_after_an_answer_was_corrected_the_report_shows_the_new_one_and_names_both(tmp_path):
    run, old = RunFolder(tmp_path), items()
    corrected = [replace(old[0], answer="Another."), *old[1:]]
    evaluated_on(run, old, "qa-zz", 20)
    evaluated_on(run, corrected, "qa-aa", 21)
    (target,) = read_evidence(run).subjects
    assert target.answers is not None
    assert target.answers.path.name == "qa-aa"
    assert remarks(run) == [
        "models/target was evaluated more than once on A_B: shown is qa-aa of 2026-11-21T10:00:00, and not qa-zz of "
        "2026-11-20T10:00:00 (1 of its 440 items are others, so that the data were changed); tables/results.csv "
        "holds all."
    ]
    build_report(run.path)
    with (run.tables / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["evaluation"], row["items"]) for row in rows}) == 2
    assert {row["evaluation"] for row in rows} == {"qa-zz", "qa-aa"}


def test_an_evaluation_of_a_part_of_the_items_does_not_stand_for_the_whole(tmp_path):
    run = RunFolder(tmp_path)
    evaluated_on(run, items(), "qa-aa", 20)
    evaluated_on(run, items()[:60], "qa-zz", 21)
    (target,) = read_evidence(run).subjects
    assert target.answers is not None
    assert target.answers.path.name == "qa-aa"
    assert "qa-zz of 2026-11-21T10:00:00 (it asked fewer items)" in remarks(run)[0]


def test_an_unknown_role_is_refused_by_name(tmp_path):
    run = RunFolder(tmp_path)
    write_spec(run.control("x").spec, spec("teacher", ""))
    with pytest.raises(InputError, match="unknown role 'teacher'"):
        build_report(run.path)


def test_the_report_never_loads_torch_or_the_data_room():
    names = "'torch', 'transformers', 'vestige.data', 'vestige.models'"
    code = f"import sys, vestige.report; print([m for m in ({names}) if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert done.stdout.strip() == "[]"


def test_a_control_stands_only_for_the_forget_set_that_it_left_out(run, tmp_path):
    # A copy, since the run is shared by all tests.
    own = tmp_path / "run"
    shutil.copytree(run, own)
    folder = RunFolder(own)
    # The control of A_C was taught A_B. A summary of it as seen from A_B must not make it a control of A_B.
    controls = {s.spec.forget: s for s in read_evidence(folder).of("retrained", "edge:A_B")}
    assert list(controls) == ["edge:A_B"]
    of_other = next(s for s in read_evidence(folder).subjects if s.spec.forget == "edge:A_C")
    place = next(iter((own / of_other.path).glob("evals/*/summary-*.json")))
    seen_from_ours = {**read_json(place), "forget": "edge:A_B"}
    write_json(place.with_name("summary-edge=A_B.json"), seen_from_ours)
    note_bytes(EvalFolder(place.parent), place.with_name("summary-edge=A_B.json"))
    again = read_evidence(folder)
    assert any("edge:A_B" in s.results and s.spec.forget == "edge:A_C" for s in again.subjects)
    assert [s.spec.forget for s in again.of("retrained", "edge:A_B")] == ["edge:A_B"]
