"""What other installed packages add to the tables of methods, attacks, evaluations and judges, by entry points."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points


@cache
def installed(table: str) -> Mapping[str, str]:
    """`module:attribute` by name. Vestige's own names come first: no package changes what one of them means."""
    return {entry.name: entry.value for entry in entry_points(group=f"vestige.{table}")}
