"""Whether a data set can tell forgetting from guessing, as a step: all checks, without a model."""

from dataclasses import dataclass

from vestige.artifacts.audits import Soundness, write_soundness
from vestige.artifacts.layout import RunFolder
from vestige.core.files import locked
from vestige.data.corpus import NamedSplits
from vestige.data.facts import facts_of
from vestige.data.findings import SoundnessSettings, decide, margin_needs
from vestige.data.soundness import material, without_model


@dataclass(frozen=True)
class CheckRequest:
    """The checks and their settings."""

    splits: NamedSplits
    settings: SoundnessSettings
    seed: int


def check_data(run: RunFolder, request: CheckRequest) -> Soundness:
    """Check a data set and write soundness.json in the run."""
    with locked(run.path / ".soundness.lock", patience_seconds=0):
        read = material(request.splits, request.settings, seed=request.seed)
        checks, left_out = without_model(read)
        lines = decide(checks, request.settings)
        failed = {line.check for line in lines if line.sound is False}
        # Several forget questions may ask for one fact in other words.
        n_forget = len(read.forget)
        n_facts = n_forget - len(facts_of(read.forget))
        soundness = Soundness(
            forget=request.splits.forget,
            lines=lines,
            settings={**request.settings.identity(), "seed": request.seed},
            digest=request.splits.digest,
            left_out=tuple(left_out),
            leaking={c.name: tuple(c.leaking) for c in checks if c.name in failed},
            figures={"forget facts": float(n_facts)} if n_facts < n_forget else {},
            needs=margin_needs(checks, lines, request.settings),
        )
        write_soundness(run.soundness, soundness)
    return soundness
