"""Commands that train models: `vestige finetune`, `unlearn` and `calibrate`."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    TRAINING,
    UNLEARNING,
    AsJson,
    BaseModel,
    Data,
    DryRun,
    Fresh,
    LeftOut,
    OutputDir,
    Parallel,
    Retrained,
    Save,
    Seed,
    Target,
    TrainFactual,
    Unlearning,
    Workers,
    data_words,
    finetuning,
    model_from,
    rate_in_words,
    say_factual,
    say_notes,
    source_from,
    trajectory_from,
    unlearning_from,
)
from vestige.cli.output import output_in, progress_bar, refuse_torchrun, say, say_next
from vestige.cli.probe import harm_grader
from vestige.cli.tables import print_json, print_table
from vestige.core.errors import GoalNotReached, InputError

if TYPE_CHECKING:
    from vestige.artifacts.layout import SubjectFolder
    from vestige.data.corpus import Corpus, NamedSplits
    from vestige.steps.dry_run import Forecast
    from vestige.steps.making import Made
    from vestige.studies.calibrate import CalibrateSettings, Calibration
    from vestige.training.loop import Progress
    from vestige.training.parallel import Kind, World

    Make: TypeAlias = Callable[[SubjectFolder, Callable[[Progress], None], World], Made]

WATCH = Part("vestige.training.trajectory:TrajectorySettings", "Trajectory", first=("every", "stop_when", "choose"))
CHECKED = Part("vestige.steps.trajectory:ValidationSettings", "Trajectory", "trajectory")


@dataclass(frozen=True)
class Output:
    """The folder of what is made, whether to start over there, and the form of what is printed."""

    output_dir: OutputDir
    fresh: Fresh = False
    as_json: AsJson = False

    @property
    def subject(self) -> "SubjectFolder":
        """The folder of the model that is made."""
        from vestige.artifacts.layout import SubjectFolder

        return SubjectFolder(self.output_dir)

    def held(self, *inputs: str | None, made_by: str = "spec.json") -> AbstractContextManager[None]:
        """The folder, ready to work in; none of the `inputs` may lie there."""
        return output_in(self.output_dir, fresh=self.fresh, made_by=(made_by,), inputs=inputs)


@dataclass(frozen=True)
class Trained:
    """How one training is made and kept, by one process or several."""

    parallel: Parallel = None
    save: Save = "merged"
    dry_run: DryRun = False


@dataclass(frozen=True)
class Making:
    """A subject to be made: what `make` does in words, and what it is made from."""

    what: str
    inputs: tuple[str | None, ...]
    make: "Make"

    def run(self, output: Output, trained: Trained, kind: "Kind | None", then: "Callable[[Made], None]") -> None:
        """Make it and say what it is, `then` what follows; of several processes one writes, shows and speaks."""
        from vestige.training.parallel import joined

        with joined(kind) as world, contextlib.ExitStack() as held:
            if world.leads:
                held.enter_context(output.held(*self.inputs))
                say(self.what)
            world.wait()
            show = held.enter_context(progress_bar(self.what.partition(": ")[0], shown=world.leads))
            made = self.make(
                output.subject,
                lambda p: show(p.step / p.n_steps, f"epoch {p.epoch}, loss {p.loss:.3f}"),
                world,
            )
        if world.leads:
            _tell_made(output, made)
            if not output.as_json:
                then(made)
        if made.chosen and not made.chosen.met:
            raise GoalNotReached(
                f"{output.output_dir}: {made.chosen.why}, and was kept (step {made.chosen.step}); train longer, or at "
                "another learning rate"
            )


def _to_teach(given: Given, data: str, forget: str | None, *, factual: bool) -> "tuple[Corpus, NamedSplits | None]":
    """The data that a model is taught, and its splits where a part is left out; prints what was noted on them."""
    from vestige.data.corpus import named_splits, open_corpus

    corpus = open_corpus(source_from(given, data))
    splits = say_notes(named_splits(corpus, forget)) if forget else None
    say_factual(corpus, taught=factual)
    return corpus, splits


def print_forecast(forecast: "Forecast", *, as_json: bool) -> None:
    """Print what a training would take, for people, or as JSON with sizes in bytes; one process does."""
    if forecast.rank != 0:
        return
    if as_json:
        return print_json(forecast)
    memory, n = forecast.memory, forecast.n_processes
    processes = "1 process" if n == 1 else f"{n} processes ({forecast.kind})"
    typer.echo(
        f"{forecast.steps} steps of {forecast.batch_size} rows in {forecast.n_parts} parts, {processes}; "
        f"{forecast.n_trained:,} of {forecast.n_parameters:,} parameters trained\n"
        f"memory of each process on {forecast.device}, estimated; nothing was trained:"
    )
    for name in ("parameters", "gradients", "optimizer", "activations", "peak"):
        typer.echo(f"  {name:<12}{getattr(memory, name) / 1e6:>12,.1f} MB")


def _tell_made(output: Output, made: "Made") -> None:
    """A finished subject as JSON, or in one sentence."""
    if output.as_json:
        found: dict[str, Any] = {"output_dir": str(output.output_dir), "digest": made.digest.id}
        found |= {"steps": made.steps, "stopped": made.stopped}
        return print_json(found | ({"chosen": asdict(made.chosen)} if made.chosen else {}))
    kept = f"; kept step {made.chosen.step}, {made.chosen.why}" if made.chosen else ""
    steps = f"{made.steps} step{'s' * (made.steps != 1)}"
    typer.echo(f"{output.output_dir}: {steps}, {made.stopped}{kept}; model {made.digest.id[:12]}")


@command(TRAINING, SOURCE, MODEL)
def finetune_command(
    model: BaseModel,
    data: Data,
    forget: LeftOut = None,
    train_factual: TrainFactual = False,
    name: Annotated[str | None, typer.Option(help="Name of the model in reports.")] = None,
    seed: Seed = 0,
    *,
    trained: Trained,
    output: Output,
    given: Given,
) -> None:
    """Train MODEL on a data set; with --forget, on all items but those.

    The output folder holds the model (a Hugging Face folder in model/), its training log and its provenance.
    `builtin:tiny` has its own default settings, everything else PISTOL's.
    """
    given.refuse_others()
    asked = finetuning(given, model)
    corpus, splits = _to_teach(given, data, forget, factual=train_factual)

    from vestige.steps.finetune import finetune, finetune_request
    from vestige.training.parallel import pick_kind, planned_world

    start = model_from(given, model)
    request = finetune_request(
        start, corpus, splits, asked, name=name, seed=seed, factual=train_factual, save=trained.save
    )
    kind = pick_kind(trained.parallel)
    if trained.dry_run:
        from vestige.steps.dry_run import forecast_finetuning

        return print_forecast(forecast_finetuning(request, planned_world(kind)), as_json=output.as_json)
    making = Making(
        f"fine-tuning: learning rate {asked.learning_rate:g}",
        (model, data, forget),
        lambda folder, *hooks: finetune(folder, request, *hooks),
    )
    following = ("evaluate", output.output_dir, *data_words(given, data, forget))
    making.run(output, trained, kind, lambda _: _say_learnt(output.subject, following))


_LEARNT = 1.0
"""Nats a token. Trainings whose answers were exact ended at 0.3 and below, one that had learnt nothing at 7."""


def _say_learnt(folder: "SubjectFolder", then: Sequence[object]) -> None:
    """Say the mean loss of the last epoch, what to do where answers cannot be exact yet, and what comes next."""
    from vestige.artifacts.records import read_training_log

    steps = read_training_log(folder.training_log)
    last = [step["loss"] for step in steps if step["epoch"] == steps[-1]["epoch"]]
    if last:
        loss = sum(last) / len(last)
        more = (
            "; answers are hardly exact at that: train longer (--epochs), faster (--learning-rate), or all weights "
            "(--lora-rank 0), with --fresh into the same folder"
        )
        say(f"last epoch: mean loss {loss:.2f} nats a token{more if loss > _LEARNT else ''}")
    say_next(*then)


@command(UNLEARNING, WATCH, CHECKED, SOURCE, MODEL)
def unlearn_command(
    target: Target,
    data: Data,
    base: Annotated[
        str | None, typer.Option(help="Method retrain: the model to begin with, if TARGET does not record it.")
    ] = None,
    retrained: Retrained = None,
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
    trained: Trained,
    output: Output,
    words: Unlearning,
    given: Given,
) -> None:
    """Unlearn part of the data from TARGET by one method.

    Prefix the method's settings with its name: --set dpo.beta=0.2 (`vestige list settings dpo`). The method retrain
    repeats TARGET's training without the forget set; for an external model, give --base and settings. The output folder
    holds the unlearned model (a Hugging Face folder in model/), its training log and its provenance.

    With a trajectory option, the model is scored during training on validation items: forget, retain,
    forget_nll, retain_nll, and harm with --harm-judge. The curve is in train/trajectory.jsonl. Exit code 7: no
    checkpoint met --choose; the nearest is kept.
    """
    from vestige.steps.unlearn import unlearn
    from vestige.training.parallel import pick_kind, planned_world
    from vestige.training.trajectory import TrajectorySettings

    model, dry_run = model_from(given, target, as_made=True), trained.dry_run
    request, splits = unlearning_from(
        given, model, data, words, seed=seed, base=base, read=not dry_run, save=trained.save
    )
    kind = pick_kind(trained.parallel)
    if dry_run:
        from vestige.steps.dry_run import forecast_unlearning

        return print_forecast(forecast_unlearning(request, planned_world(kind)), as_json=output.as_json)
    watch, validation = given.of(TrajectorySettings), given.part("trajectory")
    harm = None
    if harm_judge:
        from vestige.judges.spec import judge_spec

        refuse_torchrun("unlearn --harm-judge")
        # What it says is kept beside the training's log.
        replies, device = output.output_dir / "train" / "judge", given.values.get("device", "auto")
        grader = harm_grader(judge_spec(harm_judge), replies, device, "--harm-judge")
        harm = grader.judge, grader.identity
    trajectory = trajectory_from(watch, validation, retrained, model, splits, seed=seed, harm=harm)
    request = replace(request, trajectory=trajectory)
    making = Making(
        rate_in_words(request),
        (target, data, words.forget, words.retain, words.reference, base, retrained),
        lambda folder, *hooks: unlearn(folder, request, *hooks),
    )
    questions = data_words(given, data, words.forget)
    making.run(output, trained, kind, lambda made: _say_state(output.subject, made, questions))


RUINED = 0.5
"""A model with less than this share of the target's score on the retain set is said to be ruined."""


