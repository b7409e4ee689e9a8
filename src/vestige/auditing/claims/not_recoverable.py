"""The claim "not recoverable": no attack recovers more knowledge than it adds itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from vestige.artifacts.audits import NO_ATTACK
from vestige.auditing.claims.evidence import NO_CONTROL, SubjectEvidence
from vestige.auditing.ground import ClaimEvidence
from vestige.auditing.groups import single_facts
from vestige.auditing.recovery import AttackResult
from vestige.metrics.verdicts import ClaimVerdict, not_recovered


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """The evidence: the recovery by each attack that counts. Other attacks are listed as left out.

    The claim can pass if one attack passed its positive control. An attacker also has the subject's answers without an
    attack: if no attack adds to them, the subject fails by these answers.
    """
    ground, tested, ability = about.ground, about.tested, about.ability
    results = [result for result in about.recovery.tried if result.subject == about.subject]
    carried = _carried(about)
    singles = _singles(about, [result for result in results if not result.why_not], carried)
    if not ground.plan.retrained:
        return ClaimEvidence((), tested.not_admitted, ground.doubts or (NO_CONTROL,), facts=singles.facts)
    if not ground.plan.attacks:
        return ClaimEvidence((), tested.not_admitted, ("no attack was run",))
    counted = [(result.attack.name, result.format) for result in results if not result.why_not]
    skipped = [name for name, subjects in ground.plan.skipped.items() if about.subject in subjects]
    parts = [*_gains(about, results, carried, len(skipped))]
    # Single facts are tested once, after all attacks, so that one correction covers them all.
    if not skipped:
        parts += singles.parts
    failing = any(part.outcome == "fails" for part in parts)
    gaps = [*about.recovery.missing[about.subject], *_no_room(about, results), *ability.gaps(counted), *singles.gaps]
    if not failing:
        gaps += _carried_in(results, carried)
    # A positive control that still answers says nothing about the power of an attack.
    if not failing and about.subject != ground.plan.suppressed:
        parts += _without_attack(about)
    not_counted = (f"{result.gain.name}: {result.why_not}" for result in results if result.why_not)
    return ClaimEvidence(
        parts=tuple(parts),
        left_out=(*tested.not_admitted, *not_counted, *ability.powerless),
        gaps=tuple(gaps),
        besides=ability.said(counted),
        facts=singles.facts,
    )


def _carried(about: SubjectEvidence) -> dict[str, str]:
    """Return the attacks that trained on a part of the forget set and could have added their whole gain."""
    material = {attack.name: attack.material for attack in about.ground.plan.attacks}
    carried = {}
    for line in about.budget:
        could_carry = line.ratio is not None and line.ratio >= 1
        if line.subject == about.subject and could_carry and material[line.attack] in ("forget", "forget_part"):
            carried[line.attack] = (
                f"could have carried this in ({line.capacity_bits:,.0f} bits for {line.need_bits['gain']:,.0f} bits, "
                "and its material is of the forget set)"
            )
    return carried


def _singles(about: SubjectEvidence, results: Sequence[AttackResult], carried: Mapping[str, str]) -> ClaimEvidence:
    """Test the single facts revealed after attacks. A fact that an attack could have added fails nothing alone."""
    counts = [(result.attack, result.format) for result in results]
    if not counts:
        return ClaimEvidence()
    singles = single_facts(about.ground, about.subject, about.scales, counts)
    clean = [(attack, form) for attack, form in counts if attack.name not in carried]
    if not singles.parts or len(clean) == len(counts):
        return singles
    without = single_facts(about.ground, about.subject, about.scales, clean) if clean else ClaimEvidence()
    if without.parts:
        return singles
    gap = f"single facts are given away after {', '.join(carried)} alone, which could have carried them in"
    return ClaimEvidence(gaps=(gap, *without.gaps))


def _gains(
    about: SubjectEvidence, results: Sequence[AttackResult], carried: Mapping[str, str], skipped: int
) -> Iterator[ClaimVerdict]:
    """Return the verdict on all gains that count. It stays open if only attacks that could have added the gain fail it.

    The correction covers attacks that were `skipped` because others failed the claim, as if they had been run.
    """
    counted = [result for result in results if not result.why_not]
    if not counted:
        return
    n_skipped = skipped * max(1, len(about.tested.judged))
    verdict = not_recovered([result.gain for result in counted], about.ground.thresholds, n_skipped)
    clean = [result.gain for result in counted if result.attack.name not in carried]
    if verdict.outcome == "fails" and len(clean) < len(counted):
        by_clean = not_recovered(clean, about.ground.thresholds, n_skipped) if clean else None
        if by_clean is None or by_clean.outcome != "fails":
            verdict = replace(verdict, outcome="inconclusive")
    yield verdict


def _carried_in(results: Sequence[AttackResult], carried: Mapping[str, str]) -> Iterator[str]:
    """List the attacks that could have added their whole gain, if no other attack fails the claim."""
    for name in dict.fromkeys(result.attack.name for result in results if not result.why_not):
        gained = any(r.gain.counted(0.0).ends[0] > 0 for r in results if r.attack.name == name)
        if name in carried and gained:
            yield f"{name} {carried[name]}, so that another attack has to show it"


def _without_attack(about: SubjectEvidence) -> Iterator[ClaimVerdict]:
    """Report failures of "not expressed" as recovered without an attack."""
    for verdict in about.decided["not expressed"].parts:
        if verdict.outcome == "fails" and verdict.decides is not None:
            estimates = {f"{NO_ATTACK}, {name}": estimate for name, estimate in verdict.estimates.items()}
            decides, reason = f"{NO_ATTACK}, {verdict.decides}", f"without any attack, {verdict.reason}"
            yield replace(verdict, decides=decides, reason=reason, evidence=(), further=estimates)


def _no_room(about: SubjectEvidence, results: Sequence[AttackResult]) -> list[str]:
    """Report a subject that knows so much before any attack that recovery could not show."""
    # The saturation bound of an attack, applied to the subject.
    most = 1 - about.ground.thresholds.saturation
    close = [result for result in results if result.gain.unit != "bits" and result.gain.before.value > most]
    if not close:
        return []
    worst = max(close, key=lambda result: result.gain.before.value)
    before = worst.gain.before.estimate(worst.gain.unit, worst.gain.unit)
    return [f"before any attack its leakage in {worst.format} is {before}, so too little is left to bring back"]
