"""Builds the report of a run from what its evaluations left: tables, figures, and the page last.

Of a search for knowledge holes it writes the table in the form of the paper's Table 1, every hole, and the hole map as
SVG for print. Numbers are in full; text from models and data sets has what acts unseen spelt out (`visible`). Map
coordinates are those of `artifacts.holes.HoleMap`, in units of embeddings of length 1, the same across and up.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from vestige.artifacts.holes import HoleRow, Placebo
from vestige.artifacts.layout import ProbeFolder, RunFolder
from vestige.artifacts.own_files import is_own
from vestige.artifacts.records import write_csv
from vestige.core.estimates import Estimate
from vestige.core.files import machine_errors, replacing, write_text
from vestige.core.ids import slug
from vestige.report.contents import read_contents
from vestige.report.figures import saved, short_name, write_audit_figures, write_figures
from vestige.report.holes import STANDING_WORDS, Probe, is_probe, read_probe, standing
from vestige.report.holes_sections import COLOURS, MENDING_COLUMNS, mending_rows
from vestige.report.page import render, render_holes
from vestige.report.palette import LIGHT, METHODS_LIGHT
from vestige.report.tables import write_tables
from vestige.report.words import visible

LOCK_SECONDS = 60.0
"""How long to wait for another report of the same run."""


def build_report(run: Path, *, verify: bool = False) -> Path:
    """Write tables/, figures/ and report.html of the run, or of the search for holes, in `run`; say where the page is.

    The same run gives the same bytes. What an earlier report left in the two folders goes; files of other names stay.
    A run that is partly finished gives a report that says what is missing; one without any subject is
    refused. So are evaluations whose model is there with other files than they were made of; with `verify` all files
    are read, without only those whose size, time or inode is another. One report is written at a time.
    """
    alone = replacing(RunFolder(run).report) if run.is_dir() else nullcontext()
    with alone:
        if is_probe(ProbeFolder(run)):
            return _build_holes(ProbeFolder(run))
        return _build_run(RunFolder(run), verify=verify)


def _build_run(folder: RunFolder, *, verify: bool) -> Path:
    contents = read_contents(folder, verify=verify)
    with _renewed(folder.tables) as tables:
        write_tables(tables, folder, contents)
        if contents.probes:
            write_hole_tables(tables, contents.probes)
    with _renewed(folder.figures) as figures:
        write_figures(figures, contents)
        write_audit_figures(figures, contents)
        write_hole_maps(figures, contents.probes)
    write_text(folder.report, render(contents))
    return folder.report


def _build_holes(folder: ProbeFolder) -> Path:
    probe = read_probe(folder)
    with _renewed(folder.tables) as tables:
        write_hole_tables(tables, [probe])
    with _renewed(folder.figures) as figures:
        write_hole_maps(figures, [probe])
    write_text(folder.report, render_holes(probe))
    return folder.report


@contextmanager
def _renewed(folder: Path) -> Iterator[Path]:
    """Fill a folder beside `folder`, and put its files in the place of those that an earlier report left there."""
    partial = folder.with_name(f".{folder.name}.partial")
    with machine_errors(folder):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            folder.mkdir(exist_ok=True)
            new = {file.name for file in partial.iterdir()}
            for name in sorted(new):
                os.replace(partial / name, folder / name)
            for old in sorted(folder.iterdir()):
                if old.is_file() and old.name not in new and is_own(Path(folder.name, old.name)):
                    old.unlink()
        finally:
            shutil.rmtree(partial, ignore_errors=True)


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
    write_csv(folder / "holes.csv", HOLE_COLUMNS, [_readable(row) for probe in probes for row in _hole_rows(probe)])
    write_csv(
        folder / "hole_sources.csv", SOURCE_COLUMNS, [_readable(row) for probe in probes for row in _source_rows(probe)]
    )
    if any(probe.mendings for probe in probes):
        rows = [_readable(row) for probe in probes for row in mending_rows(probe)]
        write_csv(folder / "mitigation.csv", MENDING_COLUMNS, rows)


def _hole_rows(probe: Probe) -> list[dict[str, Any]]:
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


def _source_rows(probe: Probe) -> list[dict[str, Any]]:
    return [_source_row(probe, row, placebo) for row in probe.table.rows for placebo in row.placebos or (None,)]


def _source_row(probe: Probe, row: HoleRow, placebo: Placebo | None) -> dict[str, Any]:
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


SIGNS = ("o", "D", "s")
"""The signs of groups: of the first eight, of the next, and of the rest."""


def write_hole_maps(folder: Path, probes: Sequence[Probe]) -> None:
    """Write hole-map.svg, or with several searches one for each, into `folder`; a search without a map has none."""
    for probe in probes:
        if probe.map is not None and probe.map.points:
            name = "hole-map.svg" if len(probes) == 1 else f"hole-map-{slug(probe.name)}.svg"
            _draw_hole_map(folder / name, probe)


def _draw_hole_map(path: Path, probe: Probe) -> None:
    assert probe.map is not None, "asked for with a map only"
    with saved(path, (7.6, 4.6)) as figure:
        axis = figure.subplots()
        plain = [p for p in probe.map.points if not p.hole]
        axis.scatter(
            [p.x for p in plain],
            [p.y for p in plain],
            s=14,
            facecolors="none",
            edgecolors=LIGHT["muted"],
            linewidths=0.7,
            label=f"no hole ({len(plain):,})",
        )
        for number, group in enumerate(probe.table.groups):
            own = [p for p in probe.map.points if p.hole and p.group == group.name]
            axis.scatter(
                [p.x for p in own],
                [p.y for p in own],
                s=22,
                marker=SIGNS[min(number // COLOURS, len(SIGNS) - 1)],
                color=METHODS_LIGHT[number % COLOURS],
                edgecolors="white",
                linewidths=0.4,
                label=f"{short_name(group.name)} ({group.n:,})",
            )
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_title(
            f"Prompts tested by likeness of meaning; {100 * probe.map.shown:.0f} % of the variance is shown",
            fontsize=8,
            loc="left",
        )
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=7)
