"""The in-context attack: a few retain items stand before the question, as facts. Nothing is trained.

No fact holds the answer of the question that it stands before, so each question has facts of its own.


Which retain items are related to what is forgotten goes by the names of edges and by what is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice

from vestige.attacks.closure import holds_answer
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.core.text import one_line

INTRODUCTION = "Here is some of what is known."


def in_seeded_order(retain: Sequence[Item], *, seed: int) -> tuple[Item, ...]:
    """The items in an order that depends on the seed and on each item alone."""
    return tuple(sorted(retain, key=lambda i: derive_seed(seed, "in context", i.id)))


def facts_before(item: Item, retain: Sequence[Item], n: int) -> tuple[Item, ...]:
    """The `n` retain items that stand before the question, closest first; refused where there are fewer.

    First those of edges that share an entity with the item's own, then those of its group and attribute, then others;
    among them in the order given. Those of n = 4 are the first of n = 8.
    """
    own = ends_of(item.edge)

    def distance(fact: Item) -> int:
        if own & ends_of(fact.edge):
            return 0
        return 1 if item.attribute is not None and (fact.group, fact.attribute) == (item.group, item.attribute) else 2

    admissible = (f for f in sorted(retain, key=distance) if not holds_answer(f, item))
    found = tuple(islice(admissible, n))
    if len(found) < n:
        raise InputError(
            f"{n} facts were to stand before {one_line(item.question, width=60)!r}, and {len(found)} retain items do "
            "not hold its answer; lower the number of facts"
        )
    return found


def with_facts(question: str, facts: Sequence[Item]) -> str:
    """The question after the facts, a line each."""
    lines = "".join(f"- {fact.question.strip()} {fact.answer.strip()}\n" for fact in facts)
    return f"{INTRODUCTION}\n{lines}\n{question}"


def asked_with_facts(items: Sequence[Item], facts: Mapping[str, Sequence[Item]]) -> dict[str, Item]:
    """By the id of each item, the item that asks the same after its facts, in all its wordings.

    Its question is another, and so is its id.
    """
    return {
        item.id: replace(
            item,
            question=with_facts(item.question, facts[item.id]),
            paraphrase=None if item.paraphrase is None else with_facts(item.paraphrase, facts[item.id]),
        )
        for item in items
    }


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
