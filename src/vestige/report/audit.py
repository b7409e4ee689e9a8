"""The audit on the page: the first screen, its reasons, and the panels below.

Only positions on the strip are computed here: every number comes from the outcome.

The audit's panels below the first screen, as plain HTML shows them: tables of cells, their words and their colours.

Nothing is computed here: the outcome's content is selected, ordered and put into words for the template.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from operator import attrgetter
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from vestige.artifacts.audits import (
    CLAIMS,
    FROM_LOGS,
    NOT_A_CONTROL,
    STATEMENTS,
    AuditOutcome,
    Claim,
    FactLine,
    FormatLine,
    GainLine,
    GroupLine,
    MatrixCell,
    Outcome,
    VerdictLine,
    by_level,
)
from vestige.artifacts.verdicts import (
    ALIKE,
    ASSUMED,
    BOUNDS_SAID,
    MORE_THAN_TARGET,
    UNCHANGED,
    UNTESTED,
    WORDS,
    controls_said,
    exceeds_target,
    facts_said,
    is_tested,
    logs_said,
    measured,
    outcome_word,
    possible,
    sized,
    stored_said,
    tested_said,
    verdict_word,
)
from vestige.core.estimates import NO_INTERVAL, Estimate
from vestige.core.text import Fields, TextMapping, TextTuple, grouped, visible
from vestige.report.evidence import forget_label, forget_parts
from vestige.report.words import (
    WORDS_OF,
    attack_name,
    format_name,
    interval,
    method_in_full,
    method_name,
    models_said,
    next_said,
    number,
    people_said,
    per_cent,
    plain_number,
    reasoning_only,
    share_said,
    submitted,
    typeset,
    verdict_answer,
)

HOTTEST = 0.64
"""The share of `hot` or `cold` in the strongest cell of a heat map. The rest is paper, so that text stays readable."""


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
            # A name that only this audit has gets a colour after those of the run. The style sheet has eight colours
            # for methods, and the ninth repeats the first.
            return f"method-{self.palette.get(subject, len(self.palette) + methods.index(subject)) % 8}"
        never = (*self.outcome.retrained, *self.outcome.references)
        if subject in never:
            return "role-retrained"
        return "role-target"


def with_interval(e: Estimate) -> str:
    """A value of any size with its interval and n, as in `0.42 [0.36, 0.48], n = 120`."""
    return f"{any_size(e)} {any_range(e)}, n = {e.n:,}"


def any_size(e: Estimate) -> str:
    """Format a value: shares with two decimals, bits with as many as they need."""
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
    # The value is a class because the page's policy forbids style attributes.
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
    # An unknown way comes first, under its own name.
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
    lines = chain(outcome.curves, outcome.gains, outcome.budget)
    return list(dict.fromkeys(map(attrgetter("attack"), lines)))


def groups_of(lines: Iterable[Any], name: str) -> list[list[Any]]:
    """Lines in groups that have the same attribute, in the order of the first of each."""
    return list(grouped(lines, attrgetter(name)).values())


def why_no_evidence(outcome: AuditOutcome, attack: str) -> str:
    """Why nothing that an attack brought counts. Empty if some gain counts, or none is known."""
    lines = [g for g in outcome.gains if g.attack == attack]
    if not lines or any(g.evidence and not g.saturated for g in lines):
        return ""
    whys = []
    for g in lines:
        # An attack that shows the answers saturates too, and is still called an upper bound.
        full = g.saturated and (not g.why_not or g.why_not.startswith("saturated"))
        whys.append("saturated in every format" if full else g.why_not)
    return "; ".join(dict.fromkeys(whys))


_MOST_GROUPS = 20
"""The number of displayed contracts or persons, the worst first. outcome.json has all."""


def _matrix(outcome: AuditOutcome, colours: Colours) -> Fields | None:
    """Leakage by model, stage and format: the models unchanged, or after one attack.

    For an attack, it is the remainder beyond the attack's own injection. Its `mark` gives the reason it is no evidence.
    """
    # In other formats the target exceeds no control, so a share would have no scale.
    forms = {f.format: f for f in outcome.formats if f.admitted}
    if not forms:
        return None
    cells = {(c.subject, "", c.format): _leak(outcome, c) for c in outcome.matrix if c.leakage}
    # Bits are not shares, so they have no colour.
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
    # The key has the form that the page's script uses for table rows. Half a surrogate cannot be quoted.
    key = quote("|".join((outcome.forget, c.subject, attack, c.format, "left")), safe="", errors="replace")
    # Values far below an unexposed model's are cut off. The tooltip shows them.
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
        # Bits are not shares: among equal findings, the more certain comes first.
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
    size = any_size(g.size) if g.size.unit == "bits" else share_said(g.size)
    return GridCell(size, notes, colour, tooltip(f"{method_name(g.subject)}, {g.group}", rows))


HEADS: Mapping[Claim, str] = {name: claim.column for name, claim in STATEMENTS.items() if claim.column}
"""The claims with a column, and the small text below each. The last is about the benchmark, for all models."""

_LOW, _HIGH = -0.2, 1.2
"""The ends of the strip, the same on every page: 0 is a control, 1 the target. An arrow marks a value beyond them."""
_NAMED_AT_ONCE = 4


@dataclass(frozen=True)
class HarderStep:
    """One step of harder questions, with each model's remaining facts.

    `css` is the class of its marks, `words` follow each number, `form` names the form of question.
    """

    css: str
    words: str
    form: str
    levels: Mapping[str, Estimate]


_CHOICES = ("option_text_mean", "option_text_sum", "choose", "option_vocab")
_HARMLESS = re.compile(r"[Rr]elearn (retain|related|unrelated) n=\d+$")
"""Attacks whose training items contain no forgotten facts."""


def steps_of(outcome: AuditOutcome) -> list[HarderStep]:
    """Return the steps: plain question, multiple choice, relearning on harmless items. Empty if only one was tried.

    The form of a step is the one that reveals most of all unlearned models together, the same for all: a form for each
    model would find more in every model, and in those that never saw too.
    """
    leaks: dict[str, dict[str, Estimate]] = {}
    for cell in outcome.matrix:
        if cell.leakage:
            leaks.setdefault(cell.format, {})[cell.subject] = cell.leakage
    after: dict[str, dict[str, Estimate]] = {}
    for gain in outcome.gains:
        if _HARMLESS.match(gain.attack) and gain.unit != "bits" and gain.evidence and not gain.saturated:
            after.setdefault(f"{gain.attack}, {gain.format}", {})[gain.subject] = gain.after
    # Retrained models have no knowledge that a format could reveal.
    methods = submitted(outcome)

    def most_telling(by_form: Mapping[str, Mapping[str, Estimate]]) -> str:
        # A format that some models lack would give the mean of other models.
        means = {
            form: math.fsum(by_model[s].value for s in methods) / len(methods)
            for form, by_model in by_form.items()
            if by_model.keys() >= {*methods}
        }
        return max(means, key=means.__getitem__, default="")

    steps = []
    if "generate" in leaks:
        steps.append(HarderStep("usual", "asked plainly", format_name("generate"), leaks["generate"]))
    choice = most_telling({form: leaks[form] for form in _CHOICES if form in leaks}) if methods else ""
    if choice:
        steps.append(HarderStep("left", "asked to choose", format_name(choice), leaks[choice]))
    attack = most_telling(after) if methods else ""
    if attack:
        steps.append(HarderStep("after", "after relearning", _place_name(attack), after[attack]))
    if len(steps) > 1:
        return steps
    return []


def first_screen(
    index: int,
    outcome: AuditOutcome,
    palette: Mapping[str, int],
    parties: TextMapping,
    verbatim: Sequence[str] = (),
    people: Mapping[str, int] = MappingProxyType({}),
) -> Fields:
    """The values of the first screen for the audit of one forget set.

    Args:
        index: The place of the audit in the run, which the anchors on the page hold.
        outcome: The outcome of the audit.
        palette: The colours that models have elsewhere on the page.
        parties: The names of contracts by their ids.
        verbatim: Sentences about models that say answers word for word, which no control is needed to see.
        people: The number of facts to be forgotten by person.

    Returns:
        The values by name. `able` and `weak` are the attacks that did and did not find the knowledge of the positive
        control. `benchmark` states whether the questions can tell, with the
        names of models where the answer is not the same for all.
    """
    colours, steps = Colours(outcome, palette), steps_of(outcome)
    models = outcome.audited
    # Logs test few claims, and columns for the others would be empty.
    judged = {v.claim for v in outcome.verdicts if is_tested(outcome, v)}
    heads = {claim: small for claim, small in HEADS.items() if claim in judged}
    from_logs = outcome.evidence_level in FROM_LOGS
    # Contracts are named by their parties, which readers know.
    parts = forget_parts(outcome.forget)
    # The warnings are above the table already.
    warnings = [*(line for line in outcome.untested if line.startswith(NOT_A_CONTROL)), *outcome.warnings]
    lines: dict[str, dict[Claim, VerdictLine]] = defaultdict(dict)
    for verdict in (*outcome.verdicts, *outcome.control):
        lines[verdict.subject][verdict.claim] = verdict

    def row(subject: str, note: str, should: Outcome | None = None) -> Fields:
        """A model: its role, its remaining facts, its verdicts. `should` is a control's expected outcome."""
        verdicts = lines[subject]
        marks = list(_marks(outcome, steps, subject))
        stored = ""
        for line in outcome.stored:
            # A smaller number than another in the row would look like less remaining knowledge.
            if line.subject == subject and all(mark["value"] <= line.share.value for mark in marks):
                stored = stored_said(line)
        return {
            "label": subject,
            "css": colours.css(subject),
            "note": note,
            "stored": stored,
            "marks": marks,
            "cells": [_cell(index, outcome, verdicts[c], should) if c in verdicts else None for c in heads],
            "control": subject == outcome.suppressed,
        }

    controls = []
    if outcome.suppressed:
        controls.append(_silenced(index, row(outcome.suppressed, _SILENCED, "fails")))
    rows = []
    for subject in models:
        if subject in outcome.references:
            rows.append(row(subject, _PASSES, "holds"))
        else:
            rows.append(row(subject, method_in_full(subject)))
    return {
        "label": people_said(people) or forget_label(outcome.forget, parties),
        "contracts": [f"{parties[part]} ({part})" for part in parts if part in parties],
        "first": [
            *verbatim,
            *(f"{method_name(name)} {UNCHANGED}." for name in outcome.unchanged),
            *reasoning_only(outcome),
            *warnings,
        ],
        "spans": verdict_answer(outcome),
        "next": logs_said(outcome)[1] if from_logs else next_said(outcome),
        "rejudged": rejudged(outcome),
        "facts": _facts(outcome),
        "heads": [(claim, by_level(small, outcome.evidence_level)) for claim, small in heads.items()],
        "strip": _strip(outcome) if any(r["marks"] for r in rows) else None,
        "rows": rows,
        "controls": controls,
        "benchmark": _benchmark(index, outcome),
        "attacks": bool(outcome.able) or not from_logs,
        "caption": _caption(outcome, steps),
        "margins": margins_said(outcome),
        "reading": _reading(outcome, steps),
        "words": WORDS_OF["meanings"],
        "given": _given(outcome),
        "untested": [_folded(line) for line in outcome.untested if line not in warnings],
    }


