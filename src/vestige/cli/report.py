"""`vestige report`: rebuild the tables, the figures and the page of a run from what its evaluations left."""

import json
from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.options import AsJson


def report_command(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run, finished or not, or of a finished search for holes.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file of the run's models, also where none seems changed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write report.html, tables/ and figures/ of RUN, and say where they are. No model is loaded."""
    from vestige.artifacts.layout import RunFolder
    from vestige.report import build_report

    page = build_report(run, verify=verify)
    folder = RunFolder(run)
    tables = sorted(str(p) for p in folder.tables.glob("*.csv"))
    figures = sorted(str(p) for p in folder.figures.glob("*.svg"))
    if as_json:
        typer.echo(json.dumps({"report": str(page), "tables": tables, "figures": figures}, indent=2))
    else:
        typer.echo(f"report: {page}")
        typer.echo(f"{len(tables)} tables in {folder.tables}, {len(figures)} figures in {folder.figures}")
