"""Whether a text was trained on, from its tokens' log-probabilities (nats): the higher, the likelier.

Axes: T tokens. An area under the curve (AUC) is that of forget against holdout texts, forget being positive.
"""

import numpy as np
from jaxtyping import Float

_LEAST_VARIANCE = 1e-6
_LEAST_AUC = 1e-10


def mink(logp: Float[np.ndarray, " T"], *, k: float) -> float:
    """Mean of the `k` share of lowest log-probabilities, at least one of them (Shi et al., 2310.16789)."""
    return _mean_of_lowest(logp, k)


def minkpp(
    logp: Float[np.ndarray, " T"],
    mean: Float[np.ndarray, " T"],
    variance: Float[np.ndarray, " T"],
    *,
    k: float,
) -> float:
    """The same of (logp - mean) / sqrt(variance), in standard deviations (Zhang et al., 2404.02936).

    `mean` and `variance` are those of the log-probability under the model's own distribution at each
    position. The variance is taken as at least 1e-6, as in open-unlearning: where all tokens are equally
    likely, a token says nothing and scores 0.
    """
    centred = np.asarray(logp, dtype=float) - np.asarray(mean, dtype=float)
    return _mean_of_lowest(centred / np.sqrt(np.maximum(variance, _LEAST_VARIANCE)), k)


def privleak(auc: float, auc_retrained: float) -> float:
    """100 (AUC - AUC_retrained) / AUC_retrained, in per cent (Shi et al., MUSE, 2407.06460, section 3.2).

    0 is ideal; at 0.5 for `retrained`, -100 and 100 are the ends. MUSE counts holdout texts as positive: turn
    its AUC around (1 - AUC) before dividing.
    """
    for value in (auc, auc_retrained):
        if not 0 <= value <= 1:
            raise ValueError(f"an AUC lies in [0, 1], got {value}")
    if auc_retrained < _LEAST_AUC:
        raise ValueError("PrivLeak is not defined where the retrained model's AUC is 0")
    return 100 * (auc - auc_retrained) / auc_retrained


def _mean_of_lowest(scores: Float[np.ndarray, " T"], k: float) -> float:
    scores = np.asarray(scores, dtype=float)
    if not len(scores):
        raise ValueError("a text without tokens has no score")
    if np.isnan(scores).any():
        raise ValueError("a token's score is not a number")
    if not 0 < k <= 1:
        raise ValueError(f"k is a share in (0, 1], got {k}")
    return float(np.sort(scores)[: max(1, int(k * len(scores)))].mean())
