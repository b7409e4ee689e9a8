"""`vestige evaluate`: ask a model every question and say what it still answers."""

import json
from typing import Annotated

import typer

from vestige.cli.options import (
    AnswerKey,
    AsJson,
    Data,
    DataConfig,
    Device,
    EdgeKey,
    Factual,
    KeepDuplicates,
    Limit,
    QuestionKey,
    Seed,
    Split,
    TrustRemoteCode,
)
from vestige.cli.progress import progress_bar
from vestige.cli.tables import print_results


def evaluate_command(
    subject: Annotated[str, typer.Argument(help="A folder of `vestige finetune` or `unlearn`, or any model.")],
    data: Data,
    forget: Annotated[str, typer.Option(help="Selector (edge:A_B, ...) or a file of items.")],
    output_dir: Annotated[
        str | None, typer.Option(help="Where the evidence goes; into the subject's own folder by default.")
    ] = None,
    role: Annotated[
        str, typer.Option(help="What a model from elsewhere is: base, target, retrained, unlearned.")
    ] = "base",
    name: Annotated[str | None, typer.Option(help="What to call a model from elsewhere in reports.")] = None,
    retain: Annotated[str | None, typer.Option(help="File of the items to keep; everything else by default.")] = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    edge_key: EdgeKey = None,
    split: Split = "train",
    data_config: DataConfig = None,
    limit: Limit = None,
    keep_duplicates: KeepDuplicates = False,
    factual: Factual = False,
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
    as_json: AsJson = False,
) -> None:
    """Ask SUBJECT every question of the data set; print estimates by split, with intervals and n.

    Records, one an item, and the summary are kept; the same command goes on where a stopped one ended.
    """
    from vestige.data.corpus import SourceSettings, everything, named_splits, open_corpus

    source = SourceSettings(
        data=data,
        question_key=question_key,
        answer_key=answer_key,
        edge_key=edge_key,
        split=split,
        config=data_config,
        limit=limit,
        keep_duplicates=keep_duplicates,
        factual=factual,
    )
    splits = named_splits(open_corpus(source), forget, retain=retain, seed=seed)

    from vestige.artifacts.records import read_summary, result_rows
    from vestige.evals.qa import QASettings
    from vestige.models.load import ModelSettings
    from vestige.steps.evaluate import EvaluateRequest, evaluate, view_of
    from vestige.steps.subjects import any_subject

    settings = ModelSettings(
        model=subject, device=device, dtype=dtype or "float32", trust_remote_code=trust_remote_code
    )
    request = EvaluateRequest(
        everything([splits]),
        (view_of(splits),),
        QASettings.build({"max_new_tokens": max_new_tokens, "pistol": pistol}),
        seed,
    )
    with progress_bar("evaluating") as show:
        place = evaluate(
            any_subject(settings, output_dir, role=role, name=name or "", dtype=dtype),
            request,
            lambda done, of: show(done / of, f"{done} of {of}"),
        )
    summary = read_summary(place.summary(forget))
    if as_json:
        typer.echo(json.dumps({"evidence": str(place.path), "results": result_rows([summary])}, indent=2))
    else:
        print_results(summary)
        typer.echo(f"evidence in {place.path}")
