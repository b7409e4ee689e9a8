"""Ways to protect benign knowledge, to be held against each other: which items each adds to the retain set. Pure.

Axes: N benign items, none of them in the retain set, in the order of the data.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.settings import closest
from vestige.data.uniform import shuffled
from vestige.probes.risk import EMBEDDING, GRAPH, order_of

NONE, RANDOM, ADJACENT, PREDICTED, ORACLE = "none", "random", "adjacent", "predicted", "oracle"
ARMS = (NONE, RANDOM, ADJACENT, PREDICTED, ORACLE)
"""Nothing is added; items drawn; the nearest ones; the riskiest ones; those that were in truth most harmed."""
SHARE_AT_RISK = 0.25
"""Of the evaluated items, those that count as at risk: the most harmed quarter."""


def arms_named(words: str) -> tuple[str, ...]:
    """The arms that are named, apart by commas, in the order of `ARMS`; `none` is always among them."""
    names = {word.strip() for word in words.split(",") if word.strip()}
    for name in sorted(names - set(ARMS)):
        raise InputError(f"no arm {name!r}; {closest(name, list(ARMS))}")
    return tuple(arm for arm in ARMS if arm in names | {NONE})


def evaluated_half(risks: Float[np.ndarray, " N"], ids: Sequence[str], *, seed: int) -> Bool[np.ndarray, " N"]:
    """Which items are evaluated and may never be added; the others are the pool.

    Of each two neighbours in the order of their risk one is drawn, so that both halves hold as much risk.
    """
    order = order_of(risks, ids)
    found = np.zeros(len(order), dtype=bool)
    first = generator(seed, "prevention halves").integers(0, 2, -(-len(order) // 2))
    for pair, place in enumerate(range(0, len(order) - 1, 2)):
        found[order[place + first[pair]]] = True
    return found


def most_harmed(harm: Float[np.ndarray, " N"], ids: Sequence[str], n: int) -> Int[np.ndarray, " n"]:
    """The places of the `n` items that lost most."""
    return order_of(harm, ids)[:n]


def n_at_risk(n_evaluated: int) -> int:
    """How many of the evaluated items count as at risk."""
    return max(1, round(SHARE_AT_RISK * n_evaluated))


def nearest_first(risks: Mapping[str, Float[np.ndarray, " N"]], ids: Sequence[str]) -> Int[np.ndarray, " N"]:
    """The items' places by distance in the graph, where there is one, and at one distance by embedding."""
    near = risks[EMBEDDING]
    return np.lexsort((np.asarray(ids, dtype=str), -near, -risks.get(GRAPH, np.zeros(len(near)))))


def drawn(n_items: int, n: int, *, seed: int) -> Int[np.ndarray, " n"]:
    """The places of `n` items, drawn."""
    return np.sort(shuffled(generator(seed, "prevention random arm"), n_items)[:n])
