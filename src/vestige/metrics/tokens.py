"""Texts taken apart so that the same thing said in usual forms is the same token, in time linear in the length.

- Words: letters, digits and marks, without case, without the marks on Latin and Greek letters (Zürich, Zurich) and
  without invisible characters. Punctuation parts words and is no token, but for the signs of C++ and C#. The hyphen
  after a prefix that makes another word joins them: "weekly" is not in "bi-weekly".
- Scripts without spaces, and Hangul, whose particles cling to words: each character is a token, Katakana each run.
- Numbers: one token with sign, decimals and thousands, in one form (1,500 = 1500, 3.50 = 3.5); times of day and numbers
  of several parts (10:30, 1.2.3) too. "%", "percent" and "per cent" are one token of their own.
- Dates of day, month and year: one token. 06-02-1998 may be of February or of June: dates in figures are compared as
  they stand, and either reading is the same date as one in words.

Limits: words inside others of a script without spaces are found (京都 in 東京都); 1.500 is one and a half and 3,5 is
three and a half; letters of other scripts that look alike and years of two digits are not read.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

SEPARATOR = "\x1f"

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
    *("november", "december"),
)
_MONTHS_BY_START = {m[:3]: n for n, m in enumerate(_MONTHS, 1)}
_MONTH = "|".join(f"{m}|{m[:3]}" for m in (*_MONTHS, "sept"))
_ORDINALS = re.findall(
    r"\w+",
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth",
)
_DAYS = {word: n for n, word in enumerate(_ORDINALS, 1)} | {"thirtieth": 30, "thirty-first": 31, "thirty first": 31}
_DAYS |= {f"twenty{hyphen}{word}": 20 + n for n, word in enumerate(_ORDINALS[:9], 1) for hyphen in "- "}
_DAY_IN_WORDS = "|".join(sorted(_DAYS, key=len, reverse=True))
_DAY = rf"(?:\d{{1,2}}(?:st|nd|rd|th)?|{_DAY_IN_WORDS.replace(' ', chr(92) + ' ')})"
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff"
# Han, Hiragana, Thai, Lao, Myanmar, Khmer, Hangul.
_SINGLE = (
    "\u2e80-\u2fdf\u3005\u3007\u3041-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u109f\u1780-\u17d3\u1100-\u11ff\uac00-\ud7af"
)
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0970-\u0dff"
_OF_UNSPACED = re.compile(f"[{_SINGLE}]")
_LETTER = rf"[^\W_{_SINGLE}{_KATAKANA}]"
_PREFIX = "anti|bi|co|ex|non|post|pre|semi|tri|un"
_TOKEN = re.compile(
    rf"""
      (?P<ymd>(?<![\w.])(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}})(?!\w|[-/.,]\d))
    | (?P<cjk>(?<!\d)(\d{{4}})\ ?[年년]\ ?(\d{{1,2}})\ ?[月월]\ ?(\d{{1,2}})\ ?[日일])
    | (?P<figures>(?<![\w.])(\d{{1,2}})[-/.](\d{{1,2}})[-/.](\d{{4}})(?!\w|[-/.,]\d))
    | (?P<dmy>(?<!\w)({_DAY})\ (?:day\ )?(?:of\ )?({_MONTH})\b\.?,?\ (?:in\ (?:the\ year\ )?|of\ )?(\d{{4}})(?!\w))
    | (?P<mdy>(?<!\w)({_MONTH})\b\.?\ (?:the\ )?({_DAY}),?\ (?:of\ )?(\d{{4}})(?!\w))
    | (?P<parts>(?<!\w)\d+(?:(?::\d+)+|(?:\.\d+){{2,}})(?!\w))
    | (?P<number>(?:(?<![\w)\].])-)?(?:(?<!\w)|(?<=[{_SINGLE}{_KATAKANA}]))
        (?:\d+,\d{{1,2}}(?![\d,])|(?:\d{{1,3}}(?:,\d{{3}}){{1,12}}(?![,\d])|\d+)(?:\.\d+)?|\.\d+)(?!{_LETTER}))
    | (?P<percent>%|\bper\ ?cent\b)
    | (?P<katakana>[{_KATAKANA}]+)
    | (?P<single>[{_SINGLE}])
    | (?P<word>(?:(?<!\w)(?:{_PREFIX})-(?={_LETTER}))?(?:{_LETTER}|[{_MARKS}])+(?:\+\+|\#)?)
    | (?P<symbol>[&+=<>~\u20a0-\u20cf$£¥])
    """,
    re.VERBOSE,
)
_LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "\u2212": "-", "\ufe63": "-"})


class Token(NamedTuple):
    """A token's `text` in one form, and from where to where it stands; `dates` are the readings (year, month, day)."""

    text: str
    start: int
    end: int
    dates: tuple[tuple[int, int, int], ...] = ()


def plain(text: str) -> str:
    """Normalised `text` without the marks on Latin and Greek letters and without invisible characters."""
    if text.isascii():
        return text
    found, bare = [], False
    for c in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(c)
        if kind == "Cf" or (kind == "Mn" and bare):
            continue
        if kind != "Mn":
            bare = c < "\u0400"
        found.append(c if kind != "Nd" else str(unicodedata.decimal(c)))
    return unicodedata.normalize("NFC", "".join(found)).translate(_LETTERS)


def tokens(text: str) -> list[Token]:
    """The tokens of a text that is `answers.normalised`, in order; `start` and `end` count in `plain(text)`."""
    return [_token(m) for m in _TOKEN.finditer(plain(text))]


def unspaced(token: Token) -> bool:
    """Whether the token is a single character of a script without spaces, or of Hangul."""
    return len(token.text) == 1 and bool(_OF_UNSPACED.match(token.text))


def aligned(said: Sequence[Token], wanted: Sequence[Token]) -> list[str]:
    """The texts of `said`, a date's in the form of the same date in `wanted` where there is one."""
    dates = {t.text: t for t in wanted if t.dates}
    if not dates:
        return [t.text for t in said]
    return [_as_wanted(t, dates) if t.dates else t.text for t in said]


def _as_wanted(token: Token, dates: dict[str, Token]) -> str:
    if token.text in dates:
        return token.text
    for other in dates.values():
        # Two dates in figures that can be read in two ways are compared as they stand.
        if min(len(token.dates), len(other.dates)) < 2 and set(token.dates) & set(other.dates):
            return other.text
    return token.text


def _token(match: re.Match[str]) -> Token:
    kind, text = str(match.lastgroup), match.group()
    if kind in _ORDERS:
        return _date(kind, text, match.span())
    if kind == "number":
        text = _number(text)
    elif kind == "percent":
        text = "%"
    elif kind == "word":
        text = text.replace("-", "")
    elif text == "&":
        text = "and"
    return Token(text, *match.span())


_ORDERS = {"ymd": ("ymd",), "cjk": ("ymd",), "figures": ("dmy", "mdy"), "dmy": ("dmy",), "mdy": ("mdy",)}


def _date(kind: str, text: str, span: tuple[int, int]) -> Token:
    parts = re.findall(rf"\d+|(?<![\w-])(?:{_DAY_IN_WORDS}|{_MONTH})\b", text)
    numbers = [int(p) if p.isdecimal() else _DAYS.get(p) or _MONTHS_BY_START[p[:3]] for p in parts]
    readings = []
    for order in _ORDERS[kind]:
        by = dict(zip(order, numbers, strict=True))
        if 1 <= by["m"] <= 12 and 1 <= by["d"] <= 31:
            readings.append((by["y"], by["m"], by["d"]))
    known = tuple(dict.fromkeys(readings))
    return Token("/".join(map(str, known[0] if len(known) == 1 else numbers)), *span, known)


def _number(text: str) -> str:
    """One form of a number: without thousands' commas, and zeros that say nothing."""
    if re.fullmatch(r"-?\d+,\d\d?", text):
        text = text.replace(",", ".")
    whole, _, part = text.replace(",", "").removeprefix("-").partition(".")
    whole, part = whole.lstrip("0") or "0", part.rstrip("0")
    sign = "-" if text.startswith("-") and (whole != "0" or part) else ""
    return f"{sign}{whole}.{part}" if part else sign + whole
