"""`vestige demo`: the whole idea on PISTOL's sample dataset 1, in some minutes."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import refuse_torchrun, say, settings_from
from vestige.cli.options import AsJson, Config, Fresh, Set
from vestige.cli.output import output_in
from vestige.cli.progress import progress_bar
from vestige.cli.tables import print_comparison, print_verdicts
from vestige.core.errors import PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import RunFolder
    from vestige.study.demo import DemoEnd


def demo_command(
    output_dir: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, each with one thread; at most 4 by default.")
    ] = None,
    config: Config = None,
    assignments: Set = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Compile, train, unlearn, audit and report: PISTOL's sample dataset 1 on the built-in tiny model.

    Ctrl-C leaves a run that the same command resumes. Ends with 0 whatever was found.
    """
    refuse_torchrun("demo")
    from vestige.artifacts.layout import RunFolder
    from vestige.study.demo import DemoSettings, run_demo

    settings = settings_from(DemoSettings, config, assignments)
    run = RunFolder(output_dir)
    with output_in(output_dir, fresh=fresh, made_by=("run.toml",)):
        with progress_bar("demo") as show:
            end = run_demo(run, settings, workers=workers or min(4, os.cpu_count() or 1), show=show)
        _tell(run, end, as_json=as_json)


def _tell(run: "RunFolder", end: "DemoEnd", *, as_json: bool) -> None:
    """Build the report and print what was found; raises PartialFailure where a task failed."""
    from vestige.artifacts.records import read_summaries, result_rows
    from vestige.artifacts.verdicts import verdict_rows

    for name, error in end.failed.items():
        say(f"failed: {one_line(name)}: {one_line(str(error), width=500)}")
    if not any(run.subjects()):
        raise PartialFailure("nothing could be made; see above")

    from vestige.report import build_report

    report = build_report(run.path)
    summaries = [summary for _, summary in read_summaries(run)]
    if as_json:
        verdicts = verdict_rows(end.outcomes)
        typer.echo(
            json.dumps({"report": str(report), "results": result_rows(summaries), "verdicts": verdicts}, indent=2)
        )
    else:
        print_comparison(summaries)
        print_verdicts(end.outcomes)
        typer.echo(f"report: {report}")
    if end.failed:
        raise PartialFailure(f"{len(end.failed)} of {end.n_tasks} tasks failed; the same command tries them again")
