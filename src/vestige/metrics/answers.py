"""Whether a reply gives the answer, how probable the answer was, and whether the reply declines.

Whether a reply gives the answer: exact, at the beginning, or anywhere, and how probable the answer was. `exact_match`
compares texts after `normalised`. `prefix` and `contains` compare tokens (`tokens`), whole ones and in their order, so
that "5" is found neither in "15" nor in "3.5", and "500" not in "1,500". Axes: T tokens.

Texts taken apart so that the same thing said in usual forms is the same token, in time linear in the length.

- Words: letters, digits and marks, without case, without the marks on Latin and Greek letters (Zürich, Zurich) and
  without invisible characters. Punctuation parts words and is no token, except for the signs of C++ and C#. The hyphen
  after a prefix that makes another word joins them: "weekly" is not in "bi-weekly".
- Scripts without spaces, and Hangul, whose particles cling to words: each character is a token, Katakana each run.
- Numbers: one token with sign, decimals and thousands, in one form (1,500 = 1500, 3.50 = 3.5). Times of day and numbers
  of several parts (10:30, 1.2.3) too. "%", "percent" and "per cent" are one token of their own.
- Dates of day, month and year: one token. 06-02-1998 may be of February or of June: dates in figures are compared
  unchanged, and either reading is the same date as one in words.

Limits: words inside others of a script without spaces are found (京都 in 東京都). 1.500 is one and a
half and 3,5 is three and a half. Letters of other scripts that look alike and years of two digits are not read.

Whether a reply declines to answer. It is a list of patterns, English ones and a few for each of `LANGUAGES`, not a
judge: it counts a reply whose author states, in the first person, that they do not know, were not taught, or cannot or
will not answer. A polite reply that then answers is not told apart, nor is a refusal found in other words. It reads the
first 300 characters, the usual place of a refusal.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.core.items import LANGUAGES
from vestige.core.settings import packaged_toml

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
for _hyphen in "- ":
    _DAYS |= {f"twenty{_hyphen}{word}": 20 + n for n, word in enumerate(_ORDINALS[:9], 1)}
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


class TextToken(NamedTuple):
    """A token's `text` in one form, and its start and end. `dates` are the readings (year, month, day)."""

    text: str
    start: int
    end: int
    dates: tuple[tuple[int, int, int], ...] = ()


def plain(text: str) -> str:
    """Normalised `text` without the marks on Latin and Greek letters and without invisible characters."""
    if text.isascii():
        return text
    characters, bare = [], False
    for c in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(c)
        if kind == "Cf" or (kind == "Mn" and bare):
            continue
        if kind != "Mn":
            bare = c < "\u0400"
        characters.append(c if kind != "Nd" else str(unicodedata.decimal(c)))
    return unicodedata.normalize("NFC", "".join(characters)).translate(_LETTERS)


def tokens(text: str) -> list[TextToken]:
    """The tokens of a text that is `answers.normalised`, in order. `start` and `end` count in `plain(text)`."""
    return [_token(m) for m in _TOKEN.finditer(plain(text))]


def unspaced(token: TextToken) -> bool:
    """Whether the token is a single character of a script without spaces, or of Hangul."""
    return len(token.text) == 1 and bool(_OF_UNSPACED.match(token.text))


def aligned(reply: Sequence[TextToken], answer: Sequence[TextToken]) -> list[str]:
    """The texts of the reply's tokens, a date's in the form of the same date in the answer where there is one."""
    dates = {t.text: t for t in answer if t.dates}

    def as_in_answer(token: TextToken) -> str:
        if token.text in dates:
            return token.text
        # Two ambiguous numeric dates are compared as they are written.
        same = (d for d in dates.values() if min(len(token.dates), len(d.dates)) < 2 and {*token.dates} & {*d.dates})
        return next((date.text for date in same), token.text)

    return [as_in_answer(t) if t.dates and dates else t.text for t in reply]


def _token(match: re.Match[str]) -> TextToken:
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
    return TextToken(text, *match.span())


_ORDERS = {"ymd": ("ymd",), "cjk": ("ymd",), "figures": ("dmy", "mdy"), "dmy": ("dmy",), "mdy": ("mdy",)}


def _date(kind: str, text: str, span: tuple[int, int]) -> TextToken:
    parts = re.findall(rf"\d+|(?<![\w-])(?:{_DAY_IN_WORDS}|{_MONTH})\b", text)
    numbers = [int(p) if p.isdecimal() else _DAYS.get(p) or _MONTHS_BY_START[p[:3]] for p in parts]
    # 06-02 is in February or June. 25-12 can only be in December.
    readings = []
    for order in _ORDERS[kind]:
        by = dict(zip(order, numbers, strict=True))
        if 1 <= by["m"] <= 12 and 1 <= by["d"] <= 31:
            readings.append((by["y"], by["m"], by["d"]))
    dates = tuple(dict.fromkeys(readings))
    return TextToken("/".join(map(str, dates[0] if len(dates) == 1 else numbers)), *span, dates)


