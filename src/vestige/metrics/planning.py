"""What a sample could have shown: how many items a margin needs, and the least effect that would have been seen.

Power is 80 %; errors are one-sided, 4 % to hold and 2.5 % to fail, as for verdicts. In normal approximation, or
Student's where `Draws.df` is finite; `python -m benchmarks.power` counts them.
"""

import math

from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from vestige.metrics.contrasts import BOUND, Draws
from vestige.metrics.intervals import LEVEL

POWER = 0.8
_TAIL = (1 - LEVEL) / 2


def arms(draws: Draws, tail: float) -> float:
    """Standard errors between a margin and a truth that is told apart from it with the power; 2.80 for 2.5 %."""
    return float(stdtrit(draws.df, 1 - tail) if math.isfinite(draws.df) else ndtri(1 - tail)) + float(ndtri(POWER))


def items_without_hits(margin: float) -> int:
    """Items that bring Wilson's upper end at no hit below the margin: z^2 (1 - m) / m, which is 73 for 0.05."""
    if not 0 < margin < 1:
        raise ValueError(f"a margin of a share lies between 0 and 1, got {margin}")
    z = float(ndtri(1 - _TAIL))
    return math.ceil(z * z * (1 - margin) / margin)


def items_needed(draws: Draws, margin: float, *, bounded: bool) -> int | None:
    """Items with which a subject that is truly at 0 comes out below the margin in 80 % of samples.

    Items are taken to spread as these do (and to come in clusters as these do). None where no number suffices: the
    spread of the controls' seeds alone is too wide.
    """
    left = (margin / arms(draws, 1 - BOUND)) ** 2 - draws.seed_error**2
    if left <= 0 or not math.isfinite(draws.item_error):
        return None
    # Gaffke's one item more stands at the worst bound; with the items given there is none.
    floor = _least(margin) if bounded and not math.isfinite(draws.df) else 2
    return max(floor, math.ceil(draws.n * draws.item_error**2 / left))


def detectable(draws: Draws, margin: float, *, bounded: bool) -> float | None:
    """The least true value that comes out above the margin in 80 % of samples like this one; None where none would.

    With bounds, an effect brings a spread of its own: a share x of the items that leak adds x (1 - x) / n.
    """
    noise = draws.item_error**2 + draws.seed_error**2

    def short(value: float) -> float:
        own = max(0.0, value * (1 - value)) / draws.n if bounded else 0.0
        return value - margin - arms(draws, _TAIL) * math.sqrt(noise + own)

    if not math.isfinite(noise) or (bounded and short(1.0) < 0):
        return None
    return float(brentq(short, margin, 1.0 if bounded else margin + arms(draws, _TAIL) * math.sqrt(noise) + 1.0))


def _least(margin: float) -> int:
    """Items below which Gaffke's upper bound of a ratio is above the margin though nothing leaks: 66 for 0.05."""
    return math.ceil(math.log(1 - BOUND) / math.log(1 - margin / (1 + margin)))
