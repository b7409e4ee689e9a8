"""Scores of one model in rows of the user's own format: JSON, JSON Lines, CSV or TSV, one row per question.

Common names of columns are known, and the user names others (`--logs column:score=NAME`). A file with several models
holds an object of models, each with its splits, each with its rows. The role selects the model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from vestige.artifacts.scores import Measurement
from vestige.core.errors import InputError
from vestige.core.text import Fields, Record, TextMapping, TextTuple, closest, grouped, one_line
from vestige.data.tables import DELIMITERS, as_rows, read_table, separated
from vestige.logs.log import (
    TASKS,
    Beginning,
    How,
    Log,
    LogReading,
    hits_or_graded,
    is_empty,
    json_lines,
    number_of,
    plain,
    read_value,
    refuse_repeated,
)
from vestige.logs.open_unlearning import CHOICE, OVERLAP, PROBABILITY

COLUMNS: Mapping[str, TextTuple] = {
    "id": ("id", "item", "example_id", "sample_id", "question_id", "qid", "idx", "index", "uid"),
    "split": ("split", "eval_split", "partition", "subset", "set"),
    "question": ("question", "prompt", "input", "query"),
    "answer": ("answer", "target", "expected", "ground_truth", "gt", "reference", "gold"),
    "reply": ("reply", "prediction", "generated", "generation", "response", "output", "completion"),
    "group": ("group", "person_name", "person", "subject_name", "entity_id"),
    "model": ("model", "model_name"),
}
"""The meaning of a column, and its known names."""
SCORES: Mapping[str, Measurement] = {
    "target_probability": PROBABILITY,
    "probability": PROBABILITY,
    "prob": PROBABILITY,
    "answer_prob": PROBABILITY,
    **dict.fromkeys(("rouge_l", "rougel"), replace(OVERLAP, metric="ROUGE-L")),
    "rougel_recall": OVERLAP,
    "rouge_l_recall": OVERLAP,
    "exact_match": Measurement("exact match", "own words", "hit"),
    "correct": Measurement("correct", "own words", "hit"),
    "is_correct": Measurement("correct", "own words", "hit"),
    "contains_value": Measurement("contains the value", "own words", "hit"),
    "score": Measurement("score", "own words", "overlap"),
}
"""The columns that are known as scores, by name in lower case."""
_OPTION = re.compile(r"choice([A-Z])_probs?", re.IGNORECASE)
_DATA_SPLITS = ("forget", "retain", "independent", "factual", "holdout")
_DEEPEST = 4
"""Levels of objects in which rows are looked for."""


class _Block(NamedTuple):
    """Rows, and the keys under which they are in their file."""

    keys: TextTuple
    rows: Sequence[Record]


_OWNED = {"model", "role"}
"""Columns of a table of scores, which assigns each row to a model."""


def holds(start: Beginning) -> bool:
    """Whether the file holds rows with a column that is known as a score, or rows in a table."""
    return has_scores(start, {})


def has_scores(start: Beginning, columns: TextMapping) -> bool:
    """Whether the file holds rows with a score, by the user's columns or by the known names."""
    if start.path.suffix.lower() in (".csv", ".tsv"):
        header = _header(start.head)
        if "score" in columns:
            return columns["score"] in header
        names = {plain(name) for name in header}
        return not names >= _OWNED and bool(names & SCORES.keys() or any(map(_OPTION.fullmatch, names)))
    for block in _blocks(as_rows(str(start.path), start.value, whole=start.whole), columns):
        names = {plain(str(name)) for name in block.rows[0]}
        if _scores_in(block.rows, columns) and not names >= _OWNED:
            return True
    return False


def read(path: Path, how: How) -> Log:
    """The scores of one model.

    Raises:
        InputError: The file has several models and none is selected, or no column is known as a score.
    """
    reading = LogReading(path, how)
    blocks = _by_model(list(_blocks(_content(path), how.columns)), how.columns)
    models = _models(blocks)
    if models:
        if how.key not in models:
            named = ", ".join(one_line(name, width=40) for name in list(models)[:6])
            hint = f". {closest(how.key, list(models))}" if how.key else ""
            raise InputError(
                f"{path}: holds {len(models)} models ({named}){hint}. Name each with its role, as in "
                f"--logs target:NAME={one_line(path.name, width=80)}."
            )
        blocks = [block._replace(keys=block.keys[1:]) for block in blocks if block.keys[0] == how.key]
    for block in blocks:
        for row in block.rows:
            reading.decoded_with(row)
        _add(reading, block, how.columns)
    return reading.log()


