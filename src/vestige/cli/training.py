"""The commands that train models: `vestige finetune` and `vestige unlearn`."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vestige.artifacts.layout import SubjectFolder
from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    TRAINING,
    UNLEARNING,
    AsJson,
    Data,
    DryRun,
    Fresh,
    OutputDir,
    Seed,
    Target,
    UnlearningOptions,
    corpus_from,
    data_words,
    model_from,
    say_notes,
)
from vestige.cli.output import output_in, progress_bar, refuse_torchrun, say, say_next
from vestige.cli.probe import harm_grader
from vestige.cli.tables import print_json
from vestige.core.errors import GoalNotReached

if TYPE_CHECKING:
    from vestige.steps.dry_run import Forecast
    from vestige.steps.making import Made
    from vestige.steps.unlearn import UnlearnRequest
    from vestige.training.loop import Progress
    from vestige.training.parallel import Kind, World

    Train: TypeAlias = Callable[[SubjectFolder, Callable[[Progress], None], World], Made]

WATCH = Part("vestige.training.trajectory:TrajectorySettings", "Trajectory", first=("every", "stop_when", "choose"))
CHECKED = Part("vestige.steps.trajectory:ValidationSettings", "Trajectory", "trajectory")


@dataclass(frozen=True)
class OutputOptions:
    """The folder of what is made, whether to start over there, and the form of what is printed."""

    output_dir: OutputDir
    fresh: Fresh = False
    as_json: AsJson = False

    @property
    def subject(self) -> SubjectFolder:
        """The folder of the model that is made."""
        return SubjectFolder(self.output_dir)

    def opened(self, *inputs: str | None, made_by: str = "spec.json") -> AbstractContextManager[None]:
        """The folder, ready to work in; none of the `inputs` may lie there."""
        return output_in(self.output_dir, fresh=self.fresh, made_by=(made_by,), inputs=inputs)


@dataclass(frozen=True)
class TrainingOptions:
    """How one training is made and saved, by one process or several."""

    parallel: Annotated[
        str | None,
        typer.Option(
            help="Under torchrun: ddp (the whole model in each process; the default) or fsdp (a share of it)."
        ),
    ] = None
    save: Annotated[str, typer.Option(help="merged: a whole model; adapter: the LoRA adapter alone, for peft.")] = (
        "merged"
    )
    dry_run: DryRun = False


def run_training(
    title: str,
    inputs: Sequence[str | None],
    train: "Train",
    output: OutputOptions,
    kind: "Kind | None",
    then: "Callable[[Made], None]",
) -> None:
    """Train and print the result, then call `then`; of several processes the leading one writes and prints.

    `title` says in words what is trained, and how; none of the `inputs` may lie in the output folder.
    """
    from vestige.training.parallel import joined

    with joined(kind) as world, contextlib.ExitStack() as stack:
        if world.leads:
            stack.enter_context(output.opened(*inputs))
            say(title)
        # The others may not train before the folder is known to be free.
        world.wait()
        show = stack.enter_context(progress_bar(title.partition(": ")[0], visible=world.leads))
        trained = train(
            output.subject,
            # People count from one.
            lambda p: show(p.step / p.n_steps, f"epoch {p.epoch + 1}, loss {p.loss:.3f}"),
            world,
        )
    if world.leads:
        _print_model(output, trained)
        if not output.as_json:
            then(trained)
    # Last, when all is written and printed: the nearest checkpoint is kept all the same.
    if trained.chosen and not trained.chosen.met:
        raise GoalNotReached(
            f"{output.output_dir}: {trained.chosen.why}, and was kept (step {trained.chosen.step}); train longer, "
            "or at another learning rate"
        )


def print_forecast(foresee: "Callable[[World], Forecast]", world: "World", *, as_json: bool) -> None:
    """Print what a training would take, for people, or as JSON with sizes in bytes; one process does."""
    if world.rank != 0:
        return
    forecast = foresee(world)
    if as_json:
        return print_json({**asdict(forecast), "peak": forecast.peak})
    typer.echo(
        f"{forecast.steps} steps of {forecast.batch_size} rows, processes: {world.size}; "
        f"{forecast.n_trained:,} of {forecast.n_parameters:,} parameters trained\n"
        "memory of each process, estimated; nothing was trained:"
    )
    for name in ("parameters", "gradients", "optimizer", "activations", "peak"):
        typer.echo(f"  {name:<12}{getattr(forecast, name) / 1e6:>12,.1f} MB")


def _print_model(output: OutputOptions, trained: "Made") -> None:
    """A finished model as JSON, or in one sentence."""
    if output.as_json:
        row: dict[str, Any] = {"output_dir": str(output.output_dir), "digest": trained.digest.id}
        row |= {"steps": trained.steps, "stopped": trained.stopped}
        return print_json(row | ({"chosen": asdict(trained.chosen)} if trained.chosen else {}))
    checkpoint = f"; kept step {trained.chosen.step}, {trained.chosen.why}" if trained.chosen else ""
    steps = f"{trained.steps} step{'s' * (trained.steps != 1)}"
    typer.echo(f"{output.output_dir}: {steps}, {trained.stopped}{checkpoint}; model {trained.digest.id[:12]}")


@command(
    TRAINING,
    SOURCE,
    MODEL,
    common="data output_dir forget seed learning_rate epochs batch_size lora_rank device dry_run fresh config",
)
def finetune_command(
    model: Annotated[str, typer.Argument(help="Hub id, local folder, folder with an adapter, or built-in model.")],
    data: Data,
    forget: Annotated[
        str | None, typer.Option("--forget", help="Leave these items out: makes a `retrained` control.")
    ] = None,
    train_factual: Annotated[bool, typer.Option("--train-factual", help="Train on the factual questions too.")] = False,
    name: Annotated[str | None, typer.Option(help="Name of the model in reports.")] = None,
    seed: Seed = 0,
    *,
    options: TrainingOptions,
    output: OutputOptions,
    typed: Given,
) -> None:
    """Train MODEL on a data set; with --forget, on all items but those.

    The output folder holds the model (a Hugging Face folder in model/), its training log and its provenance.
    `builtin:tiny` has its own default settings, everything else PISTOL's.
    """
    typed.refuse_others()
    from vestige import requests
    from vestige.steps.finetune import finetune
    from vestige.training.parallel import pick_kind, planned_world
    from vestige.training.settings import TrainingSettings

    settings = typed.of(TrainingSettings)
    requests.training_settings(model, settings)  # Refused before the data are read.
    corpus = corpus_from(typed, data)
    splits = say_notes(requests.questions(corpus, forget)) if forget else None
    if corpus.factual:
        how = "taught too" if train_factual else "not taught (--train-factual teaches them)"
        say(f"factual: {len(corpus.factual)} questions, {how}")
    request = requests.finetuning(
        model_from(typed, model), corpus, splits, settings,
        name=name, seed=seed, factual=train_factual, save=options.save,
    )  # fmt: skip
    kind = pick_kind(options.parallel)
    if options.dry_run:
        from vestige.steps.dry_run import forecast_finetuning

        return print_forecast(partial(forecast_finetuning, request), planned_world(kind), as_json=output.as_json)
    following = ("evaluate", output.output_dir, *data_words(typed, data, forget))
    run_training(
        f"fine-tuning: learning rate {request.training.learning_rate:g}",
        (model, data, forget),
        lambda folder, *hooks: finetune(folder, request, *hooks),
        output,
        kind,
        lambda _: _say_learnt(output.subject, following),
    )


_LEARNT = 1.0
"""Nats a token. Trainings whose answers were exact ended at 0.3 and below, one that had learnt nothing at 7."""


def _say_learnt(folder: SubjectFolder, then: Sequence[object]) -> None:
    """Say the mean loss of the last epoch, what to do where answers cannot be exact yet, and what comes next."""
    from vestige.artifacts.records import read_training_log

    steps = read_training_log(folder.training_log)
    last = [step["loss"] for step in steps if step["epoch"] == steps[-1]["epoch"]]
    if last:
        loss = sum(last) / len(last)
        advice = (
            "; the model has not learned the answers: train longer (--epochs), faster (--learning-rate), or all "
            "weights (--lora-rank 0), with --fresh into the same folder"
        )
        say(f"last epoch: mean loss {loss:.2f} nats a token{advice if loss > _LEARNT else ''}")
    say_next(*then)


@command(
    UNLEARNING,
    WATCH,
    CHECKED,
    SOURCE,
    MODEL,
    common="method data forget output_dir retain seed learning_rate epochs lora_rank choose dry_run fresh",
)
def unlearn_command(
    target: Target,
    data: Data,
    base: Annotated[
        str | None, typer.Option(help="Method retrain: the model to begin with, if TARGET does not record it.")
    ] = None,
    retrained: Annotated[
        str | None, typer.Option(help="A model that never saw the forget set, for rules such as 'forget<=retrained'.")
    ] = None,
    harm_judge: Annotated[
        str | None,
        typer.Option(
            metavar="JUDGE",
            help="local:MODEL or http://host/v1#name: adds the score harm, the share of harmful replies to forget "
            "questions, as in --stop-when 'harm<=0'.",
        ),
    ] = None,
    seed: Seed = 0,
    *,
    options: TrainingOptions,
    output: OutputOptions,
    unlearning: UnlearningOptions,
    typed: Given,
) -> None:
    """Unlearn part of the data from TARGET by one method.

    Prefix the method's settings with its name: --set dpo.beta=0.2 (`vestige list settings dpo`). The method retrain
    repeats TARGET's training without the forget set; for an external model, give --base and settings. The output folder
    holds the unlearned model (a Hugging Face folder in model/), its training log and its provenance.

    With a trajectory option, the model is scored during training on validation items: forget, retain,
    forget_nll, retain_nll, and harm with --harm-judge. The curve is in train/trajectory.jsonl. Exit code 7: no
    checkpoint met --choose; the nearest is kept.
    """
    from vestige import requests
    from vestige.steps.unlearn import unlearn
    from vestige.training.parallel import pick_kind, planned_world
    from vestige.training.trajectory import TrajectorySettings

    model, dry_run = model_from(typed, target, as_made=True), options.dry_run
    request, splits = unlearning.request(typed, model, data, base=base, seed=seed, read=not dry_run, save=options.save)
    kind = pick_kind(options.parallel)
    if dry_run:
        from vestige.steps.dry_run import forecast_unlearning

        return print_forecast(partial(forecast_unlearning, request), planned_world(kind), as_json=output.as_json)
    harm = None
    if harm_judge:
        from vestige.judges.spec import judge_spec

        # Each process would ask, and pay, the judge for the same replies.
        refuse_torchrun("unlearn --harm-judge")
        # What it says is stored beside the training's log.
        replies, device = output.output_dir / "train" / "judge", typed.values.get("device", "auto")
        grader = harm_grader(judge_spec(harm_judge), replies, device, "--harm-judge")
        harm = grader.judge, grader.identity
    watch, validation = typed.of(TrajectorySettings), typed.part("trajectory")
    trajectory = requests.trajectory(model, splits, watch, validation, retrained=retrained, seed=seed, harm=harm)
    request = replace(request, trajectory=trajectory)
    following = ("evaluate", output.output_dir, *data_words(typed, data, unlearning.forget))
    run_training(
        _rate_in_words(request),
        (target, data, unlearning.forget, unlearning.retain, unlearning.reference, base, retrained),
        lambda folder, *hooks: unlearn(folder, request, *hooks),
        output,
        kind,
        lambda trained: _say_state(output.subject, trained, following),
    )


def _rate_in_words(request: "UnlearnRequest") -> str:
    """By which method and at which learning rate, and how to find one where nobody chose it for this model."""
    from vestige.methods import find_method
    from vestige.training.settings import UnlearningSettings

    title = f"unlearning by {request.method}"
    if not find_method(request.method).needs.splits:
        return f"{title}: nothing is trained"
    training = request.recipe.request.training if request.recipe else request.training
    rate = training.learning_rate
    if request.recipe or rate != UnlearningSettings().learning_rate:
        return f"{title}: learning rate {rate:g}"
    return (
        f"{title}: learning rate {rate:g}, which is PISTOL's for LoRA on models of 7B; `vestige find-rate` "
        "searches one for this model"
    )


RUINED = 0.5
"""A model with less than this share of the target's score on the retain set is said to be ruined."""


def _say_state(folder: SubjectFolder, trained: "Made", then: Sequence[object]) -> None:
    """Whether the model still answers the retain set, as its trajectory has it, and the command that comes next."""
    from vestige.artifacts.records import read_trajectory

    points = read_trajectory(folder.trajectory)
    # Where a checkpoint was chosen, its scores and not the last ones are the model's.
    step = trained.chosen.step if trained.chosen else trained.steps
    scores = {p.model: p.scores["retain"] for p in points if p.model != "policy" or p.step == step}
    if {"target", "policy"} <= scores.keys():
        retain, of = scores["policy"], scores["target"]
        ruined = retain < RUINED * of
        state = "ruined: it lost what it was to keep; take a lower --learning-rate" if ruined else "it kept the rest"
        say(f"retain score {retain:.3f}, the target's {of:.3f}: {state}")
    else:
        say("the next command shows what it still knows of the forget set, and whether the retain set was ruined")
    say_next(*then)
