"""Rows from the user's files: JSON Lines, JSON, CSV, TSV, Parquet.

Bytes in, rows out, and nothing more: no pickle, no code, no guess about a damaged file. Whatever is wrong is an
InputError that names the file and the line or row. Lines count from 1 with the header, rows without it.
"""

import csv
import io
import json
import math
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import open_input, read_bytes
from vestige.core.text import Fields, Names, Record, one_line


@dataclass(frozen=True)
class TableRow:
    """One row: its position ("line 3") and its values by column."""

    place: str
    values: Record


@dataclass(frozen=True)
class SourceTable:
    """The rows of one source, and all their columns, in order of first appearance."""

    source: str
    names: Names
    rows: tuple[TableRow, ...]


def read_table(path: Path) -> SourceTable:
    """Return the rows of the file at `path`, read by its extension."""
    reader = FORMS.get(path.suffix.lower())
    if packed_as(path):
        raise InputError(f"{path}: the file is compressed. Decompress it first.")
    if reader is None:
        raise InputError(f"{path}: unknown suffix {path.suffix!r}. Give one of {', '.join(FORMS)}")
    content = file_bytes(path)
    if not content.removeprefix(_BOM).strip():
        raise InputError(f"{path}: the file is empty. Give a file with rows")
    return reader(str(path), content)


def packed_as(path: Path) -> str:
    """Return the suffix of a compressed file's name, or "" for another file."""
    ending = path.suffix.lower()
    return ending if ending in (".gz", ".zst", ".xz", ".bz2", ".zip") else ""


def file_bytes(path: Path) -> bytes:
    """Return a file's content."""
    try:
        return as_utf8(read_bytes(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}). Check the path") from error


def as_utf8(content: bytes) -> bytes:
    """Convert UTF-16 text, which Excel writes as "Unicode text", to UTF-8. Other and damaged content is unchanged."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        with suppress(UnicodeDecodeError):
            # The head of a file may end within a character.
            return getincrementaldecoder("utf-16")().decode(content).encode()
    return content


def as_rows(source: str, value: Any, *, whole: bool = True) -> Any:
    """The rows of a table as pandas writes it with orient="split". Any other value as it is.

    Args:
        source: The name of the file.
        value: The JSON value of the file.
        whole: The last row is not cut off.

    Raises:
        InputError: A row has more or fewer cells than there are columns.
    """
    match value:
        case {"columns": [str(), *_] as names, "data": [list(), *_] as rows}:
            _refuse_doubled(source, names)
            if whole and any(len(row) != len(names) for row in rows):
                raise InputError(f"{source}: a row has more or fewer cells than there are columns. Correct it.")
            return [dict(zip(names, row, strict=False)) for row in rows]
    return value


def text_lines(path: Path) -> list[str]:
    """The lines of a plain text file that are not blank, without the blanks around them. There is one at least."""
    # `splitlines` would also break at U+2028 and other signs within texts.
    lines = [line.strip() for line in decoded(str(path), file_bytes(path)).split("\n")]
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise InputError(f"{path}, line {number}: holds a NUL character. Remove it")
    if not any(lines):
        raise InputError(f"{path}: the file has no lines. Give a file with rows")
    return [line for line in lines if line]


def streamed(path: Path) -> Iterator[TableRow]:
    """The rows of a file, one at a time. JSON Lines are read row by row."""
    if path.suffix.lower() not in _LINES:
        yield from read_table(path).rows
        return
    try:
        with open_input(path) as file:
            yield from _rows_of(str(path), file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}). Check the path") from error


def column_names(path: Path) -> frozenset[str]:
    """Return the columns of a file. For JSON Lines, those in the first row."""
    if path.suffix.lower() in _LINES:
        return frozenset(next((row.values for row in streamed(path)), {}))
    return frozenset(read_table(path).names)


def shown(names: Iterable[str]) -> str:
    """Column names, which may hold anything, for one line of an error."""
    return ", ".join(one_line(repr(name), width=60) for name in names) or "none"


def decoded(source: str, content: bytes, *, first: int = 1) -> str:
    """UTF-8 text, whose first line has the number `first`, without a byte order mark."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = first + content.count(b"\n", 0, error.start)
        raise InputError(
            f"{source}, line {line}: not UTF-8 text. Save it as UTF-8 (iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW)"
        ) from error


def parsed(source: str, text: str, *, line: int | None = None) -> Any:
    """The JSON value in `text`. Invalid JSON is rejected, and so are NaN, infinities and duplicate keys."""
    try:
        return json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_number)
    except json.JSONDecodeError as error:
        where = f"{source}, line {line or error.lineno}, column {error.colno}"
        raise InputError(f"{where}: not JSON ({error.msg}). Correct the file") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        if line is None:
            where = source
        else:
            where = f"{source}, line {line}"
        raise InputError(f"{where}: not JSON that can be used ({reason}). Correct it") from error


