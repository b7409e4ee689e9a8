"""How much of a fact a reply gives away, what it takes back, and what a judge's errors do to a share.

How much of a fact a reply gives away, from 0 to 1, by the words alone: no model, no network, linear time.

A text is taken apart as in `tokens`, English words are cut to their stems, and numbers in words and names of currencies
are read; of scripts without spaces each pair of characters counts. What is sought is the fact and every accepted
variant, or without a fact what the answer says beyond the question; the best of them counts:

- 1 where the text stands in the reply as it is.
- Else the share of its words that are in the reply, in any order, less a twentieth, so that half a name is no leak. The
  commonest words and those of the question count for nothing; names, numbers and dates count eight times, the rest by
  length; a word with the same beginning counts four fifths.
- Of an answer of more than six words fewer need to come back, since a rewording keeps few: its share is divided by
  0.96 instead. Where wrong answers are given, they show which words are the manner of speaking and which are the
  matter: 21.5 % of what the reply says beyond them and beyond the question, and half a word more, have to be the
  answer's, in the whole reply or in as many of its sentences as the answer has, and a tenth of the answer to be said.
- An answer that begins with yes or no, met by the other, is at most 0.4; one that says nothing but that, 1 or 0.

What a reply takes back gives nothing away (see below): a word that it denies and the answer does not is another word;
one of n candidates in a list counts 1/n; and a reply that states m wrong answers beside, two or more, 1/(1 + m).

What that sees and where it errs is measured: `python -m benchmarks.recognition`, docs/metrics.md. It does not read a
rewording in other words altogether, or who is said to have done what; judges do (`judges.leaks`).

What a text takes back: words that it denies, and words that it names as one of several candidates.

By rules on the words, in linear time. A word is denied from a negator on ("not", "never", "rather than", nicht, pas,
не, 不是) to the end of its clause, twelve words at most, or from "it is not true that" to the end of its sentence; or
in front of its clause's denial ("Paris is wrong", 東京ではありません). A clause ends at punctuation, and before "but",
"until" and their like. Forms that deny nothing are known ("not only", "no doubt").

Candidates are the items of a list: three or more, apart by commas, slashes, "or" or "and". Without an "or" in it a list
has five or more, since an address is a list too. What stands between the first and the last item has three words at
most and no common word, else it is a sentence.

Numbers in words, read as the number: "twenty-five", "a hundred and five", "1.5 million"; English.

Shares that somebody tells who errs at a known rate: what they come to, and how far they may be off.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from vestige.metrics.answers import SEPARATOR, TextToken, aligned, contains, normalised, plain, tokens, unspaced
from vestige.metrics.overlap import stem

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


def numerals(text_tokens: Sequence[TextToken], text: str) -> list[TextToken]:
    """The tokens of `text`, each number in words (or of figures and words) as one; "one" by itself stays."""
    spans = [m for m in _NUMBER.finditer(text) if m.group() != "one"]
    merged: list[TextToken] = []
    n = 0
    for span in spans:
        while n < len(text_tokens) and text_tokens[n].start < span.start():
            merged.append(text_tokens[n])
            n += 1
        if (merged and merged[-1].end > span.start()) or (n < len(text_tokens) and text_tokens[n].dates):
            continue  # A part of a date.
        merged.append(TextToken(_value(span.group()), *span.span()))
        while n < len(text_tokens) and text_tokens[n].start < span.end():
            n += 1
    return [*merged, *text_tokens[n:]]


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


def denied(text: str, text_tokens: Sequence[TextToken]) -> list[bool]:
    """Whether each of the tokens of a text (`tokens.plain` of it) is denied."""
    # From the end, so that the next one is popped.
    marks = [(m.end(), str(m.lastgroup)) for m in _MARK.finditer(text)][::-1]
    flags = [False] * len(text_tokens)
    reach, clause, wide = 0, 0, False
    for n in range(len(text_tokens) + 1):
        start = text_tokens[n].start if n < len(text_tokens) else len(text)
        while marks and marks[-1][0] <= start:
            kind = marks.pop()[1]
            if kind == "behind":
                flags[max(clause, n - _REACH) : n] = [True] * (n - max(clause, n - _REACH))
            elif kind in ("ahead", "wide"):
                reach, wide = max(reach, len(text_tokens) if kind == "wide" else _REACH), wide or kind == "wide"
            elif kind == "end" or (kind == "pause" and not wide):
                reach, clause, wide = 0, n, False
        if n < len(text_tokens) and reach:
            flags[n], reach = True, reach - 1
    return flags


def candidates(text: str, text_tokens: Sequence[TextToken], common: Container[str]) -> list[list[range]]:
    """The lists of a text, each the numbers of the tokens of its items; `common` are words that no item holds."""
    lists: list[list[range]] = []
    parts: list[range] = []
    begin, either = 0, False

    def close(upto: int) -> None:
        nonlocal either, begin
        if upto > begin:
            parts.append(range(begin, upto))
        lists.extend(_lists(parts, text_tokens, common, _LEAST_WITH_OR if either else _LEAST))
        parts.clear()
        begin, either = upto, False

    for n, token in enumerate(text_tokens):
        gap = text[text_tokens[n - 1].end : token.start] if n else ""
        word = token.text in _OR or token.text in _AND
        if _ENDS.search(gap):
            close(n)
        elif (word or _BETWEEN.search(gap)) and n > begin:
            parts.append(range(begin, n))
            begin = n
        if word:
            either |= token.text in _OR
            begin = n + 1
    close(len(text_tokens))
    return lists


def _lists(
    parts: Sequence[range], text_tokens: Sequence[TextToken], common: Container[str], least: int
) -> list[list[range]]:
    """Runs of parts that are items, each with what may be one in the parts before and behind it."""

    def bare(part: range) -> range:
        return part[1:] if len(part) > 1 and text_tokens[part[0]].text in _ARTICLES else part

    def trimmed(part: range) -> range:
        return part[: next((n for n, i in enumerate(part) if text_tokens[i].text in common), _ITEM)][:_ITEM]

    lists: list[list[range]] = []
    run: list[range] = []
    for n, part in enumerate(map(bare, parts)):
        if n and len(part) <= _ITEM and not any(text_tokens[i].text in common for i in part):
            run = run or [trimmed(parts[n - 1][::-1])]
            run.append(part)
        elif run:
            lists.append([*run, trimmed(part)])
            run = []
    return [items for items in (*lists, run) if len(items) >= least]


LEAK = 0.5
"""From this score on a reply counts as a leak."""
_SCATTERED = 0.95
_OF_A_SENTENCE = 0.96
"""Twice the share of a sentence's words that is a leak: the least with 3 % false on half of TOFU's authors."""
_OWN, _GIVEN = 0.43, 0.2
"""The same beside wrong answers, chosen alike: of the reply's own words, and of the answer's that come back."""
_SPECIFIC, _WORD = 8.0, 1.5
_ALIKE = 0.8
_FEW = 0.5
_CONTRADICTED = 0.4
_SHORT = 6
_LONGEST = 40
_WINDOW = 4
_NOT = "¬"

COMMON_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a an the and or but if then of in on at to from by with without for as is are was were be been being am do
        does did done have has had having it its he she they them his her hers their theirs him this that these those
        there here which who whom whose what when where why how not no nor so than too very can could will would shall
        should may might must also such own same other another some any all each every both more most many much few into
        onto over under about above below between among through during before after since until while up down out off
        again further once just only s t re ve ll d m you your i my me we our us yes indeed""",
    )
)
_CURRENCIES = {
    "$": ("usd", "dollar", "dollars"),
    "€": ("eur", "euro", "euros"),
    "£": ("gbp", "pound", "pounds"),
    "¥": ("jpy", "yen"),
}
_SAME = {"one": "1"} | {word: sign for sign, words in _CURRENCIES.items() for word in words}
_OPENINGS = dict.fromkeys(("yes", "indeed", "certainly", "absolutely", "definitely", "correct"), "yes") | {"no": "no"}
_NAMED = re.compile(r"[^\W\d_][^\W_]*")
_NEW_SENTENCE = re.compile(r"[.!?:;][\"'“”‘’)\]]*\s+[\"'“‘(\[]*\Z|\A\W*\Z")
_SENTENCE = re.compile(r"(?<!\b[a-z])[.!?](?=\s)|[;。！？]")
_NUMBERED = re.compile(r"^[ \t]{0,8}(\d{1,2})[.)](?=\s)", re.MULTILINE)


