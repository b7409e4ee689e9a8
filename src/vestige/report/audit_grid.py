"""Tables of the audit as grids of words: what a cell says at once, what it tells when it is pointed at."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vestige.artifacts.audits import AuditOutcome
from vestige.core.estimates import Estimate
from vestige.report.palette import HOTTEST
from vestige.report.verdict_words import audited
from vestige.report.words import interval, number, plain_number, visible


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
