"""From the parts of a judgement to the claims about one unlearned subject.

A claim rests on quantities in shares and in bits, each unit with its own margins (`metrics.verdicts`), and can rest on
other findings beside them; it fails where one of these fails and holds where all hold. What was planned and could not
be judged, and a control that a claim needs and that is missing, keep it from holding and not from failing. Nothing
holds either that rests on a task that failed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vestige.artifacts.audits import (
    CLAIMS,
    GIVEN,
    NO_ATTACK,
    REQUIRED,
    STATEMENTS,
    AuditOutcome,
    AuditPlan,
    Claim,
    EvidenceLevel,
    FailedTask,
    SoundnessLine,
    VerdictLine,
    by_level,
)
from vestige.artifacts.scores import QuestionType
from vestige.auditing.ability import AttackAbility
from vestige.auditing.formats import OF_ALTERNATIVES, STORED, Scale, TestedFormats, of_another_start
from vestige.auditing.ground import Ground, shown
from vestige.auditing.groups import Grouped, in_one_group
from vestige.auditing.matrix import Expressed
from vestige.auditing.measures import Losses
from vestige.auditing.membership import Membership
from vestige.auditing.recovery import AttackResult, Recovery
from vestige.auditing.singles import Singles
from vestige.core.text import one_line, sentence
from vestige.metrics.planning import LEAST_CONTROLS
from vestige.metrics.verdicts import ClaimVerdict, Evidence, Margins, Outcome, not_recovered, stays_below, stays_within

NO_CONTROL = "no retrained control was given"
ONE_CONTROL = "one retrained control alone does not show how far two trainings differ"
_PREFERS = "The target prefers the true answers to others that it could not have told from them"


@dataclass(frozen=True)
class ClaimEvidence:
    """What a claim is decided on: its parts, what was left out, and what keeps it from holding (`gaps`).

    `besides` is what else it rests on where it holds.
    """

    parts: tuple[ClaimVerdict, ...]
    left_out: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    besides: str = ""


@dataclass(frozen=True)
class SubjectEvidence:
    """All that was found out about one subject, of which each claim reads some.

    `singles_before` and `singles_after` are the single facts that it gives away as it is, and after attacks; `inside`
    is what its blocks hold, in the formats `stored`, of all facts, by group and of single facts. `carried` says of an
    attack how it could have carried in what it gained.
    """

    subject: str
    ground: Ground
    tested: TestedFormats
    expressed: Expressed
    singles_before: Singles
    singles_after: Singles
    grouped: Grouped
    stored: TestedFormats
    inside: Expressed
    stored_by_group: Grouped
    stored_singles: Singles
    recovery: Recovery
    ability: AttackAbility
    membership: Membership
    losses: Losses
    carried: Mapping[str, str]

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The admitted formats that it was asked in."""
        return self.tested.asked_of(self.ground, self.subject)


def not_expressed(about: SubjectEvidence) -> ClaimEvidence:
    """Leakage in every admitted format, forced answers in bits, single facts, and every contract or person.

    Picks can only fail the claim: to show that they stay below a margin takes more facts than probabilities do.
    """
    ground, tested, expressed, singles = about.ground, about.tested, about.expressed, about.singles_before
    picks = [e._replace(metric="leakage", unit="leakage", fails_only=True) for e in expressed.picks.values()]
    parts = _judged(ground, [*expressed.leaks.values(), *picks, *expressed.bits_evidence], stays_below)
    parts, one_group = _unless_one_group(ground, about.subject, tested, expressed, parts)
    gaps = (*one_group, *_not_asked(about), *_in_no_format(about))
    return ClaimEvidence(
        (*parts, *_alone(about.grouped, singles)),
        (*_same(about), *tested.not_admitted, *about.grouped.left_out),
        (*gaps, *about.grouped.gaps, *singles.gaps),
    )


def _in_no_format(about: SubjectEvidence) -> Iterator[str]:
    """That facts were asked in no admitted format: they count as known for a pass."""
    asked = {item for scale in about.scales for item in scale.items}
    n, of = len(set(about.ground.judged) - asked), len(about.ground.judged)
    if asked and n:
        yield f"{n} of {of} facts were asked in no admitted format, and they count as known for a pass"


