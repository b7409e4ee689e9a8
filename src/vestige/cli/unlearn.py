"""`vestige unlearn`: make a model forget part of what it was taught."""

import json
from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.asked import prepare_output, settings_from, split_method_settings
from vestige.cli.options import (
    AnswerKey,
    AsJson,
    Config,
    Data,
    DataConfig,
    Device,
    Dtype,
    EdgeKey,
    Fresh,
    KeepDuplicates,
    Limit,
    OutputDir,
    QuestionKey,
    Seed,
    Set,
    Split,
    TrustRemoteCode,
)
from vestige.cli.progress import progress_bar


def unlearn_command(
    target: Annotated[str, typer.Argument(help="The model that knows: a folder of `vestige finetune`, or any model.")],
    method: Annotated[str, typer.Option(help="One of `vestige list methods`.")],
    data: Data,
    forget: Annotated[str, typer.Option(help="Selector (edge:A_B, node:A, type:sales, ...) or a file of items.")],
    output_dir: OutputDir,
    retain: Annotated[str | None, typer.Option(help="File of the items to keep; everything else by default.")] = None,
    reference: Annotated[str | None, typer.Option(help="Frozen model inside the loss; the target by default.")] = None,
    idk: Annotated[Path | None, typer.Option(help="Text file of answers that decline to know, one a line.")] = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    edge_key: EdgeKey = None,
    split: Split = "train",
    data_config: DataConfig = None,
    limit: Limit = None,
    keep_duplicates: KeepDuplicates = False,
    config: Config = None,
    assignments: Set = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: TrustRemoteCode = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Make TARGET forget a part of the data by one method.

    Settings of the method itself carry its name: --set dpo.beta=0.2. The output folder holds the unlearned model (a
    Hugging Face folder in model/), the log of its training and what made it.
    """
    from vestige.data.corpus import SourceSettings, named_splits, open_corpus
    from vestige.data.factual import idk_answers, read_idk
    from vestige.methods import find_method
    from vestige.study.presets import tiny_unlearning
    from vestige.training.settings import UnlearningSettings

    find_method(method)
    own, words = split_method_settings(method, assignments)
    source = SourceSettings(
        data=data,
        question_key=question_key,
        answer_key=answer_key,
        edge_key=edge_key,
        split=split,
        config=data_config,
        limit=limit,
        keep_duplicates=keep_duplicates,
    )
    splits = named_splits(open_corpus(source), forget, retain=retain, seed=seed).splits
    answers = idk_answers() if idk is None else read_idk(idk)

    from vestige.artifacts.layout import SubjectFolder
    from vestige.models.load import ModelSettings
    from vestige.steps.subjects import weights_of
    from vestige.steps.unlearn import UnlearnRequest, unlearn

    settings = ModelSettings(model=target, device=device, dtype=dtype, trust_remote_code=trust_remote_code)
    origin = weights_of(settings)
    base = tiny_unlearning(method) if origin.model == "builtin:tiny" else {}
    asked = settings_from(UnlearningSettings, config, words, defaults=base)
    prepare_output(output_dir, fresh=fresh, made_by="spec.json", inputs=(target, data, forget, retain, reference))
    frozen = None if reference is None else settings.model_copy(update={"model": reference})
    request = UnlearnRequest(
        target=settings,
        target_weights=origin.weights,
        start=origin.model,
        method=method,
        method_settings=own,
        forget=forget,
        forget_items=splits["forget"],
        retain_items=splits.get("retain", ()),
        idk=answers,
        training=asked,
        seed=seed,
        reference=frozen,
        reference_weights="" if frozen is None else weights_of(frozen).weights,
    )
    with progress_bar(f"unlearning by {method}") as show:
        made = unlearn(
            SubjectFolder(output_dir),
            request,
            lambda p: show(p.step / p.n_steps, f"epoch {p.epoch}, loss {p.loss:.3f}"),
        )
    told = {"output_dir": str(output_dir), "weights": made.weights, "steps": made.steps, "stopped": made.stopped}
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo(f"{output_dir}: {made.steps} steps, {made.stopped}; weights {made.weights[:12]}")
