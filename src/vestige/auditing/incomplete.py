"""What an audit that is not whole may still say: nothing holds that rests on what could not be done."""

from collections.abc import Sequence
from dataclasses import replace

from vestige.artifacts.audits import CLAIMS, AuditOutcome, AuditPlan, Claim, FailedTask, VerdictLine
from vestige.auditing.ground import shown
from vestige.core.text import one_line, sentence

ATTACKED: tuple[Claim, ...] = ("not recoverable", "benchmark can tell")
"""The claims that rest on attacks; all others rest on the evaluations alone."""


def without_what_failed(outcome: AuditOutcome, plan: AuditPlan) -> AuditOutcome:
    """The outcome in which no claim holds that would need what failed. What fails without it, fails.

    An attack that failed on one unlearned model concerns that model, one that failed on a control all of them; an
    unlearned model that could not be evaluated has all its claims inconclusive. What failed on the positive control is
    no evidence of what attacks can do, and the judgement knows that.
    """
    needed = _evidence(plan)
    verdicts = tuple(_tempered(line, _concerning(line, needed)) for line in outcome.verdicts)
    lost = [f for f in plan.failed if f.role == "unlearned" and not f.attack]
    unjudged = tuple(_unjudged(f, claim) for f in lost for claim in CLAIMS)
    said = tuple(sentence(f"{_what(f)} failed: {_why(f)}") for f in plan.failed)
    return replace(outcome, verdicts=(*verdicts, *unjudged), untested=(*said, *outcome.untested))


def _evidence(plan: AuditPlan) -> list[FailedTask]:
    """What failed of what claims rest on, which no attack does that shows the answers or is made on the target."""
    ceilings = {attack.name for attack in plan.attacks if attack.shows_answers}
    return [f for f in plan.failed if not f.attack or (f.attack not in ceilings and f.role != "target")]


def _concerning(line: VerdictLine, failed: Sequence[FailedTask]) -> list[FailedTask]:
    """Of what failed, that on which the verdict rests."""
    shared = [f for f in failed if f.role not in ("unlearned", "suppressed") or f.subject == line.subject]
    return [f for f in shared if not f.attack or line.claim in ATTACKED]


def _tempered(line: VerdictLine, missing: Sequence[FailedTask]) -> VerdictLine:
    if line.outcome != "holds" or not missing:
        return line
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    reason = f"{line.reason.rstrip('.')}, but {_what(missing[0])}{more} failed."
    left_out = (*line.left_out, *(f"{_what(f)}: {_why(f)}" for f in missing))
    return replace(line, outcome="inconclusive", reason=reason, left_out=left_out)


def _unjudged(failed: FailedTask, claim: Claim) -> VerdictLine:
    reason = f"Not tested: {_what(failed)} failed: {_why(failed)}."
    return VerdictLine(failed.subject, claim, "inconclusive", reason, 0.0, 0.0, "leakage", {}, (), None, None)


def _what(failed: FailedTask) -> str:
    subject = shown(failed.subject)
    return f"{failed.attack} on {subject}" if failed.attack else f"the evaluation of {subject}"


def _why(failed: FailedTask) -> str:
    """The error's own words, which may quote a file or a model."""
    return one_line(failed.reason, width=300).rstrip(".")
