"""Turn one score table into a run like any other: its plan, its models' folders, its verdicts.

Plan, judgement and files are the same as for an audit's own answers, so the table can be judged again with other
margins.

A table of scores has one row for each answer of a model to a question.

The scores come from the user's own tool, in any language. docs/logs.md describes the columns. Shares are in [0, 1],
bits are log2 of the answer's probability, and an `order` counts only by rank.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np

from vestige.artifacts.audits import GIVEN, AuditOutcome, AuditPlan, PlannedAttack
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import (
    HITS,
    Format,
    Measurement,
    Question,
    QuestionType,
    Role,
    ScoreColumn,
    Scores,
    ScoreTable,
    ScoreType,
    Source,
    Split,
    Texts,
)
from vestige.artifacts.scores import column as as_column
from vestige.auditing.ground import SHARE
from vestige.auditing.predicted import PredictedControls
from vestige.auditing.run import judge_plan, write_scores
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.files import locked
from vestige.core.ids import content_id
from vestige.core.items import Scope
from vestige.core.settings import read_settings, write_settings
from vestige.core.text import (
    Fields,
    Items,
    Record,
    Sentences,
    TextByName,
    closest,
    folded,
    grouped,
    half_character,
    listed,
    one_line,
)
from vestige.data.tables import read_table
from vestige.logs.log import is_empty, is_loss, number_of, per_cent_and_shares
from vestige.metrics.verdicts import Thresholds

COLUMNS: Mapping[str, str] = {
    "model": "the name of the model",
    "role": "target, retrained, unlearned, or placebo (a model that surely still knows)",
    "split": "forget (the default), retain, independent, factual, or holdout",
    "drawn_from": "how many questions the split has, where these are a part of them",
    "scope": "entailed or guessable where retained answers give this one away: then it is not judged",
    "item": "the id of the question",
    "fact": "the id of the fact that it asks for, where several questions ask for one",
    "wording": "which wording of the question this is, where `item` names the fact",
    "format": "how it was asked and scored; `score` by default. `NAME, hits`: the right answers behind NAME",
    "attack": "the attack after which it was asked; empty: the model as it is",
    "score": "a number; empty where the question was not answered or not scored",
    "reason": "why the score is missing",
    "question_type": "own words, letter options, text options, forced answer, or internal layers",
    "ratio": "yes where the score divides one probability by another; no by default",
    "direction": "higher (the default) where a higher score means that the model knows, or lower",
    "unit": "share (in [0, 1], the default), bits (log2 of the answer's probability), or order (membership)",
    "chance": "what guessing scores on this question, in the unit of the score",
    "low": "the lowest value that the score can have, where it is no share",
    "high": "the highest value that the score can have, where it is no share",
    "group": "the contract, person or other group that the fact belongs to",
    "question": "the text that was asked, to be shown",
    "answer": "the true answer, to be shown",
    "reply": "what the model said, to be shown",
}
"""The columns of a table of scores. All except model, role, item and score are optional."""
NEEDED = ("model", "role", "item")
SPLITS: tuple[Split, ...] = get_args(Split)
UNITS = ("share", "bits", "order")
ROLES: tuple[Role, ...] = get_args(Role)
DIRECTIONS: Mapping[str, Literal[1, -1]] = {"higher": 1, "lower": -1}
YES = "yes"
_LEAST_USED = 0.5
"""The minimum part of a given range that the scores of all models must use."""
_RATINGS = 10
"""The highest rating. A range that ends higher is in per cent or points."""
_HITS = 0.95
"""The minimum share of scores of 0 or 1 for a correct/incorrect format."""


class Unfit(InputError):
    """The scores of one model cannot be judged next to the others. `name` is the model's name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


_OF_QUESTION = ("item", "split", "drawn_from", "scope", "fact", "group", "question")
_OF_COLUMN = ("model", "role", "format", "attack", "unit", "question_type", "direction", "ratio")
_DEFAULTS = {"split": "forget", "format": "score", "unit": "share", "direction": "higher"}


def read_scores(table: Any) -> list[Fields]:
    """Return the rows of a table: a file, a list of mappings, or a table that Arrow can read, such as a DataFrame.

    A row is one model's score on one question, without the columns `wording`, `low` and `high`.
    """
    if isinstance(table, str | PathLike):
        placed = _of_file(Path(table))
    else:
        listed_rows = isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table)
        placed = [(f"row {n}", row) for n, row in enumerate(table if listed_rows else _records(table), 1)]
    if not placed:
        raise InputError("the table of scores has no rows. Give a row for each answer")
    spelled = [(where, _spelled(where, row)) for where, row in placed]
    rows = [_scored(where, row) for where, row in spelled]
    _refuse_mixed(spelled, rows)
    return rows


