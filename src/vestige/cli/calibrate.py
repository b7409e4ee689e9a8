"""`vestige calibrate`: find the learning rate at which a method reaches a stated goal best."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.asked import refuse_torchrun
from vestige.cli.data_words import DataWords
from vestige.cli.forgetting import ForgetWords, asked_unlearning
from vestige.cli.options import (
    AsJson,
    ChatTemplate,
    Config,
    Data,
    Device,
    Forget,
    Fresh,
    Idk,
    Method,
    OutputDir,
    OwnDtype,
    Reference,
    Seed,
    Set,
    Target,
    TrustRemoteCode,
    Workers,
)
from vestige.cli.output import output_in
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.cli.tables import print_json
from vestige.core.errors import GoalNotReached, InputError

if TYPE_CHECKING:
    from vestige.study.calibrate import CalibrateSettings, Calibration


@spread
def calibrate_command(
    target: Target,
    method: Method,
    data: Data,
    forget: Forget,
    output_dir: OutputDir,
    reach: Annotated[
        str | None, typer.Option(help="Best retained score with this much forgotten, as in 'forget<=0.3'.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(help="Most forgotten with this much retained, as in 'retain>=0.95'.")
    ] = None,
    rates: Annotated[
        str | None, typer.Option(help="Learning rates: LOW:HIGH:N in equal ratios (1e-6:1e-3:8), or a list.")
    ] = None,
    strength: Annotated[
        str | None, typer.Option(help="A setting of the method to search too, as in retain_weight=0.1:10:3.")
    ] = None,
    rungs: Annotated[
        int | None, typer.Option(min=1, help="How often candidates are compared (3); 1: all to the end.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Metric of the goal (rouge1_recall).")] = None,
    validation_items: Annotated[
        int | None, typer.Option(min=1, help="Most items of a split to choose on (64), and at most half of it.")
    ] = None,
    reference: Reference = None,
    idk: Idk = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest reply (64); a longer one counts as truncated.")
    ] = None,
    config: Config = None,
    assignments: Set = None,
    workers: Workers = None,
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
    """Find the learning rate at which METHOD reaches a goal best: chosen on some items, reported on the others.

    Candidates are halved at each rung and trained on from where they paused. --config and --set are those of `vestige
    unlearn`. The output folder keeps every candidate, score and decision in calibration.json, and the chosen model.
    Ends with 7 if the goal cannot be reached with these rates.
    """
    refuse_torchrun("calibrate")
    from vestige.study.calibrate import CalibrateSettings

    settings = CalibrateSettings.build(
        {
            "goal": _one_goal(reach, keep),
            **_given(rungs=rungs, metric=metric, validation_items=validation_items),
            **_grid(method, rates, strength),
        }
    )
    source = rows.source(data)

    from vestige.evals.qa import QASettings
    from vestige.models.load import ModelSettings
    from vestige.steps.subjects import own_dtype
    from vestige.study.calibrate import CalibrateRequest, CalibrationFolder, calibrate

    asked_dtype = dtype or own_dtype(target) or "float32"
    model = ModelSettings(
        model=target, device=device, dtype=asked_dtype, trust_remote_code=trust_remote_code, chat_template=chat_template
    )
    words = ForgetWords(method, forget, rows.retain, reference, idk, config, assignments, seed)
    asked = asked_unlearning(model, source, words)
    questions = QASettings.build(_given(max_new_tokens=max_new_tokens))
    request = CalibrateRequest(asked.unlearning, asked.splits, questions, settings)
    inputs = (target, data, forget, rows.retain, reference)
    place = CalibrationFolder(output_dir)
    with (
        output_in(output_dir, fresh=fresh, made_by=("asked.json",), inputs=inputs),
        progress_bar(f"calibrating {method}") as show,
    ):
        found = calibrate(output_dir, request, workers=workers, show=lambda s: show(s.share, s.at_work))
    _tell(found, place.cpu_seconds(), as_json=as_json)
    if not found.reached:
        raise GoalNotReached(_not_reached(found, settings))


def _one_goal(reach: str | None, keep: str | None) -> str:
    goals = [goal for goal in (reach, keep) if goal is not None]
    if len(goals) != 1:
        raise InputError("give one goal: --reach 'forget<=0.3' or --keep 'retain>=0.95'")
    if not goals[0].strip().startswith("forget" if reach is not None else "retain"):
        raise InputError(f"--reach bounds the forget score and --keep the retain score, and not {goals[0]!r}")
    return goals[0]


def _given(**words: Any) -> dict[str, Any]:
    """What was typed; what was not keeps the default of its settings."""
    return {name: value for name, value in words.items() if value is not None}


def _grid(method: str, rates: str | None, strength: str | None) -> dict[str, Any]:
    from vestige.study.halving import parse_grid

    grid: dict[str, Any] = {} if rates is None else {"rates": parse_grid(rates)}
    if strength is not None:
        name, equals, values = strength.partition("=")
        if not equals:
            raise InputError(
                f"--strength {strength!r}: expected NAME=LOW:HIGH:N or NAME=V1,V2, as in retain_weight=0.1:10:3"
            )
        grid |= {"strength": name.strip().removeprefix(f"{method}."), "strengths": parse_grid(values)}
    return grid


def _not_reached(found: "Calibration", settings: "CalibrateSettings") -> str:
    if found.rate is None:
        return (
            f"training broke down at every rate that was tried to the end; take lower ones than {max(settings.rates):g}"
        )
    end = next(c for c in found.candidates if (c.rate, c.strength) == (found.rate, found.strength)).rungs[-1].score
    return (
        f"{found.goal} cannot be reached with these rates: the nearest, {_named(found)}, ends at forget "
        f"{end.forget:.3f}, retain {end.retain:.3f}; widen --rates, search a --strength, or ask for less"
    )


def _named(found: "Calibration") -> str:
    strength = "" if found.strength is None else f", {found.strength_name} {found.strength:g}"
    return f"learning rate {found.rate:g}{strength}"


def _tell(found: "Calibration", cpu_seconds: float, *, as_json: bool) -> None:
    if as_json:
        return print_json({**asdict(found), "cpu_seconds": cpu_seconds})
    _print_rungs(found)
    if found.rate is not None:
        shown = {f"{r['split']}, {r['scope']}": r for r in found.test if r["metric"] == found.metric}
        typer.echo(f"{'chosen' if found.reached else 'nearest'}: {_named(found)}; on the items not chosen on:")
        for name, row in shown.items():
            if not name.startswith("edge:"):
                typer.echo(f"  {name}: {row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}], n = {row['n']}")
    typer.echo(
        f"spent: {found.n_steps} steps, {found.n_tokens} tokens, {cpu_seconds:.0f} processor seconds, losers included"
    )


def _print_rungs(found: "Calibration") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from vestige.core.text import one_line

    table = Table(title=Text(one_line(f"{found.method}, {found.forget}: {found.goal} in {found.metric}")))
    for column in ("rate", found.strength_name or None, "steps", "forget", "retain", ""):
        if column is not None:
            table.add_column(Text(column))
    table.add_row(
        "target", *([""] if found.strength_name else []), "0", *_scores(found.start.forget, found.start.retain), ""
    )
    for candidate in found.candidates:
        for rung in candidate.rungs:
            cells = [
                f"{candidate.rate:g}",
                f"{rung.score.steps}",
                *_scores(rung.score.forget, rung.score.retain),
                rung.fate,
            ]
            if candidate.strength is not None:
                cells.insert(1, f"{candidate.strength:g}")
            table.add_row(*cells)
    Console().print(table)


def _scores(forget: float | None, retain: float | None) -> tuple[str, str]:
    return ("" if forget is None else f"{forget:.3f}", "" if retain is None else f"{retain:.3f}")
