"""A training's trade-off curve: the model is scored at intervals, and one of its checkpoints is kept.

What scores is handed in. A point is written to the log when its weights are safe, and a resumed training takes the
scores of the points that it comes past again from there. Of the weights only those lie on the disk that the rule may
still keep.
"""

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from transformers import PreTrainedModel

from vestige.artifacts.records import read_trajectory
from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line, new_folder
from vestige.training.checkpoints import keep_tensors, put_back, trained_weights
from vestige.training.loop import Progress
from vestige.training.parallel import ALONE, World
from vestige.training.stopping import (
    ChosenStep,
    Condition,
    Point,
    Scores,
    TrajectorySettings,
    check_rules,
    choose,
    parse_choice,
    parse_condition,
    parse_every,
    reason_to_stop,
)

Score = Callable[[PreTrainedModel], Scores]
"""Returns a model's scores, by name. Finite numbers that follow from the weights alone."""

POLICY = "policy"
"""The log's name for the trained model. The others go by their role."""


@dataclass
class Trajectory:
    """The points of one training so far. `weights` is the folder of the checkpoints that may still be kept.

    `controls` are the scores of the models that rules may speak of, which no rule keeps: the target and others.
    """

    settings: TrajectorySettings
    score: Score
    log: Path
    weights: Path
    controls: dict[str, Scores] = field(default_factory=dict)
    world: World = ALONE
    points: dict[int, Point] = field(default_factory=dict)

    def begin(self, target: PreTrainedModel, controls: Mapping[str, Callable[[], Scores]]) -> None:
        """Read the stored trajectory, and score the target. `others` give the scores of the other controls."""
        if self.world.leads:
            drop_torn_line(self.log)
        self.world.wait()
        for scored in read_trajectory(self.log):
            if scored.model == POLICY:
                self.points[scored.step] = Point(scored.step, scored.epoch, scored.scores)
            else:
                self.controls[scored.model] = scored.scores
        # All processes read before the leading one continues writing, so that all score the same models.
        self.world.wait()
        scorers: dict[str, Callable[[], Scores]] = {**controls, "target": partial(self.score, target)}
        for name, score in scorers.items():
            if name not in self.controls:
                point = Point(0, 0, self._agreed(score()))
                self.controls[name] = point.scores
                self._write(name, point)
        # A rule about missing scores fails before training.
        check_rules(self._stop, self._rule, self.controls["target"], self.controls)

    def look(self, now: Progress, model: PreTrainedModel) -> str | None:
        """Score the model if a point is due. Return the reason to stop, if a rule has one. Fits the loop's `stop`."""
        every = parse_every(self.settings.every)
        if every.in_steps:
            due = now.step % every.n == 0
        else:
            due = now.ends_epoch and now.epoch % every.n == 0
        if not due and now.step < now.n_steps:
            return None
        if now.step not in self.points:
            if self.world.leads:
                # The weights are written before the log line: otherwise a point without weights could be chosen.
                with new_folder(self._folder(now.step)) as unfinished:
                    keep_tensors(unfinished, {"model": trained_weights(model)}, {"step": now.step})
            point = Point(now.step, now.epoch, self._agreed(self.score(model)))
            self.points[now.step] = point
            self._write(POLICY, point)
        kept = self._folder(self.chosen().step)
        for old in self.weights.glob("point-*") if self.world.leads else ():
            if old != kept:
                shutil.rmtree(old)
        return reason_to_stop(self._stop, self.points[now.step], self.controls)

    def chosen(self) -> ChosenStep:
        """The point to keep."""
        return choose([self.points[step] for step in sorted(self.points)], self._rule, self.controls)

    def restore(self, model: PreTrainedModel) -> ChosenStep:
        """Give the model the weights of the point that is kept."""
        choice = self.chosen()
        put_back(model, self._folder(choice.step) / "model.safetensors")
        return choice

    @property
    def _stop(self) -> list[Condition]:
        return [parse_condition(s) for s in self.settings.stop_when]

    @property
    def _rule(self) -> Condition | None:
        return parse_choice(self.settings.choose)

    def _folder(self, step: int) -> Path:
        return self.weights / f"point-{step}"

    def _agreed(self, scores: Scores) -> Scores:
        """Return the first process's scores: on a GPU another's can differ in the last digit, and change the choice."""
        agreed = self.world.led(scores)
        odd = [name for name, value in agreed.items() if not math.isfinite(value)]
        if odd:
            raise InputError(f"the score {odd[0]!r} of a model is {agreed[odd[0]]}. Return finite numbers")
        return agreed

    def _write(self, model: str, point: Point) -> None:
        if self.world.leads:
            append_lines(self.log, [json_line({"model": model, **asdict(point)})])
