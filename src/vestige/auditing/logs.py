"""From logs that others made to one table of scores: which questions are the same, and which logs cannot be compared.

Questions are matched by their text. Scores without texts take those of as many questions in the same log, else those on
which all other logs agree; where none has any, they are matched by position. Logs of one model, such as those of two
memories or of two splits, are given under one name and read together.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder
from vestige.auditing.scored import SPLITS, QuestionScore, Unfit
from vestige.auditing.table import judge_table
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.ids import content_id, file_digest
from vestige.core.text import closest, one_line
from vestige.logs import read_log, reader_of
from vestige.logs.log import GivenLog, Log, LogPart


@dataclass(frozen=True)
class _ParsedLog:
    """A given log with what it says, and the digest of its file."""

    entry: GivenLog
    log: Log
    digest: str

    @property
    def who(self) -> str:
        return f"{one_line(self.entry.name, width=60)} ({one_line(str(self.entry.path), width=200)})"

    @property
    def model(self) -> tuple[str, str]:
        return self.entry.name, self.entry.attack

    @property
    def is_target(self) -> bool:
        return self.entry.role == "target" and not self.entry.attack

    def with_parts(self, parts: Iterable[LogPart]) -> "_ParsedLog":
        return replace(self, log=self.log._replace(parts=tuple(parts)))

    def unfit(self, why: str) -> Unfit:
        return Unfit(self.entry.name, f"{self.who}{why}")

    def texts(self) -> Mapping[tuple[str, int], frozenset[tuple[str, ...]]]:
        """By split and number of questions their texts in order: one for each set of questions of that size."""
        texts: dict[tuple[str, int], frozenset[tuple[str, ...]]] = {}
        for part in (part for part in self.log.parts if part.questions):
            key = part.split, len(part.scores)
            texts[key] = texts.get(key, frozenset()) | {part.questions}
        return texts


def files_of(path: Path) -> tuple[Path, ...]:
    """The logs in a folder that a reader takes, or the file itself."""
    if not path.is_dir():
        return (path,)
    files = tuple(file for file in sorted(path.rglob("*")) if file.is_file() and reader_of(file))
    if not files:
        raise InputError(f"{path}: no reader takes any file in this folder; docs/logs.md says which logs are read")
    return files


def judge_logs(
    run: RunFolder,
    logs: Sequence[GivenLog],
    *,
    forget: str,
    margins: Mapping[str, Any] | None = None,
    forgiving: bool = False,
    splits: Mapping[str, str] | None = None,
) -> AuditOutcome:
    """Judge the models of these logs; evidence and verdicts lie in `run`.

    `splits` says of which split a task is, by its name; where a model was given several tasks, all have to be in it.
    A log that cannot be compared with the target's is refused; if `forgiving`, its model is left out and named.
    """
    left_out: list[str] = []
    target = next((log.name for log in logs if log.role == "target"), "")
    while True:
        try:
            return _judged(run, logs, forget, margins, left_out, splits or {})
        except Unfit as error:
            if not forgiving or error.name == target:
                raise
            # The others are read again: parsed logs are kept, and which questions match may change without it.
            left_out.append(f"{error} It is left out.")
            logs = [log for log in logs if log.name != error.name]


def _judged(
    run: RunFolder,
    logs: Sequence[GivenLog],
    forget: str,
    margins: Mapping[str, Any] | None,
    left_out: Sequence[str],
    splits: Mapping[str, str],
) -> AuditOutcome:
    read = _by_task([_of_forget_set(_read(log), forget) for log in logs], splits)
    unmatched: list[str] = []
    rows = list(_rows(read, unmatched))
    by_name: dict[str, list[str]] = defaultdict(list)
    for parsed in read:
        by_name[parsed.entry.name].append(parsed.digest)
    digests = {
        name: content_id([*sorted(of_model), *sorted(splits.items())], length=64) for name, of_model in by_name.items()
    }
    unread = Counter([*unmatched, *(problem for parsed in read for problem in parsed.log.unread)])
    not_read = [
        f"Not read of {n} of {len(read)} logs: {one_line(problem, width=200)}." for problem, n in unread.items()
    ]
    banked = {parsed.entry.name: parsed.entry.laboratory for parsed in read if parsed.entry.laboratory}
    if banked:
        names = ", ".join(f"{one_line(name, width=60)} ({laboratory})" for name, laboratory in banked.items())
        not_read.append(
            f"Controls from the bank: {names}. What another laboratory's training and evaluation may do is in every "
            "bound; that the base model and the data are the same is as you say."
        )
    paths = {log.entry.path.resolve() for log in read}
    folder = Path(os.path.commonpath([path.parent for path in paths])).name
    outcome = judge_table(
        run,
        rows,
        forget=forget,
        margins=margins,
        source=f"{len(paths)} logs in {one_line(folder, width=80)}",
        digests=digests,
        untested=(*left_out, *not_read),
        banked=banked,
    )
    files = [
        {**log.entry._asdict(), "path": str(log.entry.path), "sha256": log.digest}
        for log in sorted(read, key=lambda log: str(log.entry.path))
    ]
    write_json(run.audit(forget).path / "logs.json", {"schema": 1, "tasks": dict(splits), "logs": files})
    return outcome


def _read(entry: GivenLog) -> _ParsedLog:
    try:
        # Replies are shown of models that are judged, and those of all others would fill the memory.
        return _ParsedLog(entry, *_parsed(entry.path.resolve(), replies=entry.role == "unlearned"))
    except InputError as error:
        raise Unfit(entry.name, f"{error}.") from error


_TOFU = re.compile(r"tofu .* forget(\d\d)")
_PERCENT = 40
"""Questions in one per cent of TOFU. Its forget sets are the last 1, 5 and 10 % of the data, one in the other."""


def _of_forget_set(parsed: _ParsedLog, forget: str) -> _ParsedLog:
    """The log with the questions of TOFU's named forget set alone, where it holds those of a larger one whole."""
    named = _TOFU.fullmatch(forget)
    if named is None:
        return parsed
    n = _PERCENT * int(named[1])
    parts = (
        part.last(n) if part.split == "forget" and len(part.scores) in (5 * _PERCENT, 10 * _PERCENT) else part
        for part in parsed.log.parts
    )
    return parsed.with_parts(parts)


