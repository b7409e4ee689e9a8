"""The hole map as SVG for print: prompts tested, and the holes among them by group.

Coordinates are those of `artifacts.holes.HoleMap`, in units of embeddings of length 1, the same across and up.
"""

from collections.abc import Sequence
from pathlib import Path

from vestige.core.ids import slug
from vestige.report.figures import saved, short_name
from vestige.report.holes import Probe
from vestige.report.holes_sections import COLOURS
from vestige.report.palette import LIGHT, METHODS_LIGHT

SIGNS = ("o", "D", "s")
"""The signs of groups: of the first eight, of the next, and of the rest."""


def write_hole_maps(folder: Path, probes: Sequence[Probe]) -> None:
    """Write hole-map.svg, or with several searches one for each, into `folder`; a search without a map has none."""
    for probe in probes:
        if probe.map is not None and probe.map.points:
            name = "hole-map.svg" if len(probes) == 1 else f"hole-map-{slug(probe.name)}.svg"
            _write(folder / name, probe)


def _write(path: Path, probe: Probe) -> None:
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
