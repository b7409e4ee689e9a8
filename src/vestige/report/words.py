"""How numbers are written for people: two decimals, a real minus sign, an interval in brackets."""

import math
from typing import Protocol

from vestige.core.estimates import NO_INTERVAL


class Ranged(Protocol):
    """A value with its interval."""

    @property
    def value(self) -> float:
        """The value itself."""

    @property
    def low(self) -> float:
        """The lower bound."""

    @property
    def high(self) -> float:
        """The upper bound."""


def number(x: float) -> str:
    """As in `0.42` or `−0.07`; what rounds to zero has no sign."""
    text = f"{x:.2f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(x: float) -> str:
    """As in `+0.42`, `−0.07` or `0.00`."""
    return f"+{number(x)}" if float(f"{x:.2f}") > 0 else number(x)


def interval(e: Ranged) -> str:
    """As in `[0.36, 0.48]`; the space does not break."""
    if math.isinf(e.low) or math.isinf(e.high):
        return NO_INTERVAL
    return f"[{number(e.low)},\N{NO-BREAK SPACE}{number(e.high)}]"


def ranged(e: Ranged) -> str:
    """As in `0.42 [0.36, 0.48]`."""
    return f"{number(e.value)} {interval(e)}"


def listed(names: list[str]) -> str:
    """As in `a`, `a and b`, or `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def counted(n: int) -> str:
    """A number up to twelve as a word, as in `four`."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return words[n] if n < len(words) else f"{n:,}"


def plain_number(x: float) -> str:
    """Of any size, as in `0.42`, `−3.14`, `6,120`, `0.003`, `2.4e−12` or `0`."""
    if abs(x) < 0.01:
        return f"{x:.2g}".replace("-", "−")
    return (f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else number(x)).replace("-", "−")
