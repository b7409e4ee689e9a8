"""The steps of an experiment: calls of public functions whose folders follow from their arguments.

An experiment asks the lab for steps instead of calling the functions. So one loop serves three purposes: `--plan`
counts the steps, an executor makes them in parallel, and the tables read their output. A step that is done does
nothing, so that the same command continues after an interruption.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.core import progress
from vestige.core.errors import InputError, NothingToTeach, PartialFailure
from vestige.core.ids import content_id
from vestige.core.text import TextByName, TextMapping, closest
from vestige.data.corpus import SourceSettings

if TYPE_CHECKING:
    from pandas import DataFrame

    from vestige.core.progress import OnShare

Arguments = dict[str, Any]
"""Arguments of a public function, by name."""
Values = Mapping[str, Any]
"""Arguments or columns that are read."""


@dataclass(frozen=True)
class Step:
    """One call of `function` (`module:name`), which writes into `folder`. `after` are the steps it waits for."""

    name: str
    function: str
    arguments: Values
    folder: Path
    after: tuple["Step", ...] = ()
    reads: str = ""
    """The value of result.json that a later step takes from this one. Empty for the folder itself."""

    def file(self, name: str) -> "Step":
        """Return the step with a reference to one of its files."""
        return self.value(f"/{name}")

    def value(self, name: str) -> "Step":
        """Return the step with a reference to a value in result.json."""
        return Step(self.name, self.function, self.arguments, self.folder, self.after, name)


@dataclass(frozen=True)
class Question:
    """A step that asks a model, with the columns that tell its scores from others."""

    step: Step
    columns: Values


@dataclass
class Lab:
    """The steps of one experiment under `folder`, for these models and seeds."""

    folder: Path
    models: Sequence[str] = ()
    """The models of the experiment, in place of the paper's."""
    seeds: Sequence[int] = ()
    """The seeds of the trainings. The default is the experiment's own."""
    methods: Sequence[str] = ()
    """The methods, in place of all."""
    cpu: bool = False
    """The size for builtin:tiny and two processor cores, in place of the paper's."""
    controls: int = 0
    """Retrained models for each forget set of the first seed."""
    goal: str = ""
    """The goal for which `find_rate` finds each rate, on a target of another seed; empty: the experiment's rates."""
    rates: Sequence[float] = ()
    """The learning rates, instead of the experiment's. With `goal`, the rates to try."""
    training: Values = field(default_factory=dict)
    """Settings of trainings in place of the experiment's. `finetune.epochs` is one of a single function."""
    sets: Sequence[str] = ()
    """The forget sets, in place of all (`pistol`)."""
    most_items: int | None = None
    """The maximum number of retained questions."""
    data_file: str = ""
    """Data in place of the experiment's, with `forget`."""
    forget: str = ""
    """The forget set in `data_file`."""
    benchmarks: TextMapping = field(default_factory=dict)
    """Data sets of multiple-choice questions by name, for each model before and after (`holes`)."""
    searches: Sequence[str] = ("latent",)
    """The searches of probes besides the adjacent questions (`holes`)."""
    probing: Values = field(default_factory=dict)
    """Settings of probes in place of the experiment's (`holes`): `judge`, `by`, `k`, `asks`."""
    weight: Callable[[Step], float] = lambda _step: 1.0
    """The share of a step in the progress."""
    steps: dict[Path, Step] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    probes: list[Question] = field(default_factory=list)
    conversations: list[Question] = field(default_factory=list)
    """Steps of MT-Bench."""
    _untaught: list[str] = field(default_factory=list)
    """The steps that had nothing to teach."""
    _asked: dict[str, Step] = field(default_factory=dict)

    @property
    def reading(self) -> Arguments:
        """The number format for reading models: the paper's in bfloat16, others in float32."""
        if self.cpu:
            return {"device": "cpu"}
        if self.models:
            return {}
        return {"dtype": "bfloat16"}

    @property
    def full(self) -> Arguments:
        """The settings for training all weights: float32 weights, bfloat16 products.

        Weights kept in bfloat16 lose updates below 1/256 of their size, which is nearly every one at a rate of 1e-6.
        """
        if self.cpu:
            return {"device": "cpu"}
        return {"dtype": "float32", "precision": "bfloat16"}

    @property
    def saving(self) -> Arguments:
        """The form in which an unlearned model is saved: built-in ones train all weights, others an adapter."""
        if self.cpu or any(model.startswith("builtin:tiny") for model in self.models):
            return {}
        return {"save": "adapter"}

    @property
    def device(self) -> Arguments:
        """Return the device of steps whose models exist already."""
        if self.cpu:
            return {"device": "cpu"}
        return {}

    def tiny(self, model: str) -> bool:
        """Whether the model is created from scratch and has its own settings."""
        return model.startswith("builtin:tiny")

    @property
    def repeats(self) -> Sequence[int]:
        """The user's seeds, or three, and two on a CPU."""
        return self.seeds or range(3 - self.cpu)

    def named(self, paper: TextMapping) -> TextByName:
        """Return the models by table name: the user's, the paper's, or the built-in one for a CPU."""
        if self.models:
            return {model.rstrip("/").rpartition("/")[2]: model for model in self.models}
        return dict({"tiny": "builtin:tiny"} if self.cpu else paper)

    def asking(self, *, most_items: int | None = None) -> Arguments:
        """Return the evaluation settings: on a CPU with short replies."""
        asked: Arguments = {"most_items": self.most_items or most_items}
        if self.cpu:
            asked["evals"] = {"qa": {"max_new_tokens": 32}}
        return asked

    def found_data(self, data: SourceSettings, forget: str) -> tuple[SourceSettings, str]:
        """Return the data and the forget set: the given ones, or the experiment's."""
        if bool(self.data_file) != bool(self.forget):
            raise InputError("The data and the forget set go together. Give --data and --forget.")
        if self.data_file:
            return SourceSettings(data=self.data_file), self.forget
        return data, forget

    def ask_controls(self, columns: Values, taught: Values, asked: Values) -> list[tuple[Step, Arguments]]:
        """Retrain `controls` models without the forget set, for the first seed, and ask each.

        Returns:
            Each control with its columns: the method is `retrained`, and the seed is its own.
        """
        controls: list[tuple[Step, Arguments]] = []
        if columns["seed"] != (self.seeds or (0,))[0]:
            return controls
        for number in range(self.controls):
            # These seeds are far from those of targets: only the first control of a target shares its seed.
            seed = columns["seed"] + 1000 * number
            model = self.step("finetune", name="retrained", forget=asked["forget"], **{**taught, "seed": seed})
            named = {**columns, "method": "retrained", "rate": "", "seed": seed}
            self.ask(model, named, **asked)
            controls.append((model, named))
        return controls

    def chosen(self, methods: Sequence[str], *more: str) -> list[str]:
        """Return the methods to run: all, or the given ones, which may be among `more` too. Reject others."""
        for name in self.methods:
            if name not in (*methods, *more):
                raise InputError(f"The experiment has no method {name!r}. {closest(name, [*methods, *more])}")
        return list(self.methods or methods)

    def step(self, function: str, *, name: str, after: Sequence[Step] = (), **arguments: Any) -> Step:
        """Return a call of `function` of `vestige.api`, or of `module:function`, in a separate folder.

        Args:
            function: The function, which takes `output_dir`.
            name: The beginning of the folder's name.
            after: Steps to wait for in addition to those in the arguments.
            arguments: The function's arguments. A step represents the folder that it writes.
        """
        path = f"vestige.api:{function}"
        if ":" in function:
            path = function
        arguments |= self._training_of(path.rpartition(":")[2])
        place = self.folder / f"{name}-{content_id([path, self._plain(arguments)])}"
        if place not in self.steps:
            before = {step.folder: step for step in (*after, *_steps_in(arguments))}
            self.steps[place] = Step(place.name, path, arguments, place, tuple(before.values()))
        return self.steps[place]

    def target(self, **training: Any) -> Step:
        """The training of a target."""
        return self.step("finetune", name="target", **training)

    def unlearn(self, target: Any, method: str, **training: Any) -> Step:
        """The unlearning of a target by one method."""
        return self.step("unlearn", name=method, target=target, method=method, **training)

    def _training_of(self, function: str) -> Arguments:
        """The settings of `training` for this function; a search of rates has those of its unlearnings."""
        if function not in ("finetune", "unlearn", "find_rate"):
            return {}
        chosen = {}
        for key, value in self.training.items():
            owner, _, name = key.rpartition(".")
            if owner in ("", function) or (owner == "unlearn" and function == "find_rate"):
                chosen[name] = value
        return chosen

    def data(self, graph: str, **source: Any) -> SourceSettings:
        """A compiled graph of contracts, made at once: experiments name its contracts."""
        import vestige

        folder = self.folder / f"data-{graph}"
        vestige.compile_data(graph, output_dir=folder)
        return SourceSettings(data=str(folder), **source)

    def ask(self, model: "Step | str", columns: Values, **arguments: Any) -> Step:
        """Evaluate a model. Its scores get `columns`."""
        return self._question("evaluate", model, columns, {"summarize": False, **arguments})

    def attack(self, model: "Step | str", kind: str, columns: Values, **arguments: Any) -> Step:
        """Attack a model. Its scores before and after get `columns`."""
        return self._question("attack", model, columns, {"kind": kind, **arguments})

    def _question(self, function: str, model: "Step | str", columns: Values, arguments: Any) -> Step:
        # Two processes must not write next to one model at once.
        key = str(model.folder) if isinstance(model, Step) else model
        before = [self._asked[key]] if key in self._asked else []
        subject = "subject" if function == "attack" else "model"
        step = self.step(function, name=function, after=before, **{subject: model}, **arguments)
        self._asked[key] = step
        self.questions.append(Question(step, columns))
        return step

    def _plain(self, value: Any) -> Any:
        """A value as JSON, with steps by name and paths as seen from the lab's folder."""
        if isinstance(value, Step):
            return {"step": value.folder.name, "reads": value.reads}
        if isinstance(value, SourceSettings):
            return self._plain(value.identity())
        if isinstance(value, Mapping):
            return {str(key): self._plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        if isinstance(value, str | Path):
            # A spending limit changes no result, and a higher one continues in the same folder.
            value = re.sub(r"most_\w+=[^&#]*&?", "", str(value)).replace("?#", "#")
            return str(value).removeprefix(f"{self.folder}/")
        return value

    def run(self, execute: Callable[..., Mapping[str, Exception]], **how: Any) -> None:
        """Make every step that is not done. Raises PartialFailure with the names of the failed steps.

        A step that had nothing to teach is no failure: it and the steps after it are left out.
        """
        from vestige.steps.runner import Task

        tasks = []
        for step in self.steps.values():
            before = tuple(earlier.name for earlier in step.after)
            kind = step.function.rpartition(":")[2]
            tasks.append(Task(step.name, run_step, {"step": step}, after=before, weight=self.weight(step), kind=kind))
        failed = dict(execute(tasks, **how))
        self._untaught = [name for name, error in failed.items() if isinstance(error, NothingToTeach)]
        for name in self._untaught:
            del failed[name]
        if failed:
            reasons = [f"{name}: {error}" for name, error in failed.items()]
            raise PartialFailure(
                f"{len(failed)} of {len(tasks)} steps failed, so there are no tables. "
                f"The same command tries them again. {'. '.join(reasons[:5])}"
            )

    def left_out(self, step: Step) -> bool:
        """Whether the step had nothing to teach, or waits for one that had nothing."""
        return step.name in self._untaught or any(self.left_out(earlier) for earlier in step.after)

    def scores(self) -> "DataFrame":
        """Return the score of every question of every evaluated model, with the columns of its step."""
        import pandas

        frames = []
        for question in self.questions:
            frame = call(question.step).items()
            # The last of several points of an attack counts.
            frame = frame[frame["attack"].isin(["", frame["attack"].iloc[-1]])]
            frames.append(frame.assign(**question.columns))
        if not frames:
            raise InputError("The experiment asked no model, so it has no scores. Choose other --methods or --sets.")
        scores: DataFrame = pandas.concat(frames, ignore_index=True)
        return scores


def bits(lab: Lab) -> "DataFrame":
    """Compare each attack's capacity in bits with the answers' need (2506.00688, section 4.2).

    Returns:
        A row per attack: `carried`, the least of its upper bounds in bits; `needed`, the bits by which the attacked
        model lacked the tested answers; and `ratio`. From a ratio of 1 on the attack could have carried the answers in.
    """
    import pandas

    from vestige.artifacts.layout import AttackFolder
    from vestige.steps.attack import read_spent

    rows = []
    for question in lab.questions:
        if not question.step.function.endswith(":attack"):
            continue
        results = call(question.step)
        frame = results.items()
        lacking = frame[(frame["attack"] == "") & (frame["metric"] == "qa.answer_bits") & (frame["split"] == "forget")]
        needed = -float(lacking["value"].sum())
        carried = min(read_spent(AttackFolder(results.evidence[0]))["bounds_bits"].values())
        row = {**question.columns, "attack": frame["attack"].iloc[-1], "carried": carried, "needed": needed}
        rows.append({**row, "ratio": carried / needed})
    table = pandas.DataFrame(rows).drop(columns="seed")
    names = [name for name in table.columns if name not in ("carried", "needed", "ratio")]
    means: DataFrame = table.groupby(names, sort=False).mean().reset_index()
    return means


def _steps_in(value: Any) -> list[Step]:
    """The steps among the arguments, however deep."""
    if isinstance(value, Step):
        return [value]
    found: list[Step] = []
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            found += _steps_in(item)
    return found


def _resolved(value: Any) -> Any:
    """The arguments with the folder, or the value, that each step among them represents."""
    if isinstance(value, Step):
        if value.reads.startswith("/"):
            return f"{value.folder}{value.reads}"
        if value.reads:
            return json.loads((value.folder / "result.json").read_text(encoding="utf-8"))[value.reads]
        return str(value.folder)
    if isinstance(value, Mapping):
        return {key: _resolved(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    return value


def call(step: Step) -> Any:
    """Call the step's function. If its work is done, this reads the result without a model."""
    module, _, name = step.function.partition(":")
    function = getattr(import_module(module), name)
    arguments = _resolved(step.arguments)
    # Evidence about a model made by Vestige is in that model's folder.
    beside_model = name in ("evaluate", "attack") and _steps_in(
        [step.arguments.get("model"), step.arguments.get("subject")]
    )
    if not beside_model:
        arguments["output_dir"] = step.folder
    return function(**with_objects(name, arguments))


_PROBED = {"answers": "Answers", "latent": "Latent", "policy": "Policy", "filter": "Filter"}
"""The public names of the settings objects of a probe."""


def with_objects(name: str, arguments: Values) -> Arguments:
    """The arguments of a public function, with settings that a step has by name as settings objects."""
    import vestige
    from vestige.attacks.planning import find_attack

    plain = dict(arguments)
    # The target of an attack is another model than the attacked one.
    old = {"unlearn": "target", "find_rate": "target", "attack": "subject"}.get(name, "")
    if old in plain and "model" not in plain:
        plain["model"] = plain.pop(old)
    if name in ("finetune", "unlearn", "find_rate"):
        given = {key: plain.pop(key) for key in list(plain) if key in vestige.Training.model_fields}
        plain["training"] = vestige.Training.build(given)
    if plain.get("trajectory"):
        rules = dict(plain.pop("trajectory"))
        plain["harm_judge"] = rules.pop("harm_judge", "")
        watch = {key: rules.pop(key) for key in list(rules) if key in vestige.Trajectory.model_fields}
        plain["trajectory"] = vestige.Trajectory.build(watch)
        plain["validation"] = vestige.Validation.build(rules)
    if name == "probe":
        for part, home in _PROBED.items():
            if part in plain:
                plain[part] = getattr(vestige, home).build(plain[part])
    if name == "attack":
        kind = find_attack(plain.pop("kind"))
        given = {key: plain.pop(key) for key in list(plain) if key in kind.model_fields}
        if "n" in plain:
            given[kind.amount or "n"] = plain.pop("n")
        plain["attack"] = kind.build(given)
    return plain


def run_step(step: Step, report: "OnShare") -> None:
    """Make one step in a worker. Its progress bar is reported to the experiment's."""
    progress.LISTENER = report
    try:
        call(step)
    finally:
        progress.LISTENER = None
