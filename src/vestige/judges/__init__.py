"""Who grades an answer: a server, a local chat model, or rules grounded in the target's own answer.

The table has every kind of judge. To add one, write its file and its line; docs/extend.md shows it, and how another
package brings one without a line here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.plugins import installed
from vestige.core.text import closest, one_line

if TYPE_CHECKING:
    from vestige.core.settings import Settings


class Kind(NamedTuple):
    """A line about a judge, and where its class is, as `module:Class`; "" where it is made of who takes part."""

    about: str
    home: str = ""


JUDGES = {
    "grounded": Kind("Rules that compare with the target's own answer; no other model is asked."),
    "local": Kind("A chat model on this machine."),
    "server": Kind("A chat model behind an address."),
}


def known_judges() -> dict[str, Kind]:
    """Every kind of judge by name, those of other packages after Vestige's own; no judge is loaded."""
    others = {n: Kind(f"From {home.partition(':')[0]}.", home) for n, home in installed("judges").items()}
    return {**JUDGES, **{name: kind for name, kind in others.items() if name not in JUDGES}}


def find_judge(name: str) -> "type[Settings]":
    """The class of a judge that has one: settings that are a `base.Judge`."""
    known = known_judges()
    if name not in known or not known[name].home:
        raise InputError(f"no judge {one_line(name)!r}; {closest(name, list(known))}")
    from vestige.core.settings import Settings
    from vestige.judges.base import Judge

    module, _, attribute = known[name].home.partition(":")
    try:
        found: Any = vars(import_module(module)).get(attribute)
    except ImportError as error:
        raise InputError(f"judge {name!r}: {error}; its package has to be whole") from error
    if not (isinstance(found, type) and issubclass(found, Settings) and isinstance(found, Judge)):
        raise InputError(f"judge {name!r}: {module} has no judge {attribute!r}; see docs/extend.md")
    return found
