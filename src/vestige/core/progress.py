"""Notes and progress on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator

from vestige.core.text import one_line

SPEAKING = False
"""Whether notes are printed, and progress at once if stderr is not a terminal. The command line sets it."""
QUIET = False
"""Whether there is no progress at all: `vestige --quiet`."""
LISTENER: "OnShare | None" = None
"""In a worker, this function receives the progress instead of a terminal."""


def say(line: str) -> None:
    """Print a line for people on stderr. Of several processes the first one prints it."""
    if SPEAKING and os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


OnShare = Callable[[float], None]
"""Receives the finished share of a task, from 0 to 1."""
Show = Callable[[float, str], None]
"""Receives the finished share and a note for people."""


@contextlib.contextmanager
def progress_bar(title: str, *, visible: bool = True) -> Iterator[Show]:
    """Yield a function of the finished share (0 to 1) and a note. It does nothing without `visible`."""
    if LISTENER:
        heard = LISTENER
        yield lambda share, _note: heard(share)
        return
    if not visible or QUIET:
        yield lambda _share, _note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    started, pace = time.monotonic(), Pace()
    # Jupyter shows the bar in the notebook's output.
    if not (console.is_terminal or console.is_jupyter):
        yield _plain_lines(title, started)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        # Names in a note may contain [brackets], which rich would interpret as markup.
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=1.0, left="", note="")

        def show(share: float, note: str) -> None:
            time_text = pace.left(share, time.monotonic() - started)
            progress.update(task, completed=share, left=time_text, note=one_line(note, width=60))

        yield show


def _plain_lines(title: str, started: float) -> Show:
    # One line every half minute: a log must stay readable. The first line of a command comes at once, and Python calls
    # that take less than half a minute print none.
    last, pace = -30.0 * SPEAKING, Pace()

    def show(share: float, note: str) -> None:
        nonlocal last
        now = time.monotonic() - started
        left = pace.left(share, now)
        if now - last >= 30 and share < 1:
            last = now
            parts = (f"{title}: {100 * share:.0f} %", left, one_line(note, width=100))
            print(", ".join(filter(None, parts)), file=sys.stderr, flush=True)

    return show


class Pace:
    """The remaining time in words, from the pace of the last half of the time. Earlier runs do not count."""

    def __init__(self) -> None:
        self._points = deque([(0.0, 0.0)])

    def left(self, share: float, elapsed: float) -> str:
        """Take note of the share done after `elapsed` seconds, and return the time left. Empty without a pace."""
        self._points.append((elapsed, share))
        while len(self._points) > 1 and self._points[1][0] <= elapsed / 2:
            self._points.popleft()
        then, done = self._points[0]
        # The pace of the first hundredths includes loading.
        if share < 0.02 or share >= 1 or share <= done:
            return ""
        seconds = (elapsed - then) * (1 - share) / (share - done)
        if seconds >= 90:
            return f"about {seconds / 60:.0f} min left"
        return f"about {seconds:.0f} s left"
