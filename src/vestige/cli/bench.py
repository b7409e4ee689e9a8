"""`vestige bench`: general benchmarks, and MT-bench, of several models side by side."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import pairs, refuse_torchrun, say
from vestige.cli.probe_words import JudgeWords, PlaceWords, participants
from vestige.cli.spread import spread
from vestige.cli.tables import print_columns, print_json
from vestige.core.errors import InputError
from vestige.core.estimates import to_json
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.bench import BenchResult
    from vestige.data.bench_rows import LocalData
    from vestige.steps.bench import Benched, MtBenchRequest, TurnGrader

_PARTS = ("judge", "limits")
"""What --set may speak of here."""


@spread
def bench_command(
    models: Annotated[list[str], typer.Argument(help="Models; the first is what the others are compared with.")],
    tasks: Annotated[
        str, typer.Option(help="Tasks of lm-evaluation-harness, apart by commas: arc_easy,mmlu,truthfulqa_mc1.")
    ] = "",
    task_data: Annotated[
        list[str] | None,
        typer.Option(
            "--task-data",
            metavar="FOLDER|TASK=PATH",
            help="Files with the rows of the tasks, where the hub is not to be asked. May be repeated.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="The first so many questions: of each task, of each MT-bench category.")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=0, help="Examples before each question; the task's own number.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Render tasks with the model's chat template.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows that go through the model together.")] = 16,
    mt_bench: Annotated[
        Path | None, typer.Option(help="Folder of MT-bench's questions and references (FastChat's data/mt_bench).")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in MT-bench.")] = 1024,
    *,
    who: JudgeWords,
    place: PlaceWords,
) -> None:
    """Ask MODELS the same questions; print each task with its interval and the difference to the first model.

    Tasks need lm-evaluation-harness, the extra "lmeval"; MT-bench needs a judge. What is done is kept in the output
    folder by the weights' digest, and never asked again.
    """
    refuse_torchrun("bench")
    _check_assignments(place)
    # The harness speaks of itself at length, and of a model that is handed to it as of a risk.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    bars = sys.stderr.isatty()
    if not bars:
        os.environ.setdefault("TQDM_DISABLE", "1")
    from vestige.artifacts.bench import BenchFolder
    from vestige.evals.harness import HarnessSettings
    from vestige.judges.spending import other_models
    from vestige.steps.bench import BenchRequest, Entrant, bench

    request = BenchRequest(
        tasks=tuple(word.strip() for word in tasks.split(",") if word.strip()),
        data=_local(task_data),
        settings=HarnessSettings(limit=limit, shots=shots, chat=chat, batch_size=batch_size),
        mt_bench=None if mt_bench is None else _mt_bench(mt_bench, limit, max_tokens, models, who, place),
        seed=place.seed,
        bars=bars,
        on_stage=say,
    )
    entrants = [Entrant(name, partial(place.asked, model)) for name, model in _names(models).items()]
    found = bench(BenchFolder(place.output_dir), entrants, request)
    _tell(found._replace(notes=(*found.notes, *other_models(place.folder.judge))), place)


def _check_assignments(place: PlaceWords) -> None:
    for key in pairs(place.assignments):
        if key.partition(".")[0] not in _PARTS:
            raise InputError(f"--set {one_line(key)}: benchmarks have settings of {' and '.join(_PARTS)}")


def _names(models: Sequence[str]) -> dict[str, str]:
    """A short name for each model: the last part of its path, where that tells them apart."""
    short = [Path(model).name or model for model in models]
    names = short if len(set(short)) == len(models) else list(models)
    if len(set(names)) < len(models):
        raise InputError(f"a model is given twice ({', '.join(map(one_line, models))}); give each once")
    return dict(zip(names, models, strict=True))


def _local(given: Sequence[str] | None) -> "LocalData":
    from vestige.data.bench_rows import LocalData

    folders, named = [], {}
    for word in given or ():
        task, equals, path = word.partition("=")
        if equals and "/" not in task:
            named[task.strip()] = Path(path).expanduser()
        else:
            folders.append(Path(word).expanduser())
    return LocalData(tuple(folders), named)


def _mt_bench(
    folder: Path, limit: int | None, max_tokens: int, models: Sequence[str], who: JudgeWords, place: PlaceWords
) -> "MtBenchRequest":
    from vestige.data.bench_rows import read_mt_bench
    from vestige.evals.mt_bench import MtBenchSettings
    from vestige.steps.bench import MtBenchRequest

    who.check()
    if who.judge == "grounded" and len(models) < 2:
        raise InputError(
            "--judge grounded rates by likeness to the first model's answers, so MT-bench needs two models with it; "
            "name another, or take --judge local or server"
        )
    settings = MtBenchSettings(max_tokens=max_tokens, per_category=limit, seed=place.seed)
    return MtBenchRequest(read_mt_bench(folder, limit=limit), settings, partial(_turn_grader, models[0], who, place))


def _turn_grader(first: str, who: JudgeWords, place: PlaceWords) -> "TurnGrader":
    """The judge of turns, with all that can change a rating."""
    from vestige.judges.grounded import GroundedJudge
    from vestige.judges.mt_bench import LikenessTurnJudge, WritingTurnJudge
    from vestige.steps.bench import TurnGrader

    grader = participants(first, "", who, place).grader
    if isinstance(grader.judge, GroundedJudge):
        return TurnGrader(LikenessTurnJudge(grader.judge), grader.identity, by_likeness=True)
    assert grader.writer is not None, "who is not grounded writes"
    return TurnGrader(WritingTurnJudge(grader.writer), grader.identity)


def _tell(found: "Benched", place: PlaceWords) -> None:
    if place.as_json:
        return print_json({"results": [to_json(r) for r in found.results], "notes": found.notes})
    _print_table(found.results)
    for note in found.notes:
        typer.echo(one_line(note, width=300))
    typer.echo(f"all numbers, parts of groups too, in {place.output_dir / 'bench.csv'}")


def _print_table(results: "Sequence[BenchResult]") -> None:
    """Tasks down, models across; parts of a group that has a number of its own are left to the files."""
    if not results:
        typer.echo("nothing could be measured")
        return
    groups = {r.task for r in results if r.parts}
    shown = [r for r in results if r.part_of not in groups]
    lines = list(dict.fromkeys((r.task, r.metric) for r in shown))
    at = {(r.model, r.task, r.metric): r for r in shown}
    first = [_first_column(lines, at)]
    columns = []
    for model in dict.fromkeys(r.model for r in shown):
        cells = [at.get((model, *line)) for line in lines]
        columns.append([one_line(model), *("" if r is None else _cell(r) for r in cells)])
    print_columns("benchmarks, 95 % intervals; below each its difference to the first", first, columns)


def _first_column(lines: Sequence[tuple[str, str]], at: "Mapping[tuple[str, str, str], BenchResult]") -> list[str]:
    """What each line is: task, metric, number of questions, and how many of its parts a group's number is over."""
    said = ["task, metric, n"]
    for task, metric in lines:
        one = next(r for (_, *line), r in at.items() if tuple(line) == (task, metric))
        parts = f", {len(one.parts)} of {one.of_parts} parts" if one.parts else ""
        said.append(one_line(f"{task}, {metric}, {one.n}{parts}", width=80))
    return said


def _cell(result: "BenchResult") -> str:
    apart = "" if result.difference is None else f"\n{result.difference.said(3, '+')}"
    return f"{result.value.said(3)}{apart}"
