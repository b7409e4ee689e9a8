"""Contracts that nobody trains on, between entities that no graph has: what a model cannot know."""

from dataclasses import replace

import numpy as np

from vestige.data.graph import HOLDOUT_PREFIX, Graph

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
