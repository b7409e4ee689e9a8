"""Which of many candidates are the best, where a rough loss of each is cheap and the exact one is dear.

Candidates are asked for exactly in the order of their rough losses, a block at a time, until none of the others can
be among the best: until the least rough loss left lies above the n-th best exact one by more than MARGIN times the
farthest that a rough loss was seen from the exact one. docs/performance.md says how often that went wrong.
"""

import math
from collections.abc import Callable, Sequence

# Candidates that are asked for exactly at once.
BLOCK = 8
MARGIN = 2.0


def best_of(
    rough: Sequence[float],
    exact: Callable[[Sequence[int]], Sequence[float]],
    n: int,
    *,
    block: int = BLOCK,
    margin: float = MARGIN,
) -> dict[int, float]:
    """Exact losses of candidates, the `n` best among them, by number. A rough loss that is no number is asked first."""
    order = sorted(range(len(rough)), key=lambda i: (rough[i] == rough[i], rough[i], i))
    known: dict[int, float] = {}
    farthest = 0.0
    while len(known) < len(order):
        asked = order[len(known) : len(known) + max(block, n - len(known))]
        known |= dict(zip(asked, exact(asked), strict=True))
        errors = [abs(rough[i] - known[i]) for i in asked]
        # `max` would pass over what is no number.
        farthest = max([farthest, *(math.inf if math.isnan(e) else e for e in errors)])
        rest = order[len(known) :]
        nth = sorted(known.values())[min(n, len(known)) - 1]
        # Written so that a distance which is no number asks for everything.
        if rest and rough[rest[0]] - nth > margin * farthest:
            break
    return known
