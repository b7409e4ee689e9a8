"""Multiple-choice questions from items: the source of wrong options and the place of the right one.

Wrong options come from the first available source: the data's options; the item's own wrong answers; the same attribute
in other items of the same group; in data without attributes, answers to questions of the same form, which differ in
names and numbers alone; their names give place to the question's own, so that an option is not recognisable by its
subject. None is equal to a right answer or to another option after `normalised`. Draws depend on the seed and the item.
The right option's place is balanced over the set: among the questions of one number of options every place is right
equally often, give or take one.
"""

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Literal

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.seeds import derive_seed, generator
from vestige.core.text import TextTuple, one_line
from vestige.metrics.answers import normalised

Source = Literal["given", "perturbed", "attribute", "form", "question"]
"""The source of wrong options: `form` is the question's form. `question` offers questions (the reversed form)."""
Wanted = Literal["auto", "perturbed", "attribute"]
TooFew = Literal["refuse", "fewer", "leave_out"]
Place = Literal["balanced", "given"]

MOST_OPTIONS = len(string.ascii_uppercase)
"""Every option has a letter."""
REVERSED = 'Which of these questions has the answer "{answer}"?'


@dataclass(frozen=True)
class Choice:
    """A question with its options in display order. `options[answer]` is the right one.

    `also` are further right answers: they are read as texts and never shown next to the right one. `accepted` are the
    texts that count as right in a reply. `item` is the id of the item.
    """

    item: str
    question: str
    options: TextTuple
    answer: int
    also: TextTuple = ()
    accepted: TextTuple = ()
    source: Source = "given"
    edge: str | None = None
    group: str | None = None
    attribute: str | None = None

    @cached_property
    def id(self) -> str:
        """Content id of the question, the options in their order, and which are right."""
        return content_id(
            {"question": self.question, "options": self.options, "answer": self.answer, "also": self.also}
        )


@dataclass(frozen=True)
class Unasked:
    """An item that allows no question with two options, with the reason."""

    item: str
    reason: str
    edge: str | None = None
    question: ClassVar[str] = ""

    @property
    def id(self) -> str:
        """Content id of the item and the reason."""
        return content_id({"item": self.item, "reason": self.reason})


@dataclass(frozen=True)
class OptionDrawing:
    """The selection of options.

    `n` is the number of drawn options. Options that the data give are all shown. `too_few` determines the treatment of
    an item with fewer than n - 1 wrong options: an error, a question with fewer options (at least two), or no question.
    `place` balances the position of the right option over the set, or keeps given options in their order.
    """

    n: int = 4
    source: Wanted = "auto"
    too_few: TooFew = "refuse"
    place: Place = "balanced"
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject an impossible number of options."""
        if not 2 <= self.n <= MOST_OPTIONS:
            raise InputError(f"options = {self.n}: choose a number from 2 to {MOST_OPTIONS}")


_Pools = Mapping[tuple[str | None, str | None], Sequence[Item]]
_Wrong = tuple[Source, Sequence[str]]
"""Wrong options and their source."""


def choices_of(items: Sequence[Item], drawing: OptionDrawing) -> dict[str, Choice | Unasked]:
    """Return the question of each item, by the item's id and in the items' order."""
    pools = _by_attribute(items)
    placed = _placed({i.id: _drawn(i, _wrong(i, pools, drawing.source), drawing) for i in items}, drawing)
    if drawing.place == "given" and drawing.source == "auto":
        for item in items:
            choice = placed[item.id]
            if item.options is not None and isinstance(choice, Choice):
                placed[item.id] = replace(choice, options=item.options.texts, answer=item.options.right)
    return placed


def reversed_choices(items: Sequence[Item], drawing: OptionDrawing) -> dict[str, Choice | Unasked]:
    """Return the inverted items: which of these questions has this answer?

    The options are the item's question and other questions of the same attribute with other answers.
    """
    pools = _by_attribute(items)
    choice_of: dict[str, Choice | Unasked] = {}
    for item in items:
        answer = normalised(item.answer)
        # A question with the same answer would also be right.
        questions = {o.question for o in pools.get(_kind(item), ()) if normalised(o.answer) != answer}
        turned = Item(REVERSED.format(answer=item.answer), item.question, item.edge, item.group, item.attribute)
        choice_of[item.id] = _drawn(turned, ("question", sorted(questions)), drawing, key=item.id)
    return _placed(choice_of, drawing)


def _kind(item: Item) -> tuple[str | None, str | None]:
    if item.attribute is not None:
        return item.group, item.attribute
    return item.group, _form(item.question)


_LEAST_WORDS = 4
"""With fewer words next to names and numbers, as in `Who is _?`, a form does not describe its answers."""


def _form(question: str) -> str | None:
    """The question with names and numbers left out, so that questions after the same thing are one form."""
    words = list(_words(question))
    # Without a name or number, two questions of a form could not differ.
    if sum(plain for _, plain in words) < _LEAST_WORDS or all(plain for _, plain in words):
        return None
    parts = (word[0].casefold() if plain else "_" for word, plain in words)
    # A name of several words is one gap.
    return re.sub(r"_( _)+", "_", " ".join(parts))


def _words(question: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Return each word, and whether it is plain: neither a name nor a number by its form."""
    for n, word in enumerate(re.finditer(r"\w+", question)):
        yield word, n == 0 or not (word[0][0].isupper() or any(map(str.isdigit, word[0])))


