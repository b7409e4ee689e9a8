"""From logs that others made to one table of scores: which questions are the same, and which logs cannot be compared.

Questions are matched by their text. Where a log has none they are matched by position, with a log of as many questions
whose text is there, else among logs of as many questions. Logs of one model, such as those of two memories or of two
splits, are given under one name and read together.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder
from vestige.auditing.scored import QuestionScore, Unfit
from vestige.auditing.table import judge_table
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.ids import content_id, file_digest
from vestige.core.text import one_line
from vestige.logs import read_log, reader_of
from vestige.logs.log import GivenLog, Log, LogPart


@dataclass(frozen=True)
class _ParsedLog:
    """A given log with what it says, the digest of its file, and the texts of its questions by split and count."""

    entry: GivenLog
    log: Log
    digest: str

    @property
    def who(self) -> str:
        return f"{one_line(self.entry.name, width=60)} ({one_line(str(self.entry.path), width=200)})"

    def texts(self) -> Iterator[tuple[tuple[str, int], tuple[str, ...]]]:
        for part in self.log.parts:
            if part.questions:
                yield (part.split, len(part.scores)), part.questions


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
    untested: Sequence[str] = (),
) -> AuditOutcome:
    """Judge the models of these logs; evidence and verdicts lie in `run`.

    A log that cannot be compared with the target's is refused; if `forgiving`, its model is left out and named.
    """
    left_out: list[str] = []
    target = next((log.name for log in logs if log.role == "target"), "")
    while True:
        try:
            return _judged(run, logs, forget, margins, (*left_out, *untested))
        except Unfit as error:
            if not forgiving or error.name == target:
                raise
            left_out.append(f"{error} It is left out.")
            logs = [log for log in logs if log.name != error.name]


def _judged(
    run: RunFolder, logs: Sequence[GivenLog], forget: str, margins: Mapping[str, Any] | None, untested: tuple[str, ...]
) -> AuditOutcome:
    read = [_of_forget_set(_read(log), forget) for log in logs]
    unmatched: list[str] = []
    rows = list(_rows(read, unmatched))
    names = dict.fromkeys(parsed.entry.name for parsed in read)
    digests = {
        name: content_id(sorted(parsed.digest for parsed in read if parsed.entry.name == name), length=64)
        for name in names
    }
    unread = Counter([*unmatched, *(problem for parsed in read for problem in parsed.log.unread)])
    not_read = (
        f"Not read of {n} of {len(read)} logs: {one_line(problem, width=200)}." for problem, n in unread.items()
    )
    paths = {log.entry.path.resolve() for log in read}
    source = (
        f"{len(paths)} logs in {one_line(Path(os.path.commonpath([path.parent for path in paths])).name, width=80)}"
    )
    banked = {parsed.entry.name: parsed.entry.laboratory for parsed in read if parsed.entry.laboratory}
    outcome = judge_table(
        run,
        rows,
        forget=forget,
        margins=margins,
        source=source,
        digests=digests,
        untested=(*untested, *not_read, *_of_bank(banked)),
        banked=banked,
    )
    files = [
        {**log.entry._asdict(), "path": str(log.entry.path), "sha256": log.digest}
        for log in sorted(read, key=lambda log: str(log.entry.path))
    ]
    write_json(run.audit(forget).path / "logs.json", {"schema": 1, "logs": files})
    return outcome


def _of_bank(banked: Mapping[str, str]) -> tuple[str, ...]:
    if not banked:
        return ()
    names = ", ".join(f"{one_line(name, width=60)} ({laboratory})" for name, laboratory in banked.items())
    return (
        f"Controls from the bank: {names}. What another laboratory's training and evaluation may do is in every bound; "
        "that the base model and the data are the same is as you say.",
    )


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
    return replace(parsed, log=parsed.log._replace(parts=tuple(parts)))


@cache
def _parsed(path: Path, *, replies: bool) -> tuple[Log, str]:
    # A control is read for every forget set that it never saw.
    log = read_log(path)
    parts = log.parts if replies else tuple(part._replace(replies=()) for part in log.parts)
    return log._replace(parts=parts), file_digest(path)


class _QuestionIndex(NamedTuple):
    """What is known of the questions: texts by split and count, and the target's own ids by split and format."""

    texts: Mapping[tuple[str, int], tuple[str, ...] | None]
    target: Mapping[tuple[str, str], frozenset[str]]


