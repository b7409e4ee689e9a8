"""Build one score table from other tools' logs: match questions, and find logs that cannot be compared.

A question is identified by the tool's own id if both logs have it and their texts do not contradict it, otherwise by
its full prompt without the words of a template. Texts that occur several times in a log without distinct ids are
rejected. Scores without texts use the texts of their own log, otherwise of other logs in the same order. If no log has
texts, they are matched by position. Logs of one model share one name and are read together.
"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.scores import Measurement, Scores, Texts
from vestige.auditing.ground import SHARE
from vestige.auditing.predicted import with_predicted
from vestige.auditing.questions import LogColumn, Questions, by_position
from vestige.auditing.table import SPLITS, UNIT_UNKNOWN, YES, ModelScores, Unfit, judge_table, refuse_misfit
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.ids import content_id, file_digest
from vestige.core.text import (
    Fields,
    Items,
    NumberByName,
    Record,
    TextByName,
    TextTuple,
    closest,
    first_of,
    grouped,
    listed,
    one_line,
)
from vestige.data.tables import packed_as
from vestige.logs import log_files, read_log, reader_of, why_unread
from vestige.logs.bank import digest_of, text_digest
from vestige.logs.log import FROM_NATS, TASKS, GivenLog, How, Log, LogPart

LEFT_OUT = "It is left out."
"""The end of the sentence about a model that cannot be judged."""


class Stated(NamedTuple):
    """The user's statements about logs: split by task, scale by score, and column by kind."""

    splits: Mapping[str, str] = {}
    how: How = How()


@dataclass(frozen=True)
class _ParsedLog:
    """A parsed log: its contents, the digest of its file, and the questions of each part."""

    entry: GivenLog
    log: Log
    digest: str
    items: tuple[Items, ...] = ()

    def with_parts(self, parts: Iterable[LogPart]) -> "_ParsedLog":
        return replace(self, log=self.log._replace(parts=tuple(parts)))

    def unfit(self, why: str) -> Unfit:
        return Unfit(self.entry.name, f"{self.entry.who}{why}")


def files_of(path: Path, score: str = "") -> tuple[Path, ...]:
    """Return the logs in a folder that a reader accepts, or the file itself. `score` is the user's column of scores."""
    if not path.is_dir():
        return (path,)
    found = tuple(log_files(path))
    for file in found:
        if packed_as(file) or not file.exists() or not file.stat().st_size:
            raise InputError(f"{file}: {why_unread(file)}.")
    files = tuple(file for file in found if reader_of(file, score))
    if not files:
        why = f": {one_line(found[0].name, width=60)}: {why_unread(found[0])}" if found else ""
        raise InputError(
            f"{path}: no reader takes any file in this folder{why}. docs/logs.md has the logs that are read."
        )
    return files


def judge_logs(
    run: RunFolder,
    logs: Sequence[GivenLog],
    *,
    forget: str,
    margins: Record | None = None,
    forgiving: bool = False,
    stated: Stated | None = None,
    unused: Sequence[str] = (),
) -> AuditOutcome:
    """Judge the models of these logs, and write evidence and verdicts to `run`.

    Args:
        run: The folder of evidence and verdicts.
        logs: The logs, each with its model and role.
        forget: The name of the forget set.
        margins: The margins of the judgement (`Thresholds`).
        forgiving: Leave out, and name, a model whose log cannot be compared with the target's. Otherwise, raise
            InputError.
        stated: The user's tasks, scales and columns.
        unused: Why further files are not judged, in sentences.

    Returns:
        The outcome.

    Raises:
        InputError: The logs cannot be judged, or one cannot be compared and `forgiving` is false.
    """
    stated = stated or Stated()
    targets = {log.name for log in logs if log.role == "target"}
    together = read_logs(logs, forget=forget, forgiving=forgiving, stated=stated)
    while True:
        try:
            return _judged(run, together, forget, margins, (*unused, *together.left_out), stated)
        except Unfit as error:
            if not forgiving or error.name in targets:
                raise
            kept = tuple(column for column in together.columns if column.entry.name != error.name)
            together = together._replace(columns=kept, left_out=(*together.left_out, f"{error} {LEFT_OUT}"))


class TogetherRead(NamedTuple):
    """Logs with their questions matched.

    `notes` are sentences on decisions, `left_out` has each model that cannot be compared, with the reason.
    """

    columns: tuple[LogColumn, ...]
    notes: TextTuple
    left_out: TextTuple
    logs: "tuple[_ParsedLog, ...]"