def _by_model(blocks: Sequence[_Block], columns: TextMapping) -> list[_Block]:
    """Return the rows of each model as separate blocks, if a column names several models."""
    apart: list[_Block] = []
    for block in blocks:
        column = _named(_names_in(block.rows), "model", columns)
        by_model: dict[str, list[Record]] = {}
        for row in block.rows if column else ():
            by_model.setdefault(str(row.get(column)), []).append(row)
        blocks_of = [_Block((model, *block.keys), rows) for model, rows in by_model.items()]
        apart += blocks_of if len(blocks_of) > 1 else [block]
    return apart


def _models(blocks: Sequence[_Block]) -> dict[str, None]:
    """Return the models of a file with several, by the outermost keys. Empty if it has one."""
    outer: dict[str, set[TextTuple]] = {}
    for block in blocks:
        outer.setdefault("".join(block.keys[:1]), set()).add(block.keys[1:])
    if len(outer) < 2 or outer.keys() & {"", *_DATA_SPLITS}:
        return {}
    # Models have the same questions, and parts of one model's questions do not.
    if set.intersection(*outer.values()):
        return dict.fromkeys(outer)
    return {}


def _header(head: bytes) -> list[str]:
    # The last character may be cut off.
    text = head.decode("utf-8-sig", errors="ignore").encode()
    _, header = next(separated("the header", text, DELIMITERS), (1, []))
    return header


def _content(path: Path) -> Any:
    if path.suffix.lower() in (".csv", ".tsv"):
        return [row.values for row in read_table(path).rows]
    if path.suffix.lower() == ".jsonl":
        return list(json_lines(path))
    return as_rows(str(path), read_value(path))


def _blocks(value: Any, columns: TextMapping, keys: TextTuple = ()) -> Iterator[_Block]:
    """Every list of rows with a score, with the keys that lead to it.

    A list of numbers is one below a key that the user names as the score.
    """
    if isinstance(value, list):
        score = columns.get("score")
        if score in keys and value and all(isinstance(number, float | int) for number in value):
            yield _Block(keys, [{score: number} for number in value])
            return
        rows = [row for row in value if isinstance(row, dict)]
        if rows and _scores_in(rows, columns):
            yield _Block(keys, rows)
        return
    if not isinstance(value, dict) or len(keys) >= _DEEPEST:
        return
    if not keys and _scores_in([value], columns):
        # The first line of a JSON Lines file.
        yield _Block(keys, [value])
        return
    for key, inner in value.items():
        yield from _blocks(inner, columns, (*keys, str(key)))


def _names_in(rows: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(str(name) for row in rows for name in row))


def _scores_in(rows: Sequence[Record], columns: TextMapping) -> dict[str, Measurement]:
    """Return the columns of scores with their measurements."""
    names = _names_in(rows[:20])
    known = SCORES
    if "score" in columns:
        names = [columns["score"]]
        known = {plain(names[0]): Measurement(names[0], "own words", "overlap"), **SCORES}
    found: dict[str, Measurement] = {}
    for name in names:
        values = [row[name] for row in rows[:20] if name in row]
        # The first score may be missing.
        if plain(name) in known and any(is_empty(str(value)) or number_of(value) is not None for value in values):
            found[name] = known[plain(name)]
    if len({m.group(1) for name in names if (m := _OPTION.fullmatch(name))}) > 1:
        # The probabilities determine whether the likeliest option is right.
        return {"options": CHOICE}
    return found


def _named(names: Sequence[str], kind: str, columns: TextMapping) -> str:
    """Return the column of a kind, or "".

    Raises:
        InputError: The user names a column that the rows do not have.
    """
    if kind in columns:
        if columns[kind] not in names:
            raise InputError(
                f"the rows have no column {columns[kind]!r} ({kind}). {closest(columns[kind], list(names))}"
            )
        return columns[kind]
    lower = {name.strip().lower(): name for name in names}
    return next((lower[name] for name in COLUMNS[kind] if name in lower), "")


def _add(reading: LogReading, block: _Block, columns: TextMapping) -> None:
    names = _names_in(block.rows)
    column = {kind: _named(names, kind, columns) for kind in COLUMNS}
    scores = _scores_in(block.rows, columns)
    if CHOICE in scores.values() and not column["question"]:
        # Hendrycks' tables have numbers as names for the question, its options, and the letter of the right one.
        column["question"] = names[0]
    # As in `per_prompt_forget`.
    words = "_".join(block.keys).split("_")
    split_key = next((word for word in words if word in _DATA_SPLITS), "")
    outer = [key for key in block.keys if key not in ("per_item", "per_sample", "items", "rows", "results")]
    _refuse_totals(reading.path, block.rows, column)
    by_split = {"": list(block.rows)}
    if column["split"]:
        by_split = grouped(block.rows, lambda row: str(row.get(column["split"]) or ""))
    sets = {stated.lower().partition("_")[0] for stated in by_split}
    for stated, rows in by_split.items():
        split = stated or split_key
        # As in `retain_heldout` and TOFU's `forget10`.
        first = split.lower().partition("_")[0]
        part = first.rstrip("0123456789")
        # Two forget sets in one table are distinct: the user names the judged one.
        if part in ("forget", "retain") and sum(name.rstrip("0123456789") == part for name in sets) == 1:
            split = part
        # Another name for a part of the data is a task, whose split the user gives.
        reading.task = "" if split in _DATA_SPLITS else split or TASKS.join(outer)
        _add_rows(reading, split if split in _DATA_SPLITS else "forget", rows, column, scores)


