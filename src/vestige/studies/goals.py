"""What a calibration is to reach, and the grids of learning rates that it searches. Without torch, for plans.

Scores are means over items of "how much is still answered": a low one is wanted on what to forget, a high one on what
to keep.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from vestige.core.errors import InputError
from vestige.core.text import one_line

_GOAL = re.compile(r"(forget<=|retain>=)([^<>=]+)")


@dataclass(frozen=True)
class Goal:
    """A bound on one score, and the best of the other within it; `split` says on which of the two the bound is.

    On forget: the best retain score with a forget score of at most `bound`. On retain: the least forget score with a
    retain score of at least `bound`.
    """

    split: Literal["forget", "retain"]
    bound: float

    def __str__(self) -> str:
        """The form in which a goal is written, as in `forget<=0.3`."""
        return f"{self.split}{'<=' if self.split == 'forget' else '>='}{self.bound:g}"

    def shortfall(self, forget: float, retain: float) -> float:
        """How far the scores are from the bound; 0 when they are within."""
        return max(0.0, forget - self.bound if self.split == "forget" else self.bound - retain)

    def rank(self, forget: float, retain: float) -> tuple[float, float, float]:
        """What scores are ordered by, the best first: the shortfall, the other score, and then the bounded one."""
        # Of equals in the bound the other score decides, and only then how far within the bound it is.
        rest = (-retain, forget) if self.split == "forget" else (forget, -retain)
        return (self.shortfall(forget, retain), *rest)


def parse_goal(text: str) -> Goal:
    """A goal from `forget<=0.3` or `retain>=0.95`."""
    match = _GOAL.fullmatch(text.replace(" ", ""))
    try:
        bound = float(match[2]) if match else math.nan
    except ValueError:
        bound = math.nan
    if match is None or not math.isfinite(bound):
        raise InputError(f"the goal {one_line(text, width=40)!r} is not of the form 'forget<=0.3' or 'retain>=0.95'")
    return Goal("forget" if match[1] == "forget<=" else "retain", bound)


def log_grid(low: float, high: float, n: int) -> tuple[float, ...]:
    """`n` values from `low` to `high` in equal ratios, to three significant digits, so that a rate can be typed."""
    if not (0 < low < high < math.inf and n >= 2):
        raise InputError(f"no grid of {n} values from {low:g} to {high:g}; give LOW:HIGH:N with 0 < LOW < HIGH, N >= 2")
    grid = tuple(float(f"{low * (high / low) ** (i / (n - 1)):.3g}") for i in range(n))
    if len(set(grid)) < n:
        raise InputError(f"{n} values from {low:g} to {high:g} are not apart to three digits; take fewer")
    return grid


def parse_grid(text: str) -> tuple[float, ...]:
    """Values from `1e-6:1e-3:8` (LOW:HIGH:N, equal ratios) or `1e-5,3e-5`."""
    try:
        if text.count(":") == 2:
            low, high, n = text.split(":")
            return log_grid(float(low), float(high), int(n))
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(
            f"{one_line(text, width=60)!r} is neither LOW:HIGH:N nor a list of numbers, as in 1e-5,3e-5"
        ) from error
