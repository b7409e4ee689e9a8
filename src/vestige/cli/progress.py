"""Progress on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from vestige.cli import output
from vestige.core.text import one_line


@contextlib.contextmanager
def progress_bar(what: str, *, shown: bool = True) -> Iterator[Callable[[float, str], None]]:
    """Gives a function of the share done (0 to 1) and a note; the time left is what the pace so far says.

    Where it is not `shown`, since another process shows it, the function does nothing.
    """
    if not shown or output.QUIET:
        yield lambda _share, _note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    started = time.monotonic()
    if not console.is_terminal:
        with _plain_lines(what, started) as show:
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
        task = progress.add_task(what, total=1.0, left="", note="")

        def show(share: float, note: str) -> None:
            left = time_left(share, time.monotonic() - started)
            progress.update(task, completed=share, left=left, note=one_line(note, width=60))

        yield show


@contextlib.contextmanager
def _plain_lines(what: str, started: float) -> Iterator[Callable[[float, str], None]]:
    last = [-30.0]

    def show(share: float, note: str) -> None:
        now = time.monotonic() - started
        if now - last[0] >= 30 and share < 1:
            last[0] = now
            line = f"{what}: {100 * share:.0f} %, {time_left(share, now)} {one_line(note, width=100)}"
            print(line.rstrip(), file=sys.stderr, flush=True)

    yield show


def time_left(share: float, elapsed: float) -> str:
    """The time left in words, if the rest goes at the pace so far; nothing before there is a pace."""
    if share < 0.02 or share >= 1:
        return ""
    seconds = elapsed * (1 - share) / share
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
