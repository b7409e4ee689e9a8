"""Graders of answers: a server, a local chat model, or rules based on the target's own answer.

The table has every kind of judge. To add one, write its file and its line; docs/extend.md shows it, and how another
package brings one without a line here.
"""

from typing import TYPE_CHECKING

from vestige.core.errors import InputError
from vestige.core.plugins import Kind, brought, with_installed
from vestige.core.text import closest, one_line

if TYPE_CHECKING:
    from vestige.judges.base import JudgeSettings


JUDGES = {
    "grounded": Kind("", "Rules that compare with the target's own answer; no other model is asked."),
    "local": Kind("", "local:MODEL: a chat model on this machine."),
    "server": Kind("", "http://host/v1#name: a chat model behind an address."),
}
"""`local.grader_of` makes the judges without a location."""


def known_judges() -> dict[str, Kind]:
    """Every kind of judge by name. No judge is loaded."""
    return with_installed("judges", JUDGES)


def find_judge(name: str) -> "type[JudgeSettings]":
    """The class of a judge that has one."""
    names = known_judges()
    if name not in names or not names[name].home:
        raise InputError(f"no judge {one_line(name)!r}. {closest(name, list(names))}")
    judge = brought("judge", name, names[name].home)
    from vestige.judges.base import JudgeSettings

    if not (isinstance(judge, type) and issubclass(judge, JudgeSettings)):
        raise InputError(f"judge {name!r}: {names[name].home} is not a judge. See docs/extend.md")
    return judge
