"""Predicted controls: the scores of a model without the forget set, if nobody retrained one.

The bank contains models of several base models that were not trained on the questions. In one score they differ little:
easy questions are easy for all. So each base of the bank gives one predicted control, and all of these bases give one
level,

    level = mean over bases b of (f_b + k (t - t_b)),

with f_b the mean score of base b on the forget set, t_b the mean of the bank's target of this base, and t the target's.
k is 0, or 1/2 for scores that follow the target's. A base without a target in the bank has no part in it then. The k
with the smaller held-out error is taken: each laboratory's mean f_bl against its prediction from the other bases,

    error = q sqrt(mean over b of mean over l of (prediction - f_bl)^2),   q = t(0.975, B - 1) / 1.96.

The predicted rows keep each base's easy and hard questions, and have this level. Every interval includes the error, in
addition to a training's variance (`SeedPrior.laboratory`). Predicted controls can fail a claim but never make it pass:
single facts cannot be tested against them, and some scores cannot be predicted.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.auditing.questions import LogColumn
from vestige.core.errors import InputError
from vestige.core.text import NumberByName, NumberMapping, TextTuple, one_line
from vestige.logs.bank import never_saw
from vestige.logs.folders import LogGroup
from vestige.metrics.distributions import t_quantile

LEAST_BASES = 3
"""The minimum number of base models for estimating an error."""
SLOPES = (0.0, 0.5)
"""k, the slope of an unexposed model's score on the target's score."""
MOST = 1 / 3
"""The maximum error of a score, and the maximum distance of the target from the bank's targets, as a share of its
excess over the level.
"""
NOT_ENOUGH = "the controls are predicted, which can show that a model still knows and not that it forgot"
_RETRAIN = "Retrain a model without the forget set, and give its log as retrained:NAME=FILE."

Row = Float[np.ndarray, " N"]


class NeverSaw(NamedTuple):
    """One model of the bank that was not trained on the forget questions, and its scores on them."""

    base: str
    laboratory: str
    scores: Row


class Prediction(NamedTuple):
    """The predicted controls by base, and the error of their level, in scores."""

    rows: Mapping[str, Row]
    error: float

    @property
    def level(self) -> float:
        """The mean score of an unexposed model."""
        return float(np.mean([row.mean() for row in self.rows.values()]))


class _Base(NamedTuple):
    """A base model of the bank: means over the questions, of each laboratory and of its target (or NaN)."""

    laboratories: tuple[float, ...]
    target: float

    def moved(self, target: float, slope: float) -> float:
        """Return the predicted score of an unexposed model for the score `target`."""
        level = float(np.mean(self.laboratories))
        if slope:
            return level + slope * (target - self.target)
        return level


def predict(never: Sequence[NeverSaw], targets: NumberMapping, target: float) -> Prediction | None:
    """Predict the controls of a model of another base.

    Args:
        never: The models of the bank, on the same questions.
        targets: By base, the mean score of the bank's target.
        target: The mean score of the target.

    Returns:
        The prediction, or None if the models have fewer than three bases.

    Example:
        >>> known = [NeverSaw(base, "lab", np.array([level, level])) for base, level in zip("abc", (0.1, 0.2, 0.3))]
        >>> prediction = predict(known, {}, 0.9)
        >>> round(prediction.level, 3), round(prediction.error, 3)
        (0.2, 0.269)
    """
    laboratories: dict[str, dict[str, list[Row]]] = {}
    for model in never:
        laboratories.setdefault(model.base, {}).setdefault(model.laboratory, []).append(model.scores)
    rows = {}
    bases = {}
    for base, of_base in laboratories.items():
        # Each laboratory counts once, whatever the number of models that it published.
        by_laboratory = [np.mean(models, axis=0) for models in of_base.values()]
        rows[base] = np.mean(by_laboratory, axis=0)
        bases[base] = _Base(tuple(float(row.mean()) for row in by_laboratory), targets.get(base, math.nan))
    predictions = []
    for slope in SLOPES:
        used = {base: means for base, means in bases.items() if not slope or not math.isnan(means.target)}
        if len(used) < LEAST_BASES:
            continue
        level = float(np.mean([means.moved(target, slope) for means in used.values()]))
        error = t_quantile(len(used) - 1, 0.975) / 1.96 * _held_out(used, slope)
        predictions.append(Prediction({base: _at_level(rows[base], level) for base in used}, error))
    return min(predictions, key=lambda prediction: prediction.error, default=None)


def _held_out(bases: Mapping[str, _Base], slope: float) -> float:
    """The root mean square error of predicting each laboratory's mean from the other bases."""
    squares = []
    for base, means in bases.items():
        predicted = np.mean([another.moved(means.target, slope) for name, another in bases.items() if name != base])
        squares.append(np.mean((predicted - np.array(means.laboratories)) ** 2))
    return float(np.sqrt(np.mean(squares)))


