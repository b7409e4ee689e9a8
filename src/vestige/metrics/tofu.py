"""TOFU's truth ratio, forget quality and model utility (Maini et al., TOFU, 2401.06121, section 3).

Axes: P wrong answers of one item, N items. `nll` is the mean negative log-likelihood per token, in nats, so
that exp(-nll) is the length-normalised probability.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

Mean = Literal["arithmetic", "geometric"]


def truth_ratio(paraphrase_nll: float, perturbed_nll: Float[np.ndarray, " P"], *, mean: Mean) -> float:
    """R = mean of p(wrong) over the wrong answers / p(right, paraphrased); above 1 the wrong are likelier.

    The paper's formula takes the arithmetic mean of probabilities. The repository's documented way to its
    tables takes the geometric one, exp(paraphrase_nll - mean perturbed_nll).
    """
    perturbed = np.asarray(perturbed_nll, dtype=float)
    if not len(perturbed):
        raise ValueError("no wrong answers, so no truth ratio")
    logs = paraphrase_nll - perturbed
    return float(np.exp(logs).mean() if mean == "arithmetic" else np.exp(logs.mean()))


def truth_ratio_score(ratio: float, *, forget: bool) -> float:
    """What an item counts in TOFU's tables, in [0, 1]: min(R, 1/R) in the forget set, else max(0, 1 - R)."""
    if not ratio >= 0:
        raise ValueError(f"a truth ratio is not negative, got {ratio}")
    if not forget:
        return max(0.0, 1 - ratio)
    return min(ratio, 1 / ratio) if ratio > 0 else 0.0


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
    return float(stats.ks_2samp(unlearned, retrained).pvalue)


def harmonic_mean(values: Sequence[float]) -> float:
    """TOFU's model utility, of nine numbers: n / sum of 1/value. One value of 0 makes it 0."""
    if not values:
        raise ValueError("no values, so no mean")
    if not all(value >= 0 for value in values):
        raise ValueError(f"the harmonic mean needs values from 0 up, got {list(values)}")
    return len(values) / sum(1 / value for value in values) if min(values) > 0 else 0.0


class SetScores(NamedTuple):
    """What TOFU reports of one of its sets, means over items: `probability`, ROUGE-L recall, truth ratio's score.

    `probability` is exp(-nll) on the retain set and `choice_probability` on the real authors and world facts.
    `truth_ratio` is `truth_ratio_score(..., forget=False)`.
    """

    probability: float
    rougeL_recall: float
    truth_ratio: float


def tofu_utility(retain: SetScores, real_authors: SetScores, world_facts: SetScores) -> float:
    """TOFU's model utility: the harmonic mean of the nine numbers; shares, so none may leave [0, 1]."""
    nine = [*retain, *real_authors, *world_facts]
    if not all(0 <= value <= 1 for value in nine):
        raise ValueError(f"model utility is of nine shares from 0 to 1, got {nine}")
    return harmonic_mean(nine)
