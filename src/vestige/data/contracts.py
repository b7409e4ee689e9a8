"""The contract types, sales and employment: a table of attributes and a text each.

A type is `<name>.toml` next to `<name>.txt` in `contract_types/`. It has two parties, a key date, and attributes in the
order of their questions. The text states every attribute. A question names both parties, or one party and the key date:
no entity signs two contracts on a day, and no two entities sign two contracts.

Names, parties, days and attribute values of contracts, drawn from the seed.

Draw the parties, roles and day of each contract. Then its attribute values. An entity signs at most one contract a day.
So "the contract with X as of DATE" means one contract, and no two questions coincide.

A number or a choice depends on the seed, the contract type, the attribute and the edge's number, and on no other edge.
Key dates and the addresses of single contracts depend on the graph. Days are ordinals, as `datetime.date` counts them.

Names and addresses go by number: number n of a seed always has the same name, and no two numbers share one. Forms and
alphabets are PISTOL's (Qiu et al., 2024, arXiv:2406.16810): "Empblq LLC", "Jkeq Cyfz", "442 Rcvvyy Boulevard".
Uniqueness is ours: no two companies share the six letters, whatever follows them, no two persons a full name, no two
addresses a street.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from string import ascii_lowercase
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from vestige.core.errors import InputError
from vestige.core.seeds import generator, random_words, scaled, uniform_integers
from vestige.core.settings import Settings, packaged_toml
from vestige.core.text import TextByName, TextTuple, closest
from vestige.data.graph import Edge, Graph, shown

Kind = Literal["company", "person"]

EDGE = "edge"
"""The name of the edge among the texts that questions are filled with."""


class PartyName(Settings):
    """A party's name."""

    kind: Literal["party_name"]
    party: str


class PartyAddress(Settings):
    """A party's address: the same in every contract that it signs."""

    kind: Literal["party_address"]
    party: str


class Fresh(Settings):
    """An address that belongs to this contract alone."""

    kind: Literal["address"]


class Date(Settings):
    """The key date: a day, uniform over whole years, both included."""

    kind: Literal["date"]
    first_year: int
    last_year: int

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last day, as ordinals."""
        first, last = datetime.date(self.first_year, 1, 1), datetime.date(self.last_year, 12, 31)
        return first.toordinal(), last.toordinal()


class Integer(Settings):
    """A whole number from {low, low + step, ..., high}, uniform.

    If `at_least` names another attribute: uniform over the values that are no smaller than that attribute's.
    """

    kind: Literal["integer"]
    low: int
    high: int
    step: int = 1
    at_least: str | None = None

    def grid(self) -> range:
        """The values that can be drawn."""
        return range(self.low, self.high + 1, self.step)


class OneOf(Settings):
    """One of a list, uniform."""

    kind: Literal["choice"]
    values: TextTuple


class Product(Settings):
    """The product of two whole numbers of the same contract."""

    kind: Literal["product"]
    of: tuple[str, str]


class Role(Settings):
    """One of the two roles, with a capital, as in "Seller"."""

    kind: Literal["role"]


Generator = Annotated[
    PartyName | PartyAddress | Fresh | Date | Integer | OneOf | Product | Role, Field(discriminator="kind")
]


class Attribute(Settings):
    """One fact of a contract: its source, its question and its answer.

    In `question` and `paraphrase` the roles and the key date are in braces. `answer` has `{value}` once. `decoys` are
    further wrong answers, for attributes with fewer values than a set of wrong answers needs.
    """

    generator: Generator
    question: str
    paraphrase: str
    answer: str = "{value}."
    decoys: TextTuple = ()


class ContractSpec(Settings):
    """A contract type. `title` is what people call such a contract, as in "sales contract".

    `parties` are the two roles with the kind of entity that fills each. With `roles = "drawn"` a coin decides which end
    of an edge plays which role. With "ordered" the first end plays the first. `date` names the attribute that dates the
    contract.
    """

    title: str
    date: str
    roles: Literal["drawn", "ordered"] = "ordered"
    parties: dict[str, Kind]
    attributes: dict[str, Attribute]


N_WRONG = 5
"""Wrong answers that every item has."""


def candidate_values(spec: ContractSpec, attribute: Attribute) -> Iterator[str]:
    """Return the values that the table alone defines, in order, or None for names, addresses and dates."""
    match attribute.generator:
        case OneOf(values=values):
            yield from values
        case Role():
            yield from (role.capitalize() for role in spec.parties)
        case Integer() as rule:
            yield from map(str, rule.grid())
        case Product(of=factors):
            first, second = (spec.attributes[name].generator for name in factors)
            assert isinstance(first, Integer)
            assert isinstance(second, Integer)
            for x in first.grid():
                for y in second.grid():
                    yield str(x * y)


@dataclass(frozen=True)
class ContractType:
    """A contract type: its table and its text."""

    name: str
    spec: ContractSpec
    text: str

    @cached_property
    def roles(self) -> tuple[str, str]:
        """The two roles, in the order of the table."""
        first, second = self.spec.parties
        return first, second

    @cached_property
    def kinds(self) -> tuple[Kind, Kind]:
        """The kind of entity that plays each role."""
        first, second = self.spec.parties.values()
        return first, second

    @cached_property
    def names(self) -> TextByName:
        """The role whose name each naming attribute states."""
        return self._parties_of(PartyName)

    @cached_property
    def addresses(self) -> TextByName:
        """The role whose address each attribute states, where one is an entity's own."""
        return self._parties_of(PartyAddress)

    def _parties_of(self, kind: type[PartyName | PartyAddress]) -> TextByName:
        rules = ((name, attribute.generator) for name, attribute in self.spec.attributes.items())
        return {name: rule.party for name, rule in rules if isinstance(rule, kind)}

    def kind_of_name(self, attribute: str) -> str | None:
        """Return whether an attribute names a company or a person or is an address. None for other attributes."""
        match self.spec.attributes[attribute].generator:
            case PartyName(party=role):
                return self.spec.parties[role]
            case PartyAddress() | Fresh():
                return "address"
        return None

    @cached_property
    def name_of(self) -> TextByName:
        """The attribute that names each role."""
        return {role: attribute for attribute, role in self.names.items()}

    @property
    def key_date(self) -> Date:
        """The distribution of the key date."""
        rule = self.spec.attributes[self.spec.date].generator
        assert isinstance(rule, Date)
        return rule

    def answer(self, attribute: str, value: str) -> str:
        """The answer that states a value, as in "5%."."""
        return self.spec.attributes[attribute].answer.format(value=value)


