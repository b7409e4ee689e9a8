"""Methods, attacks, evaluations and judges from other installed packages, by entry points."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from vestige.core.errors import InputError


class Kind(NamedTuple):
    """A line of a table: the location of a class, as `module:Class`, and a sentence about it."""

    home: str
    about: str


@cache
def installed(table: str) -> Mapping[str, str]:
    """Return `module:attribute` by name. Vestige's own names come first, so no package can replace them."""
    from importlib.metadata import entry_points  # The import is slow, and `--help` does not need it.

    return {entry.name: entry.value for entry in entry_points(group=f"vestige.{table}")}


def with_installed(table: str, builtin: Mapping[str, Kind]) -> dict[str, Kind]:
    """Return Vestige's `own` lines of a table, followed by those from other packages. Nothing is loaded."""
    further = {name: home for name, home in installed(table).items() if name not in builtin}
    return {**builtin, **{name: Kind(home, f"From {home.partition(':')[0]}.") for name, home in further.items()}}


def brought(kind: str, name: str, home: str) -> Any:
    """Return the object at `module:attribute`, or None without such a module or attribute. Loads no other file."""
    module, _, attribute = home.partition(":")
    try:
        loaded = import_module(module)
    except ImportError as error:
        raise InputError(f"{kind} {name!r}: {error}. Install its package or add it to PYTHONPATH") from error
    if attribute:
        return vars(loaded).get(attribute)
    return loaded
