"""The files of a run: schemas with versions, reading and writing.

In prompt.json, bits are -log2 of the attacked model's probabilities, after the chat header that precedes the prompt.
"""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from vestige.artifacts.layout import AttackFolder, EvalFolder, RunFolder, SubjectFolder, own_folder
from vestige.artifacts.provenance import read_provenance
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate, to_json
from vestige.core.files import read_jsonl, write_jsonl, write_text
from vestige.core.ids import content_id, file_digest
from vestige.core.items import ForgetSet, Item
from vestige.core.store import (
    OR_DELETE,
    load,
    read_rows,
    read_sealed,
    read_versioned,
    read_with_seal,
    save,
    write_sealed,
    write_with_seal,
)
from vestige.core.text import Fields, Items, NumberByName, Record, TextMapping, visible

ROLES = ("base", "target", "retrained", "unlearned", "suppressed")
"""A model's roles in a run, in the order of pages and tables."""


@dataclass(frozen=True)
class SubjectSpec:
    """The identity of a subject: everything that can change its weights, and nothing more.

    `subject` is its role (base, target, retrained, unlearned, suppressed), `name` its label, `model` its initial model,
    `forget` the selector of the items that were left out (retrained) or unlearned. Empty for base and target. `data` is
    the digest of the training items in their order, `parent` the digest of the model that training started from.
    `settings` holds every setting, defaults included. `settings_id` is their content id. `version` the version of the
    code that turns them into weights. `forgotten` has the resolved `forget` of this model and its ancestors, the oldest
    first: the items left out or unlearned.
    """

    subject: str
    name: str
    model: str
    method: str
    forget: str
    seed: int
    settings_id: str
    settings: Fields
    data: str
    parent: str
    version: int
    forgotten: tuple[ForgetSet, ...]

    @classmethod
    def of(
        cls,
        subject: str,
        name: str,
        model: str,
        settings: Fields,
        *,
        method: str = "",
        forget: str = "",
        seed: int = 0,
        data: str = "",
        parent: str = "",
        version: int = 1,
        forgotten: tuple[ForgetSet, ...] = (),
    ) -> "SubjectSpec":
        """The identity of a subject with these settings, whose content id it takes."""
        settings_id = content_id(settings)
        return cls(subject, name, model, method, forget, seed, settings_id, settings, data, parent, version, forgotten)

    def having(self, settings: Fields, **changes: Any) -> "SubjectSpec":
        """Return a copy with other settings and the further `changes`."""
        return replace(self, settings=settings, settings_id=content_id(settings), **changes)

    def not_forgotten(self, items: Collection[str]) -> int:
        """Count the items (by id) that the model neither left out nor unlearned.

        An external model has no list of forgotten items, so the count is 0.
        """
        # Items are compared because the same selector may mean others in other data.
        gone = {i for forget_set in self.forgotten for i in forget_set.items}
        if self.forgotten:
            return len(set(items) - gone)
        return 0

    @property
    def id(self) -> str:
        """Return the content id of the whole spec."""
        return content_id(asdict(self), length=12)


@dataclass(frozen=True)
class Result:
    """One estimate and its position: split, answers, format and attack.

    `split` is forget, retain, independent, independent_<type>, factual, or `edge:<id>`. `scope` all, entailed,
    guessable, or free. `format` generate (greedy) or forced (teacher-forced). `attack` is empty for none.
    """

    split: str
    scope: str
    format: str
    attack: str
    estimate: Estimate


@dataclass(frozen=True)
class Summary:
    """The results of one evaluation of one subject, seen from one forget set.

    `splits` holds the ids of the items in each split, so that every estimate can be computed again from the records.
    """

    eval: str
    version: int
    subject: SubjectSpec
    forget: str
    splits: dict[str, Items]
    results: tuple[Result, ...]


_SUBJECT = ("model", "subject", "method", "seed", "settings_id")
_PLACE = ("split", "scope", "format", "attack")
_ESTIMATE = ("metric", "unit", "value", "low", "high", "n")
COLUMNS = (*_SUBJECT, "forget", *_PLACE, *_ESTIMATE)
"""The columns of a row of results, which outside tools rely on."""


def write_collected(folder: EvalFolder, n: int) -> None:
    """Say that all `n` records are there, and what their bytes and those of the request are."""
    write_sealed(folder.collected, {"n": n}, filter(Path.exists, (folder.identity, folder.records)))


