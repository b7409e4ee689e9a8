"""The audit as plain HTML shows it: verdicts with their reasons, the leakage matrix, how formats agree.

Nothing is computed here: what an outcome holds is chosen, ordered and put into words for the template.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from vestige.artifacts.audits import (
    CLAIMS,
    AuditOutcome,
    Claim,
    FactLine,
    FormatLine,
    GroupLine,
    MatrixCell,
    Outcome,
    VerdictLine,
)
from vestige.core.estimates import Estimate
from vestige.report.audit_grid import (
    EMPTY,
    Colours,
    Grid,
    GridCell,
    GridRow,
    Head,
    any_range,
    any_size,
    heat,
    said,
    told,
)
from vestige.report.audit_panels import Panels, panels
from vestige.report.evidence import forget_label
from vestige.report.first_screen import FirstScreen, anchor, first_screen
from vestige.report.verdict_words import audited
from vestige.report.words import interval, number, plain_number

_MARGINS: Mapping[str, str] = {
    "scope": "about facts",
    "delta": "fails above, leakage and shares",
    "delta_wide": "holds below, leakage and shares",
    "delta_bits": "fails above, bits an answer",
    "delta_wide_bits": "holds below, bits an answer",
    "admission": "a format is admitted above",
    "saturation": "an attack is saturated above",
    "seed_share": "prior spread of seeds, hits",
    "seed_share_graded": "prior spread of seeds, graded",
    "seed_weight": "weight of the prior",
}

_SCALE = (
    "0 is a model that never knew, 1 is the target; below 0, a model says less than one that never knew, and can be"
    " told by it. Only formats count in which the target knows what the others do not."
)
_SCALE_OF_ALTERNATIVES = (
    "Without a model that never knew, the true answer is ranked among alternatives: 0 is a rank by chance, as who never"
    " knew must give, 1 is the target; below 0, a model avoids the true answers. Other formats are shown and decide"
    " nothing."
)
_SCALE_OF_CHANCE = (
    "Without a model that never knew, 0 is what guessing gives and 1 is the target (leakage_vs_chance): what a model"
    " that never knew would say is not known. Only formats count in which the target does better than chance."
)
_SCALES = {"retrained": _SCALE, "alternatives": _SCALE_OF_ALTERNATIVES, "chance": _SCALE_OF_CHANCE}
_MOST_GROUPS = 20
"""Contracts or persons that are shown, the worst first; all of them are in outcome.json."""


@dataclass(frozen=True)
class Why:
    """What became of a claim for those methods that it is the same for: reason, numbers, what was left out."""

    who: tuple[tuple[str, str, str], ...]
    outcome: Outcome
    reason: str
    reach: str
    left_out: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    facts: tuple[FactLine, ...]


@dataclass(frozen=True)
class ClaimBlock:
    """A claim in words with what became of it for every method."""

    claim: Claim
    statement: str
    rows: tuple[Why, ...]


@dataclass(frozen=True)
class Agreement:
    """How formats agree: pairs of methods whose order reverses, Kendall's tau, whether one format foretells another."""

    reversals: tuple[tuple[str, str, str, str, str], ...]
    taus: Grid | None
    reliability: str


@dataclass(frozen=True)
class AuditBlock:
    """All that the page says of the audit of one forget set."""

    label: str
    screen: FirstScreen
    margins: tuple[tuple[str, str], ...]
    claims: tuple[ClaimBlock, ...]
    scale: str
    able: Grid | None
    matrix: Grid | None
    levels: Grid | None
    groups: Grid | None
    n_groups: int
    not_admitted: tuple[tuple[str, str], ...]
    agreement: Agreement
    panels: Panels


def audit_block(
    index: int, outcome: AuditOutcome, known: Mapping[str, int], parties: Mapping[str, str] = MappingProxyType({})
) -> AuditBlock:
    """The audit of one forget set for the template; `known` are the colours of the methods elsewhere.

    `parties` has the names of contracts by their ids, where the data tell them.
    """
    colours = Colours(outcome, known)
    return AuditBlock(
        label=forget_label(outcome.forget, parties),
        screen=first_screen(index, outcome, known, parties),
        margins=tuple(
            (_MARGINS.get(k, k.replace("_", " ")), v if isinstance(v, str) else f"{v:g}")
            for k, v in outcome.thresholds.items()
        ),
        claims=tuple(ClaimBlock(c, words, _reasons(index, outcome, colours, c)) for c, words in CLAIMS.items()),
        scale=_SCALES[outcome.against],
        able=_able(outcome),
        matrix=_matrix(outcome, colours),
        levels=_levels(outcome, colours),
        groups=_groups(outcome, colours),
        n_groups=len({g.group for g in outcome.groups}),
        not_admitted=tuple((f.format, f.reason.rstrip(".")) for f in outcome.formats if not f.admitted),
        agreement=_agreement(outcome),
        panels=panels(outcome, colours),
    )