def refuse_misfit(name: str, by_model: Mapping[str, Sequence[float]], ends: tuple[float, float]) -> list[str]:
    """Reject a range that is too wide for the scores, since it makes a pass easier.

    Args:
        name: The name of the score.
        by_model: The scores of each model as shares of the range. NaN is a missing score.
        ends: The ends of the range.

    Returns:
        The models whose scores may be shares in place of per cent. Such scores decide nothing.

    Raises:
        InputError: The highest and the lowest score are too close to each other.
    """
    every = list(chain(*by_model.values()))
    lowest, highest = np.nanmin(every), np.nanmax(every)
    if highest - lowest < _LEAST_USED:
        raise InputError(
            f"{one_line(name, width=80)}: all scores lie between {lowest:.0%} and {highest:.0%} of the stated range, "
            "and a range that is too wide makes a pass easier. State the range that the scores use."
        )
    low, high = ends
    doubtful = []
    for model, shares in by_model.items():
        scores = low + np.array(shares) * (high - low)
        # Ratings of 0 and 1 are no shares.
        divided = high > _RATINGS or (scores % 1 > 0).any()
        if divided and 0 < np.nanmax(scores, initial=0.0) <= 1 < high:
            doubtful.append(model)
    return doubtful


UNIT_UNKNOWN = "none of its scores is above 1, as if they were shares; give the scores of all models as shares"
"""Why the scores of a model in a wider range are missing."""


def _refuse_mixed(placed: Sequence[tuple[str, Record]], rows: Sequence[Fields]) -> None:
    """Reject per cent signs on only some scores of a format, two ranges, and model names that differ only in case."""
    written: dict[str, list[Any]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    scaled: dict[str, dict[str, list[float]]] = {}
    models: TextByName = {}
    for (where, row), scored in zip(placed, rows, strict=True):
        name = scored["model"]
        first = models.setdefault(folded(name), name)
        if first != name:
            raise InputError(
                f"{where}: the model is {one_line(name)!r} here and {one_line(first)!r} in another row. "
                "Write one name for one model."
            )
        bounds = scored["bounds"]
        if scored["score"] is not None and ranges.setdefault(scored["format"], bounds) != bounds:
            raise InputError(
                f"{where}: the range of {one_line(scored['format'], width=60)} is another than in earlier rows. Give "
                "all rows of a format the same low and high."
            )
        if row.get("score") is not None:
            written.setdefault(scored["format"], []).append(row["score"])
        if bounds != SHARE and scored["score"] is not None:
            scaled.setdefault(scored["format"], {}).setdefault(name, []).append(scored["score"])
    for name, by_model in scaled.items():
        doubtful = refuse_misfit(name, by_model, ranges[name])
        for row in rows:
            if row["format"] == name and row["model"] in doubtful:
                row |= {"score": None, "reason": UNIT_UNKNOWN}
    for name, values in written.items():
        if str in map(type, values) and per_cent_and_shares(values):
            raise InputError(
                f"some scores of {one_line(name, width=60)} have a per cent sign and others have none. Write all alike."
            )


def _of_file(path: Path) -> list[tuple[str, Record]]:
    """Return the rows of a file with their places. In JSON they may be a list below one key, or each column a list."""
    read = read_table(path)
    if len(read.rows) == 1:
        only = read.rows[0].values
        if isinstance(only.get("model"), list | dict):
            return [(f"{path}, row {n}", row) for n, row in enumerate(_records(only), 1)]
        lists = {}
        for name, value in only.items():
            if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
                lists[name] = value
        if len(lists) > 1:
            raise InputError(f"{path}: contains several lists of rows ({listed(lists)}). Keep one.")
        for name, rows in lists.items():
            return [(f"{path}, {one_line(name, width=40)}, row {n}", row) for n, row in enumerate(rows, 1)]
    return [(f"{read.source}, {row.place}", row.values) for row in read.rows]


_INDEX = ("", "unnamed: 0", "__index_level_0__", "rownames", "row.names", "x", "...1")
"""Names of the row number column in files from R and pandas."""


def _spelled(where: str, row: Record) -> Fields:
    """Return the row with column names in lower case, and without a column of row numbers."""
    named: Fields = {}
    for key, value in row.items():
        name = str(key).strip().lower()
        if name in _INDEX:
            continue
        if name in named:
            raise InputError(f"{where}: two columns have the name {one_line(name, width=40)}. Keep one.")
        if isinstance(value, str) and half_character(value):
            raise InputError(f"{where}: {one_line(name, width=40)} has half a character. Write the whole one.")
        # The missing values of pandas are of types of its own.
        named[name] = None if not isinstance(value, str) and is_empty(str(value)) else value
    return named


def _records(table: Any) -> list[Record]:
    """Return the rows of a DataFrame of pandas or polars, of an Arrow table, or of a data set."""
    try:
        if isinstance(table, Mapping):
            # pandas writes each column as an object by index.
            columns = {name: list(v.values() if isinstance(v, Mapping) else v) for name, v in table.items()}
            return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        # The to_dict of a data set gives columns.
        for method in ("to_pylist", "to_dicts", "to_list"):
            if hasattr(table, method):
                return list(getattr(table, method)())
        return list(table.to_dict("records"))
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"the table is a {type(table).__name__}, which has no rows. Give a file, a list of dicts, or a DataFrame."
        ) from error


