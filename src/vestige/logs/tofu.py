"""TOFU's own eval_log_aggregated.json: losses per token and replies of four question sets, by question index.

`truth` is the share of probability on the reworded true answer next to the wrong ones, 1 / (1 + R) with their truth
ratio R = exp(loss of the true wording - mean loss of the wrong ones).
"""

import math
from pathlib import Path
from typing import Any

from vestige.logs.log import Beginning, How, Log, LogReading, in_order, indexed, number_of, read_value
from vestige.logs.open_unlearning import OVERLAP, PROBABILITY, TRUTH

SPLITS = {
    "eval_log_forget.json": "forget",
    "eval_log.json": "retain",
    "eval_real_author_wo_options.json": "independent",
    "eval_real_world_wo_options.json": "factual",
}


def holds(start: Beginning) -> bool:
    """Return whether the file has the tables of one of TOFU's question sets."""
    value = start.value
    return isinstance(value, dict) and any(isinstance(value.get(name), dict) for name in SPLITS)


def read(path: Path, how: How) -> Log:
    """The contents of the file."""
    stored, reading = read_value(path), LogReading(path, how)
    for file, split in SPLITS.items():
        tables = stored.get(file)
        if isinstance(tables, dict):
            _add(reading, split, tables)
    return reading.log()


def _add(reading: LogReading, split: str, tables: dict[str, Any]) -> None:
    texts = [value if isinstance(value, list) else [value] for value in in_order(tables.get("generated_text"))]
    # Each text has the prompt, the reply and the true answer.
    whole = all(len(text) > 2 for text in texts)
    prompts = [text[0] for text in texts if text]
    ids, losses = indexed(tables.get("avg_gt_loss"))
    reading.add(split, PROBABILITY, map(_probability, losses), ids=ids, prompts=prompts)
    ids, overlaps = indexed(tables.get("rougeL_recall"))
    reading.add(
        split,
        OVERLAP,
        overlaps,
        ids=ids,
        prompts=prompts,
        answers=[text[2] for text in texts] if whole else (),
        replies=[text[1] for text in texts] if whole else (),
    )
    # zip is not strict below, because `add` reports a table that lacks questions.
    ids, right = indexed(tables.get("avg_paraphrased_loss"))
    wrong = in_order(tables.get("average_perturb_loss"))
    truths = [_truth(*losses) for losses in zip(right, wrong, strict=False)]
    reading.add(split, TRUTH, truths, ids=ids[: len(truths)], prompts=prompts)


def _probability(loss: Any) -> float | None:
    number = number_of(loss)
    if number is None or not math.isfinite(number):
        return None
    # A negative loss is invalid, and its share above 1 is rejected by name.
    return math.exp(min(-number, 700.0))


def _truth(right: Any, wrong: Any) -> float | None:
    losses = [number_of(loss) for loss in (right, *(wrong if isinstance(wrong, list) else ()))]
    known = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    if len(known) < max(2, len(losses)):
        return None
    # exp overflows above 709, where the share is 0 anyhow.
    return 1 / (1 + math.exp(max(-700.0, min(known[0] - sum(known[1:]) / len(known[1:]), 700.0))))
