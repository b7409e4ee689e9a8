"""Writes docs/cli.md, which is built and not kept, from the commands' own help and their settings."""

from pathlib import Path
from typing import Any

import typer.main
from typer.cli import get_docs_for_click

from vestige.cli.app import app
from vestige.cli.command import Part, in_words, settings_rows

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
        shown = dict.fromkeys(_heading(part) for part in parts)
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
    return part.home.rpartition(":")[2]


def _section(by_name: dict[str, Part]) -> str:
    part = next(iter(by_name.values()))
    names = " or ".join(f"`{name}.`" for name in by_name)
    settings = settings_rows(part.home)
    if "" in by_name:
        before = ""
    else:
        before = f"Their keys begin with {names}, as in `--{part.name}.{next(iter(settings))}`.\n\n"
    rows = []
    for name, (kind, default, text) in settings.items():
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
    PAGE.write_text(page(), encoding="utf-8")
