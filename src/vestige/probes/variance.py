"""How far a probe's scores vary: over models, generations, prompts and judges, and whether a change is more than that.

Axes: S models, G generations, N prompts. A run is one generation of one model, and its score the mean over prompts.
The target is one model, so its runs are generations alone. Numbers of a judge are over the prompts of which it graded
every answer, before and after: a mean over other prompts would be another mean.

Design and the first two tests: Knowledge Holes, 2511.00030, appendix C.1 (3 seeds x 3 generations x 3 judges) and C.8
(five criteria). The tests over models and over prompts are ours: generations of one model are not independent.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import (
    ChangeTests,
    CriterionRow,
    GradedAnswer,
    JudgePair,
    JudgeParts,
    Outcome,
    Runs,
    VarianceParts,
    VarianceRow,
)
from vestige.core.estimates import Estimate
from vestige.judges.tasks import CRITERIA, QUALITY_SCALE
from vestige.metrics.agreement import agreement, prompt_parts, variance_parts
from vestige.metrics.intervals import interval_of_mean
from vestige.metrics.t_tests import TTest, paired_test, student_test, welch_test

TARGET = "target"
"""The name that the target has among the models of scored answers."""

Scores = Float[np.ndarray, "S G N"]

_SCALE = (float(QUALITY_SCALE.low), float(QUALITY_SCALE.high))
_CHANGE = (_SCALE[0] - _SCALE[1], _SCALE[1] - _SCALE[0])


def rows_of(
    answers: Sequence[GradedAnswer], judges: Sequence[str], *, seed: int
) -> tuple[tuple[VarianceRow, ...], dict[str, dict[str, dict[str, int]]]]:
    """The rows, source by source and judge by judge; and by both the failures of those that have none."""
    rows, unjudged = [], dict[str, dict[str, dict[str, int]]]()
    for source, own in _by_source(answers).items():
        for judge in judges:
            row = _row(source, judge, own, seed=seed)
            if row is None:
                unjudged.setdefault(source, {})[judge] = _count(a.failures[judge] for a in own if judge in a.failures)
            else:
                rows.append(row)
    return tuple(rows), unjudged


def pairs_of(answers: Sequence[GradedAnswer], judges: Sequence[str]) -> tuple[JudgePair, ...]:
    """How far every two judges agree; none where no answer was graded by both."""
    found = []
    for first, second in combinations(judges, 2):
        both = [(a.scores[first], a.scores[second]) for a in answers if {first, second} <= a.scores.keys()]
        if both:
            one, other = np.array(both, dtype=float).T
            found.append(JudgePair(first, second, **agreement(one, other)._asdict()))
    return tuple(found)


def judge_parts_of(answers: Sequence[GradedAnswer], judges: Sequence[str]) -> tuple[JudgeParts, ...]:
    """By source, the parts of variance of the unlearned models' run means, over the prompts that all judges graded."""
    return tuple(_judge_parts(source, own, judges) for source, own in _by_source(answers).items())


def _row(source: str, judge: str, answers: Sequence[GradedAnswer], *, seed: int) -> VarianceRow | None:
    """One row; None where the judge graded no prompt in every run."""
    sides = _sides(answers)
    before, after = (_scores(side, judge) for side in sides)
    whole = ~(np.isnan(before).any((0, 1)) | np.isnan(after).any((0, 1)))
    if not whole.any():
        return None
    before, after = before[:, :, whole], after[:, :, whole]
    origins = [origin for origin, kept in zip(_origins(answers), whole, strict=True) if kept]
    failures = [_count(a.failures[judge] for a in side if judge in a.failures) for side in sides]
    return VarianceRow(
        source=source,
        judge=judge,
        n=len(whole),
        n_judged=int(whole.sum()),
        before=_runs(before),
        after=_runs(after),
        change=_change(before, after, origins, seed=seed),
        tests=_tests(before, after, origins),
        parts=_parts(after),
        failures_before=failures[0],
        failures_after=failures[1],
        criteria=_criteria(judge, *sides),
        criteria_failures=_count(a.criteria_failures[judge] for a in answers if judge in a.criteria_failures),
    )


def _by_source(answers: Iterable[GradedAnswer]) -> dict[str, list[GradedAnswer]]:
    found: dict[str, list[GradedAnswer]] = {}
    for answer in answers:
        found.setdefault(answer.source, []).append(answer)
    return found


