"""What a study of holes is asked for, by a preset's name or in a TOML file, and where what it makes lies.

The Knowledge Holes paper's own experiments (2511.00030) are presets too: their settings with who says each, sizes, and
what is left to do. No unlearned model of LLMU, GAKL and NPO-GD is published, and RMU's forget set is a corpus
without questions, so these are not made by one command: what a preset names is looked for.

::

    study.json                          what was asked, fully resolved
    data/  models/<name>/               where the study makes its own
    probes/<unlearned>/                 Tables 1 and 2: a `ProbeFolder` each, as all below
    checkpoints/<label>/<run>/          Table 7
    ablation/<variant>/                 Table 10
    mitigation/<way>.json               where the tables behind Tables 3 and 4 lie
    general/<name>.json                 what a model scores on the data's own questions
    evidence/<name>/                    the answers of models from elsewhere
    tables.md tables/table-<n>.csv      written last
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.artifacts.layout import Entry, ProbeFolder, SubjectFolder
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import write_json
from vestige.core.ids import slug
from vestige.core.settings import Settings, closest, packaged_toml, read_toml
from vestige.core.store import AGAIN, SCHEMA, read_versioned, typed
from vestige.core.text import one_line
from vestige.data.corpus import SourceSettings
from vestige.judges.spending import Limits
from vestige.models.load import ModelSettings, look_for
from vestige.probes.answering import AnswerSettings
from vestige.probes.filters import FilterSettings
from vestige.probes.hole_table import NO_WRITER
from vestige.probes.holes import ProbeForecast, Size, forecast_probe
from vestige.probes.latent import LatentSettings
from vestige.probes.mitigation import MendingSettings, MitigationSettings
from vestige.training.policy.settings import PolicySettings

TABLES = (1, 2, 3, 4, 6, 7, 10)
"""The paper's numbers of the tables that are made here."""
VARIED = ("policy", "latent")
"""The sections whose settings an ablation varies."""
TARGET, POLICY, COMPILE = "target", "policy", "compile"
"""Who and what takes part in every study; no other model may have one of these names."""


class StudyModels(Settings):
    """Folders or ids of the models: who knows, who learns to ask, and by name who forgot."""

    target: str
    policy: str
    unlearned: dict[str, str] = Field(min_length=1)


class Checkpoints(Settings):
    """For Table 7: models of one training by label, first to last, each searched `runs` times at seeds of their own."""

    models: dict[str, str] = Field(min_length=1)
    runs: PositiveInt = 3


class Ablation(Settings):
    """For Table 10: which unlearned model is searched again, and the values of each hyper-parameter, one at a time.

    Names are `policy.kl_coef` and the like.
    """

    of: str
    variants: dict[str, tuple[float, ...]] = Field(min_length=1)


class StudyMitigation(Settings):
    """For Tables 3 and 4: which unlearned model is mended, in both one-shot ways and in rounds, with which settings."""

    of: str
    settings: MitigationSettings = MitigationSettings()
    training: MendingSettings = MendingSettings()


class StudyVariance(Settings):
    """For Table 6: whose prompts are answered again, `generations` times by each model.

    Beside `of` answer `models` by name, unlearned like it from other seeds; a study that makes its models makes them
    from `seeds`.
    """

    of: str
    generations: PositiveInt = 3
    seeds: tuple[int, ...] = ()
    models: dict[str, str] = Field(default_factory=dict)


class StudyJudge(Settings):
    """Who grades. `truth`: the data's own questions have one right answer each, and others are not valid.

    `embedder` is a folder or a hub id; all-MiniLM-L6-v2 by default. `limits` bound what a server is paid by each probe.
    """

    kind: Literal["grounded", "local", "server"] = "grounded"
    model: str | None = None
    url: str | None = None
    truth: bool = False
    embedder: str | None = None
    limits: Limits = Limits()


class Unlearning(Settings):
    """How the study makes one unlearned model: a method, its own settings, and its learning rate."""

    method: str
    learning_rate: PositiveFloat
    settings: dict[str, float] = Field(default_factory=dict)


class Making(Settings):
    """How the study makes its models itself, from a graph of contracts and `builtin:tiny`.

    The policy is taught `policy_lists` lists of `policy_questions` retained and factual questions, and no answer.
    `checkpoints` are steps of the training of `checkpoints_of`.
    """

    graph: str
    unlearned: dict[str, Unlearning] = Field(min_length=1)
    unlearning_epochs: PositiveInt
    policy_lists: PositiveInt
    policy_questions: PositiveInt
    policy_epochs: PositiveInt
    checkpoints_of: str
    checkpoints: tuple[PositiveInt, ...]
    checkpoint_runs: PositiveInt