def read_logs(
    logs: Sequence[GivenLog], *, forget: str, forgiving: bool = False, stated: Stated | None = None
) -> TogetherRead:
    """Read logs of several models with their questions matched.

    Args:
        logs: The logs, each with its model and role.
        forget: The name of the forget set.
        forgiving: Leave out, and name, a model whose log cannot be compared with the target's. Otherwise, reject it.
        stated: The user's tasks, scales and columns.

    Returns:
        The scores by model, split and measurement.

    Raises:
        InputError: The target's log cannot be read, or another one and `forgiving` is false.
    """
    targets = {log.name for log in logs if log.role == "target"}
    left_out: list[str] = []
    reading = _Reading(stated or Stated(), forget, targets, left_out if forgiving else None, [])
    read = reading.read(logs)
    while True:
        columns, notes, unfit = _scored(read)
        if not unfit:
            notes = list(dict.fromkeys((*reading.notes, *notes)))
            return TogetherRead(tuple(columns), tuple(notes), tuple(left_out), tuple(read))
        # All are removed at once, because every round recomputes the pattern over questions of all logs.
        out: set[str] = set()
        for error in unfit:
            if error.name not in out:
                reading.leave_out(error, out)
        read = [parsed for parsed in read if parsed.entry.name not in out]


def _judged(
    run: RunFolder, together: TogetherRead, forget: str, margins: Record | None, left_out: Sequence[str], stated: Stated
) -> AuditOutcome:
    if left_out and not any(column.entry.role == "unlearned" for column in together.columns):
        # Files that were never read come before models that were read and rejected.
        first = next((text for text in left_out if text.endswith(LEFT_OUT)), left_out[0])
        raise InputError(f"the logs of all unlearned models were left out. The first reason: {first}")
    names = {column.entry.name for column in together.columns}
    read = [parsed for parsed in together.logs if parsed.entry.name in names]
    unread = Counter(problem for parsed in together.logs for problem in parsed.log.unread)
    n_logs = len(together.logs)
    not_read = [f"Not read of {n} of {n_logs} logs: {one_line(why, width=300)}." for why, n in unread.items()]
    columns: Sequence[LogColumn] = together.columns
    predicted = None
    if any(column.entry.base for column in columns):
        predicted = with_predicted(columns)
        columns = predicted.columns
        labelled = ", ".join(sorted({parsed.entry.base for parsed in read if parsed.entry.base}))
        not_read.append(
            f"No control was given. The bank's models of {labelled} predict how a model that never saw the forget set "
            "would score; the held-out error of the prediction is in every bound."
        )
        not_read += predicted.untested
    lent = [parsed.entry for parsed in read if parsed.entry.laboratory and not parsed.entry.base]
    banked = {entry.name: entry.laboratory for entry in lent}
    if banked:
        labelled = ", ".join(f"{one_line(name, width=60)} ({laboratory})" for name, laboratory in banked.items())
        not_read.append(
            f"From the bank: {labelled}. What another laboratory's training and evaluation may do is in every bound; "
            "that the base model and the data are the same is as you say."
        )
    # A table of the bank is part of the package, so its path is irrelevant.
    paths = {log.entry.path.resolve() for log in read if not log.entry.key or not log.entry.laboratory}
    folder = Path(os.path.commonpath([path.parent for path in paths])).name
    outcome = judge_table(
        run,
        model_scores(columns),
        forget=forget,
        margins=margins,
        source=f"{len(paths)} logs in {one_line(folder, width=80)}",
        untested=(*left_out, *together.notes, *not_read),
        banked=banked,
        predicted=predicted,
    )
    files = [
        {**log.entry._asdict(), "path": str(log.entry.path), "sha256": log.digest}
        for log in sorted(read, key=lambda log: (str(log.entry.path), log.entry.name))
    ]
    write_json(run.audit(forget).path / "logs.json", {"schema": 1, "tasks": dict(stated.splits), "logs": files})
    return outcome


