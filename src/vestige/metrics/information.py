"""How many bits an attack could carry, and how many its result needs.

Bits throughout. Log-probabilities come in nats and are of whole tokens' or answers' probabilities. N questions, k
options. Carried beyond needed is a warning that the attack may have put the answer in. Whether it did is measured, on
the control (`gains`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Capacity(NamedTuple):
    """The least of several upper bounds in bits, and the name of the one that it is."""

    bits: float
    bound: str


def text_capacity(n_tokens: int, vocabulary: int) -> float:
    """T log2 |V|: what T tokens can say when each may be any of the admissible vocabulary."""
    if n_tokens < 0 or vocabulary < 1:
        raise ValueError(f"{n_tokens} tokens of a vocabulary of {vocabulary}")
    return n_tokens * math.log2(vocabulary)


def code_length(logp: Float[np.ndarray, " T"]) -> float:
    """-sum log2 p: the length of a text in a model's own code, from its log-probabilities in nats.

    Return (a), the bits to write the answers down for a reader with the subject's knowledge.
    """
    values = np.asarray(logp, dtype=float)
    if not np.isfinite(values).all() or (values > 1e-9).any():
        raise ValueError("a log-probability is finite and at most 0")
    # Rounding may leave a sum a digit above 0.
    return max(0.0, float(-values.sum() / math.log(2)))


def prequential(blocks: Sequence[Float[np.ndarray, " _"]]) -> float:
    """Return the code length of the shown data by blocks, each under the model tuned on the blocks before it.

    A. P. Dawid, Present position and potential developments: the prequential approach, J. R. Stat. Soc. A 147, 1984; L.
    Blier and Y. Ollivier, The description length of deep learning models, 1802.07044.
    """
    if not blocks:
        raise ValueError("nothing was shown, so there is no code length")
    return sum(code_length(block) for block in blocks)


def capacity(bounds: Mapping[str, float]) -> Capacity:
    """Return the least of the named upper bounds: for a prompt its text, its code length and the search's view."""
    if not bounds:
        raise ValueError("a capacity needs at least one bound")
    # Each is an upper bound by itself, so that the least holds.
    name = min(bounds, key=bounds.__getitem__)
    return Capacity(bounds[name], name)


def need_wrong_answers(n_wrong: int, n_options: int) -> float:
    """(b) wrong x log2 k: the bits that write down the right option for each error, if the places are known for free.

    For four options, each error costs 2 bits. This is the count of the paper (2506.00688), as far as it is documented.
    """
    _check(n_wrong, n_options)
    return n_wrong * math.log2(n_options)


def need_rate_distortion(n: int, accuracy: float, n_options: int) -> float:
    """(c) N (log2 k - H(D) - D log2(k - 1)), D = 1 - accuracy: the minimum that gives a guesser this accuracy.

    The rate-distortion function of a uniform source under Hamming distortion (T. Cover and J. Thomas, Elements of
    Information Theory, 2006, chapter 10). It is 0 at or below chance.
    """
    _check(n, n_options)
    distortion = 1 - accuracy
    entropy = binary_entropy(distortion)
    # Below chance the formula rises again, though a guesser needs no bits for it.
    if accuracy <= 1 / n_options:
        return 0.0
    return n * (math.log2(n_options) - entropy - distortion * math.log2(n_options - 1))


def need_of_gain(before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"]) -> float:
    """Bits of the gain that was observed: -sum log2 p(gold) before less the same after, from nats. At least 0."""
    return max(0.0, code_length(before) - code_length(after))


def binary_entropy(share: float) -> float:
    """H(share) in bits."""
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies in [0, 1], got {share}")
    return -sum(x * math.log2(x) for x in (share, 1 - share) if x > 0)


def prompt_data_entropy_ratio(capacity_bits: float, need_bits: float) -> float:
    """PDER: bits that the prompt can carry / bits needed. From 1 on the prompt could hold the answers.

    The name is of the ICLR submission of 2506.00688, whose formula is not public. This one is ours.
    """
    if not (capacity_bits >= 0 and need_bits > 0):
        raise ValueError(f"no ratio of {capacity_bits} to {need_bits} bits")
    return capacity_bits / need_bits


def _check(n: int, n_options: int) -> None:
    if n < 0:
        raise ValueError(f"{n} questions")
    if n_options < 2:
        raise ValueError(f"a question has at least two options, got {n_options}")
