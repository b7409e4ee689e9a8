"""The stored share of an answer, and tests for whether a text was in the training data.

How much of an answer is stored word for word. Axes: T tokens of the answer. All values from 0 to 1. `correct` is, per
token, whether it is the model's first choice given the true tokens before it (teacher-forced).

How high a model ranks the answer's tokens. Axes: T tokens of one answer, N items. PISTOL, 2406.16810, section 5. Ranks
count from 1, the best, and may be fractional where tied tokens share the mean of theirs.

TOFU's truth ratio, forget quality and model utility (Maini et al., TOFU, 2401.06121, section 3). Axes: P wrong answers
of one item, N items. `nll` is the mean negative log-likelihood per token, in nats, so that exp(-nll) is the
length-normalised probability.

Adversarial compression: how much longer a text is than the shortest prompt that was found to bring it. A. Schwarzschild
and others, Rethinking LLM Memorization through the Lens of Adversarial Compression, 2404.15146: the ratio is a text's
tokens over the prompt's, and a text is memorised where it exceeds 1. A prompt that was not found has no ratio, and its
text counts as not memorised: as far as the search that was made can say. (The released code reports a failed search at
its longest length, so that failures enter a mean of ratios as 1 over that.)

Lengths are in tokens. None is a prompt that was not found.

Whether a text was trained on, from its tokens' log-probabilities (nats): the higher the score, the likelier.

Axes: T tokens, N members (forget texts), M others (holdout texts), R resamples. An area under the curve (AUC) is the
probability that a member scores above another text, forget being positive: 0.5 means no separation, 1 separation by
remaining knowledge, and below 0.5 separation by over-forgetting.
"""

import math
import zlib
from collections.abc import Sequence
from math import comb
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from vestige.metrics.intervals import ByItem, Interval, interval_of_mean


def extraction_strength(correct: Bool[np.ndarray, " T"]) -> float:
    """1 - k/T, k the least number of true tokens to give so that greedy decoding writes the rest exactly.

    After Carlini et al., Extracting Training Data from Large Language Models, 2012.07805, as open-unlearning
    uses it. Greedy decoding from k is exact just where every token from k on is the model's first choice.
    """
    wrong = np.flatnonzero(~_checked(correct))
    k = 0
    if len(wrong):
        k = int(wrong[-1]) + 1
    return 1 - k / len(correct)


def exact_memorization(correct: Bool[np.ndarray, " T"]) -> float:
    """Share of tokens that are the model's first choice (Tirumala et al., 2205.10770, section 3)."""
    return float(_checked(correct).mean())


def leak_at_k(scores: Sequence[float], k: int) -> float:
    """The mean of the greatest of `k` scores drawn from these without putting any back.

    sum_i C(i - 1, k - 1) / C(n, k) s_(i), with s_(1) the least: the unbiased estimate of the leak in the best of k
    samples (2511.04934). Of scores 0 and 1 it is pass@k of Chen et al., 2107.03374, section 2.1.
    """
    n = len(scores)
    if not 1 <= k <= n:
        raise ValueError(f"leak@{k} of {n} samples is not defined; it needs 1 <= k <= n")
    total = comb(n, k)
    # Ratios of integers keep the weights exact for any number of samples.
    return math.fsum(comb(i, k - 1) / total * s for i, s in enumerate(sorted(scores)))


