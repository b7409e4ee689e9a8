"""How the report writes numbers and text: two decimals, a real minus sign, an interval in brackets.

Hostile text is made fit to be looked at (`visible`). A control character, a bidirectional override, a zero-width sign,
a lone surrogate or a private character is shown by its number, as in `‹U+202E›`; line breaks and tabs stay as they are.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Protocol

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


_KEPT = {"\n", "\t"}
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_NOT_ASCII_PRINTABLE = re.compile(r"[^\n\t -~]")


def visible(text: str) -> str:
    """`text` with what acts unseen spelt out; CR LF counts as one line break."""
    return _NOT_ASCII_PRINTABLE.sub(_spelt, text.replace("\r\n", "\n"))


def _spelt(match: re.Match[str]) -> str:
    char = match[0]
    return f"‹U+{ord(char):04X}›" if unicodedata.category(char) in _UNSEEN and char not in _KEPT else char


def named_values(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings, a line each; what is no text as JSON."""
    return [(k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for k, v in values.items()]


def provenance_lines(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's provenance, a line a fact: nested tables as `name: value, name: value`."""
    return [
        (key, ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value))
        for key, value in provenance.items()
    ]