@dataclass
class _Reading:
    """The state while logs are read. `left_out` collects sentences on omitted models. None rejects such models."""

    stated: Stated
    forget: str
    targets: set[str]
    left_out: list[str] | None
    notes: list[str]

    def read(self, logs: Sequence[GivenLog]) -> list[_ParsedLog]:
        """The logs that can be compared with the target's."""
        read = []
        out: set[str] = set()
        roles: TextByName = {}
        for entry in logs:
            if roles.setdefault(entry.name, entry.role) != entry.role:
                raise InputError(f"{entry.who} is {entry.role} and {roles[entry.name]}. Give each model its own name.")
            if entry.name in out:
                continue
            try:
                read.append(_of_forget_set(_read(entry, self.stated.how), self.forget))
            except Unfit as error:
                self.leave_out(error, out)
        self.notes += _refuse_unused(self.stated.how, read)
        read = _by_task([parsed for parsed in read if parsed.entry.name not in out], self.stated.splits)
        target = [parsed for parsed in read if parsed.entry.is_target]
        if not target:
            raise InputError("no log is from the target, the model before unlearning. Add it as target=FILE")
        for parsed in read:
            try:
                _refuse_other_prompts(parsed, target)
            except Unfit as error:
                self.leave_out(error, out)
        read = [parsed for parsed in read if parsed.entry.name not in out]
        self.notes += _stated_by_some(read)
        # The target comes first: in a pair of copies, the other model is the copy.
        order = {"target": 0, "retrained": 1}
        read.sort(key=lambda parsed: order.get(parsed.entry.role, 2))
        read = self._without_copies(read, out)
        return self._with_items(_with_bank_texts(read), out)

    def leave_out(self, error: Unfit, out: set[str]) -> None:
        """Leave a model out, or raise the error where it is not to be left out."""
        if self.left_out is None or error.name in self.targets:
            raise error
        self.left_out.append(f"{error} {LEFT_OUT}")
        out.add(error.name)

    def _without_copies(self, read: Sequence[_ParsedLog], out: set[str]) -> list[_ParsedLog]:
        """Return the logs without models that copy another model in all files, and without single copied files."""
        models = grouped(read, lambda parsed: parsed.entry.model)
        first_with: dict[TextTuple, _ParsedLog] = {}
        for first, *others in models.values():
            original = first_with.setdefault(tuple(sorted(log.digest for log in (first, *others))), first)
            if original is not first:
                same = f"is byte for byte the log{'s' * bool(others)} of {original.entry.who}"
                self.leave_out(first.unfit(f" {same}, so both are one model."), out)
        kept = []
        first_of: dict[str, _ParsedLog] = {}
        for parsed in read:
            if parsed.entry.name in out:
                continue
            first = first_of.setdefault(parsed.digest, parsed)
            if first.entry.model == parsed.entry.model or _degenerate(parsed.log):
                kept.append(parsed)
                continue
            whose = f"{parsed.entry.who} is byte for byte a file of {first.entry.who}"
            note = f"A file of {whose}, so it is not counted twice."
            if {log.digest for log in models[parsed.entry.model]} - {parsed.digest}:
                self.notes.append(note)
            else:
                self.leave_out(parsed.unfit(f": {note}"), out)
        return [parsed for parsed in kept if parsed.entry.name not in out]

    def _with_items(self, read: Sequence[_ParsedLog], out: set[str]) -> list[_ParsedLog]:
        """Return the logs with the questions of each part. Parts with texts come first: others use their texts."""
        registry: dict[str, Questions] = {}
        found: dict[int, dict[int, Items]] = defaultdict(dict)
        for n, parsed in enumerate(read):
            for k, part in enumerate(parsed.log.parts):
                if not part.prompts:
                    continue
                questions = registry.setdefault(part.split, Questions(part.split))
                try:
                    found[n][k] = questions.of_texts(part)
                except InputError as error:
                    self.leave_out(parsed.unfit(str(error)), out)
                    break
        with_items = []
        for n, parsed in enumerate(read):
            if parsed.entry.name in out:
                continue
            complete = _complete(parsed, found[n], registry)
            with_items.append(complete)
            lost = _forget_sizes(parsed) if not _forget_sizes(complete) else ()
            if lost and not registry["forget"].has_orders(lost[0]):
                why = (
                    f" holds {lost[0]} forget questions without their text, and no log with texts has as many, so that "
                    "they cannot be matched. For the nested forget sets of TOFU name the set, as in --forget forget05."
                )
                self.leave_out(parsed.unfit(why), out)
        return [parsed for parsed in with_items if parsed.entry.name not in out]


def _complete(parsed: _ParsedLog, found: dict[int, Items], registry: dict[str, Questions]) -> _ParsedLog:
    """Return the log with the questions of the parts without texts as well. An unmatched part is listed."""
    own: dict[str, dict[Items, Items]] = defaultdict(dict)
    for k, known in found.items():
        part = parsed.log.parts[k]
        own[part.split][part.ids] = known
    parts, all_items, unread = [], [], list(parsed.log.unread)
    for k, part in enumerate(parsed.log.parts):
        items: Items | None = found.get(k)
        if items is None:
            questions = registry.setdefault(part.split, Questions(part.split))
            items = questions.of_position(part, own[part.split])
        if items is None:
            differ = registry[part.split].has_orders(len(part.scores))
            why = ", and the logs that have texts differ in their order" if differ else ""
            unread.append(
                f"{part.name}: its {len(part.scores)} questions in the split {part.split} have no text to be matched "
                f"by{why}"
            )
            continue
        parts.append(part)
        all_items.append(items)
    log = parsed.log._replace(parts=tuple(parts), unread=tuple(unread))
    return replace(parsed, log=log, items=tuple(all_items))


def _with_bank_texts(read: Sequence[_ParsedLog]) -> list[_ParsedLog]:
    """Return the logs with texts from other logs in place of the digests in logs of the bank."""
    if not any(parsed.entry.laboratory for parsed in read):
        return list(read)
    texts: dict[str, tuple[str, str]] = {}
    for parsed in read:
        if not parsed.entry.laboratory:
            for part in parsed.log.parts:
                for prompt, question in zip(part.prompts, part.questions, strict=True):
                    texts.setdefault(text_digest(prompt), (prompt, question))
    named = []
    for parsed in read:
        parts = []
        for part in parsed.log.parts:
            if parsed.entry.laboratory and part.prompts:
                pairs = [texts.get(prompt, (prompt, "")) for prompt in part.prompts]
                prompts, questions = zip(*pairs, strict=True)
                part = part._replace(prompts=prompts, questions=questions)
            parts.append(part)
        named.append(parsed.with_parts(parts))
    return named


