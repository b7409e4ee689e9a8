"""Descriptions of methods for lists: `vestige list methods` and docs/methods.md."""

import inspect
from typing import NamedTuple

from vestige.core.plugins import installed
from vestige.methods import METHODS, PRESETS, find_method
from vestige.methods.base import Method, Needs


class Listed(NamedTuple):
    """A line about a method. `needs` names its inputs."""

    name: str
    about: str
    needs: str
    paper: str


def listed() -> list[Listed]:
    """Return all methods, including other packages' methods, and presets."""
    names = {**METHODS, **installed("methods")}
    methods = [_line(name, about(find_method(name)), find_method(name).paper) for name in names]
    return [*methods, *[_line(name, preset.about, preset.paper) for name, preset in PRESETS.items()]]


def about(method: type[Method]) -> str:
    """Return the loss: the first line of the class's docstring."""
    return (inspect.getdoc(method) or "").splitlines()[0]


def words(needs: Needs) -> str:
    """Return the inputs in words: the splits, activations, and the frozen reference."""
    read = [*needs.splits, *["activations"] * bool(needs.activations), *["reference"] * needs.uses_reference]
    return ", ".join(read) or "nothing"


def _line(name: str, text: str, paper: str) -> Listed:
    return Listed(name, text, words(find_method(name).needs), paper)