def evaluation_number(folder: EvalFolder) -> int:
    """Return the position of an evaluation among those of its model, from 1. Files of older versions have 0."""
    return int(read_provenance(folder.provenance).get("number", 0))


def next_number(folder: EvalFolder) -> int:
    """The number of an evaluation that is made now."""
    numbers = [evaluation_number(EvalFolder(path.parent)) for path in folder.path.parent.glob("*/provenance.json")]
    return 1 + max(numbers, default=0)


def note_bytes(folder: EvalFolder, path: Path, basis: str = "") -> None:
    """Record the digests of an evaluation's file and of its inputs."""
    stored = read_with_seal(folder.collected, "files")
    noted = {**stored, "files": {**stored["files"], path.name: file_digest(path)}}
    if basis:
        noted["basis"] = {**stored.get("basis", {}), path.name: basis}
    # An unchanged file is not written again, so that the folder stays the same.
    if noted != stored:
        write_with_seal(folder.collected, noted)


def follows(folder: EvalFolder, path: Path, basis: str) -> bool:
    """Return whether an evaluation's file is unchanged and was made from inputs with this digest."""
    try:
        check_bytes(folder, path)
    except InputError:
        return False
    return bool(read_with_seal(folder.collected).get("basis", {}).get(path.name) == basis)


def check_bytes(folder: EvalFolder, *paths: Path) -> None:
    """Refuse files of the evaluation that are gone or were changed. Without `paths`, records and all that is there."""
    stored = read_with_seal(folder.collected, "files")["files"] if folder.collected.exists() else None
    noted = stored if isinstance(stored, dict) else {}
    again = f"Delete {folder.path} and run the command that made it again"
    # Whoever notes the request seals the provenance too. Earlier versions did neither.
    if not paths and folder.identity.name in noted:
        read_sealed(folder.provenance, remedy=again)
    for path in paths or (folder.records, *filter(Path.exists, map(folder.path.joinpath, noted))):
        if not path.exists() or noted.get(path.name) != file_digest(path):
            raise InputError(f"{path} is gone or was changed after it was written. {again}")


def write_summary(folder: EvalFolder, summary: Summary, basis: str = "") -> None:
    """Write a summary whole. Its existence means that the evaluation is done for this forget set."""
    path = folder.summary(summary.forget)
    save(path, summary)
    note_bytes(folder, path, basis)


def write_scores(folder: EvalFolder, rows: Iterable[Fields], basis: str = "") -> None:
    """Write the items' scores, which follow from the records."""
    write_jsonl(folder.scores, rows)
    note_bytes(folder, folder.scores, basis)


def read_summary(path: Path) -> Summary:
    """The summary in `path`. A summary with a missing field or an invalid estimate is rejected by file and field.

    So is one that is not as it was written.
    """
    summary = load(path, Summary)
    check_bytes(EvalFolder(path.parent), path)
    return summary


def write_spec(path: Path, spec: SubjectSpec) -> None:
    """Write a subject's identity."""
    save(path, spec)


def read_spec(path: Path) -> SubjectSpec:
    """The identity in `path`."""
    return load(path, SubjectSpec)


def write_finished(path: Path, body: Record) -> None:
    """Write a finished subject's `done.json`, with a checksum of itself and of the spec.json with it."""
    spec = path.with_name("spec.json")
    noted = {"spec": file_digest(spec)} if spec.is_file() else {}
    write_with_seal(path, {**body, **noted, "provenance": path.with_name("provenance.json").is_file()})


def read_finished(path: Path, *needed: str) -> Fields:
    """A finished subject's `done.json`.

    Args:
        path: The file.
        needed: Fields that it must have.

    Raises:
        InputError: The file was changed after it was written: its checksum is another, or `digest` is not the one that
            its parts (`model`) have. Or the spec.json with it was changed.
    """
    stored = read_with_seal(path, "seal", *needed)
    parts = stored.get("model")
    if parts is not None and stored.get("digest") != content_id(parts, length=64):
        raise InputError(f"{path} was changed after it was written. Restore it, or make the model again with --fresh.")
    spec = path.with_name("spec.json")
    if "spec" in stored and not (spec.is_file() and file_digest(spec) == stored["spec"]):
        raise InputError(f"{spec} was changed after the model was made. Restore it, or make the model with --fresh.")
    return stored


