"""What an attempt of a search is worth: how badly the model answered, less how like earlier attempts the prompt is.

    reward = J - ngram_coef x selfBLEU - semantic_coef x cosine, held within -clip and clip

J is 0 to 10, selfBLEU 0 to 1 (mean over n = 3, 4, 5, against all earlier prompts), the cosine -1 to 1 (mean to all
earlier prompts). KL and entropy belong to the policy's update. It is 2511.00030's J + lambda_ng N_ng + lambda_s N_s,
N = 1 - likeness, less the constants: so the greatest reward is 10, and the clip of Curiosity's code (2402.19464, 10)
takes nothing from a prompt that is new. Below, it cuts where the penalties are large: with weights of 10 most rewards
can come to lie at -10, whatever J is.

Axes: N prompts, D width of an embedding.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from pydantic import Field, PositiveFloat

from vestige.core.settings import Settings
from vestige.metrics.bleu import tokens
from vestige.metrics.novelty import SeenEmbeddings, SeenNgrams

NGRAM, SEMANTIC = "ngram", "semantic"
"""The names of the novelties."""


@runtime_checkable
class Embeds(Protocol):
    """Who embeds prompts: `models.embedder.Embedder` does."""

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        """An embedding for each text, which does not depend on the others."""
        ...


class RewardSettings(Settings):
    """The weights of the penalties beside J (0 to 10), and the bound of the reward.

    The paper does not publish its weights. Curiosity's are 1, beside a reward of 0 to 1; ours are 1 beside J.
    """

    ngram_coef: float = Field(default=1.0, ge=0)
    semantic_coef: float = Field(default=1.0, ge=0)
    clip: PositiveFloat = 10.0


class Seen:
    """All prompts so far. Without an embedder there is no semantic novelty, and no penalty for it."""

    def __init__(self, embedder: Embeds | None) -> None:
        self._embedder = embedder
        self._ngrams = SeenNgrams()
        self._embeddings: SeenEmbeddings | None = None

    def novelty(self, prompts: Sequence[str]) -> list[dict[str, float]]:
        """Each prompt's novelties, 1 - likeness to all seen before; then they are seen, all at once."""
        split = [tokens(prompt) for prompt in prompts]
        found = {NGRAM: 1 - self._ngrams.likeness(split)}
        self._ngrams.add(split)
        if self._embedder is not None:
            embeddings = self._embedder.embed(prompts)
            if self._embeddings is None:
                self._embeddings = SeenEmbeddings(embeddings.shape[1])
            found[SEMANTIC] = 1 - self._embeddings.likeness(embeddings)
            self._embeddings.add(embeddings)
        return [{name: float(values[row]) for name, values in found.items()} for row in range(len(prompts))]


def reward(j: float, novelty: Mapping[str, float], settings: RewardSettings) -> float:
    """The reward of one attempt; a novelty that was not measured costs nothing."""
    penalty = settings.ngram_coef * (1 - novelty.get(NGRAM, 1.0)) + settings.semantic_coef * (
        1 - novelty.get(SEMANTIC, 1.0)
    )
    return min(settings.clip, max(-settings.clip, j - penalty))


def neutral(rewards: Sequence[float | None], *, group_size: int) -> list[float]:
    """Rewards with None, where nothing was judged, replaced by what teaches least: the mean of the others.

    Of the others in its group of neighbours, which GRPO compares; where there are none, of all. At least one is needed.
    """
    known = [r for r in rewards if r is not None]
    overall = sum(known) / len(known)
    filled: list[float] = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        judged = [r for r in group if r is not None]
        mean = sum(judged) / len(judged) if judged else overall
        filled += [mean if r is None else r for r in group]
    return filled