def _scored(where: str, row: Record) -> Fields:
    unknown = next((name for name in row if name not in COLUMNS), None)
    if unknown is not None:
        hint = closest(str(unknown), list(COLUMNS))
        raise InputError(
            f"{where}: a table of scores has no column {one_line(str(unknown))!r}. {hint} Each row is one score, with "
            "model, role and item. Make a column a model into rows (pandas: melt, R: pivot_longer)."
        )
    text = {name: _text(where, name, row.get(name)) for name in COLUMNS if name not in _NUMBERS}
    for name in text.keys() - {"question", "answer", "reply", "reason"}:
        text[name] = text[name].strip()
    for name in ("role", "split", "unit", "direction", "ratio"):
        text[name] = text[name].lower()
    for name in NEEDED:
        if row.get(name) in (None, ""):
            raise InputError(
                f"{where}: the column {name} is empty, and it needs {COLUMNS[name]}. Delete a row that sums up others."
            )
    # With wordings, `item` names the fact, and each wording is a separate item.
    wording = text.pop("wording")
    text["fact"] = text["fact"] or (text["item"] if wording else "")
    text["item"] = f"{text['item']} ({wording})" if wording else text["item"]
    for name, usual in _DEFAULTS.items():
        text[name] = text[name] or usual
    score, chance, low, high, drawn_from = (_number(where, name, row.get(name)) for name in _NUMBERS)
    if text["unit"] == "share" and is_loss(text["format"]):
        raise InputError(
            f"{where}: a loss has no range, and a wider one would make a pass easier. Give probabilities: exp(-loss) "
            "of the mean loss a token, and a format of another name."
        )
    bounds = low or 0.0, 1.0 if high is None else high
    if bounds != SHARE:
        score, chance = (_of_range(where, number, *bounds) for number in (score, chance))
    return {**text, "score": score, "chance": chance, "drawn_from": int(drawn_from or 0), "bounds": bounds}


_NUMBERS = ("score", "chance", "low", "high", "drawn_from")
"""The numeric columns."""


def _of_range(where: str, number: float | None, low: float, high: float) -> float | None:
    """Return a score as a share of its range: 4 of 1 to 5 is 0.75."""
    if not low < high:
        raise InputError(f"{where}: the range from {low:g} to {high:g} is empty. Give low below high.")
    if number is None:
        return None
    if not low <= number <= high:
        raise InputError(f"{where}: {number:g} is outside its range, {low:g} to {high:g}. Correct low or high.")
    return (number - low) / (high - low)


def _text(where: str, name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value)
    raise InputError(f"{where}: the column {name} holds {type(value).__name__}, and it needs {COLUMNS[name]}")


def _number(where: str, name: str, value: Any) -> float | None:
    """Return the number, or None if the column is empty, in the spelling of R or of spreadsheets."""
    if value is None or (isinstance(value, str) and is_empty(value)):
        return None
    # The parser reads TRUE and FALSE of R and Excel, decimal commas, and words such as "correct".
    number = number_of(value)
    if number is None or not math.isfinite(number):
        raise InputError(
            f"{where}: the column {name} holds {one_line(repr(value))}, which is not a number. Leave it empty if the "
            "question was not answered, and give the reason."
        )
    return number


