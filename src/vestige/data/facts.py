"""Facts and their wordings: which questions ask for the same fact and are not independent evidence.

The probability of guessing a fact from the retain set: a control that states many improbable facts has seen these
facts.

Cloze: the statement that answers a question, with its fact left out. The statement is the text that the item's wrong
answers reword: `paraphrased_answer` where there is one, otherwise `answer`. Its fact is the difference from the wrong
answers: the words without the common beginning and the common end. Words are parted by white space and compared after
`normalised`, without the marks that close a clause. Such marks at the end of the fact stay in the statement. A wrong
answer that is the right one, or nothing, counts for nothing.

If this isolates no fact, the gap is the whole answer. So it is without wrong answers, where they share no words with
the statement or differ from it by words put in only, and where the rest of the statement states the fact again or holds
a gap of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from vestige.core.ids import content_id
from vestige.core.items import Item, Luck
from vestige.core.text import TextByName, TextTuple, one_line
from vestige.data.findings import named_words, subject_words, word_shares, words
from vestige.metrics.answers import contains, normalised
from vestige.metrics.leaks import leak_score

BLANK = "____"
"""The placeholder for the fact."""
FEW_WORDS = 5
_CLOSING = ".,;:!?…。，、；：！？"


@dataclass(frozen=True)
class Cloze:
    """`statement` has `BLANK` in the place of `fact`. With `whole`, it is nothing more and `fact` is the answer."""

    statement: str
    fact: str
    whole: bool


def cloze_of(item: Item) -> Cloze:
    """The item's statement without its fact, or a gap for the whole answer."""
    return _gapped(item) or Cloze(BLANK, item.answer, whole=True)


def fact_of(item: Item) -> str | None:
    """Return the revealing part of the answer: the item's `fact`, otherwise a gap of a few words, otherwise None.

    A longer gap is a clause in the wrong answers' words, and a wrong reply would share many of its words. The answer
    has more information.
    """
    if item.fact is not None:
        return item.fact
    gap = _gapped(item)
    if gap is not None and len(gap.fact.split()) <= FEW_WORDS:
        return gap.fact
    return None


def _gapped(item: Item) -> Cloze | None:
    """Return the statement that shows a part of the answer. None if the wrong answers isolate no fact."""
    words = (item.paraphrased_answer or item.answer).split()
    right = _compared(words)
    wrong = []
    for text in item.perturbed:
        compared = _compared(text.split())
        if compared and compared != right:
            wrong.append(compared)
    if not wrong:
        return None
    first, last = _shared([right, *wrong])
    gap = " ".join(words[first : len(words) - last])
    fact = gap.rstrip(_CLOSING + " ")
    if first + last == 0 or not normalised(fact):
        return None
    statement = " ".join([*words[:first], BLANK + gap[len(fact) :], *words[len(words) - last :]])
    if statement.count(BLANK) > 1 or contains(statement, fact):
        return None
    return Cloze(statement, fact, whole=False)


def _compared(words: Sequence[str]) -> list[str]:
    return [normalised(word).rstrip(_CLOSING) for word in words]


