"""What `--dry-run` and `audit --plan` print."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.steps.dry_run import Forecast
    from vestige.study.audit_forecast import Foreseen


def print_forecast(forecast: "Forecast", *, as_json: bool) -> None:
    """Print a forecast for people, or as one JSON document, where sizes are in bytes; one process does."""
    if forecast.rank == 0:
        typer.echo(json.dumps(asdict(forecast), indent=2) if as_json else _in_words(forecast))


def _in_words(forecast: "Forecast") -> str:
    memory = forecast.memory
    held = (
        ("parameters", memory.parameters),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations", memory.activations),
        ("reference", memory.kept),
        ("peak", memory.peak),
    )
    processes = "1 process" if forecast.n_processes == 1 else f"{forecast.n_processes} processes ({forecast.kind})"
    lines = [
        f"{forecast.steps} steps of {forecast.batch_size} rows in {forecast.n_parts} parts, {processes}; "
        f"{forecast.n_trained:,} of {forecast.n_parameters:,} parameters trained",
        f"memory of each process on {forecast.device}, estimated; nothing was trained:",
        *(f"  {name:<12}{size / 1e6:>12,.1f} MB" for name, size in held),
    ]
    return "\n".join(lines)


def print_plan(forget: str, found: "Foreseen", *, as_json: bool) -> None:
    """Print what an audit can decide, for people or as one JSON document."""
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=None)
    for head in ("claim", "quantities", "a perfect unlearning holds", "with unsteady seeds"):
        table.add_column(head)
    for line in found.claims:
        table.add_row(line.claim, str(line.quantities), _percent(line.holds), _percent(line.unsteady))
    table.add_row("all of them", "", _percent(found.holds), _percent(found.unsteady))
    first = next(line for line in found.claims if line.claim == "not expressed")
    seen = [f"{first.leakage:.2f} of what the target knows, in one format"] if first.leakage is not None else []
    seen += [f"{first.bits:.0f} bits an answer"] if first.bits is not None else []
    controls = ", ".join(f"{m}: {_percent(share)}" for m, share in found.by_controls.items())
    lines = [
        f"plan for {one_line(forget, width=60)}: {found.facts} facts, {found.wordings:.2g} wordings each, "
        f"{found.controls} controls, {len(found.formats)} formats, {found.attacks} attacks",
        f"margins: fails above {found.margins.narrow:g} ({found.margins_bits.narrow:g} bits), holds below "
        f"{found.margins.wide:g} ({found.margins_bits.wide:g} bits)",
    ]
    after = [
        f"seen in 80 % of audits: {' or '.join(seen) or 'no leakage in one format alone'}",
        "too few controls to test single facts, which takes 3"
        if found.given_away is None
        else f"{found.given_away} single facts given away, clear of all controls, fail a claim whatever the mean is",
        f"all of them hold by number of controls: {controls}",
        f"for 80 %: {found.needed}" if found.needed else "",
        f"without any control, {found.ranked} facts are ranked among alternatives: not expressed would hold in "
        f"{_percent(found.ranked_holds)}, with leakage known to within {found.ranked_arm:.2f}"
        if found.ranked_holds is not None
        else "",
        "assumed: trainings vary as those of the built-in tiny model, most of which prefer the same options: where "
        "each prefers others, multiple choice decides less (docs/verdicts.md); an audit says it of its own",
    ]
    typer.echo("\n".join(lines))
    Console().print(table)
    for sentence in (*filter(None, after), *found.untested):
        typer.echo(one_line(sentence, width=500))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
