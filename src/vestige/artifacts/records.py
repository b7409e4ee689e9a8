"""What lies in a run's files: schemas with versions, and how they are read and written."""

import csv
import io
import json
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from vestige.artifacts.layout import EvalFolder, RunFolder, SubjectFolder
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate, end, from_json, to_json
from vestige.core.files import read_json, read_jsonl, write_json, write_jsonl, write_text
from vestige.core.ids import changed_keys, content_id, file_digest
from vestige.core.items import ForgetSet
from vestige.core.text import one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

SCHEMA = 2
"""Version of every schema in this file. A file of another version is refused, never guessed at."""

_AGAIN = "delete it, or run again with --fresh"
OR_FRESH = "choose another folder or start over with --fresh"
AGAIN = "delete it and run the same command again"
"""The way out where a command has no --fresh."""


@dataclass(frozen=True)
class SubjectSpec:
    """The identity of a subject: everything that can change its weights, and nothing else.

    `subject` is its role (base, target, retrained, unlearned, suppressed), `name` what people call it, `model` where it
    began, `forget` the selector of what was left out (retrained) or unlearned; empty for base and target. `data` is the
    digest of the training items in their order, `parent` the digest of the model that training started from.
    `settings` holds every setting, defaults included; `settings_id` is their content id; `version` the version of
    the code that turns them into weights. `forgotten` is what `forget` and those of its ancestors resolved to, the
    oldest first: what this model left out or was made to forget.
    """

    subject: str
    name: str
    model: str
    method: str
    forget: str
    seed: int
    settings_id: str
    settings: dict[str, Any]
    data: str
    parent: str
    version: int
    forgotten: tuple[ForgetSet, ...] = ()

    def not_forgotten(self, items: Collection[str]) -> int:
        """How many of these items (by id) the model neither left out nor was made to forget.

        A model that forgot nothing by its spec, as one from elsewhere, has nothing to be held against: 0.
        """
        gone = {i for one in self.forgotten for i in one.items}
        return len(set(items) - gone) if self.forgotten else 0

    @property
    def id(self) -> str:
        """Content id of all of it."""
        return content_id(asdict(self), length=12)


@dataclass(frozen=True)
class Result:
    """One estimate in its place: which split, which answers, which format, under which attack.

    `split` is forget, retain, independent, independent_<type>, factual, or `edge:<id>`; `scope` all, entailed,
    guessable, or free; `format` generate (greedy) or forced (teacher-forced); `attack` is empty for none.
    """

    split: str
    scope: str
    format: str
    attack: str
    estimate: Estimate


@dataclass(frozen=True)
class Summary:
    """What one evaluation found out about one subject, seen from one forget set.

    `splits` holds the ids of the items in each split, so that every estimate can be computed again from the records.
    """

    eval: str
    version: int
    subject: SubjectSpec
    forget: str
    splits: dict[str, tuple[str, ...]]
    results: tuple[Result, ...]


COLUMNS = (
    "model",
    "subject",
    "method",
    "seed",
    "settings_id",
    "forget",
    "split",
    "scope",
    "format",
    "attack",
    "metric",
    "unit",
    "value",
    "low",
    "high",
    "n",
)
"""The columns of tables/results.csv, which outside tools rely on."""


def write_collected(folder: EvalFolder, n: int) -> None:
    """Say that all `n` records are there, and what their bytes are."""
    write_json(
        folder.collected, {"schema": SCHEMA, "n": n, "files": {folder.records.name: file_digest(folder.records)}}
    )


def note_bytes(folder: EvalFolder, path: Path) -> None:
    """Put down what the bytes of a file of the evaluation are."""
    stored = read_versioned(folder.collected, "files")
    files = {**stored["files"], path.name: file_digest(path)}
    if files != stored["files"]:
        write_json(folder.collected, {**stored, "files": files})


def check_bytes(folder: EvalFolder, path: Path) -> None:
    """Refuse a file of the evaluation that is gone, or not as it was written."""
    stored = read_versioned(folder.collected, "files")["files"] if folder.collected.exists() else None
    if not path.exists() or not isinstance(stored, dict) or stored.get(path.name) != file_digest(path):
        raise InputError(
            f"{path} is gone or was changed after it was written; delete {folder.path} and run the command that made "
            "it again"
        )


def write_summary(folder: EvalFolder, summary: Summary) -> None:
    """Write a summary whole; its existence means that the evaluation is done for this forget set."""
    path = folder.summary(summary.forget)
    write_json(path, {"schema": SCHEMA, **to_json(summary)})
    note_bytes(folder, path)


