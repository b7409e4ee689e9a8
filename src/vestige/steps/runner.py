"""Tasks and the processes that run them. A task that is done does nothing, so a run resumes with the same plan.

Each process computes with one thread: on small models two threads of one process cost four times what two processes
of one thread do, and one thread is what makes the bytes the same everywhere.
"""

import contextlib
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from multiprocessing.queues import Queue
from typing import Any

from vestige.core.errors import InputError, Interrupted, MachineError, VestigeError

Report = Callable[[float], None]
"""Told by a task how much of it is done, from 0 to 1."""


@dataclass(frozen=True)
class Task:
    """One piece of work: `run(**arguments, report=...)`, a function at the top of its module, after other tasks."""

    name: str
    run: Callable[..., None]
    arguments: Mapping[str, Any]
    after: tuple[str, ...] = ()
    weight: float = 1.0


class TaskError(Exception):
    """An error that cannot be sent between processes: its class and its message."""


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

    On GPUs each worker has a card of its own. With no workers they run in this process, one after the other, and an
    error ends them. A task whose predecessor failed is left out. Raises Interrupted on Ctrl-C, after stopping the
    processes, and MachineError when one of them was killed.
    """
    state = State({t.name: 0.0 for t in tasks}, {t.name: t.weight for t in tasks})
    if not workers:
        left = {t.name: t for t in tasks}
        while left:
            task = left.pop(next(name for name, t in left.items() if left.keys().isdisjoint(t.after)))
            task.run(**task.arguments, report=lambda _: None)
            state.shares[task.name] = 1.0
            show(state)
        return {}
    with _pool(workers) as (pool, reports):
        waiting = {t.name: t for t in tasks}
        futures: dict[Future[None], Task] = {}
        try:
            while waiting or futures:
                _skip_orphans(waiting, state)
                _submit(pool, waiting, futures, state, workers)
                if not futures:
                    break
                done, _ = wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    _settle(futures.pop(future), future, state)
                _drain(reports, state)
                show(state)
        except KeyboardInterrupt:
            _kill(pool)
            raise Interrupted("stopped; run the same command to go on from here") from None
        except BaseException:
            _kill(pool)
            raise
    return state.failed


def workers_for(device: str, requested: int | None, *, on_cpu: int) -> int:
    """How many processes work on models that go to `device`: on GPUs one a card, else as asked or `on_cpu`.

    Refused are more than there are cards, since two models of one size seldom fit on one.
    """
    if device == "cpu":
        return requested or on_cpu
    import torch

    cards = torch.cuda.device_count() if device in ("auto", "cuda") else 1
    if device == "auto" and not (cards and torch.cuda.is_available()):
        return requested or on_cpu
    if requested is not None and requested > max(1, cards):
        raise InputError(
            f"{requested} workers were asked for, and the device {device!r} is {max(1, cards)} "
            f"card{'s' if cards > 1 else ''}; each process has a card of its own, so lower --workers"
        )
    return requested or max(1, cards)


def _submit(
    pool: ProcessPoolExecutor,
    waiting: dict[str, Task],
    futures: dict[Future[None], Task],
    state: State,
    workers: int,
) -> None:
    """Hand out tasks that can run, the first of the plan first, and no more than there are processes."""
    for name, task in list(waiting.items()):
        if len(futures) >= workers:
            return
        if all(state.shares[a] == 1.0 for a in task.after):
            with _script_left_out():
                futures[pool.submit(_work, task.name, task.run, dict(task.arguments))] = waiting.pop(name)
            state.running.add(name)


@contextlib.contextmanager
def _script_left_out() -> Iterator[None]:
    """Within it a process that is started does not run the program's own script first, as multiprocessing would.

    No task lies there, and a script that audits would audit again, or end in an error unless it is guarded.
    """
    main = vars(sys.modules["__main__"])
    values: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(values)


def _skip_orphans(waiting: dict[str, Task], state: State) -> None:
    for name, task in list(waiting.items()):
        if any(a in state.failed or a in state.skipped for a in task.after):
            del waiting[name]
            state.skipped.add(name)


def _settle(task: Task, future: Future[None], state: State) -> None:
    state.running.discard(task.name)
    try:
        future.result()
        state.shares[task.name] = 1.0
    except BrokenProcessPool as error:
        raise MachineError(
            f"the process that worked on {task.name!r} was killed, as happens when memory runs out; free some and "
            "run the same command again"
        ) from error
    except MachineError:
        raise
    except Exception as error:
        # One failed cell leaves the others standing; it is named at the end with its reason.
        state.failed[task.name] = error


def _drain(reports: "Queue[tuple[str, float]]", state: State) -> None:
    while True:
        try:
            name, share = reports.get_nowait()
        except queue.Empty:
            return
        # A late message must not make a task look done, or a done one undone.
        if name in state.running:
            state.shares[name] = min(share, 0.999)


_reports: "Queue[tuple[str, float]] | None" = None
"""In a worker: the way back to the parent."""


def _work(name: str, run: Callable[..., None], arguments: dict[str, Any]) -> None:
    last = 0.0

    def report(share: float) -> None:
        nonlocal last
        if _reports is not None and time.monotonic() - last > 0.1:
            last = time.monotonic()
            _reports.put((name, share))

    try:
        run(**arguments, report=report)
    except VestigeError:
        raise
    except MemoryError as error:
        raise MachineError(f"{name}: not enough memory; take a smaller model or batch") from error
    # Of any library; it goes on to the parent, which names the task.
    except Exception as error:
        if not _survives(error):
            raise TaskError(f"{type(error).__name__}: {error}") from None
        raise


def _survives(error: Exception) -> bool:
    """Whether an error comes through a pickle as what it is; what does not would look like a killed process."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    # Whatever the error's own class raises when it is put together again.
    except Exception:
        return False


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[tuple[ProcessPoolExecutor, "Queue[tuple[str, float]]"]]:
    context = _context()
    reports: Queue[tuple[str, float]] = context.Queue()
    cards: Queue[str] = context.Queue()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    for number in range(workers):
        cards.put(visible[number] if number < len(visible) and visible[number] else str(number))
    # One process alone takes the device that was asked for, whichever card that is.
    started = (reports, dict(os.environ), cards if workers > 1 else None)
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=started)
    try:
        yield pool, reports
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        reports.close()
        cards.close()


