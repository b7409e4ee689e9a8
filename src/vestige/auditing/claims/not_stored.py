"""The claim "not stored": the subject's blocks reveal the answers no better than the blocks of a control."""

from collections.abc import Mapping

from vestige.auditing.claims.evidence import NO_CONTROL, SubjectEvidence, unless_one_group
from vestige.auditing.formats import TestedFormats, expressed_in
from vestige.auditing.ground import ClaimEvidence, Ground
from vestige.auditing.groups import ScaleByGroup, by_group, single_facts
from vestige.metrics.verdicts import stays_below


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """The evidence: block readings in every admitted format of `inside`, for all facts, groups and single facts."""
    return of_blocks(about.ground, about.stored, about.stored_groups, about.subject)


def of_blocks(ground: Ground, stored: TestedFormats, groups: Mapping[str, ScaleByGroup], subject: str) -> ClaimEvidence:
    """Return the same evidence for any model.

    Single facts can fail the claim but never make it pass, because luck too often beats the few wrong answers. Evidence
    about a fact that is not sufficient to fail the claim is listed as left out.
    """
    if not ground.plan.retrained or ground.doubts:
        return ClaimEvidence((), stored.not_admitted, ground.doubts or (NO_CONTROL,))
    inside = expressed_in(ground, stored, subject)
    grouped = by_group(ground, groups, inside, subject)
    singles = single_facts(ground, subject, stored.judged, ())
    lacking: list[str] = []
    for scale in stored.judged:
        if scale.name in inside.not_asked:
            lacking.append(f"{scale.name}: not read of it")
    parts = ground.verdicts(stays_below, [*inside.leaks.values()])
    parts, one_group = unless_one_group(ground, subject, stored, inside, parts)
    return ClaimEvidence(
        parts=(*parts, *grouped.parts, *singles.parts),
        left_out=(*stored.not_admitted, *grouped.left_out, *singles.gaps),
        gaps=(*one_group, *lacking, *grouped.gaps),
    )
