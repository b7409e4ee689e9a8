"""A compiled data set on disk: written whole with a manifest, read back against it.

edges.csv         edge, type, connectivity, component, n_entailed, first, second
items.jsonl       items with paraphrase and wrong answers      holdout.jsonl  the same outside the graph
contracts.jsonl   attributes and full text
graph.json        nodes and edges in networkx's node-link form
manifest.json     seed, settings, counts, and the digest of every file; written last

Reading starts with the manifest: a file that is missing or was changed is refused by name.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from vestige.artifacts.layout import refuse_strangers
from vestige.artifacts.provenance import installed_versions
from vestige.core.errors import InputError
from vestige.core.files import json_line, new_folder, read_json, replacing, write_json
from vestige.core.ids import file_digest
from vestige.core.items import Item, ItemTuple
from vestige.core.store import read_rows, refuse_another, typed
from vestige.core.text import Fields, Record, TextByName, one_line
from vestige.data.contract_type import contract_types
from vestige.data.dataset import Contract, Dataset, compile_planned, item_row, n_entailed_of_contracts, plan
from vestige.data.graph import Edge, Graph, build_graph, shown

SCHEMA = 1
"""Version of the folder's files. Another one is refused, never guessed at."""

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
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise InputError(f"{path}: made by another version of Vestige (its schema is not {SCHEMA}). Compile again")
    return manifest


def check_files(folder: Path, manifest: Record) -> None:
    """Compare every file with its digest. The error names the first missing or changed file."""
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise InputError(f"{folder / MANIFEST}: lists no files. Compile again")
    for name, facts in files.items():
        path = folder / name
        # Whoever sent the folder could have any file of the reader hashed, and learn of it.
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
        raise InputError(f"{folder}: a file of that name is in the way. Give another --output-dir")
    if not folder.exists() or not any(folder.iterdir()):
        return None
    # Not even with --fresh: it may be the home directory.
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder}: holds other files and no compiled data set. Give another --output-dir")
    if fresh:
        refuse_strangers(folder, folder.iterdir())
        return None
    manifest = read_manifest(folder)
    out = "Give another --output-dir, or replace it with --fresh"
    refuse_another(folder, "data set", identity, {key: manifest.get(key) for key in identity}, out=out)
    check_files(folder, manifest)
    return manifest


def _identity(graph: Graph, seed: int) -> Fields:
    """What decides the bytes of a folder."""
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
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(EDGE_COLUMNS)
    for id_, edge in graph.edges.items():
        numbers = (graph.connectivity[id_], graph.components[id_], entailed.get(id_))
        writer.writerow([id_, edge.type, *numbers, edge.first, edge.second])
    return buffer.getvalue()


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
    """Refuse contracts and items that are not of the graph."""
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
    # Selectors go by edges: one without questions would be an empty forget set.
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
    # Two commands that compile into one place take turns.
    with replacing(folder):
        manifest = _stored(folder, identity, fresh=fresh)
        if manifest is not None:
            return manifest
        return write_dataset(compile_planned(drawing, graph), folder)
