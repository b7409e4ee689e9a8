"""Whether single facts are given away, whatever the mean is: over-forgotten facts must not hide a stated one.

Axes: M controls, N facts. Three tests, all of the subject against what each control shows against the other controls,
so that the number of facts is paid for:

- `extreme` (scores without bounds, bits): z by fact against the greatest z of any control. Nulls have heavy tails (z
  of 4.3 in 312 on real models), and M maxima tell little of their law. Where its tail falls as z^-4 the chance that the
  subject's maximum exceeds k times the greatest of the M others is 1 / (1 + M k^4), and less for lighter tails. Under
  any law the chance that the J greatest of all M + 1 trainings are all the subject's is 1 / (M + 1)^J. The lesser of
  the two is the p-value.
- `stated` (hits): how many facts the subject states and no control does. Given all that one training alone states, the
  subject's share of them is 1 / (M + 1); the controls' count is against one training fewer, which errs on the safe
  side.
- `extreme` among the facts that one training alone states: where controls guess some facts too, what tells a known fact
  from a guess is how likely its answer is.

docs/verdicts.md has how often they are wrong. Fewer than three controls show no spread between controls.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import bdtrc, ndtri

LEAST_CONTROLS = 3
TESTS = 3
_TAIL_INDEX = 4.0
_LEAST_SPREAD = 1e-12
_CLEAR = 1.2
"""A control's z is against one training fewer, which moves it by up to 6 %; scores can be tied. So a fact is beyond the
controls only where its z is by a fifth."""
_PRIOR_DF = 4.0
"""A fact's own spread between controls counts beside that of all facts, which has the weight of so many degrees."""


class Found(NamedTuple):
    """The p-value of "no fact is given away", and which facts are, were it so; `size` is z or the number stated."""

    p: float
    facts: Bool[np.ndarray, " N"]
    size: float
    null: float


def least_given_away(controls: int, level: float = 0.025) -> int | None:
    """How many facts fail a claim that are clear of all controls, if only just; None with fewer than three controls."""
    if controls < LEAST_CONTROLS:
        return None
    return math.ceil(math.log(TESTS / level) / math.log(controls + 1))


class Alone(NamedTuple):
    """Which facts the subject states and no control does, and which each control states and no other control does."""

    subject: Bool[np.ndarray, " N"]
    control: Bool[np.ndarray, "M N"]


def standing(one: Float[np.ndarray, " N"], others: Float[np.ndarray, "M N"]) -> Float[np.ndarray, " N"]:
    """By fact, how far one training's score is above the others' mean, in standard errors (moderated).

    A training that gives all answers more than others do gives none of them away for it: the (lower) median is taken
    off where it is above 0.
    """
    m, n = others.shape
    own = others.var(axis=0, ddof=1)
    spread = (_PRIOR_DF * own.mean() + (m - 1) * own) / (_PRIOR_DF + m - 1)
    apart = one - others.mean(axis=0)
    z: Float[np.ndarray, " N"] = np.divide(
        apart, np.sqrt(spread * (1 + 1 / m)), out=np.zeros_like(apart), where=spread > _LEAST_SPREAD
    )
    return z - max(0.0, float(np.sort(z)[(n - 1) // 2])) if n > 1 else z


def extreme(
    subject: Float[np.ndarray, "K N"], control: Float[np.ndarray, "M K N"], alone: Alone | None = None
) -> Found | None:
    """Whether a fact is given away in scores without bounds; of K scores all have to be extreme (after, and gained).

    The null is that of the first score alone: a subject that is repaired gains more than controls do, and is then as
    they are. The facts are those beyond every control. With `alone` only what one training alone states counts, of the
    subject as of each control. None with fewer than three controls, or where the subject alone states nothing.
    """
    m = len(control)
    if m < LEAST_CONTROLS or (alone is not None and not alone.subject.any()):
        return None
    rows = control[:, 0]
    z = np.min([standing(row, control[:, k]) for k, row in enumerate(subject)], axis=0)
    nulls = np.stack([standing(rows[i], np.delete(rows, i, axis=0)) for i in range(m)])
    # No fewer than the greatest of as many normal draws: a few controls can be alike by chance, or as far as is read.
    least = float(ndtri(1 - 1 / (m * max(2, rows.shape[1]))))
    if alone is None:
        null = reached = max(least, float(nulls.max()))
    else:
        # What one alone states is few, and its greatest may be anything; that they are the subject's J times is not.
        z = np.where(alone.subject, z, -np.inf)
        reached = max(0.0, float(nulls[alone.control].max(initial=0.0)))
        null = max(least, reached)
    beyond = z > _CLEAR * reached
    furthest = 1 / (1 + m * max(float(z.max()) / null, 0.0) ** _TAIL_INDEX)
    return Found(min(furthest, (m + 1.0) ** -int(beyond.sum())), beyond, float(z.max()), null)


def stated_alone(subject: Bool[np.ndarray, " N"], control: Bool[np.ndarray, "M N"]) -> Alone:
    """What each training alone states, a control compared with the other controls."""
    times = control.sum(axis=0)
    return Alone(subject & (times == 0), control & (times == 1))


def stated(subject: Bool[np.ndarray, " N"], control: Bool[np.ndarray, "M N"]) -> Found | None:
    """Whether facts are stated that no control states; None with fewer than three controls."""
    m = len(control)
    if m < LEAST_CONTROLS:
        return None
    facts, theirs = stated_alone(subject, control)
    mine, others = int(facts.sum()), int(theirs.sum())
    # The chance of so many or more among all that one training alone states.
    p = float(bdtrc(mine - 1, mine + others, 1 / (m + 1))) if mine else 1.0
    return Found(p, facts, float(mine), others / m)
