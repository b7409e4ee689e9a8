"""The data set compiler: a graph becomes contracts, and contracts become questions and answers.

Wrong answers are of the right kind: the values that the same attribute has in other contracts, or could have had.

Scopes come from the contract types' tables, not from overlapping strings. An item of the forget set is
- entailed: the question is about an entity's address, and a retained contract states the same address;
- guessable: it asks for the name of an entity that signs a retained contract, so that the name is known and
  only which contract it belongs to has to be guessed;
- free: neither.
(Qiu et al., 2024, arXiv:2406.16810, do not tell these apart: in their sample data set 1 retained contracts
teach 4 of the 20 answers of A_B.)

A compiled data set on disk: written whole with a manifest, read back against it.

edges.csv         edge, type, connectivity, component, n_entailed, first, second
items.jsonl       items with paraphrase and wrong answers      holdout.jsonl  the same outside the graph
contracts.jsonl   attributes and full text
graph.json        nodes and edges in networkx's node-link form
manifest.json     seed, settings, counts, and the digest of every file; written last

Reading starts with the manifest: a file that is missing or was changed is refused by name.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from vestige.artifacts.layout import refuse_strangers
from vestige.artifacts.provenance import installed_versions
from vestige.artifacts.records import csv_text
from vestige.core.errors import InputError
from vestige.core.files import json_line, new_folder, read_json, replacing, write_json
from vestige.core.ids import content_id, file_digest
from vestige.core.items import Item, ItemTuple, Scope
from vestige.core.seeds import generator, shuffled, uniform_integers
from vestige.core.store import read_rows, read_versioned, refuse_another, typed
from vestige.core.text import Fields, Names, Record, TextByName, TextMapping, one_line
from vestige.data.contracts import (
    N_WRONG,
    WRONG_DRAWN,
    ContractDrawing,
    ContractType,
    candidate_values,
    contract_types,
    known_type,
)
from vestige.data.graph import MAX_EDGES, Edge, Graph, build_graph, load_graph, shown, with_holdout
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
        raise InputError(
            f"{graph.name}: {len(graph.edges):,} contracts. At most {MAX_EDGES:,} are compiled. Split the graph"
        )
    for name in graph.types:
        known_type(name)
    return ContractDrawing(with_holdout(graph), seed), graph


def compile_planned(drawing: ContractDrawing, graph: Graph) -> Dataset:
    """The data set of a plan."""
    texts = {id_: drawing.texts(id_) for id_ in drawing.graph.edges}
    # Wrong answers come from contracts on the same side, so that no training data contain those outside the graph.
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

    # Holdout contracts are drawn with the others but belong to no graph.
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
        # With few values, the draws may have missed some.
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
    """Return the data set with two more questions for each item, if the contracts allow them.

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
            # A company's short name is its first word, and a person's is the surname.
            short[names[near]] = names[near].split()[0 if kind == "company" else -1]
            title, date = type_.spec.title, contract.values[type_.spec.date]
            text = f"the {near} in the {title} dated {date} with {names[far]}"
            described.setdefault(names[near], []).append((contract.edge, names[far], text))
    times = Counter(short.values())

    def across(item: Item, names: Sequence[str]) -> str | None:
        """Return the question with the first party that another contract describes without naming the answer."""
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


SCHEMA = 1
"""The version of the folder's files. Other versions are rejected."""

COMPILER = 4
"""Version of the compiler: the same settings give the same bytes as long as it stays the same."""

MANIFEST = "manifest.json"
EDGES, ITEMS, HOLDOUT = "edges.csv", "items.jsonl", "holdout.jsonl"
CONTRACTS, GRAPH = "contracts.jsonl", "graph.json"
EDGE_COLUMNS = ("edge", "type", "connectivity", "component", "n_entailed", "first", "second")

_AGAIN = "Compile again with --fresh"


