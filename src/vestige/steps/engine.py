"""Cells that any number of processes, on any number of machines, make once each: studies, audits and calibrations.

A cell is one piece of work with a content key. What is known of cells lies in one folder that all processes see:

    done/<key>          written last and exclusively: the cell is whole; its times, memory and results
    leases/<key>.<n>    who works on it: created exclusively (O_EXCL) and renewed; the highest number holds the cell
    failed/<key>        why it failed, and in which run; another run tries it again

A holder renews its lease every `BEAT` seconds. A lease of this machine whose process is dead, and one of another that
was not renewed for `PATIENCE` seconds by the clock of whoever waits, is taken over by creating the next number, which
only one can do.
Numbers are deleted from the lowest when the cell is done, so that a holder that wakes up late sees that its own is gone
or followed by another: it stops before it records anything. No clock is compared with another machine's, and neither
a database nor file locks are needed.

Each process computes with one thread: on small models two threads of one process cost four times what two processes
of one thread do, and one thread is what makes the bytes the same everywhere.
"""

import contextlib
import json
import multiprocessing
import os
import resource
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, NamedTuple

from vestige.artifacts.layout import StudyState
from vestige.core.errors import InputError, Interrupted, MachineError, VestigeError
from vestige.core.files import machine_errors, read_json, write_bytes, write_json
from vestige.core.threads import one_thread

BEAT = 5.0
"""Seconds between two renewals of a lease."""
PATIENCE = 120.0
"""Seconds without a renewal after which a lease is taken over; network file systems show a change after up to 60."""
MOST_TAKEOVERS = 5
"""As often a cell is taken over from processes that died with it before it counts as failed."""
LOST = 75
"""Exit status of a process that no longer holds its lease."""

EXECUTORS = ("processes", "slurm", "local", "ray")
"""Who starts workers: this command, Slurm or submitit's own executor here, a Ray cluster."""


class StudyCell(NamedTuple):
    """One piece of work: its content key, the keys of those that it needs, and what its maker has to know."""

    key: str
    kind: str
    name: str
    after: tuple[str, ...] = ()
    point: Any = None


Plan = Callable[[], Sequence[StudyCell]]
"""The cells, each after those that it needs; called in every process."""
Make = Callable[[StudyCell], Mapping[str, Any]]
"""Makes a cell, or does nothing where it is made, and gives back what is to be known of it (JSON values)."""


class Failure(NamedTuple):
    """Why a cell failed: the error's class where it is one of Vestige's own, and its sentence."""

    error: str
    reason: str


@dataclass(frozen=True)
class Status:
    """How far a plan is: keys that are done, being made, failed (with the reason)."""

    done: set[str]
    at_work: set[str]
    failed: dict[str, Failure]


@cache
def this_host() -> str:
    """This machine and process namespace since its last start; empty where neither can be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _born(pid: int) -> str | None:
    """When a process of this machine started, in its own ticks; None where there is no such process."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # A zombie works on nothing. The 22nd field is the start: numbers of processes come again, with another start.
    return None if state in "ZX" else rest[18]


