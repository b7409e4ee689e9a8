"""The score table: each model's score on each question, and the reasons for missing scores.

It is all that a judgement reads of the models. Audits, log readers and `vestige.judge` fill it, and one file stores it,
so that an audit can be judged again without a model. A measurement describes a question and its score. No rule reads
its name.

Axes: N questions. Shares are in [0, 1], bits are log2 of the answer's probability, an order has no scale.
"""

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, cast

import numpy as np
from jaxtyping import Float

from vestige.core.errors import InputError
from vestige.core.files import Unpacked, json_line, new_file, open_input
from vestige.core.store import typed
from vestige.core.text import Items, Names, NumberByName, NumberMapping, TextByName, TextMapping, one_line

SCHEMA = 4
"""The version of the file. Other versions are rejected."""
_LEVEL = 3
"""The level of compression. The default of 9 takes four times as long for a file that is a tenth smaller."""

QuestionType = Literal["own words", "letter options", "text options", "forced answer", "internal layers"]
ScoreType = Literal["hit", "probability", "overlap", "bits", "rank", "order"]
Split = Literal["forget", "retain", "independent", "factual", "holdout"]
Role = Literal["target", "retrained", "unlearned", "placebo"]
Scores = Float[np.ndarray, " N"]
"""Scores by question."""


@dataclass(frozen=True)
class Measurement:
    """The prompt and the score of a measurement.

    `direction` is 1 if a higher score means more knowledge, and -1 if a lower score does. Scores are in [`low`,
    `high`], and None means that this side has no bound. `metric` and `version` name the definition: two definitions of
    one metric are two measurements. A `ratio` divides one probability by another and is unreliable if both are tiny.
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

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds of a score, infinite where a side has none."""
        return (-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)


@dataclass(frozen=True)
class Question:
    """One question: its split, its fact, and the contract or person of the fact."""

    split: Split = "forget"
    fact: str = ""
    group: str = ""


_OF_FORGET = Question()
HITS = ", hits"
"""After the name of a format, the name of its hits in a table of scores."""


class Format(NamedTuple):
    """One form of question, with the measurements that show knowledge.

    `key` is used with a `retrained` model. `hits` is used if chance is the only control, or if `key` has no scores.

    Graded scores (overlap, probability) have no known chance, since a model that never saw the facts uses some of the
    right words, and overlap has no values in scripts that ROUGE does not read. `hits` is "" if nothing can be counted.
    `chance` is the name of each item's guessing probability in the evaluation. "" means 0, as for an answer in the
    model's own words. `prompt` names the model's input, which several readings of one question share. "" is a prompt of
    its own. Multiple choice is judged by the probability of the right option, which varies less between trainings than
    the pick does (docs/verdicts.md). A `ratio` divides one probability by another. In a broken model both are tiny, and
    a fact that nobody knows has a ratio near 1. A ratio can keep a claim from passing, but single facts by a ratio
    never fail a claim. A format that is `kept` also shows whether a model retained its other knowledge.

    `drawn` names the measurement of the same probe fitted on random answers. The format is used only if that
    measurement is not above chance.
    """

    name: str
    key: str
    hits: str = ""
    chance: str = ""
    graded: bool = False
    prompt: str = ""
    question_type: QuestionType = "own words"
    ratio: bool = False
    kept: bool = False
    drawn: str = ""

    @property
    def inside(self) -> bool:
        """Whether the format reads hidden states instead of a reply."""
        return self.question_type == "internal layers"

    @property
    def forced(self) -> bool:
        """Whether the format is a forced answer's probability, which bits also measure."""
        return self.question_type == "forced answer" and self.graded and not self.ratio


