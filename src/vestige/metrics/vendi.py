"""The Vendi score: how many different things a set holds, counted by the spectrum of their cosines. 1 to N.

Axes: N things, D width of an embedding, K sizes.

VS_q = (sum_i l_i^q)^(1/(1-q)), l the eigenvalues of X X'/N with the rows of X of length 1; for q = 1 its limit,
exp(-sum_i l_i ln l_i), and for q = inf 1 / max l (D. Friedman and A. B. Dieng, The Vendi Score, 2210.02410; A. P.
Pasarkar and A. B. Dieng, Cousins of the Vendi Score, 2310.12952). What Knowledge Holes (2511.00030) prints as Vendi
score, 0.33 to 0.43, can only be VS_1 / N: `Vendi.share`.

X X'/N and X'X/N have the same eigenvalues but for zeros, so the smaller is taken. Both are in float64.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigvalsh
from scipy.special import logsumexp


class Vendi(NamedTuple):
    """The score of `n` things."""

    n: int
    score: float

    @property
    def share(self) -> float:
        """The score over the number of things: 1 where all are at right angles, 1/n where all are the same."""
        return self.score / self.n


def vendi(embeddings: Float[np.ndarray, "N D"], *, q: float = 1.0) -> Vendi:
    """The Vendi score of order `q` of all of `embeddings`. A higher order counts rare things less."""
    if not len(embeddings):
        raise ValueError("no embeddings have no Vendi score")
    return progressive_vendi(embeddings, [len(embeddings)], q=q)[0]


def progressive_vendi(embeddings: Float[np.ndarray, "N D"], sizes: Sequence[int], *, q: float = 1.0) -> list[Vendi]:
    """The scores of the first `sizes` of `embeddings`; sizes rise. Each product of rows is made once."""
    if not q > 0:
        raise ValueError(f"the order of a Vendi score is above 0, not {q}: order 0 counts what rounding decides")
    if not sizes or sizes[0] < 1 or sizes[-1] > len(embeddings) or any(a >= b for a, b in pairwise(sizes)):
        raise ValueError(f"sizes must rise within 1 to {len(embeddings)}, got {list(sizes)}")
    units = unit_rows(embeddings[: sizes[-1]])
    width = units.shape[1]
    inner, done, scores = np.zeros((width, width)), 0, []
    for n in sizes:
        if n < width:
            gram = units[:n] @ units[:n].T
        else:
            inner += units[done:n].T @ units[done:n]
            gram, done = inner, n
        # Only the lower half is read, and the product is ours to overwrite.
        eigenvalues = eigvalsh(gram / n, overwrite_a=True, check_finite=False)
        scores.append(Vendi(n, score_of_spectrum(eigenvalues, q)))
    return scores


def score_of_spectrum(eigenvalues: Float[np.ndarray, " D"], q: float) -> float:
    """The exponential of the Renyi entropy of order `q`. Eigenvalues within rounding of 0 are 0."""
    least = len(eigenvalues) * np.finfo(float).eps * float(eigenvalues.max())
    shares = eigenvalues[eigenvalues > least]
    if q == 1:
        return math.exp(-float(shares @ np.log(shares)))
    if math.isinf(q):
        return 1 / float(shares.max())
    # As logarithms, since a high power of a small share is 0 in floating point.
    return math.exp(float(logsumexp(q * np.log(shares))) / (1 - q))


def unit_rows(embeddings: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """The rows at length 1, in float64. A row without a length or with what is no number is refused."""
    rows = np.asarray(embeddings, dtype=np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(wrong):
        raise ValueError(f"embedding {wrong[0]} has the length {lengths[wrong[0]]}, so it has no cosine with others")
    units: Float[np.ndarray, "N D"] = rows / lengths[:, None]
    return units
