"""Options and settings that several commands share, so that each is spelled and explained once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.command import Part

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
    typer.Option(
        "--verify", help="Check stored answers: read all files of their models, and ask a part of them again."
    ),
]
Parallel = Annotated[
    str | None,
    typer.Option(help="Under torchrun: ddp (the whole model in each process; the default) or fsdp (a share of it)."),
]
ReportTo = Annotated[str | None, typer.Option(help="Also send the log of the training to trackio or wandb.")]
Save = Annotated[str, typer.Option(help="merged: a whole model; adapter: the LoRA adapter alone, for peft.")]
SubjectName = Annotated[str, typer.Argument(help="A folder of `vestige finetune` or `unlearn`, or any model.")]
BaseModel = Annotated[
    str, typer.Argument(help="Hub id, local folder, folder with an adapter, .gguf file, or built-in model.")
]
Target = Annotated[str, typer.Argument(help="The model that knows: a folder of `vestige finetune`, or any model.")]
Data = Annotated[
    str,
    typer.Option(help="A compiled folder, a file (JSONL, JSON, CSV, Parquet; PISTOL's own), or a hub dataset id."),
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
Role = Annotated[str, typer.Option(help="Role of a model from elsewhere: base, target, retrained, unlearned.")]
Name = Annotated[str | None, typer.Option(help="Name in reports of a model from elsewhere.")]
Evals = Annotated[str, typer.Option(help="Evaluations, comma-separated: see `vestige list evals`.")]
EvidenceDir = Annotated[
    str | None, typer.Option("--output-dir", help="Where the evidence goes; by default into the subject's own folder.")
]
Embedder = Annotated[
    str | None, typer.Option(help="Folder or hub id of the sentence embedder; all-MiniLM-L6-v2 by default.")
]


@dataclass(frozen=True)
class Unlearning:
    """By which method what is forgotten and kept."""

    method: Annotated[str, typer.Option(help="A name of `vestige list methods`, or package.module:Class.")]
    forget: Forget
    retain: Retain = None
    reference: Annotated[str | None, typer.Option(help="Frozen model in the loss; by default the target.")] = None
    idk: Annotated[Path | None, typer.Option(help="Text file of answers such as 'I don't know', one per line.")] = None
