"""The judgement of one audit: from item scores to formats, matrix, gains, budgets and the claims.

The function is pure: the same case gives the same outcome. docs/verdicts.md explains the rules.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from vestige.artifacts.audits import (
    AuditOutcome,
    AuditPlan,
    FactLine,
    GroupLine,
    MatrixCell,
    ReversalLine,
    VerdictLine,
    WorstLine,
)
from vestige.artifacts.scores import Source
from vestige.auditing.claims import verdicts
from vestige.auditing.claims.evidence import AuditEvidence, SubjectEvidence
from vestige.auditing.control_checks import knowing, made_of_others, same_trainings, seen
from vestige.auditing.formats import (
    Expressed,
    TestedFormats,
    compares_orders,
    expressed_in,
    levels_of,
    never_lines,
    read_formats,
    read_stored,
    reversal_lines,
    subject_lines,
    unlike_controls,
)
from vestige.auditing.ground import Case, Ground, by_fact, filled, judged_items, shown, with_kept_counts, with_missing
from vestige.auditing.groups import facts_stored_in, parts_of
from vestige.auditing.measures import KeptKnowledge, read_budget, read_measures, read_membership, weak_controls
from vestige.auditing.predicted import NOT_ENOUGH
from vestige.auditing.recovery import gain_line, read_ability, try_attacks, with_searches
from vestige.core.errors import InputError
from vestige.core.text import Sentences, TextByName, first_of, grouped, listed, sentence
from vestige.core.threads import one_blas_thread
from vestige.metrics.intervals import RESAMPLES
from vestige.metrics.planning import ADVISED_CONTROLS, LEAST_CONTROLS
from vestige.metrics.verdicts import Thresholds

VERSION = 24
"""The version of the rules, a part of the identity of a study's cells. It increases when the same answers would get
another verdict.
"""
RULES = "rules of judging"
"""The key of the rules in a sealed plan."""


@one_blas_thread()
def judge(case: Case, *, resamples: int = RESAMPLES) -> AuditOutcome:
    """Return all findings of an audit.

    Args:
        case: The plan and the scores.
        resamples: The number of bootstrap draws.

    Returns:
        The outcome. With missing scores the case is judged twice: missing scores count as unknown for a claim to fail,
        and as known for a claim to pass.
    """
    case = replace(case, scores=case.scores.judged())
    checked, left_out = _with_checked_controls(lay(case, resamples))
    # The available scores determine which models are controls.
    case = replace(case, plan=replace(case.plan, retrained=checked.plan.retrained))
    unknown, missing = filled(case, known=False)
    outcome = _judged(unknown, checked, left_out, resamples)
    if not missing:
        return replace(outcome, verdicts=tuple(with_kept_counts(line, missing) for line in outcome.verdicts))
    known, _ = filled(case, known=True)
    return with_missing(outcome, _judged(known, checked, left_out, resamples), case.plan, missing)


def _judged(case: Case, checked: Ground, left_out: Sentences, resamples: int) -> AuditOutcome:
    """Return the outcome of a case without missing scores. `checked` has the accepted controls and the doubts."""
    ground = replace(lay(case, resamples), doubts=checked.doubts, doubts_of=checked.doubts_of)
    ground = _without_collapsed(ground)
    tested = read_formats(ground)
    # The requested margins are printed next to the margins that fit the answers.
    evidence, asked = _read(_with_margins(ground, tested), tested), ground.thresholds
    ground, plan, recovery = evidence.ground, evidence.ground.plan, evidence.recovery
    kept_knowledge = KeptKnowledge(ground)
    lines = _by_subject(evidence, kept_knowledge, resamples)
    facts_stored, not_counted = facts_stored_in(ground, tested, evidence.ability)
    warnings = (*left_out, *_warnings(ground, tested))
    untested = (
        *(f"{shown(name)}, {why}." for (name, _), why in ground.collapsed.items()),
        *warnings,
        *_of_subjects(ground),
        *_of_plan(case.plan),
        *evidence.stored.untested,
        *filter(None, (not_counted, ground.apart, plan.told_by)),
        *_of_controls(ground),
        *tested.untested,
        *lines.untested,
        *recovery.untested,
        *evidence.membership.untested,
        *kept_knowledge.untested,
    )
    return AuditOutcome(
        forget=plan.forget,
        target=plan.target,
        unlearned=plan.unlearned,
        retrained=plan.retrained,
        verdicts=tuple(line for line in lines.verdicts if line.subject != plan.suppressed),
        facts=tuple(lines.facts),
        groups=tuple(lines.groups),
        suppressed=plan.suppressed,
        control=tuple(line for line in lines.verdicts if line.subject == plan.suppressed),
        able=evidence.ability.lines,
        formats=tuple(read.line for read in tested.reads),
        matrix=tuple(lines.matrix),
        worst=tuple(lines.worst),
        attacked=recovery.attacked,
        never=never_lines(ground, tested),
        n_judged=len(ground.judged),
        n_apart=len(plan.splits["forget"]) - len(ground.judged),
        references=plan.references,
        evidence_level=plan.evidence_level if plan.retrained else "",
        sealed=_sealed(plan),
        unchanged=plan.unchanged,
        stored=facts_stored,
        reversals=lines.reversals,
        gains=tuple(map(gain_line, recovery.tried)),
        curves=recovery.curves,
        budget=evidence.budget,
        membership=evidence.membership.lines,
        measures=read_measures(ground, evidence.membership.lines),
        kept=tuple(kept_knowledge.lines),
        soundness=plan.soundness,
        untested=tuple(dict.fromkeys(untested)),
        rules=VERSION,
        thresholds=asked.model_dump(),
        margins_bits=() if ground.thresholds == asked else tuple(ground.thresholds.margins("bits")),
        prompts=plan.prompts,
        warnings=warnings,
    )


def _read(ground: Ground, tested: TestedFormats) -> AuditEvidence:
    """Return the findings shared by all subjects, with the doubts that follow from them."""
    recovery = try_attacks(ground, tested)
    membership = read_membership(ground)
    suppressed = expressed_in(ground, tested, ground.plan.suppressed) if ground.plan.suppressed else None
    ability = read_ability(ground, recovery, suppressed)
    # Doubts follow from the reading, so they come after it: they affect blocks and verdicts but not levels.
    ground = replace(ground, doubts=(*ground.doubts, *knowing(ground, tested, suppressed)))
    stored = read_stored(ground)
    return AuditEvidence(
        ground=ground,
        tested=tested,
        groups=parts_of(ground, tested),
        stored=stored,
        stored_groups=parts_of(ground, stored),
        recovery=recovery,
        ability=ability,
        budget=read_budget(ground),
        membership=membership,
    )


@dataclass
class _Lines:
    """The lines of all subjects."""

    verdicts: list[VerdictLine] = field(default_factory=list)
    facts: list[FactLine] = field(default_factory=list)
    groups: list[GroupLine] = field(default_factory=list)
    matrix: list[MatrixCell] = field(default_factory=list)
    worst: list[WorstLine] = field(default_factory=list)
    reversals: tuple[ReversalLine, ...] = ()
    untested: Sentences = ()


def _by_subject(evidence: AuditEvidence, kept_knowledge: KeptKnowledge, resamples: int) -> _Lines:
    """Return the verdicts on every subject, and its evidence."""
    ground, tested, suppressed = evidence.ground, evidence.tested, evidence.ground.plan.suppressed
    lines, levels = _Lines(), levels_of(ground, tested)
    # The positive control is not one of the compared methods.
    methods = [name for name in ground.plan.audited if name != suppressed]
    orders_compared = compares_orders(tested, len(methods), resamples)
    expressed_by: dict[str, Expressed] = {}
    for subject in ground.plan.audited:
        expressed = expressed_in(ground, tested, subject)
        cells, worst = subject_lines(ground, tested, levels, subject, expressed)
        lines.matrix += cells
        lines.worst += worst
        # The draws of a subject take a megabyte, so they are kept for this comparison only.
        if orders_compared and subject in methods:
            expressed_by[subject] = expressed
        shared = {**vars(evidence), "ground": ground.about(subject)}
        about = SubjectEvidence(
            **shared,
            subject=subject,
            expressed=expressed,
            placements=evidence.membership.differences(subject),
            losses=kept_knowledge.losses(subject),
        )
        lines.verdicts += verdicts(about)
        # Answers of the positive control are not a leak.
        if subject != suppressed:
            for of_claim in about.decided.values():
                lines.facts += of_claim.facts
                lines.groups += of_claim.groups
    lines.reversals = reversal_lines(ground, tested.scales, expressed_by)
    if not orders_compared:
        lines.untested = (
            f"Whether scores rank the {len(methods)} models in other orders was not tested: the pairs are too many.",
        )
    return lines


def _warnings(ground: Ground, tested: TestedFormats) -> Iterator[str]:
    """Yield a sentence for each reason that keeps claims about all models open."""
    yield from weak_controls(ground)
    for doubt in ground.doubts:
        yield sentence(f"No claim that rests on controls holds here: {doubt}")
    most = max(tested.judged, key=lambda scale: scale.n_like, default=None)
    if most is not None and most.n_like:
        yield (
            f"{most.n_like} of {len(most.items)} facts cannot be judged in {most.name}: controls score like the target "
            "there, all of them or each on others, so that they count as untested."
        )


def _of_subjects(ground: Ground) -> Iterator[str]:
    """Yield such sentences about single models. A cluster of similar models has one sentence."""
    doubted = [name for name in ground.doubts_of if name != ground.plan.target]
    for doubt, names in grouped(doubted, ground.doubts_of.__getitem__).items():
        yield sentence(f"No claim about {first_of(names)} that rests on controls holds here: {doubt}")


def _with_checked_controls(ground: Ground) -> tuple[Ground, Sentences]:
    """Return the ground without the rejected controls, and a sentence about each."""
    if ground.plan.predicted:
        # A predicted control is not a training.
        return replace(ground, doubts=(NOT_ENOUGH,)), ()
    n_given = len(ground.plan.retrained)
    doubts: list[str] = []
    copied = made_of_others(ground)
    sentences = [f"{shown(name)} is left out as a control: {why}." for name, why in copied.items()]
    ground = _without(ground, copied)
    # Copies are checked first: a copy next to its original hides that both differ from the other controls.
    ground, merged, of_target = _merged(ground)
    sentences += merged
    doubts += of_target
    alike = unlike_controls(ground)
    ground = _without(ground, alike)
    for name, why in alike.items():
        sentences.append(f"{shown(name)} is left out as a control, since it answers like the target: {why}.")
    if not all(seen(ground.plan, name) for name in alike):
        # Answers alone do not identify every copy among several.
        doubts.append(f"the weights of the other controls were not seen, and {sentences[-1].rstrip('.')}")
    if sentences and not ground.plan.retrained:
        doubts.append(f"none of the {n_given} controls that were given is one: {sentences[0].rstrip('.')}")
    return replace(ground, doubts=tuple(doubts)), tuple(sentences)


def _merged(ground: Ground) -> tuple[Ground, list[str], list[str]]:
    """Return the ground with one control for each training, sentences about the others, and doubts about all."""
    plan = ground.plan
    sentences: list[str] = []
    doubts: list[str] = []
    out: list[str] = []
    doubts_of: TextByName = {}
    for same in same_trainings(ground):
        controls = [name for name in same.models if name in plan.retrained]
        others = [name for name in same.models if name not in plan.retrained]
        # The control with the most scores stays.
        first = max(controls, key=lambda name: len(ground.scores.keys(name)))
        reason = f"{first_of(same.models)} count as one training: {same.why}"
        if not others:
            sentences.append(f"Only {shown(first)} is used as a control, since {reason}.")
            out += [name for name in controls if name != first]
            continue
        sentences.append(f"Not used as independent controls: {listed(controls)}, since {reason}.")
        out += controls
        if plan.target in others:
            doubts.append(reason)
        for subject in others:
            doubts_of[subject] = reason
    if doubts_of and not doubts and len(out) == len(plan.retrained):
        # Without any control a subject would be compared with chance, and fail for common guesses.
        out.remove(plan.retrained[0])
        doubts.append(next(iter(doubts_of.values())))
    return replace(_without(ground, out), doubts_of=doubts_of), sentences, doubts


def _without(ground: Ground, names: Collection[str]) -> Ground:
    """Return the ground without some of the controls."""
    remaining = tuple(name for name in ground.plan.retrained if name not in names)
    return replace(ground, plan=replace(ground.plan, retrained=remaining), samples={})


def _with_margins(ground: Ground, tested: TestedFormats) -> Ground:
    """Return the ground with margins in bits that fit the target's knowledge."""
    if not tested.bits:
        return ground
    gap = float(tested.bits[0].controls.gap.differences().mean())
    return replace(ground, thresholds=ground.thresholds.of_gap(gap, alone=tested.bits_alone))


