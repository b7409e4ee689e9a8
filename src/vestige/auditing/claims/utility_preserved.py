"""The claim "utility preserved": the subject keeps the knowledge that it should keep."""

from vestige.auditing.claims.evidence import SubjectEvidence
from vestige.auditing.ground import ClaimEvidence


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """The evidence: the loss on every split that the target knows."""
    return about.losses
