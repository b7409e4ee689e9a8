"""Whether a text was trained on, and how a true answer ranks among its alternatives.

Whether a text was trained on, from its tokens' log-probabilities (nats): the higher the score, the likelier. Axes: T
tokens, N members (forget texts), M others (holdout texts), R resamples. An area under the curve (AUC) is the
probability that a member scores above another text, forget being positive: 0.5 means no separation, 1 separation by
remaining knowledge, and below 0.5 separation by over-forgetting.

Is the true answer preferred to its alternatives by more than chance? The arithmetic of verdicts against them. Axes: N
facts, K answers to one question (the true one first, then its alternatives), R resamples.

The score of an answer is 1 - log rank / log K by likelihood: 1 for the first and 0 for the last, so that in bits it is
the exposure of Carlini et al. (The Secret Sharer, 2019) in shares of the most there is. Certain knowledge is further
from chance in this score than in ranks: with 99 alternatives by 3.9 standard deviations a fact, and not by 1.7.

Under the null hypothesis, without exposure, the truth is any of the K answers with equal chance, whatever the model
prefers. So the null is drawn exactly: for each question anew which answer is true. Questions with the same answer and
alternatives share one draw (`units`), since a model may prefer one of two answers throughout. All quantities share the
draws, so that scores before and after an attack, and attacks among one another, are paired.

A tokeniser that was made from the forget set reads its rare words in fewer tokens than others of their kind. So a
question is left out whose true answer takes fewer tokens than 95 % of 19 alternatives or more, and so are alternatives
that would have been left out in its place.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vestige.core.seeds import generator
from vestige.metrics.contrasts import BOUND, Draws
from vestige.metrics.intervals import LEVEL, ByItem, ByResample, Interval, interval_of_mean

ByToken = Float[np.ndarray, " T"]
ByOther = Float[np.ndarray, " M"]
"""A score for each of M other texts."""

_LEAST_VARIANCE = 1e-6
_LEAST_AUC = 1e-10
_TAIL = (1 - LEVEL) / 2


def loss(logp: ByToken) -> float:
    """Minus the mean negative log-likelihood (Yeom et al., 1709.01604): the mean log-probability of a token."""
    return float(_checked(logp).mean())


def zlib_score(logp: ByToken, n_bytes: int) -> float:
    """Minus the summed negative log-likelihood over the bytes that zlib needs (Carlini et al., 2012.07805, 5.1).

    Both are of the whole text. Code in circulation (open-unlearning too) divides the mean over tokens, in which the
    length counts twice.
    """
    if n_bytes < 1:
        raise ValueError(f"a compressed text has bytes, got {n_bytes}")
    return float(_checked(logp).sum()) / n_bytes


def zlib_bytes(text: str) -> int:
    """Length of `text`, in UTF-8, after zlib at its default level."""
    return len(zlib.compress(text.encode("utf-8")))


def mink(logp: ByToken, *, k: float) -> float:
    """Mean of the `k` share of lowest log-probabilities, at least one (Shi et al., 2310.16789)."""
    scores = _checked(logp)
    if not 0 < k <= 1:
        raise ValueError(f"k is a share in (0, 1], got {k}")
    return float(np.sort(scores)[: max(1, int(k * len(scores)))].mean())


def minkpp(
    logp: ByToken,
    mean: ByToken,
    variance: ByToken,
    *,
    k: float,
) -> float:
    """The same of (logp - mean) / sqrt(variance), in standard deviations (Zhang et al., 2404.02936).

    `mean` and `variance` are the moments of the log-probability under the model's own distribution at each position.
    The variance is at least 1e-6, as in open-unlearning: if all tokens are equally likely, a token scores 0.
    """
    centred = np.asarray(logp, dtype=float) - np.asarray(mean, dtype=float)
    return mink(centred / np.sqrt(np.maximum(variance, _LEAST_VARIANCE)), k=k)


def placements(members: ByItem, nonmembers: ByOther) -> tuple[ByItem, ByOther]:
    """The share of others below each member, and of members above each other text. A tie counts one half.

    The mean of either is the AUC (DeLong et al., Biometrics 44, 1988, call them structural components).
    """
    first, second = _checked(members), _checked(nonmembers)
    ordered = np.sort(second)
    below = np.searchsorted(ordered, first, "left") + np.searchsorted(ordered, first, "right")
    ordered = np.sort(first)
    not_above = np.searchsorted(ordered, second, "left") + np.searchsorted(ordered, second, "right")
    return below / (2 * len(second)), 1 - not_above / (2 * len(first))


def auc(members: ByItem, nonmembers: ByOther) -> float:
    """Probability that a member scores above another text, ties counting one half."""
    return float(placements(members, nonmembers)[0].mean())


def auc_interval(
    members: ByItem,
    nonmembers: ByOther,
    *,
    member_clusters: Sequence[str] | None = None,
    other_clusters: Sequence[str] | None = None,
    seed: int,
) -> Interval:
    """A 95 % interval for the AUC, over texts of both kinds. Never without width, even at 0 and 1.

    DeLong's variance of an AUC is the sum of those of two means, of the members' placements and of the others'. So each
    mean has the interval of its own kind of text (`metrics.intervals`, with its clusters), and their arms are added in
    quadrature.

    Args:
        members: A score for each text of the forget set.
        nonmembers: A score for each holdout text.
        member_clusters: The edge of each member.
        other_clusters: The edge of each holdout text.
        seed: What the resamples are drawn by.

    Example:
        >>> auc_interval(np.array([2.0, 3.0]), np.array([0.0, 1.0]), seed=0).high
        1.0
    """
    # Sums in one order, whatever that of the texts.
    area = auc(np.sort(members), np.sort(nonmembers))
    below = above = 0.0
    methods = []
    for values, clusters in zip(placements(members, nonmembers), (member_clusters, other_clusters), strict=True):
        interval = interval_of_mean(values, clusters=clusters, seed=seed)
        below, above = math.hypot(below, area - interval.low), math.hypot(above, interval.high - area)
        methods.append(interval.method)
    method = "; others ".join(methods)
    return Interval(max(0.0, area - below), min(1.0, area + above), f"members {method}")


def hits_at_fpr(members: ByItem, nonmembers: ByOther, *, fpr: float) -> ByItem:
    """1 for each member above the least threshold that at most the share `fpr` of the others exceeds, otherwise 0."""
    if not 0 <= fpr < 1:
        raise ValueError(f"a false positive rate lies in [0, 1), got {fpr}")
    ordered = np.sort(_checked(nonmembers))
    # 0.05 * 20 is a little more than 1 in binary; a share that is met exactly may be used.
    allowed = math.floor(fpr * len(ordered) + 1e-9)
    hits: ByItem = (_checked(members) > ordered[len(ordered) - 1 - allowed]).astype(float)
    return hits


def privleak(auc: float, auc_retrained: float) -> float:
    """100 (AUC - AUC_retrained) / AUC_retrained, in per cent (Shi et al., MUSE, 2407.06460, section 3.2).

    0 is ideal. At 0.5 for `retrained`, -100 (under-unlearned) and 100 (over-unlearned) are the ends. That is MUSE's
    AUC, with holdout texts as positive: give it 1 less `auc` of this file.
    """
    for value in (auc, auc_retrained):
        if not 0 <= value <= 1:
            raise ValueError(f"an AUC lies in [0, 1], got {value}")
    if auc_retrained < _LEAST_AUC:
        raise ValueError("PrivLeak is not defined where the retrained model's AUC is 0")
    return 100 * (auc - auc_retrained) / auc_retrained


def _checked(scores: ByItem) -> ByItem:
    values = np.asarray(scores, dtype=float)
    if not len(values):
        raise ValueError("there are no scores, as of a text without tokens, so there is nothing to say")
    if np.isnan(values).any():
        raise ValueError("a score is not a number")
    return values


_TIED = 1e-4
"""Nats within which two answers are equally likely: rounding may not put one before the other."""
_ROUNDING = 1e-9
_SHORT, _LEAST_SHORT = 0.95, 19
"""Length reveals an answer with fewer tokens than this share of that many others."""
LEAST_FIRST = 39
"""With fewer alternatives that a question comes first is no evidence by itself: it does so by chance in 2.5 %."""

Scores = Float[np.ndarray, "..."]
"""One score for each answer to a question, and each question has its own number of answers."""


class FirstRanks(NamedTuple):
    """The number of facts that rank first, its p-value, the facts, and the number tested. Which, and of how many."""

    p: float
    facts: Bool[np.ndarray, " N"]
    of: int


def rank_draws(scores: Sequence[Scores], units: Sequence[str], length: float, *, seed: int, resamples: int) -> Draws:
    """Return the truth's mean score minus chance, in units of `length`, with its exact null.

    Each of `scores` may be a difference of two, after less before, and is then about its own mean.
    """
    if not scores or len(scores) != len(units):
        raise ValueError(f"{len(scores)} facts, but {len(units)} units")
    if length <= 0:
        raise ValueError(f"the scale has the length {length:g}: the target does not prefer the truth")
    value = float(np.mean([row[0] - row.mean() for row in scores])) / length
    # About its own mean, so that of preferences alone nothing is left.
    noise = _null([row - row.mean() for row in scores], units, seed, resamples) / (len(scores) * length)
    # Rounding must not part what is equal: of few alternatives the null has few values.
    low, high = value - noise - _ROUNDING, value - noise + _ROUNDING
    least, most = min(map(len, scores)) - 1, max(map(len, scores)) - 1
    method = f"exact, {most if least == most else f'{least} to {most}'} alternatives"
    return Draws(value, low, high, len(scores), method, float(noise.std()), 0.0)


def foreseen(sizes: Sequence[int], wide: float, *, seed: int, resamples: int) -> tuple[float, float]:
    """Return how often an unexposed model is below `wide`, and the interval's arm.

    The target is assumed to know all facts.
    """
    rows = [rank_scores(-np.arange(float(size))) for size in sizes]
    length = float(np.mean([1 - row.mean() for row in rows]))
    units = [str(number) for number in range(len(rows))]
    noise = _null([row - row.mean() for row in rows], units, seed, resamples) / (len(rows) * length)
    above = -float(np.quantile(noise, 1 - BOUND))
    low, high = np.quantile(noise, [_TAIL, 1 - _TAIL])
    return float(np.mean(noise + above <= wide)), float(high - low) / 2


def firsts(
    scores: Sequence[Scores], units: Sequence[str], *, seed: int, resamples: int, before: Sequence[Scores] = ()
) -> FirstRanks:
    """Count the facts that rank first among `LEAST_FIRST` alternatives, and did not in `before`, if set."""
    first = [row == 1.0 for row in scores]
    if before:
        first = [was_first & (row < 1.0) for was_first, row in zip(first, before, strict=True)]
    counts = [row & (len(row) > LEAST_FIRST) for row in first]
    facts = np.array([bool(row[0]) for row in counts])
    null = _null([row.astype(float) for row in counts], units, seed, resamples)
    p = float((np.count_nonzero(null >= facts.sum()) + 1) / (resamples + 1))
    return FirstRanks(p, facts, sum(len(row) > LEAST_FIRST for row in scores))


def answer_scores(record: Mapping[str, Any]) -> Scores | None:
    """Return the score for each answer in a record of `exposure` as the true one, the true one first.

    None if its number of tokens reveals it.
    """
    places = kept(np.asarray(record["n_tokens"]))
    if places is None:
        return None
    return rank_scores((np.asarray(record["logp"]) + np.asarray(record["end_logp"]))[places])


def kept(n_tokens: Int[np.ndarray, " K"]) -> Int[np.ndarray, " k"] | None:
    """The places of the answers that their numbers of tokens do not tell. None where they tell the true one."""
    n_alternatives = len(n_tokens) - 1
    short = (n_tokens[:, None] < n_tokens).sum(axis=1) >= _SHORT * n_alternatives
    if n_alternatives < _LEAST_SHORT:
        short[:] = False
    return None if short[0] else np.flatnonzero(~short)


def rank_scores(likelihoods: Float[np.ndarray, " K"]) -> Scores:
    """1 - log rank / log K of each of K answers by log-likelihood (nats). Ties have the middle of their ranks."""
    ahead = (likelihoods[:, None] < likelihoods - _TIED).sum(axis=1)
    behind = (likelihoods[:, None] > likelihoods + _TIED).sum(axis=1)
    k = len(likelihoods)
    scores: Scores = 1 - np.log((k + 1 + ahead - behind) / 2) / np.log(k)
    return scores


def length_p_value(
    lengths: Sequence[Int[np.ndarray, "..."]], units: Sequence[str], *, seed: int, resamples: int
) -> float:
    """The two-sided p-value of "the true answers are as long as their alternatives", from token counts."""
    longer = [(row[:, None] > row).mean(axis=1) - (row[:, None] < row).mean(axis=1) for row in lengths]
    statistic = abs(sum(row[0] for row in longer))
    null = np.abs(_null(longer, units, seed, resamples))
    return float((np.count_nonzero(null >= statistic - 1e-9) + 1) / (resamples + 1))


def _null(rows: Sequence[Scores], units: Sequence[str], seed: int, resamples: int) -> ByResample:
    """Return the null distribution of the sum over facts, with another answer as the true one, drawn by unit."""
    totals = np.zeros(resamples)
    for row, unit in zip(rows, units, strict=True):
        totals += row[_which(seed, unit, len(row), resamples)]
    return totals


@lru_cache(maxsize=1_024)
def _which(seed: int, unit: str, size: int, resamples: int) -> Int[np.ndarray, " R"]:
    answers = generator(seed, "which answer is true", unit).integers(0, size, resamples, dtype=np.int32)
    # Cached and shared by all quantities over the unit.
    answers.flags.writeable = False
    return answers
