"""The tables of a run as rows of CSV: every estimate, every subject, every answer side by side.

Numbers are written in full; text from models and data sets has what acts unseen spelt out (`visible`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import RunFolder
from vestige.artifacts.records import COLUMNS, read_summaries, result_rows, write_csv
from vestige.core.estimates import Estimate, end
from vestige.report.answers import split_of
from vestige.report.audit_tables import audit_tables
from vestige.report.contents import Contents
from vestige.report.evidence import PANELS, Subject
from vestige.report.findings import Finding
from vestige.report.visible import visible

Row = dict[str, Any]

_BOUNDS = ("value", "low", "high", "n")

SUBJECT_COLUMNS = (
    *["forget", "subject", "label", "method", "seed", "settings_id", "folder", "digest", "steps", "stopped"],
    *(f"{name}_{bound}" for name, _, _ in PANELS for bound in _BOUNDS),
)
"""The columns of tables/subjects.csv, a row a subject and forget set; scores are ROUGE-1 recall."""

ITEM_COLUMNS = tuple(["forget", "item", "edge", "group", "attribute", "split", "question", "answer"])
"""The first columns of tables/items.csv; then `<label>_reply` and `<label>_rouge1_recall`."""


def write_tables(folder: Path, run: RunFolder, contents: Contents) -> None:
    """Write results.csv, subjects.csv and items.csv into `folder`, and what the run's audits found."""
    write_csv(folder / "results.csv", COLUMNS, _readable(result_rows(s for _, s in read_summaries(run))))
    write_csv(folder / "subjects.csv", SUBJECT_COLUMNS, _readable(subject_rows(contents)))
    columns, rows = item_rows(contents)
    write_csv(folder / "items.csv", [visible(c) for c in columns], _readable(rows))
    if contents.audits:
        for name, (fixed, found) in audit_tables(contents.audits).items():
            write_csv(folder / f"{name}.csv", [visible(c) for c in fixed], _readable(found))


def subject_rows(contents: Contents) -> list[Row]:
    """A row for each forget set and each subject evaluated on it."""
    return [
        _subject_row(contents, finding, subject)
        for finding in contents.findings
        for subject in contents.evidence.subjects
        if finding.forget in subject.results
    ]


def _subject_row(contents: Contents, finding: Finding, subject: Subject) -> Row:
    done = subject.done or {}
    row: Row = {
        "forget": finding.forget,
        "subject": subject.spec.subject,
        "label": subject.label,
        "method": subject.spec.method,
        "seed": subject.spec.seed,
        "settings_id": subject.spec.settings_id,
        "folder": subject.path,
        "digest": done.get("digest", ""),
        "steps": done.get("steps", ""),
        "stopped": done.get("stopped", ""),
    }
    for name, _, cell in PANELS:
        row |= _bounds(name, subject.results[finding.forget].get(cell))
    return row


def _bounds(name: str, estimate: Estimate | None) -> Row:
    if estimate is None:
        return {f"{name}_{bound}": "" for bound in _BOUNDS}
    numbers = (estimate.value, end(estimate.low), end(estimate.high), estimate.n)
    return {f"{name}_{bound}": number for bound, number in zip(_BOUNDS, numbers, strict=True)}


def item_rows(contents: Contents) -> tuple[tuple[str, ...], list[Row]]:
    """The columns, and a row a forget set and item with what each of its subjects replied."""
    rows, labels = [], []
    for forget_set in contents.forget_sets:
        subjects = [s for s in contents.evidence.subjects if forget_set.forget in s.results]
        labels += [s.label for s in subjects if s.label not in labels]
        for item in contents.answers.asked:
            row: Row = {
                "forget": forget_set.forget,
                "item": item.id,
                "edge": item.edge,
                "group": item.group,
                "attribute": item.attribute,
                "split": split_of(item, forget_set),
                "question": item.question,
                "answer": item.answer,
            }
            for subject in subjects:
                reply = contents.answers.replies.get(subject.path, {}).get(item.id)
                if reply:
                    row[f"{subject.label}_reply"] = reply.text
                    row[f"{subject.label}_rouge1_recall"] = "" if reply.rouge is None else reply.rouge
            rows.append(row)
    columns = (*ITEM_COLUMNS, *(f"{label}_{part}" for label in labels for part in ("reply", "rouge1_recall")))
    return columns, rows


def _readable(rows: Sequence[Row]) -> list[Row]:
    return [{visible(k): visible(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows]
