"""The audit's panels below the first screen, as plain HTML shows them: tables of cells, their words and their colours.

Nothing is computed here: the outcome's content is selected, ordered and put into words for the template.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, TypeVar
from urllib.parse import quote

from vestige.artifacts.audits import (
    AuditOutcome,
    BudgetLine,
    FormatLine,
    GainLine,
    GroupLine,
    KeptLine,
    MatrixCell,
    MeasureLine,
    MembershipLine,
    PromptLine,
    SoundnessLine,
)
from vestige.core.estimates import Estimate
from vestige.report.words import (
    attack_name,
    format_name,
    interval,
    listed,
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
    notes: tuple[str, ...] = ()
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
    """A table: the first column's title, the other columns, the rows."""

    corner: str
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
        return "role-retrained" if subject in never else "role-target"


def with_interval(e: Estimate) -> str:
    """A value of any size with its interval and n, as in `0.42 [0.36, 0.48], n = 120`."""
    return f"{any_size(e)} {any_range(e)}, n = {e.n:,}"


def any_size(e: Estimate) -> str:
    """A value as it is best read: shares with two decimals, bits with as many as they need."""
    return f"{plain_number(e.value)} bits" if e.unit == "bits" else number(e.value)


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
    return f"heat-{step}" if share >= 0 or not step else f"below-{step}"


def heat_rules() -> str:
    """The style rules of all these classes."""
    return "".join(
        f".{name}-{step} {{ background: color-mix(in srgb, var(--{colour}) {5 * step * HOTTEST:g}%, var(--paper)); }}\n"
        for (name, colour), step in product((("heat", "hot"), ("below", "cold")), range(21))
    )


NEEDS: Mapping[str, str] = {
    "code_length": "(a) code length of the answers",
    "wrong_answers": "(b) wrong answers",
    "rate_distortion": "(c) rate-distortion",
    "gain": "the gain seen",
}
"""The ways to count an attack's need, in display order."""


PROMPT_SHOWN = 60
"""The number of characters of a prompt before it is folded."""


def panels(outcome: AuditOutcome, colours: Colours) -> dict[str, Any]:
    """The panels of one audit for the template. Missing parts are None or empty."""
    attacks = dict.fromkeys(p.attack for p in outcome.prompts)
    return {
        "prompts": [(a, [_prompt(p, colours) for p in outcome.prompts if p.attack == a]) for a in attacks],
        "budget": _budget(outcome, colours),
        "membership": _listing(
            outcome.membership,
            colours,
            {
                "score": lambda m: _note(m.score.replace("_", " ")),
                "AUC": lambda m: _amount(m.auc),
                "beyond the controls": lambda m: _amount(m.difference),
                "found at 1 % false alarms": lambda m: _amount(m.found),
                "PrivLeak, %": lambda m: _number(m.privleak),
            },
        ),
        "kept": _listing(
            outcome.kept,
            colours,
            {
                "set": lambda k: _note(k.split),
                "asked as": lambda k: _note(format_name(k.format)),
                "lost": lambda k: replace(_amount(k.harm), css=f"heat {heat(k.harm.value)}"),
            },
        ),
        "measures": _listing(
            outcome.measures,
            colours,
            {
                "measure": lambda m: _note(m.measure.replace("_", " ")),
                "value": lambda m: _number(m.value),
                "what it is": lambda m: _note(m.said),
            },
        ),
        "soundness": list(map(_sound, outcome.soundness)),
        "able": _able(outcome),
        "matrix": _matrix(outcome, colours),
        "n_groups": len({g.group for g in outcome.groups}),
        "not_admitted": [(format_name(f.format), f.reason.rstrip(".")) for f in outcome.formats if not f.admitted],
        "agreement": [
            f"Order reversed: {method_name(x.first)} leaks more than {method_name(x.second)} in "
            f"{format_name(x.more_in)} and less in {format_name(x.less_in)} (p = {plain_number(x.p)})."
            for x in outcome.reversals
        ],
    }


def attack_names(outcome: AuditOutcome) -> list[str]:
    """Every attack that left something, judged or not."""
    curves, gains, budget = ((x.attack for x in lines) for lines in (outcome.curves, outcome.gains, outcome.budget))
    return list(dict.fromkeys((*curves, *gains, *budget)))


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


def _prompt(p: PromptLine, colours: Colours) -> dict[str, Any]:
    """Return a prompt: its text, in full if it is long, its position, and the results of its replies."""
    # A searched prompt can fill the page.
    long = len(p.text) > PROMPT_SHOWN
    return {
        "label": p.subject,
        "css": colours.css(p.subject),
        "text": f"{p.text[: PROMPT_SHOWN - 1]}…" if long else p.text,
        "whole": p.text if long else "",
        "place": f"{p.placement} of {p.n_tokens} token{'s' if p.n_tokens != 1 else ''}",
        "replies": [
            "all" if p.claimed else "not all",
            *(f"{n} of {p.wanted}" for n in (p.verified, p.anyway, p.brought)),
        ],
    }