def read_manifest(folder: Path) -> Fields:
    """The manifest of a compiled folder."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder}: not a compiled data set (no {MANIFEST}). Make one with `vestige compile`")
    return read_versioned(path, schema=SCHEMA)


def check_files(folder: Path, manifest: Record) -> None:
    """Compare every file with its digest. The error names the first missing or changed file."""
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise InputError(f"{folder / MANIFEST}: lists no files. Compile again")
    for name, facts in files.items():
        path = folder / name
        # Otherwise the sender of the folder could have any file of the reader hashed, and learn about it.
        if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(facts, dict):
            raise InputError(f"{folder / MANIFEST}: {name!r} is not a file of this folder. Compile again")
        if not path.is_file():
            raise InputError(f"{path}: missing, though {MANIFEST} lists it. {_AGAIN}")
        if file_digest(path) != facts.get("sha256"):
            raise InputError(f"{path}: changed since it was compiled. {_AGAIN}")


def _stored(folder: Path, identity: Record, *, fresh: bool) -> Fields | None:
    """The manifest, if the folder holds the data set of this identity. None if there is room to write it.

    Reject a folder with foreign files, and another data set without `fresh`.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: a file with this name exists. Give another --output-dir")
    if not folder.exists() or not any(folder.iterdir()):
        return None
    # This applies even with --fresh: it may be the home directory.
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder}: contains other files and no compiled data set. Give another --output-dir")
    if fresh:
        refuse_strangers(folder, folder.iterdir())
        return None
    manifest = read_manifest(folder)
    out = "Give another --output-dir, or replace it with --fresh"
    refuse_another(folder, "data set", identity, {key: manifest.get(key) for key in identity}, out=out)
    check_files(folder, manifest)
    return manifest


def _identity(graph: Graph, seed: int) -> Fields:
    """Return everything that determines the bytes of a folder."""
    return {"compiler": COMPILER, "name": graph.name, "seed": seed, "graph": graph.digest}


def write_dataset(dataset: Dataset, folder: Path) -> Fields:
    """Write a data set, replacing an older one, and return its manifest."""
    graph = dataset.graph
    texts = {
        EDGES: edges_csv(dataset),
        ITEMS: _json_lines(map(item_row, dataset.items)),
        HOLDOUT: _json_lines(map(item_row, dataset.holdout)),
        CONTRACTS: _json_lines(map(asdict, dataset.contracts)),
        GRAPH: json.dumps(_node_link(dataset), indent=1, ensure_ascii=False) + "\n",
    }
    files = {}
    with new_folder(folder) as partial:
        for name, text in texts.items():
            content = text.encode()
            (partial / name).write_bytes(content)
            files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        manifest = {
            "schema": SCHEMA,
            **_identity(graph, dataset.seed),
            "digest": dataset.digest,
            "counts": {
                "entities": len(graph.nodes),
                "contracts": len(graph.edges),
                "items": len(dataset.items),
                "holdout": len(dataset.holdout),
            },
            "connectivity": graph.connectivity_by_type(),
            "vestige": installed_versions()["vestige"],
            "files": dict(sorted(files.items())),
        }
        write_json(partial / MANIFEST, manifest)
    return manifest


def _json_lines(rows: Iterable[Record]) -> str:
    return "".join(map(json_line, rows))


def edges_csv(dataset: Dataset) -> str:
    """edges.csv. Unknown values are empty cells."""
    graph, entailed = dataset.graph, n_entailed_of_contracts(dataset)
    rows = []
    for id_, edge in graph.edges.items():
        numbers = (graph.connectivity[id_], graph.components[id_], entailed.get(id_))
        cells = (id_, edge.type, *numbers, edge.first, edge.second)
        rows.append(dict(zip(EDGE_COLUMNS, cells, strict=True)))
    return csv_text(EDGE_COLUMNS, rows)


