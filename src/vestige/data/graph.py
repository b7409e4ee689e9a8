"""A graph of contracts: nodes are entities, edges are the contracts that they sign.

Kept as arrays, so that a million edges take megabytes. Axes: E edges in the order of the source, N nodes.
"""

import hashlib
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from vestige.core.errors import InputError
from vestige.core.text import one_line

DEFAULT_TYPE = "sales"
HOLDOUT_PREFIX = "holdout-"
"""Edge ids of contracts outside the graph begin so, and no edge of a graph may."""

_FORBIDDEN_START = ("=", "+", "-", "@")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Edge(NamedTuple):
    """One contract by its labels. Without an id it is called `first_second`, the next `first_second~2`."""

    first: str
    second: str
    type: str = DEFAULT_TYPE
    id: str | None = None


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes, the two ends of each edge, and each edge's contract type.

    `types` are the contract types in the order of their first edge and `type_of` the index of each edge's
    type among them. `ids` names the edges where they are not called by the rule. `parts` names components by
    number.
    """

    name: str
    nodes: tuple[str, ...]
    ends: Int[np.ndarray, "E 2"]
    types: tuple[str, ...]
    type_of: Int[np.ndarray, " E"]
    ids: tuple[str, ...] | None = None
    parts: Mapping[int, str] = field(default_factory=dict)

    @property
    def n_nodes(self) -> int:
        """The number of entities."""
        return len(self.nodes)

    @property
    def n_edges(self) -> int:
        """The number of contracts."""
        return len(self.ends)

    @cached_property
    def degrees(self) -> Int[np.ndarray, " N"]:
        """How many contracts each entity signs."""
        degrees: Int[np.ndarray, " N"] = np.bincount(self.ends.reshape(-1), minlength=self.n_nodes)
        return degrees

    @cached_property
    def connectivity(self) -> Int[np.ndarray, " E"]:
        """Inter-connectivity deg(e): the degrees of both ends, less one (Qiu et al., 2024, section 4)."""
        connectivity: Int[np.ndarray, " E"] = self.degrees[self.ends].sum(axis=1) - 1
        return connectivity

    @cached_property
    def pairs(self) -> Int[np.ndarray, " E"]:
        """A number for each edge that edges share when the same two entities sign them, either way round."""
        low, high = self.ends.min(axis=1), self.ends.max(axis=1)
        pairs: Int[np.ndarray, " E"] = low.astype(np.int64) * self.n_nodes + high
        return pairs

    @cached_property
    def occurrence(self) -> Int[np.ndarray, " E"]:
        """The how-manieth edge of its pair each edge is, from 1."""
        return rank_within(self.pairs)

    @cached_property
    def components(self) -> Int[np.ndarray, " E"]:
        """The component of each edge, numbered from 1 in the order of first appearance."""
        # SciPy's sparse module takes a fifth of a second to import, which no other command should pay.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        ones = np.ones(self.n_edges, dtype=np.int8)
        matrix = coo_array((ones, (self.ends[:, 0], self.ends[:, 1])), shape=(self.n_nodes, self.n_nodes))
        _, label = connected_components(matrix, directed=False)
        _, first, inverse = np.unique(label[self.ends[:, 0]], return_index=True, return_inverse=True)
        return (np.argsort(np.argsort(first)) + 1)[inverse]

    def edge_ids(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The ids of the edges start .. stop - 1."""
        if self.ids is not None:
            return list(self.ids[start:stop])
        rows = zip(self.ends[start:stop].tolist(), self.occurrence[start:stop].tolist(), strict=True)
        return [edge_name(self.nodes[a], self.nodes[b], k) for (a, b), k in rows]

    def with_ids(self, ids: list[str]) -> "Graph":
        """The graph with these edge ids, which are refused where two are the same or one is reserved."""
        seen: set[str] = set()
        for id_ in ids:
            if id_.startswith(HOLDOUT_PREFIX):
                raise InputError(f"{self.name}: edge {shown(id_)}: ids that begin with {HOLDOUT_PREFIX!r} are taken")
            if id_ in seen:
                raise InputError(f"{self.name}: two edges have the id {shown(id_)}; give each an id of its own")
            seen.add(id_)
        by_rule = replace(self, ids=None)
        return by_rule if by_rule.edge_ids() == ids else replace(self, ids=tuple(ids))

    @cached_property
    def edge_numbers(self) -> dict[str, int]:
        """The number of each edge by its id."""
        return {id_: number for number, id_ in enumerate(self.edge_ids())}

    def edge_type(self, number: int) -> str:
        """The contract type of an edge."""
        return self.types[int(self.type_of[number])]

    def connectivity_by_type(self) -> dict[str, dict[str, float]]:
        """Of each contract type: how many contracts, and the mean, least and greatest inter-connectivity."""
        found = {}
        for index, name in enumerate(self.types):
            values = self.connectivity[self.type_of == index]
            if len(values):
                found[name] = {
                    "contracts": len(values),
                    "mean": round(float(values.mean()), 6),
                    "least": int(values.min()),
                    "greatest": int(values.max()),
                }
        return found

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of everything but the name: labels, types and ids, then the arrays."""
        digest = hashlib.sha256()
        for names in (self.nodes, self.types, self.ids or ()):
            digest.update(f"{len(names)}\n".encode())
            digest.update("\n".join(names).encode())
        for numbers in (self.ends, self.type_of):
            digest.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())
        return digest.hexdigest()


def edge_name(first: str, second: str, occurrence: int) -> str:
    """`A_B` for the first contract of a pair, `A_B~2` for the second."""
    return f"{first}_{second}" if occurrence == 1 else f"{first}_{second}~{occurrence}"


def rank_within(groups: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The how-manieth of its group each element is, from 1, in the order of the elements."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if len(groups) else np.zeros(0, bool)
    position = np.arange(len(groups))
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = position - np.maximum.accumulate(np.where(starts, position, 0)) + 1
    return rank


def build_graph(
    name: str, edges: Iterable[Edge], *, parts: Mapping[int, str] | None = None, nodes: Iterable[str] = ()
) -> Graph:
    """A graph from labelled edges, in their order; a label, type or id that cannot be used is refused.

    A self-loop is refused, since no entity signs a contract with itself, and so are edges that share an id. `nodes`
    come first, in their order, and then those that edges have besides.
    """
    numbers: dict[str, int] = {}
    for node in nodes:
        check_label(node, f"{name}: node")
        numbers.setdefault(node, len(numbers))
    types: dict[str, int] = {}
    rows = array("q")
    named: dict[int, str] = {}
    for edge in edges:
        check_label(edge.first, f"{name}: node")
        check_label(edge.second, f"{name}: node")
        if edge.first == edge.second:
            raise InputError(
                f"{name}: node {shown(edge.first)} has a contract with itself; a contract needs two parties"
            )
        if not _IDENTIFIER.fullmatch(edge.type):
            raise InputError(
                f"{name}: edge {shown(edge.first)}-{shown(edge.second)} has the type {shown(edge.type)}; a "
                "type is "
                "lower-case letters, digits and '_', as in 'sales'"
            )
        if edge.id is not None:
            check_label(edge.id, f"{name}: edge")
            named[len(rows) // 3] = edge.id
        first = numbers.setdefault(edge.first, len(numbers))
        second = numbers.setdefault(edge.second, len(numbers))
        rows.extend((first, second, types.setdefault(edge.type, len(types))))
    if not rows:
        raise InputError(f"{name}: no edges; a graph needs at least one contract")
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    graph = Graph(name, tuple(numbers), table[:, :2], tuple(types), table[:, 2], parts=dict(parts or {}))
    # Ids made by the rule can only meet where a label holds the rule's own signs.
    if not named and not any("_" in n or "~" in n or n.startswith(HOLDOUT_PREFIX) for n in numbers):
        return graph
    ids = graph.edge_ids()
    for number, id_ in named.items():
        ids[number] = id_
    return graph.with_ids(ids)


def check_label(label: str, what: str) -> None:
    """Refuse a name that a terminal, a spreadsheet or a selector would take for something else."""
    if not label or label != label.strip() or len(label) > 100 or not label.isprintable():
        raise InputError(f"{what} {shown(label)}: a name is 1 to 100 printable characters, without blanks around it")
    if "," in label or label.startswith(_FORBIDDEN_START):
        raise InputError(f"{what} {shown(label)}: a name has no comma and does not begin with '=', '+', '-' or '@'")


def shown(text: str) -> str:
    """Text from a file, quoted and fit for one line of an error."""
    return f"'{one_line(text, width=60)}'"


PER_TYPE = 5
"""Holdout contracts of each type that the graph has: 100 questions of a type, for membership tests."""


def with_holdout(graph: Graph) -> Graph:
    """The graph with its holdout contracts as further edges, each between two new nodes.

    They are drawn with the rest, so that their names and addresses are unique too. Contract 1 of type sales
    has the id `holdout-sales_1`.
    """
    places = [(index, k) for index in range(len(graph.types)) for k in range(1, PER_TYPE + 1)]
    labels = [(f"{HOLDOUT_PREFIX}{graph.types[index]}", str(k)) for index, k in places]
    nodes = graph.n_nodes + np.arange(2 * len(places)).reshape(-1, 2)
    return replace(
        graph,
        nodes=graph.nodes + tuple(label for pair in labels for label in pair),
        ends=np.concatenate([graph.ends, nodes]),
        type_of=np.concatenate([graph.type_of, [index for index, _ in places]]),
        ids=None if graph.ids is None else graph.ids + tuple("_".join(pair) for pair in labels),
    )
