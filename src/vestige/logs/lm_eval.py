"""samples_*.jsonl of lm-evaluation-harness: a line for each document, with its metrics, arguments and replies."""

import re
from pathlib import Path
from typing import Any

from vestige.core.files import read_jsonl
from vestige.logs.log import Log, LogReading, first_line, in_order, listed, refuse_repeated

NAMES = ("samples_*.jsonl",)
ALIKE = ("temperature", "do_sample", "top_p", "top_k")
"""What of the arguments has to be the same for two logs to be compared."""


def holds(path: Path) -> bool:
    """Whether a file of such a name is one that this reads."""
    return {"doc_id", "arguments"} <= first_line(path).keys()


def read(path: Path) -> Log:
    """What the file says; of several filters each is a format of its own."""
    rows = listed(path, list(read_jsonl(path)), ("doc_id", "arguments", "target"))
    reading = LogReading(path)
    # Without the time of the run, or two runs of one task would be of two.
    reading.task = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT[\d.-]+$", "", path.stem)
    # Each filter writes a line for every document, with scores of its own.
    filters = list(dict.fromkeys(str(row.get("filter", "none")) for row in rows))
    for kind in filters:
        same = sorted((r for r in rows if str(r.get("filter", "none")) == kind), key=lambda row: int(row["doc_id"]))
        refuse_repeated(path, f"filter {kind}", [int(row["doc_id"]) for row in same])
        arguments = [_arguments(row["arguments"]) for row in same]
        prompts, answers = [call[0] if call else "" for call in arguments], [row["target"] for row in same]
        replies = [_reply(row) for row in same]
        for metric in _metrics(same[0]):
            name = metric if len(filters) == 1 else f"{metric}, {kind}"
            scores = [row.get(metric) for row in same]
            # Perplexities and counts are no shares, and what they are at chance is not known.
            if all(isinstance(score, int | float) and 0 <= score <= 1 for score in scores):
                reading.add("forget", name, scores, prompts=prompts, answers=answers, replies=replies)
            else:
                reading.unread.append(f"{name}: a metric that is no share of each document")
        call_settings = arguments[0][1] if arguments and len(arguments[0]) > 1 else None
        reading.settings |= {
            key: str(call_settings[key]) for key in ALIKE if isinstance(call_settings, dict) and key in call_settings
        }
    return reading.log()


def _arguments(stored: Any) -> list[Any]:
    """The prompt and what goes with it, of the first request of a document."""
    requests = list(stored.values()) if isinstance(stored, dict) else in_order(stored)
    first = requests[0] if requests else []
    return list(first.values()) if isinstance(first, dict) else in_order(first)


def _metrics(row: Any) -> list[str]:
    if isinstance(row.get("metrics"), list):
        return [str(name) for name in row["metrics"]]
    return [k for k, v in row.items() if isinstance(v, int | float) and k != "doc_id"]


def _reply(row: Any) -> str:
    replies = row.get("filtered_resps") or [""]
    return replies[0] if isinstance(replies[0], str) else ""
