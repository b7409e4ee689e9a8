"""How the report writes numbers, names, sentences and verdicts: two decimals, a minus sign, intervals in brackets."""

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from vestige.artifacts.audits import (
    CLAIMS,
    FROM_LOGS,
    NO_ATTACK,
    REQUIRED,
    STATEMENTS,
    AuditOutcome,
    Claim,
    GroupLine,
    Outcome,
    VerdictLine,
    by_level,
)
from vestige.artifacts.verdicts import facts_said, lacks_scores, logs_said, possible, sized, tested_claims
from vestige.core.estimates import NO_INTERVAL, Estimate
from vestige.core.items import QUESTION_FORMS
from vestige.core.text import Record, TextByName, TextMapping, TextTuple, grouped
from vestige.report.evidence import forget_label


def number(x: float) -> str:
    """Return a number, as in `0.42` or `−0.07`. Values that round to zero have no sign."""
    text = f"{x:.2f}"
    if float(text) == 0:
        return text.lstrip("-")
    return text.replace("-", "−")


def signed(x: float) -> str:
    """Return a signed number, as in `+0.42`, `−0.07` or `0.00`."""
    if float(f"{x:.2f}") > 0:
        return f"+{number(x)}"
    return number(x)


def interval(e: Estimate) -> str:
    """Return an interval, as in `[0.36, 0.48]`. The space does not break."""
    if math.isinf(e.low) or math.isinf(e.high):
        return NO_INTERVAL
    return f"[{number(e.low)},\N{NO-BREAK SPACE}{number(e.high)}]"


def ranged(e: Estimate) -> str:
    """Return a value with its interval, as in `0.42 [0.36, 0.48]`."""
    return f"{number(e.value)} {interval(e)}"


def listed(names: Sequence[str]) -> str:
    """Return a list in words, as in `a`, `a and b`, or `a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def counted(n: int) -> str:
    """A number up to twelve as a word, as in `four`."""
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    if n < len(words):
        return words[n]
    return f"{n:,}"


def plain_number(x: float) -> str:
    """Return a number of any size, as in `0.42`, `−3.14`, `6,120`, `0.003`, `2.4e−12` or `0`."""
    if abs(x) < 0.01:
        return f"{x:.2g}".replace("-", "−")
    return (f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else number(x)).replace("-", "−")


def named_values(values: Record) -> list[tuple[str, str]]:
    """Settings, a line each. Other values than text are JSON."""
    return [(k, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for k, v in values.items()]


def provenance_lines(provenance: Record) -> list[tuple[str, str]]:
    """The run's provenance, a line a fact: nested tables as `name: value, name: value`."""
    return [
        (key, ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value))
        for key, value in provenance.items()
    ]


WORDS_OF: Mapping[str, Record] = tomllib.loads((files("vestige.report") / "words.toml").read_text(encoding="utf-8"))
"""Names and words of words.toml by kind: methods, formats, others, meanings, margins."""
METHOD_NAMES: Mapping[str, tuple[str, str]] = WORDS_OF["methods"]


def method_name(label: str) -> str:
    """Return the method that a model's label begins with (`GA (seed 1)`: GA), otherwise the label."""
    method, space, rest = label.partition(" ")
    if method in METHOD_NAMES:
        return METHOD_NAMES[method][0] + space + rest
    return label


def method_in_full(label: str) -> str:
    """Return the full name of a method, as in `gradient ascent`, or "" if the label begins with none."""
    return METHOD_NAMES.get(label.partition(" ")[0], ("", ""))[1]