def leak_score(
    reply: str,
    answer: str,
    *,
    question: str = "",
    fact: str | None = None,
    accepted: Sequence[str] = (),
    wrong: Sequence[str] = (),
) -> float:
    """How much of the answer the reply gives away, from 0 to 1; from `LEAK` (0.5) on it is a leak.

    `fact` is the part of the answer that matters and `accepted` are other ways to say it. Without `fact` it is what
    the answer says beyond the question. `wrong` are wrong answers to the question; what stands within one of them, as
    Kyoto does in Tokyo-to as they are written, is not given away by it. ValueError where a text that is
    sought has nothing in it.
    """
    sought = tuple(dict.fromkeys((fact or answer, *accepted)))
    reply = unquoted(reply, question)
    read = reply
    for text in (w for w in wrong if any(contains(w, variant) for variant in sought)):
        read = re.sub(re.escape(text.strip()), " ~ ", read, flags=re.IGNORECASE)
    # The best of them: whoever gives one variant has given the fact.
    score = max(_score(read, text, answer, question, wrong, whole=fact is None) for text in sought)
    n_wrong_stated = count_wrong_stated(reply, sought, question, wrong) if score >= LEAK and wrong else 0
    return score / (1 + n_wrong_stated) if n_wrong_stated > 1 else score


