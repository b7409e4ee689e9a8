"""`vestige evaluate`: asks a model."""

from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    Alternatives,
    Data,
    Evals,
    EvidenceOptions,
    Longest,
    PublishedAs,
    Retain,
    SubjectName,
    corpus_from,
    data_words,
    eval_names,
    evals_from,
    say_notes,
)
from vestige.cli.output import progress_bar, refuse_torchrun, say, say_next
from vestige.cli.tables import print_json, print_results
from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.evals import EVALS

if TYPE_CHECKING:
    from vestige.steps.evaluate import Subject


EVALUATIONS = tuple(Part(home, f"Evaluation {name}", name) for name, home in EVALS.items())


@command(
    SOURCE,
    MODEL,
    *EVALUATIONS,
    common="data forget retain evals output_dir role name max_new_tokens seed device as_json config",
)
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
    evidence: EvidenceOptions,
    typed: Given,
) -> None:
    """Evaluate SUBJECT on the data set; print estimates by split, with intervals and n.

    Keeps per-item records and the summary; the same command resumes a stopped run.
    """
    refuse_torchrun("evaluate")
    # Before the imports below: torch takes seconds, and a mistyped name should not.
    names = eval_names(evals)
    if alternatives is not None and "exposure" not in names:
        raise InputError("--alternatives is for the evaluation exposure; name it with --evals")
    from vestige import requests
    from vestige.artifacts.provenance import odd_tokens_told
    from vestige.artifacts.records import read_summary, result_rows
    from vestige.data.alternatives import with_alternatives
    from vestige.data.loaders import published_of
    from vestige.steps.evaluate import check_published, evaluate, requests_of

    # A model that the pack has no figures of is refused before anything is read.
    figures = published_of(data, subject, published)
    settings = evals_from(typed, names, max_new_tokens=max_new_tokens, pistol=pistol)
    corpus = corpus_from(typed, data)
    splits = requests.questions(corpus, forget, retain, models=[subject])
    if forget is not None:
        splits = with_alternatives(corpus, splits, alternatives) if "exposure" in names else splits
        say_notes(splits, alternatives=True)
    evaluated = evidence.subject(typed, subject)
    if strange := evaluated.spec.not_forgotten([item.id for item in splits.splits.get("forget", ())]):
        earlier = " and ".join(forgotten.name for forgotten in evaluated.spec.forgotten)
        say(
            f"{evaluated.spec.name} was made without {one_line(earlier)}; {strange} of the "
            f"{len(splits.splits['forget'])} questions of the forget set {one_line(splits.forget)} are not among what "
            "it forgot"
        )
    # A model that does not show its own published figures is not loaded or asked as it was: all else would mislead.
    if figures is not None:
        check_published(evaluated, *figures, seed=evidence.seed)
    folders = []
    for request in requests_of(splits, settings, evidence.seed):
        with progress_bar(f"evaluating {request.settings.name}") as show:
            folders.append(evaluate(evaluated, request, lambda done, of: show(done / of, f"{done} of {of}")))
    # The note is on the model, and stands in the provenance of each of its evaluations.
    for note in dict.fromkeys(odd_tokens_told(folder.provenance) for folder in folders):
        if note:
            say(note)
    summaries = [read_summary(folder.summary(splits.forget)) for folder in folders]
    if evidence.as_json:
        places = {s.eval: str(folder.path) for s, folder in zip(summaries, folders, strict=True)}
        return print_json({"evidence": places, "results": result_rows(summaries)})
    for summary, folder in zip(summaries, folders, strict=True):
        print_results(summary)
        for how in sorted({r.estimate.interval for r in summary.results if r.estimate.metric == "leaked_corrected"}):
            typer.echo(f"leaked_corrected: {how} (labelled replies)")
        typer.echo(f"evidence in {folder.path}")
    _say_next(evaluated, subject, data_words(typed, data, forget or "FORGET"))


def _say_next(subject: "Subject", name: str, words: tuple[str, ...]) -> None:
    """What follows from the role of the model; capitals stand for what only the user knows."""
    if subject.spec.subject == "unlearned":
        models = ("--target", "TARGET", "--unlearned", name, "--retrained", "CONTROL")
        say_next("audit", "--quick", *models, *words, "--output-dir", "RUN")
    elif subject.spec.subject == "target":
        say_next("unlearn", name, "--method", "npo_gd", *words, "--learning-rate", "RATE", "--output-dir", "UNLEARNED")
