"""What `--dry-run` prints."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vestige.steps.dry_run import Forecast


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
