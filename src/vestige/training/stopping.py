"""When a training stops and which checkpoint it keeps: the settings, and rules on the scores of a trajectory.

Pure functions, without torch. A trajectory is a list of points: the scores of the model after so many steps, by name,
in the unit of the scoring function. `retain` is by convention the score on retained items, and higher is better.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from pydantic import field_validator

from vestige.core.errors import InputError
from vestige.core.settings import Settings
from vestige.core.text import TextTuple, one_line

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
    """The model's scores after `step` steps and `epoch` whole epochs."""

    step: int
    epoch: int
    scores: Scores


@dataclass(frozen=True)
class Condition:
    """A bound on one score: `factor`, or `factor` times the score of the model `of`."""

    score: str
    sign: Sign
    factor: float
    of: str = ""

    def __str__(self) -> str:
        """The form in which it is written, as in `retain>=0.9*target`."""
        if not self.of:
            bound = f"{self.factor:g}"
        elif self.factor == 1:
            bound = self.of
        else:
            bound = f"{self.factor:g}*{self.of}"
        return f"{self.score}{self.sign}{bound}"

    def bound(self, controls: Mapping[str, Scores]) -> float:
        """The bound as a number. `controls` holds the scores of the models that it may speak of."""
        if not self.of:
            return self.factor
        if self.of not in controls:
            raise InputError(f"the rule {self} names a model without scores: {self.of}")
        return self.factor * _score(controls[self.of], self.score, self)

    def shortfall(self, scores: Scores, controls: Mapping[str, Scores]) -> float:
        """Return the distance of the score beyond its bound. It is 0 or less if the goal is met."""
        over = _score(scores, self.score, self) - self.bound(controls)
        if self.sign in ("<=", "<"):
            return over
        return -over

    def met(self, scores: Scores, controls: Mapping[str, Scores]) -> bool:
        """Whether the score keeps to its bound."""
        short = self.shortfall(scores, controls)
        if self.sign in ("<=", ">="):
            return short <= 0
        return short < 0


@dataclass(frozen=True)
class ChosenStep:
    """The checkpoint that is kept: after which step, by which rule, whether the rule's bound is met, and why."""

    step: int
    rule: str
    met: bool
    why: str


def parse_condition(text: str) -> Condition:
    """A condition from `forget<=0.3`, `forget<=retrained` or `retain>=0.9*target`."""
    match = _CONDITION.fullmatch(text.replace(" ", ""))
    if match is None:
        raise InputError(
            f"the rule {one_line(text, width=40)!r} does not have the form 'forget<=0.3', 'forget<=retrained' or "
            "'retain>=0.9*target': a score, one of <= < >= >, and a number, target, retrained or a multiple of these"
        )
    factor = float(match["number"] or match["factor"] or 1)
    if not math.isfinite(factor):
        raise InputError(f"the rule {one_line(text, width=40)!r} has no finite bound. Give a number")
    return Condition(match["score"], _SIGNS[match["sign"]], factor, match["of"] or "")


def parse_choice(text: str) -> Condition | None:
    """The rule for the checkpoint to keep: a condition, or None for `last`."""
    if text.strip() == "last":
        return None
    try:
        return parse_condition(text)
    except InputError as error:
        raise InputError(f"{error}. Or say 'last', for the last checkpoint") from error


def reason_to_stop(stop: Sequence[Condition], point: Point, controls: Mapping[str, Scores]) -> str | None:
    """Return the first condition that the point meets, in words. None if it meets none."""
    for condition in stop:
        if condition.met(point.scores, controls):
            value, bound = point.scores[condition.score], condition.bound(controls)
            return f"{condition.score} {value:.4g} is {_WORDS[condition.sign]} {bound:.4g} ({condition})"
    return None


def choose(points: Sequence[Point], rule: Condition | None, controls: Mapping[str, Scores]) -> ChosenStep:
    """Return the point to keep.

    `last` keeps the last one. An upper bound (enough is forgotten) keeps, among the points that meet it, the one with
    the highest `retain`, the earliest in a tie. A lower bound (enough is retained) keeps the last point that meets it.
    If no point meets it, the nearest is kept, the earliest in a tie, and the choice records it.
    """
    if rule is None:
        return ChosenStep(points[-1].step, "last", True, "the last checkpoint")
    within = [p for p in points if rule.met(p.scores, controls)]
    if not within:
        nearest = min(points, key=lambda p: rule.shortfall(p.scores, controls))
        value = nearest.scores[rule.score]
        return ChosenStep(
            nearest.step, str(rule), False, f"no checkpoint meets {rule}; at {value:.4g} this is the nearest"
        )
    if rule.sign in ("<=", "<"):
        best = max(within, key=lambda p: _score(p.scores, "retain", rule))
        retained = f"{best.scores['retain']:.4g}"
        why = f"of the checkpoints that meet {rule} ({len(within)}), the one that retains most ({retained})"
        return ChosenStep(best.step, str(rule), True, why)
    last = within[-1]
    return ChosenStep(
        last.step, str(rule), True, f"the last checkpoint that meets {rule} ({last.scores[rule.score]:.4g})"
    )


def check_rules(
    stop: Sequence[Condition], rule: Condition | None, scores: Scores, controls: Mapping[str, Scores]
) -> None:
    """Reject rules about missing scores or models."""
    for condition in (*stop, *([rule] if rule else [])):
        condition.met(scores, controls)
    if rule and rule.sign in ("<=", "<"):
        _score(scores, "retain", rule)


def _score(scores: Scores, name: str, rule: Condition) -> float:
    if name not in scores:
        raise InputError(f"the rule {rule} needs the score {name!r}, and there is none. Known: {', '.join(scores)}")
    return scores[name]


_EVERY = re.compile(r"(\d+) ?(epochs?|steps?)?")


class Every(NamedTuple):
    """A pace: after each `n` epochs, or each `n` steps."""

    n: int
    in_steps: bool

    def __str__(self) -> str:
        """The one form in which it is written, as in `1 epoch` and `50 steps`."""
        return f"{self.n} {'step' if self.in_steps else 'epoch'}{'s' * (self.n > 1)}"


class TrajectorySettings(Settings):
    """When to score a model during training, when to stop, and which checkpoint to keep.

    `1` and `1 epoch` are the same pace and are stored alike. The last step is always scored. LLMU (2310.10683, section
    4) stops gradient ascent at a forget loss of 100. Here, that loss is the negative log-likelihood of the true answers
    in nats per token.
    """

    every: str = "1 epoch"
    """The interval between scores: '1 epoch', '2 epochs' or '50 steps'."""
    stop_when: TextTuple = ("forget_nll>=100",)
    """Stop at the first score that meets a condition: 'forget<=0.3', 'retain<0.9*target'."""
    choose: str = "last"
    """Checkpoint to keep: last; 'forget<=0.3' (among these, the best retain score); 'retain>=0.9' (the last such one).
    """

    @field_validator("every")
    @classmethod
    def _a_pace(cls, value: str) -> str:
        return str(parse_every(value))

    @field_validator("stop_when")
    @classmethod
    def _conditions(cls, value: TextTuple) -> TextTuple:
        return tuple(str(parse_condition(v)) for v in value)

    @field_validator("choose")
    @classmethod
    def _a_rule(cls, value: str) -> str:
        return str(parse_choice(value) or "last")


def parse_every(text: str) -> Every:
    """A pace from `3` or `3 epochs`, or `50 steps`."""
    match = _EVERY.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise InputError(f"{one_line(text, width=40)!r} is not a pace. Write '1 epoch', '2 epochs' or '50 steps'")
    return Every(int(match[1]), (match[2] or "").startswith("step"))
