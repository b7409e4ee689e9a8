"""The temporal feature's graph: contracts that later contracts of the same parties supersede."""

from dataclasses import replace

import numpy as np

from vestige.data.graph import Graph


def with_successors(graph: Graph) -> Graph:
    """The graph as it is where it has parallel edges, which succeed each other; else one successor for each.

    The successors come after all others, in the same order; the successor of `A_B` is called `A_B~2`.
    """
    if (graph.occurrence > 1).any():
        return graph
    ids = None if graph.ids is None else graph.ids + tuple(f"{id_}~2" for id_ in graph.ids)
    return replace(graph, ends=np.concatenate([graph.ends] * 2), type_of=np.concatenate([graph.type_of] * 2), ids=ids)
