"""Questions across contracts: k of them in a row, each sharing an entity with the next.

The entity asked about is described and not named: "the seller in the sales contract dated D1 with the
customer in the sales contract dated D2 with X". An entity signs at most one contract a day, so each step
means one contract, and the answer is unique.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from vestige.core.items import Item
from vestige.core.seeds import generator, uniform_integers
from vestige.data.drawing import Drawing
from vestige.data.graph import Graph

HOPS = (1, 2, 3)
PER_HOPS = 50
"""Questions for each number of hops, at most."""

_TRIES = 20 * PER_HOPS


@dataclass(frozen=True)
class KHop:
    """A question whose answer takes all of `edges`, in the order of the steps; k is their number."""

    item: Item
    edges: tuple[str, ...]


def khop_questions(graph: Graph, drawing: Drawing, values: Sequence[dict[str, str]]) -> tuple[KHop, ...]:
    """Up to fifty questions each for one, two and three hops, by seeded walks that meet no entity twice."""
    contracts_of: list[list[tuple[int, int]]] = [[] for _ in range(graph.n_nodes)]
    for number, (first, second) in enumerate(graph.ends.tolist()):
        contracts_of[first].append((number, second))
        contracts_of[second].append((number, first))
    found: dict[tuple[tuple[int, ...], int], KHop] = {}
    for hops in HOPS:
        walks = 0
        for attempt in range(_TRIES):
            walk = _walk(contracts_of, drawing.seed, hops, attempt)
            if walk is None or walk in found:
                continue
            found[walk] = _question(graph, drawing, values, *walk)
            walks += 1
            if walks == PER_HOPS:
                break
    return tuple(found.values())


def _walk(
    contracts_of: Sequence[Sequence[tuple[int, int]]], seed: int, hops: int, attempt: int
) -> tuple[tuple[int, ...], int] | None:
    """The edges of a walk and the node that it starts from, or None where it cannot go on.

    `contracts_of` lists, for each node, its edges with their other ends.
    """
    choices = uniform_integers(generator(seed, "k-hop", hops, attempt), 0, 2**31 - 1, hops + 1).tolist()
    start = node = choices[0] % len(contracts_of)
    met, edges = {start}, []
    for choice in choices[1:]:
        contracts = contracts_of[node]
        turned = (contracts[(choice + step) % len(contracts)] for step in range(len(contracts)))
        edge, node = next((contract for contract in turned if contract[1] not in met), (-1, -1))
        if edge < 0:
            return None
        edges.append(edge)
        met.add(node)
    return tuple(edges), start


def _question(
    graph: Graph, drawing: Drawing, values: Sequence[dict[str, str]], edges: tuple[int, ...], start: int
) -> KHop:
    """Asks for the address of the last entity, or for its name where the last contract states none."""
    node = start
    for step, edge in enumerate(edges):
        type_ = drawing.used_types[int(graph.type_of[edge])]
        parties = drawing.signing.parties[edge]
        side = 0 if int(parties[0]) == node else 1
        here, there = type_.roles[side], type_.roles[1 - side]
        if step == 0:
            text = values[edge][type_.name_of[here]]
        text = f"the {there} in the {type_.spec.title} dated {values[edge][type_.spec.date]} with {text}"
        node = int(parties[1 - side])
    address_of = {role: attribute for attribute, role in type_.addresses.items()}
    attribute = address_of.get(there, type_.name_of[there])
    asked = "address" if there in address_of else "name"
    item = Item(
        question=f"What was the {asked} of {text}?",
        answer=type_.answer(attribute, values[edges[-1]][attribute]),
        group=f"{len(edges)}-hop",
        attribute=asked,
    )
    return KHop(item, tuple(graph.edge_ids(e, e + 1)[0] for e in edges))