@lru_cache(maxsize=1)
def contract_types() -> Mapping[str, ContractType]:
    """Sales and employment, as PISTOL has them."""
    types = {}
    for name in ("employment", "sales"):
        spec = ContractSpec.build(packaged_toml("vestige.data", "contract_types", f"{name}.toml"), where=name)
        text = (Path(__file__).parent / "contract_types" / f"{name}.txt").read_text(encoding="utf-8")
        types[name] = ContractType(name, spec, text)
    return types


def known_type(name: str) -> ContractType:
    """The type of that name. An InputError lists the known types."""
    if name not in contract_types():
        raise InputError(f"no contract type {name!r}. {closest(name, list(contract_types()))}")
    return contract_types()[name]


SUFFIXES = ["Ltd", "Inc", "Corp", "LLC", "PLC", "GmbH", "AG", "SA", "SARL", "SRL", "BV", "BVBA", "NV", "SE", "SAS"]
STREETS = [
    *("Street", "Avenue", "Boulevard", "Lane", "Road", "Drive", "Court", "Place", "Square", "Way", "Terrace", "Trail"),
    *("Parkway", "Circle", "Crescent"),
]

_ROOTS = {"company": 26**3, "person": 26**4, "address": 26**3}
"""The square root of how many names of a kind there are."""


@lru_cache(maxsize=6)
def _tables(seed: int, kind: str) -> Any:
    """Return six rows of 32-bit words: functions of four network rounds, and two for the tail."""
    words = random_words(generator(seed, "permutation", kind), 6 * _ROOTS[kind])
    return words.reshape(6, -1)


def drawn_name(seed: int, kind: str, number: int) -> str:
    """The name of the company or person, or the address, that has this number.

    Numbers go through a keyed permutation, a balanced Feistel network: four rounds of random functions make it
    pseudo-random (Luby and Rackoff, 1988), and unlike in an affine map the names of neighbouring numbers do not differ
    by the same letters throughout.
    """
    root = _ROOTS[kind]
    if number >= root**2:
        raise InputError(f"the graph needs more than {root**2:,} names of one kind. Compile a smaller one")
    tables = _tables(seed, kind)
    first, second = divmod(number, root)
    for row in tables[:4]:
        first, second = second, (first + _below(row[second], root)) % root
    if kind == "person":
        return f"{_letters(first, 4).capitalize()} {_letters(second, 4).capitalize()}"
    letters = _letters(first, 3).capitalize() + _letters(second, 3)
    # Both halves are used, since names that share one would otherwise end alike.
    word = tables[4][first] ^ tables[5][second]
    if kind == "company":
        return f"{letters} {SUFFIXES[_below(word, len(SUFFIXES))]}"
    street, house = divmod(_below(word, 1000 * len(STREETS)), 1000)
    return f"{house:03d} {letters} {STREETS[street]}"


