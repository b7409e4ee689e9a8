"""Options that several commands share, so that each is spelled and explained once."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Seed = Annotated[int, typer.Option(help="Everything random follows from it.")]
OutputDir = Annotated[Path, typer.Option(help="Where the output goes; the same command resumes there.")]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh", help="Start over: what Vestige wrote in the folder goes when the new is done; others' stays."
    ),
]
Device = Annotated[str, typer.Option(help="auto (CUDA where there is one), cpu, cuda, cuda:1, ...")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Processes, each with one thread; one a GPU by default, few on the CPU."),
]
Dtype = Annotated[str, typer.Option(help="Number format of the weights: float32, bfloat16, float16.")]
OwnDtype = Annotated[
    str | None,
    typer.Option("--dtype", help="Number format of the weights: that in which TARGET was made (float32 if unknown)."),
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that the model brings with it. Off unless you ask.")
]
ChatTemplate = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="Chat template of a model from elsewhere: a name of its own, plain, or a file. Its own by default.",
    ),
]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Read every file of the models whose stored answers are used, and ask the model for a part of them again.",
    ),
]
Parallel = Annotated[
    str | None,
    typer.Option(help="Under torchrun: ddp (the whole model in each process) or fsdp (a share of it). ddp by default."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what the training would take, memory above all, and train nothing.")
]
DryStudy = Annotated[
    bool, typer.Option("--dry-run", help="Say how much would be asked and trained at most, and do none of it.")
]
ReportTo = Annotated[
    str | None,
    typer.Option("--report-to", help="Send the log of the training to trackio or wandb as well. Off unless you ask."),
]
Save = Annotated[str, typer.Option("--save", help="merged: a model of its own; adapter: LoRA's part alone, for peft.")]
Target = Annotated[str, typer.Argument(help="The model that knows: a folder of `vestige finetune`, or any model.")]
Method = Annotated[str, typer.Option(help="A name of `vestige list methods`, or package.module:Class.")]
Forget = Annotated[
    str,
    typer.Option(
        help="A file of items, or selectors, with commas between: edge:A_B, node:A, component:2, type:sales, random:3, "
        "superseded."
    ),
]
Retain = Annotated[
    str | None, typer.Option(help="What to keep: a file or selectors, as for --forget; everything else by default.")
]
Reference = Annotated[str | None, typer.Option(help="Frozen model inside the loss; the target by default.")]
Idk = Annotated[Path | None, typer.Option(help="Text file of answers that decline to know, one a line.")]
Config = Annotated[Path | None, typer.Option(help="A flat TOML file of settings.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as in learning_rate=2e-5; wins over --config."),
]
Data = Annotated[
    str,
    typer.Option(help="A compiled folder, a file (JSONL, JSON, CSV, Parquet; PISTOL's own), or a hub dataset id."),
]
QuestionKey = Annotated[str | None, typer.Option(help="Column of the questions, if not recognised.")]
AnswerKey = Annotated[str | None, typer.Option(help="Column of the answers, if not recognised.")]
EdgeKey = Annotated[str | None, typer.Option(help="Column that names the group of items an item belongs to.")]
Alternatives = Annotated[
    str | None,
    typer.Option(
        help="File of other answers to the forget questions (columns question, alternatives); drawn for compiled data."
    ),
]
Split = Annotated[str, typer.Option(help="Split of a hub dataset.")]
DataConfig = Annotated[str | None, typer.Option("--data-config", help="Configuration of a hub dataset.")]
Limit = Annotated[str | None, typer.Option(help="Only the first rows: a number (20) or a share (0.1).")]
KeepDuplicates = Annotated[
    bool, typer.Option("--keep-duplicates", help="Admit a question twice where the answers differ.")
]
SplitSeed = Annotated[
    int, typer.Option("--split-seed", help="What `random` selects follows from it, and from no other seed.")
]
Factual = Annotated[
    str | None, typer.Option(help="General questions, a split of their own: a file, or builtin. Never trained on.")
]
TrainFactual = Annotated[
    bool, typer.Option("--train-factual", help="Teach the factual questions too, those that the data brings as well.")
]

SAMPLES = 7
"""On how many forget items a prompt is searched where nobody says: the number of 2506.00688."""
