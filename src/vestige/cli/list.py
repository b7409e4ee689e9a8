"""`vestige list`: what there is to choose from."""

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from vestige.cli.options import AsJson
from vestige.core.errors import InputError

WIDTH = 100
"""Characters of a line where there is no terminal that has a width."""


def list_command(
    kind: Annotated[str, typer.Argument(help="methods, evals, attacks, models, or graphs.")], as_json: AsJson = False
) -> None:
    """List methods, evals, attacks, models or graphs, with a line about each."""
    kinds = {"methods": _methods, "evals": _evals, "attacks": _attacks, "models": _models, "graphs": _graphs}
    if kind not in kinds:
        from vestige.core.settings import closest

        raise InputError(f"nothing called {kind!r} to list; {closest(kind, list(kinds))}")
    rows = kinds[kind]()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    typer.echo(in_columns(rows, shutil.get_terminal_size((WIDTH, 1)).columns))


def in_columns(rows: Sequence[Mapping[str, str]], width: int) -> str:
    """The names, and what is said of each within `width` characters, later lines under the first."""
    indent = 2 + max(len(row["name"]) for row in rows)
    lines = []
    for row in rows:
        told = [row["about"], *([f"Needs {row['needs']}. {row['paper']}."] if "paper" in row else [])]
        first, *further = [line for text in told for line in textwrap.wrap(text, max(20, width - indent))]
        lines += [f"{row['name']:{indent}}{first}", *(" " * indent + line for line in further)]
    return "\n".join(lines)


def _methods() -> list[dict[str, str]]:
    from vestige.methods.listing import listed

    return [row._asdict() for row in listed()]


def _evals() -> list[dict[str, str]]:
    from vestige.core.plugins import installed
    from vestige.evals import EVALS, find_eval

    told = {name: (find_eval(name).__doc__ or name).splitlines()[0] for name in {**EVALS, **installed("evals")}}
    return [{"name": name, "about": line.removeprefix(f"`{name}`: ")} for name, line in told.items()]


def _attacks() -> list[dict[str, str]]:
    from vestige.attacks import ATTACKS

    return [{"name": name, "about": about} for name, about in ATTACKS.items()]


def _models() -> list[dict[str, str]]:
    from vestige.models.load import BUILTIN_MODELS

    return [{"name": name, "about": about} for name, about in BUILTIN_MODELS.items()]


def _graphs() -> list[dict[str, str]]:
    from vestige.data.graph_files import FAMILIES, SAMPLES

    rows = [{"name": name, "about": "PISTOL's sample data set, edges in its order"} for name in SAMPLES]
    return rows + [{"name": f"{name}:N", "about": "a topology of N edges, all sales contracts"} for name in FAMILIES]
