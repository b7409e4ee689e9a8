"""Records on disk, once for all: read and written by their types, sealed by a checksum, claimed by an identity.

A record is a frozen dataclass. Its file is a JSON object with the version of the schema. Files are trusted for their
types only after `typed`, which never guesses.
"""

import json
from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from vestige.core.errors import InputError
from vestige.core.estimates import from_json, to_json
from vestige.core.files import read_json, read_jsonl, write_json
from vestige.core.ids import canonical_json, changed_keys, content_id, file_digest
from vestige.core.text import Fields, Record, one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

SCHEMA = 2
"""The version of every schema here. Files with another version are rejected."""

OR_DELETE = "Delete it, or run again with --fresh"
OR_FRESH = "choose another folder or start over with --fresh"
AGAIN = "Delete it and run the same command again"
"""The advice if a command has no --fresh."""


def typed(where: Path | str, kind: type[T], stored: Any, *, remedy: str = OR_DELETE) -> T:
    """`stored` as the record `kind`, with values of the types that its fields have.

    The error names the field with the wrong type. `where` is the file, with the line if it has several records, and
    `again` the way out.
    """
    try:
        # JSON mode accepts a list for a tuple, and a text only for a text.
        record: T = _adapter(cast(Hashable, kind)).validate_json(json.dumps(from_json(stored)), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        location = one_line(".".join(map(str, first["loc"]))) or "the record"
        if first["type"] == "missing":
            raise _lacking(where, location, remedy) from error
        raise InputError(f"{where}: {location}: {first['msg']}. {remedy}") from error
    return record


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # The adapter is cached for lines of a file too: making it takes longer than reading a line.
    return TypeAdapter(kind)


def _lacking(where: Path | str, field: str, remedy: str) -> InputError:
    return InputError(f"{where}: no field {field!r}, so another version of Vestige made it. {remedy}")


def load(path: Path, kind: type[T], *, remedy: str = OR_DELETE) -> T:
    """The record in `path`, as `save` put it there."""
    return typed(path, kind, read_versioned(path), remedy=remedy)


def save(path: Path, record: "DataclassInstance") -> None:
    """Write a record whole, with the version of its schema."""
    write_json(path, {"schema": SCHEMA, **to_json(record)})


def read_rows(path: Path, kind: type[T]) -> Iterator[T]:
    """The records of one kind in a file of JSON Lines. A line that is none is an InputError with its number."""
    return (typed(f"{path}, record {n}", kind, row, remedy=AGAIN) for n, row in enumerate(read_jsonl(path), 1))


def read_versioned(path: Path, *needed: str) -> Fields:
    """The JSON object in `path`, if its schema is ours and it has the fields `needed`."""
    stored = read_json(path)
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA:
        raise InputError(f"{path}: made by another version of Vestige (its schema is not {SCHEMA}). {OR_DELETE}")
    for name in needed:
        if name not in stored:
            raise _lacking(path, name, OR_DELETE)
    return stored


def write_sealed(path: Path, body: Fields, files: Iterable[Path] = ()) -> None:
    """Write what ends a piece of work, with a checksum of itself and of `files`, which lie with it or below."""
    of_files = {file.relative_to(path.parent).as_posix(): file_digest(file) for file in files}
    whole = {"schema": SCHEMA, **body, "files": of_files}
    write_json(path, {**whole, "seal": content_id(whole, length=64)})


def read_sealed(path: Path, *needed: str) -> Fields:
    """Read the output of `write_sealed`, without schema and checksums.

    Refused unless it and its files are as they were.
    """
    stored = read_versioned(path, *needed, "files", "seal")
    seal, files = stored.pop("seal"), stored["files"]
    # The seal itself is no part of what it seals.
    if not isinstance(files, dict) or not is_sealed(stored, seal):
        changed = [path]
    else:
        there = {path.parent / name: digest for name, digest in files.items()}
        changed = [file for file, digest in there.items() if not file.is_file() or file_digest(file) != digest]
    if changed:
        raise InputError(
            f"{changed[0]} is gone or was changed after it was written. Delete {path} and run the command that made it "
            "again"
        )
    return {name: value for name, value in stored.items() if name not in ("schema", "files")}


def is_sealed(stored: Fields, seal: object) -> bool:
    """Whether a file's content has this checksum. Infinity and halves of characters are read, but never written."""
    try:
        return content_id(stored, length=64) == seal
    except ValueError:
        return False


def unsealed(path: Path, stored: Fields) -> Fields:
    """The content `stored` of a file as `read_sealed` reads it, or as it is. Earlier versions wrote it unsealed."""
    if stored.keys() & {"files", "seal"}:
        return read_sealed(path)
    return stored


def refuse_another(
    where: Path, label: str, expected: Record, stored: Record, *, out: str = "choose another folder"
) -> None:
    """Reject a place with another identity. The error names the differences and gives the advice."""
    # Both have the form of the file, where tuples are lists.
    expected, stored = (json.loads(canonical_json(dict(key))) for key in (expected, stored))
    if changed := changed_keys(expected, stored):
        raise InputError(f"{where} holds another {label} (it differs in {', '.join(changed)}). {out}")


def claim(path: Path, expected: Record, label: str, *, out: str = "choose another folder") -> None:
    """Record the request that a folder belongs to. Reject a folder with `what` from a different request."""
    identity = {"schema": SCHEMA, **expected}
    if path.exists():
        refuse_another(path.parent, label, identity, read_versioned(path), out=out)
    write_json(path, identity)
