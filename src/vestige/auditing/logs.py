"""From logs that others made to one table of scores: which questions are the same, and which logs cannot be compared.

Questions are matched by their text. Where a log has none they are matched by position, with a log of as many questions
whose text is there, else among logs of as many questions. Logs of one model, such as those of two memories or of two
splits, are given under one name and read together.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vestige.artifacts.audits import AuditOutcome
from vestige.artifacts.layout import RunFolder
from vestige.auditing.scored import Scored, Unfit
from vestige.auditing.table import judge_table
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.ids import content_id, file_digest
from vestige.core.text import one_line
from vestige.logs import read_log, reader_of
from vestige.logs.log import GivenLog, Log, Part


@dataclass(frozen=True)
class _Read:
    """A given log with what it says, the digest of its file, and the texts of its questions by split and count."""

    given: GivenLog
    log: Log
    digest: str

    @property
    def who(self) -> str:
        return f"{one_line(self.given.name, width=60)} ({one_line(str(self.given.path), width=200)})"

    def texts(self) -> Iterator[tuple[tuple[str, int], tuple[str, ...]]]:
        for part in self.log.parts:
            if part.questions:
                yield (part.split, len(part.scores)), part.questions


def files_of(path: Path) -> tuple[Path, ...]:
    """The logs in a folder that a reader takes, or the file itself."""
    if not path.is_dir():
        return (path,)
    found = tuple(file for file in sorted(path.rglob("*")) if file.is_file() and reader_of(file))
    if not found:
        raise InputError(f"{path}: no reader takes any file in this folder; docs/logs.md says which logs are read")
    return found


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
    target = next((one.name for one in logs if one.role == "target"), "")
    while True:
        try:
            return _judged(run, logs, forget, margins, (*left_out, *untested))
        except Unfit as error:
            if not forgiving or error.name == target:
                raise
            left_out.append(f"{error} It is left out.")
            logs = [one for one in logs if one.name != error.name]


def _judged(
    run: RunFolder, logs: Sequence[GivenLog], forget: str, margins: Mapping[str, Any] | None, untested: tuple[str, ...]
) -> AuditOutcome:
    read = [_read(one) for one in logs]
    unmatched: list[str] = []
    rows = list(_rows(read, unmatched))
    names = dict.fromkeys(one.given.name for one in read)
    digests = {
        name: content_id(sorted(one.digest for one in read if one.given.name == name), length=64) for name in names
    }
    unread = Counter([*unmatched, *(said for one in read for said in one.log.unread)])
    said = (f"Not read of {n} of {len(read)} logs: {one_line(what, width=200)}." for what, n in unread.items())
    paths = {log.given.path.resolve() for log in read}
    source = (
        f"{len(paths)} logs in {one_line(Path(os.path.commonpath([path.parent for path in paths])).name, width=80)}"
    )
    banked = {one.given.name: one.given.laboratory for one in read if one.given.laboratory}
    outcome = judge_table(
        run,
        rows,
        forget=forget,
        margins=margins,
        source=source,
        digests=digests,
        untested=(*untested, *said, *_of_bank(banked)),
        banked=banked,
    )
    files = [
        {**log.given._asdict(), "path": str(log.given.path), "sha256": log.digest}
        for log in sorted(read, key=lambda log: str(log.given.path))
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


def _read(given: GivenLog) -> _Read:
    log, digest = _parsed(given.path.resolve())
    return _Read(given, log, digest)


@cache
def _parsed(path: Path) -> tuple[Log, str]:
    # A control is read for every forget set that it never saw.
    return read_log(path), file_digest(path)


class _Asked(NamedTuple):
    """What is known of the questions: texts by split and count, and the target's own ids by split and format."""

    texts: Mapping[tuple[str, int], tuple[str, ...] | None]
    target: Mapping[tuple[str, str], frozenset[str]]


def _rows(read: Sequence[_Read], told: list[str]) -> Iterator[Scored]:
    """The rows of the table; everything that makes logs unlike is refused, and what cannot be matched is `told`."""
    _refuse_copies(read)
    target = [one for one in read if one.given.role == "target" and not one.given.attack]
    if not target:
        raise InputError("no log is the target's, the model before unlearning; give one as target=FILE")
    for one in read:
        _refuse_other_prompts(one, target)
    texts = _texts(read)
    ids: dict[tuple[str, str], frozenset[str]] = {}
    for part in (part for one in target for part in one.log.parts):
        n = len(part.scores)
        if part.questions or (part.split, n) in texts or part.split not in {split for split, _ in texts}:
            ids[part.split, part.format] = frozenset(_items(part, texts))
        else:
            told.append(f"{part.format}: its {n} questions in the split {part.split} have no text to be matched by")
    if not any(split == "forget" for split, _ in ids):
        raise InputError(f"{target[0].who} holds no questions of the forget set; give one that does")
    asked = _Asked(texts, ids)
    for one in read:
        for part in _matched(one, asked):
            yield from _scores(one.given, part, asked)


