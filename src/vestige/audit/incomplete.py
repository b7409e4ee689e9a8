"""What an audit that is not whole may still say: nothing holds that rests on what could not be done."""

from collections.abc import Sequence
from dataclasses import replace

from vestige.artifacts.audits import CLAIMS, AuditOutcome, AuditPlan, Claim, FailedTask, VerdictLine

ATTACKED: tuple[Claim, ...] = ("not recoverable", "benchmark can tell")
"""The claims that rest on attacks; all others rest on the evaluations alone."""


def without_what_failed(outcome: AuditOutcome, plan: AuditPlan) -> AuditOutcome:
    """The outcome in which no claim holds that would need what failed. What fails without it, fails.

    An attack that failed on one unlearned model concerns that model, one that failed on a control all of them; an
    unlearned model that could not be evaluated has all its claims inconclusive.
    """
    verdicts = tuple(_tempered(line, _concerning(line, plan.failed)) for line in outcome.verdicts)
    lost = [f for f in plan.failed if f.role == "unlearned" and not f.attack]
    unjudged = tuple(_unjudged(f, claim) for f in lost for claim in CLAIMS)
    said = tuple(f"{_what(f)} failed: {f.reason}" for f in plan.failed)
    return replace(outcome, verdicts=(*verdicts, *unjudged), untested=(*said, *outcome.untested))


def _concerning(line: VerdictLine, failed: Sequence[FailedTask]) -> list[FailedTask]:
    """Of what failed, that on which the verdict rests."""
    shared = [f for f in failed if f.role != "unlearned" or f.subject == line.subject]
    return [f for f in shared if not f.attack or line.claim in ATTACKED]


def _tempered(line: VerdictLine, missing: Sequence[FailedTask]) -> VerdictLine:
    if line.outcome != "holds" or not missing:
        return line
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    reason = f"It would hold ({line.reason}), but {_what(missing[0])}{more} failed, so it is open."
    left_out = (*line.left_out, *(f"{_what(f)}: {f.reason}" for f in missing))
    return replace(line, outcome="inconclusive", reason=reason, left_out=left_out)


def _unjudged(failed: FailedTask, claim: Claim) -> VerdictLine:
    reason = f"The evaluation of {failed.subject} failed, so nothing is known of it: {failed.reason}"
    return VerdictLine(failed.subject, claim, "inconclusive", reason, 0.0, "leakage", {}, (), None, None)


def _what(failed: FailedTask) -> str:
    return f"{failed.attack} on {failed.subject}" if failed.attack else f"the evaluation of {failed.subject}"
