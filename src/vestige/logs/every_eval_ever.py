"""Instance-level results of Every Eval Ever (instance_level_eval.schema.json), a line for each sample."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from vestige.artifacts.scores import Measurement
from vestige.core.text import one_line
from vestige.logs.log import (
    NOTE,
    Beginning,
    How,
    Log,
    LogReading,
    hits_or_graded,
    json_lines,
    listed,
    number_of,
    read_value,
    refuse_repeated,
)


def holds(start: Beginning) -> bool:
    """Whether the first line is a sample of such an evaluation."""
    return {"schema_version", "evaluation_id", "sample_id", "evaluation"} <= start.first_row.keys()


def read(path: Path, how: How) -> Log:
    """The contents of the file. Each evaluation is a measurement. A sample that ended in an error has no score."""
    reading, rows = LogReading(path, how), defaultdict(list)
    for row in listed(path, list(json_lines(path)), ("evaluation_name", "sample_id", "evaluation", "input")):
        rows[str(row["evaluation_name"])].append(row)
    # The file of the whole evaluation has the settings.
    beside = path.with_suffix(".json")
    for result in read_value(beside).get("evaluation_results") or () if path != beside and beside.is_file() else ():
        reading.decoded_with((result.get("generation_config") or {}).get("generation_args"))
    for name, same in rows.items():
        refuse_repeated(path, name, [str(row["sample_id"]) for row in same])
        reading.task = name
        scores: list[float | None] = []
        reasons = {}
        for place, row in enumerate(same):
            error = row.get("error")
            scores.append(None if error else number_of(row["evaluation"].get("score")))
            if error:
                reasons[place] = f"the sample ended in an error: {one_line(str(error), width=60)}"
        reading.add(
            "forget",
            Measurement(name, "own words", hits_or_graded(filter(None, scores)), metric=name),
            scores,
            ids=[row["sample_id"] for row in same],
            prompts=[row["input"].get("raw", "") for row in same],
            answers=[", ".join(map(str, _listed(row["input"].get("reference")))) for row in same],
            replies=[str((_listed((row.get("output") or {}).get("raw")) or [""])[0]) for row in same],
            reasons=reasons,
            notes=[(row.get("metadata") or {}).get(NOTE) for row in same],
        )
    return reading.log()


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    if value is None:
        return []
    return [value]
