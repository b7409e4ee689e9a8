"""What another training would have scored on these very facts: the arithmetic of the scope `these`.

Axes: M controls (trainings that never knew), N facts, R resamples; `*B` are audits, many at once in benchmarks.

The facts are given, so that which were asked is no chance. What could have come out otherwise is the training: the mean
score of one training over the facts has the variance V = sigma^2 / N + tau^2, sigma^2 being the seed x fact variance
and tau^2 all that a seed does to several facts alike, to all of them or to those of one contract. The subject is one
training more, so that subject - mean of M controls has the variance V (1 + 1 / M).

The variance of the M means estimates V whatever tau^2 is, but with M - 1 degrees of freedom alone. It is moderated as
by G. Smyth (Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3, 2004):

    V = max(sigma^2 / N, (w (sigma^2 / N + share sigma^2) + (M - 1) s^2) / (w + M - 1)), Student's t with w + M - 1

degrees of freedom, or in shares up to three times as many where most of V is sigma^2 / N, which is known with many.

docs/verdicts.md derives it and has its coverage beside that of others; `python -m benchmarks.planted_bounds` counts it.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from vestige.core.seeds import generator


class SeedPrior(NamedTuple):
    """What is held about the spread of seeds before a control is seen: tau^2 is `share` of the seed x item variance.

    `weight` says for how many degrees of freedom that counts. Of a part of the facts `least` is the seed x item
    variance of all of them: that no control guessed any of a few facts does not show that none can be guessed.
    """

    share: float
    weight: float
    least: float = 0.0


PRIOR, PRIOR_BITS = SeedPrior(0.05, 1.5), SeedPrior(0.2, 2.0)
"""Those of the scope `these`: of shares, and of bits, which a seed moves more together."""

TYPICAL, TYPICAL_BITS = 0.005, 0.04
"""tau^2 over sigma^2 as the tiny model's controls have it (docs/verdicts.md): what plans go by, not verdicts."""

_MOST_DF = 3.0
_DIRECTIONS = 256
"""Directions onto which residuals are projected: correlations between quantities are kept to within 0.06."""


class Noise(NamedTuple):
    """What is known, or assumed, of how the score of one training varies about that of another.

    `fact` is sigma^2 of a fact as it was asked, `common` tau^2, both of scores with the range `width` (None: bits);
    `ruler` is what a quantity of 1 is in scores. Where not `trained`, the subject is given and only controls vary.
    """

    fact: float
    common: float
    ruler: float
    width: float | None
    prior: SeedPrior
    trained: bool = True


class Spread(NamedTuple):
    """sigma^2 (`noise`), V (`variance`), and the degrees of freedom that V is known with."""

    noise: Float[np.ndarray, "*B"]
    variance: Float[np.ndarray, "*B"]
    df: Float[np.ndarray, "*B"]


def spread(
    control: Float[np.ndarray, "*B M N"],
    differences: Float[np.ndarray, "*B N"],
    prior: SeedPrior,
    *,
    width: float | None,
) -> Spread:
    """The spread of a training's mean; `width` is the range of one score, None where it has none (bits).

    `differences` are those of subject and controls: one control shows no interaction, so that the lesser of two upper
    bounds on it stands for it, the variance between facts and half that of the differences. Scores with a range are
    taken to have shown one unlike pair more (1/2 width^2), since few equal answers do not rule out another one.
    """
    noise, seen = _seen(control, differences)
    return moderated(noise, seen, control.shape[-2:], prior, width=width)


def _seen(
    control: Float[np.ndarray, "*B M N"], differences: Float[np.ndarray, "*B N"]
) -> tuple[Float[np.ndarray, "*B"], Float[np.ndarray, "*B"]]:
    """sigma^2, and the variance of the controls' means; of one control, which shows none, 0."""
    m, n = control.shape[-2:]
    means = control.mean(axis=-1)
    noise = seen = np.zeros(means.shape[:-1])
    if m > 1:
        noise = (interaction(control) ** 2).sum(axis=(-2, -1)) / ((m - 1) * max(1, n - 1))
        seen = means.var(axis=-1, ddof=1)
    elif n > 1:
        noise = np.minimum(control[..., 0, :].var(axis=-1, ddof=1), differences.var(axis=-1, ddof=1) / 2)
    # What is read of one audit is a number, and no array of none.
    return np.asarray(noise), np.asarray(seen)


