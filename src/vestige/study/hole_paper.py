"""The Knowledge Holes paper's own experiments (2511.00030): settings with who says each, sizes, and what is left to do.

No unlearned model of LLMU, GAKL and NPO-GD is published, and RMU's forget set is a corpus without questions, so these
are not made by one command: what a preset names is looked for, and what it leaves to do is said.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.settings import closest
from vestige.judges.spending import Limits
from vestige.models.load import ModelSettings, look_for
from vestige.probes.filters import FilterSettings
from vestige.probes.holes import ProbeForecast, Size, forecast_probe


@dataclass(frozen=True)
class HolePreset:
    """One unlearned model of the paper: what is forgotten and kept, how, and how its holes are looked for.

    The sections are settings of their names; `forget` and `retain` name the data. A `checkpoint` among the models is an
    unlearned one that was released. `by` says of each value that the paper does not state, as `section.name`, who does.
    """

    method: str
    sections: Mapping[str, Mapping[str, Any]]
    by: Mapping[str, str]

    def values(self, section: str) -> dict[str, Any]:
        """A section's values, for the `build` of its settings; none where the preset has no such section."""
        return dict(self.sections.get(section, {}))


@cache
def presets() -> Mapping[str, HolePreset]:
    """The four unlearned models of the paper's Table 1."""
    text = resources.files("vestige.study").joinpath("resources", "holes_paper.toml").read_text(encoding="utf-8")
    stored = tomllib.loads(text)
    return {name: _preset(name, own, stored["sections"]) for name, own in stored["presets"].items()}


def _preset(name: str, own: Mapping[str, Any], named: Mapping[str, Any]) -> HolePreset:
    """The preset whose sections are values, or the name of a section that several presets share."""
    whole = {part: named[value] if isinstance(value, str) else value for part, value in own.items()}
    by = {
        f"{part}.{key}": who
        for part, values in whole.items()
        for who, keys in values.get("by", {}).items()
        for key in keys
    }
    return HolePreset(
        name, {part: {k: v for k, v in values.items() if k != "by"} for part, values in whole.items()}, by
    )


def find_preset(name: str) -> HolePreset:
    """The preset of that name."""
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
    n_forget, k = preset.values("forget")["n"], preset.values("adjacent")["k"]
    attempts = preset.values("latent")["n_iterations"] * preset.values("policy")["n_rollouts"]
    settings = FilterSettings.build(preset.values("filters"), where=f"preset {name}")
    size = Size(n_forget * k, attempts, 0)
    # Texts are not there to be read, so that tokens are not reckoned; calls and judgements do not depend on them.
    forecast = forecast_probe(size, "", ("",) * n_forget, settings, answer_tokens=30, limits=Limits())
    models = preset.values("models")
    return PaperSize(models["target"], models["policy"], models["judge"], forecast)


def refuse_paper(name: str) -> None:
    """Look for the preset's models, and say what is left to do; always an InputError."""
    models = find_preset(name).values("models")
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
