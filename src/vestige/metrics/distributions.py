"""Probabilities and quantiles of the normal, Student's t, beta and gamma distributions.

NumPy has none of them, and SciPy would be more than half of the small installation. Functions with a name of
`scipy.special` return its values, which tests compare.

All of them use the log odds of a beta variable, measured from their mode. This density has no poles, its logarithm is
concave, and its tails fall at least exponentially. So one quadrature gives every tail with a small relative error, and
Newton's method on the logarithm of a tail finds every quantile from any start. Student's t is
sqrt(df) sinh(log odds / 2) with a = b = df / 2. A gamma variable is the limit of b times a beta variable for large b.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.polynomial import Chebyshev

Numbers = Float[np.ndarray, "*B"]
_LARGE = 1e18
_MOST_STEPS = 200
# Equal steps of s with x = exp(s - exp(-s)) integrate from 0 every function that falls exponentially.
_S = np.arange(-3.75, 5.5, 0.0625)
_X = np.exp(_S - np.exp(-_S))
_WEIGHT = 0.0625 * _X * (1 + np.exp(-_S))

ndtri = np.vectorize(lambda p: NormalDist().inv_cdf(p) if 0 < p < 1 else (p - 0.5) * math.inf, otypes=[float])
"""The quantile of the normal distribution, infinite for probabilities of 0 and 1."""
ndtr = np.vectorize(lambda z: math.erfc(-z / math.sqrt(2)) / 2, otypes=[float])
"""The probability that a normal variable is less."""


def betainc(a: int | float, b: int | float, x: float) -> float:
    """The probability that a beta variable is less than `x`."""
    if not 0 < x < 1:
        return float(x >= 1)
    log_odds = np.full(1, math.log(x / (1 - x)) - math.log(a / b))
    side = math.copysign(1.0, log_odds[0])
    total = np.logaddexp(*(_log_tail(a, b, np.zeros(1), sign) for sign in (-1.0, 1.0)))
    tail = math.exp((_log_tail(a, b, log_odds, side) - total)[0])
    return 1 - tail if side > 0 else tail


def stdtrit(df: Any, p: Any) -> Any:
    """The quantiles of Student's t."""
    half = np.asarray(df) / 2
    return np.sqrt(df) * np.sinh(_log_odds(half, half, np.log(p), np.log1p(-np.asarray(p))) / 2)


@lru_cache(maxsize=4096)
def t_quantile(df: int | float, p: float) -> float:
    """The quantile of Student's t for one number of degrees of freedom; of the normal distribution if it is infinite.

    Example:
        >>> round(t_quantile(2, 0.975), 3)
        4.303
    """
    return float(stdtrit(df, p) if math.isfinite(df) else ndtri(p))


def chdtri(df: int | float, p: Any) -> Any:
    """The value that a chi-squared variable exceeds with the probability `p`."""
    return df * np.exp(_log_odds(df / 2, _LARGE, np.log1p(-np.asarray(p)), np.log(p)))


@lru_cache(maxsize=256)
def t_quantiles(df: int | float, number: int) -> Float[np.ndarray, " R"]:
    """The quantiles of Student's t at the middles of as many equal parts of [0, 1]."""
    z = _normal_quantiles(number)
    half = Chebyshev.interpolate(lambda low: np.arcsinh(stdtrit(df, ndtr(low)) / math.sqrt(df)), 60, [z[0], 0])
    values: Float[np.ndarray, " R"] = math.sqrt(df) * np.sinh(np.copysign(half(-np.abs(z)), z))
    return values


@lru_cache(maxsize=4)
def _normal_quantiles(number: int) -> Float[np.ndarray, " R"]:
    quantiles: Float[np.ndarray, " R"] = ndtri((np.arange(number) + 0.5) / number)
    return quantiles


def gamma_of_exponential(a: float, values: Numbers) -> Numbers:
    """Gamma variables of shape `a` at the same quantiles as these exponential ones."""
    logs = np.log(values)
    smooth = Chebyshev.interpolate(
        lambda log: _log_odds(a, _LARGE, np.log(-np.expm1(-np.exp(log))), -np.exp(log)), 60, [logs.min(), logs.max()]
    )
    gammas: Numbers = a * np.exp(smooth(logs))
    return gammas


def root(rising: Callable[[float], float], low: float, high: float) -> float:
    """The argument at which a rising function reaches 0, to a billionth of the range."""
    step = (high - low) / 2**30
    return low + step * bisect_left(range(2**30), 0.0, key=lambda n: rising(low + n * step))


def _log_density(a: Any, b: Any, x: Numbers) -> Numbers:
    """The log density of a beta variable's log odds at `x` from their mode, less its value at the mode."""
    # Beyond 40 the density is exponential to the last digit, and expm1 could overflow.
    far = np.maximum(x - 40, 0)
    density: Numbers = a * (x - far) - b * far - (a + b) * np.log1p(a / (a + b) * np.expm1(x - far))
    return density


def _log_tail(a: Any, b: Any, x: Numbers, side: Any) -> Numbers:
    """The logarithm of the integral from `x` outwards: upwards if `side` is 1, downwards if it is -1."""
    spread = side * np.sqrt(1 / a + 1 / b)
    top = _log_density(a, b, x)
    reach = 3 * spread / (1 + top - _log_density(a, b, x + spread))
    shares = np.exp(_log_density(a, b, x + reach * _X) - top) @ _WEIGHT
    tail: Numbers = top + np.log(np.abs(reach) * shares[..., None])
    return tail


def _log_odds(a: Any, b: Any, log_below: Any, log_above: Any) -> Numbers:
    """The log odds, from their mode, that have these log probabilities on their two sides."""
    a, log_below, log_above = (np.asarray(value)[..., None] for value in (a, log_below, log_above))
    b = np.asarray(b)[..., None]
    x = np.zeros(np.broadcast_shapes(a.shape, log_below.shape))
    below, above = (_log_tail(a, b, x, sign) for sign in (-1.0, 1.0))
    total = np.logaddexp(below, above)
    side = np.where(log_above + total < above, 1.0, -1.0)
    wanted = total + np.where(side > 0, log_above, log_below)
    spread = np.sqrt(1 / a + 1 / b)
    for _ in range(_MOST_STEPS):
        tail = _log_tail(a, b, x, side)
        step = (tail - wanted) * np.exp(tail - _log_density(a, b, x))
        # The tangent of a tail that falls faster than exponentially leads far beyond the value.
        x = x + side * np.minimum(step, np.abs(x) + spread)
        # The next error is about the square of this step.
        if np.all(np.abs(step) <= 1e-9 * spread):
            break
    odds: Numbers = x[..., 0]
    return odds
