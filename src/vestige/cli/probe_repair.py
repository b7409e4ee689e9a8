"""`vestige probe harm` and `mitigate`: what an answer can harm, and repairing what went with the forget set."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import Given, command
from vestige.cli.options import MODEL, SOURCE, Data, Forget, Retain
from vestige.cli.output import progress_bar, say
from vestige.cli.probe import ForgetN, ProbeCommand, ProbeOptions, harm_grader, options_of, placebo_names
from vestige.cli.tables import counted, print_columns, print_json
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.holes import MitigationTable, Way
    from vestige.core.estimates import Estimate
    from vestige.data.corpus import NamedSplits
    from vestige.probes.mitigation import Again


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
    *options_of("mitigation", "training", "latent", "policy", "answers", "filter"),
    SOURCE,
    MODEL,
)
def mitigate_command(
    target: TargetName,
    unlearned: UnlearnedName,
    data: Data,
    forget: Forget,
    retain: Retain = None,
    *,
    repair: RepairOptions,
    options: ProbeOptions,
    given: Given,
) -> None:
    """Repair UNLEARNED with the prompts that a finished probe found, and report what else it restores.

    Settings of the method of --way iterative are --set method.KEY=VALUE. See docs/holes.md.
    """
    run = ProbeCommand.begin(options, given, "method")
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.mitigate import mitigate
    from vestige.probes.mitigation import (
        MendingSettings,
        MitigationRequest,
        MitigationSettings,
        mitigation_folder,
        probed_settings,
        tested_in,
    )

    way = repair.checked()
    # Before any model is loaded.
    tested_in(run.folder)
    if repair.harm and not run.judge.by_model:
        raise InputError(f"--harm asks whether answers are harmful, which --judge {run.judge.name} cannot say")
    splits = _splits(run, data, forget, retain, repair.forget_n, target, unlearned)
    run.look_for(target, unlearned)
    # As in the probe, but for what is given here.
    answers, filters = probed_settings(run.folder)
    searching = run.searching(repair.searches, repair.policy, filters)
    again = _unlearning_again(target, unlearned, repair, splits, run) if way == "iterative" else None
    # Of rounds they are the unlearning's own, and stand in `again`.
    rules = {} if again else {k: v for k, v in (("every", repair.every), ("choose", repair.choose)) if v is not None}
    request = MitigationRequest(
        way=way,
        splits=splits,
        who=run.participants(target, unlearned, given.build(AnswerSettings, answers)),
        settings=given.build(MitigationSettings, None, **rules),
        training=MendingSettings() if again else given.build(MendingSettings),
        searching=searching if searching.sources else None,
        again=again,
        harm=harm_grader(run.judge, run.folder.judge, run.device, "--judge") if repair.harm else None,
        on_stage=say,
    )
    with progress_bar("mending") as show:
        watched = replace(request, on_step=lambda p: show(p.step / p.n_steps, f"loss {p.loss:.3f}"))
        table = mitigate(run.folder, watched)
    if options.as_json:
        return print_json(table)
    print_mitigation(table)
    typer.echo(f"table in {mitigation_folder(run.folder, request).table}")


def _splits(
    run: ProbeCommand, data: str, forget: str, retain: str | None, forget_n: int | None, *models: str
) -> "NamedSplits":
    """The sets, read as the probe reads them."""
    sources = run.sources(data, forget, retain, forget_n, *models)
    if sources.forget_texts:
        raise InputError(
            f"{one_line(forget, width=60)} holds texts and no questions, so what remains of it cannot be asked; "
            "mending is for forget sets of questions and of harmful answers"
        )
    return sources.splits


def _unlearning_again(
    target: str, unlearned: str, repair: RepairOptions, splits: "NamedSplits", run: ProbeCommand
) -> "Again":
    """How each round unlearns: by the method that is named, or as UNLEARNED was made where its folder says so."""
    from vestige.artifacts.layout import own_folder
    from vestige.artifacts.records import read_spec
    from vestige.data.corpus import idk_answers, read_idk
    from vestige.probes.mitigation import Again, as_made
    from vestige.requests import trajectory
    from vestige.training.settings import UnlearningSettings

    folder = own_folder(unlearned)
    spec = None if folder is None else read_spec(folder.spec)
    method = repair.method or (spec.method if spec else "")
    if not method:
        raise InputError(f"nothing says how {one_line(unlearned)} was unlearned; name the method by --method")
    method_settings, training = as_made(spec, method)
    watch = {k: v for k, v in (("every", repair.every), ("choose", repair.choose)) if v is not None}
    if not watch and spec is not None and spec.method == method and any("trajectory." in k for k in spec.settings):
        say("UNLEARNED is a checkpoint that a rule chose; without --choose each round is trained to its end")
    return Again(
        method=method,
        method_settings=method_settings | run.given.part("method"),
        training=UnlearningSettings.build(training | run.given.part("training"), where="settings of training"),
        idk=idk_answers() if repair.idk is None else read_idk(Path(repair.idk)),
        trajectory=trajectory(run.model(target), splits, watch, {}, seed=run.options.seed),
    )


def print_mitigation(table: "MitigationTable") -> None:
    """The table for people: models down, scores across."""
    names = []
    for row in table.rows:
        # A round is called by its number already, and each is kept.
        name = f"{row.arm}, step {row.at}" if table.unit == "step" and row.at else row.arm
        names.append(f"{name}, kept" if row.kept and table.unit == "step" else name)
    columns = [
        [f"forget: {metric}\nn = {table.sizes['forget']}", *(_said(row.forget.get(metric)) for row in table.rows)]
        for metric in table.metrics
    ]
    for name in table.sets:
        scores = [row.sets.get(name) for row in table.rows]
        # At the lowest score, beside the mean, as in the paper's Table 9.
        lowest = [f"{score.lowest.value:.0%} of {score.n_judged}" if score else "" for score in scores]
        quality = [_said(score.quality if score else None) for score in scores]
        columns += [[name, *quality], [f"{name}\nlowest", *lowest]]
    title = f"mended by {table.way}: forget score and mean quality, 95 % intervals"
    print_columns(title, [["model", *names]], columns)
    for name, row in zip(names, table.rows, strict=True):
        changes = ", ".join(f"{metric} {change.said()}" for metric, change in row.changes.items())
        if row.kept and changes:
            typer.echo(f"{name}, change from the unlearned model: {changes}")
    for note in table.notes:
        typer.echo(one_line(note, width=400))
    for name, row in zip(names, table.rows, strict=True):
        for what, n in row.failures.items():
            typer.echo(f"not judged, {name}, {one_line(what)}: {n}")
    for model in table.models:
        typer.echo(f"{model.arm}: {one_line(model.path)}, model {model.digest[:12]}")


def _said(estimate: "Estimate | None") -> str:
    return "" if estimate is None else estimate.said()


@command(*options_of("answers"), SOURCE, MODEL)
def harm_command(
    models: Annotated[list[str], typer.Argument(help="Models to ask: folders, any models, or URL#MODEL.")],
    data: Data,
    forget: Forget,
    forget_n: ForgetN = None,
    *,
    options: ProbeOptions,
    given: Given,
) -> None:
    """Measure how many answers to the forget set are harmful, by a language-model judge: the paper's harmscore."""
    run = ProbeCommand.begin(options, given)
    from vestige.core.estimates import to_json
    from vestige.probes.answering import AnswerSettings
    from vestige.probes.mitigation_scores import harm_of

    items = _splits(run, data, forget, None, forget_n).splits["forget"]
    grader = harm_grader(run.judge, run.folder.judge, run.device, "--judge")
    run.look_for(*models)
    answers, scores = given.build(AnswerSettings), {}
    for label, name in placebo_names(models).items():
        scores[label] = harm_of(run.folder, run.load(name), items, answers, grader, options.seed)
    if options.as_json:
        return print_json(
            {name: {"harm": to_json(harm), "not_judged": failures} for name, (harm, failures) in scores.items()}
        )
    columns = [
        [one_line(name), harm.said(), str(harm.n), counted(failures)] for name, (harm, failures) in scores.items()
    ]
    print_columns("harmful answers to the forget set, share", [["", "harmful", "judged", "not judged"]], columns)
