"""Options and settings that several commands share, and from what was given to what a feature asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.command import Given, Part
from vestige.cli.output import say
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.core.settings import Settings
    from vestige.data.corpus import Corpus, NamedSplits, SourceSettings
    from vestige.judges.base import Judge
    from vestige.models.load import ModelSettings
    from vestige.steps.controls import Recipe
    from vestige.steps.evaluate import Subject
    from vestige.steps.trajectory import TrajectoryRequest
    from vestige.steps.unlearn import UnlearnRequest
    from vestige.training.settings import TrainingSettings


SAMPLES = 7
"""On how many forget items a prompt is searched where nobody says: the number of 2506.00688."""

SOURCE = Part(
    "vestige.data.corpus:SourceSettings",
    "Data",
    first=("question_key", "answer_key", "edge_key", "group_key", "limit"),
    renamed={"data": "", "config": "data_config"},
)
MODEL = Part("vestige.models.load:ModelSettings", "Model", first=("device", "dtype"), renamed={"model": ""})
TRAINING = Part(
    "vestige.training.settings:TrainingSettings",
    "Training",
    first=("learning_rate", "epochs", "batch_size", "max_steps", "schedule", "lora_rank"),
    panels={"lora_": "LoRA"},
)
UNLEARNING = TRAINING._replace(kind="vestige.training.settings:UnlearningSettings")

Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
OutputDir = Annotated[Path, typer.Option(help="Where the output goes; the same command resumes there.")]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="Start over. Files of Vestige are deleted once the new ones are complete; others stay."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, with its cost, and exit.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes, with one thread each; by default one for each GPU, few on a CPU."),
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Check stored answers: read all their models' files and regenerate a sample."),
]
Parallel = Annotated[
    str | None,
    typer.Option(help="Under torchrun: ddp (the whole model in each process; the default) or fsdp (a share of it)."),
]
Save = Annotated[str, typer.Option(help="merged: a whole model; adapter: the LoRA adapter alone, for peft.")]
SubjectName = Annotated[str, typer.Argument(help="A folder of `vestige finetune` or `unlearn`, or any model.")]
BaseModel = Annotated[str, typer.Argument(help="Hub id, local folder, folder with an adapter, or built-in model.")]
Target = Annotated[str, typer.Argument(help="The target model: a folder from `vestige finetune`, or any model.")]
Data = Annotated[
    str,
    typer.Option(
        help="A compiled folder, a file (JSONL, JSON, CSV, Parquet; PISTOL's own), a pack, or a hub dataset id."
    ),
]
Forget = Annotated[
    str,
    typer.Option(
        help="A file of items, or comma-separated selectors: edge:A_B, node:A, component:2, type:sales, random:3, "
        "superseded."
    ),
]
Retain = Annotated[
    str | None, typer.Option(help="What to keep: a file or selectors, as for --forget; by default everything else.")
]
LeftOut = Annotated[str | None, typer.Option("--forget", help="Leave these items out: makes a `retrained` control.")]
Alternatives = Annotated[
    str | None,
    typer.Option(help="File of false answers to the forget questions (columns question, alternatives)."),
]
TrainFactual = Annotated[bool, typer.Option("--train-factual", help="Train on the factual questions too.")]
Retrained = Annotated[
    str | None, typer.Option(help="A model that never saw the forget set, for rules such as 'forget<=retrained'.")
]
Role = Annotated[str, typer.Option(help="Role of an external model: base, target, retrained, unlearned.")]
Name = Annotated[str | None, typer.Option(help="Name in reports of a model from elsewhere.")]
Evals = Annotated[str, typer.Option(help="Evaluations, comma-separated: see `vestige list evals`.")]
Longest = Annotated[int, typer.Option(help="Longest reply, in tokens; a longer one counts as truncated.")]
EvidenceDir = Annotated[
    str | None, typer.Option("--output-dir", help="Where the evidence goes; by default into the subject's own folder.")
]
PublishedAs = Annotated[
    str | None,
    typer.Option(
        "--published",
        help="With a pack: the model whose published figures the target must show before it is asked anything else; by "
        "default the one of its name. none leaves this out.",
    ),
]
Embedder = Annotated[
    str | None, typer.Option(help="Folder or hub id of the sentence embedder; all-MiniLM-L6-v2 by default.")
]


@dataclass(frozen=True)
class Who:
    """Whose evidence it is: where it goes, what a model from elsewhere is, the seed, and how results are printed."""

    output_dir: EvidenceDir = None
    role: Role = "base"
    name: Name = None
    seed: Seed = 0
    verify: Verify = False
    as_json: AsJson = False

    def subject(self, given: Given, name: str, *, alone: bool = True) -> "Subject":
        """The model that is asked; of several each has a folder in --output-dir, called as its own is."""
        from vestige.steps.subjects import any_subject

        folder = self.output_dir if alone or self.output_dir is None else f"{self.output_dir}/{Path(name).name}"
        dtype, called = given.values.get("dtype"), self.name or ""
        return any_subject(
            model_from(given, name), folder, role=self.role, name=called, dtype=dtype, verify=self.verify
        )

    def guide(self, given: Given, name: str) -> "Subject":
        """The model whose words an attack is to bring; there is no evidence about it, but what it is, if elsewhere."""
        from vestige.artifacts.layout import own_folder
        from vestige.steps.subjects import any_subject

        elsewhere = self.output_dir is not None and own_folder(name) is None
        return any_subject(model_from(given, name), f"{self.output_dir}/target" if elsewhere else None, role="target")


@dataclass(frozen=True)
class Unlearning:
    """By which method what is forgotten and kept."""

    method: Annotated[str, typer.Option(help="A name of `vestige list methods`, or package.module:Class.")]
    forget: Forget
    retain: Retain = None
    reference: Annotated[str | None, typer.Option(help="Frozen model in the loss; by default the target.")] = None
    idk: Annotated[Path | None, typer.Option(help="Text file of answers such as 'I don't know', one per line.")] = None


def source_from(given: Given, data: str) -> "SourceSettings":
    """Where the items of `data` come from."""
    from vestige.data.corpus import SourceSettings

    return given.build(SourceSettings, data=data)


def data_words(given: Given, data: str, forget: str | None = None) -> tuple[str, ...]:
    """The options that name the same items again: the data, its columns as they were named, the forget set."""
    columns = ((f"--{k.replace('_', '-')}", str(v)) for k, v in given.values.items() if k.endswith("_key") and v)
    return ("--data", data, *chain(*columns), *(("--forget", forget) if forget else ()))


def model_from(given: Given, name: str, *, as_made: bool = False) -> "ModelSettings":
    """How the model called `name` is read; `as_made` in the number format that it was made in, if no other is given."""
    from vestige.models.load import ModelSettings

    own: dict[str, Any] = {"model": name}
    if as_made and "dtype" not in given.values:
        from vestige.steps.subjects import own_dtype

        own["dtype"] = own_dtype(name) or "float32"
    return given.build(ModelSettings, **own)


def say_notes(splits: "NamedSplits", *, alternatives: bool = False) -> "NamedSplits":
    """Print the notes on how the data was matched, and return the splits unchanged.

    Which questions have no alternatives is printed only for a command that needs `alternatives`.
    """
    from vestige.data.alternatives import NO_ALTERNATIVES

    for sentence in splits.told:
        if alternatives or not sentence.startswith(NO_ALTERNATIVES):
            say(one_line(sentence, width=500))
    return splits


def splits_from(
    source: "SourceSettings",
    forget: str | None,
    retain: str | None,
    *models: str,
    exposure: bool = False,
    alternatives: str | None = None,
) -> "NamedSplits":
    """The splits of the data when `forget` is forgotten, without what any of the models forgot before; prints notes.

    Where nothing is forgotten there is one split. With `exposure` forget items have alternatives, of a file if one is
    named.
    """
    from vestige.artifacts.records import forgotten_by
    from vestige.data.alternatives import with_alternatives
    from vestige.data.corpus import named_splits, open_corpus, undivided

    if forget is None:
        if retain is not None:
            raise InputError("--retain goes with --forget; without it everything is one split")
        return undivided(open_corpus(source))
    before = tuple(dict.fromkeys(one for model in models for one in forgotten_by(model)))
    corpus = open_corpus(source)
    found = named_splits(corpus, forget, retain=retain, before=before)
    return say_notes(with_alternatives(corpus, found, alternatives) if exposure else found, alternatives=True)


def say_factual(corpus: "Corpus", *, taught: bool) -> None:
    """Print what becomes of the factual questions, where there are any."""
    if corpus.factual:
        how = "taught too" if taught else "not taught (--train-factual teaches them)"
        say(f"factual: {len(corpus.factual)} questions, {how}")


def finetuning(given: Given, model: str) -> "TrainingSettings":
    """The settings of a training on answers; `builtin:tiny` has those that were found for it."""
    from vestige.requests import TINY_FINETUNE
    from vestige.training.settings import TrainingSettings

    return given.build(TrainingSettings, TINY_FINETUNE.identity() if model == "builtin:tiny" else {})


def unlearning_from(
    given: Given,
    target: "ModelSettings",
    data: str,
    words: Unlearning,
    *,
    seed: int,
    base: str | None = None,
    read: bool = True,
    save: str = "merged",
) -> "tuple[UnlearnRequest, NamedSplits]":
    """The request of an unlearning and its splits; what can be wrong with it is said here, before anything is made.

    `base` is the model that a method which trains from the start begins with, where the target does not say so itself.
    With `read` False no weights are read, and what is asked for can be planned but not made.
    """
    from vestige.artifacts.records import forgotten_by
    from vestige.data.corpus import named_splits, open_corpus, read_idk, refuse_nothing_found
    from vestige.methods import METHODS, PRESETS, find_method
    from vestige.requests import TINY, tiny_unlearning
    from vestige.steps.unlearn import unlearn_request
    from vestige.training.settings import UnlearningSettings

    find_method(words.method)
    for key in given.others(words.method):
        owner = key.rpartition(".")[0]
        if owner in (*METHODS, *PRESETS):
            raise InputError(
                f"--set {one_line(key)} is a setting of {owner}, and the method is {words.method}; leave it out"
            )
    given.refuse_others(words.method)
    corpus = open_corpus(source_from(given, data))
    before = forgotten_by(target.model)
    splits = say_notes(named_splits(corpus, words.forget, retain=words.retain, before=before))
    refuse_nothing_found(corpus, splits, words.retain)
    request = unlearn_request(
        target,
        splits,
        words.method,
        lambda began: given.build(UnlearningSettings, tiny_unlearning(words.method) if began == TINY else {}),
        method_settings=given.part(words.method),
        seed=seed,
        reference=words.reference,
        idk=None if words.idk is None else read_idk(words.idk),
        recipe=_recipe(given, target, corpus, splits, words.method, base, seed),
        save=save,
        read=read,
    )
    return request, splits


def _recipe(
    given: Given,
    target: "ModelSettings",
    corpus: "Corpus",
    splits: "NamedSplits",
    name: str,
    base: str | None,
    seed: int,
) -> "Recipe | None":
    """For a method that trains from the start, how: as the target was trained, or with --base by the settings given."""
    from vestige.methods import find_method
    from vestige.methods.base import FromStart
    from vestige.requests import TINY_FINETUNE
    from vestige.steps.controls import recipe_from, recipe_without
    from vestige.training.settings import TrainingSettings, UnlearningSettings

    method = find_method(name)
    if not isinstance(method, FromStart):
        if base is not None:
            raise InputError(f"--base goes with a method that trains from the start, and {name} does not")
        return None
    training = given.of(UnlearningSettings)
    if base is None:
        if training:
            raise InputError(
                f"{name} trains as the target was trained, so its settings are the target's; leave "
                f"{', '.join(given.shown.get(key, key) for key in training)} out, or name the model to begin with by "
                "--base"
            )
        return recipe_without(target, corpus, splits)
    own = TINY_FINETUNE.identity() if base == "builtin:tiny" else {}
    settings = TrainingSettings.build({**own, **training})
    return recipe_from(target.model_copy(update={"model": base}), settings, corpus, splits, seed=seed)


def rate_in_words(asked: "UnlearnRequest") -> str:
    """What is done, at which learning rate, and how to find one where nobody chose it for this model."""
    from vestige.methods import find_method
    from vestige.training.settings import UnlearningSettings

    what = f"unlearning by {asked.method}"
    if not find_method(asked.method).needs.splits:
        return f"{what}: nothing is trained"
    if asked.recipe is not None:
        return f"{what}: learning rate {asked.recipe.request.training.learning_rate:g}"
    rate = asked.training.learning_rate
    if rate != UnlearningSettings().learning_rate:
        return f"{what}: learning rate {rate:g}"
    return (
        f"{what}: learning rate {rate:g}, which is PISTOL's for LoRA on models of 7B; `vestige calibrate` finds one "
        "for this model"
    )


def trajectory_from(
    watch: Mapping[str, Any],
    validation: Mapping[str, Any],
    retrained: str | None,
    target: "ModelSettings",
    splits: "NamedSplits",
    *,
    seed: int,
    harm: "tuple[Judge, Mapping[str, Any]] | None" = None,
) -> "TrajectoryRequest | None":
    """A training's trajectory as it is asked for; None if it is not. Conditions to stop add to those that always hold.

    `watch` are settings of `TrajectorySettings`, `validation` of `ValidationSettings`, `retrained` the control, `harm`
    the judge of it.
    """
    if not (watch or validation or retrained or harm):
        return None
    from vestige.steps.subjects import origin_of
    from vestige.steps.trajectory import ValidationSettings, answered_trajectory
    from vestige.training.trajectory import TrajectorySettings

    stop = (*TrajectorySettings().stop_when, *watch.get("stop_when", ()))
    settings = TrajectorySettings.build({**watch, "stop_when": stop})
    control = None
    if retrained is not None:
        model = target.model_copy(update={"model": retrained})
        control = (model, origin_of(model).digest)
    checked = ValidationSettings.build(validation, where="settings of trajectory")
    return answered_trajectory(settings, checked, splits, seed=seed, retrained=control, harm=harm)


def eval_names(names: str) -> list[str]:
    """The evaluations that --evals names, each known and once; loads none of them, so that a mistake costs no time."""
    from vestige.evals import eval_module

    found = list(dict.fromkeys(n.strip() for n in names.split(",") if n.strip()))
    if not found:
        raise InputError("--evals names no evaluation; see `vestige list evals`")
    for name in found:
        eval_module(name)
    return found


def evals_from(given: Given, found: Sequence[str], *others: str, **shared: Any) -> "dict[str, Settings]":
    """The settings of each evaluation that is named, in their order; a setting of one that is not is refused.

    `shared` are settings that every evaluation takes which has them; `others` have settings and are no evaluations.
    """
    from vestige.evals import EVALS, find_eval

    for key in given.values:
        owner = key.rpartition(".")[0]
        if owner in EVALS and owner not in found:
            raise InputError(f"{given.shown.get(key, key)} is a setting of {owner}; add {owner} to --evals")
    given.refuse_others(*found, *others)
    settings: dict[str, Settings] = {}
    for name in found:
        kind = find_eval(name).SETTINGS
        own = {k: v for k, v in shared.items() if k in kind.model_fields}
        settings[name] = kind.build({**own, **given.part(name)}, where=f"settings of the evaluation {name}")
    return settings
