"""The data set compiler: a graph becomes contracts, and contracts become questions and answers.

Wrong answers are of the right
kind: the values that the same attribute has in other contracts, or could have had.

Scopes come from the contract types' tables, not from overlapping strings. An item of the forget set is
- entailed: the question is about an entity's address, and a retained contract states the same address;
- guessable: it asks for the name of an entity that signs a retained contract, so that the name is known and
  only which contract it belongs to has to be guessed;
- free: neither.
(Qiu et al., 2024, arXiv:2406.16810, do not tell these apart: in their sample data set 1 retained contracts
teach 4 of the 20 answers of A_B.)
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item, ItemTuple, Scope
from vestige.core.seeds import generator, shuffled, uniform_integers
from vestige.core.text import Names, TextByName, TextMapping
from vestige.data.contract_type import N_WRONG, ContractType, candidate_values, contract_types, known_type
from vestige.data.drawing import WRONG_DRAWN, ContractDrawing
from vestige.data.graph import MAX_EDGES, Graph, load_graph, with_holdout
from vestige.metrics.answers import contains


@dataclass(frozen=True)
class Contract:
    """One contract: an edge with its attributes filled in.

    `parties` are the node labels by role, `values` the attributes as the contract states them (an answer is a
    value in its form, as in "5%."). `text` is the full contract, or empty where a source has only
    questions.
    """

    edge: str
    type: str
    parties: TextMapping
    values: TextMapping
    text: str = ""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A graph with its contracts and items.

    `items` come by edge, in the order of the graph, and within it in the order of the type's questions. `holdout` asks
    about contracts outside the graph.
    """

    name: str
    graph: Graph
    items: ItemTuple
    contracts: tuple[Contract, ...]
    holdout: ItemTuple
    seed: int

    @cached_property
    def digest(self) -> str:
        """Content id of the graph and of all items, their variants included, in their order."""
        return content_id({"graph": self.graph.digest, "items": [item_row(i) for i in (*self.items, *self.holdout)]})

    @cached_property
    def contract_of(self) -> Mapping[str, Contract]:
        """The contract of each edge."""
        return {contract.edge: contract for contract in self.contracts}

    @cached_property
    def items_of_edge(self) -> Mapping[str, ItemTuple]:
        """The items of each edge, in their order."""
        items_of: dict[str, list[Item]] = {}
        for item in self.items:
            items_of.setdefault(str(item.edge), []).append(item)
        return {edge: tuple(items) for edge, items in items_of.items()}


def item_row(item: Item) -> dict[str, object]:
    """An item as the JSON object that represents it in files."""
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


def compile_dataset(graph: Graph | str | Path, *, seed: int) -> Dataset:
    """The data set of a graph (or of `sample1`, `star:50`, a file), in memory, with all its variants.

    The same graph and seed give the same bytes.
    """
    return compile_planned(*plan(graph, seed=seed))


def plan(graph: Graph | str | Path, *, seed: int) -> tuple[ContractDrawing, Graph]:
    """Return the drawn graph with holdout contracts, and the compiled graph."""
    if not isinstance(graph, Graph):
        graph = load_graph(graph, seed=seed)
    if len(graph.edges) > MAX_EDGES:
        raise InputError(f"{graph.name}: {len(graph.edges):,} contracts. At most {MAX_EDGES:,} are compiled")
    for name in graph.types:
        known_type(name)
    return ContractDrawing(with_holdout(graph), seed), graph


def compile_planned(drawing: ContractDrawing, graph: Graph) -> Dataset:
    """The data set of a plan."""
    texts = {id_: drawing.texts(id_) for id_ in drawing.graph.edges}
    # Wrong answers come from contracts of the same side, so that none outside the graph is ever shown.
    pools: dict[tuple[bool, str, str], dict[str, None]] = {}
    for id_, edge in drawing.graph.edges.items():
        for name in contract_types()[edge.type].spec.attributes:
            pools.setdefault((id_ in graph.edges, edge.type, name), {})[texts[id_][name]] = None
    elsewhere = {key: list(values) for key, values in pools.items()}

    def items(id_: str) -> Iterator[Item]:
        type_ = contract_types()[drawing.graph.edges[id_].type]
        for name, attribute in type_.spec.attributes.items():
            value = texts[id_][name]
            wrong = _wrong_values(drawing, type_, name, id_, value, elsewhere[id_ in graph.edges, type_.name, name])
            yield Item(
                attribute.question.format_map(texts[id_]),
                type_.answer(name, value),
                edge=id_,
                group=type_.name,
                attribute=name,
                paraphrase=attribute.paraphrase.format_map(texts[id_]),
                perturbed=tuple(type_.answer(name, text) for text in wrong),
            )

    def contract(id_: str) -> Contract:
        type_, signing = contract_types()[graph.edges[id_].type], drawing.signed[id_]
        values = {name: texts[id_][name] for name in type_.spec.attributes}
        parties = dict(zip(type_.roles, signing.parties, strict=True))
        return Contract(id_, type_.name, parties, values, type_.text.format_map(values))

    # Holdout contracts are drawn with the others and belong to no graph.
    outside = [id_ for id_ in drawing.graph.edges if id_ not in graph.edges]
    return Dataset(
        name=graph.name,
        graph=graph,
        items=tuple(chain.from_iterable(map(items, graph.edges))),
        contracts=tuple(map(contract, graph.edges)),
        holdout=tuple(chain.from_iterable(map(items, outside))),
        seed=drawing.seed,
    )


