"""`vestige probe tables`: the Knowledge Holes paper's tables by one command."""

from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.options import AsJson, DryRun, Embedder, Fresh, OutputDir, Workers
from vestige.cli.output import output_in, refuse_torchrun, say
from vestige.cli.progress import progress_bar
from vestige.cli.tables import print_counts, print_json
from vestige.core.errors import PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vestige.study.hole_study import StudyEnd, StudyForecast
    from vestige.study.hole_study_settings import HoleStudyFolder, HoleStudySettings


PAPER = ("llmu", "gakl", "npo_gd", "rmu")
"""The presets of the paper, which are looked up on the hub."""


def tables_command(
    config: Annotated[str, typer.Argument(help="A preset (sample1, llmu, gakl, npo_gd, rmu) or a TOML file.")],
    output_dir: OutputDir,
    only: Annotated[str | None, typer.Option(help="Tables by the paper's numbers, comma-separated: 1,2,10.")] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the study's own seed.")] = None,
    device: Annotated[str | None, typer.Option(help="Instead of the study's own device.")] = None,
    embedder: Embedder = None,
    workers: Workers = None,
    dry_run: DryRun = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Quality before and after, diversity, mitigation, judges, checkpoints and RL ablation: Tables 1-4, 6, 7 and 10.

    Makes what is missing and writes tables.md and a CSV for each table; the same command goes on where a stopped one
    ended. Ends with 5 if a task failed; see docs/holes.md.
    """
    refuse_torchrun("probe tables")
    from vestige.study.hole_study_settings import refuse_sections_missing, study_named, tables_named

    if config in PAPER:
        _paper(config, dry_run=dry_run, as_json=as_json)
        return
    settings, tables = _changed(study_named(config), seed, device, embedder), tables_named(only)
    refuse_sections_missing(settings, only)
    if dry_run:
        from vestige.study.hole_study import forecast_study

        _foresee(forecast_study(output_dir, settings, tables), as_json=as_json)
        return

    from vestige.study.hole_study import run_hole_study
    from vestige.study.hole_study_settings import HoleStudyFolder

    with output_in(output_dir, fresh=fresh, made_by=("study.json",), inputs=(config,)):
        with progress_bar("tables") as show:
            end = run_hole_study(
                output_dir, settings, tables, workers=workers, show=lambda state: show(state.share, state.at_work)
            )
        _tell(HoleStudyFolder(output_dir), tables, end, as_json=as_json)


def _tell(place: "HoleStudyFolder", tables: "Sequence[int]", end: "StudyEnd", *, as_json: bool) -> None:
    """Say where the tables are; raises PartialFailure where a task failed."""
    for name, error in end.failed.items():
        say(f"failed: {one_line(name)}: {one_line(str(error), width=500)}")
    paths = [str(place.page), *(str(place.table(number)) for number in tables)]
    if as_json:
        failed = {name: str(error) for name, error in end.failed.items()}
        print_json({"tables": paths, "failed": failed})
    else:
        typer.echo(f"tables in {place.page}")
    if end.failed:
        raise PartialFailure(f"{len(end.failed)} of {end.n_tasks} tasks failed; the same command tries them again")


def _paper(name: str, *, dry_run: bool, as_json: bool) -> None:
    """The size of one of the paper's own experiments, or what is left to do for it."""
    from vestige.study.hole_study_settings import paper_size, refuse_paper

    if not dry_run:
        refuse_paper(name)
    found = paper_size(name)
    sizes = {"target": found.forecast.target_calls, "unlearned": found.forecast.unlearned_calls}
    if as_json:
        return print_json({**found._asdict(), "forecast": {**sizes, **found.forecast.judge_requests}})
    typer.echo(f"target {found.target}, policy {found.policy}, judge {found.judge}; at most:")
    print_counts({f"prompts to the {who} model": n for who, n in sizes.items()})
    print_counts({f"judgements of {task}": n for task, n in found.forecast.judge_requests.items()})


def _changed(
    settings: "HoleStudySettings", seed: int | None, device: str | None, embedder: str | None
) -> "HoleStudySettings":
    given = {name: value for name, value in (("seed", seed), ("device", device)) if value is not None}
    judge = settings.judge if embedder is None else settings.judge.model_copy(update={"embedder": embedder})
    return settings.model_copy(update={**given, "judge": judge})


def _foresee(forecast: "StudyForecast", *, as_json: bool) -> None:
    if as_json:
        return print_json(forecast)
    typer.echo(f"at most; nothing was asked: {forecast.n_tasks} tasks, {forecast.n_probes} of them probes, which take")
    print_counts({f"prompts to the {who} model": n for who, n in forecast.prompts.items()})
    print_counts({f"judgements of {task}": n for task, n in forecast.judgements.items()})
    print_counts({"tokens to a judge that is a language model, estimated": forecast.judge_prompt_tokens})
