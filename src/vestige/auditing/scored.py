"""One table of scores, a row for each answer of a model to a question, as it is read and checked.

Whoever asked the models, in whatever language, brings the scores; docs/logs.md says what each column holds. Shares lie
in [0, 1], bits are log2 of the answer's probability, and of an `order` only larger and smaller counts.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from vestige.artifacts.audits import Format
from vestige.auditing.formats import FORMATS
from vestige.auditing.ground import BITS_KEY
from vestige.auditing.measures import kept_key
from vestige.auditing.membership import PREFIX
from vestige.core.errors import InputError
from vestige.core.text import closest, one_line
from vestige.data.tables import read_table

COLUMNS: Mapping[str, str] = {
    "model": "the name of the model",
    "role": "target, retrained, unlearned, or placebo (a model that surely still knows)",
    "split": "forget (the default), retain, independent, factual, or holdout",
    "item": "the id of the question",
    "fact": "the id of the fact that it asks for, where several questions ask for one",
    "wording": "which wording of the question this is, where `item` names the fact",
    "format": "how it was asked and scored; `score` by default",
    "attack": "the attack after which it was asked; empty: the model as it is",
    "score": "a number",
    "unit": "share (in [0, 1], the default), bits (log2 of the answer's probability), or order (membership)",
    "chance": "what guessing scores on this question, in the unit of the score",
    "group": "the contract, person or other group that the fact belongs to",
    "question": "the text that was asked, to be shown",
    "answer": "the true answer, to be shown",
    "reply": "what the model said, to be shown",
}
"""The columns of a table of scores; all but model, role, item and score may be left out."""
NEEDED = ("model", "role", "item", "score")
SPLITS = ("forget", "retain", "independent", "factual", "holdout")
UNITS = ("share", "bits", "order")
ROLES: Mapping[str, str] = {
    "target": "target",
    "retrained": "retrained",
    "unlearned": "unlearned",
    "placebo": "suppressed",
}
"""The roles of a table, and what they are called in a run."""
_OWN = {form.name: form for form in FORMATS}


class Unfit(InputError):
    """The scores of one model cannot be judged beside the others; `name` is the model's."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class QuestionScore(NamedTuple):
    """One row: what one model scored on one question, and where that stands."""

    model: str
    role: str
    item: str
    score: float
    split: str = "forget"
    fact: str = ""
    format: str = "score"
    attack: str = ""
    unit: str = "share"
    chance: float | None = None
    group: str = ""
    question: str = ""
    answer: str = ""
    reply: str = ""