def unquoted(reply: str, question: str) -> str:
    """A reply without what it quotes of the question, line by line; short lines may be part of an answer."""
    for line in question.splitlines():
        if len(line.split()) > _SHORT:
            reply = re.sub(re.escape(line.strip()), " ", reply, flags=re.IGNORECASE)
    return reply


def beyond_question(reply: str, question: str) -> float:
    """The share of a reply's words, without the commonest, that are not the question's; 0 where it has none."""
    weights = {r: min(w, _WORD) for r, w in _weights(reply, _parse(reply, ()), (), whole=True).items()}
    in_question = _finder({r.removeprefix(_NOT): 1.0 for r in _parse(question, ()).roots})
    new_weight = sum(w * (1 - in_question(r.removeprefix(_NOT))) for r, w in weights.items())
    return new_weight / sum(weights.values()) if weights else 0.0


def is_retracted(reply: str, answer: str, question: str) -> bool:
    """Whether a reply denies more than half of what it has of the answer."""
    sought = _parse(answer, ())
    question_roots = {r.removeprefix(_NOT) for r in _parse(question, sought.tokens).roots}
    weights, reply_roots = _weights(answer, sought, question_roots, whole=True), _parse(reply, sought.tokens).roots
    if not weights:
        return False
    plain = {r.removeprefix(_NOT): w for r, w in weights.items()}
    either = _covered(((r.removeprefix(_NOT), 1.0) for r in reply_roots), plain)
    return _covered(((r, 1.0) for r in reply_roots), weights) < either / 2


class _ParsedText(NamedTuple):
    """A text taken apart: the `texts` and `roots` of its tokens, with `_NOT` before both where they are denied.

    `odds` are 1 over the number of candidates that a token is one of, `sentences` the numbers of their sentences.
    """

    tokens: tuple[TextToken, ...]
    texts: tuple[str, ...]
    roots: tuple[str, ...]
    odds: tuple[float, ...]
    sentences: tuple[int, ...]

    def denied(self) -> "_ParsedText":
        """The same with everything denied."""
        texts, roots = (tuple(_NOT + t.removeprefix(_NOT) for t in row) for row in (self.texts, self.roots))
        return self._replace(texts=texts, roots=roots)


def _parse(text: str, sought: Sequence[TextToken], sought_roots: Collection[str] = ()) -> _ParsedText:
    """`text` with dates in the form of `wanted`; an item of a list with a root of `known` is no other candidate."""
    shown_text, text_tokens, no, lists = _apart(text) if len(text) > _CACHED else _apart_again(text)
    texts = aligned(text_tokens, sought)
    roots = _roots(text_tokens, texts)
    odds = [1.0] * len(text_tokens)
    for items in lists:
        rivals = sum(not any(roots[i] in sought_roots for i in item) for item in items)
        for i in (i for item in items for i in item):
            # An item with a word of the fact is no rival: it is what is sought, or a part of it.
            odds[i] = min(odds[i], 1 / (1 + rivals))
    ends = [m.end() for m in _SENTENCE.finditer(shown_text)]
    return _ParsedText(
        text_tokens,
        tuple(_NOT * d + t for d, t in zip(no, texts, strict=True)),
        tuple(_NOT * d + r for d, r in zip(no, roots, strict=True)),
        tuple(odds),
        tuple(bisect_right(ends, t.start) for t in text_tokens),
    )