Line = TypeVar("Line", BudgetLine, MembershipLine, KeptLine, MeasureLine)


def _listing(lines: Sequence[Line], colours: Colours, columns: Mapping[str, Callable[[Line], GridCell]]) -> Grid | None:
    """A row a line of the outcome with its model, and a column a function that reads a line. None without lines."""
    rows = [
        GridRow(line.subject, colours.css(line.subject), tuple(cell(line) for cell in columns.values()))
        for line in lines
    ]
    return Grid("model", tuple(map(Head, columns)), tuple(rows)) if rows else None


def _amount(e: Estimate | None) -> GridCell:
    return GridCell(any_size(e), any_range(e)) if e else EMPTY


def _number(x: float | None, css: str = "") -> GridCell:
    return EMPTY if x is None else GridCell(plain_number(x), css=css)


def _note(*notes: str) -> GridCell:
    return GridCell(notes=notes)


def _budget(outcome: AuditOutcome, colours: Colours) -> Grid | None:
    """Return each attack's capacity, the need by each count, and the reason that it does not count."""
    needs = list(dict.fromkeys(chain.from_iterable(b.need_bits for b in outcome.budget)))
    # A way that is not known here stands first, under its own name.
    needs.sort(key=lambda name: list(NEEDS).index(name) if name in NEEDS else -1)

    def attack(b: BudgetLine) -> GridCell:
        mark = why_no_evidence(outcome, b.attack)
        return _note(attack_name(b.attack), f"by {b.bound}", f"never evidence: {mark}" if mark else "")

    def remark(b: BudgetLine) -> GridCell:
        full = [g.format for g in outcome.gains if (g.subject, g.attack) == (b.subject, b.attack) and g.saturated]
        return _note(f"saturated in {listed(full)}" if full else "")

    def need(name: str) -> Callable[[BudgetLine], GridCell]:
        return lambda b: _number(b.need_bits.get(name), "gain" if name == "gain" else "")

    return _listing(
        outcome.budget,
        colours,
        {
            "attack": attack,
            "could carry": lambda b: _number(b.capacity_bits),
            **{NEEDS.get(name, name.replace("_", " ")): need(name) for name in needs},
            "ratio": lambda b: _number(b.ratio, "enough" if b.ratio is not None and b.ratio >= 1 else ""),
            "remark": remark,
        },
    )


def _sound(line: SoundnessLine) -> dict[str, Any]:
    """Return a check of the data set: holds, fails or inconclusive, the description, the numbers, the reason."""
    words = {True: ("holds", "sound"), False: ("fails", "leaks"), None: ("inconclusive", "not decided")}
    outcome, word = words[line.sound]
    numbers = [with_interval(line.effect)] if line.effect else []
    numbers += [f"p = {plain_number(line.p)}"] if line.p is not None else []
    return {
        "outcome": outcome,
        "word": word,
        "check": line.check,
        "numbers": ", ".join(numbers),
        "reason": line.reason,
    }


_MOST_GROUPS = 20
"""The number of displayed contracts or persons, the worst first. outcome.json has all."""


def _able(outcome: AuditOutcome) -> Grid | None:
    """Return each attack's recovery of the positive control's hidden knowledge."""
    rows = []
    for line in outcome.able:
        able = GridCell("yes") if line.able else GridCell("no", css="none")
        form, why = _note(format_name(line.format)), _note(line.why_not)
        cells = (able, _amount(line.brought), form, _amount(line.suppressed), why)
        rows.append(GridRow(attack_name(line.attack), "", cells))
    heads = ("able", "brought back of what was held back", "in", "held back", "why not")
    return Grid("attack", tuple(map(Head, heads)), tuple(rows)) if rows else None


def _matrix(outcome: AuditOutcome, colours: Colours) -> dict[str, Any] | None:
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
    stages: list[dict[str, Any]] = []
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
    rows += [("with all formats at once", with_interval(c.band))] if c.band else []
    rows += [("", "less than a control")] if c.over_forgotten else []
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
    whole = per_cent(max(e.value, -1.0)).split("\N{NARROW NO-BREAK SPACE}")[0]
    return GridCell(f"<{whole}" if e.value < -1 else whole, css=f"heat {heat(e.value)}", tell=tell, key=key)


def groups_grid(outcome: AuditOutcome, colours: Colours, parties: Mapping[str, str]) -> Grid | None:
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
    return Grid("", tuple(Head(method_name(s), css=colours.css(s)) for s in subjects), rows)


def _group(g: GroupLine | None) -> GridCell:
    if g is None:
        return EMPTY
    colour = "" if g.size.unit == "bits" else f"heat {heat(g.size.value)}"
    rows = [(g.by, with_interval(g.size)), ("p, corrected", plain_number(g.p))]
    notes = (format_name(g.by), "above the margin" if g.exceeds else "")
    size = any_size(g.size) if g.size.unit == "bits" else per_cent(g.size.value)
    return GridCell(size, "", notes, colour, tooltip(f"{method_name(g.subject)}, {g.group}", rows))
