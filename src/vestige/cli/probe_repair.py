"""`vestige probe harm` and `mitigate`: what an answer can harm, and repairing what went with the forget set."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import Given, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    Data,
    DryRun,
    Forget,
    Retain,
    say_notes,
    source_from,
    trajectory_from,
)
from vestige.cli.output import progress_bar, refuse_torchrun, say
from vestige.cli.probe import (
    ForgetN,
    JudgeOptions,
    Place,
    PlaceOptions,
    participants,
    placebo_names,
    refuse_idle_limits,
    searching_from,
    shown,
)
from vestige.cli.tables import counted, print_columns, print_cost, print_counts, print_json
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.holes import MitigationRow, MitigationTable, Way
    from vestige.core.estimates import Estimate
    from vestige.data.corpus import NamedSplits
    from vestige.probes.answering import AnswerSettings, Participants
    from vestige.probes.latent import Searching
    from vestige.probes.mitigation import Again, MitigationForecast, MitigationRequest, MitigationSettings


TargetName = Annotated[str, typer.Argument(help="The target model of the probe in the folder.")]
UnlearnedName = Annotated[
    str, typer.Argument(help="The model to repair: the unlearned one of the probe in the folder.")
]


@dataclass(frozen=True)
class RepairOptions:
    """In which way the model is mended, and what is looked at."""

    way: Annotated[
        str,
        typer.Option(
            help="gd: tune UNLEARNED on the target's own answers to prompts of the probe. kl: towards the target's "
            "distributions there. iterative: unlearn TARGET again, keeping such prompts, in several rounds."
        ),
    ] = "kl"
    method: Annotated[
        str | None,
        typer.Option(help="Way iterative: the method to unlearn by; by default UNLEARNED's own, with its settings."),
    ] = None
    harm: Annotated[
        bool, typer.Option("--harm", help="Score the forget set by harm, where what was to be forgotten is harmful.")
    ] = False
    searches: Annotated[
        str, typer.Option(help="How the repaired model is searched for new holes: latent, random, paraphrase, or none.")
    ] = "latent"
    policy: Annotated[str, typer.Option(help="The model that learns to ask questions; a small one is enough.")] = (
        "builtin:smollm2"
    )
    every: Annotated[
        str | None, typer.Option(help="How often to score the model: '1 epoch', '2 epochs' or '50 steps'.")
    ] = None
    choose: Annotated[
        str | None,
        typer.Option(help="Checkpoint to keep: last; 'forget<=0.3' (retains most); 'retain>=0.9' (the last of those)."),
    ] = None
    idk: Annotated[Path | None, typer.Option(help="Text file of answers such as 'I don't know', one per line.")] = None
    forget_n: ForgetN = None

    def checked(self) -> "Way":
        """The way of that name."""
        from vestige.artifacts.holes import WAYS
        from vestige.core.text import closest

        if self.method is not None and self.way != "iterative":
            raise InputError(f"--method goes with --way iterative, and the way is {one_line(self.way)}; leave it out")
        for way in WAYS:
            if way == self.way:
                return way
        raise InputError(f"--way {one_line(self.way)}: {closest(self.way, list(WAYS))}")


@command(
    *shown("mitigation", "training", "latent", "policy", "answers", "filter", "judge", "grounded", "limits"),
    SOURCE,
    MODEL,
)
def mitigate_command(
    target: TargetName,
    unlearned: UnlearnedName,
    data: Data,
    forget: Forget,
    retain: Retain = None,
    dry_run: DryRun = False,
    *,
    mend: RepairOptions,
    who: JudgeOptions,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Repair UNLEARNED with the prompts that a finished probe found, and report what else it restores.

    Settings of the method of --way iterative are --set method.KEY=VALUE. See docs/holes.md.
    """
    refuse_torchrun("probe mitigate")
    place = Place(where, given, "method", judges=[who.judge])
    from vestige.models.address import Limits
    from vestige.probes.mitigate import mitigate
    from vestige.probes.mitigation import forecast_mitigation, mitigation_folder, tested_in

    way = mend.checked()
    who.check()
    who.check_naming(place)
    # Before any model is loaded.
    tested_in(place.folder)
    if who.judge == "grounded" and mend.harm:
        raise InputError("--harm asks whether answers are harmful, which --judge grounded cannot say; take another")
    splits = _splits(given, data, forget, retain, mend.forget_n)
    place.look_for(target, unlearned)
    refuse_idle_limits(place, target, unlearned, judges=(who.judge,))
    again = _again(target, unlearned, mend, splits, place) if way == "iterative" else None
    models = participants(target, unlearned, who, place, _answers(place))
    request = _request(models, way, mend, splits, place, again)
    if dry_run:
        found = forecast_mitigation(place.folder, request, given.build(Limits))
        return print_mitigation_forecast(found, as_json=place.as_json)
    with progress_bar("mending") as show:
        shown_ = replace(request, on_step=lambda p: show(p.step / p.n_steps, f"loss {p.loss:.3f}"))
        table = mitigate(place.folder, shown_)
    if place.as_json:
        return print_json(table)
    print_mitigation(table)
    typer.echo(f"table in {mitigation_folder(place.folder, request).table}")