class Staged(Protocol):
    """An attack, by its name and the stages at which models are scored."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def points(self) -> Names:
        """Return the stages. The last one is judged."""


class Source(NamedTuple):
    """Whose scores: a model as it is, or (`attack`, `point`) as an attack left it at one stage."""

    subject: str
    attack: str = ""
    point: str = ""

    @classmethod
    def after(cls, subject: str, attack: Staged | None) -> "Source":
        """A model as the last stage of an attack left it. Without one as it is."""
        if attack is None:
            return cls(subject)
        return cls(subject, attack.name, attack.points[-1])


Sourced = Source | str
"""Whose scores. Those of a model as it is by its name alone."""


def _source(source: Sourced) -> Source:
    if isinstance(source, str):
        return Source(source)
    return source


class Texts(NamedTuple):
    """Question, true answer and reply, for display."""

    question: str = ""
    answer: str = ""
    reply: str = ""


class ScoreColumn(NumberMapping):
    """The scores of one model by one measurement, by question, in eight bytes each. NaN is a missing score.

    Columns of the same questions share an index.
    """

    def __init__(self, items: Sequence[str], scores: Iterable[float]) -> None:
        """Hold `scores` of `items`, in their order."""
        self.questions, self._index = _indexed(tuple(items))
        if not isinstance(scores, np.ndarray):
            scores = np.fromiter(scores, dtype=float, count=len(self.questions))
        self.array: Scores = scores

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
        """The questions. A dict's keys are compared as sets at once."""
        return self._index.keys()

    def of(self, items: Sequence[str]) -> Scores:
        """The scores of `items`, in their order. NaN where there is none."""
        if tuple(items) == self.questions:
            return self.array
        places = np.array([self._index.get(item, -1) for item in items], dtype=np.intp)
        found = np.append(self.array, math.nan)
        return found[places]


@lru_cache(maxsize=256)
def _indexed(items: Items) -> tuple[Items, dict[str, int]]:
    """The first of equal tuples, which all columns share, and the place of each item."""
    return items, {item: n for n, item in enumerate(items)}


def column(table: NumberMapping) -> ScoreColumn:
    """The table as a column, which it may be already."""
    if isinstance(table, ScoreColumn):
        return table
    return ScoreColumn(tuple(table), table.values())


