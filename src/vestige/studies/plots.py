"""Plots for print."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionStyle, FancyArrowPatch, Patch

from vestige.core.files import write_bytes
from vestige.data.graph import Graph
from vestige.report.audit_panels import colours_of
from vestige.report.graph import DrawnEdge, draw
from vestige.report.words import visible
from vestige.studies.results import Ends

LIGHT = colours_of("light")
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "vestige",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    # A dollar sign in a name is a dollar sign.
    "text.parse_math": False,
    "axes.edgecolor": LIGHT["muted"],
    "axes.labelcolor": LIGHT["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "path.simplify": False,
}


@contextmanager
def saved(path: Path, inches: tuple[float, float]) -> Iterator[Figure]:
    """A figure of this size to draw on, written to `path` afterwards."""
    with matplotlib.rc_context():
        # From matplotlib's own defaults, so that a reader's matplotlibrc does not change the bytes.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=inches, layout="constrained")
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
        write_bytes(path, content.getvalue())


class Panel(NamedTuple):
    """One of a figure's: points by the name of their line, what stands above and below, and names of places on x.

    Where places are named, what lies between two of them means nothing, so points are not joined.
    """

    lines: Mapping[str, Sequence[tuple[Ends, Ends]]]
    title: str
    x: str = ""
    places: Sequence[str] = ()


def draw_panels(
    path: Path, inches: tuple[float, float], panels: Sequence[Panel], y: str = "", *, same_y: bool = True
) -> None:
    """Points with their whiskers both ways, a line for each name; shares lie between 0 and 1, scores of a judge not."""
    with saved(path, inches) as figure:
        axes = figure.subplots(1, len(panels), sharey=same_y, squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            for number, (label, points) in enumerate(panel.lines.items()):
                sides = np.array(points, dtype=float).reshape(-1, 2, 3).transpose(1, 2, 0)
                # A bootstrap's interval may lie beside its value; a whisker cannot have a negative length.
                across, up = (np.maximum([value - low, high - value], 0.0) for value, low, high in sides)
                axis.errorbar(
                    sides[0][0], sides[1][0], up, across, color=LIGHT[f"method-{number % 8}"], marker="o",
                    markersize=3.5, linewidth=0 if panel.places else 1.2, elinewidth=0.7, label=short_name(label),
                )  # fmt: skip
            tops = [value[0] for points in panel.lines.values() for _, value in points]
            # A judge's scores go from 1 to 10; both have room for a marker at their ends.
            axis.set_ylim((-0.02, 1.02) if max(tops, default=0.0) <= 1 else (0.8, 10.2))
            axis.set_title(panel.title, fontsize=8, loc="left")
            axis.set_xlabel(panel.x)
            axis.legend(frameon=False, fontsize=7)
            if panel.places:
                axis.set_xticks(range(len(panel.places)), [short_name(name, 14) for name in panel.places], fontsize=7)
        axes[0].set_ylabel(y)


def short_name(label: str, most: int = 40) -> str:
    """A name fit to stand in a figure: nothing in it acts, and it is not too long."""
    text = visible(label)
    return text if len(text) <= most else text[: most - 1] + "…"


def draw_graph(graph: Graph, path: Path) -> None:
    """The graph as the report lays it out, a contract a line coloured by its type (PISTOL's Figures 3 and 4)."""
    drawing = draw(
        [DrawnEdge(id_, e.type, e.first, e.second, graph.connectivity[id_], None) for id_, e in graph.edges.items()],
        centre=(),
    )
    colours = {type_: LIGHT[f"method-{n % 8}"] for n, type_ in enumerate(graph.types)}
    # At most the width of a printed double page, however large the graph is.
    inches = max(2.0, min(14.0, 0.6 * drawing.width)), max(1.5, min(14.0, 0.6 * drawing.height)) + 0.3
    with saved(path, inches) as figure:
        axis = figure.add_subplot()
        axis.set_axis_off()
        axis.set_aspect("equal")
        axis.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
        for edge, bend in zip(drawing.edges, drawing.bends, strict=True):
            ends = drawing.positions[edge.first], drawing.positions[edge.second]
            style = ConnectionStyle.Arc3(rad=0.35 * bend)
            axis.add_patch(
                FancyArrowPatch(*ends, connectionstyle=style, arrowstyle="-", color=colours[edge.type], linewidth=1.2)
            )
        for node, position in drawing.positions.items():
            box = {"boxstyle": "circle,pad=0.25", "facecolor": LIGHT["panel"], "edgecolor": LIGHT["muted"]}
            axis.text(*position, short_name(node), ha="center", va="center", bbox=box)
        figure.legend(
            handles=[Patch(color=colour, label=short_name(type_)) for type_, colour in colours.items()],
            loc="outside lower center",
            ncols=4,
            frameon=False,
            title=f"{drawing.left_out:,} more contracts are not drawn" if drawing.left_out else None,
        )