def _reasons(index: int, outcome: AuditOutcome, colours: Colours, claim: Claim) -> tuple[Why, ...]:
    """What became of one claim, methods with the same outcome for the same reason in one."""
    found: dict[tuple[object, ...], list[VerdictLine]] = {}
    facts = {s: tuple(f for f in outcome.facts if (f.subject, f.claim) == (s, claim)) for s in audited(outcome)}
    for v in outcome.verdicts:
        if v.claim == claim:
            alike = (v.outcome, v.reason, v.left_out, facts[v.subject], *v.evidence.items())
            found.setdefault(alike, []).append(v)
    return tuple(
        Why(
            who=tuple((anchor(index, outcome, v), v.subject, colours.css(v.subject)) for v in same),
            outcome=same[0].outcome,
            reason=same[0].reason,
            reach=_reach(same[0]),
            left_out=same[0].left_out,
            numbers=tuple((name, said(e)) for name, e in same[0].evidence.items()),
            facts=facts[same[0].subject],
        )
        for same in found.values()
    )


def _reach(v: VerdictLine) -> str:
    unit = " bits" if v.unit == "bits" else ""
    parts = [f"Fails above {v.margin:g}{unit}, holds below {v.wide:g}{unit}"]
    if v.needed:
        parts.append(f"{v.needed} would decide it")
    elif v.items_needed is not None:
        parts.append(f"about {v.items_needed:,} questions would decide it")
    if v.detectable is not None:
        parts.append(f"a true {plain_number(v.detectable)}{unit} would have been seen in 80 % of audits")
    return "; ".join(parts) + "."


def _able(outcome: AuditOutcome) -> Grid | None:
    """What each attack brought back of what the positive control held back."""
    if not outcome.able:
        return None
    heads = (
        Head("able"),
        Head("brought back", "of what was held back"),
        Head("in"),
        Head("held back"),
        Head("why not"),
    )
    rows = [
        GridRow(
            line.attack,
            "",
            (
                GridCell("yes" if line.able else "no", css="" if line.able else "none"),
                GridCell(number(line.brought.value), interval(line.brought)) if line.brought else EMPTY,
                GridCell(notes=(line.format,)),
                GridCell(any_size(line.suppressed), any_range(line.suppressed)) if line.suppressed else EMPTY,
                GridCell(notes=(line.why_not,)),
            ),
        )
        for line in outcome.able
    ]
    return Grid("attack", heads, tuple(rows))


def _matrix(outcome: AuditOutcome, colours: Colours) -> Grid | None:
    """Leakage, subjects by formats, the worst case last; above it the levels that are its 0 and its 1."""
    if not outcome.formats:
        return None
    cells = {(c.subject, c.format): c for c in outcome.matrix}
    worst = {w.subject: w.leakage for w in outcome.worst}
    subjects = [s for s in dict.fromkeys(c.subject for c in outcome.matrix) if s != outcome.target]
    heads = [
        Head(f.format, f.metric, "" if f.admitted else "out", told(f.format, _controls_of(f))) for f in outcome.formats
    ]
    anchors = [GridRow("target", "role-target anchor", (*(_level(f.target) for f in outcome.formats), EMPTY))]
    if any(f.retrained for f in outcome.formats):
        own = tuple(_level(f.retrained) for f in outcome.formats)
        anchors.append(GridRow("never knew", "role-retrained anchor", (*own, EMPTY)))
    rows = [
        GridRow(
            s, colours.css(s), (*(_leak(cells.get((s, f.format)), f) for f in outcome.formats), _worst(worst.get(s)))
        )
        for s in subjects
    ]
    return Grid("", (*heads, Head("worst", "over formats", "worst")), (*anchors, *rows))


def _controls_of(f: FormatLine) -> list[tuple[str, str]]:
    return [
        ("metric", f.metric),
        ("target", said(f.target)),
        ("never knew", said(f.retrained) if f.retrained else "no such model"),
        ("target less never knew" if f.retrained else "target less chance", said(f.admission)),
        ("admitted" if f.admitted else "not admitted", f.reason),
    ]


def _level(e: Estimate | None) -> GridCell:
    return GridCell(number(e.value), interval(e), css="level") if e else EMPTY