def _without_collapsed(ground: Ground) -> Ground:
    """Return the ground without the scores of subjects that are far outside the range of target and controls.

    This applies only to logs. A score from another tool, such as a ratio of two probabilities, may be meaningless for a
    broken model. In Vestige's own formats (correct/incorrect scores and probabilities) every score is valid.
    """
    if ground.plan.evidence_level not in ("logs", "predicted"):
        return ground
    why: dict[tuple[str, str], str] = {}
    values = dict(ground.scores.values)
    for scale in read_formats(ground).scales:
        if scale.unit != "leakage":
            continue
        controls = [float(row.mean()) for row in scale.controls.retrained]
        target = float(scale.controls.target.mean())
        low, high, gap = min(controls), max(*controls, target), target - float(np.mean(controls))
        for subject in (name for name in ground.plan.audited if ground.has(name, scale.key)):
            level = float(scale.scores(subject).mean())
            # The range is extended by the gap between target and controls on both sides: a score within it keeps its
            # meaning.
            if low - gap <= level <= high + gap:
                continue
            range_text = f"{level:.2f} where target and retrained lie between {low:.2f} and {high:.2f}"
            why[subject, scale.name] = (
                f"{scale.name}: collapsed, since it scores {range_text}, so nothing follows from it"
            )
            tables = values[Source(subject)]
            remaining = {item: score for item, score in tables[scale.key].items() if item not in ground.forget}
            values[Source(subject)] = {**tables, scale.key: remaining}
    if not why:
        return ground
    return replace(ground, scores=replace(ground.scores, values=values), collapsed=why, samples={})


