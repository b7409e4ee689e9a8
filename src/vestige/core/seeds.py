"""Seeds as arguments: each depends on the study's seed, a purpose and a key, and never on order."""

import numpy as np

from vestige.core.ids import content_id


def derive_seed(seed: int, purpose: str, *key: str | int) -> int:
    """A 32-bit seed for one purpose and one key (an item's id, an epoch, a sample's index)."""
    return int(content_id({"seed": seed, "purpose": purpose, "key": list(key)}, length=8), 16)


def generator(seed: int, purpose: str, *key: str | int) -> np.random.Generator:
    """A NumPy generator of its own for one purpose and one key."""
    return np.random.default_rng(derive_seed(seed, purpose, *key))
