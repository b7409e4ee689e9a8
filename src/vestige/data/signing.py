"""Who signs in which role, and on which day: what has to be drawn for all contracts at once.

An entity signs at most one contract a day. So "the contract with X as of DATE" means one contract, and no two
questions coincide. Two contracts of the same parties are only told apart by time (the temporal feature): the
later supersedes the earlier, and a question says as of which day it asks.

Axes: E edges. Days count from 1970-01-01.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.data.contract_schema import Date
from vestige.data.contract_type import ContractType
from vestige.data.graph import Graph, shown
from vestige.data.names import day_number
from vestige.data.uniform import random_words, scaled, uniform_integers

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
    spans = np.array([_span(type_) for type_ in types])
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
    again = np.flatnonzero(graph.occurrence > 1)
    if not len(again):
        return
    number = int(again[0])
    pair = np.flatnonzero(graph.pairs == graph.pairs[number])[:2]
    one, two = (shown(graph.edge_ids(int(n), int(n) + 1)[0]) for n in pair)
    raise InputError(
        f"{graph.name}: the edges {one} and {two} join the same two parties, so their questions would be "
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
    other = int(np.flatnonzero(((graph.ends == node) & (person == kinds[node])).any(axis=1))[0])
    ids = [shown(graph.edge_ids(n, n + 1)[0]) for n in (number, other)]
    raise InputError(
        f"{graph.name}: node {shown(graph.nodes[node])} cannot be both a company and a person, as edges "
        f"{ids[0]} "
        f"({graph.edge_type(number)}) and {ids[1]} ({graph.edge_type(other)}) ask; rename one or change a "
        "type"
    )


def _date(type_: ContractType) -> Date:
    made = type_.spec.attributes[type_.spec.date].generator
    assert isinstance(made, Date), "checked when the type was read"
    return made


def _span(type_: ContractType) -> tuple[int, int]:
    made = _date(type_)
    return day_number(made.first_year, 1, 1), day_number(made.last_year, 12, 31)


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
    drawn = np.array([type_.spec.roles == "drawn" for type_ in types])[graph.type_of]
    coins = uniform_integers(generator(seed, "role"), 0, 1, graph.n_edges) == 1
    turned = graph.ends[:, 0] != graph.ends[leader, 0]
    swapped = drawn & (coins[leader] ^ turned)
    return np.where(swapped[:, None], graph.ends[:, ::-1], graph.ends)
