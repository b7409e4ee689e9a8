"""The figures of a run as SVG for print: levels, trade-off and graph of each forget set.

The same run gives the same bytes: ids are salted with a constant, and no date is written. Scores are mean
ROUGE-1 recall in [0, 1], whiskers are 95 % intervals.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.path import Path as Path2D

from vestige.core.files import write_bytes
from vestige.core.ids import slug
from vestige.report.contents import Contents, edge_loss
from vestige.report.evidence import PANELS, Cell, Subject, forget_label, greedy_rouge
from vestige.report.findings import Finding
from vestige.report.graph import Drawing, Edge
from vestige.report.palette import LIGHT, METHODS_LIGHT
from vestige.report.visible import visible

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

_NAME_CHARACTERS = 40
_NAMED_NODES = 80
_DASHES: tuple[Any, ...] = ("solid", (0, (4, 2)), (0, (1, 2)), (0, (5, 2, 1, 2)))


def write_figures(folder: Path, contents: Contents) -> None:
    """Write every figure of every forget set into `folder`; a forget set without the leading score has none."""
    for finding in contents.findings:
        subjects = [
            s
            for role in ("target", "retrained", "unlearned")
            for s in contents.evidence.of(role, finding.forget)
            if greedy_rouge("forget") in s.results[finding.forget]
        ]
        if not subjects:
            continue
        name = slug(finding.forget)
        with saved(folder / f"levels-{name}.svg", (9.0, 1.1 + 0.24 * len(subjects))) as figure:
            _levels(figure, contents, finding, subjects)
        with saved(folder / f"tradeoff-{name}.svg", (5.2, 4.4)) as figure:
            _tradeoff(figure, contents, finding, subjects)
        unlearned = [s for s in subjects if s.spec.subject == "unlearned"]
        if contents.drawing and unlearned:
            rows = -(-len(unlearned) // 2)
            with saved(folder / f"graph-{name}.svg", (9.0, 0.4 + 2.4 * rows), layout=None) as figure:
                _graphs(figure, contents, contents.drawing, finding, unlearned)


@contextmanager
def saved(
    path: Path, inches: tuple[float, float], layout: Literal["constrained"] | None = "constrained"
) -> Iterator[Figure]:
    """A figure of this size to draw on, written to `path` afterwards."""
    with matplotlib.rc_context():
        # From matplotlib's own defaults, so that a reader's matplotlibrc does not change the bytes.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = Figure(figsize=inches, layout=layout)
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format="svg", metadata={"Date": None})
        write_bytes(path, content.getvalue())


def _colour(contents: Contents, subject: Subject) -> str:
    number = contents.colours.get(subject.label)
    if number is None:
        return LIGHT["never"] if subject.spec.subject == "retrained" else LIGHT["ink"]
    return METHODS_LIGHT[number % len(METHODS_LIGHT)]


def short_name(label: str) -> str:
    """A name fit to stand in a figure: nothing in it acts, and it is not too long."""
    shown = visible(label)
    return shown if len(shown) <= _NAME_CHARACTERS else shown[: _NAME_CHARACTERS - 1] + "…"


def _levels(figure: Figure, contents: Contents, finding: Finding, subjects: Sequence[Subject]) -> None:
    panels = [(title, c) for _, title, c in PANELS if any(c in s.results[finding.forget] for s in subjects)]
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, cell) in zip(axes, panels, strict=True):
        _dots(axis, contents, finding, subjects, cell)
        counts = sorted({s.results[finding.forget][cell].n for s in subjects if cell in s.results[finding.forget]})
        axis.set_title(f"{title}\nn = {', '.join(map(str, counts))}", fontsize=8, loc="left")
    axes[0].set_yticks(range(len(subjects)), [short_name(s.label) for s in subjects])
    axes[0].invert_yaxis()
    figure.supxlabel("ROUGE-1 recall, mean and 95 % interval", fontsize=8)
    figure.suptitle(short_name(forget_label(finding.forget)), fontsize=10, x=0.01, ha="left")


def _dots(axis: Axes, contents: Contents, finding: Finding, subjects: Sequence[Subject], cell: Cell) -> None:
    for row, subject in enumerate(subjects):
        estimate = subject.results[finding.forget].get(cell)
        if estimate:
            colour = _colour(contents, subject)
            axis.plot([estimate.low, estimate.high], [row, row], color=colour, linewidth=1.2)
            axis.plot([estimate.value], [row], "o", color=colour, markersize=4)
    axis.set_xlim(-0.03, 1.03)
    axis.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axis.grid(axis="x", color=LIGHT["rule"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(length=0)


def _tradeoff(figure: Figure, contents: Contents, finding: Finding, subjects: Sequence[Subject]) -> None:
    axis = figure.subplots()
    forget, retain = greedy_rouge("forget", finding.scope), greedy_rouge("retain")
    results = [(s, s.results[finding.forget]) for s in subjects]
    points = [(s, own[forget], own[retain]) for s, own in results if forget in own and retain in own]
    floor = min([0.75, *(math.floor(4 * kept.low) / 4 for _, _, kept in points)])
    if finding.never:
        axis.axvspan(finding.never.low, finding.never.high, color=LIGHT["never"], alpha=0.08, linewidth=0)
    taken = [(x.value, y.value, 0.02) for _, x, y in points]
    for subject, x, y in points:
        colour = _colour(contents, subject)
        axis.plot([x.low, x.high], [y.value, y.value], color=colour, linewidth=1)
        axis.plot([x.value, x.value], [y.low, y.high], color=colour, linewidth=1)
        axis.plot([x.value], [y.value], "o", color=colour, markersize=5)
        _label(axis, short_name(subject.label), colour, (x.value, y.value), 1.0 - floor, taken)
    axis.set_xlim(-0.05, 1.18)
    axis.set_ylim(floor - 0.05 * (1 - floor), 1 + 0.1 * (1 - floor))
    axis.set_xlabel(f"forget set ({finding.scope} answers): ROUGE-1 recall")
    axis.set_ylabel("retain set: ROUGE-1 recall")
    axis.grid(color=LIGHT["rule"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_title(short_name(forget_label(finding.forget)), fontsize=10, loc="left")


def _label(
    axis: Axes,
    label: str,
    colour: str,
    at: tuple[float, float],
    span: float,
    taken: list[tuple[float, float, float]],
) -> None:
    """A label above its dot, or at the next height, up or down in turn, where it covers no dot and no label.

    `taken` holds left edge, height and width of what stands already; `span` is the height of the axis.
    """
    width, line = 0.022 * len(label), 0.042 * span
    left, height = at[0] + 0.012, at[1] + line
    for step in range(1, 40):
        height = at[1] + line * ((step + 1) // 2) * (1 if step % 2 else -1)
        if all(abs(height - h) >= 0.8 * line or left >= x + w or x >= left + width for x, h, w in taken):
            break
    taken.append((left, height, width))
    axis.text(left, height, label, color=colour, fontsize=8, va="center")


def _graphs(
    figure: Figure, contents: Contents, drawing: Drawing, finding: Finding, subjects: Sequence[Subject]
) -> None:
    rows = -(-len(subjects) // 2)
    axes = figure.subplots(rows, 2, squeeze=False).flatten()
    # A fixed layout: fitting it to what is drawn measures every edge several times.
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=1 - 0.5 / figure.get_figheight(), hspace=0.12)
    forgotten = next(f.edges for f in contents.forget_sets if f.forget == finding.forget) or frozenset()
    for axis, subject in zip(axes, subjects, strict=False):
        losses = [edge_loss(contents, finding.forget, subject, e.id) for e in drawing.edges]
        _graph(axis, drawing, losses, forgotten)
        axis.set_title(short_name(subject.label), fontsize=8, loc="left")
    for axis in axes:
        axis.set_axis_off()
    title = f"{short_name(forget_label(finding.forget))}: what was lost per edge (grey: nothing, red: all)"
    figure.suptitle(f"{title}; forget edges outlined", fontsize=9, x=0.01, y=0.995, ha="left", va="top")


def _graph(axis: Axes, drawing: Drawing, losses: Sequence[float | None], forgotten: frozenset[str]) -> None:
    types = sorted({e.type for e in drawing.edges})
    paths = [_path(drawing, edge, bend) for edge, bend in zip(drawing.edges, drawing.bends, strict=True)]
    widths = [0.8 if loss is None else 1.4 + 1.2 * _share(loss) for loss in losses]
    outlined = [i for i, e in enumerate(drawing.edges) if e.id in forgotten]
    for colour, more in ((LIGHT["ink"], 2.6), ("white", 1.4)):
        own = [widths[i] + more for i in outlined]
        axis.add_collection(_lines([paths[i] for i in outlined], [colour] * len(own), own, "solid"))
    for number, kind in enumerate(types):
        held = [i for i, e in enumerate(drawing.edges) if e.type == kind]
        colours = [_loss_colour(losses[i]) for i in held]
        dashes = _DASHES[number % len(_DASHES)]
        axis.add_collection(_lines([paths[i] for i in held], colours, [widths[i] for i in held], dashes))
    named = len(drawing.positions) <= _NAMED_NODES
    across, down = zip(*drawing.positions.values(), strict=True)
    axis.scatter(
        across,
        down,
        s=121 if named else 16,
        color="white",
        edgecolors=LIGHT["muted"],
        linewidths=0.8,
        zorder=3,
    )
    if named:
        for node, (x, y) in drawing.positions.items():
            axis.text(x, y, short_name(node), fontsize=5.5, ha="center", va="center", zorder=4)
    axis.set_xlim(0, drawing.width)
    axis.set_ylim(drawing.height, 0)
    axis.set_aspect("equal")


def _lines(paths: Sequence[Path2D], colours: Sequence[Any], widths: Sequence[float], dashes: Any) -> PathCollection:
    return PathCollection(paths, facecolors="none", edgecolors=colours, linewidths=widths, linestyles=[dashes])


def _path(drawing: Drawing, edge: Edge, bend: float) -> Path2D:
    """The edge's arc: quadratic, its middle moved aside by `bend` times a third of its length."""
    (ax, ay), (bx, by) = drawing.positions[edge.first], drawing.positions[edge.second]
    middle = ((ax + bx) / 2 - (by - ay) * bend * 0.35, (ay + by) / 2 + (bx - ax) * bend * 0.35)
    return Path2D([(ax, ay), middle, (bx, by)], [Path2D.MOVETO, Path2D.CURVE3, Path2D.CURVE3])


def _share(loss: float) -> float:
    return min(max(loss, 0.0), 1.0)


def _loss_colour(loss: float | None) -> Any:
    if loss is None:
        return LIGHT["rule"]
    a, b = (tuple(int(LIGHT[name][i : i + 2], 16) / 255 for i in (1, 3, 5)) for name in ("kept", "lost"))
    return tuple(x + (y - x) * _share(loss) for x, y in zip(a, b, strict=True))