def _forget_sizes(parsed: _ParsedLog) -> tuple[int, ...]:
    """The numbers of forget questions in the parts of a log that may be compared with the target's."""
    return tuple(
        len(part.scores)
        for part in parsed.log.parts
        if part.split == "forget" and part.measurement.score_type != "order"
    )


def _degenerate(log: Log) -> bool:
    """Return whether a log has the same reply to every question, as a collapsed model does."""
    known = (part.scores[~np.isnan(part.scores)] for part in log.parts)
    return all(len(np.unique(k)) < 2 or len(set(p.replies)) == 1 for k, p in zip(known, log.parts, strict=True))


def _read(entry: GivenLog, how: How) -> _ParsedLog:
    try:
        # Replies are shown for judged models only, since those of all others would fill the memory. The path is not
        # resolved: a link in the hub's cache leads to a file without a suffix.
        path, how = entry.path.absolute(), how._replace(key=entry.key)
        log, digest = _parsed(path, how, replies=True) if entry.role == "unlearned" else _parsed_once(path, how)
    except InputError as error:
        raise Unfit(entry.name, f"{str(error).rstrip('.')}.") from error
    return _ParsedLog(entry, log, digest)


_ONCE: dict[tuple[Path, str], tuple[Log, str]] = {}


def _parsed_once(path: Path, how: How) -> tuple[Log, str]:
    # A target and its controls are read for every forget set.
    key = path, repr(how)
    if key not in _ONCE:
        _ONCE[key] = _parsed(path, how, replies=False)
    return _ONCE[key]


def _parsed(path: Path, how: How, *, replies: bool) -> tuple[Log, str]:
    log = read_log(path, how)
    parts = []
    for part in log.parts:
        # Replies to retained questions are not shown.
        shown = replies and part.split == "forget"
        parts.append(part if shown else part._replace(replies=()))
    log = log._replace(parts=tuple(parts))
    # Only files of many models have keys.
    reader = reader_of(path, how.columns.get("score", "")) if how.key else ""
    if reader == "bank":
        return log, digest_of(path, how.key)
    digest = file_digest(path)
    return log, content_id([digest, how.key], length=64) if reader == "rows" else digest


_FORGET = re.compile(r"(?:.* )?forget(\d\d)")
_PERCENT = 40
"""The number of questions in one per cent of TOFU. Its forget sets are the last 1, 5 and 10 % of the data, each
contained in the next.
"""


def _of_forget_set(parsed: _ParsedLog, forget: str) -> _ParsedLog:
    """Return the log with only the questions of TOFU's named forget set, if it contains a larger one completely."""
    named = _FORGET.fullmatch(forget)
    if named is None:
        return parsed
    n = _PERCENT * int(named[1])
    parts = []
    for part in parsed.log.parts:
        size = len(part.scores)
        larger = part.split == "forget" and n < size and size in (5 * _PERCENT, 10 * _PERCENT)
        parts.append(part.only(range(size - n, size)) if larger else part)
    return parsed.with_parts(parts)


def _refuse_unused(how: How, read: Sequence[_ParsedLog]) -> Iterator[str]:
    """Reject a score range that no log uses: a misspelt name would leave the score unchanged.

    Yields:
        The models whose scores may have another unit, in sentences. Their scores become missing.
    """
    names = sorted({part.name for parsed in read for part in parsed.log.parts})
    if how.columns and all(reader_of(parsed.entry.path, how.columns.get("score", "")) != "rows" for parsed in read):
        raise InputError("column:KIND=NAME is for tables of your own, and none of the logs is one. Leave it out.")
    said = " ".join(problem for parsed in read for problem in parsed.log.unread)
    for name, scale in how.scales.items():
        if not {name, f"{FROM_NATS}{name}"} & {*names} and name not in said:
            raise InputError(f"no log has a score {one_line(name, width=80)!r}. {closest(name, names)}")
        columns: dict[str, list[Scores]] = defaultdict(list)
        for parsed in read:
            columns[parsed.entry.name] += [part.scores for part in parsed.log.parts if part.name == name]
        scores = {model: np.concatenate(of_model).tolist() for model, of_model in columns.items() if of_model}
        if scores and (scale.low, scale.high) != SHARE:
            top = scale.high if scale.direction > 0 else 1.0
            for model in refuse_misfit(name, scores, (scale.low, top)):
                yield f"{one_line(f'{model}, {name}', width=120)}: {UNIT_UNKNOWN}."
                for column in columns[model]:
                    column.fill(np.nan)


