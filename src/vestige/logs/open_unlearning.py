"""OpenUnlearning's NAME_EVAL.json: metrics by name, each with `value_by_index`.

Probabilities are the geometric mean over the answer's tokens. Membership scores are lower for training data, so they
are reversed.

Their truth ratio has three definitions (open-unlearning issues 138 and 160, pull request 163), and a log does not name
its own. With p(right) of a reworded true answer and p(wrong) of wrong ones:

- `closer_to_1_better`: R = wrong / right for each question. The aggregate is the mean of min(R, 1 / R).
- `true_better`: R for each question. The aggregate is the mean of max(0, 1 - R).
- `prob_mean`: right / (right + wrong) for each question. The aggregate is the mean.

`truth` is right / (right + wrong) in all three, a share in [0, 1]: R gives 1 / (1 + R).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from vestige.artifacts.scores import Measurement, QuestionType, ScoreType
from vestige.core.errors import InputError
from vestige.core.files import read_text
from vestige.core.text import NumberByName, Record, TextTuple, one_line
from vestige.logs.log import (
    NOTE,
    STRAY,
    Beginning,
    How,
    Log,
    LogReading,
    Scores,
    in_order,
    indexed,
    number_of,
    read_value,
)

SPLITS = {
    "forget": "forget",
    "retain": "retain",
    "ra": "independent",
    "wf": "factual",
    "holdout": "holdout",
    "independent": "independent",
    "factual": "factual",
}


class _Metric(NamedTuple):
    measurement: Measurement
    keys: TextTuple


def _measured(name: str, question_type: QuestionType, score_type: ScoreType, metric: str) -> Measurement:
    return Measurement(name, question_type, score_type, metric=metric, version="1")


TRUTH = replace(_measured("truth", "forced answer", "probability", "right / (right + wrong)"), ratio=True)
CHOICE = _measured("choice", "letter options", "probability", "probability of the right letter")
PROBABILITY = _measured("probability", "forced answer", "probability", "geometric mean over tokens")
OPTIONS = _measured("probability among options", "text options", "probability", "share of the right option")
PARAPHRASE = replace(PROBABILITY, name="probability of a paraphrase")
OVERLAP = _measured("rougeL", "own words", "overlap", "ROUGE-L recall")
KNOWLEDGE = _measured("knowledge, rougeL", "own words", "overlap", "ROUGE-L")
VERBATIM = replace(KNOWLEDGE, name="verbatim, rougeL")
# Names are in lower case, since forks vary the case.
METRICS = {
    **dict.fromkeys(("q_a_prob", "qa_prob"), _Metric(PROBABILITY, ("prob",))),
    "q_a_prob_normalised": _Metric(OPTIONS, ("prob",)),
    "q_a_para_prob": _Metric(PARAPHRASE, ("prob",)),
    **dict.fromkeys(("q_a_rouge", "qa_rouge", "rouge"), _Metric(OVERLAP, ("rougeL_recall", "rougeL_f1"))),
    "truth_ratio": _Metric(TRUTH, ("score",)),
    "mcqa_prob": _Metric(CHOICE, ("prob",)),
    "knowmem_rouge": _Metric(KNOWLEDGE, ("rougeL_f1",)),
    "verbmem_rouge": _Metric(VERBATIM, ("rougeL_f1",)),
}
OF_FORGET = {
    "extraction_strength": Measurement("extraction strength", "forced answer", "overlap", version="1"),
    "exact_memorization": Measurement("exact memorization", "forced answer", "overlap", version="1"),
}
_INPUTS = ("pert_prob", "para_prob")
"""The inputs of a truth ratio. Wrong answers have a list of values, which is not a separate score."""


def membership(name: str) -> Measurement:
    """Return a membership score. Only its order has a meaning."""
    return Measurement(name, "forced answer", "order", low=-np.inf, high=np.inf, metric=name, version="1")


def holds(start: Beginning) -> bool:
    """Whether any metric of the file has values by index."""
    value = start.value
    if not isinstance(value, dict):
        return False
    return any(isinstance(metric, dict) and _has_values(metric) for metric in value.values())


def _has_values(metric: Record) -> bool:
    if "value_by_index" in metric:
        return True
    return any(isinstance(side, dict) and "value_by_index" in side for side in metric.values())


def read(path: Path, how: How) -> Log:
    """The contents of the file.

    Raises:
        InputError: The definition of a truth ratio is unknown, or the file has no score.
    """
    stored = read_value(path)
    reading = LogReading(path, how)
    file = settings_beside(path)
    for name, metric in settings_within(file and settings_in(file)):
        if isinstance(metric, dict):
            reading.decoded_with(metric.get("generation_args"), f"{name}, ")
    for name, metric in stored.items() if isinstance(stored, dict) else ():
        if isinstance(metric, dict):
            _read_metric(reading, stored, str(name), metric)
    return reading.log()


def _read_metric(reading: LogReading, stored: Record, name: str, metric: Record) -> None:
    split, _, measure = name.partition("_")
    keys, rows = _rows(metric)
    if name.startswith("mia_"):
        for side in ("forget", "holdout"):
            ids, values = _rows(metric.get(side))
            scores = [turned(row.get("score")) for row in values]
            if scores:
                reading.add(side, membership(measure), scores, ids=ids)
        return
    if not rows:
        return
    if all(NOTE in row for row in rows):
        _add_noted(reading, rows)
        return
    if name in OF_FORGET:
        reading.add("forget", OF_FORGET[name], [row.get("score") for row in rows], ids=keys)
        return
    known = METRICS.get(measure.lower())
    if known is None or split not in SPLITS:
        if not measure.lower().endswith(_INPUTS):
            reading.unread.append(f"{name[:60]}: a metric that is not known")
        return
    _add(reading, SPLITS[split], known, (keys, rows), (stored, name))


def _add_noted(reading: LogReading, rows: Sequence[Record]) -> None:
    """Take a metric that Vestige exported."""
    notes = [row[NOTE] for row in rows]
    if not all(isinstance(note, dict) for note in notes):
        raise InputError(f"{reading.path}: a note of the export is not an object. The export was changed.")
    reading.add(
        "forget",
        OVERLAP,
        [row.get(note.get("column")) for row, note in zip(rows, notes, strict=True)],
        ids=[note.get("item") for note in notes],
        prompts=[row.get("input", "") for row in rows],
        answers=[row.get("ground_truth", "") for row in rows],
        replies=[row.get("generation", "") for row in rows],
        notes=notes,
    )


def _rows(metric: Any) -> tuple[list[str], list[Record]]:
    """Return a metric's value of each question, in order, with its index. A question without values is {}."""
    values = metric.get("value_by_index") if isinstance(metric, dict) else None
    keys, rows = indexed(values)
    return keys, [row if isinstance(row, dict) else {} for row in rows]


