"""How the report writes numbers, names, sentences and verdicts: two decimals, a real minus sign, intervals in brackets.

Hostile text is made fit to be looked at (`visible`). A control character, a bidirectional override, a zero-width sign,
a lone surrogate or a private character is shown by its number, as in `‹U+202E›`; line breaks and tabs stay as they are.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from vestige.artifacts.audits import CLAIMS, STATEMENTS, AuditOutcome, Claim, VerdictLine, by_level
from vestige.artifacts.verdicts import n_facts
from vestige.core.estimates import NO_INTERVAL, Estimate
from vestige.report.evidence import forget_label


def number(x: float) -> str:
    """As in `0.42` or `−0.07`; what rounds to zero has no sign."""
    text = f"{x:.2f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(x: float) -> str:
    """As in `+0.42`, `−0.07` or `0.00`."""
    return f"+{number(x)}" if float(f"{x:.2f}") > 0 else number(x)


def interval(e: Estimate) -> str:
    """As in `[0.36, 0.48]`; the space does not break."""
    if math.isinf(e.low) or math.isinf(e.high):
        return NO_INTERVAL
    return f"[{number(e.low)},\N{NO-BREAK SPACE}{number(e.high)}]"


def ranged(e: Estimate) -> str:
    """As in `0.42 [0.36, 0.48]`."""
    return f"{number(e.value)} {interval(e)}"


def listed(names: list[str]) -> str:
    """As in `a`, `a and b`, or `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def counted(n: int) -> str:
    """A number up to twelve as a word, as in `four`."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    return words[n] if n < len(words) else f"{n:,}"


def plain_number(x: float) -> str:
    """Of any size, as in `0.42`, `−3.14`, `6,120`, `0.003`, `2.4e−12` or `0`."""
    if abs(x) < 0.01:
        return f"{x:.2g}".replace("-", "−")
    return (f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else number(x)).replace("-", "−")


_KEPT = {"\n", "\t"}
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_NOT_ASCII_PRINTABLE = re.compile(r"[^\n\t -~]")


def visible(text: str) -> str:
    """`text` with what acts unseen spelt out; CR LF counts as one line break."""
    return _NOT_ASCII_PRINTABLE.sub(_spelt, text.replace("\r\n", "\n"))


def _spelt(match: re.Match[str]) -> str:
    char = match[0]
    return f"‹U+{ord(char):04X}›" if unicodedata.category(char) in _UNSEEN and char not in _KEPT else char


def named_values(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings, a line each; what is no text as JSON."""
    return [(k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for k, v in values.items()]


def provenance_lines(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's provenance, a line a fact: nested tables as `name: value, name: value`."""
    return [
        (key, ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value))
        for key, value in provenance.items()
    ]


METHOD_NAMES: Mapping[str, tuple[str, str]] = {
    "ga": ("GA", "gradient ascent"),
    "gd": ("GD", "gradient difference"),
    "kl": ("KL", "KL minimization"),
    "idk_gd": ("IDK + GD", "“I don't know” tuning, gradient descent"),
    "dpo": ("DPO", "direct preference optimization"),
    "npo": ("NPO", "negative preference optimization"),
    "npo_gd": ("NPO + GD", "negative preference optimization, gradient descent"),
    "npo_kl": ("NPO + KL", "negative preference optimization, KL term"),
    "llmu": ("LLMU", "large language model unlearning"),
    "rmu": ("RMU", "representation misdirection"),
    "simnpo": ("SimNPO", "simple negative preference optimization"),
    "altpo": ("AltPO", "alternate preference optimization"),
    "wga": ("WGA", "weighted gradient ascent"),
    "satimp": ("SatImp", "saturation and importance weighting"),
    "undial": ("UNDIAL", "self-distillation with adjusted logits"),
    "ce_u": ("CE-U", "cross-entropy unlearning"),
    "pdu": ("PDU", "primal-dual unlearning"),
    "task_arithmetic": ("Task arithmetic", "subtracted task vector"),
    "retrain": ("Retraining", "trained again without the facts"),
    "none": ("No unlearning", "the target as it is"),
    "gakl": ("GA + KL", "gradient ascent, KL term"),
}
"""The short and the full name of every method in `vestige.methods`, which the report may not import."""


def method_name(label: str) -> str:
    """The short name of the method that a model's label begins with, as in `GA` or `GA (seed 1)`; else the label."""
    method, space, rest = label.partition(" ")
    return METHOD_NAMES[method][0] + space + rest if method in METHOD_NAMES else label


def method_in_full(label: str) -> str:
    """The full name of that method, as in `gradient ascent`; "" where the label begins with none."""
    return METHOD_NAMES.get(label.partition(" ")[0], ("", ""))[1]


_ATTACKS = (
    (
        re.compile(r"[Rr]elearn (forget_part|forget|retain|related|unrelated) n=(\d+), searched"),
        r"relearning on \2 \1 items, best run and epoch",
    ),
    (re.compile(r"[Rr]elearn (forget_part|forget|retain|related|unrelated) n=(\d+)"), r"relearning on \2 \1 items"),
    (re.compile(r"[Qq]uantize (\d+) bits"), r"\1-bit weights"),
    (re.compile(r"[Ii]n_context n=(\d+)"), r"\1 facts in the prompt"),
    (re.compile(r"[Gg]cg n=(\d+)"), r"searched suffix for \1 replies"),
    (re.compile(r"[Pp]refix n=(\d+)"), r"searched prefix for \1 replies"),
)
_ONE_WORD = {"prefill": "started answers", "sampling": "sampled answers"}
_FORMATS = {
    "generate": "written answer",
    "forced": "probability of the answer",
    "forced, bits": "probability of the answer, bits",
    "generate_plain": "answer given away",
    "generate_option": "option written out",
    "choose": "option by letter",
    "option_vocab": "option by letter, whole vocabulary",
    "option_text_mean": "likeliest option, per token",
    "option_text_sum": "likeliest option",
    "reversed_choose": "question for the answer",
    "reversed_option_vocab": "question for the answer, whole vocabulary",
    "perturbed": "mistyped question",
    "paraphrase": "other words",
    "few_shot": "after examples",
    "cloze": "gap filled",
    "exposure": "rank among alternatives",
}


_OTHERS = {
    "the evaluation reversed": "reversed questions",
    "the evaluation acr": "compressed answers",
    "the evaluation exposure": "rank among alternatives",
    "the form perturbed": "mistyped questions",
    "the form paraphrase": "questions in other words",
    "the form few_shot": "questions after examples",
    "the form cloze": "gaps to be filled",
    "option_text_mean, picks": "likeliest option picked, per token",
    "option_text_sum, picks": "likeliest option picked",
}


def _one_of(names: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


_FORMAT_IN_TEXT = re.compile(
    # A name of one English word counts as a format only where a sentence puts one: behind "in", a comma or a colon.
    rf"\b({_one_of(name for name in _FORMATS if '_' in name)})\b"
    rf"|(?:(?<=\bin )|(?<=, )|(?<=: )|^)({_one_of(_FORMATS)})(?=[,.;: )]|$)"
)


def plain_sentence(text: str, parties: Mapping[str, str]) -> str:
    """A sentence of an audit with what it calls formats, attacks and contracts in words; `parties` by contract."""
    for name, words in _OTHERS.items():
        text = text.replace(name, words)
    text = re.sub(r"(?<=after )(prefill|sampling)\b", lambda found: _ONE_WORD[found[1]], text)
    text = _FORMAT_IN_TEXT.sub(lambda found: _FORMATS[found[1] or found[2]], attacks_in_words(text))
    if parties:
        text = re.sub(rf"\b(?:edge:)?({_one_of(parties)})\b", lambda found: f"{parties[found[1]]} ({found[1]})", text)
    return text


def attack_name(name: str) -> str:
    """An attack in words, as in `relearning on 30 retain items` or `4-bit weights`; another name as it is."""
    return _ONE_WORD.get(name) or attacks_in_words(name)


def attacks_in_words(text: str) -> str:
    """A sentence with the names of attacks in it put in words."""
    for pattern, words in _ATTACKS:
        text = pattern.sub(lambda found, words=words: _named_attack(found, words), text)  # type: ignore[misc]
    return text


def _named_attack(found: re.Match[str], words: str) -> str:
    name = found.expand(words).replace("forget_part", "other forget")
    return name[:1].upper() + name[1:] if found[0][:1].isupper() else name


def format_name(name: str) -> str:
    """A format of question in words, as in `written answer`; another name as it is."""
    return _FORMATS.get(name, name)


def per_cent(x: float) -> str:
    """A share as in `42 %` or `−7 %`; what rounds to zero has no sign."""
    whole = f"{100 * x:.0f}"
    return f"{'0' if whole == '-0' else whole.replace('-', '−')}\N{NARROW NO-BREAK SPACE}%"


class Span(NamedTuple):
    """A piece of a sentence; `strong` marks a name."""

    text: str
    strong: bool = False


_Words = tuple[str, str]
"""What is said of one model, and of several."""

_FAILING: Mapping[Claim, _Words] = {claim: one.failing for claim, one in STATEMENTS.items() if one.failing}
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
    unsound = any(_is(own, "benchmark valid", "fails") for own in found.values())
    failing = [s for s, own in found.items() if any(_is(own, claim, "fails") for claim in _FAILING)]
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
    for claim in _FAILING:
        for subject, own in found.items():
            if _is(own, claim, "fails"):
                groups.setdefault(_failing(outcome, own[claim]), []).append(subject)
    said: dict[tuple[str, ...], list[str]] = {}
    for words, members in groups.items():
        said.setdefault(tuple(members), []).append(by_level(words[len(members) > 1], outcome.evidence_level))
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
        return STATEMENTS[v.claim].by_facts or _FAILING[v.claim]
    return (STATEMENTS[v.claim].in_bits if v.unit == "bits" else None) or _FAILING[v.claim]


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
