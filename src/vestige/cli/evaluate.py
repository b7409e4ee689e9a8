"""Commands that ask models: `vestige evaluate` and `vestige bench`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    Alternatives,
    AsJson,
    Data,
    Evals,
    EvidenceDir,
    Name,
    Retain,
    Role,
    Seed,
    SubjectName,
    Verify,
)
from vestige.cli.output import refuse_torchrun, say
from vestige.cli.progress import progress_bar
from vestige.cli.requests import evals_from, model_from, source_from, splits_from
from vestige.cli.tables import print_results
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import EvalFolder
    from vestige.steps.evaluate import EvaluateRequest, Subject

EVALUATIONS = tuple(
    Part(f"vestige.evals.{module}:{kind}Settings", f"Evaluation {name}", name)
    for name, module, kind in (
        ("qa", "qa", "QA"),
        ("choices", "choices", "Choices"),
        ("reversed", "reversed", "Reversed"),
        ("freeform", "freeform", "Freeform"),
        ("memory", "memory", "Memory"),
        ("exposure", "exposure", "Exposure"),
        ("acr", "compression", "Acr"),
    )
)


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
    max_new_tokens: Annotated[
        int, typer.Option(help="Longest reply, in tokens; a longer one counts as truncated.")
    ] = 64,
    pistol: Annotated[
        bool, typer.Option("--pistol", help="Also MRR and top-hit ratio as PISTOL's released code computes them.")
    ] = False,
    output_dir: EvidenceDir = None,
    role: Role = "base",
    name: Name = None,
    seed: Seed = 0,
    verify: Verify = False,
    as_json: AsJson = False,
    *,
    given: Given,
) -> None:
    """Ask SUBJECT every question of the data set; print estimates by split, with intervals and n.

    The records of every item and the summary are kept; the same command goes on where a stopped one ended.
    """
    refuse_torchrun("evaluate")
    from vestige.data.corpus import everything

    exposure = "exposure" in [name.strip() for name in evals.split(",")]
    if alternatives is not None and not exposure:
        raise InputError("--alternatives is for the evaluation exposure; name it with --evals")
    source = source_from(given, data)
    splits = splits_from(source, forget, retain, subject, exposure=exposure, alternatives=alternatives)

    from vestige.artifacts.provenance import control_tokens_told
    from vestige.artifacts.records import read_summary, result_rows
    from vestige.steps.evaluate import EvaluateRequest, view_of
    from vestige.steps.subjects import any_subject

    asked = evals_from(given, evals, max_new_tokens=max_new_tokens, pistol=pistol)
    model = model_from(given, subject)
    dtype = given.values.get("dtype")
    who = any_subject(model, output_dir, role=role, name=name or "", dtype=dtype, verify=verify)
    if strange := who.spec.not_forgotten([i.id for i in splits.splits.get("forget", ())]):
        own = " and ".join(one.name for one in who.spec.forgotten)
        say(
            f"{who.spec.name} was made without {one_line(own)}; {strange} of the {len(splits.splits['forget'])} "
            f"questions of the forget set {one_line(splits.forget)} are not among what it forgot"
        )
    places = []
    for eval_name, settings in asked.items():
        request = EvaluateRequest(everything([splits]), (view_of(splits),), settings, seed, eval_name)
        places.append(_evaluate(who, request))
    for told in dict.fromkeys(control_tokens_told(place.provenance) for place in places):
        if told:
            say(told)
    summaries = [read_summary(place.summary(splits.forget)) for place in places]
    if as_json:
        evidence = {s.eval: str(place.path) for s, place in zip(summaries, places, strict=True)}
        typer.echo(json.dumps({"evidence": evidence, "results": result_rows(summaries)}, indent=2))
        return
    for summary, place in zip(summaries, places, strict=True):
        print_results(summary)
        for how in sorted({r.estimate.interval for r in summary.results if r.estimate.metric == "leaked_corrected"}):
            typer.echo(f"leaked_corrected: {how} (labelled replies)")
        typer.echo(f"evidence in {place.path}")


def _evaluate(subject: "Subject", request: "EvaluateRequest") -> "EvalFolder":
    from vestige.steps.evaluate import evaluate

    with progress_bar(f"evaluating {request.eval}") as show:
        return evaluate(subject, request, lambda done, of: show(done / of, f"{done} of {of}"))
