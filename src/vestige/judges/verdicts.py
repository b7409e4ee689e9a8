"""From what a judge wrote to a verdict: a number in double square brackets, or one JSON object with known keys."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from vestige.judges.base import Failure

# As FastChat reads MT-bench: the first [[7]], else the first [7] (fastchat/llm_judge/common.py).
_RATING = re.compile(r"\[\[([0-9]+\.?[0-9]*)\]\]")
_RATING_ELSE = re.compile(r"\[([0-9]+\.?[0-9]*)\]")
# A verdict is short, and it stands at the end; a reply may be anything.
_READ = 20_000
# Each beginning of an object may be read to the end in vain.
_MOST_BEGINNINGS = 200


class Verdict(NamedTuple):
    """A score with its parts, or a failure."""

    score: float | None
    values: Mapping[str, float]
    failure: Failure


class Range(NamedTuple):
    """The least and the greatest value of a number; `whole` if only whole numbers count."""

    low: float
    high: float
    whole: bool = True

    def holds(self, value: float) -> bool:
        """Whether the value is one of the range's."""
        return math.isfinite(value) and self.low <= value <= self.high and (not self.whole or value == int(value))


def failed(failure: Failure) -> Verdict:
    """No score, for that reason."""
    return Verdict(None, {}, failure)


def read_rating(text: str, scale: Range) -> Verdict:
    """The rating in `[[x]]`, decimals admitted; a number off the scale is a failure and not cut to it."""
    found = _RATING.search(text) or _RATING_ELSE.search(text)
    if found is None:
        return failed("unreadable" if text.strip() else "empty")
    rating = float(found[1])
    return Verdict(rating, {}, "") if scale.holds(rating) else failed("out of range")


def read_object(text: str, keys: Mapping[str, Range | None]) -> Mapping[str, float] | Failure:
    """The values of the one JSON object in `text` that has all `keys`; a key without a range is true or false.

    A reply with two such objects that differ is ambiguous: one of them may have been quoted from the judged text.
    """
    if not text.strip():
        return "empty"
    wanted = [found for found in outermost(text[-_READ:], "{") if keys.keys() <= found.keys()]
    if not wanted:
        return "unreadable"
    if any({k: found[k] for k in keys} != {k: wanted[0][k] for k in keys} for found in wanted):
        return "ambiguous"
    values: dict[str, float] = {}
    for key, scale in keys.items():
        value = wanted[0][key]
        if not isinstance(value, bool | int | float) or (isinstance(value, bool) and scale is not None):
            return "unreadable"
        if not (scale or Range(0, 1)).holds(value):
            return "out of range"
        values[key] = float(value)
    return values


def outermost(text: str, opening: Literal["{", "["]) -> list[Any]:
    """The outermost JSON objects, or lists, in `text`, wherever they stand."""
    decoder, found, start = json.JSONDecoder(), [], text.find(opening)
    for _ in range(_MOST_BEGINNINGS):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            found.append(value)
        start = text.find(opening, end)
    return found
