"""The claims about one unlearned model, each in a file of its own, and the verdict on each.

A claim rests on quantities in shares and in bits, each unit with its own margins (`metrics.verdicts`), and can rest on
other findings as well. The claim fails if one quantity fails. It passes if all quantities pass and no evidence is
missing. A missing control, or an attack that could not be judged, keeps a claim from passing but not from failing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module

from vestige.artifacts.audits import (
    CLAIMS,
    REQUIRED,
    STATEMENTS,
    AuditOutcome,
    AuditPlan,
    Claim,
    EvidenceLevel,
    FailedTask,
    Outcome,
    VerdictLine,
    by_level,
)
from vestige.auditing.claims.evidence import SubjectEvidence
from vestige.auditing.formats import Scale, TestedFormats
from vestige.auditing.ground import ClaimEvidence, Ground, shown
from vestige.core.text import one_line, sentence
from vestige.metrics.verdicts import ClaimVerdict

ONE_CONTROL = "one retrained control alone does not show how far two trainings differ"

EVIDENCE: Mapping[Claim, Callable[[SubjectEvidence], ClaimEvidence]] = {
    claim: import_module(f"{__name__}.{claim.replace(' ', '_')}").evidence for claim in STATEMENTS
}
"""The function `evidence` of each claim's file, by claim."""


def verdicts(about: SubjectEvidence) -> list[VerdictLine]:
    """Return the verdict on every claim about one subject. Fills `about.decided`."""
    ground = about.ground
    inside = any(ground.has(ground.plan.target, form.key) for form in ground.scores.formats if form.inside)
    lines = []
    for claim, evidence in EVIDENCE.items():
        if inside or not STATEMENTS[claim].optional:
            about.decided[claim] = evidence(about)
            lines.append(decide(claim, about.subject, about.decided[claim], about.ground, about.tested))
    return lines


def decide(claim: Claim, subject: str, grounds: ClaimEvidence, ground: Ground, tested: TestedFormats) -> VerdictLine:
    """Return one claim's verdict: the outcome, the reason in one sentence, and the numbers."""
    scales: tuple[Scale, ...] = ()
    against = ""
    if STATEMENTS[claim].controls:
        scales = tested.asked_of(ground, subject)
        against = tested.against if grounds.parts else ""
        single = (ONE_CONTROL,) if len(ground.plan.retrained) == 1 else ()
        grounds = replace(grounds, gaps=tuple(dict.fromkeys((*ground.doubts, *grounds.gaps, *single))))
    verdicts = grounds.parts
    outcomes = {verdict.outcome for verdict in verdicts}
    outcome: Outcome = "inconclusive"
    if "fails" in outcomes:
        outcome = "fails"
    elif outcomes == {"holds"} and not grounds.gaps:
        outcome = "holds"
    main = next((verdict for verdict in verdicts if verdict.outcome == outcome), verdicts[0] if verdicts else None)
    margins = main.margins if main is not None else ground.thresholds.margins("leakage")
    open_ = [verdict for verdict in verdicts if verdict.outcome == "inconclusive"]
    needs = [verdict.items_needed for verdict in open_]
    # More items cannot make up for missing evidence.
    estimable = outcome == "inconclusive" and needs and None not in needs and not grounds.gaps
    needed = max(n for n in needs if n is not None) if estimable else None
    return VerdictLine(
        subject=subject,
        claim=claim,
        outcome=outcome,
        reason=_reason(claim, outcome, grounds, against, ground.plan.evidence_level if ground.plan.retrained else ""),
        margin=margins.narrow,
        wide=margins.wide,
        unit=main.unit if main is not None else "leakage",
        decides=main.decides if main is not None else None,
        at_least=main.at_least if main is not None else None,
        at_most=main.at_most if main is not None else None,
        evidence={name: estimate for part in grounds.parts for name, estimate in part.estimates.items()},
        left_out=(*grounds.left_out, *grounds.gaps),
        items_needed=needed,
        needed="" if grounds.gaps else "; ".join(dict.fromkeys(verdict.needed for verdict in open_ if verdict.needed)),
        detectable=main.detectable if main is not None else None,
        against=against,
        n_asked=len(ground.judged),
        n_tested=_n_tested(scales),
        question_types=tuple(dict.fromkeys(scale.form.question_type for scale in scales)),
    )


def _n_tested(scales: Sequence[Scale]) -> int:
    """Return the number of facts that a subject was tested on, without facts that its largest format cannot judge."""
    asked = {item for scale in scales for item in scale.items}
    return len(asked) - max((scale.n_like for scale in scales), default=0)


