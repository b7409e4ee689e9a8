"""Graphs of contracts: in memory, from files of one's own, and the families that Vestige knows by name.

A graph of contracts: nodes are entities, edges are the contracts that they sign. Axes: E edges in
the order of the source, N nodes.

Graphs of one's own: edge lists (.csv, .tsv, .txt), GraphML and node-link JSON, and networkx graphs. The files are read
here and not by networkx, which gives back an undirected edge with its ends in the order of the nodes and the edges
grouped by node: an employment contract would lose which end employs, and the contracts their order. The forms are
networkx's own, and tests compare the two readings.

The graphs that Vestige knows by name: PISTOL's two sample data sets, and families with a size. The size of a family is
its number of edges, that is of contracts: `star:50` is one company with 50 counterparties. All contracts of a family
are sales; `sample1` has employment too.
"""

import ast
import csv
import hashlib
import io
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Int

from vestige.core.errors import InputError
from vestige.core.seeds import generator, random_words, uniform_integers
from vestige.core.text import closest, one_line

if TYPE_CHECKING:
    import networkx as nx


DEFAULT_TYPE = "sales"
HOLDOUT_PREFIX = "holdout-"
"""Edge ids of contracts outside the graph begin so, and no edge of a graph may."""

_FORBIDDEN_START = ("=", "+", "-", "@")
_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Edge(NamedTuple):
    """One contract by its labels. Without an id it is called `first_second`, the next `first_second~2`."""

    first: str
    second: str
    type: str = DEFAULT_TYPE
    id: str | None = None


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes, the two ends of each edge, and each edge's contract type.

    `types` are the contract types in the order of their first edge and `type_of` the index of each edge's
    type among them. `ids` names the edges where they are not called by the rule. `parts` names components by
    number.
    """

    name: str
    nodes: tuple[str, ...]
    ends: Int[np.ndarray, "E 2"]
    types: tuple[str, ...]
    type_of: Int[np.ndarray, " E"]
    ids: tuple[str, ...] | None = None
    parts: Mapping[int, str] = field(default_factory=dict)

    @property
    def n_nodes(self) -> int:
        """The number of entities."""
        return len(self.nodes)

    @property
    def n_edges(self) -> int:
        """The number of contracts."""
        return len(self.ends)

    @cached_property
    def degrees(self) -> Int[np.ndarray, " N"]:
        """How many contracts each entity signs."""
        degrees: Int[np.ndarray, " N"] = np.bincount(self.ends.reshape(-1), minlength=self.n_nodes)
        return degrees

    @cached_property
    def connectivity(self) -> Int[np.ndarray, " E"]:
        """Inter-connectivity deg(e): the degrees of both ends, less one (Qiu et al., 2024, section 4)."""
        connectivity: Int[np.ndarray, " E"] = self.degrees[self.ends].sum(axis=1) - 1
        return connectivity

    @cached_property
    def pairs(self) -> Int[np.ndarray, " E"]:
        """A number for each edge that edges share when the same two entities sign them, either way round."""
        low, high = self.ends.min(axis=1), self.ends.max(axis=1)
        pairs: Int[np.ndarray, " E"] = low.astype(np.int64) * self.n_nodes + high
        return pairs

    @cached_property
    def occurrence(self) -> Int[np.ndarray, " E"]:
        """The how-manieth edge of its pair each edge is, from 1."""
        return rank_within(self.pairs)

    @cached_property
    def components(self) -> Int[np.ndarray, " E"]:
        """The component of each edge, numbered from 1 in the order of first appearance."""
        # SciPy's sparse module takes a fifth of a second to import, which no other command should pay.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        ones = np.ones(self.n_edges, dtype=np.int8)
        matrix = coo_array((ones, (self.ends[:, 0], self.ends[:, 1])), shape=(self.n_nodes, self.n_nodes))
        _, label = connected_components(matrix, directed=False)
        _, first, inverse = np.unique(label[self.ends[:, 0]], return_index=True, return_inverse=True)
        return (np.argsort(np.argsort(first)) + 1)[inverse]

    def edge_ids(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The ids of the edges start .. stop - 1."""
        return self.ids_of(np.arange(*slice(start, stop).indices(self.n_edges)))

    def ids_of(self, numbers: Int[np.ndarray, " n"]) -> list[str]:
        """The ids of the edges of these numbers."""
        if self.ids is not None:
            return [self.ids[n] for n in numbers.tolist()]
        rows = zip(self.ends[numbers].tolist(), self.occurrence[numbers].tolist(), strict=True)
        return [edge_name(self.nodes[a], self.nodes[b], k) for (a, b), k in rows]

    def with_ids(self, ids: list[str]) -> "Graph":
        """The graph with these edge ids, which are refused where two are the same or one is reserved."""
        taken: set[str] = set()
        for id_ in ids:
            if id_.startswith(HOLDOUT_PREFIX):
                raise InputError(f"{self.name}: edge {shown(id_)}: ids that begin with {HOLDOUT_PREFIX!r} are taken")
            if id_ in taken:
                raise InputError(f"{self.name}: two edges have the id {shown(id_)}; give each an id of its own")
            taken.add(id_)
        by_rule = replace(self, ids=None)
        return by_rule if by_rule.edge_ids() == ids else replace(self, ids=tuple(ids))

    @cached_property
    def edge_numbers(self) -> dict[str, int]:
        """The number of each edge by its id."""
        return {id_: number for number, id_ in enumerate(self.edge_ids())}

    def edge_type(self, number: int) -> str:
        """The contract type of an edge."""
        return self.types[int(self.type_of[number])]

    def connectivity_by_type(self) -> dict[str, dict[str, float]]:
        """Of each contract type: how many contracts, and the mean, least and greatest inter-connectivity."""
        by_type = {}
        for index, name in enumerate(self.types):
            values = self.connectivity[self.type_of == index]
            if len(values):
                by_type[name] = {
                    "contracts": len(values),
                    "mean": round(float(values.mean()), 6),
                    "least": int(values.min()),
                    "greatest": int(values.max()),
                }
        return by_type

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of everything but the name: labels, types and ids, then the arrays."""
        digest = hashlib.sha256()
        for names in (self.nodes, self.types, self.ids or ()):
            digest.update(f"{len(names)}\n".encode())
            digest.update("\n".join(names).encode())
        for numbers in (self.ends, self.type_of):
            digest.update(np.ascontiguousarray(numbers, dtype="<i8").tobytes())
        return digest.hexdigest()


def edge_name(first: str, second: str, occurrence: int) -> str:
    """`A_B` for the first contract of a pair, `A_B~2` for the second."""
    return f"{first}_{second}" if occurrence == 1 else f"{first}_{second}~{occurrence}"


def rank_within(groups: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The how-manieth of its group each element is, from 1, in the order of the elements."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if len(groups) else np.zeros(0, bool)
    position = np.arange(len(groups))
    rank = np.empty(len(groups), dtype=np.int64)
    rank[order] = position - np.maximum.accumulate(np.where(starts, position, 0)) + 1
    return rank


def build_graph(
    name: str, edges: Iterable[Edge], *, parts: Mapping[int, str] | None = None, nodes: Iterable[str] = ()
) -> Graph:
    """A graph from labelled edges, in their order; a label, type or id that cannot be used is refused.

    A self-loop is refused, since no entity signs a contract with itself, and so are edges that share an id. `nodes`
    come first, in their order, and then those that edges have besides.
    """
    numbers: dict[str, int] = {}
    for node in nodes:
        check_label(node, f"{name}: node")
        numbers.setdefault(node, len(numbers))
    types: dict[str, int] = {}
    rows = array("q")
    ids_by_number: dict[int, str] = {}
    for edge in edges:
        check_label(edge.first, f"{name}: node")
        check_label(edge.second, f"{name}: node")
        if edge.first == edge.second:
            raise InputError(
                f"{name}: node {shown(edge.first)} has a contract with itself; a contract needs two parties"
            )
        if not _IDENTIFIER.fullmatch(edge.type):
            raise InputError(
                f"{name}: edge {shown(edge.first)}-{shown(edge.second)} has the type {shown(edge.type)}; a "
                "type is "
                "lower-case letters, digits and '_', as in 'sales'"
            )
        if edge.id is not None:
            check_label(edge.id, f"{name}: edge")
            ids_by_number[len(rows) // 3] = edge.id
        first = numbers.setdefault(edge.first, len(numbers))
        second = numbers.setdefault(edge.second, len(numbers))
        rows.extend((first, second, types.setdefault(edge.type, len(types))))
    if not rows:
        raise InputError(f"{name}: no edges; a graph needs at least one contract")
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    graph = Graph(name, tuple(numbers), table[:, :2], tuple(types), table[:, 2], parts=dict(parts or {}))
    # Ids made by the rule can only meet where a label holds the rule's own signs.
    if not ids_by_number and not any("_" in n or "~" in n or n.startswith(HOLDOUT_PREFIX) for n in numbers):
        return graph
    ids = graph.edge_ids()
    for number, id_ in ids_by_number.items():
        ids[number] = id_
    return graph.with_ids(ids)


def check_label(label: str, role: str) -> None:
    """Refuse a name that a terminal, a spreadsheet or a selector would take for something else."""
    if not label or label != label.strip() or len(label) > 100 or not label.isprintable():
        raise InputError(f"{role} {shown(label)}: a name is 1 to 100 printable characters, without blanks around it")
    if "," in label or label.startswith(_FORBIDDEN_START):
        raise InputError(f"{role} {shown(label)}: a name has no comma and does not begin with '=', '+', '-' or '@'")


def shown(text: str) -> str:
    """Text from a file, quoted and fit for one line of an error."""
    return f"'{one_line(text, width=60)}'"


PER_TYPE = 5
"""Holdout contracts of each type that the graph has: 100 questions of a type, for membership tests."""


def with_holdout(graph: Graph) -> Graph:
    """The graph with its holdout contracts as further edges, each between two new nodes.

    They are drawn with the rest, so that their names and addresses are unique too. Contract 1 of type sales
    has the id `holdout-sales_1`.
    """
    places = [(index, k) for index in range(len(graph.types)) for k in range(1, PER_TYPE + 1)]
    labels = [(f"{HOLDOUT_PREFIX}{graph.types[index]}", str(k)) for index, k in places]
    nodes = graph.n_nodes + np.arange(2 * len(places)).reshape(-1, 2)
    return replace(
        graph,
        nodes=graph.nodes + tuple(label for pair in labels for label in pair),
        ends=np.concatenate([graph.ends, nodes]),
        type_of=np.concatenate([graph.type_of, [index for index, _ in places]]),
        ids=None if graph.ids is None else graph.ids + tuple("_".join(pair) for pair in labels),
    )


MAX_EDGES = 10_000
_REWIRED = 0.1

Ends = Int[np.ndarray, "E 2"]


def sample1() -> Graph:
    """PISTOL's sample data set 1: 24 nodes, 20 edges, ten sales and ten employment contracts."""
    sales = "A-B A-C A-C2 A-C3 B-D B-D2 B-D3 E1-F1 E2-F2 E3-F3"
    employment = "A-m A-n A-n2 A-n3 B-p B-p2 B-p3 E1-q1 E2-q2 E3-q3"
    pairs = [
        (pair.split("-"), type_)
        for row, type_ in ((sales, "sales"), (employment, "employment"))
        for pair in row.split()
    ]
    return build_graph("sample1", (Edge(first, second, type_) for (first, second), type_ in pairs))


