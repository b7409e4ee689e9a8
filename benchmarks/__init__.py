"""Measured comparisons: `python -m benchmarks.NAME --json` prints one JSON object a line."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence


def options(description: str | None) -> ArgumentParser:
    """A parser whose help shows the docstring of a module as it is written."""
    return ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows))
