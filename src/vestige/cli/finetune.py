"""`vestige finetune`: teach a model the answers of a data set."""

import json
from typing import Annotated

import typer

from vestige.cli.asked import prepare_output, settings_from
from vestige.cli.options import (
    AnswerKey,
    AsJson,
    Config,
    Data,
    DataConfig,
    Device,
    Dtype,
    EdgeKey,
    Factual,
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


def finetune_command(
    model: Annotated[str, typer.Argument(help="Hub id, local folder, folder with adapter, .gguf file, or built-in.")],
    data: Data,
    output_dir: OutputDir,
    forget: Annotated[
        str | None, typer.Option(help="Leave these items out: the model becomes a `retrained` control.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the model in reports.")] = None,
    question_key: QuestionKey = None,
    answer_key: AnswerKey = None,
    edge_key: EdgeKey = None,
    split: Split = "train",
    data_config: DataConfig = None,
    limit: Limit = None,
    keep_duplicates: KeepDuplicates = False,
    factual: Factual = False,
    config: Config = None,
    assignments: Set = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: TrustRemoteCode = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Teach MODEL the answers of a data set; with --forget, all of them but those.

    The output folder holds the model (a Hugging Face folder in model/), the log of its training and what made it.
    `builtin:tiny` gets the settings that were found for it, everything else PISTOL's; --config and --set change them.
    """
    from vestige.data.corpus import SourceSettings, left_out, open_corpus
    from vestige.study.presets import TINY_FINETUNE
    from vestige.training.settings import TrainingSettings

    base = TINY_FINETUNE.identity() if model == "builtin:tiny" else {}
    asked = settings_from(TrainingSettings, config, assignments, defaults=base)
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
    corpus = open_corpus(source)
    everything = (*corpus.items, *corpus.factual)
    taught = left_out(corpus, forget, seed=seed) if forget else everything
    prepare_output(output_dir, fresh=fresh, made_by="spec.json", inputs=(model, data, forget))

    from vestige.artifacts.layout import SubjectFolder
    from vestige.models.load import ModelSettings
    from vestige.steps.finetune import FinetuneRequest, finetune

    request = FinetuneRequest(
        model=ModelSettings(model=model, device=device, dtype=dtype, trust_remote_code=trust_remote_code),
        items=taught,
        vocabulary=everything,
        training=asked,
        seed=seed,
        role="retrained" if forget else "target",
        name=name or (f"retrained {forget}" if forget else "target"),
        forget=forget or "",
    )
    with progress_bar("fine-tuning") as show:
        made = finetune(
            SubjectFolder(output_dir),
            request,
            lambda p: show(p.step / p.n_steps, f"epoch {p.epoch}, loss {p.loss:.3f}"),
        )
    told = {"output_dir": str(output_dir), "weights": made.weights, "steps": made.steps, "stopped": made.stopped}
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo(f"{output_dir}: {made.steps} steps, {made.stopped}; weights {made.weights[:12]}")
