"""Rows of benchmark tasks from files of people's own, with the columns that the same data have on the hub.

Files are found by name: `<task>.<ext>`, `<task>_<split>.<ext>`, or the same in a folder called as the task or its
family, with a folder a split in between if there is one: `mmlu/test/anatomy_test.csv`, `ARC-Easy/ARC-Easy-Test.jsonl`.
Where families were published in other columns than the hub's (MMLU as CSV, ARC as JSON Lines, TruthfulQA as CSV) they
are brought into the hub's; rows of any other task are handed on as they are.

MT-bench's questions: 80 conversations of two turns in eight categories, with reference answers for some. Zheng et al.,
Judging LLM-as-a-judge with MT-bench and Chatbot Arena, 2306.05685; the files are those of FastChat (`question.jsonl`,
`reference_answer/<who>.jsonl`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import read_jsonl
from vestige.core.text import one_line
from vestige.data.columns import Cells
from vestige.data.tables import FORMS, Table, read_table

WHOLE = ""
"""The split of a file whose name tells none: the one that is asked."""
_SPLITS = {
    **{name: name for name in ("train", "test", "validation", "dev")},
    **dict.fromkeys(("valid", "val"), "validation"),
}
_SHARED = ("truthfulqa",)
"""Families whose tasks ask the same rows in several ways."""

Splits = Mapping[str, Sequence[Mapping[str, Any]]]
"""Rows by the name of their split."""


@dataclass(frozen=True)
class LocalData:
    """Where rows are looked for: in the file or folder named for a task or its family, else in the folders."""

    folders: tuple[Path, ...] = ()
    named: Mapping[str, Path] = field(default_factory=dict)

    def covers(self, task: str) -> bool:
        """Whether the task's rows are to come from here."""
        return bool(self.folders) or task in self.named or _family(task) in self.named

    def rows(self, task: str) -> Splits | None:
        """The task's rows by split; None where nothing here is called like it."""
        found: dict[str, Path] = {}
        for split, path in self._files(task):
            if split in found and found[split] != path:
                raise InputError(
                    f"{found[split]} and {path} are both data of {task}; say which, as in --task-data {task}={path}"
                )
            found[split] = path
        rows = {split: _rows_of(read_table(path), task) for split, path in found.items()}
        return {split: own for split, own in rows.items() if own} or None

    def _files(self, task: str) -> Iterator[tuple[str, Path]]:
        family = _family(task)
        own = self.named.get(task, self.named.get(family))
        if own is not None and not own.exists():
            raise InputError(f"--task-data {task}={own}: no such file or folder")
        if own is not None and own.is_file():
            yield _split_of(own, WHOLE)[0], own
            return
        shared = {WHOLE, family} if family in (*_SHARED, *_WITH_SUBJECTS) else set()
        inside = {task, task.removeprefix(f"{family}_")} | shared
        places = [(own, inside | {WHOLE})] if own is not None else []
        for folder in () if own is not None else self.folders:
            if not folder.is_dir():
                raise InputError(f"--task-data {folder}: no such folder; for a file say which task's: TASK={folder}")
            places.append((folder, {task}))
            for name in sorted(path for path in folder.iterdir() if path.is_dir()):
                if _plain(name.name) == task:
                    places.append((name, inside | {WHOLE}))
                elif _plain(name.name) == family:
                    places.append((name, inside))
        for place, names in places:
            yield from _within(place, names)


def _within(place: Path, names: set[str]) -> Iterator[tuple[str, Path]]:
    """Data files in the folder, and in its folders that are called like splits, whose names are among `names`."""
    splits = {path: _SPLITS[_plain(path.name)] for path in place.iterdir() if _plain(path.name) in _SPLITS}
    for folder, split in [(place, WHOLE), *sorted((p, s) for p, s in splits.items() if p.is_dir())]:
        for path in sorted(folder.iterdir()):
            own, name = _split_of(path, split)
            if path.is_file() and path.suffix.lower() in FORMS and name in names:
                yield own, path