# The order matters: the second pattern also matches the first's texts, and would leave ", searched" behind.
_ATTACKS = (
    (
        re.compile(r"[Rr]elearn (forget_part|forget|retain|related|unrelated) n=(\d+), searched"),
        r"relearning on \2 \1 items, best run and epoch",
    ),
    (re.compile(r"[Rr]elearn (forget_part|forget|retain|related|unrelated) n=(\d+)"), r"relearning on \2 \1 items"),
    (re.compile(r"[Aa]blate n=(\d+)"), r"a direction taken out (of \1 questions)"),
    (re.compile(r"[Qq]uantize (\d+) bits"), r"\1-bit weights"),
    (re.compile(r"[Ii]n_context n=(\d+)"), r"\1 facts in the prompt"),
    (re.compile(r"[Gg]cg n=(\d+)"), r"searched suffix for \1 replies"),
    (re.compile(r"[Pp]refix n=(\d+)"), r"searched prefix for \1 replies"),
)
_ONE_WORD = {"prefill": "started answers", "sampling": "sampled answers"}
_FORM_WORDS = {name: form.words for name, form in QUESTION_FORMS.items() if form.words and name != "plain"}
_FORMATS: TextByName = {**WORDS_OF["formats"], **_FORM_WORDS}
_OTHERS = {**{f"the form {name}": words for name, words in _FORM_WORDS.items()}, **WORDS_OF["others"]}


def _one_of(names: Iterable[str]) -> str:
    # The longest comes first: a pattern takes the first match, and one name may be the beginning of another.
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


_FORMAT_IN_TEXT = re.compile(
    # A one-word name counts as a format only in the usual places: after "in", a comma or a colon.
    rf"\b({_one_of(name for name in _FORMATS if '_' in name)})\b"
    rf"|(?:(?<=\bin )|(?<=, )|(?<=: )|^)({_one_of(_FORMATS)})(?=[,.;: )]|$)"
)


def plain_sentence(text: str, parties: TextMapping) -> str:
    """Return an audit's sentence with formats, attacks and contracts in words. `parties` by contract."""
    for name, words in _OTHERS.items():
        text = text.replace(name, words)
    text = re.sub(r"(?<=after )(prefill|sampling)\b", lambda match: _ONE_WORD[match[1]], text)
    text = _FORMAT_IN_TEXT.sub(lambda match: _FORMATS[match[1] or match[2]], attacks_in_words(text))
    if parties:
        text = re.sub(rf"\b(?:edge:)?({_one_of(parties)})\b", lambda match: f"{parties[match[1]]} ({match[1]})", text)
    return text


def attack_name(name: str) -> str:
    """Return an attack in words, such as `relearning on 30 retain items`. An unknown name is unchanged."""
    return _ONE_WORD.get(name) or attacks_in_words(name)


def attacks_in_words(text: str) -> str:
    """A sentence with the names of attacks in it put in words."""
    for pattern, words in _ATTACKS:
        text = pattern.sub(lambda match, words=words: _named_attack(match, words), text)  # type: ignore[misc]
    return text


def _named_attack(match: re.Match[str], words: str) -> str:
    name = match.expand(words).replace("forget_part", "other forget")
    if match[0][:1].isupper():
        return name[:1].upper() + name[1:]
    return name


def format_name(name: str) -> str:
    """Return a question format in words, such as `written answer`. An unknown name is unchanged."""
    return _FORMATS.get(name, name)


def group_said(g: GroupLine) -> str:
    """Return the remainder of one contract or person, as in `40 % left (22 % to 51 %), written answer`."""
    size = possible(g.size)
    value, low, high = (sized(x, size.unit) for x in (size.value, size.low, size.high))
    return f"{value} {'likelier' if g.size.unit == 'bits' else 'left'} ({low} to {high}), {format_name(g.by)}"


def typeset(text: str) -> str:
    """Numbers as the page sets them: a real minus sign, and no line break before per cent."""
    return _MINUS.sub("−", text).replace(" %", "\N{NARROW NO-BREAK SPACE}%")


# A hyphen within a word, as in `llama-3.2-1b`, is not a minus.
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def share_said(e: Estimate) -> str:
    """A share of the target's knowledge, as in `42 %`: at most all of it."""
    return per_cent(possible(e).value)


def per_cent(x: float) -> str:
    """A share as in `42 %` or `−7 %`."""
    return typeset(sized(x, "share"))


class Span(NamedTuple):
    """A piece of a sentence. `strong` marks a name."""

    text: str
    strong: bool = False


Claims = Mapping[Claim, VerdictLine]
"""The verdicts on one model."""

_Words = tuple[str, str]
"""Phrases for one model, and for several."""