_Said = dict[tuple[str, str], str]
"""The first value of a column, by the column and the model, question or format that it describes."""


class ModelScores(NamedTuple):
    """One model's scores by one measurement. `items`, `scores` and the fields after them have one value per question.

    Missing `scores` and `chances` are NaN. `splits`, `facts`, `groups` and `questions` are empty if all values are the
    default. `reasons` and `texts` are by item.
    """

    model: str
    role: str
    items: Items
    scores: Scores
    splits: Items = ()
    facts: Items = ()
    groups: Items = ()
    scopes: Items = ()
    drawn_from: tuple[int, ...] = ()
    questions: Items = ()
    chances: Scores | None = None
    reasons: Mapping[str, str] = {}
    texts: Mapping[str, Texts] = {}
    format: str = "score"
    attack: str = ""
    unit: str = "share"
    question_type: str = ""
    direction: str = "higher"
    ratio: str = ""

    @property
    def name(self) -> str:
        """The name of the measurement. The bits of an answer have a different name from its probability."""
        if self.unit == "bits":
            return f"{self.format}, bits"
        return self.format


def columns_of(rows: Iterable[Fields]) -> list[ModelScores]:
    """Return the rows by model and measurement. Contradictory rows are in separate columns."""
    columns = []
    for of_column, its_rows in grouped(rows, itemgetter(*_OF_COLUMN)).items():
        values = {name: tuple(map(itemgetter(name), its_rows)) for name in _OF_QUESTION}
        texts = {row["item"]: Texts(row["question"], row["answer"], row["reply"]) for row in its_rows}
        column = ModelScores(
            items=values["item"],
            scores=np.array([row["score"] for row in its_rows], dtype=float),
            splits=values["split"],
            facts=values["fact"],
            groups=values["group"],
            scopes=values["scope"],
            drawn_from=values["drawn_from"],
            questions=values["question"],
            chances=np.array([row["chance"] for row in its_rows], dtype=float),
            reasons={row["item"]: row["reason"] for row in its_rows if row["reason"]},
            texts={item: text for item, text in texts.items() if any(text)},
            **dict(zip(_OF_COLUMN, of_column, strict=True)),
        )
        columns.append(column)
    return columns


def score_table(columns: Sequence[ModelScores]) -> ScoreTable:
    """Return the scores as a score table.

    Raises:
        InputError: A value is invalid, or contradicts another one.
    """
    said: _Said = {}
    questions: dict[str, Question] = {}
    checked: set[tuple[Items, ...]] = set()
    for column in columns:
        _check_column(said, column)
        of_questions = column.items, column.splits, column.scopes, column.facts, column.groups, column.questions
        # A thousand models share the same questions.
        if of_questions not in checked:
            checked.add(of_questions)
            _check_questions(said, column)
    _refuse_untold(columns)
    for kind, item in said:
        if kind == "split":
            split = cast(Split, said[kind, item])
            questions[item] = Question(split, said.get(("fact", item), ""), said.get(("group", item), ""))
    by_name = grouped(columns, lambda column: column.name)
    measurements = {name: _measurement(said, name, of_name) for name, of_name in by_name.items()}
    table = ScoreTable(questions=questions)
    for column in columns:
        table.add(
            column.model,
            cast(Role, said["role", column.model]),
            measurements[column.name],
            ScoreColumn(column.items, column.scores),
            attack=column.attack,
            stage=GIVEN if column.attack else "",
            questions=questions,
            reasons=column.reasons,
            chances=_chances(column),
            texts=column.texts,
        )
    table.formats = _formats(table)
    return table


def _chances(column: ModelScores) -> dict[str, float]:
    if column.chances is None:
        return {}
    numbers = zip(column.items, column.chances.tolist(), strict=True)
    return {item: chance for item, chance in numbers if not math.isnan(chance)}


