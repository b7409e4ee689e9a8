"""Options that several commands take together: a frozen dataclass of them, given to a command as one parameter."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter
from typing import Any


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as typer is to see it: each parameter that is a dataclass of options stands there as its fields.

    typer finds a command's options in its signature and passes them by name, so what it calls takes any name and hands
    the dataclasses on, filled. Two options of one name are refused when the module is read.
    """
    given = inspect.signature(command).parameters
    groups = {name: p.annotation for name, p in given.items() if _is_group(p)}

    @functools.wraps(command)
    def called(**typed: Any) -> None:
        for name, group in groups.items():
            typed[name] = group(**{f.name: typed.pop(f.name) for f in fields(group)})
        command(**typed)

    # Not by assignment: to a type checker a function has no such attribute, though `inspect` looks for it.
    called.__dict__["__signature__"] = inspect.Signature([p for own in given.values() for p in _options(own)])
    return called


def _is_group(parameter: Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def _options(parameter: Parameter) -> Iterator[Parameter]:
    if not _is_group(parameter):
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)
        return
    for option in fields(parameter.annotation):
        default = Parameter.empty if option.default is MISSING else option.default
        yield Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=option.type)