def _rows(read: Sequence[_ParsedLog], unmatched: list[str]) -> Iterator[QuestionScore]:
    """The rows of the table; logs that are unlike the target's are refused, parts without a match go to `unmatched`."""
    _refuse_copies(read)
    target = [parsed for parsed in read if parsed.entry.role == "target" and not parsed.entry.attack]
    if not target:
        raise InputError("no log is the target's, the model before unlearning; give one as target=FILE")
    for parsed in read:
        _refuse_other_prompts(parsed, target)
    texts = _texts(read)
    ids: dict[tuple[str, str], frozenset[str]] = {}
    for part in (part for parsed in target for part in parsed.log.parts):
        n = len(part.scores)
        if part.questions or (part.split, n) in texts or part.split not in {split for split, _ in texts}:
            ids[part.split, part.format] = frozenset(_items(part, texts))
        else:
            unmatched.append(
                f"{part.format}: its {n} questions in the split {part.split} have no text to be matched by"
            )
    if not any(split == "forget" for split, _ in ids):
        raise InputError(f"{target[0].who} holds no questions of the forget set; give one that does")
    index = _QuestionIndex(texts, ids)
    for parsed in read:
        for part in _matched(parsed, index):
            yield from _scores(parsed.entry, part, index)


def _refuse_copies(read: Iterable[_ParsedLog]) -> None:
    first: dict[str, _ParsedLog] = {}
    for parsed in read:
        same = first.setdefault(parsed.digest, parsed)
        if (same.entry.name, same.entry.attack) != (parsed.entry.name, parsed.entry.attack):
            raise Unfit(
                parsed.entry.name, f"{parsed.who} is byte for byte the log of {same.who}, so both are one model."
            )


def _refuse_other_prompts(parsed: _ParsedLog, target: Sequence[_ParsedLog]) -> None:
    """That questions were put otherwise, or answers drawn otherwise, than the target's in the same format."""
    formats = {(part.split, part.format) for part in parsed.log.parts}
    for target_log in target:
        if not formats & {(part.split, part.format) for part in target_log.log.parts}:
            continue
        if parsed.log.prompt and target_log.log.prompt and parsed.log.prompt != target_log.log.prompt:
            prompts = (one_line(prompt, width=120) for prompt in (parsed.log.prompt, target_log.log.prompt))
            raise Unfit(
                parsed.entry.name,
                f"{parsed.who} was asked in other words than the target: {' and '.join(map(repr, prompts))}.",
            )
        differing = [k for k, v in parsed.log.settings.items() if target_log.log.settings.get(k, v) != v]
        if differing:
            setting, target_setting = (
                f"{differing[0]}={log.settings[differing[0]]}" for log in (parsed.log, target_log.log)
            )
            raise Unfit(
                parsed.entry.name, f"{parsed.who} was asked with {setting}, and the target with {target_setting}."
            )


def _texts(read: Sequence[_ParsedLog]) -> dict[tuple[str, int], tuple[str, ...] | None]:
    """By split and number of questions their texts in order; None where logs of as many ask other questions."""
    texts: dict[tuple[str, int], tuple[str, ...] | None] = {}
    for parsed in read:
        for key, questions in parsed.texts():
            if texts.setdefault(key, questions) != questions:
                texts[key] = None
    return texts


def _items(part: LogPart, texts: Mapping[tuple[str, int], tuple[str, ...] | None]) -> tuple[str, ...]:
    """The ids of a part's questions: of their texts, or of their positions where no text is known."""
    n = len(part.scores)
    return _ids(part.split, n, part.questions or texts.get((part.split, n)) or ())


@cache
def _ids(split: str, n: int, questions: tuple[str, ...]) -> tuple[str, ...]:
    if not questions:
        return tuple(f"{split} {position} of {n}" for position in range(1, n + 1))
    times: Counter[str] = Counter()
    ids = []
    for question in questions:
        times[question] += 1
        ids.append(content_id([split, question, times[question]], length=12))
    return tuple(ids)


def _matched(parsed: _ParsedLog, index: _QuestionIndex) -> list[LogPart]:
    """The parts of a log that the target's has too; one that lacks some of the target's questions is refused.

    It is cut short, or of another forget set. More questions than the target's are no fault in a control.
    """
    parts = [part for part in parsed.log.parts if (part.split, part.format) in index.target]
    for part in (part for part in parts if part.split == "forget" and part.unit != "order"):
        items, target_items = frozenset(_items(part, index.texts)), index.target[part.split, part.format]
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
        raise Unfit(parsed.entry.name, f"{parsed.who}, {part.format}, {why}.")
    # A membership score takes the same forget and holdout questions, or none.
    unlike = {p.format for p in parts if p.unit == "order" and not _holds(p, index)}
    return [part for part in parts if part.unit != "order" or part.format not in unlike]


def _holds(part: LogPart, index: _QuestionIndex) -> bool:
    return index.target[part.split, part.format] <= frozenset(_items(part, index.texts))


def _scores(entry: GivenLog, part: LogPart, index: _QuestionIndex) -> Iterator[QuestionScore]:
    questions = part.questions or index.texts.get((part.split, len(part.scores))) or ()
    target_items = index.target[part.split, part.format]
    for position, (item, score) in enumerate(zip(_items(part, index.texts), part.scores, strict=True)):
        if item in target_items:
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
                question=questions[position] if questions else "",
                answer=part.answers[position] if part.answers else "",
                reply=part.replies[position] if part.replies else "",
            )
