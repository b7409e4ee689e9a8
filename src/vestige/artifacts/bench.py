"""Benchmarks beside the holes: what a model got on each task, question by question, and the table of all models.

    <folder>/results/<model>/<task>-<id>/   asked.json items.jsonl done.json (last) provenance.json
    <folder>/bench.json bench.csv             the table of the last command
    <folder>/judge/                           replies of a judge on a server, which were paid for

A result is found by the digest of the model and by everything else that can change it, never by a model's name, so
no model is given the numbers of another. Scores are in the unit of their metric: shares in [0, 1], MT-bench 1..10.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import Entry
from vestige.artifacts.records import write_csv
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate, end, from_json, to_json
from vestige.core.files import read_jsonl, write_json, write_jsonl
from vestige.core.ids import content_id, file_digest, slug
from vestige.core.store import AGAIN, SCHEMA, read_versioned, typed


@dataclass(frozen=True)
class BenchItem:
    """One question of a task: its number, the digest of its content, the values of its metrics, and what was said.

    `said` is what the metrics were computed from: log-probabilities (nats) of options, or a text. Items of one
    `cluster`, where it is named, are not independent of each other: the two turns of a conversation.
    """

    number: int
    content: str
    values: Mapping[str, float]
    said: Any
    cluster: str = ""


@dataclass(frozen=True)
class TaskRun:
    """All questions of one task under one model; `shots` are the examples shown before each of them.

    `units` and `bounds` are those of each metric by name, `failures` counts questions without a value, by reason, and
    `left_out` names metrics that are no mean over questions. `cut` counts the questions with a prompt that was cut on
    its left, since the model does not read as much.
    """

    task: str
    version: str
    shots: int
    items: tuple[BenchItem, ...]
    units: Mapping[str, str]
    bounds: Mapping[str, tuple[float, float] | None]
    failures: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    cut: int = 0

    @property
    def content(self) -> str:
        """The digest of the questions, in their order."""
        return content_id([[item.number, item.content] for item in self.items], length=32)


@dataclass(frozen=True)
class BenchResult:
    """One number: `metric` of `task` under `model`, whose digest is `digest`, over `n` questions.

    `difference` is that to the first model on the same questions, pair by pair; None for the first. `parts` are the
    tasks that a group's number is over, of `of_parts` that the group has; both are empty for a task of its own.
    `part_of` is the group that a part was asked for.
    """

    model: str
    digest: str
    task: str
    metric: str
    value: Estimate
    n: int
    version: str
    shots: int
    difference: Estimate | None = None
    parts: tuple[str, ...] = ()
    of_parts: int = 0
    part_of: str = ""
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchFolder:
    """Where benchmarks are kept."""

    path: Path

    table = Entry("bench.json")
    """The table of the last command."""
    csv = Entry("bench.csv")
    """The same, for spreadsheets."""
    lock = Entry(".lock")
    """Held by the process that works here."""

    def result(self, digest: str, task: str, id_: str) -> "ResultFolder":
        """The folder of one task under the model of this digest."""
        return ResultFolder(self.path / "results" / slug(digest[:16]) / f"{slug(task)}-{id_}")


@dataclass(frozen=True)
class ResultFolder:
    """One task under one model."""

    path: Path

    asked = Entry("asked.json")
    """Everything that can change the result."""
    answers = Entry("answers.jsonl")
    """What the model wrote so far, a line a question, where answers are written before they are judged."""
    judged = Entry("judged.jsonl")
    """What the judge said so far, a line a judgement."""
    items = Entry("items.jsonl")
    """One line a question."""
    provenance = Entry("provenance.json")
    """Versions, hardware, command and times."""
    done = Entry("done.json")
    """Written last: that the result is whole, and all of it but the questions."""


def write_run(folder: ResultFolder, run: TaskRun) -> None:
    """Write a task's result; `done.json`, last, says by being there that it is whole."""
    write_jsonl(folder.items, map(asdict, run.items))
    kept = {name: value for name, value in asdict(run).items() if name != "items"}
    write_json(folder.done, {"schema": SCHEMA, **kept, "n": len(run.items), "digest": file_digest(folder.items)})


def read_run(folder: ResultFolder) -> TaskRun:
    """A task's result that is whole, as it was written."""
    stored = read_versioned(folder.done, "task", "version", "shots", "units", "bounds", "n", "digest")
    if not folder.items.exists() or file_digest(folder.items) != stored["digest"]:
        raise InputError(f"{folder.items} was changed after it was written; delete {folder.path} and run again")
    about = {name: value for name, value in stored.items() if name not in {"schema", "n", "digest"}}
    return typed(folder.path, TaskRun, {**about, "items": list(read_jsonl(folder.items))}, again=AGAIN)


def write_table(folder: BenchFolder, results: Sequence[BenchResult]) -> None:
    """Write the table for programs and for spreadsheets."""
    write_json(folder.table, {"schema": SCHEMA, "results": [to_json(result) for result in results]})
    write_csv(folder.csv, _COLUMNS, result_rows(results))


def read_bench(folder: BenchFolder) -> tuple[BenchResult, ...]:
    """The table of the last command in the folder."""
    stored = from_json(read_versioned(folder.table, "results")["results"])
    return tuple(typed(folder.table, BenchResult, one, again=AGAIN) for one in stored)


_COLUMNS = (
    *("model", "digest", "task", "metric", "value", "low", "high", "n", "difference", "difference_low"),
    *("difference_high", "version", "shots", "parts", "of_parts", "part_of", "failed"),
)


def result_rows(results: Iterable[BenchResult]) -> list[dict[str, Any]]:
    """The rows of bench.csv."""
    rows = []
    for r in results:
        apart = (None, None, None) if r.difference is None else _ends(r.difference)
        about = (r.version, r.shots, len(r.parts), r.of_parts, r.part_of, sum(r.failures.values()))
        cells = (r.model, r.digest, r.task, r.metric, *_ends(r.value), r.n, *apart, *about)
        rows.append(dict(zip(_COLUMNS, cells, strict=True)))
    return rows


def _ends(of: Estimate) -> tuple[float, Any, Any]:
    return of.value, end(of.low), end(of.high)
