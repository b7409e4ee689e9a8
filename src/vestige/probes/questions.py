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

A term is a name of up to four words, or one word that is no function word. Its score is tf ln((1 + N) / df): how often
the text has it, and how many of all N texts have it (Sparck Jones, A statistical interpretation of term specificity,
1972). Words count as the same by their stems. Sizes are in characters.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator, shuffled
from vestige.core.settings import Settings, packaged_toml
from vestige.core.text import TextTuple
from vestige.data.loaders import Passage
from vestige.judges.base import Failure, Writer, WriterPrompt
from vestige.judges.tasks import fenced, read_list, readable
from vestige.metrics.diversity import FUNCTION_WORDS, STEP, THRESHOLD
from vestige.metrics.overlap import stem

Kind: TypeAlias = Literal["name", "thing", "word"]
"""The kind of a term: a name, a thing (follows an article or a preposition), or only a word."""

MOST_WORDS = 4
_SHORTEST, _LONGEST = 3, 40

_TOKEN = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
# HTML, the <unk> of tokenised corpora, and terminal control sequences.
_TAG = re.compile(r"</?[a-zA-Z][^<>\s]{0,20}>|\x1b\[[0-9;]*[A-Za-z]")
_SENTENCE_ENDS = (".", "!", "?", ":", "\n", '"', "“")
_THING_WORDS = """
a about all an any between both each eight every few five four from in its many more most nine no of other several
seven six some such ten that the their these this those three two with against
"""
_BEFORE_THING = frozenset(_THING_WORDS.split())


Stems = TextTuple


class Token(NamedTuple):
    """A word of a text: the original, its stem, its end, and whether a sentence can begin with it.

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
    stems: Stems
    kind: Kind
    score: float


def tokens(text: str) -> list[Token]:
    """The words of a text, NFC. Marks of HTML and hidden characters are no part of a word, and part words."""
    # A bar and not a blank, since otherwise words on both sides of a mark would form one term.
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
    stems: Stems
    is_name: bool
    after_article: bool


class _Corpus:
    """The number of texts with each term, and the usage of words."""

    def __init__(self, read: Sequence[Sequence[Token]]) -> None:
        self._capital: Counter[str] = Counter()
        self._small: Counter[str] = Counter()
        self._n_with: Counter[Stems] = Counter()
        self._things: Counter[Stems] = Counter()
        self._n_texts = len(read)
        for word in chain.from_iterable(read):
            # DNA is not a name: one capital letter makes a name, and all capitals an abbreviation.
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
        # The sort keeps the text's order among equals.
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
        # The stemmer turns -ly into -li. Questions about how something is done are not allowed.
        return len(term.stems) == 1 and term.stems[0].endswith("li") and not self._things[term.stems]


def _fits(term: _Term, *, names: bool, numbers: bool) -> bool:
    """Whether a term may be a keyword."""
    if term.is_name and not names:
        return False
    for word in term.words:
        if word.text[0].isdigit() and not numbers:
            return False
        # Words of two letters carry little meaning, unless they are abbreviations.
        is_abbreviation = word.text.isupper() and len(word.text) > 1
        if not is_abbreviation and not _SHORTEST <= len(word.text) <= _LONGEST:
            return False
        if len(set(word.text.lower())) == 1:
            return False
    return True


def _text(term: _Term) -> str:
    text = " ".join(word.text for word in term.words)
    # The capital at the beginning of a sentence is removed. Abbreviations keep theirs.
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
    # The share is rounded up to whole texts.
    least = max(LEAST_TEXTS, math.ceil(share * len(forgotten)))
    often = {word for word in inside - small if n_with[word] >= least}
    return frozenset(often - {t.stem for t in chain.from_iterable(map(tokens, retained))})


def names_one(prompt: str, names: frozenset[str]) -> bool:
    """Return whether the prompt has one of the names, in any case."""
    return any(t.stem in names for t in tokens(prompt))


Source: TypeAlias = Item | Passage

ANSWERED = "the text may answer it"
ASKED = "the data asks it"
TWICE = "asked before"
SHORT = "fewer than k questions of a source"


class AdjacentSettings(Settings):
    """The number and the form of adjacent questions.

    The paper makes 4 from each harmful answer, 5 from each research paper and 2 from each Wikitext paragraph.
    """

    k: PositiveInt = 4
    """At most this many questions of each source."""
    most_characters: PositiveInt = 8000
    """Characters of a text that are read."""
    names: bool = True
    """Let keywords hold names (templates)."""
    numbers: bool = False
    """Let keywords hold numbers (templates)."""


class AnswerSettings(Settings):
    """The sampling of both models' answers. The defaults are those of Curiosity's released code (2402.19464).

    A judge of quality reads whole answers. A search rewards only their first `latent.answer_tokens` tokens.
    """

    temperature: NonNegativeFloat = 0.7
    """Temperature of answers; 0 is greedy."""
    max_tokens: PositiveInt = 512
    """Longest answer, in tokens."""


class RewardSettings(Settings):
    """The weights of the penalties next to J (0 to 10), and the bound of the reward.

    The paper's weights are in Table 5, which we could not read. Curiosity's are 1, next to a reward of 0 to 1. Ours are
    1 next to J.
    """

    ngram_coef: float = Field(default=1.0, ge=0)
    """Weight of n-gram novelty."""
    semantic_coef: float = Field(default=1.0, ge=0)
    """Weight of semantic novelty."""
    clip: PositiveFloat = 10.0
    """Bound of the reward."""


class LatentSettings(RewardSettings):
    """The length of the search. Iterations are the paper's, and 2 to 3 examples follow Curiosity (2402.19464)."""

    n_iterations: PositiveInt = 50
    """Iterations of the policy."""
    n_examples: PositiveInt = 3
    """Example questions before each prompt."""
    answer_tokens: PositiveInt = 30
    """The maximum length of a rewarded answer, in tokens, if answers.max_tokens allows it."""
    keep_every: PositiveInt = 1
    """The number of iterations between two saved policies."""

    def rewarded(self, answers: AnswerSettings) -> AnswerSettings:
        """Return the sampling during the search: answers are as short as in Curiosity's code, since only J is read."""
        return answers.model_copy(update={"max_tokens": min(self.answer_tokens, answers.max_tokens)})