def _same(about: SubjectEvidence) -> Iterator[str]:
    """The formats in which all controls score like the target on some facts."""
    for scale in about.scales:
        if scale.same:
            yield (
                f"{scale.name}: all controls score like the target on {len(scale.same)} of {len(scale.items)} facts, "
                "so that these cannot be judged and count as known for a pass"
            )


def _not_asked(about: SubjectEvidence) -> tuple[str, ...]:
    """The admitted formats in which nothing is known of the subject, each with why."""
    collapsed = about.ground.case.collapsed
    return tuple(collapsed.get((about.subject, name), f"{name}: not asked of it") for name in about.expressed.not_asked)


def not_recoverable(about: SubjectEvidence) -> ClaimEvidence:
    """The recovery of every attack that is evidence; ceilings and saturated attacks are left out and named.

    It holds where one of them was shown able to bring knowledge back. What a subject answers without any attack, who
    attacks it has too: where no attack is shown to bring more, the subject fails by that.
    """
    ground, tested, ability, singles = about.ground, about.tested, about.ability, about.singles_after
    if not ground.plan.retrained and tested.against != "alternatives":
        return ClaimEvidence((), tested.not_admitted, ground.doubts or (NO_CONTROL,))
    if not ground.plan.attacks:
        return ClaimEvidence((), tested.not_admitted, ("no attack was run",))
    results = [result for result in about.recovery.tried if result.subject == about.subject]
    counted = [(result.attack.name, result.format) for result in results if not result.why_not]
    gaps = (*about.recovery.missing[about.subject], *_no_room(results, ground), *ability.gaps(counted), *singles.gaps)
    out = (*(f"{result.gain.name}: {result.why_not}" for result in results if result.why_not), *ability.powerless)
    parts = [*_gains(about, results), *_alone(singles)]
    gaps = (*gaps, *_carried_in(about, results, parts))
    failing = any(part.outcome == "fails" for part in parts)
    # A positive control that answers shows nothing of what an attack can find.
    if results and not failing and about.subject != ground.plan.suppressed:
        parts += _without_attack(about)
    return ClaimEvidence(tuple(parts), (*tested.not_admitted, *out), gaps, ability.said(counted))


def _gains(about: SubjectEvidence, results: Sequence[AttackResult]) -> Iterator[ClaimVerdict]:
    """The verdict on all gains that count; open where only attacks fail it that could have carried the gain in."""
    counted = [result for result in results if not result.why_not]
    if not counted:
        return
    verdict = not_recovered([result.gain for result in counted], about.ground.thresholds)
    clean = [result.gain for result in counted if result.attack.name not in about.carried]
    if verdict.outcome == "fails" and len(clean) < len(counted):
        by_clean = not_recovered(clean, about.ground.thresholds) if clean else None
        if by_clean is None or by_clean.outcome != "fails":
            verdict = replace(verdict, outcome="inconclusive")
    yield verdict


def _carried_in(
    about: SubjectEvidence, results: Sequence[AttackResult], parts: Sequence[ClaimVerdict]
) -> Iterator[str]:
    """Which attacks could have carried in what they gained, where no other attack fails the claim."""
    if any(part.outcome == "fails" for part in parts):
        return
    for name in dict.fromkeys(result.attack.name for result in results if not result.why_not):
        gained = any(r.gain.counted(0.0).ends[0] > 0 for r in results if r.attack.name == name)
        if name in about.carried and gained:
            yield f"{name} {about.carried[name]}, so that another attack has to show it"


def _without_attack(about: SubjectEvidence) -> Iterator[ClaimVerdict]:
    """What fails "not expressed", as what comes without any attack."""
    for verdict in not_expressed(about).parts:
        if verdict.outcome == "fails" and verdict.decides is not None:
            estimates = {f"{NO_ATTACK}, {name}": estimate for name, estimate in verdict.estimates.items()}
            decides, reason = f"{NO_ATTACK}, {verdict.decides}", f"without any attack, {verdict.reason}"
            yield replace(verdict, decides=decides, reason=reason, evidence=(), further=estimates)


