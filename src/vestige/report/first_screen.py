"""The audit's first screen: the answer, what was audited, a row a model with its verdicts, single facts, what is open.

Nothing is computed here but places on the strip: every number is one of the outcome's.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vestige.artifacts.audits import CLAIMS, STATEMENTS, AuditOutcome, Claim, FactLine, Outcome, VerdictLine, by_level
from vestige.artifacts.verdicts import BOUNDS_SAID, controls_said, n_facts
from vestige.core.estimates import Estimate
from vestige.report.audit_panels import Colours, attack_names, told
from vestige.report.evidence import forget_label
from vestige.report.words import (
    attack_name,
    audited,
    counted,
    format_name,
    interval,
    method_in_full,
    method_name,
    methods_of,
    number,
    per_cent,
    plain_number,
    verdict_answer,
)

HEADS: Mapping[Claim, str] = {claim: one.column for claim, one in STATEMENTS.items() if one.column}
"""The claims that have a column, with what stands small below; the fifth is about the benchmark, for all models."""

WORDS: Mapping[Outcome, str] = {"holds": "pass", "fails": "fail", "inconclusive": "inconclusive"}
"""What the page calls an outcome: first readers ask whether a model passes."""

_WIDEST = (-1.0, 1.6)
"""What lies beyond is cut at the edge of the strip; the number beside it says where it is."""
_FACTS_LISTED = 20
_UNTESTED_AT_ONCE = 3
_NAMED_AT_ONCE = 4


Block = dict[str, Any]
"""Values by name for a template."""


def first_screen(index: int, outcome: AuditOutcome, known: Mapping[str, int], parties: Mapping[str, str]) -> Block:
    """All that the first screen says of the audit of one forget set.

    `known` are the colours of the models elsewhere, `parties` the contracts' names. `able` and `weak` are the attacks
    that did and did not find what the silenced control hides, with the share that they brought back. Of what was not
    tested each sentence has what is shown at once and the rest. `benchmark` has whether the benchmark can tell, with
    names of models where it is not the same for all.
    """
    colours, scale = Colours(outcome, known), _Scale.of(outcome)
    methods = methods_of(outcome)
    references = [s for s in audited(outcome) if s not in methods]
    parts = [part.strip().removeprefix("edge:") for part in outcome.forget.split(",")]
    untested = [_folded(line) for line in outcome.untested]
    found = [
        (attack_name(x.attack), per_cent(max(x.brought.value, 0.0)) if x.brought else "", x.able) for x in outcome.able
    ]

    def row(subject: str, note: str, should: Outcome | None = None) -> Block:
        return _row(index, outcome, colours, scale, subject, note, should)

    controls = [row(s, _PASSES, "holds") for s in references]
    if outcome.suppressed:
        controls.append(_silenced(index, row(outcome.suppressed, _SILENCED, "fails")))
    return {
        "label": forget_label(outcome.forget, parties),
        "selector": outcome.forget,
        "contracts": [f"{parties[part]} ({part})" for part in parts if part in parties],
        "spans": verdict_answer(outcome),
        "rejudged": rejudged(outcome),
        "facts": _facts(outcome),
        "heads": [(claim, by_level(small, outcome.evidence_level)) for claim, small in HEADS.items()],
        "strip": scale.strip(outcome) if outcome.worst else None,
        "rows": [row(s, method_in_full(s)) for s in methods],
        "controls": controls,
        "benchmark": _benchmark(index, outcome),
        "reading": _reading(outcome),
        "given": _given(outcome, colours),
        "able": [(name, share) for name, share, able in found if able],
        "weak": [(name, share) for name, share, able in found if not able],
        "untested": untested[:_UNTESTED_AT_ONCE],
        "also_untested": untested[_UNTESTED_AT_ONCE:],
    }


_PASSES = "trained without the facts: should pass"
_SILENCED = "knows the facts, taught to keep silent: attacks should make it fail"


def _folded(sentence: str) -> tuple[str, str]:
    """A long list in a sentence, cut after its first names, with those that are left."""
    lead, colon, names = sentence.partition(": ")
    first = names.split(", ")
    if not colon or len(first) <= _NAMED_AT_ONCE + 2:
        return sentence, ""
    return f"{lead}: {', '.join(first[:_NAMED_AT_ONCE])} and {len(first) - _NAMED_AT_ONCE} more.", sentence


def anchor(index: int, outcome: AuditOutcome, v: VerdictLine) -> str:
    """The id of the place where the reason of a verdict stands."""
    return f"why-{index}-{list(CLAIMS).index(v.claim)}-{audited(outcome).index(v.subject)}"


def _facts(outcome: AuditOutcome) -> list[str]:
    """What was audited, in a line."""
    methods, references = len(methods_of(outcome)), len(audited(outcome)) - len(methods_of(outcome))
    n, attacks = len(outcome.retrained), len(_attacks(outcome))
    found = []
    if outcome.n_judged:
        apart = " that nothing else gives away" if outcome.n_apart else ""
        found.append(f"{outcome.n_judged:,} {_plural('fact', outcome.n_judged)}{apart}")
    found.append(f"{methods} {_plural('model', methods)} that should have forgotten")
    found += [f"{method_name(name)} has the target's own weights" for name in outcome.unchanged]
    if references:
        found.append(f"{references} retrained without the facts, which should pass")
    none = "alternatives to the answers in place of controls"
    none = none if outcome.against == "alternatives" else "no controls"
    found.append(controls_said(outcome) if n else none)
    ways = outcome.prompts_asked
    found.append(f"asked in {ways} {_plural('way', ways)}, read in {len(outcome.formats)}")
    found.append(f"{attacks} {_plural('attack', attacks)}")
    return found


def _attacks(outcome: AuditOutcome) -> list[str]:
    """The attacks that could count, which those that show the answers themselves cannot."""
    ceilings = {g.attack for g in outcome.gains if g.why_not.startswith("a ceiling")}
    return [name for name in attack_names(outcome) if name not in ceilings]


def _plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"


@dataclass(frozen=True)
class _Scale:
    """The part of the leakage axis that the strip shows."""

    low: float
    high: float

    @classmethod
    def of(cls, outcome: AuditOutcome) -> "_Scale":
        shown = [line.leakage for line in (*outcome.worst, *outcome.attacked, *outcome.never)]
        ends = [x for e in shown for x in (e.low, e.high, e.value) if math.isfinite(x)]
        least, most = min((*ends, -0.1)), max((*ends, 1.1))
        low, high = math.floor(10 * least) / 10, math.ceil(10 * most) / 10
        return cls(max(low, _WIDEST[0]), min(high, _WIDEST[1]))

    def place(self, x: float) -> float:
        """In per cent of the strip's width, with room for half a mark at either edge."""
        share = (min(max(x, self.low), self.high) - self.low) / (self.high - self.low)
        return round(2 + 96 * share, 2)

    def mark(self, kind: str, e: Estimate, words: str, tell: str) -> Block:
        """A value on the strip: places, what it is in words, and all of it when pointed at."""
        at, low, high = (self.place(x) for x in (e.value, e.low, e.high))
        return {"kind": kind, "at": at, "low": low, "high": high, "words": words, "tell": tell}

    def strip(self, outcome: AuditOutcome) -> Block:
        """The places of 0 and 1, and of the band of models that never knew, if there are two."""
        values = [line.leakage.value for line in outcome.never]
        band = (self.place(min(values)), self.place(max(values))) if len(values) > 1 else None
        zero = "guessing" if outcome.against == "chance" else "controls"
        return {"never": self.place(0.0), "target": self.place(1.0), "band": band, "zero": zero}


