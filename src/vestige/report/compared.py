"""The page of `vestige compare`: differences, a curve of each score over the models, and each question with replies."""

import shlex
from collections.abc import Sequence
from typing import Any

from vestige.report.page import render_static
from vestige.report.words import number

MOST_QUESTIONS = 1_000
"""Questions on the page, those first whose scores differ most."""
_WIDTH, _HEIGHT = 560, 150


def render_comparison(
    rows: Sequence[Any],
    questions: Sequence[Any],
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    paths: Sequence[str],
    common: str,
) -> str:
    """The page as text.

    Args:
        rows: The differences, as `auditing.compare` has them.
        questions: The questions, each with `task`, `score`, `question`, `scores` and `replies` by model.
        heads: The names of the columns.
        cells: The texts of each row, by `heads`.
        paths: The logs, for the command.
        common: The model that all others are compared with, or "".
    """
    curves: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        title = f"{row.score} on {row.task}"
        # Each model of several audits has a curve of its own.
        if not common:
            title += f", from {row.first}"
        points = curves.setdefault(title, [(row.first, row.mean_first)])
        points.append((row.model, row.mean_model))
    models = list(dict.fromkeys(name for points in curves.values() for name, _ in points))
    than = "in the first audit"
    if common:
        than = f"those of {common}"
    lower = sum(row.finding == "lower" for row in rows)
    higher = sum(row.finding == "higher" for row in rows)
    variables = {
        "headline": f"{lower} of {len(rows)} scores are lower than {than}, {higher} higher.",
        "heads": heads,
        "rows": [(row.finding, texts) for row, texts in zip(rows, cells, strict=True)],
        "models": models,
        "curves": [_curve(title, points, models) for title, points in curves.items()],
        "questions": questions[:MOST_QUESTIONS],
        "unlisted": len(questions) - len(questions[:MOST_QUESTIONS]),
        "command": shlex.join(["vestige", "compare", *paths]),
    }
    return render_static("compare.html.j2", ("dom", "copy", "compare"), variables)


def _curve(title: str, points: Sequence[tuple[str, float]], models: Sequence[str]) -> dict[str, Any]:
    """The means of the models in their order, placed in a picture of fixed size. Numbers are places in `models`."""
    values = [value for _, value in points]
    # Shares have one scale in all pictures.
    low, high = min(0.0, *values), max(1.0, *values)
    span = high - low
    step = (_WIDTH - 40) / max(1, len(points) - 1)
    marks = []
    for n, (name, value) in enumerate(points):
        place = (round(20 + n * step, 1), round(_HEIGHT - 30 - (value - low) / span * (_HEIGHT - 60), 1))
        marks.append(
            {"name": name, "value": number(value), "x": place[0], "y": place[1], "number": models.index(name) + 1}
        )
    return {"title": title, "marks": marks, "width": _WIDTH, "height": _HEIGHT}
