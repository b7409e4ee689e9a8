"""Numbers in words, read as the number: "twenty-five", "a hundred and five", "1.5 million"; English."""

import re
from collections.abc import Sequence
from decimal import Decimal

from vestige.metrics.tokens import Token

_SMALL = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
_TEN = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_TENS = {word: 10 * n for n, word in enumerate(_TEN, 2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_VALUES = {word: n for n, word in enumerate(_SMALL)} | _TENS | {"a": 1}
_BELOW_100 = rf"(?:(?:{'|'.join(_TENS)})(?:[ -](?:{'|'.join(_SMALL[1:10])})\b)?|{'|'.join(_SMALL[::-1])})"
_BELOW_1000 = rf"(?:(?:a|{_BELOW_100}) hundred(?:(?: and)? {_BELOW_100})?|{_BELOW_100})"
_SCALE = "|".join(_SCALES)
_NUMBER = re.compile(
    rf"(?<![\w.,-])(?:\d+(?:\.\d+)? (?:{_SCALE})|(?:(?:a|{_BELOW_1000}) (?:{_SCALE})(?:,? and|,)? ){{0,3}}{_BELOW_1000}"
    rf"|(?:a|{_BELOW_1000}) (?:{_SCALE}))(?!\w)"
)


def numerals(found: Sequence[Token], text: str) -> list[Token]:
    """The tokens of `text`, each number in words (or of figures and words) as one; "one" by itself stays."""
    spans = [m for m in _NUMBER.finditer(text) if m.group() != "one"]
    made: list[Token] = []
    n = 0
    for span in spans:
        while n < len(found) and found[n].start < span.start():
            made.append(found[n])
            n += 1
        if (made and made[-1].end > span.start()) or (n < len(found) and found[n].dates):
            continue  # A part of a date.
        made.append(Token(_value(span.group()), *span.span()))
        while n < len(found) and found[n].start < span.end():
            n += 1
    return [*made, *found[n:]]


def _value(words: str) -> str:
    total = part = Decimal(0)
    for word in re.findall(r"\d+(?:\.\d+)?|[a-z]+", words):
        if word in _SCALES:
            total, part = total + part * _SCALES[word], Decimal(0)
        elif word == "hundred":
            part *= 100
        elif word != "and":
            part += _VALUES[word] if word in _VALUES else Decimal(word)
    return f"{(total + part).normalize():f}"
