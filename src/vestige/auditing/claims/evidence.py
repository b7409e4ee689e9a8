"""The evidence for every claim, and the findings about one subject from which it is derived."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vestige.artifacts.audits import BudgetLine, Claim
from vestige.artifacts.verdicts import NOT_ASKED
from vestige.auditing.formats import Expressed, Scale, TestedFormats
from vestige.auditing.ground import ClaimEvidence, Ground
from vestige.auditing.groups import ScaleByGroup, in_one_group
from vestige.auditing.measures import Membership
from vestige.auditing.recovery import AttackAbility, Recovery
from vestige.core.text import Sentences
from vestige.metrics.verdicts import ClaimVerdict, Evidence

NO_CONTROL = "no retrained control was given (vestige finetune --forget trains one)"


@dataclass(frozen=True, kw_only=True)
class AuditEvidence:
    """The findings shared by all subjects.

    `tested` are formats with replies or answer probabilities, and `stored` formats with hidden states. `groups` and
    `stored_groups` are the same formats by contract or person.
    """

    ground: Ground
    tested: TestedFormats
    groups: Mapping[str, ScaleByGroup]
    stored: TestedFormats
    stored_groups: Mapping[str, ScaleByGroup]
    recovery: Recovery
    ability: AttackAbility
    budget: tuple[BudgetLine, ...]
    membership: Membership


@dataclass(frozen=True, kw_only=True)
class SubjectEvidence(AuditEvidence):
    """The findings about one subject. Each claim uses some of them.

    `placements` are `Membership.differences` of the subject. `decided` has the claims about this subject so far.
    """

    subject: str
    expressed: Expressed
    placements: tuple[list[Evidence], list[str]]
    losses: ClaimEvidence
    decided: dict[Claim, ClaimEvidence] = field(default_factory=dict)

    @property
    def scales(self) -> tuple[Scale, ...]:
        """Return the admitted formats in which the subject has scores."""
        return self.tested.asked_of(self.ground, self.subject)


def unless_one_group(
    ground: Ground, subject: str, tested: TestedFormats, expressed: Expressed, parts: tuple[ClaimVerdict, ...]
) -> tuple[tuple[ClaimVerdict, ...], Sentences]:
    """Make the parts inconclusive, with a sentence, if one group's luck may explain their failure."""
    failing = any(part.outcome == "fails" for part in parts)
    one_group = in_one_group(ground, tested, expressed, subject) if failing else ""
    if not one_group:
        return parts, ()
    return tuple(replace(part, outcome="inconclusive") for part in parts), (one_group,)


def not_asked(about: SubjectEvidence) -> Sentences:
    """List the formats that the subject, the target or all controls lack."""
    ground, subject = about.ground, about.subject
    gaps = [ground.collapsed.get((subject, name), f"{name}: {NOT_ASKED} it") for name in about.expressed.not_asked]
    compared = {read.line.format for read in about.tested.reads}
    for form in ground.formats if ground.plan.retrained else ():
        if form.name not in compared and ground.has(subject, form.key):
            gaps.append(f"{form.name}: {NOT_ASKED} the target and a control")
    return tuple(gaps)


def like_target(about: SubjectEvidence) -> Sentences:
    """List the formats in which controls score like the target on some facts."""
    return tuple(
        f"{scale.name}: controls score like the target on {scale.n_like} of {len(scale.items)} facts, all of them or "
        "each on others, so that these cannot be judged and count as known for a pass"
        for scale in about.scales
        if scale.n_like
    )