def write_scores(folder: EvalFolder, rows: Iterable[dict[str, Any]]) -> None:
    """Write the items' scores, which follow from the records."""
    write_jsonl(folder.scores, rows)
    note_bytes(folder, folder.scores)


def read_summary(path: Path) -> Summary:
    """The summary in `path`; one that lacks a field or holds what is no estimate is refused by file and field.

    So is one that is not as it was written.
    """
    stored = _fields(path, Summary, read_versioned(path))
    if not isinstance(stored["results"], list):
        raise InputError(f"{path}: results are not what Vestige writes; {_AGAIN}")
    rows = [_fields(path, Result, row, f"results[{i}]") for i, row in enumerate(stored["results"])]
    for i, row in enumerate(rows):
        row["estimate"] = _fields(path, Estimate, from_json(row["estimate"]), f"results[{i}].estimate")
    subject = _spec_fields(path, stored["subject"], "subject")
    found = typed(path, Summary, {**stored, "results": rows, "subject": subject})
    check_bytes(EvalFolder(path.parent), path)
    return found


def typed(where: Path | str, kind: type[T], stored: Any, *, again: str = _AGAIN) -> T:
    """`stored` as the record `kind`, with values of the types that its fields have; the error says which has not.

    `where` is the file, with the line if it has several records, and `again` the way out.
    """
    try:
        # As JSON, where a list may stand for a tuple and a text for nothing but a text.
        found: T = _adapter(cast(Hashable, kind)).validate_json(json.dumps(stored), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the record"
        raise InputError(f"{where}: {one_line(place)}: {first['msg']}; {again}") from error
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # For lines of a file as for whole ones: to make it takes longer than to read a line.
    return TypeAdapter(kind)


def read_record(path: Path, kind: type[T], *, again: str = _AGAIN) -> T:
    """The record in `path`, as `write_record` put it there."""
    stored = read_versioned(path)
    del stored["schema"]
    return typed(path, kind, from_json(stored), again=again)


def write_record(path: Path, record: "DataclassInstance") -> None:
    """Write a record whole, with the version of its schema."""
    write_json(path, {"schema": SCHEMA, **to_json(record)})


def read_rows(path: Path, kind: type[T]) -> Iterator[T]:
    """The records of one kind in a file of JSON Lines; a line that is none is an InputError with its number."""
    return (typed(f"{path}, record {n}", kind, row, again=AGAIN) for n, row in enumerate(read_jsonl(path), 1))


def _fields(path: Path, kind: type[Any], stored: Any, where: str = "") -> dict[str, Any]:
    """What `stored`, the object at `where` in the file, holds for the fields of the dataclass `kind`."""
    if not isinstance(stored, dict):
        raise InputError(f"{path}: {where} is not a JSON object; {_AGAIN}")
    names = [f.name for f in fields(kind)]
    _refuse_absent(path, where, stored, names)
    return {name: stored[name] for name in names}


def _refuse_absent(path: Path, where: str, stored: dict[str, Any], needed: Iterable[str]) -> None:
    for name in needed:
        if name not in stored:
            field = f"{where}.{name}" if where else name
            raise InputError(f"{path}: no field {field!r}, so another version of Vestige made it; {_AGAIN}")


def write_spec(path: Path, spec: SubjectSpec) -> None:
    """Write a subject's identity."""
    write_json(path, {"schema": SCHEMA, **asdict(spec)})


def read_spec(path: Path) -> SubjectSpec:
    """The identity in `path`."""
    return typed(path, SubjectSpec, _spec_fields(path, read_versioned(path)))


def _spec_fields(path: Path, stored: Any, where: str = "") -> dict[str, Any]:
    own = _fields(path, SubjectSpec, stored, where)
    if not isinstance(own["forgotten"], list):
        raise InputError(f"{path}: forgotten is not a list of forget sets; {_AGAIN}")
    places = [f"{where}{'.' if where else ''}forgotten[{n}]" for n in range(len(own["forgotten"]))]
    sets = [_fields(path, ForgetSet, one, place) for one, place in zip(own["forgotten"], places, strict=True)]
    return {**own, "forgotten": sets}


def read_versioned(path: Path, *needed: str) -> dict[str, Any]:
    """The JSON object in `path`, if its schema is ours and it has the fields `needed`."""
    stored = read_json(path)
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        raise InputError(f"{path}: made by another version of Vestige (its schema is not {SCHEMA}); {_AGAIN}")
    _refuse_absent(path, "", stored, needed)
    return stored


def write_sealed(path: Path, body: dict[str, Any], files: Iterable[Path] = ()) -> None:
    """Write what ends a piece of work, with a checksum of itself and of `files`, which lie beside it or below."""
    of_files = {file.relative_to(path.parent).as_posix(): file_digest(file) for file in files}
    whole = {"schema": SCHEMA, **body, "files": of_files}
    write_json(path, {**whole, "seal": content_id(whole, length=64)})


def read_sealed(path: Path, *needed: str) -> dict[str, Any]:
    """What `write_sealed` wrote, without schema and checksums; refused unless it and its files are as they were."""
    stored = read_versioned(path, *needed, "files", "seal")
    seal, files = stored.pop("seal"), stored["files"]
    if not isinstance(files, dict) or content_id(stored, length=64) != seal:
        changed = [path]
    else:
        there = {path.parent / name: digest for name, digest in files.items()}
        changed = [file for file, digest in there.items() if not file.is_file() or file_digest(file) != digest]
    if changed:
        raise InputError(
            f"{changed[0]} is gone or was changed after it was written; delete {path} and run the command that made it "
            "again"
        )
    return {name: value for name, value in stored.items() if name not in ("schema", "files")}


def put_request(path: Path, ours: dict[str, Any], what: str, *, out: str = "choose another folder") -> None:
    """Put down what a folder is asked for; refused where it holds `what` that was asked for otherwise."""
    theirs = read_versioned(path) if path.exists() else {"schema": SCHEMA, **ours}
    if changed := changed_keys({"schema": SCHEMA, **ours}, theirs):
        raise InputError(f"{path.parent} holds another {what} (it differs in {', '.join(changed)}); {out}")
    write_json(path, {"schema": SCHEMA, **ours})


def read_records(folder: EvalFolder) -> list[dict[str, Any]]:
    """The records of an evaluation, in the plan's order; refused unless they are as they were written."""
    check_bytes(folder, folder.records)
    return list(read_jsonl(folder.records))


def read_scores(folder: EvalFolder) -> Iterator[dict[str, Any]]:
    """The items' scores, in the plan's order; refused unless they are as they were written."""
    check_bytes(folder, folder.scores)
    return read_jsonl(folder.scores)


def read_scored_records(folder: EvalFolder) -> list[dict[str, Any]]:
    """The records with the values of their metrics beside what was collected."""
    records, scores = read_records(folder), list(read_scores(folder))
    if not all(isinstance(row, dict) for row in (*records, *scores)):
        raise InputError(f"{folder.records} or {folder.scores.name} holds a line that is no JSON object; {_AGAIN}")
    return [{**r, **s} for r, s in zip(records, scores, strict=True)]


def read_summaries(run: RunFolder) -> list[tuple[EvalFolder, Summary]]:
    """Every summary of a run with the folder it lies in, controls first."""
    return [
        (folder, read_summary(path))
        for subject in run.subjects()
        for folder in evaluations_of(subject)[0]
        for path in folder.summaries()
    ]


def evaluations_of(subject: SubjectFolder) -> tuple[list[EvalFolder], list[EvalFolder]]:
    """The evaluations of the model that is there, and those of another that was there before it."""
    done = read_versioned(subject.done, "digest")["digest"] if subject.done.exists() else None
    own: list[EvalFolder] = []
    others: list[EvalFolder] = []
    for folder in subject.evaluations():
        asked = read_versioned(folder.identity, "model")["model"]
        (own if done in (None, asked) else others).append(folder)
    return own, others


def result_rows(summaries: Iterable[Summary]) -> list[dict[str, Any]]:
    """The rows of tables/results.csv."""
    return [
        {
            "model": s.subject.model,
            "subject": s.subject.subject,
            "method": s.subject.method,
            "seed": s.subject.seed,
            "settings_id": s.subject.settings_id,
            "forget": s.forget,
            "split": r.split,
            "scope": r.scope,
            "format": r.format,
            "attack": r.attack,
            "metric": r.estimate.metric,
            "unit": r.estimate.unit,
            "value": r.estimate.value,
            "low": end(r.estimate.low),
            "high": end(r.estimate.high),
            "n": r.estimate.n,
        }
        for s in summaries
        for r in s.results
    ]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as CSV with a header.

    Text that a spreadsheet would run as a formula gets a leading apostrophe (OWASP, CSV injection), and carriage
    returns become line feeds, since the csv module leaves a bare one unquoted. Names of columns are such text too.
    """
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow([_inert(c) for c in columns])
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writerows({k: _inert(v) for k, v in row.items()} for row in rows)
    write_text(path, buffer.getvalue())


# The last four are the full-width =, +, - and @, which spreadsheets take for the narrow ones.
_ACTING = ("=", "+", "-", "@", "\t", "\n", "\0", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def _inert(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    plain = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{plain}" if plain.startswith(_ACTING) else plain
