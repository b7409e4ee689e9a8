"""Logs of Inspect: one JSON file, or a .eval archive with header.json and a file for each sample.

Of several epochs of a sample the mean score is taken. A scorer's "C" is 1, "P" a half, "I" and "N" are 0. A sample that
ended in an error has no score, and counts as missing. So does an "N" (no answer) if the reply is empty or holds the
answer.
"""

import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from vestige.artifacts.scores import Measurement
from vestige.core.errors import InputError
from vestige.core.files import MOST_READ, Unpacked, open_input
from vestige.core.text import Fields, Record, TextByName, one_line
from vestige.logs.log import (
    NOTE,
    Beginning,
    How,
    Log,
    LogReading,
    hits_or_graded,
    is_empty,
    listed,
    message_text,
    note_on,
    number_of,
    read_value,
)

_DENSEST, _SMALL = 200, 2**26
"""An archive may unpack to this multiple of its size, or to this number of bytes. Texts of samples reach about fifty
times.
"""


def holds(start: Beginning) -> bool:
    """Whether it is a log of Inspect: an archive, or JSON with the beginning of its logs."""
    if start.head[:2] == b"PK":
        return zipfile.is_zipfile(start.path)
    value = start.value
    if not isinstance(value, dict):
        return False
    evaluation = value.get("eval")
    return "status" in value and isinstance(evaluation, dict) and ("run_id" in evaluation or "task" in evaluation)


def read(path: Path, how: How) -> Log:
    """The contents of the log.

    Raises:
        InputError: The log holds no samples, or a sample is in it twice.
    """
    header, samples = _stored(path)
    reading = LogReading(path, how)
    evaluation: Record = header.get("eval") or {}
    reading.task = str(evaluation.get("task") or "")
    plan: Record = header.get("plan") or {}
    reading.decoded_with((evaluation.get("model_generate_config") or {}) | (plan.get("config") or {}))
    if steps := plan.get("steps"):
        # Of `system_message`, `prompt_template` and their like.
        reading.settings["template"][str([(step.get("params") or {}).get("template") for step in steps])] = None
    if header.get("status") != "success":
        status = one_line(str(header.get("status")), width=40)
        reading.unread.append(f"the log's status is {status}, so that samples are missing")
    if samples is None:
        raise InputError(
            f"{path}: holds no samples, only the header. Run the evaluation again without --no-log-samples, or give "
            "the whole log."
        )
    table = _Samples()
    for sample in listed(path, samples, ("id", "input")):
        table.add(path, sample)
    table.expect(evaluation.get("dataset"))
    for sample in samples:
        chat = sample.get("messages") or sample["input"]
        if isinstance(chat, list) and not sample.get("error"):
            reading.settings["system message"][_text(chat, "system")] = None
    for name, why in table.unread.items():
        reading.unread.append(f"{name}: {why}, and no number. Evaluate with a scorer that gives one number")
        table.scores.pop(name, None)
    for name, scored in table.scores.items():
        _add(reading, table, name, scored)
    return reading.log()