@dataclass
class ScoreTable:
    """Scores by source (a model before or after an attack), measurement and question.

    `chances` are the scores of guessing, by measurement and question. `reasons` gives the reason for a missing score. A
    question that a column lacks is missing without a reason. `texts` are by source and question. `formats` state which
    measurements read one form of question. An attack's reworded questions have the ids of their original items.
    """

    roles: dict[str, Role] = field(default_factory=dict)
    questions: dict[str, Question] = field(default_factory=dict)
    measurements: dict[str, Measurement] = field(default_factory=dict)
    values: Mapping[Source, Mapping[str, NumberMapping]] = field(default_factory=dict)
    chances: dict[str, NumberByName] = field(default_factory=dict)
    reasons: dict[tuple[Source, str], TextByName] = field(default_factory=dict)
    texts: dict[Source, dict[str, Texts]] = field(default_factory=dict)
    formats: tuple[Format, ...] = ()

    def __post_init__(self) -> None:
        """Store the scores as columns: an audit of thousands of facts has millions of scores."""
        columns: dict[Source, dict[str, ScoreColumn]] = {}
        for source, tables in self.values.items():
            columns[source] = {name: column(table) for name, table in tables.items()}
        self.values = columns

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
        reasons: TextMapping | None = None,
        chances: NumberMapping | None = None,
        texts: Mapping[str, Texts] | None = None,
    ) -> None:
        """Add one model's scores in one measurement.

        Args:
            model: The model's name. It has one role.
            role: The model's role.
            measurement: The measurement of these scores.
            scores: The score by question, or None if it is missing.
            attack: The attack before this measurement. Empty for the model as it is.
            stage: The stage of the attack.
            questions: Split, fact and group by question. Questions of the forget set may be left out.
            reasons: The reason for a missing score, by question.
            chances: The guessing probability by question.
            texts: Question, true answer and reply by question, for display.

        Raises:
            InputError: A row contradicts an earlier one, or a score is outside the measurement's range.

        Example:
            >>> table = ScoreTable()
            >>> match = Measurement("match", "own words", "hit")
            >>> table.add("full", "target", match, {"q1": 1.0, "q2": None}, reasons={"q2": "timed out"})
            >>> table.of("full", "match", ["q1", "q2"]).tolist()
            [1.0, nan]
        """
        source, name = Source(model, attack, stage), measurement.name
        where = _where(source, name)
        _agree(where, "role", self.roles.setdefault(model, role), role)
        _agree(where, "measurement", self.measurements.setdefault(name, measurement), measurement)
        of_questions = questions or {}
        # A caller that fills the table from one dict of questions has shared that dict.
        for item in scores if questions is not self.questions else ():
            question = of_questions.get(item, _OF_FORGET)
            first = self.questions.setdefault(item, question)
            # The description of the place is slow to build, and only an error needs it.
            if first is not question and first != question:
                _agree(f"{where}, {one_line(item, width=60)}", "question", first, question)
        if isinstance(scores, ScoreColumn):
            new = scores
        else:
            new = column({item: math.nan if score is None else float(score) for item, score in scores.items()})
        _within(where, "score", new, measurement)
        # The tables are changed in place: a copy for every column would take quadratic time.
        tables = cast(dict[Source, dict[str, ScoreColumn]], self.values).setdefault(source, {})
        earlier = tables.get(name)
        if earlier is not None:
            if twice := new.keys() & earlier.keys():
                raise InputError(f"{where}: the question {one_line(min(twice), width=60)} has two scores. Remove one.")
            new = ScoreColumn((*earlier.questions, *new.questions), np.concatenate([earlier.array, new.array]))
        tables[name] = new
        known = self.chances.setdefault(name, {}) if chances else {}
        _within(where, "chance", chances or {}, measurement)
        for item, chance in (chances or {}).items():
            _agree(f"{where}, {one_line(item, width=60)}", "chance", known.setdefault(item, chance), chance)
        if reasons:
            self.reasons.setdefault((source, name), {}).update(reasons)
        if texts:
            self.texts.setdefault(source, {}).update(texts)

    @property
    def bits(self) -> str:
        """Return the measurement in bits, or ""."""
        return next((name for name, its in self.measurements.items() if its.score_type == "bits"), "")

    @property
    def judged_keys(self) -> Names:
        """Return the measurements of all formats and the bits."""
        keys = [self.bits]
        for form in self.formats:
            keys += [form.key, form.hits]
        return tuple(filter(None, dict.fromkeys(keys)))

    def items(self, split: str = "forget") -> Items:
        """Return the questions of a split that any model answered, in order of appearance."""
        return tuple(item for item, question in self.questions.items() if question.split == split)

    def keys(self, source: Sourced) -> Names:
        """The measurements that a source has."""
        return tuple(self.values.get(_source(source), {}))

    def table(self, source: Sourced, key: str) -> NumberMapping:
        """Return the scores by question, or None if the source was not asked."""
        return self.values.get(_source(source), {}).get(key, {})

    def common(self, sources: Sequence[Sourced], key: str, items: Sequence[str]) -> Items:
        """Return those of `items`, in order, that have a score by the measurement `key` in every source."""
        # Whole key sets are compared: nearly all tables have all items, of which there may be thousands.
        there = dict.fromkeys(items).keys()
        for source in sources:
            table = self.table(source, key).keys()
            if not there <= table:
                there = dict.fromkeys(i for i in there if i in table).keys()
        return tuple(i for i in items if i in there)

    def of(self, source: Sourced, key: str, items: Sequence[str]) -> Scores:
        """The scores of `items` in their order. Every item must exist (see `common`)."""
        values = column(self.table(source, key)).of(items)
        if np.isnan(values).any():
            raise KeyError(f"{source} has no {key} of some of these questions")
        return values

    def rows(self, sources: Sequence[Sourced], key: str, items: Sequence[str]) -> Float[np.ndarray, "S N"]:
        """The scores of several sources, a row each."""
        return np.stack([self.of(source, key, items) for source in sources])

    def judged(self) -> "ScoreTable":
        """The table as it is judged: a higher score means more knowledge, and a missing score has no place."""
        values: dict[Source, dict[str, NumberMapping]] = {}
        for source, tables in self.values.items():
            values[source] = {}
            for name, table in tables.items():
                its, scores = self.measurements[name], column(table)
                # A reversed share is subtracted from its maximum. A reversed order changes its sign.
                array = scores.array if its.direction > 0 else (its.high or 0.0) - scores.array
                there = ~np.isnan(array)
                if not there.all():
                    array, scores = array[there], ScoreColumn(tuple(compress(scores.questions, there)), array[there])
                if there.any():
                    values[source][name] = ScoreColumn(scores.questions, array)
        return replace(self, values=values)

    def check(self) -> None:
        """Reject a score that is missing or outside its measurement's range."""
        for source, tables in self.values.items():
            for name, table in tables.items():
                where, scores = _where(source, name), column(table)
                for n in np.flatnonzero(np.isnan(scores.array))[:1].tolist():
                    raise InputError(f"{where}, {one_line(scores.questions[n], width=60)}: there is no score.")
                _within(where, "score", scores, self.measurements[name])


def _where(source: Source, measurement: str) -> str:
    return ", ".join(one_line(part, width=60) for part in (*source, measurement) if part)


def _agree(where: str, label: str, first: object, value: object) -> None:
    if first != value:
        raise InputError(
            f"{where}: the {label} is {one_line(str(value), width=200)} here and {one_line(str(first), width=200)} in "
            "another row. Give both rows the same."
        )


