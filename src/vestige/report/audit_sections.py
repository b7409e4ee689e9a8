"""The audit as plain HTML shows it: verdicts with their reasons, the leakage matrix, how formats agree.

Nothing is computed here: what an outcome holds is chosen, ordered and put into words for the template.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from urllib.parse import quote

from vestige.artifacts.audits import (
    CLAIMS,
    AuditOutcome,
    Claim,
    FormatLine,
    GainLine,
    GroupLine,
    MatrixCell,
    VerdictLine,
)
from vestige.core.estimates import Estimate
from vestige.report.audit_panels import (
    EMPTY,
    Colours,
    Grid,
    GridCell,
    GridRow,
    Head,
    any_range,
    any_size,
    heat,
    panels,
    said,
    told,
    why_no_evidence,
)
from vestige.report.evidence import forget_label
from vestige.report.first_screen import Block, anchor, first_screen
from vestige.report.words import (
    attack_name,
    audited,
    format_name,
    interval,
    method_name,
    number,
    per_cent,
    plain_number,
)

_MARGINS: Mapping[str, str] = {
    "scope": "the claims are about",
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

_SCOPES = {"these": "these facts alone", "such": "all facts of this kind"}

_SCALE = (
    "What is left of the facts, in per cent of what the target knows: 0 is a control, 100 is the target."
    " After an attack, what the attack itself teaches is taken off."
)
_SCALE_OF_ALTERNATIVES = (
    "Without a control, the true answer is ranked among alternatives: 0 is a rank by chance, 100 is the"
    " target; below 0, a model avoids the true answers. Other formats are shown and decide nothing."
)
_SCALE_OF_CHANCE = (
    "Without a control, 0 is what guessing gives and 100 is the target: what a model that never knew"
    " would say is not known."
)
_SCALES = {"retrained": _SCALE, "alternatives": _SCALE_OF_ALTERNATIVES, "chance": _SCALE_OF_CHANCE}
_MOST_GROUPS = 20
"""Contracts or persons that are shown, the worst first; all of them are in outcome.json."""


def audit_block(
    index: int, outcome: AuditOutcome, known: Mapping[str, int], parties: Mapping[str, str] = MappingProxyType({})
) -> Block:
    """All that the page says of the audit of one forget set; `known` are the colours of the methods elsewhere.

    `parties` has the names of contracts by their ids, where the data tell them. What an audit does not have is None or
    empty.
    """
    colours = Colours(outcome, known)
    return {
        "label": forget_label(outcome.forget, parties),
        "screen": first_screen(index, outcome, known, parties),
        "margins": [
            (_MARGINS.get(k, k.replace("_", " ")), _SCOPES.get(v, v) if isinstance(v, str) else f"{v:g}")
            for k, v in outcome.thresholds.items()
        ],
        "claims": [{"statement": words, "rows": _reasons(index, outcome, colours, c)} for c, words in CLAIMS.items()],
        "scale": _SCALES[outcome.against],
        "able": _able(outcome),
        "matrix": _matrix(outcome, colours),
        "groups": _groups(outcome, colours, parties),
        "n_groups": len({g.group for g in outcome.groups}),
        "not_admitted": [(format_name(f.format), f.reason.rstrip(".")) for f in outcome.formats if not f.admitted],
        "agreement": list(_agreement(outcome)),
        **panels(outcome, colours),
    }


def _reasons(index: int, outcome: AuditOutcome, colours: Colours, claim: Claim) -> list[Block]:
    """What became of one claim, methods with the same outcome for the same reason in one."""
    found: dict[tuple[object, ...], list[VerdictLine]] = {}
    for v in outcome.verdicts:
        if v.claim == claim:
            alike = (v.outcome, v.reason, v.left_out, *v.evidence.items())
            found.setdefault(alike, []).append(v)
    return [
        {
            "who": [(anchor(index, outcome, v), v.subject, colours.css(v.subject)) for v in same],
            "outcome": same[0].outcome,
            "reasons": [_sentence(part) for part in same[0].reason.split("; ")],
            "reach": _reach(same[0]),
            "left_out": same[0].left_out,
            "numbers": [(name, said(e)) for name, e in same[0].evidence.items()],
        }
        for same in found.values()
    ]


def _sentence(part: str) -> str:
    """A part of a reason as a sentence of its own."""
    part = part.removeprefix("and ").rstrip(".")
    return f"{part[:1].upper()}{part[1:]}."


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
            attack_name(line.attack),
            "",
            (
                GridCell("yes" if line.able else "no", css="" if line.able else "none"),
                GridCell(number(line.brought.value), interval(line.brought)) if line.brought else EMPTY,
                GridCell(notes=(format_name(line.format),)),
                GridCell(any_size(line.suppressed), any_range(line.suppressed)) if line.suppressed else EMPTY,
                GridCell(notes=(line.why_not,)),
            ),
        )
        for line in outcome.able
    ]
    return Grid("attack", heads, tuple(rows))


def _matrix(outcome: AuditOutcome, colours: Colours) -> Block | None:
    """Leakage by model, stage and format: the models as they stand, or after one attack.

    An attack's is what it leaves beyond what it teaches itself; its `mark` says why it is no evidence.
    """
    forms = {f.format: f for f in outcome.formats if f.admitted}
    if not forms:
        return None
    cells = {(c.subject, "", c.format): _leak(outcome, c) for c in outcome.matrix if c.leakage}
    cells |= {(g.subject, g.attack, g.format): _after(outcome, g) for g in outcome.gains if g.unit != "bits"}
    stages: list[Block] = []
    columns: list[tuple[str, str, str]] = []
    for attack in ("", *dict.fromkeys(g.attack for g in outcome.gains)):
        asked = [name for name in forms if any((a, f) == (attack, name) for _, a, f in cells)]
        if asked:
            mark = why_no_evidence(outcome, attack)
            heads = [_form_head(forms[name], "first" if name == asked[0] else "") for name in asked]
            stages.append({"name": attack_name(attack), "mark": mark, "heads": heads})
            ceiling = "ceiling" if mark else ""
            columns += [(attack, name, f"{head.css} {ceiling}") for name, head in zip(asked, heads, strict=True)]
    subjects = [s for s in dict.fromkeys(s for s, _, _ in cells) if s != outcome.target]
    rows = []
    for s in subjects:
        own = [(cells.get((s, attack, name), EMPTY), css) for attack, name, css in columns]
        rows.append(GridRow(s, colours.css(s), tuple(replace(c, css=f"{c.css} {css}".strip()) for c, css in own)))
    return {"stages": stages, "rows": rows}


def _form_head(f: FormatLine, css: str) -> Head:
    controls = [
        ("metric", f.metric),
        ("target", said(f.target)),
        ("controls", said(f.retrained) if f.retrained else "none"),
        ("target less controls" if f.retrained else "target less chance", said(f.admission)),
    ]
    return Head(format_name(f.format), css=css, tell=told(f.format, controls))


def cell_key(outcome: AuditOutcome, subject: str, attack: str, form: str, quantity: str) -> str:
    """What a cell is called in links: `#cell=` and this."""
    return quote("|".join((outcome.forget, subject, attack, form, quantity)), safe="", errors="replace")


def _leak(outcome: AuditOutcome, c: MatrixCell) -> GridCell:
    assert c.leakage is not None, "asked of admitted formats only"
    rows = [(c.leakage.metric.replace("_", " "), said(c.leakage)), ("level", said(c.level))]
    rows += [("with all formats at once", said(c.band))] if c.band else []
    rows += [("", "less than a control")] if c.over_forgotten else []
    return _heat_cell(c.leakage, told(f"{method_name(c.subject)}, {format_name(c.format)}", rows), outcome, c, "")


def _after(outcome: AuditOutcome, g: GainLine) -> GridCell:
    named = (("left after it", g.after), ("before it", g.before), ("brought back", g.recovery), ("taught", g.injection))
    rows = [(name, said(e)) for name, e in named] + ([("no evidence", g.why_not)] if g.why_not else [])
    title = f"{method_name(g.subject)}, {attack_name(g.attack)}, {format_name(g.format)}"
    return _heat_cell(g.after, told(title, rows), outcome, g, g.attack)


def _heat_cell(e: Estimate, tell: str, outcome: AuditOutcome, c: MatrixCell | GainLine, attack: str) -> GridCell:
    key = cell_key(outcome, c.subject, attack, c.format, "left")
    # Far below a model that never knew the number says nothing more; it is told when the cell is pointed at.
    whole = per_cent(max(e.value, -1.0)).split("\N{NARROW NO-BREAK SPACE}")[0]
    return GridCell(f"<{whole}" if e.value < -1 else whole, css=f"heat {heat(e.value)}", tell=tell, key=key)


def _groups(outcome: AuditOutcome, colours: Colours, parties: Mapping[str, str]) -> Grid | None:
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
    rows = tuple(
        GridRow(f"{parties[n]} ({n})" if n in parties else n, "", tuple(_group(cells.get((n, s))) for s in subjects))
        for n in names
    )
    return Grid("", tuple(Head(method_name(s), css=colours.css(s)) for s in subjects), rows)


def _group(g: GroupLine | None) -> GridCell:
    if g is None:
        return EMPTY
    colour = "" if g.size.unit == "bits" else f"heat {heat(g.size.value)}"
    rows = [(g.by, said(g.size)), ("p, corrected", plain_number(g.p))]
    notes = (format_name(g.by), "above the margin" if g.exceeds else "")
    size = any_size(g.size) if g.size.unit == "bits" else per_cent(g.size.value)
    return GridCell(size, "", notes, colour, told(f"{method_name(g.subject)}, {g.group}", rows))


def _agreement(outcome: AuditOutcome) -> Iterator[str]:
    """Whether forms of question agree on the order of methods, in a sentence each."""
    for x in outcome.reversals:
        first, second = method_name(x.first), method_name(x.second)
        yield (
            f"Order reversed: {first} leaks more than {second} in {format_name(x.more_in)} and less in "
            f"{format_name(x.less_in)} (p = {plain_number(x.p)})."
        )
    r = outcome.reliability
    if r:
        share = f": {number(r.agreement.value)} {interval(r.agreement)}" if r.agreement else ""
        yield (
            f"The verdict from all formats but one agrees with that of the format left out in {r.agree} cases and"
            f" contradicts it in {r.contradict}{share}; {r.undecided} are undecided."
        )