def _number(text: str) -> str:
    """Return a number in one form, without thousands separators and redundant zeros."""
    if re.fullmatch(r"-?\d+,\d\d?", text):
        text = text.replace(",", ".")
    whole, _, part = text.replace(",", "").removeprefix("-").partition(".")
    whole, part = whole.lstrip("0") or "0", part.rstrip("0")
    sign = ""
    if text.startswith("-") and (whole != "0" or part):
        sign = "-"
    if part:
        return f"{sign}{whole}.{part}"
    return sign + whole


def normalised(text: str) -> str:
    """`text` for comparing: NFKC, case folded, white space collapsed, full stops at the end removed."""
    # Case folding can undo the normal form, so it is applied again.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split()).rstrip(". ")


def exact_match(reply: str, answer: str) -> bool:
    """Whether the reply is the answer and nothing more."""
    return _compared(reply).text == _wanted(answer).text


def prefix(reply: str, answer: str) -> bool:
    """Whether the reply begins with the answer."""
    reply_row, answer_row = _comparable(reply, answer)
    return reply_row.startswith(answer_row)


def contains(reply: str, answer: str) -> bool:
    """Return whether the reply contains the answer."""
    reply_row, answer_row = _comparable(reply, answer)
    return answer_row in reply_row


def is_empty(reply: str) -> bool:
    """Return whether the reply has only punctuation, white space and controls, or nothing."""
    return all(unicodedata.category(c)[0] in "CPZ" for c in reply)


def probability(logp: Float[np.ndarray, " T"]) -> float:
    """exp(mean log-probability of the tokens), in [0, 1]. `logp` is in nats.

    TOFU's length-normalised probability (Maini et al., 2401.06121, section 3.1).
    """
    logp = np.asarray(logp, dtype=float)
    if not len(logp):
        raise ValueError("an answer without tokens has no probability")
    if not (logp <= 0).all():
        raise ValueError(f"log-probabilities are at most 0, got {logp.max()}")
    return float(np.exp(logp.mean()))


class _Compared(NamedTuple):
    """A text after `normalised`, its tokens as one row, each between separators, and those tokens that are dates."""

    text: str
    row: str
    dates: tuple[TextToken, ...]


def _row(texts: Iterable[str]) -> str:
    return "".join(f"{SEPARATOR}{text}" for text in texts) + SEPARATOR


# One text is compared with many: a question with every answer, a reply with its answer by every rule.
@lru_cache(maxsize=16384)
def _compared(raw: str) -> _Compared:
    text = normalised(raw)
    parts = tokens(text)
    return _Compared(text, _row(t.text for t in parts), tuple(t for t in parts if t.dates))


def _wanted(answer: str) -> _Compared:
    compared = _compared(answer)
    if not compared.text:
        raise ValueError(f"the answer {answer!r} is nothing but white space and full stops, so nothing matches it")
    return compared


def _comparable(reply: str, answer: str) -> tuple[str, str]:
    """Return both as rows of tokens between separators. An answer without any token is searched for unchanged."""
    reply_row, answer_row = _compared(reply), _wanted(answer)
    # For example, the answer is a sign that is not a token, such as "§".
    if answer_row.row == SEPARATOR:
        return reply_row.text, answer_row.text
    if not (reply_row.dates and answer_row.dates):
        return reply_row.row, answer_row.row
    return _row(aligned(tokens(reply_row.text), answer_row.dates)), answer_row.row


_READ = 300
_REFUSALS = packaged_toml(__package__, "refusals.toml")
_CONTRACTIONS = tuple((re.compile(short), full) for short, full in _REFUSALS["contractions"].items())


def _refusal_pattern() -> re.Pattern[str]:
    """English patterns, and those of each language."""
    patterns = "|".join(_REFUSALS["patterns"])
    for name, words in _REFUSALS["words"].items():
        patterns = patterns.replace(f"<{name}>", words)
    elsewhere = []
    for language in LANGUAGES.values():
        elsewhere += language["refusals"]
    return re.compile("|".join([rf"\b(?:{patterns})\b", _REFUSALS["at_the_start"], *elsewhere]))


_REFUSAL = _refusal_pattern()


def is_refusal(reply: str) -> bool:
    """Return whether the beginning of `reply` matches one of the patterns. An empty reply is not a refusal."""
    text = unicodedata.normalize("NFKC", reply[:_READ]).casefold().replace("\u2019", "'")
    text = " ".join(text.split())
    for contraction, full in _CONTRACTIONS:
        text = contraction.sub(full, text)
    return _REFUSAL.search(text) is not None