_PASSES = "trained without the facts: should pass"
_SILENCED = "knows the facts, taught silence: should fail"


def _folded(sentence: str) -> tuple[str, str]:
    """A long list in a sentence, cut after its first names, and the whole sentence."""
    lead, colon, names = sentence.partition(": ")
    # Nested lists have semicolons between their parts.
    between = "; " if "; " in names else ", "
    first = names.split(between)
    if not colon or len(first) <= _NAMED_AT_ONCE + 2:
        return sentence, ""
    return f"{lead}: {between.join(first[:_NAMED_AT_ONCE])} and {len(first) - _NAMED_AT_ONCE} more.", sentence


def anchor(index: int, outcome: AuditOutcome, v: VerdictLine) -> str:
    """Return the HTML id of a verdict's reason."""
    return f"why-{index}-{list(CLAIMS).index(v.claim)}-{outcome.audited.index(v.subject)}"


def _facts(outcome: AuditOutcome) -> list[str]:
    """Return a line on the audited facts."""
    models = len(submitted(outcome))
    # Attacks that show the answers cannot count.
    ceilings = {g.attack for g in outcome.gains if g.why_not.startswith("a ceiling")}
    attacks = len({*attack_names(outcome)} - ceilings)
    facts = []
    if outcome.n_judged:
        if outcome.n_apart:
            facts.append(f"{outcome.n_judged + outcome.n_apart:,} facts to be forgotten")
            facts.append(f"{tested_said(outcome)} that nothing else gives away")
        else:
            facts.append(tested_said(outcome))
    if outcome.stored:
        facts.append(f"{outcome.stored[0].share.n:,} of these not shown in relearning")
    facts.append(f"{models} {models_said(outcome)[:-1]}{'s' * (models != 1)}")
    if models < len(outcome.audited):
        facts.append(f"{len(outcome.references)} more, retrained without the facts: should pass")
    if outcome.retrained:
        facts.append(controls_said(outcome))
        if outcome.evidence_level != "verified":
            facts.append(ALIKE if outcome.evidence_level == "predicted" else ASSUMED)
    else:
        facts.append("no controls")
    ways, readings = outcome.prompts_asked, len(outcome.formats)
    facts.append(f"{ways} kind{'s' * (ways != 1)} of prompt, {readings} reading{'s' * (readings != 1)} of the answers")
    if attacks or outcome.evidence_level not in FROM_LOGS:
        facts.append(f"{attacks} attack{'s' * (attacks != 1)}")
    return facts


