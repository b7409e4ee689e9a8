"""`vestige evaluate`: ask a model every question and say what it still answers."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import refuse_torchrun, say, split_method_settings
from vestige.cli.data_words import DataWords
from vestige.cli.options import (
    Alternatives,
    AsJson,
    ChatTemplate,
    Data,
    Device,
    Seed,
    TrustRemoteCode,
    Verify,
)
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.cli.tables import print_results
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import EvalFolder
    from vestige.core.settings import Settings
    from vestige.steps.evaluate import EvaluateRequest, Subject


@spread
def evaluate_command(
    subject: Annotated[str, typer.Argument(help="A folder of `vestige finetune` or `unlearn`, or any model.")],
    data: Data,
    forget: Annotated[
        str | None,
        typer.Option(help="As for `vestige unlearn`; everything is one split without."),
    ] = None,
    output_dir: Annotated[
        str | None, typer.Option(help="Where the evidence goes; into the subject's own folder by default.")
    ] = None,
    role: Annotated[
        str, typer.Option(help="What a model from elsewhere is: base, target, retrained, unlearned.")
    ] = "base",
    name: Annotated[str | None, typer.Option(help="What to call a model from elsewhere in reports.")] = None,
    evals: Annotated[str, typer.Option(help="Evaluations, apart by commas: see `vestige list evals`.")] = "qa",
    alternatives: Alternatives = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="EVAL.KEY=VALUE", help="A setting of one evaluation: choices.orders=cyclic."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest reply; a longer one counts as truncated.")] = 64,
    pistol: Annotated[
        bool, typer.Option("--pistol", help="Also MRR and top-hit ratio as PISTOL's released code computes them.")
    ] = False,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Annotated[
        str | None, typer.Option(help="Number format of a model from elsewhere (float32); Vestige's own have theirs.")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    chat_template: ChatTemplate = "",
    verify: Verify = False,
    as_json: AsJson = False,
    *,
    rows: DataWords,
) -> None:
    """Ask SUBJECT every question of the data set; print estimates by split, with intervals and n.

    With several --evals, in their order: its own words (qa), options (choices), and so on.

    Records, one an item, and the summary are kept; the same command goes on where a stopped one ended.
    """
    refuse_torchrun("evaluate")
    from vestige.data.corpus import everything

    exposure = "exposure" in [name.strip() for name in evals.split(",")]
    if alternatives is not None and not exposure:
        raise InputError("--alternatives is for the evaluation exposure; name it with --evals")
    splits = rows.splits(data, forget, subject, exposure=exposure, alternatives=alternatives)

    from vestige.artifacts.provenance import control_tokens_told
    from vestige.artifacts.records import read_summary, result_rows
    from vestige.models.load import ModelSettings
    from vestige.steps.evaluate import EvaluateRequest, view_of
    from vestige.steps.subjects import any_subject

    asked = eval_settings(evals, assignments or [], max_new_tokens=max_new_tokens, pistol=pistol)
    model = ModelSettings(
        model=subject,
        device=device,
        dtype=dtype or "float32",
        trust_remote_code=trust_remote_code,
        chat_template=chat_template,
    )
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


def eval_settings(
    evals: str, assignments: Sequence[str], *, max_new_tokens: int, pistol: bool
) -> "dict[str, Settings]":
    """The settings of each evaluation named, in their order; a word for one that is not named is refused."""
    from vestige.evals import find_eval

    names = list(dict.fromkeys(n.strip() for n in evals.split(",") if n.strip()))
    if not names:
        raise InputError("--evals names no evaluation; see `vestige list evals`")
    settings: dict[str, Settings] = {}
    left = list(assignments)
    for name in names:
        kind = find_eval(name).SETTINGS
        own, left = split_method_settings(name, left)
        shared = {"max_new_tokens": max_new_tokens, "pistol": pistol}
        values = {k: v for k, v in shared.items() if k in kind.model_fields} | own
        settings[name] = kind.build(values, where=f"settings of the evaluation {name}")
    if left:
        raise InputError(f"--set {one_line(left[0])!r}: begin with one of {', '.join(f'{n}.' for n in names)}")
    return settings