def _no_room(tried: Sequence[AttackResult], ground: Ground) -> list[str]:
    """That a subject knows most of it before any attack: too little is left to bring back, so nothing follows."""
    # The bound of an attack that is saturated, seen from the subject's side.
    most = 1 - ground.thresholds.saturation
    close = [result for result in tried if result.gain.unit != "bits" and result.gain.before.value > most]
    if not close:
        return []
    worst = max(close, key=lambda result: result.gain.before.value)
    before = worst.gain.before.estimate(worst.gain.unit, worst.gain.unit)
    return [f"before any attack its leakage in {worst.format} is {before}, so too little is left to bring back"]


def not_stored(about: SubjectEvidence) -> ClaimEvidence:
    """What its blocks tell, in every admitted format of `inside`, of all facts, of every group and of single facts."""
    by_group, singles = about.stored_by_group, about.stored_singles
    return stored_evidence(about.ground, about.subject, about.stored, about.inside, by_group, singles)


def stored_evidence(
    ground: Ground, subject: str, stored: TestedFormats, inside: Expressed, grouped: Grouped, singles: Singles
) -> ClaimEvidence:
    """The same of one model by itself. Single facts can only fail it: few wrong answers are beaten by luck too often.

    What speaks against some fact, and is not enough to fail it, is left out by name.
    """
    if not ground.plan.retrained or ground.doubts:
        return ClaimEvidence((), stored.not_admitted, ground.doubts or (NO_CONTROL,))
    # Another start is no gap: nobody could have read it, and its blocks show nothing.
    lacking = [name for name in inside.not_asked if not of_another_start(ground, subject, name)]
    other_start = (f"{name}: its initial weights are not the target's" for name in {*inside.not_asked} - {*lacking})
    parts = _judged(ground, [*inside.leaks.values()], stays_below)
    gaps = tuple(f"{name}: not read of it" for name in lacking)
    parts, one_group = _unless_one_group(ground, subject, stored, inside, parts)
    return ClaimEvidence(
        (*parts, *_alone(grouped, singles)),
        (*stored.not_admitted, *other_start, *grouped.left_out, *singles.gaps),
        (*one_group, *gaps, *grouped.gaps),
    )


def _unless_one_group(
    ground: Ground, subject: str, tested: TestedFormats, expressed: Expressed, parts: tuple[ClaimVerdict, ...]
) -> tuple[tuple[ClaimVerdict, ...], tuple[str, ...]]:
    """The parts, open where they fail and it may be the luck of one group, and that."""
    failing = any(part.outcome == "fails" for part in parts)
    one_group = in_one_group(ground, tested, expressed, subject) if failing else ""
    if not one_group:
        return parts, ()
    return tuple(replace(part, outcome="inconclusive") for part in parts), (one_group,)


def indistinguishable(about: SubjectEvidence) -> ClaimEvidence:
    """Membership scores and the excess of every admitted format, on both sides, and bits on both sides."""
    ground, tested, membership, subject = about.ground, about.tested, about.membership, about.subject
    if not ground.plan.retrained or ground.doubts:
        # Where controls know what they should not, a model that forgot can be told from them too.
        return ClaimEvidence((), tested.not_admitted, ground.doubts or (NO_CONTROL,))
    placements = membership.differences.get(subject, ())
    excess = [Evidence(name, draws, "excess", "share") for name, draws in about.expressed.excess.items()]
    gaps = [*membership.missing.get(subject, ()), *_not_asked(about)]
    if not placements:
        gaps.append("membership could not be tested: it takes holdout items and membership scores")
    if not excess:
        gaps.append("answers could not be compared: it was asked in no admitted format")
    if placements and not membership.admitted:
        gaps.append(f"no membership score tells the target itself from models that never knew: {membership.blind[0]}")
    parts = _judged(ground, [*placements, *excess, *about.expressed.bits_evidence], stays_within)
    return ClaimEvidence(parts, (*tested.not_admitted, *membership.blind), tuple(gaps))


def utility_preserved(about: SubjectEvidence) -> ClaimEvidence:
    """Harm to every split that the target knows."""
    parts = _judged(about.ground, about.losses.harms, stays_below)
    return ClaimEvidence(parts, about.losses.left_out, about.losses.missing)