def _split_of(path: Path, above: str) -> tuple[str, str]:
    """The split that a file's name tells, else that of its folder, and the name without it."""
    before, _, last = _plain(path.stem).rpartition("_")
    return (_SPLITS[last], before) if last in _SPLITS else (above, _plain(path.stem))


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _family(task: str) -> str:
    return task.partition("_")[0]


def _rows_of(found: Table, task: str) -> list[dict[str, Any]]:
    family = _family(task)
    rows = found.rows
    if family in _WITH_SUBJECTS and "subject" in found.names:
        subject = task.removeprefix(f"{family}_")
        rows = tuple(row for row in rows if _plain(str(row.values.get("subject"))) == subject)
    elif family in _WITH_SUBJECTS and _split_of(Path(found.source), WHOLE)[1] in (WHOLE, family):
        raise InputError(f"{found.source}: has no column subject, so the rows of {task} cannot be found")
    read = _READERS.get(family, _as_it_is)
    return [read(_Row(found.source, row)) for row in rows]


class _Row(Cells):
    """One row of a benchmark."""

    def refused(self, what: str) -> InputError:
        return InputError(f"{self.source}, {self.row.place}: {what}")

    def get(self, column: str) -> Any:
        return self.row.values.get(column)


def _as_it_is(row: _Row) -> dict[str, Any]:
    return dict(row.row.values)


def _lettered(row: _Row) -> dict[str, Any]:
    """MMLU and WMDP: a question, four choices, the number of the right one."""
    choices = row.get("choices")
    if choices is None:
        numbered = [row.get(f"choice{n}") for n in range(4)]
        choices = [value if isinstance(value, str) else str(value) for value in numbered if value is not None]
    elif isinstance(choices, str):
        choices = _json(row, "choices")
    if not isinstance(choices, list) or len(choices) != 4 or not all(isinstance(c, str) for c in choices):
        raise row.refused("has no four choices, in a column choices or in choice0 to choice3")
    answer = row.get("answer")
    plain = answer.strip() if isinstance(answer, str) else answer
    letters = {letter: n for n, letter in enumerate("ABCD")}
    number = letters.get(plain, int(plain) if plain.isdecimal() else -1) if isinstance(plain, str) else plain
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 4:
        raise row.refused(f"the answer {one_line(repr(answer), width=40)} is neither 0 to 3 nor A to D")
    return {"question": row.text("question"), "choices": choices, "answer": number}


def _arc(row: _Row) -> dict[str, Any]:
    """The hub's form, or AI2's, where the question holds its choices; labels are letters or numbers from 1."""
    asked, choices = row.get("question"), row.get("choices")
    if isinstance(asked, Mapping):
        own = asked.get("choices")
        own = own if isinstance(own, list) and all(isinstance(c, Mapping) for c in own) else []
        asked, choices = asked.get("stem"), {key: [c.get(key) for c in own] for key in ("text", "label")}
    key = row.get("answerKey")
    listed = choices if isinstance(asked, str) and isinstance(choices, Mapping) else {}
    texts, labels = listed.get("text"), listed.get("label")
    if not (isinstance(texts, list) and isinstance(labels, list) and len(texts) == len(labels) and key in labels):
        raise row.refused("is not as ARC's are: a question, choices with text and label, an answerKey among the labels")
    if not all(isinstance(text, str) for text in texts):
        raise row.refused("has a choice that is no text")
    return {"question": asked, "choices": {"text": texts, "label": labels}, "answerKey": key}


def _truthful(row: _Row) -> dict[str, Any]:
    """The hub's multiple-choice form, or the published CSV: the best answer first, against the wrong ones (MC1)."""
    targets = row.get("mc1_targets")
    if targets is not None:
        labels = targets.get("labels") if isinstance(targets, Mapping) else None
        # The harness takes the first for right, whatever the labels say.
        if not isinstance(labels, list) or labels[:1] != [1] or any(labels[1:]):
            raise row.refused("mc1_targets has not its one right answer first")
        return {name: row.get(name) for name in ("question", "mc1_targets", "mc2_targets")}
    best, right, wrong = (
        row.text("Best Answer").strip(),
        _apart(row, "Correct Answers"),
        _apart(row, "Incorrect Answers"),
    )
    first = [best, *(text for text in wrong if text != best)]
    right = [best, *(text for text in right if text != best)]
    return {
        "question": row.text("Question"),
        "mc1_targets": {"choices": first, "labels": [1, *[0] * (len(first) - 1)]},
        "mc2_targets": {"choices": [*right, *wrong], "labels": [*[1] * len(right), *[0] * len(wrong)]},
    }


