"""The claim "benchmark valid": the benchmark separates the target from controls."""

from collections.abc import Mapping

from vestige.artifacts.audits import Outcome, SoundnessLine
from vestige.artifacts.scores import QuestionType
from vestige.auditing.claims.evidence import NO_CONTROL, SubjectEvidence
from vestige.auditing.formats import TestedFormats
from vestige.auditing.ground import ClaimEvidence, Ground
from vestige.auditing.recovery import relearns_retained
from vestige.core.text import one_line
from vestige.metrics.planning import LEAST_CONTROLS
from vestige.metrics.verdicts import ClaimVerdict, Margins, stays_below

_BASIC: Mapping[QuestionType, str] = {
    "own words": "answers in its own words",
    "forced answer": "the probability of the true answer",
}
"""The kinds of scores that are required before a benchmark can be found unable to separate models."""


def evidence(about: SubjectEvidence) -> ClaimEvidence:
    """The evidence: a format separates target and `retrained`, retain items add nothing, the data are sound."""
    ground, tested, recovery = about.ground, about.tested, about.recovery
    soundness = ground.plan.soundness
    parts: list[ClaimVerdict] = []
    gaps = list(ground.doubts)
    if not tested.judged and not gaps:
        parts.append(_none_admitted(ground, tested))
    if not ground.plan.retrained and not gaps:
        gaps.append(NO_CONTROL)
    # Controls that were exposed to the facts are not a fault of the retain set.
    if recovery.injections and not ground.doubts:
        parts += ground.verdicts(stays_below, recovery.injections)
    elif ground.plan.retrained and tested.judged and not ground.doubts:
        gaps.append("no relearning on retain items was judged, so whether they give the answers away was not tested")
    for attack in ground.plan.attacks:
        if relearns_retained(attack) and set(ground.plan.retrained) & {*ground.plan.skipped.get(attack.name, ())}:
            gaps.append(f"{attack.name} was not made on the controls")
    if not soundness:
        gaps.append("nothing checked whether the retain set or the options give answers away (vestige check-data)")
    notes = []
    # The value of guessing is known if several unexposed models answered the same options.
    measured = len(ground.plan.retrained) >= LEAST_CONTROLS and not ground.doubts
    for line in soundness:
        if line.sound is False:
            estimates = {} if line.effect is None else {f"soundness, {line.check}": line.effect}
            margins = ground.thresholds.margins("leakage")
            parts.append(ClaimVerdict("fails", _said(line), margins, "leakage", (), further=estimates))
        elif line.sound is None and line.p is not None and measured:
            notes.append(_said(line))
        elif line.sound is None:
            gaps.append(_said(line))
    return ClaimEvidence(tuple(parts), (*tested.not_admitted, *notes), tuple(gaps))


def _none_admitted(ground: Ground, tested: TestedFormats) -> ClaimVerdict:
    """Return the verdict if no format is admitted.

    The claim fails if the target is clearly too close to its controls in all formats, including answers in its own
    words and the probability of the true answer. Otherwise it is inconclusive, because a missing score might separate
    them.
    """
    least = ground.thresholds.admission
    near = bool(tested.reads) and all(read.scale.gap.ends[1] < least for read in tested.reads)
    asked = {read.scale.form.question_type for read in tested.reads}
    lacking = [words for kind, words in _BASIC.items() if kind not in asked]
    outcome: Outcome = "inconclusive"
    reason = f"in no format does the target clearly exceed its control by {least:g}"
    if near:
        reason = f"in no format does the target clearly exceed its control: all intervals are below {least:g}"
        if lacking:
            reason += f", and nothing has scores of {' and '.join(lacking)}"
        else:
            outcome = "fails"
    estimates = {f"admission, {line.format}": line.admission for _, line in tested.reads}
    return ClaimVerdict(outcome, reason, Margins(least, least), "share", (), further=estimates)


def _said(line: SoundnessLine) -> str:
    """Return the check and its reason, which may quote the data set."""
    return f"{line.check}: {one_line(line.reason, width=300).rstrip('.')}"
