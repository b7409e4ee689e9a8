"""Evaluations, one file each: collecting asks the model and keeps everything; summarising needs no model.

The table below is all there is: to add one, write its file, with the names of `base.Evaluation`, and its line.
"""

from importlib import import_module
from inspect import isfunction
from typing import Any, cast

from vestige.core.errors import InputError
from vestige.core.plugins import installed
from vestige.core.text import closest
from vestige.evals.base import Evaluation

EVALS = {
    "qa": "vestige.evals.qa",
    "choices": "vestige.evals.choices",
    "reversed": "vestige.evals.reversed",
    "freeform": "vestige.evals.freeform",
    "memory": "vestige.evals.memory",
    "acr": "vestige.evals.compression",
    "exposure": "vestige.evals.exposure",
}

_MEMBERS = (*Evaluation.__annotations__, *(n for n, own in vars(Evaluation).items() if isfunction(own) and n[0] != "_"))


def eval_module(name: str) -> str:
    """The module of the evaluation of that name, which another package may bring; nothing is loaded."""
    known = {**installed("evals"), **EVALS}
    if name not in known:
        raise InputError(f"unknown evaluation {name!r}; {closest(name, list(known))}")
    return known[name]


def find_eval(name: str) -> Evaluation[Any, Any]:
    """The evaluation of that name; loads its file and no other."""
    module = eval_module(name)
    try:
        found = import_module(module)
    except ImportError as error:
        raise InputError(f"evaluation {name!r}: {error}; its package has to be whole") from error
    # A module, whose names a test holds against the protocol's.
    if lacking := [n for n in _MEMBERS if not hasattr(found, n)]:
        raise InputError(f"evaluation {name!r}: {module} has no {lacking[0]}; see docs/extend.md")
    return cast(Evaluation[Any, Any], found)
