"""`vestige unlearn`: make a model forget part of what it was taught."""

from dataclasses import replace
from typing import Annotated

import typer

from vestige.cli.asked import split_method_settings
from vestige.cli.data_words import DataWords
from vestige.cli.foreseen import print_forecast
from vestige.cli.forgetting import ForgetWords, asked_unlearning, rate_in_words
from vestige.cli.options import (
    AsJson,
    ChatTemplate,
    Config,
    Data,
    Device,
    DryRun,
    Forget,
    Fresh,
    Idk,
    Method,
    OutputDir,
    OwnDtype,
    Parallel,
    Reference,
    ReportTo,
    Save,
    Seed,
    Set,
    Target,
    TrustRemoteCode,
)
from vestige.cli.spread import spread
from vestige.cli.training import Output, Tracked, make_in
from vestige.cli.trajectory import ChooseBy, Pace, Retrained, StopWhen, TrajectoryWords, asked_trajectory


@spread
def unlearn_command(
    target: Target,
    method: Method,
    data: Data,
    forget: Forget,
    output_dir: OutputDir,
    reference: Reference = None,
    idk: Idk = None,
    base: Annotated[str | None, typer.Option(help="For retrain: the model to begin with, if TARGET is silent.")] = None,
    every: Pace = None,
    stop_when: StopWhen = None,
    choose: ChooseBy = None,
    retrained: Retrained = None,
    parallel: Parallel = None,
    dry_run: DryRun = False,
    save: Save = "merged",
    report_to: ReportTo = None,
    config: Config = None,
    assignments: Set = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: OwnDtype = None,
    trust_remote_code: TrustRemoteCode = False,
    chat_template: ChatTemplate = "",
    fresh: Fresh = False,
    as_json: AsJson = False,
    *,
    rows: DataWords,
) -> None:
    """Make TARGET forget a part of the data by one method.

    Settings of the method itself carry its name: --set dpo.beta=0.2. The method retrain makes TARGET again as it was
    made, less the forget set; for a model from elsewhere --base, --config and --set say how. The output folder holds
    the unlearned model (a Hugging Face folder in model/), the log of its training and what made it.

    With --every, --stop-when or --choose the model is scored while it trains, on validation items (--set
    trajectory.items=64 and trajectory.metric=rouge1_recall say which): forget, retain, forget_nll and retain_nll. The
    curve is in train/trajectory.jsonl. Exit code 7 says that no checkpoint met --choose; the nearest is kept.
    """
    source = rows.source(data)
    validation, others = split_method_settings("trajectory", assignments)
    words = ForgetWords(method, forget, rows.retain, reference, idk, config, others, seed, base)
    watched = TrajectoryWords(every, stop_when, choose, retrained, validation)

    from vestige.models.load import ModelSettings
    from vestige.steps.making import pick_form
    from vestige.steps.subjects import own_dtype
    from vestige.steps.unlearn import unlearn, unlearn_spec
    from vestige.training.parallel import pick_kind, planned_world

    asked_dtype = dtype or own_dtype(target) or "float32"
    settings = ModelSettings(
        model=target, device=device, dtype=asked_dtype, trust_remote_code=trust_remote_code, chat_template=chat_template
    )
    asked = asked_unlearning(settings, source, words, read=not dry_run)
    kind = pick_kind(parallel)
    if dry_run:
        from vestige.steps.dry_run import forecast_unlearning

        print_forecast(forecast_unlearning(asked.unlearning, planned_world(kind)), as_json=as_json)
        return
    trajectory = asked_trajectory(watched, settings, asked.splits, seed=seed)
    request = replace(asked.unlearning, trajectory=trajectory, save=pick_form(save))
    output = Output(output_dir, fresh, (target, data, forget, rows.retain, reference, base, retrained), as_json)
    spec = unlearn_spec(request)
    tracking = Tracked(report_to, request.name, spec.id, spec.settings)
    make_in(output, tracking, kind, rate_in_words(request), lambda folder, *hooks: unlearn(folder, request, *hooks))