def _say_state(folder: "SubjectFolder", made: "Made", questions: tuple[str, ...]) -> None:
    """Whether the model still answers what it was to keep, as its trajectory has it, or the command that tells."""
    from vestige.artifacts.records import read_trajectory

    points = read_trajectory(folder.trajectory)
    step = made.chosen.step if made.chosen else made.steps
    scores = {p.model: p.scores["retain"] for p in points if p.model != "policy" or p.step == step}
    if {"target", "policy"} <= scores.keys():
        kept, of = scores["policy"], scores["target"]
        ruined = kept < RUINED * of
        said = "ruined: it lost what it was to keep; take a lower --learning-rate" if ruined else "it kept the rest"
        say(f"retain score {kept:.3f}, the target's {of:.3f}: {said}")
    else:
        say("the next command shows what it still knows of the forget set, and whether the retain set was ruined")
    say_next("evaluate", folder.path, *questions)


SEARCH = Part(
    "vestige.studies.calibrate:CalibrateSettings",
    "Search",
    first=("rates", "metric", "validation_items"),
    renamed={"goal": "", "strength": "", "strengths": "", "rates": ""},
)
ASKED = Part("vestige.evals.qa:QASettings", "Search", renamed={"pistol": ""})


@command(SEARCH, ASKED, UNLEARNING, SOURCE, MODEL)
def calibrate_command(
    target: Target,
    data: Data,
    reach: Annotated[
        str | None, typer.Option(help="Maximise the retain score given this, as in 'forget<=0.3'.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Minimise the forget score given this, as in 'retain>=0.95'.")
    ] = None,
    rates: Annotated[
        str | None, typer.Option(help="Learning rates: LOW:HIGH:N in equal ratios (1e-6:1e-3:8), or a list.")
    ] = None,
    strength: Annotated[
        str | None, typer.Option(help="A setting of the method to search too, as in retain_weight=0.1:10:3.")
    ] = None,
    retrained: Annotated[
        str | None,
        typer.Option(help="A model that never saw the forget set; its score is the lowest --reach accepted."),
    ] = None,
    workers: Workers = None,
    seed: Seed = 0,
    *,
    output: Output,
    words: Unlearning,
    given: Given,
) -> None:
    """Find the learning rate at which METHOD reaches a goal best: chosen on some items, reported on the others.

    Every candidate is trained to its end, with the settings of `vestige unlearn`. The output folder keeps them, and in
    calibration.json their scores and the choice. Exit code 7: the goal cannot be reached with these rates.
    """
    refuse_torchrun("calibrate")
    from vestige.evals.qa import QASettings
    from vestige.studies.calibrate import (
        CalibrateRequest,
        CalibrateSettings,
        CalibrationFolder,
        calibrate,
        check_reach,
    )

    method = words.method
    settings = given.build(CalibrateSettings, goal=_one_goal(reach, keep), **_grid(method, rates, strength))
    asked, splits = unlearning_from(given, model_from(given, target, as_made=True), data, words, seed=seed)
    request = CalibrateRequest(asked, splits, given.build(QASettings), settings)
    place = CalibrationFolder(output.output_dir)
    if retrained is not None:
        from vestige.steps.subjects import asked_model

        check_reach(request, asked_model(model_from(given, retrained, as_made=True)).loaded)
    inputs = (target, data, words.forget, words.retain, words.reference)
    with output.held(*inputs, made_by="asked.json"), progress_bar(f"calibrating {method}") as show:
        found = calibrate(place.path, request, workers=workers, show=lambda s: show(s.share, s.at_work))
    _tell_calibration(found, place.cpu_seconds(), as_json=output.as_json)
    if not found.reached:
        raise GoalNotReached(_not_reached(found, settings, retrained))
    if not output.as_json and found.rate is not None:
        chosen = place.candidate(found.rate, found.strength).path
        say_next("evaluate", chosen, *data_words(given, data, words.forget))


