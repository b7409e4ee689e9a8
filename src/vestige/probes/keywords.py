"""The terms that set a text apart from others, by term statistics: no model, nothing drawn.

A term is one to four words that stand side by side, none of them a function word. Its score is tf ln((1 + N) / df):
how often the text has it, and in how many of all N texts it stands (Sparck Jones, A statistical interpretation of term
specificity, 1972). Words count as the same by their stems. Sizes are in characters.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from vestige.metrics.diversity import FUNCTION_WORDS
from vestige.metrics.overlap import stem

Kind: TypeAlias = Literal["name", "thing", "word"]
"""What a term can be asked as: a name, a thing (what an article or a preposition stands before), or only as a word."""

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
_VERB_WORDS = "can could don't he i it may might must not please shall she should they to we who will would you"
_BEFORE_THING, _BEFORE_VERB = frozenset(_THING_WORDS.split()), frozenset(_VERB_WORDS.split())
_ARTICLES = ("a", "an")
# Those that do not end in -ed, by which `_fits` knows the others.
_PARTICIPLES = frozenset({"born", "found", "given", "held", "known", "made", "seen", "set", "taken", "won", "written"})


class Token(NamedTuple):
    """A word of a text: as it stands, its stem, where it ends, and whether a sentence can begin with it.

    `gap` is what stands between it and the word before.
    """

    text: str
    stem: str
    gap: str
    begins: bool


@dataclass(frozen=True)
class Keyword:
    """A term as the text writes it, its stems, what it can be asked as, and its score.

    `article` is the "a" or "an" that the texts put before it, since nothing else tells one chart from some water.
    """

    text: str
    stems: tuple[str, ...]
    kind: Kind
    score: float
    article: str = ""

    @property
    def asked(self) -> str:
        """The term as a question has it."""
        return f"{self.article} {self.text}".strip()


def tokens(text: str) -> list[Token]:
    """The words of a text, NFC; marks of HTML and hidden characters are no part of a word, and part words."""
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
    """The keywords of each text, the most telling first; no two of a text share a word.

    `background` are further texts that a term is held against. Without `names` no term has a name in it, without
    `numbers` none a number. Of equal scores mere words come last, and then the order of the text decides.
    """
    read = [tokens(text) for text in (*texts, *background)]
    corpus = _corpus(read)
    return [_ranked(words, corpus, names=names, numbers=numbers) for words in read[: len(texts)]]


@dataclass(frozen=True)
class _Corpus:
    """Over all texts: how many there are, in how many each term stands, how often, and what it is used as.

    `thing` counts uses after an article or a preposition with nothing else after them, `verb` those after "to" and its
    like, `articles` the "a" and "an" before a term as it is written.
    """

    n_texts: int
    n_with: Counter[tuple[str, ...]]
    uses: Counter[tuple[str, ...]]
    thing: Counter[tuple[str, ...]]
    verb: Counter[tuple[str, ...]]
    articles: Counter[tuple[str, str]]
    capital: Counter[str]
    small: Counter[str]

    def is_name(self, stem_: str) -> bool:
        """Whether a word is written with a capital inside sentences, and more often than without."""
        return self.capital[stem_] > self.small[stem_]

    def kind(self, words: Sequence[Token]) -> Kind:
        """What a term is asked as."""
        stems = tuple(w.stem for w in words)
        if all(self.is_name(w.stem) and w.text[0].isupper() for w in words):
            return "name"
        return "thing" if self.thing[stems] > self.verb[stems] else "word"

    def article(self, text: str) -> str:
        """The article that the texts put before a term more often, if any."""
        n_a, n_an = (self.articles[article, text.lower()] for article in _ARTICLES)
        return "" if n_a == n_an == 0 else "a" if n_a >= n_an else "an"


def _corpus(read: Sequence[Sequence[Token]]) -> _Corpus:
    corpus = _Corpus(len(read), Counter(), Counter(), Counter(), Counter(), Counter(), Counter(), Counter())
    for words in read:
        corpus.n_with.update({stems for _, stems in _terms(words)})
        for start, stems in _terms(words):
            stop = start + len(stems)
            before = words[start - 1].text.lower() if start and words[start].gap.isspace() else ""
            ends = stop == len(words) or words[stop].gap != " " or words[stop].text.lower() in FUNCTION_WORDS
            corpus.uses[stems] += 1
            corpus.thing[stems] += ends and before in _BEFORE_THING
            corpus.verb[stems] += before in _BEFORE_VERB
            if ends and before in _ARTICLES:
                corpus.articles[before, _text(words[start:stop]).lower()] += 1
        for token in words:
            # DNA is a thing: one capital letter makes a name, all capitals an abbreviation.
            if token.text[0].islower() or (token.text.isupper() and len(token.text) > 1):
                corpus.small[token.stem] += 1
            elif not token.begins:
                corpus.capital[token.stem] += 1
    return corpus


def _terms(words: Sequence[Token]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every run of up to four words without a function word, by where it begins."""
    for start in range(len(words)):
        stems: tuple[str, ...] = ()
        for token in words[start : start + MOST_WORDS]:
            if _is_function(token.text) or (stems and token.gap != " "):
                break
            stems += (token.stem,)
            yield start, stems