def _measurement(said: _Said, name: str, columns: Sequence[ModelScores]) -> Measurement:
    """Return the measurement of one format. Scores that are almost always 0 or 1 count as correct or incorrect."""
    unit = said["unit", name]
    guessed = any(any(_chances(column).values()) for column in columns)
    if unit == "bits":
        usual = "forced answer"
    elif guessed:
        usual = "text options"
    else:
        usual = "own words"
    scores = np.concatenate([column.scores for column in columns])
    scores = scores[~np.isnan(scores)]
    # A few halves among hits must not disable their tests.
    hits = int(np.isin(scores, (0.0, 1.0)).sum()) >= _HITS * len(scores)
    kinds: Mapping[str, tuple[ScoreType, float | None, float | None]] = {
        "share": ("hit" if hits else "overlap", 0.0, 1.0),
        "bits": ("bits", None, 0.0),
        "order": ("order", None, None),
    }
    score_type, low, high = kinds[unit]
    return Measurement(
        name=name,
        question_type=cast(QuestionType, said.get(("question type", name), usual)),
        score_type=score_type,
        direction=DIRECTIONS[said["direction", name]],
        low=low,
        high=high,
        ratio=said.get(("ratio", name)) == YES,
    )


def _check_column(said: _Said, column: ModelScores) -> None:
    """Reject a value that is invalid in its column, or that contradicts an earlier one for the model or format."""
    where, name = _where(column, 0), column.name
    _agree(said, where, "role", column.model, column.role, ROLES)
    _agree(said, where, "unit", name, column.unit, UNITS)
    _agree(said, where, "direction", name, column.direction, tuple(DIRECTIONS))
    _agree(said, where, "question type", name, column.question_type, get_args(QuestionType))
    # A ratio is judged less strictly, so one row must not decide for the others.
    _agree(said, where, "ratio", name, column.ratio or "no", (YES, "no"))
    if column.unit == "bits":
        # The prior and the margin in bits apply to the true answer's bits only.
        _agree(said, where, "format in bits", "", name, ())
        if column.direction != "higher":
            raise InputError(f"{where}: more bits mean that the model knows. Leave the direction out.")


_ALLOWED: Mapping[str, Items] = {"split": SPLITS, "scope": get_args(Scope)}


def _check_questions(said: _Said, column: ModelScores) -> None:
    """Reject a question that occurs twice in the column, or whose description contradicts an earlier one."""
    kinds = ("split", "scope", "fact", "group", "question")
    described = (column.splits, column.scopes, column.facts, column.groups, column.questions)
    for kind, values in zip(kinds, described, strict=True):
        allowed = _ALLOWED.get(kind, ())
        for place, value in enumerate(values):
            item = column.items[place]
            # The description of the place is needed for an error only, and takes longer than all other steps here.
            if value and (said.get((kind, item)) != value):
                _agree(said, _where(column, place), kind, item, value, allowed)
    if len(set(column.items)) < len(column.items):
        place = next(n for n, item in enumerate(column.items) if item in column.items[:n])
        raise InputError(f"{_where(column, place)} has two scores. Give one, or tell the questions apart by `wording`")


def _refuse_untold(columns: Sequence[ModelScores]) -> None:
    """Reject statements about a measurement or question if the target's rows contain none.

    A judged model must not choose how it is measured: which of its answers can be guessed, or count as one fact or one
    event. A question without a score of the target is untested, whatever the rows state about it.
    """
    of_target: dict[tuple[str, str], str] = {}
    measured: set[str] = set()
    for column in (column for column in columns if column.role == "target"):
        of_target |= _stated(column)
        measured |= {column.name, *column.items, *(f"{column.name}, {item}" for item in column.items)}
    for column in columns:
        for (kind, about), value in _stated(column).items():
            if about in measured and (kind, about) not in of_target:
                where = one_line(f"{column.model}, {about}: the {kind} is {value!r} here")
                raise Unfit(column.model, f"{where}, and the target's rows state none. State it for the target too.")


def _stated(column: ModelScores) -> dict[tuple[str, str], str]:
    """Return the statements in the rows of a column, by kind and by format or question."""
    stated = {}
    if column.question_type:
        stated["question type", column.name] = column.question_type
    described = {"scope": column.scopes, "fact": column.facts, "group": column.groups, "size": column.drawn_from}
    for kind, values in described.items():
        stated |= {(kind, item): str(value) for item, value in zip(column.items, values, strict=False) if value}
    return stated | {("chance", f"{column.name}, {item}"): f"{it:g}" for item, it in _chances(column).items()}


def _agree(said: _Said, where: str, kind: str, about: str, value: str, allowed: Sequence[str]) -> None:
    if not value:
        return
    if allowed and value not in allowed:
        raise InputError(f"{where}: the {kind} {one_line(value)!r} is unknown. Give one of {', '.join(allowed)}")
    first = said.setdefault((kind, about), value)
    if first != value:
        raise InputError(
            f"{where}: the {kind} is {one_line(value)!r} here and {one_line(first)!r} in another row. One model has "
            "one role, one item is one question, and one format has one unit. One format is in bits."
        )


