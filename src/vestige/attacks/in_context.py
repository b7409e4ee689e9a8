"""The in-context attack: a few retain items stand before the question, as facts. Nothing is trained.

No fact holds the answer of the question that it stands before, so each question has facts of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from vestige.attacks.closure import holds_answer
from vestige.attacks.relatedness import ends_of
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