def _row(
    index: int,
    outcome: AuditOutcome,
    colours: Colours,
    scale: _Scale,
    subject: str,
    note: str,
    should: Outcome | None,
) -> Block:
    """A model: its name and what it is, what is left of the facts and lost of the rest, its verdicts.

    `should` is the outcome that a control has to have; None of other models.
    """
    verdicts = {v.claim: v for v in (*outcome.verdicts, *outcome.control) if v.subject == subject}
    return {
        "label": subject,
        "css": colours.css(subject),
        "note": note,
        "marks": list(_marks(outcome, scale, subject)),
        "cells": [_cell(index, outcome, verdicts[claim], should) if claim in verdicts else None for claim in HEADS],
        "control": should is not None,
    }


def _marks(outcome: AuditOutcome, scale: _Scale, subject: str) -> Iterator[Block]:
    """What is left as the model stands and after the worst attack, and what is lost of the rest where most is."""
    for kind, lines, words, what in (
        ("left", outcome.worst, "left", "left as it stands"),
        ("after", outcome.attacked, "after attack", "left after the attack that brings back most"),
    ):
        line = next((w for w in lines if w.subject == subject), None)
        if line:
            e = line.leakage
            rows = [(what, f"{number(e.value)} {interval(e)}, n = {e.n:,}"), ("most in", _place_name(line.where))]
            yield scale.mark(kind, e, f"{per_cent(e.value)} {words}", told(method_name(subject), rows))
    worst = max((k for k in outcome.kept if k.subject == subject), key=lambda k: k.harm.value, default=None)
    if worst:
        e = worst.harm
        below = replace(e, value=1 - e.value, low=1 - e.high, high=1 - e.low)
        rows = [("below the target", f"{number(e.value)} {interval(e)}, n = {e.n:,}")]
        rows.append(("most in", f"{worst.split}, {format_name(worst.format)}"))
        yield scale.mark("rest", below, f"{per_cent(e.value)} of the rest lost", told(method_name(subject), rows))


