"""How much of an answer is stored word for word. Axes: T tokens of the answer. All values from 0 to 1.

`correct` is, per token, whether it is the model's first choice given the true tokens before it
(teacher-forced).
"""

from math import comb

import numpy as np
from jaxtyping import Bool


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


def leak_at_k(n: int, leaked: int, k: int) -> float:
    """Probability that at least one of `k` samples leaks, where `leaked` of `n` drawn samples did.

    1 - C(n - leaked, k) / C(n, k), the unbiased estimate of Chen et al., 2107.03374, section 2.1, for pass@k.
    """
    if not (0 <= leaked <= n and 1 <= k <= n):
        raise ValueError(
            f"leak@{k} of {leaked} leaks in {n} samples is not defined; it needs leaks <= n and 1 <= k <= n"
        )
    return 1 - comb(n - leaked, k) / comb(n, k)


def _checked(correct: Bool[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
    correct = np.asarray(correct, dtype=bool)
    if not len(correct):
        raise ValueError("an answer without tokens stores nothing that could be measured")
    return correct