def _apart(row: _Row, column: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in row.text(column).split(";") if part.strip()))


def _json(row: _Row, column: str) -> Any:
    try:
        return json.loads(row.text(column))
    except (ValueError, RecursionError) as error:
        raise row.wrong(column, "is no list in JSON") from error


_READERS: Mapping[str, Callable[[_Row], dict[str, Any]]] = {
    "mmlu": _lettered,
    "wmdp": _lettered,
    "arc": _arc,
    "truthfulqa": _truthful,
}
_WITH_SUBJECTS = ("mmlu",)
"""Families that come in one file too, with a column that names the part."""

TURNS = 2
WITH_REFERENCE = ("math", "reasoning", "coding")
"""Categories that are judged beside a reference answer, as FastChat has it."""


@dataclass(frozen=True)
class Conversation:
    """What a person says in both turns, and how somebody answered both, where the category is judged beside that."""

    id: str
    category: str
    turns: tuple[str, str]
    references: tuple[str, str] | None = None


def read_mt_bench(folder: Path, *, limit: int | None = None) -> tuple[Conversation, ...]:
    """The conversations in their order; with `limit` the first of each category, in the order of the file."""
    questions, answers = folder / "question.jsonl", sorted((folder / "reference_answer").glob("*.jsonl"))
    if not questions.is_file():
        raise InputError(f"{folder} holds no question.jsonl; give the folder of FastChat's data/mt_bench")
    if len(answers) != 1:
        raise InputError(f"{folder / 'reference_answer'} holds {len(answers)} files of reference answers; give one")
    references = _references(answers[0])
    found: dict[str, Conversation] = {}
    for number, row in enumerate(read_jsonl(questions), 1):
        one = _conversation(f"{questions}, record {number}", row, references)
        if one.id in found:
            raise InputError(f"{questions}, record {number}: the question {one_line(one.id)} comes twice")
        found[one.id] = one
    if not found:
        raise InputError(f"{questions} holds no questions")
    taken: dict[str, int] = {}
    kept = []
    for one in found.values():
        taken[one.category] = taken.get(one.category, 0) + 1
        if limit is None or taken[one.category] <= limit:
            kept.append(one)
    return tuple(kept)


def _conversation(where: str, row: Any, references: Mapping[str, tuple[str, str]]) -> Conversation:
    if not isinstance(row, Mapping) or not isinstance(row.get("category"), str) or row.get("question_id") is None:
        raise InputError(f"{where}: has no question_id or no category")
    id_, category = str(row["question_id"]), row["category"]
    turns = _two(where, row.get("turns"))
    if category not in WITH_REFERENCE:
        return Conversation(id_, category, turns)
    if id_ not in references:
        raise InputError(
            f"{where}: {category} is judged beside a reference answer, and there is none to {one_line(id_)}"
        )
    return Conversation(id_, category, turns, references[id_])


def _references(path: Path) -> dict[str, tuple[str, str]]:
    found = {}
    for number, row in enumerate(read_jsonl(path), 1):
        where = f"{path}, record {number}"
        choices = row.get("choices") if isinstance(row, Mapping) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
            raise InputError(f"{where}: has no choices with turns")
        found[str(row.get("question_id"))] = _two(where, choices[0].get("turns"))
    return found


def _two(where: str, turns: Any) -> tuple[str, str]:
    fits = isinstance(turns, Sequence) and not isinstance(turns, str) and len(turns) == TURNS
    if not fits or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise InputError(f"{where}: has not two turns of text")
    return turns[0], turns[1]
