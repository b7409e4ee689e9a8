"""The terms that set a text separately from others, by term statistics: no model, nothing drawn.

A term is a name of up to four words, or one word that is no function word. Its score is tf ln((1 + N) / df): how often
the text has it, and how many of all N texts have it (Sparck Jones, A statistical interpretation of term specificity,
1972). Words count as the same by their stems. Sizes are in characters.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from vestige.metrics.diversity import FUNCTION_WORDS
from vestige.metrics.overlap import stem

Kind: TypeAlias = Literal["name", "thing", "word"]
"""The kind of a term: a name, a thing (follows an article or a preposition), or only a word."""

MOST_WORDS = 4
_SHORTEST, _LONGEST = 3, 40

_TOKEN = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
# HTML, the <unk> of tokenised corpora, and what a terminal acts upon.
_TAG = re.compile(r"</?[a-zA-Z][^<>\s]{0,20}>|\x1b\[[0-9;]*[A-Za-z]")
_SENTENCE_ENDS = (".", "!", "?", ":", "\n", '"', "“")
_THING_WORDS = """
a about all an any between both each eight every few five four from in its many more most nine no of other several
seven six some such ten that the their these this those three two with against
"""
_BEFORE_THING = frozenset(_THING_WORDS.split())


class Token(NamedTuple):
    """A word of a text: unchanged, its stem, where it ends, and whether a sentence can begin with it.

    `gap` is the text between it and the word before.
    """

    text: str
    stem: str
    gap: str
    begins: bool


@dataclass(frozen=True)
class Keyword:
    """A term in the text's spelling, its stems, its kind, and its score."""

    text: str
    stems: tuple[str, ...]
    kind: Kind
    score: float


def tokens(text: str) -> list[Token]:
    """The words of a text, NFC. Marks of HTML and hidden characters are no part of a word, and part words."""
    # A bar and not a blank: words on both sides of a mark would else make one term.
    clean = _TAG.sub(" | ", unicodedata.normalize("NFC", text))
    words: list[Token] = []
    end = 0
    for match in _TOKEN.finditer(clean):
        gap = clean[end : match.start()]
        begins = not words or any(sign in gap for sign in _SENTENCE_ENDS)
        words.append(Token(match[0], _stem(match[0]), gap, begins))
        end = match.end()
    return words


def keywords(
    texts: Sequence[str], *, background: Sequence[str] = (), names: bool = True, numbers: bool = False
) -> list[tuple[Keyword, ...]]:
    """Find the keywords of each text, the most telling first. No two of a text share a word.

    Args:
        texts: the texts.
        background: Further texts that count as places of a term.
        names: keep terms that are names.
        numbers: keep terms with a number.

    Returns:
        The keywords by text. Among equal scores plain words come last, and then the order of the text decides.
    """
    read = [tokens(text) for text in (*texts, *background)]
    corpus = _Corpus(read)
    return [corpus.ranked(words, names=names, numbers=numbers) for words in read[: len(texts)]]


class _Term(NamedTuple):
    words: tuple[Token, ...]
    stems: tuple[str, ...]
    is_name: bool
    after_article: bool


