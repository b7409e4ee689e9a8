"""What follows from items that are shown: of a forget set's other items, those whose answers are given away.

Conservative where it has to guess: an item too many is left untested rather than one tested that was given away.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import permutations
from typing import NamedTuple

from vestige.core.items import Item
from vestige.data.contract_schema import Product
from vestige.data.contract_type import contract_types
from vestige.metrics.answers import contains, normalised

_WORD = r"[A-ZÀ-ÖØ-Þ][\w'&-]*"
# Words with a Latin capital, one after the other, and numbers: what names, dates and amounts are made of.
_SPECIFIC = re.compile(rf"(?<!\w)(?:\d+(?:[.,:/-]\d+)*|{_WORD}(?:\s+{_WORD})*)")
# An amount has fewer digits than Python reads at once.
_WHOLE_NUMBER = re.compile(r"\d{1,30}")


class Closed(NamedTuple):
    """Items in their order: those that can be tested, and those that follow from what is shown."""

    tested: tuple[Item, ...]
    given_away: tuple[Item, ...]


def close(items: Iterable[Item], shown: Sequence[Item]) -> Closed:
    """Split `items` by whether the shown ones give their answers away (`Shown.gives_away`)."""
    told = Shown(tuple(shown))
    tested: list[Item] = []
    given: list[Item] = []
    for item in items:
        (given if told.gives_away(item) else tested).append(item)
    return Closed(tuple(tested), tuple(given))


class Shown:
    """The texts of shown items, of each edge and of all together."""

    def __init__(self, items: tuple[Item, ...]) -> None:
        """Take the items as they are shown: their questions and answers, and no other wording."""
        self.items = items

    @cached_property
    def _everything(self) -> str:
        return _texts(self.items)

    @cached_property
    def _of_edge(self) -> dict[str | None, str]:
        edges = dict.fromkeys(i.edge for i in self.items)
        return {edge: _texts([i for i in self.items if i.edge == edge]) for edge in edges}

    def gives_away(self, item: Item) -> bool:
        """Whether what it asks is shown, its answer is stated, or it is computed from stated answers.

        Stated is an answer that stands, as whole words, in a shown question or answer; or whose every name, date and
        amount does that the item's own question does not hold already. From other edges only what identifies counts
        (two words, or four digits), since `5` and `Seller` are the answers of many.
        """
        if any(asks_the_same(s, item) for s in self.items) or self._states(item, item.answer):
            return True
        new = [s for s in specifics(item.answer) if not stands_in(item.question, s)]
        return bool(new and all(self._states(item, s) for s in new)) or self._computed(item)

    def _states(self, item: Item, text: str) -> bool:
        own = self._of_edge.get(item.edge, "")
        return stands_in(own, text) or (identifies(text) and stands_in(self._everything, text))

    def _computed(self, item: Item) -> bool:
        beside = [s for s in self.items if s.edge == item.edge]
        type_ = contract_types(None).get(item.group or "")
        if type_ is not None and item.attribute is not None:
            stated = {s.attribute for s in beside if s.group == item.group}
            products = {n: a.generator.of for n, a in type_.spec.attributes.items() if isinstance(a.generator, Product)}
            return any(
                item.attribute in parts and stated.issuperset(parts - {item.attribute})
                for parts in ({name, *of} for name, of in products.items())
            )
        # Where nobody says which amounts belong together, any that fit do.
        wanted = _whole_number(item)
        amounts = [n for n in map(_whole_number, beside) if n is not None]
        return wanted is not None and any(a * b == wanted or wanted * b == a for a, b in permutations(amounts, 2))


def specifics(answer: str) -> list[str]:
    """The names, dates and amounts in an answer: numbers, and runs of words with a capital.

    A single word that opens a sentence is none, unless it is the whole answer: its capital is the sentence's.
    """
    if len(answer.split()) == 1:
        return [m[0] for m in _SPECIFIC.finditer(answer)]
    found = [(answer[: m.start()], m[0].removesuffix("'s")) for m in _SPECIFIC.finditer(answer)]
    return [text for before, text in found if " " in text or text[0].isdigit() or not _opens_sentence(before)]


def _opens_sentence(before: str) -> bool:
    """Whether a sentence begins behind this text, opening quotes and brackets aside."""
    said = before.rstrip("'\"“‘(")
    ended = said.rstrip()
    return not ended or (ended != said and ended.rstrip("'\"”’)").endswith((".", "!", "?")))


def identifies(text: str) -> bool:
    """Whether a text is so much of its own that it says the same wherever it stands: two words, or four digits."""
    return len(text.split()) > 1 or sum(c.isdigit() for c in text) >= 4


def not_asked(items: Iterable[Item], asked: Iterable[Item]) -> list[Item]:
    """The items that ask nothing of what is asked, in any of its wordings."""
    taken = {_plain(wording) for i in asked for wording in (i.question, i.paraphrase or i.question)}
    return [i for i in items if _plain(i.question) not in taken]


def asks_the_same(shown: Item, item: Item) -> bool:
    """Whether the shown question is one of the item's wordings, case and white space aside."""
    return _plain(shown.question) in {_plain(item.question), _plain(item.paraphrase or item.question)}


def holds_answer(shown: Item, item: Item) -> bool:
    """Whether the item's answer stands in a shown one, or the shown one asks the same."""
    if asks_the_same(shown, item):
        return True
    return stands_in(shown.question, item.answer) or stands_in(shown.answer, item.answer)


def stands_in(text: str, answer: str) -> bool:
    """Whether the answer stands in the text as whole words (`metrics.answers.contains`); one of no words does not."""
    # Most do not, and this says so at once.
    return bool(wanted := _plain(answer)) and wanted in _plain(text) and contains(text, answer)


_plain = lru_cache(maxsize=65536)(normalised)


def _texts(items: Iterable[Item]) -> str:
    return " | ".join(text for i in items for text in (i.question, i.answer))


def _whole_number(item: Item) -> int | None:
    text = _plain(item.answer)
    # One would make everything a product of itself.
    return int(text) if _WHOLE_NUMBER.fullmatch(text) and int(text) > 1 else None