def _context() -> BaseContext:
    """New processes, and on Linux forks of one that has imported what tasks take seconds to import, and no more.

    Elsewhere the systems' own libraries do not survive a fork. That one is reached by a socket in the temporary folder,
    whose name may have 107 bytes.
    """
    if sys.platform != "linux" or len(os.fsencode(tempfile.gettempdir())) > _LONGEST:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    return context


_LONGEST = 70
_PRELOADED = ("vestige.steps.attack", "vestige.steps.finetune", "vestige.steps.unlearn", "vestige.models.tiny")


def _start_worker(
    reports: "Queue[tuple[str, float]]", environment: Mapping[str, str], cards: "Queue[str] | None"
) -> None:
    global _reports
    _reports = reports
    # A forked process has the environment of the first pool.
    os.environ.clear()
    os.environ.update(environment)
    settle_in(started=True, card=None if cards is None else cards.get())
    import torch

    torch.set_num_threads(1)


def settle_in(*, started: bool, card: str | None) -> None:
    """Prepare a worker process: it sees no GPU but `card`, and ends with the process that `started` it, if one did."""
    if card is not None:
        # Before CUDA is asked for anything.
        os.environ["CUDA_VISIBLE_DEVICES"] = card
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if started:
        # Ctrl-C reaches the whole group; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed run must not go on writing beside the one that resumes it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "no process of multiprocessing"
    parent.join()
    os._exit(1)


def _kill(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()