def _leak(c: MatrixCell | None, f: FormatLine) -> GridCell:
    if c is None:
        return EMPTY
    rows = [("level", said(c.level))]
    if c.leakage is None or not f.admitted:
        rows.append(("not admitted", f.reason))
        return GridCell(number(c.level.value), "level", css="out", tell=told(f"{c.subject}, {f.format}", rows))
    rows.append((c.leakage.metric.replace("_", " "), said(c.leakage)))
    if c.band:
        rows.append(("with all formats at once", said(c.band)))
    return GridCell(
        number(c.leakage.value),
        interval(c.leakage),
        ("over-forgotten",) if c.over_forgotten else (),
        f"heat {heat(c.leakage.value)}",
        told(f"{c.subject}, {f.format}", rows),
    )


def _worst(e: Estimate | None) -> GridCell:
    if e is None:
        return EMPTY
    return GridCell(number(e.value), interval(e), css=f"heat {heat(e.value)} worst")


def _levels(outcome: AuditOutcome, colours: Colours) -> Grid | None:
    """Every cell of the matrix in full, a row a subject and format."""
    if not outcome.matrix:
        return None
    heads = ("format", "level", "leakage", "band over all formats")
    rows = [
        GridRow(
            c.subject,
            colours.css(c.subject),
            (
                GridCell(notes=(c.format,)),
                *(
                    GridCell(number(e.value), f"{interval(e)} n = {e.n:,}") if e else EMPTY
                    for e in (c.level, c.leakage, c.band)
                ),
            ),
        )
        for c in outcome.matrix
    ]
    return Grid("model", tuple(Head(h) for h in heads), tuple(rows))


def _groups(outcome: AuditOutcome, colours: Colours) -> Grid | None:
    """Contracts or persons by subjects: of each the quantity that says most against it, the worst group first."""
    if not outcome.groups:
        return None
    subjects = [s for s in audited(outcome) if any(g.subject == s for g in outcome.groups)]
    cells = {(g.group, g.subject): g for g in outcome.groups}
    worst: dict[str, tuple[bool, float, float]] = {}
    for g in outcome.groups:
        # Bits are no shares: among those that say alike, the surer stands first.
        worst[g.group] = max(worst.get(g.group, (False, -1.0, 0.0)), (g.exceeds, -g.p, g.size.value))
    names = sorted(worst, key=lambda name: worst[name], reverse=True)[:_MOST_GROUPS]
    rows = tuple(GridRow(name, "", tuple(_group(cells.get((name, s))) for s in subjects)) for name in names)
    return Grid("", tuple(Head(s, css=colours.css(s)) for s in subjects), rows)


def _group(g: GroupLine | None) -> GridCell:
    if g is None:
        return EMPTY
    colour = "" if g.size.unit == "bits" else f"heat {heat(g.size.value)}"
    rows = [(g.by, said(g.size)), ("p, corrected", plain_number(g.p))]
    notes = (g.by, "exceeds the margin" if g.exceeds else "")
    return GridCell(any_size(g.size), any_range(g.size), notes, colour, told(f"{g.subject}, {g.group}", rows))


def _agreement(outcome: AuditOutcome) -> Agreement:
    r = outcome.reliability
    reliability = ""
    if r:
        share = f": {number(r.agreement.value)} {interval(r.agreement)}" if r.agreement else ""
        reliability = (
            f"The verdict from all formats but one agrees with that of the format left out in {r.agree} cases and"
            f" contradicts it in {r.contradict}{share}; {r.undecided} are undecided."
        )
    return Agreement(
        reversals=tuple((x.first, x.second, x.more_in, x.less_in, plain_number(x.p)) for x in outcome.reversals),
        taus=_taus(outcome),
        reliability=reliability,
    )


def _taus(outcome: AuditOutcome) -> Grid | None:
    pairs = {(o.first, o.second): o.tau for o in outcome.orders}
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    if not names:
        return None
    blank = GridCell()
    rows = [
        GridRow(row, "", tuple(_tau(pairs, row, names[j]) if j < i else blank for j in range(len(names) - 1)))
        for i, row in enumerate(names)
        if i
    ]
    return Grid("", tuple(Head(name) for name in names[:-1]), tuple(rows))


def _tau(pairs: Mapping[tuple[str, str], Estimate | None], row: str, column: str) -> GridCell:
    key = (column, row) if (column, row) in pairs else (row, column)
    if key not in pairs:
        return GridCell()
    tau = pairs[key]
    if tau is None:
        return GridCell("tied", css="none")
    return GridCell(number(tau.value), interval(tau), css="reversed" if tau.value < 0 else "")