def _place_name(where: str) -> str:
    """A format, or an attack and a format, in words."""
    attack, comma, form = where.partition(", ")
    return f"{attack_name(attack)}, {format_name(form)}" if comma and attack != "forced" else format_name(where)


def _silenced(index: int, row: Block) -> Block:
    """The positive control: without the attack that fails it, nothing would follow from attacks that find nothing."""
    cells = [cell if cell and cell["claim"] == "not recoverable" else None for cell in row["cells"]]
    return {**row, "css": "role-target", "cells": [cell and {**cell, "anchor": f"able-{index}"} for cell in cells]}


def _cell(index: int, outcome: AuditOutcome, v: VerdictLine, should: Outcome | None = None) -> Block:
    """One claim about one model: the outcome and its word, its bound in words, the anchor of its reason.

    `expected` says of a control whether the outcome is the one that it should have.
    """
    return {
        "claim": v.claim,
        "outcome": v.outcome,
        "word": WORDS[v.outcome],
        "anchor": anchor(index, outcome, v) if v.subject in audited(outcome) else "",
        "bound": _bound(outcome, v) or ("not tested" if not v.evidence else ""),
        "was": _was(outcome, v),
        "tell": told(f"{method_name(v.subject)}: {v.claim}", [(WORDS[v.outcome], v.reason)]),
        "expected": None if should is None else v.outcome == should,
    }


def _was(outcome: AuditOutcome, v: VerdictLine) -> str:
    """The word of the first judgement, where that was another; "" elsewhere."""
    first = outcome.first.verdicts if outcome.first is not None else ()
    was = next((o for s, c, o in first if (s, c) == (v.subject, v.claim)), v.outcome)
    return WORDS[was] if was != v.outcome else ""


def _bound(outcome: AuditOutcome, v: VerdictLine) -> str:
    """The bound that decides, in per cent or in bits, and how many facts leaked."""
    parts, low, high = [], v.at_least, v.at_most
    if v.decides is not None and low is not None and high is not None:
        if v.claim == "indistinguishable":
            low, high = (max(low, -high), max(high, -low)) if low > 0 or high < 0 else (0.0, max(high, -low))
        if v.outcome == "fails":
            size = f"at least {_sized(low, v.unit)}"
        elif high < v.wide:
            # Below 0 it is no leak either; that it is less than nothing would only be misread.
            size = f"at most {_sized(max(high, 0.0), v.unit)}"
        else:
            size = f"{_sized(low, v.unit)} to {_sized(high, v.unit)}"
        tested = " where it was tested" if v.outcome == "inconclusive" and high < v.wide else ""
        # What is left is read in several forms of question: the bound says whose it is.
        where = f" in {format_name(v.decides)}" if v.claim == "not expressed" else ""
        likelier = v.unit == "bits" and v.claim != "indistinguishable"
        parts.append((f"{size} likelier" if likelier else STATEMENTS[v.claim].size.format(size)) + where + tested)
    n = n_facts(outcome, v)
    if n:
        parts.append(f"{n} fact{'s' if n > 1 else ''} leaked")
    return "; ".join(parts)


def _sized(x: float, unit: str) -> str:
    return f"{x:.1f} bits".replace("-", "−") if unit == "bits" else per_cent(x)


def rejudged(outcome: AuditOutcome) -> list[str]:
    """That these answers were judged before at other margins, and what was said then; nothing where they were not."""
    first = outcome.first
    if first is None:
        return []
    now = {(v.subject, v.claim): v.outcome for v in outcome.verdicts}
    others = [(s, c, was) for s, c, was in first.verdicts if now.get((s, c), was) != was]
    t, then = outcome.thresholds, first.thresholds
    names = [n for n in t if n in then and t[n] != then[n]]
    changed = ", ".join(f"{n.replace('_', ' ')} {t[n]} in place of {then[n]}" for n in names)
    said = f"Judged again at other margins, after the answers were seen: {changed}. First judged at {first.time}"
    if not others:
        return [f"{said}, with the same verdicts."]
    before = "; ".join(
        f"{method_name(s)}, {c}: {WORDS[was]}, now {WORDS[now[s, c]]}" for s, c, was in others[:_NAMED_AT_ONCE]
    )
    more = f"; and {len(others) - _NAMED_AT_ONCE} more" if len(others) > _NAMED_AT_ONCE else ""
    return [f"{said}, when {len(others)} verdicts were others: {before}{more}."]


