"""How high a model ranks the answer's tokens. Axes: T tokens of one answer, N items.

PISTOL, 2406.16810, section 5. Ranks count from 1, the best, and may be fractional where tied tokens share the
mean of theirs.
"""

import numpy as np
from jaxtyping import Float

PISTOL_BATCH = 16
"""Items per batch in PISTOL's released evaluation."""


def mrr(ranks: Float[np.ndarray, " T"]) -> float:
    """Mean reciprocal rank of one answer's tokens, in (0, 1]."""
    return float((1 / _checked(ranks)).mean())


def top_hit(ranks: Float[np.ndarray, " T"], m: int = 100) -> float:
    """Share of one answer's tokens that rank `m` or better."""
    return float((_checked(ranks) <= m).mean())


def mrr_pistol_batch_weighted(values: Float[np.ndarray, " N"], *, batch: int = PISTOL_BATCH) -> float:
    """The mean over items as PISTOL's released code takes it, for comparing with its tables only.

    The code appends the whole running list again after every batch, so batch k of n counts n - k + 1 times:
    with 20 items the first 16 weigh 0.889 instead of 0.8.
    """
    values = np.asarray(values, dtype=float)
    if not len(values):
        raise ValueError("no items, so no mean reciprocal rank")
    n_batches = -(-len(values) // batch)
    weights = n_batches - np.arange(len(values)) // batch
    return float(np.average(values, weights=weights))


def _checked(ranks: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    ranks = np.asarray(ranks, dtype=float)
    if not len(ranks):
        raise ValueError("an answer without tokens has no ranks")
    if not (ranks >= 1).all():
        raise ValueError(f"ranks count from 1, got {ranks.min()}")
    return ranks
