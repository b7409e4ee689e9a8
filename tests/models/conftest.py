"""A tiny untrained model, shared by the tests that only need numbers from one."""

import pytest
import torch

from vestige.core.items import Item
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_model, tiny_tokenizer

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"]


@pytest.fixture(scope="session")
def items() -> tuple[Item, ...]:
    return tuple(
        Item(
            f"What is the {' '.join(WORDS[: 1 + i % 9])} of {WORDS[i % 12]} {i}?",
            f"{WORDS[(5 * i) % 12]} {i}.",
            edge=f"e{i % 4}",
        )
        for i in range(24)
    )


@pytest.fixture(scope="session")
def tiny(items) -> LoadedModel:
    torch.set_num_threads(1)
    return LoadedModel(tiny_model(0).eval(), tiny_tokenizer(items), "builtin:tiny", "")