def _below(word: int, limit: int) -> int:
    """A 32-bit word as a number in [0, limit), as `core.seeds.scaled` has it."""
    return int(word) * limit >> 32


def _letters(number: int, count: int) -> str:
    return "".join(ascii_lowercase[number // 26**place % 26] for place in reversed(range(count)))


def day_text(day: int) -> str:
    """A day as dd-mm-yyyy."""
    return date.fromordinal(day).strftime("%d-%m-%Y")


_ROUNDS = 400


class Signing(NamedTuple):
    """The parties and key date of one contract: the nodes in the order of its type's roles."""

    parties: tuple[str, str]
    day: int


def sign(graph: Graph, seed: int) -> dict[str, Signing]:
    """Roles and key dates of all contracts, by edge."""
    edges, types = list(graph.edges.values()), contract_types()
    _check_kinds(graph)
    first_of: dict[frozenset[str], Edge] = {}
    for edge in edges:
        first = first_of.setdefault(edge.pair, edge)
        if first is not edge:
            raise InputError(
                f"{graph.name}: the edges {shown(str(first.id))} and {shown(str(edge.id))} join the same two parties, "
                "so their questions would be the same. Remove one"
            )
    days = _draw_days(graph, [types[edge.type].key_date.span for edge in edges], seed)
    # Every edge has a draw, even if its roles are ordered, so that an additional edge changes no other.
    coins = uniform_integers(generator(seed, "role"), 0, 1, len(edges)).tolist()
    signed = {}
    for (id_, edge), coin, day in zip(graph.edges.items(), coins, days, strict=True):
        parties = (edge.first, edge.second)
        if coin and types[edge.type].spec.roles == "drawn":
            parties = (edge.second, edge.first)
        signed[id_] = Signing(parties, day)
    return signed


def _check_kinds(graph: Graph) -> None:
    """Reject a node that would be a company in one contract and a person in another."""
    kinds: dict[str, tuple[str, str]] = {}
    for id_, edge in graph.edges.items():
        for node, kind in zip(edge[:2], contract_types()[edge.type].kinds, strict=True):
            first_kind, first_id = kinds.setdefault(node, (kind, id_))
            if first_kind != kind:
                raise InputError(
                    f"{graph.name}: node {shown(node)} cannot be both a company and a person, as edges "
                    f"{shown(first_id)} ({graph.edges[first_id].type}) and {shown(id_)} ({edge.type}) ask. Rename one "
                    "or change a type"
                )


def _draw_days(graph: Graph, spans: Sequence[tuple[int, int]], seed: int) -> list[int]:
    """A day for each contract, again until no entity signs twice a day."""
    edges = list(graph.edges.values())
    low, high = np.array(spans).T
    days = scaled(random_words(generator(seed, "key date"), len(edges)), low, high)
    # A party with more contracts than days cannot have distinct dates, however many attempts are made.
    longest = int((high - low).max()) + 1
    busiest, degree = graph.degrees.most_common(1)[0]
    rng = generator(seed, "key date, again")
    for _ in range(_ROUNDS if degree <= longest else 0):
        clashing = _clashes(edges, days.tolist())
        if not clashing:
            ordinals: list[int] = days.tolist()
            return ordinals
        days[clashing] = scaled(random_words(rng, len(clashing)), low[clashing], high[clashing])
    raise InputError(
        f"{graph.name}: node {shown(busiest)} signs {degree:,} contracts, one a day at most, and the key dates leave "
        f"{longest:,} days. Compile a smaller or less central graph"
    )


def _clashes(edges: Sequence[Edge], days: Sequence[int]) -> list[int]:
    """The later of any two edges that share a node and a day."""
    clashing, latest = set[int](), dict[tuple[str, int], int]()
    for end in (0, 1):
        for number, edge in enumerate(edges):
            key = (str(edge[end]), days[number])
            if key in latest:
                clashing.add(max(number, latest[key]))
            latest[key] = number
    return sorted(clashing)


WRONG_DRAWN = 2 * N_WRONG
"""Fresh values that are drawn for the wrong answers to one question."""


@dataclass(frozen=True, eq=False)
class ContractDrawing:
    """All that is drawn for a graph under one seed. An entity has the number of its node."""

    graph: Graph
    seed: int

    @cached_property
    def signed(self) -> dict[str, Signing]:
        """Roles and key dates by edge."""
        return sign(self.graph, self.seed)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each edge."""
        return {id_: number for number, id_ in enumerate(self.graph.edges)}

    @cached_property
    def _node_numbers(self) -> dict[str, int]:
        return {node: number for number, node in enumerate(self.graph.nodes)}

    @cached_property
    def _fresh_attributes(self) -> dict[str, list[str]]:
        """Return each type's attributes with a name or address of their own."""
        fresh: dict[str, list[str]] = {}
        for type_ in self.graph.types:
            attributes = contract_types()[type_].spec.attributes.items()
            fresh[type_] = [name for name, attribute in attributes if isinstance(attribute.generator, Fresh)]
        return fresh

    @property
    def _most_fresh(self) -> int:
        return max(map(len, self._fresh_attributes.values()))

    @cached_property
    def spare_number(self) -> int:
        """The first number whose name or address no contract of the drawing has."""
        return len(self.graph.nodes) + len(self.graph.edges) * self._most_fresh

    def texts(self, id_: str) -> dict[str, str]:
        """Return the texts that fill questions and answers about one contract.

        These are the attributes as the contract states them, the party in each role (under the role), and the edge.
        """
        type_, signing = contract_types()[self.graph.edges[id_].type], self.signed[id_]
        nodes = [self._node_numbers[node] for node in signing.parties]
        parties = zip(type_.roles, type_.kinds, nodes, strict=True)
        texts = {EDGE: id_, **{role: drawn_name(self.seed, kind, node) for role, kind, node in parties}}
        for name, attribute in type_.spec.attributes.items():
            match attribute.generator:
                case PartyName(party=role):
                    texts[name] = texts[role]
                case PartyAddress(party=role):
                    texts[name] = drawn_name(self.seed, "address", nodes[type_.roles.index(role)])
                case Date():
                    texts[name] = day_text(signing.day)
                case _:
                    texts[name] = self._value(type_, name, self.numbers[id_])
        return texts

    def _value(self, type_: ContractType, name: str, edge: int) -> str:
        """A value that belongs to this contract alone."""
        match type_.spec.attributes[name].generator:
            case Fresh():
                place = self._fresh_attributes[type_.name].index(name)
                return drawn_name(self.seed, "address", len(self.graph.nodes) + edge * self._most_fresh + place)
            case OneOf(values=values):
                return values[self._draw(type_, name, edge, len(values))]
            case Role():
                return type_.roles[self._draw(type_, name, edge, 2)].capitalize()
        return str(self._integer(type_, name, edge))

    def _integer(self, type_: ContractType, name: str, edge: int) -> int:
        match type_.spec.attributes[name].generator:
            case Product(of=factors):
                return prod(self._integer(type_, factor, edge) for factor in factors)
            case Integer() as rule:
                # The other attribute of the same contract has the same draw in every place.
                if rule.at_least is None:
                    low = rule.low
                else:
                    low = self._integer(type_, rule.at_least, edge)
                return low + rule.step * self._draw(type_, name, edge, (rule.high - low) // rule.step + 1)
        raise AssertionError(f"{name} is no number")

    def _draw(self, type_: ContractType, name: str, edge: int, size: int) -> int:
        """A number in [0, size), which further edges do not change."""
        return _below(_edge_words(self.seed, type_.name, name, len(self.graph.edges))[edge], size)

    def fresh_values(self, type_: ContractType, attribute: str, number: int, count: int) -> list[str]:
        """Return `count` values that occur in no contract, for attributes without their own list of values.

        `number` separates draws: different numbers have different values and names.
        """
        rule = type_.spec.attributes[attribute].generator
        if isinstance(rule, Date):
            days = uniform_integers(generator(self.seed, "fresh", number), *rule.span, count)
            return [day_text(day) for day in days.tolist()]
        kind = type_.kind_of_name(attribute)
        spare = self.spare_number + number * count
        if kind is None:
            return []
        return [drawn_name(self.seed, kind, spare + n) for n in range(count)]


@lru_cache(maxsize=256)
def _edge_words(seed: int, type_: str, attribute: str, edges: int) -> Any:
    """A random word for each edge."""
    return random_words(generator(seed, "attribute", type_, attribute, 0), edges)