def _at_level(row: Row, level: float) -> Row:
    """Return the scores shifted to another mean, still within [0, 1]."""
    mean, level = float(row.mean()), min(max(level, 0.0), 1.0)
    if level <= mean:
        return np.asarray(row * (level / mean if mean else 1.0))
    return np.asarray(1 - (1 - row) * ((1 - level) / (1 - mean)))


def predicting(group: LogGroup) -> LogGroup:
    """Return a group of logs with the models of the bank that predict its controls.

    Raises:
        InputError: The group has controls, or the bank does not know its forget set.
    """
    control = next((log.name for log in group.logs if log.role == "retrained"), None)
    if control is not None:
        raise InputError(
            f"controls are predicted only without retrained models, and {one_line(control, width=60)} is one. Leave it "
            "out, or judge by the controls that you have."
        )
    return group._replace(logs=(*group.logs, *never_saw(group.name)))


class PredictedControls(NamedTuple):
    """Logs with predicted controls in place of the bank's models.

    `errors` has the error of each judged score, by its name. `untested` explains in sentences why other scores are not
    judged.
    """

    columns: tuple[LogColumn, ...]
    errors: NumberMapping
    untested: TextTuple


def with_predicted(columns: Sequence[LogColumn]) -> PredictedControls:
    """Replace the models of the bank by predicted controls.

    Args:
        columns: The scores of all models, their questions matched. Those of the bank have `entry.base`. Its targets
            have the role placebo.

    Returns:
        The scores of the other models and of the predicted controls on the forget set.

    Raises:
        InputError: No score of the forget set can be predicted.
    """
    banked = [column for column in columns if column.entry.base]
    users = [column for column in columns if not column.entry.base]
    judged = [column for column in users if column.part.split != "forget"]
    errors: NumberByName = {}
    untested: list[str] = []
    predicted: list[LogColumn] = []
    for target in users:
        part = target.part
        graded = part.measurement.score_type in ("hit", "overlap", "probability")
        if target.entry.role != "target" or target.entry.attack or part.split != "forget" or not graded:
            continue
        level = float(part.scores.mean())
        targets = {column.entry.base: row.mean() for column, row in _asked(target, banked, "placebo")}
        never = []
        for column, row in _asked(target, banked, "retrained"):
            never.append(NeverSaw(column.entry.base, column.entry.laboratory, row))
        prediction = predict(never, targets, level)
        why = _why_not(prediction, list(targets.values()), target)
        if prediction is None or why:
            untested.append(f"{one_line(part.name, width=60)} is not judged, since {why}.")
            continue
        errors[part.name] = prediction.error
        judged += [column for column in users if (column.part.split, column.part.name) == ("forget", part.name)]
        for base, row in prediction.rows.items():
            entry = target.entry._replace(role="retrained", name=f"predicted from {base}", key="")
            replaced = part._replace(scores=row, replies=(), reasons={}, otherwise=None)
            predicted.append(target._replace(entry=entry, part=replaced))
    if not errors:
        why = " ".join(untested) or "The target's log has no share of them."
        raise InputError(f"no score of the forget questions can be predicted. {why} {_RETRAIN}")
    return PredictedControls((*judged, *predicted), errors, tuple(untested))


def _asked(target: LogColumn, banked: Sequence[LogColumn], role: str) -> Iterator[tuple[LogColumn, Row]]:
    """Yield the models of the bank in one role that have all of the target's questions in this score, in its order."""
    for column in banked:
        if column.entry.role != role or (column.part.split, column.part.name) != ("forget", target.part.name):
            continue
        scores = column.scores
        row = np.array([scores.get(item, math.nan) for item in target.items])
        if not np.isnan(row).any():
            yield column, row


def _why_not(prediction: Prediction | None, targets: Sequence[float], target: LogColumn) -> str:
    """Return why a score is not judged, or ""."""
    level = float(target.part.scores.mean())
    if math.isnan(level):
        return "the target lacks some of its scores"
    if prediction is None or not targets:
        return (
            f"the bank has no {LEAST_BASES} base models and a target that were asked all {len(target.items)} questions"
        )
    gap = level - prediction.level
    low, high = min(targets) - MOST * gap, max(targets) + MOST * gap
    if not low <= level <= high:
        return f"the target ({level:.3f}) is unlike those of the bank ({min(targets):.3f} to {max(targets):.3f})"
    if prediction.error > MOST * gap:
        return f"the target is {gap:.3f} above the prediction, whose held-out error is {prediction.error:.3f}"
    return ""
