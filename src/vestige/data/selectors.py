"""Which edges to forget or keep: `edge:A_B`, `node:A`, `component:2`, `type:sales`, `random:3@dense`.

`person:NAME` selects the items of a person where the data have a column `person`. It means the same as `edge:NAME`.

Selectors are joined by commas. Together they select every edge that one selector matches. A component goes by its
number (in the order of first appearance) or by its name, where the graph has names (`sample2`: sparse, semi-dense,
dense). `file:PATH` lists edges. The draw of `random` depends on the graph and on its own seed, which may follow it
(`random:3@dense#7`). Items that name edges and have no graph take `edge`, `type` and `random`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import generator, shuffled
from vestige.core.text import Names, closest, one_line
from vestige.data.graph import Graph, shown
from vestige.data.tables import text_lines

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
    # An edge of one's own may have a comma in its name.
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
                f"{one_line(selector, width=60)!r} names no items: it is no file, and {source} has no graph to select "
                f"from. {hint}"
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
    """Refuse an edge that the graph does not have."""
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