def _one_goal(reach: str | None, keep: str | None) -> str:
    goals = [goal for goal in (reach, keep) if goal is not None]
    if len(goals) != 1:
        raise InputError("give one goal: --reach 'forget<=0.3' or --keep 'retain>=0.95'")
    if not goals[0].strip().startswith("forget" if reach is not None else "retain"):
        raise InputError(f"--reach bounds the forget score and --keep the retain score, and not {goals[0]!r}")
    return goals[0]


def _grid(method: str, rates: str | None, strength: str | None) -> dict[str, Any]:
    from vestige.studies.goals import parse_grid

    grid: dict[str, Any] = {} if rates is None else {"rates": parse_grid(rates)}
    if strength is not None:
        name, equals, values = strength.partition("=")
        if not equals:
            raise InputError(
                f"--strength {strength!r}: expected NAME=LOW:HIGH:N or NAME=V1,V2, as in retain_weight=0.1:10:3"
            )
        grid |= {"strength": name.strip().removeprefix(f"{method}."), "strengths": parse_grid(values)}
    return grid


def _not_reached(found: "Calibration", settings: "CalibrateSettings", retrained: str | None) -> str:
    if (end := found.end) is None:
        return f"training broke down at every rate; take lower ones than {min(settings.rates):g}"
    unknown = found.goal.startswith("forget") and retrained is None
    return (
        f"{found.goal} cannot be reached with these rates: the nearest, {found.chosen}, ends at forget "
        f"{end.forget:.3f}, retain {end.retain:.3f}; widen --rates, search a --strength, or set a lower "
        "goal" + (", such as the score of a model that never knew, which --retrained measures" if unknown else "")
    )


