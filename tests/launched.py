"""The command line in processes that begin with what the tests have imported: a new one spends six seconds on that."""

import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from typing import IO, NoReturn

# What most commands import, so that they find it here.
import peft
import transformers.models.llama.modeling_llama

from vestige.cli import run
from vestige.steps import evaluate, finetune, unlearn

assert all((peft, transformers, evaluate, finetune, unlearn))
SECONDS = 300


def launched(
    *words: object,
    processes: int = 1,
    folder: object = ".",
    environment: Mapping[str, str] | None = None,
    stop_when: Callable[[], bool] = lambda: False,
) -> subprocess.CompletedProcess[str]:
    """What a command printed and how it ended. Of several processes together, with what torchrun leaves them.

    As under torchrun the others are stopped when one of them fails, here after two seconds to say so themselves.
    Ctrl-C is pressed once as soon as `stop_when` is true.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        running = {}
        for rank, given in enumerate(_surroundings(processes)):
            child = os.fork()
            if child == 0:
                _command([*map(str, words)], {**given, **(environment or {})}, str(folder), out, errors)
            running[child] = rank
        codes = _ended(set(running), stop_when)
        said = []
        for stream in (out, errors):
            stream.seek(0)
            said.append(stream.read().decode())
    return subprocess.CompletedProcess(words, next((c for c in codes if c), 0), *said)


def _surroundings(processes: int) -> list[dict[str, str]]:
    if processes == 1:
        return [{}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]


def _ended(running: set[int], stop_when: Callable[[], bool]) -> list[int]:
    """The exit codes, in the order in which the processes ended."""
    codes: list[int] = []
    until, stopped = time.monotonic() + SECONDS, False
    while running:
        if not stopped and stop_when():
            stopped = True
            for child in running:
                os.kill(child, signal.SIGINT)
        for child in [*running]:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                running.remove(child)
                codes.append(os.waitstatus_to_exitcode(status))
                until = until if codes[-1] == 0 else min(until, time.monotonic() + 2)
        if time.monotonic() > until:
            for child in running:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    return codes


def _command(
    words: list[str], environment: Mapping[str, str], folder: str, out: IO[bytes], errors: IO[bytes]
) -> NoReturn:
    code = 1
    try:
        os.dup2(out.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        # Not what pytest captures with.
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(fd, "w", closefd=False), write_through=True) for fd in (1, 2)
        )
        # A shell's background jobs ignore Ctrl-C, and so would the tests' children when they run in one.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(environment)
        os.chdir(folder)
        sys.path.insert(0, folder)
        sys.argv = ["vestige", *words]
        run()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
