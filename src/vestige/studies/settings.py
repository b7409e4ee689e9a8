"""A study in one TOML file: axes (models, data, methods, forget sets, rates, seeds) and what is asked of each cell."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator

from vestige.attacks import ATTACKS
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.settings import Settings, read_toml
from vestige.core.text import closest, one_line
from vestige.data.corpus import SourceSettings
from vestige.evals.base import Evaluation
from vestige.methods import build_method
from vestige.models.address import is_address
from vestige.requests import TINY, TINY_FINETUNE, evaluations
from vestige.studies.goals import parse_goal
from vestige.studies.presets import PAPER_RATES
from vestige.training.settings import TrainingSettings, UnlearningSettings

ATTACK_SETTINGS = {f for f in AuditSettings.model_fields if f.startswith((*ATTACKS, "prompt_", "further"))}
"""Those of attacks among an audit's; `attacks.planning` reads them."""

EACH = "each:"
"""Begins a selector of edges that are forgotten one at a time, each from the target itself."""


class StudyData(SourceSettings):
    """A data set: a graph that is compiled, or items from a file, a folder or the hub."""

    name: str
    """What it is called."""
    data: str = ""
    """A file, a compiled folder or a hub id, with its columns."""
    compile: str = ""
    """A graph to compile instead: `sample1`, `star:20`, a file."""
    seed: int = 0
    """Draws the contracts and the items that are asked; no training's seed."""
    temporal: bool = False
    """Let later contracts supersede earlier ones."""
    contract_types: Path | None = None
    """A folder of contract types of your own."""
    train_factual: bool = False
    """Teach the factual questions too."""
    retain: str | None = None
    """What methods are given to keep: selectors or a file; everything that is not forgotten by default."""
    most_items: PositiveInt | None = None
    """Beside the forget set ask at most so many questions about contracts and as many others, alike of all models."""
    seeds: tuple[int, ...] = ()
    """Seeds of trainings on this data set, in the place of the study's."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Settings of teaching on this data set, which win over the study's and the model's."""

    def source(self, compiled: Path) -> SourceSettings:
        """How the items are read; `compiled` is where a graph was compiled to."""
        values = {name: getattr(self, name) for name in SourceSettings.model_fields}
        return SourceSettings(**{**values, "data": str(compiled)} if self.compile else values)


class StudyModel(Settings):
    """A model, and how it is taught and kept."""

    name: str = ""
    """What it is called in tables."""
    model: str
    """A hub id, a folder or a built-in."""
    dtype: str = "float32"
    """Number format of the weights."""
    trust_remote_code: bool = False
    """Run code that the model brings with it."""
    chat_template: str = ""
    """A name of its templates, plain, or a file; the model's own by default."""
    teach: bool = True
    """Teach it the data; false takes it as one that knows them."""
    one_target: bool = False
    """Teach it once, from the first seed, so that the other seeds vary unlearning alone."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Settings of its teaching."""
    unlearn: dict[str, Any] = Field(default_factory=dict)
    """Settings of unlearning it."""
    save: str = "merged"
    """Keep unlearned models whole (merged) or as LoRA adapters (adapter)."""

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return self.name or self.model


class StudyMethod(Settings):
    """A method with settings of its own, or an unlearned model that somebody made."""

    name: str = ""
    """What it is called in tables."""
    method: str = ""
    """A name of `vestige list methods`."""
    model: str = ""
    """An unlearned model that is there, in the place of a method: a folder or a hub id. Nothing is trained."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The method's own settings."""
    unlearn: dict[str, Any] = Field(default_factory=dict)
    """Settings of training that are its alone."""

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return self.name or self.method or self.model


class StudyForget(Settings):
    """What is forgotten."""

    name: str = ""
    """What it is called in tables."""
    select: str
    """Selectors or a file; `each:5@sparse` are five random edges of a part, one at a time, pooled (`#7`: own seed)."""
    in_turn: bool = False
    """Forget the parts of `select` one after another, each from the model that forgot those before."""
    data: tuple[str, ...] = ()
    """In which data sets; in all by default."""

    @property
    def label(self) -> str:
        """What it is called in tables."""
        return self.name or (f"{self.select} in turn" if self.in_turn else self.select)


