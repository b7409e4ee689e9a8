"""What lm-evaluation-harness wrote of a model: `lm_eval --model hf --model_args pretrained=MODEL --output_path FOLDER`.

The harness names a model by the path that it was given, so a result counts for the model that lies there, and only if
it is younger than that model.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.text import one_line

# The normal distribution's 97.5 % quantile: the harness's standard errors are large-sample ones.
_Z = 1.959963984540054


class BenchmarkScore(NamedTuple):
    """One number of one task; `date` is when the harness ran (seconds since 1970), `error` is its standard error."""

    file: Path
    model: str
    date: float
    task: str
    metric: str
    value: float
    error: float | None

    def ends(self) -> tuple[float | str, float | str]:
        """Of the 95 % interval by the harness's standard error; "" where it wrote none."""
        return ("", "") if self.error is None else (self.value - _Z * self.error, self.value + _Z * self.error)


def read_benchmarks(folder: Path) -> list[BenchmarkScore]:
    """The numbers in every results_*.json at or below the folder, oldest first; a file of another form is refused."""
    files = sorted(folder.rglob("results_*.json"))
    if not files:
        raise InputError(f"{folder}: no results_*.json of lm-evaluation-harness there; give its --output_path")
    return sorted((score for file in files for score in _scores(file)), key=lambda score: score.date)


def scores_of(scores: list[BenchmarkScore], model: Path | str, finished: float | None) -> dict[str, BenchmarkScore]:
    """The newest score of each task and metric of the model, by their names; `finished` is the time, if known.

    A result that is older than the model is refused: it is of other weights.
    """
    latest: dict[str, BenchmarkScore] = {}
    for score in scores:
        if _whole(score.model) != _whole(str(model)):
            continue
        # The folder may have been made anew since, under the same name.
        if finished is not None and score.date < finished:
            raise InputError(f"{score.file} is older than {model}, so it is of another model; run lm_eval again")
        latest[f"{score.task}, {score.metric}"] = score
    return latest


def _whole(model: str) -> str:
    """A path without links where there is one; a hub's id stays as it is."""
    return str(Path(model).expanduser().resolve()) if Path(model).expanduser().exists() else model


def _scores(file: Path) -> list[BenchmarkScore]:
    stored = read_json(file)
    try:
        model, date = _pretrained(stored["config"]["model_args"]), float(stored["date"])
        return [
            BenchmarkScore(file, model, date, one_line(task), one_line(name), float(value), error)
            for task, row in stored["results"].items()
            for key, value in row.items()
            for name, _, rule in [key.partition(",")]
            if rule and not name.endswith("_stderr") and isinstance(value, int | float) and math.isfinite(value)
            for error in [_error(row.get(f"{name}_stderr,{rule}"))]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} is not what lm-evaluation-harness writes ({one_line(repr(error))})") from error


def _pretrained(model_args: str | Mapping[str, Any]) -> str:
    """The model that the harness was given, which older versions keep as one text of `key=value`."""
    if isinstance(model_args, str):
        # Values may hold a sign of equality themselves, as paths do.
        model_args = dict(part.split("=", 1) for part in model_args.split(",") if "=" in part)
    return str(model_args["pretrained"])


def _error(stored: object) -> float | None:
    return float(stored) if isinstance(stored, int | float) and math.isfinite(stored) else None
