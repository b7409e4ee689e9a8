"""The moves of Enhanced GCG: which change a step makes, how long a prompt may be by then, and where tokens come from.

FLRT's rules (T. B. Thompson, M. Sklar, FLRT: Fluent student-teacher redteaming, 2407.17447), with two differences. No
prompt ever grows longer than is granted, so that what it can carry is bounded; and a prompt that lacks several tokens
gets up to four in one step, since a short search would be all insertions else. Pure; every draw comes from a generator.

Axes: T tokens of a prompt, V vocabulary, N places.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

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
    drawn = rng.choice(len(moves), size=len(moves), replace=False, p=[shares[move] for move in moves])
    return [moves[int(n)] for n in drawn]


def deleted(prompt: Ids, places: Sequence[int]) -> list[Ids]:
    """The prompt without the token at each of the places in turn."""
    return [prompt[:at] + prompt[at + 1 :] for at in places]


def inserted(prompt: Ids, additions: Iterable[Iterable[tuple[int, int]]]) -> list[Ids]:
    """The prompt once for each group of places and tokens, each token before its place; place T is behind the last."""
    found = []
    for group in additions:
        longer = prompt
        for at, token in sorted(group, reverse=True):
            longer = (*longer[:at], token, *longer[at:])
        found.append(longer)
    return found


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
    found: dict[int, Int[np.ndarray, " K"]] = {}
    for at in np.unique(places).tolist():
        # The k largest of logits with Gumbel noise are k draws without replacement (Vieira, 2014).
        noisy = logits[at] + rng.gumbel(size=len(ids))
        best = np.argpartition(-noisy, k - 1)[:k]
        found[at] = ids[best[np.argsort(-noisy[best], kind="stable")]]
    ranks = rng.integers(0, k, len(places)).tolist()
    return [int(found[at][rank]) for at, rank in zip(places.tolist(), ranks, strict=True)]