def _where(column: ModelScores, place: int) -> str:
    parts = (column.model, column.attack, column.format, column.items[place])
    return ", ".join(one_line(part, width=60) for part in parts if part)


def _formats(table: ScoreTable) -> tuple[Format, ...]:
    """Return a format for each measurement in shares."""
    formats = []
    for name, measurement in table.measurements.items():
        if measurement.score_type in ("bits", "order"):
            continue
        if name.endswith(HITS) and name.removesuffix(HITS) in table.measurements:
            continue
        # Hits have a known chance level and another prior than graded scores.
        counts = measurement.score_type == "hit"
        hits = name if counts or table.chances.get(name) else ""
        if f"{name}{HITS}" in table.measurements:
            counts, hits = False, f"{name}{HITS}"
        formats.append(
            Format(
                name=name,
                key=name,
                hits=hits,
                graded=not counts,
                question_type=measurement.question_type,
                ratio=measurement.ratio,
                kept=True,
            )
        )
    return tuple(formats)


COMMAND = "judge"
"""The command in run.toml for a run of scores."""
EVAL = "table"
"""The name of an attack from a table."""

UNSEEN = (
    "The weights of no model were seen, only scores: that each model is what it is called, that all were asked alike, "
    "and that the retrained models never saw the forget set, is as whoever made the scores says."
)
NOTHING_ASKED: Record = {
    "evals": (),
    "forms": (),
    "relearn": (),
    "quantize": (),
    "ablate": (),
    "in_context": (),
    "suppress": False,
}
"""The audit settings for evaluations and attacks, all empty, since a table replaces them."""


def judge_table(
    run: RunFolder,
    columns: Sequence[ModelScores],
    *,
    forget: str,
    margins: Record | None = None,
    source: str = "a table of scores",
    untested: Sequence[str] = (),
    banked: Mapping[str, str] | None = None,
    predicted: PredictedControls | None = None,
) -> AuditOutcome:
    """Judge the models of one table. The scores, the plan, the outcome and the verdicts are in `run`.

    Args:
        run: The output folder.
        columns: The scores.
        forget: The name of the forget set.
        margins: `Thresholds` by name.
        source: The origin of the scores.
        untested: Sentences on unreadable parts.
        banked: The laboratories of controls from the bank, by name.
        predicted: How the controls were predicted, if nobody retrained one.
    """
    run.refuse_others_files()
    with locked(run.lock):
        if run.settings.exists() and read_settings(run.settings).get("command") != COMMAND:
            raise InputError(
                f"{run.path} holds a run of another command. Choose another folder for judgements of scores"
            )
        table = score_table(columns)
        plan = _with_stated(
            plan_of(table, forget=forget, margins=margins, untested=(*untested, *_missing(columns)), banked=banked),
            columns,
        )
        if predicted is not None:
            plan = replace(plan, evidence_level="predicted", predicted=dict(predicted.errors))
        write_settings(run.settings, {"command": COMMAND, "scores": one_line(source, width=500)})
        plan = write_scores(run, plan, table)
        return judge_plan(run, run.audit(forget), plan, table)


def _missing(columns: Sequence[ModelScores]) -> Iterator[str]:
    """Say in a sentence which scores are missing, and why."""
    for column in columns:
        missing = np.flatnonzero(np.isnan(column.scores))
        if missing.size:
            reasons = Counter(map(one_line, column.reasons.values())).most_common(3)
            why = "; ".join(f"{n} times: {reason}" for reason, n in reasons)
            yield (
                f"{one_line(column.model)} has no score {one_line(column.name)} on {len(missing)} of "
                f"{len(column.items)} questions{f' ({why})' * bool(why)}."
            )


def _with_stated(plan: AuditPlan, columns: Sequence[ModelScores]) -> AuditPlan:
    """Return the plan with the stated scopes, and the sizes and groups of splits that were only partly evaluated.

    The target's rows contain them. A judged model must not decide which of its answers count.
    """
    scopes: dict[str, Scope] = {}
    edges: TextByName = {}
    sizes = dict(plan.sizes)
    for column in (column for column in columns if column.role == "target"):
        for item, scope in zip(column.items, column.scopes, strict=False):
            if scope:
                scopes[item] = cast(Scope, scope)
        of_questions = zip(column.items, column.splits, column.groups, column.drawn_from, strict=False)
        for item, split, group, size in of_questions:
            sizes[split] = max(sizes.get(split, 0), size)
            # Questions of one group are resampled together.
            if size and group and split != "forget":
                edges[item] = group
    return replace(plan, scopes=scopes, sizes=sizes, edges=edges)


