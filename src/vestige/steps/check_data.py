"""Whether a data set can tell forgetting from guessing, as a step: all checks, without a model."""

from dataclasses import dataclass

from vestige.artifacts.audits import Soundness, write_soundness
from vestige.artifacts.layout import RunFolder
from vestige.core.files import locked
from vestige.data.corpus import NamedSplits
from vestige.data.facts import facts_of
from vestige.data.findings import SoundnessSettings
from vestige.data.soundness import check_splits


@dataclass(frozen=True)
class CheckRequest:
    """The checks and their settings."""

    splits: NamedSplits
    settings: SoundnessSettings
    seed: int


def check_data(run: RunFolder, request: CheckRequest) -> Soundness:
    """Check a data set and write soundness.json in the run."""
    with locked(run.path / ".soundness.lock", patience_seconds=0):
        checks, left_out = check_splits(request.splits, request.settings, seed=request.seed)
        # Several forget questions may ask for one fact in other words.
        forget = request.splits.splits["forget"]
        n_facts = len(forget) - len(facts_of(forget))
        soundness = Soundness(
            forget=request.splits.forget,
            lines=tuple(check.line for check in checks),
            settings={**request.settings.identity(), "seed": request.seed},
            digest=request.splits.digest,
            left_out=left_out,
            leaking={check.line.check: check.leaking for check in checks if check.line.sound is False},
            figures={"forget facts": float(n_facts)} if n_facts < len(forget) else {},
            needs="; ".join(check.needs for check in checks if check.needs),
        )
        write_soundness(run.soundness, soundness)
    return soundness
