"""Tasks of one command, submitted to an executor of `concurrent.futures`: loky here, Ray on a cluster, Slurm.

A task that is done does nothing, so that the same command continues after an interruption. The scheduler handles the
failure of a worker. Results are in folders that lock themselves, so no scheduler has to remember them.
"""

import contextlib
import os
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from vestige.core import errors
from vestige.core.errors import InputError, Interrupted, MachineError, VestigeError
from vestige.core.progress import Show
from vestige.core.text import Fields, Record, TextByName, TextTuple, closest, one_line
from vestige.core.threads import VARIABLES, one_thread

Failed = tuple[str, str] | None
"""The class and message of a task's error. None if it succeeded."""

ONE_THREAD = dict.fromkeys(VARIABLES, "1")
"""The environment variables of a worker's libraries: their number of threads decides the last digits."""


@dataclass(frozen=True)
class Task:
    """One piece of work: `run(**arguments, report=...)`, a function at the top of its module, after other tasks.

    `kind` names the type of work, for which `Executor` may ask other resources.
    """

    name: str
    run: Callable[..., None]
    arguments: Record
    after: TextTuple = ()
    weight: float = 1.0
    kind: str = ""


class TaskError(Exception):
    """An error that is not one of Vestige's: its class and its message."""


@dataclass(frozen=True)
class Executor:
    """The executor of tasks: `local`, `ray` or `slurm`, with the scheduler's options.

    An option of one type of task begins with its kind: `finetune.num_gpus`.
    """

    name: str = "local"
    options: Record = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject an unknown executor."""
        if self.name not in _POOLS:
            raise InputError(f"There is no executor {one_line(self.name)!r}. {closest(self.name, list(_POOLS))}")

    def of(self, kind: str) -> Fields:
        """The options of one type of task."""
        chosen = {name: value for name, value in self.options.items() if "." not in name}
        for name, value in self.options.items():
            if name.startswith(f"{kind}."):
                chosen[name.removeprefix(f"{kind}.")] = value
        return chosen


class _Pool(Protocol):
    """The part of `concurrent.futures.Executor` that is used, with the task's kind."""

    def submit(self, kind: str, work: Callable[[], Failed]) -> "Future[Failed]":
        """Start a piece of work."""

    def stop(self) -> None:
        """End all work at once."""


def run_tasks(
    tasks: Sequence[Task], *, workers: int, executor: Executor | None = None, show: Show = lambda _share, _names: None
) -> dict[str, Exception]:
    """Run the tasks in an order that respects `after`.

    Args:
        tasks: The tasks. One whose predecessor failed is left out.
        workers: How many run at once. With 0 they run in this process, and an error ends them.
        executor: Where they run. The default is processes of this machine, each with one GPU if there are any.
        show: Receives the plan's finished share, by the tasks' weights, and the names of running tasks.

    Returns:
        The failures by task name.

    Raises:
        Interrupted: On Ctrl-C, after the workers were stopped.
        MachineError: A worker of this machine was killed, or the disk or the memory gave out.
    """
    plan = _Plan(tasks, show)
    if not workers:
        while plan.waiting:
            task = plan.waiting.pop(plan.ready()[0].name)
            task.run(**task.arguments, report=lambda _share: None)
            plan.end(task.name, None)
        return {}
    chosen = executor or Executor()
    with kept_workers(), tempfile.TemporaryDirectory(prefix="vestige-run-") as folder:
        key = f"{workers} {chosen}"
        if key not in _KEPT:
            _KEPT[key] = _POOLS[chosen.name](workers, chosen)
        try:
            return _run_all(plan, _KEPT[key], workers, folder if chosen.name == "local" else "")
        except BaseException as error:
            # Other tasks are running in it.
            _KEPT.pop(key).stop()
            if isinstance(error, KeyboardInterrupt):
                raise Interrupted("stopped. Run the same command to go on from here.") from None
            raise


@contextlib.contextmanager
def kept_workers() -> Iterator[None]:
    """Within it one call of `run_tasks` leaves its processes to the next, since each takes seconds to load torch."""
    _OPEN.append(1)
    try:
        yield
    finally:
        _OPEN.pop()
        while _KEPT and not _OPEN:
            _KEPT.popitem()[1].stop()


