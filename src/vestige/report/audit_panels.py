"""The audit's smaller panels: information budget, membership, what was kept, other measures, soundness."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from vestige.artifacts.audits import (
    AuditOutcome,
    BudgetLine,
    CurveLine,
    CurvePoint,
    GainLine,
    KeptLine,
    MeasureLine,
    MembershipLine,
    PromptLine,
    SoundnessLine,
)
from vestige.artifacts.records import SHUFFLED
from vestige.core.estimates import Estimate
from vestige.report.words import (
    audited,
    format_name,
    interval,
    listed,
    method_name,
    number,
    plain_number,
    signed,
    visible,
)

LIGHT: Mapping[str, str] = {
    "paper": "#fbfaf7",
    "panel": "#ffffff",
    "ink": "#1c1c1a",
    "muted": "#646159",
    "rule": "#e2ded4",
    "faint": "#f3f0e9",
    "differ": "#e4dfd3",
    "kept": "#cbc7bc",
    "lost": "#c2361a",
    "never": "#0d6a68",
    "hot": "#c2361a",
    "cold": "#0d6a68",
    "good": "#23774f",
    "warn": "#8a5a00",
    "bad": "#b3321a",
}
DARK: Mapping[str, str] = {
    "paper": "#14161a",
    "panel": "#1a1d22",
    "ink": "#eceae5",
    "muted": "#a8a49b",
    "rule": "#30343a",
    "faint": "#20242a",
    "differ": "#2c3138",
    "kept": "#4b5058",
    "lost": "#ff7a52",
    "never": "#5fc9bf",
    "hot": "#d9603c",
    "cold": "#2f8a83",
    "good": "#6fc79a",
    "warn": "#e0b45c",
    "bad": "#ff8b6b",
}
HOTTEST = 0.64
"""How much of `hot` or `cold` the fullest cell of a heat map has; the rest is paper, so that ink can be read on it."""

METHODS_LIGHT = ("#2b62a8", "#b8431f", "#23774f", "#7a4aa3", "#8a5f00", "#b0306e", "#7d5a3c", "#56606d")
METHODS_DARK = ("#7fb2f0", "#f2916b", "#6fc79a", "#c3a0ea", "#d9b25a", "#f08fbc", "#cba581", "#aab3bf")


def custom_properties() -> str:
    """The colours as CSS: light, and dark where the reader prefers it."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{_rule(DARK, METHODS_DARK)}}}\n"
    return _rule(LIGHT, METHODS_LIGHT) + dark


def _rule(colours: Mapping[str, str], methods: tuple[str, ...]) -> str:
    named = {**colours, **{f"method-{i}": colour for i, colour in enumerate(methods)}}
    return ":root {\n" + "".join(f"  --{name}: {colour};\n" for name, colour in named.items()) + "}\n"


@dataclass(frozen=True)
class Head:
    """A column: its title, what stands small below it, a class, and what it tells when pointed at."""

    title: str
    note: str = ""
    css: str = ""
    tell: str = ""


@dataclass(frozen=True)
class GridCell:
    """A cell: a value in bold, its interval, further small lines, a class, and what it tells when pointed at.

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
    """A table: what the first column is called, the others, the rows."""

    corner: str
    heads: tuple[Head, ...]
    rows: tuple[GridRow, ...]


EMPTY = GridCell("–", css="none")


@dataclass(frozen=True)
class Colours:
    """The colour of each subject of an audit: that of the method of the same name in the rest of the report."""

    outcome: AuditOutcome
    known: Mapping[str, int]

    def place(self, subject: str) -> int | None:
        """A number for an unlearned subject, None for a control."""
        methods = audited(self.outcome)
        if subject not in methods or subject in self.outcome.references:
            return None
        return self.known.get(subject, len(self.known) + methods.index(subject)) % 8

    def css(self, subject: str) -> str:
        """The class that colours what is about a subject."""
        place = self.place(subject)
        if place is not None:
            return f"method-{place}"
        never = (*self.outcome.retrained, *self.outcome.references)
        return "role-retrained" if subject in never else "role-target"


def said(e: Estimate) -> str:
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


def told(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A tooltip as JSON for an attribute; its text is made fit to be looked at here."""
    return json.dumps([visible(title), [[visible(k), visible(v)] for k, v in rows if v]], ensure_ascii=False)


def heat(share: float) -> str:
    """The class of a colour between 0 and 1 in twentieths, or on the other side of 0."""
    step = round(20 * min(1.0, abs(share)))
    return f"heat-{step}" if share >= 0 or not step else f"below-{step}"


