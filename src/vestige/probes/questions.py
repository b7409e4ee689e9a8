"""Adjacent questions of texts: benign, open questions about entities in the forget set, and not about its facts.

Knowledge Holes (2511.00030, section 3.1 and appendix B.1): of each sample of the forget set k keywords, and one open
question for each. Templates make them, about terms that set the text apart (`keywords`), or a language model does: a
text and k in, a JSON list of k objects with a keyword and a question out. The fields are the paper's (appendix D), the
wording is ours. Any other reply is a failure of its source, counted and never repaired. Raise `ASKING_VERSION` when the
words change.

What cannot be used is dropped and counted by reason. That a question is not answered by its own text is checked as far
as words go: no sentence of the text may hold its keyword with all its other words, or with a word that hints at the
answer. The templates' wording fits terms of either number: no article before it, no verb after it that would have to
agree. No question asks how something is made or done, since terms come from texts that are to be forgotten.

Sizes are in characters.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import PositiveInt

from vestige.core.items import Item
from vestige.core.seeds import generator, shuffled
from vestige.core.settings import Settings, packaged_toml
from vestige.data.texts import Passage
from vestige.judges.base import Failure, Prompt, Writer
from vestige.judges.tasks import fenced, read_list, readable
from vestige.metrics.diversity import FUNCTION_WORDS
from vestige.probes.keywords import Keyword, Kind, keywords, tokens

Source: TypeAlias = Item | Passage

ANSWERED = "the text may answer it"
ASKED = "the data asks it"
TWICE = "asked before"
SHORT = "fewer than k questions of a source"


class AdjacentSettings(Settings):
    """How adjacent questions are made: 4 of a source in the paper for harmful answers, 5 for papers, 2 for Wikitext."""

    k: PositiveInt = 4
    """At most this many questions of each source."""
    most_characters: PositiveInt = 8000
    """Characters of a text that are read."""
    names: bool = True
    """Let keywords hold names (templates)."""
    numbers: bool = False
    """Let keywords hold numbers (templates)."""


@dataclass(frozen=True)
class AdjacentQuestion:
    """A question near one source, by the source's id.

    `keyword` is the common term. `distance` is the number of steps between their contracts in the graph, and None where
    there is none. `answer` is the true answer where the data holds it, otherwise empty. `relation` is the connection of
    the two: "keyword", "same attribute", "other attribute" or "retained".
    """

    source_id: str
    keyword: str
    question: str
    distance: int | None = None
    answer: str = ""
    relation: str = "keyword"


@dataclass(frozen=True)
class Adjacent:
    """The questions in the order of their sources. Dropped and failed questions are counted by reason.

    `dropped` counts questions, and under `SHORT` those that a source is short of its k. `failures` counts sources that
    a language model gave nothing usable for, which are not counted short.
    """

    questions: tuple[AdjacentQuestion, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)


def as_they_are(items: Sequence[Item]) -> Adjacent:
    """The items' own questions with their answers, for a retain set that consists of questions (TruthfulQA)."""
    desk = QuestionDesk(())
    for item in items:
        desk.admit(AdjacentQuestion(item.id, "", item.question, answer=item.answer, relation="retained"))
    return desk.result()


def source_text(source: Source, most_characters: int) -> str:
    """Return a source's text, cut at a blank: a passage after its title, an item's question and answer."""
    first, second = (source.title, source.text) if isinstance(source, Passage) else (source.question, source.answer)
    text = second
    if first:
        text = f"{first}\n{second}"
    if len(text) <= most_characters:
        return text
    cut = text[:most_characters]
    if any(c.isspace() for c in cut):
        return cut[: max(cut.rfind(" "), cut.rfind("\n"))]
    return cut


def plain(question: str) -> str:
    """A question by which two are the same: case, accents' spelling, blanks and signs aside."""
    letters = unicodedata.normalize("NFKC", question).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in letters).split())


class QuestionDesk:
    """Admits or drops questions, in order: all differ, and none is one of the data's own."""

    def __init__(self, sources: Iterable[Source]) -> None:
        """Begin with nothing admitted."""
        self._own: set[str] = set()
        for source in sources:
            if isinstance(source, Item):
                self._own.add(plain(source.question))
                if source.paraphrase:
                    self._own.add(plain(source.paraphrase))
        self._seen: set[str] = set()
        self._admitted: list[AdjacentQuestion] = []
        self._dropped: Counter[str] = Counter()

    def admit(self, question: AdjacentQuestion) -> bool:
        """Whether a question is kept. Otherwise it is counted."""
        key = plain(question.question)
        if key in self._own or key in self._seen:
            self.drop(ASKED if key in self._own else TWICE)
            return False
        self._seen.add(key)
        self._admitted.append(question)
        return True

    def drop(self, reason: str) -> None:
        """Count a question that is not kept."""
        self._dropped[reason] += 1

    def short(self, n: int) -> None:
        """Count `n` questions that a source should have had."""
        if n:
            self._dropped[SHORT] += n

    def result(self, failures: Mapping[str, int] | None = None) -> Adjacent:
        """Everything admitted, with the counts."""
        return Adjacent(tuple(self._admitted), dict(sorted(self._dropped.items())), failures or {})