MOST_OVERLAPS, NEAREST = 20_000, 20
"""Above this number of comparisons with the forget set, only those with that many nearest texts are made."""


class FilterSettings(Settings):
    """The thresholds of a knowledge hole.

    A hole is a prompt whose fresh answers score at least `target_at_least` for the target and at most
    `unlearned_at_most` for the unlearned model. The paper compares a prompt with all texts of the forget set. It
    excludes no prompt because of its subject or the target's answer.
    """

    target_at_least: NonNegativeFloat = 7.0
    """Quality that the target's answer to a hole must reach."""
    target_first: bool = True
    """Drop prompts whose first answer of the target is below it. The paper drops none."""
    unlearned_at_most: NonNegativeFloat = 3.0
    """Quality that the unlearned model's answer must not exceed."""
    alike: float = THRESHOLD
    """Drop near-duplicates: prompts above this cosine."""
    paper_order: bool = False
    """Filter as the paper: overlap before near-duplicates, and near-duplicates within each search alone."""
    diverse: bool = True
    """For each search, test the first prompts whose diversity matches the adjacent ones'."""
    step: PositiveInt = STEP
    """Step of that number."""
    nearest_texts: NonNegativeInt | None = None
    """Ask the judge about so many texts nearest to a prompt, 0 all; default: 20 if all were over 20,000 requests."""
    subject_share: float = Field(default=0.3, ge=0, le=1)
    """Drop prompts with a name that this share of the forget texts have and no retained text; 0 keeps them."""

    def check(self) -> None:
        """Reject thresholds that contradict each other."""
        if not self.unlearned_at_most < self.target_at_least:
            raise InputError(
                f"unlearned_at_most = {self.unlearned_at_most:g} must be below target_at_least = "
                f"{self.target_at_least:g}, or one answer would be good and bad. Lower it"
            )
        if not -1 <= self.alike <= 1:
            raise InputError(f"alike = {self.alike:g}: a cosine is from -1 to 1. Set a value within")

    def n_held_against(self, n_prompts: int, n_texts: int) -> int:
        """Return the number of forget texts with which each of `n_prompts` prompts is compared."""
        most = self.nearest_texts
        if most is None:
            # Overlap needs a request for each prompt and text: with thousands of both it would cost more than all other
            # steps.
            most = 0
            if n_prompts * n_texts > MOST_OVERLAPS:
                most = NEAREST
        return min(most or n_texts, n_texts)

    def is_hole(self, target: float | None, unlearned: float | None) -> bool:
        """Return whether two scores make a hole. A missing score makes none."""
        if target is None or unlearned is None:
            return False
        return target >= self.target_at_least and unlearned <= self.unlearned_at_most


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

    `dropped` counts questions, and under `SHORT` those by which a source falls short of its k. `failures` counts
    sources for which a language model returned nothing usable. They are not counted as short.
    """

    questions: tuple[AdjacentQuestion, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)


def as_they_are(items: Sequence[Item]) -> Adjacent:
    """Return the items' own questions with their answers, for a retain set of questions (TruthfulQA)."""
    desk = QuestionDesk(())
    for item in items:
        desk.admit(AdjacentQuestion(item.id, "", item.question, answer=item.answer, relation="retained"))
    return desk.result()


