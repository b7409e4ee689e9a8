"""The data set compiler: contracts, questions and answers, and what retained contracts give away.

The data set compiler: a graph becomes contracts, and contracts become questions and answers.

With the temporal feature, later contracts of the same parties supersede earlier ones. Wrong answers are of the right
kind: the values that the same attribute has in other contracts, or could have had.

What the retain set gives away about the forget set, by the contract types' tables, not by string overlap.

An item of the forget set is
- entailed: it asks for the address of an entity, and a retained contract states the same address of it;
- guessable: it asks for the name of an entity that signs a retained contract, so that the name is known and
  only which contract it belongs to has to be guessed;
- free: neither.
(Qiu et al., 2024, arXiv:2406.16810, do not tell these apart: in their sample data set 1 retained contracts
teach 4 of the 20 answers of A_B.)

Questions across contracts: k of them in a row, each sharing an entity with the next. The entity asked about is
described and not named: "the seller in the sales contract dated D1 with the customer in the sales contract dated D2
with X". An entity signs at most one contract a day, so each step means one contract, and the answer is unique.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item, Scope
from vestige.core.seeds import generator, shuffled, uniform_integers
from vestige.data.contract_type import (
    AS_OF,
    EDGE,
    N_WRONG,
    SUPERSEDED,
    ContractType,
    candidate_values,
    contract_types,
    known_type,
)
from vestige.data.drawing import WRONG_DRAWN, Drawing
from vestige.data.graph import MAX_EDGES, Graph, load_graph, with_holdout

DATED = f" as of {{{AS_OF}}}?"
"""How a question ends that is asked as of a day."""


def dated(template: str, type_: ContractType) -> str:
    """A question's template where contracts have successors: as of a day, unless the key date is in it."""
    return template if f"{{{type_.spec.date}}}" in template else template.removesuffix("?") + DATED


