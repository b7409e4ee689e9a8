"""What is printed of a mending: each model's forget score and answers to each set of prompts, with intervals."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from vestige.cli.tables import side_by_side
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.holes import MitigationRow, MitigationTable
    from vestige.core.estimates import Estimate
    from vestige.probes.mitigation import MitigationForecast


def print_mitigation(table: "MitigationTable") -> None:
    """The table for people: models down, scores across, in as many tables as the terminal needs."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    unit = "round" if table.way == "iterative" else "step"
    fixed = [["model", *(_called(row, unit) for row in table.rows)]]
    console = Console()
    for group in side_by_side(fixed, _columns(table), console.width):
        shown = Table(title=Text(f"mended by {table.way}: forget score and mean quality, 95 % intervals"))
        for head, *_ in (*fixed, *group):
            shown.add_column(Text(head), no_wrap=True)
        for cells in zip(*(cells for _, *cells in (*fixed, *group)), strict=True):
            shown.add_row(*map(Text, cells))
        console.print(shown)
    for row in table.rows:
        changes = ", ".join(f"{name} {_interval(change)}" for name, change in row.changes.items())
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
        typer.echo(json.dumps(asdict(forecast), indent=2))
        return
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
    for what, n in counts.items():
        typer.echo(f"  {n:>12,} {what}")
    cost = forecast.most_cost
    typer.echo("  its cost: unknown without prices" if cost is None else f"  {cost:>12,.2f} for it, by your prices")