def decide(claim: Claim, subject: str, grounds: ClaimEvidence, ground: Ground, tested: TestedFormats) -> VerdictLine:
    """The line of one claim: outcome, reason in one sentence, and the numbers."""
    scales = tested.asked_of(ground, subject) if STATEMENTS[claim].controls else ()
    against = tested.against if STATEMENTS[claim].controls and grounds.parts else ""
    if STATEMENTS[claim].controls and len(ground.plan.retrained) == 1:
        grounds = replace(grounds, gaps=(*grounds.gaps, ONE_CONTROL))
    # Alternatives need no controls, so that doubts about these open nothing.
    if STATEMENTS[claim].controls and against != "alternatives":
        grounds = replace(grounds, gaps=tuple(dict.fromkeys((*ground.doubts, *grounds.gaps))))
    verdicts = grounds.parts
    outcomes = {verdict.outcome for verdict in verdicts}
    outcome: Outcome = "inconclusive"
    if "fails" in outcomes:
        outcome = "fails"
    elif outcomes == {"holds"} and not grounds.gaps:
        outcome = "holds"
    main = next((verdict for verdict in verdicts if verdict.outcome == outcome), verdicts[0] if verdicts else None)
    margins = main.margins if main is not None else ground.thresholds.margins("leakage")
    open_ = [verdict for verdict in verdicts if verdict.outcome == "inconclusive"]
    needs = [verdict.items_needed for verdict in open_]
    # More items do not fill a gap.
    estimable = outcome == "inconclusive" and needs and None not in needs and not grounds.gaps
    needed = max(n for n in needs if n is not None) if estimable else None
    return VerdictLine(
        subject=subject,
        claim=claim,
        outcome=outcome,
        reason=_reason(claim, outcome, grounds, against, ground.plan.evidence_level if ground.plan.retrained else ""),
        margin=margins.narrow,
        wide=margins.wide,
        unit=main.unit if main is not None else "leakage",
        decides=main.decides if main is not None else None,
        at_least=main.at_least if main is not None else None,
        at_most=main.at_most if main is not None else None,
        evidence={name: estimate for part in grounds.parts for name, estimate in part.estimates.items()},
        left_out=(*grounds.left_out, *grounds.gaps),
        items_needed=needed,
        needed="" if grounds.gaps else "; ".join(dict.fromkeys(verdict.needed for verdict in open_ if verdict.needed)),
        detectable=main.detectable if main is not None else None,
        against=against,
        n_asked=len(ground.judged),
        n_tested=_n_tested(scales),
        question_types=tuple(dict.fromkeys(scale.form.question_type for scale in scales)),
    )


def _n_tested(scales: Sequence[Scale]) -> int:
    """On how many facts a subject was asked, less those that cannot be judged in the format with most of these."""
    asked = {item for scale in scales for item in scale.items}
    same = [len(scale.same) for scale in scales]
    return len(asked) - max(same, default=0)


def benchmark_valid(about: SubjectEvidence) -> ClaimEvidence:
    """Some format tells target from `retrained`, retain items bring `retrained` nothing, and the data set is sound."""
    ground, tested, recovery = about.ground, about.tested, about.recovery
    parts, gaps = [], list(ground.doubts)
    if not tested.scales and not gaps:
        parts.append(_none_admitted(ground, tested))
    if tested.against == "alternatives":
        least = ground.thresholds.admission
        for form in (read.line for read in tested.reads if read.line.admitted):
            # That the target prefers the true answers, which it could not had it never known them.
            parts.append(
                ClaimVerdict(
                    "holds",
                    form.reason,
                    Margins(least, least),
                    "share",
                    (),
                    further={f"admission, {form.format}": form.admission},
                )
            )
        if ground.plan.alternatives == GIVEN and not any(
            line.check.startswith(OF_ALTERNATIVES) for line in ground.case.soundness
        ):
            gaps.append("nothing checked whether the true answers can be told from the alternatives by their form")
    elif not ground.plan.retrained and not gaps:
        gaps.append(NO_CONTROL)
    # What controls know that they should not is no fault of the retain set.
    if recovery.injections and not ground.doubts:
        parts += _judged(ground, recovery.injections, stays_below)
    elif ground.plan.retrained and tested.scales and not ground.doubts:
        gaps.append("no relearning on retain items was judged, so whether they give the answers away was not tested")
    if not ground.case.soundness:
        gaps.append("nothing checked whether the retain set or the options give answers away (vestige check-data)")
    margins = ground.thresholds.margins("leakage")
    for line in (line for line in ground.case.soundness if line.sound is False):
        estimates = {} if line.effect is None else {f"soundness, {line.check}": line.effect}
        parts.append(ClaimVerdict("fails", _said(line), margins, "leakage", (), further=estimates))
    undecided = [line for line in ground.case.soundness if line.sound is None]
    # What a guess could be worth is measured where several models that never knew have answered the same options.
    measured = len(ground.plan.retrained) >= LEAST_CONTROLS and not ground.doubts
    gaps += [_said(line) for line in undecided if line.p is None or not measured]
    notes = [_said(line) for line in undecided if line.p is not None and measured]
    return ClaimEvidence(tuple(parts), (*tested.not_admitted, *notes), tuple(gaps))


