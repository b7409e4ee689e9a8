"""The knowledge graph of a run: its edges, and where they are drawn.

Positions are in units of one edge's length; x to the right, y downwards.
"""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.core.files import open_input, read_json
from vestige.core.ids import file_digest

if TYPE_CHECKING:
    import networkx as nx

DRAWN_EDGES = 400
"""A graph with more edges is drawn in part: the edges nearest to the forget sets."""

_ASPECT = 2.2
_EXACT_NODES = 150


@dataclass(frozen=True)
class DrawnEdge:
    """One contract: id, type, parties, inter-connectivity, and the share that others reveal.

    `name` has the parties as in the data, such as `Gokpda Inc and Oradfa Corp`, `names` each party. Values missing from
    the table are empty or None.
    """

    id: str
    type: str
    first: str
    second: str
    connectivity: int | None
    n_entailed: int | None
    name: str = ""
    names: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class GraphDrawing:
    """The positions of the parties, the drawn edges, and each edge's curvature.

    `bends` holds one number an edge: 0 is straight, k is the k-th arc with it when several join the same parties.
    `left_out` counts the edges that are not drawn.
    """

    width: float
    height: float
    positions: Mapping[str, tuple[float, float]]
    edges: tuple[DrawnEdge, ...]
    bends: tuple[float, ...]
    left_out: int


