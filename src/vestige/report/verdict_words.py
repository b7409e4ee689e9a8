"""An audit's verdicts in words: the question that the page opens with, and the sentences that answer it."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vestige.artifacts.audits import CLAIMS, AuditOutcome, Claim, VerdictLine
from vestige.artifacts.verdicts import n_facts
from vestige.report.evidence import forget_label
from vestige.report.words import counted, listed, method_name


class Span(NamedTuple):
    """A piece of a sentence; `strong` marks a name."""

    text: str
    strong: bool = False


_Words = tuple[str, str]
"""What is said of one model, and of several."""

_IN_SHARES: Mapping[Claim, _Words] = {
    "not expressed": (
        "still answers what a model that never knew does not",
        "still answer what models that never knew do not",
    ),
    "not recoverable": ("gives answers back under attack", "give answers back under attack"),
    "not distinguishable": ("can be told from a model that never knew", "can be told from models that never knew"),
    "kept": ("damages what was to be kept", "damage what was to be kept"),
}
_IN_BITS: Mapping[Claim, _Words] = {
    "not expressed": (
        "finds the answers likelier than a model that never knew",
        "find the answers likelier than models that never knew",
    ),
    "not recoverable": (
        "finds the answers likelier again after an attack",
        "find the answers likelier again after an attack",
    ),
}
_BY_FACTS: Mapping[Claim, _Words] = {
    "not expressed": ("gives single facts away", "give single facts away"),
    "not recoverable": ("gives single facts back under attack", "give single facts back under attack"),
}
_AGAINST: Mapping[str, _Words] = {
    "alternatives": ("still prefers the true answers to others", "still prefer the true answers to others"),
    "chance": ("still answers more than guessing would", "still answer more than guessing would"),
}
"""Of "not expressed", where no model that never knew was there to compare with."""
_UNSOUND = "Not known: this benchmark cannot tell a model that knows from one that never did. Measured on it, "
_PASSES = " passes every test, within the margins below", " pass every test, within the margins below"


def audited(outcome: AuditOutcome) -> list[str]:
    """The unlearned models, and those that could not be evaluated and have verdicts that say so."""
    return list(dict.fromkeys([*outcome.unlearned, *(v.subject for v in outcome.verdicts)]))


def methods_of(outcome: AuditOutcome) -> list[str]:
    """The models that the question is about: all that were audited but those that were retrained, if there are others.

    A model that was retrained without the forget set stands among the others to show that the audit lets it pass.
    """
    every = audited(outcome)
    return [one for one in every if one not in outcome.references] or every


def question(outcome: AuditOutcome, n_edges: int | None, label: str = "") -> str:
    """What the page answers, as in `Has any of four models forgotten A_B + A_C, and nothing else?`.

    `n_edges` is the number of contracts that are to be forgotten; None where it is not about contracts. `label` is what
    the forget set is called, which is its selector where nothing is given.
    """
    n = len(methods_of(outcome))
    label = label or forget_label(outcome.forget)
    what = f"the items of {label}" if "." in label else label
    if n_edges is not None:
        one = f"the contract between {label}" if " and " in label else f"the contract {label}"
        what = f"{counted(n_edges)} contracts" if n_edges > 1 else one
    who = f"any of {counted(n)} models" if n > 1 else "the model"
    return f"Has {who} forgotten {what}, and nothing else?"


def verdict_answer(outcome: AuditOutcome) -> tuple[Span, ...]:
    """The sentences that answer it, for somebody who reads nothing else."""
    methods = methods_of(outcome)
    if not methods:
        return (Span("No unlearned model was audited."),)
    found = {s: {v.claim: v for v in outcome.verdicts if v.subject == s} for s in methods}
    shown = [s for s, own in found.items() if _passes(own)]
    unsound = any(_is(own, "benchmark can tell", "fails") for own in found.values())
    failing = [s for s, own in found.items() if any(_is(own, claim, "fails") for claim in _IN_SHARES)]
    open_ = [s for s in methods if s not in shown and s not in failing]
    lead = _UNSOUND if unsound else "Yes: " if shown else "No. " if not open_ else "Not shown. "
    clauses = [[*_names(shown), Span(_PASSES[len(shown) > 1])]] if shown and not unsound else []
    clauses += _failures(outcome, found)
    if open_:
        clauses.append([Span("for "), *_names(open_), Span(" the evidence does not decide")])
    spans = [Span(lead, strong=not unsound)]
    for i, clause in enumerate(clauses):
        spans += [Span("; ") if i else Span(""), *clause]
    return tuple(s for s in (*_capitalised(spans), Span("."), *_references(outcome)) if s.text)


def _passes(own: Mapping[Claim, VerdictLine]) -> bool:
    return all(_is(own, claim, "holds") for claim in CLAIMS)


def _is(own: Mapping[Claim, VerdictLine], claim: Claim, what: str) -> bool:
    return claim in own and own[claim].outcome == what


def _failures(outcome: AuditOutcome, found: Mapping[str, Mapping[Claim, VerdictLine]]) -> list[list[Span]]:
    """What fails, a clause for those models of which the same is said; a claim fails by answers, bits or facts."""
    groups: dict[_Words, list[str]] = {}
    for claim in _IN_SHARES:
        for subject, own in found.items():
            if _is(own, claim, "fails"):
                groups.setdefault(_failing(outcome, own[claim]), []).append(subject)
    said: dict[tuple[str, ...], list[str]] = {}
    for words, members in groups.items():
        said.setdefault(tuple(members), []).append(words[len(members) > 1])
    clauses = []
    for named, parts in said.items():
        every = "both" if len(found) == 2 else f"all {counted(len(found))}"
        who = [Span(every)] if 1 < len(named) == len(found) else _names(named)
        clauses.append([*who, Span(f" {listed(parts)}")])
    return clauses


def _failing(outcome: AuditOutcome, v: VerdictLine) -> _Words:
    """In the words of the unit that decides: "answers" are for answers."""
    if v.claim == "not expressed" and v.against in _AGAINST:
        return _AGAINST[v.against]
    if v.decides is None and n_facts(outcome, v):
        return _BY_FACTS.get(v.claim, _IN_SHARES[v.claim])
    return (_IN_BITS if v.unit == "bits" else _IN_SHARES).get(v.claim, _IN_SHARES[v.claim])


def _references(outcome: AuditOutcome) -> list[Span]:
    """Whether the models that were retrained without the forget set pass, as they should."""
    references = [s for s in outcome.references if s not in methods_of(outcome)]
    if not references:
        return []
    verdicts = {s: {v.claim: v for v in outcome.verdicts if v.subject == s} for s in references}
    one = len(references) == 1
    who = (
        " The model that was retrained without the facts"
        if one
        else " The models that were retrained without the facts"
    )
    if all(_passes(own) for own in verdicts.values()):
        return [Span(f"{who} {'passes' if one else 'pass'} every test.")]

    def claims_that(what: Callable[[VerdictLine], bool]) -> list[str]:
        return [claim for claim in CLAIMS if any(claim in own and what(own[claim]) for own in verdicts.values())]

    failed = claims_that(lambda v: v.outcome == "fails")
    if failed:
        verb = "fails" if one else "fail"
        return [Span(f"{who} {verb} too ({listed(failed)}), so this audit accuses models that are innocent.")]
    still_open = claims_that(lambda v: v.outcome == "inconclusive")
    return [Span(f"{who} {'is' if one else 'are'} not accused of anything, but not cleared of {listed(still_open)}.")]


def _names(subjects: Sequence[str]) -> list[Span]:
    spans = []
    for i, subject in enumerate(subjects):
        if i:
            spans.append(Span(" and " if i == len(subjects) - 1 else ", "))
        spans.append(Span(method_name(subject), strong=True))
    return spans


def _capitalised(spans: Sequence[Span]) -> list[Span]:
    """The sentence after its lead with a capital, unless it begins with a name."""
    first, *rest = [span for span in spans if span.text]
    if rest and not rest[0].strong and first.text.endswith(". "):
        rest[0] = Span(rest[0].text[:1].upper() + rest[0].text[1:])
    return [first, *rest]
