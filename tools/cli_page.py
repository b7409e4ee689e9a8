"""Writes what the command line says of itself; `--check` fails when settings.json is not what this would write.

`src/vestige/cli/settings.json` holds the types, defaults and texts of all settings of commands, so that `--help` loads
none of their modules, `src/vestige/keys.pyi` the settings that functions take by name, for editors and type checkers,
and docs/cli.md (which is built and not kept) the commands' own help.
"""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import typer.main
from typer.cli import get_docs_for_click

from vestige.attacks import ATTACKS
from vestige.cli.app import app
from vestige.cli.command import Part, in_words, settings_table
from vestige.core.settings import described, tables_in

TABLE = Path(__file__).parents[1] / "src" / "vestige" / "cli" / "settings.json"
KEYS = Path(__file__).parents[1] / "src" / "vestige" / "keys.pyi"
TYPED = {
    "ModelKeys": ("vestige.models.load:ModelSettings", ("model",)),
    "MarginKeys": ("vestige.metrics.verdicts:Thresholds", ()),
    "CompileKeys": ("vestige.data.folder:CompileSettings", ()),
    "CheckKeys": ("vestige.data.findings:SoundnessSettings", ()),
    "FinetuneKeys(ModelKeys)": ("vestige.training.settings:TrainingSettings", ()),
    "UnlearnKeys(ModelKeys)": ("vestige.training.settings:UnlearningSettings", ()),
    "AuditKeys(ModelKeys)": ("vestige.auditing.settings:AuditSettings", ("alternatives",)),
    "AttackKeys(ModelKeys)": (" ".join(kind.home for kind in ATTACKS.values()), ()),
    "ProbeKeys(ModelKeys)": ("vestige.probes.settings:ProbeSettings", ()),
}
"""What functions of `vestige.api` take by name: the class of these settings, or several, and the fields left out."""
PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
INTRODUCTION = """# The command line

Everything that Vestige does can be run from here and from Python. Progress goes to stderr, results to stdout; with
`--json` stdout is one JSON document. A command that is stopped goes on where it was when it is given again.

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | our fault: please report it |
| 2 | the command, the settings or the data cannot be used as they are; one sentence says why |
| 3 | an audit or a check of data: a claim fails (`demo` ends with 0 whatever it finds) |
| 4 | the same: none fails, and one is inconclusive |
| 5 | finished, and some cells failed; the same command tries them again |
| 6 | the machine failed (disk, memory); the same command goes on from there |
| 7 | finished, and the goal that was asked for cannot be reached; the nearest is kept |
| 130 | stopped; the same command goes on from there |

This page is built from `--help`.

"""