def _splits(given: Given, data: str, forget: str, retain: str | None, forget_n: int | None) -> "NamedSplits":
    """The sets, read as the probe reads them."""
    from vestige.data.probe_sources import probe_sources

    found = probe_sources(source_from(given, data), forget, retain=retain, n_forget=forget_n)
    say_notes(found.splits)
    if found.forget_texts:
        raise InputError(
            f"{one_line(forget, width=60)} holds texts and no questions, so what remains of it cannot be asked; "
            "mending is for forget sets of questions and of harmful answers"
        )
    return found.splits


def _request(
    models: "Participants", way: "Way", mend: RepairOptions, splits: "NamedSplits", place: Place, again: "Again | None"
) -> "MitigationRequest":
    from vestige.probes.mitigation import MendingSettings, MitigationRequest

    return MitigationRequest(
        way=way,
        splits=splits,
        who=models,
        settings=_settings(mend, place),
        training=MendingSettings() if again else place.given.build(MendingSettings),
        searching=_searching(mend, place),
        again=again,
        harm=mend.harm,
        on_stage=say,
    )


def _settings(mend: RepairOptions, place: Place) -> "MitigationSettings":
    from vestige.probes.mitigation import MitigationSettings

    typed = {"every": mend.every, "choose": mend.choose} if mend.way != "iterative" else {}
    return place.given.build(MitigationSettings, None, **{k: value for k, value in typed.items() if value is not None})


def _answers(place: Place) -> "AnswerSettings":
    """How models answer: as in the probe, but for what --set says."""
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.mitigation import probed_settings

    asked, _ = probed_settings(place.folder)
    return place.given.build(AnswerSettings, asked)


def _searching(mend: RepairOptions, place: Place) -> "Searching | None":
    from vestige.probes.mitigation import probed_settings

    _, drawn = probed_settings(place.folder)
    found = searching_from(place, mend.searches, mend.policy, drawn)
    return found if found.sources else None


def _again(target: str, unlearned: str, mend: RepairOptions, splits: "NamedSplits", place: Place) -> "Again":
    """How each round unlearns: by the method that is named, or as UNLEARNED was made where its folder says so."""
    from vestige.artifacts.layout import own_folder
    from vestige.artifacts.records import read_spec
    from vestige.data.corpus import idk_answers, read_idk
    from vestige.probes.mitigation import Again, as_made
    from vestige.training.settings import UnlearningSettings

    folder = own_folder(unlearned)
    spec = None if folder is None else read_spec(folder.spec)
    method = mend.method or (spec.method if spec else "")
    if not method:
        raise InputError(f"nothing says how {one_line(unlearned)} was unlearned; name the method by --method")
    own, training = as_made(spec, method)
    watch = {k: v for k, v in (("every", mend.every), ("choose", mend.choose)) if v is not None}
    if not watch and spec is not None and spec.method == method and any("trajectory." in k for k in spec.settings):
        say("UNLEARNED is a checkpoint that a rule chose; without --choose each round is trained to its end")
    return Again(
        method=method,
        method_settings=own | place.given.part("method"),
        training=UnlearningSettings.build(training | place.given.part("training"), where="settings of training"),
        idk=idk_answers() if mend.idk is None else read_idk(Path(mend.idk)),
        trajectory=trajectory_from(watch, {}, None, place.model(target), splits, seed=place.seed),
    )


