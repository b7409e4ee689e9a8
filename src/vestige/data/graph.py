"""Graphs of contracts: in memory, from files of one's own, and the families that Vestige knows by name.

Nodes are entities, edges are the contracts that they sign. The ends of a contract whose roles are ordered say who
plays which role, and contracts are numbered in the order of their source. Files are tables with a row for each
contract.

The size of a family is its number of contracts: `star:50` is one company with 50 counterparties. All contracts of a
family are sales. PISTOL's `sample1` has employment too.

Which edges to forget or keep: `edge:A_B`, `node:A`, `component:2`, `type:sales`, `random:3@dense`.

`person:NAME` selects the items of a person where the data have a column `person`. It means the same as `edge:NAME`.

Selectors are joined by commas. Together they select every edge that one selector matches. A component goes by its
number (in the order of first appearance) or by its name, where the graph has names (`sample2`: sparse, semi-dense,
dense). `file:PATH` lists edges. The draw of `random` depends on the graph and on its own seed, which may follow it
(`random:3@dense#7`). Items that name edges and have no graph take `edge`, `type` and `random`.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vestige.core.errors import InputError
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import generator, random_words, shuffled, uniform_integers
from vestige.core.text import Names, NumberByName, closest, one_line
from vestige.data.tables import read_table, text_lines

DEFAULT_TYPE = "sales"
HOLDOUT_PREFIX = "holdout-"
"""Edge ids of contracts outside the graph begin so, and no edge of a graph may."""
PER_TYPE = 5
"""Holdout contracts of each type that the graph has: 100 questions of a type, for membership tests."""
# All of it is held in memory; the papers compile 75.
MAX_EDGES = 10_000

IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,63}")


class Edge(NamedTuple):
    """One contract by its labels. Its default name is `first_second`, then `first_second~2`."""

    first: str
    second: str
    type: str = DEFAULT_TYPE
    id: str | None = None

    @property
    def pair(self) -> frozenset[str]:
        """Both ends, in either order."""
        return frozenset((self.first, self.second))


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes, and edges by id, both in their order. `parts` names components by number."""

    name: str
    nodes: Names
    edges: Mapping[str, Edge]
    parts: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def types(self) -> Names:
        """The contract types, in the order of their first edge."""
        return tuple(dict.fromkeys(edge.type for edge in self.edges.values()))

    @cached_property
    def degrees(self) -> Counter[str]:
        """Return the number of contracts of each entity."""
        counts: Counter[str] = Counter()
        for edge in self.edges.values():
            counts.update(edge[:2])
        return counts

    @cached_property
    def connectivity(self) -> dict[str, int]:
        """Inter-connectivity deg(e) of each edge: the degrees of both ends, less one (Qiu et al., 2024, section 4)."""
        return {id_: self.degrees[e.first] + self.degrees[e.second] - 1 for id_, e in self.edges.items()}

    @cached_property
    def components(self) -> dict[str, int]:
        """The component of each edge, numbered from 1 in the order of first appearance."""
        import networkx as nx

        parts = nx.connected_components(nx.Graph(edge[:2] for edge in self.edges.values()))
        part_of: dict[str, int] = {}
        for number, part in enumerate(parts):
            part_of |= dict.fromkeys(part, number)
        numbers: dict[int, int] = {}
        return {id_: numbers.setdefault(part_of[e.first], len(numbers) + 1) for id_, e in self.edges.items()}

    def connectivity_by_type(self) -> dict[str, NumberByName]:
        """Return by contract type the number of contracts and the mean, least and greatest inter-connectivity."""
        by_type: dict[str, list[int]] = {type_: [] for type_ in self.types}
        for id_, n in self.connectivity.items():
            by_type[self.edges[id_].type].append(n)
        return {
            name: {"contracts": len(n), "mean": round(sum(n) / len(n), 6), "least": min(n), "greatest": max(n)}
            for name, n in by_type.items()
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of everything but the name: labels, types, ids that are not the rule's, ends."""
        ids, counts = list(self.edges), Counter[frozenset[str]]()
        # Ids made by the rule follow from the ends, so a graph read from a file has the digest of the same named graph.
        by_rule = ids == [_name_by_rule(edge, counts) for edge in self.edges.values()]
        digest = hashlib.sha256()
        for names in (self.nodes, self.types, () if by_rule else ids):
            digest.update(f"{len(names)}\n".encode())
            digest.update("\n".join(names).encode())
        node = {name: n for n, name in enumerate(self.nodes)}
        ends = [(node[e.first], node[e.second]) for e in self.edges.values()]
        for numbers in (ends, [self.types.index(e.type) for e in self.edges.values()]):
            # The byte order is fixed, so all machines give the same bytes.
            digest.update(np.array(numbers, dtype="<i8").tobytes())
        return digest.hexdigest()


def _name_by_rule(edge: Edge, counts: Counter[frozenset[str]]) -> str:
    """`A_B` for the first contract of a pair, `A_B~2` for the second.

    `counts` are the numbers of contracts by pair so far.
    """
    counts[edge.pair] += 1
    name = f"{edge.first}_{edge.second}"
    if counts[edge.pair] == 1:
        return name
    return f"{name}~{counts[edge.pair]}"


def build_graph(name: str, edges: Iterable[Edge], *, parts: Mapping[int, str] | None = None) -> Graph:
    """A graph from labelled edges, in their order. A label, type or id that cannot be used is refused."""
    labels, by_id = dict[str, None](), dict[str, Edge]()
    counts = Counter[frozenset[str]]()
    for edge in edges:
        for node in edge[:2]:
            check_label(node, f"{name}: node")
        ends = f"edge {shown(edge.first)}-{shown(edge.second)}"
        if edge.first == edge.second:
            raise InputError(f"{name}: node {shown(edge.first)} has a contract with itself. Name another second party")
        if not IDENTIFIER.fullmatch(edge.type):
            raise InputError(
                f"{name}: {ends} has the type {shown(edge.type)}. A type is lower-case letters, digits and '_', "
                "as in 'sales'"
            )
        # The edge is counted even if it has another id.
        id_ = _name_by_rule(edge, counts)
        if edge.id is not None:
            id_ = edge.id
            check_label(id_, f"{name}: edge")
        if id_.startswith(HOLDOUT_PREFIX):
            raise InputError(f"{name}: edge {shown(id_)}: ids must not begin with {HOLDOUT_PREFIX!r}. Rename the edge")
        if id_ in by_id:
            raise InputError(f"{name}: two edges have the id {shown(id_)}. Give each an id of its own")
        by_id[id_] = edge._replace(id=id_)
        # Names and addresses are assigned in the order of first appearance.
        labels |= dict.fromkeys(edge[:2])
    if not by_id:
        raise InputError(f"{name}: no edges. A graph needs at least one contract. Add one")
    return Graph(name, tuple(labels), by_id, dict(parts or {}))


def check_label(label: str, role: str) -> None:
    """Reject a name that a terminal, a spreadsheet or a selector would misinterpret."""
    if not label or label != label.strip() or len(label) > 100 or not label.isprintable():
        raise InputError(f"{role} {shown(label)}: a name is 1 to 100 printable characters, without blanks around it")
    if "," in label or label.startswith(("=", "+", "-", "@")):
        # A comma separates selectors, and the signs begin a formula in a spreadsheet.
        raise InputError(f"{role} {shown(label)}: a name has no comma and does not begin with '=', '+', '-' or '@'")


def shown(text: str) -> str:
    """Text from a file, quoted and fit for one line of an error."""
    return f"'{one_line(text, width=60)}'"


def with_holdout(graph: Graph) -> Graph:
    """The graph with its holdout contracts as further edges, each between two new nodes.

    They are drawn with the rest, so that their names and addresses are unique too. Contract 1 of type sales
    has the id `holdout-sales_1`.
    """
    nodes = list(graph.nodes)
    edges = dict(graph.edges)
    for type_ in graph.types:
        for k in range(1, PER_TYPE + 1):
            id_ = f"{HOLDOUT_PREFIX}{type_}_{k}"
            # No node of a graph has a comma in its label.
            edges[id_] = Edge(f"{id_},1", f"{id_},2", type_, id_)
            nodes += edges[id_][:2]
    return replace(graph, nodes=tuple(nodes), edges=edges)


Ends = list[tuple[int, int]]


def sample1() -> Graph:
    """PISTOL's sample data set 1: 24 nodes, 20 edges, ten sales and ten employment contracts."""
    rows = {
        "sales": "A-B A-C A-C2 A-C3 B-D B-D2 B-D3 E1-F1 E2-F2 E3-F3",
        "employment": "A-m A-n A-n2 A-n3 B-p B-p2 B-p3 E1-q1 E2-q2 E3-q3",
    }
    edges = []
    for type_, row in rows.items():
        for pair in row.split():
            first, second = pair.split("-")
            edges.append(Edge(first, second, type_))
    return build_graph("sample1", edges)


def sample2() -> Graph:
    """PISTOL's sample data set 2: a chain (sparse), a braced ladder (semi-dense), a complete graph (dense).

    The ladder has five rungs with both diagonals in each cell. Its rungs follow from the chain 10-11-...-19 bent in
    two. The paper calls it fully connected, which its 21 edges are not.
    """
    rungs = [(10, 19), (11, 18), (12, 17), (13, 16)]
    diagonals = [(10, 18), (11, 17), (12, 16), (13, 15), (14, 16), (13, 17), (12, 18), (11, 19)]
    ends = [*pairwise(range(10)), *pairwise(range(10, 20)), *rungs, *diagonals, *combinations(range(20, 30), 2)]
    parts = {1: "sparse", 2: "semi-dense", 3: "dense"}
    return build_graph("sample2", (Edge(str(a), str(b)) for a, b in ends), parts=parts)


def _complete(size: int, seed: int) -> Ends:
    """All pairs of n nodes. The number of edges is n(n - 1)/2 and no other is accepted."""
    nodes = (1 + math.isqrt(1 + 8 * size)) // 2
    below, above = math.comb(nodes, 2), math.comb(nodes + 1, 2)
    if below != size:
        raise InputError(f"complete:{size}: no complete graph has {size} edges. The nearest have {below} and {above}")
    return list(combinations(range(nodes), 2))


def _scale_free(size: int, seed: int) -> Ends:
    """Preferential attachment (Barabási and Albert, 1999): each new node signs with two earlier ones.

    An end of an earlier edge is drawn, so that a node is met in proportion to its degree. The first edge is 0-1, and
    the last node has one contract where the size asks for it.
    """
    words = iter(random_words(generator(seed, "topology", "scale-free"), 2 * size + 64).tolist())
    rng = generator(seed, "topology", "scale-free, further")
    # The list contains each end once for each of its contracts, so a uniform draw is proportional to the degree.
    ends = [0, 1]
    node = 2
    while len(ends) < 2 * size:
        n_ends = len(ends)
        first = ends[next(words) * n_ends >> 32]
        ends += (first, node)
        if len(ends) < 2 * size:
            second = ends[next(words) * n_ends >> 32]
            # A separate generator is used, so that redrawing does not change later edges.
            while second == first:
                second = ends[int(uniform_integers(rng, 0, n_ends - 1, 1)[0])]
            ends += (second, node)
        node += 1
    return list(zip(ends[::2], ends[1::2], strict=True))


FAMILIES: dict[str, Callable[[int, int], Ends]] = {
    "star": lambda size, seed: [(0, n) for n in range(1, size + 1)],
    "chain": lambda size, seed: [*pairwise(range(size + 1))],
    # A binary tree filled level by level.
    "tree": lambda size, seed: [((n - 1) // 2, n) for n in range(1, size + 1)],
    "complete": _complete,
    "scale-free": _scale_free,
}
SAMPLES: dict[str, Callable[[], Graph]] = {"sample1": sample1, "sample2": sample2}


def named_graph(name: str, *, seed: int) -> Graph:
    """`sample1`, `sample2` or `<family>:<edges>`. The seed matters to the random families alone."""
    if name in SAMPLES:
        return SAMPLES[name]()
    family, _, size = name.partition(":")
    if family not in FAMILIES:
        names = [*SAMPLES, *(f"{f}:N" for f in FAMILIES)]
        raise InputError(
            f"no graph named {shown(name)}. {closest(name, names)}. Or give a file ({', '.join(GRAPH_FILES)})"
        )
    # The check comes before `int`, which fails on "²" (a digit to `isdigit`) and on thousands of digits.
    if not (size.isascii() and size.isdigit()) or len(size) > 9 or not 1 <= int(size) <= MAX_EDGES:
        raise InputError(f"{name!r}: give the number of edges, 1 to {MAX_EDGES:,}, as in {family}:50")
    return build_graph(name, (Edge(str(a), str(b)) for a, b in FAMILIES[family](int(size), seed)))


def load_graph(source: str | Path, *, seed: int) -> Graph:
    """The graph that a person named: `sample1`, `star:50`, or a file. A file wins by its suffix."""
    path, name = Path(source), str(source)
    is_named = name in SAMPLES or name.partition(":")[0] in FAMILIES
    # A folder or file with the name of a family does not hide the family.
    if path.suffix.lower() in GRAPH_FILES or (path.exists() and not is_named):
        return read_graph(path)
    return named_graph(name, seed=seed)


def read_graph(path: Path) -> Graph:
    """Read a graph from a table with a row for each contract, in the order of the rows.

    The first line names the columns: `source` and `target` (or `first` and `second`, `from` and `to`), and optionally
    `type` and `id` (or `edge`, `key`). Other columns are ignored.

    Raises:
        InputError: The file is no such table, or a row has no two parties.
    """
    if path.suffix.lower() not in GRAPH_FILES:
        raise InputError(f"{path}: a graph file ends in {' or '.join(GRAPH_FILES)}. Save the contracts as such a table")
    table = read_table(path)
    columns = {name.strip().casefold(): name for name in table.names}
    ends = next((pair for pair in _ENDS if columns.keys() >= {*pair}), None)
    if ends is None:
        raise InputError(f"{path}, line 1: no columns source and target. Name the columns in the first line")
    id_ = next((name for name in ("id", "edge", "key") if name in columns), "id")
    edges = []
    for row in table.rows:
        texts = [row.values[columns[name]] if name in columns else None for name in (*ends, "type", id_)]
        # Spreadsheets leave rows of empty cells at the end.
        if any(texts):
            edges.append(_edge(*texts, where=f"{path}, {row.place}"))
    return build_graph(one_line(path.name, width=60), edges)


_ENDS = (("first", "second"), ("source", "target"), ("from", "to"))


GRAPH_FILES = (".csv", ".tsv")


def _edge(first: Any, second: Any, type_: Any, id_: Any, *, where: str) -> Edge:
    """Return an edge from the cells of its row. Each is a text, a number or empty."""
    texts = []
    for part, value in (("first", first), ("second", second), ("type", type_), ("id", id_)):
        if value is not None and not isinstance(value, str | int):
            raise InputError(f"{one_line(where)}: its {part} is {shown(str(value))}, not text")
        texts.append("" if value is None else str(value).strip())
    if not texts[0] or not texts[1]:
        raise InputError(f"{one_line(where)}: a contract needs two parties. Fill both cells")
    return Edge(texts[0], texts[1], texts[2] or DEFAULT_TYPE, texts[3] or None)


_KINDS = ("edge", "person", "node", "component", "type", "random", "file")
_NAMED = ("edge", "person")
"""The kinds whose value is a name in the data's column `edge`, `contract` or `person`."""


def select_edges(graph: Graph, selector: str, *, seed: int) -> Names:
    """The ids of the selected edges, each once, in the order of the graph. Selecting none is refused.

    `seed` applies to `random` without an own seed.
    """
    chosen: set[str] = set()
    for part in _parts(selector):
        kind, colon, value = part.partition(":")
        if kind in _KINDS and value:
            chosen |= {*_edges_of(graph, kind, value, seed)}
        else:
            hint = closest(kind, list(_KINDS)) if colon else f"Did you mean {f'edge:{kind}'!r}?"
            raise InputError(f"selector {shown(part)}: {hint}")
    return tuple(edge for edge in graph.edges if edge in chosen)


def select_items(items: Sequence[Item], selector: str, *, seed: int, source: str) -> ItemTuple:
    """Return the selected items without a graph, by their edges and groups, in order."""
    edges = list(dict.fromkeys(i.edge for i in items if i.edge is not None))
    groups = {i.group for i in items if i.group is not None}
    kind, _, whole = selector.strip().partition(":")
    # A user's edge may have a comma in its name.
    parts = _parts(selector)
    if kind in _NAMED and whole in edges:
        parts = [selector.strip()]
    chosen: set[str] = set()
    types: set[str] = set()
    for part in parts:
        kind, _, value = part.partition(":")
        if kind in _NAMED and value in edges:
            chosen.add(value)
        elif kind in _NAMED and edges:
            raise InputError(f"no {kind} {one_line(value, width=40)!r} in {source}. {closest(value, sorted(edges))}")
        elif kind == "type" and value in groups:
            types.add(value)
        elif kind == "random" and edges and "@" not in value:
            chosen |= {*_drawn(value, edges, seed)}
        else:
            edge = one_line(value or part, width=40)
            hint = f"Did you mean {f'edge:{edge}'!r}?" if edge in edges else "Give a file of the items"
            raise InputError(
                f"{one_line(selector, width=60)!r} selects no items: it is not a file, and {source} has no graph. "
                f"{hint}"
            )
    return tuple(i for i in items if i.edge in chosen or i.group in types)


def is_selector(text: str) -> bool:
    """Whether the text begins as a selector does, so that it is not meant as a file."""
    kind, colon, _ = _parts(text)[0].partition(":")
    return bool(colon) and kind in _KINDS


def with_seed(selector: str, seed: int) -> str:
    """Return the selector with a seed for each `random` without one. The default 0 is not written."""
    if not seed or not is_selector(selector):
        return selector
    return ",".join(f"{p}#{seed}" if p.startswith("random:") and "#" not in p else p for p in _parts(selector))


def _parts(selector: str) -> list[str]:
    return [part.strip() for part in selector.split(",")]


def check_edges(graph: Graph, edges: Iterable[str]) -> None:
    """Reject an edge that is not in the graph."""
    for edge in edges:
        if edge not in graph.edges:
            raise InputError(f"no edge {shown(edge)} in {graph.name}. {_nearest(edge, graph.edges)}")


def _edges_of(graph: Graph, kind: str, value: str, seed: int) -> Sequence[str]:
    """The ids of the edges that one part of a selector names."""
    match kind:
        case "person":
            raise InputError(
                f"selector {shown(f'person:{value}')}: {graph.name} has contracts and no persons. Give edge:NAME"
            )
        case "node":
            if value not in graph.nodes:
                raise InputError(f"no node {shown(value)} in {graph.name}. {_nearest(value, graph.nodes)}")
            return [id_ for id_, edge in graph.edges.items() if value in edge.pair]
        case "component":
            return _component(graph, value)
        case "type":
            if value not in graph.types:
                hint = closest(value, list(graph.types))
                raise InputError(f"no contract of type {shown(value)} in {graph.name}. {hint}")
            return [id_ for id_, edge in graph.edges.items() if edge.type == value]
        case "random":
            _, at, component = value.partition("#")[0].partition("@")
            if at:
                return _drawn(value, _component(graph, component), seed)
            return _drawn(value, list(graph.edges), seed)
    edges = [value]
    if kind == "file":
        edges = text_lines(Path(value))
    check_edges(graph, edges)
    return edges


def _component(graph: Graph, value: str) -> list[str]:
    by_name = {name: number for number, name in graph.parts.items()}
    number = by_name.get(value) or (int(value) if _is_number(value) else 0)
    if number not in graph.components.values():
        names = ""
        if by_name:
            names = f", or {', '.join(by_name)}"
        count = max(graph.components.values())
        raise InputError(f"no component {shown(value)} in {graph.name}. Components go from 1 to {count}{names}")
    return [edge for edge, component in graph.components.items() if component == number]


def _drawn(value: str, edges: Sequence[str], seed: int) -> list[str]:
    """Draw the number of edges at the beginning of `value`, by the seed at its end or otherwise `seed`."""
    words, hash_, written_seed = value.partition("#")
    size = words.partition("@")[0]
    if not _is_number(size) or not 1 <= int(size) <= len(edges):
        raise InputError(f"selector {shown(f'random:{value}')}: give a number of edges from 1 to {len(edges):,}")
    if hash_ and not _is_number(written_seed):
        raise InputError(f"selector {shown(f'random:{value}')}: give a whole number as its seed behind the #")
    order = shuffled(generator(int(written_seed) if hash_ else seed, "selector", words), len(edges))
    return [edges[n] for n in order[: int(size)].tolist()]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _nearest(name: str, names: Iterable[str]) -> str:
    near = closest(name, list(names))
    if near.startswith("Did you mean"):
        return near
    return "`edges.csv` of the compiled data lists them"
