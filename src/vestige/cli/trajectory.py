"""From the words about a training's trajectory to what is asked of it, and back to words about what was kept."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.core.errors import GoalNotReached

if TYPE_CHECKING:
    from vestige.data.corpus import NamedSplits
    from vestige.models.load import ModelSettings
    from vestige.steps.making import Made
    from vestige.steps.trajectory import TrajectoryRequest

Pace = Annotated[
    str | None, typer.Option("--every", help="Score the model so often: '1 epoch', '2 epochs', '50 steps'.")
]
StopWhen = Annotated[
    list[str] | None,
    typer.Option("--stop-when", help="Stop at the first score that meets it: 'forget<=0.3', 'retain<0.9*target'."),
]
ChooseBy = Annotated[
    str | None,
    typer.Option(
        "--choose",
        help="Checkpoint to keep: last; 'forget<=0.3' (retains most of those); 'retain>=0.9' (last of those).",
    ),
]
Retrained = Annotated[
    str | None, typer.Option(help="A model that never saw the forget set, for rules such as 'forget<=retrained'.")
]


@dataclass(frozen=True)
class TrajectoryWords:
    """What was typed: how often to score, when to stop, what to keep, the control, settings of the scoring."""

    every: str | None
    stop_when: Sequence[str] | None
    choose: str | None
    retrained: str | None
    validation: Mapping[str, Any]

    def __bool__(self) -> bool:
        """Whether a trajectory was asked for."""
        return bool(self.every or self.stop_when or self.choose or self.retrained or self.validation)


def asked_trajectory(
    words: TrajectoryWords, target: "ModelSettings", splits: "NamedSplits", *, seed: int
) -> "TrajectoryRequest | None":
    """What the words ask for; None if they are not there. Conditions to stop are added to those that always hold."""
    if not words:
        return None
    from vestige.steps.subjects import origin_of
    from vestige.steps.trajectory import ValidationSettings, answered_trajectory
    from vestige.training.trajectory import TrajectorySettings

    given = {"every": words.every, "choose": words.choose}
    stop = (*TrajectorySettings().stop_when, *(words.stop_when or ()))
    settings = TrajectorySettings.build({k: v for k, v in given.items() if v is not None} | {"stop_when": stop})
    control = None
    if words.retrained is not None:
        model = target.model_copy(update={"model": words.retrained})
        control = (model, origin_of(model).digest)
    validation = ValidationSettings.build(words.validation, where="--set trajectory")
    return answered_trajectory(settings, validation, splits, seed=seed, retrained=control)


def subject_json(folder: Path, made: "Made") -> dict[str, Any]:
    """A finished subject as `--json` prints it."""
    found = {"output_dir": str(folder), "digest": made.digest.id, "steps": made.steps, "stopped": made.stopped}
    return found | ({"chosen": asdict(made.chosen)} if made.chosen else {})


def subject_sentence(folder: Path, made: "Made") -> str:
    """A finished subject in one sentence."""
    kept = f"; kept step {made.chosen.step}, {made.chosen.why}" if made.chosen else ""
    return f"{folder}: {made.steps} step{'s' * (made.steps != 1)}, {made.stopped}{kept}; model {made.digest.id[:12]}"


def refuse_unmet(folder: Path, made: "Made") -> None:
    """Say by the exit code that no checkpoint met the rule; the nearest one is kept all the same."""
    if made.chosen and not made.chosen.met:
        raise GoalNotReached(
            f"{folder}: {made.chosen.why}, and was kept (step {made.chosen.step}); train longer, or at another "
            "learning rate"
        )