@cache
def _parsed(path: Path, *, replies: bool) -> tuple[Log, str]:
    # A control is read for every forget set that it never saw.
    log = read_log(path)
    parts = log.parts if replies else tuple(part._replace(replies=()) for part in log.parts)
    return log._replace(parts=parts), file_digest(path)


def _by_task(read: Sequence[_ParsedLog], splits: Mapping[str, str]) -> list[_ParsedLog]:
    """The logs with each task in its split and, where a model was given several, with its name in its formats."""
    by_model: dict[tuple[str, str], set[str]] = defaultdict(set)
    for parsed in read:
        by_model[parsed.model] |= {part.task for part in parsed.log.parts}
    # With one task each the formats keep their names, which others' logs of the same task have too.
    several = any(len(tasks) > 1 for tasks in by_model.values())
    tasks = {task for of_model in by_model.values() for task in of_model if task}
    for task, split in splits.items():
        # A misspelt task would leave its questions in the split that its reader guessed.
        if task not in tasks:
            raise InputError(f"no log is of a task {one_line(task, width=80)!r}; {closest(task, sorted(tasks))}")
        if split not in SPLITS:
            raise InputError(
                f"the task {one_line(task)} is of no split {one_line(split)!r}; {closest(split, list(SPLITS))}"
            )
    if several and (unsaid := sorted(tasks - splits.keys())):
        raise InputError(
            f"one model's logs hold several tasks, and nothing says what {one_line(', '.join(unsaid), width=200)} is "
            f"about; give --logs task:{one_line(unsaid[0], width=80)}=forget, or =retain, independent or factual, for "
            "each"
        )

    def placed(part: LogPart) -> LogPart:
        prefix = f"{part.task}, " if several and part.task not in ("", part.format) else ""
        return part._replace(split=splits.get(part.task, part.split), format=f"{prefix}{part.format}")

    return [parsed.with_parts(map(placed, parsed.log.parts)) for parsed in read]


def _rows(read: Sequence[_ParsedLog], unmatched: list[str]) -> Iterator[QuestionScore]:
    """The rows of the table; logs that are unlike the target's are refused, parts without a match go to `unmatched`."""
    first: dict[str, _ParsedLog] = {}
    for parsed in read:
        same = first.setdefault(parsed.digest, parsed)
        if same.model != parsed.model:
            raise parsed.unfit(f" is byte for byte the log of {same.who}, so both are one model.")
    # Everything is held against it, so that nothing is read of other logs without it.
    target = [parsed for parsed in read if parsed.is_target]
    if not target:
        raise InputError("no log is the target's, the model before unlearning; give one as target=FILE")
    for parsed in read:
        _refuse_other_prompts(parsed, target)
    read = _with_questions(read, unmatched)
    by_model: dict[tuple[str, str], list[LogPart]] = defaultdict(list)
    for parsed in read:
        by_model[parsed.model] += parsed.log.parts
    target_items = _asked(part for parsed in read if parsed.is_target for part in parsed.log.parts)
    if not any(split == "forget" for split, _ in target_items):
        raise InputError(
            f"{target[0].who} holds no questions of the forget set that can be matched; give one that does"
        )
    for parsed in read:
        for part in _matched(parsed, by_model[parsed.model], target_items):
            yield from _scores(parsed.entry, part, target_items[part.split, part.format])


