"""Runs and searches for holes that a stranger hands over damaged: reported, or refused in one sentence."""

from pathlib import Path

import pytest
import synthetic_audit
import synthetic_holes
import synthetic_run
from tests.damaging import survive

from vestige.artifacts.layout import ProbeFolder, RunFolder
from vestige.report.contents import read_contents
from vestige.report.holes import read_probe
from vestige.report.page import render, render_holes
from vestige.report.tables import write_tables


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

    survive("run folders", [run], tmp_path, reported)


@pytest.mark.slow
def test_folders_of_holes(tmp_path):
    path = synthetic_holes.write_probe(tmp_path / "probe", synthetic_holes.candidates())
    survive("folders of holes", [path], tmp_path, lambda folder: render_holes(read_probe(ProbeFolder(folder))))
