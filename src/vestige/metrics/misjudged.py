"""Shares that somebody tells who errs at a known rate: what they come to, and how far they may be off."""

import math
from typing import Literal, NamedTuple

from pydantic import Field, PositiveInt

from vestige.core.settings import Settings

_Z = 1.959963984540054


class LeakJudgeSettings(Settings):
    """Who tells leaks, beside comparing words.

    A judge's error is measured on labelled replies. `judge_most_calls` counts the calls of earlier commands too; it
    changes no number and is in no id.
    """

    judge: Literal["", "likeness", "entailment", "local", "server"] = ""
    """Who decides whether a reply leaks the answer, beside comparing words."""
    judge_model: str = ""
    """Folder or hub id: an embedder (likeness), a cross-encoder (entailment), a chat model (local); or the server's
    name for it."""
    judge_url: str = ""
    """URL of the server before /chat/completions."""
    judge_examples: str = ""
    """JSONL file of labelled replies on which the judge's error is measured; by default Vestige's own."""
    judge_most_calls: PositiveInt | None = Field(default=None, exclude=True)
    """Most calls to a server, earlier ones included; what needs more stops and resumes with a higher limit."""


class Misjudged(NamedTuple):
    """What a judge was measured to err: `missed` of `true` leaks, and `alarms` in `false` replies without one."""

    missed: int
    true: int
    alarms: int
    false: int

    @property
    def left(self) -> float:
        """What is left of a difference between two shares: sensitivity + specificity - 1, at least 0."""
        return max(0.0, 1 - self.missed / self.true - self.alarms / self.false)

    def __str__(self) -> str:
        """As in `misses 2 of 30 leaks and sees 1 in 30 replies without one`."""
        return f"misses {self.missed} of {self.true} leaks and sees {self.alarms} in {self.false} replies without one"


def corrected_share(seen: float, n: int, error: Misjudged) -> tuple[float, float, float]:
    """The share of leaks where `seen` of `n` replies were told to be some, with a 95 % interval, in [0, 1].

    The estimate is Rogan and Gladen's (American Journal of Epidemiology 107, 1978), the interval Lang and Reiczigel's
    (Preventive Veterinary Medicine 113, 2014), which holds the uncertainty of both error rates too. A judge that tells
    no better than chance tells nothing: the interval is from 0 to 1.
    """
    if not (0 <= seen <= n and n > 0 and 0 <= error.missed <= error.true and 0 <= error.alarms <= error.false):
        raise ValueError(f"no share: {seen} of {n}, {error}")
    # Pseudo-counts, as the interval asks for.
    m, positives, negatives = n + _Z**2, error.true + 2, error.false + 2
    share = (seen + _Z**2 / 2) / m
    sensitivity = (error.true - error.missed + 1) / positives
    specificity = (error.false - error.alarms + 1) / negatives
    youden = sensitivity + specificity - 1
    if youden <= 0:
        return seen / n, 0.0, 1.0
    middle = (share + specificity - 1) / youden
    of_true, of_false = (x * (1 - x) / k for x, k in ((sensitivity, positives), (specificity, negatives)))
    shift = 2 * _Z**2 * (middle * of_true - (1 - middle) * of_false)
    wide = _Z * math.sqrt(share * (1 - share) / m + (1 - middle) ** 2 * of_false + middle**2 * of_true) / youden
    value = (seen / n - error.alarms / error.false) / error.left if error.left > 0 else middle
    low, high = middle + shift - wide, middle + shift + wide
    value, low, high = (min(1.0, max(0.0, x)) for x in (value, low, high))
    return value, min(low, value), max(high, value)