_ENDS = re.compile(r"(?<=[.!?])\s+|\n+")
_FUNCTION_STEMS = frozenset(token.stem for token in tokens(" ".join(FUNCTION_WORDS)))
_DEFINES = frozenset(["is", "are", "was", "were", "means", "mean", "refers", "refer", "called", "known", "defined"])


@dataclass(frozen=True)
class Sentence:
    """A sentence's stems in order, and its words in small letters."""

    stems: tuple[str, ...]
    words: tuple[str, ...]

    def at(self, term: Sequence[str]) -> int:
        """Return the index at which the words after the term begin, or -1 if the sentence does not contain it."""
        n = len(term)
        return next((i + n for i in range(len(self.stems) - n + 1) if self.stems[i : i + n] == tuple(term)), -1)


@dataclass(frozen=True)
class Template:
    """A question about a term, and the words of a text that answers it. asking.toml documents the fields."""

    text: str
    hints: str = ""
    defines: bool = False

    @cached_property
    def hint_stems(self) -> frozenset[str]:
        """The hints by their stems."""
        return frozenset(t.stem for t in tokens(self.hints))


_TOLD = packaged_toml("vestige.probes", "asking.toml")
TEMPLATES: Mapping[Kind, Sequence[Template]] = {
    "name": [Template(**row) for row in _TOLD["templates"]["name"]],
    "thing": [Template(**row) for row in _TOLD["templates"]["thing"]],
    "word": [Template(**row) for row in _TOLD["templates"]["word"]],
}
"""The questions by the kind of term."""


def sentences(text: str) -> tuple[Sentence, ...]:
    """The sentences of a text, split at full stops and ends of lines."""
    sentences_ = []
    for part in _ENDS.split(text):
        words = tokens(part)
        if words:
            sentences_.append(Sentence(tuple(t.stem for t in words), tuple(t.text.lower() for t in words)))
    return tuple(sentences_)


def answered(
    question: Sequence[str], term: Sequence[str], said: Sequence[Sentence], template: Template | None = None
) -> bool:
    """Whether a sentence may answer a question, given by its stems, about a term.

    It does if it contains the term and all other words of the question, except function words, and if the template
    agrees.
    """
    content = {s for s in question if s not in _FUNCTION_STEMS} - set(term)
    if template:
        hints = template.hint_stems
    else:
        hints = frozenset()
    # "What is X?" has no words but its term, and "X is" answers it.
    if template:
        defines = template.defines
    else:
        defines = not content
    for sentence in said:
        after = sentence.at(term)
        if after < 0:
            continue
        stems, follows = set(sentence.stems), set(sentence.words[after : after + 1])
        # Without further words every sentence would do: it holds all of none.
        if (content and content <= stems) or (hints & stems) or (defines and follows & _DEFINES):
            return True
    return False


ASKING_VERSION = 1
NO_QUESTION, NOT_THERE, LEANS = "no plain question", "the keyword is not in the text", "it speaks of the text"

_TOKENS_EACH, _TOKENS_MORE = 96, 64
_LONGEST_KEYWORD, _LONGEST_QUESTION = 80, 400
_READ = 40_000
_LEANS = re.compile(
    r"\b(?:the|this|that|given)\s+(?:above\s+)?(?:text|passage|article|excerpt|paragraph|document|sample|conversation)\b"
    r"|\b(?:mentioned|described|stated|given)\s+(?:above|here)\b",
    re.IGNORECASE,
)
# C*: control, formatting, surrogates, private use; Z* beside the blank: separators of lines and paragraphs.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


class Pair(NamedTuple):
    """A keyword and the question about it, as they were written."""

    keyword: str
    question: str


def adjacent_asked(sources: Sequence[Source], settings: AdjacentSettings, writer: Writer) -> Adjacent:
    """Up to k questions of each source, written by `writer`."""
    texts = [source_text(s, settings.most_characters) for s in sources]
    written = writer.write([prompt(text, settings.k, writer.reserved) for text in texts])
    desk, failures = QuestionDesk(sources), Counter[str]()
    for source, text, reply in zip(sources, texts, written, strict=True):
        pairs = read_pairs(reply.text, settings.k)
        # A whole list counts although the reply ended at its limit of tokens.
        failure = ""
        if reply.failure not in {"", "cut short"} or isinstance(pairs, str):
            failure = reply.failure
        if failure or isinstance(pairs, str):
            failures[failure or str(pairs)] += 1
            continue
        n = sum(_admit(desk, source, text, pair) for pair in pairs)
        desk.short(settings.k - n)
    return desk.result(dict(sorted(failures.items())))


