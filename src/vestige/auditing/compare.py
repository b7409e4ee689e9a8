"""Two or more models on the same questions: paired differences of any score in their logs, without controls.

The readers of `vestige.logs` read every log. A file can also be a table of scores. Questions are matched as in an audit
of logs (`auditing.questions`). Each model is compared with the first. If audits share names of unlearned models, each
is compared with the model of its name in the first audit. Otherwise their models, such as checkpoints of one training,
are compared with the target of the first. Holm's correction covers all rows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from vestige.artifacts.audits import read_outcome, read_plan
from vestige.artifacts.layout import AuditFolder, RunFolder
from vestige.artifacts.scores import Measurement, Question, Source
from vestige.artifacts.verdicts import verdict_rows
from vestige.auditing.gather import read_table_of, replies_on_disk
from vestige.auditing.logs import files_of
from vestige.auditing.questions import Questions
from vestige.auditing.table import ModelScores, columns_of, read_scores
from vestige.core.errors import InputError
from vestige.core.files import refuse_special
from vestige.core.seeds import derive_seed
from vestige.core.text import (
    Fields,
    Items,
    NumberByName,
    NumberMapping,
    Record,
    TextByName,
    TextMapping,
    TextTuple,
    one_line,
)
from vestige.logs import read_log, reader_of
from vestige.logs.log import How, LogPart
from vestige.metrics.contrasts import holm
from vestige.metrics.intervals import ByItem
from vestige.metrics.pooling import PairedDifference, paired_difference, questions_needed
from vestige.report.contents import plain_outcome

LEVEL = 0.05
"""The significance level of a difference, after Holm's correction over all rows."""

Finding = Literal["higher", "lower", "no difference shown", "open"]


class _TaskScore(NamedTuple):
    """One kind of score on one task, which several models share."""

    task: str
    measurement: Measurement


@dataclass(frozen=True)
class ComparedScore:
    """The comparison of one model with the first in one score on one task. `difference` is model minus first.

    `finding` is `open` if questions that only one model answered could change the sign, or if there are too few groups
    for any difference to be significant. `needed` is the number of questions that would show a difference of this size,
    or of the requested size, with a power of 80 %.
    """

    task: str
    score: str
    first: str
    model: str
    mean_first: float
    mean_model: float
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float
    n: int
    n_clusters: int
    n_missing: int
    needed: int | None
    finding: Finding


@dataclass(frozen=True)
class ComparedQuestion:
    """One question, with the score and the reply of each model by the model's name. A log may lack replies."""

    task: str
    score: str
    question: str
    scores: NumberMapping
    replies: TextMapping


class ComparedModels(NamedTuple):
    """The differences, the questions behind them, and the rows of verdicts.json of each audit with their `model`."""

    rows: tuple[ComparedScore, ...]
    questions: tuple[ComparedQuestion, ...]
    verdicts: list[Fields]


Values = dict[_TaskScore, NumberByName]