class HoleStudySettings(Settings):
    """A study of holes, from one file. Either `making` or `data` and `models` say whose holes are looked for.

    `k` is the number of adjacent questions of a forgotten item, `by` how they are made: graph or templates.
    `general_tokens` bounds the answers to the data's own questions. `bench` is a folder of `vestige bench` with target
    and unlearned models, whose numbers Table 1 then shows too.
    """

    forget: str
    retain: str | None = None
    data: SourceSettings | None = None
    models: StudyModels | None = None
    making: Making | None = None
    checkpoints: Checkpoints | None = None
    ablation: Ablation | None = None
    mitigation: StudyMitigation | None = None
    variance: StudyVariance | None = None
    judge: StudyJudge = StudyJudge()
    k: PositiveInt = 4
    by: Literal["graph", "templates"] = "templates"
    answers: AnswerSettings = AnswerSettings()
    latent: LatentSettings = LatentSettings()
    policy: PolicySettings = PolicySettings()
    filter: FilterSettings = FilterSettings()
    general_tokens: PositiveInt = 64
    bench: str | None = None
    device: str = "auto"
    seed: int = 0

    @property
    def unlearned(self) -> tuple[str, ...]:
        """The names of the unlearned models, in the order of the tables."""
        whole = self.making.unlearned if self.making else self.models.unlearned if self.models else {}
        return tuple(whole)

    def what_is_asked(self) -> dict[str, Any]:
        """The settings as JSON values, without what changes no result: limits, the embedder's place, the device."""
        found = self.identity()
        judge = {name: value for name, value in found["judge"].items() if name != "limits"}
        return {**found, "judge": {**judge, "embedder": None}, "device": None}

    def names(self) -> tuple[str, ...]:
        """Folders, files or ids of everything that is there before the study: models and data."""
        if self.models is None:
            return ()
        models = {**self.models.unlearned, **(self.checkpoints.models if self.checkpoints else {})}
        models |= self.variance.models if self.variance else {}
        data = [self.data.data if self.data else None, self.forget, self.retain]
        given = [self.models.target, self.models.policy, *models.values(), *data]
        return tuple(dict.fromkeys(name for name in given if name is not None))

    def steps(self) -> tuple[str, ...]:
        """The labels of the checkpoints, first to last, the whole training not among them."""
        if self.making:
            return tuple(f"{self.making.checkpoints_of} step {step}" for step in self.making.checkpoints)
        return tuple(self.checkpoints.models) if self.checkpoints else ()

    @property
    def runs(self) -> int:
        """How often each checkpoint is searched."""
        if self.making:
            return self.making.checkpoint_runs
        return self.checkpoints.runs if self.checkpoints else 0

    def repeats(self) -> tuple[str, ...]:
        """The names of the models that were unlearned from other seeds."""
        if self.variance is None:
            return ()
        return tuple(f"{self.variance.of} seed {seed}" for seed in self.variance.seeds) or tuple(self.variance.models)

    def variants(self) -> "Iterator[Variant]":
        """The single changes of the ablation, in their order."""
        for name, values in (self.ablation.variants if self.ablation else {}).items():
            section, _, key = name.partition(".")
            for value in values:
                yield Variant(f"{name}={value:g}", section, key, value)

    def varied(self, variant: "Variant") -> "HoleStudySettings":
        """The study with one hyper-parameter changed; an InputError where it has none of that name."""
        section: Settings = {"policy": self.policy, "latent": self.latent}[variant.section]
        known = type(section).model_fields
        if variant.key not in known:
            raise InputError(f"[ablation] {variant.name}: no such setting; {closest(variant.key, list(known))}")
        whole = float(variant.value).is_integer() and isinstance(section.identity()[variant.key], int)
        value = int(variant.value) if whole else variant.value
        changed = type(section).build({**section.identity(), variant.key: value}, where=f"[ablation] {variant.name}")
        return self.model_copy(update={variant.section: changed})

    def check(self) -> None:
        """Refuse what does not go together, before anything is made."""
        if (self.making is None) == (self.models is None) or (self.models is None) != (self.data is None):
            raise InputError("a study has [models] and [data], or [making]; give the one or the other")
        if self.making and self.checkpoints:
            raise InputError("[checkpoints] are those of models that are there; [making] has checkpoints of its own")
        if self.judge.kind != "grounded" and self.judge.model is None:
            raise InputError(f"[judge] kind = {self.judge.kind!r} needs a model")
        if self.judge.kind == "grounded" and self.filter.name_groups == "writer":
            # Groups are named last, after hours perhaps.
            raise InputError(f"[filter]: {NO_WRITER}")
        if self.judge.kind == "server" and self.judge.url is None:
            raise InputError("[judge] kind = 'server' needs a url, such as http://localhost:8000/v1")
        if self.variance and (self.variance.models if self.making else self.variance.seeds):
            raise InputError("[variance] seeds are for a study with [making], and models for one without")
        self._refuse_one_name_twice()
        about = [part.of for part in (self.ablation, self.mitigation, self.variance) if part]
        for name in [*about, *([self.making.checkpoints_of] if self.making else [])]:
            if name not in self.unlearned:
                raise InputError(f"no unlearned model {one_line(name)!r}; {closest(name, list(self.unlearned))}")
        for variant in self.variants():
            if variant.section not in VARIED:
                raise InputError(f"[ablation] {one_line(variant.name)}: name policy.KEY or latent.KEY")
            self.varied(variant)
        self.filter.check()
        self.judge.limits.check()

    def _refuse_one_name_twice(self) -> None:
        """A name stands for one model, whose folder and whose rows in the tables go by it."""
        taken: list[str] = [TARGET, POLICY, COMPILE]
        for name in (*self.unlearned, *self.steps(), *self.repeats()):
            if name in taken:
                raise InputError(f"two models of the study are called {one_line(name)!r}; give one another name")
            taken.append(name)