_FAILING: Mapping[Claim, _Words] = {name: claim.failing for name, claim in STATEMENTS.items() if claim.failing}
_AGAINST: Mapping[str, _Words] = {
    "chance": ("still answers more than guessing would", "still answer more than guessing would")
}
"""For "not expressed" without controls."""
_PASSES = "passes every test, within the margins below", "pass every test, within the margins below"
_PASSES_LOGS = (
    "passes what logs can show, within the margins below",
    "pass what logs can show, within the margins below",
)
_TESTED = "as far as was tested"


def reasoning_only(outcome: AuditOutcome) -> list[str]:
    """A sentence for each model that leaks in its reasoning and is not shown to leak in the answer after it."""
    left = {(c.subject, c.format): c.leakage for c in outcome.matrix if c.leakage is not None}
    # Logs can be judged without given margins.
    margin = float(outcome.thresholds.get("delta", math.inf))
    sentences = []
    for subject in outcome.audited:
        worse, answer = left.get((subject, "reasoning")), left.get((subject, "reasoning_answer"))
        if worse is None or answer is None:
            continue
        if answer.low <= margin < worse.low and answer.value < worse.low:
            sentences.append(
                f"{method_name(subject)} leaks in its reasoning only: {share_said(worse)} left in its "
                f"reasoning, {per_cent(answer.value)} in the answer after it (at most {per_cent(answer.high)}). The "
                "format written answer reads the whole reply, with the reasoning."
            )
    return sentences


NAMED = 3
"""The number of people that a headline names."""


def people_said(people: Mapping[str, int]) -> str:
    """Return the people whose facts were to be forgotten, as in `Ana Ruiz (10 facts)`, or "".

    Args:
        people: The number of facts to be forgotten by person.
    """
    if len(people) > NAMED:
        first = ", ".join([*people][: NAMED - 1])
        return f"{first} and {len(people) - NAMED + 1} more ({sum(people.values()):,} facts)"
    return listed([f"{person} ({n:,} fact{'s' if n != 1 else ''})" for person, n in people.items()])


def headline(
    outcome: AuditOutcome, n_edges: int | None = None, label: str = "", people: Mapping[str, int] = MappingProxyType({})
) -> str:
    """Return the answer in a sentence, such as "None of the four models has forgotten the five contracts".

    A model that passes every test has forgotten. One that still answers or gives back has not. A submitted model that
    was retrained without the facts had nothing to forget and is not counted among others. `n_edges` is the number
    of contracts that were to be forgotten, None where it is not about contracts. `label` is the forget set's name, its
    selector by default. `people` (facts by person) replace it.
    """
    verdicts = {subject: claims for subject, claims in _by_model(outcome).items() if subject in submitted(outcome)}
    n, label = len(verdicts), label or forget_label(outcome.forget)
    if not n:
        return "No unlearned model was audited."
    if outcome.evidence_level in FROM_LOGS:
        answer, _ = logs_said(outcome)
        return f"{people_said(people) or label}: {answer}"
    forgotten = _forgotten(label, n_edges, people)
    model = method_name(next(iter(verdicts)))
    kind = models_said(outcome)
    models = f"the {counted(n)} {kind}"
    # This comes first: if the questions cannot separate models, no other answer has a meaning.
    if any(_is(claims, "benchmark valid", "fails") for claims in verdicts.values()):
        if n > 1:
            model = f"any of {models}"
        return f"This benchmark cannot tell whether {model} has {forgotten}."
    if "model" not in model.lower():
        model = f"Model {model}"
    n_passing = len(_forgetting(outcome))
    n_knowing = sum(
        any(_is(claims, claim, "fails") for claim in ("not expressed", "not recoverable"))
        for claims in verdicts.values()
    )
    if n == 1:
        if n_passing:
            return f"{model} has {forgotten}, {_TESTED}."
        if n_knowing:
            return f"{model} has not {forgotten}."
        return f"{model} is not shown to have {forgotten}."
    if n_passing == 1:
        return f"One of {models} has {forgotten}, {_TESTED}."
    if n_passing:
        passing = f"{counted(n_passing).capitalize()} of {models}"
        if n_passing == n:
            passing = f"{'Both' if n == 2 else f'All {counted(n)}'} {kind}"
        return f"{passing} have {forgotten}, {_TESTED}."
    none = {2: "Neither"}.get(n, "None") + f" of {models}"
    if n_knowing == n:
        return f"{none} has {forgotten}."
    rest = {0: "", 1: " One has not."}.get(n_knowing, f" {counted(n_knowing).capitalize()} have not.")
    return f"{none} is shown to have {forgotten}.{rest}"