def forgotten_by(model: str) -> tuple[ForgetSet, ...]:
    """Return the items that the model and its ancestors left out or unlearned, the oldest first.

    Of one from elsewhere nothing is known.
    """
    folder = own_folder(model)
    if folder is None:
        return ()
    return read_spec(folder.spec).forgotten


def read_training_log(path: Path) -> list[Fields]:
    """Return the lines of a training's log, or none. Reject a line without step, epoch, loss or tokens."""
    lines = list(read_jsonl(path)) if path.exists() else []
    for n, line in enumerate(lines, 1):
        fields = line if isinstance(line, dict) else {}
        for name in ("step", "epoch", "loss", "n_tokens"):
            # `type` is compared because True is an int to `isinstance`.
            if type(fields.get(name)) not in (int, float):
                raise InputError(f"{path}, line {n}: no number {name!r}, which every step has. {OR_DELETE}")
    return lines


@dataclass(frozen=True)
class ScoredPoint:
    """The score of `model` (policy, or the role of a control) after `step` steps of a trajectory."""

    model: str
    step: int
    epoch: int
    scores: NumberByName


def read_trajectory(path: Path) -> list[ScoredPoint]:
    """Return the points of a training's trade-off curve, if it has any."""
    if path.exists():
        return list(read_rows(path, ScoredPoint))
    return []


def read_records(folder: EvalFolder) -> list[Fields]:
    """The records of an evaluation, in the plan's order. Refused unless they are as they were written."""
    check_bytes(folder, folder.records)
    return list(read_jsonl(folder.records))


def read_scores(folder: EvalFolder) -> Iterator[Fields]:
    """The items' scores, in the plan's order. Refused unless they are as they were written."""
    check_bytes(folder, folder.scores)
    return read_jsonl(folder.scores)


class AskedSplits(Protocol):
    """The questions of an evaluation by split, and the scope of some of them (`data.corpus.NamedSplits`)."""

    @property
    def splits(self) -> Mapping[str, tuple[Item, ...]]:
        """The questions by the name of their split."""

    @property
    def scopes(self) -> TextMapping:
        """The scope of a question by its id, such as `free`."""


class ItemScores(NamedTuple):
    """Paths of one evaluation's scores and questions.

    `attack` is empty for the unattacked model. `stands_for` maps an attacked question to the original one.
    """

    attack: str
    evaluation: str
    folder: EvalFolder
    splits: AskedSplits
    stands_for: TextMapping = MappingProxyType({})


def item_rows(asked: ItemScores) -> Iterator[Fields]:
    """A row for each question, split and metric of an evaluation.

    Questions of a scope get further rows for the scope.
    """
    scores = {}
    for row in read_scores(asked.folder):
        item = row.pop("item")
        scores[asked.stands_for.get(item, item)] = row
    for split, items in asked.splits.splits.items():
        for item in items:
            names = [split]
            if item.id in asked.splits.scopes:
                names.append(f"{split}:{asked.splits.scopes[item.id]}")
            for metric, value in scores.get(item.id, {}).items():
                for name in names:
                    yield {
                        "split": name,
                        "item": item.id,
                        "edge": item.edge,
                        "attribute": f"{item.group}/{item.attribute}",
                        "attack": asked.attack,
                        "metric": f"{asked.evaluation}.{metric}",
                        "value": value,
                    }


def read_scored_records(folder: EvalFolder) -> list[Fields]:
    """Return the records with the values of their metrics."""
    records, scores = read_records(folder), list(read_scores(folder))
    if not all(isinstance(row, dict) for row in (*records, *scores)):
        raise InputError(f"{folder.records} or {folder.scores.name} has a line that is no JSON object. {OR_DELETE}")
    if len(records) != len(scores):
        raise InputError(f"{folder.path}: its records and scores have different lengths. Evaluate again")
    return [{**r, **s} for r, s in zip(records, scores, strict=True)]


def read_summaries(run: RunFolder) -> list[tuple[EvalFolder, Summary]]:
    """Every summary of a run with the folder it is in, controls first."""
    return [
        (folder, read_summary(path))
        for subject in run.subjects()
        for folder in evaluations_of(subject)[0]
        for path in folder.summaries()
    ]


