"""Enhanced GCG's proposals: the moves of `enhanced_moves`, with the passes of a model that they need.

Axes: T tokens of a prompt, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from vestige.attacks.candidates import best_tokens, without_repeats
from vestige.attacks.enhanced_moves import (
    Move,
    Rules,
    deleted,
    drawn_order,
    exchanged,
    inserted,
    move_shares,
    sampled_tokens,
)
from vestige.attacks.enhanced_objective import Apart
from vestige.attacks.gcg import DRAWS
from vestige.attacks.placement import Place, kept_in
from vestige.attacks.vocabulary import Vocabulary, as_texts
from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.models.variants import Ids


@dataclass(frozen=True)
class ByMoves:
    """Proposes changes of one kind a step, of which those stay that are the same tokens again once they are text."""

    objective: Apart
    tokenizer: PreTrainedTokenizerBase
    vocabulary: Vocabulary
    places: tuple[Place, ...]
    rules: Rules

    def __call__(self, prompt: Ids, step: int, rng: np.random.Generator) -> list[Ids]:
        """At most `candidates` prompts. Where the step's move yields none, the next one that is drawn stands in."""
        shares = move_shares(self.rules.shares, len(prompt), step, self.rules.lengths)
        for move in dict.fromkeys((*drawn_order(shares, rng), "gcg", "swap")):
            kept = self._kept(prompt, self._draws(move, prompt, step), rng)
            if kept:
                return kept
        raise InputError(
            f"step {step + 1}: no change of the prefix {one_line(as_texts(self.tokenizer, [prompt])[0], width=60)!r} "
            "that was drawn is the same tokens again once it is text; start from another `initial` text"
        )

    def _kept(
        self, prompt: Ids, draw: Callable[[np.random.Generator], list[Ids]], rng: np.random.Generator
    ) -> list[Ids]:
        found: dict[Ids, None] = {}
        for _ in range(DRAWS):
            new = [p for p in without_repeats(draw(rng)) if p != prompt and p not in found]
            found.update(dict.fromkeys(kept_in(self.tokenizer, new, self.places)))
            if len(found) >= self.rules.candidates:
                break
        return list(found)[: self.rules.candidates]

    def _draws(self, move: Move, prompt: Ids, step: int) -> Callable[[np.random.Generator], list[Ids]]:
        """How prompts are drawn by this move; the pass that it needs is made here, once."""
        n, n_tokens, k = self.rules.candidates, len(prompt), self.rules.topk
        if move == "delete":
            return lambda rng: deleted(prompt, rng.permutation(n_tokens)[:n].tolist())
        if move == "gcg":
            best = best_tokens(self.objective.gradient(prompt), self.vocabulary, k)

            def by_gradient(rng: np.random.Generator) -> list[Ids]:
                places = rng.integers(0, n_tokens, n)
                return exchanged(prompt, places.tolist(), best[places, rng.integers(0, k, n)].tolist())

            return by_gradient
        logits = self.objective.next_logits(prompt)
        ids = np.array(self.vocabulary.ids)
        said = logits[:, torch.tensor(self.vocabulary.ids, device=logits.device)].cpu().numpy()
        first = n_tokens + 1 - len(said)
        if move == "insert":
            each = self.rules.lengths.to_insert(n_tokens, step)

            def longer(rng: np.random.Generator) -> list[Ids]:
                places = rng.integers(first, n_tokens + 1, n * each)
                added = list(zip(places.tolist(), sampled_tokens(said, ids, places - first, k, rng), strict=True))
                return inserted(prompt, [added[i * each : (i + 1) * each] for i in range(n)])

            return longer

        def swapped(rng: np.random.Generator) -> list[Ids]:
            if first == n_tokens:
                # A lone token that nothing stands before: the model says nothing of its place.
                return []
            places = rng.integers(first, n_tokens, n)
            return exchanged(prompt, places.tolist(), sampled_tokens(said, ids, places - first, k, rng))

        return swapped