_KEPT: "dict[str, _Pool]" = {}
_OPEN: list[int] = []
"""One entry for each `kept_workers` that is open."""


class _Plan:
    """The tasks that wait, are at work, are done and have failed."""

    def __init__(self, tasks: Sequence[Task], show: Show) -> None:
        self.waiting = {task.name: task for task in tasks}
        self.shares = dict.fromkeys(self.waiting, 0.0)
        self.failed: dict[str, Exception] = {}
        self._weights = {task.name: task.weight for task in tasks}
        self._left_out: set[str] = set()
        self._show = show

    def ready(self) -> list[Task]:
        """The tasks that can start. Those that wait for a failed one are left out."""
        found = []
        for task in list(self.waiting.values()):
            if any(name in self.failed or name in self._left_out for name in task.after):
                self._left_out.add(task.name)
                del self.waiting[task.name]
            elif all(self.shares.get(name, 1.0) == 1.0 for name in task.after):
                found.append(task)
        return found

    def end(self, name: str, failed: Failed) -> None:
        """Note that a task ended."""
        if failed is not None:
            kind, message = failed
            # The original error class decides the exit code.
            self.failed[name] = getattr(errors, kind, TaskError)(message)
        else:
            self.shares[name] = 1.0
        self.tell([])

    def tell(self, at_work: Sequence[str]) -> None:
        """Show the progress."""
        whole = sum(self._weights.values()) or 1.0
        done = sum(self._weights[name] * share for name, share in self.shares.items())
        self._show(done / whole, ", ".join(sorted(at_work)))


def _run_all(plan: _Plan, pool: _Pool, workers: int, folder: str) -> dict[str, Exception]:
    running: dict[Future[Failed], str] = {}
    while True:
        for task in plan.ready():
            if len(running) == workers:
                break
            del plan.waiting[task.name]
            share = ""
            if folder:
                share = f"{folder}/share-{len(plan.waiting)}"
            # The task is pickled here, so that a task that cannot be sent fails in the parent.
            work = partial(_work, pickle.dumps(task), share)
            running[pool.submit(task.kind, work)] = task.name
            plan.shares[task.name] = 0.0
            _SHARES[task.name] = share
        if not running:
            return plan.failed
        ended, _ = wait(running, timeout=0.3, return_when=FIRST_COMPLETED)
        for future in ended:
            name = running.pop(future)
            plan.end(name, _outcome(future, name))
        for name in running.values():
            # The file is missing before the worker's first message, and empty while it is written.
            with contextlib.suppress(OSError, ValueError):
                plan.shares[name] = min(float(Path(_SHARES[name]).read_text()), 0.999)
        plan.tell(list(running.values()))


_SHARES: TextByName = {}


def _outcome(future: "Future[Failed]", name: str) -> Failed:
    try:
        failed = future.result()
    except BrokenProcessPool as error:
        raise MachineError(
            f"the process that worked on {name!r} was killed, as happens when memory runs out; "
            "run the same command again, with fewer at once"
        ) from error
    if failed is not None and failed[0] in ("MachineError", "MemoryError"):
        raise MachineError(f"{name}: {failed[1]}")
    return failed


def _work(task: bytes, share: str) -> Failed:
    """Run a task in a worker. It notes now and then how far it is."""
    last = 0.0

    def report(done: float) -> None:
        nonlocal last
        if share and time.monotonic() - last > 0.1:
            last = time.monotonic()
            Path(share).write_text(f"{done}")

    one_thread()
    loaded: Task = pickle.loads(task)
    try:
        loaded.run(**loaded.arguments, report=report)
    except VestigeError as error:
        return type(error).__name__, str(error)
    # Any library error fails only this task. Not every error can be pickled, so its text is sent.
    except Exception as error:
        return type(error).__name__, f"{type(error).__name__}: {error}"
    return None


