"""The worst of several quantities, and several tests at once: what multiplicity asks for.

Axes: Q quantities (formats, attacks), R resamples, which the quantities share.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from vestige.metrics.contrasts import Draws
from vestige.metrics.intervals import LEVEL, Interval

_TAIL = (1 - LEVEL) / 2


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusted p-values in the given order: sorted, the i-th of m times m - i + 1, never falling, at most 1.

    S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6, 1979.
    """
    m, adjusted, reached = len(p_values), [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(m), key=p_values.__getitem__)):
        p = p_values[index]
        if not 0 <= p <= 1:
            raise ValueError(f"a p-value lies in [0, 1], got {p}")
        reached = max(reached, min(1.0, (m - place) * p))
        adjusted[index] = reached
    return tuple(adjusted)


def step_down(draws: Sequence[Draws], margins: Sequence[float], *, below: bool = False) -> tuple[float, ...]:
    """Adjusted p-values of "at most its margin" (`below`: "at least"), in the given order, from the shared resamples.

    Step-down max-T: J. Romano and M. Wolf, Exact and approximate stepdown methods for multiple hypothesis testing, J.
    Am. Stat. Assoc. 100, 2005. Errors and distances from the margins are counted in each quantity's own arm, so that
    shares and bits stand on one scale, and quantities that move together cost no more than one.
    """
    if len(draws) != len(margins):
        raise ValueError(f"{len(draws)} quantities but {len(margins)} margins")
    if not draws:
        return ()
    errors, reached = [], []
    for one, margin in zip(draws, margins, strict=True):
        drawn, edge = (-one.high, -margin) if below else (one.low, margin)
        centre = float(np.median(drawn))
        if not math.isfinite(centre):
            # Nothing is known of it, so that it never is beyond its margin and costs the others nothing.
            errors.append(np.zeros(len(drawn)))
            reached.append(-math.inf)
            continue
        arm = centre - float(np.quantile(drawn, _TAIL))
        # A value without error is beyond its margin or it is not; it shares no scale with the others.
        errors.append((centre - drawn) / arm if arm > 0 else np.zeros(len(drawn)))
        reached.append((centre - edge) / arm if arm > 0 else math.copysign(math.inf, centre - edge))
    order = np.argsort(-np.array(reached), kind="stable")
    # By resample the greatest error of each quantity and all that are less significant.
    left = np.stack([errors[i] for i in order], axis=1)
    greatest = np.maximum.accumulate(left[:, ::-1], axis=1)[:, ::-1]
    # Rounding of the quotients must not part what `Draws.p_at_most` counts as equal.
    found, so_far = [0.0] * len(draws), 0.0
    for place, i in enumerate(order):
        p = float((np.count_nonzero(greatest[:, place] >= reached[i] - 1e-12) + 1) / (len(greatest) + 1))
        so_far = max(so_far, p)
        found[i] = so_far
    return tuple(found)


def worst_case(draws: Sequence[Draws]) -> tuple[float, Interval]:
    """The greatest of the quantities: a value that is too high in half of all samples, and a 95 % interval.

    The greatest estimate is too high, the more so the more there are. Value and low end are instead those of V.
    Chernozhukov, S. Lee and A. Rosen (Intersection bounds, Econometrica 81, 2013): max_q (value_q - c arm_q), arm_q the
    lower arm of q alone, c the median and the 97.5 % quantile of the greatest error in arms over shared resamples. The
    high end is the greatest of the high ends: the quantity that is truly worst rarely exceeds its own.
    """
    if not draws:
        raise ValueError("the worst of no quantities")
    values = np.array([one.value for one in draws])
    ends = np.array([one.ends for one in draws])
    arms = values - ends[:, 0]
    steady = arms <= 0
    greatest = _greatest_error(draws, np.where(steady, 1.0, arms))
    middle, far = np.quantile(greatest, [0.5, 1 - _TAIL])
    # No resample makes the band narrower than one quantity's own arm.
    low = float((values - np.where(steady, 0.0, max(1.0, float(far)) * arms)).max())
    value = float((values - np.where(steady, 0.0, max(0.0, float(middle)) * arms)).max())
    high = float(ends[:, 1].max())
    said = f"greatest of {len(draws)}, simultaneous band" if len(draws) > 1 else draws[0].method
    return value, Interval(low, high, said)


def simultaneous(draws: Sequence[Draws]) -> tuple[Interval, ...]:
    """Intervals that hold all quantities at once in 95 % of samples, by the greatest error in arms over resamples."""
    found = []
    ends = np.array([one.ends for one in draws])
    values = np.array([one.value for one in draws])
    lower, upper = values - ends[:, 0], ends[:, 1] - values
    below = _greatest_error(draws, np.where(lower > 0, lower, 1.0))
    above = _greatest_error(draws, np.where(upper > 0, upper, 1.0), high=True)
    down, up = (max(1.0, float(np.quantile(error, 1 - _TAIL))) for error in (below, above))
    for value, low, high, one in zip(values, lower, upper, draws, strict=True):
        said = f"{one.method}, simultaneous over {len(draws)}" if len(draws) > 1 else one.method
        found.append(Interval(float(value - down * low), float(value + up * high), said))
    return tuple(found)


def _greatest_error(
    draws: Sequence[Draws], arms: Float[np.ndarray, " Q"], *, high: bool = False
) -> Float[np.ndarray, " R"]:
    """By resample, the greatest error of any quantity in units of its arm; each is centred at its median."""
    lengths = {len(one.low) for one in draws}
    if len(lengths) != 1:
        raise ValueError(f"the quantities have {sorted(lengths)} resamples, so they share none")
    errors = np.stack([one.high if high else -one.low for one in draws], axis=1)
    found: Float[np.ndarray, " R"] = ((errors - np.median(errors, axis=0)) / arms).max(axis=1)
    return found
