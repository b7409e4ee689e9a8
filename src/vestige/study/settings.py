"""A study in one TOML file: axes (models, data, methods, forget sets, rates, seeds) and what is asked of each cell."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator

from vestige.audit.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.settings import Settings, closest, read_toml
from vestige.core.text import one_line
from vestige.data.corpus import SourceSettings
from vestige.study.presets import PAPER_RATES
from vestige.training.settings import TrainingSettings, UnlearningSettings

ATTACKS = {
    *("relearn", "relearn_items", "relearn_epochs", "relearn_rate", "relearn_rank", "relearn_rates", "relearn_ranks"),
    *("relearn_alpha", "relearn_batch_size", "quantize", "in_context", "gcg", "prefix"),
    *("prompt_tokens", "prompt_steps", "prompt_candidates"),
}
"""The settings of attacks among an audit's; `attacks.planning` reads them."""

EACH = "each:"
"""Begins a selector of edges that are forgotten one at a time, each from the target itself."""


class StudyData(SourceSettings):
    """A data set: `compile` names a graph (`sample1`, `star:20`, a file), or `data` a file, folder or hub id.

    `seed` draws the contracts, and is no training's. `train_factual` teaches the factual questions too. `retain` names
    what methods are given to keep, instead of everything that is not forgotten. At most `most_items` questions about
    contracts and as many others are asked beside the forget set, drawn by `seed`, the same of every model. `seeds` and
    `finetune` take the place of the study's for this data set.
    """

    name: str
    data: str = ""
    compile: str = ""
    seed: int = 0
    temporal: bool = False
    contract_types: Path | None = None
    train_factual: bool = False
    retain: str | None = None
    most_items: PositiveInt | None = None
    seeds: tuple[int, ...] = ()
    finetune: dict[str, Any] = Field(default_factory=dict)

    def source(self, compiled: Path) -> SourceSettings:
        """How the items are read; `compiled` is where a graph was compiled to."""
        own = {name: getattr(self, name) for name in SourceSettings.model_fields}
        return SourceSettings(**{**own, "data": str(compiled)} if self.compile else own)


class StudyModel(Settings):
    """A model. `teach = false` takes it as one that knows the data already.

    `finetune` and `unlearn` are settings of its trainings; those under `unlearn` win over the study's own. `save` keeps
    unlearned models whole (`merged`) or as LoRA adapters (`adapter`).
    """

    name: str = ""
    model: str
    dtype: str = "float32"
    trust_remote_code: bool = False
    chat_template: str = ""
    teach: bool = True
    finetune: dict[str, Any] = Field(default_factory=dict)
    unlearn: dict[str, Any] = Field(default_factory=dict)
    save: str = "merged"

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return self.name or self.model


class StudyMethod(Settings):
    """A method with its own `settings`, and settings of training that are its alone."""

    name: str = ""
    method: str
    settings: dict[str, Any] = Field(default_factory=dict)
    unlearn: dict[str, Any] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return self.name or self.method


class StudyForget(Settings):
    """What is forgotten: selectors or a file.

    `each:5@sparse` are five random edges of a part, one at a time, averaged in tables (`each:5@sparse#7` has a seed of
    its own; the data's `split_seed` otherwise). With `in_turn` the parts of `select` are forgotten one after another,
    each from the model that forgot those before, instead of at once. `data` names the data sets, all by default.
    """

    name: str = ""
    select: str
    in_turn: bool = False
    data: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return self.name or (f"{self.select} in turn" if self.in_turn else self.select)


class StudyRate(Settings):
    """Learning rates of unlearning, for the methods, models, data and forget sets that it names (all by default).

    Of several that fit a cell, the last is taken. `values` is a list, which makes an axis, or `paper`: the rates of
    PISTOL's Appendix B for its data and its two families of models.
    """

    values: tuple[PositiveFloat, ...] | str
    methods: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()


class StudyEvaluate(Settings):
    """What every model is asked. `settings` holds those of each evaluation by name.

    `splits` are those that are asked, all by default. `controls` models are trained without each forget set, for each
    seed of the study.
    """

    evals: tuple[str, ...] = Field(default=("qa",), min_length=1)
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    splits: tuple[str, ...] = ()
    controls: int = Field(default=0, ge=0)


class StudyReport(Settings):
    """What tables show: metrics (`qa.rouge1_recall`, the evaluation first) and splits (`forget`, `forget:free`).

    `contrasts` are pairs of forget sets (or of models, methods) that are compared, all pairs of forget sets by default.
    `matched` is the retained utility at which methods are compared too, where several rates were tried. `by` is what
    figures have on their axis: the forget set, or its `connectivity`.
    """

    metrics: tuple[str, ...] = Field(default=("qa.rouge1_recall", "qa.mrr", "qa.top_hit"), min_length=1)
    splits: tuple[str, ...] = Field(default=("forget", "forget:free", "retain", "factual"), min_length=1)
    contrasts: tuple[tuple[str, str], ...] = ()
    matched: float | None = Field(default=None, gt=0, lt=1)
    utility: str = "retain"


