"""Decide from scores on the same questions whether two models are one training.

Two trainings differ on single questions, even from the same base, on the same data, in the same laboratory. One model
with two logs, or a copy with a little noise, does not. The scale is absolute: it comes from the published logs of
models that others trained (docs/verdicts.md, `python -m benchmarks.one_training FOLDER`), and from controls whose own
records say that they were trained apart. Copies of each other therefore cannot set it.

Axes: N questions. NaN is a missing score. Scores of two models are compared on the questions that both answered.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from vestige.metrics.distributions import betainc
from vestige.metrics.intervals import ByControl, ByItem, SeedPrior, spread

LEAST_DISTANCES = {"probability": 0.08, "overlap": 0.13, "bits": 0.055}
"""By type of score, a lower limit for the distance of two trainings in the public logs (`distance`)."""
LEAST_QUESTIONS = 12
"""With fewer effective questions there is no decision (`effective_questions`)."""
AGREEMENT, MOST_AGREEMENT = 0.8, 0.93
"""The agreement of two trainings' hits beyond chance: the usual value on forgotten questions in public logs, and the
maximum.
"""
KEPT_AGAIN, KEPT_OTHER, KEPT_CONTROLS, KEPT_DF = 0.055, 0.085, 0.04, 5.0
"""Standard deviations of the difference of two trainings' means on retained questions, and degrees of freedom.

