"""An item is one question with its answer, its place in the knowledge graph, and its other forms."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator

from vestige.core.ids import content_id
from vestige.core.settings import packaged_toml
from vestige.core.text import Record, TextTuple, closest, one_line

# Whether the retain set reveals an answer: it states it, lets it be guessed, or neither.
Scope = Literal["entailed", "guessable", "free"]


@dataclass(frozen=True)
class Options:
    """The options of a multiple-choice question, in the order of the data.

    `texts[right]` is the right one. `also_right` are further right answers, which are never offered next to it.
    """

    texts: TextTuple
    right: int
    also_right: TextTuple = ()


@dataclass(frozen=True)
class Item:
    """One question and its answer.

    `edge` names the contract that the item asks about and `group` its type ("sales", "factual", ...). Data without a
    graph may lack both. `attribute` names the requested property. `paraphrase` and `paraphrased_answer` are question
    and answer in other words. `perturbed` are wrong answers of the same kind, in the words of `paraphrased_answer` if
    there is one. `options` are the choices of multiple-choice data. `fact` is the part of the answer that reveals it,
    and `accepted` are other ways to say it. `alias` is the question with another name of its subject. `khop` is a
    question that requires this fact and a further one, and `khop_answer` its answer if that differs.
    """

    question: str
    answer: str
    edge: str | None = None
    group: str | None = None
    attribute: str | None = None
    paraphrase: str | None = None
    perturbed: TextTuple = ()
    paraphrased_answer: str | None = None
    options: Options | None = None
    fact: str | None = None
    accepted: TextTuple = ()
    alias: str | None = None
    khop: str | None = None
    khop_answer: str | None = None

    @cached_property
    def id(self) -> str:
        """Return the content id of question, answer and edge, independent of the file."""
        return content_id({"question": self.question, "answer": self.answer, "edge": self.edge})


ItemTuple = tuple[Item, ...]


@dataclass(frozen=True)
class Luck:
    """`answer` is equal for facts with the same guess, `chance` is that guess's probability."""

    answer: str
    chance: float


@dataclass(frozen=True)
class ForgetSet:
    """The resolved items that a model unlearned or never saw: ascending item ids, and their edges.

    `name` is the original selector or file. Sets are the same where their items are, whatever the name.
    """

    name: str
    items: TextTuple
    edges: TextTuple

    @classmethod
    def of(cls, name: str, items: Sequence[Item]) -> "ForgetSet":
        """Return a set of these items with a name."""
        edges = {i.edge for i in items if i.edge is not None}
        return cls(name, tuple(sorted({i.id for i in items})), tuple(sorted(edges)))

    def less(self, items: Sequence[Item]) -> "ForgetSet":
        """Return this set without `items`."""
        ids = {i.id for i in items}
        return ForgetSet(self.name, tuple(i for i in self.items if i not in ids), self.edges)


def called_by_items(name: str, items: Sequence[Item]) -> str:
    """Return a set's name from its file: the file's own name and a digest of its content, whatever its order."""
    return f"{name}-{content_id(sorted({i.id for i in items}), length=8)}"


def items_digest(items: Sequence[Item]) -> str:
    """Content id of the items in their order."""
    return content_id([i.id for i in items], length=32)


def questions_digest(items: Sequence[Item]) -> str:
    """Return the content id of the items and all their forms: other wordings, wrong answers, options."""
    return content_id([asdict(i) for i in items], length=32)


def taught_digest(items: Sequence[Item], vocabulary: Sequence[Item] = ()) -> str:
    """Return the content id of a training's data, and of the text behind its tokeniser, if any.

    A tokeniser is made of paraphrases too, which are no part of an item's id.
    """
    items_id = items_digest(items)
    if not vocabulary:
        return items_id
    return content_id([items_id, [[i.question, i.paraphrase, i.answer] for i in vocabulary]], length=32)


class QuestionForm(NamedTuple):
    """A form of a question: a text with parts of an item in braces, or "" if an evaluation makes it.

    `answer` is the field with its answer, if it differs from the item's, `words` its name on pages and `lacking` the
    field that an item may lack.
    """

    put: str = ""
    answer: str = ""
    words: str = ""
    lacking: str = ""

    def texts(self, item: Item) -> tuple[str, str] | None:
        """Return the question in this form and its answer, or None if the item lacks a part."""
        parts = {name: value for name in Item.__dataclass_fields__ if isinstance(value := getattr(item, name), str)}
        try:
            text = self.put.format_map(parts)
        except KeyError:
            return None
        return text, parts.get(self.answer, item.answer)


_TABLE = packaged_toml(__package__, "forms.toml")
LANGUAGES: Mapping[str, Record] = _TABLE["languages"]
"""The language's name, the request to answer in it, and refusals, by language code."""
QUESTION_FORMS: Mapping[str, QuestionForm] = {
    **{name: QuestionForm(**row) for name, row in _TABLE["forms"].items()},
    **{f"in_{code}": QuestionForm(row["ask"], words=f"answered in {row['name']}") for code, row in LANGUAGES.items()},
}
"""The question forms by their name in settings and formats."""


def _form_name(name: str) -> str:
    if name not in QUESTION_FORMS:
        raise ValueError(f"has no form {one_line(name, width=60)!r}; {closest(name, list(QUESTION_FORMS))}")
    return name


FormName = Annotated[str, AfterValidator(_form_name)]
"""One of `QUESTION_FORMS`."""