def _wrong_values(
    drawing: ContractDrawing, type_: ContractType, attribute: str, id_: str, value: str, elsewhere: Sequence[str]
) -> Names:
    """Five values other than `value`, all different, which depend on the seed, the edge and the attribute.

    First come values that the attribute has `elsewhere`, in other contracts, then further values of its generator, then
    the table's decoys.
    """

    def candidates() -> Iterator[str]:
        tries, edge = 8 * N_WRONG, drawing.numbers[id_]
        rng = generator(drawing.seed, "wrong answers", type_.name, attribute, edge)
        for index in uniform_integers(rng, 0, len(elsewhere) - 1, tries).tolist():
            yield elsewhere[index]
        # Of few the draws may have missed some.
        yield from elsewhere if len(elsewhere) <= tries else ()
        attributes = type_.spec.attributes
        listed = list(candidate_values(type_.spec, attributes[attribute]))
        yield from (listed[index] for index in shuffled(rng, len(listed)).tolist())
        number = edge * len(attributes) + list(attributes).index(attribute)
        yield from drawing.fresh_values(type_, attribute, number, WRONG_DRAWN)
        yield from attributes[attribute].decoys

    wrong: dict[str, None] = {}
    for candidate in candidates():
        if candidate != value:
            wrong[candidate] = None
            if len(wrong) == N_WRONG:
                return tuple(wrong)
    raise AssertionError(f"{type_.name}.{attribute} has too few decoys")


class Known(NamedTuple):
    """The contracts' statements about entities: the parties' names, and addresses as (name, address)."""

    names: frozenset[str]
    addresses: frozenset[tuple[str, str]]


def known_from(contracts: Iterable[Contract]) -> Known:
    """What these contracts state about entities."""
    names, addresses = set(), set()
    for contract in contracts:
        type_, values = contract_types()[contract.type], contract.values
        names |= {values[attribute] for attribute in type_.names}
        owners = ((attribute, values[type_.name_of[role]]) for attribute, role in type_.addresses.items())
        addresses |= {(name, values[attribute]) for attribute, name in owners}
    return Known(frozenset(names), frozenset(addresses))


def scope_of_items(dataset: Dataset, forget: Collection[str]) -> dict[str, Scope]:
    """The scope of each item of the forgotten edges, by item id. Items of unknown attributes are left out."""
    retained = known_from(c for c in dataset.contracts if c.edge not in forget)
    scopes: dict[str, Scope] = {}
    for edge in forget:
        contract = dataset.contract_of.get(edge)
        if contract is None:
            continue
        for item in dataset.items_of_edge.get(edge, ()):
            if item.attribute is not None:
                scopes[item.id] = scope_of(item, contract, retained)
    return scopes


def scope_of(item: Item, contract: Contract, retained: Known) -> Scope:
    """Return the scope of one item, from its contract and the retained contracts' statements."""
    type_, attribute = contract_types()[contract.type], str(item.attribute)
    if attribute in type_.addresses:
        owner = contract.values[type_.name_of[type_.addresses[attribute]]]
        if (owner, contract.values[attribute]) in retained.addresses:
            return "entailed"
        return "free"
    if attribute in type_.names:
        if contract.values[attribute] in retained.names:
            return "guessable"
        return "free"
    return "free"


def n_entailed_of_contracts(dataset: Dataset) -> dict[str, int]:
    """Entailed items of each edge if that edge alone is forgotten. Edges of unknown content are left out."""
    stated = {contract.edge: known_from([contract]).addresses for contract in dataset.contracts}
    statements: Counter[tuple[str, str]] = Counter()
    for facts in stated.values():
        statements.update(facts)
    counts = {}
    for edge, facts in stated.items():
        counts[edge] = sum(statements[fact] > 1 for fact in facts)
    return counts


def asked_otherwise(dataset: Dataset) -> Dataset:
    """The data set whose items have two questions more, where the contracts give them.

    `alias` has the parties by short names: a company without its legal form, a person by surname, if no other has it.
    `khop` describes a party through another contract ("the employer in the employment contract dated ... with ..."), so
    that its answer needs both contracts' facts.
    """
    of_edge: dict[str, list[str]] = {}
    short: TextByName = {}
    described: dict[str, list[tuple[str, str, str]]] = {}
    for contract in dataset.contracts:
        type_ = contract_types()[contract.type]
        names = {role: contract.values[type_.name_of[role]] for role in type_.roles}
        of_edge[contract.edge] = list(names.values())
        for kind, near, far in zip(type_.kinds, type_.roles, reversed(type_.roles), strict=True):
            # A company goes by its six letters, a person by the surname.
            short[names[near]] = names[near].split()[0 if kind == "company" else -1]
            title, date = type_.spec.title, contract.values[type_.spec.date]
            text = f"the {near} in the {title} dated {date} with {names[far]}"
            described.setdefault(names[near], []).append((contract.edge, names[far], text))
    times = Counter(short.values())

    def across(item: Item, names: Sequence[str]) -> str | None:
        """Ask with the first party that another contract describes without these parties and without the answer."""
        for name in names:
            for edge, party, text in described[name]:
                elsewhere = edge != item.edge and party not in of_edge[str(item.edge)]
                if elsewhere and not contains(text, item.answer):
                    return item.question.replace(name, text)
        return None

    def other(item: Item) -> Item:
        asked_of = [name for name in of_edge.get(str(item.edge), ()) if name in item.question]
        alias = item.question
        for name in asked_of:
            if times[short[name]] == 1:
                alias = alias.replace(name, short[name])
        return replace(item, alias=alias if alias != item.question else None, khop=across(item, asked_of))

    return replace(dataset, items=tuple(map(other, dataset.items)))