def heat_rules() -> str:
    """The style rules of all these classes."""
    return "".join(
        f".{name}-{step} {{ background: color-mix(in srgb, var(--{colour}) {5 * step * HOTTEST:g}%, var(--paper)); }}\n"
        for name, colour in (("heat", "hot"), ("below", "cold"))
        for step in range(21)
    )


NEEDS: Mapping[str, str] = {
    "code_length": "(a) code length of the answers",
    "wrong_answers": "(b) wrong answers",
    "corrections": "(c) corrections",
    "rate_distortion": "(d) rate-distortion",
    "gain": "the gain seen",
}
"""The ways of counting what an attack's result needs, in the order in which they are shown."""


PROMPT_SHOWN = 60
"""Characters of a prompt that are shown at once."""


def panels(outcome: AuditOutcome, colours: Colours) -> dict[str, Any]:
    """The panels of one audit for the template; what it does not have is None or empty."""
    needs = list(dict.fromkeys(name for b in outcome.budget for name in b.need_bits))
    needs.sort(key=lambda name: list(NEEDS).index(name) if name in NEEDS else -1)
    return {
        "prompts": _prompts(outcome, colours),
        "budget_heads": [NEEDS.get(name, name.replace("_", " ")) for name in needs],
        "budget": _budget(outcome, colours, needs),
        "membership": _by_subject(outcome.membership, colours, lambda m: (m.score.replace("_", " "), "AUC"), _auc),
        "kept": _by_subject(outcome.kept, colours, lambda k: (k.split, format_name(k.format)), _lost),
        "measures": _measures(outcome),
        "soundness": list(map(_sound, outcome.soundness)),
    }


def attack_names(outcome: AuditOutcome) -> list[str]:
    """Every attack that left something, judged or not."""
    curves, gains, budget = ((x.attack for x in lines) for lines in (outcome.curves, outcome.gains, outcome.budget))
    return list(dict.fromkeys((*curves, *gains, *budget)))


def why_no_evidence(outcome: AuditOutcome, attack: str) -> str:
    """Why nothing that an attack brought counts; empty where some of it does, or nothing is known of it."""
    lines = [g for g in outcome.gains if g.attack == attack]
    if not lines or any(g.evidence and not g.saturated for g in lines):
        return ""
    return "; ".join(dict.fromkeys("saturated in every format" if _full(g) else g.why_not for g in lines))


def _prompts(outcome: AuditOutcome, colours: Colours) -> list[tuple[str, list[dict[str, Any]]]]:
    """By attack the prompts that it found, a model each."""
    attacks = dict.fromkeys(p.attack for p in outcome.prompts)
    return [(a, [_found(p, colours) for p in outcome.prompts if p.attack == a]) for a in attacks]


def _found(p: PromptLine, colours: Colours) -> dict[str, Any]:
    """A prompt: its text at once and, where it is long, in full, where it stands, what became of the replies."""
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


def shuffled(curve: CurveLine) -> CurvePoint | None:
    """The level with all tokens of the prompt in another order; None of other attacks."""
    return next((p for p in curve.points if p.point == SHUFFLED), None)


def drawn(curve: CurveLine) -> tuple[CurvePoint, ...]:
    """The points that a line is drawn through: not the shuffled prompt, which is no share of it (see curves.csv)."""
    return tuple(p for p in curve.points if p.point != SHUFFLED)


def along(outcome: AuditOutcome, attack: str) -> str:
    """What the points of an attack's curves are, where their names do not say it."""
    searched = any(p.bits is not None for c in outcome.curves if c.attack == attack for p in c.points)
    return "shares of the searched prompt, from its first token" if searched else ""


def _full(g: GainLine) -> bool:
    """Saturated, and out of count for nothing else: a ceiling stays a ceiling."""
    return g.saturated and (not g.why_not or g.why_not.startswith("saturated"))


def _budget(outcome: AuditOutcome, colours: Colours, needs: list[str]) -> list[dict[str, Any]]:
    """By attack its name, its least bound, why it counts for nothing, a row for each subject."""
    attacks: dict[str, list[BudgetLine]] = {}
    for b in outcome.budget:
        attacks.setdefault(b.attack, []).append(b)
    return [
        {
            "name": name,
            "bound": listed(list(dict.fromkeys(b.bound for b in own))),
            "mark": why_no_evidence(outcome, name),
            "rows": [GridRow(b.subject, colours.css(b.subject), _spent(outcome, b, needs)) for b in own],
        }
        for name, own in attacks.items()
    ]