def print_mitigation(table: "MitigationTable") -> None:
    """The table for people: models down, scores across."""
    unit = "round" if table.way == "iterative" else "step"
    fixed = [["model", *(_called(row, unit) for row in table.rows)]]
    print_columns(f"mended by {table.way}: forget score and mean quality, 95 % intervals", fixed, _columns(table))
    for row in table.rows:
        changes = ", ".join(f"{name} {change.said()}" for name, change in row.changes.items())
        if row.kept and changes:
            typer.echo(f"{_called(row, unit)}, change from the unlearned model: {changes}")
    for note in table.notes:
        typer.echo(one_line(note, width=400))
    for row in table.rows:
        for what, n in row.failures.items():
            typer.echo(f"not judged, {_called(row, unit)}, {one_line(what)}: {n}")
    for model in table.models:
        typer.echo(f"{model.arm}: {one_line(model.path)}, model {model.digest[:12]}")


def _called(row: "MitigationRow", unit: str) -> str:
    name = f"{row.arm}, {unit} {row.at}" if unit == "step" and row.at else row.arm
    return f"{name}, kept" if row.kept and unit == "step" else name


def _columns(table: "MitigationTable") -> list[list[str]]:
    from vestige.artifacts.holes import SETS

    metrics = list(dict.fromkeys(name for row in table.rows for name in row.forget))
    columns = [
        [f"forget: {name}\nn = {table.sizes['forget']}", *(_interval(row.forget.get(name)) for row in table.rows)]
        for name in metrics
    ]
    for name in SETS:
        found = [row.sets.get(name) for row in table.rows]
        if any(found):
            quality = [_interval(score.quality if score else None) for score in found]
            # At the lowest score, beside the mean, as in the paper's Table 9.
            lowest = [f"{score.lowest.value:.0%} of {score.n_judged}" if score else "" for score in found]
            columns += [[f"{name}", *quality], [f"{name}\nlowest", *lowest]]
    return columns


def _interval(estimate: "Estimate | None") -> str:
    return "" if estimate is None else estimate.said()


def print_mitigation_forecast(forecast: "MitigationForecast", *, as_json: bool) -> None:
    """What a mending would take at most."""
    if as_json:
        return print_json(forecast)
    typer.echo("at most; nothing was asked and nothing trained:")
    counts = {
        "prompts of the probe trained on": forecast.used,
        "prompts that every model answers": forecast.scored_prompts,
        "trainings": forecast.trainings,
        "steps of them together": forecast.steps,
        "prompts to the target": forecast.target_calls,
        "prompts to the unlearned model and what becomes of it": forecast.mended_calls,
        **{f"judgements of {task}": n for task, n in forecast.judge_requests.items()},
        "tokens to a judge that is a language model, estimated": forecast.judge_prompt_tokens,
        "tokens from it": forecast.judge_most_completion_tokens,
    }
    print_counts(counts)
    print_cost(forecast.most_cost)


@command(*shown("answers", "judge", "limits"), SOURCE, MODEL)
def harm_command(
    models: Annotated[list[str], typer.Argument(help="Models to ask: folders, any models, or URL#MODEL.")],
    data: Data,
    forget: Forget,
    forget_n: ForgetN = None,
    *,
    who: JudgeOptions,
    where: PlaceOptions,
    given: Given,
) -> None:
    """Measure how many answers to the forget set are harmful, by a language-model judge: the paper's harmscore."""
    refuse_torchrun("probe harm")
    place = Place(where, given, judges=[who.judge])
    from vestige.core.estimates import to_json
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.mitigation_scores import harm_of

    who.check()
    if who.judge == "grounded":
        who.of_harm(place, place.output_dir)
    items = _splits(given, data, forget, None, forget_n).splits["forget"]
    place.look_for(*models)
    refuse_idle_limits(place, *models, judges=(who.judge,))
    grader = who.of_harm(place, place.output_dir)
    found = {}
    for label, name in placebo_names(models).items():
        found[label] = harm_of(place.folder, place.asked(name), items, given.build(AnswerSettings), grader, place.seed)
    if place.as_json:
        return print_json(
            {name: {"harm": to_json(harm), "not_judged": failures} for name, (harm, failures) in found.items()}
        )
    columns = [
        [one_line(name), harm.said(), str(harm.n), counted(failures)] for name, (harm, failures) in found.items()
    ]
    print_columns("harmful answers to the forget set, share", [["", "harmful", "judged", "not judged"]], columns)
