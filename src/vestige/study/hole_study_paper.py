"""The paper's own experiments as studies: their names on the hub and their sizes (2511.00030, Appendix A).

No unlearned model of LLMU, GAKL and NPO-GD is published, and RMU's forget set is a corpus without questions, so these
are not made by one command: what a preset names is looked for, and what it leaves to do is said.
"""

from collections.abc import Sequence
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.judges.spending import Limits
from vestige.models.load import ModelSettings, look_for
from vestige.probes.filters import FilterSettings
from vestige.probes.holes import ProbeForecast, Size, forecast_probe
from vestige.probes.presets import HolePreset, find_preset


class PaperSize(NamedTuple):
    """What one of the paper's probes takes at most: who takes part, and how much each is asked."""

    target: str
    policy: str
    judge: str
    forecast: ProbeForecast


def paper_size(name: str) -> PaperSize:
    """The size of the preset's probe, with k questions of each forgotten sample and every attempt a candidate."""
    preset = find_preset(name)
    n_forget, k = preset.forget["n"].value, preset.adjacent["k"].value
    attempts = preset.latent["n_iterations"].value * preset.policy["n_rollouts"].value
    settings = FilterSettings.build(preset.values("filters"), where=f"preset {name}")
    size = Size(n_forget * k, attempts, 0)
    # Texts are not there to be read, so that tokens are not reckoned; calls and judgements do not depend on them.
    forecast = forecast_probe(size, "", ("",) * n_forget, settings, answer_tokens=30, limits=Limits())
    models = preset.models
    return PaperSize(models["target"].value, models["policy"].value, models["judge"].value, forecast)


def refuse_paper(name: str) -> None:
    """Look for the preset's models, and say what is left to do; always an InputError."""
    preset = find_preset(name)
    for model in _models(preset):
        look_for(ModelSettings(model=model))
    made = preset.models.get("checkpoint")
    unlearned = f"{made.value} is" if made else f"{preset.models['target'].value} unlearned by `vestige unlearn` is"
    raise InputError(
        f"the preset {name} is looked up and not made by one command: write a TOML file in which {unlearned} the "
        "unlearned model, with the preset's sizes; docs/hole_tables.md has the form"
    )


def _models(preset: HolePreset) -> Sequence[str]:
    return [preset.models[who].value for who in ("target", "policy", "checkpoint") if who in preset.models]