def _forgotten(label: str, n_edges: int | None, people: Mapping[str, int]) -> str:
    """The people, contracts or items to forget, as the end of the headline."""
    if people:
        return f"forgotten {people_said(people)}"
    if n_edges is not None and n_edges > 1:
        return f"forgotten the {counted(n_edges)} contracts"
    if n_edges is not None and " and " in label:
        return f"forgotten the contract between {label}"
    if n_edges is not None:
        return f"forgotten the contract {label}"
    # A name with a dot is that of a file, and no file was forgotten.
    if "." in label:
        return f"forgotten the items of {label}"
    return f"forgotten {label}"


def headline_of_several(outcomes: Sequence[AuditOutcome]) -> str:
    """Return the answer if several forget sets were audited."""
    n = len(outcomes)
    n_forgotten = sum(bool(_forgetting(outcome)) for outcome in outcomes)
    if not n_forgotten:
        return f"None of {counted(n)} forget sets is shown to have been forgotten by any model."
    return f"Of {counted(n)} forget sets, {counted(n_forgotten)} passed for at least one model, {_TESTED}."


def _by_model(outcome: AuditOutcome) -> Mapping[str, Claims]:
    """The verdicts on each model that the audit is about."""
    by_model: dict[str, dict[Claim, VerdictLine]] = {subject: {} for subject in outcome.audited}
    for verdict in outcome.verdicts:
        by_model[verdict.subject][verdict.claim] = verdict
    return by_model


def next_steps(outcome: AuditOutcome) -> TextByName:
    """The next step by model: release it, improve the evidence, or unlearn again."""
    steps = {}
    for subject, claims in _by_model(outcome).items():
        failed = [claim for claim, v in claims.items() if v.outcome == "fails"]
        undecided = [claim for claim, v in claims.items() if v.outcome == "inconclusive"]
        if "benchmark valid" in failed:
            step = "these questions cannot decide. Write others (vestige check-data), then audit again."
        elif failed:
            step = "do not release as forgotten. Unlearn again or retrain without the facts, then audit again."
        elif undecided:
            needed = next((claims[claim].needed for claim in undecided if claims[claim].needed), "")
            add = f"add {needed}; " if needed else ""
            if any(lacks_scores(claims[claim]) for claim in undecided):
                add = "evaluate all models in the same scores; "
            step = f"open are {listed(undecided)}. To decide, {add}vestige audit --plan prints the evidence needed."
        else:
            step = "keep the evidence with the model, and audit again when the model changes."
        steps[subject] = step
    return steps


def next_said(outcome: AuditOutcome) -> str:
    """The next steps in one line, each after the models that it is for."""
    steps = next_steps(outcome)
    parts = ["Next."]
    for step, subjects in grouped(submitted(outcome), steps.__getitem__).items():
        names = [*map(method_name, subjects)]
        if len(names) > NAMED:
            names = [f"{len(names)} models"]
        parts.append(f"{listed(names)}: {step}")
    return " ".join(parts)


def models_said(outcome: AuditOutcome) -> str:
    """The noun for the models of `submitted`, where retrained ones stand beside them."""
    return "unlearned models" if len(submitted(outcome)) < len(outcome.audited) else "models"


def submitted(outcome: AuditOutcome) -> TextTuple:
    """The models that were made to forget: without the retrained ones, unless there are no others."""
    return tuple(s for s in outcome.audited if s not in outcome.references) or outcome.audited


def _forgetting(outcome: AuditOutcome) -> list[str]:
    own = submitted(outcome)
    return [subject for subject in _passing(outcome) if subject in own]


def _passing(outcome: AuditOutcome) -> list[str]:
    """The models that pass every claim, or of logs every claim that was tested."""
    if outcome.evidence_level in FROM_LOGS:
        tested = tested_claims(outcome)
        return [name for name, lines in tested.items() if all(line.outcome == "holds" for line in lines)]
    return [subject for subject, claims in _by_model(outcome).items() if _passes(claims)]


