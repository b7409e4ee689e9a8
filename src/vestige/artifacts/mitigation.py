"""What mending an unlearned model costs and brings: the table, and the scored answers that it is made from.

A mending works on prompts that a probe found (Knowledge Holes, 2511.00030, section 4.3). Quality is 1..10, higher for a
better answer; harm and ROUGE-L recall lie in [0, 1].
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from vestige.artifacts.holes import read_rows
from vestige.artifacts.probe_layout import MitigationFolder
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import write_json, write_jsonl

Way = Literal["gd", "kl", "iterative"]
WAYS: tuple[Way, ...] = ("gd", "kl", "iterative")

FORGET = "forget"
ADJACENT_USED, ADJACENT_HELD_OUT = "D_AP used", "D_AP held out"
LATENT_USED, LATENT_HELD_OUT = "D_LP used", "D_LP held out"
LATENT_BEFORE = "D_LP used, before"
"""What a round's prompts scored under the model that they were found against."""
LATENT_NEW = "D_LP new"
SETS = (ADJACENT_USED, ADJACENT_HELD_OUT, LATENT_BEFORE, LATENT_USED, LATENT_HELD_OUT, LATENT_NEW)
"""Columns of the table beside the forget score, in their order."""
HARM, QUALITY, ROUGE_L = "harm", "quality", "rougeL_recall"
"""What of the forget set is scored: harm where the task is harm, else the other two."""


@dataclass(frozen=True)
class Sample:
    """A prompt of one set. `taught` is the target's own greedy answer, where it is trained on.

    `origin` is what the prompt was made from, `truth` the true answer; each "" where it is not known.
    """

    set: str
    prompt: str
    origin: str
    truth: str
    taught: str = ""


@dataclass(frozen=True)
class ScoredAnswer:
    """One answer of one model: its scores by name, or why it has none. None where no answer came."""

    set: str
    prompt: str
    origin: str
    answer: str | None
    scores: Mapping[str, float]
    failure: str = ""


@dataclass(frozen=True)
class SetScore:
    """One set of prompts under one model: `n_judged` of `n` were judged, and the estimates are over those."""

    n: int
    n_judged: int
    quality: Estimate
    lowest: Estimate


@dataclass(frozen=True)
class MitigationRow:
    """One model. `at` is the step or the round that it stands at; `kept` says that it is the one that is kept.

    `forget` has an estimate by metric, `sets` a score by the set's name. `changes` are means of this model's score less
    the unlearned one's over the prompts that both were judged on, by metric of the forget set and by set. `failures`
    counts what was not judged.
    """

    arm: str
    at: int
    kept: bool
    forget: Mapping[str, Estimate]
    sets: Mapping[str, SetScore]
    changes: Mapping[str, Estimate] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KeptModel:
    """A mended model on the disk, by the folder of its subject beside the table, and its digest."""

    arm: str
    path: str
    digest: str


@dataclass(frozen=True)
class MitigationTable:
    """All that one mending came to: `at` of its rows counts steps or, in the iterative way, rounds.

    `sizes` are the prompts in each set; `notes` say in sentences what was asked for and not had.
    """

    way: Way
    rows: tuple[MitigationRow, ...]
    sizes: Mapping[str, int]
    models: tuple[KeptModel, ...]
    notes: tuple[str, ...]


def write_samples(folder: MitigationFolder, samples: Iterable[Sample]) -> None:
    """Put down which prompts are trained on and scored."""
    write_jsonl(folder.used, map(asdict, samples))


def read_samples(folder: MitigationFolder) -> tuple[Sample, ...]:
    """The prompts that are trained on and scored."""
    return tuple(read_rows(folder.used, Sample))


def write_scored(folder: MitigationFolder, name: str, rows: Iterable[ScoredAnswer]) -> None:
    """Put down the scored answers of one model or checkpoint."""
    write_jsonl(folder.scored(name), map(asdict, rows))


def read_scored(folder: MitigationFolder, name: str) -> tuple[ScoredAnswer, ...] | None:
    """The scored answers of one model or checkpoint; None where it was not scored."""
    path = folder.scored(name)
    return tuple(read_rows(path, ScoredAnswer)) if path.exists() else None


def write_mitigation(folder: MitigationFolder, table: MitigationTable, identity: Mapping[str, Any]) -> None:
    """Write the table; by being there it says that all is done."""
    write_json(folder.table, {"schema": SCHEMA, "identity": dict(identity), "table": asdict(table)})


def read_mitigation(folder: MitigationFolder) -> MitigationTable:
    """The table of a mending that is done."""
    stored = read_versioned(folder.table, "identity", "table")
    try:
        return TypeAdapter(MitigationTable).validate_python(stored["table"])
    except ValidationError as error:
        raise InputError(f"{folder.table} is damaged; delete it and run the same command again") from error
