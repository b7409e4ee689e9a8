"""Enhanced GCG's moves: which change a step makes, how long a prompt may be by then, and where tokens come from.

The rules are FLRT's (T. B. Thompson, M. Sklar, 2407.17447), with two differences. No prompt ever grows longer than is
granted, so that what it can carry is bounded; and a prompt that lacks several tokens gets up to four in one step, since
a short search would be all insertions else. Every draw comes from a generator.

Axes: T tokens of a prompt, V vocabulary, N places.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from transformers import PreTrainedTokenizerBase

from vestige.attacks.enhanced_objective import PrefixObjective
from vestige.attacks.gcg import DRAWS
from vestige.attacks.placement import Place, Vocabulary, as_texts, best_tokens, kept_in, without_repeats
from vestige.core.errors import InputError
from vestige.core.text import one_line
from vestige.models.variants import Ids

Move = Literal["gcg", "delete", "insert", "swap"]

MOST_AT_ONCE = 4
"""Of more tokens inserted at once hardly a draw stays the same tokens as text."""


class Lengths(NamedTuple):
    """The least number of tokens rises from `first` to `last` within `ramp_steps`, and stays; `last` is the most."""

    first: int
    last: int
    ramp_steps: int

    def least(self, step: int) -> float:
        """What a prompt should have at this step, counted from 0; on its way a fraction."""
        share = min(step / self.ramp_steps, 1.0) if self.ramp_steps else 1.0
        return self.first + (self.last - self.first) * share

    def to_insert(self, n_tokens: int, step: int) -> int:
        """How many tokens an insertion puts in: those that are lacking, `MOST_AT_ONCE` at most, one at least."""
        return min(max(math.ceil(self.least(step)) - n_tokens, 1), MOST_AT_ONCE)


class Rules(NamedTuple):
    """How often each move is made and how long prompts may be; how many a step makes, and out of how many tokens."""

    shares: Mapping[Move, float]
    lengths: Lengths
    candidates: int
    topk: int


def move_shares(shares: Mapping[Move, float], n_tokens: int, step: int, lengths: Lengths) -> dict[Move, float]:
    """How likely each move is, by what the prompt's length allows; they add up to 1.

    Shorter than the least: insert. As long as is granted: anything else; the place that a deletion leaves is filled
    by the insertion after it. One token is not deleted.
    """
    if n_tokens < lengths.least(step):
        return {"insert": 1.0}
    allowed = {
        move: share
        for move, share in shares.items()
        if share > 0
        and not (move == "insert" and n_tokens >= lengths.last)
        and not (move == "delete" and n_tokens == 1)
    }
    # Where only insertions were to be made and none fits any more, tokens are swapped.
    allowed = allowed or {"swap": 1.0}
    total = sum(allowed.values())
    return {move: share / total for move, share in allowed.items()}


def drawn_order(shares: Mapping[Move, float], rng: np.random.Generator) -> list[Move]:
    """All moves, drawn one after the other: the first is the step's, the next stand in where it yields nothing."""
    moves = sorted(shares)
    order = rng.choice(len(moves), size=len(moves), replace=False, p=[shares[move] for move in moves])
    return [moves[int(n)] for n in order]


def deleted(prompt: Ids, places: Sequence[int]) -> list[Ids]:
    """The prompt without the token at each of the places in turn."""
    return [prompt[:at] + prompt[at + 1 :] for at in places]


def inserted(prompt: Ids, additions: Iterable[Iterable[tuple[int, int]]]) -> list[Ids]:
    """The prompt once for each group of places and tokens, each token before its place; place T is behind the last."""
    prompts_longer = []
    for group in additions:
        longer = prompt
        for at, token in sorted(group, reverse=True):
            longer = (*longer[:at], token, *longer[at:])
        prompts_longer.append(longer)
    return prompts_longer


def exchanged(prompt: Ids, places: Sequence[int], tokens: Sequence[int]) -> list[Ids]:
    """The prompt with another token at each of the places in turn."""
    return [(*prompt[:at], token, *prompt[at + 1 :]) for at, token in zip(places, tokens, strict=True)]


def sampled_tokens(
    logits: Float[np.ndarray, "T V"],
    ids: Int[np.ndarray, " V"],
    places: Int[np.ndarray, " N"],
    k: int,
    rng: np.random.Generator,
) -> list[int]:
    """A token for each place: one, uniformly, of `k` that the model's distribution there gives without replacement.

    The columns of `logits` stand for the tokens `ids`. Two draws at one place are from the same `k`.
    """
    sampled: dict[int, Int[np.ndarray, " K"]] = {}
    for at in np.unique(places).tolist():
        # The k largest of logits with Gumbel noise are k draws without replacement (Vieira, 2014).
        noisy = logits[at] + rng.gumbel(size=len(ids))
        best = np.argpartition(-noisy, k - 1)[:k]
        sampled[at] = ids[best[np.argsort(-noisy[best], kind="stable")]]
    ranks = rng.integers(0, k, len(places)).tolist()
    return [int(sampled[at][rank]) for at, rank in zip(places.tolist(), ranks, strict=True)]


@dataclass(frozen=True)
class ByMoves:
    """Proposes changes of one kind a step, of which those stay that are the same tokens again once they are text."""

    objective: PrefixObjective
    tokenizer: PreTrainedTokenizerBase
    vocabulary: Vocabulary
    places: tuple[Place, ...]
    rules: Rules

    def __call__(self, prompt: Ids, step: int, rng: np.random.Generator) -> list[Ids]:
        """At most `candidates` prompts. Where the step's move yields none, the next one that is drawn stands in."""
        shares = move_shares(self.rules.shares, len(prompt), step, self.rules.lengths)
        for move in dict.fromkeys((*drawn_order(shares, rng), "gcg", "swap")):
            valid = self._kept(prompt, self._draws(move, prompt, step), rng)
            if valid:
                return valid
        raise InputError(
            f"step {step + 1}: no change of the prefix {one_line(as_texts(self.tokenizer, [prompt])[0], width=60)!r} "
            "that was drawn is the same tokens again once it is text; start from another `initial` text"
        )

    def _kept(
        self, prompt: Ids, draw: Callable[[np.random.Generator], list[Ids]], rng: np.random.Generator
    ) -> list[Ids]:
        valid: dict[Ids, None] = {}
        for _ in range(DRAWS):
            new = [p for p in without_repeats(draw(rng)) if p != prompt and p not in valid]
            valid.update(dict.fromkeys(kept_in(self.tokenizer, new, self.places)))
            if len(valid) >= self.rules.candidates:
                break
        return list(valid)[: self.rules.candidates]

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
        rows = logits[:, torch.tensor(self.vocabulary.ids, device=logits.device)].cpu().numpy()
        first = n_tokens + 1 - len(rows)
        if move == "insert":
            each = self.rules.lengths.to_insert(n_tokens, step)

            def longer(rng: np.random.Generator) -> list[Ids]:
                places = rng.integers(first, n_tokens + 1, n * each)
                added = list(zip(places.tolist(), sampled_tokens(rows, ids, places - first, k, rng), strict=True))
                return inserted(prompt, [added[i * each : (i + 1) * each] for i in range(n)])

            return longer

        def swapped(rng: np.random.Generator) -> list[Ids]:
            if first == n_tokens:
                # A lone token that nothing stands before: the model says nothing of its place.
                return []
            places = rng.integers(first, n_tokens, n)
            return exchanged(prompt, places.tolist(), sampled_tokens(rows, ids, places - first, k, rng))

        return swapped
