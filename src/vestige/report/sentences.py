"""Findings in words: one sentence that answers, then the sentences that qualify it."""

from collections.abc import Sequence
from typing import NamedTuple

from vestige.report.findings import ADMISSION_GAP, Finding, MethodFinding
from vestige.report.words import interval, number, ranged, signed


class Span(NamedTuple):
    """A piece of a sentence; `strong` marks a name."""

    text: str
    strong: bool = False


class _Clause(NamedTuple):
    """What is said of one method, or of several, at one of these levels with one of these rests."""

    levels: tuple[str, ...]
    rests: tuple[str | None, ...]
    one: str
    several: str


_SUCCESS = _Clause(
    ("level", "below"),
    ("kept",),
    "no longer measurably gives it away and keeps the rest",
    "no longer measurably give it away and keep the rest",
)
_OTHERS = (
    _Clause(
        ("level", "below"),
        ("lost",),
        "forgets it but loses other knowledge",
        "forget it but lose other knowledge",
    ),
    _Clause(
        ("level", "below"),
        ("unclear", None),
        "forgets it, but may have lost other knowledge",
        "forget it, but may have lost other knowledge",
    ),
    _Clause(("above",), ("kept", "unclear", None), "still gives it away", "still give it away"),
    _Clause(
        ("above",),
        ("lost",),
        "still gives it away, and loses other knowledge",
        "still give it away, and lose other knowledge",
    ),
    _Clause(
        ("unclear",),
        ("kept", "lost", "unclear", None),
        "cannot be told from either anchor",
        "cannot be told from either anchor",
    ),
)


def answer(finding: Finding) -> tuple[Span, ...]:
    """The sentence that answers for one forget set, without its name, which stands before it."""
    if not finding.methods:
        return (Span("No unlearned model has been evaluated on it yet."),)
    if finding.judged:
        return (Span("The verdicts above judge it; these are its questions as they stand."),)
    refusal = _refusal(finding)
    if refusal:
        return (Span(refusal),)
    succeeded = _members(finding, _SUCCESS)
    n = len(finding.methods)
    spans = [Span(f"of {n} methods, " if n > 1 else "")] if succeeded else []
    spans += [*_said(succeeded, _SUCCESS)] if succeeded else [Span(_no_success(n))]
    others = [(clause, _members(finding, clause)) for clause in _OTHERS]
    for clause, members in others:
        if members:
            spans += [Span("; "), *_said(members, clause)]
    spans.append(Span("."))
    return _capitalised([s for s in spans if s.text])


def qualifiers(finding: Finding) -> tuple[str, ...]:
    """What the numbers behind the sentence are, and how far they carry."""
    said = []
    if finding.target and finding.retrained:
        said.append(
            f"{_scope_words(finding.scope)}, n = {finding.retrained.forget.n}: never knew"
            f" {ranged(finding.retrained.forget)} ({_models(finding.n_retrained)}),"
            f" target {ranged(finding.target.forget)}."
        )
    for method in finding.methods:
        if method in _members(finding, _SUCCESS):
            said.append(_numbers(method))
    slack = [m.comparison.excess.high for m in finding.methods if m.comparison and m.comparison.level == "level"]
    if slack:
        said.append(
            f"With {finding.methods[0].standing.forget.n} questions, up to {number(max(slack))} more than a"
            " model that never knew could go unseen."
        )
    return tuple(said)


def level_words(method: MethodFinding) -> str:
    """Where one method stands on the forget set, in a few words."""
    if method.comparison is None:
        return "not compared here"
    return {
        "above": "still gives it away",
        "level": "level with never knew",
        "below": "below never knew",
        "unclear": "cannot be told",
    }[method.comparison.level]


def rest_words(method: MethodFinding) -> str:
    """What became of the retain set, in a few words."""
    rest = method.comparison.rest if method.comparison else None
    return {"kept": "rest kept", "lost": "rest damaged", "unclear": "rest unclear", None: ""}[rest]


def _refusal(finding: Finding) -> str:
    if finding.target is None:
        return "No target has been evaluated on it, so there is nothing to measure the methods against."
    if finding.gap is None:
        return "No model here never knew it, so what is left cannot be told from what was never there."
    if not finding.admitted:
        return (
            f"Not admitted: target minus never knew is {signed(finding.gap.value)} {interval(finding.gap)},"
            f" and methods are compared only where its lower bound exceeds {ADMISSION_GAP}."
        )
    return ""


def _no_success(n: int) -> str:
    return (
        "the one method here does not both forget it and keep the rest"
        if n == 1
        else (f"none of {n} methods both forgets it and keeps the rest")
    )


def _members(finding: Finding, clause: _Clause) -> list[MethodFinding]:
    return [
        m
        for m in finding.methods
        if m.comparison and m.comparison.level in clause.levels and m.comparison.rest in clause.rests
    ]


def _said(members: Sequence[MethodFinding], clause: _Clause) -> list[Span]:
    spans = []
    for i, member in enumerate(members):
        if i:
            spans.append(Span(" and " if i == len(members) - 1 else ", "))
        spans.append(Span(member.subject.label, strong=True))
    return [*spans, Span(" " + (clause.one if len(members) == 1 else clause.several))]


def _numbers(method: MethodFinding) -> str:
    assert method.comparison is not None
    below = (
        " It says less than a model that never knew, and can be told apart by it."
        if method.comparison.level == "below"
        else ""
    )
    retain = f", retain {ranged(method.standing.retain)}" if method.standing.retain else ""
    return (
        f"{method.subject.label}: {ranged(method.standing.forget)}, leakage"
        f" {ranged(method.comparison.leakage)}{retain}.{below}"
    )


def _models(n: int) -> str:
    return "one retrained model" if n == 1 else f"mean of {n} retrained models, envelope of their intervals"


def _scope_words(scope: str) -> str:
    return "Free answers" if scope == "free" else "All answers"


def _capitalised(spans: Sequence[Span]) -> tuple[Span, ...]:
    first = spans[0]
    return (first if first.strong else Span(first.text[:1].upper() + first.text[1:]), *spans[1:])