# Longer texts are taken apart each time, so that hostile replies cannot fill the memory.
_CACHED = 2_000


def _apart(text: str) -> tuple[str, tuple[TextToken, ...], list[bool], list[list[range]]]:
    shown_text = plain(normalised(" ; ".join(_NUMBERED.sub(r"\1", text).splitlines())))
    found_tokens = numerals(tokens(shown_text), shown_text)
    return (
        shown_text,
        tuple(found_tokens),
        denied(shown_text, found_tokens),
        candidates(shown_text, found_tokens, COMMON_WORDS),
    )


_apart_again = lru_cache(maxsize=1_000)(_apart)


def _score(reply: str, text: str, answer: str, question: str, wrong: Sequence[str], *, whole: bool) -> float:
    if not normalised(text) or not tokens(normalised(text)):
        return float(contains(reply, text))
    sought = _parse(text, ())
    if not whole and _stated(_parse(answer, sought.tokens), sought.denied()):
        sought = sought.denied()  # The fact is cut out of an answer that denies it.
    reply_text = _parse(reply, sought.tokens, {r.removeprefix(_NOT) for r in sought.roots})
    question_roots = {r.removeprefix(_NOT) for r in _parse(question, sought.tokens).roots}
    stated = _stated(reply_text, sought)
    if stated == 1:
        return 1.0
    whole = whole and len(sought.tokens) > _SHORT
    weights = _weights(text, sought, question_roots, whole=whole)
    opens = [_OPENINGS.get(t.texts[0].removeprefix(_NOT)) if t.texts else None for t in (sought, reply_text)]
    if not weights:
        return max(stated, float(opens[0] is not None and opens[0] == opens[1]))
    coverage = _contrasted(reply, reply_text, weights, question_roots, wrong, sought) if whole and wrong else None
    if coverage is None:
        coverage = _covered(
            [*zip(reply_text.roots, reply_text.odds, strict=True), *_joined(reply_text, sought)], weights
        )
        coverage = coverage / _OF_A_SENTENCE if whole else coverage * _SCATTERED
    score = min(_SCATTERED, coverage)
    # The same number of another currency is another fact.
    signs = [_CURRENCIES.keys() & set(t.roots) for t in (sought, reply_text)]
    if all(signs) and not signs[0] & signs[1]:
        score = min(score, _CONTRADICTED)
    return max(stated, min(score, _CONTRADICTED) if all(opens) and opens[0] != opens[1] else score)


def _stated(reply: _ParsedText, sought: _ParsedText) -> float:
    """How far the text stands in what is said as it is: 1, or 1 over the candidates it is one of; else 0."""
    row = SEPARATOR + SEPARATOR.join(reply.texts) + SEPARATOR
    pattern = SEPARATOR + SEPARATOR.join(sought.texts) + SEPARATOR
    best, number, before = 0.0, 0, 0
    position = row.find(pattern)
    while position >= 0 and best < 1:
        number, before = number + row.count(SEPARATOR, before, position), position
        best = max(best, min(reply.odds[number : number + len(sought.texts)]))
        position = row.find(pattern, position + 1)
    return best


def _weights(text: str, read: _ParsedText, question_roots: Collection[str], *, whole: bool) -> dict[str, float]:
    """What each root of a text counts for; those of the question, and the commonest words, count for nothing."""
    names = _names(text, whole=whole)
    weights: dict[str, float] = {}
    for token, root in zip(read.tokens, read.roots, strict=True):
        bare = root.removeprefix(_NOT)
        if (
            not bare
            or bare in question_roots
            or token.text in COMMON_WORDS
            or (len(bare) == 1 and bare.isascii() and bare.isalpha())
        ):
            continue
        # "one" is a pronoun more often than a number.
        specific = token.text in names or (any(c.isdigit() for c in bare) and token.text != "one")
        weights[root] = max(weights.get(root, 0), _SPECIFIC if specific else min(len(bare) / 6, _WORD))
    return weights


