"""Whether a text was trained on, from its tokens' log-probabilities (nats): the higher the score, the likelier.

Axes: T tokens, N members (forget texts), M others (holdout texts), R resamples. An area under the curve (AUC) is the
probability that a member scores above another text, forget being positive: 0.5 means no separation, 1 separation by
remaining knowledge, and below 0.5 separation by over-forgetting.
"""

import math
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from vestige.metrics.intervals import ByItem, Interval, interval_of_mean

ByToken = Float[np.ndarray, " T"]
ByOther = Float[np.ndarray, " M"]
"""A score for each of M other texts."""

_LEAST_VARIANCE = 1e-6
_LEAST_AUC = 1e-10


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