By one recipe, public trainings of one base differ by at most 0.11. By another recipe they differ by up to 0.24. In the
root mean square over all pairs they differ by 0.03, over bases and scores by 0.05 (`KEPT_CONTROLS`, for two controls or
more, whose own spread counts too) (`python -m benchmarks.error_rates FOLDER`).
"""
_ROUNDING = 1e-9
_SAME_PATTERN = 0.5
_SHARED = 0.8
_TELLS_AGREEMENT = 10.0
"""With fewer expected differences the agreement of two models is too unsteady to be a measure of others."""
SURE = 1e-6
"""Hits that independent trainings share with a smaller probability are of one training."""

Rows = Mapping[str, ByItem]
"""Scores of several models on the same questions, by name."""


class Near(NamedTuple):
    """Two models that are one training, and the reason, which completes "..., since ..."."""

    first: str
    second: str
    why: str


class OneTraining(NamedTuple):
    """Models that count as one training, in the input order."""

    models: tuple[str, ...]
    why: str


def effective_questions(scores: ByItem) -> float:
    """Return the effective number of questions behind the scores' spread: all N if it is even, 1 if one dominates.

    The participation ratio (sum z^2)^2 / sum z^4 of the deviations z from the mean. 0 without variation.
    """
    deviations = scores - scores.mean()
    # Rounding makes the mean of equal scores differ from them.
    if np.ptp(scores) <= _ROUNDING * np.abs(scores).max():
        return 0.0
    return float((deviations**2).sum() ** 2 / (deviations**4).sum())


def distance(first: ByItem, second: ByItem) -> float | None:
    """The RMS distance of two models over questions, in units of the spread between questions.

    sqrt(mean((a - b)^2) / (var(a) + var(b))): 0 for the same scores, at least about 1 for unrelated ones. The unit
    makes bits, shares and base models comparable.

    Returns:
        None where the spread of either model rests on fewer than `LEAST_QUESTIONS` questions.

    Example:
        >>> distance(np.arange(20.0), np.arange(20.0))
        0.0
    """
    both = ~(np.isnan(first) | np.isnan(second))
    a, b = first[both], second[both]
    if len(a) < LEAST_QUESTIONS or min(effective_questions(a), effective_questions(b)) < LEAST_QUESTIONS:
        return None
    return float(np.sqrt(((a - b) ** 2).mean() / (a.var() + b.var())))


def same_pattern(own: ByItem, controls: ByItem, target: ByItem) -> bool:
    """Whether a control has the pattern of the other controls over questions, whatever its level.

    Another recipe may raise all scores of an honest training. Its differences from the mean of the other controls then
    vary by less than half of what its differences from the target do: var(own - controls) < var(own - target) / 2.
    """
    return bool(np.var(own - controls) < _SAME_PATTERN * np.var(own - target))


def kept_error(trainings: ByControl, differences: ByItem) -> tuple[tuple[float, float], tuple[float, float]]:
    """The error of a loss on retained questions, if the subject is another training.

    The variance of the difference of two trainings is 2 V + public^2 w / (w + m - 1). V is the variance of one
    training's mean by the spread of these m trainings. `public` is what public trainings differ by, and counts
    for w = `KEPT_DF` trainings. So m trainings that happen to be alike do not make the error 0.

    Args:
        trainings: Scores of the target and of the controls.
        differences: Target less subject, by question.

    Returns:
        Standard error and degrees of freedom, of the lower end and of the upper end. They differ with fewer than two
        controls: another recipe can then explain a loss, and raises no doubt about a model without a loss.

    Example:
        >>> (low, df), _ = kept_error(np.full((1, 50), 0.9), np.zeros(50))
        >>> round(low, 3), df
        (0.087, 5.0)
    """
    if len(trainings) > 2:
        error = _kept_error(trainings, differences, KEPT_CONTROLS)
        return error, error
    return _kept_error(trainings, differences, KEPT_OTHER), _kept_error(trainings[:1], differences, KEPT_AGAIN)


def _kept_error(trainings: ByControl, differences: ByItem, public: float) -> tuple[float, float]:
    variance = float(spread(trainings, differences, SeedPrior(share=0.0, weight=KEPT_DF), width=1.0).variance)
    df = KEPT_DF + len(trainings) - 1
    return math.sqrt(public**2 * KEPT_DF / df + 2 * variance), df


def near(rows: Rows, score_type: str, among: Collection[str], trusted: Collection[str] = ()) -> Iterator[Near]:
    """The pairs of models that are nearer to each other than any two trainings of the public logs.

    Args:
        rows: Graded scores of one measurement, by model.
        score_type: Key of `LEAST_DISTANCES`. Any other type uses the least of all distances.
        trusted: Models whose records say that they were trained apart. No pair among these models is returned, and the
            limit is at most their least distance.
        among: Compare only pairs with one of these models.
    """
    limit = LEAST_DISTANCES.get(score_type, min(LEAST_DISTANCES.values()))
    for first, second in combinations([name for name in rows if name in trusted], 2):
        apart = distance(rows[first], rows[second])
        if apart is not None:
            limit = min(limit, apart)
    for first, second in combinations(rows, 2):
        if (first in trusted and second in trusted) or not (first in among or second in among):
            continue
        apart = distance(rows[first], rows[second])
        if apart is not None and apart < limit:
            why = f"they differ by {apart:.2g} of the spread between questions (two trainings: {limit:.2g} or more)"
            yield Near(first, second, why)


def agreement(first: ByItem, second: ByItem) -> float | None:
    """Return the agreement of two models' hits beyond chance: 1 for the same hits, 0 for unrelated ones.

    1 - D / (2 N p (1 - p)) with D questions on which they differ and the share p of hits. This is the correlation
    within questions of a model in which each question has its own difficulty. None if fewer than ten differences are
    expected by chance.
    """
    if not len(first):
        return None
    share = float(np.mean([first, second]))
    expected = 2 * len(first) * share * (1 - share)
    if expected >= _TELLS_AGREEMENT:
        return 1 - float((first != second).sum()) / expected
    return None


def equal_by_chance(n: int, share: float, agreement: float, models: int) -> float:
    """The probability that so many independent trainings have the same hits on all of N questions.

    The difficulty q of a question follows a beta distribution with mean `share` and a correlation `agreement` within
    questions: q ~ Beta(share * s, (1 - share) * s) with s = (1 - agreement) / agreement. All models are right with
    probability E[q^k], and all wrong with E[(1 - q)^k].
    """
    if agreement >= 1:
        return 1.0
    size = (1 - agreement) / max(agreement, 1e-3)
    right = wrong = 1.0
    for k in range(models):
        right *= (share * size + k) / (size + k)
        wrong *= ((1 - share) * size + k) / (size + k)
    return float((right + wrong) ** n)


def as_equal_by_chance(differing: int, n: int, share: float, agreement: float) -> float:
    """The probability that two independent trainings differ in so few hits, or fewer, of N questions."""
    chance = 2 * share * (1 - share) * (1 - agreement)
    return betainc(n - differing, differing + 1, 1 - chance) if differing < n and chance else 1.0


def near_hits(rows: Rows, among: Collection[str], trusted: Collection[str] = ()) -> Iterator[Near]:
    """Return the pairs of models whose hits are more alike than independent trainings' by chance.

    The usual agreement is the median over models here whose hits differ, and at most the usual value of the public
    logs. Hits that differ are compared with the greatest agreement of two public trainings.

    Args:
        rows: Hits (0 or 1) of one measurement, by model.
        trusted: Models whose records say that they were trained apart. No pair among these models is returned.
        among: Return only pairs with one of these models, if their hits differ.
    """
    unequal: dict[tuple[str, str], tuple[ByItem, ByItem]] = {}
    groups: dict[str, list[str]] = {}
    agreements: list[float] = []
    recorded = 0.0
    for first, second in combinations(rows, 2):
        # Questions that only a third model lacks do not matter here.
        both = ~(np.isnan(rows[first]) | np.isnan(rows[second]))
        hits = rows[first][both], rows[second][both]
        agreed = agreement(*hits)
        # An omitted score must not make copies unequal, and one shared equal score must not make models equal.
        if np.array_equal(*hits) and both.mean() > _SHARED:
            if not any(first in names[1:] for names in groups.values()):
                groups.setdefault(first, [first]).append(second)
        else:
            unequal[first, second] = hits
            if agreed is not None:
                agreements.append(agreed)
        if agreed is not None and first in trusted and second in trusted:
            recorded = max(recorded, agreed)
    # The median is used because one copy with a single different hit would otherwise decide for all others.
    usual = max(recorded, min(AGREEMENT, float(np.median(agreements))) if agreements else AGREEMENT)
    most = max(recorded, MOST_AGREEMENT)
    for names in groups.values():
        members = np.array([rows[name] for name in names])
        scored = members[0][~np.isnan(members).any(axis=0)]
        if not len(scored):
            continue
        p = equal_by_chance(len(scored), float(scored.mean()), usual, len(names))
        for name in names[1:]:
            if p < SURE and not (names[0] in trusted and name in trusted):
                yield Near(names[0], name, f"their hits are equal in all {len(scored)} questions (p = {p:.1g})")
    for (first, second), hits in unequal.items():
        n = len(hits[0])
        if not n or (first in trusted and second in trusted) or not (first in among or second in among):
            continue
        differing = int((hits[0] != hits[1]).sum())
        p = as_equal_by_chance(differing, n, float(np.mean(hits)), most)
        if p < SURE:
            yield Near(first, second, f"their hits differ in {differing} of {n} questions (p = {p:.1g})")


def together(names: Iterable[str], pairs: Iterable[Near]) -> list[OneTraining]:
    """Return the models that count as one training: those that pairs connect, with the reason of the first pair."""
    found: list[tuple[set[str], str]] = []
    for pair in pairs:
        joined, why = {pair.first, pair.second}, pair.why
        apart = []
        for group, reason in found:
            if group & joined:
                joined, why = joined | group, reason
            else:
                apart.append((group, reason))
        found = [*apart, (joined, why)]
    order = list(names)
    return [OneTraining(tuple(name for name in order if name in group), why) for group, why in found]