def _benchmark(index: int, outcome: AuditOutcome) -> list[tuple[list[str], Block]]:
    """Whether the benchmark can tell: once, with names only where it is not the same for all models."""
    groups: dict[tuple[str, str], list[VerdictLine]] = {}
    for v in outcome.verdicts:
        if v.claim == "benchmark valid":
            groups.setdefault((v.outcome, v.reason), []).append(v)
    return [
        ([v.subject for v in same] if len(groups) > 1 else [], _cell(index, outcome, same[0]))
        for same in groups.values()
    ]


def margins_said(outcome: AuditOutcome) -> list[str]:
    """What pass, fail and inconclusive mean, with the margins of the outcome; nothing where it states none."""
    t = outcome.thresholds
    if not {"delta", "delta_wide", "delta_bits", "delta_wide_bits"} <= set(t):
        return []
    margin, wide = (per_cent(float(t[name])) for name in ("delta", "delta_wide"))
    stated = [] if outcome.first else ["This run records no earlier judgement of these answers."]
    return [
        f"Fail: something is shown to be above {margin} ({t['delta_bits']:g} bits).",
        f"Pass: everything is shown to be below {wide} ({t['delta_wide_bits']:g} bits).",
        "Inconclusive: neither is shown.",
        BOUNDS_SAID.replace(" %", "\N{NARROW NO-BREAK SPACE}%"),
        *stated,
    ]


def _reading(outcome: AuditOutcome) -> str:
    """How the marks and the verdicts are read."""
    parts = margins_said(outcome)
    parts.append(
        "Dots show the estimate in the form of question that reveals most, corrected for that choice; a bound is"
        " that of the form it names. Lines are the intervals."
    )
    if outcome.attacked:
        parts.append("Rings do not count what the attack itself teaches.")
    if outcome.kept:
        parts.append("Squares show how far the score on everything else lies below the target's.")
    if len(outcome.never) > 1:
        parts.append("Grey is how much the controls differ from each other.")
    return " ".join(parts)


def _given(outcome: AuditOutcome, colours: Colours) -> list[Block]:
    """By model the single facts that it gives away, each once, the clearest first.

    Each has how many, of how many, and how many of them only after an attack.
    """
    found = []
    for subject in audited(outcome):
        facts: dict[str, FactLine] = {}
        for line in sorted((f for f in outcome.facts if f.subject == subject), key=_clarity, reverse=True):
            facts.setdefault(line.item, line)
        if facts:
            first, *more = map(_given_fact, facts.values())
            found.append(
                {
                    "label": subject,
                    "css": colours.css(subject),
                    "n": len(facts),
                    "of": max(outcome.n_judged, len(facts)),
                    "n_back": sum(bool(line.attack) for line in facts.values()),
                    "first": first,
                    "more": more[: _FACTS_LISTED - 1],
                    "unlisted": max(0, len(facts) - _FACTS_LISTED),
                }
            )
    return found


def _clarity(line: FactLine) -> tuple[bool, bool, float]:
    """As the model stands before after an attack, stated before likely, then by how far from models that never knew."""
    apart = line.bits - line.never[1] if line.bits is not None and line.never is not None else 0.0
    return not line.attack, "stated" in line.by, apart


def _given_fact(line: FactLine) -> Block:
    """What was asked, what the model does with which text, how likely that is to it; `true` where that is another."""
    numbers = ""
    if line.bits is not None and line.never is not None:
        low, high = map(plain_number, line.never)
        theirs = low if low == high else f"{low} to {high}"
        numbers = f"{plain_number(line.bits)} bits; the controls: {theirs}"
    stated = "stated" in line.by and bool(line.reply)
    alike = line.reply.strip().rstrip(".").casefold() == line.answer.strip().rstrip(".").casefold()
    if stated:
        does = "replies with the true answer," if alike else "replies"
    elif "stated" in line.by:
        does = "states the true answer,"
    else:
        does = "ranks this answer first:" if line.by.startswith("ranked") else "finds this answer likely:"
    return {
        "question": line.question or f"question {line.item}, whose text this run does not hold",
        "does": does,
        "said": line.reply if stated else line.answer,
        "true": line.answer if stated and not alike else "",
        "numbers": numbers,
        "after": attack_name(line.attack),
    }


def models_audited(outcomes: tuple[AuditOutcome, ...]) -> str:
    """The page's title where several forget sets were audited."""
    return f"Have models forgotten {counted(len(outcomes))} forget sets, and nothing else?"
