"""What one finding may decide, and that nothing holds that rests on what failed."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hand_made import FORGET, RETRAINED, N, attack, case, everywhere, spent, subject, verdict
from scipy.special import ndtr, ndtri

from vestige.artifacts.audits import REQUIRED, AuditOutcome, AuditPlan, FailedTask, PlannedAttack, VerdictLine
from vestige.auditing.claims import drop_failed_evidence
from vestige.auditing.groups import _stored
from vestige.auditing.judge import judge, lay
from vestige.metrics.planning import masked, masked_among

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


QUICK = 500
PART = attack("relearn forget_part n=30", material="forget_part")


def test_the_lower_end_of_what_is_stored_counts_luck_that_a_contract_shares():
    recalled = np.zeros((4, N))
    recalled[0, :30] = 1
    # Each control guesses half of one contract of forty.
    for control in range(1, 4):
        recalled[control, 40 * (control - 1) : 40 * (control - 1) + 20] = 1
    by_contract = lay(case(), QUICK)
    alone = lay(case(edges={}), QUICK)
    assert _stored(by_contract, FORGET, recalled).low < _stored(alone, FORGET, recalled).low
    assert _stored(by_contract, FORGET, recalled).value == _stored(alone, FORGET, recalled).value


@pytest.mark.parametrize("able", [True, False])
def test_an_attack_that_brings_nothing_back_in_the_positive_control_gives_no_count_of_stored_facts(able):
    ends = everywhere(PART, 0.0, unlearned=0.5, suppressed=float(able))
    outcome = judge(case(None, ends, attacks=(PART,)), resamples=QUICK)
    assert bool(outcome.stored) == able
    assert any("has no lower bound" in note for note in outcome.untested) != able


@pytest.mark.parametrize(("bits", "expected"), [(1e6, "inconclusive"), (10.0, "fails")])
def test_an_attack_that_could_have_carried_its_gain_in_fails_no_claim_alone(bits, expected):
    ends = everywhere(PART, 0.0, unlearned=0.5)
    carried = {(PART.name, name): spent(bits) for name in (*RETRAINED, "ga")}
    line = verdict(judge(case(None, ends, attacks=(PART,), carried=carried), resamples=QUICK), "not recoverable")
    assert line.outcome == expected
    told = any("could have carried this in" in gap for gap in line.left_out)
    assert told == (expected == "inconclusive")


def test_the_largest_lower_bound_decides():
    ga = {**subject(0.3), "forced/probability": subject(0.9)["forced/probability"]}
    line = verdict(judge(case({"ga": ga}), resamples=QUICK), "not expressed")
    assert (line.outcome, line.decides) == ("fails", "forced")
    assert line.at_least > 0.8


def test_a_reversal_of_two_models_is_found_between_formats():
    words, options = subject(0.6), subject(0.1)
    both = {"generate/rouge1_recall", "generate/exact_match"}
    first = {key: (words if key in both else options)[key] for key in words}
    second = {key: (options if key in both else words)[key] for key in words}
    made = case({"ga": first, "npo": second}, unlearned=("ga", "npo"))
    (line, *_) = judge(made, resamples=4000).reversals
    assert {line.first, line.second} == {"ga", "npo"}
    assert "generate" in (line.more_in, line.less_in)
    alike = case({"ga": first, "npo": first}, unlearned=("ga", "npo"))
    assert judge(alike, resamples=4000).reversals == ()


def test_a_mask_is_told_beside_controls_that_differ_as_a_whole_and_a_low_training_is_none():
    # Four controls, two low and two high on all of sixteen facts. The outer ones count as z = -3.09 and 3.09, and the
    # inner ones are 16 ranks of 1 and of 2 among 0 to 3, with z = -1.9 and 1.7. The root of the mean square is 2.5.
    steps = np.arange(16) / 100
    controls = np.stack([steps, steps + 0.1, steps + 1, steps + 1.1])
    low = masked(steps - 0.05, controls)
    assert low == pytest.approx(5.0**-16)
    assert masked_among(steps - 0.05, controls) == pytest.approx(ndtr(ndtri(low) / 2.5), rel=0.1)
    # Controls that take turns show no more than independent facts do, so the exact test stands.
    turns = np.stack([np.roll(np.tile([0.0, 1.0, 2.0, 3.0], 4), k) for k in range(4)])
    assert masked_among(np.full(16, -1.0), turns) == pytest.approx(5.0**-16)
