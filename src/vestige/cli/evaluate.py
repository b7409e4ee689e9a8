"""`vestige evaluate`: asks a model."""

import json
from collections.abc import Callable, Sequence
from functools import partial
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
from vestige.cli.tables import print_results
from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.evals import EVALS

if TYPE_CHECKING:
    from vestige.artifacts.layout import EvalFolder
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

    from vestige.artifacts.provenance import odd_tokens_told
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
    for told in dict.fromkeys(odd_tokens_told(place.provenance) for place in places):
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
