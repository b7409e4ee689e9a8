"""What mending an unlearned model with its holes costs and brings: one table for the page, and rows of CSV.

A row is a model at a step or a round. Of the forget set it has a score by metric, of each set of prompts the mean
quality, 1..10, and the share at the lowest score.
"""

from dataclasses import dataclass
from typing import Any

from vestige.artifacts.holes import FORGET, SETS, MitigationRow, MitigationTable, Way
from vestige.core.estimates import Estimate
from vestige.report.holes import Probe
from vestige.report.words import interval, number

WAY_WORDS: dict[Way, str] = {
    "gd": "one tuning on the target's own answers (gd)",
    "kl": "one tuning towards the target's distributions (kl)",
    "iterative": "unlearning anew with the holes in the retain set, round by round",
}
METRIC_WORDS = {"rougeL_recall": "ROUGE-L recall"}
"""Names of metrics that people say otherwise."""
MENDING_COLUMNS = (
    *("probe", "mending", "way", "arm", "at", "kept", "set", "metric", "value", "low", "high"),
    *("n", "n_asked"),
)
"""The columns of tables/mitigation.csv, a row a model, set and metric."""


@dataclass(frozen=True)
class MendedCell:
    """A number in the table, with its interval and a note; empty where it was not measured."""

    value: str
    range: str
    note: str


@dataclass(frozen=True)
class MendedRow:
    """A model of the table."""

    name: str
    kept: bool
    cells: tuple[MendedCell, ...]


@dataclass(frozen=True)
class Mended:
    """One mending: how, its columns and rows, and in sentences what was asked for and not had."""

    how: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[MendedRow, ...]
    notes: tuple[str, ...]


def mended_blocks(probe: Probe) -> list[Mended]:
    """The mendings of a search, laid out."""
    return [_block(table) for _, table in probe.mendings]


def mending_rows(probe: Probe) -> list[dict[str, Any]]:
    """Every number of the mendings, in full."""
    return [
        {
            "probe": probe.name,
            "mending": name,
            "way": table.way,
            "arm": row.arm,
            "at": row.at,
            "kept": row.kept,
            **found,
        }
        for name, table in probe.mendings
        for row in table.rows
        for found in _numbers(row)
    ]


def _block(table: MitigationTable) -> Mended:
    metrics = list(dict.fromkeys(metric for row in table.rows for metric in row.forget))
    sets = [name for name in SETS if any(name in row.sets for row in table.rows)]
    heads = [("forget set", METRIC_WORDS.get(metric, metric)) for metric in metrics]
    heads += [(name, f"{table.sizes[name]:,} prompts" if name in table.sizes else "") for name in sets]
    unit = "round" if table.way == "iterative" else "step"
    rows = [
        MendedRow(
            f"{row.arm}, {unit} {row.at:,}",
            row.kept,
            (*(_cell(row.forget.get(metric)) for metric in metrics), *(_set_cell(row, name) for name in sets)),
        )
        for row in table.rows
    ]
    return Mended(WAY_WORDS[table.way], tuple(heads), tuple(rows), table.notes)


def _cell(estimate: Estimate | None, note: str = "") -> MendedCell:
    if estimate is None:
        return MendedCell("–", "", "")
    return MendedCell(number(estimate.value), interval(estimate), note)


def _set_cell(row: MitigationRow, name: str) -> MendedCell:
    found = row.sets.get(name)
    if found is None:
        return _cell(None)
    judged = f", {found.n_judged:,} of {found.n:,} judged" if found.n_judged < found.n else ""
    return _cell(found.quality, f"{number(found.lowest.value)} at 1{judged}")


def _numbers(row: MitigationRow) -> list[dict[str, Any]]:
    found = [(FORGET, metric, estimate, estimate.n) for metric, estimate in row.forget.items()]
    for name, score in row.sets.items():
        found += [(name, "quality", score.quality, score.n), (name, "lowest", score.lowest, score.n)]
    return [
        {"set": name, "metric": metric, "value": e.value, "low": e.low, "high": e.high, "n": e.n, "n_asked": n}
        for name, metric, e, n in found
    ]