def _ranked(own: Sequence[Token], corpus: _Corpus, *, names: bool, numbers: bool) -> tuple[Keyword, ...]:
    uses: Counter[tuple[str, ...]] = Counter()
    first: dict[tuple[str, ...], Sequence[Token]] = {}
    for start, stems in _terms(own):
        uses[stems] += 1
        first.setdefault(stems, own[start : start + len(stems)])
    fit = {s: words for s, words in first.items() if _fits(words, corpus, names=names, numbers=numbers)}
    inside = _inside(uses, fit)
    # Python's sort keeps the order of the text, in which the terms are, among equals.
    scored = sorted(
        (-uses[stems] * math.log((1 + corpus.n_texts) / corpus.n_with[stems]), corpus.kind(words) == "word", index)
        for index, (stems, words) in enumerate(fit.items())
        # A word that mostly stands inside one longer term says less by itself than that term does.
        if 2 * inside[stems] < uses[stems]
    )
    ranked: list[Keyword] = []
    taken: set[str] = set()
    in_order = list(fit.items())
    for score, _, index in scored:
        stems, words = in_order[index]
        if taken.isdisjoint(stems):
            taken.update(stems)
            ranked.append(_keyword(words, stems, corpus, -score))
    return tuple(ranked)


def _keyword(words: Sequence[Token], stems: tuple[str, ...], corpus: _Corpus, score: float) -> Keyword:
    kind = corpus.kind(words)
    if kind == "name":
        return Keyword(_text(words), stems, kind, score)
    # Without the capital of a sentence's beginning; abbreviations keep theirs.
    text = " ".join(w if w[1:].lower() != w[1:] else w.lower() for w in _text(words).split(" "))
    return Keyword(text, stems, kind, score, corpus.article(text) if kind == "thing" else "")


def _text(words: Sequence[Token]) -> str:
    return " ".join(w.text for w in words)


def _is_function(word: str) -> bool:
    plain = word.lower().replace("’", "'")
    return plain in FUNCTION_WORDS or plain.endswith("n't") or ("'" in plain and plain.split("'")[0] in FUNCTION_WORDS)


def _inside(uses: Mapping[tuple[str, ...], int], fit: Iterable[tuple[str, ...]]) -> Counter[tuple[str, ...]]:
    """How many of a term's uses stand inside the one longer term that most of them stand in."""
    inside: Counter[tuple[str, ...]] = Counter()
    for stems in fit:
        for size in range(1, len(stems)):
            for start in range(len(stems) - size + 1):
                part = stems[start : start + size]
                inside[part] = max(inside[part], uses[stems])
    return inside


def _fits(words: Sequence[Token], corpus: _Corpus, *, names: bool, numbers: bool) -> bool:
    """Whether a term may be a keyword. Several words are one where all are names, or where the texts repeat them."""
    stems = tuple(w.stem for w in words)
    are_names = [corpus.is_name(s) for s in stems]
    if any(are_names) and not names:
        return False
    if not numbers and any(w.text[0].isdigit() for w in words):
        return False
    # Words of two letters say little, unless they are abbreviations.
    if not all(_SHORTEST <= len(w.text) <= _LONGEST or (w.text.isupper() and len(w.text) > 1) for w in words):
        return False
    if len(stems) == 1:
        # An adverb says how, and there is nothing to ask about it; nor of one character again and again.
        # The stemmer makes -li of -ly.
        return not (stems[0].endswith("li") and not corpus.thing[stems]) and len(set(words[0].text.lower())) > 1
    kind = corpus.kind(words)
    repeated = kind == "thing" and not any(are_names) and corpus.uses[stems] > 1
    return kind == "name" or (repeated and not words[-1].text.endswith("ed") and words[-1].text not in _PARTICIPLES)


def _stem(word: str) -> str:
    plain = word.lower().replace("’", "'").removesuffix("'s")
    return stem(plain) if plain.isascii() and plain.isalnum() else plain


LEAST_TEXTS = 2
"""A name in one text alone may be anything that was mentioned."""


def forgotten_names(forgotten: Sequence[str], retained: Sequence[str], *, share: float) -> frozenset[str]:
    """Names, as stems, that at least `share` of the forgotten texts have, and no retained one.

    A name is a word that the forgotten texts write with a capital inside sentences, and never without. Where nothing is
    known to be retained no name is only the forget set's, and there is none.
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
    """Whether the prompt has one of the names, written large or small."""
    return any(t.stem in names for t in tokens(prompt))