def source_text(source: Source, most_characters: int) -> str:
    """Return a source's text, cut at a blank: a passage after its title, an item's question and answer."""
    if isinstance(source, Passage):
        text = f"{source.title}\n{source.text}".removeprefix("\n")
    else:
        text = f"{source.question}\n{source.answer}"
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
    """Admits or drops questions, in order: all are distinct, and none is in the data."""

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
        """Return whether to keep a question, and count it otherwise."""
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
        """Return all admitted questions with the counts."""
        return Adjacent(tuple(self._admitted), dict(sorted(self._dropped.items())), failures or {})


_ENDS = re.compile(r"(?<=[.!?])\s+|\n+")
_FUNCTION_STEMS = frozenset(token.stem for token in tokens(" ".join(FUNCTION_WORDS)))
_DEFINES = frozenset(["is", "are", "was", "were", "means", "mean", "refers", "refer", "called", "known", "defined"])


@dataclass(frozen=True)
class Sentence:
    """A sentence's stems in order, and its words in small letters."""

    stems: Stems
    words: TextTuple

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
        if words := tokens(part):
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
    # "What is X?" contains only its term, and "X is" answers it.
    hints, defines = frozenset[str](), not content
    if template:
        hints, defines = template.hint_stems, template.defines
    for sentence in said:
        after = sentence.at(term)
        if after < 0:
            continue
        stems, follows = set(sentence.stems), set(sentence.words[after : after + 1])
        # Without further words, every sentence would match.
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
# C*: control, formatting, surrogates, private use. Z* except the blank: separators of lines and paragraphs.
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
        # A complete list counts, even if the reply ended at its token limit.
        failure = ""
        if reply.failure not in {"", "cut short"} or isinstance(pairs, str):
            failure = reply.failure
        if failure or isinstance(pairs, str):
            failures[failure or str(pairs)] += 1
            continue
        n = sum(_admit(desk, source, text, pair) for pair in pairs)
        desk.short(settings.k - n)
    return desk.result(dict(sorted(failures.items())))


def prompt(text: str, k: int, reserved: Sequence[str] = ()) -> WriterPrompt:
    """Return the language model's prompt for one text."""
    block, nonce = fenced({"text": text}, reserved)
    user = f"{block}\n\n{_TOLD['adjacent']['order'].format(k=k)}"
    role, accepts = _TOLD["adjacent"]["role"].format(k=k, nonce=nonce), readable(lambda text: read_pairs(text, k))
    return WriterPrompt(role, user, _TOKENS_EACH * k + _TOKENS_MORE, accepts)


def read_pairs(text: str, k: int) -> tuple[Pair, ...] | Failure:
    """Return the only list of k pairs in a reply. Two different lists are ambiguous, another length is out of range."""
    entries = read_list(text, _is_pair, most_read=_READ)
    if isinstance(entries, str):
        return entries
    if len(entries) != k:
        return "out of range"
    return tuple(Pair(**entry) for entry in entries)


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
    """Add a question about a keyword, by the first template in the seed's order that the text does not answer."""
    templates = TEMPLATES[keyword.kind]
    for index in shuffled(generator(seed, "adjacent", source.id, keyword.text), len(templates)).tolist():
        template = templates[index]
        question = template.text.format(keyword=keyword.text)
        if answered([t.stem for t in tokens(question)], keyword.stems, text_sentences, template):
            desk.drop(ANSWERED)
        elif desk.admit(AdjacentQuestion(source.id, keyword.text, question)):
            return 1
    return 0