def separated(source: str, content: bytes, delimiters: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table that are not empty, numbered, as cells.

    The delimiter is the one that Excel's first line `sep=;` states, otherwise the commonest of `delimiters` in the
    header.
    """
    text = decoded(source, content)
    stated = _SEP.match(text)
    if stated:
        # An empty line preserves the line numbers.
        text = text[stated.end() :]
    # Only the header is used, since any of the signs may be in the text of a row.
    header = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = stated[1] if stated else max(delimiters, key=header.count)
    # By default, csv rejects cells of more than 131,072 characters, and texts can be longer.
    csv.field_size_limit(_LONGEST)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 1
    try:
        for cells in reader:
            # Spreadsheets put rows of empty cells at the end of tables.
            if any(cell.strip() for cell in cells):
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{source}, line {number}: cannot be split into cells ({error}). Correct it") from error


DELIMITERS = ",;\t|"
"""The signs that may separate the cells of a .csv file."""
_SEP = re.compile(r'"?sep=([,;\t|])"?(?=\r?\n)', re.IGNORECASE)
_BOM = b"\xef\xbb\xbf"
_LINES = (".jsonl", ".ndjson")
_LONGEST = 2**31 - 1
"""The longest cell, and the most bytes that a packed file may hold."""


def _table(source: str, rows: Iterable[TableRow]) -> SourceTable:
    rows = tuple(rows)
    if not rows:
        raise InputError(f"{source}: has no rows. Give a file with rows")
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row.values)
    return SourceTable(source, tuple(names), rows)


def _json_lines(source: str, content: bytes) -> SourceTable:
    return _table(source, _rows_of(source, content.split(b"\n")))


def _rows_of(source: str, lines: Iterable[bytes]) -> Iterator[TableRow]:
    for number, line in enumerate(lines, 1):
        if line.removeprefix(_BOM).strip():
            text = decoded(source, line, first=number)
            yield _row(source, f"line {number}", parsed(source, text, line=number))


def _json(source: str, content: bytes) -> SourceTable:
    """A list of objects, an object with one under "data", or (as TOFU publishes .json) an object a line."""
    text = decoded(source, content)
    try:
        value = as_rows(source, parsed(source, text))
    except InputError as error:
        # More data follow the first object: the file is JSON Lines with the suffix .json.
        if getattr(error.__cause__, "msg", "") == "Extra data" and text.lstrip().startswith("{"):
            return _json_lines(source, content)
        raise
    if isinstance(value, dict) and "data" in value:
        others = [name for name, inner in value.items() if isinstance(inner, list) and name != "data"]
        if others:
            raise InputError(f"{source}: contains other lists next to data ({shown(others)}). Give one list of objects")
        value = value["data"]
    elif isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise InputError(
            f'{source}: holds {kind_of(value)} in place of rows. Give a list of objects or {{"data": [...]}}'
        )
    return _table(source, (_row(source, f"row {i}", row) for i, row in enumerate(value, 1)))


def _row(source: str, place: str, value: Any) -> TableRow:
    if not isinstance(value, dict):
        raise InputError(f'{source}, {place}: holds {kind_of(value)}, not an object like {{"question": ...}}')
    return TableRow(place, value)


def _with_header(source: str, lines: Iterable[tuple[int, list[Any]]]) -> SourceTable:
    # The file is not empty, so it has a header.
    (_, header), *rows = lines
    for number, cells in rows:
        if len(cells) != len(header):
            raise InputError(
                f"{source}, line {number}: has {len(cells)} cells where the header has {len(header)} "
                f"({shown(header)}). Begin with the header, and quote cells that hold a separator or a line break"
            )
    # Spreadsheets also write columns without a name and without content.
    columns = {column for column, name in enumerate(header) if name.strip()}
    for _, cells in rows:
        columns |= {column for column, cell in enumerate(cells) if cell.strip()}
    _refuse_doubled(source, [header[column] for column in sorted(columns)])
    table_rows = []
    for number, cells in rows:
        values = {header[column]: cells[column] for column in sorted(columns)}
        table_rows.append(TableRow(f"line {number}", values))
    return _table(source, table_rows)


def _parquet(source: str, content: bytes) -> SourceTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stored = pq.read_table(pa.BufferReader(content), use_threads=False)
        rows = stored.to_pylist()
    # Other errors than Arrow's own: invalid text, dates outside Python's range, wrong lengths.
    except Exception as error:
        raise InputError(f"{source}: not a Parquet file that can be read ({one_line(str(error))})") from error
    _refuse_doubled(source, stored.schema.names)
    return _table(source, (TableRow(f"row {i}", row) for i, row in enumerate(rows, 1)))


class _Number(float):
    """A number that prints as it was written: 1.10 and 1.1 are different answers."""

    def __init__(self, text: str) -> None:
        """The number that the text writes."""
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _number(text: str) -> float:
    """A number as it is written, if it is one: 1e999 is infinite."""
    if math.isfinite(float(text)):
        return _Number(text)
    return float(text)


def _refuse_doubled(source: str, names: Sequence[str]) -> None:
    if doubled := _doubled(names):
        raise InputError(
            f"{source}: several columns have the name {shown(doubled)}. Rename or remove one, and begin "
            "the file with the header"
        )


def _no_key_twice(pairs: list[tuple[str, Any]]) -> Fields:
    if doubled := _doubled([key for key, _ in pairs]):
        raise ValueError(f"the key {shown(doubled)} is given twice")
    return dict(pairs)


def _doubled(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value; write null for a missing number")


def kind_of(value: Any) -> str:
    """The kind of a value, for a message."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


FORMS: Mapping[str, Callable[[str, bytes], SourceTable]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": lambda source, content: _with_header(source, separated(source, content, DELIMITERS)),
    ".tsv": lambda source, content: _with_header(source, separated(source, content, "\t")),
    ".parquet": _parquet,
}
"""The forms of file that can be read, by extension."""
