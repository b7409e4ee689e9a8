"""Which edges to forget: `edge:A_B`, `node:A`, `component:2`, `type:sales`, `random:3@dense`, `file:PATH`.

Selectors are joined by commas; together they select every edge that one of them does. A component goes by its
number (in the order of first appearance) or by its name, where the graph has names (`sample2`: sparse,
semi-dense, dense).
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from jaxtyping import Int

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.settings import closest
from vestige.data.graph import Graph, shown
from vestige.data.uniform import shuffled

_Numbers = Int[np.ndarray, " n"]


def select_edges(graph: Graph, selector: str, *, seed: int) -> tuple[str, ...]:
    """The ids of the selected edges, each once, in the order of the graph. Selecting none is refused."""
    chosen = np.zeros(graph.n_edges, bool)
    for part in selector.split(","):
        kind, colon, what = part.strip().partition(":")
        if kind not in _KINDS or not colon or not what:
            hint = closest(kind, list(_KINDS)) if colon else f"did you mean {f'edge:{kind}'!r}?"
            raise InputError(f"selector {shown(part)}: {hint}")
        chosen[_KINDS[kind](graph, what, seed)] = True
    numbers = np.flatnonzero(chosen).tolist()
    return tuple(graph.edge_ids(n, n + 1)[0] for n in numbers)


def is_selector(text: str) -> bool:
    """Whether the text begins as a selector does, so that it is not meant as a file."""
    kind, colon, _ = text.strip().partition(":")
    return bool(colon) and kind in _KINDS


def check_edges(graph: Graph, edges: Iterable[str]) -> None:
    """Refuse an edge that the graph does not have."""
    for edge in edges:
        _edge(graph, edge, 0)


def _edge(graph: Graph, what: str, seed: int) -> _Numbers:
    if what not in graph.edge_numbers:
        raise InputError(f"no edge {shown(what)} in {graph.name}; {_nearest(what, graph.edge_numbers)}")
    return np.array([graph.edge_numbers[what]])


def _node(graph: Graph, what: str, seed: int) -> _Numbers:
    if what not in graph.nodes:
        raise InputError(f"no node {shown(what)} in {graph.name}; {_nearest(what, graph.nodes)}")
    return np.flatnonzero((graph.ends == graph.nodes.index(what)).any(axis=1))


def _component(graph: Graph, what: str, seed: int) -> _Numbers:
    by_name = {name: number for number, name in graph.parts.items()}
    count = int(graph.components.max())
    number = by_name.get(what) or (int(what) if what.isascii() and what.isdigit() and len(what) < 10 else 0)
    if not 1 <= number <= count:
        names = f", or {', '.join(by_name)}" if by_name else ""
        raise InputError(f"no component {shown(what)} in {graph.name}; components go from 1 to {count}{names}")
    return np.flatnonzero(graph.components == number)


def _type(graph: Graph, what: str, seed: int) -> _Numbers:
    if what not in graph.types:
        raise InputError(f"no contract of type {shown(what)} in {graph.name}; {closest(what, list(graph.types))}")
    return np.flatnonzero(graph.type_of == graph.types.index(what))


def _random(graph: Graph, what: str, seed: int) -> _Numbers:
    """N edges of the whole graph, or `N@component`; which ones depends on the seed and these words alone."""
    size, at, component = what.partition("@")
    among = _component(graph, component, seed) if at else np.arange(graph.n_edges)
    if not (size.isascii() and size.isdigit() and len(size) < 10 and 1 <= int(size) <= len(among)):
        raise InputError(f"selector {shown(f'random:{what}')}: give a number of edges from 1 to {len(among):,}")
    chosen: _Numbers = among[shuffled(generator(seed, "selector", what), len(among))[: int(size)]]
    return chosen


def _file(graph: Graph, what: str, seed: int) -> _Numbers:
    """One edge id a line; blank lines are skipped."""
    try:
        lines = Path(what).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"cannot read the list of edges {shown(what)}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(what)}: not UTF-8 text (byte {error.start})") from error
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise InputError(f"{shown(what)}: no edges; give one edge id a line")
    return np.concatenate([_edge(graph, id_, seed) for id_ in ids])


def _nearest(name: str, known: Iterable[str]) -> str:
    near = closest(name, list(known))
    return near if near.startswith("did you mean") else "`edges.csv` of the compiled data lists them"


_KINDS: dict[str, Callable[[Graph, str, int], _Numbers]] = {
    "edge": _edge,
    "node": _node,
    "component": _component,
    "type": _type,
    "random": _random,
    "file": _file,
}
