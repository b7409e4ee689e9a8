"""The claim "not expressed": in no admitted format does the subject know more than a control."""

from collections.abc import Iterator

from vestige.auditing.claims.evidence import NO_CONTROL, SubjectEvidence, like_target, not_asked, unless_one_group
from vestige.auditing.ground import ClaimEvidence
from vestige.auditing.groups import by_group, single_facts
from vestige.metrics.verdicts import stays_below


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """The evidence: leakage in every admitted format, bits, single facts, and every contract or person.

    Picked options can fail the claim but never make it pass: bounding them below a margin takes more facts than
    bounding probabilities.
    """
    ground, tested, expressed, subject = about.ground, about.tested, about.expressed, about.subject
    singles = single_facts(ground, subject, about.scales, ())
    grouped = by_group(ground, about.groups, expressed, subject)
    picks = [e._replace(metric="leakage", unit="leakage", fails_only=True) for e in expressed.picks.values()]
    parts = ground.verdicts(stays_below, [*expressed.leaks.values(), *picks, *expressed.bits])
    parts, one_group = unless_one_group(ground, subject, tested, expressed, parts)
    left_out = (*like_target(about), *tested.not_admitted)
    gaps = (*one_group, *not_asked(about), *_in_no_format(about))
    if not ground.plan.retrained:
        gaps = (NO_CONTROL, *gaps)
    return ClaimEvidence(parts, left_out, gaps) + grouped + singles


def _in_no_format(about: SubjectEvidence) -> Iterator[str]:
    """Report the facts without an admitted format. They count as known when the claim would pass."""
    asked = {item for scale in about.scales for item in scale.items}
    n, of = len(set(about.ground.judged) - asked), len(about.ground.judged)
    if asked and n:
        yield f"{n} of {of} facts were asked in no admitted format, and they count as known for a pass"
