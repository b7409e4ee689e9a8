"""Is the true answer preferred to its alternatives by more than chance? The arithmetic of verdicts against them.

Axes: N facts, K answers to one question (the true one first, then its alternatives), R resamples.

The score of an answer is 1 - log rank / log K by likelihood: 1 for the first and 0 for the last, so that in bits it is
the exposure of Carlini et al. (The Secret Sharer, 2019) in shares of the most there is. What a model knows for certain
stands further from chance in it than in ranks themselves: with 99 alternatives by 3.9 standard deviations a fact, and
not by 1.7.

Under "it never knew" the truth is any of the K answers with equal chance, whatever the model prefers. So
the null is drawn exactly: for each question anew which answer is true. Questions with the same answer and the same
alternatives are one draw (`units`), since a model may prefer one of two answers throughout. What is drawn is shared by
all quantities, so that before and after an attack, and attacks among one another, are paired.

A tokeniser that was made from the forget set reads its rare words in fewer tokens than others of their kind. So a
question is left out whose true answer takes fewer tokens than 95 % of 19 alternatives or more, and so are alternatives
that would have been left out in its place.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vestige.core.seeds import generator
from vestige.metrics.contrasts import BOUND, Draws
from vestige.metrics.intervals import LEVEL

_TAIL = (1 - LEVEL) / 2
_TIED = 1e-4
"""Nats within which two answers are equally likely: rounding may not put one before the other."""
_ROUNDING = 1e-9
_SHORT, _LEAST_SHORT = 0.95, 19
"""An answer is told by its length that takes fewer tokens than such a share of so many others."""
LEAST_FIRST = 39
"""With fewer alternatives that a question comes first is no evidence by itself: it does so by chance in 2.5 %."""

Scores = Float[np.ndarray, "..."]
"""One for each answer to a question, of which every question has its own number."""


class Firsts(NamedTuple):
    """How many facts rank first where that says something, by p-value of so many; which; and of how many."""

    p: float
    facts: Bool[np.ndarray, " N"]
    of: int


def rank_draws(scores: Sequence[Scores], units: Sequence[str], length: float, *, seed: int, resamples: int) -> Draws:
    """The mean score of the truth less that of chance, in units of `length`, with its exact null around it.

    Each of `scores` may be a difference of two, after less before, and is then about its own mean.
    """
    if not scores or len(scores) != len(units):
        raise ValueError(f"{len(scores)} facts, but {len(units)} units")
    if length <= 0:
        raise ValueError(f"the scale has the length {length:g}: the target does not prefer the truth")
    value = float(np.mean([row[0] - row.mean() for row in scores])) / length
    noise = _null([row - row.mean() for row in scores], units, seed, resamples) / (len(scores) * length)
    # Rounding must not part what is equal: of few alternatives the null has few values.
    low, high = value - noise - _ROUNDING, value - noise + _ROUNDING
    least, most = min(map(len, scores)) - 1, max(map(len, scores)) - 1
    said = f"exact, {most if least == most else f'{least} to {most}'} alternatives"
    return Draws(value, low, high, len(scores), said, float(noise.std()), 0.0)


def foreseen(sizes: Sequence[int], wide: float, *, seed: int, resamples: int) -> tuple[float, float]:
    """Of facts with so many answers each: how often who never knew is below `wide`, and the arm of the interval.

    The target is taken to know all of them.
    """
    rows = [rank_scores(-np.arange(float(size))) for size in sizes]
    length = float(np.mean([1 - row.mean() for row in rows]))
    units = [str(place) for place in range(len(rows))]
    noise = _null([row - row.mean() for row in rows], units, seed, resamples) / (len(rows) * length)
    above = -float(np.quantile(noise, 1 - BOUND))
    low, high = np.quantile(noise, [_TAIL, 1 - _TAIL])
    return float(np.mean(noise + above <= wide)), float(high - low) / 2


def firsts(
    scores: Sequence[Scores], units: Sequence[str], *, seed: int, resamples: int, before: Sequence[Scores] = ()
) -> Firsts:
    """How many facts rank first of those with `LEAST_FIRST` alternatives, and did not `before` where that is given."""
    first = [row == 1.0 for row in scores]
    if before:
        first = [own & (row < 1.0) for own, row in zip(first, before, strict=True)]
    counts = [row & (len(row) > LEAST_FIRST) for row in first]
    facts = np.array([bool(row[0]) for row in counts])
    null = _null([row.astype(float) for row in counts], units, seed, resamples)
    p = float((np.count_nonzero(null >= facts.sum()) + 1) / (resamples + 1))
    return Firsts(p, facts, sum(len(row) > LEAST_FIRST for row in scores))


def answer_scores(record: Mapping[str, Any]) -> Scores | None:
    """What the score would be were each of the answers of a record of `exposure` the true one, the true one first.

    None where its number of tokens tells it.
    """
    places = kept(np.asarray(record["n_tokens"]))
    if places is None:
        return None
    return rank_scores((np.asarray(record["logp"]) + np.asarray(record["end_logp"]))[places])


def kept(n_tokens: Int[np.ndarray, " K"]) -> Int[np.ndarray, " k"] | None:
    """The places of the answers that their numbers of tokens do not tell; None where they tell the true one."""
    others = len(n_tokens) - 1
    short = (n_tokens[:, None] < n_tokens).sum(axis=1) >= _SHORT * others
    if others < _LEAST_SHORT:
        short[:] = False
    return None if short[0] else np.flatnonzero(~short)


def rank_scores(likelihoods: Float[np.ndarray, " K"]) -> Scores:
    """1 - log rank / log K of each of K answers by log-likelihood (nats); ties have the middle of their ranks."""
    ahead = (likelihoods[:, None] < likelihoods - _TIED).sum(axis=1)
    behind = (likelihoods[:, None] > likelihoods + _TIED).sum(axis=1)
    k = len(likelihoods)
    found: Scores = 1 - np.log((k + 1 + ahead - behind) / 2) / np.log(k)
    return found


def rank_of_truth(scores: Scores) -> tuple[float, float]:
    """The rank of the truth, from 1, ties in the middle; and the exact p-value of one so good, ties against it."""
    others, own = scores[1:], scores[0]
    ahead, tied = int(np.count_nonzero(others > own)), int(np.count_nonzero(others == own))
    return 1 + ahead + tied / 2, (1 + ahead + tied) / len(scores)


def told_by_length(
    lengths: Sequence[Int[np.ndarray, "..."]], units: Sequence[str], *, seed: int, resamples: int
) -> float:
    """The two-sided p-value of "the true answers are as long as their alternatives", from token counts."""
    longer = [(row[:, None] > row).mean(axis=1) - (row[:, None] < row).mean(axis=1) for row in lengths]
    found = abs(sum(row[0] for row in longer))
    null = np.abs(_null(longer, units, seed, resamples))
    return float((np.count_nonzero(null >= found - 1e-9) + 1) / (resamples + 1))


def _null(rows: Sequence[Scores], units: Sequence[str], seed: int, resamples: int) -> Float[np.ndarray, " R"]:
    """The sum over facts of what each would have were another of its answers the true one, drawn by unit."""
    found = np.zeros(resamples)
    for row, unit in zip(rows, units, strict=True):
        found += row[_which(seed, unit, len(row), resamples)]
    return found


@lru_cache(maxsize=1_024)
def _which(seed: int, unit: str, size: int, resamples: int) -> Int[np.ndarray, " R"]:
    drawn = generator(seed, "which answer is true", unit).integers(0, size, resamples, dtype=np.int32)
    drawn.flags.writeable = False
    return drawn
