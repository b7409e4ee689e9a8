"""The audit's first screen: the answer, what was audited, a row a model with its verdicts, single facts, what is open.

Nothing is computed here but places on the strip: every number is one of the outcome's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from vestige.artifacts.audits import CLAIMS, AuditOutcome, Claim, FactLine, Outcome, VerdictLine, WorstLine
from vestige.artifacts.verdicts import bound_said
from vestige.report.audit_grid import Colours, told
from vestige.report.audit_panels import attack_names
from vestige.report.evidence import forget_label
from vestige.report.verdict_words import Span, audited, methods_of, verdict_answer
from vestige.report.words import counted, interval, number, plain_number

HEADS: Mapping[Claim, str] = {
    "not expressed": "in any form of question",
    "not recoverable": "by any attack",
    "not distinguishable": "from models that never knew",
    "kept": "all that was not to be forgotten",
}
"""The claims that have a column, with what stands small below; the fifth is about the benchmark, for all models."""

_WIDEST = (-1.0, 1.6)
"""What lies beyond is cut at the edge of the strip; the number beside it says where it is."""
_FACTS_LISTED = 20
_UNTESTED_AT_ONCE = 3


@dataclass(frozen=True)
class VerdictCell:
    """One claim about one model: the outcome, its bound in words, the anchor of its reason."""

    claim: Claim
    outcome: Outcome
    anchor: str
    bound: str
    tell: str


@dataclass(frozen=True)
class Mark:
    """A value on the strip: places in per cent of its width, the number, and all of it when pointed at."""

    at: float
    low: float
    high: float
    number: str
    tell: str


@dataclass(frozen=True)
class ModelRow:
    """A model: what it is beside its name, what is left as it stands and after attacks, its verdicts.

    The positive control (`control`) has the one verdict that it is there for.
    """

    label: str
    css: str
    note: str
    left: Mark | None
    attacked: Mark | None
    cells: tuple[VerdictCell | None, ...]
    control: bool = False


@dataclass(frozen=True)
class Strip:
    """The places of 0 and 1 on the strip, and of the band of models that never knew, if there are two."""

    never: float
    target: float
    band: tuple[float, float] | None
    zero: str


@dataclass(frozen=True)
class GivenFact:
    """A single fact that a model gives away: what was asked, what it says, how likely it finds the answer."""

    question: str
    said: str
    numbers: str
    after: str


@dataclass(frozen=True)
class GivenFacts:
    """The facts of one model: how many, of how many, how many of them only after an attack, and the clearest first."""

    label: str
    css: str
    n: int
    of: int
    n_back: int
    first: GivenFact
    more: tuple[GivenFact, ...]
    unlisted: int


@dataclass(frozen=True)
class FirstScreen:
    """All that the first screen says of the audit of one forget set."""

    label: str
    selector: str
    spans: tuple[Span, ...]
    facts: tuple[str, ...]
    heads: tuple[tuple[Claim, str], ...]
    strip: Strip | None
    rows: tuple[ModelRow, ...]
    benchmark: tuple[tuple[tuple[str, ...], VerdictCell], ...]
    reading: str
    given: tuple[GivenFacts, ...]
    untested: tuple[str, ...]
    also_untested: tuple[str, ...]


def first_screen(index: int, outcome: AuditOutcome, known: Mapping[str, int]) -> FirstScreen:
    """The audit of one forget set; `known` are the colours of the models elsewhere."""
    colours, scale = Colours(outcome, known), _Scale.of(outcome)
    return FirstScreen(
        label=forget_label(outcome.forget),
        selector=outcome.forget,
        spans=verdict_answer(outcome),
        facts=tuple(_facts(outcome)),
        heads=tuple(HEADS.items()),
        strip=scale.strip(outcome) if outcome.worst else None,
        rows=(*(_row(index, outcome, colours, scale, s) for s in _ordered(outcome)), *_control(index, outcome, scale)),
        benchmark=_benchmark(index, outcome),
        reading=_reading(outcome),
        given=tuple(_given(outcome, colours)),
        untested=outcome.untested[:_UNTESTED_AT_ONCE],
        also_untested=outcome.untested[_UNTESTED_AT_ONCE:],
    )


def anchor(index: int, outcome: AuditOutcome, v: VerdictLine) -> str:
    """The id of the place where the reason of a verdict stands."""
    return f"why-{index}-{list(CLAIMS).index(v.claim)}-{audited(outcome).index(v.subject)}"


def _ordered(outcome: AuditOutcome) -> list[str]:
    """The models that should pass first, then those that the question is about."""
    methods = methods_of(outcome)
    return [*(s for s in audited(outcome) if s not in methods), *methods]


def _facts(outcome: AuditOutcome) -> list[str]:
    """What was audited, in a line."""
    methods, references = len(methods_of(outcome)), len(audited(outcome)) - len(methods_of(outcome))
    n, attacks = len(outcome.retrained), len(_attacks(outcome))
    found = []
    if outcome.n_judged:
        apart = " that nothing else tells" if outcome.n_apart else ""
        found.append(f"{outcome.n_judged:,} {_plural('fact', outcome.n_judged)}{apart}")
    found.append(f"{methods} {_plural('model', methods)} that should have forgotten")
    if references:
        found.append(f"{references} retrained without it, which should pass")
    none = "alternatives to the answers for models that never knew"
    none = none if outcome.against == "alternatives" else "no model that never knew"
    found.append(f"{n} other {_plural('model', n)} that never knew" if n else none)
    found.append(f"{len(outcome.formats)} {_plural('form', len(outcome.formats))} of question")
    able = {line.attack for line in outcome.able if line.able}
    shown = f", {len(able)} of them shown to find what a control hides" if outcome.suppressed else ""
    found.append(f"{attacks} {_plural('attack', attacks)}{shown}")
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

    def mark(self, line: WorstLine | None, what: str) -> Mark | None:
        if line is None:
            return None
        e = line.leakage
        rows = [(what, f"{number(e.value)} {interval(e)}, n = {e.n:,}"), ("most in", line.where)]
        return Mark(
            self.place(e.value), self.place(e.low), self.place(e.high), number(e.value), told(line.subject, rows)
        )

    def strip(self, outcome: AuditOutcome) -> Strip:
        values = [line.leakage.value for line in outcome.never]
        band = (self.place(min(values)), self.place(max(values))) if len(values) > 1 else None
        zero = "guessing" if outcome.against == "chance" else "never knew"
        return Strip(self.place(0.0), self.place(1.0), band, zero)


def _row(index: int, outcome: AuditOutcome, colours: Colours, scale: _Scale, subject: str) -> ModelRow:
    verdicts = {v.claim: v for v in outcome.verdicts if v.subject == subject}
    worst = next((w for w in outcome.worst if w.subject == subject), None)
    attacked = next((w for w in outcome.attacked if w.subject == subject), None)
    return ModelRow(
        label=subject,
        css=colours.css(subject),
        note="never saw these facts: should pass" if subject not in methods_of(outcome) else "",
        left=scale.mark(worst, "left as it stands"),
        attacked=scale.mark(attacked, "left after the attack that brings most"),
        cells=tuple(_cell(index, outcome, verdicts.get(claim)) for claim in HEADS),
    )


def _control(index: int, outcome: AuditOutcome, scale: "_Scale") -> tuple[ModelRow, ...]:
    """The positive control: without the attack that fails it, nothing would follow from attacks that find nothing."""
    name = outcome.suppressed
    if not name:
        return ()
    marks = [next((w for w in lines if w.subject == name), None) for lines in (outcome.worst, outcome.attacked)]
    verdict = next((v for v in outcome.control if v.claim == "not recoverable"), None)
    cell = _cell(index, outcome, verdict)
    cells = tuple(
        replace(cell, anchor=f"able-{index}") if cell is not None and claim == "not recoverable" else None
        for claim in HEADS
    )
    return (
        ModelRow(
            name,
            "role-target",
            "knows them, taught to keep silent: attacks should fail it",
            scale.mark(marks[0], "left as it stands"),
            scale.mark(marks[1], "left after the attack that brings most"),
            cells,
            control=True,
        ),
    )


def _cell(index: int, outcome: AuditOutcome, v: VerdictLine | None) -> VerdictCell | None:
    if v is None:
        return None
    said = bound_said(outcome, v).replace("-", "−")
    return VerdictCell(
        v.claim,
        v.outcome,
        anchor(index, outcome, v) if v.subject in audited(outcome) else "",
        said or ("not tested" if not v.evidence else ""),
        told(f"{v.subject}: {v.claim}", [(v.outcome, v.reason)]),
    )


def _benchmark(index: int, outcome: AuditOutcome) -> tuple[tuple[tuple[str, ...], VerdictCell], ...]:
    """Whether the benchmark can tell: once, with names only where it is not the same for all models."""
    groups: dict[tuple[str, str], tuple[list[str], VerdictCell]] = {}
    for v in outcome.verdicts:
        cell = _cell(index, outcome, v)
        if v.claim == "benchmark can tell" and cell is not None:
            groups.setdefault((v.outcome, v.reason), ([], cell))[0].append(v.subject)
    return tuple((tuple(names) if len(groups) > 1 else (), cell) for names, cell in groups.values())


def _reading(outcome: AuditOutcome) -> str:
    """How the marks and the verdicts are read, with the margins of the outcome."""
    t = outcome.thresholds
    parts = ["Filled: as the model stands, in the form of question that reveals most."]
    if outcome.attacked:
        parts.append("Ring: after the attack that brings back most, minus what it brings to models that never knew.")
    parts.append("Lines: 95 % intervals, which chance can carry below 0 or beyond 1.")
    if len(outcome.never) > 1:
        parts.append("Grey: the spread of models that never knew, each measured against the others.")
    if {"delta", "delta_wide", "delta_bits", "delta_wide_bits"} <= set(t):
        stated = "" if outcome.first else ", both stated before the models were asked"
        parts.append(
            f"A claim fails when something is shown to exceed {t['delta']:g} ({t['delta_bits']:g} bits), and holds "
            f"when everything is shown to be below {t['delta_wide']:g} ({t['delta_wide_bits']:g} bits){stated}. Beside "
            "it stands the bound that decides, which may be of another form or attack than the marks: point at it."
        )
    return " ".join(parts)


def _given(outcome: AuditOutcome, colours: Colours) -> list[GivenFacts]:
    """By model the single facts that it gives away, each once, the clearest first."""
    found = []
    for subject in _ordered(outcome):
        facts: dict[str, FactLine] = {}
        for line in sorted((f for f in outcome.facts if f.subject == subject), key=_clarity, reverse=True):
            facts.setdefault(line.item, line)
        if not facts:
            continue
        first, *more = [_given_fact(line) for line in facts.values()]
        found.append(
            GivenFacts(
                subject,
                colours.css(subject),
                len(facts),
                max(outcome.n_judged, len(facts)),
                sum(bool(line.attack) for line in facts.values()),
                first,
                tuple(more[: _FACTS_LISTED - 1]),
                max(0, len(facts) - _FACTS_LISTED),
            )
        )
    return found


def _clarity(line: FactLine) -> tuple[bool, bool, float]:
    """As the model stands before after an attack, stated before likely, then by how far from models that never knew."""
    apart = line.bits - line.never[1] if line.bits is not None and line.never is not None else 0.0
    return not line.attack, line.by == "stated", apart


def _given_fact(line: FactLine) -> GivenFact:
    numbers = ""
    if line.bits is not None and line.never is not None:
        low, high = (plain_number(abs(x)) for x in reversed(line.never))
        theirs = low if low == high else f"{low} to {high}"
        numbers = f"{plain_number(abs(line.bits))} bits; models that never knew: {theirs}"
    said = line.reply if line.by == "stated" and line.reply else line.answer
    return GivenFact(line.question or line.item, said, numbers, line.attack)


def models_audited(outcomes: tuple[AuditOutcome, ...]) -> str:
    """The page's title where several forget sets were audited."""
    return f"Have models forgotten {counted(len(outcomes))} forget sets, and nothing else?"