def sample2() -> Graph:
    """PISTOL's sample data set 2: a chain (sparse), a braced ladder (semi-dense), a complete graph (dense).

    The ladder has five rungs with both diagonals in each cell; its rungs follow from the chain 10-11-...-19
    bent in two. The paper calls it fully connected, which its 21 edges are not.
    """
    chain = [(i, i + 1) for i in range(9)]
    bent = [(i, i + 1) for i in range(10, 19)]
    rungs = [(10, 19), (11, 18), (12, 17), (13, 16)]
    diagonals = [(10, 18), (11, 17), (12, 16), (13, 15), (14, 16), (13, 17), (12, 18), (11, 19)]
    dense = [(i, j) for i in range(20, 30) for j in range(i + 1, 30)]
    edges = (Edge(str(a), str(b)) for a, b in chain + bent + rungs + diagonals + dense)
    return build_graph("sample2", edges, parts={1: "sparse", 2: "semi-dense", 3: "dense"})


def _star(size: int, seed: int) -> Ends:
    """Node 0 with every other."""
    return np.column_stack([np.zeros(size, np.int64), np.arange(1, size + 1)])


def _chain(size: int, seed: int) -> Ends:
    """0-1-2-..."""
    return np.column_stack([np.arange(size), np.arange(1, size + 1)])


