"""samples_*.jsonl of lm-evaluation-harness: a line for each document, with its metrics, arguments and replies.

For multiple choice, the log has the log-likelihood of every option, in nats. From these values come the probability of
the right option among all (softmax), and its bits.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vestige.artifacts.scores import Measurement, QuestionType
from vestige.core.text import Fields, Record
from vestige.logs.log import (
    NOTE,
    Beginning,
    How,
    Log,
    LogReading,
    hits_or_graded,
    in_order,
    json_lines,
    listed,
    note_on,
    number_of,
    refuse_repeated,
)

_NAMED = re.compile(r"samples_(.+?)(?:_\d{4}-\d\d-\d\dT[\d.-]+)?")


def holds(start: Beginning) -> bool:
    """Whether the first line is a document with the requests that were made for it."""
    row = start.first_row
    return "doc_id" in row and "arguments" in row


def read(path: Path, how: How) -> Log:
    """Return the contents of the file. Each of several filters gives separate measurements."""
    rows = listed(path, list(json_lines(path)), ("doc_id", "arguments", "target"))
    reading = LogReading(path, how)
    # The time of the run is removed so that two runs of one task match. Other names do not identify the task.
    named = _NAMED.fullmatch(path.stem)
    reading.task = named[1] if named else ""
    by_filter = _by_filter(rows)
    for kind, same in by_filter.items():
        refuse_repeated(path, f"filter {kind}", [str(row["doc_id"]) for row in same])
        # Models may differ in their filters.
        suffix = "" if kind == "none" or (kind == "filter 1" and len(by_filter) == 1) else f", {kind}"
        _add(reading, same, suffix)
    return reading.log()


def _by_filter(rows: Sequence[Record]) -> dict[str, list[Record]]:
    """The rows of each filter. Old versions do not name it: they write all documents again for each filter."""
    by_filter: dict[str, list[Record]] = {}
    seen: dict[str, int] = {}
    for row in rows:
        if "filter" in row:
            name = str(row["filter"])
        else:
            document = str(row["doc_id"])
            seen[document] = seen.get(document, 0) + 1
            name = f"filter {seen[document]}"
        by_filter.setdefault(name, []).append(row)
    if seen and len({*map(len, by_filter.values())}) > 1:
        # There is not one block of documents for each filter: some documents are repeated for no reason.
        return {"none": list(rows)}
    return by_filter


def _add(reading: LogReading, rows: list[Record], suffix: str) -> None:
    # Numbers in their order, as in `indexed`.
    rows = sorted(rows, key=lambda row: (len(str(row["doc_id"])), str(row["doc_id"])))
    requests = [_requests(row["arguments"]) for row in rows]
    first = [calls[0] if calls else [] for calls in requests]
    about: Fields = {
        "ids": [str((_note(row, "") or {}).get("item", row["doc_id"])) for row in rows],
        "prompts": [call[0] if call else "" for call in first],
        "answers": [row["target"] for row in rows],
        "replies": [_reply(row) for row in rows],
    }
    options = _options(rows, requests)
    asked: QuestionType = "own words"
    chance = None
    if options is not None:
        sizes = {len(values) for values in options}
        chance = 1 / sizes.pop() if len(sizes) == 1 else None
        asked = _options_asked(requests)
        _add_options(reading, options, rows, requests, (asked, suffix), {**about, "chance": chance})
    for metric in _metrics(rows):
        scores = [row.get(metric) for row in rows]
        known = filter(None, map(number_of, scores))
        notes = [_note(row, metric) for row in rows]
        measurement = Measurement(f"{metric}{suffix}", asked, hits_or_graded(known), metric=metric)
        # A pick among options can be right by chance.
        picked = chance if measurement.score_type == "hit" else None
        reading.add("forget", measurement, scores, notes=notes, chance=picked, **about)
    for call in first:
        reading.decoded_with(call[-1] if call else None)


def _note(row: Record, metric: str) -> Any:
    document = row.get("doc")
    if isinstance(document, dict):
        return note_on(document.get(NOTE), metric)
    return None


def _requests(stored: Any) -> list[list[Any]]:
    """The arguments of every request that was made for a document."""
    requests = list(stored.values()) if isinstance(stored, dict) else in_order(stored)
    return [list(one.values()) if isinstance(one, dict) else in_order(one) for one in requests]


def _metrics(rows: Sequence[Record]) -> list[str]:
    for row in rows:
        if isinstance(row.get("metrics"), list):
            return [str(name) for name in row["metrics"]]
    return [key for key, value in rows[0].items() if isinstance(value, int | float) and key != "doc_id"]


def _reply(row: Record) -> str:
    replies = in_order(row.get("filtered_resps"))[:1]
    return next((reply for reply in replies if isinstance(reply, str)), "")


def _options(rows: Sequence[Record], requests: Sequence[list[list[Any]]]) -> list[np.ndarray] | None:
    """Return the log-likelihoods of all options of every document, in nats. None for other requests."""
    found = []
    for row, calls in zip(rows, requests, strict=True):
        replies = [in_order(reply) for reply in in_order(row.get("resps"))]
        # Each request has a list of replies. A log-likelihood has one: its value and whether it was greedy.
        pairs = [in_order(reply[0]) if len(reply) == 1 else reply for reply in replies]
        values = [number_of(pair[0]) if len(pair) == 2 else None for pair in pairs]
        if len(values) < 2 or len(values) != len(calls) or None in values:
            return None
        found.append(np.array(values, dtype=float))
    return found or None


def _options_asked(requests: Sequence[list[list[Any]]]) -> QuestionType:
    texts = {str(call[1]).strip() for calls in requests for call in calls if len(call) > 1}
    if all(len(text) == 1 and text.isalpha() for text in texts):
        return "letter options"
    return "text options"


def _add_options(
    reading: LogReading,
    options: list[np.ndarray],
    rows: Sequence[Record],
    requests: Sequence[list[list[Any]]],
    label: tuple[QuestionType, str],
    about: Record,
) -> None:
    asked, suffix = label
    right = _right_options(options, rows, requests)
    if right is None:
        reading.unread.append("the log-likelihoods of options: no field names the right option")
        return
    scores, bits = np.full((2, len(options)), np.nan)
    for n, (values, place) in enumerate(zip(options, right, strict=True)):
        if place is None or not np.isfinite(values).all():
            continue
        shares = np.exp(values - values.max())
        scores[n] = shares[place] / shares.sum()
        bits[n] = min(0.0, values[place] / math.log(2))
    share = Measurement(
        f"probability among options{suffix}", asked, "probability", metric="softmax of log-likelihoods", version="1"
    )
    reading.add("forget", share, scores, **about)
    length = Measurement(
        f"bits of the right option{suffix}",
        "forced answer",
        "bits",
        low=-math.inf,
        high=0.0,
        metric="log2 probability",
        version="1",
    )
    reading.add("forget", length, bits, **{**about, "chance": None})


def _right_options(
    options: Sequence[np.ndarray], rows: Sequence[Record], requests: Sequence[list[list[Any]]]
) -> list[int | None] | None:
    """Return the position of the right option of every document. None if no interpretation fits the log's `acc`."""
    by_number: list[int | None] = []
    by_text: list[int | None] = []
    for values, row, calls in zip(options, rows, requests, strict=True):
        target = str(row["target"]).strip()
        by_number.append(int(target) if target.isdecimal() and int(target) < len(values) else None)
        texts = [str(call[1]).strip() if len(call) > 1 else "" for call in calls]
        by_text.append(texts.index(target) if target in texts else None)
    best, agreement = None, 0.0
    for places in (by_number, by_text):
        agrees = []
        for values, place, row in zip(options, places, rows, strict=True):
            hit = number_of(row.get("acc"))
            if place is not None:
                agrees.append(hit is None or (int(np.argmax(values)) == place) == (hit == 1.0))
        share = sum(agrees) / len(rows)
        # Ties between options are rare, and the log does not say which one wins.
        if share > 0.95 and share > agreement:
            best, agreement = places, share
    return best
