"""Measured comparisons: `python -m benchmarks.NAME --json` prints one JSON object a line."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence


def options(description: str | None, *, as_json: bool = False) -> ArgumentParser:
    """A parser whose help shows the docstring of a module as it is written, with the option --json if `as_json`."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    if as_json:
        parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))