def _sides(answers: Sequence[GradedAnswer]) -> tuple[list[GradedAnswer], list[GradedAnswer]]:
    return [a for a in answers if a.model == TARGET], [a for a in answers if a.model != TARGET]


def _scores(answers: Sequence[GradedAnswer], judge: str) -> Scores:
    """The grades, NaN where there is none. Every model has answered every prompt in every generation."""
    models, prompts = (list(dict.fromkeys(names)) for names in ((a.model for a in answers), (a.id for a in answers)))
    generations = 1 + max(a.generation for a in answers)
    scores = np.full((len(models), generations, len(prompts)), np.nan)
    places = {name: n for n, name in enumerate(models)}, {name: n for n, name in enumerate(prompts)}
    for a in answers:
        scores[places[0][a.model], a.generation, places[1][a.id]] = a.scores.get(judge, np.nan)
    return scores


def _origins(answers: Iterable[GradedAnswer]) -> list[str]:
    """What each prompt was made from, in the order of `_scores`; of a prompt of which nobody knows, itself."""
    return list({a.id: a.origin or a.id for a in answers}.values())


def _runs(scores: Scores) -> Runs:
    means = scores.mean(2).ravel()
    sd = float(means.std(ddof=1)) if len(means) > 1 else None
    return Runs(len(means), float(means.mean()), sd, float((scores <= _SCALE[0]).mean()))


def _change(before: Scores, after: Scores, origins: Sequence[str], *, seed: int) -> Estimate:
    change = after.mean((0, 1)) - before.mean((0, 1))
    low, high, method = interval_of_mean(change, clusters=origins, bounds=_CHANGE, seed=seed)
    return Estimate("change of quality", "score", float(change.mean()), low, high, len(change), method)


def _tests(before: Scores, after: Scores, origins: Sequence[str]) -> ChangeTests:
    runs = before.mean(2).ravel(), after.mean(2).ravel()
    by_model = after.mean((1, 2))
    origin_means = by_origin(before.mean((0, 1)), origins), by_origin(after.mean((0, 1)), origins)
    return ChangeTests(
        student=_outcome(lambda: student_test(*runs)),
        welch=_outcome(lambda: welch_test(*runs)),
        over_models=_outcome(lambda: paired_test(np.full(len(by_model), runs[0].mean()), by_model)),
        over_prompts=_outcome(lambda: paired_test(*origin_means)),
    )


def by_origin(values: Float[np.ndarray, " N"], origins: Sequence[str]) -> Float[np.ndarray, " K"]:
    """The mean of each origin's prompts: what was made from one thing is one observation."""
    _, place = np.unique(np.asarray(origins, dtype=str), return_inverse=True)
    means: Float[np.ndarray, " K"] = np.bincount(place, values) / np.bincount(place)
    return means


def _outcome(test: Callable[[], TTest]) -> Outcome:
    try:
        return Outcome(**test()._asdict())
    except ValueError as error:
        return Outcome(why_not=str(error))


def _parts(after: Scores) -> VarianceParts:
    try:
        return VarianceParts(**prompt_parts(after)._asdict())
    except ValueError as error:
        return VarianceParts(why_not=str(error))


def _judge_parts(source: str, answers: Sequence[GradedAnswer], judges: Sequence[str]) -> JudgeParts:
    after = np.stack([_scores(_sides(answers)[1], judge) for judge in judges], axis=2)
    whole = ~np.isnan(after).any((0, 1, 2))
    if not whole.any():
        return JudgeParts(source, why_not="no prompt was graded by every judge in every run")
    try:
        parts = variance_parts(after[..., whole].mean(3))
    except ValueError as error:
        return JudgeParts(source, why_not=str(error))
    return JudgeParts(source, parts.seed, parts.generation, parts.judge, parts.seed_by_judge, parts.rest)


def _criteria(judge: str, before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> tuple[CriterionRow, ...]:
    """The mean of each criterion on both sides; nothing where one side was not graded by them."""
    graded = [[a.criteria[judge] for a in side if judge in a.criteria] for side in (before, after)]
    if not all(graded):
        return ()
    n = [len(side) for side in graded]
    means = {name: [float(np.mean([values[name] for values in side])) for side in graded] for name in CRITERIA}
    return tuple(CriterionRow(name, n[0], n[1], *means[name]) for name in CRITERIA)


def _count(reasons: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(reasons).items()))
