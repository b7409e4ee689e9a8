"""The Knowledge Holes paper's own experiments (2511.00030): settings with who says each, sizes, and what is left to do.

No unlearned model of LLMU, GAKL and NPO-GD is published, and RMU's forget set is a corpus without questions, so these
are not made by one command: what a preset names is looked for, and what it leaves to do is said.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.settings import closest, packaged_toml
from vestige.judges.spending import Limits
from vestige.models.load import ModelSettings, look_for
from vestige.probes.filters import FilterSettings
from vestige.probes.holes import ProbeForecast, Size, forecast_probe


@cache
def presets() -> Mapping[str, Mapping[str, dict[str, Any]]]:
    """The four unlearned models of the paper's Table 1, each by sections, which are settings of their names.

    `forget` and `retain` name the data. In a section `by` says who states the values that the paper does not.
    """
    stored = packaged_toml("vestige.study", "resources", "holes_paper.toml")
    shared = stored["sections"]
    # Several presets share a section of a name.
    return {
        name: {part: shared[value] if isinstance(value, str) else value for part, value in own.items()}
        for name, own in stored["presets"].items()
    }


def find_preset(name: str) -> Mapping[str, dict[str, Any]]:
    """The sections of the preset of that name."""
    if name not in presets():
        raise InputError(f"no preset {name!r}; {closest(name, list(presets()))}")
    return presets()[name]


class PaperSize(NamedTuple):
    """What one of the paper's probes takes at most: who takes part, and how much each is asked."""

    target: str
    policy: str
    judge: str
    forecast: ProbeForecast


def paper_size(name: str) -> PaperSize:
    """The size of the preset's probe, with k questions of each forgotten sample and every attempt a candidate."""
    preset = find_preset(name)
    n_forget, k = preset["forget"]["n"], preset["adjacent"]["k"]
    attempts = preset["latent"]["n_iterations"] * preset["policy"]["n_rollouts"]
    filters = {key: value for key, value in preset["filters"].items() if key != "by"}
    settings = FilterSettings.build(filters, where=f"preset {name}")
    size = Size(n_forget * k, attempts, 0)
    # Texts are not there to be read, so that tokens are not reckoned; calls and judgements do not depend on them.
    forecast = forecast_probe(size, "", ("",) * n_forget, settings, answer_tokens=30, limits=Limits())
    models = preset["models"]
    return PaperSize(models["target"], models["policy"], models["judge"], forecast)


def refuse_paper(name: str) -> None:
    """Look for the preset's models, and say what is left to do; always an InputError."""
    models = find_preset(name)["models"]
    for who in ("target", "policy", "checkpoint"):
        if who in models:
            look_for(ModelSettings(model=models[who]))
    made = (
        f"{models['checkpoint']} is"
        if "checkpoint" in models
        else f"{models['target']} unlearned by `vestige unlearn` is"
    )
    raise InputError(
        f"the preset {name} is looked up and not made by one command: write a TOML file in which {made} the "
        "unlearned model, with the preset's sizes; docs/hole_tables.md has the form"
    )
