"""An audit's verdicts in words: one sentence that answers for a forget set, and what failing a claim means."""

from collections.abc import Mapping, Sequence

from vestige.artifacts.audits import CLAIMS, AuditOutcome, Claim
from vestige.report.sentences import Span
from vestige.report.words import counted, listed

_FAILED: Mapping[Claim, tuple[str, str]] = {
    "not expressed": ("still expresses it", "still express it"),
    "not recoverable": ("gives it back under attack", "give it back under attack"),
    "not distinguishable": ("can be told from a model that never knew", "can be told from a model that never knew"),
    "kept": ("damages what was to be kept", "damage what was to be kept"),
}
"""What it says of one method, and of several, that a claim fails."""

_UNSOUND = "The benchmark cannot tell, so no method is shown to have forgotten it. Measured on it, "


def audited(outcome: AuditOutcome) -> list[str]:
    """The unlearned models, and those that could not be evaluated and have verdicts that say so."""
    return list(dict.fromkeys([*outcome.unlearned, *(v.subject for v in outcome.verdicts)]))


def verdict_answer(outcome: AuditOutcome) -> tuple[Span, ...]:
    """The sentence that answers for the forget set, whose name stands before it."""
    found = {s: {v.claim: v.outcome for v in outcome.verdicts if v.subject == s} for s in audited(outcome)}
    n = len(found)
    if not n:
        return (Span("No unlearned model was audited."),)
    unsound = any(own.get("benchmark can tell") == "fails" for own in found.values())
    shown = [s for s, own in found.items() if all(own.get(claim) == "holds" for claim in CLAIMS)]
    groups: dict[tuple[Claim, ...], list[str]] = {}
    for subject, own in found.items():
        if subject not in shown:
            failed = tuple(claim for claim in _FAILED if own.get(claim) == "fails")
            groups.setdefault(failed, []).append(subject)
    open_ = groups.pop((), [])
    clauses = [[*_names(members), Span(f" {_failing(failed, len(members))}")] for failed, members in groups.items()]
    if open_:
        clauses.append([Span("for "), *_names(open_), Span(" the evidence does not decide")])
    first = [Span(_UNSOUND)] if unsound else _success(shown, n)
    spans = list(first)
    for i, clause in enumerate(clauses):
        spans += [Span("" if unsound and not i else "; "), *clause]
    return tuple(s for s in (*spans, Span(".")) if s.text)


def _success(shown: Sequence[str], n: int) -> list[Span]:
    if shown:
        whole = Span(f"Of {counted(n)} methods, ") if n > 1 else Span("")
        verb = "is" if len(shown) == 1 else "are"
        return [whole, *_names(shown), Span(f" {verb} shown to have forgotten it, within the margins below")]
    if n == 1:
        return [Span("The one method here is not shown to have forgotten it")]
    return [Span(f"None of {counted(n)} methods is shown to have forgotten it")]


def _failing(failed: Sequence[Claim], n: int) -> str:
    return listed([_FAILED[claim][n > 1] for claim in failed])


def _names(subjects: Sequence[str]) -> list[Span]:
    spans = []
    for i, subject in enumerate(subjects):
        if i:
            spans.append(Span(" and " if i == len(subjects) - 1 else ", "))
        spans.append(Span(subject, strong=True))
    return spans