class StudyRate(Settings):
    """Learning rates of unlearning for some cells; of several tables that fit a cell the last is taken."""

    goal: str = ""
    """As `retain>=0.95` or `forget<=0.3`: take of `values` the best that meets it, as `vestige calibrate` finds it.

    It is found once for each model, data set, method and forget set, at the first seed and on items of its own.
    """
    values: tuple[PositiveFloat, ...] | str
    """A list, which is an axis; or `paper`: those of PISTOL's Appendix B."""
    methods: tuple[str, ...] = ()
    """For these methods; for all by default."""
    models: tuple[str, ...] = ()
    """For these models."""
    data: tuple[str, ...] = ()
    """For these data sets."""
    forget: tuple[str, ...] = ()
    """For these forget sets."""


class StudyEvaluate(Settings):
    """What every model is asked."""

    evals: tuple[str, ...] = Field(default=("qa",), min_length=1)
    """Evaluations by name."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of each evaluation, by name."""
    splits: tuple[str, ...] = ()
    """Splits that are asked beside the forget set; all by default. `left_out`: what `retain` of the data leaves out."""
    controls: int = Field(default=0, ge=0)
    """Models that never saw the forget set, for each seed of the study."""


class StudyReport(Settings):
    """What tables and figures show."""

    metrics: tuple[str, ...] = Field(default=("qa.rouge1_recall", "qa.mrr", "qa.top_hit"), min_length=1)
    """Scores from 0 to 1, the evaluation first: `qa.rouge1_recall`."""
    splits: tuple[str, ...] = Field(default=("forget", "forget:free", "retain", "factual"), min_length=1)
    """Splits; `forget:free` is what retained contracts do not give away."""
    contrasts: tuple[tuple[str, str], ...] = ()
    """Pairs of forget sets, methods, models or splits to compare; all pairs of forget sets by default."""
    matched: float | None = Field(default=None, gt=0, lt=1)
    """Compare too at the highest rate that keeps this much of `utility`."""
    utility: str = "retain"
    """The split that is to be kept."""
    rank: str = ""
    """A score by which methods are ranked: its mean on `utility` less its mean on the forget set, paired by seed."""


class RateChoice(NamedTuple):
    """A learning rate; or a goal, and the rates among which one is chosen for it."""

    rate: float
    goal: str = ""
    grid: tuple[float, ...] = ()


