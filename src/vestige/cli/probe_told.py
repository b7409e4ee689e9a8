"""What is printed of a search for holes: the table with intervals, what was dropped, and what they are about."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from vestige.cli.tables import side_by_side
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.holes import HoleRow, HoleTable, Placebo
    from vestige.core.estimates import Estimate
    from vestige.probes.holes import ProbeForecast


def print_holes(table: "HoleTable", *, n_shown: int = 8) -> None:
    """The table for people. Prompts and terms come from models and data, so they are hostile text."""
    _print_rows(table)
    for row in table.rows:
        for placebo in row.placebos:
            typer.echo(_placebo_in_words(row, placebo))
    for source, dropped in table.dropped.items():
        if dropped:
            typer.echo(f"{one_line(source)}, not tested: {_counts(dropped)}")
    for source, words in table.selection.items():
        typer.echo(f"{one_line(source)}: {words}")
    for stage, failures in table.failures.items():
        typer.echo(f"not judged, {stage}: {_counts(failures)}")
    for source, found in table.diversity.items():
        spread = "" if found.distinct_ngrams is None else f", 1 - avgSelfBLEU {found.distinct_ngrams:.2f}"
        typer.echo(f"{one_line(source)}: {found.n} prompts tested, Vendi / n {found.vendi_share:.2f}{spread}")
    typer.echo(
        f"{table.n_holes} holes, {table.n_distinct_holes} of them different; testing asked the target "
        f"{table.target_calls:,} and the unlearned model {table.unlearned_calls:,} prompts"
    )
    if table.groups and table.naming:
        typer.echo(f"what they are about, {one_line(table.naming, width=160)}:")
    for group in table.groups[:n_shown]:
        typer.echo(f"  {group.n:>4}  {one_line(group.name)}")


def _print_rows(table: "HoleTable") -> None:
    """Measures down, sources across, in as many tables as the terminal needs."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not table.rows:
        typer.echo("no prompt was left to be tested and judged; docs/probe.md says what can be done (Nothing left)")
        return
    console = Console()
    measures = ["", "mean before", "mean after", "change", "lowest before", "lowest after", "holes"]
    for group in side_by_side([measures], [_column(row) for row in table.rows], console.width):
        shown = Table(title=Text("fresh answers: quality 1 to 10, 95 % intervals"))
        for head, *_ in (measures, *group):
            shown.add_column(Text(head), no_wrap=True)
        for cells in zip(*(cells for _, *cells in (measures, *group)), strict=True):
            shown.add_row(*map(Text, cells))
        console.print(shown)


def _column(row: "HoleRow") -> list[str]:
    """A source's head and its estimates."""
    n = f"n = {row.n}" if row.n == row.n_judged else f"n = {row.n_judged} of {row.n}"
    estimates = (row.before, row.after, row.change, row.lowest_before, row.lowest_after, row.holes)
    return [f"{one_line(row.source)}\n{n}", *map(_interval, estimates)]


def _interval(estimate: "Estimate") -> str:
    return estimate.said()


def _placebo_in_words(row: "HoleRow", placebo: "Placebo") -> str:
    """The rate of false holes; a placebo that says the target's very words shows nothing."""
    name, rate = one_line(placebo.name), placebo.rate
    if placebo.n_same == rate.n:
        return f"{row.source}: the answers of the placebo ({name}) are the target's word for word, so it shows nothing"
    beyond = "" if placebo.excess is None else f"; beyond these {_interval(placebo.excess)}"
    return f"{row.source}: false holes, of the placebo ({name}): {_interval(rate)} of {rate.n}{beyond}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {what}" for what, n in counts.items())


def print_forecast(forecast: "ProbeForecast", *, grounded: bool, as_json: bool) -> None:
    """What probing would take at most; a grounded judge takes passes of the target and no tokens of a server."""
    if as_json:
        typer.echo(json.dumps(asdict(forecast), indent=2))
        return
    typer.echo("at most; nothing was asked:")
    for who, calls in (("target", forecast.target_calls), ("unlearned", forecast.unlearned_calls)):
        typer.echo(f"  {calls:>12,} prompts to the {who} model")
    if forecast.placebo_calls:
        typer.echo(f"  {forecast.placebo_calls:>12,} prompts to placebos")
    for task, n in forecast.judge_requests.items():
        typer.echo(f"  {n:>12,} judgements of {task}")
    if grounded:
        typer.echo("  the judge is the target itself: no tokens of another model")
        return
    typer.echo(f"  {forecast.judge_prompt_tokens:>12,} tokens to the judge, estimated")
    typer.echo(f"  {forecast.judge_most_completion_tokens:>12,} tokens from the judge")
    cost = forecast.most_cost
    typer.echo("  its cost: unknown without prices" if cost is None else f"  {cost:>12,.2f} for it, by your prices")