def _by_task(read: Sequence[_ParsedLog], splits: Mapping[str, str]) -> list[_ParsedLog]:
    """Return the logs with each task in its split, and with the task in the formats' names if needed."""

    def named(part: LogPart) -> LogPart:
        # For a task within a task, the user may give either name.
        names = part.task.split(TASKS)
        return part._replace(task=next((name for name in names if name in splits), names[-1]))

    read = [parsed.with_parts(map(named, parsed.log.parts)) for parsed in read]
    by_model: dict[tuple[str, str], set[str]] = defaultdict(set)
    for parsed in read:
        by_model[parsed.entry.model] |= {part.task for part in parsed.log.parts}
    tasks = {task for of_model in by_model.values() for task in of_model if task}
    # A task with the name of a split belongs to it.
    stated = {task: task for task in tasks if task in SPLITS} | dict(splits)
    several = any(len(of_model) > 1 for of_model in by_model.values())
    for task, split in splits.items():
        # A misspelt task would stay in the split that its reader guessed.
        if task not in tasks:
            raise InputError(f"no log is of a task {one_line(task, width=80)!r}. {closest(task, sorted(tasks))}")
        if split not in SPLITS:
            raise InputError(
                f"the task {one_line(task)} is of no split {one_line(split)!r}. {closest(split, list(SPLITS))}"
            )
    if several and (unsaid := sorted(tasks - stated.keys())):
        raise InputError(
            f"one model's logs hold several tasks, and the role of {one_line(', '.join(unsaid), width=200)} is "
            f"unknown. Give --logs task:{one_line(unsaid[0], width=80)}=forget, or =retain, independent or factual, "
            "for each"
        )

    def placed(part: LogPart) -> LogPart:
        split = stated.get(part.task, part.split)
        # With one task in a split, the measurements keep their names, which other logs of the same task share.
        in_split = {task for task in tasks if stated.get(task) == split}
        told = len(in_split) > 1 or (several and in_split and part.task not in SPLITS)
        name = f"{part.task}, {part.name}" if told and part.task not in ("", part.name) else part.name
        return part._replace(split=split, measurement=replace(part.measurement, name=name))

    return [parsed.with_parts(map(placed, parsed.log.parts)) for parsed in read]


def _refuse_other_prompts(parsed: _ParsedLog, target: Sequence[_ParsedLog]) -> None:
    """Reject a log whose prompts or decoding differ from those of all logs of the target in the same format.

    One of the target's logs must agree, since the target may have several prompt styles.
    """
    formats = {(part.split, part.name) for part in parsed.log.parts}
    own = parsed.log.settings
    problems = []
    for target_log in target:
        if formats.isdisjoint((part.split, part.name) for part in target_log.log.parts):
            continue
        its = target_log.log.settings
        name = next((name for name, value in own.items() if its.get(name, value) != value), "")
        if not name:
            return
        both = (f"{name}={one_line(settings[name], width=120)}" for settings in (own, its))
        problems.append(f" was asked with {', and the target with '.join(both)}.")
    if problems:
        raise parsed.unfit(problems[0])


def _stated_by_some(read: Sequence[_ParsedLog]) -> Iterator[str]:
    """Yield a sentence on the settings that some models state, and others do not: they were not compared."""
    stated: dict[str, set[str]] = defaultdict(set)
    for parsed in read:
        for name in parsed.log.settings:
            stated[name].add(parsed.entry.name)
    models = {parsed.entry.name for parsed in read if not parsed.entry.laboratory}
    for who, names in grouped(stated, lambda name: frozenset(stated[name])).items():
        if lacking := models - who:
            yield (
                f"Whether all were asked alike is not known of {listed(names)}: stated by {first_of(sorted(who))}, and "
                f"not by {first_of(sorted(lacking))}."
            )


_Key = tuple[str, str]
"""A split and the name of a measurement."""


def _scored(read: Sequence[_ParsedLog]) -> tuple[list[LogColumn], list[str], list[Unfit]]:
    """Return the columns of the table, sentences about decisions, and the models that cannot be compared.

    There is one column for each model, split and measurement. See `_compared` for those that the target lacks.
    """
    notes: list[str] = []
    unfit: list[Unfit] = []
    columns = _merged(_of_one_kind(read), notes, unfit)
    columns = _with_truth_decided(columns, notes, unfit)
    columns = _compared(columns, notes, unfit)
    columns = _with_direction(columns, notes)
    return columns, notes, unfit


_Piece = tuple[_ParsedLog, LogPart, Items]


def _merged(read: Sequence[_ParsedLog], notes: list[str], unfit: list[Unfit]) -> list[LogColumn]:
    """Return one column for each model, split and measurement, from all logs of the model.

    If several logs of a model have the same questions, the log with the judged models' prompts counts, and among
    several such logs the one with the most shared questions. A model goes to `unfit` if its logs contradict each other.
    """
    asked: dict[_Key, set[str]] = defaultdict(set)
    frames: dict[_Key, Counter[str]] = defaultdict(Counter)
    parts: dict[tuple[tuple[str, str], _Key], list[_Piece]] = defaultdict(list)
    for parsed in read:
        for part, items in zip(parsed.log.parts, parsed.items, strict=True):
            key = part.split, part.name
            if parsed.entry.role == "unlearned":
                asked[key] |= set(items)
                frames[key][parsed.log.prompt] += 1
            parts[parsed.entry.model, key].append((parsed, part, items))
    columns = []
    for (_, key), several in parts.items():
        usual = max(frames[key], key=frames[key].__getitem__, default="")
        ranked = []
        for number, (parsed, _, items) in enumerate(several):
            shared = len(asked[key].intersection(items))
            ranked.append((parsed.log.prompt != usual, -shared, -len(items), str(parsed.entry.path), number))
        columns.append(_joined([several[rank[-1]] for rank in sorted(ranked)], notes, unfit))
    return columns