class _Corpus:
    """The number of texts with each term, and the usage of words."""

    def __init__(self, read: Sequence[Sequence[Token]]) -> None:
        self._capital: Counter[str] = Counter()
        self._small: Counter[str] = Counter()
        self._n_with: Counter[tuple[str, ...]] = Counter()
        self._things: Counter[tuple[str, ...]] = Counter()
        self._n_texts = len(read)
        for word in chain.from_iterable(read):
            # DNA is a thing: one capital letter makes a name, all capitals an abbreviation.
            if word.text[0].islower() or (word.text.isupper() and len(word.text) > 1):
                self._small[word.stem] += 1
            elif not word.begins:
                self._capital[word.stem] += 1
        for words in read:
            terms = self._terms(words)
            self._n_with.update({term.stems for term in terms})
            self._things.update(term.stems for term in terms if term.after_article)

    def ranked(self, words: Sequence[Token], *, names: bool, numbers: bool) -> tuple[Keyword, ...]:
        """Return the keywords of one text."""
        terms = self._terms(words)
        uses = Counter(term.stems for term in terms)
        candidates = []
        for term in {term.stems: term for term in reversed(terms)}.values():
            if _fits(term, names=names, numbers=numbers) and not self._is_adverb(term):
                score = uses[term.stems] * math.log((1 + self._n_texts) / self._n_with[term.stems])
                candidates.append(Keyword(_text(term), term.stems, self._kind(term), score))
        # The sort keeps the order of the text among equals.
        candidates.reverse()
        candidates.sort(key=lambda keyword: (-keyword.score, keyword.kind == "word"))
        ranked: list[Keyword] = []
        taken: set[str] = set()
        for keyword in candidates:
            if taken.isdisjoint(keyword.stems):
                taken.update(keyword.stems)
                ranked.append(keyword)
        return tuple(ranked)

    def _terms(self, words: Sequence[Token]) -> list[_Term]:
        runs: list[list[Token]] = []
        articles = []
        in_name = False
        before = ""
        for word in words:
            is_name = self._is_name(word)
            if in_name and is_name and word.gap == " " and len(runs[-1]) < MOST_WORDS:
                runs[-1].append(word)
            elif not _is_function(word.text):
                runs.append([word])
                articles.append(word.gap.isspace() and before in _BEFORE_THING)
            in_name = is_name and not _is_function(word.text)
            before = word.text.lower()
        terms = []
        for run, after_article in zip(runs, articles, strict=True):
            stems = tuple(word.stem for word in run)
            terms.append(_Term(tuple(run), stems, self._is_name(run[0]), after_article))
        return terms

    def _is_name(self, word: Token) -> bool:
        """Whether a word has a capital, and has it inside sentences more often than not."""
        return word.text[0].isupper() and self._capital[word.stem] > self._small[word.stem]

    def _kind(self, term: _Term) -> Kind:
        if term.is_name:
            return "name"
        if self._things[term.stems]:
            return "thing"
        return "word"

    def _is_adverb(self, term: _Term) -> bool:
        # The stemmer makes -li of -ly. There is nothing to ask about how something is done.
        return len(term.stems) == 1 and term.stems[0].endswith("li") and not self._things[term.stems]


def _fits(term: _Term, *, names: bool, numbers: bool) -> bool:
    """Whether a term may be a keyword."""
    if term.is_name and not names:
        return False
    for word in term.words:
        if word.text[0].isdigit() and not numbers:
            return False
        # Words of two letters say little, unless they are abbreviations.
        is_abbreviation = word.text.isupper() and len(word.text) > 1
        if not is_abbreviation and not _SHORTEST <= len(word.text) <= _LONGEST:
            return False
        if len(set(word.text.lower())) == 1:
            return False
    return True


def _text(term: _Term) -> str:
    text = " ".join(word.text for word in term.words)
    # Without the capital of a sentence's beginning; abbreviations keep theirs.
    if term.is_name or text[1:].lower() != text[1:]:
        return text
    return text.lower()


def _is_function(word: str) -> bool:
    plain = word.lower().replace("’", "'")
    return plain in FUNCTION_WORDS or plain.endswith("n't") or plain.split("'")[0] in FUNCTION_WORDS


def _stem(word: str) -> str:
    plain = word.lower().replace("’", "'").removesuffix("'s")
    if plain.isascii() and plain.isalnum():
        return stem(plain)
    return plain


LEAST_TEXTS = 2
"""A name in one text alone may be anything that was mentioned."""


def forgotten_names(forgotten: Sequence[str], retained: Sequence[str], *, share: float) -> frozenset[str]:
    """Names, as stems, that at least `share` of the forgotten texts have, and no retained one.

    A name is a word that the forgotten texts write with a capital inside sentences, and never without. Without known
    retained texts no name belongs only to the forget set, and the result is empty.
    """
    if not retained:
        return frozenset()
    n_with: Counter[str] = Counter()
    inside: set[str] = set()
    small: set[str] = set()
    for text in forgotten:
        read = tokens(text)
        n_with.update({t.stem for t in read})
        inside |= {t.stem for t in read if t.text[0].isupper() and not t.begins}
        small |= {t.stem for t in read if not t.text[0].isupper()}
    # Rounded up: a share of texts that is no whole number is reached by the next.
    least = max(LEAST_TEXTS, math.ceil(share * len(forgotten)))
    often = {word for word in inside - small if n_with[word] >= least}
    return frozenset(often - {t.stem for text in retained for t in tokens(text)})


def names_one(prompt: str, names: frozenset[str]) -> bool:
    """Return whether the prompt has one of the names, in any case."""
    return any(t.stem in names for t in tokens(prompt))
