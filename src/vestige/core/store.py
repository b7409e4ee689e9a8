"""Records on disk, once for all: read and written by their types, sealed by a checksum, claimed by an identity.

A record is a frozen dataclass. Its file is a JSON object with the version of the schema. Files are trusted for their
types only after `typed`, which never guesses.
"""

import json
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
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
SEALED = 3
"""The version of files with a seal: one without it was changed. Earlier files, of version 2, may lack it."""

OR_DELETE = "Delete it, or run again with --fresh"
OR_FRESH = "choose another folder or start over with --fresh"
AGAIN = "Delete it and run the same command again"
"""The advice if a command has no --fresh."""
_REMADE = {"done": "model or attack", "collected": "answers", "outcome": "verdicts", "judgements": "list, but empty,"}
"""The output of the command that runs again because a file of this name is damaged."""


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


def load(path: Path, kind: type[T]) -> T:
    """The record in `path`, as `save` put it there."""
    return typed(path, kind, read_versioned(path))


def save(path: Path, record: "DataclassInstance") -> None:
    """Write a record whole, with the version of its schema."""
    write_json(path, {"schema": SCHEMA, **to_json(record)})


def read_rows(path: Path, kind: type[T]) -> Iterator[T]:
    """The records of one kind in a file of JSON Lines. A line that is none is an InputError with its number."""
    return (typed(f"{path}, record {n}", kind, row, remedy=AGAIN) for n, row in enumerate(read_jsonl(path), 1))


def read_versioned(path: Path, *needed: str, schema: int = SCHEMA) -> Fields:
    """The JSON object in `path`, if its schema is ours and it has the fields `needed`."""
    stored = read_json(path, remedy=remade(path))
    if not isinstance(stored, dict) or stored.get("schema") not in (schema, SEALED):
        raise InputError(f"{path}: made by another version of Vestige (its schema is not {schema}). {OR_DELETE}")
    for name in needed:
        if name not in stored:
            raise _lacking(path, name, OR_DELETE)
    return stored


def write_sealed(path: Path, body: Fields, files: Iterable[Path] = ()) -> None:
    """Write what ends a piece of work, with a checksum of itself and of `files`, which lie with it or below."""
    write_with_seal(path, {**body, "files": {f.relative_to(path.parent).as_posix(): file_digest(f) for f in files}})


def write_with_seal(path: Path, body: Fields) -> None:
    """Write a JSON object with a checksum of itself."""
    whole = {"schema": SEALED, **body}
    write_json(path, {**whole, "seal": content_id(whole, length=64)})


def read_with_seal(path: Path, *needed: str, remedy: str = "") -> Fields:
    """The JSON object in `path` without its checksum, which only a file of an earlier version may lack."""
    if path.exists():
        stored = read_versioned(path, *needed)
        seal = stored.pop("seal", None)
        # Infinity and halves of characters are read, but never written.
        with suppress(ValueError):
            if content_id(stored, length=64) == seal or (seal is None and stored["schema"] < SEALED):
                return stored
    raise _changed(path, remedy or remade(path))


def read_sealed(path: Path, *needed: str, remedy: str = "") -> Fields:
    """Read the output of `write_sealed`, without checksums.

    Refused unless it and its files are as they were, with the advice `remedy` or to make it anew.
    """
    remedy = remedy or remade(path)
    stored = read_with_seal(path, *needed, "files", "seal", remedy=remedy)
    files = stored.pop("files")
    if not isinstance(files, dict):
        raise _changed(path, remedy)
    for name, digest in files.items():
        file = path.parent / name
        if not file.is_file() or file_digest(file) != digest:
            raise _changed(file, remedy)
    return stored


def _changed(file: Path, remedy: str) -> InputError:
    return InputError(f"{file} is gone or was changed after it was written. {remedy}")


def remade(path: Path) -> str:
    """The advice for a damaged file that Vestige wrote: the command to run, and the result that it makes again."""
    return f"Delete {path} and run the command that made it again. It makes the {_REMADE.get(path.stem, 'file')} anew"


def unsealed(path: Path, stored: Fields) -> Fields:
    """The content `stored` of a file as `read_sealed` reads it, or as it is. Earlier versions wrote it unsealed."""
    if stored.keys() & {"files", "seal"} or stored.get("schema") == SEALED:
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