def _place(x: float) -> float:
    """The place of a share in per cent of the strip's width, with room for half a mark at either edge."""
    fraction = (min(max(x, _LOW), _HIGH) - _LOW) / (_HIGH - _LOW)
    return round(2 + 96 * fraction, 2)


def _strip(outcome: AuditOutcome) -> Fields:
    """The places of 0 and 1, and the band between the controls if there are two or more."""
    values = [line.leakage.value for line in outcome.never]
    band = None
    if len(values) > 1:
        band = _place(min(values)), _place(max(values))
    zero = "guessing" if outcome.against == "chance" else "never knew"
    return {"never": _place(0.0), "target": _place(1.0), "band": band, "zero": zero}


def _marks(outcome: AuditOutcome, steps: Sequence[HarderStep], subject: str) -> Iterator[Fields]:
    """Return the remaining facts at each step.

    Without steps, the values without an attack and after the strongest attack.
    """
    marks = [(step.css, step.words, step.form, step.levels[subject]) for step in steps if subject in step.levels]
    if not marks:
        form, leaks = outcome.compared
        if subject in leaks:
            marks.append(("left", "left", _place_name(form), leaks[subject]))
        for w in outcome.attacked:
            if w.subject == subject:
                marks.append(("after", "after attack", _place_name(w.where), w.leakage))
    for css, words, form, e in marks:
        beyond = ""
        if not _LOW <= e.value <= _HIGH:
            beyond = "right" if e.value > _HIGH else "left"
        rows = [(f"left, {words}", f"{number(e.value)} {interval(e)}, n = {e.n:,}"), ("in", form)]
        rows.append(("100 %", MORE_THAN_TARGET if exceeds_target(e) else ""))
        yield {
            "kind": css,
            "value": e.value,
            "at": _place(e.value),
            "low": _place(e.low),
            "high": _place(e.high),
            "beyond": beyond,
            "words": f"{share_said(e)} {words}",
            "tell": tooltip(method_name(subject), rows),
        }


