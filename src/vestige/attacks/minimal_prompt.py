"""How short a prompt still brings a text: which lengths are tried, in which order. Pure: it knows nothing of models.

Lengths are in prompt tokens, `steps` are those that one search for a prompt may take. A search that fails proves
nothing: some prompt of that length may do. So the least length that succeeded is an upper bound of the shortest, from
either schedule, and where none succeeded there is no number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Attempt(Protocol):
    """Searches for a prompt of `n_tokens` tokens in at most `steps` steps, and says whether one was found."""

    def __call__(self, n_tokens: int, steps: int) -> bool:
        """Whether one was found."""


class Tried(NamedTuple):
    """One search: the length, the steps it was granted, and whether it found a prompt."""

    n_tokens: int
    steps: int
    success: bool


@dataclass(frozen=True)
class Minimal:
    """The searches that were made, in their order."""

    tried: tuple[Tried, ...]

    @property
    def n_tokens(self) -> int | None:
        """The least length that succeeded; None where none did."""
        return min((one.n_tokens for one in self.tried if one.success), default=None)


FIRST, STRIDE, GROWTH = 5, 5, 1.2
"""The reference's first length, by how much it goes up after a failure, and by what factor its steps grow then."""


def stepwise(attempt: Attempt, *, bound: int, steps: int) -> Minimal:
    """MiniPrompt (A. Schwarzschild and others, Rethinking LLM Memorization, 2404.15146), as its released code runs it.

    5 tokens at first. After a success one fewer, after a failure five more and steps x 1.2, until the next length is no
    longer between the longest that failed and the shortest that succeeded (at first `bound`, which is never tried).
    Where `bound` is at most five above the last failure, the lengths between are never tried: after a failure at 5 with
    a bound of 10, nothing from 6 on is. The released code reports `bound` then; here nothing was found.
    """
    tried: list[Tried] = []
    low, high, length = 0, bound, FIRST
    while True:
        found = attempt(length, steps)
        tried.append(Tried(length, steps, found))
        if found:
            high, following = length, length - 1
        else:
            low, following, steps = length, length + STRIDE, int(steps * GROWTH)
        if not low < following < high:
            return Minimal(tuple(tried))
        length = following


def bisection(attempt: Attempt, *, bound: int, steps: int) -> Minimal:
    """The middle of the lengths below `bound`, then of those below it where it succeeds or above it where it fails.

    At most log2(bound) searches, rounded up, each of the same steps, so that what a length comes to does not depend on
    what was tried before. Where every length above one that succeeds succeeds too, the least is found, none below
    `bound` being left out. Where success is not so ordered, what is found is a length that succeeded, the one below it
    having failed; shorter ones that would have succeeded may be missed, and any length where the middle ones failed.
    """
    tried: list[Tried] = []
    low, high = 0, bound
    while high - low > 1:
        length = (low + high) // 2
        found = attempt(length, steps)
        tried.append(Tried(length, steps, found))
        low, high = (low, length) if found else (length, high)
    return Minimal(tuple(tried))


Schedule = Callable[..., Minimal]
SCHEDULES: dict[str, Schedule] = {"bisection": bisection, "stepwise": stepwise}
