"""The claim "utility preserved": the subject keeps the knowledge that it was to keep."""

from vestige.auditing.claims.evidence import SubjectEvidence
from vestige.auditing.ground import ClaimEvidence


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """Harm to every split that the target knows."""
    return about.losses
