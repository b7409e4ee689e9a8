"""A GPU whose memory is full: the pass is made again in smaller parts.

How rows are cut into passes changes no number beyond rounding. A process that ran short once keeps its passes small.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from vestige.artifacts.provenance import happened

P = ParamSpec("P")
R = TypeVar("R")

LEAST_TOKENS = 64
"""A pass of fewer tokens is not halved again."""

_HALVINGS = "passes_halved_for_want_of_memory"


def smaller(budget: int) -> int:
    """A budget of rows or tokens, halved as often as memory ran short in this process; one at least."""
    return max(1, budget >> happened[_HALVINGS])


def halve() -> None:
    """Note that memory ran short, and give back what torch holds of it."""
    happened[_HALVINGS] += 1
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def within_memory(run: Callable[P, R]) -> Callable[P, R]:
    """`run`, whose `token_budget` is halved where a GPU's memory does not hold it; without effect on the CPU."""
    default = inspect.signature(run).parameters["token_budget"].default

    @functools.wraps(run)
    def tried(*args: P.args, **kwargs: P.kwargs) -> R:
        given = int(kwargs.get("token_budget", default))  # type: ignore[call-overload]
        while True:
            kwargs["token_budget"] = smaller(given)
            try:
                return run(*args, **kwargs)
            except torch.OutOfMemoryError:
                if smaller(given) <= LEAST_TOKENS:
                    raise
            # Not in the handler, where the error holds on to the tensors of the pass.
            halve()

    return tried