GROUNDS: Mapping[Claim, Callable[[SubjectEvidence], ClaimEvidence]] = {
    "not expressed": not_expressed,
    "not recoverable": not_recoverable,
    "not stored": not_stored,
    "indistinguishable": indistinguishable,
    "utility preserved": utility_preserved,
    "benchmark valid": benchmark_valid,
}
"""By the claim, on what it is decided."""


def verdicts(about: SubjectEvidence) -> list[VerdictLine]:
    """The line of every claim about one subject; "not stored" where blocks were read."""
    inside = any(about.ground.has(about.ground.plan.target, form.key) for form in STORED)
    return [
        decide(claim, about.subject, grounds_of(about), about.ground, about.tested)
        for claim, grounds_of in GROUNDS.items()
        if inside or not STATEMENTS[claim].optional
    ]


def _judged(
    ground: Ground, evidence: Sequence[Evidence], rule: Callable[..., ClaimVerdict]
) -> tuple[ClaimVerdict, ...]:
    """The verdict on all quantities of a claim, in whatever units; none where there is no quantity."""
    return (rule(evidence, ground.thresholds),) if evidence else ()


def _alone(*tests: Grouped | Singles) -> Iterator[ClaimVerdict]:
    """That single facts or groups fail the claim; that none does is no evidence that it holds, and none is needed."""
    for test in tests:
        if test.verdict is not None:
            yield test.verdict


def _none_admitted(ground: Ground, tested: TestedFormats) -> ClaimVerdict:
    """No format is admitted.

    It fails where the target is clearly too near in all of them, and it was asked for answers in its own words and for
    the probability of the true answer. Otherwise a score that is missing may tell.
    """
    least = ground.thresholds.admission
    near = bool(tested.reads) and all(read.scale.gap.ends[1] < least for read in tested.reads)
    asked = {read.scale.form.question_type for read in tested.reads}
    lacking = [words for kind, words in _BASIC.items() if kind not in asked]
    outcome: Outcome = "fails" if near and not lacking else "inconclusive"
    reason = "in no format does the target clearly exceed its control" + (
        f": all intervals are below {least:g}" if near else f" by {least:g}"
    )
    if near and lacking:
        reason += f", and nothing has scores of {' and '.join(lacking)}"
    estimates = {f"admission, {line.format}": line.admission for _, line in tested.reads}
    return ClaimVerdict(outcome, reason, Margins(least, least), "share", (), further=estimates)


_BASIC: Mapping[QuestionType, str] = {
    "own words": "answers in its own words",
    "forced answer": "the probability of the true answer",
}
"""Scores without which nobody can say that a benchmark cannot tell who knows."""


def _said(line: SoundnessLine) -> str:
    """The check and its reason, which may quote the data set."""
    return f"{line.check}: {one_line(line.reason, width=300).rstrip('.')}"


