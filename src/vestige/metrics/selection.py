"""How many of the texts found are kept: as many as are together at least as diverse as a reference set.

Knowledge Holes (2511.00030, appendix B.2) drops near-duplicates of what was found, then computes the Vendi score of
growing subsets and compares it with that of the adjacent prompts D_AP. How far the subset grows is not stated. Here:
the first `step`, 2 `step`, ... and at last all, in the order given, are scored, and the greatest of these sizes whose
Vendi / n is at least the reference's is chosen; 0 where none is. The paper's sizes (75, 300, 350, 350) are multiples
of 25, which is the default. Vendi / n falls as any set grows, so a reference that is larger than the subset makes the
test easier to pass: read the sizes beside the shares.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from vestige.metrics.vendi import Vendi, progressive_vendi, vendi

STEP = 25


@dataclass(frozen=True)
class Selection:
    """The Vendi score of the reference, those of the growing subsets, and the chosen size: the first `n`."""

    reference: Vendi
    subsets: tuple[Vendi, ...]
    n: int


def as_diverse_as(
    reference: Float[np.ndarray, "M D"], embeddings: Float[np.ndarray, "N D"], *, step: int = STEP, q: float = 1.0
) -> Selection:
    """How many of `embeddings`, from the first on, are as diverse as `reference`. No embeddings: none."""
    if step < 1:
        raise ValueError(f"subsets grow by at least 1, not by {step}")
    goal = vendi(reference, q=q)
    if not len(embeddings):
        return Selection(goal, (), 0)
    sizes = [*range(step, len(embeddings), step), len(embeddings)]
    subsets = progressive_vendi(embeddings, sizes, q=q)
    return Selection(goal, tuple(subsets), max((s.n for s in subsets if s.share >= goal.share), default=0))
