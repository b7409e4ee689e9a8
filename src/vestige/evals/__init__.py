"""Evaluations, one file each: collecting asks the model and keeps everything. Summarising needs no model.

The table has every evaluation with the class that is its settings and does it (`base.Evaluation`). To add one, write
its file and its line; docs/extend.md shows it, and how another package brings one without a line here.
"""

from typing import TYPE_CHECKING

from vestige.core.errors import InputError
from vestige.core.plugins import brought, installed
from vestige.core.text import closest

if TYPE_CHECKING:
    from vestige.evals.base import Evaluation

EVALS = {
    "qa": "vestige.evals.qa:QASettings",
    "choices": "vestige.evals.choices:ChoicesSettings",
    "reversed": "vestige.evals.choices:ReversedSettings",
    "freeform": "vestige.evals.freeform:FreeformSettings",
    "memory": "vestige.evals.memory:MemorySettings",
    "acr": "vestige.evals.compression:AcrSettings",
    "inside": "vestige.evals.inside:InsideSettings",
    "reasoning": "vestige.evals.reasoning:ReasoningSettings",
    "indirect": "vestige.evals.indirect:IndirectSettings",
}
"""Read by `--help`, so that nothing more is imported here."""


def eval_home(name: str) -> str:
    """Return the class of an evaluation as `module:Class`. Another package may bring it. Nothing is loaded."""
    homes = {**installed("evals"), **EVALS}
    if name in homes:
        return homes[name]
    if ":" in name:
        raise InputError(f"evaluation {name!r}: its package has no entry point for it. See docs/extend.md")
    raise InputError(f"unknown evaluation {name!r}. {closest(name, list(homes))}")


def find_eval(name: str) -> "type[Evaluation]":
    """The evaluation of that name. Loads its file and no other."""
    home = eval_home(name)
    evaluation = brought("evaluation", name, home)
    from vestige.evals.base import Evaluation

    if not (isinstance(evaluation, type) and issubclass(evaluation, Evaluation)):
        # Before 0.2, an evaluation was a module of functions.
        raise InputError(
            f"evaluation {name!r}: {home} is not a subclass of vestige.evals.base.Evaluation. See docs/extend.md"
        )
    if lacking := sorted(evaluation.__abstractmethods__):
        raise InputError(f"evaluation {name!r}: {home} has no {lacking[0]}. See docs/extend.md")
    if name != evaluation.name:
        raise InputError(
            f"evaluation {name!r}: the name in {home} is {evaluation.name!r}, under which its records would be kept. "
            "Give it the entry point's name"
        )
    return evaluation