def _reason(claim: Claim, outcome: Outcome, grounds: ClaimEvidence, against: str, level: EvidenceLevel) -> str:
    """One sentence: the finding, the number that decides, and what kept the claim from holding."""
    outcomes = {part.outcome for part in grounds.parts}
    placeholders = {"control": "guessing"} if against == "chance" else {}
    statement = STATEMENTS[claim]
    texts = {"holds": statement.holds, "fails": statement.fails, "inconclusive": statement.inconclusive}
    leads = {name: by_level(text, level, kept=_sets(grounds.parts), **placeholders) for name, text in texts.items()}
    if against == "alternatives":
        leads["holds"] = _PREFERS if claim == "benchmark valid" else leads["holds"]
        leads = {name: f"Against alternatives, {text[0].lower()}{text[1:]}" for name, text in leads.items()}
    missing = _few(grounds.gaps)
    if not outcomes:
        return f"Not tested: {'; '.join(missing or _few(grounds.left_out) or ['nothing could be asked'])}."
    if outcome == "inconclusive" and outcomes == {"holds"}:
        return f"{leads['holds']} where it was tested ({_because('holds', grounds)}), but {'; '.join(missing)}."
    additions = (
        missing if outcome == "inconclusive" else [grounds.besides] if outcome == "holds" and grounds.besides else []
    )
    return f"{leads[outcome]}: {'; and '.join([_because(outcome, grounds), *additions])}."


def _because(outcome: Outcome, grounds: ClaimEvidence) -> str:
    """The reasons of the parts that came out so."""
    return "; and ".join(part.reason for part in grounds.parts if part.outcome == outcome)


def _sets(parts: Sequence[ClaimVerdict]) -> str:
    """The splits behind the quantities of the claim that they were kept, which are named by split and format."""
    names = list(dict.fromkeys(name.partition(",")[0] for part in parts for name in part.estimates))
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _few(sentences: Sequence[str]) -> list[str]:
    """The first of what is listed in full beside the reason."""
    n_further = len(sentences) - 1
    count = f" (and {n_further} more {'reason' if n_further == 1 else 'reasons'})" if n_further > 0 else ""
    return [sentences[0] + count] if sentences else []


def drop_failed_evidence(outcome: AuditOutcome, plan: AuditPlan) -> AuditOutcome:
    """The outcome in which no claim holds that would need what failed. What fails without it, fails.

    An attack that failed on one unlearned model concerns that model, one that failed on a control all of them; an
    unlearned model that could not be evaluated has all its claims inconclusive. What failed on the positive control is
    no evidence of what attacks can do, and the judgement knows that.
    """
    # No claim rests on an attack that shows the answers, or on what one does to the target.
    ceilings = {attack.name for attack in plan.attacks if attack.shows_answers}
    needed = [f for f in plan.failed if not f.attack or (f.attack not in ceilings and f.role != "target")]
    verdicts = []
    for verdict in outcome.verdicts:
        line = verdict
        shared = [f for f in needed if f.role not in ("unlearned", "suppressed") or f.subject == line.subject]
        missing = [f for f in shared if not f.attack or STATEMENTS[line.claim].attacks]
        if line.outcome == "holds" and missing:
            further = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            reason = f"{line.reason.rstrip('.')}, but {_what(missing[0])}{further} failed."
            left_out = (*line.left_out, *(f"{_what(f)}: {_why(f)}" for f in missing))
            line = replace(line, outcome="inconclusive", reason=reason, left_out=left_out)
        verdicts.append(line)
    judged = {*REQUIRED, *(line.claim for line in outcome.verdicts)}
    for f in plan.failed:
        if f.role == "unlearned" and not f.attack:
            reason = f"Not tested: {_what(f)} failed: {_why(f)}."
            verdicts += [
                VerdictLine(f.subject, claim, "inconclusive", reason, 0.0, 0.0, "leakage", {}, (), None, None)
                for claim in CLAIMS
                if claim in judged
            ]
    failures = tuple(sentence(f"{_what(f)} failed: {_why(f)}") for f in plan.failed)
    return replace(outcome, verdicts=tuple(verdicts), untested=(*failures, *outcome.untested))


def _what(failed: FailedTask) -> str:
    subject = shown(failed.subject)
    return f"{failed.attack} on {subject}" if failed.attack else f"the evaluation of {subject}"


def _why(failed: FailedTask) -> str:
    """The error's own words, which may quote a file or a model."""
    return one_line(failed.reason, width=300).rstrip(".")