def read_edges(run: RunFolder) -> tuple[tuple[DrawnEdge, ...], str]:
    """The run's edges. Without any, the reason why its graph cannot be drawn, or "" where the data has no graph.

    The columns are the compiler's: edge, type, connectivity, component, n_entailed, first, second.
    """
    path = run.edges
    if not path.exists():
        return (), ""
    _check_compiled(run)
    names = _party_names(run)
    edges = []
    with io.TextIOWrapper(open_input(path), encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                first, second = row["first"], row["second"]
                if not (row["edge"] and first and second):
                    raise ValueError("an edge without an id or a party")
                if first == second:
                    return (), f"Edge {row['edge']} joins a party with itself, so the graph cannot be drawn."
                connectivity, n_entailed = (int(row[c]) if row[c] else None for c in ("connectivity", "n_entailed"))
                parties = names.get(first, ""), names.get(second, "")
                # A name is told where both are known: half of one would read as another contract.
                name = " and ".join(parties) if all(parties) else ""
                edge = DrawnEdge(row["edge"], row["type"] or "", first, second, connectivity, n_entailed, name, parties)
                edges.append(edge)
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise InputError(
                f"{path}, line {reader.line_num}: no row of the compiler's table ({error}); compile the data again"
            ) from error
    return tuple(edges), "" if edges else "The graph of this run has no edges."


def _check_compiled(run: RunFolder) -> None:
    """Refuse a table of edges or a graph that was changed after it was compiled."""
    manifest = run.data / "manifest.json"
    stored = read_json(manifest) if manifest.exists() else {}
    files = stored.get("files") if isinstance(stored, dict) else None
    for path in (run.edges, run.graph):
        noted = files.get(path.name) if isinstance(files, dict) else None
        if isinstance(noted, dict) and path.exists() and file_digest(path) != noted.get("sha256"):
            raise InputError(f"{path} was changed after it was compiled. Compile the data again.")


def _party_names(run: RunFolder) -> dict[str, str]:
    """Return the parties' names by id, as far as the data set's graph has names."""
    if not run.graph.exists():
        return {}
    graph = read_json(run.graph)
    try:
        return {node["id"]: node["name"] for node in graph["nodes"] if isinstance(node.get("name"), str)}
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{run.graph}: no graph with nodes; compile the data again") from error


def draw(edges: Sequence[DrawnEdge], centre: Iterable[str]) -> GraphDrawing:
    """Lay each component out by networkx, then all in rows. The same edges give the same drawing."""
    import networkx as nx

    nearest = _nearest(edges, frozenset(centre))
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(sorted({party for e in nearest for party in (e.first, e.second)}))
    graph.add_edges_from(sorted({(min(e.first, e.second), max(e.first, e.second)) for e in nearest}))
    parts = sorted(nx.connected_components(graph), key=lambda part: (-len(part), min(part)))
    boxes = [_component(graph, part) for part in parts]
    # As wide as makes the page's shape, of what all components cover together.
    limit = max(math.sqrt(_ASPECT * sum(w * h for w, h, _ in boxes)), *(w for w, _, _ in boxes), 1.0) if boxes else 1.0
    positions: dict[str, tuple[float, float]] = {}
    x_of_row = y_of_row = row_height = width = 0.0
    for w, h, points in boxes:
        if x_of_row and x_of_row + w > limit:
            x_of_row, y_of_row, row_height = 0.0, y_of_row + row_height, 0.0
        # Three digits: the last ones differ between processors, and the page should not.
        positions |= {node: (round(x_of_row + x, 3), round(y_of_row + y, 3)) for node, (x, y) in points.items()}
        x_of_row, row_height = x_of_row + w, max(row_height, h)
        width = max(width, x_of_row)
    return GraphDrawing(
        round(width, 3), round(y_of_row + row_height, 3), positions, nearest, _bends(nearest), len(edges) - len(nearest)
    )


def _nearest(edges: Sequence[DrawnEdge], centre: frozenset[str]) -> tuple[DrawnEdge, ...]:
    """At most DRAWN_EDGES edges, by steps from the centre, then in their own order."""
    if len(edges) <= DRAWN_EDGES:
        return tuple(edges)
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph((e.first, e.second) for e in edges)
    start = {party for e in edges if e.id in centre for party in (e.first, e.second)}
    steps = nx.multi_source_dijkstra_path_length(graph, start, weight=None) if start else {}
    # No path is longer, so that what has none to the forget sets comes last.
    far = len(edges)

    def distance(index: int) -> tuple[int, int, int]:
        ends = [int(steps.get(party, far)) for party in (edges[index].first, edges[index].second)]
        return min(ends), max(ends), index

    return tuple(edges[i] for i in sorted(sorted(range(len(edges)), key=distance)[:DRAWN_EDGES]))


def _component(graph: "nx.Graph[str]", part: set[str]) -> tuple[float, float, dict[str, tuple[float, float]]]:
    """Width, height and positions of one component, its edges about one unit long, half a unit of air around it."""
    import networkx as nx

    # A subgraph keeps the order of its hash table, which is another in each process, and its layout follows that.
    component: nx.Graph[str] = nx.Graph(sorted((min(edge), max(edge)) for edge in graph.subgraph(part).edges))
    # All distances of a large component would take minutes.
    if len(component) <= _EXACT_NODES:
        raw = nx.kamada_kawai_layout(component)
    else:
        raw = nx.spring_layout(component, seed=0, iterations=100)
    # networkx lays every component out in a square of one size, however many nodes it has.
    unit = sum(math.dist(raw[a], raw[b]) for a, b in component.edges) / component.number_of_edges()
    least_x, least_y = (min(float(p[axis]) for p in raw.values()) for axis in (0, 1))
    points = {
        node: ((float(x) - least_x) / unit + 0.5, (float(y) - least_y) / unit + 0.5) for node, (x, y) in raw.items()
    }
    return max(x for x, _ in points.values()) + 0.5, max(y for _, y in points.values()) + 0.5, points


def _bends(edges: Sequence[DrawnEdge]) -> tuple[float, ...]:
    """Parallel edges fan out evenly around the straight line: 2 bend by -1/2 and 1/2, 3 by -1, 0 and 1.

    The sign follows the order of the parties' names, so that an edge given the other way round does not fall
    upon its twin.
    """
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, edge in enumerate(edges):
        groups[frozenset((edge.first, edge.second))].append(index)
    bends = [0.0] * len(edges)
    for members in groups.values():
        for rank, index in enumerate(members):
            side = 1.0 if edges[index].first <= edges[index].second else -1.0
            bends[index] = side * (rank - (len(members) - 1) / 2)
    return tuple(bends)
