"""Which retain items are related to what is forgotten, by the names of edges and by what is asked for."""

from collections.abc import Sequence
from functools import lru_cache

from vestige.core.items import Item

AGAIN = "~"
"""Before the number of a further contract between the same two entities, as in `A_B~2`."""


@lru_cache(maxsize=65536)
def ends_of(edge: str | None) -> frozenset[str]:
    """The two entities that an edge named `X_Y` stands between; none where the name has another form."""
    ends = (edge or "").partition(AGAIN)[0].split("_")
    return frozenset(ends) if len(ends) == 2 and all(ends) else frozenset()


def related_items(retain: Sequence[Item], forget: Sequence[Item]) -> list[Item]:
    """The retain items of edges that share an entity with a forgotten one.

    Where no edge does, those that ask for the same attribute of the same group.
    """
    entities = frozenset().union(*(ends_of(i.edge) for i in forget))
    if touching := [i for i in retain if entities & ends_of(i.edge)]:
        return touching
    asked = {(i.group, i.attribute) for i in forget if i.attribute is not None}
    return [i for i in retain if (i.group, i.attribute) in asked]
