"""`vestige study`: a grid of trainings and evaluations from one file, made by any number of processes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import assigned
from vestige.cli.options import AsJson
from vestige.cli.output import progress_bar, refuse_torchrun, say, say_next
from vestige.cli.tables import print_json, print_table
from vestige.core.errors import GoalNotReached, InputError, PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.studies.studies import StudyProgress

File = Annotated[Path, typer.Argument(help="The study, a TOML file; `vestige study preset` writes one.")]
Folder = Annotated[
    Path | None,
    typer.Option("--output-dir", help="The folder of the cells, which studies may share; FILE's name by default."),
]


def plan_command(file: File, output_dir: Folder = None, as_json: AsJson = False) -> None:
    """Say which cells FILE has, which are done, being made or failed and why, and what is left. Runs nothing."""
    from vestige.studies.studies import open_study_file, status

    _show(status(open_study_file(file, output_dir)), as_json=as_json)


def run_command(
    file: File,
    output_dir: Folder = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one a GPU or processor, as far as memory goes.")
    ] = None,
    executor: Annotated[
        str, typer.Option(help="processes (here), slurm, ray, or local: submitit's own on this machine.")
    ] = "processes",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="For the executor, as in gpus_per_node=1 or num_gpus=1."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make every cell of FILE that is not there. The same command resumes, and may run on many machines at once.

    Ends with 5 if a cell failed; the same command tries it again.
    """
    refuse_torchrun("study run")
    from vestige.steps.engine import EXECUTORS, Status
    from vestige.studies.studies import open_study_file, run, status

    if executor not in EXECUTORS:
        raise InputError(f"no executor {executor!r}; known: {', '.join(EXECUTORS)}")
    # No settings class of ours reads these: they go to submitit or Ray, which want numbers as numbers.
    typed = {key: int(value) if value.isdigit() else value for key, value in assigned(option, "--option").items()}
    study = open_study_file(file, output_dir)
    # Studies may share the folder: cells of others are not counted here.
    keys = {cell.key: cell.name for cell in study.cells}
    with progress_bar(study.settings.name) as bar:

        def show(now: Status, cells: int) -> None:
            bar(len(now.done & keys.keys()) / cells, ", ".join(sorted(keys[k] for k in now.at_work & keys.keys())))

        failed = run(study, jobs=jobs, executor=executor, options=typed, show=show)
    _show(status(study), as_json=as_json)
    if failed:
        raise PartialFailure(f"{len(failed)} of {len(keys)} cells failed; the same command tries them again")
    say_next("study", "report", file, *(("--output-dir", output_dir) if output_dir else ()))


def report_command(file: File, output_dir: Folder = None, as_json: AsJson = False) -> None:
    """Write the tables and figures of FILE from the cells that are there. No model is loaded.

    Ends with 7 where a target knows nothing of what was to be forgotten, or a goal for the rate was not reached; the
    tables say so too.
    """
    from vestige.studies.results import PooledResults
    from vestige.studies.studies import open_study_file
    from vestige.studies.tables import write_report

    study = open_study_file(file, output_dir)
    paths = [str(path) for path in write_report(study)]
    warnings = PooledResults(study).warnings
    if as_json:
        print_json({"files": paths, "warnings": list(warnings)})
    else:
        typer.echo("\n".join(paths))
    # Last, when all is written: the tables are right, and say so too.
    if warnings:
        raise GoalNotReached("; ".join(warnings))


def preset_command(
    name: Annotated[str, typer.Argument(help="A built-in study; without a name, all are listed.")] = "",
    model: Annotated[
        list[str] | None, typer.Option(help="Any model in the place of the paper's; may be given several times.")
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="A size that finishes on a CPU, with builtin:tiny.")] = False,
) -> None:
    """Print the study NAME as a TOML file with comments: `vestige study preset pistol-q1 > q1.toml`."""
    from vestige.studies.presets import STUDIES, study_preset

    if name:
        typer.echo(study_preset(name, models=model or (), cpu=cpu), nl=False)
        return
    for study, about in STUDIES.items():
        typer.echo(f"{study}: {about}")


def _show(progress: "StudyProgress", *, as_json: bool) -> None:
    if as_json:
        return print_json(progress)
    heads = ["kind", "cells", "done", "at work", "failed", "seconds each", "tokens each", "peak MB"]
    rows = []
    for k in progress.kinds:
        counts = [f"{n:,}" for n in (k.cells, k.done, k.at_work, k.failed)]
        measured = ["" if n is None else f"{n:,.{d}f}" for n, d in ((k.seconds, 1), (k.tokens, 0), (k.peak_mb, 0))]
        rows.append([k.kind, *counts, *measured])
    print_table("", heads, rows, no_wrap=["kind"])
    typer.echo(f"{progress.done:,} of {progress.cells:,} cells are done")
    if progress.left is not None and progress.done < progress.cells:
        typer.echo(f"work left for one process, by what was measured: {progress.left / 3600:.2f} hours")
    elif progress.done < progress.cells:
        typer.echo("work left: unknown until a cell of each kind was made")
    for name, why in progress.failed.items():
        say(f"failed: {one_line(name)}: {one_line(why, width=500)}")
