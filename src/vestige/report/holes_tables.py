"""A search for holes as rows of CSV: the table in the form of the paper's Table 1, and every hole.

Numbers are written in full; text from models and data sets has what acts unseen spelt out (`visible`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vestige.artifacts.holes import HoleRow, Placebo
from vestige.artifacts.records import write_csv
from vestige.core.estimates import Estimate
from vestige.report.holes import Probe
from vestige.report.holes_mending import MENDING_COLUMNS, mending_rows
from vestige.report.holes_words import STANDING_WORDS, standing
from vestige.report.visible import visible

_BOUNDS = ("value", "low", "high", "n")
_MEASURES = ("before", "after", "change", "lowest_before", "lowest_after", "holes")
HOLE_COLUMNS = (
    *("probe", "id", "prompt", "source", "group", "target_score", "unlearned_score", "target_answer"),
    "unlearned_answer",
)
"""The columns of tables/holes.csv, a row a hole."""
SOURCE_COLUMNS = (
    *("probe", "source", "placebo", "tested", "verdict"),
    *(f"{name}_{bound}" for name in (*_MEASURES, "false_holes", "beyond") for bound in _BOUNDS),
)
"""The columns of tables/hole_sources.csv, a row a source and placebo; a source without a placebo has one row."""


def write_hole_tables(folder: Path, probes: Sequence[Probe]) -> None:
    """Write holes.csv and hole_sources.csv of some searches into `folder`, and mitigation.csv where any was mended."""
    write_csv(folder / "holes.csv", HOLE_COLUMNS, [_readable(row) for probe in probes for row in _holes(probe)])
    write_csv(folder / "hole_sources.csv", SOURCE_COLUMNS, [_readable(row) for probe in probes for row in _rows(probe)])
    if any(probe.mendings for probe in probes):
        rows = [_readable(row) for probe in probes for row in mending_rows(probe)]
        write_csv(folder / "mitigation.csv", MENDING_COLUMNS, rows)


def _holes(probe: Probe) -> list[dict[str, Any]]:
    return [
        {
            "probe": probe.name,
            "id": hole.id,
            "prompt": hole.prompt,
            "source": hole.source,
            "group": hole.group,
            "target_score": hole.target_score,
            "unlearned_score": hole.unlearned_score,
            "target_answer": hole.target_answer,
            "unlearned_answer": hole.unlearned_answer,
        }
        for hole in probe.holes
    ]


def _rows(probe: Probe) -> list[dict[str, Any]]:
    return [_row(probe, row, placebo) for row in probe.table.rows for placebo in row.placebos or (None,)]


def _row(probe: Probe, row: HoleRow, placebo: Placebo | None) -> dict[str, Any]:
    measured: Mapping[str, Estimate | None] = {
        "before": row.before,
        "after": row.after,
        "change": row.change,
        "lowest_before": row.lowest_before,
        "lowest_after": row.lowest_after,
        "holes": row.holes,
        "false_holes": placebo.rate if placebo else None,
        "beyond": placebo.excess if placebo else None,
    }
    fixed = {
        "probe": probe.name,
        "source": row.source,
        "placebo": placebo.name if placebo else "",
        "tested": row.n,
        "verdict": STANDING_WORDS[standing(probe, row)],
    }
    numbers = {f"{name}_{bound}": "" if e is None else x for name, e in measured.items() for bound, x in _parts(e)}
    return fixed | numbers


def _parts(estimate: Estimate | None) -> list[tuple[str, Any]]:
    if estimate is None:
        return [(bound, "") for bound in _BOUNDS]
    return list(zip(_BOUNDS, (estimate.value, estimate.low, estimate.high, estimate.n), strict=True))


def _readable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: visible(v) if isinstance(v, str) else v for k, v in row.items()}