_TOTALS = ("mean", "average", "avg", "total", "overall", "sum")


def _refuse_totals(path: Path, rows: Sequence[Record], column: TextMapping) -> None:
    """Reject a row that sums up the others: it would count as a question."""
    question, item = column["question"], column["id"]
    asks = bool(question) and any(row.get(question) not in (None, "") for row in rows)
    for number, row in enumerate(rows, 1):
        if asks and row.get(question) in (None, ""):
            raise InputError(f"{path}: row {number} has no question. Delete it if it sums up the others.")
        if item and str(row.get(item)).strip().lower() in _TOTALS:
            raise InputError(f"{path}: row {number} is called {row[item]!r} and is not a question. Delete it.")


def _add_rows(
    reading: LogReading, split: str, rows: Sequence[Record], column: TextMapping, scores: Mapping[str, Measurement]
) -> None:
    about: Fields = {}
    if column["id"]:
        about["ids"] = [str(row.get(column["id"])) for row in rows]
        refuse_repeated(reading.path, reading.task or split, about["ids"])
    question, answer = column["question"], column["answer"]
    if question and answer and not column["id"] and len({str(row.get(question)) for row in rows}) < len(rows):
        # The same question may have several answers, and a row may be repeated.
        apart: dict[str, Record] = {}
        for row in rows:
            first = apart.setdefault(f"{row.get(question)} = {row.get(answer)}", row)
            # Of two scores, neither is the model's: the first could hide a leak in the second.
            if any(first.get(name) != row.get(name) for name in (row if "options" in scores else scores)):
                asked = one_line(str(row[question]))
                raise InputError(f"{reading.path}: {asked!r} has two rows with different scores. Keep one.")
        if len(apart) < len(rows):
            reading.unread.append(f"{split}: {len(rows) - len(apart)} rows that repeat a question and its answer")
        about["ids"], rows = list(apart), list(apart.values())
    for field, kind in (("prompts", "question"), ("answers", "answer"), ("replies", "reply")):
        name = column[kind]
        if name and all(row.get(name) is not None for row in rows):
            about[field] = [row[name] for row in rows]
    for name, measurement in scores.items():
        if measurement is CHOICE:
            values, chance = _right_options(rows)
            reading.add(split, CHOICE, values, chance=chance, **about)
            continue
        values = _per_token(reading, rows, name)
        known = filter(None, map(number_of, values))
        if measurement.score_type == "hit" and hits_or_graded(known) != "hit":
            measurement = replace(measurement, score_type="overlap")
        reading.add(split, measurement, values, **about)


def _per_token(reading: LogReading, rows: Sequence[Record], name: str) -> list[Any]:
    """The scores of a column. A sum over tokens is divided by their number, if the user names its column."""
    values = [row.get(name) for row in rows]
    scale = reading.scales.get(name)
    if scale is None or not scale.tokens:
        return values
    reading.divided.add(name)
    means: list[Any] = []
    for number, (row, value) in enumerate(zip(rows, values, strict=True), 1):
        tokens, total = number_of(row.get(scale.tokens)), number_of(value)
        if total is None:
            means.append(value)
            continue
        if tokens is None or tokens < 1:
            raise InputError(
                f"{reading.path}: row {number} has no number of tokens in {one_line(scale.tokens)!r}. Name the column "
                f"that has it, as in --logs score:{one_line(name)}=nats/COLUMN."
            )
        means.append(total / tokens)
    return means


def _right_options(rows: Sequence[Record]) -> tuple[list[float | None], float | None]:
    """The probability of the right option of each row, and what guessing scores."""
    options = {m.group(1).upper(): name for name in rows[0] if (m := _OPTION.fullmatch(str(name)))}
    letters = [
        name
        for name in rows[0]
        if name not in options.values() and all(str(row.get(name)).strip().upper() in options for row in rows)
    ]
    if len(letters) != 1:
        return [None] * len(rows), None
    right = letters[0]
    values = [number_of(row.get(options[str(row[right]).strip().upper()])) for row in rows]
    return values, 1 / len(options)
