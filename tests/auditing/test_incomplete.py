"""Nothing holds that rests on what failed, and nothing that failed anyway is excused by it."""

from dataclasses import replace
from itertools import product

import pytest

from vestige.artifacts.audits import REQUIRED, AuditOutcome, AuditPlan, FailedTask, PlannedAttack, VerdictLine
from vestige.auditing.claims import drop_failed_evidence

LISTS = ("formats", "matrix", "worst", "reversals", "gains", "curves", "budget", "membership", "measures")
EMPTY = dict.fromkeys((*LISTS, "kept", "soundness"), ())


def line(subject: str, claim: str, outcome: str = "holds") -> VerdictLine:
    return VerdictLine(subject, claim, outcome, f"{claim} {outcome}", 0.05, 0.2, "leakage", {}, (), None, None)


def outcome(*verdicts: VerdictLine) -> AuditOutcome:
    return AuditOutcome("edge:A_B", "t", ("ga", "gd"), ("r",), verdicts, untested=(), thresholds={}, **EMPTY)


def plan(*failed: FailedTask) -> AuditPlan:
    return AuditPlan("edge:A_B", "t", ("ga", "gd"), ("r",), {}, {}, {}, {}, (), {}, 0, failed=failed)


WHOLE = outcome(*(line(s, c) for s in ("ga", "gd") for c in REQUIRED))


def changed(*failed: FailedTask) -> set[tuple[str, str]]:
    found = drop_failed_evidence(WHOLE, plan(*failed))
    return {(v.subject, v.claim) for v in found.verdicts if v.outcome != "holds"}


def test_a_whole_audit_stays_as_it_is():
    assert drop_failed_evidence(WHOLE, plan()) == WHOLE


@pytest.mark.parametrize(
    ("failed", "concerned"),
    [
        (FailedTask("ga", "unlearned", "quantize 8 bits", "no room"), (["ga"], ["not recoverable", "benchmark valid"])),
        (FailedTask("r", "retrained", "quantize", "no room"), (["ga", "gd"], ["not recoverable", "benchmark valid"])),
        (FailedTask("r", "retrained", "", "gone"), (["ga", "gd"], REQUIRED)),
    ],
)
def test_what_would_hold_is_open_for_whom_it_concerns(failed, concerned):
    assert changed(failed) == {*product(*concerned)}
    found = drop_failed_evidence(WHOLE, plan(failed))
    reason = next(v.reason for v in found.verdicts if v.outcome == "inconclusive")
    assert failed.subject in reason
    assert any(failed.reason in sentence for sentence in found.untested)


def test_a_ceiling_or_an_attack_on_the_target_that_failed_keeps_nothing_from_holding():
    ceiling = PlannedAttack("relearn forget n=5", "relearn", "forget", 5, ("1",), ("f",), True, {})
    of_ceiling = FailedTask("r", "retrained", ceiling.name, "no room")
    failed = plan(of_ceiling, FailedTask("t", "target", "quantize 8 bits", "no room"))
    found = drop_failed_evidence(WHOLE, replace(failed, attacks=(ceiling,)))
    assert found.verdicts == WHOLE.verdicts
    assert found.untested == ("Relearn forget n=5 on r failed: no room.", "Quantize 8 bits on t failed: no room.")


def test_what_failed_reaches_sentences_on_one_line():
    name = "g\x1b[31m\na"
    found = drop_failed_evidence(WHOLE, plan(FailedTask(name, "retrained", "", "Traceback:\n\x1b[31mgone.")))
    said = [*found.untested, *(v.reason for v in found.verdicts), *(s for v in found.verdicts for s in v.left_out)]
    assert len(said) > 10
    assert not any("\x1b" in one or "\n" in one for one in said)
    assert found.untested == ("The evaluation of g·[31m·a failed: Traceback:··[31mgone.",)


def test_a_claim_that_fails_without_it_still_fails():
    failing = outcome(line("ga", "not recoverable", "fails"), line("ga", "utility preserved"))
    found = drop_failed_evidence(failing, plan(FailedTask("ga", "unlearned", "quantize 8 bits", "no room")))
    assert found.verdicts == failing.verdicts


def test_a_model_that_could_not_be_evaluated_has_all_its_claims_open():
    judged = replace(outcome(line("ga", "utility preserved")), unlearned=("ga",))
    found = drop_failed_evidence(judged, plan(FailedTask("gd", "unlearned", "", "its weights are gone")))
    open_ = {v.claim: v.outcome for v in found.verdicts if v.subject == "gd"}
    assert open_ == dict.fromkeys(REQUIRED, "inconclusive")
    assert found.verdicts[0] == line("ga", "utility preserved")
    assert all("its weights are gone" in v.reason for v in found.verdicts[1:])
