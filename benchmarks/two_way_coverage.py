"""How often the interval over items and seeds covers the mean: `python -m benchmarks.two_way_coverage`.

Tables of seeds x items are drawn whose scores are normal: a part of the seed, of the edge, of the item, and the rest.
Axes: S seeds, K edges, M items an edge.
"""

import argparse
from itertools import product
from typing import NamedTuple

import numpy as np

from vestige.probes.prevention_table import two_way_interval


class Case(NamedTuple):
    """A table's size, and the standard deviations of its parts; that of item and rest is a half."""

    n_seeds: int
    n_edges: int
    n_items: int
    of_seed: float
    of_edge: float


CASES = [
    Case(s, k, m, of_seed, of_edge)
    for (s, k, m), of_seed, of_edge in product([(3, 19, 5), (3, 8, 3), (5, 19, 5)], (0.0, 0.1, 0.5), (0.0, 0.5))
]


def coverage(case: Case, draws: int, rng: np.random.Generator) -> float:
    """The share of tables whose interval holds the mean, which is 0."""
    s, k, m = case.n_seeds, case.n_edges, case.n_items
    place = np.indices((s, k, m)).reshape(3, -1)
    seeds, clusters = place[0].tolist(), [str(edge) for edge in place[1]]
    items = [f"{edge}.{item}" for edge, item in place[1:].T]
    hits = 0
    for _ in range(draws):
        parts = rng.normal(0, case.of_seed, (s, 1, 1)), rng.normal(0, case.of_edge, (1, k, 1))
        table = parts[0] + parts[1] + rng.normal(0, 0.5, (1, k, m)) + rng.normal(0, 0.5, (s, k, m))
        found = two_way_interval(table.reshape(-1), seeds=seeds, items=items, clusters=clusters)
        hits += found.low <= 0 <= found.high
    return hits / draws


def main() -> None:
    """Print the coverage of every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    for case in CASES:
        print(*case, f"{coverage(case, asked.draws, rng):.3f}")


if __name__ == "__main__":
    main()