_SAME_MODEL = {"overlap": 0.02, "probability": 0.02, "hit": 0.2}
"""The largest mean difference, and share of differing hits, between two evaluations of one model with the same prompt.

OpenUnlearning published retain90 twice: truth differs by 0.003. Four separate trainings differ by 0.05 to 0.1.
"""


def _joined(several: Sequence[_Piece], notes: list[str], unfit: list[Unfit]) -> LogColumn:
    """Combine the parts of one model into one column. The first log with a score of a question provides it."""
    parsed, part, items = several[0]
    if len(several) == 1:
        return LogColumn(parsed.entry, part, items)
    name = one_line(parsed.entry.name, width=60)
    pieces: list[LogPart] = []
    scores: list[float] = []
    reasons: dict[int, str] = {}
    chosen: dict[str, int] = {}
    for other, piece, others in several:
        path = one_line(str(other.entry.path), width=200)
        if by_position(others) and others != items:
            notes.append(f"{name} has several logs with {part.name} without texts; {path} is not counted.")
            continue
        pieces.append(piece)
        reasons |= {len(scores) + place: why for place, why in piece.reasons.items()}
        apart = []
        for item, score in zip(others, piece.scores.tolist(), strict=True):
            known = scores[chosen[item]] if item in chosen else math.nan
            if not math.isnan(known):
                apart.append(abs(known - score))
            elif item not in chosen or not math.isnan(score):
                chosen[item] = len(scores)
            scores.append(score)
        if not apart:
            continue
        notes.append(
            f"{name} has several logs with {part.name} on the same questions; those of {path} are not counted for "
            f"{len(apart)} of them."
        )
        # Another definition of a truth ratio, an unbounded score, or another prompt is not a contradiction.
        kind = part.measurement.score_type
        if part.measurement.question_type == "letter options":
            # Another order of the options changes the hits.
            kind = "hit"
        most = _SAME_MODEL.get(kind, math.inf)
        mean = np.nan_to_num(apart).mean()
        if mean > most and part.otherwise is piece.otherwise and other.log.prompt == parsed.log.prompt:
            said = (
                f" and {path} score the same questions differently ({part.name}, by {mean:.2f} on average), so they "
                "are of different models or of a changed one. Give each its own name, or leave one out (role skip in "
                "roles.csv)."
            )
            unfit.append(parsed.unfit(said))
    joined: Fields = {"scores": np.array(scores), "reasons": reasons, "otherwise": None}
    for column in ("ids", "prompts", "questions", "answers", "replies"):
        texts = [getattr(piece, column) for piece in pieces]
        joined[column] = tuple(chain.from_iterable(texts)) if all(texts) else ()
    otherwise = [piece.otherwise for piece in pieces if piece.otherwise is not None]
    if len(otherwise) == len(pieces):
        joined["otherwise"] = np.concatenate(otherwise)
    return LogColumn(parsed.entry, part._replace(**joined).only(list(chosen.values())), tuple(chosen))


def _of_one_kind(read: Sequence[_ParsedLog]) -> list[_ParsedLog]:
    """Return the logs with one description for each measurement. One of another definition gets a name of its own.

    A score that is 0 or 1 in only one log is graded in all.
    """
    graded = {part.name for one in read for part in one.log.parts if part.measurement.score_type == "overlap"}
    first: dict[str, Measurement] = {}

    def described(part: LogPart) -> LogPart:
        measurement = part.measurement
        if measurement.name in graded and measurement.score_type == "hit":
            measurement = replace(measurement, score_type="overlap")
        if measurement != first.setdefault(measurement.name, measurement):
            definition = measurement.metric or measurement.question_type
            measurement = replace(measurement, name=f"{measurement.name} ({definition})")
        return part._replace(measurement=measurement)

    return [parsed.with_parts(map(described, parsed.log.parts)) for parsed in read]


_ALIKE = 0.5
"""The smallest correlation over questions at which two logs cover the same questions. Truth shares of trainings on TOFU
correlate at 0.80 to 0.95.
"""