def table() -> str:
    """The table of settings as it should be: a line each."""
    command = typer.main.get_command(app)
    found = commands(command, typer.Context(command, info_name="vestige"))
    kinds = sorted({part.kind for one in found for part in getattr(one, "parts", ())})
    lines = []
    for kind in kinds:
        module, name = kind.split(":")
        rows = described(getattr(import_module(module), name)).items()
        own = ",\n".join(f"    {json.dumps(key)}: {json.dumps(row, ensure_ascii=False)}" for key, row in rows)
        lines.append(f"  {json.dumps(kind)}: {{\n{own}\n  }}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def keys() -> str:
    """keys.pyi as it should be: a TypedDict for each line of `TYPED`."""
    blocks = []
    for name, (kinds, besides) in TYPED.items():
        types: dict[str, dict[str, None]] = {}
        for module, _, class_name in (kind.partition(":") for kind in kinds.split()):
            fields = getattr(import_module(module), class_name).model_fields
            for key in (key for key in fields if key not in besides):
                types.setdefault(key, {})[typed(fields[key].annotation)] = None
        rows = [f"    {key}: {' | '.join(of_key)}" for key, of_key in types.items()]
        head = name if "(" in name else f"{name}(TypedDict)"
        blocks.append("\n".join([f"class {head.removesuffix(')')}, total=False):", *rows]))
    return KEYS_BEGIN + "\n\n".join(blocks) + "\n"


KEYS_BEGIN = '''# ruff: noqa
# fmt: off
"""The settings that functions of `vestige` take by name; written by tools/cli_page.py."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

'''


def typed(annotation: Any) -> str:
    """A type as a caller gives it: any sequence for a tuple, any mapping for settings in settings."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, args))}]"
    if origin in (Union, UnionType):
        return " | ".join(typed(arg) for arg in args)
    if hasattr(annotation, "__metadata__"):
        return typed(annotation.__origin__)
    if origin in (tuple, list):
        return f"Sequence[{typed(args[0])}]"
    if annotation is NoneType:
        return "None"
    if tables_in(annotation):
        return "Mapping[str, Any]"
    return annotation.__name__ if annotation in (bool, int, float, str) else "Any"


def commands(one: Any, context: typer.Context) -> list[Any]:
    """The functions behind a command and all that are in it."""
    inner = [one.get_command(context, name) for name in getattr(one, "list_commands", lambda _: ())(context)]
    return [one.callback, *(found for own in inner for found in commands(own, context))]


def page() -> str:
    """The page as it should be: each command without its settings, then each settings class once."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="vestige")
    headings = []
    for one in inner(command, context):
        parts = getattr(one.callback, "parts", ())
        one.params = [param for param in one.params if not param.name.startswith("setting_")]
        shown = dict.fromkeys(_heading(part) for part in parts if not part.hidden)
        if shown:
            links = ", ".join(f"[{name}](#{name.lower()})" for name in shown)
            one.epilog = f"**Settings**, each an option and a key of `--set` and `--config`: {links}."
            headings += shown
    found: dict[str, dict[str, Part]] = {}
    for part in (part for one in commands(command, context) for part in getattr(one, "parts", ())):
        found.setdefault(_heading(part), {})[part.name] = part
    tables = "".join(_section(found[name]) for name in sorted(set(headings)))
    return f"{INTRODUCTION}{get_docs_for_click(obj=command, ctx=context, name='vestige')}{SETTINGS}{tables}"


def inner(one: Any, context: typer.Context) -> list[Any]:
    """All commands in a command, itself too. Those of a group stay the same objects."""
    names = getattr(one, "list_commands", lambda _: ())(context)
    return [one, *(found for name in names for found in inner(one.get_command(context, name), context))]


def _heading(part: Part) -> str:
    return part.kind.rpartition(":")[2]


def _section(by_name: dict[str, Part]) -> str:
    part = next(iter(by_name.values()))
    names = " or ".join(f"`{name}.`" for name in by_name)
    before = (
        "" if "" in by_name else f"Their keys begin with {names}, as in `--{part.name}.{next(iter(part.rows()))}`.\n\n"
    )
    rows = []
    for name, (kind, default, text) in part.rows().items():
        shown = "" if default in (None, "", []) else f"`{in_words(default)}`"
        words = kind.replace("|", ", ")
        rows.append(f"| `{name}` | {words} | {shown} | {text.replace('|', chr(92) + '|')} |\n")
    return f"### {_heading(part)}\n\n{before}| key | type | default | |\n| --- | --- | --- | --- |\n{''.join(rows)}\n"


SETTINGS = """## Settings

`--help` shows them with each command, and `vestige list settings COMMAND` lists them. `learning_rate` is the option
`--learning-rate 2e-5`, `--set learning_rate=2e-5`, and `learning_rate = 2e-5` in the file of `--config`, which may hold
the command's other options too. An option wins over the file. Lists are separated by commas.

"""


if __name__ == "__main__":
    wanted = table()
    if "--check" in sys.argv:
        if TABLE.read_text(encoding="utf-8") != wanted:
            sys.exit("src/vestige/cli/settings.json is not what the settings say; run `make docs`")
        if KEYS.read_text(encoding="utf-8") != keys():
            sys.exit("src/vestige/keys.pyi is not what the settings say; run `make docs`")
        PAGE.write_text(page(), encoding="utf-8")
    elif settings_table() != json.loads(wanted):
        # Options are made when a command's module is read, so that the page takes another process.
        TABLE.write_text(wanted, encoding="utf-8")
        sys.exit(subprocess.run([sys.executable, __file__], check=False).returncode)
    else:
        TABLE.write_text(wanted, encoding="utf-8")
        KEYS.write_text(keys(), encoding="utf-8")
        PAGE.write_text(page(), encoding="utf-8")