def _spent(outcome: AuditOutcome, b: BudgetLine, needs: list[str]) -> tuple[GridCell, ...]:
    bounds = [(name, f"{plain_number(bits)} bits") for name, bits in b.bounds_bits.items()]
    inputs = [(name.replace("_", " "), plain_number(x)) for name, x in b.inputs.items()]
    full = [g.format for g in outcome.gains if (g.subject, g.attack) == (b.subject, b.attack) and g.saturated]
    return (
        GridCell(plain_number(b.capacity_bits), tell=told(f"{b.attack}: could carry at most", bounds)),
        *(
            GridCell(
                plain_number(b.need_bits[name]),
                css="gain" if name == "gain" else "",
                tell="" if name == "gain" else told(f"{b.subject}: counted from", inputs),
            )
            if name in b.need_bits
            else EMPTY
            for name in needs
        ),
        GridCell("no gain", css="none")
        if b.ratio is None
        else GridCell(plain_number(b.ratio), css="enough" if b.ratio >= 1 else ""),
        GridCell(notes=(f"saturated in {listed(full)}",)) if full else GridCell(),
    )


Line = TypeVar("Line", MembershipLine, KeptLine)


def _by_subject(
    lines: Sequence[Line],
    colours: Colours,
    key: Callable[[Line], tuple[str, str]],
    cell: Callable[[Line], GridCell],
) -> Grid | None:
    """A row a subject and a column a `key`, which is the column's head and the note below it; None without lines."""
    columns = list(dict.fromkeys(map(key, lines)))
    found = {(line.subject, key(line)): cell(line) for line in lines}
    rows = tuple(
        GridRow(subject, colours.css(subject), tuple(found.get((subject, column), EMPTY) for column in columns))
        for subject in dict.fromkeys(line.subject for line in lines)
    )
    return Grid("model", tuple(Head(*column) for column in columns), rows) if rows else None


def _auc(m: MembershipLine) -> GridCell:
    """AUC of a score, with what it is beyond that of models that never knew."""
    notes = []
    if m.difference:
        notes.append(f"{signed(m.difference.value)} {interval(m.difference)} beyond the controls")
    if m.privleak is not None:
        notes.append(f"PrivLeak {number(m.privleak)} %")
    if m.found is not None:
        notes.append(f"at 1 % false positives {number(m.found.value)} {interval(m.found)} found")
    title = f"{method_name(m.subject)}, {m.score.replace('_', ' ')}"
    return GridCell(number(m.auc.value), interval(m.auc), tuple(notes), tell=told(title, [("AUC", said(m.auc))]))


def _lost(k: KeptLine) -> GridCell:
    """What a subject lost of a split, in a format that was asked."""
    title = f"{method_name(k.subject)}: lost of {k.split}, {format_name(k.format)}"
    return GridCell(
        number(k.harm.value),
        interval(k.harm),
        css=f"heat {heat(k.harm.value)}",
        tell=told(title, [("lost", said(k.harm))]),
    )


def _measures(outcome: AuditOutcome) -> Grid | None:
    """The field's own numbers, a row each, a column for each subject."""
    if not outcome.measures:
        return None
    subjects = list(dict.fromkeys(m.subject for m in outcome.measures))
    found = {(m.measure, m.subject): m for m in outcome.measures}
    rows = []
    for name in dict.fromkeys(m.measure for m in outcome.measures):
        (common, times), *_ = Counter(m.said for m in outcome.measures if m.measure == name).most_common(1)
        shared = common if times > 1 or len(subjects) == 1 else ""
        cells = tuple(_measure(found.get((name, s)), shared) for s in subjects)
        rows.append(GridRow(name.replace("_", " "), "", (*cells, GridCell(notes=(shared,)))))
    return Grid("measure", (*(Head(method_name(s)) for s in subjects), Head("what it is")), tuple(rows))


def _measure(m: MeasureLine | None, shared: str) -> GridCell:
    """The number; what is said of it and not of the others of its row is told when it is pointed at."""
    if m is None:
        return EMPTY
    tell = "" if m.said == shared else told(f"{m.subject}, {m.measure}", [(plain_number(m.value), m.said)])
    return GridCell(plain_number(m.value), css="other" if tell else "", tell=tell)


def _sound(line: SoundnessLine) -> dict[str, Any]:
    """A check of the data set: holds, fails or inconclusive, in a word, what was checked, the numbers, the reason."""
    outcome, word = {True: ("holds", "sound"), False: ("fails", "leaks"), None: ("inconclusive", "not decided")}[
        line.sound
    ]
    numbers = [said(line.effect)] if line.effect else []
    numbers += [f"p = {plain_number(line.p)}"] if line.p is not None else []
    shown = {"outcome": outcome, "word": word, "check": line.check, "numbers": ", ".join(numbers)}
    return shown | {"reason": line.reason}
