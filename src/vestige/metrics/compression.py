"""Adversarial compression: how much longer a text is than the shortest prompt that was found to bring it.

A. Schwarzschild and others, Rethinking LLM Memorization through the Lens of Adversarial Compression, 2404.15146: the
ratio is a text's tokens over the prompt's, and a text is memorised where it exceeds 1. A prompt that was not found has
no ratio, and its text counts as not memorised: as far as the search that was made can say. (The released code reports a
failed search at its longest length, so that failures enter a mean of ratios as 1 over that.)

Axes: N items. Lengths are in tokens; None is a prompt that was not found.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from vestige.metrics.intervals import Interval, interval_of_mean, wilson


def compression_ratio(n_text: int, n_prompt: int) -> float:
    """Tokens of the text for one of the prompt."""
    if n_text < 1 or n_prompt < 1:
        raise ValueError(f"a text of {n_text} tokens and a prompt of {n_prompt} have no ratio")
    return n_text / n_prompt


def memorised(n_text: int, n_prompt: int | None) -> bool:
    """Whether a prompt shorter than the text was found."""
    return n_prompt is not None and compression_ratio(n_text, n_prompt) > 1


class Compression(NamedTuple):
    """What the items of one model come to.

    `share` of all is memorised. `ratio` is the mean over the `n_found` items whose prompt was found, None with none;
    `ratio_interval` is None with fewer than two or with equal ratios.
    """

    n: int
    share: float
    share_interval: Interval
    n_found: int
    ratio: float | None
    ratio_interval: Interval | None

    @property
    def n_not_found(self) -> int:
        """Items without a ratio."""
        return self.n - self.n_found


def compression(texts: Sequence[int], prompts: Sequence[int | None], *, seed: int) -> Compression:
    """Share memorised (Wilson) and mean ratio of what was found (studentised bootstrap: ratios have no upper bound)."""
    if not texts:
        raise ValueError("without items there is no share of them")
    hits = sum(memorised(text, prompt) for text, prompt in zip(texts, prompts, strict=True))
    ratios = [compression_ratio(t, p) for t, p in zip(texts, prompts, strict=True) if p is not None]
    several = len(set(ratios)) > 1
    return Compression(
        n=len(texts),
        share=hits / len(texts),
        share_interval=wilson(hits, len(texts)),
        n_found=len(ratios),
        ratio=float(np.mean(ratios)) if ratios else None,
        ratio_interval=interval_of_mean(np.array(ratios), bounds=None, seed=seed) if several else None,
    )


class Paired(NamedTuple):
    """Of the items that two models share: in which the prompt is shorter.

    What was found is shorter than what was not; `same` are of equal length, `neither` were found in neither. `p` is
    that of the two-sided sign test on the items that differ, 1 where none does.
    """

    shorter_in_first: int
    shorter_in_second: int
    same: int
    neither: int
    p: float


def paired(first: Sequence[int | None], second: Sequence[int | None]) -> Paired:
    """The comparison item by item; both in one order, found by the same search with the same steps."""
    counts = {-1: 0, 0: 0, 1: 0}
    neither = 0
    for one, other in zip(first, second, strict=True):
        if one is None and other is None:
            neither += 1
            continue
        a, b = (float("inf") if n is None else float(n) for n in (one, other))
        counts[(a > b) - (a < b)] += 1
    differ = counts[-1] + counts[1]
    p = float(binomtest(counts[-1], differ).pvalue) if differ else 1.0
    return Paired(counts[-1], counts[1], counts[0], neither, p)
