"""The folder that a command writes to: what may not lie there, and how `--fresh` starts over without losing anything.

What Vestige wrote there is moved to `.before-fresh` in the folder, and is deleted when a command in the folder has
ended well. Files of other names stay where they are. `.fresh.json` says which command line started over, so that the
same one, killed, goes on instead of starting over again. A command that is refused before anything was trained puts the
old back. So at any time the old or the new is whole.

And progress on stderr: a bar with the time left on a terminal, plain lines elsewhere.
"""

import contextlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.own_files import own_entries, refuse_strangers
from vestige.core.errors import InputError
from vestige.core.files import locked, read_json, write_json
from vestige.core.ids import content_id
from vestige.core.text import one_line

QUIET = False
"""Whether `vestige --quiet` was given: no notes and no progress."""


def say(line: str) -> None:
    """A line for people, on stderr; of several processes the first one says it, and none if it is to be quiet."""
    if not QUIET and os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def say_next(*words: object) -> None:
    """The command that comes next, as it can be typed."""
    say(f"next: {shlex.join(['vestige', *(one_line(str(word), width=500) for word in words)])}")


def refuse_torchrun(command: str) -> None:
    """Refuse several processes that would each do the whole of what `command` does, in one folder."""
    n = os.environ.get("WORLD_SIZE", "1")
    if n != "1":
        raise InputError(
            f"torchrun started {n} processes, and `vestige {command}` does not share its work among them; start it "
            "without torchrun"
        )


_LOCK = ".lock"
_NOBODY, _CLEARING = "nobody", "clearing"


@contextlib.contextmanager
def output_in(
    folder: Path, *, fresh: bool, made_by: Sequence[str], inputs: Sequence[str | None] = ()
) -> Iterator[None]:
    """The folder, ready for a command to work in; with `fresh` nothing of Vestige's is in it, unless it is resumed.

    `made_by` are files, one of which is there where Vestige made what is in the folder. Refused are an input that lies
    in the folder or is the folder, a folder that holds files of others where Vestige's would go, and one in which
    another command is at work. A folder that held nothing holds nothing again after an error that came before anything
    was trained.
    """
    for name in inputs:
        if name is not None and Path(name).expanduser().resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{one_line(name)} lies in the output folder {folder}; choose another --output-dir")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose a folder with --output-dir")
    output = _OutputFolder(folder.absolute())
    was_there = output.folder.exists()
    output.prepare(fresh=fresh, made_by=made_by)
    was_empty = not own_entries(output.folder)
    try:
        yield
    except Exception as error:
        # Another command may be at work there by now; then the folder is its own.
        with contextlib.suppress(InputError):
            if was_empty:
                output.withdraw(was_there=was_there)
            elif fresh and isinstance(error, InputError):
                output.disown()
        raise
    output.finish()