def _refuse_copies(read: Iterable[_Read]) -> None:
    first: dict[str, _Read] = {}
    for one in read:
        same = first.setdefault(one.digest, one)
        if (same.given.name, same.given.attack) != (one.given.name, one.given.attack):
            raise Unfit(one.given.name, f"{one.who} is byte for byte the log of {same.who}, so both are one model.")


def _refuse_other_prompts(one: _Read, target: Sequence[_Read]) -> None:
    """That questions were put otherwise, or answers drawn otherwise, than the target's in the same format."""
    formats = {(part.split, part.format) for part in one.log.parts}
    for other in target:
        if not formats & {(part.split, part.format) for part in other.log.parts}:
            continue
        if one.log.prompt and other.log.prompt and one.log.prompt != other.log.prompt:
            prompts = (one_line(prompt, width=120) for prompt in (one.log.prompt, other.log.prompt))
            raise Unfit(
                one.given.name,
                f"{one.who} was asked in other words than the target: {' and '.join(map(repr, prompts))}.",
            )
        differing = [k for k, v in one.log.settings.items() if other.log.settings.get(k, v) != v]
        if differing:
            own, others = (f"{differing[0]}={log.settings[differing[0]]}" for log in (one.log, other.log))
            raise Unfit(one.given.name, f"{one.who} was asked with {own}, and the target with {others}.")


def _texts(read: Sequence[_Read]) -> dict[tuple[str, int], tuple[str, ...] | None]:
    """By split and number of questions their texts in order; None where logs of as many ask other questions."""
    known: dict[tuple[str, int], tuple[str, ...] | None] = {}
    for one in read:
        for place, questions in one.texts():
            if known.setdefault(place, questions) != questions:
                known[place] = None
    return known


def _items(part: Part, texts: Mapping[tuple[str, int], tuple[str, ...] | None]) -> tuple[str, ...]:
    """The ids of a part's questions: of their texts, or of their positions where no text is known."""
    n = len(part.scores)
    return _ids(part.split, n, part.questions or texts.get((part.split, n)) or ())


@cache
def _ids(split: str, n: int, questions: tuple[str, ...]) -> tuple[str, ...]:
    if not questions:
        return tuple(f"{split} {place} of {n}" for place in range(1, n + 1))
    times: Counter[str] = Counter()
    ids = []
    for question in questions:
        times[question] += 1
        ids.append(content_id([split, question, times[question]], length=12))
    return tuple(ids)


def _matched(one: _Read, asked: _Asked) -> list[Part]:
    """The parts of a log that the target's has too; one that lacks some of the target's questions is refused.

    It is cut short, or of another forget set. More questions than the target's are no fault in a control.
    """
    parts = [part for part in one.log.parts if (part.split, part.format) in asked.target]
    for part in (part for part in parts if part.split == "forget" and part.unit != "order"):
        items, wanted = frozenset(_items(part, asked.texts)), asked.target[part.split, part.format]
        if wanted <= items:
            continue
        n, of = f"{len(items)} forget questions", f"of the target's {len(wanted)}"
        if wanted & items:
            why = f"holds {n} and lacks {len(wanted - items)} {of}: it is cut short, or of another forget set"
        elif part.questions:
            why = f"holds {n} and none {of} is among them: it is of another forget set"
        else:
            why = f"holds {n} without their text, and the target's log {len(wanted)}, so that they cannot be matched"
        raise Unfit(one.given.name, f"{one.who}, {part.format}, {why}.")
    # A membership score takes the same forget and holdout questions, or none.
    unlike = {p.format for p in parts if p.unit == "order" and not _holds(p, asked)}
    return [part for part in parts if part.unit != "order" or part.format not in unlike]


def _holds(part: Part, asked: _Asked) -> bool:
    return asked.target[part.split, part.format] <= frozenset(_items(part, asked.texts))


def _scores(given: GivenLog, part: Part, asked: _Asked) -> Iterator[Scored]:
    questions = part.questions or asked.texts.get((part.split, len(part.scores))) or ()
    wanted = asked.target[part.split, part.format]
    for place, (item, score) in enumerate(zip(_items(part, asked.texts), part.scores, strict=True)):
        if item in wanted:
            yield Scored(
                model=given.name,
                role=given.role,
                item=item,
                score=score,
                split=part.split,
                format=part.format,
                attack=given.attack,
                unit=part.unit,
                chance=part.chance,
                question=questions[place] if questions else "",
                answer=part.answers[place] if part.answers else "",
                reply=part.replies[place] if part.replies else "",
            )
