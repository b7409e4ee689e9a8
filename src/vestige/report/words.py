"""How numbers are written for people: two decimals, a real minus sign, an interval in brackets."""

from typing import Protocol


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
    return f"[{number(e.low)},\N{NO-BREAK SPACE}{number(e.high)}]"


def ranged(e: Ranged) -> str:
    """As in `0.42 [0.36, 0.48]`."""
    return f"{number(e.value)} {interval(e)}"


def listed(names: list[str]) -> str:
    """As in `a`, `a and b`, or `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
