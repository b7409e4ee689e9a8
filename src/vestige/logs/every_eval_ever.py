"""Instance-level results of Every Eval Ever (instance_level_eval.schema.json), a line for each sample."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vestige.core.files import read_jsonl
from vestige.logs.log import Log, LogReading, first_line, listed, refuse_repeated

NAMES = ("*.jsonl",)


def holds(path: Path) -> bool:
    """Whether the first line is a sample of such an evaluation."""
    return {"schema_version", "evaluation_id", "sample_id", "evaluation"} <= first_line(path).keys()


def read(path: Path) -> Log:
    """What the file says; each evaluation is a format."""
    reading, rows = LogReading(path), defaultdict(list)
    for row in listed(path, list(read_jsonl(path)), ("evaluation_name", "sample_id", "evaluation", "input")):
        if row.get("error"):
            reading.unread.append(f"{row['sample_id']}: the sample ended in an error")
        else:
            rows[str(row["evaluation_name"])].append(row)
    for name, same in rows.items():
        refuse_repeated(path, name, [str(row["sample_id"]) for row in same])
        reading.task = name
        reading.add(
            "forget",
            name,
            [_of(row, "evaluation").get("score") for row in same],
            prompts=[_of(row, "input").get("raw", "") for row in same],
            answers=[", ".join(map(str, _listed(_of(row, "input").get("reference")))) for row in same],
            replies=[str((_listed(_of(row, "output").get("raw")) or [""])[0]) for row in same],
        )
    return reading.log()


def _of(row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
