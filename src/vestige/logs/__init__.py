"""Logs of other tools, in which every question has its score: a reader is one file here, and one line of this table.

A reader is a module with `holds(beginning) -> bool`, which recognises its files by content, and `read(path, how) ->
Log`. Another package brings one by the entry point group `vestige.logs`, as `module`. Readers return a file's content.
Whose log it is, and which questions are the same, is not theirs (`auditing.logs`).
"""

import csv
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from vestige.core.errors import InputError
from vestige.core.files import refuse_special
from vestige.core.plugins import Kind, brought, with_installed
from vestige.core.text import one_line
from vestige.data.tables import packed_as
from vestige.logs.log import Beginning, How, Log, beginning

READERS: Mapping[str, Kind] = {
    "tofu": Kind("vestige.logs.tofu", "TOFU's own eval_log_aggregated.json."),
    "open-unlearning": Kind("vestige.logs.open_unlearning", "OpenUnlearning's NAME_EVAL.json."),
    "muse": Kind("vestige.logs.muse", "MUSE's own history.json or log.json, and the texts of its PrivLeak."),
    "lm-eval": Kind("vestige.logs.lm_eval", "samples_*.jsonl of lm-evaluation-harness."),
    "inspect": Kind("vestige.logs.inspect_ai", "Logs of Inspect, .eval and .json."),
    "every-eval-ever": Kind("vestige.logs.every_eval_ever", "Instance-level results of Every Eval Ever."),
    "bank": Kind("vestige.logs.bank", "The tables of the bank, which come with the package."),
    "rows": Kind(
        "vestige.logs.rows", "Rows in JSON, JSON lines or CSV, one a question, whose columns say what they are."
    ),
}
"""The readers by name. The first that takes a file reads it."""
SUFFIXES = (".json", ".jsonl", ".eval", ".csv", ".tsv")
"""The files of a folder that may be logs."""


class Reader(Protocol):
    """The names that a module of this room has."""

    def holds(self, start: Beginning) -> bool:
        """Whether a file that begins so is one that it reads."""

    def read(self, path: Path, how: How) -> Log:
        """The contents of the file."""


# Replies and prompts can exceed csv's limit of 131,072 characters. The limit applies to the whole process.
csv.field_size_limit(2**31 - 1)
_STRANGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, csv.Error)
"""The errors of readers: files of strangers may hold anything in the place of anything."""


def reader_of(path: Path, score: str = "") -> str:
    """Return the name of the reader that accepts a file's content, or "".

    Rows with the column `score`, which the user names, are a log.
    """
    try:
        state = path.stat()
        return _reader_of(path, score, state.st_mtime_ns, state.st_size, state.st_ino)
    except (OSError, InputError):
        return ""


@lru_cache(maxsize=8192)
def _reader_of(path: Path, score: str, *_state: int) -> str:
    # A folder is read for roles first and then for logs. The state reveals a changed file.
    start = beginning(path)
    for name in with_installed("logs", READERS):
        try:
            taken = _reader(name).holds(start)
        except _STRANGE:
            taken = False
        if taken:
            return name
    if score:
        from vestige.logs import rows

        if rows.has_scores(start, {"score": score}):
            return "rows"
    return ""


def read_log(path: Path, how: How | None = None) -> Log:
    """The contents of a log.

    Args:
        path: The log.
        how: The user's scales and columns.

    Returns:
        The scores by question.

    Raises:
        InputError: No reader takes the file, or it is damaged.
    """
    refuse_special(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such log. Check the path")
    how = how or How()
    name = reader_of(path, how.columns.get("score", ""))
    if not name:
        raise InputError(f"{path}: {why_unread(path)}")
    try:
        return _reader(name).read(path, how)
    except InputError:
        raise
    except _STRANGE as error:
        why = one_line(f"{type(error).__name__}: {error}", width=200)
        raise InputError(f"{path}: is damaged, or no log that the reader {name} knows ({why}). Rewrite it") from error


_MODEL_FILES = ("config", "tokenizer", "vocab", "special_tokens", "added_tokens", "generation_config", "trainer_state")
BESIDE = "it is read with forget.json beside it"
_ADVICE = "give scores by question as one table (docs/logs.md)"


def why_unread(path: Path) -> str:
    """Why no reader takes a file, in a clause."""
    try:
        start = beginning(path)
    except OSError as error:
        return f"it cannot be read ({error.strerror or error})"
    except InputError as error:
        # The path and the advice are removed, since they are next to the reason.
        return f"it {str(error).removeprefix(str(path)).partition('. ')[0].strip()}"
    value = start.value
    stem = path.stem.lower()
    if not start.head.strip():
        return "the file is empty"
    if packed_as(path):
        return "it is packed; unpack it first"
    if stem.startswith((*_MODEL_FILES, "adapter_config", "model.", "pytorch_model")) or stem.endswith(".index"):
        return "it is a file of a model, and no log"
    if path.suffix.lower() in (".csv", ".tsv"):
        return f"no column of it is known as a score; name one as --logs column:score=NAME, or {_ADVICE}"
    if isinstance(value, dict) and {"results", "configs"} <= value.keys():
        return (
            "it is a summary of lm-evaluation-harness; its samples_*.jsonl (--log_samples) have the scores by question"
        )
    if {"text", "ppl"} <= start.first_row.keys():
        return BESIDE
    if "avg_gt_loss" in start.first_row:
        return "it is one question set of TOFU; eval_log_aggregated.json beside it has all of them"
    if {"question", "answer"} <= start.first_row.keys():
        return "it holds questions and answers, and no known score; name one as --logs column:score=NAME"
    numbers = (
        isinstance(value, dict) and bool(value) and all(isinstance(v, int | float | str | None) for v in value.values())
    )
    if numbers or "summary" in stem:
        return "it is a summary without scores by question; the log by question lies beside it, as in TOFU_EVAL.json"
    if value is None:
        return f"it is no JSON, CSV or TSV, and no archive of Inspect; {_ADVICE}"
    names = ", ".join(one_line(str(name), width=30) for name in list(start.first_row)[:8])
    return f"no reader knows its form (it begins with {names or 'no object'}); {_ADVICE}"


def log_files(folder: Path) -> Iterator[Path]:
    """Every file below a folder that may be a log, in order. Links are followed, each real folder once on a path."""
    yield from _walk(folder, frozenset())


def _walk(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    real = folder.resolve()
    # A link to a parent folder would be followed forever.
    if real in above:
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: cannot be read ({error.strerror or error}). Check the folder's rights.") from error
    # Version control contains many files but no logs. An audit that was written here contains none either.
    passed = {".git", "audit", "tables", "verdicts.json"} if folder / "run.toml" in entries else {".git"}
    for entry in entries:
        if entry.name in passed:
            continue
        if entry.is_dir():
            yield from _walk(entry, above | {real})
        elif Path(entry.name.lower().removesuffix(packed_as(entry))).suffix in SUFFIXES or not entry.exists():
            # A broken link is listed among the omitted files.
            yield entry


def _reader(name: str) -> Reader:
    reader: Reader = brought("reader of logs", name, with_installed("logs", READERS)[name].home)
    return reader
