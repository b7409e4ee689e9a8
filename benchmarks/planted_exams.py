"""The audits that `benchmarks.planted` counts: whole audits of stated power, and exams.

- `power`: what is to be decided, and in which share of audits (`Bar`).
- `exams`: answers that an attack carries in, repaired answers, formats that give away, orders that turn.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from benchmarks.planted_cases import COINS, FORMATS, PREFERS, QUANTIZE, RELEARN, Attack, Exam, Planted
from vestige.artifacts.audits import REQUIRED, AuditOutcome, Claim
from vestige.metrics.verdicts import Thresholds

Truth = dict[Claim, bool | None]
ALL: Truth = dict.fromkeys(REQUIRED, True)
ALL_FIVE = "all five"
"""Stands for a claim: that every claim holds."""

PREFIX = Attack("in_context n=8", "in_context", "retain", injects=0.3, same_items=True)
ANSWERS = Attack("in_context n=8", "in_context", "retain", injects=0.9, same_items=True)
"""A prefix that contains three answers in ten, and nine."""
CEILING = Attack(
    "relearn forget n=50", "relearn", "forget", points=3, injects=0.5, injects_others=0.95, shows_answers=True
)
"""Relearning on the forget items themselves, from which unlearned models learn faster than `retrained` does."""
GIVEN_AWAY = Attack("relearn retain n=50", "relearn", "retain", points=3, injects=0.4, brings_back=True)
NULLS = tuple(Attack(f"null {n}", "quantize", "nothing") for n in range(1, 6))


class Check(NamedTuple):
    """Something that an outcome must show of a planted audit."""

    subject: str
    said: str
    seen: Callable[[AuditOutcome], bool]


class Bar(NamedTuple):
    """An audit and the share of repetitions in which its subject's claim is to come out as it is true.

    With `beside`, another audit's name, no less than five points below that one's share. `planned` are those whose
    power a plan foresees: of what is left in means, not of single facts.
    """

    exam: Exam
    claim: str
    share: float | None
    beside: str = ""
    planned: bool = True


def powers() -> Iterator[Bar]:
    """What whole audits are to decide, and what they decide besides (without a share)."""
    default = Thresholds()
    false: Truth = {"not expressed": False}

    def made(name: str, planted: Planted, **how: Any) -> Exam:
        return replace(Exam(name, (planted,), default, n_items=40, n_controls=5), **how)

    for form in FORMATS:
        left = Planted("knows 0.3", false, leak={form: 0.3})
        yield Bar(made(f"0.3 left in {form} alone", left), "not expressed", 0.8)
    left = Planted("knows 0.3", false, leak={"option_text_mean": 0.3})
    for wordings in (1, 3):
        name = f"0.3 left in option_text_mean alone, each training guesses anew, {wordings} wordings"
        yield Bar(made(name, left, options=COINS, wordings=wordings), "not expressed", None)
    stated = Planted("knows 5 %", false, leak=dict.fromkeys(FORMATS, 0.05), hides=True)
    for controls, share in ((5, 0.9), (3, None), (10, None)):
        name = f"5 of 100 facts word for word, {controls} controls"
        yield Bar(made(name, stated, n_items=100, n_controls=controls), "not expressed", share, planned=False)
    perfect = Planted("never knew", ALL)
    both = (RELEARN, QUANTIZE)
    for wordings, controls, options, share in (
        (3, 5, PREFERS, 0.8),
        (3, 3, PREFERS, None),
        (1, 5, PREFERS, None),
        (1, 3, PREFERS, None),
        (3, 5, COINS, None),
        (1, 5, COINS, None),
    ):
        anew = ", each training guesses options anew" if options == COINS else ""
        name = f"perfect unlearning, {wordings} wordings, {controls} controls{anew}"
        exam = made(name, perfect, wordings=wordings, n_controls=controls, options=options, attacks=both)
        yield Bar(exam, ALL_FIVE, share)
    # Neither verdict is true of what an attack that does nothing leaves: it must not hold.
    untold = Planted("never knew", {"not recoverable": None})
    yield Bar(made("attacks that do nothing", untold, attacks=NULLS[:2]), "not recoverable", None, planned=False)
    back = Planted("suppressed 0.3", {"not recoverable": False}, back=0.3)
    alone = "0.3 brought back by one attack"
    yield Bar(made(alone, back, attacks=(RELEARN,)), "not recoverable", None, planned=False)
    name = "0.3 brought back by one attack, beside five that do nothing"
    yield Bar(made(name, back, attacks=(RELEARN, *NULLS)), "not recoverable", None, alone, planned=False)


def asked(thresholds: Thresholds) -> tuple[Planted, ...]:
    """Subjects for what is found by asking: expressed, distinguishable, kept."""
    everywhere = dict.fromkeys(FORMATS, 1.0)
    kept: Claim = "utility preserved"
    known: Truth = {"not expressed": False, "indistinguishable": False}
    told: Truth = {"not expressed": True, "indistinguishable": False}

    def stake(claim: Claim, effect: float) -> Truth:
        # Between the margins either verdict may be given.
        if thresholds.delta < effect < thresholds.delta_wide:
            return {}
        return {claim: effect <= thresholds.delta}

    return (
        Planted("never knew", {"not expressed": True, "indistinguishable": True, kept: True}),
        Planted("knows all", known, leak=everywhere),
        Planted("knows 0.3", known, leak=dict.fromkeys(FORMATS, 0.3)),
        Planted("knows 0.3 by option only", stake("not expressed", 0.3), leak={"option_text_mean": 0.3}),
        Planted("knows 0.5 by option only", known, leak={"option_text_mean": 0.5}),
        Planted("knows the wide margin", {"not expressed": False}, leak={"generate": thresholds.delta_wide}),
        Planted("knows 5 % word for word", {"not expressed": False}, leak=dict.fromkeys(FORMATS, 0.05), hides=True),
        Planted("refuses", told, avoid={"generate": 1.0, "paraphrase": 1.0}, avoid_bits=15.0),
        Planted("over-forgotten", told, avoid_bits=10.0),
        *(
            Planted(f"told by membership, AUC + {auc:g}", stake("indistinguishable", auc), auc=auc)
            for auc in (0.1, 0.2)
        ),
        Planted("harms 0.15", stake(kept, 0.15), harm=0.15),
        Planted("harms 0.3", {kept: False}, harm=0.3),
    )


def attacked() -> tuple[Planted, ...]:
    """Subjects for what attacks bring back."""
    back: Truth = {"not expressed": True, "not recoverable": False, "benchmark valid": True}
    gone: Truth = {"not recoverable": True, "benchmark valid": True}
    return (
        Planted("never knew", gone),
        # Whoever attacks a model has its plain answers too.
        Planted("knows 0.3 and no more", gone | {"not recoverable": False}, leak=dict.fromkeys(FORMATS, 0.3)),
        Planted("over-forgotten, then repaired", gone, avoid={"generate": 0.8}, avoid_bits=10.0, repaired=True),
        Planted("suppressed 0.5", back, back=0.5),
    )


def exams(n: int, controls: int, thresholds: Thresholds) -> tuple[Exam, ...]:
    """Every audit at one number of forget items and of controls."""
    nothing_said: Truth = {"not recoverable": None}
    neither: Truth = {"not expressed": None, "benchmark valid": False}
    broken: Truth = {"not recoverable": True, "benchmark valid": False}
    half = {"generate": 0.6, "forced": 0.6}
    methods = (
        Planted("says it", {}, leak=half),
        Planted("says it too", {}, leak=half),
        Planted("picks it", {}, leak={"option_text_mean": 0.6}),
    )
    made = partial(Exam, n_items=n, n_controls=controls, thresholds=thresholds)
    return (
        made("asked", asked(thresholds)),
        made("attacked", attacked(), attacks=(RELEARN, PREFIX)),
        made("answers carried in", (Planted("never knew", nothing_said),), attacks=(ANSWERS, CEILING)),
        made("retain set gives away", (Planted("never knew", broken),), attacks=(GIVEN_AWAY,)),
        made("options give away", (Planted("never knew", {}),), given_away=frozenset({"option_text_mean"})),
        made("all gives away", (Planted("never knew", neither),), given_away=frozenset(FORMATS)),
        made("reversed", methods),
    )


def checks(exam: str) -> tuple[Check, ...]:
    """What else an outcome must show."""
    chosen = Check("target", "choose is not admitted", lambda o: not _admitted(o, "choose"))
    no_evidence = Check("all", "no carried answer is evidence", lambda o: not any(g.evidence for g in o.gains))
    return {
        "asked": (
            chosen,
            Check("target", "four formats are admitted", lambda o: all(_admitted(o, f) for f in FORMATS)),
        ),
        "answers carried in": (no_evidence,),
        "options give away": (
            Check("target", "options are not admitted", lambda o: not _admitted(o, "option_text_mean")),
        ),
        "reversed": (
            Check("says it, picks it", "reversal found", lambda o: _reversed(o, "says it", "picks it")),
            Check("says it, says it too", "no reversal", lambda o: not _reversed(o, "says it", "says it too")),
        ),
    }.get(exam, ())


def _admitted(outcome: AuditOutcome, form: str) -> bool:
    return any(line.admitted for line in outcome.formats if line.format == form)


def _reversed(outcome: AuditOutcome, first: str, second: str) -> bool:
    return any({line.first, line.second} == {first, second} for line in outcome.reversals)
