"""The score table: what each model scored on each question, and why a score is missing.

It is all that a judgement reads of the models. Audits, log readers and `vestige.judge` fill it, and one file keeps it,
so that a verdict can be given again without a model. A measurement describes a question and its score; no rule reads
its name.

Axes: N questions. Shares lie in [0, 1], bits are log2 of the answer's probability, an order has no scale.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float

from vestige.core.errors import InputError
from vestige.core.files import new_file
from vestige.core.ids import canonical_json
from vestige.core.store import typed
from vestige.core.text import one_line

SCHEMA = 1
"""Version of the file. A file of another version is refused."""

QuestionType = Literal["own words", "letter options", "text options", "forced answer", "internal layers"]
ScoreType = Literal["hit", "probability", "overlap", "bits", "rank", "order"]
Split = Literal["forget", "retain", "independent", "factual", "holdout"]
Role = Literal["target", "retrained", "unlearned", "placebo"]
Scores = Float[np.ndarray, " N"]


@dataclass(frozen=True)
class Measurement:
    """How a question was asked and scored.

    `direction` is 1 where a higher score means more knowledge, and -1 where a lower one does. Scores lie in [`low`,
    `high`]. `metric` and `version` name the definition: two definitions of one metric are two measurements. A `ratio`
    divides one probability by another, so that it says little where both are tiny.
    """

    name: str
    question_type: QuestionType
    score_type: ScoreType
    direction: Literal[1, -1] = 1
    low: float = 0.0
    high: float = 1.0
    metric: str = ""
    version: str = ""
    ratio: bool = False


@dataclass(frozen=True)
class Question:
    """One question: its split, the fact that it asks for, and the contract or person that the fact belongs to."""

    split: Split = "forget"
    fact: str = ""
    group: str = ""


class Asked(NamedTuple):
    """Who was asked how: a model, as it is or after one stage of an attack, by one measurement."""

    model: str
    attack: str
    stage: str
    measurement: str


class Texts(NamedTuple):
    """What was asked, the true answer, and the reply, to be shown."""

    question: str = ""
    answer: str = ""
    reply: str = ""


class ScoreRow(NamedTuple):
    """One score with all that the table knows of it. `score` is None where it is missing, for `reason`."""

    asked: Asked
    role: Role
    item: str
    question: Question
    score: float | None
    reason: str
    chance: float | None


class ScoreColumn:
    """The scores of one model by one measurement. NaN is a missing score; columns of the same items share an index."""

    def __init__(self, items: Sequence[str], scores: Iterable[float]) -> None:
        """Hold `scores` of `items`, in their order."""
        self.items = tuple(items)
        self.array: Scores = np.fromiter(scores, dtype=float, count=len(self.items))
        self._index = _index(self.items)

    def of(self, items: Sequence[str]) -> Scores:
        """The scores of `items`, in their order; NaN where there is none."""
        if tuple(items) == self.items:
            return self.array
        places = np.array([self._index.get(item, -1) for item in items], dtype=np.intp)
        found = np.append(self.array, math.nan)
        return found[places]


@lru_cache(maxsize=256)
def _index(items: tuple[str, ...]) -> dict[str, int]:
    return {item: n for n, item in enumerate(items)}


@dataclass
class ScoreTable:
    """Scores by model, attack, stage and measurement, over questions.

    `chances` has what guessing scores, by measurement and question. `reasons` says why a score is missing; a question
    of the table that a column does not have is missing without a reason. `texts` are by model, attack, stage and item.
    """

    roles: dict[str, Role] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    columns: dict[Asked, ScoreColumn] = field(default_factory=dict)
    chances: dict[str, dict[str, float]] = field(default_factory=dict)
    reasons: dict[Asked, dict[str, str]] = field(default_factory=dict)
    texts: dict[tuple[str, str, str], dict[str, Texts]] = field(default_factory=dict)

    def add(
        self,
        model: str,
        role: Role,
        measurement: Measurement,
        scores: Mapping[str, float | None],
        *,
        attack: str = "",
        stage: str = "",
        questions: Mapping[str, Question] | None = None,
        reasons: Mapping[str, str] | None = None,
        chances: Mapping[str, float] | None = None,
        texts: Mapping[str, Texts] | None = None,
    ) -> None:
        """Add what one model scored by one measurement.

        Args:
            model: The model's name, of which one role is known.
            role: The model's role.
            measurement: How it was asked and scored.
            scores: By question, the score, or None where it is missing.
            attack: The attack after which it was asked; empty for the model as it is.
            stage: The stage of the attack.
            questions: By question, split, fact and group; questions of the forget set may be left out.
            reasons: By question, why its score is missing.
            chances: By question, what guessing scores.
            texts: By question, what was asked and replied, to be shown.

        Raises:
            InputError: A row contradicts an earlier one, or a score lies outside of its measurement's range.

        Example:
            >>> table = ScoreTable()
            >>> match = Measurement("match", "own words", "hit")
            >>> table.add("full", "target", match, {"q1": 1.0, "q2": None}, reasons={"q2": "timed out"})
            >>> table.of("full", "match", ["q1", "q2"]).tolist()
            [1.0, nan]
        """
        asked = Asked(model, attack, stage, measurement.name)
        where = ", ".join(one_line(part, width=60) for part in asked if part)
        _agree(where, "role", self.roles.setdefault(model, role), role)
        _agree(where, "measurement", self.measurements.setdefault(measurement.name, measurement), measurement)
        for item in scores:
            question = (questions or {}).get(item, Question())
            _agree(
                f"{where}, {one_line(item, width=60)}", "question", self.questions.setdefault(item, question), question
            )
        array = [math.nan if score is None else float(score) for score in scores.values()]
        for item, score in zip(scores, array, strict=True):
            _within(f"{where}, {one_line(item, width=60)}", "score", score, measurement)
        column = ScoreColumn(tuple(scores), array)
        earlier = self.columns.get(asked)
        if earlier is not None:
            twice = next((item for item in column.items if item in set(earlier.items)), None)
            if twice is not None:
                raise InputError(f"{where}: the question {one_line(twice, width=60)} has two scores. Give one of them.")
            column = ScoreColumn((*earlier.items, *column.items), (*earlier.array, *column.array))
        self.columns[asked] = column
        known = self.chances.setdefault(measurement.name, {}) if chances else {}
        for item, chance in (chances or {}).items():
            _within(f"{where}, {one_line(item, width=60)}", "chance", chance, measurement)
            _agree(f"{where}, {one_line(item, width=60)}", "chance", known.setdefault(item, chance), chance)
        if reasons:
            self.reasons.setdefault(asked, {}).update(reasons)
        if texts:
            self.texts.setdefault(asked[:3], {}).update(texts)

    def items(self, split: str = "forget") -> tuple[str, ...]:
        """The questions of a split that any model was asked, in the order in which they came."""
        return tuple(item for item, question in self.questions.items() if question.split == split)

    def of(self, model: str, measurement: str, items: Sequence[str], *, attack: str = "", stage: str = "") -> Scores:
        """The scores of `items`, in their order; NaN where one is missing."""
        column = self.columns.get(Asked(model, attack, stage, measurement))
        if column is None:
            return np.full(len(items), math.nan)
        return column.of(items)

    def rows(self) -> Iterator[ScoreRow]:
        """Every score as a row, in the order in which the columns came."""
        for asked, column in self.columns.items():
            chances = self.chances.get(asked.measurement, {})
            reasons = self.reasons.get(asked, {})
            for item, score in zip(column.items, column.array.tolist(), strict=True):
                known = None if math.isnan(score) else score
                question = self.questions[item]
                role = self.roles[asked.model]
                yield ScoreRow(asked, role, item, question, known, reasons.get(item, ""), chances.get(item))


def _agree(where: str, label: str, first: object, value: object) -> None:
    if first != value:
        raise InputError(
            f"{where}: the {label} is {one_line(str(value), width=200)} here and {one_line(str(first), width=200)} in "
            "another row. Give both rows the same."
        )


def _within(where: str, label: str, number: float, measurement: Measurement) -> None:
    if math.isinf(number) or not (math.isnan(number) or measurement.low <= number <= measurement.high):
        raise InputError(
            f"{where}: the {label} {number!r} lies outside of [{measurement.low:g}, {measurement.high:g}]. Divide it "
            "by its largest value, or describe the score otherwise."
        )


_TEXT = pa.dictionary(pa.int32(), pa.string())
_COLUMNS = pa.schema(
    [
        *((name, _TEXT) for name in (*Asked._fields, "item")),
        ("score", pa.float64()),
        *((name, _TEXT) for name in ("reason", *Texts._fields)),
    ]
)


def write_table(path: Path, table: ScoreTable) -> None:
    """Write the table as one Parquet file: a row for each score, and what is known of models and questions beside."""
    body = {
        "schema": SCHEMA,
        "roles": table.roles,
        "questions": {item: asdict(question) for item, question in table.questions.items()},
        "measurements": [asdict(measurement) for measurement in table.measurements.values()],
        "chances": table.chances,
    }
    schema = _COLUMNS.with_metadata({"vestige": canonical_json(body)})
    shown: set[tuple[str, str, str, str]] = set()
    with new_file(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for asked, column in table.columns.items():
            n = len(column.items)
            texts = table.texts.get(asked[:3], {})
            reasons = table.reasons.get(asked, {})
            kept = []
            for item in column.items:
                # Texts are the same for every measurement of one answer, and are kept once.
                kept.append(Texts() if (*asked[:3], item) in shown else texts.get(item, Texts()))
                shown.add((*asked[:3], item))
            values: list[Sequence[str | None]] = [[part] * n for part in asked]
            values.append(column.items)
            arrays = [pa.array(value, pa.string()).dictionary_encode() for value in values]
            arrays.append(pa.array(column.array, pa.float64(), from_pandas=True))
            arrays.append(pa.array([reasons.get(item) for item in column.items], pa.string()).dictionary_encode())
            for field_ in Texts._fields:
                arrays.append(pa.array([getattr(text, field_) for text in kept], pa.string()).dictionary_encode())
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def read_table(path: Path) -> ScoreTable:
    """The table that `write_table` wrote.

    Raises:
        InputError: The file is no score table, or is of another version.
    """
    try:
        arrow = pq.read_table(path)
        body = json.loads((arrow.schema.metadata or {})[b"vestige"])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise InputError(f"{path}: this is no score table. Judge the scores again.") from error
    if not isinstance(body, dict) or body.get("schema") != SCHEMA or arrow.column_names != _COLUMNS.names:
        raise InputError(f"{path}: another version of Vestige wrote this score table. Judge the scores again.")
    measurements = typed(path, tuple[Measurement, ...], body["measurements"])
    table = ScoreTable(
        roles=typed(path, dict[str, Role], body["roles"]),
        questions=typed(path, dict[str, Question], body["questions"]),
        measurements={measurement.name: measurement for measurement in measurements},
        chances=typed(path, dict[str, dict[str, float]], body["chances"]),
    )
    columns = [arrow.column(name).to_pylist() for name in _COLUMNS.names]
    rows: dict[Asked, list[tuple[str, float | None]]] = {}
    for model, attack, stage, measurement, item, score, reason, *texts in zip(*columns, strict=True):
        asked = Asked(model, attack, stage, measurement)
        rows.setdefault(asked, []).append((item, score))
        if reason:
            table.reasons.setdefault(asked, {})[item] = reason
        if any(texts):
            table.texts.setdefault(asked[:3], {})[item] = Texts(*texts)
    for asked, of_column in rows.items():
        scores = [math.nan if score is None else score for _, score in of_column]
        table.columns[asked] = ScoreColumn([item for item, _ in of_column], scores)
    return table