class _OutputFolder:
    """The folder, what was moved aside in it, and the note of the command line that started over.

    Without the note, what lies aside is what a move left that was cut short, and goes back.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._aside, self._note = folder / ".before-fresh", folder / ".fresh.json"

    def prepare(self, *, fresh: bool, made_by: Sequence[str]) -> None:
        """Bring what a kill left into order; with `fresh` start over, or go on with what the same words began."""
        if not self.folder.exists() and not fresh:
            return
        with self._locked():
            if self._begun_by() == _CLEARING:
                self._clear()
            if self._aside.exists() and (not self._note.exists() or not own_entries(self.folder)):
                self._put_back()
            entries = own_entries(self.folder)
            if entries and not any(match for name in made_by for match in self.folder.glob(name)):
                raise InputError(
                    f"{self.folder} holds {one_line(entries[0].name, width=80)} and nothing of this command's "
                    f"({' or '.join(made_by)}); choose another --output-dir, such as {self.folder.name}/new"
                )
            if fresh:
                self._start_over(entries)

    def _start_over(self, entries: Sequence[Path]) -> None:
        this = content_id(sys.argv[1:])
        if entries and self._begun_by() == this:
            say(f"resuming in {self.folder}: an earlier --fresh run of this command was stopped")
            return
        refuse_strangers(self.folder, entries)
        if entries and self._aside.exists():
            self._clear()  # the unfinished new of another command line; the old stays aside
        elif entries:
            self._note.unlink(missing_ok=True)
            self._aside.mkdir()
            for entry in entries:
                os.replace(entry, self._aside / entry.name)
            say(f"what stood in {self.folder} is kept in {self._aside} until this is done")
        write_json(self._note, {"schema": 1, "command": this})

    def withdraw(self, *, was_there: bool) -> None:
        """Leave nothing of a command that trained and finished nothing, and put back what was moved aside."""
        subject = SubjectFolder(self.folder)
        if not self.folder.exists():
            return
        with self._locked():
            results = [str(p.relative_to(self.folder)) for p in (subject.training_log, subject.done)]
            entries = own_entries(self.folder)
            if any(p.match(name) for name in results for entry in entries for p in (entry, *entry.rglob("*"))):
                return
            self._clear()
            self._put_back()
            if not own_entries(self.folder):
                (self.folder / _LOCK).unlink()
        if not was_there:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def disown(self) -> None:
        """After a refusal of what was resumed: the next command with --fresh starts over."""
        with self._locked():
            if self._note.exists():
                write_json(self._note, {"schema": 1, "command": _NOBODY})

    def finish(self) -> None:
        """Delete what was moved aside, now that the new is done."""
        # Killed meanwhile, what is left has a name that nobody takes for the whole.
        self._delete([self._aside] if self._aside.exists() else [])
        self._note.unlink(missing_ok=True)

    def _begun_by(self) -> str:
        return str(read_json(self._note).get("command")) if self._note.exists() else ""

    def _clear(self) -> None:
        write_json(self._note, {"schema": 1, "command": _CLEARING})
        self._delete(own_entries(self.folder))

    def _put_back(self) -> None:
        self._note.unlink(missing_ok=True)
        if self._aside.exists():
            for entry in self._aside.iterdir():
                os.replace(entry, self.folder / entry.name)
            self._aside.rmdir()
            say(f"the earlier contents of {self.folder} were put back")

    def _delete(self, entries: Sequence[Path]) -> None:
        trash = self.folder / ".deleted"
        shutil.rmtree(trash, ignore_errors=True)  # the rest of one that a kill cut short
        for entry in entries:
            trash.mkdir(exist_ok=True)
            os.replace(entry, trash / entry.name)
        shutil.rmtree(trash, ignore_errors=True)

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.folder / _LOCK, patience_seconds=0)


@contextlib.contextmanager
def progress_bar(title: str, *, visible: bool = True) -> Iterator[Callable[[float, str], None]]:
    """Gives a function of the share done (0 to 1) and a note; the time left is what the pace so far says.

    Where it is not `shown`, since another process shows it, the function does nothing.
    """
    if not visible or QUIET:
        yield lambda _share, _note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    started = time.monotonic()
    if not console.is_terminal:
        with _plain_lines(title, started) as show:
            yield show
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=1.0, left="", note="")

        def show(share: float, note: str) -> None:
            time_text = time_left(share, time.monotonic() - started)
            progress.update(task, completed=share, left=time_text, note=one_line(note, width=60))

        yield show


@contextlib.contextmanager
def _plain_lines(title: str, started: float) -> Iterator[Callable[[float, str], None]]:
    last = [-30.0]

    def show(share: float, note: str) -> None:
        now = time.monotonic() - started
        if now - last[0] >= 30 and share < 1:
            last[0] = now
            parts = (f"{title}: {100 * share:.0f} %", time_left(share, now), one_line(note, width=100))
            print(", ".join(filter(None, parts)), file=sys.stderr, flush=True)

    yield show


def time_left(share: float, elapsed: float) -> str:
    """The time left in words, if the rest goes at the pace so far; nothing before there is a pace."""
    if share < 0.02 or share >= 1:
        return ""
    seconds = elapsed * (1 - share) / share
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
