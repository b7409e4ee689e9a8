"""`vestige list`: what there is to choose from. `docs/methods.md` lists methods in the same words."""

import inspect
import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import typer

from vestige.cli.options import AsJson
from vestige.core.errors import InputError
from vestige.methods import METHODS, PRESETS, find_method
from vestige.methods.base import Method, Needs

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

    return [row._asdict() for row in listed()]


def _evals() -> list[dict[str, str]]:
    from vestige.evals import EVALS, find_eval

    return [
        {"name": name, "about": (find_eval(name).__doc__ or "").splitlines()[0].partition(": ")[2]} for name in EVALS
    ]


def _attacks() -> list[dict[str, str]]:
    from vestige.attacks import ATTACKS

    return [{"name": name, "about": about} for name, about in ATTACKS.items()]


def _models() -> list[dict[str, str]]:
    from vestige.models.load import BUILTIN_MODELS

    return [{"name": name, "about": about} for name, about in BUILTIN_MODELS.items()]


def _graphs() -> list[dict[str, str]]:
    from vestige.data.topologies import FAMILIES, SAMPLES

    rows = [{"name": name, "about": "PISTOL's sample data set, edges in its order"} for name in SAMPLES]
    return rows + [{"name": f"{name}:N", "about": "a topology of N edges, all sales contracts"} for name in FAMILIES]


class Listed(NamedTuple):
    """A line about a method; `needs` names what it reads."""

    name: str
    about: str
    needs: str
    paper: str


PROCEDURES = (
    Listed(
        "sisa",
        "Exact: the target is an ensemble over shards of its data, and those that held what to forget are made again.",
        "the training data, sharded before the target is made",
        "Bourtoule et al., Machine Unlearning, 1912.03817",
    ),
)
"""Ways to forget that are no objective, so that `--method` does not know them: the names of `COMMANDS`."""


def listed() -> list[Listed]:
    """All methods, presets and procedures."""
    methods = [_line(name, about(find_method(name)), find_method(name).paper) for name in METHODS]
    return [*methods, *[_line(name, preset.about, preset.paper) for name, preset in PRESETS.items()], *PROCEDURES]


def about(method: type[Method]) -> str:
    """What is minimised: the first line of the class's docstring."""
    return (inspect.getdoc(method) or "").splitlines()[0]


def words(needs: Needs) -> str:
    """What is read, in words: the splits, whether activations are, and the frozen reference."""
    read = [*needs.splits, *["activations"] * bool(needs.activations), *["reference"] * needs.uses_reference]
    return ", ".join(read) or "nothing"


def _line(name: str, text: str, paper: str) -> Listed:
    return Listed(name, text, words(find_method(name).needs), paper)