def _checked(correct: Bool[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
    correct = np.asarray(correct, dtype=bool)
    if not len(correct):
        raise ValueError("an answer without tokens stores nothing that could be measured")
    return correct


def mrr(ranks: Float[np.ndarray, " T"]) -> float:
    """Mean reciprocal rank of one answer's tokens, in (0, 1]."""
    return float((1 / _checked_ranks(ranks)).mean())


def top_hit(ranks: Float[np.ndarray, " T"], m: int = 100) -> float:
    """Share of one answer's tokens that rank `m` or better."""
    return float((_checked_ranks(ranks) <= m).mean())


def _checked_ranks(ranks: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    ranks = np.asarray(ranks, dtype=float)
    if not len(ranks):
        raise ValueError("an answer without tokens has no ranks")
    if not (ranks >= 1).all():
        raise ValueError(f"ranks count from 1, got {ranks.min()}")
    return ranks


Mean = Literal["arithmetic", "geometric"]


def truth_ratio(paraphrase_nll: float, perturbed_nll: Float[np.ndarray, " P"], *, mean: Mean) -> float:
    """R = mean of p(wrong) over the wrong answers / p(right, paraphrased). Above 1 the wrong are likelier.

    The paper's formula takes the arithmetic mean of probabilities. The repository's documented way to its
    tables takes the geometric one, exp(paraphrase_nll - mean perturbed_nll).
    """
    # Differences of logarithms do not underflow, unlike ratios of probabilities.
    perturbed = np.asarray(perturbed_nll, dtype=float)
    if not len(perturbed):
        raise ValueError("no wrong answers, so no truth ratio")
    logs = paraphrase_nll - perturbed
    return float(np.exp(logs).mean() if mean == "arithmetic" else np.exp(logs.mean()))


def truth_ratio_score(ratio: float, *, forget: bool) -> float:
    """Return an item's value in TOFU's tables, in [0, 1]: min(R, 1/R) in the forget set, otherwise max(0, 1 - R)."""
    if not ratio >= 0:
        raise ValueError(f"a truth ratio is not negative, got {ratio}")
    if not forget:
        return max(0.0, 1 - ratio)
    if ratio > 0:
        return min(ratio, 1 / ratio)
    return 0.0


def choice_probability(true_nll: float, false_nll: Float[np.ndarray, " P"]) -> float:
    """p(true) / (p(true) + sum of p(false)), length-normalised: TOFU's probability on its real-world sets."""
    false = np.asarray(false_nll, dtype=float)
    if not len(false):
        raise ValueError("no wrong answers to choose among")
    return float(1 / (1 + np.exp(true_nll - false).sum()))


def forget_quality(unlearned: Float[np.ndarray, " N"], retrained: Float[np.ndarray, " M"]) -> float:
    """p-value of the two-sided Kolmogorov-Smirnov test between truth ratios of the two models.

    High: the test cannot tell them apart. The same for R and 1/R. A p-value is no measure of distance: it
    falls with the number of items, so it compares only at equal numbers.
    """
    if not len(unlearned) or not len(retrained):
        raise ValueError("no truth ratios, so no forget quality")
    n, m = len(unlearned), len(retrained)
    values = np.concatenate([unlearned, retrained])
    up = np.searchsorted(np.sort(unlearned), values, side="right") * m
    apart = np.abs(up - np.searchsorted(np.sort(retrained), values, side="right") * n).max()
    # `chance[k]` is the probability that a random order of all values reaches this distance, after `past` values of
    # which `k` are of the first sample.
    k, chance = np.arange(n + 1), np.zeros(n + 2)
    for past in range(n + m, -1, -1):
        onwards = (n - k) * chance[1:] + (m - past + k) * chance[:-1]
        chance[:-1] = np.where(np.abs(k * m - (past - k) * n) >= apart, 1, onwards / max(1, n + m - past))
    return float(chance[0])


def harmonic_mean(values: Sequence[float]) -> float:
    """TOFU's model utility, of nine numbers: n / sum of 1/value. One value of 0 makes it 0."""
    if not values:
        raise ValueError("no values, so no mean")
    if not all(value >= 0 for value in values):
        raise ValueError(f"the harmonic mean needs values from 0 up, got {list(values)}")
    if min(values) > 0:
        return len(values) / sum(1 / value for value in values)
    return 0.0


def compression_ratio(n_text: int, n_prompt: int) -> float:
    """Return the text's tokens divided by the prompt's."""
    if n_text < 1 or n_prompt < 1:
        raise ValueError(f"a text of {n_text} tokens and a prompt of {n_prompt} have no ratio")
    return n_text / n_prompt


def memorised(n_text: int, n_prompt: int | None) -> bool:
    """Whether a prompt shorter than the text was found."""
    return n_prompt is not None and compression_ratio(n_text, n_prompt) > 1


ByToken = Float[np.ndarray, " T"]
ByOther = Float[np.ndarray, " M"]
"""A score for each of M other texts."""

_LEAST_VARIANCE = 1e-6
_LEAST_AUC = 1e-10


def loss(logp: ByToken) -> float:
    """Minus the mean negative log-likelihood (Yeom et al., 1709.01604): the mean log-probability of a token."""
    return float(_checked_scores(logp).mean())


def zlib_score(logp: ByToken, n_bytes: int) -> float:
    """Minus the summed negative log-likelihood over the bytes that zlib needs (Carlini et al., 2012.07805, 5.1).

    Both are of the whole text. Code in circulation (open-unlearning too) divides the mean over tokens, in which the
    length counts twice.
    """
    if n_bytes < 1:
        raise ValueError(f"a compressed text has bytes, got {n_bytes}")
    return float(_checked_scores(logp).sum()) / n_bytes


def zlib_bytes(text: str) -> int:
    """Length of `text`, in UTF-8, after zlib at its default level."""
    return len(zlib.compress(text.encode("utf-8")))


def mink(logp: ByToken, *, k: float) -> float:
    """Mean of the `k` share of lowest log-probabilities, at least one (Shi et al., 2310.16789)."""
    scores = _checked_scores(logp)
    if not 0 < k <= 1:
        raise ValueError(f"k is a share in (0, 1], got {k}")
    return float(np.sort(scores)[: max(1, int(k * len(scores)))].mean())


def minkpp(logp: ByToken, mean: ByToken, variance: ByToken, *, k: float) -> float:
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
    first, second = _checked_scores(members), _checked_scores(nonmembers)
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
    """Return a 95 % interval for the AUC, over texts of both kinds. Its width is positive even at 0 and 1.

    DeLong's variance of an AUC is the sum of the variances of two means: the placements of members and of non-members.
    Each mean has the interval of its own kind of text (`metrics.intervals`, with its clusters), and their arms are
    added in quadrature.

    Args:
        members: A score for each text of the forget set.
        nonmembers: A score for each holdout text.
        member_clusters: The edge of each member.
        other_clusters: The edge of each holdout text.
        seed: The seed of the resamples.

    Example:
        >>> auc_interval(np.array([2.0, 3.0]), np.array([0.0, 1.0]), seed=0).high
        1.0
    """
    # Sorting makes the sums independent of the order of the texts.
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
    ordered = np.sort(_checked_scores(nonmembers))
    # In binary, 0.05 * 20 is slightly more than 1. A share that is met exactly is allowed.
    allowed = math.floor(fpr * len(ordered) + 1e-9)
    hits: ByItem = (_checked_scores(members) > ordered[len(ordered) - 1 - allowed]).astype(float)
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


def _checked_scores(scores: ByItem) -> ByItem:
    values = np.asarray(scores, dtype=float)
    if not len(values):
        raise ValueError("there are no scores, as of a text without tokens, so there is nothing to say")
    if np.isnan(values).any():
        raise ValueError("a score is not a number")
    return values