class _Samples:
    """The samples of a log by id: texts, scores by scorer and epoch, and why a score is missing."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, str, str]] = {}
        self.scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.reasons: TextByName = {}
        self.errored: Counter[str] = Counter()
        self.notes: Fields = {}
        self.unread: TextByName = {}
        self._seen: set[tuple[str, str]] = set()

    def add(self, path: Path, sample: Record) -> None:
        item, epoch = str(sample["id"]), str(sample.get("epoch", 1))
        if (item, epoch) in self._seen:
            raise InputError(
                f"{path}: the sample {one_line(item, width=60)} appears twice in epoch "
                f"{one_line(epoch, width=10)}. Keep one."
            )
        self._seen.add((item, epoch))
        reply = _text((sample.get("output") or {}).get("completion"))
        target = _text(sample.get("target"))
        self.texts.setdefault(item, (_text(sample["input"]), target, reply))
        self.notes[item] = (sample.get("metadata") or {}).get(NOTE)
        error = sample.get("error")
        if error:
            message = error.get("message") if isinstance(error, dict) else error
            self.reasons[item] = f"the sample ended in an error: {one_line(str(message), width=60)}"
            self.errored[item] += 1
            return
        for name, score in _by_scorer(sample).items():
            value = score.get("value") if isinstance(score, dict) else score
            parts = value if isinstance(value, dict) else {"": value}
            for key, mark in parts.items():
                label = f"{name}, {key}" if key else name
                number = number_of(mark)
                if mark == "N" and (not reply.strip() or target.casefold() in reply.casefold()):
                    self.reasons[item] = "marked as no answer, with an empty reply or one that holds the answer"
                elif number is not None:
                    self.scores[label][item].append(number)
                elif isinstance(mark, list | dict):
                    self.unread.setdefault(label, f"the score of the sample {one_line(item, width=40)} is a list")
                elif mark is not None and not is_empty(str(mark)):
                    # Among letter grades, C would count as correct, and the others as missing.
                    shown = f"{one_line(item, width=40)} is {one_line(str(mark), width=40)!r}"
                    self.unread.setdefault(label, f"the score of the sample {shown}")

    def expect(self, dataset: Any) -> None:
        """Count the samples that the evaluation was to ask and that the log does not hold as missing."""
        for item in map(str, (dataset or {}).get("sample_ids") or []):
            if item not in self.texts:
                self.texts[item] = ("", "", "")
                self.reasons[item] = "the log does not hold the sample"


def _by_scorer(sample: Record) -> Record:
    """The scores of a sample by scorer. Some writers list them, and the oldest logs have one under `score`."""
    scores = sample.get("scores", sample.get("score"))
    if isinstance(scores, list):
        named = {}
        for number, score in enumerate(scores, 1):
            name = score.get("name") or score.get("scorer") if isinstance(score, dict) else None
            named[str(name or f"score {number}")] = score
        return named
    if isinstance(scores, dict) and "scores" in sample:
        return scores
    return {"score": scores}


def _add(reading: LogReading, table: _Samples, name: str, scored: Mapping[str, list[float]]) -> None:
    scores, reasons = [], {}
    # A missing sample has no text, and then no sample of the log is matched by text.
    prompts, answers, replies = zip(*table.texts.values(), strict=True)
    partly = sum(item in table.errored for item in scored)
    if partly:
        reading.unread.append(
            f"{name}: {partly} of {len(table.texts)} samples ended in an error in some epochs, and the mean of their "
            "other epochs counts"
        )
    for place, item in enumerate(table.texts):
        marks = scored.get(item)
        scores.append(sum(marks) / len(marks) if marks else None)
        if not marks:
            reasons[place] = table.reasons.get(item, f"the sample {one_line(item, width=40)} has no score")
    # The mean over several epochs is a graded score.
    kind = hits_or_graded(chain(*scored.values()))
    if any(len(marks) > 1 for marks in scored.values()):
        kind = "overlap"
    reading.add(
        "forget",
        Measurement(name, "own words", kind, metric=name),
        scores,
        ids=table.texts,
        prompts=prompts if all(prompts) else (),
        answers=answers,
        replies=replies,
        reasons=reasons,
        notes=[note_on(table.notes.get(item), name) for item in table.texts],
    )


def _stored(path: Path) -> tuple[Record, Any]:
    """Return the header and the samples of a log. The samples are None if it only contains the header."""
    with open_input(path) as file:
        packed = file.read(2) == b"PK"
    if packed:
        return _archive(path)
    stored = read_value(path)
    if not isinstance(stored, dict):
        raise InputError(f"{path}: is not a log of Inspect. Give the file that Inspect wrote.")
    return stored, stored.get("samples")


def _archive(path: Path) -> tuple[Fields, Any]:
    # Inspect compresses with zstd, which Python reads from version 3.14 on.
    if sys.version_info >= (3, 14):
        opened = zipfile.ZipFile
    else:
        from backports.zstd import zipfile as with_zstd

        opened = with_zstd.ZipFile
    try:
        with open_input(path) as file, opened(file) as parts:
            members = {member.filename: member for member in parts.infolist()}
            unpacked = sum(member.file_size for member in members.values())
            packed = max(1, path.stat().st_size)
            # A single small member may have a high ratio, but not all of them together.
            if unpacked > MOST_READ or (unpacked > _SMALL and unpacked > _DENSEST * packed):
                raise InputError(
                    f"{path}: unpacks to {unpacked / 2**20:,.0f} MiB, {unpacked / packed:,.0f} times its size. Give "
                    "the samples as JSON (inspect log convert --to json)."
                )

            def content(name: str) -> Any:
                with Unpacked(parts.open(name), members[name].compress_size, f"{path}: {name}") as stream:
                    return from_json(stream.readall(), cache_strings="keys")

            samples = [name for name in members if name.startswith("samples/") and name.endswith(".json")]
            start = next((name for name in ("header.json", "_journal/start.json") if name in members), "header.json")
            header = content(start)
            if not samples:
                return header, None
            return header, [content(name) for name in samples]
    except InputError:
        raise
    except (zipfile.BadZipFile, KeyError, NotImplementedError, OSError, RuntimeError, ValueError, EOFError) as error:
        why = f"cannot be unpacked ({one_line(str(error), width=200)}); `inspect log convert --to json` makes it JSON"
        raise InputError(f"{path}: {why}") from error


def _text(value: Any, role: str = "user") -> str:
    """The text of an input, a target or a completion. For messages, return those of a role."""
    if isinstance(value, list):
        turns = [m for m in value if isinstance(m, dict) and m.get("role") == role]
        if not turns and role == "user":
            return ", ".join(map(str, value))
        return "\n".join(message_text(turn.get("content")) for turn in turns)
    if value is None:
        return ""
    return str(value)