def _sealed(plan: AuditPlan) -> str:
    """Return whether plan and margins were sealed, and the later changes. It is "" if no model was scored."""
    if not plan.evaluations:
        return ""
    if plan.sealed is None:
        return "Plan and margins were not sealed before the models were asked."
    then, now = plan.sealed.settings, plan.settings
    # A setting without a value is in neither plan. A sealed attack that was removed shows up as missing.
    settings = [f"{k} {now.get(k)} in place of {then.get(k)}" for k in {**then, **now} if now.get(k) != then.get(k)]
    rules = [RULES] if plan.sealed.plan.get(RULES) != VERSION else []
    changed = "; ".join(dict.fromkeys((*plan.sealed.changed, *rules, *settings)))
    lead = f"Plan and margins were sealed on {plan.sealed.time}, before the models were asked (digest "
    return f"{lead}{plan.sealed.digest}); changed since: {changed or 'nothing'}."


def _of_plan(plan: AuditPlan) -> Iterator[str]:
    """Report controls trained by another recipe, and facts with several wordings, which count once."""
    if plan.recipes:
        by_difference = grouped(plan.recipes, plan.recipes.__getitem__)
        each = "; ".join(f"{listed(names)}: {difference}" for difference, names in by_difference.items())
        yield (
            f"Controls of another recipe than the target's ({each}): what the recipe alone changes in answers that "
            "were never taught is not known from them, so all intervals on them are wider."
        )
    if plan.facts:
        n = len(plan.splits.get("forget", ()))
        yield (
            f"The {n} forget questions ask for {n - len(plan.facts)} facts, some in several wordings: a fact counts "
            "once, with the mean of its wordings."
        )


