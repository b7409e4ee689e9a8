"""A roles file assigns logs to models: a CSV file with the columns pattern, role, name and forget set.

A pattern is a path below the folder, in which `*` represents anything. It takes a file, or all below a folder. The
first line that fits a file holds. `role` is target, retrained, unlearned, placebo, or skip. A file that holds several
models has a line for each, whose name is the model's in the file.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import read_bytes
from vestige.core.text import closest, one_line
from vestige.data.tables import DELIMITERS, separated

FILE = "roles.csv"
ROLES = ("target", "retrained", "unlearned", "placebo", "skip")
_COLUMNS = {
    "pattern": "pattern",
    "role": "role",
    "name": "name",
    "forget": "forget",
    "forget set": "forget",
    "base": "base",
}


class RoleLine(NamedTuple):
    """One line of a roles file."""

    pattern: str
    role: str
    name: str = ""
    forget: str = ""
    base: str = ""


def read_roles(path: Path) -> tuple[RoleLine, ...]:
    """The lines of a roles file.

    Raises:
        InputError: The file lacks a column, or a line names no role.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "roles.csv"
        >>> _ = file.write_text("pattern,role,name\\neval/full*,target,full\\n")
        >>> read_roles(file)
        (RoleLine(pattern='eval/full*', role='target', name='full', forget='', base=''),)
    """
    try:
        rows = list(separated(str(path), read_bytes(path, most=2**24), DELIMITERS))
    except OSError as error:
        raise InputError(f"{path}: cannot be read. Give a CSV file in UTF-8.") from error
    lines = []
    names = rows[0][1] if rows else []
    for name in names:
        if name.strip().lower().replace("_", " ") not in _COLUMNS:
            hint = closest(name, list(_COLUMNS))
            raise InputError(f"{path}: a roles file has no column {one_line(name)!r}. {hint}")
    columns = [_COLUMNS[name.strip().lower().replace("_", " ")] for name in names]
    for number, cells in rows[1:]:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) > len(columns):
            raise InputError(f"{path}, line {number}: has more cells than the header. Quote a cell with a separator.")
        values = {column: cell.strip() for column, cell in zip(columns, cells, strict=False)}
        if not values.get("pattern"):
            raise InputError(
                f"{path}, line {number}: has no pattern. Give a path below the folder, such as eval/full*."
            )
        role = values.get("role", "").lower()
        if role not in ROLES:
            raise InputError(f"{path}, line {number}: {one_line(role)!r} is not a role. {closest(role, list(ROLES))}")
        # As Windows writes paths.
        lines.append(RoleLine(**values | {"role": role, "pattern": values["pattern"].replace("\\", "/")}))
    if not lines:
        raise InputError(f"{path}: holds no lines. Write one for each model: pattern,role,name,forget set.")
    return tuple(lines)


def named_by(lines: Sequence[RoleLine], path: Path, root: Path) -> tuple[RoleLine, ...]:
    """Return the lines that match a file: the first match, and other lines with its pattern."""
    place = path.relative_to(root).as_posix()
    first = next((line for line in lines if _fits(line.pattern, place)), None)
    if first is None:
        return ()
    return tuple(line for line in lines if line.pattern == first.pattern)


def _fits(pattern: str, place: str) -> bool:
    pattern = pattern.removeprefix("./").rstrip("/")
    return fnmatchcase(place, pattern) or fnmatchcase(place, f"{pattern}/*")
