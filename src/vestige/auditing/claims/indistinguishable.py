"""The claim "indistinguishable": neither membership scores nor answers separate the subject from controls."""

from vestige.auditing.claims.evidence import NO_CONTROL, SubjectEvidence, like_target, not_asked
from vestige.auditing.ground import ClaimEvidence
from vestige.metrics.verdicts import Evidence, stays_within


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """The evidence: membership scores, the excess in every admitted format, and bits, in both directions."""
    ground, tested, membership = about.ground, about.tested, about.membership
    blind = tuple(membership.blind.values())
    if not ground.plan.retrained or ground.doubts:
        # If the controls were exposed to the facts, even a model that forgot them differs from the controls.
        return ClaimEvidence((), tested.not_admitted, ground.doubts or (NO_CONTROL,))
    placements, not_read = about.placements
    known = like_target(about)
    excess = [Evidence(name, draws, "excess", "share") for name, draws in about.expressed.excess.items()]
    # A model below controls that know facts may be one that forgot them.
    answers = [] if known else [*excess, *about.expressed.bits]
    gaps = [*not_read, *not_asked(about), *known]
    if not placements:
        gaps.append("membership could not be tested: it takes holdout items and membership scores")
    if not excess and not about.expressed.bits:
        gaps.append("answers could not be compared: it was asked in no admitted format")
    if placements and len(blind) == len(membership.scores):
        gaps.append(f"no membership score tells the target itself from retrained models: {blind[0]}")
    parts = ground.verdicts(stays_within, [*placements, *answers])
    return ClaimEvidence(parts, (*tested.not_admitted, *blind), tuple(gaps))
