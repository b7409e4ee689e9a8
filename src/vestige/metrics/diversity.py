"""The diversity of a set of texts, measured by their embeddings.

The Vendi score counts how many different things a set holds: VS = exp(-sum_i l_i ln l_i), with the eigenvalues l of X
X'/N and rows of X of length 1 (D. Friedman and A. B. Dieng, The Vendi Score, 2210.02410). It is between 1 and N.
Knowledge Holes (2511.00030) prints 0.33 to 0.43, which can only be VS / N: `Vendi.share`. X X'/N and X'X/N have the
same eigenvalues except for zeros, so the smaller matrix is used. Both are in float64.

`distinct` drops near-duplicates: in the order given, a thing is kept unless its cosine with one kept before is above
the threshold (appendix B.2, at 0.8; the order is not stated there).

`as_diverse_as` chooses how many of the texts found are kept (appendix B.2). The first `step`, 2 `step`, ... and at last
all texts are scored. The greatest of these sizes whose Vendi / n reaches the reference's is chosen, or 0. The paper
does not say how far the subset grows. Its sizes (75, 300, 350, 350) are multiples of 25, the default step. Vendi / n
falls as a set grows, so a larger reference makes the test easier to pass.

Axes: N things, M things of the reference, D width of an embedding, K sizes or things kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Vendi(NamedTuple):
    """The score of `n` things."""

    n: int
    score: float

    @property
    def share(self) -> float:
        """The score divided by the number of texts: 1 if all are orthogonal, 1/n if all are the same."""
        return self.score / self.n


def vendi(embeddings: Float[np.ndarray, "N D"]) -> Vendi:
    """The Vendi score of all of `embeddings`."""
    if not len(embeddings):
        raise ValueError("no embeddings have no Vendi score")
    return progressive_vendi(embeddings, [len(embeddings)])[0]


def progressive_vendi(embeddings: Float[np.ndarray, "N D"], sizes: Sequence[int]) -> list[Vendi]:
    """Return the scores of the first `sizes` of `embeddings`. Sizes rise, and each product is computed once."""
    units = unit_rows(embeddings[: sizes[-1]])
    width = units.shape[1]
    inner, done, scores = np.zeros((width, width)), 0, []
    for n in sizes:
        if n < width:
            gram = units[:n] @ units[:n].T
        else:
            inner += units[done:n].T @ units[done:n]
            gram, done = inner, n
        eigenvalues = np.linalg.eigvalsh(gram / n)
        scores.append(Vendi(n, _score_of_spectrum(eigenvalues)))
    return scores


def _score_of_spectrum(eigenvalues: Float[np.ndarray, " D"]) -> float:
    """The exponential of the entropy. Eigenvalues within rounding of 0 are 0."""
    # Rounding makes some slightly negative, and they have no logarithm.
    least = len(eigenvalues) * np.finfo(float).eps * float(eigenvalues.max())
    shares = eigenvalues[eigenvalues > least]
    return math.exp(-float(shares @ np.log(shares)))


def unit_rows(embeddings: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "N D"]:
    """The rows at length 1, in float64. A row without a length or with an invalid number is rejected."""
    rows = np.asarray(embeddings, dtype=np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(wrong):
        raise ValueError(f"embedding {wrong[0]} has the length {lengths[wrong[0]]}, so it has no cosine with others")
    units: Float[np.ndarray, "N D"] = rows / lengths[:, None]
    return units


THRESHOLD = 0.8


def distinct(embeddings: Float[np.ndarray, "N D"], *, threshold: float = THRESHOLD) -> Int[np.ndarray, " K"]:
    """Return the kept indices, ascending."""
    remaining, units, chosen = np.arange(len(embeddings)), unit_rows(embeddings), list[int]()
    # One row of cosines at a time, since all pairs at once would take N^2 numbers.
    while len(remaining):
        chosen.append(int(remaining[0]))
        cosines = np.einsum("ld,d->l", units[remaining[1:]], units[remaining[0]])
        remaining = remaining[1:][cosines <= threshold]
    return np.array(chosen, dtype=np.int64)


STEP = 25


@dataclass(frozen=True)
class Selection:
    """The Vendi scores of the reference and the growing subsets, and the chosen size: the first `n`."""

    reference: Vendi
    subsets: tuple[Vendi, ...]
    n: int


def as_diverse_as(
    reference: Float[np.ndarray, "M D"], embeddings: Float[np.ndarray, "N D"], *, step: int = STEP
) -> Selection:
    """Return how many of the first `embeddings` are as diverse as `reference`. Empty without embeddings."""
    goal = vendi(reference)
    if not len(embeddings):
        return Selection(goal, (), 0)
    sizes = [*range(step, len(embeddings), step), len(embeddings)]
    subsets = progressive_vendi(embeddings, sizes)
    return Selection(goal, tuple(subsets), max((s.n for s in subsets if s.share >= goal.share), default=0))


_FUNCTION_WORDS = """
a about after again all also am an and any are as at be because been before being between both but by can could did do
does doing don't down during each either every few for from further had has have having he her here hers him his how i
if in into is it it's its just kind let like make many may me might more most much must my no nor not of off often on
once one only or other others our out over own please same she should so some such tell than that the their them then
there these they this those through to too under until up us use used using very was way ways we were what what's when
where whether which while who whom whose why will with within without would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English function and question words, which name no topic."""