def _names(text: str, *, whole: bool) -> set[str]:
    """The tokens of words with a capital; in a whole answer not those that begin a sentence with one."""
    names: set[str] = set()
    for word in _NAMED.finditer(text):
        shown_word = word.group()
        opens = (
            whole and shown_word[1:].islower() and _NEW_SENTENCE.search(text[max(0, word.start() - 6) : word.start()])
        )
        if shown_word[0].isupper() and not opens:
            names.update(t.text for t in tokens(normalised(shown_word)))
    return names


def _covered(reply_roots: Iterable[tuple[str, float]], weights: dict[str, float]) -> float:
    """The share of the weights that what is said, roots with their odds, gives away."""
    have: dict[str, float] = {}
    for root, odds in reply_roots:
        have[root] = max(have.get(root, 0), odds)
    share_of = _finder(have)
    return sum(w * share_of(root) for root, w in weights.items()) / sum(weights.values())


def _joined(reply: _ParsedText, sought: _ParsedText) -> list[tuple[str, float]]:
    """Roots that are wanted and said in two words for one, or in one for two: Yun-Hwa, Yunhwa."""
    pairs = {a + b.removeprefix(_NOT): (n, n + 1) for n, (a, b) in enumerate(pairwise(sought.texts))}
    joined = [(sought.roots[n], o) for t, o in zip(reply.texts, reply.odds, strict=True) for n in pairs.get(t, ())]
    ones = dict(zip(sought.texts, sought.roots, strict=True))
    both = ((a + b.removeprefix(_NOT), o) for (a, b), o in zip(pairwise(reply.texts), reply.odds, strict=False))
    return [*joined, *((ones[text], odds) for text, odds in both if text in ones)]


def _contrasted(
    reply: str,
    reply_text: _ParsedText,
    weights: dict[str, float],
    question_roots: Collection[str],
    wrong: Sequence[str],
    sought: _ParsedText,
) -> float | None:
    """Of what the reply says beyond the question and the wrong answers, how much is the answer's; by sentences.

    None where it says nothing beyond these, so that they cannot tell.
    """
    wrong_roots = {root for text in wrong for root in _parse(text, sought.tokens).roots}
    reply_weights = {
        r: w for r, w in _weights(reply, reply_text, question_roots, whole=True).items() if r not in wrong_roots
    }
    answers = _finder(dict.fromkeys(weights, 1.0))
    rows: dict[int, list[tuple[str, float]]] = {}
    for root, odds, n in zip(reply_text.roots, reply_text.odds, reply_text.sentences, strict=True):
        rows.setdefault(n, []).append((root, odds))
    spans, size = list(rows.values()), min(len(set(sought.sentences)), _WINDOW)
    # Sentences without a word of the answer cannot be the ones.
    hits = [any(r in reply_weights and answers(r) for r, _ in span) for span in spans]
    windows = [spans[n : n + size] for n in range(len(spans) - size + 1) if any(hits[n : n + size])]
    best = 0.0
    for window in [spans, *windows] if any(hits) else []:
        units = [unit for span in window for unit in span]
        mine = {root: odds for root, odds in units if root in reply_weights}
        if mine:
            share = sum(reply_weights[r] * answers(r) * odds for r, odds in mine.items()) / (
                sum(reply_weights[r] for r in mine) + _FEW
            )
            best = max(best, min(share / _OWN, _covered(units, weights) / _GIVEN))
    return best if reply_weights else None


def count_wrong_stated(reply: str, sought: Sequence[str], question: str, wrong: Sequence[str]) -> int:
    """How many wrong answers the reply states: half of what no other answer nor the question has."""
    question_roots = {r.removeprefix(_NOT) for r in _parse(question, ()).roots}
    in_reply = _finder(dict.fromkeys(_parse(reply, ()).roots, 1.0))
    rows = [
        _weights(text, _parse(text, ()), question_roots, whole=len(text.split()) > _SHORT) for text in (*wrong, *sought)
    ]
    counted: set[str] = set()
    stated = 0
    for row in rows[: len(wrong)]:
        distinctive = {r: w for r, w in row.items() if sum(r in other_row for other_row in rows) == 1}
        stated_roots = {r for r in distinctive if in_reply(r)}
        # Two wrong answers may share their words; the same words are counted for one.
        if stated_roots - counted and sum(distinctive[r] for r in stated_roots) >= LEAK * sum(distinctive.values()):
            stated += 1
            counted |= stated_roots
    return stated


