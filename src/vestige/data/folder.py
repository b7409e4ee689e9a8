"""A compiled data set on disk: its files, its manifest, and compiling into it.

A compiled data set on disk: written whole with a manifest, read back against it.

pistol.json       every question row in PISTOL's published form
edges.csv         edge, type, connectivity, component, n_entailed, first, second, supersedes
items.jsonl       items with paraphrase and wrong answers      holdout.jsonl  the same outside the graph
contracts.jsonl   attributes and full text                     khop.jsonl     questions across contracts
graph.json        nodes and edges in networkx's node-link form
contract_types/   the tables and templates that were used
manifest.json     seed, settings, counts, digests; written last

The manifest of a compiled folder: what made it, what it holds, and the digest of every file.

It is written last, and reading starts with it: a file that is missing or was changed is refused by name.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vestige.artifacts.own_files import refuse_strangers
from vestige.artifacts.provenance import installed_versions
from vestige.core.errors import InputError
from vestige.core.files import json_line, new_folder, read_json, replacing, write_json
from vestige.core.ids import file_digest
from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.core.store import read_rows, refuse_another, typed
from vestige.core.text import one_line
from vestige.data.contract_type import ContractType, read_types
from vestige.data.dataset import (
    Contract,
    Dataset,
    KHop,
    compile_planned,
    item_row,
    n_entailed_of_contracts,
    plan,
)
from vestige.data.graph import Edge, Graph, build_graph, shown
from vestige.data.pistol import pistol_row, pistol_text

SCHEMA = 1
"""Version of the folder's files. Another one is refused, never guessed at."""

COMPILER = 2
"""Version of the compiler: the same settings give the same bytes as long as it stays the same."""

MANIFEST = "manifest.json"