def _place_name(where: str) -> str:
    """A format, or an attack and a format, in words."""
    attack, comma, form = where.partition(", ")
    if comma and attack != "forced":
        return f"{attack_name(attack)}, {format_name(form)}"
    return format_name(where)


def _silenced(index: int, row: Fields) -> Fields:
    """Return the positive control, which attacks should fail and whose blocks contain the hidden answers.

    Without the attack that fails it, nothing would follow from attacks that find nothing.
    """
    # The other claims about it are irrelevant: it was not made to forget.
    anchors = {"not recoverable": f"able-{index}", "not stored": ""}
    cells = [{**c, "anchor": anchors[c["claim"]]} if c and c["claim"] in anchors else None for c in row["cells"]]
    return {**row, "css": "role-target", "cells": cells}


def _cell(index: int, outcome: AuditOutcome, v: VerdictLine, should: Outcome | None = None) -> Fields:
    """Return the cell of one claim about one model: verdict, deciding quantity with bound, and the reason's anchor.

    `expected` marks whether a control has its expected outcome.
    """
    tested = is_tested(outcome, v)
    amount = typeset(measured(v)) if tested else ""
    facts = facts_said(outcome, v)
    first = outcome.first.verdicts if outcome.first is not None else ()
    was = next((o for s, c, o in first if (s, c) == (v.subject, v.claim)), v.outcome)
    return {
        "claim": v.claim,
        "outcome": v.outcome,
        "word": verdict_word(outcome, v),
        # The positive control has no entry among the reasons to link to.
        "anchor": anchor(index, outcome, v) if v.subject in outcome.audited else "",
        "bound": amount or facts or ("" if v.evidence or not tested else UNTESTED),
        "where": v.decides if amount else "",
        "facts": facts if amount else "",
        "was": WORDS[was] if was != v.outcome else "",
        "tell": tooltip(f"{method_name(v.subject)}: {v.claim}", [(outcome_word(outcome, v), v.reason)]),
        "expected": None if should is None else v.outcome == should,
    }