def plan_of(
    table: ScoreTable,
    *,
    forget: str,
    margins: Record | None = None,
    untested: Sequence[str] = (),
    banked: Mapping[str, str] | None = None,
) -> AuditPlan:
    """Return the plan that the table implies.

    Measurements of the forget set that no unlearned model has are removed from the table.

    Raises:
        InputError: A role is missing, or one model has two names.
    """
    names = _names_by_role(table)
    _refuse_unshared(table, names)
    notes = (*_refuse_copies(table), *_drop_copied(table, names))
    splits: dict[str, Items] = {split: items for split in SPLITS if (items := table.items(split))}
    facts, groups = _facts_and_groups(table, splits["forget"])
    return AuditPlan(
        forget=forget,
        target=names["target"][0],
        unlearned=tuple(names["unlearned"]),
        retrained=tuple(names["retrained"]),
        suppressed=next(iter(names["placebo"]), ""),
        folders={},
        splits=splits,
        edges={},
        scopes={},
        attacks=_attacks(table, splits["forget"]),
        settings=settings_of(margins or {}).identity(),
        seed=0,
        untested=(UNSEEN, *untested, *notes),
        data=content_id([splits["forget"], splits.get("retain", ())], length=32),
        sizes={split: len(items) for split, items in splits.items()},
        facts=facts,
        groups=groups,
        evidence_level="logs",
        banked=banked or {},
    )


def _facts_and_groups(table: ScoreTable, forget: Sequence[str]) -> tuple[TextByName, TextByName]:
    """Return, by question, the first question about the same fact, and its group."""
    first: TextByName = {}
    facts: TextByName = {}
    groups: TextByName = {}
    for item in forget:
        question = table.questions[item]
        lead = first.setdefault(question.fact or item, item)
        if lead != item:
            facts[item] = lead
        if question.group:
            groups[item] = question.group
    return facts, groups


def settings_of(margins: Record) -> AuditSettings:
    """Return the settings of an audit without evaluations, with these margins. Any other value is rejected by name."""
    for name in margins:
        if name not in Thresholds.model_fields:
            hint = closest(name, list(Thresholds.model_fields))
            raise InputError(f"{one_line(name, width=40)} is not a margin, the only setting for scores. {hint}")
    return AuditSettings.build({**NOTHING_ASKED, **margins}, where="margins of the judgement")


def _names_by_role(table: ScoreTable) -> dict[str, list[str]]:
    """Return the models in each role. Reject a table that cannot be judged."""
    names: dict[str, list[str]] = {role: [m for m, its in table.roles.items() if its == role] for role in ROLES}
    if len(names["target"]) != 1:
        many = f"has {len(names['target'])} ({listed(names['target'])})" if names["target"] else "has none"
        raise InputError(f"a judgement has one target, the model before unlearning, and the table {many}. Give it one")
    if not names["unlearned"]:
        raise InputError("no model in the table has the role unlearned. Give this role to the models to judge")
    if len(names["placebo"]) > 1:
        raise InputError(f"a judgement has one placebo, and the table has {listed(names['placebo'])}. Name one")
    if not table.items("forget"):
        raise InputError("no item in the table is in the split forget. Give this split to the questions to forget")
    if not names["retrained"] and not table.chances and not table.items("retain"):
        raise InputError(
            "the table has neither a retrained model nor the column chance, so the score of a model without "
            "exposure is unknown, and no retained question shows lost knowledge. Give the scores of a retrained model"
        )
    return names


def _refuse_unshared(table: ScoreTable, names: Mapping[str, Sequence[str]]) -> None:
    """Reject a model that has scores of the forget set, but none that the target has too."""
    forget = set(table.items("forget"))

    def asked(model: str) -> dict[str, set[str]]:
        tables = table.values.get(Source(model), {})
        return {name: items for name, scores in tables.items() if (items := forget.intersection(scores))}

    of_target = asked(names["target"][0])
    for model in (*names["unlearned"], *names["retrained"]):
        own = asked(model)
        if not own or not of_target or any(own[name] & of_target[name] for name in own.keys() & of_target.keys()):
            continue
        target = f"{one_line(names['target'][0], width=60)}, the target"
        if own.keys() & of_target.keys():
            differ = f"question {min(min(own.values()))!r}, and {target}, {min(min(of_target.values()))!r}"
        else:
            differ = f"the scores {listed(own)}, and {target}, {listed(of_target)}"
        raise Unfit(
            model,
            f"{one_line(model, width=60)} has {one_line(differ, width=300)}: no score of one question in common. Give "
            "equal items and formats the same names.",
        )