class Variant(NamedTuple):
    """One hyper-parameter at another value."""

    name: str
    section: str
    key: str
    value: float


def tables_named(words: str | None) -> tuple[int, ...]:
    """The tables named by their numbers, apart by commas; all of them where nobody says."""
    if words is None:
        return TABLES
    known = [str(number) for number in TABLES]
    names = list(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
    for name in names:
        if name not in known:
            raise InputError(f"--only {one_line(name)}: no such table here; known: {', '.join(known)}")
    if not names:
        raise InputError(f"--only names no table; give some of {', '.join(known)}")
    return tuple(number for number in TABLES if str(number) in names)


def refuse_sections_missing(settings: HoleStudySettings, words: str | None) -> None:
    """Refuse a table that was asked for by its number and whose section the study has not."""
    if words is None:
        return
    needed = {3: "mitigation", 4: "mitigation", 6: "variance", 7: "checkpoints", 10: "ablation"}
    parts = {"mitigation": settings.mitigation, "variance": settings.variance, "ablation": settings.ablation}
    given = {name for name, part in parts.items() if part is not None} | (
        {"checkpoints"} if settings.steps() else set()
    )
    for number in tables_named(words):
        if number in needed and needed[number] not in given:
            raise InputError(f"--only {number}: table {number} needs a section [{needed[number]}], which is not there")


def study_named(config: str) -> HoleStudySettings:
    """The study of a preset's name, or in a TOML file."""
    if config == "sample1":
        own = packaged_toml("vestige.studies", "resources", "sample1.toml")
        found = HoleStudySettings.build(own, where="sample1")
    elif Path(config).suffix == ".toml" or Path(config).is_file():
        found = HoleStudySettings.build(read_toml(Path(config)), where=config)
    else:
        raise InputError(f"no study {one_line(config)!r}; {closest(config, ['sample1'])}, or name a TOML file")
    found.check()
    return found


@dataclass(frozen=True)
class HoleStudyFolder:
    """One study of holes."""

    path: Path

    asked = Entry("study.json")
    """What was asked, fully resolved."""
    data = Entry("data")
    """The data that the study makes."""
    page = Entry("tables.md")
    """All tables, for people."""
    lock = Entry(".lock")
    """Held by the process that works here."""

    def model(self, name: str) -> SubjectFolder:
        """A model that the study makes."""
        return SubjectFolder(self.path / "models" / slug(name))

    def probe(self, unlearned: str) -> ProbeFolder:
        """The probe of one unlearned model."""
        return ProbeFolder(self.path / "probes" / slug(unlearned))

    def checkpoint(self, label: str, run: int) -> ProbeFolder:
        """One of the probes of one checkpoint; runs are counted from 1."""
        return ProbeFolder(self.path / "checkpoints" / slug(label) / f"run-{run}")

    def variant(self, name: str) -> ProbeFolder:
        """The probe with one hyper-parameter changed."""
        return ProbeFolder(self.path / "ablation" / slug(name))

    def mended(self, way: str) -> Path:
        """Where, in the folder of a probe, the table of one mending lies; written when it is done."""
        return self.path / "mitigation" / f"{slug(way)}.json"

    def evidence(self, name: str) -> Path:
        """The answers of a model from elsewhere to the data's own questions."""
        return self.path / "evidence" / slug(name)

    def general(self, name: str) -> Path:
        """What a model scores on the data's own questions."""
        return self.path / "general" / f"{slug(name)}.json"

    def table(self, number: int) -> Path:
        """One table's numbers."""
        return self.path / "tables" / f"table-{number}.csv"


@dataclass(frozen=True)
class GeneralScore:
    """What a model scores on one split of the data's own questions: ROUGE-1 recall of greedy answers."""

    split: str
    estimate: Estimate


def write_general(path: Path, digest: str, scores: tuple[GeneralScore, ...]) -> None:
    """Put down the scores of the model of this digest."""
    write_json(path, {"schema": SCHEMA, "digest": digest, "scores": [asdict(score) for score in scores]})


def read_general(path: Path) -> tuple[str, tuple[GeneralScore, ...]]:
    """The digest of one model, and its scores."""
    stored: dict[str, Any] = read_versioned(path, "digest", "scores")
    return str(stored["digest"]), tuple(typed(path, GeneralScore, one, again=AGAIN) for one in stored["scores"])


@cache
def presets() -> Mapping[str, Mapping[str, dict[str, Any]]]:
    """The four unlearned models of the paper's Table 1, each by sections, which are settings of their names.

    `forget` and `retain` name the data. In a section `by` says who states the values that the paper does not.
    """
    stored = packaged_toml("vestige.studies", "resources", "holes_paper.toml")
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
        "unlearned model, with the preset's sizes; docs/holes.md has the form"
    )
