"""The graphs that Vestige knows by name: PISTOL's two sample data sets, and families with a size.

The size of a family is its number of edges, that is of contracts: `star:50` is one company with 50
counterparties. All contracts of a family are sales; `sample1` has employment too.
"""

from array import array
from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.settings import closest
from vestige.data.graph import DEFAULT_TYPE, Edge, Graph, build_graph
from vestige.data.uniform import random_words, uniform_integers

MAX_EDGES = 50_000_000
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
    left = np.column_stack([node - 1, node])
    upper = np.column_stack([node - width, node])
    both = np.stack([left, upper], axis=1).reshape(-1, 2)
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
    more = generator(seed, "topology", "scale-free, further")
    ends = array("q", [0, 1])
    node = 2
    while len(ends) < 2 * size:
        known = len(ends)
        first = ends[next(words) * known >> 32]
        ends.extend((first, node))
        if len(ends) < 2 * size:
            second = ends[next(words) * known >> 32]
            while second == first:
                second = ends[int(uniform_integers(more, 0, known - 1, 1)[0])]
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
        again = np.zeros(size, bool)
        again[order[1:][same]] = True
        moved = again | (near == far)
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
        known = [*SAMPLES, *(f"{f}:N" for f in FAMILIES)]
        raise InputError(f"no graph named {name!r}; {closest(name, known)}")
    if not (size.isascii() and size.isdigit()) or len(size) > 9 or not 1 <= int(size) <= MAX_EDGES:
        raise InputError(f"{name!r}: give the number of edges, 1 to {MAX_EDGES:,}, as in {family}:50")
    ends = FAMILIES[family](int(size), seed)
    nodes = tuple(map(str, range(int(ends.max()) + 1)))
    return Graph(name, nodes, ends, (DEFAULT_TYPE,), np.zeros(len(ends), np.int64))
