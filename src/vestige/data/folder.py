"""A compiled data set on disk: written whole with a manifest, read back against it.

pistol.json       every question row in PISTOL's published form
edges.csv         edge, type, connectivity, component, n_entailed, first, second, supersedes
items.jsonl       items with paraphrase and wrong answers      holdout.jsonl  the same outside the graph
contracts.jsonl   attributes and full text                     khop.jsonl     questions across contracts
graph.json        nodes and edges in networkx's node-link form
contract_types/   the tables and templates that were used
manifest.json     seed, settings, counts, digests; written last
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vestige.core.errors import InputError
from vestige.core.files import json_line, new_folder, read_json, read_jsonl
from vestige.core.items import Item
from vestige.core.text import one_line
from vestige.data.contract_type import ContractType, read_types
from vestige.data.dataset import Contract, Dataset, item_row
from vestige.data.drawing import chunk_bounds
from vestige.data.entailment import n_entailed_of_contracts
from vestige.data.graph import Graph
from vestige.data.khop import KHop
from vestige.data.manifest import COMPILER, FilesWritten, check_files, read_manifest
from vestige.data.pistol import pistol_row, pistol_text

PISTOL, EDGES, ITEMS, HOLDOUT = "pistol.json", "edges.csv", "items.jsonl", "holdout.jsonl"
CONTRACTS, KHOP, GRAPH, TYPES, FACTUAL = (
    "contracts.jsonl",
    "khop.jsonl",
    "graph.json",
    "contract_types",
    "factual.jsonl",
)
EDGE_COLUMNS = ("edge", "type", "connectivity", "component", "n_entailed", "first", "second", "supersedes")

_T = TypeVar("_T")


def identity(graph: Graph, seed: int, *, temporal: bool, stream: bool, types: Sequence[ContractType]) -> dict[str, Any]:
    """What decides the bytes of a folder."""
    return {
        "compiler": COMPILER,
        "name": graph.name,
        "seed": seed,
        "temporal": temporal,
        "stream": stream,
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
        files.write(EDGES, edges_csv(graph, *columns))
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
        about = identity(graph, dataset.seed, temporal=dataset.temporal, stream=False, types=used)
        return files.finish(
            {
                **about,
                "digest": dataset.digest,
                "left_out": [],
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


def edges_csv(graph: Graph, entailed: Sequence[int | None], supersedes: Sequence[str | None]) -> Iterator[str]:
    """edges.csv in pieces. What is not known is an empty cell."""
    yield ",".join(EDGE_COLUMNS) + "\n"
    for start, stop in chunk_bounds(graph.n_edges):
        buffer = io.StringIO(newline="")
        ends = graph.ends[start:stop]
        csv.writer(buffer, lineterminator="\n").writerows(
            zip(
                graph.edge_ids(start, stop),
                [graph.types[t] for t in graph.type_of[start:stop].tolist()],
                graph.connectivity[start:stop].tolist(),
                graph.components[start:stop].tolist(),
                entailed[start:stop],
                [graph.nodes[n] for n in ends[:, 0].tolist()],
                [graph.nodes[n] for n in ends[:, 1].tolist()],
                supersedes[start:stop],
                strict=True,
            )
        )
        yield buffer.getvalue()


def read_dataset(folder: Path) -> Dataset:
    """The data set in a compiled folder, once every file has the digest that the manifest gives."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    if manifest.get("stream"):
        raise InputError(
            f"{folder}: was compiled as a stream and holds question rows and edges alone; read its "
            f"{PISTOL}, or "
            "compile again with --no-stream"
        )
    types = read_types(folder / TYPES) if (folder / TYPES).is_dir() else {}
    return _read_json(
        folder / GRAPH,
        lambda stored: Dataset(
            name=stored["graph"]["name"],
            graph=_graph_from(stored),
            items=_read_lines(folder / ITEMS, _item),
            contracts=_read_lines(folder / CONTRACTS, lambda row: Contract(**row)),
            holdout=_read_lines(folder / HOLDOUT, _item),
            khop=_read_lines(folder / KHOP, lambda row: KHop(_item(row), tuple(row["edges"]))),
            seed=manifest["seed"],
            temporal=manifest["temporal"],
            types=types,
            factual=_read_lines(folder / FACTUAL, _item),
            unknown=tuple(manifest["unknown"]),
        ),
    )


def _item(row: Mapping[str, Any]) -> Item:
    return Item(
        row["question"],
        row["answer"],
        row["edge"],
        row["group"],
        row["attribute"],
        row["paraphrase"],
        tuple(row["perturbed"]),
    )


def _read_lines(path: Path, make: Callable[[Any], _T]) -> tuple[_T, ...]:
    def checked(number: int, row: Any) -> _T:
        try:
            return make(row)
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{path}, row {number}: not what Vestige writes ({one_line(str(error), width=200)})"
            ) from error

    return tuple(checked(number, row) for number, row in enumerate(read_jsonl(path), 1))


def _read_json(path: Path, make: Callable[[Any], _T]) -> _T:
    stored = read_json(path)
    try:
        return make(stored)
    except (KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path}: not what Vestige writes ({one_line(str(error), width=200)})") from error


def _node_link(dataset: Dataset) -> dict[str, Any]:
    """The graph in networkx's node-link form, with what contracts tell of each node: name, kind, address."""
    graph = dataset.graph
    told: dict[str, dict[str, str]] = {}
    for contract in dataset.contracts:
        type_ = dataset.types[contract.type]
        for role, node in contract.parties.items():
            facts = told.setdefault(node, {})
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
            {"id": label, "degree": degree, **told.get(label, {})}
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


def _graph_from(stored: Mapping[str, Any]) -> Graph:
    """The graph that `_node_link` wrote, with its nodes and edges in their order."""
    nodes = tuple(node["id"] for node in stored["nodes"])
    number = {label: n for n, label in enumerate(nodes)}
    ends = [(number[e["source"]], number[e["target"]]) for e in stored["edges"]]
    types = tuple(dict.fromkeys(e["type"] for e in stored["edges"]))
    graph = Graph(
        name=stored["graph"]["name"],
        nodes=nodes,
        ends=np.array(ends, dtype=np.int64).reshape(-1, 2),
        types=types,
        type_of=np.array([types.index(e["type"]) for e in stored["edges"]], dtype=np.int64),
        parts={int(n): name for n, name in stored["graph"]["parts"].items()},
    )
    return graph.with_ids([e["id"] for e in stored["edges"]])