@dataclass
class _LogQuestions:
    """The questions of all logs: texts and clusters by item, replies by model and item."""

    groups: TextByName
    registry: dict[str, Questions] = field(default_factory=dict)
    texts: TextByName = field(default_factory=dict)
    replies: dict[str, TextByName] = field(default_factory=dict)
    audited: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The audit and the name of each unlearned model of an audit."""
    reworded: set[_TaskScore] = field(default_factory=set)
    """The scores of an audit whose replies are not those in `replies`, since the question was asked in other words."""
    targets: list[Values] = field(default_factory=list)
    verdicts: list[Fields] = field(default_factory=list)


def compare(
    models: Mapping[str, Path], *, clusters: TextMapping | None = None, difference: float | None = None, seed: int = 0
) -> ComparedModels:
    """Compare models question by question.

    Args:
        models: Logs, folders of logs, tables of scores or folders of audits, by the name to show. A table with several
            models adds each of them under its own name. The first model is the one that the others are compared with.
        clusters: By question id or question text, the document or group of the question.
        difference: The difference for which `needed` is computed. The observed one by default.
        seed: Seed of the resamples.

    Returns:
        One row for each further model, task and score, and the questions with each model's score and reply.

    Raises:
        InputError: There are fewer than two models, or two have no question in common.

    Example:
        `compare({"base": Path("base/samples_arc.jsonl"), "mine": Path("mine/samples_arc.jsonl")})`
    """
    known = _LogQuestions(dict(clusters or {}))
    scores: dict[str, Values] = {}
    for name, path in models.items():
        for own_name, values in _read(name, path, known):
            if own_name in scores:
                raise InputError(f"two models have the name {one_line(own_name, width=60)}. Give each its own name.")
            scores[own_name] = values
    if len(scores) < 2:
        raise InputError("a comparison needs at least two models. Give a second log or table.")
    rows = []
    for first, name in _pairs(list(models), list(scores), known.audited):
        of_first, values = scores[first], scores[name]
        common = [score for score in of_first if score in values]
        if not common:
            theirs, ours = _listed(values), _listed(of_first)
            raise InputError(
                f"{one_line(first, width=60)} has {ours}, and {one_line(name, width=60)} has {theirs}. They have no "
                "score of the same task in common."
            )
        for score in common:
            row = _compared(first, name, score, of_first[score], values[score], known, difference, seed)
            rows.append(row)
    adjusted = holm([row.p_value for row in rows])
    found = tuple(replace(row, p_holm=p, finding=_finding(row, p)) for row, p in zip(rows, adjusted, strict=True))
    return ComparedModels(found, tuple(_questions(scores, known)), known.verdicts)


def _pairs(
    given: Sequence[str], models: Sequence[str], audited: Mapping[str, tuple[str, str]]
) -> Sequence[tuple[str, str]]:
    """Return the pairs to compare: models with the same name in several audits, or each model with the first."""
    of_first = {model: own for own, (audit, model) in audited.items() if audit == given[0]}
    pairs = [(of_first[m], own) for own, (audit, m) in audited.items() if audit != given[0] and m in of_first]
    audits = {audit for audit, _ in audited.values()}
    if pairs and audits == set(given):
        return pairs
    return [(models[0], name) for name in models[1:]]


def _questions(scores: Mapping[str, Values], known: _LogQuestions) -> Iterator[ComparedQuestion]:
    """Yield the questions that the first model shares with another one, the largest differences first."""
    (first, of_first), *others = scores.items()
    for score, values in of_first.items():
        lines = []
        for item, value in values.items():
            by_model = {first: value}
            for name, theirs in others:
                if item in theirs.get(score, {}):
                    by_model[name] = theirs[score][item]
            replies = {}
            if score not in known.reworded:
                replies = {name: known.replies[name][item] for name in by_model if item in known.replies.get(name, {})}
            text = known.texts.get(item) or item
            if len(by_model) > 1:
                lines.append(ComparedQuestion(score.task, score.measurement.name, text, by_model, replies))
        yield from sorted(lines, key=_spread, reverse=True)


def _spread(question: ComparedQuestion) -> float:
    return float(np.ptp([value for value in question.scores.values() if not math.isnan(value)] or [0.0]))


def _listed(values: Values) -> str:
    return one_line(", ".join(f"{score.measurement.name} on {score.task}" for score in values), width=200)


def _read(name: str, path: Path, known: _LogQuestions) -> Iterator[tuple[str, Values]]:
    """Yield the scores of the models in a file or folder, by task and measurement and by question."""
    refuse_special(path)
    if not path.exists():
        raise InputError(f"{path}: there is no such log or table. Check the path.")
    if path.is_file() and not reader_of(path):
        yield from _of_table(columns_of(read_scores(path)), name, known.groups)
        return
    run = RunFolder(path)
    audits = run.audits() if path.is_dir() else []
    for audit in audits:
        yield from _of_audit(run, audit, name, known)
    if audits:
        return
    values: Values = {}
    for file in files_of(path):
        log = read_log(file, How(any_direction=True))
        own: dict[str, dict[Items, Items]] = {}
        # A score without texts uses the texts of another score in its log, so those are read first.
        for part in sorted(log.parts, key=lambda part: not part.prompts):
            task = part.task or part.split
            questions = known.registry.setdefault(task, Questions(task))
            items = _items(part, questions, own.setdefault(task, {}), file)
            score = _TaskScore(task, part.measurement)
            by_item = values.setdefault(score, {})
            for item, value in zip(items, part.scores.tolist(), strict=True):
                if item in by_item:
                    raise InputError(
                        f"{file}: {part.name} on {one_line(task)} has two scores of one question. Keep one."
                    )
                by_item[item] = value
            for place, item in enumerate(items):
                known.texts[item] = part.questions[place] if part.questions else ""
                if part.replies:
                    known.replies.setdefault(name, {})[item] = part.replies[place]
                if part.ids and part.ids[place] in known.groups:
                    known.groups.setdefault(item, known.groups[part.ids[place]])
    yield name, values


def _items(part: LogPart, questions: Questions, own: dict[Items, Items], file: Path) -> Items:
    try:
        if part.prompts:
            own[part.ids] = questions.of_texts(part)
            return own[part.ids]
        items = questions.of_position(part, own)
    except InputError as error:
        raise InputError(f"{file}{error}") from error
    if items is None:
        raise InputError(
            f"{file}: {part.name} has no text or id to match its questions by. Give a log with one of them."
        )
    return items


def _of_audit(run: RunFolder, audit: AuditFolder, name: str, known: _LogQuestions) -> Iterator[tuple[str, Values]]:
    """Yield the scores of an audit's target and unlearned models without attacks, by split and format.

    An audit has about 70 scores. If it has correct/incorrect scores, only these are compared. A target that answers as
    that of an earlier audit is left out.
    """
    if not audit.scores.is_file():
        raise InputError(f"{audit.path} has no score table. Judge the run again with `vestige audit --rejudge`.")
    plan = read_plan(audit)
    table = read_table_of(run, plan)
    hits = {key for key, measurement in table.measurements.items() if measurement.score_type == "hit"}
    for role in ("target", "unlearned"):
        for model in (model for model, own in table.roles.items() if own == role):
            source, label = Source(model), f"{name}: {model}"
            values: Values = {}
            for key, scores in table.values.get(source, {}).items():
                if hits and key not in hits:
                    continue
                for item, value in scores.items():
                    question = table.questions.get(item, Question())
                    score = _TaskScore(question.split, table.measurements[key])
                    if plan.evaluations and not key.startswith("generate/"):
                        known.reworded.add(score)
                    values.setdefault(score, {})[item] = value
                    known.groups.setdefault(item, question.group or f"question {item}")
            replies = known.replies.setdefault(label, {})
            for item, text in table.texts.get(source, {}).items():
                known.texts.setdefault(item, text.question)
                replies[item] = text.reply
            for *_, item, form in replies_on_disk(run, plan, {(model, "")}):
                known.texts.setdefault(item, form["asked"])
                replies.setdefault(item, form["reply"])
            if role == "unlearned":
                known.audited[label] = name, model
            elif values in known.targets:
                continue
            else:
                known.targets.append(values)
            yield label, values
    for row in verdict_rows([plain_outcome(read_outcome(audit), {})]):
        known.verdicts.append({"model": f"{name}: {row['subject']}", **row})


def _of_table(columns: Sequence[ModelScores], name: str, groups: TextByName) -> Iterator[tuple[str, Values]]:
    by_model: dict[str, Values] = {}
    for column in columns:
        measurement = Measurement(column.format, "own words", "overlap")
        if column.unit == "bits":
            measurement = Measurement(column.format, "own words", "bits", low=None, high=None)
        values = by_model.setdefault(column.model, {})
        for place, item in enumerate(column.items):
            known = values.setdefault(_TaskScore(column.splits[place], measurement), {})
            if item in known:
                raise InputError(f"{one_line(column.model)}: the question {one_line(item)} has two scores. Keep one.")
            known[item] = float(column.scores[place])
            if column.groups[place]:
                groups.setdefault(item, column.groups[place])
    if len(by_model) == 1:
        yield name, next(iter(by_model.values()))
    else:
        yield from by_model.items()


def _compared(
    first: str,
    name: str,
    score: _TaskScore,
    of_first: NumberMapping,
    of_model: NumberMapping,
    about: _LogQuestions,
    difference: float | None,
    seed: int,
) -> ComparedScore:
    texts, groups = about.texts, about.groups
    items = list(dict.fromkeys([*of_first, *of_model]))
    a: ByItem = np.array([of_first.get(item, np.nan) for item in items])
    b: ByItem = np.array([of_model.get(item, np.nan) for item in items])
    known = ~(np.isnan(a) | np.isnan(b))
    if not known.any():
        raise InputError(
            f"{one_line(first, width=60)} and {one_line(name, width=60)} have no question of "
            f"{one_line(score.task, width=60)} in common. Give logs of the same questions."
        )
    labels = None
    if groups:
        labels = [groups.get(item) or groups.get(texts.get(item, "")) or f"question {item}" for item in items]
    low, high = score.measurement.ends
    if score.measurement.score_type == "hit":
        low, high = 0.0, 1.0
    bounds = (low, high) if math.isfinite(high - low) else None
    paired = paired_difference(
        a, b, clusters=labels, bounds=bounds, seed=derive_seed(seed, "compare", score.task, score.measurement.name)
    )
    differences = (b - a)[known]
    size = abs(paired.value) if difference is None else difference
    needed = None
    if size > 0 and len(differences) > 1:
        of_known = [label for label, both in zip(labels or (), known, strict=False) if both]
        clusters = of_known if len(set(of_known)) > 1 else None
        needed = max(questions_needed(differences, size, clusters=clusters), _needed_by_interval(paired, size))
    return ComparedScore(
        task=score.task,
        score=score.measurement.name,
        first=first,
        model=name,
        mean_first=float(a[known].mean()),
        mean_model=float(b[known].mean()),
        difference=paired.value,
        low=paired.low,
        high=paired.high,
        p_value=paired.p_value,
        p_holm=paired.p_value,
        n=paired.n,
        n_clusters=paired.n_clusters,
        n_missing=paired.n_missing,
        needed=needed,
        finding=_open_or(paired),
    )


def _needed_by_interval(paired: PairedDifference, size: float) -> int:
    """Return the fewest questions with which the interval of a difference of `size` can exclude 0.

    The interval of bounded scores allows for rare large differences by a part of its arm that shrinks as 1 / n.
    `questions_needed` accounts for the part that shrinks as 1 / sqrt(n). A test by signs needs six questions.
    """
    arm = paired.value - paired.low if paired.value > 0 else paired.high - paired.value
    return max(6, math.ceil(paired.n * arm / size))


def _open_or(paired: PairedDifference) -> Finding:
    """Return "open" if missing questions could change the sign. Otherwise return the sign if the test confirms it."""
    if paired.n_missing and paired.worst_low <= 0 <= paired.worst_high:
        return "open"
    if paired.value > 0:
        return "higher"
    return "lower"


def _finding(row: ComparedScore, p_holm: float) -> Finding:
    # The smallest possible p-value of a sign test.
    if 2.0 ** (1 - row.n_clusters) > LEVEL:
        return "open"
    # The interval allows for large differences that were too rare to be observed, and the test does not. Both must
    # agree.
    if p_holm > LEVEL or row.low <= 0 <= row.high:
        return "no difference shown"
    return row.finding


HEADS = ("model", "task", "score", "finding", "difference", "95 % interval", "p (Holm)", "questions", "needed")
"""The columns of the comparison, in Markdown and on the page."""


def common_first(rows: Sequence[ComparedScore]) -> str:
    """Return the model that all others are compared with, or "" if rows have different ones."""
    firsts = {row.first for row in rows}
    return firsts.pop() if len(firsts) == 1 else ""


def cells_of(row: ComparedScore, common: str) -> TextTuple:
    """Return one row of the comparison as texts, by `HEADS`. The name of the `common` first model is not repeated."""
    missing = f" ({row.n_missing} missing)" if row.n_missing else ""
    return (
        row.model if common else f"{row.model} against {row.first}",
        row.task,
        row.score,
        row.finding,
        f"{row.difference:+.3f}",
        f"[{row.low:+.3f}, {row.high:+.3f}]",
        f"{row.p_holm:.3g}",
        f"{row.n}{missing}",
        "" if row.needed is None else f"{row.needed:,}",
    )


def markdown(rows: Sequence[ComparedScore], verdicts: Sequence[Record]) -> str:
    """Return the comparison as Markdown tables, for a pull request: the verdicts of audits, and the differences."""
    common = common_first(rows)
    lines = []
    if verdicts:
        heads = ("model", "claim", "verdict", "qualification", "bound")
        lines += [f"| {' | '.join(heads)} |", "| --- | --- | --- | --- | --- |"]
        for verdict in verdicts:
            lines.append(f"| {' | '.join(_cell(verdict[head]) for head in heads)} |")
        lines.append("")
    if common:
        lines += [f"Differences from {_cell(common)}:", ""]
    lines += [f"| {' | '.join(HEADS)} |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        cells = cells_of(row, common)
        lines.append(f"| {' | '.join([*map(_cell, cells[:3]), *cells[3:]])} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Escape a text of a log for a Markdown table, so that bars, tags and backticks have no effect."""
    plain = one_line(text, width=140)
    for sign in "\\|<>`[]*_":
        plain = plain.replace(sign, f"\\{sign}")
    return plain