def _refuse_other_prompts(parsed: _ParsedLog, target: Sequence[_ParsedLog]) -> None:
    """That questions were put otherwise, or answers drawn otherwise, than the target's in the same format."""
    formats = {(part.split, part.format) for part in parsed.log.parts}
    for target_log in target:
        if not formats & {(part.split, part.format) for part in target_log.log.parts}:
            continue
        prompts = parsed.log.prompt, target_log.log.prompt
        if all(prompts) and prompts[0] != prompts[1]:
            words = " and ".join(repr(one_line(prompt, width=120)) for prompt in prompts)
            raise parsed.unfit(f" was asked in other words than the target: {words}.")
        settings = target_log.log.settings
        for name, value in parsed.log.settings.items():
            if settings.get(name, value) != value:
                raise parsed.unfit(f" was asked with {name}={value}, and the target with {name}={settings[name]}.")


def _with_questions(read: Sequence[_ParsedLog], unmatched: list[str]) -> list[_ParsedLog]:
    """The logs with the texts of all questions that are known; parts that cannot be matched go to `unmatched`."""
    by_log = [parsed.texts() for parsed in read]
    known: dict[tuple[str, int], set[frozenset[tuple[str, ...]]]] = defaultdict(set)
    for texts in by_log:
        for key, orders in texts.items():
            known[key].add(orders)
    splits = {split for split, _ in known}
    completed = []
    for parsed, texts in zip(read, by_log, strict=True):
        parts = []
        for part in parsed.log.parts:
            key = part.split, len(part.scores)
            elsewhere = known.get(key, set())
            orders = texts.get(key) or frozenset().union(*elsewhere)
            problem = f"{part.format}: its {key[1]} questions in the split {part.split} have no text to be matched by"
            if part.questions:
                parts.append(part)
            elif len(orders) == 1:
                parts.append(part._replace(questions=next(iter(orders))))
            elif len(elsewhere) > 1:
                unmatched.append(f"{problem}, and the logs that have texts differ in their order")
            elif parsed.is_target and not elsewhere and part.split in splits:
                unmatched.append(problem)
            else:
                parts.append(part)
        completed.append(parsed.with_parts(parts))
    return completed


def _asked(parts: Iterable[LogPart]) -> dict[tuple[str, str], frozenset[str]]:
    """The ids of the questions of one model by split and format, which several of its logs may share."""
    items: dict[tuple[str, str], frozenset[str]] = defaultdict(frozenset)
    for part in parts:
        items[part.split, part.format] |= frozenset(_ids(part.split, len(part.scores), part.questions))
    return items


@cache
def _ids(split: str, n: int, questions: tuple[str, ...]) -> tuple[str, ...]:
    if not questions:
        return tuple(f"{split} {position} of {n}" for position in range(1, n + 1))
    times: Counter[str] = Counter()
    ids = []
    for question in questions:
        # The same text twice is two questions, as in a file with wordings that are alike.
        times[question] += 1
        ids.append(content_id([split, question, times[question]], length=12))
    return tuple(ids)


def _matched(
    parsed: _ParsedLog, of_model: Sequence[LogPart], target: Mapping[tuple[str, str], frozenset[str]]
) -> list[LogPart]:
    """The parts of a log that the target's has too; a model that lacks some of the target's questions is refused.

    Its log is cut short, or of another forget set. More questions than the target's are no fault in a control.
    """
    parts = [part for part in parsed.log.parts if (part.split, part.format) in target]
    asked = _asked(part for part in of_model if (part.split, part.format) in target)
    for part in (part for part in parts if part.split == "forget" and part.unit != "order"):
        items, target_items = asked[part.split, part.format], target[part.split, part.format]
        if target_items <= items:
            continue
        n, of = f"{len(items)} forget questions", f"of the target's {len(target_items)}"
        if target_items & items:
            why = f"holds {n} and lacks {len(target_items - items)} {of}: it is cut short, or of another forget set"
        elif part.questions:
            why = f"holds {n} and none {of} is among them: it is of another forget set"
        else:
            why = (
                f"holds {n} without their text, and the target's log {len(target_items)}, so that they cannot be "
                "matched"
            )
        raise parsed.unfit(f", {part.format}, {why}.")
    # A membership score takes the same forget and holdout questions, or none.
    unlike = {
        p.format for p in parts if p.unit == "order" and not target[p.split, p.format] <= asked[p.split, p.format]
    }
    return [part for part in parts if part.unit != "order" or part.format not in unlike]


def _scores(entry: GivenLog, part: LogPart, target_items: frozenset[str]) -> Iterator[QuestionScore]:
    ids = _ids(part.split, len(part.scores), part.questions)
    for position, (item, score) in enumerate(zip(ids, part.scores, strict=True)):
        if item in target_items:
            texts = {"question": part.questions, "answer": part.answers, "reply": part.replies}
            yield QuestionScore(
                model=entry.name,
                role=entry.role,
                item=item,
                score=score,
                split=part.split,
                format=part.format,
                attack=entry.attack,
                unit=part.unit,
                chance=part.chance,
                **{name: column[position] for name, column in texts.items() if column},
            )
