"""OpenUnlearning's TOFU_EVAL.json and MUSE_EVAL.json: metrics by name, each with `value_by_index`.

Probabilities are those of the answer's tokens on average (geometric mean). Their truth ratio R is how much likelier the
model finds wrong answers than a reworded true one; `truth` is 1 / (1 + R), the share of the true one, in [0, 1].
Membership scores are lower for what a model was taught, so that they are turned around.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vestige.core.files import read_json
from vestige.logs.log import Log, LogReading, in_order

NAMES = ("TOFU_EVAL.json", "MUSE_EVAL.json")
SPLITS = {"forget": "forget", "retain": "retain", "ra": "independent", "wf": "factual"}
METRICS = {
    "Q_A_Prob": ("probability", "prob"),
    "Q_A_Prob_normalised": ("probability among options", "prob"),
    "Q_A_PARA_Prob": ("probability of a paraphrase", "prob"),
    "Q_A_ROUGE": ("rougeL", "rougeL_recall"),
    "truth_ratio": ("truth", "score"),
    "Truth_Ratio": ("truth", "score"),
    "mcqa_prob": ("choice", "prob"),
    "knowmem_ROUGE": ("knowledge, rougeL", "rougeL_f1"),
    "verbmem_ROUGE": ("verbatim, rougeL", "rougeL_f1"),
}
OF_FORGET = {"extraction_strength": "extraction strength", "exact_memorization": "exact memorization"}


def holds(path: Path) -> bool:
    """Whether a file of such a name is one that this reads."""
    return path.name in NAMES


def read(path: Path) -> Log:
    """What the file says."""
    stored = read_json(path)
    reading = LogReading(path)
    for name, metric in stored.items() if isinstance(stored, dict) else ():
        if not isinstance(metric, dict):
            continue
        split, _, measure = name.partition("_")
        rows = _rows(metric)
        if name in OF_FORGET and rows:
            reading.add("forget", OF_FORGET[name], [row.get("score") for row in rows])
        elif name.startswith("mia_"):
            for side in ("forget", "holdout"):
                scores = (row.get("score") for row in _rows(metric.get(side)))
                reading.add(side, measure, (-x if isinstance(x, float) else None for x in scores), unit="order")
        elif split in SPLITS and measure in METRICS and rows:
            _add(reading, SPLITS[split], *METRICS[measure], rows)
        elif rows and not measure.endswith("PERT_Prob"):
            reading.unread.append(f"{name[:40]}: a metric that is not judged")
    return reading.log()


def _rows(metric: Any) -> list[Mapping[str, Any]]:
    """What a metric says of each question, in their order."""
    values = metric.get("value_by_index") if isinstance(metric, dict) else None
    return [row for row in in_order(values) if isinstance(row, dict)]


def _add(reading: LogReading, split: str, name: str, key: str, rows: list[Mapping[str, Any]]) -> None:
    scores = [row.get(key) for row in rows]
    chance = None
    if name == "truth":
        scores = [1 / (1 + score) if isinstance(score, float) and score >= 0 else score for score in scores]
    elif name == "choice":
        options = in_order(scores[0])
        scores, chance = [_right_option(row) for row in rows], 1 / len(options) if options else None
    texts = [[row[text] for row in rows if text in row] for text in ("input", "ground_truth", "generation")]
    prompts, answers, replies = (column if len(column) == len(rows) else () for column in texts)
    reading.add(split, name, scores, prompts=prompts, answers=answers, replies=replies, chance=chance)


def _right_option(row: Mapping[str, Any]) -> Any:
    """The probability of the option that the label names by its letter."""
    position, options = ord((str(row.get("label")).strip() or "?")[0]) - ord("A"), in_order(row.get("prob"))
    return options[position] if 0 <= position < len(options) else None
