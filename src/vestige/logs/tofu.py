"""TOFU's own eval_log_aggregated.json: losses a token and replies of four question sets, each by the question's index.

`truth` is the share of probability on the reworded true answer beside the wrong ones, 1 / (1 + R) with their truth
ratio R = exp(loss of the true wording - mean loss of the wrong ones).
"""

import math
from pathlib import Path
from typing import Any

from vestige.core.files import read_json
from vestige.logs.log import Log, LogReading, in_order

NAMES = ("eval_log_aggregated.json",)
SPLITS = {
    "eval_log_forget.json": "forget",
    "eval_log.json": "retain",
    "eval_real_author_wo_options.json": "independent",
    "eval_real_world_wo_options.json": "factual",
}


def holds(path: Path) -> bool:
    """Whether a file of such a name is one that this reads."""
    return path.name in NAMES


def read(path: Path) -> Log:
    """What the file says."""
    stored, reading = read_json(path), LogReading(path)
    for file, split in SPLITS.items():
        tables = stored.get(file) if isinstance(stored, dict) else None
        if isinstance(tables, dict):
            _add(reading, split, tables)
    return reading.log()


def _add(reading: LogReading, split: str, tables: dict[str, Any]) -> None:
    texts = [value if isinstance(value, list) else [value] for value in in_order(tables.get("generated_text"))]
    # Each is the prompt, the reply and the true answer.
    whole = all(len(text) > 2 for text in texts)
    prompts = [text[0] for text in texts if text]
    losses = in_order(tables.get("avg_gt_loss"))
    reading.add(split, "probability", map(_probability, losses), prompts=prompts)
    reading.add(
        split,
        "rougeL",
        in_order(tables.get("rougeL_recall")),
        prompts=prompts,
        answers=[text[2] for text in texts] if whole else (),
        replies=[text[1] for text in texts] if whole else (),
    )
    # Not strict below: `add` tells of a table that lacks questions in words of its own.
    wordings = (in_order(tables.get(name)) for name in ("avg_paraphrased_loss", "average_perturb_loss"))
    reading.add(split, "truth", [_truth(*losses) for losses in zip(*wordings, strict=False)], prompts=prompts)


def _probability(loss: Any) -> Any:
    return math.exp(-loss) if isinstance(loss, int | float) and loss >= 0 else loss


def _truth(true: Any, wrong: Any) -> float:
    if not isinstance(true, int | float) or not isinstance(wrong, list) or not wrong:
        return math.nan
    # exp overflows above 709, where the share is 0 anyhow.
    return 1 / (1 + math.exp(min(true - sum(wrong) / len(wrong), 700.0)))
