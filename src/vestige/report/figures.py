"""The figures of a run as SVG for print: levels, trade-off and graph of each forget set, and its audits.

The same run gives the same bytes: ids are salted with a constant, and no date is written. Scores are mean
ROUGE-1 recall in [0, 1], whiskers are 95 % intervals.

Audits have three figures: leakage by format, levels along the attacks, gains in their parts. The curves and gains are
those in the first format that has them; the page shows the others. Whiskers are 95 % intervals, the band lies between
the seeds of the models that never knew.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.path import Path as Path2D

from vestige.artifacts.audits import AuditOutcome, CurveLine, FormatLine, GainLine, MatrixCell
from vestige.core.estimates import Estimate
from vestige.core.files import write_bytes
from vestige.core.ids import slug
from vestige.report.audit_panels import HOTTEST, LIGHT, METHODS_LIGHT, Colours, along, drawn, why_no_evidence
from vestige.report.contents import Contents, edge_loss
from vestige.report.evidence import PANELS, Cell, ForgetSet, Subject, forget_label, greedy_rouge
from vestige.report.graph import Drawing, Edge
from vestige.report.words import interval, number, visible

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
MOST_DRAWN = 40
"""Models that a figure with a row or a panel for each has room for."""
_DASHES: tuple[Any, ...] = ("solid", (0, (4, 2)), (0, (1, 2)), (0, (5, 2, 1, 2)))


def write_figures(folder: Path, contents: Contents) -> None:
    """Write every figure of every forget set into `folder`; a forget set without the leading score has none."""
    for finding in contents.forget_sets:
        subjects = [
            s
            for role in ("target", "retrained", "unlearned")
            for s in contents.evidence.of(role, finding.forget)
            if greedy_rouge("forget") in s.results[finding.forget]
        ]
        if not subjects:
            continue
        name, drawn_first = slug(finding.forget), subjects[:MOST_DRAWN]
        with saved(folder / f"levels-{name}.svg", (9.0, 1.1 + 0.24 * len(drawn_first))) as figure:
            _levels(figure, contents, finding, drawn_first, _of_all(drawn_first, subjects))
        with saved(folder / f"tradeoff-{name}.svg", (5.2, 4.4)) as figure:
            _tradeoff(figure, contents, finding, subjects)
        every = [s for s in subjects if s.spec.subject == "unlearned"]
        unlearned = every[:MOST_DRAWN]
        if contents.drawing and unlearned:
            rows = -(-len(unlearned) // 2)
            with saved(folder / f"graph-{name}.svg", (9.0, 0.4 + 2.4 * rows), layout=None) as figure:
                _graphs(figure, contents, contents.drawing, finding, unlearned, _of_all(unlearned, every))


def _of_all(drawn_first: Sequence[Subject], every: Sequence[Subject]) -> str:
    """What a title says of models that are not drawn."""
    left_out = len(every) - len(drawn_first)
    return f"; {left_out:,} more models are in tables/results.csv" if left_out else ""


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


def _levels(figure: Figure, contents: Contents, finding: ForgetSet, subjects: Sequence[Subject], more: str) -> None:
    panels = [(title, c) for _, title, c in PANELS if any(c in s.results[finding.forget] for s in subjects)]
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, cell) in zip(axes, panels, strict=True):
        _dots(axis, contents, finding, subjects, cell)
        counts = sorted({s.results[finding.forget][cell].n for s in subjects if cell in s.results[finding.forget]})
        axis.set_title(f"{title}\nn = {', '.join(map(str, counts))}", fontsize=8, loc="left")
    axes[0].set_yticks(range(len(subjects)), [short_name(s.label) for s in subjects])
    axes[0].invert_yaxis()
    figure.supxlabel("ROUGE-1 recall, mean and 95 % interval", fontsize=8)
    figure.suptitle(short_name(forget_label(finding.forget)) + more, fontsize=10, x=0.01, ha="left")


def _dots(axis: Axes, contents: Contents, finding: ForgetSet, subjects: Sequence[Subject], cell: Cell) -> None:
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


def _tradeoff(figure: Figure, contents: Contents, finding: ForgetSet, subjects: Sequence[Subject]) -> None:
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
    figure: Figure,
    contents: Contents,
    drawing: Drawing,
    finding: ForgetSet,
    subjects: Sequence[Subject],
    more: str,
) -> None:
    rows = -(-len(subjects) // 2)
    axes = figure.subplots(rows, 2, squeeze=False).flatten()
    # A fixed layout: fitting it to what is drawn measures every edge several times.
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=1 - 0.5 / figure.get_figheight(), hspace=0.12)
    forgotten = finding.edges or frozenset()
    for axis, subject in zip(axes, subjects, strict=False):
        losses = [edge_loss(contents, finding.forget, subject, e.id) for e in drawing.edges]
        _graph(axis, drawing, losses, forgotten)
        axis.set_title(short_name(subject.label), fontsize=8, loc="left")
    for axis in axes:
        axis.set_axis_off()
    title = f"{short_name(forget_label(finding.forget))}: what was lost per edge (grey: nothing, red: all)"
    figure.suptitle(f"{title}; forget edges outlined{more}", fontsize=9, x=0.01, y=0.995, ha="left", va="top")


def _graph(axis: Axes, drawing: Drawing, losses: Sequence[float | None], forgotten: frozenset[str]) -> None:
    types = sorted({e.type for e in drawing.edges})
    paths = [_path(drawing, edge, bend) for edge, bend in zip(drawing.edges, drawing.bends, strict=True)]
    widths = [0.8 if loss is None else 1.4 + 1.2 * _share(loss) for loss in losses]
    outlined = [i for i, e in enumerate(drawing.edges) if e.id in forgotten]
    for colour, more in ((LIGHT["ink"], 2.6), ("white", 1.4)):
        own = [widths[i] + more for i in outlined]
        axis.add_collection(_lines([paths[i] for i in outlined], [colour] * len(own), own, "solid"))
    for n, kind in enumerate(types):
        held = [i for i, e in enumerate(drawing.edges) if e.type == kind]
        shares = [losses[i] for i in held]
        colours = [LIGHT["rule"] if x is None else _between("kept", "lost", _share(x)) for x in shares]
        dashes = _DASHES[n % len(_DASHES)]
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


def _between(first: str, second: str, share: float) -> tuple[float, ...]:
    """A colour on the way from one of the palette to another, 0..1 a channel."""
    ends = (tuple(int(LIGHT[name][i : i + 2], 16) / 255 for i in (1, 3, 5)) for name in (first, second))
    return tuple(a + (b - a) * share for a, b in zip(*ends, strict=True))


MOST_NAMED = 6
"""Points of a curve whose names fit under it."""
_PARTS = (("injection", "never"), ("repair", "warn"), ("recovery", "lost"))


def write_audit_figures(folder: Path, contents: Contents) -> None:
    """Write the figures of every audit of the run into `folder`; a run without one has none."""
    for outcome in contents.audits:
        name, colours = slug(outcome.forget), Colours(outcome, contents.colours)
        subjects = list(dict.fromkeys(c.subject for c in outcome.matrix if c.subject != outcome.target))
        if subjects and outcome.formats:
            inches = (1.9 + 1.05 * (len(outcome.formats) + 1), 1.1 + 0.44 * len(subjects))
            with saved(folder / f"leakage-{name}.svg", inches) as figure:
                _heat_map(figure, outcome, subjects)
        attacks = list(dict.fromkeys(c.attack for c in outcome.curves))
        if attacks:
            rows = -(-len(attacks) // 3)
            with saved(folder / f"recovery-{name}.svg", (9.0, 0.6 + 2.1 * rows)) as figure:
                _curves(figure, outcome, colours, attacks, rows)
        if outcome.gains:
            shown = [g for g in outcome.gains if (g.format, g.unit) == (outcome.gains[0].format, outcome.gains[0].unit)]
            groups = len({g.attack for g in shown})
            with saved(folder / f"gains-{name}.svg", (7.5, 1.0 + 0.2 * (len(shown) + 1.6 * groups))) as figure:
                _gains(figure, outcome, colours, shown)


def _title(figure: Figure, outcome: AuditOutcome, words: str) -> None:
    label = short_name(forget_label(outcome.forget))
    figure.suptitle(f"{label}: {words}", fontsize=9, x=0.01, ha="left")


def _heat_map(figure: Figure, outcome: AuditOutcome, subjects: Sequence[str]) -> None:
    axis = figure.subplots()
    cells = {(c.subject, c.format): c for c in outcome.matrix}
    worst = {w.subject: w.leakage for w in outcome.worst}
    for row, subject in enumerate(subjects):
        for column, f in enumerate(outcome.formats):
            _heat_cell(axis, (column, row), cells.get((subject, f.format)), f)
        if subject in worst:
            _tile(axis, (len(outcome.formats) + 0.15, row), worst[subject], bold=True)
    names = [short_name(f.format) + ("" if f.admitted else "\nnot admitted") for f in outcome.formats]
    places = [*(i + 0.5 for i in range(len(names))), len(names) + 0.65]
    axis.set_xticks(places, [*names, "worst"], fontsize=7)
    axis.set_yticks([i + 0.5 for i in range(len(subjects))], [short_name(s) for s in subjects])
    axis.set_xlim(0, len(names) + 1.15)
    axis.set_ylim(len(subjects), 0)
    axis.xaxis.tick_top()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    _title(figure, outcome, "leakage (0: never knew, 1: target) with 95 % intervals")


def _heat_cell(axis: Axes, at: tuple[float, float], cell: MatrixCell | None, f: FormatLine) -> None:
    if cell is None:
        return
    if cell.leakage is None or not f.admitted:
        axis.add_patch(Rectangle(at, 0.97, 0.95, facecolor=LIGHT["faint"], hatch="////", edgecolor=LIGHT["rule"], lw=0))
        return
    _tile(axis, at, cell.leakage, note="over-forgotten" if cell.over_forgotten else "")


def _tile(axis: Axes, at: tuple[float, float], e: Estimate, *, note: str = "", bold: bool = False) -> None:
    x, y = at
    axis.add_patch(Rectangle(at, 0.97, 0.95, facecolor=_mixed(e.value), lw=0))
    weight = "bold" if bold else "normal"
    lines = [(0.3, number(e.value), 8.0), (0.58, interval(e), 5.5), *([(0.82, note, 5.5)] if note else [])]
    for dy, words, size in lines:
        axis.text(x + 0.485, y + dy, words, ha="center", va="center", fontsize=size, fontweight=weight)


def _mixed(leakage: float) -> tuple[float, ...]:
    """The colour of a cell: paper at 0, towards red above and towards that of never knew below."""
    return _between("paper", "hot" if leakage >= 0 else "cold", HOTTEST * min(1.0, abs(leakage)))


def _audit_colour(colours: Colours, subject: str) -> str:
    place = colours.place(subject)
    if place is None:
        return LIGHT["never" if colours.css(subject) == "role-retrained" else "ink"]
    return METHODS_LIGHT[place]


def _curves(figure: Figure, outcome: AuditOutcome, colours: Colours, attacks: Sequence[str], rows: int) -> None:
    first = outcome.curves[0]
    axes = figure.subplots(rows, 3, squeeze=False).flatten()
    for axis, attack in zip(axes, attacks, strict=False):
        own = [c for c in outcome.curves if (c.attack, c.format, c.unit) == (attack, first.format, first.unit)]
        _along(axis, [replace(c, points=drawn(c)) for c in own], colours)
        mark = "never evidence" if why_no_evidence(outcome, attack) else ""
        said = filter(None, (short_name(attack), along(outcome, attack), mark))
        axis.set_title("\n".join(said), fontsize=7.5, loc="left")
        if first.unit != "bits":
            axis.set_ylim(-0.03, 1.03)
    for axis in axes[len(attacks) :]:
        axis.set_axis_off()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=6, frameon=False, fontsize=7)
    _title(figure, outcome, f"levels along the attacks, {short_name(first.format)}")


def _along(axis: Axes, lines: Sequence[CurveLine], colours: Colours) -> None:
    points = list(dict.fromkeys(p.point for line in lines for p in line.points))
    place = {p: i for i, p in enumerate(points)}
    never = [
        [p.level.value for c in lines if c.role == "retrained" for p in c.points if p.point == at] for at in points
    ]
    spans = [(i, min(v), max(v)) for i, v in enumerate(never) if v]
    if spans:
        low, high = [s[1] for s in spans], [s[2] for s in spans]
        axis.fill_between([s[0] for s in spans], low, high, color=LIGHT["never"], alpha=0.22, lw=0, label="never knew")
    for line in lines:
        if line.role == "retrained":
            continue
        colour, last = _audit_colour(colours, line.subject), line.points[-1]
        style = {"linestyle": (0, (4, 3)), "linewidth": 0.9} if line.role == "target" else {"linewidth": 1.3}
        across, up = [place[p.point] for p in line.points], [p.level.value for p in line.points]
        axis.plot(across, up, color=colour, label=short_name(line.subject), **style)
        if line.role != "target":
            axis.plot([place[last.point]] * 2, [last.level.low, last.level.high], color=colour, linewidth=0.8)
            axis.plot([place[last.point]], [last.level.value], "o", color=colour, markersize=3)
    # Where points stand too close for their names, every so many are named, the last in any case.
    told = [i for i in range(len(points)) if (len(points) - 1 - i) % math.ceil(len(points) / MOST_NAMED) == 0]
    axis.set_xticks(told, [short_name(points[i]) for i in told])
    axis.grid(axis="y", color=LIGHT["rule"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(length=0)


def _gains(figure: Figure, outcome: AuditOutcome, colours: Colours, shown: Sequence[GainLine]) -> None:
    axis = figure.subplots()
    height, heights, ordered = 0.0, [], []
    for attack in dict.fromkeys(g.attack for g in shown):
        mark = " (never evidence)" if why_no_evidence(outcome, attack) else ""
        axis.text(0, height + 0.3, f" {short_name(attack)}{mark}", fontsize=7.5, fontweight="bold", va="center")
        height += 1.1
        for g in (g for g in shown if g.attack == attack):
            _stack(axis, g, height)
            heights.append(height)
            ordered.append(g.subject)
            height += 1
        height += 0.5
    axis.set_yticks(heights, [short_name(subject) for subject in ordered])
    for label, subject in zip(axis.get_yticklabels(), ordered, strict=True):
        label.set_color(_audit_colour(colours, subject))
    axis.set_ylim(height, -0.4)
    axis.axvline(0, color=LIGHT["muted"], linewidth=0.8)
    axis.grid(axis="x", color=LIGHT["rule"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(length=0)
    handles = [Rectangle((0, 0), 1, 1, color=LIGHT[colour]) for _, colour in _PARTS]
    figure.legend(handles, [part for part, _ in _PARTS], loc="outside lower left", ncols=3, frameon=False, fontsize=7)
    _title(figure, outcome, f"final gain in its parts, {short_name(shown[0].format)}, in {shown[0].unit}")


def _stack(axis: Axes, g: GainLine, height: float) -> None:
    """Parts above 0 to the right, below 0 to the left; the whole gain is a line across, with its interval."""
    below = above = 0.0
    for (_, colour), part in zip(_PARTS, (g.injection, g.repair, g.recovery), strict=True):
        start = below if part.value < 0 else above
        axis.barh(height, part.value, left=start, height=0.62, color=LIGHT[colour], lw=0)
        if part.value < 0:
            below += part.value
        else:
            above += part.value
    axis.plot([g.gain.low, g.gain.high], [height, height], color=LIGHT["ink"], linewidth=0.8)
    axis.plot([g.gain.value] * 2, [height - 0.36, height + 0.36], color=LIGHT["ink"], linewidth=1.4)
