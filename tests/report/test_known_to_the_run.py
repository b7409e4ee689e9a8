"""The page says what the run knows, and a damaged run is reported, or refused in one sentence."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import synthetic_audit
import synthetic_holes
import synthetic_run
from synthetic_audit import outcome
from tests.damaging import survive

from vestige.artifacts.audits import DatedJudgement
from vestige.artifacts.layout import ProbeFolder, RunFolder
from vestige.metrics.contrasts import BOUND
from vestige.metrics.intervals import LEVEL
from vestige.report.audit import first_screen, margins_said
from vestige.report.build import answered, frameworks
from vestige.report.contents import read_contents
from vestige.report.evidence import unasked
from vestige.report.holes import read_probe
from vestige.report.page import render, render_holes
from vestige.report.tables import write_tables
from vestige.report.words import verdict_answer


def screen(found):
    return first_screen(0, found, {}, {})


def test_controls_of_unknown_origin_are_never_said_to_be_models_that_never_knew():
    verified, given = (screen(replace(outcome(), evidence_level=level)) for level in ("verified", "given"))
    assert "3 controls trained here from these data (verified)" in verified["facts"]
    assert "3 controls as given, origin not verified" in given["facts"]
    assert "retrained models" in "".join(span.text for span in verified["spans"])
    said = "".join(span.text for span in verdict_answer(replace(outcome(), evidence_level="given")))
    assert "what the controls cannot" in said
    assert "retrained models" not in f"{said} {given['heads']} {given['reading']} {given['facts']}"


def rejudged(first):
    """The audit, first judged so."""
    found = outcome()
    verdicts = tuple((v.subject, v.claim, first.get((v.subject, v.claim), v.outcome)) for v in found.verdicts)
    then = {**found.thresholds, "delta": 0.01}
    return replace(found, first=DatedJudgement("2026-11-22T09:30:00+00:00", then, verdicts))


def test_a_judgement_that_is_not_the_first_says_so_under_its_headline_and_in_each_cell_that_changed():
    assert screen(outcome())["rejudged"] == []
    found = outcome()
    changed = next(v for v in found.verdicts if v.subject == "kl" and v.claim == "not expressed")
    was = "holds" if changed.outcome == "fails" else "fails"
    block = screen(rejudged({("kl", "not expressed"): was}))
    (line,) = block["rejudged"]
    now = {"holds": "pass", "fails": "fail", "inconclusive": "inconclusive"}
    assert line.startswith("Judged again at other margins, after the answers were seen: delta ")
    assert "in place of 0.01. First judged at 2026-11-22T09:30:00+00:00, with other verdicts: KL, " in line
    assert f"not expressed: {now[was]}, now {now[changed.outcome]}." in line
    cells = [cell for row in block["rows"] for cell in row["cells"] if cell]
    assert [cell["was"] for cell in cells if cell["was"]] == [now[was]]
    same = screen(rejudged({}))["rejudged"][0]
    assert same.endswith("with the same verdicts.")


def test_no_order_of_events_is_claimed():
    assert "before the models were asked" not in " ".join(margins_said(outcome()))
    assert "No earlier judgement is recorded." in margins_said(outcome())
    assert not any("no earlier judgement" in said for said in margins_said(rejudged({})))


def test_the_levels_of_bounds_and_intervals_are_stated_once_and_are_those_of_the_rules():
    (said,) = [line for line in margins_said(outcome()) if "Intervals hold" in line]
    levels = [f"{100 * level:g}\N{NARROW NO-BREAK SPACE}%" for level in (LEVEL, (1 - LEVEL) / 2, 1 - BOUND)]
    assert [part for part in re.findall(r"[\d.]+\s%", said)] == levels


def test_a_bound_in_bits_is_printed_beside_its_pass():
    found = outcome()
    first = found.verdicts[0]
    for outcome_of, ends, bound in (
        ("holds", (-3.3, 2.54), "0.1 bits likelier (at most 2.5 bits)"),
        ("fails", (8.1, 9.9), "0.1 bits likelier (at least 8.1 bits)"),
    ):
        line = replace(first, outcome=outcome_of, unit="bits", wide=6.0, at_least=ends[0], at_most=ends[1])
        block = screen(replace(found, verdicts=(line, *found.verdicts[1:]), facts=()))
        (row,) = [row for row in block["rows"] if row["label"] == first.subject]
        assert row["cells"][0]["bound"].startswith(bound)


def test_what_was_not_done_is_not_said_to_have_been():
    asked = {entry["place"]: entry["answered"] for entry in frameworks()}
    attacks = next(parts for place, parts in asked.items() if "resistance to attacks" in place)
    assert answered(outcome(), attacks) == (
        "Regurgitation was tested. Membership inference was tested. Other attacks were made as far as they are listed "
        "under the threat model."
    )
    little = replace(outcome(), membership=(), gains=())
    assert answered(little, attacks) == (
        "Regurgitation was tested. Membership inference was not tested. No other attack was made."
    )
    assert all("were tested" not in answered(replace(little, formats=()), parts) for parts in asked.values())


@pytest.mark.parametrize(
    ("asked", "forgotten", "name"),
    [
        # A positive control forgot nothing, and is asked about what it keeps silent of.
        ({"edge:A_B": {"1"}}, [], ""),
        ({}, [], "edge:A_B"),
        ({"edge:A_B": {"1"}}, ["1"], ""),
        ({"edge:A_B": {"2"}}, ["1"], "edge:A_B"),
    ],
)
def test_a_model_is_unevaluated_only_where_it_was_asked_nothing_of_its_forget_set(asked, forgotten, name):
    sets = [SimpleNamespace(items=tuple(forgotten))] if forgotten else []
    assert unasked(SimpleNamespace(spec=SimpleNamespace(forget="edge:A_B", forgotten=sets), asked_ids=asked)) == name


@pytest.mark.slow
def test_run_folders(tmp_path, monkeypatch):
    for name, shorter in (("ATTRIBUTES", 1), ("SALES", 4), ("JOBS", 4)):
        monkeypatch.setattr(synthetic_run, name, getattr(synthetic_run, name)[:shorter])
    run = synthetic_run.write_run(tmp_path / "run", hostile=False, forgets=("edge:A_B",))
    synthetic_audit.write_audit(run, synthetic_audit.outcome())

    def reported(folder: Path) -> None:
        contents = read_contents(RunFolder(folder))
        write_tables(folder / "tables", RunFolder(folder), contents)
        render(contents)

    survive("run folders", [run], tmp_path, reported, sealed=True)


@pytest.mark.slow
def test_folders_of_holes(tmp_path):
    path = synthetic_holes.write_probe(tmp_path / "probe", synthetic_holes.candidates())
    survive("folders of holes", [path], tmp_path, lambda folder: render_holes(read_probe(ProbeFolder(folder))))