def turned(score: Any) -> float | None:
    """Return a score with the other sign, or None if it is no number."""
    number = number_of(score)
    if number is None:
        return None
    return -number


def _add(
    reading: LogReading, split: str, metric: _Metric, values: tuple[list[str], list[Record]], source: tuple[Record, str]
) -> None:
    keys, rows = values
    column = next((key for key in metric.keys if key in rows[0]), metric.keys[0])
    scores: Sequence[Any] = [row.get(column) for row in rows]
    chance, otherwise = None, None
    measurement = metric.measurement
    if column != metric.keys[0]:
        # An F1 is below the recall of the same reply, so the two are not comparable.
        measurement = replace(measurement, metric=column)
    if measurement is TRUTH:
        scores, otherwise = _truths(reading.path, source, keys, scores)
    elif measurement is CHOICE:
        options = in_order(scores[0])
        scores = [_right_option(row) for row in rows]
        chance = 1 / len(options) if options else None
    texts = [[row[text] for row in rows if text in row] for text in ("input", "ground_truth", "generation")]
    prompts, answers, replies = (texts_of if len(texts_of) == len(rows) else [] for texts_of in texts)
    reading.add(
        split,
        measurement,
        scores,
        ids=keys,
        prompts=prompts,
        answers=answers,
        replies=replies,
        chance=chance,
        otherwise=otherwise,
    )


def _right_option(row: Record) -> Any:
    """The probability of the option that the label names by its letter."""
    position, options = ord((str(row.get("label")).strip() or "?")[0]) - ord("A"), in_order(row.get("prob"))
    if 0 <= position < len(options):
        return options[position]
    return None


_RATIO, _SHARE = "ratio", "share"
_DEFINITIONS = {"closer_to_1_better": _RATIO, "true_better": _RATIO, "prob_mean": _SHARE}


def _truths(
    path: Path, source: tuple[Record, str], keys: Sequence[str], stored: Sequence[Any]
) -> tuple[Sequence[float], Sequence[float] | None]:
    """Return the shares of the true wording, and those by the other definition if the log fits two.

    Raises:
        InputError: No definition fits.
    """
    log, name = source
    numbers = [number_of(score) for score in stored]
    values = np.array([np.nan if number is None else number for number in numbers])
    values[~np.isfinite(values) | (values < 0)] = np.nan
    fitting = _fitting(path, log, name, keys, values)
    ratios = 1 / (1 + values)
    if fitting == {_RATIO}:
        return ratios.tolist(), None
    if fitting == {_SHARE}:
        return values.tolist(), None
    if not fitting:
        raise InputError(
            f"{path}: {one_line(name, width=60)} fits no definition of OpenUnlearning's truth ratio. "
            "Evaluate the model again, or keep the file .hydra/config.yaml next to the log."
        )
    return ratios.tolist(), values.tolist()


