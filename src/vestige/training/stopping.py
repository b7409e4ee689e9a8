"""When to stop, and which checkpoint to keep: rules on the scores of a trajectory. Pure functions.

A trajectory is a list of points: the scores of the model after so many steps, by name, in whatever unit the scoring
function has. `retain` is by convention the score of what is to be kept, and higher is better.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vestige.core.errors import InputError
from vestige.core.text import one_line

Scores: TypeAlias = Mapping[str, float]
Sign: TypeAlias = Literal["<=", ">=", "<", ">"]

CONTROLS = ("target", "retrained")
"""The models whose scores a rule may speak of."""

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+"
_BOUND = rf"(?P<number>{_NUMBER})|(?:(?P<factor>{_NUMBER})\*)?(?P<of>{'|'.join(CONTROLS)})"
_CONDITION = re.compile(rf"(?P<score>[a-z_0-9]+)(?P<sign><=|>=|<|>)(?:{_BOUND})")
_SIGNS: dict[str, Sign] = {"<=": "<=", ">=": ">=", "<": "<", ">": ">"}
_WORDS = {"<=": "at or below", ">=": "at or above", "<": "below", ">": "above"}


@dataclass(frozen=True)
class Point:
    """What the model scored after `step` steps and `epoch` whole epochs."""

    step: int
    epoch: int
    scores: Scores


@dataclass(frozen=True)
class Condition:
    """A bound on one score: `factor`, or `factor` times what the model `of` scores."""

    score: str
    sign: Sign
    factor: float
    of: str = ""

    def __str__(self) -> str:
        """The form in which it is written, as in `retain>=0.9*target`."""
        bound = f"{self.factor:g}" if not self.of else self.of if self.factor == 1 else f"{self.factor:g}*{self.of}"
        return f"{self.score}{self.sign}{bound}"

    def bound(self, controls: Mapping[str, Scores]) -> float:
        """The bound as a number; `controls` holds the scores of the models that it may speak of."""
        if not self.of:
            return self.factor
        if self.of not in controls:
            raise InputError(f"the rule {self} speaks of a model whose scores are not known: {self.of}")
        return self.factor * _score(controls[self.of], self.score, self)

    def shortfall(self, scores: Scores, controls: Mapping[str, Scores]) -> float:
        """How far the score is on the wrong side of its bound; 0 or less when it is not."""
        over = _score(scores, self.score, self) - self.bound(controls)
        return over if self.sign in ("<=", "<") else -over

    def met(self, scores: Scores, controls: Mapping[str, Scores]) -> bool:
        """Whether the score keeps to its bound."""
        short = self.shortfall(scores, controls)
        return short <= 0 if self.sign in ("<=", ">=") else short < 0


@dataclass(frozen=True)
class Choice:
    """The checkpoint that is kept: after which step, by which rule, whether the rule's bound is met, and why."""

    step: int
    rule: str
    met: bool
    why: str


def parse_condition(text: str) -> Condition:
    """A condition from `forget<=0.3`, `forget<=retrained` or `retain>=0.9*target`."""
    found = _CONDITION.fullmatch(text.replace(" ", ""))
    if found is None:
        raise InputError(
            f"the rule {one_line(text, width=40)!r} is not of the form 'forget<=0.3', 'forget<=retrained' or "
            "'retain>=0.9*target': a score, one of <= < >= >, and a number, target, retrained or a multiple of these"
        )
    factor = float(found["number"] or found["factor"] or 1)
    if not math.isfinite(factor):
        raise InputError(f"the rule {one_line(text, width=40)!r} has no finite bound")
    return Condition(found["score"], _SIGNS[found["sign"]], factor, found["of"] or "")


def parse_choice(text: str) -> Condition | None:
    """The rule for the checkpoint to keep: a condition, or None for `last`."""
    if text.strip() == "last":
        return None
    try:
        return parse_condition(text)
    except InputError as error:
        raise InputError(f"{error}; or say 'last', for the last checkpoint") from error


def reason_to_stop(stop: Sequence[Condition], point: Point, controls: Mapping[str, Scores]) -> str | None:
    """What the first condition that the point meets says; None if it meets none."""
    for condition in stop:
        if condition.met(point.scores, controls):
            value, bound = point.scores[condition.score], condition.bound(controls)
            return f"{condition.score} {value:.4g} is {_WORDS[condition.sign]} {bound:.4g} ({condition})"
    return None


def choose(points: Sequence[Point], rule: Condition | None, controls: Mapping[str, Scores]) -> Choice:
    """Which of the points is kept.

    `last` keeps the last one. A bound from above (enough is forgotten) keeps, of the points that meet it, the one with
    the highest `retain`, the earliest of equals. A bound from below (enough is kept) keeps the last point that meets
    it. Where none does, the nearest is kept, the earliest of equals, and the choice says so.
    """
    if rule is None:
        return Choice(points[-1].step, "last", True, "the last checkpoint")
    within = [p for p in points if rule.met(p.scores, controls)]
    if not within:
        nearest = min(points, key=lambda p: rule.shortfall(p.scores, controls))
        value = nearest.scores[rule.score]
        return Choice(nearest.step, str(rule), False, f"no checkpoint meets {rule}; at {value:.4g} this is the nearest")
    if rule.sign in ("<=", "<"):
        best = max(within, key=lambda p: _score(p.scores, "retain", rule))
        retained = f"{best.scores['retain']:.4g}"
        why = f"of the checkpoints that meet {rule} ({len(within)}), the one that retains most ({retained})"
        return Choice(best.step, str(rule), True, why)
    last = within[-1]
    return Choice(last.step, str(rule), True, f"the last checkpoint that meets {rule} ({last.scores[rule.score]:.4g})")


def check_rules(
    stop: Sequence[Condition], rule: Condition | None, scores: Scores, controls: Mapping[str, Scores]
) -> None:
    """Refuse rules that speak of scores or models that are not there."""
    for condition in (*stop, *([rule] if rule else [])):
        condition.met(scores, controls)
    if rule and rule.sign in ("<=", "<"):
        _score(scores, "retain", rule)


def _score(scores: Scores, name: str, rule: Condition) -> float:
    if name not in scores:
        raise InputError(f"the rule {rule} needs the score {name!r}, and there is none; known: {', '.join(scores)}")
    return scores[name]
