"""Tasks of one command, made by the engine of cells. A task that is done does nothing, so that a run can resume.

A task is a cell whose key is its place in the plan. Its request travels in memory, and what is known of it, leases and
progress, lies in a temporary folder for as long as the command runs.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import StudyState
from vestige.core import errors
from vestige.steps.engine import Failure, Status, StudyCell, run_cells

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


@dataclass
class State:
    """How far a plan is: each task's share done and its weight, what runs, what failed and why."""

    shares: dict[str, float]
    weights: dict[str, float]
    running: set[str] = field(default_factory=set)
    failed: dict[str, Exception] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)

    @property
    def share(self) -> float:
        """The share done of the whole plan, whose tasks cost unequally."""
        return sum(self.weights[name] * share for name, share in self.shares.items()) / sum(self.weights.values())

    @property
    def at_work(self) -> str:
        """The names of what runs, for people."""
        return ", ".join(sorted(self.running))


def run_tasks(
    tasks: Sequence[Task],
    *,
    workers: int,
    show: Callable[[State], None] = lambda _: None,
) -> dict[str, Exception]:
    """Run the tasks in an order that respects `after`; the failures by task name.

    Each worker sees one GPU, which it shares where there are fewer. With no workers they run in this process, one
    after the other, and an error ends them. A task whose predecessor failed is left out. Raises Interrupted on Ctrl-C,
    after stopping the processes, and MachineError when one of them was killed.
    """
    state = State({t.name: 0.0 for t in tasks}, {t.name: t.weight for t in tasks})
    plan = tuple(_ordered(tasks))
    if not workers:
        # In this process, as a worker of another engine runs it: an error is the caller's to handle.
        for task in plan:
            task.run(**task.arguments, report=lambda _: None)
            state.shares[task.name] = 1.0
            show(state)
        return {}
    with tempfile.TemporaryDirectory(prefix="vestige-run-") as folder:
        state_folder = StudyState(Path(folder))
        names = {cell.key: cell.name for cell in _cells(plan)}

        def tell(status: Status) -> None:
            _update(state, plan, {names[key] for key in status.done}, _named(status.failed, names))
            state.running = {names[key] for key in status.at_work} - {n for n, s in state.shares.items() if s == 1.0}
            for key in status.at_work:
                with contextlib.suppress(FileNotFoundError, ValueError):
                    # A late word must not make a task look done, or a done one undone.
                    if names[key] in state.running:
                        state.shares[names[key]] = min(float((state_folder.path / f"share-{key}").read_text()), 0.999)
            show(state)

        failed = run_cells(
            state_folder,
            partial(_cells, plan),
            partial(_run, folder),
            jobs=workers,
            preload=PRELOADED,
            restart=False,
            show=tell,
        )
        return _named(failed, names)


def _ordered(tasks: Sequence[Task]) -> Iterator[Task]:
    """Each task after those that it waits for, and else in the order of the plan."""
    waiting = {task.name: task for task in tasks}
    while waiting:
        yield waiting.pop(next(name for name, task in waiting.items() if waiting.keys().isdisjoint(task.after)))


def _cells(tasks: Sequence[Task]) -> list[StudyCell]:
    keys = {task.name: f"{number}" for number, task in enumerate(tasks)}
    return [StudyCell(keys[t.name], "task", t.name, tuple(keys[name] for name in t.after), t) for t in tasks]


def _named(failed: Mapping[str, Failure], names: Mapping[str, str]) -> dict[str, Exception]:
    """The failures as the errors that they were, by the task's name."""
    return {names[key]: getattr(errors, error, TaskError)(reason) for key, (error, reason) in failed.items()}


def _update(state: State, plan: Sequence[Task], done: set[str], failed: dict[str, Exception]) -> None:
    state.failed = failed
    state.shares.update(dict.fromkeys(done, 1.0))
    for task in plan:
        if any(name in failed or name in state.skipped for name in task.after):
            state.skipped.add(task.name)


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
