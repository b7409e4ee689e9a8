"""Logs of other tools, in which every question has its score: a reader is one file here, and one line of this table.

A reader is a module with `NAMES`, the patterns of the file names that it reads, and `read(path) -> Log`; `holds(path)`,
where names alone do not tell. Another package brings one by the entry point group `vestige.logs`, as `module`. Readers
say what a file holds; whose log it is, and which questions are the same, is not theirs (`auditing.logs`).
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

from vestige.core.errors import InputError
from vestige.core.plugins import Kind, brought, with_installed
from vestige.core.text import one_line
from vestige.logs.log import Log

READERS: Mapping[str, Kind] = {
    "tofu": Kind("vestige.logs.tofu", "TOFU's own eval_log_aggregated.json."),
    "open-unlearning": Kind("vestige.logs.open_unlearning", "OpenUnlearning's TOFU_EVAL.json and MUSE_EVAL.json."),
    "muse": Kind("vestige.logs.muse", "MUSE's own history.json, and the texts of its PrivLeak."),
    "lm-eval": Kind("vestige.logs.lm_eval", "samples_*.jsonl of lm-evaluation-harness."),
    "inspect": Kind("vestige.logs.inspect_ai", "Logs of Inspect, .eval and .json."),
    "every-eval-ever": Kind("vestige.logs.every_eval_ever", "Instance-level results of Every Eval Ever."),
}
"""The readers by name; the first that takes a file reads it."""


class Reader(Protocol):
    """The names that a module of this room has."""

    NAMES: Sequence[str]

    def holds(self, path: Path) -> bool:
        """Whether a file of such a name is one that it reads; no more than its beginning is read for it."""

    def read(self, path: Path) -> Log:
        """What the file says."""


def reader_of(path: Path) -> str:
    """The name of the reader that takes a file, "" where none does."""
    for name in with_installed("logs", READERS):
        reader = _reader(name)
        # The name first: `holds` opens the file, and folders hold many that are no logs.
        if any(fnmatch(path.name, pattern) for pattern in reader.NAMES) and reader.holds(path):
            return name
    return ""


def read_log(path: Path) -> Log:
    """What a log holds; a file that no reader takes is refused."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such log")
    name = reader_of(path)
    if not name:
        raise InputError(
            f"{path}: no reader takes this file; those that there are read {', '.join(READERS)} "
            "(docs/logs.md), and any other scores go into one table"
        )
    try:
        return _reader(name).read(path)
    # Readers take files of strangers, which may hold anything in the place of anything.
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        why = one_line(f"{type(error).__name__}: {error}", width=200)
        raise InputError(f"{path}: is damaged, or no log that the reader {name} knows ({why})") from error


def _reader(name: str) -> Reader:
    reader: Reader = brought("reader of logs", name, with_installed("logs", READERS)[name].home)
    return reader