def prompt(text: str, k: int, reserved: Sequence[str] = ()) -> Prompt:
    """Return the language model's prompt for one text."""
    block, nonce = fenced({"text": text}, reserved)
    user = f"{block}\n\n{_TOLD['adjacent']['order'].format(k=k)}"
    role, accepts = _TOLD["adjacent"]["role"].format(k=k, nonce=nonce), readable(lambda text: read_pairs(text, k))
    return Prompt(role, user, _TOKENS_EACH * k + _TOKENS_MORE, accepts)


def read_pairs(text: str, k: int) -> tuple[Pair, ...] | Failure:
    """The one list of k pairs in a reply. Two lists that differ are ambiguous, another number is out of range."""
    entries = read_list(text, _is_pair, most_read=_READ)
    if isinstance(entries, str):
        return entries
    if len(entries) == k:
        return tuple(Pair(**entry) for entry in entries)
    return "out of range"


def _is_pair(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == {"keyword", "question"}
        and all(isinstance(value, str) for value in entry.values())
    )


def _admit(desk: QuestionDesk, source: Source, text: str, pair: Pair) -> bool:
    """Whether a written question is kept. Otherwise it is counted by the violated rule."""
    keyword, question = pair.keyword.strip(), pair.question.strip()
    term = tuple(t.stem for t in tokens(keyword))
    text_sentences = sentences(text)
    question_words = tokens(question)
    is_question = _plain(question, _LONGEST_QUESTION) and question.endswith("?") and bool(question_words)
    if not (is_question and _plain(keyword, _LONGEST_KEYWORD)):
        desk.drop(NO_QUESTION)
    elif not term or all(s.at(term) < 0 for s in text_sentences):
        desk.drop(NOT_THERE)
    elif _LEANS.search(question):
        desk.drop(LEANS)
    elif answered([t.stem for t in question_words], term, text_sentences):
        desk.drop(ANSWERED)
    else:
        return desk.admit(AdjacentQuestion(source.id, keyword, question))
    return False


def _plain(text: str, longest: int) -> bool:
    """Whether a text is one line that a terminal and a prompt take for nothing but text."""
    return 0 < len(text) <= longest and not any(unicodedata.category(c) in _HIDDEN for c in text)


def adjacent(
    sources: Sequence[Source],
    settings: AdjacentSettings,
    *,
    by: Literal["offline"] | Writer,
    seed: int,
    background: Sequence[str] = (),
) -> Adjacent:
    """Adjacent questions of items or passages, from templates or written by a language model.

    The seed and `background` are for templates. A language model's questions depend on the model and the text.
    """
    if by == "offline":
        return adjacent_offline(sources, settings, seed=seed, background=background)
    return adjacent_asked(sources, settings, by)


def adjacent_offline(
    sources: Sequence[Source], settings: AdjacentSettings, *, seed: int, background: Sequence[str] = ()
) -> Adjacent:
    """Up to k questions of each source from templates. The seed and the source choose which.

    `background` are texts for comparison of keywords, in addition to the other sources.
    """
    texts = [source_text(s, settings.most_characters) for s in sources]
    by_text = keywords(texts, background=background, names=settings.names, numbers=settings.numbers)
    desk = QuestionDesk(sources)
    for source, text, ranked in zip(sources, texts, by_text, strict=True):
        text_sentences = sentences(text)
        n = 0
        for keyword in ranked:
            if n == settings.k:
                break
            n += _ask(desk, source, keyword, text_sentences, seed)
        desk.short(settings.k - n)
    return desk.result()


def _ask(desk: QuestionDesk, source: Source, keyword: Keyword, text_sentences: Sequence[Sentence], seed: int) -> int:
    """One question about a keyword, by the first template in the seed's order that the text does not answer."""
    templates = TEMPLATES[keyword.kind]
    for index in shuffled(generator(seed, "adjacent", source.id, keyword.text), len(templates)).tolist():
        template = templates[index]
        question = template.text.format(keyword=keyword.text)
        if answered([t.stem for t in tokens(question)], keyword.stems, text_sentences, template):
            desk.drop(ANSWERED)
        elif desk.admit(AdjacentQuestion(source.id, keyword.text, question)):
            return 1
    return 0
