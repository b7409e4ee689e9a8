"""Adjacent questions as data: which source each is near, what was dropped and why, and where duplicates are caught.

Sizes are in characters.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import PositiveInt

from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.data.passages import Passage
from vestige.judges.base import Spend

Source: TypeAlias = Item | Passage

ANSWERED = "the text may answer it"
ASKED = "the data asks it"
TWICE = "asked before"
SHORT = "fewer than k questions of a source"


class AdjacentSettings(Settings):
    """How adjacent questions are made.

    `k` is the most of one source: 4 in the paper for harmful answers, 5 for papers, 2 for Wikitext. Of a text the
    first `most_characters` are read. Without `names` (without `numbers`) no keyword of the offline form holds one.
    """

    k: PositiveInt = 4
    most_characters: PositiveInt = 8000
    names: bool = True
    numbers: bool = False


@dataclass(frozen=True)
class AdjacentQuestion:
    """A question near one source, by the source's id.

    `keyword` is what the two share. `distance` is the number of steps between their contracts in the graph, and None
    where there is none. `answer` is the true answer where the data holds it, else empty. `relation` says how the two
    hang together: "keyword", "same attribute", "other attribute" or "retained".
    """

    source_id: str
    keyword: str
    question: str
    distance: int | None = None
    answer: str = ""
    relation: str = "keyword"


@dataclass(frozen=True)
class Adjacent:
    """The questions in the order of their sources; what was dropped and what failed, by reason; and what it took.

    `dropped` counts questions, and under `SHORT` those that a source is short of its k. `failures` counts sources that
    a language model gave nothing usable for, which are not counted short.
    """

    questions: tuple[AdjacentQuestion, ...]
    n_sources: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    spend: Spend = field(default_factory=Spend)


def as_they_are(items: Sequence[Item]) -> Adjacent:
    """The items' own questions with their answers, for a retain set that consists of questions (TruthfulQA)."""
    desk = Desk(())
    for item in items:
        desk.admit(AdjacentQuestion(item.id, "", item.question, answer=item.answer, relation="retained"))
    return desk.result(n_sources=len(items))


def source_text(source: Source, most_characters: int) -> str:
    """What is read of a source, cut at a blank: a passage with its title before it, an item's question and answer."""
    first, second = (source.title, source.text) if isinstance(source, Passage) else (source.question, source.answer)
    text = f"{first}\n{second}" if first else second
    if len(text) <= most_characters:
        return text
    cut = text[:most_characters]
    return cut[: max(cut.rfind(" "), cut.rfind("\n"))] if any(c.isspace() for c in cut) else cut


def plain(question: str) -> str:
    """A question by which two are the same: case, accents' spelling, blanks and signs aside."""
    shown = unicodedata.normalize("NFKC", question).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in shown).split())


class Desk:
    """Where questions are admitted or dropped, in order: no two are the same, and none is one of the data's own."""

    def __init__(self, sources: Iterable[Source]) -> None:
        """Begin with nothing admitted."""
        items = [s for s in sources if isinstance(s, Item)]
        self._own = {plain(text) for i in items for text in (i.question, i.paraphrase or "") if text}
        self._seen: set[str] = set()
        self._admitted: list[AdjacentQuestion] = []
        self._dropped: Counter[str] = Counter()

    def admit(self, question: AdjacentQuestion) -> bool:
        """Whether a question is kept; else it is counted."""
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

    def result(
        self, *, n_sources: int, failures: Mapping[str, int] | None = None, spend: Spend | None = None
    ) -> Adjacent:
        """Everything admitted, with the counts."""
        dropped = dict(sorted(self._dropped.items()))
        return Adjacent(tuple(self._admitted), n_sources, dropped, failures or {}, spend or Spend())
