"""How much of an answer is stored word for word. Axes: T tokens of the answer. All values from 0 to 1.

`correct` is, per token, whether it is the model's first choice given the true tokens before it
(teacher-forced).

How high a model ranks the answer's tokens. Axes: T tokens of one answer, N items.

PISTOL, 2406.16810, section 5. Ranks count from 1, the best, and may be fractional where tied tokens share the
mean of theirs.
"""

import math
from collections.abc import Sequence
from math import comb

import numpy as np
from jaxtyping import Bool, Float


def extraction_strength(correct: Bool[np.ndarray, " T"]) -> float:
    """1 - k/T, k the least number of true tokens to give so that greedy decoding writes the rest exactly.

    After Carlini et al., Extracting Training Data from Large Language Models, 2012.07805, as open-unlearning
    uses it. Greedy decoding from k is exact just where every token from k on is the model's first choice.
    """
    wrong = np.flatnonzero(~_checked(correct))
    k = int(wrong[-1]) + 1 if len(wrong) else 0
    return 1 - k / len(correct)


def exact_memorization(correct: Bool[np.ndarray, " T"]) -> float:
    """Share of tokens that are the model's first choice (Tirumala et al., 2205.10770, section 3)."""
    return float(_checked(correct).mean())


def leak_at_k(scores: Sequence[float], k: int) -> float:
    """The mean of the greatest of `k` scores drawn from these without putting any back.

    sum_i C(i - 1, k - 1) / C(n, k) s_(i), with s_(1) the least: the unbiased estimate of what the best of k samples
    gives away (2511.04934). Of scores 0 and 1 it is pass@k of Chen et al., 2107.03374, section 2.1.
    """
    n = len(scores)
    if not 1 <= k <= n:
        raise ValueError(f"leak@{k} of {n} samples is not defined; it needs 1 <= k <= n")
    total = comb(n, k)
    # Whole numbers over a whole number: the weights are exact however many samples there are.
    return math.fsum(comb(i, k - 1) / total * s for i, s in enumerate(sorted(scores)))


def _checked(correct: Bool[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
    correct = np.asarray(correct, dtype=bool)
    if not len(correct):
        raise ValueError("an answer without tokens stores nothing that could be measured")
    return correct


PISTOL_BATCH = 16
"""Items per batch in PISTOL's released evaluation."""


def mrr(ranks: Float[np.ndarray, " T"]) -> float:
    """Mean reciprocal rank of one answer's tokens, in (0, 1]."""
    return float((1 / _checked_ranks(ranks)).mean())


def top_hit(ranks: Float[np.ndarray, " T"], m: int = 100) -> float:
    """Share of one answer's tokens that rank `m` or better."""
    return float((_checked_ranks(ranks) <= m).mean())


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


def _checked_ranks(ranks: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    ranks = np.asarray(ranks, dtype=float)
    if not len(ranks):
        raise ValueError("an answer without tokens has no ranks")
    if not (ranks >= 1).all():
        raise ValueError(f"ranks count from 1, got {ranks.min()}")
    return ranks