def _with_truth_decided(columns: Sequence[LogColumn], notes: list[str], unfit: list[Unfit]) -> list[LogColumn]:
    """Return the columns with one interpretation of each truth ratio whose log fits two definitions.

    Easy questions are easy for all models, so the right interpretation correlates over questions with the logs whose
    definition is known. Without any such log, the right interpretation is the one by which the target scores above its
    controls. A model goes to `unfit` if neither decides.
    """
    undecided = [column for column in columns if column.part.otherwise is not None]
    if not undecided:
        return list(columns)
    decided: dict[tuple[_Key, _Key], LogColumn] = {}
    unclear: set[_Key] = set()
    for key in dict.fromkeys(column.key for column in undecided):
        same = [column for column in columns if column.key == key]
        known = [column.scores for column in same if column.part.otherwise is None]
        if not known:
            above = _above(same)
            clear = abs(above[1]) >= _CLEAR
            besides = [one for one in columns if one.entry.is_target and one.key[0] == "forget" and one.key != key]
            if not clear and key[0] == "forget" and not besides:
                unfit += [_undecided(one, "and the target and its controls do not decide it") for one in same]
                return list(columns)
            if not clear:
                # Trained and untrained models score alike on retained questions, so nothing decides there. On the
                # forget set, the other scores are judged without it.
                notes.append(
                    f"No log tells the definition of its truth ratio in the split {key[0]}, which is not judged."
                )
                unclear.add(key)
                continue
            anchor = next(column for column in same if column.entry.role == "target")
            other = anchor.part.otherwise
            # The target knows more than its controls.
            known = [anchor.by_item(other) if above[0] < 0 and other is not None else anchor.scores]
        mean = {item: float(np.mean([one[item] for one in known if item in one])) for one in known for item in one}
        for column in same:
            if column.part.otherwise is None:
                continue
            # A ratio of 0, or one clipped at 1, is the same for many questions and has no pattern.
            inside = {item: score for item, score in column.scores.items() if 0 < score < 1 and score != 0.5}
            agreement = _correlation(inside, mean)
            if abs(agreement) < _ALIKE:
                unfit.append(_undecided(column, "and its pattern over questions agrees with no other log"))
                continue
            otherwise = agreement < 0
            scores = column.part.otherwise if otherwise else column.part.scores
            part = column.part._replace(scores=scores, otherwise=None)
            decided[column.entry.model, key] = column._replace(part=part)
            read_as = "right / (right + wrong)" if otherwise else "R = wrong / right"
            notes.append(
                f"{one_line(column.entry.name, width=60)}: the log does not tell the definition of its truth ratio "
                f"({key[0]}); it is read as {read_as}, which agrees over questions with the other logs "
                f"(correlation {abs(agreement):.2f})."
            )
    result = []
    for column in columns:
        if column.key in unclear:
            continue
        result.append(decided.get((column.entry.model, column.key), column))
    return result


def _undecided(column: LogColumn, why: str) -> Unfit:
    return Unfit(
        column.entry.name,
        f"{one_line(str(column.entry.path), width=300)}: the log does not tell which of OpenUnlearning's definitions "
        f"its truth ratio has ({column.part.split}), {why}. Keep .hydra/config.yaml beside the log, or evaluate "
        "it again.",
    )


