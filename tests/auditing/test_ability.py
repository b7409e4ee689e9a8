"""Which attacks were shown able to find anything, and what may hold on them; planted scores, no model."""

from dataclasses import replace

import pytest
from hand_made import RETRAINED, attack, case, everywhere, subject, together, verdict

from vestige.artifacts.audits import FailedTask
from vestige.artifacts.verdicts import verdict_rows
from vestige.auditing.claims import drop_failed_evidence
from vestige.auditing.judge import judge

QUICK = 2000
RELEARN = attack()
NULL = attack("relearn retain n=50 rate=1e-09")
ROUND = attack("quantize 8 bits", "quantize", "nothing", points=("given",))


def judged(ends, attacks=(RELEARN,), subjects=None, **changes):
    return judge(case(subjects, ends, attacks=attacks, **changes), resamples=QUICK)


def able(found, name=RELEARN.name):
    (line,) = [one for one in found.able if one.attack == name]
    return line


def test_an_attack_that_brings_back_what_is_surely_there_lets_the_claim_hold_and_says_so():
    found = judged(everywhere(RELEARN, 0.0, suppressed=0.8))
    line = verdict(found, "not recoverable")
    assert line.outcome == "holds"
    assert "shown able: relearn retain n=50 (0.80 [" in line.reason
    one = able(found)
    assert (one.able, one.why_not, one.unit, one.format) == (True, "", "leakage", "generate")
    assert one.suppressed.value == pytest.approx(1.0)
    assert one.brought.value == pytest.approx(0.8)


def test_an_attack_that_does_nothing_never_lets_it_hold():
    found = judged(everywhere(NULL, 0.0, suppressed=0.0), (NULL,))
    line = verdict(found, "not recoverable")
    assert line.outcome == "inconclusive"
    assert "no attack brought back half of what the positive control held back (the most is 0.00, by" in line.reason
    assert any("so that it proves nothing by bringing nothing back" in one for one in line.left_out)
    assert not able(found, NULL.name).able


@pytest.mark.slow
@pytest.mark.parametrize(("share", "enough"), [(0.49, False), (0.51, True)])
def test_half_of_what_was_suppressed_is_the_bar(share, enough):
    found = judged(everywhere(RELEARN, 0.0, suppressed=share))
    assert able(found).able is enough
    assert (verdict(found, "not recoverable").outcome == "holds") is enough


def test_what_a_powerless_attack_finds_still_fails_the_claim():
    found = judged(everywhere(RELEARN, 0.0, unlearned=0.6, suppressed=0.0))
    assert verdict(found, "not recoverable").outcome == "fails"


def test_one_able_attack_is_enough_and_the_powerless_one_is_named():
    ends = everywhere(RELEARN, 0.0) | everywhere(ROUND, 0.0, suppressed=0.02)
    found = judged(ends, (RELEARN, ROUND))
    line = verdict(found, "not recoverable")
    assert line.outcome == "holds"
    (said,) = [one for one in line.left_out if one.startswith(ROUND.name)]
    assert "of what the positive control held back it brought back 0.02 [" in said
    assert [one.able for one in found.able] == [True, False]


@pytest.mark.slow
def test_without_a_positive_control_nothing_holds_and_what_fails_fails():
    ends = everywhere(RELEARN, 0.0)
    line = verdict(judged(ends, suppressed=""), "not recoverable")
    assert line.outcome == "inconclusive"
    assert "without a positive control no attack was shown able" in line.reason
    failed = (FailedTask("suppressed", "suppressed", "", "it did not refuse after 20 epochs"),)
    found = judged(ends, suppressed="", failed=failed)
    assert "(it did not refuse after 20 epochs)" in verdict(found, "not recoverable").reason
    assert (found.suppressed, found.control, found.able) == ("", (), ())
    leaking = everywhere(RELEARN, 0.0, unlearned=0.6)
    assert verdict(judged(leaking, suppressed=""), "not recoverable").outcome == "fails"