def rejudged(outcome: AuditOutcome) -> list[str]:
    """Return a sentence on an earlier judgement of these answers at other margins, or nothing."""
    first = outcome.first
    if first is None:
        return _earlier(outcome)
    now = {(v.subject, v.claim): v.outcome for v in outcome.verdicts}
    # A claim that is not judged now has not changed.
    changed = [(s, c, was) for s, c, was in first.verdicts if now.get((s, c), was) != was]
    t, then = outcome.thresholds, first.thresholds
    names = [n for n in t if n in then and t[n] != then[n]]
    margins = ", ".join(f"{n.replace('_', ' ')} {t[n]} in place of {then[n]}" for n in names)
    lead = f"Judged again at other margins, after the answers were seen: {margins}. First judged at {first.time}"
    if not changed:
        return [f"{lead}, with the same verdicts.", *_earlier(outcome)]
    before = "; ".join(
        f"{method_name(s)}, {c}: {WORDS[was]}, now {WORDS[now[s, c]]}" for s, c, was in changed[:_NAMED_AT_ONCE]
    )
    rest = f"; and {len(changed) - _NAMED_AT_ONCE} more" if len(changed) > _NAMED_AT_ONCE else ""
    return [f"{lead}, with other verdicts: {before}{rest}.", *_earlier(outcome)]


def _earlier(outcome: AuditOutcome) -> list[str]:
    """Report that other scores were judged under the same name, and their failures."""
    if not outcome.earlier:
        return []
    first = outcome.earlier[0]
    failed = [f"{method_name(s)}, {claim}" for s, claim, was in first.verdicts if was == "fails"]
    verdicts = f"failed then: {'; '.join(failed[:_NAMED_AT_ONCE])}" if failed else "nothing failed then"
    return [f"Other scores were judged under this name before, first at {first.time}; {verdicts}."]


def _benchmark(index: int, outcome: AuditOutcome) -> list[tuple[list[str], Fields]]:
    """Return the result about the benchmark: once, with names only if models differ."""
    tested = [v for v in outcome.verdicts if v.claim == "benchmark valid" and is_tested(outcome, v)]
    groups = grouped(tested, lambda v: (v.outcome, v.reason))
    return [
        ([v.subject for v in same] if len(groups) > 1 else [], _cell(index, outcome, same[0]))
        for same in groups.values()
    ]


