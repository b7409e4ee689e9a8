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
    from vestige.data.corpus import Corpus, NamedSplits, SourceSettings
    from vestige.evals.base import Evaluation
    from vestige.models.load import ModelSettings
    from vestige.steps.evaluate import Subject
    from vestige.steps.unlearn import UnlearnRequest

SOURCE = Part(
    "vestige.data.corpus:SourceSettings",
    "Data",
    first=("question_key", "answer_key", "edge_key", "group_key", "limit"),
    # `--config` is the file of options, so that the hub's configurations go by another name.
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
    typer.Option(
        min=1, help="Processes, with one thread each; by default one for each GPU, few on a CPU. More share the GPUs."
    ),
]
Verify = Annotated[
    bool,
    typer.Option("--verify", help="Check stored answers: read all their models' files and regenerate a sample."),
]
SubjectName = Annotated[str, typer.Argument(help="A folder of `vestige finetune` or `unlearn`, or any model.")]
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
Alternatives = Annotated[
    str | None,
    typer.Option(help="File of false answers to the forget questions (columns question, alternatives)."),
]
Evals = Annotated[str, typer.Option(help="Evaluations, comma-separated: see `vestige list evals`.")]
Longest = Annotated[int, typer.Option(help="Longest reply, in tokens; a longer one counts as truncated.")]
PublishedAs = Annotated[
    str | None,
    typer.Option(
        "--published",
        help="With a pack: the model whose published figures the target must show before it is asked anything else; by "
        "default the one of its name. none leaves this out.",
    ),
]


@dataclass(frozen=True)
class EvidenceOptions:
    """Whose evidence it is: where it goes, what a model from elsewhere is, the seed, and how results are printed."""

    output_dir: Annotated[
        str | None,
        typer.Option("--output-dir", help="Where the evidence goes; by default into the subject's own folder."),
    ] = None
    role: Annotated[str, typer.Option(help="Role of an external model: base, target, retrained, unlearned.")] = "base"
    name: Annotated[str | None, typer.Option(help="Name in reports of a model from elsewhere.")] = None
    seed: Seed = 0
    verify: Verify = False
    as_json: AsJson = False

    def subject(self, typed: Given, name: str) -> "Subject":
        """The model that is asked."""
        from vestige import requests

        read, label = reading(typed), self.name or ""
        return requests.subject(name, read, self.output_dir, role=self.role, name=label, verify=self.verify)


@dataclass(frozen=True)
class UnlearningOptions:
    """By which method what is forgotten and kept."""

    method: Annotated[str, typer.Option(help="A name of `vestige list methods`, or package.module:Class.")]
    forget: Forget
    retain: Retain = None
    reference: Annotated[str | None, typer.Option(help="Frozen model in the loss; by default the target.")] = None
    idk: Annotated[Path | None, typer.Option(help="Text file of answers such as 'I don't know', one per line.")] = None

    def request(
        self, typed: Given, target: "ModelSettings", data: str, **how: Any
    ) -> "tuple[UnlearnRequest, NamedSplits]":
        """What is asked of the method, and the splits; prints what was noted on the data."""
        from vestige import requests
        from vestige.methods import METHODS, PRESETS, find_method
        from vestige.training.settings import UnlearningSettings

        # First: of a mistyped method every setting would be called an unknown key.
        find_method(self.method)
        # Called an unknown key, a setting of another method would be searched for a slip in spelling.
        for key in typed.others(self.method):
            owner = key.rpartition(".")[0]
            if owner in (*METHODS, *PRESETS):
                raise InputError(
                    f"--set {one_line(key)} is a setting of {owner}, and the method is {self.method}; leave it out"
                )
        typed.refuse_others(self.method)
        corpus = corpus_from(typed, data)
        splits = say_notes(requests.questions(corpus, self.forget, self.retain, models=[target.model]))
        request = requests.unlearning(
            target,
            corpus,
            splits,
            self.method,
            typed.of(UnlearningSettings),
            retain=self.retain,
            reference=self.reference,
            idk=self.idk,
            method_settings=typed.part(self.method),
            **how,
        )
        return request, splits


def source_from(typed: Given, data: str) -> "SourceSettings":
    """Where the items of `data` come from."""
    from vestige.data.corpus import SourceSettings

    return typed.build(SourceSettings, data=data)


def corpus_from(typed: Given, data: str) -> "Corpus":
    """The items of `data`, read as the options say."""
    from vestige.data.corpus import open_corpus

    return open_corpus(source_from(typed, data))


def data_words(typed: Given, data: str, forget: str | None = None) -> tuple[str, ...]:
    """The options that name the same items again: the data, its columns as they were named, the forget set."""
    columns = ((f"--{k.replace('_', '-')}", str(v)) for k, v in typed.values.items() if k.endswith("_key") and v)
    return ("--data", data, *chain(*columns), *(("--forget", forget) if forget else ()))


def reading(typed: Given) -> Mapping[str, Any]:
    """What was given of how models are read: device, number format, template."""
    from vestige.models.load import ModelSettings

    return typed.of(ModelSettings)


def model_from(typed: Given, name: str, *, as_made: bool = False) -> "ModelSettings":
    """How the model called `name` is read; `as_made` in the number format that it was made in, if no other is given."""
    from vestige import requests

    return requests.model_settings(name, reading(typed), as_made=as_made)


def say_notes(splits: "NamedSplits", *, alternatives: bool = False) -> "NamedSplits":
    """Print the notes on how the data was matched, and return the splits unchanged.

    Which questions have no alternatives is printed only for a command that needs `alternatives`.
    """
    from vestige.data.alternatives import NO_ALTERNATIVES

    for sentence in splits.told:
        if alternatives or not sentence.startswith(NO_ALTERNATIVES):
            say(one_line(sentence, width=500))
    return splits


def eval_names(names: str) -> list[str]:
    """The evaluations that --evals names, each once; loads none of them, so that a mistake costs no time."""
    from vestige.evals import eval_home

    # Asked once, however often it is named.
    evals = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not evals:
        raise InputError("--evals names no evaluation; see `vestige list evals`")
    for name in evals:
        eval_home(name)
    return evals


def evals_from(typed: Given, names: Sequence[str], *owners: str, **shared: Any) -> "dict[str, Evaluation]":
    """The settings of each evaluation that is named, in their order; a setting of one that is not is refused.

    `shared` are settings that every evaluation takes which has them; `owners` have settings and are no evaluations.
    """
    from vestige import requests
    from vestige.evals import EVALS

    # Refused rather than ignored: whoever sets it believes that it was asked so.
    for key in typed.values:
        owner = key.rpartition(".")[0]
        if owner in EVALS and owner not in names:
            raise InputError(f"{key} is a setting of {owner}; add {owner} to --evals")
    typed.refuse_others(*names, *owners)
    return requests.evaluations({name: typed.part(name) for name in names}, **shared)