def _shared(texts: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Count the words of the common beginning of all texts, and of the common end after it."""
    least = min(map(len, texts))
    first = 0
    while first < least and all(text[first] == texts[0][first] for text in texts):
        first += 1
    last = 0
    while first + last < least and all(text[-1 - last] == texts[0][-1 - last] for text in texts):
        last += 1
    return first, last


_FAMILY = 5
"""With this many retained questions of one kind, their answers give the probability of a guess."""


def luck_of(forget: Sequence[Item], kept: Sequence[Item]) -> dict[str, Luck]:
    """Return the probability that someone who knows the retained facts guesses each forgotten fact, by item id.

    Questions are of one kind if their attribute is the same, or, without attributes, if they differ only in their
    subject. A guess is an answer to another question of its kind. An answer of n of N retained questions is guessed
    with probability (n + 1) / (N + 1). A fact with too few retained questions of its kind has no probability, unless it
    is a long answer that no retained question has.
    """
    shares = word_shares([i.question for i in (*forget, *kept)])
    families: dict[Hashable, Counter[TextTuple]] = defaultdict(Counter)
    for item in kept:
        families[_kind(item, shares)][_told(item)] += 1
    everything = set[TextTuple]().union(*families.values())
    luck_by_id = {}
    for item in forget:
        kind, answer = _kind(item, shares), _told(item)
        n = families[kind].total()
        if n >= _FAMILY:
            luck_by_id[item.id] = Luck(content_id([str(kind), answer]), (families[kind][answer] + 1) / (n + 1))
        elif len(answer) >= _LONG and answer not in everything:
            luck_by_id[item.id] = Luck(content_id([item.id, answer]), 1 / (len(kept) + 1))
    return luck_by_id


def _kind(item: Item, shares: Mapping[str, float]) -> Hashable:
    if item.attribute is not None:
        return item.attribute
    about = subject_words(item.question, shares)
    return tuple(word for word in words(item.question) if word not in about)


def _told(item: Item) -> TextTuple:
    """The words of the answer that the question does not have."""
    question_words = set(words(item.question))
    return tuple(word for word in words(fact_of(item) or item.answer) if word not in question_words)


_ALIKE = 0.5
"""Above this share of common words (Jaccard), two questions with one answer ask for one fact."""
_LONG = 4
"""An answer with this many words identifies a fact: two questions about one contract do not share it by chance."""
_SENTENCE = 8
"""An answer with this many words identifies a fact, whatever names its questions contain."""
_SAME = 0.9
"""Two answers of a contract are the same if each reveals this share of the other."""


def facts_of(items: Sequence[Item]) -> TextByName:
    """Return by item id the first item with the same fact, for all later items.

    Items ask for one fact whose answers say the same and whose questions are about the same: of one edge, or, without
    edges, with the same names and numbers, or with a whole sentence for an answer. In addition to that, where both name
    an attribute it decides. Otherwise the answer must be long, or unique to its subject (without edges), or the
    questions share half of their words.
    """
    questions = _Questions(items)
    fact_by_id: TextByName = {}
    for number, item in enumerate(items):
        first = questions.first_alike(number)
        if first is None:
            questions.add(number)
        else:
            fact_by_id[item.id] = items[first].id
    return fact_by_id


def said_of_facts(items: Sequence[Item]) -> str:
    """Return a clause that the questions ask for fewer facts, or ""."""
    n = len(items) - len(facts_of(items))
    if n < len(items):
        return f"they ask for {n} facts"
    return ""


def said_of_rewordings(forget: Sequence[Item], retained: Sequence[Item]) -> str:
    """Report in a sentence retained questions that ask for forgotten facts in other words. "" where none is seen to.

    Only items without an edge are compared, since a contract is a whole in one set.
    """
    plain = [item for item in forget if item.edge is None]
    plain_retained = [item for item in retained if item.edge is None]
    questions = _Questions([*plain, *plain_retained])
    for number in range(len(plain)):
        questions.add(number)
    firsts = {number: questions.first_alike(number) for number in range(len(plain), len(questions.items))}
    pairs = [(number, first) for number, first in firsts.items() if first is not None]
    if not pairs:
        return ""
    second, first = (one_line(questions.items[n].question, width=100) for n in pairs[0])
    return (
        f"{len(pairs)} kept questions may ask for what is forgotten in other words, as {second!r} does for "
        f"{first!r}; what is kept teaches it"
    )


class _Questions:
    """The comparison data of the questions, by their numbers.

    Similar questions are found through their common words.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.words = [frozenset(words(i.question)) for i in items]
        self.names = [named_words(i.question) for i in items]
        self.answers = [tuple(words(fact_of(i) or i.answer)) for i in items]
        subjects: dict[TextTuple, set[frozenset[str]]] = defaultdict(set)
        for answer, names in zip(self.answers, self.names, strict=True):
            subjects[answer].add(names)
        several = len(set(self.names)) > 1
        # Answers that occur for only one of several subjects.
        self.unique = {a for a, values in subjects.items() if several and len(values) == 1 and next(iter(values))}
        self.counts: Counter[str] = Counter()
        for question_words in self.words:
            self.counts.update(question_words)
        self.added: dict[Hashable, list[int]] = defaultdict(list)

    def add(self, number: int) -> None:
        """Let later questions find this one."""
        item, answer = self.items[number], self.answers[number]
        keys: list[Hashable] = [item.edge]
        if item.edge is None:
            keys = [answer, *((answer, word) for word in self.words[number])]
        for key in keys:
            self.added[key].append(number)

    def first_alike(self, number: int) -> int | None:
        """The first question added that asks for the same fact."""
        item, answer = self.items[number], self.answers[number]
        # Reworded answers are searched for only within one contract.
        key: Hashable = item.edge
        if item.edge is None:
            key = answer
            if item.attribute is None and len(answer) < _SENTENCE and self.names[number]:
                # Thousands of questions have the answer "yes", so those with the rarest of its names are compared.
                key = answer, min(self.names[number], key=lambda word: (self.counts[word], word))
        return next((n for n in self.added.get(key, ()) if self.one_fact(n, number)), None)

    def one_fact(self, first: int, second: int) -> bool:
        """Whether two questions ask for one fact (see `facts_of`)."""
        item, later = self.items[first], self.items[second]
        both_name = item.attribute is not None and later.attribute is not None
        if (both_name and item.attribute != later.attribute) or not self._same_answer(first, second):
            return False
        if both_name:
            return True
        answer, no_edge = self.answers[first], item.edge is None
        a, b = self.words[first], self.words[second]
        if no_edge and len(answer) < _SENTENCE and not (self.names[first] <= b and self.names[second] <= a):
            return False
        if len(answer) >= _LONG or (no_edge and answer in self.unique):
            return True
        return len(a & b) >= _ALIKE * len(a | b)

    def _same_answer(self, first: int, second: int) -> bool:
        if self.answers[first] == self.answers[second]:
            return True
        left_answer, right_answer = self.items[first].answer, self.items[second].answer
        return min(leak_score(left_answer, right_answer), leak_score(right_answer, left_answer)) >= _SAME
