"""Commands that ask models: `vestige evaluate`, and `vestige bench` with general benchmarks and MT-bench."""

import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    Alternatives,
    Data,
    Evals,
    Longest,
    PublishedAs,
    Retain,
    SubjectName,
    Who,
    data_words,
    eval_names,
    evals_from,
    source_from,
    splits_from,
)
from vestige.cli.output import progress_bar, refuse_torchrun, say, say_next
from vestige.cli.probe import PARTS, JudgeOptions, Place, PlaceOptions, participants
from vestige.cli.tables import print_columns, print_json, print_results
from vestige.core.errors import InputError
from vestige.core.estimates import to_json
from vestige.core.text import one_line
from vestige.evals import EVALS

if TYPE_CHECKING:
    from vestige.artifacts.bench import BenchResult
    from vestige.artifacts.layout import EvalFolder
    from vestige.data.bench_rows import LocalData
    from vestige.steps.bench import Benched, MtBenchRequest, TurnGrader
    from vestige.steps.evaluate import Subject


EVALUATIONS = tuple(Part(place, f"Evaluation {name}", name) for name, place in EVALS.items())


@command(SOURCE, MODEL, *EVALUATIONS)
def evaluate_command(
    subject: SubjectName,
    data: Data,
    forget: Annotated[
        str | None, typer.Option(help="As for `vestige unlearn`; without it everything is one split.")
    ] = None,
    retain: Retain = None,
    evals: Evals = "qa",
    alternatives: Alternatives = None,
    max_new_tokens: Longest = 64,
    pistol: Annotated[
        bool, typer.Option("--pistol", help="Also MRR and top-hit ratio as PISTOL's released code computes them.")
    ] = False,
    published: PublishedAs = None,
    *,
    who: Who,
    given: Given,
) -> None:
    """Evaluate SUBJECT on the data set; print estimates by split, with intervals and n.

    Keeps per-item records and the summary; the same command resumes a stopped run.
    """
    refuse_torchrun("evaluate")
    names = eval_names(evals)
    if alternatives is not None and "exposure" not in names:
        raise InputError("--alternatives is for the evaluation exposure; name it with --evals")
    from vestige.data.loaders import published_of

    source, figures = source_from(given, data), published_of(data, subject, published)
    splits = splits_from(source, forget, retain, subject, exposure="exposure" in names, alternatives=alternatives)

    from vestige.artifacts.provenance import control_tokens_told
    from vestige.steps.evaluate import check_published, evaluate, requests_of

    asked = evals_from(given, names, max_new_tokens=max_new_tokens, pistol=pistol)
    evaluated = who.subject(given, subject)
    if strange := evaluated.spec.not_forgotten([i.id for i in splits.splits.get("forget", ())]):
        own = " and ".join(one.name for one in evaluated.spec.forgotten)
        say(
            f"{evaluated.spec.name} was made without {one_line(own)}; {strange} of the {len(splits.splits['forget'])} "
            f"questions of the forget set {one_line(splits.forget)} are not among what it forgot"
        )
    if figures is not None:
        check_published(evaluated, *figures, seed=who.seed)
    places = []
    for request in requests_of(splits, asked, who.seed):
        with progress_bar(f"evaluating {request.eval}") as show:
            places.append(evaluate(evaluated, request, partial(_show_items, show)))
    for told in dict.fromkeys(control_tokens_told(place.provenance) for place in places):
        if told:
            say(told)
    _tell(places, splits.forget, as_json=who.as_json)
    if not who.as_json:
        _say_next(evaluated, subject, data_words(given, data, forget or "FORGET"))


def _tell(places: "Sequence[EvalFolder]", forget: str, *, as_json: bool) -> None:
    """Print the estimates of each evaluation, and where its evidence lies."""
    from vestige.artifacts.records import read_summary, result_rows

    summaries = [read_summary(place.summary(forget)) for place in places]
    if as_json:
        evidence = {s.eval: str(place.path) for s, place in zip(summaries, places, strict=True)}
        typer.echo(json.dumps({"evidence": evidence, "results": result_rows(summaries)}, indent=2))
        return
    for summary, place in zip(summaries, places, strict=True):
        print_results(summary)
        for how in sorted({r.estimate.interval for r in summary.results if r.estimate.metric == "leaked_corrected"}):
            typer.echo(f"leaked_corrected: {how} (labelled replies)")
        typer.echo(f"evidence in {place.path}")


def _say_next(who: "Subject", name: str, words: tuple[str, ...]) -> None:
    """What follows from the role of the model; capitals stand for what only the user knows."""
    if who.spec.subject == "unlearned":
        models = ("--target", "TARGET", "--unlearned", name, "--retrained", "CONTROL")
        say_next("audit", "--quick", *models, *words, "--output-dir", "RUN")
    elif who.spec.subject == "target":
        say_next("unlearn", name, "--method", "npo_gd", *words, "--output-dir", "UNLEARNED")


