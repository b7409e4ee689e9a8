"""Questions about parties that nobody was ever told of, in the place of those that are asked about.

What a model gains on them too is no knowledge of the parties: templates and options give it away.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vestige.core.seeds import derive_seed
from vestige.data.dataset import Dataset
from vestige.data.mcq import Choice
from vestige.data.names import Names


def with_strangers(choices: Sequence[Choice], dataset: Dataset, seed: int) -> tuple[Choice, ...]:
    """The choices whose questions name a party, with a new party of the same kind in its place; options stay.

    Two names never become one, and no new name is one of the data's.
    """
    parties = _parties(dataset)
    names = sorted({name for c in choices for name in parties if name in c.question})
    new = _new_names(names, parties, seed)
    # Longer names first, so that a name inside another one is left whole.
    ordered = sorted(names, key=lambda n: (-len(n), n))
    swapped = []
    for choice in choices:
        question = choice.question
        for name in ordered:
            question = question.replace(name, new[name])
        if question != choice.question:
            swapped.append(replace(choice, question=question))
    return tuple(swapped)


def _parties(dataset: Dataset) -> dict[str, str]:
    """The kind (company, person) of every name that signs a contract."""
    found = {}
    for contract in dataset.contracts:
        type_ = dataset.types[contract.type]
        for role, kind in zip(type_.roles, type_.kinds, strict=True):
            found[contract.values[type_.name_of[role]]] = str(kind)
    return found


def _new_names(names: Sequence[str], parties: dict[str, str], seed: int) -> dict[str, str]:
    drawn = Names(derive_seed(seed, "strangers"))
    new: dict[str, str] = {}
    for kind in sorted({parties[n] for n in names}):
        wanted = [n for n in names if parties[n] == kind]
        pool = drawn.of_kind(kind, np.arange(2 * len(parties) + len(wanted)))
        free = [n for n in pool if n not in parties]
        new |= dict(zip(wanted, free, strict=False))
    return new
