"""Items to choose on and items to report on: drawn apart, each a fair picture of the whole.

Everything is trained on as before; only scores are kept apart, so that a rate that was chosen for its luck on some
items is not praised for it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator, shuffled
from vestige.core.text import one_line
from vestige.data.corpus import NamedSplits

CHOSEN_ON = ("forget", "retain")
"""The splits that validation needs."""


class Apart(NamedTuple):
    """One forget set's splits, once for choosing (forget and retain) and once for reporting (all of them)."""

    validation: NamedSplits
    test: NamedSplits


def held_apart(splits: NamedSplits, *, most: int, seed: int) -> Apart:
    """At most `most` items, and at most half, of the forget and of the retain set to choose on; the rest to report on.

    Drawn in equal shares from every edge, from its entailed, guessable and free items, and from every attribute, as
    far as whole items allow.
    """
    drawn = {}
    for name in CHOSEN_ON:
        items = splits.splits.get(name, ())
        if len(items) < 2:
            raise InputError(
                f"the {name} set of {one_line(splits.forget, width=60)!r} has too few items to choose on some and "
                f"report on others ({len(items)}); at least 2 are needed"
            )
        n = min(most, len(items) // 2)
        drawn[name] = balanced_draw(items, n, lambda i: splits.scopes.get(i.id, ""), seed=seed)
    used = {i.id for items in drawn.values() for i in items}
    rest = {name: tuple(i for i in items if i.id not in used) for name, items in splits.splits.items()}
    return Apart(
        NamedSplits(splits.forget, drawn, splits.scopes),
        NamedSplits(splits.forget, {name: items for name, items in rest.items() if items}, splits.scopes),
    )


def balanced_draw(items: Sequence[Item], n: int, scope: Callable[[Item], str], *, seed: int) -> tuple[Item, ...]:
    """`n` of the items, in their order; which ones depends on the seed and on what items there are.

    Each edge gives its share, give or take one item, and so does each scope in it; within those the attributes
    that have given least so far go first.
    """
    strata: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(items, key=lambda i: i.id):
        strata.setdefault((_place(item), scope(item)), []).append(item)
    places = sorted({place for place, _ in strata})
    rank = dict(zip(places, shuffled(generator(seed, "validation places"), len(places)).tolist(), strict=True))
    taken: set[str] = set()
    passed = 0
    owed: dict[tuple[str, str], float] = {}
    for key in sorted(strata, key=lambda k: (rank[k[0]], k[1])):
        members = strata[key]
        order = shuffled(generator(seed, "validation items", *key), len(members)).tolist()
        members = sorted((members[k] for k in order), key=lambda i: -owed.get(_attribute(i), 0.0))
        passed += len(members)
        # Rounded over all that has passed, so that the shares of the strata add up to n.
        due = (2 * n * passed + len(items)) // (2 * len(items)) - len(taken)
        taken |= {i.id for i in members[:due]}
        for item in members:
            owed[_attribute(item)] = owed.get(_attribute(item), 0.0) + n / len(items) - (item.id in taken)
    return tuple(i for i in items if i.id in taken)


def _place(item: Item) -> str:
    return item.edge or item.group or ""


def _attribute(item: Item) -> tuple[str, str]:
    return item.group or "", item.attribute or ""
