"""What one finding may decide: luck within a contract, attacks that find nothing or carry in, bounds, reversals."""

import numpy as np
import pytest
from hand_made import FORGET, RETRAINED, N, attack, case, everywhere, spent, subject, verdict
from scipy.special import ndtr, ndtri

from vestige.auditing.judge import judge, lay
from vestige.auditing.singles import _stored
from vestige.metrics.planning import masked, masked_among

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
