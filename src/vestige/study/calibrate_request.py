"""What a calibration is asked for: the grid, the goal, the items, and the identity that all of it makes."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.artifacts.calibration import CalibrationFolder
from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.settings import Settings, closest
from vestige.data.corpus import NamedSplits, everything
from vestige.data.validation import Apart, held_apart
from vestige.study.halving import Candidate, Goal, Rung, log_grid, parse_goal, rung_sizes

if TYPE_CHECKING:
    from vestige.evals.qa import QASettings
    from vestige.steps.unlearn import UnlearnRequest

VERSION = 1
"""Raised when the same request would come out as another calibration."""

METRICS = ("rouge1_recall", "rougeL_recall", "exact_match", "probability", "mrr", "top_hit", "answer_bits")
"""What a goal can be stated in: those metrics of `qa` of which more means more is still answered."""


class CalibrateSettings(Settings):
    """What is searched, for which goal.

    `goal` is `forget<=0.3` or `retain>=0.95`, in `metric`'s unit. `strength` names a setting of the method that is
    searched too, over `strengths`. Each of the `rungs` trains a `keep_one_in`-th of the candidates `keep_one_in`
    times as far as the one before. At most `validation_items`, and at most half, of the forget and of the retain set
    are chosen on.
    """

    goal: str
    rates: tuple[PositiveFloat, ...] = Field(default=log_grid(1e-6, 1e-3, 8), min_length=1)
    strength: str = ""
    strengths: tuple[float, ...] = ()
    rungs: PositiveInt = 3
    keep_one_in: int = Field(default=2, ge=2)
    metric: str = "rouge1_recall"
    validation_items: PositiveInt = 64


@dataclass(frozen=True)
class CalibrateRequest:
    """An unlearning whose learning rate is sought, what it is judged on, and how.

    `splits` are those of the forget set, with what else is to be reported on; `questions` says how the models are
    asked. The rate in `unlearning` itself is never used.
    """

    unlearning: "UnlearnRequest"
    splits: NamedSplits
    questions: "QASettings"
    settings: CalibrateSettings

    @property
    def goal(self) -> Goal:
        """What is to be reached."""
        return parse_goal(self.settings.goal)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The grid, lowest rate first."""
        strengths = self.settings.strengths or (None,)
        return tuple(Candidate(rate, strength) for rate in sorted(self.settings.rates) for strength in strengths)

    @property
    def apart(self) -> Apart:
        """The items to choose on and those to report on."""
        return held_apart(self.splits, most=self.settings.validation_items, seed=self.unlearning.seed)

    def rungs(self) -> tuple[Rung, ...]:
        """Steps, progress and size of each rung."""
        from vestige.training.batching import UnlearnPlan
        from vestige.training.schedules import learning_rate, total_steps

        asked = self.unlearning
        plan = UnlearnPlan(len(asked.forget_items), 0, {}, asked.training.batch_size, asked.seed)
        per_epoch = plan.steps_per_epoch
        n_steps = total_steps(asked.training, steps_per_epoch=per_epoch)
        rates = [learning_rate(asked.training, step, steps_per_epoch=per_epoch) for step in range(n_steps)]
        settings = self.settings
        sizes = rung_sizes(len(self.candidates), n_steps, settings.rungs, settings.keep_one_in)
        return tuple(Rung(steps, sum(rates[:steps]) / sum(rates), n) for steps, n in sizes)

    def of(self, candidate: Candidate) -> "UnlearnRequest":
        """What is asked of one candidate: what `vestige unlearn` would be asked for at its rate."""
        training = self.unlearning.training.model_copy(update={"learning_rate": candidate.rate})
        if candidate.strength is None:
            return replace(self.unlearning, training=training)
        own = {**self.unlearning.method_settings, self.settings.strength: candidate.strength}
        return replace(self.unlearning, training=training, method_settings=own)


def check_request(request: CalibrateRequest) -> None:
    """Refuse what would fail only after something has been trained."""
    from vestige.methods import build_method
    from vestige.methods.base import FromStart

    settings, method = request.settings, request.unlearning.method
    built = build_method(method, request.unlearning.method_settings)
    if isinstance(built, FromStart) or not built.needs.splits:
        raise InputError(f"method {method!r} does not train the target, so there is no rate to be found for it")
    parse_goal(settings.goal)
    if settings.metric not in METRICS:
        raise InputError(
            f"no goal can be stated in the metric {settings.metric!r}; {closest(settings.metric, list(METRICS))}"
        )
    if bool(settings.strength) != bool(settings.strengths):
        raise InputError("strength and strengths go together: the name of one of the method's settings, and its values")
    for candidate in request.candidates:
        build_method(method, request.of(candidate).method_settings)
    names = [CalibrationFolder(Path()).candidate(*c).path.name for c in request.candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"the candidate {twice[0]} is in the grid more than once; give each rate and strength once")
    _ = request.apart


def request_identity(request: CalibrateRequest) -> dict[str, Any]:
    """Everything that can change the result, flat."""
    from vestige.evals import qa
    from vestige.steps.unlearn import unlearn_spec

    # The rate and the strength of the request itself are replaced, so they must not count.
    # As JSON gives it back, with lists for tuples.
    spec = json.loads(json.dumps(asdict(unlearn_spec(request.of(request.candidates[0])))))
    own = {f"unlearning.{k}": v for k, v in spec["settings"].items()}
    apart = request.apart
    return {
        "version": VERSION,
        **request.settings.identity(),
        **{k: v for k, v in spec.items() if k not in {"settings", "settings_id", "version"}},
        **own,
        "unlearning.version": spec["version"],
        **{f"questions.{k}": v for k, v in request.questions.identity().items()},
        "questions.version": qa.COLLECT_VERSION,
        "validation": content_id([i.id for i in everything([apart.validation])], length=32),
        "test": content_id({n: [i.id for i in items] for n, items in apart.test.splits.items()}, length=32),
    }