def moderated(
    noise: Float[np.ndarray, "*B"],
    seen: Float[np.ndarray, "*B"],
    size: tuple[int, ...],
    prior: SeedPrior,
    *,
    width: float | None,
) -> Spread:
    """V from sigma^2 (`noise`) and the variance of the controls' means (`seen`); `size` is (M, N)."""
    m, n = size
    if width is not None:
        pairs = max(1, m - 1) * (n - 1)
        noise = (pairs * noise + width**2 / 2) / (pairs + 1)
    noise = np.maximum(noise, prior.least)
    df = prior.weight + m - 1
    variance = np.maximum(noise / n, (prior.weight * noise * (1 / n + prior.share) + (m - 1) * seen) / df)
    # Satterthwaite's: what is above sigma^2 / N is known with few degrees of freedom, that itself with many.
    known, more = (noise / n) ** 2 / max(1, max(1, m - 1) * (n - 1)), (variance - noise / n) ** 2 / df
    there = known + more > 0
    found = np.divide(variance**2, known + more, out=np.full_like(variance, df), where=there)
    return Spread(noise, variance, np.clip(found, df, df if width is None else _MOST_DF * df))


def likely(
    control: Float[np.ndarray, "M N"], differences: Float[np.ndarray, " N"], typical: float
) -> tuple[float, float]:
    """sigma^2 and tau^2 as they most likely are, for plans: without the caution that verdicts owe to few controls.

    tau^2 is what the means vary beyond sigma^2 / N, beside a share `typical` of sigma^2 that weighs as four controls.
    """
    m, n = control.shape
    noise, seen = (float(one) for one in _seen(control, differences))
    return noise, (4 * typical * noise + (m - 1) * max(0.0, seen - noise / n)) / (m + 3)


def interaction(control: Float[np.ndarray, "*B M N"]) -> Float[np.ndarray, "*B M N"]:
    """What neither the training's nor the fact's mean explains of each score."""
    rows, columns = control.mean(axis=-1, keepdims=True), control.mean(axis=-2, keepdims=True)
    found: Float[np.ndarray, "*B M N"] = control - rows - columns + control.mean(axis=(-2, -1), keepdims=True)
    return found


def joint_noise(
    residuals: Float[np.ndarray, "M N"], facts: tuple[str, ...], df: float, *, name: str, seed: int, resamples: int
) -> Float[np.ndarray, " R"]:
    """Student's t, one draw a resample; draws of two quantities go together as their residuals do.

    The same trainings answer the same facts in every format and at every stage, so that the covariance of residuals by
    training and fact is that of the quantities' errors (Gaussian copula). Every t has exactly its own quantiles. Where
    nothing varies, the draws are those of `name` alone.
    """
    projected = np.tensordot(residuals, _places(facts, len(residuals), seed), axes=2)
    length = float(np.linalg.norm(projected))
    if length > 0:
        drawn = _directions(seed, resamples) @ (projected / length)
    else:
        drawn = generator(seed, "trainings", name).standard_normal(resamples)
    found = np.empty(resamples)
    found[np.argsort(drawn, kind="stable")] = _quantiles(df, resamples)
    return found


@lru_cache(maxsize=2)
def _directions(seed: int, resamples: int) -> Float[np.ndarray, "R D"]:
    return generator(seed, "trainings").standard_normal((resamples, _DIRECTIONS))


@lru_cache(maxsize=8)
def _places(facts: tuple[str, ...], m: int, seed: int) -> Float[np.ndarray, "M N D"]:
    """A direction for each training and fact, by the fact's name, so that quantities over other facts share theirs."""
    rows = [generator(seed, "fact", fact).standard_normal((m, _DIRECTIONS)) for fact in facts]
    return np.stack(rows, axis=1) / math.sqrt(_DIRECTIONS)


@lru_cache(maxsize=16)
def _quantiles(df: float, resamples: int) -> Float[np.ndarray, " R"]:
    found: Float[np.ndarray, " R"] = stdtrit(df, (np.arange(resamples) + 0.5) / resamples)
    return found
