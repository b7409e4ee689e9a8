"""Where a search for a prompt of one length may begin: at a prompt of another length that was found before.

A longer one loses tokens, one at a time, each time the one without which the loss is least; a shorter one gains tokens
drawn at random behind it. What is scored for that is charged; only prompts that stay the same tokens as text count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vestige.attacks.candidates import without_repeats
from vestige.attacks.gcg import DRAWS, tokens_read
from vestige.attacks.placement import Place, kept_in, places_of
from vestige.attacks.vocabulary import Vocabulary, admissible, inner_texts
from vestige.models.embedding import embedding_table
from vestige.models.load import LoadedModel
from vestige.models.variants import Around, Ids, Variants


class Earlier(Protocol):
    """What a search of another length found: `attacks.gcg.FoundPrompt` is one."""

    @property
    def ids(self) -> Ids:
        """Its best prompt."""

    @property
    def reached(self) -> bool:
        """Whether that brought its text."""


@dataclass(frozen=True)
class Start:
    """The text to begin with (empty: at random), and what was spent on it."""

    text: str
    spent: Mapping[str, int]


def warm_start(
    loaded: LoadedModel,
    text: Around,
    earlier: Sequence[Earlier],
    n_tokens: int,
    *,
    ascii_only: bool,
    rng: np.random.Generator,
) -> Start:
    """A start of `n_tokens`: from the shortest longer prompt that worked, or else from the longest shorter one.

    That it worked is what its search says. Random where there is neither, or where no way there stays the same tokens
    as text.
    """
    places = places_of(loaded.tokenizer, [text])
    longer = [e.ids for e in earlier if e.reached and len(e.ids) > n_tokens]
    shorter = [e.ids for e in earlier if len(e.ids) < n_tokens]
    spent = {"candidates": 0, "tokens_read": 0}
    ids: Ids | None = None
    if longer:
        ids = _shortened(loaded, text, min(longer, key=len), n_tokens, places, spent)
    elif shorter:
        vocabulary = admissible(loaded.tokenizer, embedding_table(loaded.model).shape[0], ascii_only=ascii_only)
        ids = _lengthened(loaded, max(shorter, key=len), n_tokens, places, vocabulary, rng)
    return Start(inner_texts(loaded.tokenizer, [ids], spaced=text.spaced)[0] if ids else "", spent)


def _shortened(
    loaded: LoadedModel, text: Around, prompt: Ids, n_tokens: int, places: Sequence[Place], spent: dict[str, int]
) -> Ids | None:
    variants = Variants(loaded.model, [text])
    while len(prompt) > n_tokens:
        without = without_repeats([prompt[:i] + prompt[i + 1 :] for i in range(len(prompt))])
        kept = kept_in(loaded.tokenizer, without, places)
        if not kept:
            return None
        spent["candidates"] += len(kept)
        spent["tokens_read"] += tokens_read([text], kept)
        prompt = kept[variants.leaders(kept, 1)[0].index]
    return prompt


def _lengthened(
    loaded: LoadedModel,
    prompt: Ids,
    n_tokens: int,
    places: Sequence[Place],
    vocabulary: Vocabulary,
    rng: np.random.Generator,
) -> Ids | None:
    while len(prompt) < n_tokens:
        drawn = [(*prompt, vocabulary.ids[i]) for i in rng.integers(0, len(vocabulary.ids), 4 * DRAWS)]
        kept = kept_in(loaded.tokenizer, drawn, places)
        if not kept:
            return None
        prompt = kept[0]
    return prompt