def _reason(claim: Claim, outcome: Outcome, grounds: ClaimEvidence, against: str, level: EvidenceLevel) -> str:
    """Return one sentence: the finding, the deciding number, and anything that kept the claim from passing."""
    outcomes = {part.outcome for part in grounds.parts}
    placeholders = {"control": "guessing"} if against == "chance" else {}
    statement = STATEMENTS[claim]
    texts = {"holds": statement.holds, "fails": statement.fails, "inconclusive": statement.inconclusive}
    leads = {name: by_level(text, level, kept=_sets(grounds.parts), **placeholders) for name, text in texts.items()}
    missing = _few(grounds.gaps)
    if not outcomes:
        return f"Not tested: {'; '.join(missing or _few(grounds.left_out) or ['nothing could be asked'])}."
    if outcome == "inconclusive" and outcomes == {"holds"}:
        return f"{leads['holds']} where it was tested ({_because('holds', grounds)}), but {'; '.join(missing)}."
    if outcome == "inconclusive":
        additions = missing
    elif outcome == "holds" and grounds.besides:
        additions = [grounds.besides]
    else:
        additions = []
    return f"{leads[outcome]}: {'; and '.join([_because(outcome, grounds), *additions])}."


def _because(outcome: Outcome, grounds: ClaimEvidence) -> str:
    """Return the reasons of the parts that have this outcome."""
    return "; and ".join(part.reason for part in grounds.parts if part.outcome == outcome)


def _sets(parts: Sequence[ClaimVerdict]) -> str:
    """Return the splits behind the retention quantities of the claim, whose names contain split and format."""
    names = list(dict.fromkeys(name.partition(",")[0] for part in parts for name in part.estimates))
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _few(sentences: Sequence[str]) -> list[str]:
    """Return the first entries. The full list follows the reason."""
    n_further = len(sentences) - 1
    count = f" (and {n_further} more {'reason' if n_further == 1 else 'reasons'})" if n_further > 0 else ""
    if sentences:
        return [sentences[0] + count]
    return []


def drop_failed_evidence(outcome: AuditOutcome, plan: AuditPlan) -> AuditOutcome:
    """Return the outcome without evidence from failed tasks: no claim that needs it can pass.

    A claim that fails without this evidence still fails. A failed attack on one unlearned model affects that model, and
    a failed attack on a control affects all. All claims about an unlearned model that could not be evaluated are
    inconclusive. A failure on the positive control is no evidence about attacks, and the judgement accounts for it.
    """
    # No claim uses an attack that shows the answers, or an attack on the target.
    ceilings = {attack.name for attack in plan.attacks if attack.shows_answers}
    needed = [f for f in plan.failed if not f.attack or (f.attack not in ceilings and f.role != "target")]
    verdicts = []
    for verdict in outcome.verdicts:
        line = verdict
        shared = [f for f in needed if f.role not in ("unlearned", "suppressed") or f.subject == line.subject]
        missing = [f for f in shared if not f.attack or STATEMENTS[line.claim].attacks]
        if line.outcome == "holds" and missing:
            further = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            reason = f"{line.reason.rstrip('.')}, but {_what(missing[0])}{further} failed."
            left_out = (*line.left_out, *(f"{_what(f)}: {_why(f)}" for f in missing))
            line = replace(line, outcome="inconclusive", reason=reason, left_out=left_out)
        verdicts.append(line)
    judged = {*REQUIRED, *(line.claim for line in outcome.verdicts)}
    for f in plan.failed:
        if f.role == "unlearned" and not f.attack:
            reason = f"Not tested: {_what(f)} failed: {_why(f)}."
            verdicts += [
                VerdictLine(f.subject, claim, "inconclusive", reason, 0.0, 0.0, "leakage", {}, (), None, None)
                for claim in CLAIMS
                if claim in judged
            ]
    failures = tuple(sentence(f"{_what(f)} failed: {_why(f)}") for f in plan.failed)
    return replace(outcome, verdicts=tuple(verdicts), untested=(*failures, *outcome.untested))


def _what(failed: FailedTask) -> str:
    subject = shown(failed.subject)
    if failed.attack:
        return f"{failed.attack} on {subject}"
    return f"the evaluation of {subject}"


def _why(failed: FailedTask) -> str:
    """Return the text of the error, which may quote a file or a model."""
    return one_line(failed.reason, width=300).rstrip(".")