@dataclass
class ScoreTable:
    """What the rows say, score_table: values by model, attack, key and item; texts by model, attack and item."""

    values: dict[tuple[str, str], dict[str, dict[str, float]]] = field(default_factory=dict)
    texts: dict[tuple[str, str], dict[str, dict[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    roles: dict[str, str] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    chances: set[str] = field(default_factory=set)
    about: dict[str, dict[str, str]] = field(default_factory=lambda: {"fact": {}, "group": {}, "question": {}})


def read_scores(table: Any) -> list[QuestionScore]:
    """The rows of a table: a file, a list of mappings, or what Arrow reads as a table, such as a DataFrame."""
    if isinstance(table, str | PathLike):
        read = read_table(Path(table))
        placed = [(f"{read.source}, {row.place}", row.values) for row in read.rows]
    elif isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table):
        placed = [(f"row {n}", row) for n, row in enumerate(table, 1)]
    else:
        try:
            rows = pa.table(table).to_pylist()
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(
                f"the table is {type(table).__name__}, which is none ({one_line(str(error), width=200)}); give a file, "
                "a list of dicts, or a DataFrame"
            ) from error
        placed = [(f"row {n}", row) for n, row in enumerate(rows, 1)]
    if not placed:
        raise InputError("the table of scores holds no rows")
    return [_scored(where, row) for where, row in placed]


def _scored(where: str, row: Mapping[str, Any]) -> QuestionScore:
    unknown = next((name for name in row if name not in COLUMNS), None)
    if unknown is not None:
        hint = closest(str(unknown), list(COLUMNS))
        raise InputError(f"{where}: no column of a table of scores is called {one_line(str(unknown))!r}; {hint}")
    text = {name: _text(where, name, row.get(name)) for name in COLUMNS if name not in ("score", "chance")}
    for name in NEEDED:
        if row.get(name) in (None, ""):
            raise InputError(f"{where}: the column {name} is empty, and it needs {COLUMNS[name]}")
    # With wordings `item` names the fact, and each of them is an item by itself.
    wording = text.pop("wording")
    text["fact"] = text["fact"] or (text["item"] if wording else "")
    text["item"] = f"{text['item']} ({wording})" if wording else text["item"]
    for name in ("split", "format", "unit"):
        text[name] = text[name] or str(QuestionScore._field_defaults[name])
    chance = None if row.get("chance") in (None, "") else _number(where, "chance", row["chance"])
    return QuestionScore(**text, score=_number(where, "score", row["score"]), chance=chance)


def _text(where: str, name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value)
    raise InputError(f"{where}: the column {name} holds {type(value).__name__}, and it needs {COLUMNS[name]}")


def _number(where: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{where}: the column {name} holds {one_line(repr(value))}, which is no number; leave such "
            "rows out if the question was not answered, and say so"
        )
    return number


def score_table(rows: Iterable[QuestionScore]) -> ScoreTable:
    """The rows by model, key and item; what contradicts itself is refused by name."""
    read = ScoreTable()
    for row in rows:
        _check(read, row)
        key = _key(row)
        table = read.values.setdefault((row.model, row.attack), {}).setdefault(key, {})
        if row.item in table:
            raise InputError(f"{_where(row)} has two scores; give one, or tell the questions apart by `wording`")
        table[row.item] = row.score
        if row.chance is not None:
            read.chances.add(row.format)
            chance = (_OWN[row.format].chance if row.format in _OWN else "") or f"{row.format}/chance"
            read.values[row.model, row.attack].setdefault(chance, {})[row.item] = row.chance
        # Any of the rows of a question may bring its texts.
        texts = {name: text for name in ("question", "answer", "reply") if (text := getattr(row, name))}
        if texts:
            read.texts[row.model, row.attack].setdefault(row.item, {}).update(texts)
    return read


def _check(read: ScoreTable, row: QuestionScore) -> None:
    for column, value, allowed in (("role", row.role, ROLES), ("split", row.split, SPLITS), ("unit", row.unit, UNITS)):
        if value not in allowed:
            words = ", ".join(allowed)
            raise InputError(f"{_where(row)}: the {column} {one_line(value)!r} is not one; they are {words}")
    before = {
        "role": (read.roles.setdefault(row.model, row.role), row.role),
        "split": (read.splits.setdefault(row.item, row.split), row.split),
        **{
            column: (texts.setdefault(row.item, value), value)
            for column, texts in read.about.items()
            if (value := getattr(row, column))
        },
    }
    for column, (first, value) in before.items():
        if first != value:
            raise InputError(
                f"{_where(row)}: the {column} is {one_line(value)!r} here and {one_line(first)!r} in another row; one "
                "model has one role, and one item is one question"
            )
    # Bits of forced answers stand beside their probabilities.
    name = f"{row.format}, bits" if (row.format, row.unit) == ("forced", "bits") else row.format
    unit = read.units.setdefault(name, row.unit)
    if unit != row.unit:
        raise InputError(
            f"{_where(row)}: the format is scored in {row.unit} here and in {unit} elsewhere; give each unit a format "
            "of its own"
        )
    # Bits of another format would have no prior and no margin.
    if row.unit == "bits" and row.format != "forced":
        raise InputError(f"{_where(row)}: bits are those of the true answer, in the format forced; call it that")
    for name, number in (("score", row.score), ("chance", row.chance)):
        if number is None:
            continue
        if not math.isfinite(number):
            raise InputError(f"{_where(row)}: the {name} is {number}, which is no number")
        if row.unit == "share" and not 0.0 <= number <= 1.0:
            raise InputError(
                f"{_where(row)}: the {name} {number:g} is no share, which lies in [0, 1]; divide it by "
                "its largest value, or give it another unit"
            )
        if row.unit == "bits" and number > 0.0:
            raise InputError(f"{_where(row)}: the {name} {number:g} is above 0, and bits are log2 of a probability")


def _where(row: QuestionScore) -> str:
    parts = (row.model, row.attack, row.format, row.item)
    return ", ".join(one_line(part, width=60) for part in parts if part)


def _key(row: QuestionScore) -> str:
    # An order has no scale, so that nothing but an AUC can be made of it.
    if row.unit == "order":
        return f"{PREFIX}{row.format}"
    if row.unit == "bits":
        return BITS_KEY
    if row.format in _OWN:
        return _OWN[row.format].key
    # That a model was asked what is kept says nothing of whether it was asked what is forgotten.
    return f"{row.format}/score" if row.split == "forget" else kept_key(row.format)


def formats_in(read: ScoreTable) -> tuple[Format, ...]:
    """The formats of the table that are not Vestige's own; what is 0 or 1 throughout counts hits."""
    formats = []
    for name, unit in read.units.items():
        if unit != "share" or name in _OWN:
            continue
        key = f"{name}/score"
        both = (key, kept_key(name))
        values = {v for tables in read.values.values() for k in both for v in tables.get(k, {}).values()}
        # Hits have a known chance and another prior than graded scores.
        counts = values <= {0.0, 1.0}
        chance = f"{name}/chance" if name in read.chances else ""
        formats.append(Format(name, key, key if counts or chance else "", chance, graded=not counts))
    return tuple(formats)
