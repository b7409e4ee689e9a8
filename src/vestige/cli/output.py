"""The folder that a command writes to: what may not lie there, and how `--fresh` starts over without losing anything.

What stands in the folder is moved beside it (`.NAME.before-fresh`, then `-2` and so on) in one rename, and is deleted
when a command in the folder has ended well. A command that is refused before anything was trained puts it back; one
that is killed leaves both, and the same command goes on from there. So at any time the old or the new is whole.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from vestige.artifacts.layout import SubjectFolder
from vestige.cli.asked import say
from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.core.text import one_line

_LOCK = ".lock"


@contextlib.contextmanager
def output_in(folder: Path, *, fresh: bool, made_by: str, inputs: Sequence[str | None] = ()) -> Iterator[None]:
    """The folder, ready for a command to work in; with `fresh` it is empty, and refused if Vestige did not make it.

    `made_by` is a file whose presence shows that the folder is one of Vestige's. An input that lies in the folder, or
    is the folder, is refused, and so is a folder in which another command is at work. A folder that was empty is empty
    again after an error that came before anything was trained.
    """
    for name in inputs:
        if name is not None and Path(name).expanduser().resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{one_line(name)} lies in the output folder {folder}; choose another --output-dir")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose a folder with --output-dir")
    folder = folder.absolute()
    _put_back(folder)  # a command that was killed may have left the folder's place empty
    if fresh and not _is_empty(folder):
        _move_aside(folder, made_by)
    was_empty, was_there = _is_empty(folder), folder.exists()
    try:
        yield
    except Exception:
        if was_empty:
            _withdraw(folder, was_there=was_there)
        raise
    for old in _set_aside(folder):
        _delete(old, folder)
    shutil.rmtree(_deleted(folder), ignore_errors=True)  # the rest of one that a kill cut short


def _is_empty(folder: Path) -> bool:
    return not folder.exists() or all(p.name == _LOCK for p in folder.iterdir())


def _set_aside(folder: Path) -> list[Path]:
    """What earlier commands moved aside, oldest first."""
    name = f".{folder.name}.before-fresh"
    found = [p for p in folder.parent.glob(f"{_literal(name)}*") if p.name == name or _number(p, name)]
    return sorted(found, key=lambda p: _number(p, name))


def _literal(name: str) -> str:
    """The name as a pattern that matches itself alone."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _number(path: Path, name: str) -> int:
    rest = path.name.removeprefix(f"{name}-")
    return int(rest) if rest.isdecimal() else 0


def _move_aside(folder: Path, made_by: str) -> None:
    if not any(folder.glob(made_by)):
        raise InputError(f"{folder} was not made by Vestige (it holds no {made_by}), so --fresh leaves it alone")
    if folder.is_symlink() or folder.is_mount() or Path.cwd().is_relative_to(folder.resolve()):
        raise InputError(
            f"{folder} is a link, a mounted disk or the folder you are in, and --fresh cannot move it aside; choose "
            "another --output-dir"
        )
    before = _set_aside(folder)
    name = f".{folder.name}.before-fresh"
    aside = folder.with_name(f"{name}-{max(2, _number(before[-1], name) + 1)}" if before else name)
    with locked(folder / _LOCK, patience_seconds=0):
        os.replace(folder, aside)
    say(f"what stood in {folder} is kept in {aside} until this is done")


def _put_back(folder: Path) -> None:
    """Put what was moved aside last into its place, if nothing stands there."""
    before = _set_aside(folder)
    if not before or not _is_empty(folder):
        return
    if folder.exists():
        with locked(folder / _LOCK, patience_seconds=0):
            _delete(folder, folder)
    os.replace(before[-1], folder)
    say(f"{before[-1]} was put back as {folder}")


def _withdraw(folder: Path, *, was_there: bool) -> None:
    """Empty the folder again and put back what was moved aside, unless something was trained or finished there."""
    subject = SubjectFolder(folder)
    kept = [str(p.relative_to(folder)) for p in (subject.training_log, subject.done)]
    if folder.exists() and not any(any(folder.rglob(name)) for name in kept):
        # Another command may have come first; then the folder is its own.
        with contextlib.suppress(InputError), locked(folder / _LOCK, patience_seconds=0):
            _delete(folder, folder)
            if was_there:
                folder.mkdir()
    if not folder.exists() or not any(folder.iterdir()):
        _put_back(folder)


def _deleted(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.deleted")


def _delete(path: Path, folder: Path) -> None:
    """Delete what stood in the folder; killed meanwhile, what is left has a name that nobody takes for the whole."""
    shutil.rmtree(_deleted(folder), ignore_errors=True)
    os.replace(path, _deleted(folder))
    shutil.rmtree(_deleted(folder))
