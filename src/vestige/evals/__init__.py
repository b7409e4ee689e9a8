"""Evaluations, one file each: collecting asks the model and keeps everything; summarising needs no model.

The table below is all there is: to add one, write its file, with the names of `base.Evaluation`, and its line.
"""

from inspect import isfunction
from typing import TYPE_CHECKING, Any, cast

from vestige.core.errors import InputError
from vestige.core.plugins import brought, installed
from vestige.core.text import closest

if TYPE_CHECKING:
    from vestige.evals.base import Evaluation

EVALS = {
    "qa": "vestige.evals.qa:QASettings",
    "choices": "vestige.evals.choices:ChoicesSettings",
    "reversed": "vestige.evals.reversed:ReversedSettings",
    "freeform": "vestige.evals.freeform:FreeformSettings",
    "memory": "vestige.evals.memory:MemorySettings",
    "acr": "vestige.evals.compression:AcrSettings",
    "exposure": "vestige.evals.exposure:ExposureSettings",
    "inside": "vestige.evals.inside:InsideSettings",
}
"""The module of each, and the class of its settings there. Read by `--help`, so that nothing more is imported here."""


def eval_module(name: str) -> str:
    """The module of the evaluation of that name, which another package may bring; nothing is loaded."""
    modules = {**installed("evals"), **EVALS}
    if name not in modules:
        raise InputError(f"unknown evaluation {name!r}; {closest(name, list(modules))}")
    return modules[name].partition(":")[0]


def find_eval(name: str) -> "Evaluation[Any, Any]":
    """The evaluation of that name; loads its file and no other."""
    from vestige.evals.base import Evaluation

    module = eval_module(name)
    loaded = brought("evaluation", name, module)
    functions = (n for n, member in vars(Evaluation).items() if isfunction(member) and n[0] != "_")
    # A module, whose names a test holds against the protocol's.
    if lacking := [n for n in (*Evaluation.__annotations__, *functions) if not hasattr(loaded, n)]:
        raise InputError(f"evaluation {name!r}: {module} has no {lacking[0]}; see docs/extend.md")
    if name != loaded.NAME:
        raise InputError(
            f"evaluation {name!r}: the NAME in {module} is {loaded.NAME!r}, under which its records would be kept; "
            "give it the entry point's name"
        )
    return cast("Evaluation[Any, Any]", loaded)
