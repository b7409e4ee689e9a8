"""Rows from files of people's own: JSON Lines, JSON, CSV, TSV, Parquet, Excel; the text forms also behind gzip.

Bytes in, rows out, and nothing else: no pickle, no code, no guess about a damaged file. Whatever is wrong is
an InputError that names the file and the line or row. Lines count from 1 with the header, rows without it.
"""

import csv
import datetime
import gzip
import io
import json
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vestige.core.errors import InputError
from vestige.core.text import one_line


@dataclass(frozen=True)
class Row:
    """One row: where it stands ("line 3") and its values by column."""

    place: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """The rows of one source, and every column that any of them has, in order of first appearance."""

    source: str
    names: tuple[str, ...]
    rows: tuple[Row, ...]


def read_table(path: Path) -> Table:
    """The rows of the file at `path`, read as its extension says."""
    reader = FORMS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: unknown extension {path.suffix!r}; known: {', '.join(FORMS)}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    if not content.removeprefix(_BOM).strip():
        raise InputError(f"{path}: the file is empty")
    return reader(str(path), content)


def streamed(path: Path) -> Iterator[Row]:
    """The rows of a file, one at a time; of JSON Lines no more is held than a row."""
    if path.suffix.lower() not in _LINES:
        yield from read_table(path).rows
        return
    try:
        with path.open("rb") as file:
            yield from _rows_of(str(path), file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def column_names(path: Path) -> frozenset[str]:
    """The columns of a file; of JSON Lines those of its first row."""
    if path.suffix.lower() in _LINES:
        return frozenset(next((row.values for row in streamed(path)), {}))
    return frozenset(read_table(path).names)


def table(source: str, rows: Iterable[Row]) -> Table:
    """A table of `rows`, which must be at least one."""
    row_list = tuple(rows)
    if not row_list:
        raise InputError(f"{source}: holds no rows")
    return Table(source, tuple(dict.fromkeys(name for row in row_list for name in row.values)), row_list)


def shown(names: Iterable[str]) -> str:
    """Column names, which may hold anything, for one line of an error."""
    return ", ".join(one_line(repr(name), width=60) for name in names) or "none"


_BOM = b"\xef\xbb\xbf"
_LINES = (".jsonl", ".ndjson")
_LONGEST = 2**31 - 1
"""The longest cell, and the most bytes that a packed file may hold."""


def _json_lines(source: str, content: bytes) -> Table:
    return table(source, _rows_of(source, content.split(b"\n")))


def _rows_of(source: str, lines: Iterable[bytes]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        plain = line.removeprefix(_BOM) if number == 1 else line
        if plain.strip():
            value = _parsed(source, _decoded(source, plain, first=number), line=number)
            yield _row(source, f"line {number}", value)


def _json(source: str, content: bytes) -> Table:
    """A list of objects, an object with one under "data", or (as TOFU publishes .json) an object a line."""
    text = _decoded(source, content.removeprefix(_BOM))
    try:
        value = _parsed(source, text)
    except InputError as error:
        # One object ends and more follows: JSON Lines under the name .json.
        if getattr(error.__cause__, "msg", "") == "Extra data" and text.lstrip().startswith("{"):
            return _json_lines(source, content)
        raise
    if isinstance(value, dict):
        value = value.get("data", [value])
    if not isinstance(value, list):
        raise InputError(
            f'{source}: holds {_kind(value)} where rows belong; give a list of objects or {{"data": [...]}}'
        )
    return table(source, (_row(source, f"row {i}", row) for i, row in enumerate(value, 1)))


def _separated(delimiters: str) -> Callable[[str, bytes], Table]:
    """A reader by the first of `delimiters` that the header has: Excel writes semicolons where commas are decimal."""

    def read(source: str, content: bytes) -> Table:
        text = _decoded(source, content.removeprefix(_BOM))
        header = next(line for line in text.splitlines() if line.strip())
        delimiter = next((d for d in delimiters if d in header), delimiters[0])
        csv.field_size_limit(_LONGEST)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        lines: list[tuple[int, list[str]]] = []
        while True:
            number = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                raise InputError(f"{source}, line {number}: cannot be split into cells ({error})") from error
            if cells:
                lines.append((number, cells))
        return _with_header(source, lines)

    return read


def _with_header(source: str, lines: Sequence[tuple[int, list[Any]]]) -> Table:
    if not lines:
        raise InputError(f"{source}: the file is empty")
    header = lines[0][1]
    _refuse_doubled(source, header)
    for number, cells in lines[1:]:
        if len(cells) != len(header):
            raise InputError(
                f"{source}, line {number}: has {len(cells)} cells where the header has {len(header)}; "
                "quote cells that hold a separator or a line break"
            )
    return table(source, [Row(f"line {n}", dict(zip(header, cells, strict=True))) for n, cells in lines[1:]])


def _excel(source: str, content: bytes) -> Table:
    """The first sheet of a workbook. Whole numbers and dates become what a person sees in the cell, dates as in ISO."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError as error:
        raise InputError(
            f"{source}: reading Excel needs python-calamine (pip install 'vestige[excel]'), or save the sheet as CSV"
        ) from error
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            if sum(part.file_size for part in parts.infolist()) > _LONGEST:
                raise InputError(f"{source}: unpacks to more than 2 GiB; split the file")
        sheet = CalamineWorkbook.from_filelike(io.BytesIO(content)).get_sheet_by_index(0).to_python()
    except InputError:
        raise
    # A panic of the library is no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise InputError(f"{source}: not an Excel workbook that can be read ({one_line(str(error))})") from error
    lines = [(n, [_cell(c) for c in cells]) for n, cells in enumerate(sheet, 1) if any(c != "" for c in cells)]
    if not lines:
        raise InputError(f"{source}: the first sheet is empty")
    width = max(i for i, cell in enumerate(lines[0][1], 1) if cell != "") if any(lines[0][1]) else 0
    return _with_header(source, [(n, [*map(str, c[:width])] if n == lines[0][0] else c[:width]) for n, c in lines])


def _cell(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


def _gzipped(source: str, content: bytes) -> Table:
    """A table behind gzip; what is inside is told by the extension before `.gz`."""
    inner = Path(source.lower()).suffixes[-2:-1]
    reader = FORMS.get("".join(inner))
    if reader is None or reader is _gzipped:
        raise InputError(f"{source}: unknown extension before .gz; known: {', '.join(f for f in FORMS if f != '.gz')}")
    try:
        with gzip.open(io.BytesIO(content)) as packed:
            plain = packed.read(_LONGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{source}: not a gzip file that can be read ({one_line(str(error))})") from error
    if len(plain) > _LONGEST:
        raise InputError(f"{source}: unpacks to more than 2 GiB; split the file")
    if not plain.removeprefix(_BOM).strip():
        raise InputError(f"{source}: the file is empty")
    return reader(source, plain)


def _parquet(source: str, content: bytes) -> Table:
    try:
        stored = pq.read_table(pa.BufferReader(content), use_threads=False)
        _refuse_doubled(source, stored.schema.names)
        rows = stored.to_pylist()
    # Beside Arrow's own errors: bytes that are no text, dates that Python has no name for, lying lengths.
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, TypeError, KeyError) as error:
        raise InputError(f"{source}: not a Parquet file that can be read ({one_line(str(error))})") from error
    return table(source, [Row(f"row {i}", row) for i, row in enumerate(rows, 1)])


def _parsed(source: str, text: str, *, line: int | None = None) -> Any:
    """The JSON value in `text`. Refused beside what is no JSON: NaN, infinities, and a key given twice."""
    where = source if line is None else f"{source}, line {line}"
    try:
        return json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_float=_number)
    except json.JSONDecodeError as error:
        spot = f"{source}, line {line or error.lineno}, column {error.colno}"
        raise InputError(f"{spot}: not JSON ({error.msg})") from error
    except ValueError as error:
        raise InputError(f"{where}: not JSON that can be used ({error})") from error
    except RecursionError as error:
        raise InputError(f"{where}: nested too deeply to be read") from error


class _Number(float):
    """A number that prints as it is written: 1.10 is an answer, and 1.1 another."""

    def __init__(self, text: str) -> None:
        """The number that the text writes."""
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _number(text: str) -> float:
    """A number as it is written, if it is one: 1e999 is infinite."""
    return _Number(text) if math.isfinite(float(text)) else float(text)


def _refuse_doubled(source: str, names: Sequence[str]) -> None:
    doubled = _doubled(names)
    if doubled:
        raise InputError(f"{source}: more than one column is called {shown(doubled)}; rename or remove one")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError(f"the key {shown(_doubled([key for key, _ in pairs]))} is given twice")
    return value


def _doubled(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _row(source: str, where: str, value: Any) -> Row:
    if not isinstance(value, dict):
        raise InputError(f'{source}, {where}: holds {_kind(value)}, not an object like {{"question": ...}}')
    return Row(where, value)


def _decoded(source: str, content: bytes, *, first: int = 1) -> str:
    """`content`, whose first line has the number `first`, as text."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first + content.count(b"\n", 0, error.start)
        raise InputError(f"{source}, line {line}: not UTF-8 text; save the file as UTF-8") from error


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


FORMS: Mapping[str, Callable[[str, bytes], Table]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _separated(",;\t"),
    ".tsv": _separated("\t"),
    ".parquet": _parquet,
    ".xlsx": _excel,
    ".gz": _gzipped,
}
"""The forms of file that can be read, by extension."""