@dataclass
class Lease:
    """The right to make one cell, for as long as its file is there and no higher number is."""

    key: str
    number: int
    folder: Path
    token: str

    @property
    def path(self) -> Path:
        """The lease's own file."""
        return self.folder / f"{self.key}.{self.number}"

    def held(self) -> bool:
        """Whether nobody has taken over."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        return self.token in text and not (self.folder / f"{self.key}.{self.number + 1}").exists()

    def release(self) -> None:
        """Delete the lease, and those before it, from the lowest number."""
        # From the lowest, so that a kill in between leaves the highest, which is the one that counts.
        for number in range(self.number + 1):
            (self.folder / f"{self.key}.{number}").unlink(missing_ok=True)


class Board:
    """What is known of the cells; `host` is this machine's name in leases."""

    def __init__(self, state: StudyState, *, host: str | None = None, patience: float = PATIENCE) -> None:
        self._state, self._patience = state, patience
        self._host = this_host() if host is None else host
        self._renewals: dict[str, tuple[int, float]] = {}
        for folder in (state.done, state.leases, state.failed):
            folder.mkdir(parents=True, exist_ok=True)

    def status(self, run: str | None = None) -> Status:
        """What all processes have come to; with `run`, only what failed in that run counts as failed."""
        failed: dict[str, Failure] = {}
        for key in _names(self._state.failed):
            # Another run may be trying it again just now.
            with contextlib.suppress(FileNotFoundError):
                record = read_json(self._state.failed / key)
                if run is None or record["run"] == run:
                    failed[key] = Failure(record.get("error", ""), record["reason"])
        done = _names(self._state.done)
        return Status(done, set(self._leases()), {k: why for k, why in failed.items() if k not in done})

    def facts(self, key: str) -> dict[str, Any]:
        """What was recorded when the cell was done."""
        facts: dict[str, Any] = read_json(self._state.done / key)
        return facts

    def key_of(self, pid: int | None) -> str | None:
        """The cell that a process of this machine works on, or worked on when it died."""
        for key, number in self._leases().items():
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                if json.loads((self._state.leases / f"{key}.{number}").read_text(encoding="utf-8")).get("pid") == pid:
                    return key
        return None

    def _leases(self) -> dict[str, int]:
        """The highest number by key."""
        highest: dict[str, int] = {}
        for name in _names(self._state.leases):
            key, _, number = name.rpartition(".")
            highest[key] = max(int(number), highest.get(key, -1))
        return highest

    def free(self, keys: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Of these cells those that nobody works on, with the number that their next lease has."""
        leases = self._leases()
        # Leases that are gone would stay here for as long as this process runs.
        self._renewals = {name: at for name, at in self._renewals.items() if name.rpartition(".")[0] in leases}
        for key in keys:
            if key not in leases:
                yield key, 0
            elif self._abandoned(f"{key}.{leases[key]}"):
                yield key, leases[key] + 1

    def _abandoned(self, name: str) -> bool:
        path = self._state.leases / name
        try:
            renewed = path.stat().st_mtime_ns
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        # Empty where its holder is about to write it, or died over that.
        holder = json.loads(text) if text else {}
        if self._host and holder.get("host") == self._host:
            # Known without waiting: one that is there may be starved of its processor, and is not overtaken.
            return bool(_born(holder["pid"]) != holder["born"])
        # That its time moves is what counts: two machines' clocks may be hours apart.
        last, since = self._renewals.get(name, (None, 0.0))
        if last != renewed:
            self._renewals[name] = (renewed, time.monotonic())
            return False
        return time.monotonic() - since > self._patience

    def take(self, key: str, number: int) -> Lease | None:
        """The lease of a cell, unless somebody was faster or it is done meanwhile."""
        lease = Lease(key, number, self._state.leases, secrets.token_hex(8))
        holder = {"host": self._host, "pid": os.getpid(), "born": _born(os.getpid()), "token": lease.token}
        text = json.dumps({**holder, "machine": socket.gethostname()}).encode()
        with machine_errors(lease.path):
            try:
                file = os.open(lease.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                return None
            with os.fdopen(file, "wb") as handle:
                handle.write(text)
        # Another may have finished it between the look at what is done and this lease.
        if (self._state.done / key).exists():
            lease.release()
            return None
        return lease

    def finish(self, lease: Lease, facts: Mapping[str, Any]) -> None:
        """Record that a cell is done, exclusively; a holder that was overtaken ends here."""
        if not lease.held():
            os._exit(LOST)
        record = self._state.done / lease.key
        partial = self._state.path / f".{lease.key}.{lease.token}"
        write_bytes(partial, (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode())
        try:
            # A link fails where the name is taken, as a rename does not: of two holders one alone records.
            os.link(partial, record)
        except FileExistsError:
            os._exit(LOST)
        finally:
            partial.unlink()
        (self._state.failed / lease.key).unlink(missing_ok=True)
        lease.release()

    def fail(self, lease: Lease, run: str, failure: Failure) -> None:
        """Record why a cell failed."""
        write_json(self._state.failed / lease.key, {"run": run, **failure._asdict()})
        lease.release()


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {e.name for e in entries if not e.name.startswith(".")}
    except FileNotFoundError:
        return set()


def work(board: Board, cells: Sequence[StudyCell], make: Make, run: str, *, beat: float = BEAT) -> None:
    """Make cells until all are done, failed, or wait for one that failed."""
    pending, idle = list(cells), 0.05
    with _renewed(beat) as leases:
        while True:
            status = board.status(run)
            pending, ready = _ready(pending, status)
            if not pending:
                return
            by_key = {cell.key: cell for cell in ready}
            lease = next((x for key, n in board.free(list(by_key)) if (x := board.take(key, n))), None)
            if lease is None:
                # Others have all that can be made; a second at most, since a done cell may set many free.
                time.sleep(idle)
                idle = min(2 * idle, 1.0)
                continue
            idle, leases[:] = 0.05, [lease]
            try:
                _make(board, by_key[lease.key], lease, make, run)
            finally:
                leases.clear()


def _ready(pending: Sequence[StudyCell], status: Status) -> tuple[list[StudyCell], list[StudyCell]]:
    """Of the cells, in their order, those that are still to be made, and of these those that can be."""
    failed = set(status.failed)
    waiting, ready = [], []
    for cell in pending:
        if cell.key in status.done:
            continue
        if cell.key in failed or any(key in failed for key in cell.after):
            failed.add(cell.key)
            continue
        waiting.append(cell)
        if all(key in status.done for key in cell.after):
            ready.append(cell)
    return waiting, ready


def _make(board: Board, cell: StudyCell, lease: Lease, make: Make, run: str) -> None:
    """Make one cell and record it; what only this cell suffers from is recorded as its failure."""
    if lease.number >= MOST_TAKEOVERS:
        reason = f"{lease.number} processes died over it, as happens when memory runs out"
        return board.fail(lease, run, Failure("", reason))
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        facts = make(cell)
    except (MachineError, MemoryError, KeyboardInterrupt, SystemExit):
        lease.release()
        raise
    except VestigeError as error:
        return board.fail(lease, run, Failure(type(error).__name__, str(error)))
    # Whatever a library raises over this cell: the others go on.
    except Exception as error:
        return board.fail(lease, run, Failure("", f"{type(error).__name__}: {error}"))
    spent = {
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        # In bytes on a Mac, in units of 1024 bytes on Linux.
        "peak_mb": int(
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10)
        ),
    }
    board.finish(lease, {"name": cell.name, "kind": cell.kind, **spent, "made": dict(facts)})


@contextlib.contextmanager
def _renewed(beat: float) -> Iterator[list[Lease]]:
    """Within it the lease that is put into the list is renewed."""
    leases, stopped = list[Lease](), threading.Event()

    def renew() -> None:
        while not stopped.wait(beat):
            for lease in [*leases]:
                if lease.held():
                    with contextlib.suppress(FileNotFoundError):
                        os.utime(lease.path)
                elif lease in leases:
                    # Whoever took over makes the same; two that write at once are what must not be.
                    os._exit(LOST)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield leases
    finally:
        stopped.set()
        thread.join()


def run_cells(
    state: StudyState,
    plan: Plan,
    make: Make,
    *,
    jobs: int,
    executor: str = "processes",
    options: Mapping[str, Any] | None = None,
    preload: Sequence[str] = (),
    restart: bool = True,
    show: Callable[[Status], None] = lambda _: None,
) -> dict[str, Failure]:
    """Start workers that make the plan's cells, and wait for them; the reasons of what failed, by key.

    Killed at any moment, the same call goes on. Workers here are forked from a process that has imported the modules of
    `preload`, where the system allows for it. Raises Interrupted on Ctrl-C, and MachineError where workers die one
    after another and nothing comes of it; without `restart` where one dies.
    """
    run = secrets.token_hex(8)
    board, names = Board(state), {cell.key: cell.name for cell in plan()}
    work_of = (state, plan, make, run)

    def tell() -> None:
        show(board.status(run))

    try:
        if executor == "processes":
            _processes(board, work_of, jobs, _context(preload), None if restart else names, tell)
        elif executor == "ray":
            _ray(work_of, jobs, options or {}, tell)
        else:
            _submitit(work_of, jobs, executor, options or {}, tell)
    except KeyboardInterrupt:
        raise Interrupted("stopped; run the same command to go on from here") from None
    return {key: failure for key, failure in board.status(run).failed.items() if key in names}


_Work = tuple[StudyState, Plan, Make, str]


def worker(
    state: StudyState,
    plan: Plan,
    make: Make,
    run: str,
    environment: Mapping[str, str] | None = None,
    card: str | None = None,
) -> None:
    """What every executor starts: the same work, which ends by itself.

    With an `environment` it is a process of this command: it takes that, and ends with it. It sees no GPU but `card`.
    """
    if environment is not None:
        # A forked process has the environment of the first run.
        os.environ.clear()
        os.environ.update(environment)
        # Ctrl-C reaches the whole group; the parent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_end_with_parent, daemon=True).start()
    if card is not None:
        # Before CUDA is asked for anything.
        os.environ["CUDA_VISIBLE_DEVICES"] = card
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    one_thread()
    # A scheduler that wants its node back says so by SIGTERM: the lease is given back at once.
    # ValueError: a worker in a thread, as Ray may have it, can set no signal.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        work(Board(state), plan(), make, run)
    except (MachineError, MemoryError) as error:
        reason = str(error) or "not enough memory; take a smaller model or batch, or fewer processes"
        write_json(state.path / "machine-error.json", {"run": run, "reason": reason})
        sys.exit(MachineError.exit_code)


def _end_with_parent() -> None:
    """End this process when its parent is gone: a killed run must not go on writing beside the one that resumes it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "no process of multiprocessing"
    parent.join()
    os._exit(1)


def _context(preload: Sequence[str]) -> BaseContext:
    """New processes, or on Linux forks of one that has imported what takes seconds to import, and no more.

    Elsewhere the systems' own libraries do not survive a fork. That one is reached by a socket in the temporary folder,
    whose name may have 107 bytes.
    """
    # The name of the socket below the temporary folder takes some 30 bytes.
    if not preload or sys.platform != "linux" or len(os.fsencode(tempfile.gettempdir())) > 70:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return context


@contextlib.contextmanager
def _script_left_out() -> Iterator[None]:
    """Within it a process that is started does not run the program's own script first, as multiprocessing would.

    No cell's code lies there, and a script that audits would audit again, or end in an error unless it is guarded.
    """
    main = vars(sys.modules["__main__"])
    values: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(values)


def _processes(
    board: Board,
    work_of: _Work,
    jobs: int,
    context: Any,
    names: Mapping[str, str] | None,
    show: Callable[[], None],
) -> None:
    """Workers on this machine; one that was killed is started again while cells get done.

    With the `names` of the cells it is not: the run ends, and says what the worker was at.
    """
    state, *_, run = work_of
    # `workers_for` has loaded torch unless all goes to the processor.
    torch = sys.modules.get("torch")
    cards = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    cards = cards or [str(n) for n in range(torch.cuda.device_count() if torch else 0)] or ["0"]

    def start(n: int) -> Any:
        # One process alone takes the device that was asked for, whichever card that is.
        card = cards[n % len(cards)] if jobs > 1 else None
        process = context.Process(target=worker, args=(*work_of, dict(os.environ), card))
        with _script_left_out():
            process.start()
        return process

    workers, deaths, before = [start(n) for n in range(jobs)], 0, len(board.status(run).done)
    try:
        while any(p.is_alive() or p.exitcode for p in workers):
            for n, process in enumerate(workers):
                process.join(0.2 / jobs)
                if process.is_alive() or not process.exitcode:
                    continue
                path = state.path / "machine-error.json"
                if path.exists() and (record := read_json(path))["run"] == run:
                    raise MachineError(record["reason"])
                if names is not None:
                    raise MachineError(
                        f"the process that worked on {names.get(board.key_of(process.pid) or '', 'it')!r} was killed, "
                        "as happens when memory runs out; free some and run the same command again"
                    )
                done = len(board.status(run).done)
                deaths, before = (1 if done > before else deaths + 1), done
                if deaths > MOST_TAKEOVERS + 2 * jobs:
                    raise MachineError(
                        "workers died one after another, as happens when memory runs out; free some, or give fewer "
                        "--jobs, and run the same command again"
                    )
                workers[n] = start(n)
            show()
        show()
    finally:
        for process in workers:
            process.kill()


def _submitit(work_of: _Work, jobs: int, cluster: str, options: Mapping[str, Any], show: Callable[[], None]) -> None:
    """Workers as jobs of Slurm, or by `local` as submitit runs them on this machine.

    Jobs outlive this command; started again, it adds workers to those that are there.
    """
    try:
        import submitit
    except ImportError:
        raise InputError("the executor slurm needs submitit: pip install 'vestige[slurm]'") from None
    executor = submitit.AutoExecutor(folder=work_of[0].path / "submitit", cluster=cluster)
    executor.update_parameters(**{"name": "vestige", "timeout_min": 24 * 60, **options})
    workers = [executor.submit(worker, *work_of) for _ in range(jobs)]
    while not all(job.done() for job in workers):
        show()
        time.sleep(1.0)
    errors = [str(job.exception()) for job in workers if job.exception() is not None]
    if len(errors) == len(workers):
        raise MachineError(f"every worker ended with an error; the first: {errors[0].strip().splitlines()[-1]}")


def _ray(work_of: _Work, jobs: int, options: Mapping[str, Any], show: Callable[[], None]) -> None:
    """Workers as tasks of a Ray cluster, which starts those of a lost node again."""
    try:
        import ray
    except ImportError:
        raise InputError("the executor ray needs Ray: pip install 'vestige[ray]'") from None
    if not ray.is_initialized():
        ray.init(ignore_reinit_error=True, log_to_driver=False)
    task = ray.remote(max_retries=MOST_TAKEOVERS, **options)(worker)
    waiting = [task.remote(*work_of) for _ in range(jobs)]
    while waiting:
        ended, waiting = ray.wait(waiting, timeout=1.0)
        ray.get(ended)
        show()
