"""Manage a command's output folder: input files inside are rejected, and `--fresh` starts over without data loss.

Old Vestige files move to `.before-fresh` in the folder until a command there ends successfully. One that is refused
before anything was trained puts it back. So at any time the old or the new is whole. Files of other names stay where
they are.
"""

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.artifacts.layout import SubjectFolder, own_entries, refuse_strangers
from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.core.progress import say
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.data.corpus import NamedSplits


def say_next(*words: object) -> None:
    """Print the next command, ready to be typed."""
    say(f"next: {shlex.join(['vestige', *(one_line(str(word), width=500) for word in words)])}")


def refuse_torchrun(command: str) -> None:
    """Raise an error for `command` under torchrun, because each process would do all the work in one folder."""
    n = os.environ.get("WORLD_SIZE", "1")
    if n != "1":
        raise InputError(
            f"torchrun started {n} processes, and `vestige {command}` does not share its work among them. Start it "
            "without torchrun"
        )


_LOCK = ".lock"
_ASIDE, _MOVING = ".before-fresh", ".before-fresh.partial"


@contextlib.contextmanager
def output_in(
    folder: Path, *, fresh: bool, made_by: Sequence[str], inputs: Sequence[str | None] = ()
) -> Iterator[None]:
    """Prepare an output folder, lock it, and yield it. With `fresh`, remove Vestige's own files first.

    `made_by` lists files that show that Vestige wrote the folder. Vestige refuses a folder that is an input or contains
    one, that contains foreign files, or in which another command runs. If an error occurs before training, a folder
    that was empty is empty again.
    """
    for name in inputs:
        if name is not None and Path(name).expanduser().resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{one_line(name)} is in the output folder {folder}. Choose another --output-dir")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Choose a folder with --output-dir")
    folder = folder.absolute()
    was_there = folder.exists()
    if was_there:
        # This lock only covers the move: the step that then works in the folder takes the same lock.
        with locked(folder / _LOCK, patience_seconds=0):
            _prepare(folder, fresh=fresh, made_by=made_by)
    # The check comes after the move, so that --fresh counts as empty and a rejected command restores the old files.
    was_empty = not own_entries(folder)
    try:
        yield
    except Exception:
        # Ctrl-C is not an Exception: the files stay, and the same command continues. Another command may use the folder
        # by then, which keeps its files.
        with contextlib.suppress(InputError):
            if was_empty:
                _withdraw(folder, was_there=was_there)
        raise
    _delete(folder, [folder / _ASIDE])


def _prepare(folder: Path, *, fresh: bool, made_by: Sequence[str]) -> None:
    """Restore files that a killed process moved and did not replace. With `fresh`, move the existing files aside."""
    aside, moving = folder / _ASIDE, folder / _MOVING
    # A kill between the moves leaves only a part of the old files here.
    _put_back(moving)
    if not own_entries(folder):
        _put_back(aside)
    entries = own_entries(folder)
    if entries and not any(any(folder.glob(name)) for name in made_by):
        raise InputError(
            f"{folder} holds {one_line(entries[0].name, width=80)} and nothing of this command's "
            f"({' or '.join(made_by)}). Choose another --output-dir, such as {folder.name}/new"
        )
    if not (fresh and entries):
        return
    refuse_strangers(folder, entries)
    if aside.exists():
        _delete(folder, entries)  # the unfinished new of an earlier --fresh; the old stays aside
        return
    moving.mkdir()
    for entry in entries:
        os.replace(entry, moving / entry.name)
    # The rename is atomic: the next command restores the files of a run killed before it.
    os.replace(moving, aside)
    say(f"what stood in {folder} is kept in {aside} until this is done")


def _withdraw(folder: Path, *, was_there: bool) -> None:
    """Remove the output of a command that finished no training, and restore the files that were moved aside."""
    subject = SubjectFolder(folder)
    if not folder.exists():
        return
    with locked(folder / _LOCK, patience_seconds=0):
        entries = own_entries(folder)
        results = [str(p.relative_to(folder)) for p in (subject.training_log, subject.done)]
        for entry in entries:
            for path in (entry, *entry.rglob("*")):
                if any(map(path.match, results)):
                    return
        _delete(folder, entries)
        _put_back(folder / _ASIDE)
        if not own_entries(folder):
            (folder / _LOCK).unlink()
    if not was_there:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _put_back(source: Path) -> None:
    if source.exists():
        for entry in source.iterdir():
            os.replace(entry, source.parent / entry.name)
        source.rmdir()
        say(f"the earlier contents of {source.parent} were put back")


def _delete(folder: Path, entries: Sequence[Path]) -> None:
    # After a kill, the remains have an unused name, and the next command deletes them.
    trash = folder / ".deleted"
    shutil.rmtree(trash, ignore_errors=True)
    for entry in filter(Path.exists, entries):
        trash.mkdir(exist_ok=True)
        os.replace(entry, trash / entry.name)
    shutil.rmtree(trash, ignore_errors=True)


def say_notes(splits: "NamedSplits") -> None:
    """Print the notes on how the data was matched."""
    for sentence in splits.told:
        say(one_line(sentence, width=500))