class StudySettings(Settings):
    """A whole study. Lists of names are axes; every combination is a cell.

    `seeds` are those of the trainings: with each, the target is taught and every method run anew. `finetune` and
    `unlearn` are settings of training for all models. `attack` are settings of an audit's attacks under their names
    there; what is not named is not tried. A string stands for a table with that name alone.
    """

    name: str
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    device: str = "auto"
    data: tuple[StudyData, ...] = Field(min_length=1)
    models: tuple[StudyModel, ...] = Field(min_length=1)
    methods: tuple[StudyMethod, ...] = Field(min_length=1)
    forget: tuple[StudyForget, ...] = Field(min_length=1)
    rates: tuple[StudyRate, ...] = Field(min_length=1)
    finetune: dict[str, Any] = Field(default_factory=dict)
    unlearn: dict[str, Any] = Field(default_factory=dict)
    evaluate: StudyEvaluate = StudyEvaluate()
    attack: dict[str, Any] = Field(default_factory=dict)
    report: StudyReport = StudyReport()

    @field_validator("models", "methods", "forget", mode="before")
    @classmethod
    def _tables(cls, value: Any, info: ValidationInfo) -> Any:
        key = {"models": "model", "methods": "method", "forget": "select"}[info.field_name or ""]
        return [{key: one} if isinstance(one, str) else one for one in value] if isinstance(value, list) else value

    def check(self) -> None:
        """Refuse names that come twice or that nothing has, and settings of training that are none."""
        for what, names in self.names().items():
            twice = next((n for n in names if names.count(n) > 1), None)
            if twice is not None:
                raise InputError(f"{self.name}: two of {what} are called {one_line(twice)!r}; give one another name")
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"{self.name}: a seed comes twice in seeds = {list(self.seeds)}")
        for forget in self.forget:
            self._known("data", forget.data, "forget")
        for rate in self.rates:
            for what in ("methods", "models", "data", "forget"):
                self._known(what, getattr(rate, what), "rates")
            if isinstance(rate.values, str) and rate.values != "paper":
                raise InputError(f"{self.name}: rates.values is a list of numbers or 'paper', not {rate.values!r}")
        for one in self.data:
            if bool(one.data) == bool(one.compile):
                raise InputError(f"{self.name}: data {one.name!r} needs either compile = a graph, or data = a file")
        self.attacks()
        for model in self.models:
            for data in self.data if model.teach else ():
                self.teaching(model, data)
            for method in self.methods:
                self.training(model, method, 1e-5)

    def names(self) -> dict[str, list[str]]:
        """What is called how, by axis."""
        return {
            "data": [d.name for d in self.data],
            "models": [m.label for m in self.models],
            "methods": [m.label for m in self.methods],
            "forget": [f.label for f in self.forget],
        }

    def attacks(self) -> AuditSettings:
        """The attacks that are made, as an audit's settings."""
        strange = set(self.attack) - ATTACKS
        if strange:
            raise InputError(f"{self.name}: attack.{min(strange)}: {closest(min(strange), sorted(ATTACKS))}")
        none = dict.fromkeys(("relearn", "relearn_rates", "quantize", "in_context", "gcg", "prefix"), ())
        return AuditSettings.build({**none, **self.attack}, where=f"attack of {self.name}")

    def _known(self, what: str, names: Sequence[str], where: str) -> None:
        known = self.names()[what]
        for name in names:
            if name not in known:
                raise InputError(f"{self.name}: {where} names {one_line(name)!r} among {what}; {closest(name, known)}")

    def teaching(self, model: StudyModel, data: StudyData) -> TrainingSettings:
        """How a model is taught the data."""
        values = {**self.finetune, **model.finetune, **data.finetune}
        return TrainingSettings.build(values, where=f"finetune of {model.label} on {data.name}")

    def training(self, model: StudyModel, method: StudyMethod, rate: float) -> UnlearningSettings:
        """How a method is trained on a model."""
        values = {**self.unlearn, **model.unlearn, **method.unlearn, "learning_rate": rate}
        return UnlearningSettings.build(values, where=f"unlearn of {model.label} by {method.label}")

    def rates_of(self, model: StudyModel, method: StudyMethod, data: StudyData, forget: StudyForget) -> list[float]:
        """The learning rates of a cell: those of the last rule that fits."""
        own = {"models": model.label, "methods": method.label, "data": data.name, "forget": forget.label}
        fits = [r for r in self.rates if all(not getattr(r, k) or v in getattr(r, k) for k, v in own.items())]
        if not fits:
            raise InputError(
                f"{self.name}: no [[rates]] fits method {method.label!r} on {model.label!r}, {data.name!r}, "
                f"{forget.label!r}; add one with values = [...]"
            )
        values = fits[-1].values
        if not isinstance(values, str):
            return list(values)
        family = next((f for f in ("llama-2", "mistral") if f in model.model.lower()), None)
        found = PAPER_RATES.get((data.compile, family or "", method.method))
        if found is None:
            raise InputError(
                f"{self.name}: the paper has no rate for {method.method!r} on {model.model!r} and {data.name!r}; give "
                "[[rates]] with values = [...]"
            )
        return [found]


def read_study(path: Path) -> StudySettings:
    """The study in a TOML file."""
    study = StudySettings.build(read_toml(path), where=str(path))
    study.check()
    return study
