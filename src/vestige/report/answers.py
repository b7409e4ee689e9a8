"""What each model answered, item by item, side by side.

An item of a run is one question with its gold answer; its place in the list is the order of the target's
records.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.layout import EvalFolder
from vestige.artifacts.records import read_scored_records
from vestige.core.errors import InputError
from vestige.report.evidence import Subject

SPLITS = ("forget", "independent", "factual", "retain")
"""The splits that an item is shown to be of; the first that holds it is named."""


@dataclass(frozen=True)
class Asked:
    """A question of the run, with its gold answer and its place in the graph."""

    id: str
    question: str
    answer: str
    edge: str
    group: str
    attribute: str


@dataclass(frozen=True)
class Reply:
    """One greedy answer: its text, ROUGE-1 recall, the gold answer's probability a token, and what is odd.

    `rouge` is None where the gold answer has none of the letters and digits that ROUGE sees.
    """

    text: str
    rouge: float | None
    probability: float
    refused: bool
    empty: bool
    truncated: bool


@dataclass(frozen=True)
class Answers:
    """All questions in order, and the replies of each subject (by its path) by item id."""

    asked: tuple[Asked, ...]
    replies: Mapping[str, Mapping[str, Reply]]


@dataclass(frozen=True)
class ForgetSet:
    """Where each item stands, seen from one forget set.

    `split` names one split an item, by its id; an item that stands in none, or in different ones in different
    evaluations, is left out. `edges` are those of its forget items, or None where no evaluation says which these
    are. `dispute` says how the evaluations differ, if they do.
    """

    forget: str
    split: Mapping[str, str]
    edges: frozenset[str] | None
    dispute: str


def read_answers(subjects: Sequence[Subject]) -> Answers:
    """The records of all subjects, joined by item."""
    asked: dict[str, Asked] = {}
    replies: dict[str, dict[str, Reply]] = {}
    ordered = sorted(subjects, key=lambda s: s.spec.subject != "target")
    for subject in ordered:
        if subject.answers is None:
            continue
        own = replies.setdefault(subject.path, {})
        for number, row in enumerate(_rows(subject.answers), 1):
            item, reply = _parsed(subject.answers, number, row)
            asked.setdefault(item.id, item)
            own[item.id] = reply
    return Answers(tuple(asked.values()), replies)


def _rows(folder: EvalFolder) -> list[dict[str, Any]]:
    try:
        return read_scored_records(folder)
    except ValueError as error:
        raise InputError(f"{folder.path}: its records and scores are not of one length; evaluate again") from error


def _parsed(folder: EvalFolder, number: int, row: Mapping[str, Any]) -> tuple[Asked, Reply]:
    try:
        return (
            Asked(
                id=row["item"],
                question=row["question"],
                answer=row["answer"],
                edge=row.get("edge") or "",
                group=row.get("group") or "",
                attribute=row.get("attribute") or "",
            ),
            Reply(
                text=row["reply"],
                rouge=float(row["rouge1_recall"]) if "rouge1_recall" in row else None,
                probability=float(row["probability"]),
                refused=bool(row["share_refused"]),
                empty=bool(row["share_empty"]),
                truncated=bool(row["share_truncated"]),
            ),
        )
    except KeyError as error:
        raise InputError(f"{folder.path}, record {number}: no field {error}; evaluate again with --fresh") from error


def forget_set(subjects: Sequence[Subject], answers: Answers, forget: str) -> ForgetSet:
    """Where the summaries of all subjects place the items, seen from `forget`."""
    views = [s.views[forget] for s in subjects if forget in s.views]
    named: dict[str, set[str]] = defaultdict(set)
    for view in views:
        for item, name in _named(view.splits).items():
            named[item].add(name)
    split = {item: names.pop() for item, names in named.items() if len(names) == 1}
    edges = frozenset(a.edge for a in answers.asked if a.edge and split.get(a.id) == "forget")
    dispute = (
        f"{len(named) - len(split)} questions stand in one split for one model and in another for another, so these"
        " scores do not compare. Evaluate all models on one data set with one seed."
    )
    return ForgetSet(forget, split, edges if views else None, dispute if len(split) < len(named) else "")


def _named(splits: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The split of each item in one evaluation: of two that hold it, the one that SPLITS names first."""
    return {item: split for split in reversed(SPLITS) for item in splits.get(split, ())}


def split_of(item: Asked, forget: ForgetSet) -> str:
    """The split of an item under a forget set, or `unknown`; an independent item is of the retain set too."""
    return forget.split.get(item.id, "unknown")
