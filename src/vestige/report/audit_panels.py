"""The audit's panels below the first screen, as plain HTML shows them: tables of cells, their words and their colours.

Nothing is computed here: the outcome's content is selected, ordered and put into words for the template.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import Any
from urllib.parse import quote

from vestige.artifacts.audits import AuditOutcome, FormatLine, GainLine, GroupLine, MatrixCell
from vestige.artifacts.verdicts import possible
from vestige.core.estimates import Estimate
from vestige.core.text import Fields, TextMapping, TextTuple
from vestige.report.words import (
    attack_name,
    format_name,
    interval,
    method_name,
    number,
    per_cent,
    plain_number,
    visible,
)

HOTTEST = 0.64
"""How much of `hot` or `cold` the fullest cell of a heat map has. The rest is paper, so that ink can be read on it."""


@dataclass(frozen=True)
class Head:
    """A column: its title, a class, and its tooltip."""

    title: str
    css: str = ""
    tell: str = ""


@dataclass(frozen=True)
class GridCell:
    """A cell: a value in bold, its interval, further small lines, a class, and its tooltip.

    `key` names it in the table of all numbers, to which it is a link then.
    """

    value: str = ""
    range: str = ""
    notes: TextTuple = ()
    css: str = ""
    tell: str = ""
    key: str = ""


@dataclass(frozen=True)
class GridRow:
    """A row: the name before it, with the class of its colour, and its cells."""

    label: str
    css: str
    cells: tuple[GridCell, ...]


@dataclass(frozen=True)
class Grid:
    """A table: the columns after the first one, and the rows."""

    heads: tuple[Head, ...]
    rows: tuple[GridRow, ...]


EMPTY = GridCell("–", css="none")


@dataclass(frozen=True)
class Colours:
    """The colour of each subject of an audit: the colour of the method with the same name in the rest of the report."""

    outcome: AuditOutcome
    palette: Mapping[str, int]

    def css(self, subject: str) -> str:
        """Return a subject's colour class."""
        methods = self.outcome.audited
        if subject in methods and subject not in self.outcome.references:
            # A name that only this audit knows takes a colour behind those of the run.
            # The style sheet has eight colours of methods; the ninth begins again.
            return f"method-{self.palette.get(subject, len(self.palette) + methods.index(subject)) % 8}"
        never = (*self.outcome.retrained, *self.outcome.references)
        if subject in never:
            return "role-retrained"
        return "role-target"


def with_interval(e: Estimate) -> str:
    """A value of any size with its interval and n, as in `0.42 [0.36, 0.48], n = 120`."""
    return f"{any_size(e)} {any_range(e)}, n = {e.n:,}"


def any_size(e: Estimate) -> str:
    """A value as it is best read: shares with two decimals, bits with as many as they need."""
    if e.unit == "bits":
        return f"{plain_number(e.value)} bits"
    return number(e.value)


def any_range(e: Estimate) -> str:
    """The interval in the same way."""
    if e.unit != "bits" or math.isinf(e.low) or math.isinf(e.high):
        return interval(e)
    return f"[{plain_number(e.low)},\N{NO-BREAK SPACE}{plain_number(e.high)}]"


