"""The claim "utility preserved": the subject keeps the knowledge that it was to keep."""

from vestige.auditing.claims.evidence import SubjectEvidence, judged
from vestige.auditing.ground import ClaimEvidence
from vestige.metrics.verdicts import stays_below


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """Harm to every split that the target knows."""
    parts = judged(about.ground, about.losses.harms, stays_below)
    return ClaimEvidence(parts, about.losses.left_out, about.losses.missing)