@pytest.mark.slow
def test_a_control_that_still_answers_shows_nothing():
    found = judged(everywhere(RELEARN, 0.0), subjects={"suppressed": subject(0.9)})
    line = verdict(found, "not recoverable")
    assert line.outcome == "inconclusive"
    assert "the positive control could not be made: suppressed still gives at least 0.90" in line.reason
    # Nor where answers are merely less likely, and given all the same.
    given = subject(0.9) | {"forced/answer_bits": subject(0.0)["forced/answer_bits"]}
    found = judged(everywhere(RELEARN, 0.0), subjects={"suppressed": given})
    assert not able(found).able
    assert able(found).brought is None
    # In one of the formats it is silent, and there the attack is able.
    silent = subject(0.9) | {k: v for k, v in subject(0.0).items() if k.startswith("option_text_mean/")}
    found = judged(everywhere(RELEARN, 0.0), subjects={"suppressed": silent})
    assert (able(found).format, able(found).able) == ("option_text_mean", True)
    assert verdict(found, "not recoverable").outcome == "holds"


def test_what_an_attack_carries_in_was_not_found_by_it():
    # It teaches everybody four answers in ten, so that of eight four were known.
    found = judged(everywhere(RELEARN, 0.4, unlearned=0.4, suppressed=0.8))
    assert able(found).brought.value == pytest.approx(0.4)
    assert verdict(found, "not recoverable").outcome != "holds"


def test_a_climb_back_to_those_who_never_knew_is_none_of_what_was_known():
    # Models that never knew guess half; the control's refusals lie far below them, and all that ends is refusing.
    guessing = {name: subject(0.5) for name in (*RETRAINED, "ga")}
    ends = everywhere(RELEARN, 0.5, suppressed=0.5)
    found = judged(ends, subjects=guessing | {"suppressed": subject(0.0)})
    one = able(found)
    assert one.suppressed.value == pytest.approx(1.0)
    assert one.brought.value == pytest.approx(0.0, abs=1e-9)
    assert not one.able


def test_a_ceiling_is_shown_and_is_not_able():
    ceiling = attack("relearn forget n=50", material="forget", shows_answers=True)
    found = judged(everywhere(ceiling, 0.0), (ceiling,))
    one = able(found, ceiling.name)
    assert (one.able, one.brought.value) == (False, pytest.approx(1.0))
    assert "a ceiling" in one.why_not
    assert verdict(found, "not recoverable").outcome != "holds"


def test_an_attack_that_is_able_and_did_not_run_on_a_subject_does_not_speak_for_it():
    ends = everywhere(RELEARN, 0.0) | everywhere(ROUND, 0.0, suppressed=0.0)
    del ends["ga", RELEARN.name]
    line = verdict(judged(ends, (RELEARN, ROUND)), "not recoverable")
    assert line.outcome == "inconclusive"
    assert any("no attack that was shown able" in one for one in line.left_out)


def test_an_attack_that_failed_on_the_control_is_not_shown_able_and_concerns_no_other_claim():
    ends = everywhere(RELEARN, 0.0)
    del ends["suppressed", RELEARN.name]
    made = case(None, ends, attacks=(RELEARN,))
    plan = replace(made.plan, failed=(FailedTask("suppressed", "suppressed", RELEARN.name, "no memory"),))
    found = drop_failed_evidence(judge(replace(made, plan=plan), resamples=QUICK), plan)
    assert able(found).why_not == "nothing that the positive control holds back could be judged after it"
    line = verdict(found, "not recoverable")
    assert line.outcome == "inconclusive"
    assert "failed" not in line.reason
    assert verdict(found, "benchmark valid").outcome == "holds"


def test_the_control_has_verdicts_of_its_own_and_is_none_of_the_methods():
    found = judged(everywhere(RELEARN, 0.0))
    assert {v.subject for v in found.verdicts} == {"ga"}
    own = {v.claim: v.outcome for v in found.control}
    assert (own["not expressed"], own["not recoverable"]) == ("holds", "fails")
    assert {v.subject for v in found.control} == {"suppressed"}
    assert {row["subject"] for row in verdict_rows([found])} == {"ga"}
    assert (found.unlearned, found.suppressed) == (("ga",), "suppressed")
    assert not found.reversals
    assert {f.subject for f in found.facts} <= {"ga"}


def test_bits_alone_can_show_an_attack_able():
    def only_bits(share):
        return together(subject(0.0), {"forced/answer_bits": subject(share)["forced/answer_bits"]})

    ends = everywhere(RELEARN, 0.0)
    ends["suppressed", RELEARN.name] = {"3": subject(0.0) | {"forced/answer_bits": subject(0.7)["forced/answer_bits"]}}
    found = judged(ends, subjects={"suppressed": only_bits(0.0)})
    one = able(found)
    assert (one.format, one.unit, one.able) == ("forced, bits", "bits", True)
    assert one.brought.value == pytest.approx(0.7)
    assert one.suppressed.value == pytest.approx(11.9)