def read_dataset(folder: Path) -> Dataset:
    """The data set in a compiled folder, once every file has the digest that the manifest gives."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    about = typed(folder / MANIFEST, _About, manifest, remedy=_AGAIN)
    stored = typed(folder / GRAPH, _NodeLink, read_json(folder / GRAPH), remedy=_AGAIN)
    graph = build_graph(
        one_line(stored.graph.name, width=200),
        (Edge(edge.source, edge.target, edge.type, edge.id) for edge in stored.edges),
        parts=stored.graph.parts,
    )
    dataset = Dataset(
        name=graph.name,
        graph=graph,
        items=_items(folder / ITEMS),
        contracts=tuple(read_rows(folder / CONTRACTS, Contract)),
        holdout=_items(folder / HOLDOUT),
        seed=about.seed,
    )
    _check_parts(folder, dataset)
    return dataset


@dataclass(frozen=True)
class _About:
    """The part of a manifest that is read."""

    seed: int


@dataclass(frozen=True)
class _GraphName:
    name: str
    parts: dict[int, str]


@dataclass(frozen=True)
class _NodeLinkEdge:
    source: str
    target: str
    type: str
    id: str


@dataclass(frozen=True)
class _NodeLink:
    """The part of the graph from `_node_link` that is read."""

    graph: _GraphName
    edges: tuple[_NodeLinkEdge, ...]


def _items(path: Path) -> ItemTuple:
    items = tuple(read_rows(path, Item))
    for item in items:
        texts = [item.question, item.answer, *item.perturbed]
        if item.paraphrase is not None:
            texts.append(item.paraphrase)
        if not all(text.strip() and "\0" not in text for text in texts):
            raise InputError(f"{path}: {shown(item.question)}: a text is empty or holds a NUL character. {_AGAIN}")
    return items


def _check_parts(folder: Path, data: Dataset) -> None:
    """Reject contracts and items that are not in the graph."""
    edges = data.graph.edges
    for contract in data.contracts:
        type_ = contract_types().get(contract.type)
        if not (
            type_ is not None
            and contract.edge in edges
            and contract.values.keys() == type_.spec.attributes.keys()
            and contract.parties.keys() == {*type_.roles}
            and {*contract.parties.values()} <= {*data.graph.nodes}
        ):
            raise InputError(f"{folder / CONTRACTS}: {shown(contract.edge)} fits no contract of {GRAPH}. {_AGAIN}")
    for item in data.items:
        about = data.contract_of.get(str(item.edge))
        if item.edge not in edges or not (about is None or item.attribute is None or item.attribute in about.values):
            raise InputError(f"{folder / ITEMS}: {shown(item.question)} is about no contract. {_AGAIN}")
    # Selectors use edges: an edge without questions would be an empty forget set.
    if unasked := edges.keys() - data.items_of_edge.keys():
        raise InputError(f"{folder / ITEMS}: no question is about {shown(min(unasked))}. {_AGAIN}")


def _node_link(dataset: Dataset) -> Fields:
    """The graph in networkx's node-link form, with what contracts tell of each node: name, kind, address."""
    graph = dataset.graph
    facts_of: dict[str, TextByName] = {}
    for contract in dataset.contracts:
        type_ = contract_types()[contract.type]
        address_of = {role: contract.values.get(name) for name, role in type_.addresses.items()}
        for role, node in contract.parties.items():
            facts = facts_of.setdefault(node, {})
            facts |= {"name": contract.values[type_.name_of[role]], "kind": type_.spec.parties[role]}
            if (address := address_of.get(role)) is not None:
                facts["address"] = address
    return {
        "directed": False,
        "multigraph": True,
        "graph": {"name": graph.name, "parts": {str(number): name for number, name in graph.parts.items()}},
        "nodes": [{"id": node, "degree": graph.degrees[node], **facts_of.get(node, {})} for node in graph.nodes],
        "edges": [
            {"source": edge.first, "target": edge.second, "key": id_, "id": id_, "type": edge.type}
            for id_, edge in graph.edges.items()
        ],
    }


def compile_to_folder(source: str | Path | Graph, folder: Path, *, seed: int = 0, fresh: bool = False) -> Fields:
    """Compile a graph into a folder and return the manifest.

    A folder with exactly this data set is verified and left unchanged. Another data set is replaced only with `fresh`.
    """
    drawing, graph = plan(source, seed=seed)
    identity = _identity(graph, seed)
    # Commands that compile into the same folder take turns.
    with replacing(folder):
        manifest = _stored(folder, identity, fresh=fresh)
        if manifest is not None:
            return manifest
        return write_dataset(compile_planned(drawing, graph), folder)