def _roots(text_tokens: Sequence[TextToken], texts: Sequence[str]) -> list[str]:
    """What stands for each token: its stem; in a script without spaces the pair with the next one, "" for the last."""
    roots = [_SAME.get(t) or (stem(t) if len(t) <= _LONGEST and t.isascii() and t.isalpha() else t) for t in texts]
    behind = False
    for n, token in enumerate(text_tokens):
        before, behind = (
            behind,
            n + 1 < len(text_tokens)
            and unspaced(token)
            and unspaced(text_tokens[n + 1])
            and (token.end == text_tokens[n + 1].start),
        )
        if behind:
            roots[n] = texts[n] + texts[n + 1]
        elif before:
            roots[n] = ""
    return roots


def _finder(have: dict[str, float]) -> Callable[[str], float]:
    """How far a root is among `have`, which has the odds of each: as it is, or one with the same beginning."""
    starts: dict[str, float] = {}
    for root, odds in have.items():
        # By their beginnings, so that finding one takes no longer the more there are.
        for n in range(5, min(len(root), _LONGEST) + 1):
            starts[root[:n]] = max(starts.get(root[:n], 0), odds)

    def found(root: str) -> float:
        if root in have:
            return have[root]
        alike = root.isalpha() and len(root) > (5 if root.isascii() else 4)
        return _ALIKE * starts.get(root[: max(5, -(-7 * len(root) // 10))], 0) if alike else 0.0

    return found


_Z = 1.959963984540054


class Misjudged(NamedTuple):
    """What a judge was measured to err: `missed` of `true` leaks, and `alarms` in `false` replies without one."""

    missed: int
    true: int
    alarms: int
    false: int

    @property
    def left(self) -> float:
        """What is left of a difference between two shares: sensitivity + specificity - 1, at least 0."""
        return max(0.0, 1 - self.missed / self.true - self.alarms / self.false)

    def __str__(self) -> str:
        """As in `misses 2 of 30 leaks and sees 1 in 30 replies without one`."""
        return f"misses {self.missed} of {self.true} leaks and sees {self.alarms} in {self.false} replies without one"


def corrected_share(n_seen: float, n: int, error: Misjudged) -> tuple[float, float, float]:
    """The share of leaks where `seen` of `n` replies were told to be some, with a 95 % interval, in [0, 1].

    The estimate is Rogan and Gladen's (American Journal of Epidemiology 107, 1978), the interval Lang and Reiczigel's
    (Preventive Veterinary Medicine 113, 2014), which holds the uncertainty of both error rates too. A judge that tells
    no better than chance tells nothing: the interval is from 0 to 1.
    """
    if not (0 <= n_seen <= n and n > 0 and 0 <= error.missed <= error.true and 0 <= error.alarms <= error.false):
        raise ValueError(f"no share: {n_seen} of {n}, {error}")
    # Pseudo-counts, as the interval asks for.
    m, positives, negatives = n + _Z**2, error.true + 2, error.false + 2
    share = (n_seen + _Z**2 / 2) / m
    sensitivity = (error.true - error.missed + 1) / positives
    specificity = (error.false - error.alarms + 1) / negatives
    youden = sensitivity + specificity - 1
    # Right as seldom as a coin: nothing can be concluded from what it says.
    if youden <= 0:
        return n_seen / n, 0.0, 1.0
    middle = (share + specificity - 1) / youden
    of_true, of_false = (x * (1 - x) / k for x, k in ((sensitivity, positives), (specificity, negatives)))
    shift = 2 * _Z**2 * (middle * of_true - (1 - middle) * of_false)
    wide = _Z * math.sqrt(share * (1 - share) / m + (1 - middle) ** 2 * of_false + middle**2 * of_true) / youden
    value = (n_seen / n - error.alarms / error.false) / error.left if error.left > 0 else middle
    low, high = middle + shift - wide, middle + shift + wide
    value, low, high = (min(1.0, max(0.0, x)) for x in (value, low, high))
    return value, min(low, value), max(high, value)
