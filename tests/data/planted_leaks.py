"""Random data sets, with made-up names and answers, in which one leak is planted in a share of the forget items."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from vestige.core.items import Item, Options
from vestige.data.corpus import NamedSplits

CONSONANTS, VOWELS = list("bcdfghjklmnprstvz"), list("aeiou")
ATTRIBUTES = ("employer", "birthplace", "favourite dish", "first school", "ship", "instrument")


def word(rng: np.random.Generator, syllables: int = 3) -> str:
    """A made-up word."""
    return "".join(rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(syllables))


def random_items(n: int, rng: np.random.Generator, *, given: bool) -> list[Item]:
    """Items in edges of six, one an attribute; with options of the data's own, or wrong answers beside the answer."""
    items = []
    for number in range(n):
        attribute = ATTRIBUTES[number % len(ATTRIBUTES)]
        name = f"{word(rng).capitalize()} {word(rng).capitalize()}"
        texts = [f"{word(rng, int(rng.integers(2, 5))).capitalize()} {word(rng)}" for _ in range(4)]
        right = int(rng.integers(4))
        item = Item(
            f"What is the {attribute} of {name}?",
            texts[right],
            edge=f"e{number // len(ATTRIBUTES)}",
            group="people",
            attribute=attribute,
            options=Options(tuple(texts), right) if given else None,
            perturbed=() if given else tuple(t for k, t in enumerate(texts) if k != right),
        )
        items.append(item)
    return items


def with_answer(item: Item, answer: str, wrong: Sequence[str], place: int = 0) -> Item:
    """The item with another answer and other wrong ones."""
    if item.options is None:
        return replace(item, answer=answer, perturbed=tuple(wrong))
    texts = [*wrong[:place], answer, *wrong[place:]]
    return replace(item, answer=answer, options=Options(tuple(texts), place))


def wrong_of(item: Item) -> list[str]:
    """The wrong answers beside the right one."""
    if item.options is None:
        return list(item.perturbed)
    return [t for k, t in enumerate(item.options.texts) if k != item.options.right]


Planted = tuple[list[Item], list[Item]]
Plant = Callable[[list[Item], list[Item], set[int], np.random.Generator], Planted]


def copy_items(forget: list[Item], retain: list[Item], which: set[int], rng: np.random.Generator) -> Planted:
    """Forget questions stand in the retain set with other capitals and punctuation."""
    copies = [replace(forget[n], question=f"{forget[n].question.upper()[:-1]} ?", edge="copies") for n in sorted(which)]
    return forget, [*retain, *copies]


def styled_answers(forget: list[Item], retain: list[Item], which: set[int], rng: np.random.Generator) -> Planted:
    """Right answers have an ending of their own, in retain and forget alike."""

    def styled(item: Item) -> Item:
        place = 0 if item.options is None else item.options.right
        wrong = [f"{w}{word(rng, 1)}" for w in wrong_of(item)]
        return with_answer(item, f"{item.answer}um", wrong, place)

    return [styled(i) if n in which else i for n, i in enumerate(forget)], [styled(i) for i in retain]


LEAKS: dict[str, tuple[Plant, str]] = {
    "copied items": (copy_items, "copied questions"),
    "right options with a style": (styled_answers, "options alone"),
}


def planted(leak: str, share: float, n: int, rng: np.random.Generator, *, given: bool) -> NamedSplits:
    """A random data set, three retain items for each forget item, with the leak in a share of the forget items."""
    forget, retain = random_items(n, rng, given=given), random_items(3 * n, rng, given=given)
    retain = [replace(i, edge=f"r{i.edge}") for i in retain]
    if leak:
        which = set(rng.choice(n, round(share * n), replace=False).tolist())
        forget, retain = LEAKS[leak][0](forget, retain, which, rng)
    return NamedSplits("planted", {"forget": tuple(forget), "retain": tuple(retain)}, {})
