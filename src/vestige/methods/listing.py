"""What is said of each method where methods are listed: `vestige list methods` and docs/methods.md."""

import inspect
from typing import NamedTuple

from vestige.core.plugins import installed
from vestige.methods import METHODS, PRESETS, find_method
from vestige.methods.base import Method, Needs


class Listed(NamedTuple):
    """A line about a method. `needs` names what it reads."""

    name: str
    about: str
    needs: str
    paper: str


def listed() -> list[Listed]:
    """All methods, those of other packages too, and presets."""
    names = {**METHODS, **installed("methods")}
    methods = [_line(name, about(find_method(name)), find_method(name).paper) for name in names]
    return [*methods, *[_line(name, preset.about, preset.paper) for name, preset in PRESETS.items()]]


def about(method: type[Method]) -> str:
    """What is minimised: the first line of the class's docstring."""
    return (inspect.getdoc(method) or "").splitlines()[0]


def words(needs: Needs) -> str:
    """What is read, in words: the splits, whether activations are, and the frozen reference."""
    read = [*needs.splits, *["activations"] * bool(needs.activations), *["reference"] * needs.uses_reference]
    return ", ".join(read) or "nothing"


def _line(name: str, text: str, paper: str) -> Listed:
    return Listed(name, text, words(find_method(name).needs), paper)