def evaluations_of(subject: SubjectFolder) -> tuple[list[EvalFolder], list[EvalFolder]]:
    """Return the evaluations of the current model, and those of its predecessor in the folder."""
    done = read_finished(subject.done, "digest")["digest"] if subject.done.exists() else None
    current: list[EvalFolder] = []
    stale: list[EvalFolder] = []
    for folder in subject.evaluations():
        model = read_versioned(folder.identity, "model")["model"]
        if folder.collected.exists():
            check_bytes(folder)
        # A model that is gone, or from elsewhere, has no digest to hold them against.
        (current if done in (None, model) else stale).append(folder)
    return current, stale


def result_rows(summaries: Iterable[Summary]) -> list[Fields]:
    """The rows of tables/results.csv."""
    rows = []
    for s in summaries:
        subject = {name: getattr(s.subject, name) for name in _SUBJECT} | {"forget": s.forget}
        for r in s.results:
            # An undetermined end is an empty cell, and not `inf`.
            estimate = to_json(r.estimate)
            cell = {name: getattr(r, name) for name in _PLACE}
            rows.append({**subject, **cell, **{name: estimate[name] for name in _ESTIMATE}})
    return rows


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Fields]) -> None:
    """Write rows as CSV with a header. See `csv_text`."""
    write_text(path, csv_text(columns, rows))


def csv_text(columns: Sequence[str], rows: Iterable[Fields]) -> str:
    """Return rows as CSV with a header.

    Text that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, CSV injection). Characters that act
    unseen are spelt out (`visible`). Names of columns are such text too.
    """
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    # `writeheader` would write names unchanged.
    header = {name: name for name in columns}
    writer.writerows({k: _inert(v) for k, v in row.items()} for row in (header, *rows))
    return buffer.getvalue()


# The last four are the full-width =, +, - and @, which spreadsheets treat like the narrow ones.
_ACTING = ("=", "+", "-", "@", "\t", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _inert(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # A bare carriage return is spelt out too, since the csv module would leave it unquoted.
    plain = visible(value)
    if plain.startswith(_ACTING):
        return f"'{plain}"
    return plain


TOKENS_BOUND = "tokens x log2(admissible vocabulary) of the prompt"
CODE_BOUND = "code length of the prompt, under the subject"
SEEN_BOUND = "code length of the answers that the search saw, under the subject"
"""The names of the upper bounds in bits on the information in a prompt."""

SHUFFLED = "shuffled"
"""The point at which all tokens of a prompt are in another order. Every other point is a share of the tokens."""


@dataclass(frozen=True)
class SampleReply:
    """One question of the prompt search: the wanted reply, the actual reply, and whether they agree.

    `same_tokens` is whether the deployed text is read as the tokens that the search scored. `plain` is the reply
    without the prompt, and `plain_right` whether it is already correct. If so, the prompt did not cause it.
    """

    question: str
    wanted: str
    replied: str
    verified: bool
    same_tokens: bool
    plain: str
    plain_right: bool

    @property
    def brought(self) -> bool:
        """Return whether the correct reply needs the prompt."""
        return self.verified and not self.plain_right


@dataclass(frozen=True)
class PromptPart:
    """The prompt at one stage: its tokens, their code length under the model, and the text.

    A prompt that is cut or shuffled can be other tokens once its text is read.
    """

    text: str
    ids: tuple[int, ...]
    bits: float


@dataclass(frozen=True)
class KeptPrompt:
    """A found prompt.

    `claimed` is the search's own count of correct samples, `verified` the count by replies to the text. `spent` are the
    search's amounts. `seen_bits` is the code length of all answers that the search used, or None if it also used hidden
    states. `ended` is the reason for the end.
    """

    text: str
    ids: tuple[int, ...]
    placement: Literal["prefix", "suffix"]
    loss: float
    claimed: bool
    verified: bool
    ended: str
    steps: int
    admissible_bits: float
    spent: dict[str, int]
    seen_bits: float | None
    bounds_bits: NumberByName
    samples: tuple[SampleReply, ...]
    points: dict[str, PromptPart]


def read_prompt(folder: AttackFolder) -> KeptPrompt:
    """The prompt of an attack. One that lacks something is refused by file and field."""
    if not folder.prompt.is_file():
        raise InputError(f"{folder.path} contains no searched prompt. Name the folder of a gcg or prefix attack")
    return load(folder.prompt, KeptPrompt)