def verdict_answer(outcome: AuditOutcome) -> tuple[Span, ...]:
    """The passing, failing and inconclusive models, below the headline."""
    verdicts = _by_model(outcome)
    if not verdicts:
        return ()
    # A pass has no value if the questions cannot separate models.
    unsound = any(_is(claims, "benchmark valid", "fails") for claims in verdicts.values())
    passing = _passing(outcome)
    failing = [s for s, claims in verdicts.items() if any(_is(claims, claim, "fails") for claim in _FAILING)]
    open_ = [s for s in verdicts if s not in passing and s not in failing]
    passes = _PASSES
    if outcome.evidence_level in FROM_LOGS:
        passes = _PASSES_LOGS
    clauses = []
    if passing and not unsound:
        clauses.append([*_names(passing), Span(f" {passes[len(passing) > 1]}")])
    clauses += _failures(outcome, verdicts)
    if open_:
        clauses.append([Span("for "), *_names(open_), Span(" the evidence does not decide")])
    spans: list[Span] = []
    for clause in clauses:
        if spans:
            spans.append(Span("; "))
        spans += clause
    if unsound:
        spans.insert(0, Span("Measured on it, "))
    # The sentence gets a capital, unless it begins with a name.
    if spans and not spans[0].strong:
        spans[0] = Span(spans[0].text[:1].upper() + spans[0].text[1:])
    return (*spans, Span("."), *_accused(outcome))


def _passes(claims: Claims) -> bool:
    return all(_is(claims, claim, "holds") for claim in {*REQUIRED, *claims})


def _is(claims: Claims, claim: Claim, result: Outcome) -> bool:
    return claim in claims and claims[claim].outcome == result


def _failures(outcome: AuditOutcome, verdicts: Mapping[str, Claims]) -> list[list[Span]]:
    """Return the failures, a clause for models with equal failures. A claim fails by answers, bits or facts."""
    groups: dict[_Words, list[str]] = {}
    for claim in _FAILING:
        for subject, claims in verdicts.items():
            # Knowledge without an attack is reported by "not expressed".
            if _is(claims, claim, "fails") and not (claims[claim].decides or "").startswith(NO_ATTACK):
                groups.setdefault(_failing(outcome, claims[claim]), []).append(subject)
    words_of: dict[TextTuple, list[str]] = {}
    for words, members in groups.items():
        words_of.setdefault(tuple(members), []).append(by_level(words[len(members) > 1], outcome.evidence_level))
    clauses = []
    for subjects, parts in words_of.items():
        names = _names(subjects)
        if 1 < len(subjects) == len(verdicts):
            names = [Span({2: "both"}.get(len(subjects), f"all {counted(len(subjects))}"))]
        clauses.append([*names, Span(f" {listed(parts)}")])
    return clauses


def _failing(outcome: AuditOutcome, v: VerdictLine) -> _Words:
    """Return the words for the deciding unit: "answers" are for answers."""
    if v.claim == "not expressed" and v.against in _AGAINST:
        return _AGAINST[v.against]
    # Single facts decide if no level is shown to be above the margin.
    if v.decides is None and facts_said(outcome, v):
        return STATEMENTS[v.claim].by_facts or _FAILING[v.claim]
    return (STATEMENTS[v.claim].in_bits if v.unit == "bits" else None) or _FAILING[v.claim]


def _accused(outcome: AuditOutcome) -> list[Span]:
    """Return the warning if a model that was retrained without the forget set fails: it should pass."""
    of_references = {v.claim for v in outcome.verdicts if v.outcome == "fails" and v.subject in outcome.references}
    failed = [claim for claim in CLAIMS if claim in of_references]
    if not failed:
        return []
    return [
        Span(
            f" A model that was retrained without the facts fails {listed(failed)}: this audit accuses innocent models."
        )
    ]


def _names(subjects: Sequence[str]) -> list[Span]:
    spans = []
    for i, subject in enumerate(subjects):
        if i:
            spans.append(Span(" and " if i == len(subjects) - 1 else ", "))
        spans.append(Span(method_name(subject), strong=True))
    return spans
