"""Attribute values for all contracts, a chunk of edges at a time, so that memory stays bounded.

A number or a choice depends on the seed, the contract type, the attribute and the edge's number, and on no other
edge; key dates and the addresses of single contracts depend on the graph. Columns are lists of text with one entry a
contract.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from vestige.core.seeds import generator
from vestige.data.contract_checks import N_WRONG
from vestige.data.contract_schema import (
    AS_OF,
    EDGE,
    SUPERSEDED,
    Choice,
    Date,
    Fresh,
    Integer,
    PartyAddress,
    PartyName,
    Permutation,
    Product,
    Role,
)
from vestige.data.contract_type import ContractType, known_type
from vestige.data.graph import Graph, edge_name
from vestige.data.names import Names, day_number, day_texts
from vestige.data.signing import Signing, sign
from vestige.data.uniform import random_words, scaled, shuffled, uniform_integers

WRONG_DRAWN = 2 * N_WRONG
"""Fresh values that are drawn for the wrong answers to one question."""

CHUNK = 2048
"""Edges that are drawn together: 7 MB of question rows."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """The contracts of one type in one chunk: their edge numbers, and a column for each attribute.

    Further columns: the name of the party in each role (under the role), `edge`, and with the temporal
    feature `as_of` and `superseded_date` (empty where nothing is superseded).
    """

    type: ContractType
    edges: Int[np.ndarray, " n"]
    columns: Mapping[str, list[str]]


@dataclass(frozen=True, eq=False)
class Drawing:
    """All that is drawn for a graph under one seed. Entity number n is node n."""

    graph: Graph
    types: Mapping[str, ContractType]
    seed: int
    temporal: bool

    @cached_property
    def used_types(self) -> tuple[ContractType, ...]:
        """The types that occur, in the order of the graph's."""
        return tuple(known_type(self.types, name) for name in self.graph.types)

    @cached_property
    def signing(self) -> Signing:
        """Roles and key dates."""
        return sign(self.graph, self.used_types, self.seed, temporal=self.temporal)

    @cached_property
    def names(self) -> Names:
        """Names and addresses by number."""
        return Names(self.seed)

    @cached_property
    def _slots(self) -> Mapping[str, Mapping[str, int]]:
        """Of each type, the attributes with a name or address of their own, numbered."""
        return {
            t.name: {
                name: slot
                for slot, name in enumerate(n for n, a in t.spec.attributes.items() if isinstance(a.generator, Fresh))
            }
            for t in self.used_types
        }

    @cached_property
    def spare_number(self) -> int:
        """The first number whose name or address no contract of the drawing has."""
        return self.graph.n_nodes + self.graph.n_edges * self._n_slots

    @cached_property
    def _n_slots(self) -> int:
        return max(len(slots) for slots in self._slots.values())

    def entity_names(self, type_: ContractType, role: int, nodes: Int[np.ndarray, " n"]) -> list[str]:
        """The names of entities that play a role of a type."""
        return self.names.of_kind(type_.kinds[role], nodes)

    def sheets(self, start: int, stop: int) -> Iterator[Sheet]:
        """The contracts of the edges start .. stop - 1, which lie within one chunk, a sheet for each type."""
        for index, type_ in enumerate(self.used_types):
            edges = start + np.flatnonzero(self.graph.type_of[start:stop] == index)
            if len(edges):
                yield Sheet(type_, edges, self._columns(type_, edges))

    def _columns(self, type_: ContractType, edges: Int[np.ndarray, " n"]) -> dict[str, list[str]]:
        parties = self.signing.parties[edges]
        columns = {role: self.entity_names(type_, i, parties[:, i]) for i, role in enumerate(type_.roles)}
        columns[EDGE] = self._edge_ids(edges)
        if self.signing.as_of is not None and self.signing.supersedes is not None:
            columns[AS_OF] = day_texts(self.signing.as_of[edges])
            earlier = self.signing.supersedes[edges]
            dates = day_texts(self.signing.days[earlier])
            columns[SUPERSEDED] = [d if e >= 0 else "" for d, e in zip(dates, earlier.tolist(), strict=True)]
        numbers = self._integers(type_, edges)
        for name, attribute in type_.spec.attributes.items():
            made = attribute.generator
            match made:
                case PartyName(party=role):
                    columns[name] = columns[role]
                case PartyAddress(party=role):
                    columns[name] = self.names.addresses(parties[:, type_.roles.index(role)])
                case Fresh(kind=kind):
                    slot = self._slots[type_.name][name]
                    columns[name] = self.names.of_kind(kind, self.graph.n_nodes + edges * self._n_slots + slot)
                case Date() if name == type_.spec.date:
                    columns[name] = day_texts(self.signing.days[edges])
                case Date():
                    low, high = day_number(made.first_year, 1, 1), day_number(made.last_year, 12, 31)
                    columns[name] = day_texts(scaled(self._words(type_, name, edges), low, high))
                case Integer():
                    columns[name] = _integer_texts(numbers[name])
                case Product(of=(one, two)):
                    columns[name] = _integer_texts(numbers[one] * numbers[two])
                case Choice(values=values):
                    columns[name] = _taken(values, scaled(self._words(type_, name, edges), 0, len(values) - 1))
                case Role():
                    titles = tuple(role.capitalize() for role in type_.roles)
                    columns[name] = _taken(titles, scaled(self._words(type_, name, edges), 0, 1))
                case Permutation(values=values):
                    columns[name] = _taken(values, self._dealt(type_, name, edges, len(values)))
        return columns

    def _edge_ids(self, edges: Int[np.ndarray, " n"]) -> list[str]:
        graph = self.graph
        if graph.ids is not None:
            return [graph.ids[n] for n in edges.tolist()]
        rows = zip(graph.ends[edges].tolist(), graph.occurrence[edges].tolist(), strict=True)
        return [edge_name(graph.nodes[a], graph.nodes[b], k) for (a, b), k in rows]

    def _words(self, type_: ContractType, name: str, edges: Int[np.ndarray, " n"]) -> np.ndarray:
        """A random word for each edge: the chunk's own stream, read at the edge's place in it."""
        chunk = int(edges[0]) // CHUNK
        rng = generator(self.seed, "attribute", type_.name, name, chunk)
        words: np.ndarray = random_words(rng, int(edges[-1]) - chunk * CHUNK + 1)[edges - chunk * CHUNK]
        return words

    def _integers(self, type_: ContractType, edges: Int[np.ndarray, " n"]) -> dict[str, Int[np.ndarray, " n"]]:
        """The whole numbers; those with an `at_least` after those that they refer to."""
        numbers: dict[str, Int[np.ndarray, " n"]] = {}
        rows = [(n, a.generator) for n, a in type_.spec.attributes.items() if isinstance(a.generator, Integer)]
        for name, made in sorted(rows, key=lambda row: row[1].at_least is not None):
            low = made.low if made.at_least is None else numbers[made.at_least]
            words = self._words(type_, name, edges)
            numbers[name] = low + made.step * scaled(words, 0, (made.high - low) // made.step)
        return numbers

    def _dealt(self, type_: ContractType, name: str, edges: Int[np.ndarray, " n"], size: int) -> Int[np.ndarray, " n"]:
        """Positions in a list that is shuffled afresh for every `size` edges."""
        rounds = edges // size
        orders = {
            int(r): shuffled(generator(self.seed, "dealt", type_.name, name, int(r)), size) for r in np.unique(rounds)
        }
        return np.array([orders[r][i] for r, i in zip(rounds.tolist(), (edges % size).tolist(), strict=True)])

    def fresh_values(self, type_: ContractType, attribute: str, number: int, count: int) -> list[str]:
        """`count` values that no contract need have, for attributes without a list of values of their own.

        `number` says which: values of different numbers are drawn apart, and their names are different ones.
        """
        made = type_.spec.attributes[attribute].generator
        spare = self.spare_number + number * count + np.arange(count)
        match made:
            case PartyName(party=role):
                return self.entity_names(type_, type_.roles.index(role), spare)
            case PartyAddress():
                return self.names.addresses(spare)
            case Fresh(kind=kind):
                return self.names.of_kind(kind, spare)
            case Date():
                low, high = day_number(made.first_year, 1, 1), day_number(made.last_year, 12, 31)
                return day_texts(uniform_integers(generator(self.seed, "fresh", number), low, high, count))
        return []

    def unused_values(self, type_: ContractType, attribute: str, rng: np.random.Generator, count: int) -> list[str]:
        """`count` names or addresses that no contract has and no wrong answer is: of numbers that neither takes."""
        match type_.spec.attributes[attribute].generator:
            case PartyName(party=role):
                kind: str = type_.kinds[type_.roles.index(role)]
            case Fresh(kind=kind):
                pass
            case _:
                kind = "address"
        most = max(len(t.spec.attributes) for t in self.used_types)
        low = self.spare_number + self.graph.n_edges * most * WRONG_DRAWN
        # Words of 32 bits do not reach further.
        high = min(self.names.size(kind) - 1, low + 2**31)
        numbers = dict.fromkeys(uniform_integers(rng, low, max(low, high), 2 * count).tolist())
        return self.names.of_kind(kind, np.array([*numbers][:count]))


def _taken(values: tuple[str, ...], places: Int[np.ndarray, " n"]) -> list[str]:
    texts: list[str] = np.array(values, dtype=object)[places].tolist()
    return texts


def _integer_texts(numbers: Int[np.ndarray, " n"]) -> list[str]:
    return list(map(str, numbers.tolist()))


def chunk_bounds(n_edges: int) -> Iterator[tuple[int, int]]:
    """First edge and end of each chunk."""
    for start in range(0, n_edges, CHUNK):
        yield start, min(start + CHUNK, n_edges)
