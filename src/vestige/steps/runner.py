"""Tasks of one command, made by the engine of cells. A task that is done does nothing, so that a run can resume.

A task is a cell whose key is its place in the plan. Its request travels in memory, and what is known of it, leases and
progress, lies in a temporary folder for as long as the command runs.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import StudyState
from vestige.core import errors
from vestige.steps.engine import Status, StudyCell, run_cells

Report = Callable[[float], None]
"""Told by a task how much of it is done, from 0 to 1."""

PRELOADED = ("vestige.steps.attack", "vestige.steps.finetune", "vestige.steps.unlearn", "vestige.models.tiny")
"""What takes seconds to import, and nearly every task and cell needs."""


@dataclass(frozen=True)
class Task:
    """One piece of work: `run(**arguments, report=...)`, a function at the top of its module, after other tasks."""

    name: str
    run: Callable[..., None]
    arguments: Mapping[str, Any]
    after: tuple[str, ...] = ()
    weight: float = 1.0


class TaskError(Exception):
    """An error that is none of Vestige's own: its class and its message."""


def run_tasks(
    tasks: Sequence[Task],
    *,
    workers: int,
    show: Callable[[float, str], None] = lambda _share, _names: None,
) -> dict[str, Exception]:
    """Run the tasks in an order that respects `after`; the failures by task name.

    `show` is told the share done of the whole plan, by the tasks' weights, and the names of those at work. Each worker
    sees one GPU, which it shares where there are fewer. With no workers they run in this process, one after the other,
    and an error ends them. A task whose predecessor failed is left out. Raises Interrupted on Ctrl-C, after stopping
    the processes, and MachineError when one of them was killed.
    """
    plan = tuple(_ordered(tasks))
    shares, whole = dict[str, float](), sum(task.weight for task in tasks)
    by_key = {cell.key: task for cell, task in zip(_cells(plan), plan, strict=True)}

    def tell(done: Iterable[str], at_work: Iterable[str]) -> None:
        shares.update(dict.fromkeys(done, 1.0))
        names = ", ".join(sorted(by_key[key].name for key in at_work))
        show(sum(by_key[key].weight * share for key, share in shares.items()) / whole, names)

    if not workers:
        # In this process, as a worker of another engine runs it: an error is the caller's to handle.
        for key, task in by_key.items():
            task.run(**task.arguments, report=lambda _: None)
            tell([key], [])
        return {}
    with tempfile.TemporaryDirectory(prefix="vestige-run-") as folder:

        def read(status: Status) -> None:
            for key in (at_work := status.at_work - status.done):
                # Not there before its first word, and empty while that is written.
                with contextlib.suppress(FileNotFoundError, ValueError):
                    # A late word must not make a task look done.
                    shares[key] = min(float(Path(folder, f"share-{key}").read_text()), 0.999)
            tell(status.done, at_work)

        failed = run_cells(
            StudyState(Path(folder)),
            partial(_cells, plan),
            partial(_run, folder),
            jobs=workers,
            preload=PRELOADED,
            restart=False,
            show=read,
        )
    # As the errors that they were, which decide the exit code.
    return {by_key[key].name: getattr(errors, error, TaskError)(reason) for key, (error, reason) in failed.items()}


def _ordered(tasks: Sequence[Task]) -> Iterator[Task]:
    """Each task after those that it waits for, and else in the order of the plan."""
    waiting = {task.name: task for task in tasks}
    while waiting:
        yield waiting.pop(next(name for name, task in waiting.items() if waiting.keys().isdisjoint(task.after)))


def _cells(tasks: Sequence[Task]) -> list[StudyCell]:
    keys = {task.name: f"{number}" for number, task in enumerate(tasks)}
    return [StudyCell(keys[t.name], "task", t.name, tuple(keys[name] for name in t.after), t) for t in tasks]


def _run(folder: str, cell: StudyCell) -> Mapping[str, Any]:
    """Run the task of a cell, in a worker; it says now and then how far it is."""
    last, path = 0.0, Path(folder) / f"share-{cell.key}"

    def report(share: float) -> None:
        nonlocal last
        if time.monotonic() - last > 0.1:
            last = time.monotonic()
            path.write_text(f"{share}")

    task: Task = cell.point
    task.run(**task.arguments, report=report)
    return {}


def workers_for(device: str, requested: int | None, *, on_cpu: int) -> int:
    """How many processes work on models that go to `device`: as asked, else on GPUs one a card, or `on_cpu`.

    More than there are cards share them: a small model does not fill one.
    """
    if device == "cpu":
        return requested or on_cpu
    import torch

    cards = torch.cuda.device_count() if device in ("auto", "cuda") else 1
    if device == "auto" and not (cards and torch.cuda.is_available()):
        return requested or on_cpu
    return requested or max(1, cards)
