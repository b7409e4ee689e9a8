"""Logs of Inspect: one JSON file, or a .eval archive with header.json and a file for each sample.

Of several epochs of a sample the mean score is taken. A scorer's "C" is 1, "P" a half, "I" and "N" are 0.
"""

import json
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.text import one_line
from vestige.logs.log import Log, LogReading, listed

NAMES = ("*.eval", "*.json")
MARKS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
ALIKE = ("temperature", "top_p", "top_k", "max_tokens", "system_message")


def holds(path: Path) -> bool:
    """Whether it is a log of Inspect: an archive with its header, or JSON that begins as its logs do."""
    if path.suffix == ".eval":
        return zipfile.is_zipfile(path)
    with path.open("rb") as file:
        head = file.read(400)
    return all(name in head for name in (b'"status"', b'"eval"', b'"run_id"'))


def read(path: Path) -> Log:
    """What the log says."""
    stored = _archive(path) if path.suffix == ".eval" else read_json(path)
    header, samples = stored if isinstance(stored, tuple) else (stored, stored.get("samples"))
    reading = LogReading(path)
    reading.task = str(header.get("eval", {}).get("task") or "")
    for part, name in (("eval", "model_generate_config"), ("plan", "config")):
        config = header[part].get(name) if isinstance(header.get(part), dict) else None
        reading.settings |= {k: str(config[k]) for k in ALIKE if isinstance(config, dict) and config.get(k) is not None}
    if header.get("status") != "success":
        reading.unread.append(f"the log's status is {one_line(str(header.get('status')))}, so that samples are missing")
    scores: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    texts: dict[str, tuple[str, str, str]] = {}
    for sample in listed(path, samples, ("id", "input")):
        item = str(sample["id"])
        if not (by_scorer := sample.get("scores")):
            reading.unread.append(f"{one_line(item, width=40)}: the sample has no score")
        reply = _text((sample.get("output") or {}).get("completion"))
        texts.setdefault(item, (_text(sample["input"]), _text(sample.get("target")), reply))
        for name, score in (by_scorer or {}).items():
            value = score.get("value") if isinstance(score, dict) else None
            for key, mark in value.items() if isinstance(value, dict) else [("", value)]:
                scores[f"{name}, {key}" if key else name][item].append(MARKS.get(str(mark), mark))
    for name, table in scores.items():
        prompts, answers, replies = zip(*(texts[item] for item in table), strict=True)
        numbers = all(isinstance(mark, int | float) for marks in table.values() for mark in marks)
        values = (sum(marks) / len(marks) if numbers else None for marks in table.values())
        reading.add("forget", name, values, prompts=prompts, answers=answers, replies=replies)
    return reading.log()


def _archive(path: Path) -> tuple[dict[str, Any], Any]:
    try:
        with zipfile.ZipFile(path) as parts:
            if sum(part.file_size for part in parts.infolist()) > 2**31:
                raise InputError(f"{path}: unpacks to more than 2 GiB; export its samples as JSON")
            names = [n for n in parts.namelist() if n.startswith("samples/") and n.endswith(".json")]
            return json.loads(parts.read("header.json")), [json.loads(parts.read(name)) for name in names]
    except (zipfile.BadZipFile, KeyError, NotImplementedError, OSError, ValueError) as error:
        why = f"cannot be unpacked ({one_line(str(error))}); `inspect log convert --to json` makes it JSON"
        raise InputError(f"{path}: {why}") from error


def _text(value: Any) -> str:
    """The text of an input, a target or a completion; of messages the last of the user."""
    if isinstance(value, list):
        turns = [m for m in value if isinstance(m, dict) and m.get("role") == "user"]
        value = turns[-1].get("content") if turns else ", ".join(map(str, value))
        value = " ".join(str(c.get("text", "")) for c in value) if isinstance(value, list) else value
    return "" if value is None else str(value)