def _correlation(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the correlation over shared questions. 0 with fewer than ten, or if one is constant."""
    shared = [item for item in first if item in second]
    if len(shared) < 10:
        return 0.0
    pair = np.array([[first[item], second[item]] for item in shared])
    if not pair.std(axis=0).all():
        return 0.0
    return float(np.corrcoef(pair.T)[0, 1])


_CLEAR = 4.0
"""The number of standard errors that makes a mean difference certain, because all later steps rest on it."""


def _above(columns: Sequence[LogColumn]) -> tuple[float, float]:
    """Return the mean of target minus controls over questions, and in standard errors. 0 if one is missing."""
    target = [one.scores for one in columns if one.entry.is_target]
    controls = [one.scores for one in columns if one.entry.is_control]
    differences = []
    for item, score in target[0].items() if target else ():
        others = [control[item] for control in controls if item in control]
        if others:
            differences.append(score - float(np.mean(others)))
    if len(differences) < 10:
        return 0.0, 0.0
    mean, error = float(np.mean(differences)), float(np.std(differences, ddof=1) / np.sqrt(len(differences)))
    return mean, mean / max(error, 1e-12)


def _compared(columns: Sequence[LogColumn], notes: list[str], unfit: list[Unfit]) -> list[LogColumn]:
    """Return the columns that the target shares, on the questions of the target or a judged model.

    A score that a judged model alone has of the target's questions cannot be judged. It keeps the claim open.

    Raises:
        InputError: The target has no score of the forget set, or a log is of another forget set.
    """
    of_target = {one.key for one in columns if one.entry.is_target}
    if not any(split == "forget" for split, _ in of_target):
        raise InputError(
            "the target's log holds no questions of the forget set that can be matched. Give one that does"
        )
    core: dict[_Key, set[str]] = defaultdict(set)
    target_items: dict[_Key, set[str]] = defaultdict(set)
    for column in columns:
        key = column.key
        if column.entry.role != "retrained":
            core[key] |= set(column.items)
        if column.entry.is_target:
            target_items[key] |= set(column.items)
    kept, alone = [], []
    lacking: dict[_Key, list[str]] = defaultdict(list)
    problems: dict[tuple[str, str], list[str]] = defaultdict(list)
    for column in columns:
        key, own = column.key, set(column.items)
        if key not in of_target:
            if not column.entry.base:
                lacking[key].append(column.entry.name)
            known = any(key[0] == split == "forget" and own <= items for (split, _), items in target_items.items())
            in_shares = column.part.measurement.score_type not in ("order", "bits")
            if known and in_shares and column.entry.role == "unlearned":
                alone.append(column)
            continue
        if not own & target_items[key]:
            if key[0] == "forget" and column.part.measurement.score_type != "order":
                problem = f"{_holds(column)} and none of them is the target's: they cannot be matched."
                if column.part.prompts:
                    problem = (
                        f"{_holds(column)} and none of the target's {len(target_items[key])} is among them: it is of "
                        "another forget set, or was asked in other words."
                    )
                problems[column.entry.model].append(problem)
            continue
        if not own <= core[key]:
            places = [n for n, item in enumerate(column.items) if item in core[key]]
            column = column._replace(part=column.part.only(places), items=tuple(column.items[n] for n in places))
        lacks = len(target_items[key] - own)
        if column.entry.role == "retrained" and key[0] == "forget" and lacks > _MOST_LACKING * len(target_items[key]):
            problems[column.entry.model].append(
                f"{_holds(column)} and lacks {lacks} of the target's {len(target_items[key])}: it is cut short, or of "
                "another forget set."
            )
            continue
        kept.append(column)
    fit = {one.entry.model for one in kept if one.part.split == "forget"}
    for model, of_model in problems.items():
        # A model that is comparable in one score of the forget set keeps that score.
        if model not in fit:
            unfit.append(Unfit(model[0], of_model[0]))
        notes += [f"{problem.rstrip('.')}; this score is not compared." for problem in of_model]
    of_forget = (one for one in columns if one.part.split == "forget")
    for model, same in grouped(of_forget, lambda column: column.entry.model).items():
        entry = same[0].entry
        if entry.role == "unlearned" and model not in fit and model not in problems:
            names = listed(one.part.name for one in same)
            shown = listed(name for split, name in of_target if split == "forget")
            why = f"{entry.who} has the scores {names} of the forget set, and the target {shown}."
            unfit.append(Unfit(entry.name, f"{why} None is in common. Evaluate both alike."))
    for (split, name), models in lacking.items():
        notes.append(
            f"The target has no score {name} in the split {split}, which {len(set(models))} other models have."
        )
    return kept + alone


_MOST_LACKING = 0.1
"""The share of the target's questions that a control may lack. Each missing question is untested for all models."""


def _holds(column: LogColumn) -> str:
    return f"{column.entry.who}, {column.part.name}, holds {len(column.items)} forget questions"


def _with_direction(columns: Sequence[LogColumn], notes: list[str]) -> list[LogColumn]:
    """Return the columns with higher scores for more knowledge. The others have a target below its controls.

    Raises:
        InputError: Every score of the forget set is reversed.
    """
    reversed_: NumberByName = {}
    forget = [
        one
        for one in columns
        if one.part.split == "forget" and one.part.measurement.score_type not in ("order", "bits")
    ]
    for name in dict.fromkeys(one.part.name for one in forget):
        above = _above([one for one in forget if one.part.name == name])
        if above[0] < -0.1 and above[1] < -_CLEAR:
            reversed_[name] = above[0]
    if not reversed_:
        return list(columns)
    name, difference = next(iter(reversed_.items()))
    said = (
        f"the target scores {-difference:.2f} below its controls in {one_line(name, width=60)}, so that a higher score "
        f"does not mean more knowledge there. Where a lower one does, give --logs "
        f"score:{one_line(name, width=60)}=lower"
    )
    if len(reversed_) == len({one.part.name for one in forget}):
        raise InputError(f"{said}.")
    notes.append(f"{said[0].upper()}{said[1:]}. It is not judged.")
    return [one for one in columns if one.part.name not in reversed_]


def model_scores(columns: Sequence[LogColumn]) -> list[ModelScores]:
    """Return the columns in the form of a score table. A missing score has the reason."""
    bits = {one.part.name for one in columns if one.part.measurement.score_type == "bits"}
    of_models = []
    for column in columns:
        part, items = column.part, column.items
        kind = part.measurement.score_type
        # A judgement has one measure of bits.
        if kind == "bits" and len(bits) > 1:
            continue
        shown = part.split == "forget"
        texts: dict[str, Texts] = {}
        if shown and (part.questions or part.answers or part.replies):
            blank = ("",) * len(items)
            columns_of_texts = (part.questions or blank, part.answers or blank, part.replies or blank)
            texts = dict(zip(items, map(Texts, *columns_of_texts), strict=True))
        chances = None
        if part.notes or part.chance is not None:
            of_notes = [note.chance for note in part.notes]
            chances = np.array(of_notes or [part.chance] * len(items), dtype=float)
        scores = ModelScores(
            model=column.entry.name,
            role=column.entry.role,
            items=items,
            scores=part.scores,
            splits=(part.split,) * len(items),
            facts=tuple(note.fact for note in part.notes),
            groups=tuple(note.group for note in part.notes),
            scopes=tuple(note.scope for note in part.notes),
            drawn_from=tuple(note.drawn_from for note in part.notes),
            questions=part.questions if shown else (),
            chances=chances,
            reasons={items[place]: why for place, why in part.reasons.items() if np.isnan(part.scores[place])},
            texts=texts,
            format="forced" if kind == "bits" else part.name,
            attack=column.entry.attack,
            unit=kind if kind in ("order", "bits") else "share",
            question_type=part.measurement.question_type,
            ratio=YES if part.measurement.ratio else "",
        )
        of_models.append(scores)
    return of_models