def _show_items(show: Callable[[float, str], None], done: int, of: int) -> None:
    show(done / of, f"{done} of {of}")


TASKS = Part(
    "vestige.evals.harness:HarnessSettings",
    "Tasks",
    first=("limit", "shots"),
    renamed={"seed": "", "limit": "questions"},
)
CONVERSATIONS = Part(
    "vestige.evals.mt_bench:MtBenchSettings",
    "MT-bench",
    renamed={"max_tokens": "max_new_tokens", "per_category": "", "seed": ""},
)
_PARTS = tuple(PARTS[name] for name in ("judge", "grounded", "limits"))


@command(TASKS, CONVERSATIONS, *_PARTS, MODEL)
def bench_command(
    models: Annotated[list[str], typer.Argument(help="Models; the first is what the others are compared with.")],
    tasks: Annotated[
        str, typer.Option(help="Tasks of lm-evaluation-harness, comma-separated: arc_easy,mmlu,truthfulqa_mc1.")
    ] = "",
    task_data: Annotated[
        list[str] | None,
        typer.Option(
            "--task-data",
            metavar="FOLDER|TASK=PATH",
            help="Files with the rows of the tasks, in place of the hub. May be repeated.",
        ),
    ] = None,
    mt_bench: Annotated[
        Path | None, typer.Option(help="Folder of MT-bench's questions and references (FastChat's data/mt_bench).")
    ] = None,
    *,
    who: JudgeOptions,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Ask MODELS the same questions; print each task with its interval and the difference to the first model.

    Tasks need lm-evaluation-harness, the extra "lmeval"; MT-bench needs a judge. Results are kept in the output folder
    by the weights' digest and never recomputed.
    """
    refuse_torchrun("bench")
    place = Place(where, given, judges=[who.judge])
    # The harness speaks of itself at length, and of a model that is handed to it as of a risk.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    bars = sys.stderr.isatty()
    if not bars:
        os.environ.setdefault("TQDM_DISABLE", "1")
    from vestige.artifacts.bench import BenchFolder
    from vestige.evals.harness import HarnessSettings
    from vestige.judges.spending import other_models
    from vestige.models.address import is_address, shown_address
    from vestige.steps.bench import BenchRequest, Entrant, bench

    served = next((model for model in models if is_address(model)), None)
    if tasks and served is not None:
        raise InputError(
            f"{shown_address(served)} is behind an address, and tasks of lm-evaluation-harness need its weights; leave "
            "--tasks out and ask --mt-bench alone, or name the model's folder"
        )
    settings = given.build(HarnessSettings)
    request = BenchRequest(
        tasks=tuple(word.strip() for word in tasks.split(",") if word.strip()),
        data=_local(task_data),
        settings=settings,
        mt_bench=None if mt_bench is None else _mt_bench(mt_bench, settings.limit, models, who, place),
        seed=place.seed,
        bars=bars,
        on_stage=say,
    )
    entrants = [Entrant(name, partial(place.asked, model)) for name, model in _names(models).items()]
    found = bench(BenchFolder(place.output_dir), entrants, request)
    _tell_bench(found._replace(notes=(*found.notes, *other_models(place.folder.judge))), place)


def _names(models: Sequence[str]) -> dict[str, str]:
    """A short name for each model: the last part of its path, where that tells them apart."""
    from vestige.models.address import address, is_address

    short = [address(model).model if is_address(model) else Path(model).name or model for model in models]
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
    folder: Path, limit: int | None, models: Sequence[str], who: JudgeOptions, place: Place
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
    settings = place.given.build(MtBenchSettings, None, per_category=limit, seed=place.seed)
    grader = partial(_turn_grader, models[0], who, place, folder)
    return MtBenchRequest(read_mt_bench(folder, limit=limit), settings, grader)


def _turn_grader(first: str, who: JudgeOptions, place: Place, folder: Path) -> "TurnGrader":
    """The judge of turns, with all that can change a rating."""
    from vestige.core.ids import content_id
    from vestige.judges.grounded import GroundedJudge
    from vestige.judges.mt_bench import LikenessTurnJudge, WritingTurnJudge, published_wording
    from vestige.probes.answering import AnswerSettings
    from vestige.steps.bench import TurnGrader

    grader = participants(first, "", who, place, AnswerSettings()).grader
    if isinstance(grader.judge, GroundedJudge):
        return TurnGrader(LikenessTurnJudge(grader.judge), grader.identity, by_likeness=True)
    if grader.writer is None:
        raise InputError(f"MT-bench is graded by grounded, local or server, and not by {one_line(who.judge)}")
    wording = published_wording(folder)
    return TurnGrader(WritingTurnJudge(grader.writer, wording), {**grader.identity, "wording": content_id(wording)})


def _tell_bench(found: "Benched", place: Place) -> None:
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