def _within(where: str, label: str, numbers: NumberMapping, measurement: Measurement) -> None:
    low, high = measurement.ends
    scores = column(numbers)
    outside = np.isinf(scores.array) | (scores.array < low) | (scores.array > high)
    advice = "State its range in the columns low and high, such as 0 and 100"
    if measurement.score_type == "bits":
        advice = "Bits are the log2 of a probability, so none is above 0"
    for n in np.flatnonzero(outside)[:1].tolist():
        raise InputError(
            f"{where}, {one_line(scores.questions[n], width=60)}: the {label} {scores.array[n].item()!r} is outside "
            f"[{low:g}, {high:g}]. {advice}."
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
        "formats": [form._asdict() for form in table.formats],
    }
    with (
        new_file(path) as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, filename="", mtime=0) as packed,
    ):
        packed.write(json_line(header).encode())
        for source, tables in table.values.items():
            texts = table.texts.get(source, {})
            # Measurements of one answer share its texts, which are stored once.
            shown: set[str] = set()
            for name, scores in tables.items():
                known = column(scores)
                there = [item for item in known.questions if item in texts and item not in shown]
                shown.update(there)
                line = {
                    "source": list(source),
                    "measurement": name,
                    "items": known.questions,
                    "scores": [None if score != score else score for score in known.array.tolist()],
                    "reasons": table.reasons.get((source, name), {}),
                    "texts": {item: list(texts[item]) for item in there},
                }
                packed.write(json_line(line).encode())


def is_current(path: Path) -> bool:
    """Whether this version of Vestige wrote the score table. `read_table` checks the rest."""
    if not path.is_file():
        return False
    with open_input(path) as file:
        try:
            return gzip.GzipFile(fileobj=file).read(len(_BEGINS)) == _BEGINS
        except (OSError, EOFError, zlib.error):
            return False


_BEGINS = f'{{"schema": {SCHEMA},'.encode()
"""The first bytes of a table of this version."""


def read_table(path: Path) -> ScoreTable:
    """The table that `write_table` wrote.

    Raises:
        InputError: The file is no score table, is of another version, or unpacks to far more than it holds.
    """
    with open_input(path) as file:
        unpacked = Unpacked(gzip.GzipFile(fileobj=file), path.stat().st_size, str(path))
        try:
            with io.BufferedReader(unpacked) as lines:
                first = json.loads(lines.readline())
                rest = [json.loads(line) for line in lines]
        except InputError:
            raise
        except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
            raise InputError(f"{path}: this is not a score table. Judge the scores again.") from error
    if not isinstance(first, dict) or first.get("schema") != SCHEMA:
        raise InputError(f"{path}: another version of Vestige wrote this score table. Judge the scores again.")
    header = typed(path, _Header, first)
    measurements = {measurement.name: measurement for measurement in header.measurements}
    values: dict[Source, dict[str, ScoreColumn]] = {}
    reasons: dict[tuple[Source, str], TextByName] = {}
    texts: dict[Source, dict[str, Texts]] = {}
    for line in rest:
        part = typed(path, _Column, line)
        source = Source(*part.source)
        known = source.subject in header.roles and part.measurement in measurements
        if not known or len(part.items) != len(part.scores) or not header.questions.keys() >= {*part.items}:
            raise InputError(f"{path}: the score table contradicts itself. Judge the scores again.")
        scores = [math.nan if score is None else score for score in part.scores]
        values.setdefault(source, {})[part.measurement] = ScoreColumn(part.items, scores)
        if part.reasons:
            reasons[source, part.measurement] = part.reasons
        for item, of_item in part.texts.items():
            texts.setdefault(source, {})[item] = Texts(*of_item)
    return ScoreTable(
        roles=header.roles,
        questions=header.questions,
        measurements=measurements,
        values=values,
        chances=header.chances,
        reasons=reasons,
        texts=texts,
        formats=header.formats,
    )


@dataclass(frozen=True)
class _Header:
    """The first line of the file."""

    schema: int
    roles: dict[str, Role]
    questions: dict[str, Question]
    measurements: tuple[Measurement, ...]
    chances: dict[str, NumberByName]
    formats: tuple[Format, ...]


@dataclass(frozen=True)
class _Column:
    """A further line of the file: one column of scores."""

    source: tuple[str, str, str]
    measurement: str
    items: Items
    scores: tuple[float | None, ...]
    reasons: TextByName
    texts: dict[str, tuple[str, str, str]]
