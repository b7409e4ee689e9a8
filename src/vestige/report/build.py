"""Builds the report of a run from what its evaluations left: tables, figures, and the page last."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from vestige.artifacts.layout import ProbeFolder, RunFolder
from vestige.artifacts.own_files import is_own
from vestige.core.files import machine_errors, replacing, write_text
from vestige.report.audit_figures import write_audit_figures
from vestige.report.contents import read_contents
from vestige.report.figures import write_figures
from vestige.report.holes import is_probe, read_probe
from vestige.report.holes_figure import write_hole_maps
from vestige.report.holes_tables import write_hole_tables
from vestige.report.page import render, render_holes
from vestige.report.tables import write_tables

LOCK_SECONDS = 60.0
"""How long to wait for another report of the same run."""


def build_report(run: Path, *, verify: bool = False) -> Path:
    """Write tables/, figures/ and report.html of the run, or of the search for holes, in `run`; say where the page is.

    The same run gives the same bytes. What an earlier report left in the two folders goes; files of other names stay.
    A run that is partly finished gives a report that says what is missing; one without any subject is
    refused. So are evaluations whose model is there with other files than they were made of; with `verify` all files
    are read, without only those whose size, time or inode is another. One report is written at a time.
    """
    alone = replacing(RunFolder(run).report, patience_seconds=LOCK_SECONDS) if run.is_dir() else nullcontext()
    with alone:
        if is_probe(ProbeFolder(run)):
            return _build_holes(ProbeFolder(run))
        return _build_run(RunFolder(run), verify=verify)


def _build_run(folder: RunFolder, *, verify: bool) -> Path:
    contents = read_contents(folder, verify=verify)
    with _renewed(folder.tables) as tables:
        write_tables(tables, folder, contents)
        if contents.probes:
            write_hole_tables(tables, contents.probes)
    with _renewed(folder.figures) as figures:
        write_figures(figures, contents)
        write_audit_figures(figures, contents)
        write_hole_maps(figures, contents.probes)
    write_text(folder.report, render(contents))
    return folder.report


def _build_holes(folder: ProbeFolder) -> Path:
    probe = read_probe(folder)
    with _renewed(folder.tables) as tables:
        write_hole_tables(tables, [probe])
    with _renewed(folder.figures) as figures:
        write_hole_maps(figures, [probe])
    write_text(folder.report, render_holes(probe))
    return folder.report


@contextmanager
def _renewed(folder: Path) -> Iterator[Path]:
    """Fill a folder beside `folder`, and put its files in the place of those that an earlier report left there."""
    partial = folder.with_name(f".{folder.name}.partial")
    with machine_errors(folder):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            folder.mkdir(exist_ok=True)
            new = {file.name for file in partial.iterdir()}
            for name in sorted(new):
                os.replace(partial / name, folder / name)
            for old in sorted(folder.iterdir()):
                if old.is_file() and old.name not in new and is_own(Path(folder.name, old.name)):
                    old.unlink()
        finally:
            shutil.rmtree(partial, ignore_errors=True)
