"""`vestige finetune` and `vestige unlearn`, and what commands that train one model share.

Shared are the processes, the folder, the progress that is shown, and the result that is printed.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vestige.cli.asked import say, settings_from, split_method_settings
from vestige.cli.data_words import DataWords, TaughtWords, forgotten_by, say_notes
from vestige.cli.foreseen import print_forecast
from vestige.cli.forgetting import ForgetWords, asked_unlearning, rate_in_words
from vestige.cli.options import (
    AsJson,
    ChatTemplate,
    Config,
    Data,
    Device,
    DryRun,
    Dtype,
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
from vestige.cli.output import output_in
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.cli.trajectory import (
    ChooseBy,
    Pace,
    Retrained,
    StopWhen,
    TrajectoryWords,
    asked_trajectory,
    refuse_unmet,
    subject_json,
    subject_sentence,
)
from vestige.core.ids import content_id

if TYPE_CHECKING:
    from vestige.artifacts.layout import SubjectFolder
    from vestige.steps.making import Made
    from vestige.training.loop import Progress
    from vestige.training.parallel import Kind, World
    from vestige.training.tracking import Line

    Make: TypeAlias = Callable[[SubjectFolder, Callable[[Progress], None], World, Callable[[Line], None]], Made]


@dataclass(frozen=True)
class Output:
    """The folder of what is made, whether to start over there, what may not lie in it, and the form of what is said."""

    folder: Path
    fresh: bool
    inputs: tuple[str | None, ...]
    as_json: bool


@dataclass(frozen=True)
class Tracked:
    """Where the log goes besides, if anywhere, and what the run is called there."""

    to: str | None
    name: str
    id: str
    config: Mapping[str, Any]


def make_in(output: Output, tracking: Tracked, kind: "Kind | None", what: str, make: "Make") -> None:
    """Make a subject in the folder and say what it is; of several processes one writes, shows and speaks.

    `what` says in words what is done, before it begins and beside the progress.
    """
    from vestige.artifacts.layout import SubjectFolder
    from vestige.training.parallel import joined
    from vestige.training.tracking import tracked

    with joined(kind) as world, contextlib.ExitStack() as held:
        if world.leads:
            place = output_in(output.folder, fresh=output.fresh, made_by=("spec.json",), inputs=output.inputs)
            held.enter_context(place)
            say(what)
        world.wait()
        to = tracking.to if world.leads else None
        with (
            progress_bar(what.partition(": ")[0], shown=world.leads) as show,
            tracked(to, name=tracking.name, id_=tracking.id, config=tracking.config) as send,
        ):
            made = make(
                SubjectFolder(output.folder),
                lambda p: show(p.step / p.n_steps, f"epoch {p.epoch}, loss {p.loss:.3f}"),
                world,
                send,
            )
    if world.leads:
        typer.echo(
            json.dumps(subject_json(output.folder, made), indent=2)
            if output.as_json
            else subject_sentence(output.folder, made)
        )
    refuse_unmet(output.folder, made)


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
    splits = say_notes(named_splits(corpus, forget)) if forget else None
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
