"""Successive halving over a grid of learning rates: which candidates go on, and which one is chosen. Pure functions.

Scores are means over items of "how much is still answered": a low one is wanted on what to forget, a high one on what
to keep. A candidate is one learning rate, with one value of a method's strength where that is searched too; it goes
by its number in the grid. At each rung every candidate that is left has been trained for a share of its steps.

Ranking the scores of half-trained models as they stand would favour rates that are too high: they are the first to
forget. So a candidate is ranked by where it is foreseen to end. A model moves about as far as the sum of the learning
rates of its steps says; at a share p of that sum, rate r stands about where rate p r will end. The scores of a rung are
thus points of one curve over the effective rate p r, and the curve, read at r itself, foretells r. At the last rung p
is 1, and nothing is foretold. Scores of earlier rungs are left out: where a method soon stops moving they mislead.

After K. Jamieson and A. Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, 1502.07943;
the forecast is ours.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, NamedTuple

from vestige.core.errors import InputError
from vestige.core.text import one_line

_GOAL = re.compile(r"(forget|retain)(<=|>=)([^<>=]+)")


class Point(NamedTuple):
    """Mean scores on what to forget and on what to keep."""

    forget: float
    retain: float


class Candidate(NamedTuple):
    """One point of the grid; `strength` is None where only rates are searched."""

    rate: float
    strength: float | None


class Rung(NamedTuple):
    """Steps trained at this rung, the share of all learning-rate mass that they are, and how many are scored there."""

    steps: int
    progress: float
    n_candidates: int


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

    def shortfall(self, point: Point) -> float:
        """How far the point is from the bound; 0 when it is within."""
        return max(0.0, point.forget - self.bound if self.split == "forget" else self.bound - point.retain)

    def rank(self, point: Point) -> tuple[float, float, float]:
        """What points are ordered by, the best first: the shortfall, the other score, and then the bounded one."""
        wanted = (-point.retain, point.forget) if self.split == "forget" else (point.forget, -point.retain)
        return (self.shortfall(point), *wanted)


def parse_goal(text: str) -> Goal:
    """A goal from `forget<=0.3` or `retain>=0.95`."""
    found = _GOAL.fullmatch(text.replace(" ", ""))
    try:
        bound = float(found[3]) if found else math.nan
    except ValueError:
        bound = math.nan
    if found is None or not math.isfinite(bound) or (found[1], found[2]) not in {("forget", "<="), ("retain", ">=")}:
        raise InputError(f"the goal {one_line(text, width=40)!r} is not of the form 'forget<=0.3' or 'retain>=0.95'")
    return Goal("forget" if found[1] == "forget" else "retain", bound)


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


def rung_sizes(n_candidates: int, n_steps: int, n_rungs: int, keep_one_in: int) -> list[tuple[int, int]]:
    """Steps and candidates of each rung: the last trains all steps, each before it a `keep_one_in`-th of the next.

    A run too short for that many rungs has fewer.
    """
    sizes: dict[int, int] = {}
    for number in range(n_rungs):
        steps = max(1, round(n_steps / keep_one_in ** (n_rungs - 1 - number)))
        sizes.setdefault(steps, max(1, math.ceil(n_candidates / keep_one_in ** len(sizes))))
    return list(sizes.items())


def foreseen(
    candidates: Sequence[Candidate], progress: float, scores: Mapping[int, Point | None]
) -> dict[int, Point | None]:
    """Where each candidate of a rung will end, from their scores at this progress; None where training broke down.

    Linear in the logarithm of the effective rate between the two nearest points of the candidate's strength, and the
    outermost point beyond them.
    """
    curves: dict[float | None, dict[float, Point]] = {}
    for number, point in scores.items():
        if point is not None:
            candidate = candidates[number]
            curves.setdefault(candidate.strength, {})[candidate.rate * progress] = point
    return {
        number: None if point is None else _read(curves[candidates[number].strength], candidates[number].rate)
        for number, point in scores.items()
    }


def _read(curve: Mapping[float, Point], rate: float) -> Point:
    known = sorted(curve)
    place = bisect_left(known, rate)
    if place == 0 or place == len(known) or known[place] == rate:
        return curve[known[min(place, len(known) - 1)]]
    below, above = known[place - 1], known[place]
    share = math.log(rate / below) / math.log(above / below)
    return Point(*(a + share * (b - a) for a, b in zip(curve[below], curve[above], strict=True)))


def promoted(
    goal: Goal, candidates: Sequence[Candidate], progress: float, scores: Mapping[int, Point | None], n: int
) -> tuple[int, ...]:
    """The `n` candidates of a rung that go on, in the grid's order.

    Taken in turn: the best of those foreseen to end within the bound, and the nearest of those foreseen to end beyond
    it, so that a forecast that is a little wrong on either side does not lose the best. Of equals, as where no rate has
    changed an answer yet, the one on the bound's side of the grid goes first.
    """
    ends = {number: end for number, end in foreseen(candidates, progress, scores).items() if end is not None}
    # What forgets too little needs a higher rate, what loses too much a lower one.
    towards = 1 if goal.split == "forget" else -1
    within = [number for number, end in ends.items() if goal.shortfall(end) == 0]
    beyond = [number for number, end in ends.items() if goal.shortfall(end) > 0]
    within.sort(key=lambda number: (goal.rank(ends[number]), towards * number))
    beyond.sort(key=lambda number: (goal.rank(ends[number]), -towards * number))
    in_turn = [number for pair in zip_longest(within, beyond) for number in pair if number is not None]
    return tuple(sorted(in_turn[:n]))


def chosen(goal: Goal, finalists: Mapping[int, Point | None]) -> int | None:
    """The best finalist within the bound; if none is, the nearest to it. None if training broke down for all."""
    ends = {number: end for number, end in finalists.items() if end is not None}
    return min(ends, key=lambda n: (goal.rank(ends[n]), n), default=None)
