"""The figures of a run's audits as SVG for print: leakage by format, levels along the attacks, gains in their parts.

The curves and gains are those in the first format that has them; the page shows the others. Whiskers are 95 %
intervals, the band lies between the seeds of the models that never knew.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vestige.artifacts.audits import AuditOutcome, CurveLine, FormatLine, GainLine, MatrixCell
from vestige.core.estimates import Estimate
from vestige.core.ids import slug
from vestige.report.audit_grid import Colours
from vestige.report.audit_panels import along, drawn, why_no_evidence
from vestige.report.contents import Contents
from vestige.report.evidence import forget_label
from vestige.report.figures import saved, short_name
from vestige.report.palette import HOTTEST, LIGHT, METHODS_LIGHT
from vestige.report.words import interval, number

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
    share = HOTTEST * min(1.0, abs(leakage))
    hot = LIGHT["hot" if leakage >= 0 else "cold"]
    paper, full = (tuple(int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)) for c in (LIGHT["paper"], hot))
    return tuple(a + (b - a) * share for a, b in zip(paper, full, strict=True))


def _colour(colours: Colours, subject: str) -> str:
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
        colour, last = _colour(colours, line.subject), line.points[-1]
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
        label.set_color(_colour(colours, subject))
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