def _tell_calibration(found: "Calibration", cpu_seconds: float, *, as_json: bool) -> None:
    if as_json:
        return print_json({**asdict(found), "cpu_seconds": cpu_seconds})

    def scores(score: Any) -> list[str]:
        return ["" if value is None else f"{value:.3f}" for value in (score.forget, score.retain)]

    strong = [found.strength_name] if found.strength_name else []
    rows = [["target", *[""] * len(strong), "0", *scores(found.start), ""]]
    for one in found.candidates:
        named = [f"{one.rate:g}", *([] if one.strength is None else [f"{one.strength:g}"])]
        rows.append([*named, f"{one.score.steps}", *scores(one.score), one.fate])
    title = f"{found.method}, {found.forget}: {found.goal} in {found.metric}"
    print_table(title, ["rate", *strong, "steps", "forget", "retain", ""], rows)
    if found.end is not None:
        shown = {f"{r['split']}, {r['scope']}": r for r in found.test if r["metric"] == found.metric}
        typer.echo(f"{'chosen' if found.reached else 'nearest'}: {found.chosen}; on the items not chosen on:")
        for name, row in shown.items():
            if not name.startswith("edge:"):
                typer.echo(f"  {name}: {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}], n = {row['n']}")
        end, start = found.end.retain, found.start.retain
        if end is not None and start is not None and end < RUINED * start:
            typer.echo(
                f"retain score {end:.3f}, the target's {start:.3f}: ruined: at this rate it lost what it was to keep; "
                "set a goal by --keep, or a weaker one by --reach"
            )
    typer.echo(
        f"spent: {found.n_steps} steps, {found.n_tokens} tokens, {cpu_seconds:.0f} processor seconds, losers included"
    )
