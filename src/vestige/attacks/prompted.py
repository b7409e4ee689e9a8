"""Questions with a searched prompt: whole, cut to shares of its tokens, or shuffled; and the points these are asked at.

A cut prompt is the first of its tokens, so that its bits in any code from left to right are part of the whole's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from vestige.artifacts.prompts import SHUFFLED
from vestige.attacks.placement import Placement, deployed
from vestige.core.items import Item
from vestige.core.seeds import generator

_SHARES: Mapping[str, int] = {f"{percent} %": percent for percent in range(0, 101, 10)}
POINTS = (SHUFFLED, *_SHARES)
"""The points of an attack by a searched prompt, in order; the last, the whole prompt, is judged."""


def tokens_at(ids: Sequence[int], point: str, *, seed: int) -> tuple[int, ...]:
    """What stands of a prompt's tokens at a point: a share of them, rounded down, or all of them shuffled."""
    if point == SHUFFLED:
        order = generator(seed, "shuffled prompt").permutation(len(ids))
        return tuple(ids[place] for place in order.tolist())
    return tuple(ids[: len(ids) * _SHARES[point] // 100])


def asked_with_prompt(items: Sequence[Item], text: str, placement: Placement) -> dict[str, Item]:
    """By the id of each item, the item that asks the same with the prompt beside it, in all its wordings.

    An empty prompt leaves each item as it is.
    """
    return {
        item.id: replace(
            item,
            question=deployed(item.question, text, placement),
            paraphrase=None if item.paraphrase is None else deployed(item.paraphrase, text, placement),
        )
        for item in items
    }
