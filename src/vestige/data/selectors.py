"""Which edges to forget or keep: `edge:A_B`, `node:A`, `component:2`, `type:sales`, `random:3@dense`, `superseded`.

Selectors are joined by commas; together they select every edge that one of them does. A component goes by its
number (in the order of first appearance) or by its name, where the graph has names (`sample2`: sparse,
semi-dense, dense). `file:PATH` lists edges. What `random` draws depends on the graph and on a seed of its own, which
may stand behind it (`random:3@dense#7`). Items that name edges and have no graph take `edge`, `type` and `random`.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.seeds import generator, shuffled
from vestige.core.text import closest, one_line
from vestige.data.graph import Graph, shown

_Numbers = Int[np.ndarray, " n"]


def select_edges(graph: Graph, selector: str, *, seed: int) -> tuple[str, ...]:
    """The ids of the selected edges, each once, in the order of the graph. Selecting none is refused.

    `seed` is that of `random` where the selector does not name one.
    """
    chosen = np.zeros(graph.n_edges, bool)
    for part in _parts(selector):
        kind, colon, value = part.partition(":")
        if part == SUPERSEDED:
            chosen[_superseded(graph)] = True
            continue
        if kind not in _KINDS or not colon or not value:
            hint = closest(kind, [*_KINDS, SUPERSEDED]) if colon else f"did you mean {f'edge:{kind}'!r}?"
            raise InputError(f"selector {shown(part)}: {hint}")
        chosen[_KINDS[kind](graph, value, seed)] = True
    return tuple(graph.ids_of(np.flatnonzero(chosen)))


def select_items(items: Sequence[Item], selector: str, *, seed: int, source: str) -> tuple[Item, ...]:
    """The selected ones of items that have no graph, by the edges and groups that they name, in their order."""
    edges = tuple(dict.fromkeys(i.edge for i in items if i.edge is not None))
    groups = {i.group for i in items if i.group is not None}
    kind, _, whole = selector.strip().partition(":")
    # An edge of one's own may have a comma in its name.
    parts = [selector.strip()] if kind == "edge" and whole in edges else _parts(selector)
    chosen: set[str] = set()
    typed: set[str] = set()
    for part in parts:
        kind, _, value = part.partition(":")
        if kind == "edge" and value in edges:
            chosen.add(value)
        elif kind == "edge" and edges:
            raise InputError(f"no edge {one_line(value, width=40)!r} in {source}; {closest(value, sorted(edges))}")
        elif kind == "type" and value in groups:
            typed.add(value)
        elif kind == "random" and edges and "@" not in value:
            chosen |= {edges[n] for n in _drawn(value, np.arange(len(edges)), seed).tolist()}
        else:
            raise InputError(
                f"{one_line(selector, width=60)!r} names no items: it is no file, and {source} has no graph to select "
                "from; give a file of the items"
            )
    return tuple(i for i in items if i.edge in chosen or i.group in typed)


def is_selector(text: str) -> bool:
    """Whether the text begins as a selector does, so that it is not meant as a file."""
    first = _parts(text)[0]
    kind, colon, _ = first.partition(":")
    return first == SUPERSEDED or (bool(colon) and kind in _KINDS)


def with_seed(selector: str, seed: int) -> str:
    """The selector with its seed behind each `random` that has none; 0, the default, is not written."""
    if not seed or not is_selector(selector):
        return selector
    parts = (f"{p}#{seed}" if p.startswith("random:") and "#" not in p else p for p in _parts(selector))
    return ",".join(parts)


def _parts(selector: str) -> list[str]:
    return [part.strip() for part in selector.split(",")]


def check_edges(graph: Graph, edges: Iterable[str]) -> None:
    """Refuse an edge that the graph does not have."""
    for edge in edges:
        _edge(graph, edge, 0)


def _edge(graph: Graph, value: str, seed: int) -> _Numbers:
    if value not in graph.edge_numbers:
        raise InputError(f"no edge {shown(value)} in {graph.name}; {_nearest(value, graph.edge_numbers)}")
    return np.array([graph.edge_numbers[value]])


def _node(graph: Graph, value: str, seed: int) -> _Numbers:
    if value not in graph.nodes:
        raise InputError(f"no node {shown(value)} in {graph.name}; {_nearest(value, graph.nodes)}")
    return np.flatnonzero((graph.ends == graph.nodes.index(value)).any(axis=1))


def _component(graph: Graph, value: str, seed: int) -> _Numbers:
    by_name = {name: number for number, name in graph.parts.items()}
    count = int(graph.components.max())
    number = by_name.get(value) or (int(value) if _is_number(value) else 0)
    if not 1 <= number <= count:
        names = f", or {', '.join(by_name)}" if by_name else ""
        raise InputError(f"no component {shown(value)} in {graph.name}; components go from 1 to {count}{names}")
    return np.flatnonzero(graph.components == number)


def _type(graph: Graph, value: str, seed: int) -> _Numbers:
    if value not in graph.types:
        raise InputError(f"no contract of type {shown(value)} in {graph.name}; {closest(value, list(graph.types))}")
    return np.flatnonzero(graph.type_of == graph.types.index(value))


def _random(graph: Graph, value: str, seed: int) -> _Numbers:
    """N edges of the whole graph, or `N@component`; which ones depends on the seed and these words alone."""
    _, at, component = value.partition("#")[0].partition("@")
    return _drawn(value, _component(graph, component, seed) if at else np.arange(graph.n_edges), seed)


def _drawn(value: str, among: _Numbers, seed: int) -> _Numbers:
    """As many of `among` as `what` says at its beginning, by the seed at its end or else `seed`."""
    words, hash_, own_seed = value.partition("#")
    size = words.partition("@")[0]
    if not _is_number(size) or not 1 <= int(size) <= len(among):
        raise InputError(f"selector {shown(f'random:{value}')}: give a number of edges from 1 to {len(among):,}")
    if hash_ and not _is_number(own_seed):
        raise InputError(f"selector {shown(f'random:{value}')}: give a whole number as its seed behind the #")
    drawing = generator(int(own_seed) if hash_ else seed, "selector", words)
    chosen: _Numbers = among[shuffled(drawing, len(among))[: int(size)]]
    return chosen


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def _superseded(graph: Graph) -> _Numbers:
    """The contracts that a later one of the same two parties and the same type supersedes."""
    chains = graph.pairs * len(graph.types) + graph.type_of
    _, last = np.unique(chains[::-1], return_index=True)
    numbers: _Numbers = np.setdiff1d(np.arange(graph.n_edges), graph.n_edges - 1 - last)
    if not len(numbers):
        raise InputError(
            f"selector {SUPERSEDED}: {graph.name} has no contract that a later one supersedes; compile it with "
            "--temporal"
        )
    return numbers


def _file(graph: Graph, value: str, seed: int) -> _Numbers:
    """One edge id a line; blank lines are skipped."""
    try:
        lines = Path(value).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"cannot read the list of edges {shown(value)}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(value)}: not UTF-8 text (byte {error.start})") from error
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise InputError(f"{shown(value)}: no edges; give one edge id a line")
    return np.concatenate([_edge(graph, id_, seed) for id_ in ids])


def _nearest(name: str, names: Iterable[str]) -> str:
    near = closest(name, list(names))
    return near if near.startswith("did you mean") else "`edges.csv` of the compiled data lists them"


SUPERSEDED = "superseded"
"""The selector without a colon: contracts that later ones replace (the temporal feature)."""

_KINDS: dict[str, Callable[[Graph, str, int], _Numbers]] = {
    "edge": _edge,
    "node": _node,
    "component": _component,
    "type": _type,
    "random": _random,
    "file": _file,
}