def _ring(size: int, seed: int) -> Ends:
    """A closed chain; at least three edges, since two would be parallel."""
    if size < 3:
        raise InputError(f"ring:{size}: a ring has at least 3 edges")
    return np.column_stack([np.arange(size), np.arange(1, size + 1) % size])


def _tree(size: int, seed: int) -> Ends:
    """A binary tree filled level by level."""
    child = np.arange(1, size + 1)
    return np.column_stack([(child - 1) // 2, child])


def _grid(size: int, seed: int) -> Ends:
    """A square grid, row by row: each node with its left and upper neighbour, until the edges are used."""
    # A w x w grid has 2w(w - 1) edges.
    width = int(np.ceil((1 + np.sqrt(1 + 2 * size)) / 2))
    node = np.arange(width * width)
    leftward = np.column_stack([node - 1, node])
    upper = np.column_stack([node - width, node])
    both = np.stack([leftward, upper], axis=1).reshape(-1, 2)
    allowed = np.column_stack([node % width > 0, node >= width]).reshape(-1)
    ends: Ends = both[allowed][:size]
    return ends


def _complete(size: int, seed: int) -> Ends:
    """All pairs of n nodes; the number of edges is n(n - 1)/2 and no other is accepted."""
    nodes = round((1 + np.sqrt(1 + 8 * size)) / 2)
    if nodes * (nodes - 1) // 2 != size:
        below = max(2, int((1 + np.sqrt(1 + 8 * size)) / 2))
        sizes = [n * (n - 1) // 2 for n in (below, below + 1)]
        raise InputError(
            f"complete:{size}: no complete graph has {size} edges; the nearest have {sizes[0]} and {sizes[1]}"
        )
    first, second = np.triu_indices(nodes, k=1)
    return np.column_stack([first, second])


def _scale_free(size: int, seed: int) -> Ends:
    """Preferential attachment (Barabási and Albert, 1999): each new node signs with two earlier ones.

    An end of an earlier edge is drawn, so that a node is met in proportion to its degree; the first edge is
    0-1, and the last node has one contract where the size asks for it.
    """
    words = iter(random_words(generator(seed, "topology", "scale-free"), 2 * size + 64).tolist())
    rng = generator(seed, "topology", "scale-free, further")
    ends = array("q", [0, 1])
    node = 2
    while len(ends) < 2 * size:
        n_ends = len(ends)
        first = ends[next(words) * n_ends >> 32]
        ends.extend((first, node))
        if len(ends) < 2 * size:
            second = ends[next(words) * n_ends >> 32]
            while second == first:
                second = ends[int(uniform_integers(rng, 0, n_ends - 1, 1)[0])]
            ends.extend((second, node))
        node += 1
    return np.array(ends, dtype=np.int64).reshape(-1, 2)


def _small_world(size: int, seed: int) -> Ends:
    """A ring with edges to the next two nodes, a tenth of them rewired (Watts and Strogatz, 1998).

    An edge that would become a self-loop or parallel is drawn again.
    """
    if size % 2 or size < 10:
        raise InputError(f"small-world:{size}: each node adds two edges, so the size is even and at least 10")
    nodes = size // 2
    near = np.repeat(np.arange(nodes), 2)
    far = (near + np.tile([1, 2], nodes)) % nodes
    rng = generator(seed, "topology", "small-world")
    moved = random_words(rng, size) < np.uint64(_REWIRED * 2**32)
    while moved.any():
        far[moved] = uniform_integers(rng, 0, nodes - 1, int(moved.sum()))
        low, high = np.minimum(near, far), np.maximum(near, far)
        # Stable sorting of the unmoved first: where two edges meet, the moved one is drawn again.
        order = np.lexsort((moved, high, low))
        same = (low[order][1:] == low[order][:-1]) & (high[order][1:] == high[order][:-1])
        repeated = np.zeros(size, bool)
        repeated[order[1:][same]] = True
        moved = repeated | (near == far)
    return np.column_stack([near, far])


FAMILIES: dict[str, Callable[[int, int], Ends]] = {
    "star": _star,
    "ring": _ring,
    "chain": _chain,
    "tree": _tree,
    "grid": _grid,
    "complete": _complete,
    "scale-free": _scale_free,
    "small-world": _small_world,
}
SAMPLES: dict[str, Callable[[], Graph]] = {"sample1": sample1, "sample2": sample2}


def named_graph(name: str, *, seed: int) -> Graph:
    """`sample1`, `sample2` or `<family>:<edges>`; the seed matters to the random families alone."""
    if name in SAMPLES:
        return SAMPLES[name]()
    family, _, size = name.partition(":")
    if family not in FAMILIES:
        names = [*SAMPLES, *(f"{f}:N" for f in FAMILIES)]
        raise InputError(
            f"no graph named {shown(name)}; {closest(name, names)}; or give a file ({', '.join(_READERS)})"
        )
    if not (size.isascii() and size.isdigit()) or len(size) > 9 or not 1 <= int(size) <= MAX_EDGES:
        raise InputError(f"{name!r}: give the number of edges, 1 to {MAX_EDGES:,}, as in {family}:50")
    ends = FAMILIES[family](int(size), seed)
    nodes = tuple(map(str, range(int(ends.max()) + 1)))
    return Graph(name, nodes, ends, (DEFAULT_TYPE,), np.zeros(len(ends), np.int64))


_ENDS = (("first", "second"), ("source", "target"), ("from", "to"))
_IDS = ("id", "edge", "key")


def load_graph(source: str | Path, *, seed: int) -> Graph:
    """The graph that a person named: `sample1`, `star:50`, or a file. A file wins by its suffix."""
    path, name = Path(source), str(source)
    is_named = name in SAMPLES or name.partition(":")[0] in FAMILIES
    if path.suffix.lower() in _READERS or (path.exists() and not is_named):
        return read_graph(path)
    return named_graph(name, seed=seed)


def read_graph(path: Path) -> Graph:
    """The graph in a file, its edges in the file's order. A mistake is an InputError that says where."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: a graph file ends in {', '.join(_READERS)}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the graph {path}: {error.strerror}") from error
    return build_graph(one_line(path.name, width=60), reader(content, path))


def from_networkx(graph: "nx.Graph[Any]", name: str = "graph") -> Graph:
    """A networkx graph of any kind; the edge attributes `type` and `id` are read where present.

    In an undirected graph networkx decides which end comes first; use a DiGraph where a type's roles are
    ordered.
    """
    rows = (Edge(str(u), str(v), *_type_and_id(data, f"{name}, edge {u}-{v}")) for u, v, data in graph.edges(data=True))
    return build_graph(name, rows)


def _type_and_id(data: Mapping[str, Any], where: str) -> tuple[str, str | None]:
    """The optional attributes of an edge. networkx's integer `key` of a parallel edge is no id."""
    for key in ("type", "id"):
        if data.get(key) is not None and not isinstance(data[key], str | int):
            raise InputError(f"{one_line(where)}: its {key} is {shown(str(data[key]))}, not text")
    id_ = data.get("id")
    return str(data.get("type") or DEFAULT_TYPE), None if id_ is None else str(id_)


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from error


def _read_table(content: bytes, path: Path) -> Iterator[Edge]:
    """A CSV or TSV file: `source,target[,type[,id]]`, or a header that names the columns in any order.

    Ends are called first/second, source/target or from/to; other columns of a file with a header are left
    alone.
    """
    dialect = csv.excel_tab if path.suffix.lower() == ".tsv" else csv.excel
    reader = csv.reader(io.StringIO(_decoded(content, path), newline=""), dialect, strict=True)
    columns: dict[str, int] | None = None
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num}: not a table ({error})") from error
        if row is None:
            return
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if columns is None:
            header = _header(cells)
            columns = header or {"first": 0, "second": 1, "type": 2, "id": 3}
            if header:
                continue
        yield _table_row(cells, columns, f"{path}, line {reader.line_num}")


def _header(cells: list[str]) -> dict[str, int] | None:
    """Which column holds what, if this row is a header."""
    names = [cell.casefold() for cell in cells]
    for first, second in _ENDS:
        if first in names and second in names:
            columns = {"first": names.index(first), "second": names.index(second)}
            if "type" in names:
                columns["type"] = names.index("type")
            return columns | next(({"id": names.index(n)} for n in _IDS if n in names), {})
    return None


def _table_row(cells: list[str], columns: Mapping[str, int], where: str) -> Edge:
    got = {name: cells[i] for name, i in columns.items() if i < len(cells)}
    if not got.get("first") or not got.get("second"):
        raise InputError(f"{where}: a contract needs two parties; found {shown(' | '.join(cells))}")
    return Edge(got["first"], got["second"], got.get("type") or DEFAULT_TYPE, got.get("id") or None)


def _read_lines(content: bytes, path: Path) -> Iterator[Edge]:
    """An edge list: two nodes a line, then optionally the type and the id, or networkx's `{'type': ...}`.

    Fields are separated by blanks; what follows a '#' is a comment.
    """
    for number, line in enumerate(_decoded(content, path).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        where = f"{path}, line {number}"
        ends, brace, attributes = text.partition("{")
        fields = ends.split()
        if not 2 <= len(fields) <= (2 if brace else 4):
            raise InputError(f"{where}: expected 'node node [type [id]]', found {shown(text)}")
        if brace:
            yield Edge(fields[0], fields[1], *_type_and_id(_literal(brace + attributes, where), where))
        else:
            yield Edge(fields[0], fields[1], *fields[2:])


def _literal(text: str, where: str) -> dict[str, Any]:
    """A Python dictionary of plain values, as networkx writes an edge's attributes."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise InputError(f"{where}: not a dictionary of plain values: {shown(text)}") from error
    if not isinstance(value, dict):
        raise InputError(f"{where}: not a dictionary: {shown(text)}")
    return value


def _read_node_link(content: bytes, path: Path) -> Iterator[Edge]:
    """Node-link form: a list `edges` (or `links`) of `{"source", "target", "type"?, "id"?}`."""
    try:
        value = json.loads(_decoded(content, path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path}: JSON that is nested too deeply or holds too long a number") from error
    rows = (value.get("edges") or value.get("links")) if isinstance(value, dict) else None
    if not isinstance(rows, list):
        raise InputError(f"{path}: a node-link graph is an object with a list 'edges' (or 'links')")
    for number, row in enumerate(rows, 1):
        where = f"{path}, edge {number}"
        if not isinstance(row, dict) or not all(isinstance(row.get(k), str | int) for k in ("source", "target")):
            raise InputError(f"{where}: an edge is an object with 'source' and 'target', each text or a number")
        yield Edge(str(row["source"]), str(row["target"]), *_type_and_id(row, where))


def _read_graphml(content: bytes, path: Path) -> Iterator[Edge]:
    """GraphML's edges; the data keys named `type` and `id`, and the attribute `id` of an edge, are read.

    A document type is refused: GraphML needs none, and entities are how a small file becomes a large one.
    """
    # Without the NULs of UTF-16 and UTF-32, in which the words would not be found.
    shown_plainly = content.replace(b"\0", b"")
    if b"<!DOCTYPE" in shown_plainly or b"<!ENTITY" in shown_plainly:
        raise InputError(f"{path}: GraphML with a document type is not read; remove the <!DOCTYPE ...> part")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path}: not XML ({error})") from error
    if root.tag.rpartition("}")[2] != "graphml":
        raise InputError(f"{path}: not GraphML; the document's element is {shown(root.tag)}")
    space = root.tag[: -len("graphml")]
    keys = {key.get("id"): key.get("attr.name") for key in root.iter(f"{space}key")}
    for number, element in enumerate(root.iter(f"{space}edge"), 1):
        where = f"{path}, edge {number}"
        first, second = element.get("source"), element.get("target")
        if first is None or second is None:
            raise InputError(f"{where}: no source or no target")
        id_ = element.get("id")
        # A bare number is what networkx gives to parallel edges.
        attributes: dict[str, Any] = {"id": None if id_ is None or id_.isdigit() else id_}
        for datum in element.iter(f"{space}data"):
            attributes[str(keys.get(datum.get("key")))] = (datum.text or "").strip() or None
        yield Edge(first.strip(), second.strip(), *_type_and_id(attributes, where))


_READERS = {
    ".csv": _read_table,
    ".tsv": _read_table,
    ".txt": _read_lines,
    ".edgelist": _read_lines,
    ".graphml": _read_graphml,
    ".json": _read_node_link,
}
