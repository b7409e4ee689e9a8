"""Builds the report of a run from what its evaluations left: tables, figures, and the page last."""

from pathlib import Path

from vestige.artifacts.layout import RunFolder
from vestige.core.files import new_folder, write_text
from vestige.report.audit_figures import write_audit_figures
from vestige.report.contents import read_contents
from vestige.report.figures import write_figures
from vestige.report.page import render
from vestige.report.tables import write_tables


def build_report(run: Path) -> Path:
    """Write tables/, figures/ and report.html of the run in `run`, and say where the page is.

    The same run gives the same bytes. What an earlier report left in the two folders is replaced as a whole.
    A run that is partly finished gives a report that says what is missing; one without any subject is
    refused.
    """
    folder = RunFolder(run)
    contents = read_contents(folder)
    with new_folder(folder.tables) as tables:
        write_tables(tables, folder, contents)
    with new_folder(folder.figures) as figures:
        write_figures(figures, contents)
        write_audit_figures(figures, contents)
    write_text(folder.report, render(contents))
    return folder.report
