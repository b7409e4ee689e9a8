"""What a text takes back: words that it denies, and words that it names as one of several candidates.

By rules on the words, in linear time. A word is denied from a negator on ("not", "never", "rather than", nicht, pas,
не, 不是) to the end of its clause, twelve words at most, or from "it is not true that" to the end of its sentence; or
in front of its clause's denial ("Paris is wrong", 東京ではありません). A clause ends at punctuation, and before "but",
"until" and their like. Forms that deny nothing are known ("not only", "no doubt").

Candidates are the items of a list: three or more, apart by commas, slashes, "or" or "and". Without an "or" in it a list
has five or more, since an address is a list too. What stands between the first and the last item has three words at
most and no common word, else it is a sentence.

Numbers in words, read as the number: "twenty-five", "a hundred and five", "1.5 million"; English.
"""

import re
from collections.abc import Container, Sequence
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


_REACH = 12
_ITEM = 3
_LEAST_WITH_OR, _LEAST = 3, 5

_MARK = re.compile(
    r"""
      (?P<harmless>\bnot\ (?:only|just|merely|simply|surprisingly|least|to\ mention|until|till|before|unlike|without)\b
        |\b(?:no|without(?:\ a)?|beyond(?:\ a)?|not\ in)\ doubt\b
        |\bno\ (?:question|less|later|fewer|wonder|other\ than)\b|\bwhy\ not\b
        |\b(?:is|was|are|were|did|does|do)n['’]t\ (?:it|he|she|they|that|this)\b[^.!?]{0,80}\?)
    | (?P<wide>\b(?:(?:is|was)?(?:\ ?not|n['’]t)\ (?:true|correct|right|so|the\ case)
        |(?:(?:is|was)\ )?(?:false|untrue|incorrect|wrong|a\ myth))\ that\b)
    | (?P<behind>\b(?:is|are|was|were|be)(?:\ not|n['’]t)\ (?:the\ )?(?:correct|right|true|answer|case|one)\b
        |\b(?:is|are|was|were|be)\ (?:wrong|incorrect|false|untrue)\b
        |(?:では|じゃ)\ ?(?:な[いくか]|あり(?:ま|得))|(?:이|가)\ ?아[니닙닌])
    | (?P<ahead>\b(?:not|never|no|nor|neither|cannot|without|hardly|unlikely|wrong(?:ly)?|incorrect(?:ly)?|false(?:ly)?
        |untrue|myth|instead\ of|rather\ than|other\ than|apart\ from|except(?:\ for)?|den(?:y|ies|ied)|doubts?
        |nicht|kein(?:e[mnrs]?)?|niemals|pas|jamais|nunca|não|nao|ne|не|нет|ни|ليس|ليست)\b
        |n['’]t\b|不是|并非|並非|并不|並不|没有|沒有)
    | (?P<pause>[,:](?!\d)|[;、—]|\s[-–]\s)
    | (?P<end>\.(?!\d)|[!?。]|\b(?:but|however|although|though|because|since|while|whereas|until|before|yet
        |aber|sondern|mais|pero|sino|но|а)\b)
    """,
    re.VERBOSE,
)
_OR = frozenset(("or", "oder", "ou", "o", "或", "или"))
_AND = frozenset(("and", "und", "et", "y", "и", "和"))
_BETWEEN = re.compile(r"[,;/、]")
_ENDS = re.compile(r"[.!?:。]")
_ARTICLES = frozenset(("a", "an", "the"))


def denied(text: str, found: Sequence[Token]) -> list[bool]:
    """Whether each of the tokens of a text (`tokens.plain` of it) is denied."""
    marks = [(m.end(), str(m.lastgroup)) for m in _MARK.finditer(text)][::-1]
    flags = [False] * len(found)
    reach, clause, wide = 0, 0, False
    for n in range(len(found) + 1):
        start = found[n].start if n < len(found) else len(text)
        while marks and marks[-1][0] <= start:
            kind = marks.pop()[1]
            if kind == "behind":
                flags[max(clause, n - _REACH) : n] = [True] * (n - max(clause, n - _REACH))
            elif kind in ("ahead", "wide"):
                reach, wide = max(reach, len(found) if kind == "wide" else _REACH), wide or kind == "wide"
            elif kind == "end" or (kind == "pause" and not wide):
                reach, clause, wide = 0, n, False
        if n < len(found) and reach:
            flags[n], reach = True, reach - 1
    return flags


def candidates(text: str, found: Sequence[Token], common: Container[str]) -> list[list[range]]:
    """The lists of a text, each the numbers of the tokens of its items; `common` are words that no item holds."""
    lists: list[list[range]] = []
    parts: list[range] = []
    begin, either = 0, False

    def close(upto: int) -> None:
        nonlocal either, begin
        if upto > begin:
            parts.append(range(begin, upto))
        lists.extend(_lists(parts, found, common, _LEAST_WITH_OR if either else _LEAST))
        parts.clear()
        begin, either = upto, False

    for n, token in enumerate(found):
        gap = text[found[n - 1].end : token.start] if n else ""
        word = token.text in _OR or token.text in _AND
        if _ENDS.search(gap):
            close(n)
        elif (word or _BETWEEN.search(gap)) and n > begin:
            parts.append(range(begin, n))
            begin = n
        if word:
            either |= token.text in _OR
            begin = n + 1
    close(len(found))
    return lists


def _lists(parts: Sequence[range], found: Sequence[Token], common: Container[str], least: int) -> list[list[range]]:
    """Runs of parts that are items, each with what may be one in the parts before and behind it."""

    def bare(part: range) -> range:
        return part[1:] if len(part) > 1 and found[part[0]].text in _ARTICLES else part

    def trimmed(part: range) -> range:
        return part[: next((n for n, i in enumerate(part) if found[i].text in common), _ITEM)][:_ITEM]

    made: list[list[range]] = []
    run: list[range] = []
    for n, part in enumerate(map(bare, parts)):
        if n and len(part) <= _ITEM and not any(found[i].text in common for i in part):
            run = run or [trimmed(parts[n - 1][::-1])]
            run.append(part)
        elif run:
            made.append([*run, trimmed(part)])
            run = []
    return [items for items in (*made, run) if len(items) >= least]
