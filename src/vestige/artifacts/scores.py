"""The score table: what each model scored on each question, and why a score is missing.

It is all that a judgement reads of the models. Audits, log readers and `vestige.judge` fill it, and one file keeps it,
so that a verdict can be given again without a model. A measurement describes a question and its score; no rule reads
its name.

Axes: N questions. Shares lie in [0, 1], bits are log2 of the answer's probability, an order has no scale.
"""

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.core.errors import InputError
from vestige.core.files import Unpacked, json_line, new_file, open_input
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
    `high`], and where one of these is None they have no end on that side. `metric` and `version` name the definition:
    two definitions of one metric are two measurements. A `ratio` divides one probability by another, so that it says
    little where both are tiny.
    """

    name: str
    question_type: QuestionType
    score_type: ScoreType
    direction: Literal[1, -1] = 1
    low: float | None = 0.0
    high: float | None = 1.0
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


class ScoreColumn(Mapping[str, float]):
    """The scores of one model by one measurement, by question, in eight bytes each. NaN is a missing score.

    Columns of the same questions share an index.
    """

    def __init__(self, items: Sequence[str], scores: Iterable[float]) -> None:
        """Hold `scores` of `items`, in their order."""
        self.questions = tuple(items)
        self.array: Scores = np.fromiter(scores, dtype=float, count=len(self.questions))
        self._index = _index(self.questions)

    def __getitem__(self, item: str) -> float:
        """The score of a question."""
        return float(self.array[self._index[item]])

    def __iter__(self) -> Iterator[str]:
        """The questions, in their order."""
        return iter(self.questions)

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.array)

    def keys(self) -> KeysView[str]:
        """The questions; a dict's keys are compared as sets at once."""
        return self._index.keys()

    def of(self, items: Sequence[str]) -> Scores:
        """The scores of `items`, in their order; NaN where there is none."""
        if tuple(items) == self.questions:
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
            twice = next((item for item in column if item in earlier), None)
            if twice is not None:
                raise InputError(f"{where}: the question {one_line(twice, width=60)} has two scores. Give one of them.")
            column = ScoreColumn((*earlier, *column), (*earlier.array, *column.array))
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
            for item, score in zip(column, column.array.tolist(), strict=True):
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
    low = -math.inf if measurement.low is None else measurement.low
    high = math.inf if measurement.high is None else measurement.high
    if math.isinf(number) or not (math.isnan(number) or low <= number <= high):
        raise InputError(
            f"{where}: the {label} {number!r} lies outside of [{low:g}, {high:g}]. Divide it by its largest value, or "
            "describe the score otherwise."
        )


def write_table(path: Path, table: ScoreTable) -> None:
    """Write the table as one compressed file of JSON lines: models, questions and measurements, then a line a column.

    The same table gives the same bytes.
    """
    header = {
        "schema": SCHEMA,
        "roles": table.roles,
        "questions": {item: asdict(question) for item, question in table.questions.items()},
        "measurements": [asdict(measurement) for measurement in table.measurements.values()],
        "chances": table.chances,
    }
    shown: set[tuple[str, str, str, str]] = set()
    with new_file(path) as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(json_line(header).encode())
        for asked, column in table.columns.items():
            texts = table.texts.get(asked[:3], {})
            kept = {}
            for item in column:
                # Measurements of one answer share its texts, which are kept once.
                if item in texts and (*asked[:3], item) not in shown:
                    shown.add((*asked[:3], item))
                    kept[item] = list(texts[item])
            scores = [None if math.isnan(score) else score for score in column.array.tolist()]
            line = {
                "asked": list(asked),
                "items": list(column),
                "scores": scores,
                "reasons": table.reasons.get(asked, {}),
                "texts": kept,
            }
            packed.write(json_line(line).encode())


def read_table(path: Path) -> ScoreTable:
    """The table that `write_table` wrote.

    Raises:
        InputError: The file is no score table, is of another version, or unpacks to far more than it holds.
    """
    with open_input(path) as file:
        unpacked = Unpacked(gzip.GzipFile(fileobj=file), path.stat().st_size, str(path))
        try:
            with io.BufferedReader(unpacked) as lines:
                header = json.loads(lines.readline())
                columns = [json.loads(line) for line in lines]
        except InputError:
            raise
        except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
            raise InputError(f"{path}: this is no score table. Judge the scores again.") from error
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise InputError(f"{path}: another version of Vestige wrote this score table. Judge the scores again.")
    measurements = typed(path, tuple[Measurement, ...], header.get("measurements"))
    table = ScoreTable(
        roles=typed(path, dict[str, Role], header.get("roles")),
        questions=typed(path, dict[str, Question], header.get("questions")),
        measurements={measurement.name: measurement for measurement in measurements},
        chances=typed(path, dict[str, dict[str, float]], header.get("chances")),
    )
    for line in columns:
        column = typed(path, _Column, line)
        asked = Asked(*column.asked)
        known = asked.model in table.roles and asked.measurement in table.measurements
        if not known or len(column.items) != len(column.scores) or not table.questions.keys() >= {*column.items}:
            raise InputError(f"{path}: the score table contradicts itself. Judge the scores again.")
        scores = [math.nan if score is None else score for score in column.scores]
        table.columns[asked] = ScoreColumn(column.items, scores)
        if column.reasons:
            table.reasons[asked] = column.reasons
        for item, texts in column.texts.items():
            table.texts.setdefault(asked[:3], {})[item] = Texts(*texts)
    return table


@dataclass(frozen=True)
class _Column:
    """One line of the file."""

    asked: tuple[str, str, str, str]
    items: tuple[str, ...]
    scores: tuple[float | None, ...]
    reasons: dict[str, str]
    texts: dict[str, tuple[str, str, str]]
