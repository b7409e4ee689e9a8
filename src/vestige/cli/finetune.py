"""`vestige finetune`: teach a model the answers of a data set."""

from typing import Annotated

import typer

from vestige.cli.asked import settings_from
from vestige.cli.data_words import TaughtWords, forgotten_by, told
from vestige.cli.foreseen import print_forecast
from vestige.cli.options import (
    AsJson,
    ChatTemplate,
    Config,
    Data,
    Device,
    DryRun,
    Dtype,
    Fresh,
    OutputDir,
    Parallel,
    ReportTo,
    Save,
    Seed,
    Set,
    TrustRemoteCode,
)
from vestige.cli.spread import spread
from vestige.cli.training import Output, Tracked, make_in
from vestige.core.ids import content_id


@spread
def finetune_command(
    model: Annotated[str, typer.Argument(help="Hub id, local folder, folder with adapter, .gguf file, or built-in.")],
    data: Data,
    output_dir: OutputDir,
    forget: Annotated[
        str | None, typer.Option(help="Leave these items out: the model becomes a `retrained` control.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the model in reports.")] = None,
    parallel: Parallel = None,
    dry_run: DryRun = False,
    save: Save = "merged",
    report_to: ReportTo = None,
    config: Config = None,
    assignments: Set = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: TrustRemoteCode = False,
    chat_template: ChatTemplate = "",
    fresh: Fresh = False,
    as_json: AsJson = False,
    *,
    rows: TaughtWords,
) -> None:
    """Teach MODEL the answers of a data set; with --forget, all of them but those.

    The output folder holds the model (a Hugging Face folder in model/), the log of its training and what made it.
    `builtin:tiny` gets the settings that were found for it, everything else PISTOL's; --config and --set change them.
    """
    from vestige.data.corpus import named_splits, open_corpus
    from vestige.study.presets import TINY_FINETUNE
    from vestige.training.settings import TrainingSettings

    base = TINY_FINETUNE.identity() if model == "builtin:tiny" else {}
    asked = settings_from(TrainingSettings, config, assignments, defaults=base)
    source = rows.source(data)
    corpus = open_corpus(source)
    everything = (*corpus.items, *corpus.factual)
    splits = told(named_splits(corpus, forget)) if forget else None
    taught = rows.taught(corpus, splits)
    left = splits.forget if splits else ""
    sets = (*forgotten_by(model), *([splits.resolved] if splits else []))
    # What the model is taught now is no longer forgotten.
    forgotten = tuple(dict.fromkeys(one for one in (own.less(taught) for own in sets) if one.items))

    from vestige.models.load import ModelSettings
    from vestige.steps.finetune import FinetuneRequest, finetune
    from vestige.steps.making import pick_form
    from vestige.training.parallel import pick_kind, planned_world

    request = FinetuneRequest(
        model=ModelSettings(
            model=model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, chat_template=chat_template
        ),
        items=taught,
        vocabulary=everything,
        training=asked,
        seed=seed,
        role="retrained" if left else "target",
        name=name or (f"retrained {left}" if left else "target"),
        forget=left,
        save=pick_form(save),
        forgotten=forgotten,
    )
    kind = pick_kind(parallel)
    if dry_run:
        from vestige.steps.dry_run import forecast_finetuning

        print_forecast(forecast_finetuning(request, planned_world(kind)), as_json=as_json)
        return
    run_id = content_id([str(output_dir.resolve()), request.name, seed, asked.identity()], length=12)
    output = Output(output_dir, fresh, (model, data, forget), as_json)
    tracking = Tracked(report_to, request.name, run_id, asked.identity())
    what = f"fine-tuning: learning rate {asked.learning_rate:g}"
    make_in(output, tracking, kind, what, lambda folder, *hooks: finetune(folder, request, *hooks))
