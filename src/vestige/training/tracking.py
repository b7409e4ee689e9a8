"""What a training tells while it runs: a line a step in its log and, if asked, the same to a tracker.

Losses and what is observed are in nats, `rate` is the learning rate, `n_tokens` counts the tokens of the effective
batch, `peak_mb` is in 10^6 bytes. Nothing is sent anywhere unless a tracker is named.
"""

import contextlib
import importlib
import math
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line, read_jsonl, write_jsonl

TRACKERS = ("trackio", "wandb")
"""Where a log can be sent besides."""

MEASURED = ("seconds", "tokens_per_second", "peak_mb")
"""The fields of a line that differ from one run to the next; all others are reproducible."""

Line = dict[str, Any]


def reproducible(line: Mapping[str, Any]) -> Line:
    """The line without its times and memory, which no two runs share."""
    return {k: v for k, v in line.items() if k not in MEASURED}


@dataclass
class TrainingLog:
    """The log of one training. Lines wait in memory until they are written, with or before a checkpoint.

    `loss` is that of the last line. Only the process that `writes` touches the file.
    """

    path: Path
    writes: bool
    loss: float = math.nan
    waiting: list[str] = field(default_factory=list)

    @classmethod
    def opened(cls, path: Path, *, done: int, writes: bool) -> "TrainingLog":
        """The log as it stood after `done` steps; what was logged after the checkpoint is dropped."""
        log = cls(path, writes)
        if writes:
            drop_torn_line(path)
            rows = [r for r in read_jsonl(path) if r["step"] <= done] if path.exists() else []
            write_jsonl(path, rows)
            log.loss = float(rows[-1]["loss"]) if rows else math.nan
        return log

    def add(self, line: Line) -> None:
        """Log one step."""
        self.waiting.append(json_line(line))
        self.loss = line["loss"]

    def write(self) -> None:
        """Put what waits on the disk."""
        if self.writes:
            append_lines(self.path, self.waiting)
        self.waiting.clear()


def measured(seconds: float, n_tokens: int, device: torch.device) -> dict[str, float]:
    """What a step took: seconds, tokens a second, and the peak of memory so far.

    On CUDA the peak is the allocator's; elsewhere the process's resident memory, which includes all that it has loaded.
    """
    return {"seconds": seconds, "tokens_per_second": n_tokens / seconds, "peak_mb": _peak_bytes(device) / 1e6}


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident if sys.platform == "darwin" else resident * 1024


@contextlib.contextmanager
def tracked(to: str | None, *, name: str, id_: str, config: Mapping[str, Any]) -> Iterator[Callable[[Line], None]]:
    """Gives a function that sends a line to the tracker `to`; to None, one that does nothing.

    The tracker is imported here and nowhere else; keys are its own affair (`wandb login`, environment). A run that is
    resumed goes on under the same id.
    """
    if to is None:
        yield lambda _: None
        return
    if to not in TRACKERS:
        raise InputError(f"no tracker {to!r}; known: {', '.join(TRACKERS)}")
    try:
        tracker = importlib.import_module(to)
    except ImportError as error:
        raise InputError(
            f"--report-to {to} needs the package {to}, which cannot be imported ({error}): pip install 'vestige[{to}]'"
        ) from error
    # What a name means differs: trackio resumes a run by its name, wandb by its id.
    run = {"id": id_, "name": name} if to == "wandb" else {"name": f"{name} {id_}"}
    tracker.init(project="vestige", config=dict(config), resume="allow", **run)
    try:
        yield lambda line: tracker.log(flat(line), step=line["step"])
    finally:
        tracker.finish()


def flat(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line but for its step, those in a group named `group/name`."""
    found: dict[str, float] = {}
    for key, value in ((k, v) for k, v in line.items() if k != "step"):
        inside = {f"{key}/{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
        found |= {k: float(v) for k, v in inside.items()}
    return found