def tooltip(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A tooltip as JSON for an attribute. Its text is made fit to be looked at here."""
    return json.dumps([visible(title), [[visible(k), visible(v)] for k, v in rows if v]], ensure_ascii=False)


def heat(share: float) -> str:
    """The class of a colour between 0 and 1 in twentieths, or on the other side of 0."""
    # As a class, since the page's policy admits no style attributes.
    step = round(20 * min(1.0, abs(share)))
    if share >= 0 or not step:
        return f"heat-{step}"
    return f"below-{step}"


def heat_rules() -> str:
    """The style rules of all these classes."""
    return "".join(
        f".{name}-{step} {{ background: color-mix(in srgb, var(--{colour}) {5 * step * HOTTEST:g}%, var(--paper)); }}\n"
        for (name, colour), step in product((("heat", "hot"), ("below", "cold")), range(21))
    )


NEEDS: TextMapping = {
    "code_length": "(a) code length of the answers",
    "wrong_answers": "(b) wrong answers",
    "rate_distortion": "(c) rate-distortion",
    "gain": "the gain seen",
}
"""The ways to count an attack's need, in display order."""


def panels(outcome: AuditOutcome, colours: Colours) -> Fields:
    """The panels of one audit for the template, which reads most of them from the outcome."""
    needs = dict.fromkeys(chain.from_iterable(b.need_bits for b in outcome.budget))
    # A way that is not known here comes first, under its own name.
    order = sorted(needs, key=lambda name: list(NEEDS).index(name) if name in NEEDS else -1)
    return {
        "outcome": outcome,
        "css": colours.css,
        "no_evidence": partial(why_no_evidence, outcome),
        "needs": [(name, NEEDS.get(name, name.replace("_", " "))) for name in order],
        "matrix": _matrix(outcome, colours),
        "n_groups": len({g.group for g in outcome.groups}),
    }


def attack_names(outcome: AuditOutcome) -> list[str]:
    """Every attack that left something, judged or not."""
    curves, gains, budget = ((x.attack for x in lines) for lines in (outcome.curves, outcome.gains, outcome.budget))
    return list(dict.fromkeys((*curves, *gains, *budget)))


def groups_of(lines: Iterable[Any], name: str) -> list[list[Any]]:
    """Lines in groups that have the same attribute, in the order of the first of each."""
    groups: dict[Any, list[Any]] = {}
    for line in lines:
        groups.setdefault(getattr(line, name), []).append(line)
    return list(groups.values())


def why_no_evidence(outcome: AuditOutcome, attack: str) -> str:
    """Why nothing that an attack brought counts. Empty if some gain counts, or none is known."""
    lines = [g for g in outcome.gains if g.attack == attack]
    if not lines or any(g.evidence and not g.saturated for g in lines):
        return ""
    whys = []
    for g in lines:
        # What shows the answers themselves saturates too, and is called a ceiling all the same.
        full = g.saturated and (not g.why_not or g.why_not.startswith("saturated"))
        whys.append("saturated in every format" if full else g.why_not)
    return "; ".join(dict.fromkeys(whys))


_MOST_GROUPS = 20
"""The number of displayed contracts or persons, the worst first. outcome.json has all."""


def _matrix(outcome: AuditOutcome, colours: Colours) -> Fields | None:
    """Leakage by model, stage and format: the models unchanged, or after one attack.

    For an attack, it is the remainder beyond the attack's own injection. Its `mark` gives the reason it is no evidence.
    """
    # In others the target does no better than a control, so that a share of nothing would be shown.
    forms = {f.format: f for f in outcome.formats if f.admitted}
    if not forms:
        return None
    cells = {(c.subject, "", c.format): _leak(outcome, c) for c in outcome.matrix if c.leakage}
    # Bits are no shares, and would have no colour.
    cells |= {(g.subject, g.attack, g.format): _after(outcome, g) for g in outcome.gains if g.unit != "bits"}
    stages: list[Fields] = []
    columns: list[tuple[str, str, str]] = []
    for attack in ("", *dict.fromkeys(g.attack for g in outcome.gains)):
        columns_of = [name for name in forms if any((a, f) == (attack, name) for _, a, f in cells)]
        if columns_of:
            mark = why_no_evidence(outcome, attack)
            heads = [_form_head(forms[name], "first" if name == columns_of[0] else "") for name in columns_of]
            stages.append({"name": attack_name(attack), "mark": mark, "heads": heads})
            ceiling = "ceiling" if mark else ""
            columns += [(attack, name, f"{head.css} {ceiling}") for name, head in zip(columns_of, heads, strict=True)]
    subjects = [s for s in dict.fromkeys(s for s, _, _ in cells) if s != outcome.target]
    rows = []
    for s in subjects:
        row = [(cells.get((s, attack, name), EMPTY), css) for attack, name, css in columns]
        rows.append(GridRow(s, colours.css(s), tuple(replace(c, css=f"{c.css} {css}".strip()) for c, css in row)))
    return {"stages": stages, "rows": rows}


def _form_head(f: FormatLine, css: str) -> Head:
    controls = [
        ("metric", f.metric),
        ("target", with_interval(f.target)),
        ("controls", with_interval(f.retrained) if f.retrained else "none"),
        ("target less controls" if f.retrained else "target less chance", with_interval(f.admission)),
    ]
    return Head(format_name(f.format), css=css, tell=tooltip(f.format, controls))


def _leak(outcome: AuditOutcome, c: MatrixCell) -> GridCell:
    assert c.leakage is not None, "asked of admitted formats only"
    rows = [(c.leakage.metric.replace("_", " "), with_interval(c.leakage)), ("level", with_interval(c.level))]
    if c.band:
        rows.append(("with all formats at once", with_interval(c.band)))
    if c.over_forgotten:
        rows.append(("", "less than a control"))
    return _heat_cell(c.leakage, tooltip(f"{method_name(c.subject)}, {format_name(c.format)}", rows), outcome, c, "")


def _after(outcome: AuditOutcome, g: GainLine) -> GridCell:
    parts = (("left after it", g.after), ("before it", g.before), ("brought back", g.recovery), ("taught", g.injection))
    rows = [(name, with_interval(e)) for name, e in parts] + ([("no evidence", g.why_not)] if g.why_not else [])
    title = f"{method_name(g.subject)}, {attack_name(g.attack)}, {format_name(g.format)}"
    return _heat_cell(g.after, tooltip(title, rows), outcome, g, g.attack)


def _heat_cell(e: Estimate, tell: str, outcome: AuditOutcome, c: MatrixCell | GainLine, attack: str) -> GridCell:
    # As the page's script names the rows of its table; half of a surrogate has no bytes to be quoted.
    key = quote("|".join((outcome.forget, c.subject, attack, c.format, "left")), safe="", errors="replace")
    # Far below a model that never knew the number says nothing more; it is told when the cell is pointed at.
    whole = per_cent(max(possible(e).value, -1.0)).split("\N{NARROW NO-BREAK SPACE}")[0]
    return GridCell(f"<{whole}" if e.value < -1 else whole, css=f"heat {heat(e.value)}", tell=tell, key=key)


def groups_grid(outcome: AuditOutcome, colours: Colours, parties: TextMapping) -> Grid | None:
    """Return contracts or persons by subjects: each with its strongest evidence, the worst group first."""
    if not outcome.groups:
        return None
    subjects = [s for s in outcome.audited if any(g.subject == s for g in outcome.groups)]
    cells = {(g.group, g.subject): g for g in outcome.groups}
    worst: dict[str, tuple[bool, float, float]] = {}
    for g in outcome.groups:
        # Bits are no shares: among those that say alike, the surer stands first.
        worst[g.group] = max(worst.get(g.group, (False, -1.0, 0.0)), (g.exceeds, -g.p, g.size.value))
    names = sorted(worst, key=lambda name: worst[name], reverse=True)[:_MOST_GROUPS]
    rows = tuple(
        GridRow(f"{parties[n]} ({n})" if n in parties else n, "", tuple(_group(cells.get((n, s))) for s in subjects))
        for n in names
    )
    return Grid(tuple(Head(method_name(s), css=colours.css(s)) for s in subjects), rows)


def _group(g: GroupLine | None) -> GridCell:
    if g is None:
        return EMPTY
    colour = "" if g.size.unit == "bits" else f"heat {heat(g.size.value)}"
    rows = [(g.by, with_interval(g.size)), ("p, corrected", plain_number(g.p))]
    notes = (format_name(g.by), "above the margin" if g.exceeds else "")
    size = any_size(g.size) if g.size.unit == "bits" else per_cent(possible(g.size).value)
    return GridCell(size, "", notes, colour, tooltip(f"{method_name(g.subject)}, {g.group}", rows))