def _gaps(question: str) -> list[str]:
    """Return the gaps of the question's form: its names and numbers, adjacent ones joined."""
    runs = [list(run) for plain, run in groupby(_words(question), key=itemgetter(1)) if not plain]
    return [question[run[0][0].start() : run[-1][0].end()] for run in runs]


def _as_of(item: Item, source: Item) -> str:
    """Return the other item's answer with its question's names replaced by the item's, form by form."""
    names = dict(zip(_gaps(source.question), _gaps(item.question), strict=True))
    # The alternatives of a pattern are tried in order, so a name that is the beginning of another would hide it.
    longest_first = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    # A single pass never replaces a name that was just inserted.
    return re.sub(rf"\b({longest_first})\b", lambda name: names[name[0]], source.answer)


def _by_attribute(items: Iterable[Item]) -> _Pools:
    pools: dict[tuple[str | None, str | None], list[Item]] = {}
    for item in items:
        if (kind := _kind(item))[1] is not None:
            pools.setdefault(kind, []).append(item)
    return pools


def _wrong(item: Item, pools: _Pools, source: Wanted) -> _Wrong:
    if item.options is not None and source == "auto":
        return "given", [text for n, text in enumerate(item.options.texts) if n != item.options.right]
    if source == "perturbed" or (source == "auto" and item.perturbed):
        return "perturbed", item.perturbed
    pool = pools.get(_kind(item), ())
    # Sorting makes the draw independent of the order of the items.
    if item.attribute is None and _form(item.question) is not None:
        return "form", sorted({_as_of(item, o) for o in pool})
    return "attribute", sorted({o.answer for o in pool})


def _drawn(item: Item, wrong: _Wrong, drawing: OptionDrawing, *, key: str = "") -> Choice | Unasked:
    """Return the right option first, then the wrong ones in drawn order. `_placed` moves the right one."""
    key, about = key or item.id, f"the question {one_line(item.question, width=60)!r}"
    source, texts = wrong
    also: TextTuple = ()
    if source == "given" and item.options is not None:
        right, also, needed = item.options.texts[item.options.right], item.options.also_right, len(texts)
    else:
        right = item.answer
        # TOFU's wrong answers are worded like its paraphrased answer, and differ visibly from the answer itself.
        if source == "perturbed" and item.paraphrased_answer:
            right = item.paraphrased_answer
        texts, needed = _distinct(texts, [right, item.answer]), drawing.n - 1
    if not all(map(normalised, (right, *texts, *also))):
        raise InputError(
            f"{about} has an option of nothing but full stops and white space, which no reply can match. Remove it"
        )
    if not texts or (len(texts) < needed and drawing.too_few != "fewer"):
        reason = f"has {len(texts)} wrong options of the source {source!r} where {max(needed, 1)} are needed"
        if drawing.too_few == "leave_out":
            return Unasked(key, reason, item.edge)
        raise InputError(
            f"{about} {reason}. Give it wrong answers (perturbed_answer), take another source, or set too_few to fewer "
            "or leave_out"
        )
    order = generator(drawing.seed, "options", key).permutation(len(texts)).tolist()
    return Choice(
        key,
        item.question,
        (right, *(texts[n] for n in order[:needed])),
        0,
        also=also,
        accepted=tuple(dict.fromkeys([right, item.answer, *also])),
        source=source,
        edge=item.edge,
        group=item.group,
        attribute=item.attribute,
    )


def _distinct(texts: Iterable[str], right: Iterable[str]) -> list[str]:
    """Return the texts that differ, after `normalised`, from the right ones and each other."""
    # The right answers go in first, so none of them becomes a wrong option.
    by_form = {"": "", **{normalised(text): text for text in right}}
    left_out = len(by_form)
    for text in texts:
        by_form.setdefault(normalised(text), text)
    return list(by_form.values())[left_out:]


def _placed(choice_of: Mapping[str, Choice | Unasked], drawing: OptionDrawing) -> dict[str, Choice | Unasked]:
    """Move the right option, which comes first, to its place."""
    placed = dict(choice_of)
    choices = [choice for choice in choice_of.values() if isinstance(choice, Choice)]
    # The questions of each edge are balanced too. Within an edge the order is random.
    choices.sort(key=lambda c: (len(c.options), c.edge or "", derive_seed(drawing.seed, "place", c.item), c.item))
    for size, alike in groupby(choices, key=lambda c: len(c.options)):
        # Otherwise the first question of every set would have its answer in the first place.
        first = derive_seed(drawing.seed, "first place", size)
        for rank, choice in enumerate(alike):
            (right, *options), place = choice.options, (first + rank) % size
            options.insert(place, right)
            placed[choice.item] = replace(choice, options=tuple(options), answer=place)
    return placed