def _refuse_copies(table: ScoreTable) -> Sentences:
    """Reject a control whose scores all equal another model's, and say in a sentence which subjects are alike.

    Two trainings may have the same hits, or no hits at all, but not the same graded scores. A copy of an unlearned
    model, or one that equals the target, does not affect the others.
    """
    scores: dict[str, dict[str, tuple[Items, bytes]]] = {}
    graded: set[str] = set()
    for (model, attack, _), tables in table.values.items():
        if attack:
            continue
        for name, of_model in tables.items():
            known = as_column(of_model)
            items = _ordered(known.questions)
            scores.setdefault(model, {})[name] = items, known.of(items).tobytes()
            if len(np.unique(known.array)) > 2:
                graded.add(model)
    first: dict[frozenset[tuple[str, tuple[Items, bytes]]], str] = {}
    alike = []
    for name in (name for name in scores if name in graded):
        same = first.setdefault(frozenset(scores[name].items()), name)
        if same == name:
            continue
        both = f"{one_line(name, width=60)} and {one_line(same, width=60)} have the same scores on every question"
        if "retrained" in (table.roles[name], table.roles[same]):
            raise Unfit(name, f"{both}, so they are one model, or one log under two names; leave one out.")
        alike.append(f"{both}.")
    return tuple(alike)


_DISTINCT = 10
"""The number of different scores from which two trainings do not have the same scores on all questions of a split."""


def _drop_copied(table: ScoreTable, names: Mapping[str, Sequence[str]]) -> Sentences:
    """Remove a control's scores on kept questions that equal another model's exactly, and report it.

    A control that equals another model completely was rejected. A control whose scores differ on the forget set is a
    separate model, so the equal scores were copied between logs. They show nothing, and would merge the two models into
    one training.
    """
    first: dict[tuple[str, Items, bytes], str] = {}
    equal: dict[tuple[str, str], list[tuple[str, Split]]] = {}
    # Controls come last, since an unlearned model may well answer kept questions like its target.
    for model in (*names["target"], *names["unlearned"], *names["retrained"]):
        for name, scores in table.values.get(Source(model), {}).items():
            known = as_column(scores)
            by_split = grouped(_ordered(known.questions), lambda item: table.questions[item].split)
            for split, items in by_split.items():
                row = known.of(items)
                same = first.setdefault((name, tuple(items), row.tobytes()), model)
                if same != model and model in names["retrained"] and len(np.unique(row)) >= _DISTINCT:
                    equal.setdefault((model, same), []).append((name, split))
    sentences = []
    values = dict(table.values)
    for (model, same), columns in equal.items():
        if any(split == "forget" for _, split in columns):
            continue
        source = Source(model)
        for name, split in columns:
            kept = {i: score for i, score in values[source][name].items() if table.questions[i].split != split}
            values[source] = {**values[source], name: kept}
            sentences.append(
                f"{one_line(model, width=60)} has exactly the scores of {one_line(same, width=60)} in {name} on "
                f"{split}, though not on the forget set. These scores were copied, and are not counted."
            )
    if sentences:
        table.values = {source: {n: as_column(its) for n, its in of.items() if its} for source, of in values.items()}
    return tuple(sentences)


@lru_cache(maxsize=256)
def _ordered(items: Items) -> Items:
    """Return the items sorted by name. A thousand models share the result."""
    return tuple(sorted(items))


def _attacks(table: ScoreTable, forget: Sequence[str]) -> tuple[PlannedAttack, ...]:
    """Return each attack that the rows name. Its training items are unknown, so no fact counts as shown."""
    tested: dict[str, set[str]] = {}
    for source, tables in table.values.items():
        if source.attack:
            tested.setdefault(source.attack, set()).update(*tables.values())
    return tuple(
        # Nobody states what it showed, so it counts as an attack that showed no answers.
        PlannedAttack(name, EVAL, "unknown", 0, (GIVEN,), tuple(i for i in forget if i in items), False, {})
        for name, items in tested.items()
    )