class _Local:
    """Processes of this machine, by joblib's loky."""

    def __init__(self, workers: int, executor: Executor) -> None:
        from joblib.externals.loky import ProcessPoolExecutor

        if executor.options:
            raise InputError("The executor local has no options. Give --jobs, or another executor.")
        self._folder = tempfile.TemporaryDirectory(prefix="vestige-workers-")
        arguments = os.getpid(), _cards(), self._folder.name
        self._pool = ProcessPoolExecutor(workers, env=ONE_THREAD, initializer=_begin, initargs=arguments)

    def submit(self, kind: str, work: Callable[[], Failed]) -> "Future[Failed]":
        future: Future[Failed] = self._pool.submit(work)
        return future

    def stop(self) -> None:
        self._pool.shutdown(kill_workers=True)
        self._folder.cleanup()


def _cards() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name for name in visible.split(",") if name]
    return names or [str(number) for number in range(count)]


def _begin(parent: int, cards: Sequence[str], folder: str) -> None:
    """A worker sees one GPU, which it shares where there are fewer, and ends with its parent."""
    number = 0
    while True:
        try:
            # Workers that start together each take another number.
            os.close(os.open(f"{folder}/worker-{number}", os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            number += 1
    if cards:
        os.environ["CUDA_VISIBLE_DEVICES"] = cards[number % len(cards)]
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class _Ray:
    """A Ray cluster, or this machine if none runs. Ray repeats a task whose worker or node died."""

    def __init__(self, workers: int, executor: Executor) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise InputError("The executor ray needs Ray. Install it by pip install 'vestige[ray]'.") from None
        self._ray, self._executor = ray, executor
        if not ray.is_initialized():
            running = os.environ.get("RAY_ADDRESS")
            ray.init(address=running or None, log_to_driver=False, runtime_env={"env_vars": ONE_THREAD})
        resources: Any = ray.cluster_resources
        self._with_gpus = resources().get("GPU", 0) > 0

    def submit(self, kind: str, work: Callable[[], Failed]) -> "Future[Failed]":
        # A step uses one GPU where there are any; fractions let several share one.
        options: Fields = {"num_cpus": 1, "max_retries": 5}
        if self._with_gpus:
            options["num_gpus"] = 1
        options |= self._executor.of(kind)
        future: Future[Failed] = self._ray.remote(**options)(_called).remote(work).future()
        return future

    def stop(self) -> None:
        self._ray.shutdown()


def _called(work: Callable[[], Failed]) -> Failed:
    return work()


class _Slurm:
    """Jobs of Slurm by submitit. With `cluster=local` they are processes of this machine."""

    def __init__(self, workers: int, executor: Executor) -> None:
        try:
            import submitit
        except ModuleNotFoundError:
            raise InputError("The executor slurm needs submitit. Install it by pip install 'vestige[slurm]'.") from None
        self._submitit, self._executor = submitit, executor
        # A thread waits for each job, which gives it the interface of concurrent.futures.
        self._threads = ThreadPoolExecutor(workers)
        self._jobs: list[Any] = []

    def submit(self, kind: str, work: Callable[[], Failed]) -> "Future[Failed]":
        options = self._executor.of(kind)
        folder = options.pop("folder", "vestige-jobs")
        cluster = options.pop("cluster", None)
        options.setdefault("timeout_min", 24 * 60)
        # submitit pickles by class, and its jobs change their state while a thread waits.
        jobs = self._submitit.AutoExecutor(folder=folder, cluster=cluster)
        jobs.update_parameters(**options)
        job = jobs.submit(work)
        self._jobs.append(job)
        return self._threads.submit(job.result)

    def stop(self) -> None:
        for job in self._jobs:
            if not job.done():
                job.cancel(check=False)
        self._threads.shutdown(wait=False, cancel_futures=True)


_POOLS: Mapping[str, Callable[[int, Executor], _Pool]] = {"local": _Local, "ray": _Ray, "slurm": _Slurm}


def workers_for(device: str, requested: int | None) -> int:
    """Return the number of processes for models on `device`: as requested, otherwise one per GPU, or two.

    More than there are cards share them: a small model does not fill one.
    """
    if device == "cpu":
        return requested or 2
    import torch

    cards = 1
    if device in ("auto", "cuda"):
        cards = torch.cuda.device_count()
    if device == "auto" and not (cards and torch.cuda.is_available()):
        return requested or 2
    return requested or max(1, cards)