def lay(case: Case, resamples: int) -> Ground:
    """Return the ground of a judgement. Reject a case that cannot be judged, and name the wrong value."""
    for attack in case.plan.attacks:
        if not attack.points:
            raise InputError(f"the attack {shown(attack.name)!r} has no stage. Plan it again")
    n_questions = len(case.plan.splits.get("forget", ()))
    # Facts come first: a search splits facts into halves, since one wording would choose for another.
    case = with_searches(by_fact(case))
    plan = case.plan
    fields = Thresholds.model_fields
    thresholds = Thresholds.build({k: v for k, v in plan.settings.items() if k in fields}, where="the audit's settings")
    judged, apart = judged_items(plan)
    return Ground(
        plan=plan,
        scores=case.scores,
        searched=case.searched,
        thresholds=thresholds,
        judged=judged,
        apart=apart,
        resamples=resamples,
        wordings=n_questions / len(plan.splits["forget"]),
    )


def _of_controls(ground: Ground) -> Iterator[str]:
    """List missing controls and unchecked data."""
    n, none = len(ground.plan.retrained), f"No retrained control {'is left' if ground.doubts else 'was given'}"
    if n == 0:
        yield (
            f"{none}: multiple choice is compared with guessing, and nothing else is judged, because the answers of a "
            "retrained model are unknown. Train models without the forget set (vestige finetune --forget) and "
            "name them or their logs as retrained."
        )
    elif n < LEAST_CONTROLS:
        yield (
            f"{'Two retrained controls were' if n == 2 else 'One retrained control was'} given, and {ADVISED_CONTROLS} "
            "are advised: how much one training differs from another is mostly assumed here, and not measured."
        )
    if not ground.plan.soundness:
        yield (
            "The data set was not checked for answers that the retain set or the options give away (run vestige "
            "check-data with these data and this forget and retain set)."
        )
