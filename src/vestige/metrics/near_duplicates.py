"""Which of many things are kept so that no two are alike: the first of each.

Axes: N things, D width of an embedding, K kept, B things of a block, L left to be looked at, P pairs.

In their order, a thing is kept unless its cosine with one kept before it is above the threshold (Knowledge Holes,
2511.00030, appendix B.2, at 0.8; the order is not stated there). The list depends on the order, and on nothing else:
cosines are screened in float32, and those that rounding could have moved over the threshold are decided in float64, in
the same way whatever the blocks.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from vestige.metrics.vendi import unit_rows

THRESHOLD = 0.8
_BLOCK = 192


def distinct(embeddings: Float[np.ndarray, "N D"], *, threshold: float = THRESHOLD) -> Int[np.ndarray, " K"]:
    """The places of those kept, ascending."""
    if not -1 <= threshold <= 1:
        raise ValueError(f"a cosine is from -1 to 1, so it is never compared with {threshold}")
    units = unit_rows(embeddings)
    screen = units.astype(np.float32)
    left, kept = np.arange(len(units)), [np.empty(0, dtype=np.int64)]
    while len(left):
        block, left = left[:_BLOCK], left[_BLOCK:]
        new = block[_firsts(screen[block], units, block, threshold)]
        kept.append(new)
        left = left[~_like_any(screen[new] @ screen[left].T, units, new, left, threshold)]
    return np.concatenate(kept)


def _firsts(
    rows: Float[np.ndarray, "B D"], units: Float[np.ndarray, "N D"], places: Int[np.ndarray, " B"], threshold: float
) -> Bool[np.ndarray, " B"]:
    """Which rows of a block are kept, were there no others."""
    cosines, (low, high) = rows @ rows.T, _around(threshold, units.shape[1])
    later = np.triu(cosines > low, 1)
    first, second = np.nonzero(later & (cosines <= high))
    later[first, second] = _cosines(units, places[first], places[second]) > threshold
    kept = np.ones(len(rows), dtype=bool)
    for row in np.flatnonzero(later.any(axis=1)):
        if kept[row]:
            kept[later[row]] = False
    return kept


def _like_any(
    cosines: Float[np.ndarray, "K L"],
    units: Float[np.ndarray, "N D"],
    kept: Int[np.ndarray, " K"],
    left: Int[np.ndarray, " L"],
    threshold: float,
) -> Bool[np.ndarray, " L"]:
    """Which of those left are like one of those kept, of which there is at least one."""
    low, high = _around(threshold, units.shape[1])
    greatest = cosines.max(axis=0)
    like: Bool[np.ndarray, " L"] = greatest > high
    unsure = np.flatnonzero((greatest > low) & ~like)
    row, column = np.nonzero(cosines[:, unsure] > low)
    above = _cosines(units, kept[row], left[unsure[column]]) > threshold
    like[unsure[column[above]]] = True
    return like


def _around(threshold: float, width: int) -> tuple[np.float32, np.float32]:
    """Between these a cosine in float32 may be on the wrong side of the threshold.

    Twice what a sum of `width` products of unit vectors and the rounding of its terms can be off.
    """
    off = (width + 8) * float(np.finfo(np.float32).eps)
    return np.float32(threshold - off), np.float32(threshold + off)


def _cosines(
    units: Float[np.ndarray, "N D"], first: Int[np.ndarray, " P"], second: Int[np.ndarray, " P"]
) -> Float[np.ndarray, " P"]:
    """Of pairs, each summed in the same way however many there are."""
    cosines: Float[np.ndarray, " P"] = np.einsum("pd,pd->p", units[first], units[second])
    return cosines
