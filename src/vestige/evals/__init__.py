"""Evaluations, one file each: collecting asks the model and keeps everything; summarising needs no model.

The table below is all there is: to add one, write its file, with the names of `base.Evaluation`, and its line.
"""

from importlib import import_module
from typing import Any, cast

from vestige.core.errors import InputError
from vestige.core.settings import closest
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


def find_eval(name: str) -> Evaluation[Any, Any]:
    """The evaluation of that name; loads its file and no other."""
    if name not in EVALS:
        raise InputError(f"unknown evaluation {name!r}; {closest(name, list(EVALS))}")
    # A module, whose names a test holds against the protocol's.
    return cast(Evaluation[Any, Any], import_module(EVALS[name]))