def margins_said(outcome: AuditOutcome) -> list[str]:
    """Return the meaning of pass, fail and inconclusive with the margins, or nothing without margins."""
    t = outcome.thresholds
    if not {"delta", "delta_wide", "delta_bits", "delta_wide_bits"} <= set(t):
        return []
    margin, wide = (per_cent(float(t[name])) for name in ("delta", "delta_wide"))
    stated = [] if outcome.first or outcome.earlier else ["No earlier judgement is recorded."]
    # If the target knows much of an answer, the margins in bits are shares of that.
    bits = outcome.margins_bits or (float(t["delta_bits"]), float(t["delta_wide_bits"]))
    same = f"{margin} and {wide} of what the target knows more of such answers than the controls"
    return [
        f"Fail, tested first: one test surely shows more than {margin} left or lost ({bits[0]:g} bits).",
        f"Pass: each test surely shows less than {wide} ({bits[1]:g} bits, {2 ** bits[1]:,.0f} times as likely), which "
        "can still be a leak.",
        "Inconclusive: neither, or one fact or contract decides, which may be luck with fewer than seven controls.",
        *([f"The bits are {same}."] if outcome.margins_bits else []),
        typeset(BOUNDS_SAID),
        *stated,
        *([outcome.sealed] if outcome.sealed else []),
    ]


_DOTS = {"usual": "pale dot", "left": "full dot", "after": "ring"}


def _caption(outcome: AuditOutcome, steps: Sequence[HarderStep]) -> str:
    """The amounts that the usual test and the strongest question find, and the form of question of each dot."""
    if not steps:
        form, leaks = outcome.compared
        if not leaks:
            return ""
        return f"The picture compares all models in one form of question: {format_name(form)}."
    forms = f"Marks: {'; '.join(f'{_DOTS[step.css]} {step.form}' for step in steps)}."
    if any(level.value < 0 for step in steps for level in step.levels.values()):
        forms += " Below 0 %: less than a model that never knew."
    methods = submitted(outcome)
    usual = [possible(steps[0].levels[s]).value for s in methods if s in steps[0].levels]
    # These are the column's own numbers: the picture has two formats, and the column the strongest of all.
    strongest = []
    for v in outcome.verdicts:
        if v.claim == "not expressed" and v.decides and v.unit != "bits" and measured(v):
            strongest.append(possible(v.evidence[v.decides]).value)
    if steps[0].css != "usual" or not usual or not strongest:
        return f"What is left of the facts, asked harder from step to step. {forms}"
    amounts = list(dict.fromkeys((per_cent(min(usual)), per_cent(max(usual)))))
    seen = f"The usual test, a plain question, sees {' to '.join(amounts)} of the facts left"
    return f"{seen}; the strongest (see “not expressed”) up to {per_cent(max(strongest))}. {forms}"


def _reading(outcome: AuditOutcome, steps: Sequence[HarderStep]) -> str:
    """The legend of marks and verdicts."""
    dots = "at each step, in the same form of question for all models; below 0 is less than the controls know"
    if not steps:
        dots = "in the form of question that reveals most, corrected for that choice"
    lines = "Lines are the intervals; each cell has the one quantity that decides it."
    parts = [f"Dots show what is left {dots}.", lines]
    if any(step.css == "after" for step in steps) or outcome.attacked:
        parts.append("Rings do not count what the attack itself teaches.")
    if len(outcome.never) > 1:
        parts.append("Grey is how much the controls differ from each other.")
    return " ".join(parts)


def _given(outcome: AuditOutcome) -> list[tuple[str, list[FactLine], list[FactLine]]]:
    """Return by model the single facts that it still states, and those that it only finds likelier, the clearest first.

    A fact is one line, however many forms and attacks give it away.
    """
    given = []
    for subject in outcome.audited:
        facts: dict[str, FactLine] = {}
        for line in sorted((f for f in outcome.facts if f.subject == subject), key=_clarity, reverse=True):
            facts.setdefault(line.item, line)
        if facts:
            stated = [line for line in facts.values() if "stated" in line.by]
            given.append((subject, stated, [line for line in facts.values() if "stated" not in line.by]))
    return given


def _clarity(line: FactLine) -> tuple[bool, bool, float]:
    """Return the sort key: without an attack first, stated before likely, then by distance from the controls."""
    apart = line.bits - line.never[1] if line.bits is not None and line.never is not None else 0.0
    return not line.attack, "stated" in line.by, apart