@dataclass
class FilesWritten:
    """Writes the files of one folder and remembers size and digest of each."""

    folder: Path
    files: dict[str, dict[str, int | str]] = field(default_factory=dict)

    def write(self, name: str, pieces: Iterable[str]) -> None:
        """Write pieces of UTF-8 text one after the other, without holding them all."""
        digest, size = hashlib.sha256(), 0
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in pieces:
                content = piece.encode()
                digest.update(content)
                size += len(content)
                file.write(content)
        self.files[name] = {"sha256": digest.hexdigest(), "bytes": size}

    def finish(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest, and give it back."""
        manifest = {
            "schema": SCHEMA,
            **about,
            "vestige": installed_versions()["vestige"],
            "files": dict(sorted(self.files.items())),
        }
        write_json(self.folder / MANIFEST, manifest)
        return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a compiled folder."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder}: not a compiled data set (no {MANIFEST}); make one with `vestige compile`")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise InputError(f"{path}: made by another version of Vestige (its schema is not {SCHEMA}); compile again")
    return manifest


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Compare every file with its digest; the first that is missing or was changed is named."""
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise InputError(f"{folder / MANIFEST}: lists no files; compile again")
    for name, facts in files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(facts, dict):
            raise InputError(f"{folder / MANIFEST}: {name!r} is no file of this folder; compile again")
        if not path.is_file():
            raise InputError(f"{path}: missing, though {MANIFEST} lists it; compile again with --fresh")
        if file_digest(path) != facts.get("sha256"):
            raise InputError(f"{path}: changed since it was compiled; compile again with --fresh")


def already_there(folder: Path, identity: Mapping[str, Any], *, fresh: bool) -> dict[str, Any] | None:
    """The manifest, if the folder holds just what is asked for; None if there is room to write it.

    A folder that holds files of others is never replaced, and another data set only where `fresh` says so.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not folder.is_dir():
        raise InputError(f"{folder}: a file of that name is in the way; give another --output-dir")
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder}: holds other files and no compiled data set; give another --output-dir")
    if fresh:
        refuse_strangers(folder, folder.iterdir())
        return None
    manifest = read_manifest(folder)
    stored = {key: manifest.get(key) for key in identity}
    out = "give another --output-dir, or replace it with --fresh"
    refuse_another(folder, "data set", identity, stored, out=out)
    check_files(folder, manifest)
    return manifest


PISTOL, EDGES, ITEMS, HOLDOUT = "pistol.json", "edges.csv", "items.jsonl", "holdout.jsonl"
CONTRACTS, KHOP, GRAPH, TYPES, FACTUAL = (
    "contracts.jsonl",
    "khop.jsonl",
    "graph.json",
    "contract_types",
    "factual.jsonl",
)
EDGE_COLUMNS = ("edge", "type", "connectivity", "component", "n_entailed", "first", "second", "supersedes")

_AGAIN = "compile again with --fresh"


def identity(graph: Graph, seed: int, *, temporal: bool, types: Sequence[ContractType]) -> dict[str, Any]:
    """What decides the bytes of a folder."""
    return {
        "compiler": COMPILER,
        "name": graph.name,
        "seed": seed,
        "temporal": temporal,
        "graph": graph.digest,
        "types": {type_.name: type_.digest for type_ in sorted(types, key=lambda t: t.name)},
    }


def write_dataset(dataset: Dataset, folder: Path) -> dict[str, Any]:
    """Write a data set, replacing what stood there, and give back its manifest."""
    graph = dataset.graph
    used = [dataset.types[name] for name in graph.types if name in dataset.types]
    entailed = n_entailed_of_contracts(dataset)
    ids = graph.edge_ids()
    earlier = {contract.edge: contract.supersedes for contract in dataset.contracts}
    with new_folder(folder) as partial:
        files = FilesWritten(partial)
        files.write(PISTOL, pistol_text(map(pistol_row, (*dataset.items, *dataset.factual))))
        columns = [entailed.get(id_) for id_ in ids], [earlier.get(id_) for id_ in ids]
        files.write(EDGES, [edges_csv(graph, *columns)])
        files.write(ITEMS, (json_line(item_row(item)) for item in dataset.items))
        files.write(HOLDOUT, (json_line(item_row(item)) for item in dataset.holdout))
        files.write(FACTUAL, (json_line(item_row(item)) for item in dataset.factual))
        files.write(CONTRACTS, (json_line(asdict(contract)) for contract in dataset.contracts))
        files.write(KHOP, (json_line({**item_row(k.item), "edges": list(k.edges)}) for k in dataset.khop))
        files.write(GRAPH, [json.dumps(_node_link(dataset), indent=1, ensure_ascii=False) + "\n"])
        write_types(files, used)
        counts = {
            "entities": graph.n_nodes,
            "contracts": graph.n_edges,
            "items": len(dataset.items),
            "holdout": len(dataset.holdout),
            "khop": len(dataset.khop),
            "factual": len(dataset.factual),
        }
        about = identity(graph, dataset.seed, temporal=dataset.temporal, types=used)
        return files.finish(
            {
                **about,
                "digest": dataset.digest,
                "unknown": list(dataset.unknown),
                "counts": counts,
                "connectivity": graph.connectivity_by_type(),
            }
        )


def write_types(files: FilesWritten, types: Sequence[ContractType]) -> None:
    """Put the sources of the contract types beside the data, so that a folder needs no other."""
    for type_ in types:
        files.write(f"{TYPES}/{type_.name}.toml", [type_.table])
        files.write(f"{TYPES}/{type_.name}.txt.j2", [type_.template])


def edges_csv(graph: Graph, entailed: Sequence[int | None], supersedes: Sequence[str | None]) -> str:
    """edges.csv. What is not known is an empty cell."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(EDGE_COLUMNS)
    writer.writerows(
        zip(
            graph.edge_ids(),
            [graph.types[t] for t in graph.type_of.tolist()],
            graph.connectivity.tolist(),
            graph.components.tolist(),
            entailed,
            [graph.nodes[n] for n in graph.ends[:, 0].tolist()],
            [graph.nodes[n] for n in graph.ends[:, 1].tolist()],
            supersedes,
            strict=True,
        )
    )
    return buffer.getvalue()


def read_dataset(folder: Path) -> Dataset:
    """The data set in a compiled folder, once every file has the digest that the manifest gives."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    about = typed(folder / MANIFEST, _About, manifest, again=_AGAIN)
    graph = _graph_in(folder / GRAPH)
    khop = zip(_items(folder / KHOP), read_rows(folder / KHOP, _Across), strict=True)
    return _fitting(
        folder,
        Dataset(
            name=graph.name,
            graph=graph,
            items=_items(folder / ITEMS),
            contracts=tuple(read_rows(folder / CONTRACTS, Contract)),
            holdout=_items(folder / HOLDOUT),
            khop=tuple(KHop(item, across.edges) for item, across in khop),
            seed=about.seed,
            temporal=about.temporal,
            types=read_types(folder / TYPES) if (folder / TYPES).is_dir() else {},
            factual=_items(folder / FACTUAL),
            unknown=about.unknown,
        ),
    )


@dataclass(frozen=True)
class _About:
    """What is read of a manifest."""

    seed: int
    temporal: bool
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class _Across:
    """What a question across contracts has beside its item."""

    edges: tuple[str, ...]


def _items(path: Path) -> tuple[Item, ...]:
    items = tuple(read_rows(path, Item))
    for item in items:
        stated = [item.question, item.answer, *item.perturbed, *([] if item.paraphrase is None else [item.paraphrase])]
        if not all(text.strip() and "\0" not in text for text in stated):
            raise InputError(f"{path}: {shown(item.question)}: a text is empty or holds a NUL character; {_AGAIN}")
    return items


def _fitting(folder: Path, data: Dataset) -> Dataset:
    """The data set, once its parts are found to be of one graph."""
    edges, nodes = {*data.graph.edge_numbers}, {*data.graph.nodes}
    for contract in data.contracts:
        type_, parties = data.types.get(contract.type), contract.parties
        if (
            type_ is None
            or contract.edge not in edges
            or not (
                {*type_.name_of.values()} <= contract.values.keys() <= type_.spec.attributes.keys()
                and parties.keys() <= {*type_.roles}
                and nodes >= {*parties.values()}
            )
        ):
            raise InputError(f"{folder / CONTRACTS}: {shown(contract.edge)} fits no contract of {GRAPH}; {_AGAIN}")
    for item in data.items:
        about = data.contract_of.get(str(item.edge))
        if item.edge not in edges or not (about is None or item.attribute is None or item.attribute in about.values):
            raise InputError(f"{folder / ITEMS}: {shown(item.question)} asks for what no contract has; {_AGAIN}")
    if unasked := edges - data.items_of_edge.keys():
        raise InputError(f"{folder / ITEMS}: nothing is asked about {shown(min(unasked))}; {_AGAIN}")
    return data


def _node_link(dataset: Dataset) -> dict[str, Any]:
    """The graph in networkx's node-link form, with what contracts tell of each node: name, kind, address."""
    graph = dataset.graph
    facts_of: dict[str, dict[str, str]] = {}
    for contract in dataset.contracts:
        type_ = dataset.types[contract.type]
        for role, node in contract.parties.items():
            facts = facts_of.setdefault(node, {})
            facts["name"] = contract.values[type_.name_of[role]]
            facts["kind"] = type_.spec.parties[role]
            for attribute, owner in type_.addresses.items():
                if owner == role and attribute in contract.values:
                    facts["address"] = contract.values[attribute]
    rows = zip(graph.edge_ids(), graph.ends.tolist(), graph.type_of.tolist(), strict=True)
    return {
        "directed": False,
        "multigraph": True,
        "graph": {"name": graph.name, "parts": {str(number): name for number, name in graph.parts.items()}},
        "nodes": [
            {"id": label, "degree": degree, **facts_of.get(label, {})}
            for label, degree in zip(graph.nodes, graph.degrees.tolist(), strict=True)
        ],
        "edges": [
            {
                "source": graph.nodes[a],
                "target": graph.nodes[b],
                "key": id_,
                "id": id_,
                "type": graph.types[t],
            }
            for id_, (a, b), t in rows
        ],
    }


@dataclass(frozen=True)
class _Name:
    name: str
    parts: dict[int, str]


@dataclass(frozen=True)
class _Node:
    id: str


@dataclass(frozen=True)
class _Edge:
    source: str
    target: str
    type: str
    id: str


@dataclass(frozen=True)
class _NodeLink:
    """What is read of the graph that `_node_link` wrote."""

    graph: _Name
    nodes: tuple[_Node, ...]
    edges: tuple[_Edge, ...]


def _graph_in(path: Path) -> Graph:
    """The graph in a folder, with its nodes and edges in their order."""
    stored = typed(path, _NodeLink, read_json(path), again=_AGAIN)
    edges = (Edge(e.source, e.target, e.type, e.id) for e in stored.edges)
    name = one_line(stored.graph.name, width=200)
    return build_graph(name, edges, parts=stored.graph.parts, nodes=[node.id for node in stored.nodes])


class CompileSettings(Settings):
    """How a graph is compiled."""

    seed: int = 0
    """Seed of everything that is drawn."""
    temporal: bool = False
    """Let later contracts of the same parties supersede earlier ones."""
    contract_types: Path | None = None
    """A folder of further contract types: NAME.toml, NAME.txt.j2."""


def compile_to_folder(
    source: str | Path | Graph, folder: Path, settings: CompileSettings, *, fresh: bool = False
) -> dict[str, Any]:
    """Compile a graph into a folder and give back the manifest.

    A folder that holds just that already is checked and left alone; another data set is replaced only with
    `fresh`.
    """
    drawing, graph = plan(source, seed=settings.seed, temporal=settings.temporal, own_types=settings.contract_types)
    about = identity(graph, settings.seed, temporal=settings.temporal, types=drawing.used_types)
    with replacing(folder):
        manifest = already_there(folder, about, fresh=fresh)
        return manifest if manifest is not None else write_dataset(compile_planned(drawing, graph), folder)
