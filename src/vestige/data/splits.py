"""The splits of a data set for one forget set."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vestige.core.errors import InputError
from vestige.core.items import Item, Scope
from vestige.data.dataset import Dataset
from vestige.data.entailment import scope_of_items
from vestige.data.selectors import check_edges, select_edges


@dataclass(frozen=True)
class Splits:
    """What to forget and what to keep.

    `retain` holds every item of another contract, `independent` those of them in components of the graph that
    the forget set does not touch, `independent_by_type` the same for each contract type that occurs there.
    `scope_of` says, by item id, what the retain set gives away of each forget item; items of which a source
    does not tell the attribute have no scope.
    """

    forget_edges: tuple[str, ...]
    forget: tuple[Item, ...]
    retain: tuple[Item, ...]
    independent: tuple[Item, ...]
    independent_by_type: Mapping[str, tuple[Item, ...]]
    scope_of: Mapping[str, Scope]

    def named(self) -> dict[str, tuple[Item, ...]]:
        """The splits that have items, by name: forget, retain, independent, independent_<type>."""
        typed = {f"independent_{name}": items for name, items in self.independent_by_type.items()}
        splits = {"forget": self.forget, "retain": self.retain, "independent": self.independent, **typed}
        return {name: items for name, items in splits.items() if items}


def split(dataset: Dataset, forget: Iterable[str]) -> Splits:
    """The splits when these edges are forgotten. Nothing to forget, or nothing left to keep, is refused."""
    forget = set(forget)
    check_edges(dataset.graph, sorted(forget))
    graph = dataset.graph
    ids = graph.edge_ids()
    edges = tuple(id_ for id_ in ids if id_ in forget)
    if not edges:
        raise InputError(f"{graph.name}: the forget set has no edges; select at least one")
    if len(edges) == graph.n_edges:
        raise InputError(f"{graph.name}: the forget set is the whole graph and leaves nothing to retain; select fewer")
    component = dict(zip(ids, graph.components.tolist(), strict=True))
    touched = {component[edge] for edge in edges}
    retain = tuple(item for item in dataset.items if item.edge not in forget)
    independent = tuple(item for item in retain if component[str(item.edge)] not in touched)
    types = dict.fromkeys(item.group for item in independent if item.group is not None)
    return Splits(
        forget_edges=edges,
        forget=tuple(item for item in dataset.items if item.edge in forget),
        retain=retain,
        independent=independent,
        independent_by_type={t: tuple(i for i in independent if i.group == t) for t in types},
        scope_of=scope_of_items(dataset, edges),
    )


def split_by(dataset: Dataset, selector: str, *, seed: int) -> Splits:
    """The splits when the selected edges are forgotten."""
    return split(dataset, select_edges(dataset.graph, selector, seed=seed))