_SCOPES = {"these": "these facts alone", "population": "all facts of this kind"}

_SCALES = {
    "retrained": "What is left of the facts, in per cent of what the target knows: 0 is a control, 100 is the target."
    " After an attack, what the attack itself teaches is taken off.",
    "chance": "Without a control, 0 is what guessing gives and 100 is the target: what a retrained model would say "
    "is not known.",
}


def audit_block(
    index: int,
    outcome: AuditOutcome,
    palette: Mapping[str, int],
    parties: TextMapping = MappingProxyType({}),
    verbatim: Sequence[str] = (),
    people: Mapping[str, int] = MappingProxyType({}),
) -> Fields:
    """Return the page's whole block on the audit of one forget set. Missing parts are None or empty.

    The arguments are the same as in `first_screen`.
    """
    colours = Colours(outcome, palette)
    return {
        "screen": first_screen(index, outcome, palette, parties, verbatim, people),
        "margins": [
            (WORDS_OF["margins"].get(k, k.replace("_", " ")), _SCOPES.get(v, v) if isinstance(v, str) else f"{v:g}")
            for k, v in outcome.thresholds.items()
        ],
        "claims": [
            {"statement": words, "rows": _reasons(index, outcome, colours, claim)}
            for claim, words in CLAIMS.items()
            if any(v.claim == claim for v in outcome.verdicts)
        ],
        "scale": _SCALES[outcome.against],
        "attacked": bool(attack_names(outcome) or outcome.able or outcome.prompts),
        "groups": groups_grid(outcome, colours, parties),
        **panels(outcome, colours),
    }


def _reasons(index: int, outcome: AuditOutcome, colours: Colours, claim: Claim) -> list[Fields]:
    """Return one claim's outcomes, with methods of equal outcome and reason together."""
    lines = [v for v in outcome.verdicts if v.claim == claim]
    groups = grouped(lines, lambda v: (v.outcome, v.reason, v.left_out, *v.evidence.items()))
    reasons = []
    for same in groups.values():
        who = [(anchor(index, outcome, v), v.subject, colours.css(v.subject)) for v in same]
        plain = _in_plain_words(outcome, same[0])
        word = outcome_word(outcome, same[0])
        reasons.append({"who": who, "verdict": same[0], "word": word, "plain": plain, "reach": _reach(same[0])})
    return reasons


def _in_plain_words(outcome: AuditOutcome, v: VerdictLine) -> str:
    """Return two sentences: the verdict, and the one quantity or the facts behind it."""
    if not v.evidence:
        return v.reason
    # A reason consists of a lead, then numbers after a colon or in brackets.
    lead = re.split(r": | \(", v.reason, maxsplit=1)[0].rstrip(".")
    amount, facts = measured(v), facts_said(outcome, v)
    parts = [f"{v.decides}: {amount}"] if amount else []
    if facts:
        parts.append(f"it {facts}")
    basis = typeset("; ".join(parts))
    if basis:
        return f"{lead}. {basis[:1].upper()}{basis[1:]}."
    return f"{lead}."


def spanned(e: Estimate) -> str:
    """The interval of a quantity in per cent or bits."""
    # If all items have scores there is no sampling error, and an interval without width looks like a mistake.
    if e.low == e.value == e.high:
        return "every item asked"
    if not math.isfinite(e.low + e.high):
        return NO_INTERVAL
    return typeset(f"{sized(e.low, e.unit)} to {sized(e.high, e.unit)}")


def _reach(v: VerdictLine) -> str:
    """Return the limits between fail and pass, and the changes that would decide it."""
    parts = [f"Above {sized(v.margin, v.unit)} fails, below {sized(v.wide, v.unit)} passes"]
    if v.needed:
        parts.append(f"{v.needed} would decide it")
    elif v.items_needed is not None:
        parts.append(f"about {v.items_needed:,} questions would decide it")
    if v.detectable is not None:
        parts.append(f"a true {sized(v.detectable, v.unit)} would have been seen in 80 % of audits")
    return typeset("; ".join(parts)) + "."
