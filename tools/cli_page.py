"""Writes docs/cli.md from the commands' own help; `make check` fails when the page is not what this would write."""

import sys
from pathlib import Path

import typer.main
from typer.cli import get_docs_for_click

from vestige.cli.app import app

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

This page is generated from `--help` (`make docs`).

"""


def page() -> str:
    """The page as it should be."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="vestige")
    return INTRODUCTION + get_docs_for_click(obj=command, ctx=context, name="vestige")


if __name__ == "__main__":
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
            sys.exit("docs/cli.md is not what --help says; run `make docs`")
    else:
        PAGE.write_text(page(), encoding="utf-8")