class StudySettings(Settings):
    """A whole study; lists of names are axes, and every combination is a cell.

    A string stands for a table with that name alone.
    """

    name: str
    """What the study is called."""
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    """Seeds of trainings: with each, the target is taught and every method run anew."""
    device: str = "auto"
    """Where models run."""
    data: tuple[StudyData, ...] = Field(min_length=1)
    """Data sets."""
    models: tuple[StudyModel, ...] = Field(min_length=1)
    """Models."""
    methods: tuple[StudyMethod, ...]
    """Methods; an empty list teaches targets and models that never saw the forget sets, and unlearns nothing."""
    forget: tuple[StudyForget, ...] = Field(min_length=1)
    """Forget sets."""
    rates: tuple[StudyRate, ...] = ()
    """Learning rates."""
    finetune: dict[str, Any] = Field(default_factory=dict)
    """Settings of teaching, for all models."""
    unlearn: dict[str, Any] = Field(default_factory=dict)
    """Settings of unlearning, for all models."""
    trajectory: dict[str, Any] = Field(default_factory=dict)
    """When unlearning stops and which checkpoint is kept: `every`, `stop_when`, `choose`, the judge `harm_judge`, and
    the validation's `items`, `metric`, `max_new_tokens`; without it each training goes to its end."""
    evaluate: StudyEvaluate = StudyEvaluate()
    """What every model is asked."""
    attack: dict[str, Any] = Field(default_factory=dict)
    """An audit's settings of attacks; what is not named is not tried."""
    audit: dict[str, Any] | None = None
    """Settings of audits, one for each forget set, model, data set and seed, with all methods; none by default."""
    holes: dict[str, Any] | None = None
    """How knowledge holes are looked for (`studies/holes.py`); not at all by default."""
    report: StudyReport = StudyReport()
    """What tables show."""
    published: str = ""
    """Of packs, the model whose published figures a target must show that was there before (`teach = false`); by
    default the one of its name, `none` leaves this out."""

    @field_validator("models", "methods", "forget", mode="before")
    @classmethod
    def _tables(cls, value: Any, info: ValidationInfo) -> Any:
        key = {"models": "model", "methods": "method", "forget": "select"}[info.field_name or ""]
        return (
            [{key: entry} if isinstance(entry, str) else entry for entry in value] if isinstance(value, list) else value
        )

    def check(self) -> None:
        """Refuse names that come twice or that nothing has, and settings of training that are none."""
        for axis, names in self.names().items():
            twice = next((n for n in names if names.count(n) > 1), None)
            if twice is not None:
                raise InputError(f"{self.name}: two of {axis} are called {one_line(twice)!r}; give one another name")
        if len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"{self.name}: a seed comes twice in seeds = {list(self.seeds)}")
        for forget in self.forget:
            self._known("data", forget.data, "forget")
        for rate in self.rates:
            for axis in ("methods", "models", "data", "forget"):
                self._known(axis, getattr(rate, axis), "rates")
            if rate.goal:
                parse_goal(rate.goal)
                if isinstance(rate.values, str) or any(f.in_turn for f in self.forget):
                    raise InputError(
                        f"{self.name}: rates.goal needs a list of values, and sets that are forgotten at once"
                    )
            if not rate.values:
                raise InputError(f"{self.name}: rates.values names no rate, so nothing would be unlearned")
            if isinstance(rate.values, str) and rate.values != "paper":
                raise InputError(f"{self.name}: rates.values is a list of numbers or 'paper', not {rate.values!r}")
        for data_set in self.data:
            if bool(data_set.data) == bool(data_set.compile):
                raise InputError(
                    f"{self.name}: data {data_set.name!r} needs either compile = a graph, or data = a file"
                )
        self.attacks()
        self.audits()
        self._check_names()
        for model in self.models:
            self._check_served(model)
            for data in self.data if model.teach else ():
                self.teaching(model, data)
            for method in self.methods:
                if bool(method.method) == bool(method.model):
                    raise InputError(f"{self.name}: methods {method.label!r} needs either method = a name, or model")
                # At any rate: a wrong key is to be seen now and not after the target has been taught.
                self.training(model, method, 1e-5)

    def _check_names(self) -> None:
        """Refuse methods, evaluations, their settings and scores that there are not."""
        for method in self.methods:
            if method.method:
                build_method(method.method, method.settings)
        evaluate = self.evaluate
        for name in evaluate.settings:
            if name not in evaluate.evals:
                raise InputError(
                    f"{self.name}: evaluate.settings are for {one_line(name)!r}; {closest(name, [*evaluate.evals])}"
                )
        self.questions()
        for metric in filter(None, (*self.report.metrics, self.report.rank)):
            evaluation = metric.partition(".")[0]
            if evaluation not in evaluate.evals:
                raise InputError(
                    f"{self.name}: the report names {one_line(metric)!r}, and evaluate.evals has no {evaluation!r}"
                )

    def _check_served(self, model: StudyModel) -> None:
        """Refuse cells that would need the weights of a model behind an address."""
        attacks = self.attacks()
        # A server answers and hands out no weights.
        trained = model.teach or self.evaluate.controls or any(method.method for method in self.methods)
        if is_address(model.model) and (
            trained or any((attacks.relearn, attacks.quantize, attacks.ablate, attacks.gcg, attacks.prefix))
        ):
            raise InputError(
                f"{self.name}: the model {one_line(model.label)} is behind an address, where nothing can be trained, "
                "rounded or searched; set teach = false and controls = 0, name unlearned models in [[methods]] by "
                "model = an address, and leave such attacks out"
            )

    def names(self) -> dict[str, list[str]]:
        """What is called how, by axis."""
        return {
            "data": [d.name for d in self.data],
            "models": [m.label for m in self.models],
            "methods": [m.label for m in self.methods],
            "forget": [f.label for f in self.forget],
        }

    def questions(self) -> dict[str, Evaluation]:
        """The evaluations with their settings."""
        return evaluations({name: self.evaluate.settings.get(name, {}) for name in self.evaluate.evals})

    def attacks(self) -> AuditSettings:
        """The attacks that are made, as an audit's settings."""
        strange = set(self.attack) - ATTACK_SETTINGS
        if strange:
            raise InputError(f"{self.name}: attack.{min(strange)}: {closest(min(strange), sorted(ATTACK_SETTINGS))}")
        # An audit makes attacks by default, and a study those alone that it names.
        none = dict.fromkeys(
            ("relearn", "relearn_rates", "quantize", "ablate", "in_context", "gcg", "prefix", "further"), ()
        )
        return AuditSettings.build({**none, **self.attack}, where=f"attack of {self.name}")

    def audits(self) -> AuditSettings | None:
        """How every forget set is audited; None where it is not."""
        if self.audit is not None and self.attack:
            raise InputError(f"{self.name}: an audit makes its own attacks; put those of [attack] into [audit]")
        return None if self.audit is None else AuditSettings.build(self.audit, where=f"audit of {self.name}")

    def _known(self, axis: str, names: Sequence[str], where: str) -> None:
        axis_names = self.names()[axis]
        for name in names:
            if name not in axis_names:
                raise InputError(
                    f"{self.name}: {where} names {one_line(name)!r} among {axis}; {closest(name, axis_names)}"
                )

    def teaching(self, model: StudyModel, data: StudyData) -> TrainingSettings:
        """How a model is taught the data; the built-in tiny model has defaults of its own, as in `finetune`."""
        tiny = TINY_FINETUNE.identity() if model.model.startswith(TINY) else {}
        # Each wins over those before it, the data set over all.
        values = {**tiny, **self.finetune, **model.finetune, **data.finetune}
        return TrainingSettings.build(values, where=f"finetune of {model.label} on {data.name}")

    def training(self, model: StudyModel, method: StudyMethod, rate: float) -> UnlearningSettings:
        """How a method is trained on a model."""
        values = {**self.unlearn, **model.unlearn, **method.unlearn, "learning_rate": rate}
        return UnlearningSettings.build(values, where=f"unlearn of {model.label} by {method.label}")

    def rates_of(
        self, model: StudyModel, method: StudyMethod, data: StudyData, forget: StudyForget
    ) -> list[RateChoice]:
        """The learning rates of a cell: those of the last rule that fits."""
        if method.model:
            return [RateChoice(0.0)]
        labels = {"models": model.label, "methods": method.label, "data": data.name, "forget": forget.label}
        fits = [r for r in self.rates if all(not getattr(r, k) or v in getattr(r, k) for k, v in labels.items())]
        if not fits:
            raise InputError(
                f"{self.name}: no [[rates]] fits method {method.label!r} on {model.label!r}, {data.name!r}, "
                f"{forget.label!r}; add one with values = [...]"
            )
        # The last, so that a file goes from the general to the particular.
        values, goal = fits[-1].values, fits[-1].goal
        if not isinstance(values, str):
            return [RateChoice(0.0, goal, values)] if goal else [RateChoice(rate) for rate in values]
        # A hub id, a folder or an adapter: what the paper names is in all of their names.
        family = next((f for f in ("llama-2", "mistral") if f in model.model.lower()), None)
        paper_rate = PAPER_RATES.get((data.compile, family or "", method.method))
        if paper_rate is None:
            raise InputError(
                f"{self.name}: the paper has no rate for {method.method!r} on {model.model!r} and {data.name!r}; give "
                "[[rates]] with values = [...]"
            )
        return [RateChoice(paper_rate)]


def read_study(path: Path) -> StudySettings:
    """The study in a TOML file."""
    study = StudySettings.build(read_toml(path), where=str(path))
    study.check()
    return study
