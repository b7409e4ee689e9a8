"""Multiple-choice data of other people's making, as items: the right option is the answer, the options stay with it.

Forms, told by their columns, of files and of data sets on the hub:

- `question`, `choices` (a list), `answer` or `label` (a number from 0, or a letter): WMDP, MMLU on the hub
- `question`, `choice0`, `choice1`, ..., `answer` (likewise): MMLU as CSV
- `question`, `option1`, `option2`, ..., `answer` (the right text): TOFU's real authors and world facts
- `Question`, `Best Answer`, `Correct Answers`, `Incorrect Answers` (apart by semicolons): TruthfulQA as CSV
- `question`, `mc1_targets`, `mc2_targets`: TruthfulQA on the hub

TruthfulQA's best answer stands against the wrong ones (its MC1); its other right answers are kept beside it (MC2).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vestige.core.errors import InputError
from vestige.core.items import Options
from vestige.core.text import one_line
from vestige.data.mcq import MOST_OPTIONS
from vestige.data.tables import Row, Table, shown

QUESTION, ANSWER, OPTIONS = "question", "answer", "options"
_NUMBERED = tuple(f"choice{n}" for n in range(MOST_OPTIONS))
_TEXTUAL = tuple(f"option{n}" for n in range(1, MOST_OPTIONS + 1))
_TRUTHFUL = ("Question", "Best Answer", "Correct Answers", "Incorrect Answers")
_TARGETS = ("mc1_targets", "mc2_targets")

COLUMNS = frozenset((QUESTION, ANSWER, "choices", "label", *_NUMBERED, *_TEXTUAL, *_TRUTHFUL, *_TARGETS))
"""Every column that a multiple-choice form has."""


def as_questions(found: Table) -> Table:
    """A table of a multiple-choice form with the columns `question`, `answer` and `options`; any other as it is."""
    read = next((reader for needed, reader in _FORMS if needed <= set(found.names)), None)
    if read is None:
        return found
    rows = tuple(
        Row(row.place, {**row.values, **read(_Place(f"{found.source}, {row.place}", row.values))}) for row in found.rows
    )
    return Table(found.source, tuple(dict.fromkeys((QUESTION, ANSWER, OPTIONS, *found.names))), rows)


@dataclass(frozen=True)
class _Place:
    """One row that complains with its place."""

    where: str
    values: Mapping[str, Any]

    def wrong(self, column: str, what: str) -> InputError:
        return InputError(f"{self.where}, column {shown([column])}: {what}")

    def text(self, column: str) -> str:
        value = self.values.get(column)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(column, "is missing, empty or no text")
        return value

    def filled(self, columns: Iterable[str]) -> list[str]:
        """The texts of numbered columns up to the first that is empty."""
        texts: list[str] = []
        for column in columns:
            value = self.values.get(column)
            # CSV pads shorter rows with empty cells, Parquet with nulls.
            if value is None or value == "":
                break
            texts.append(str(value) if isinstance(value, int | float) else self.text(column))
        return texts

    def listed(self, column: str, value: Any) -> list[str]:
        """A list of texts; also one written as JSON, since CSV has no lists."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise self.wrong(column, 'is no list in JSON; write it as ["...", "..."]') from error
        if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
            raise self.wrong(column, "is no list of texts")
        return value

    def options(self, column: str, texts: list[str], right: int, also: Iterable[str] = ()) -> dict[str, Any]:
        """What the row says, checked: two options and more, each once, no wrong one among the right."""
        others = [t for n, t in enumerate(texts) if n != right]
        also = tuple(dict.fromkeys(t for t in also if t != texts[right]))
        if not 2 <= len(texts) <= MOST_OPTIONS:
            raise self.wrong(column, f"gives {len(texts)} options; a question has 2 to {MOST_OPTIONS}")
        if texts[right] in others or set(also) & set(others):
            raise self.wrong(column, f"has the right option {one_line(texts[right], width=60)!r} among the wrong ones")
        return {ANSWER: texts[right], OPTIONS: Options(tuple(texts), right, also)}

    def place(self, column: str, texts: list[str]) -> int:
        """The right option's number: a number from 0, or a letter."""
        value = self.values.get(column)
        if isinstance(value, str):
            plain = value.strip()
            letter = len(plain) == 1 and plain.isascii() and plain.isalpha()
            value = ord(plain.upper()) - ord("A") if letter else int(plain) if plain.isdecimal() else None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < len(texts):
            raise self.wrong(
                column,
                f"is {one_line(repr(self.values.get(column)), width=40)} and names none of {len(texts)} options; "
                "give a number from 0 or a letter",
            )
        return value


def _listed_choices(row: _Place) -> dict[str, Any]:
    texts = row.listed("choices", row.values.get("choices"))
    key = "answer" if row.values.get("answer") is not None else "label"
    return row.options("choices", texts, row.place(key, texts))


def _numbered(row: _Place) -> dict[str, Any]:
    texts = row.filled(_NUMBERED)
    return row.options("choice0", texts, row.place("answer", texts))


def _textual(row: _Place) -> dict[str, Any]:
    texts, answer = row.filled(_TEXTUAL), row.text("answer")
    if answer not in texts:
        raise row.wrong("answer", f"is {one_line(answer, width=60)!r}, which is none of the options")
    return row.options("option1", texts, texts.index(answer))


def _truthful(row: _Place) -> dict[str, Any]:
    best = row.text("Best Answer").strip()
    right, wrong = (_apart(row.text(column)) for column in ("Correct Answers", "Incorrect Answers"))
    also = [t for t in right if t not in wrong]
    made = row.options("Incorrect Answers", [best, *(t for t in wrong if t != best)], 0, also)
    return {QUESTION: row.text("Question"), **made}


def _apart(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))


def _targets(row: _Place) -> dict[str, Any]:
    right, wrong = _labelled(row, "mc1_targets")
    if len(right) != 1:
        raise row.wrong("mc1_targets", f"has {len(right)} right options where one belongs")
    also = _labelled(row, "mc2_targets")[0] if row.values.get("mc2_targets") is not None else []
    return row.options("mc1_targets", [*right, *wrong], 0, [t for t in also if t not in wrong])


def _labelled(row: _Place, column: str) -> tuple[list[str], list[str]]:
    value = row.values.get(column)
    if not isinstance(value, Mapping):
        raise row.wrong(column, 'is no object like {"choices": [...], "labels": [...]}')
    texts, labels = row.listed(column, value.get("choices")), value.get("labels")
    if not isinstance(labels, list) or len(labels) != len(texts) or not set(labels) <= {0, 1}:
        raise row.wrong(column, "has labels that are not one 0 or 1 for each of its choices")
    return (
        [t for t, label in zip(texts, labels, strict=True) if label],
        [t for t, label in zip(texts, labels, strict=True) if not label],
    )


_FORMS = (
    ({QUESTION, "mc1_targets"}, _targets),
    (set(_TRUTHFUL), _truthful),
    ({QUESTION, "choices", "answer"}, _listed_choices),
    ({QUESTION, "choices", "label"}, _listed_choices),
    ({QUESTION, "choice0", "choice1", ANSWER}, _numbered),
    ({QUESTION, "option1", "option2", ANSWER}, _textual),
)