def json_text(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


HOPS = (1, 2, 3)
PER_HOPS = 50
"""Questions for each number of hops, at most."""

_KHOP_TRIES = 20 * PER_HOPS


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
    question_of: dict[tuple[tuple[int, ...], int], KHop] = {}
    for hops in HOPS:
        walks = 0
        for attempt in range(_KHOP_TRIES):
            walk = _walk(contracts_of, drawing.seed, hops, attempt)
            if walk is None or walk in question_of:
                continue
            question_of[walk] = _question(graph, drawing, values, *walk)
            walks += 1
            if walks == PER_HOPS:
                break
    return tuple(question_of.values())


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
        near, far = type_.roles[side], type_.roles[1 - side]
        if step == 0:
            text = values[edge][type_.name_of[near]]
        text = f"the {far} in the {type_.spec.title} dated {values[edge][type_.spec.date]} with {text}"
        node = int(parties[1 - side])
    address_of = {role: attribute for attribute, role in type_.addresses.items()}
    attribute = address_of.get(far, type_.name_of[far])
    kind = "address" if far in address_of else "name"
    item = Item(
        question=f"What was the {kind} of {text}?",
        answer=type_.answer(attribute, values[edges[-1]][attribute]),
        group=f"{len(edges)}-hop",
        attribute=kind,
    )
    return KHop(item, tuple(graph.ids_of(np.array(edges))))


@dataclass(frozen=True)
class Contract:
    """One contract: an edge with its attributes filled in.

    `parties` are the node labels by role, `values` the attributes as the contract states them (an answer is a
    value in its form, as in "5%."). `supersedes` is an earlier edge of the same parties. `text` is the full
    contract, or empty where a source has only questions.
    """

    edge: str
    type: str
    parties: Mapping[str, str]
    values: Mapping[str, str]
    supersedes: str | None = None
    text: str = ""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A graph with its contracts and items.

    `items` come by edge, in the order of the graph, and within it in the order of the type's questions.
    `holdout` asks about contracts outside the graph, `khop` across several contracts. `factual` are rows of a
    source that belong to no contract, and `unknown` says in sentences what a source does not tell.
    """

    name: str
    graph: Graph
    items: tuple[Item, ...]
    contracts: tuple[Contract, ...]
    holdout: tuple[Item, ...]
    khop: tuple[KHop, ...]
    seed: int
    temporal: bool
    types: Mapping[str, ContractType]
    factual: tuple[Item, ...] = ()
    unknown: tuple[str, ...] = field(default=())

    @cached_property
    def digest(self) -> str:
        """Content id of the graph and of all items, their variants included, in their order."""
        return content_id(
            {
                "graph": self.graph.digest,
                "items": [item_row(i) for part in (self.items, self.holdout, self.factual) for i in part],
                "khop": [[item_row(k.item), list(k.edges)] for k in self.khop],
            }
        )

    @cached_property
    def contract_of(self) -> Mapping[str, Contract]:
        """The contract of each edge."""
        return {contract.edge: contract for contract in self.contracts}

    @cached_property
    def items_of_edge(self) -> Mapping[str, tuple[Item, ...]]:
        """The items of each edge, in their order."""
        items_of: dict[str, list[Item]] = {}
        for item in self.items:
            items_of.setdefault(str(item.edge), []).append(item)
        return {edge: tuple(items) for edge, items in items_of.items()}


def item_row(item: Item) -> dict[str, object]:
    """An item as the JSON object that stands for it in files."""
    return {
        "id": item.id,
        "question": item.question,
        "answer": item.answer,
        "edge": item.edge,
        "group": item.group,
        "attribute": item.attribute,
        "paraphrase": item.paraphrase,
        "perturbed": list(item.perturbed),
    }


def compile_dataset(
    graph: Graph | str | Path, *, seed: int, temporal: bool = False, contract_types: Path | None = None
) -> Dataset:
    """The data set of a graph (or of `sample1`, `star:50`, a file), in memory, with all its variants.

    The same graph, seed and types give the same bytes. With `temporal`, parallel edges are contracts that
    supersede each other, and a graph without any gets a successor for every contract.
    """
    return compile_planned(*plan(graph, seed=seed, temporal=temporal, own_types=contract_types))


def compile_planned(drawing: Drawing, graph: Graph) -> Dataset:
    """The data set of a plan."""
    values: dict[int, dict[str, str]] = {}
    items: dict[int, list[Item]] = {}
    superseded: dict[int, str] = {}
    for sheet in drawing.sheets():
        for row, number in enumerate(sheet.edges.tolist()):
            texts = {name: column[row] for name, column in sheet.columns.items()}
            values[number] = {name: texts[name] for name in sheet.type.spec.attributes}
            items[number] = _items_of_contract(sheet.type, texts, temporal=drawing.temporal)
            superseded[number] = texts.get(SUPERSEDED, "")
    inside, outside = range(graph.n_edges), range(graph.n_edges, drawing.graph.n_edges)
    # Wrong answers come from contracts of the same side, so that none outside the graph is ever shown.
    _add_wrong_answers(drawing, inside, values, items)
    _add_wrong_answers(drawing, outside, values, items)
    return Dataset(
        name=graph.name,
        graph=graph,
        items=tuple(item for number in inside for item in items[number]),
        contracts=tuple(_contract(drawing, number, values[number], superseded[number]) for number in inside),
        holdout=tuple(item for number in outside for item in items[number]),
        khop=khop_questions(graph, drawing, [values[number] for number in range(drawing.graph.n_edges)]),
        seed=drawing.seed,
        temporal=drawing.temporal,
        types={type_.name: type_ for type_ in drawing.used_types},
    )


def _items_of_contract(type_: ContractType, texts: Mapping[str, str], *, temporal: bool) -> list[Item]:
    """The questions about one contract, with paraphrases; without wrong answers."""

    def fill(template: str) -> str:
        return (dated(template, type_) if temporal else template).format_map(texts)

    return [
        Item(
            question=fill(attribute.question),
            answer=type_.answer(name, texts[name]),
            edge=texts[EDGE],
            group=type_.name,
            attribute=name,
            paraphrase=fill(attribute.paraphrase),
        )
        for name, attribute in type_.spec.attributes.items()
    ]


def plan(graph: Graph | str | Path, *, seed: int, temporal: bool, own_types: Path | None) -> tuple[Drawing, Graph]:
    """What is drawn (holdout contracts included), and the graph that is compiled."""
    if not isinstance(graph, Graph):
        graph = load_graph(graph, seed=seed)
    if graph.n_edges > MAX_EDGES:
        raise InputError(f"{graph.name}: {graph.n_edges:,} contracts; at most {MAX_EDGES:,} are compiled")
    types = contract_types(own_types)
    for name in graph.types:
        known_type(types, name)
    graph = with_successors(graph) if temporal else graph
    return Drawing(with_holdout(graph), types, seed, temporal), graph


def _add_wrong_answers(
    drawing: Drawing, part: Sequence[int], values: Mapping[int, dict[str, str]], items: Mapping[int, list[Item]]
) -> None:
    """Give the items of these edges their wrong answers, preferably from one another."""
    for index, type_ in enumerate(drawing.used_types):
        edges = [n for n in part if drawing.graph.type_of[n] == index]
        pools = {name: list(dict.fromkeys(values[n][name] for n in edges)) for name in type_.spec.attributes}
        for number in edges:
            for position, (name, pool) in enumerate(pools.items()):
                wrong = wrong_values(drawing, type_, name, number, values[number][name], pool)
                answers = tuple(type_.answer(name, value) for value in wrong)
                items[number][position] = replace(items[number][position], perturbed=answers)


def _contract(drawing: Drawing, number: int, values: dict[str, str], superseded_date: str) -> Contract:
    graph, signing = drawing.graph, drawing.signing
    type_ = drawing.used_types[int(graph.type_of[number])]
    nodes = signing.parties[number].tolist()
    earlier = -1 if signing.supersedes is None else int(signing.supersedes[number])
    return Contract(
        edge=graph.edge_ids(number, number + 1)[0],
        type=type_.name,
        parties={role: graph.nodes[node] for role, node in zip(type_.roles, nodes, strict=True)},
        values=values,
        supersedes=None if earlier < 0 else graph.edge_ids(earlier, earlier + 1)[0],
        text=type_.render(values, superseded_date),
    )


def with_successors(graph: Graph) -> Graph:
    """The graph as it is where it has parallel edges, which succeed each other; else one successor for each.

    The successors come after all others, in the same order; the successor of `A_B` is called `A_B~2`.
    """
    if (graph.occurrence > 1).any():
        return graph
    ids = None if graph.ids is None else graph.ids + tuple(f"{id_}~2" for id_ in graph.ids)
    return replace(graph, ends=np.concatenate([graph.ends] * 2), type_of=np.concatenate([graph.type_of] * 2), ids=ids)


_TRIES = 8 * N_WRONG


def wrong_values(
    drawing: Drawing, type_: ContractType, attribute: str, edge: int, value: str, elsewhere: Sequence[str]
) -> tuple[str, ...]:
    """Five values other than `value`, all different, which depend on the seed, the edge and the attribute.

    First come values that the attribute has in other contracts (`others`, without repeats), then further
    values of its generator, then the table's decoys.
    """
    wrong: list[str] = []
    for candidate in _candidates(drawing, type_, attribute, edge, elsewhere):
        if candidate != value and candidate not in wrong:
            wrong.append(candidate)
            if len(wrong) == N_WRONG:
                return tuple(wrong)
    raise InputError(
        f"contract type {type_.name}: attributes.{attribute}: only {len(wrong)} wrong answers to {value!r}, "
        "and "
        f"{N_WRONG} are needed; add decoys"
    )


def _candidates(
    drawing: Drawing, type_: ContractType, attribute: str, edge: int, elsewhere: Sequence[str]
) -> Iterator[str]:
    position = list(type_.spec.attributes).index(attribute)
    rng = generator(drawing.seed, "wrong answers", type_.name, attribute, edge)
    for index in uniform_integers(rng, 0, len(elsewhere) - 1, _TRIES).tolist():
        yield elsewhere[index]
    yield from elsewhere if len(elsewhere) <= _TRIES else ()
    listed = list(candidate_values(type_.spec, type_.spec.attributes[attribute]))
    yield from (listed[index] for index in shuffled(rng, len(listed)).tolist())
    number = edge * len(type_.spec.attributes) + position
    yield from drawing.fresh_values(type_, attribute, number, WRONG_DRAWN)
    yield from type_.spec.attributes[attribute].decoys


class Known(NamedTuple):
    """What contracts state about entities: the names of their parties, and addresses as (name, address)."""

    names: frozenset[str]
    addresses: frozenset[tuple[str, str]]


def known_from(contracts: Iterable[Contract], types: Mapping[str, ContractType]) -> Known:
    """What these contracts state about entities."""
    names, addresses = set(), set()
    for contract in contracts:
        type_ = types[contract.type]
        for role, naming in type_.name_of.items():
            names.add(contract.values[naming])
            addresses |= {
                (contract.values[naming], contract.values[attribute])
                for attribute, owner in type_.addresses.items()
                if owner == role and attribute in contract.values
            }
    return Known(frozenset(names), frozenset(addresses))


def scope_of_items(dataset: Dataset, forget: Collection[str]) -> dict[str, Scope]:
    """The scope of each item of the forgotten edges, by item id; items of unknown attributes are left out."""
    retained = known_from((c for c in dataset.contracts if c.edge not in forget), dataset.types)
    return {
        item.id: scope_of(item, dataset.contract_of[edge], dataset.types, retained)
        for edge in forget
        if edge in dataset.contract_of
        for item in dataset.items_of_edge.get(edge, ())
        if item.attribute is not None
    }


def scope_of(item: Item, contract: Contract, types: Mapping[str, ContractType], retained: Known) -> Scope:
    """The scope of one item, given its contract and what the retained contracts state."""
    type_, attribute = types[contract.type], str(item.attribute)
    if attribute in type_.addresses:
        owner = contract.values[type_.name_of[type_.addresses[attribute]]]
        return "entailed" if (owner, contract.values[attribute]) in retained.addresses else "free"
    if attribute in type_.names:
        return "guessable" if contract.values[attribute] in retained.names else "free"
    return "free"


def n_entailed_of_contracts(dataset: Dataset) -> dict[str, int]:
    """Entailed items of each edge if that edge alone is forgotten; edges of unknown content are left out."""
    statements = Counter(
        fact for contract in dataset.contracts for fact in known_from([contract], dataset.types).addresses
    )
    return {
        contract.edge: sum(
            statements[contract.values[type_.name_of[role]], contract.values[attribute]] > 1
            for attribute, role in type_.addresses.items()
            if attribute in contract.values
        )
        for contract in dataset.contracts
        for type_ in [dataset.types[contract.type]]
    }
