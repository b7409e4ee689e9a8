"""An item is one question with its answer, and where in the knowledge graph it stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from vestige.core.ids import content_id

# Whether the retain set gives an answer away: states it, lets it be guessed, or neither.
Scope = Literal["entailed", "guessable", "free"]


@dataclass(frozen=True)
class Options:
    """The options of a multiple-choice question, in the order in which the data gives them.

    `texts[right]` is the right one. `also_right` are further right answers, which are no options beside it.
    """

    texts: tuple[str, ...]
    right: int
    also_right: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """One question and its answer.

    `edge` names the contract that the item asks about and `group` its type ("sales", "factual", ...); both may
    be absent in data that has no graph. `attribute` names what is asked for. `paraphrase` asks the same in other
    words, `paraphrased_answer` says the same in other words; `perturbed` holds wrong answers of the same kind,
    in the words of `paraphrased_answer` where there is one. `options` are those of multiple-choice data. `fact` is the
    part of the answer that gives it away, and `accepted` are other ways to say it. `alternatives` are answers that
    whoever never knew the true one cannot tell from it.
    """

    question: str
    answer: str
    edge: str | None = None
    group: str | None = None
    attribute: str | None = None
    paraphrase: str | None = None
    perturbed: tuple[str, ...] = ()
    paraphrased_answer: str | None = None
    options: Options | None = None
    fact: str | None = None
    accepted: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """Content id of question, answer and edge: what the item is, whatever file it came from."""
        return content_id({"question": self.question, "answer": self.answer, "edge": self.edge})


@dataclass(frozen=True)
class Luck:
    """What a fact can be guessed from: `answer` is the same for facts that one guess answers, `chance` that guess's."""

    answer: str
    chance: float


@dataclass(frozen=True)
class ForgetSet:
    """What a model was made to forget or never saw, resolved: item ids in ascending order, and their edges.

    `name` is how it was asked for: a selector or a file. Sets are the same where their items are, whatever the name.
    """

    name: str
    items: tuple[str, ...]
    edges: tuple[str, ...]

    @classmethod
    def of(cls, name: str, items: Sequence[Item]) -> "ForgetSet":
        """The set of these items under a name."""
        edges = {i.edge for i in items if i.edge is not None}
        return cls(name, tuple(sorted({i.id for i in items})), tuple(sorted(edges)))

    def less(self, items: Sequence[Item]) -> "ForgetSet":
        """What is left of it after a model was taught these items."""
        ids = {i.id for i in items}
        return ForgetSet(self.name, tuple(i for i in self.items if i not in ids), self.edges)


def called_by_items(name: str, items: Sequence[Item]) -> str:
    """The name of a set that a file holds: the file's own, and behind it what it holds, whatever its order."""
    return f"{name}-{content_id(sorted({i.id for i in items}), length=8)}"


def file_of(forget: str) -> str:
    """The file's own name in a name that `called_by_items` gave; "" in any other."""
    name, dash, digits = forget.rpartition("-")
    return name if dash and len(digits) == 8 and set(digits) <= set("0123456789abcdef") else ""


def digest_of(forget: Sequence[Item], retain: Sequence[Item]) -> str:
    """Content id of both sets in their order."""
    return content_id([[i.id for i in forget], [i.id for i in retain]], length=32)


def items_digest(items: Sequence[Item]) -> str:
    """Content id of the items in their order."""
    return content_id([i.id for i in items], length=32)


def taught_digest(items: Sequence[Item], vocabulary: Sequence[Item] = ()) -> str:
    """Content id of what a training teaches, and of the text of which its tokeniser was made, if it was.

    A tokeniser is made of paraphrases too, which are no part of an item's id.
    """
    items_id = items_digest(items)
    if not vocabulary:
        return items_id
    return content_id([items_id, [[i.question, i.paraphrase, i.answer] for i in vocabulary]], length=32)
