"""Names, parties, days and attribute values of contracts, drawn from the seed.

Who signs each contract, in which role and on which day; then its attribute values. An entity signs at most one contract
a day. So "the contract with X as of DATE" means one contract, and no two questions coincide. Two contracts of the same
parties are only told apart by time (the temporal feature): the later supersedes the earlier, and a question says as of
which day it asks.

A number or a choice depends on the seed, the contract type, the attribute and the edge's number, and on no other edge;
key dates and the addresses of single contracts depend on the graph. Columns are lists of text, one entry a contract.

Axes: E edges. Days count from 1970-01-01.

Names and addresses by number: number n of a seed always has the same name, and no two numbers share one. Numbers go
through a keyed permutation of the name space, so a million unique names need no list of those given. Forms and
alphabets are PISTOL's (Qiu et al., 2024, arXiv:2406.16810): "Empblq LLC", "Jkeq Cyfz", "442 Rcvvyy Boulevard".
Uniqueness is ours: no two companies share the six letters, whatever follows them, no two persons a full name, no two
addresses a street.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from string import ascii_lowercase

import numpy as np
from jaxtyping import Bool, Int, UInt64

from vestige.core.errors import InputError
from vestige.core.seeds import generator, random_words, scaled, shuffled, uniform_integers
from vestige.data.contract_type import (
    AS_OF,
    EDGE,
    N_WRONG,
    SUPERSEDED,
    Choice,
    ContractType,
    Date,
    Fresh,
    Integer,
    PartyAddress,
    PartyName,
    Permutation,
    Product,
    Role,
    known_type,
)
from vestige.data.graph import Graph, shown

SUFFIXES = (
    "Ltd",
    "Inc",
    "Corp",
    "LLC",
    "PLC",
    "GmbH",
    "AG",
    "SA",
    "SARL",
    "SRL",
    "BV",
    "BVBA",
    "NV",
    "SE",
    "SAS",
)
STREETS = (
    "Street",
    "Avenue",
    "Boulevard",
    "Lane",
    "Road",
    "Drive",
    "Court",
    "Place",
    "Square",
    "Way",
    "Terrace",
    "Trail",
    "Parkway",
    "Circle",
    "Crescent",
)

_FEISTEL_ROUNDS = 4
_PAIRS = np.array(["".join(p) for p in product(ascii_lowercase, repeat=2)], dtype=object)
_CAPITAL_PAIRS = np.array([p.capitalize() for p in _PAIRS], dtype=object)
_NUMBERS = np.array([f"{n:03d}" for n in range(1000)], dtype=object)


@lru_cache(maxsize=1)
def _triples() -> tuple[np.ndarray, np.ndarray]:
    triples = ["".join(t) for t in product(ascii_lowercase, repeat=3)]
    return np.array([t.capitalize() for t in triples], dtype=object), np.array(triples, dtype=object)


@dataclass(frozen=True, eq=False)
class KeyedPermutation:
    """A keyed permutation of half**2 numbers: a balanced Feistel network over tables of random words.

    Four rounds of random functions make a pseudo-random permutation (Luby and Rackoff, 1988); unlike an
    affine map, neighbouring numbers do not get names that differ by the same letters throughout. Row r < 4 of
    `words` is the function of round r; the last two rows give further words that belong to a number.
    """

    half: int
    words: UInt64[np.ndarray, "rows half"]

    @classmethod
    def keyed(cls, seed: int, purpose: str, half: int) -> "KeyedPermutation":
        """The permutation of one seed and purpose."""
        words = random_words(generator(seed, "permutation", purpose), (_FEISTEL_ROUNDS + 2) * half)
        return cls(half, words.reshape(_FEISTEL_ROUNDS + 2, half))

    @cached_property
    def _shifts(self) -> Int[np.ndarray, "rounds half"]:
        return scaled(self.words[:_FEISTEL_ROUNDS].reshape(-1), 0, self.half - 1).reshape(_FEISTEL_ROUNDS, self.half)

    def halves(self, numbers: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """The halves, each in [0, half), of the permuted numbers. Numbers beyond the space are refused."""
        if len(numbers) and int(numbers.max()) >= self.half**2:
            raise InputError(f"the graph needs more than {self.half**2:,} names of one kind; compile a smaller one")
        first, second = np.divmod(numbers, self.half)
        for shift in self._shifts:
            first, second = second, (first + shift[second]) % self.half
        return first, second

    def extra(self, first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"], limit: int) -> Int[np.ndarray, " n"]:
        """A further number in [0, limit) that belongs to the permuted number."""
        return scaled(self.words[-2][first] ^ self.words[-1][second], 0, limit - 1)


_HALVES = {"company": 26**3, "person": 26**4, "address": 26**3}
"""The root of how many names of a kind there are."""


@lru_cache(maxsize=6)
def _space(seed: int, kind: str) -> KeyedPermutation:
    return KeyedPermutation.keyed(seed, kind, _HALVES[kind])


@dataclass(frozen=True)
class Names:
    """The names and addresses of one seed."""

    seed: int

    def companies(self, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Six letters and a suffix, as in "Empblq LLC"; the letters are unique."""
        capital, plain = _triples()
        space = _space(self.seed, "company")
        first, second = space.halves(numbers)
        suffixes = np.array(SUFFIXES, dtype=object)[space.extra(first, second, len(SUFFIXES))]
        return [f"{a}{b} {c}" for a, b, c in zip(capital[first], plain[second], suffixes, strict=True)]

    def persons(self, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Four letters and four letters, as in "Jkeq Cyfz"; the whole is unique."""
        first, second = _space(self.seed, "person").halves(numbers)
        parts = (
            _CAPITAL_PAIRS[first // 676],
            _PAIRS[first % 676],
            _CAPITAL_PAIRS[second // 676],
            _PAIRS[second % 676],
        )
        return [f"{a}{b} {c}{d}" for a, b, c, d in zip(*parts, strict=True)]

    def addresses(self, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Three digits, six letters and a kind of street, as in "094 Rcvvyy Way"; the letters are unique."""
        capital, plain = _triples()
        space = _space(self.seed, "address")
        first, second = space.halves(numbers)
        extra = space.extra(first, second, 1000 * len(STREETS))
        kinds = np.array(STREETS, dtype=object)[extra // 1000]
        parts = (_NUMBERS[extra % 1000], capital[first], plain[second], kinds)
        return [f"{a} {b}{c} {d}" for a, b, c, d in zip(*parts, strict=True)]

    def of_kind(self, kind: str, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """Names of companies, names of persons, or addresses."""
        return {"company": self.companies, "person": self.persons, "address": self.addresses}[kind](numbers)


def day_number(year: int, month: int, day: int) -> int:
    """The day as days since 1970-01-01, negative before it."""
    return int(np.datetime64(f"{year:04d}-{month:02d}-{day:02d}", "D").astype(np.int64))


def day_texts(days: Int[np.ndarray, " n"]) -> list[str]:
    """Days since 1970-01-01 as dd-mm-yyyy."""
    if not len(days):
        return []
    first = int(days.min())
    texts: list[str] = _calendar(first // 4096, int(days.max()) // 4096)[days - first // 4096 * 4096].tolist()
    return texts


@lru_cache(maxsize=8)
def _calendar(first_block: int, last_block: int) -> np.ndarray:
    days = np.arange(first_block * 4096, (last_block + 1) * 4096).astype("datetime64[D]")
    return np.array([f"{t[8:]}-{t[5:7]}-{t[:4]}" for t in np.datetime_as_string(days).tolist()], dtype=object)


_ROUNDS = 400
_ASKED_WITHIN_DAYS = 365


@dataclass(frozen=True, eq=False)
class Signing:
    """`parties` are the node numbers in the order of each type's roles, `days` the key dates.

    With the temporal feature, `as_of` is a day on which the contract is the newest of its parties, after its
    key date and before the next contract's, and `supersedes` the edge that it replaces, or -1.
    """

    parties: Int[np.ndarray, "E 2"]
    days: Int[np.ndarray, " E"]
    as_of: Int[np.ndarray, " E"] | None
    supersedes: Int[np.ndarray, " E"] | None


def sign(graph: Graph, types: Sequence[ContractType], seed: int, *, temporal: bool) -> Signing:
    """Roles and key dates of all contracts. `types` stand in the order of the graph's."""
    _check_kinds(graph, types)
    if not temporal:
        refuse_parallel(graph)
    spans = np.array([(day_number(d.first_year, 1, 1), day_number(d.last_year, 12, 31)) for d in map(_date, types)])
    if temporal and len({tuple(span) for span in spans.tolist()}) > 1:
        raise InputError(
            "with --temporal the key dates of all contract types span the same years: "
            + ", ".join(f"{t.name} {_date(t).first_year}-{_date(t).last_year}" for t in types)
        )
    days = _draw_days(graph, spans, seed, gap=2 if temporal else 1)
    leader = np.arange(graph.n_edges)
    if not temporal:
        return Signing(_parties(graph, types, seed, leader), days, None, None)
    days = _ascending(graph.pairs, days)
    chain = _Chains.of(graph.pairs)
    same_type = _Chains.of(graph.pairs * len(types) + graph.type_of)
    words = random_words(generator(seed, "as of"), graph.n_edges)
    until = np.where(chain.following >= 0, days[chain.following] - 1, days + _ASKED_WITHIN_DAYS)
    as_of = scaled(words, days + 1, np.minimum(until, days + _ASKED_WITHIN_DAYS))
    return Signing(_parties(graph, types, seed, same_type.leader), days, as_of, same_type.previous)


def refuse_parallel(graph: Graph) -> None:
    """Refuse two contracts of the same parties, whose questions would be the same and the answers not."""
    repeats = np.flatnonzero(graph.occurrence > 1)
    if not len(repeats):
        return
    number = int(repeats[0])
    pair = np.flatnonzero(graph.pairs == graph.pairs[number])[:2]
    first, second = map(shown, graph.ids_of(pair))
    raise InputError(
        f"{graph.name}: the edges {first} and {second} join the same two parties, so their questions would be "
        "the same; "
        "remove one, or let the later supersede the earlier with --temporal"
    )


def _check_kinds(graph: Graph, types: Sequence[ContractType]) -> None:
    """Refuse a node that would have to be a company in one contract and a person in another."""
    codes = np.array([[kind == "person" for kind in type_.kinds] for type_ in types])
    person = codes[graph.type_of]
    kinds = np.full(graph.n_nodes, -1)
    kinds[graph.ends.reshape(-1)] = person.reshape(-1)
    wrong = np.flatnonzero((kinds[graph.ends] != person).any(axis=1))
    if not len(wrong):
        return
    number = int(wrong[0])
    node = int(graph.ends[number][kinds[graph.ends[number]] != person[number]][0])
    conflicting = int(np.flatnonzero(((graph.ends == node) & (person == kinds[node])).any(axis=1))[0])
    ids = list(map(shown, graph.ids_of(np.array([number, conflicting]))))
    raise InputError(
        f"{graph.name}: node {shown(graph.nodes[node])} cannot be both a company and a person, as edges "
        f"{ids[0]} "
        f"({graph.edge_type(number)}) and {ids[1]} ({graph.edge_type(conflicting)}) ask; rename one or change a "
        "type"
    )


def _date(type_: ContractType) -> Date:
    rule = type_.spec.attributes[type_.spec.date].generator
    assert isinstance(rule, Date), "checked when the type was read"
    return rule


def _draw_days(graph: Graph, spans: Int[np.ndarray, "types 2"], seed: int, *, gap: int) -> Int[np.ndarray, " E"]:
    """A day for each contract, again until no entity signs twice a day, nor a pair within `gap` days."""
    low, high = spans[graph.type_of].T
    days = scaled(random_words(generator(seed, "key date"), graph.n_edges), low, high)
    busiest = int(graph.degrees.argmax())
    crowded = InputError(
        f"{graph.name}: node {shown(graph.nodes[busiest])} signs {int(graph.degrees[busiest]):,} contracts, "
        "one a "
        f"day at most, and the key dates leave {int((high - low).max()) + 1:,} days; "
        "compile a smaller or less central graph"
    )
    if graph.degrees[busiest] > (high - low).max() + 1:
        raise crowded
    rng = generator(seed, "key date, again")
    active = np.arange(graph.n_edges)
    for _ in range(_ROUNDS):
        clashing = active[_clashes(graph, active, days[active], gap)]
        if not len(clashing):
            return days
        days[clashing] = scaled(random_words(rng, len(clashing)), low[clashing], high[clashing])
        # A new day can only clash at the two ends of its own edge.
        touched = np.zeros(graph.n_nodes, bool)
        touched[graph.ends[clashing].reshape(-1)] = True
        active = np.flatnonzero(touched[graph.ends].any(axis=1))
    raise crowded


def _clashes(
    graph: Graph, edges: Int[np.ndarray, " n"], days: Int[np.ndarray, " n"], gap: int
) -> Bool[np.ndarray, " n"]:
    """Which of these edges share a node and a day with an earlier one, or are too near in a pair."""
    bad = np.zeros(len(edges), bool)
    nodes = graph.ends[edges].T.reshape(-1)
    twice = np.tile(np.arange(len(edges)), 2)
    keys = (nodes << 20) + np.tile(days, 2) + (1 << 19)
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    bad[np.maximum(twice[order][1:], twice[order][:-1])[same]] = True
    if gap > 1:
        pairs = graph.pairs[edges]
        order = np.lexsort((days, pairs))
        near = (np.diff(pairs[order]) == 0) & (np.diff(days[order]) < gap)
        bad[order[1:][near]] = True
    return bad


def _ascending(pairs: Int[np.ndarray, " E"], days: Int[np.ndarray, " E"]) -> Int[np.ndarray, " E"]:
    """The days of each pair, dealt out again so that a later edge has the later day."""
    by_edge = np.argsort(pairs, kind="stable")
    by_day = np.lexsort((days, pairs))
    ordered = np.empty_like(days)
    ordered[by_edge] = days[by_day]
    return ordered


@dataclass(frozen=True, eq=False)
class _Chains:
    """For each edge the first of its group, the one before it and the one after it (-1: none)."""

    leader: Int[np.ndarray, " E"]
    previous: Int[np.ndarray, " E"]
    following: Int[np.ndarray, " E"]

    @classmethod
    def of(cls, groups: Int[np.ndarray, " E"]) -> "_Chains":
        order = np.argsort(groups, kind="stable")
        joined = groups[order][1:] == groups[order][:-1]
        previous, following = np.full(len(groups), -1), np.full(len(groups), -1)
        previous[order[1:][joined]] = order[:-1][joined]
        following[order[:-1][joined]] = order[1:][joined]
        starts = np.where(np.r_[True, ~joined], np.arange(len(groups)), 0)
        leader = np.empty(len(groups), dtype=np.int64)
        leader[order] = order[np.maximum.accumulate(starts)]
        return cls(leader, previous, following)


def _parties(
    graph: Graph, types: Sequence[ContractType], seed: int, leader: Int[np.ndarray, " E"]
) -> Int[np.ndarray, "E 2"]:
    """The ends in the order of the roles; where a coin decides, successors keep the first one's roles."""
    is_drawn = np.array([type_.spec.roles == "drawn" for type_ in types])[graph.type_of]
    coins = uniform_integers(generator(seed, "role"), 0, 1, graph.n_edges) == 1
    turned = graph.ends[:, 0] != graph.ends[leader, 0]
    swapped = is_drawn & (coins[leader] ^ turned)
    return np.where(swapped[:, None], graph.ends[:, ::-1], graph.ends)


WRONG_DRAWN = 2 * N_WRONG
"""Fresh values that are drawn for the wrong answers to one question."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """The contracts of one type: their edge numbers, and a column for each attribute.

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

    def sheets(self) -> Iterator[Sheet]:
        """All contracts, a sheet for each type."""
        for index, type_ in enumerate(self.used_types):
            edges = np.flatnonzero(self.graph.type_of == index)
            if len(edges):
                yield Sheet(type_, edges, self._columns(type_, edges))

    def _columns(self, type_: ContractType, edges: Int[np.ndarray, " n"]) -> dict[str, list[str]]:
        parties = self.signing.parties[edges]
        columns = {role: self.entity_names(type_, i, parties[:, i]) for i, role in enumerate(type_.roles)}
        columns[EDGE] = self.graph.ids_of(edges)
        if self.signing.as_of is not None and self.signing.supersedes is not None:
            columns[AS_OF] = day_texts(self.signing.as_of[edges])
            earlier = self.signing.supersedes[edges]
            dates = day_texts(self.signing.days[earlier])
            columns[SUPERSEDED] = [d if e >= 0 else "" for d, e in zip(dates, earlier.tolist(), strict=True)]
        numbers = self._integers(type_, edges)
        for name, attribute in type_.spec.attributes.items():
            rule = attribute.generator
            match rule:
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
                    low, high = day_number(rule.first_year, 1, 1), day_number(rule.last_year, 12, 31)
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

    def _words(self, type_: ContractType, name: str, edges: Int[np.ndarray, " n"]) -> np.ndarray:
        """A random word for each edge, which further edges do not change."""
        rng = generator(self.seed, "attribute", type_.name, name, 0)
        words: np.ndarray = random_words(rng, int(edges[-1]) + 1)[edges]
        return words

    def _integers(self, type_: ContractType, edges: Int[np.ndarray, " n"]) -> dict[str, Int[np.ndarray, " n"]]:
        """The whole numbers; those with an `at_least` after those that they refer to."""
        numbers: dict[str, Int[np.ndarray, " n"]] = {}
        rows = [(n, a.generator) for n, a in type_.spec.attributes.items() if isinstance(a.generator, Integer)]
        for name, rule in sorted(rows, key=lambda row: row[1].at_least is not None):
            low = rule.low if rule.at_least is None else numbers[rule.at_least]
            words = self._words(type_, name, edges)
            numbers[name] = low + rule.step * scaled(words, 0, (rule.high - low) // rule.step)
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
        rule = type_.spec.attributes[attribute].generator
        spare = self.spare_number + number * count + np.arange(count)
        match rule:
            case PartyName(party=role):
                return self.entity_names(type_, type_.roles.index(role), spare)
            case PartyAddress():
                return self.names.addresses(spare)
            case Fresh(kind=kind):
                return self.names.of_kind(kind, spare)
            case Date():
                low, high = day_number(rule.first_year, 1, 1), day_number(rule.last_year, 12, 31)
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
        high = min(_HALVES[kind] ** 2 - 1, low + 2**31)
        numbers = dict.fromkeys(uniform_integers(rng, low, max(low, high), 2 * count).tolist())
        return self.names.of_kind(kind, np.array([*numbers][:count]))


def _taken(values: tuple[str, ...], places: Int[np.ndarray, " n"]) -> list[str]:
    texts: list[str] = np.array(values, dtype=object)[places].tolist()
    return texts


def _integer_texts(numbers: Int[np.ndarray, " n"]) -> list[str]:
    return list(map(str, numbers.tolist()))