def _fitting(path: Path, log: Record, name: str, keys: Sequence[str], values: Scores) -> set[str]:
    """Return the kinds of score that match the log, by its content and settings."""
    known = values[~np.isnan(values)]
    # A share is at most 1, but for values that are no score.
    if not known.size or (known > 1).mean() > STRAY:
        return {_RATIO}
    by_parts = _by_parts(log, name, keys, values)
    if by_parts:
        return {by_parts}
    file = settings_beside(path)
    setting = "" if file is None else _named_aggregator(settings_in(file), name)
    if setting:
        return {_DEFINITIONS[setting]}
    aggregate = number_of(log[name].get("agg_value"))
    if aggregate is None or not np.isfinite(aggregate):
        return {_RATIO, _SHARE}
    means = {
        "closer_to_1_better": np.minimum(known, 1 / np.maximum(known, 1e-300)).mean(),
        "true_better": np.maximum(0.0, 1 - known).mean(),
        "prob_mean": known.mean(),
    }
    fits = {_DEFINITIONS[name] for name, mean in means.items() if abs(mean - aggregate) <= 1e-4 + 1e-3 * abs(mean)}
    # An aggregate of other values, such as rewritten ones, decides nothing.
    return fits or {_RATIO, _SHARE}


def _by_parts(log: Record, name: str, keys: Sequence[str], values: Scores) -> str:
    """Return the kind of score that agrees with the underlying losses, or "" without losses."""
    split = name.partition("_")[0]
    metrics = {str(key).lower(): metric for key, metric in log.items()}
    # Sets without a reworded answer use the answer itself.
    right = _losses(metrics.get(f"{split}_q_a_para_prob") or metrics.get(f"{split}_q_a_prob"))
    wrong = _losses(metrics.get(f"{split}_q_a_pert_prob"))
    shared = [n for n, key in enumerate(keys) if key in right and key in wrong and not np.isnan(values[n])]
    if not shared:
        return ""
    true = np.exp(-np.array([right[keys[n]] for n in shared]))
    false = np.exp(-np.array([wrong[keys[n]] for n in shared]))
    # OpenUnlearning adds 1e-10, which dominates the sum for a collapsed model.
    ratios = false / (true + 1e-10)
    shares = true / (true + false + 1e-10)
    as_ratio = np.median(np.abs(np.log1p(values[shared]) - np.log1p(ratios)))
    as_share = np.median(np.abs(values[shared] - shares))
    if min(as_ratio, as_share) > 0.05 or abs(as_ratio - as_share) < 1e-3:
        return ""
    if as_ratio < as_share:
        return _RATIO
    return _SHARE


def _losses(metric: Any) -> NumberByName:
    """The mean loss a token of each question. Of several answers the mean."""
    keys, rows = _rows(metric)
    found = {}
    for key, row in zip(keys, rows, strict=True):
        loss = row.get("avg_loss")
        losses = in_order(loss) if isinstance(loss, list | dict) else [loss]
        known = [number for number in map(number_of, losses) if number is not None and np.isfinite(number)]
        if known:
            found[key] = sum(known) / len(known)
    return found


def settings_beside(path: Path) -> Path | None:
    """Return the settings file that OpenUnlearning writes next to a log, or None."""
    files = (folder / ".hydra" / "config.yaml" for folder in list(path.parents)[:4])
    return next((file for file in files if file.is_file()), None)


def _named_aggregator(settings: Any, name: str) -> str:
    """Return the value of `aggregator` in the metric's settings, at any depth."""
    for key, metric in settings_within(settings):
        if key == name and isinstance(metric, dict) and metric.get("aggregator") in _DEFINITIONS:
            return str(metric["aggregator"])
    return ""


def settings_within(settings: Any, *, skip: str = "") -> Iterator[tuple[str, Any]]:
    """The names and values of settings at any depth, without what is below `skip`."""
    waiting, seen = [settings], set()
    while waiting:
        value = waiting.pop()
        # YAML may contain one object many times.
        if isinstance(value, dict) and id(value) not in seen:
            seen.add(id(value))
            yield from value.items()
            waiting += [inner for name, inner in value.items() if name != skip]


_LARGEST = 2**20
"""Bytes of settings that are read. OpenUnlearning writes some thousands."""


@cache
def settings_in(file: Path) -> Any:
    """Return the settings in a .hydra/config.yaml, or None if it cannot be read."""
    try:
        text = read_text(file, most=_LARGEST)
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, InputError, yaml.YAMLError, RecursionError):
        return None
