"""Seeds as arguments: each depends on the study's seed, a purpose and a key, and never on order.

Uniform integers that no release of NumPy changes: raw bits of the generator, mapped here. NumPy promises the bits of a
bit generator for ever, and the methods of `Generator` for one release only.
"""

import numpy as np
from jaxtyping import Int, UInt64

from vestige.core.ids import content_id


def derive_seed(seed: int, purpose: str, *key: str | int) -> int:
    """A 32-bit seed for one purpose and one key (an item's id, an epoch, a sample's index)."""
    return int(content_id({"seed": seed, "purpose": purpose, "key": list(key)}, length=8), 16)


def generator(seed: int, purpose: str, *key: str | int) -> np.random.Generator:
    """Return a separate NumPy generator for one purpose and one key."""
    return np.random.default_rng(derive_seed(seed, purpose, *key))


def random_words(rng: np.random.Generator, size: int) -> UInt64[np.ndarray, " size"]:
    """`size` uniform integers of 32 bits. A longer draw begins with the shorter one."""
    words: UInt64[np.ndarray, " size"] = rng.bit_generator.random_raw(size) >> np.uint64(32)
    return words


def scaled(
    words: UInt64[np.ndarray, " n"], low: int | Int[np.ndarray, " n"], high: int | Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """32-bit words as integers in [low, high], bounds included: low + floor(word * (high - low + 1) / 2**32).

    The multiplication of Lemire (2019, arXiv:1805.10941) without its rejection: a value is at most
    (high - low + 1) / 2**32 more likely than another.
    """
    span = (np.asarray(high, np.int64) - np.asarray(low, np.int64) + 1).astype(np.uint64)
    return ((words * span) >> np.uint64(32)).astype(np.int64) + np.asarray(low, np.int64)


def uniform_integers(rng: np.random.Generator, low: int, high: int, size: int) -> Int[np.ndarray, " size"]:
    """`size` integers drawn uniformly from [low, high], bounds included."""
    return scaled(random_words(rng, size), low, high)


def shuffled(rng: np.random.Generator, size: int) -> Int[np.ndarray, " size"]:
    """The numbers 0 .. size - 1 in a random order."""
    return np.argsort(rng.bit_generator.random_raw(size), kind="stable")
