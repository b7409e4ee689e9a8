import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hand_made import (
    EDGE,
    FORGET,
    HOLDOUT,
    RETAIN,
    RETRAINED,
    N,
    attack,
    case,
    everywhere,
    hits,
    kept,
    known,
    member,
    outcomes,
    subject,
    together,
    verdict,
    with_values,
)

from vestige.artifacts.audits import REQUIRED, SoundnessLine
from vestige.artifacts.scores import Format, Source
from vestige.artifacts.verdicts import bound_said
from vestige.auditing import settings as audit_settings
from vestige.auditing.judge import judge
from vestige.core.errors import InputError
from vestige.core.items import Luck

QUICK = 2000
RETAIN_ONLY = attack()


def cell(found, form, name="ga"):
    (one,) = [c for c in found.matrix if c.format == form and c.subject == name]
    return one


def test_a_subject_that_equals_retrained_holds_all_five_claims():
    found = judge(case(None, everywhere(RETAIN_ONLY, 0.0), attacks=(RETAIN_ONLY,)), resamples=QUICK)
    assert outcomes(found) == dict.fromkeys(REQUIRED, "holds")
    assert [line.format for line in found.formats] == ["generate", "forced", "option_text_mean"]
    assert all(line.admitted for line in found.formats)
    # The target answers everything, and no share is above 1.
    assert max(line.target.high for line in found.formats) == pytest.approx(1.0)
    assert [cell(found, line.format).leakage.value for line in found.formats] == pytest.approx([0, 0, 0], abs=1e-9)


def test_a_subject_that_knows_half_fails_the_first_claim_by_its_numbers():
    found = judge(case({"ga": subject(0.5)}), resamples=QUICK)
    line = verdict(found, "not expressed")
    # ROUGE 0.55 between 0.1 (retrained) and 1 (target): 0.45 / 0.9; bits (-12 + 11.9 / 2) - -12.
    assert line.outcome == "fails"
    assert line.evidence["generate"].value == pytest.approx(0.5)
    assert line.evidence["forced, bits"].value == pytest.approx(5.95)
    said = "It still answers what a retrained model does not: leakage in forced is 0.50 ["
    assert line.reason.startswith(said)
    assert "n = 120, at least 0.4" in line.reason
    assert "of what the target knows, above the margin of 0.1 (p = " in line.reason
    assert "among 5 quantities), and so are 4 others" in line.reason
    assert (line.margin, line.wide, line.unit, line.decides) == (0.1, 0.2, "leakage", "forced")
    assert found.thresholds["delta"] == 0.1
    assert found.thresholds["admission"] == 0.2
    worst, _control = found.worst
    assert worst.leakage.low <= 0.5 <= worst.leakage.high
    band, plain = cell(found, "generate").band, cell(found, "generate").leakage
    assert band.low <= plain.low < 0.5 < plain.high <= band.high


def test_a_verdict_carries_the_end_that_it_rests_on():
    failed = judge(case({"ga": subject(0.5)}), resamples=QUICK)
    line = verdict(failed, "not expressed")
    assert (line.at_least, line.at_most) == (line.evidence["forced"].low, line.evidence["forced"].high)
    said = f"50 % left (at least {100 * line.at_least:.0f} %), forced; states 60 facts that no control states"
    assert bound_said(failed, line) == said
    held = judge(case({"ga": subject(0.0)}), resamples=QUICK)
    line = verdict(held, "not expressed")
    # What holds is bound on one side, at less confidence than the interval has on two.
    assert 0 < line.at_most <= line.evidence[line.decides].high
    assert bound_said(held, line).startswith(f"0 % left (at most {100 * line.at_most:.0f} %)")


def test_each_control_is_judged_by_the_others_so_that_their_spread_can_be_shown():
    controls = {name: subject(share) for name, share in zip(RETRAINED, (0.0, 0.1, 0.2), strict=True)}
    found = judge(case({**controls, "ga": subject(0.5)}), resamples=QUICK)
    assert [line.subject for line in found.never] == list(RETRAINED)
    # The last in shares of words: 0.9 x (0.2 - 0.05) of the 0.9 x 0.95 between the others and the target.
    last = found.never[-1].leakage
    assert last.low <= 0.15 / 0.95 <= last.high
    assert found.never[0].leakage.value < found.never[-1].leakage.value
    assert (found.n_judged, found.n_apart) == (N, 0)


def test_single_facts_carry_the_bits_of_the_subject_and_of_models_that_never_knew():
    # Six facts of six contracts.
    found = judge(
        case({"ga": subject(0.05)}, edges={i: f"edge-{k % 12}" for k, i in enumerate(FORGET)}), resamples=QUICK
    )
    assert [line.item for line in found.facts] == list(FORGET[:6])
    assert {line.by for line in found.facts} == {"stated, all formats together"}
    assert (found.facts[0].bits, found.facts[0].never) == (pytest.approx(-0.1), (-12.0, -12.0))


def test_another_seed_of_retrained_fails_nothing():
    # Each guesses a tenth of the answers, others than the next.
    seeds = {name: subject(0.1, start=12 * k) for k, name in enumerate((*RETRAINED, "ga"))}
    never = {(name, RETAIN_ONLY.name): {"3": known(0.1, start=12 * k)} for k, name in enumerate((*RETRAINED, "ga"))}
    found = judge(case(seeds, never, attacks=(RETAIN_ONLY,)), resamples=QUICK)
    assert "fails" not in outcomes(found).values()
    assert not any(c.over_forgotten for c in found.matrix)


def test_a_control_that_answers_like_the_target_is_left_out_and_named():
    taught = {RETRAINED[1]: subject(0.8), "ga": subject(0.0)}
    found = judge(case(taught), resamples=QUICK)
    assert found.retrained == (RETRAINED[0], RETRAINED[2])
    said = f"{RETRAINED[1]} is left out as a control, since it answers like the target: in generate it scores 0.82, "
    assert found.untested[0].startswith(said + "the target 1.00 and the other controls 0.10")
    # Of the two that are left none can be held against others, fact by fact.
    assert outcomes(found)["not expressed"] == "inconclusive"
    assert "single facts were not tested, which takes 3 retrained models" in verdict(found, "not expressed").reason
    assert all(line.admitted for line in found.formats)
    # Half of the way is not more than half of it.
    assert judge(case({RETRAINED[1]: subject(0.5)}), resamples=QUICK).retrained == RETRAINED


def test_bits_alone_fail_the_first_claim():
    # No answer is given away, but forced answers are 8 bits likelier than on models that never knew.
    quiet = subject(0.0)
    quiet["forced/answer_bits"] = {i: -4.0 + 0.0005 * k for k, i in enumerate(FORGET)}
    line = verdict(judge(case({"ga": quiet}), resamples=QUICK), "not expressed")
    assert line.outcome == "fails"
    assert "forced, bits is 8.00 [" in line.reason
    assert "generate" not in line.reason
    # The margin is that of the quantity that decides.
    assert (line.margin, line.unit) == (4.0, "bits")


def test_an_over_forgotten_subject_is_told_apart_and_expresses_nothing():
    told = {name: subject(0.4) for name in RETRAINED} | {"ga": subject(0.0)}
    # Facts that whoever knows the rest guesses in half of the cases.
    guessed = {i: Luck(i, 0.5) for i in FORGET}
    found = judge(case(told, luck=guessed, suppressed=""), resamples=QUICK)
    assert outcomes(found)["not expressed"] == "holds"
    line = verdict(found, "indistinguishable")
    # ROUGE 0.1 - (0.1 + 0.9 x 0.4) = -0.36.
    assert line.outcome == "fails"
    assert line.evidence["generate"].value == pytest.approx(-0.36)
    assert "n = 120, at least 0.35 less, outside the margin of -0.1 to 0.1 (p = " in line.reason
    assert cell(found, "generate").over_forgotten
    assert cell(found, "generate").leakage.value == pytest.approx(-2 / 3)


def test_forced_answers_below_retrained_in_bits_are_over_forgetting_too():
    low = subject(0.0)
    low["forced/answer_bits"] = {i: -30.0 + 0.0005 * k for k, i in enumerate(FORGET)}
    found = judge(case({"ga": low}), resamples=QUICK)
    assert (cell(found, "forced").over_forgotten, cell(found, "generate").over_forgotten) == (True, False)
    reason = verdict(found, "indistinguishable").reason
    assert "forced, bits is -18.00 [" in reason
    assert "outside the margin of -4 to 4 bits" in reason


def test_harm_to_the_retain_set_fails_the_fourth_claim():
    line = verdict(judge(case({"ga": subject(0.0, retain=0.7)}), resamples=QUICK), "utility preserved")
    assert line.outcome == "fails"
    assert line.evidence["retain, generate"].value == pytest.approx(0.3)
    assert "harm in retain, generate is 0.30 [" in line.reason
    # The retained questions, and not the facts of the forget set.
    assert line.n_tested == line.n_asked == len(case({}).plan.splits["retain"]) > 0


def test_controls_that_do_not_know_what_is_kept_are_named_first_and_open_utility_alone():
    # They score half where the target scores all; margins are 0.1 and 0.2 here.
    weak = dict.fromkeys(RETRAINED[:2], subject(0.0, retain=0.5)) | {RETRAINED[2]: subject(0.0, retain=0.85)}
    plain, found = (judge(case(subjects), resamples=QUICK) for subjects in ({}, weak))
    assert plain.warnings == ()
    (warning,) = found.warnings
    of_each = ", ".join(f"{name} 50 % of 100 %" for name in RETRAINED[:2])
    assert warning.startswith(f"2 of 3 controls answer the retained questions far worse than the target ({of_each}):")
    assert warning in found.untested
    # Trainings that differ so on what is kept show that another training may lose as much.
    assert outcomes(found) == outcomes(plain) | {"utility preserved": "inconclusive"}


def test_what_the_target_does_not_know_cannot_be_kept():
    unknown = {"target": subject(1.0, retain=0.1, shift=2.0), "ga": subject(0.0, retain=0.0)}
    found = judge(case(unknown), resamples=QUICK)
    line = verdict(found, "utility preserved")
    assert line.outcome == "inconclusive"
    assert "the target scores 0.10 itself, not above 0.2: there is nothing to keep" in line.reason
    assert found.kept == ()


def test_membership_tells_forget_from_holdout_items_as_counted_by_pairs():
    told = judge(case({"ga": subject(0.0, shift=0.3)}), resamples=QUICK)
    (line,) = [m for m in told.membership if m.subject == "ga"]
    values = np.linspace(0, 1, N)
    pairs = (values[:, None] + 0.3 > values[None]).mean() + (values[:, None] + 0.3 == values[None]).mean() / 2
    assert line.auc.value == pytest.approx(pairs)
    assert line.difference.value == pytest.approx(pairs - 0.5)
    # MUSE counts holdout texts as positive: (1 - pairs - 0.5) / 0.5.
    assert line.privleak == pytest.approx(100 * (0.5 - pairs) / 0.5)
    assert verdict(told, "indistinguishable").outcome == "fails"
    assert "AUC difference in membership, loss is 0.2" in verdict(told, "indistinguishable").reason


def test_a_holdout_that_every_model_finds_unlikely_tells_nobody_apart_and_lets_nothing_hold():
    # Of texts and gibberish every model tells which is which: an AUC of 1 for all, the target too.
    easy = {i: v - 30 for i, v in member(0.0)["membership/loss"].items() if i in HOLDOUT}
    tables = {name: subject(0.0) for name in (*RETRAINED, "ga", "suppressed")}
    tables |= {"target": subject(1.0, shift=2.0)}
    apart = {name: {**t, "membership/loss": {**t["membership/loss"], **easy}} for name, t in tables.items()}
    found = judge(case(apart), resamples=QUICK)
    assert {m.auc.value for m in found.membership} == {1.0}
    line = verdict(found, "indistinguishable")
    assert line.outcome == "inconclusive"
    assert "no membership score tells the target itself from retrained models: membership, loss: not admitted" in (
        line.reason
    )
    assert outcomes(judge(case(), resamples=QUICK))["indistinguishable"] == "holds"


def test_the_share_of_members_that_are_found_at_one_per_cent_false_ones():
    # Of 120 holdout items from 0 to 1 one may be taken for a member: what is above the next to greatest is found.
    found = judge(case({"ga": subject(0.0, shift=0.3)}), resamples=QUICK)
    (line,) = [m for m in found.membership if m.subject == "ga"]
    values = np.linspace(0, 1, N)
    assert line.found.value == pytest.approx(np.mean(values + 0.3 > values[-2]), abs=1 / N)
    few = judge(case(splits={"forget": FORGET, "retain": RETAIN, "holdout": HOLDOUT[:99]}), resamples=QUICK)
    assert {m.found for m in few.membership} == {None}


def test_data_that_nothing_checked_leave_open_whether_the_benchmark_can_tell():
    unchecked = judge(case(None, everywhere(RETAIN_ONLY, 0.0), attacks=(RETAIN_ONLY,), soundness=()), resamples=QUICK)
    line = verdict(unchecked, "benchmark valid")
    assert line.outcome == "inconclusive"
    assert "but nothing checked whether the retain set or the options give answers away" in line.reason


def test_holdout_items_are_drawn_too():
    # The same forget items against few holdout items: the interval of the AUC is wider.
    few = HOLDOUT[::10]
    splits = {"forget": FORGET, "retain": RETAIN, "holdout": few}
    wide, narrow = (judge(c, resamples=QUICK).membership[-1].auc for c in (case(splits=splits), case()))
    assert wide.high - wide.value > 1.3 * (narrow.high - narrow.value)
    assert wide.value - wide.low > 1.3 * (narrow.value - narrow.low)
    assert wide.n == N + len(few)


def test_the_reference_score_takes_one_retrained_model_as_its_reference():
    def logp(level):
        return {"membership/logp_nats": dict.fromkeys(FORGET, level) | dict.fromkeys(HOLDOUT, -30.0)}

    tables = {name: together(subject(0.0), logp(-30.0)) for name in (*RETRAINED, "ga")}
    tables["target"] = together(subject(1.0), logp(-1.0))
    lines = {m.subject: m for m in judge(case(tables), resamples=QUICK).membership if m.score == "reference"}
    assert set(lines) == {"target", "ga", *RETRAINED[1:]}
    assert (lines["target"].auc.value, lines["ga"].auc.value) == (1.0, 0.5)
    one = judge(case(tables, retrained=RETRAINED[:1]), resamples=QUICK)
    assert not [m for m in one.membership if m.score == "reference"]
    assert any("needs two retrained models" in said for said in one.untested)
    without = case(tables, settings={"delta": 0.1, "membership": ["loss", "zlib"]})
    assert {m.score for m in judge(without, resamples=QUICK).membership} == {"loss"}


def test_without_holdout_items_no_subject_is_said_to_be_like_retrained():
    found = judge(case(splits={"forget": FORGET, "retain": RETAIN}), resamples=QUICK)
    line = verdict(found, "indistinguishable")
    assert line.outcome == "inconclusive"
    assert "membership could not be tested" in line.reason
    assert "No holdout items were given, so membership could not be tested." in found.untested
    # It can still be told by what it knows.
    known_ = judge(case({"ga": subject(0.5)}, splits={"forget": FORGET, "retain": RETAIN}), resamples=QUICK)
    assert verdict(known_, "indistinguishable").outcome == "fails"


def test_without_retrained_leakage_is_against_chance_and_says_so():
    found = judge(case({"ga": subject(0.5)}, attacks=(RETAIN_ONLY,), retrained=()), resamples=QUICK)
    lines = {line.format: line for line in found.formats}
    # How often a model that never knew says an answer in its own words is not known: options alone have a chance.
    assert set(lines) == {"option_text_mean"}
    assert cell(found, "option_text_mean").leakage.metric == "leakage_vs_chance"
    # Half and a quarter of the other half are right: (0.625 - 0.25) / (1 - 0.25).
    assert cell(found, "option_text_mean").leakage.value == pytest.approx(0.5)
    assert all(line.retrained is None for line in found.formats)
    got = outcomes(found)
    assert got["not expressed"] == "fails"
    assert [got[c] for c in ("not recoverable", "indistinguishable", "benchmark valid")] == ["inconclusive"] * 3
    assert (
        "It still answers what guessing does not: leakage against chance in" in verdict(found, "not expressed").reason
    )
    assert "no retrained control was given" in verdict(found, "not recoverable").reason
    assert found.gains == ()
    assert any("No retrained control was given" in said and "vestige finetune" in said for said in found.untested)
    assert any("format generate is left out, since no retrained control was given" in said for said in found.untested)


def test_answers_in_own_words_alone_are_not_judged_without_controls():
    # Honest trainings guess some answers in their own words: against a chance of 0 they would fail.
    values = {"target": subject(1.0, shift=2.0), "ga": subject(0.5)}
    for table in values.values():
        for key in [key for key in table if key.startswith("option")]:
            del table[key]
    found = judge(case(values, attacks=(RETAIN_ONLY,), retrained=()), resamples=QUICK)
    assert {v.outcome for v in found.verdicts if v.claim != "utility preserved"} == {"inconclusive"}
    assert verdict(found, "not expressed").reason.startswith("Not tested: no retrained control was given")


def test_where_overlap_has_no_values_exact_answers_are_counted():
    # ROUGE reads a to z and digits: answers in another script have none.
    plain = {name: subject(1.0 if name == "target" else 0.0) for name in ("target", "ga", *RETRAINED)}
    for table in plain.values():
        del table["generate/rouge1_recall"]
    (line,) = [one for one in judge(case(plain), resamples=QUICK).formats if one.format == "generate"]
    assert (line.metric, line.target.value, line.retrained.value) == ("exact_match", 1.0, 0.0)


def test_margins_in_bits_grow_with_what_the_target_knows_of_an_answer():
    def sentences(table, more=0.0):
        return table | {"forced/answer_bits": {i: 10 * b + more for i, b in table["forced/answer_bits"].items()}}

    def judged(more):
        subjects = {name: sentences(subject(0.0)) for name in RETRAINED}
        subjects |= {"target": sentences(subject(1.0, shift=2.0)), "ga": sentences(subject(0.0), more)}
        return judge(case(subjects, settings={"delta": 0.1, "delta_bits": 4.0}), resamples=QUICK)

    # The target exceeds its controls by 10 x 11.9 bits, of which 10 and 20 % are 11.9 and 23.8: above 4 and 6.
    left, much = judged(8.0), judged(16.0)
    assert left.margins_bits == (11.9, 23.8)
    assert (left.thresholds["delta_bits"], left.thresholds["delta_wide_bits"]) == (4.0, 6.0)
    assert outcomes(left)["not expressed"] == "holds"
    assert verdict(left, "not expressed").decides == "forced, bits"
    assert outcomes(much)["not expressed"] == "fails"
    assert judge(case(), resamples=QUICK).margins_bits == ()


def test_no_admitted_format_decides_nothing_about_the_subject_and_fails_the_benchmark():
    alike = {"target": subject(0.0), "ga": subject(0.0)}
    found = judge(case(alike, everywhere(RETAIN_ONLY, 0.0, target=0.0), attacks=(RETAIN_ONLY,)), resamples=QUICK)
    assert found.worst == ()
    for claim in ("not expressed", "not recoverable"):
        line = verdict(found, claim)
        assert line.outcome == "inconclusive"
        assert "option_text_mean: not admitted, the target exceeds retrained by 0.00 [" in " ".join(line.left_out)
    # Membership alone does not make it one of those that never knew.
    like = verdict(found, "indistinguishable")
    assert like.outcome == "inconclusive"
    assert "answers could not be compared: it was asked in no admitted format" in like.reason
    benchmark = verdict(found, "benchmark valid")
    assert benchmark.outcome == "fails"
    assert "all intervals are below 0.2" in benchmark.reason
    assert benchmark.evidence["admission, option_text_mean"].value == 0.0


def test_items_that_the_retain_set_gives_away_are_apart():
    # 40 of 120 items are entailed, and those the subject answers.
    given = {i: "entailed" if k < 40 else "free" for k, i in enumerate(FORGET)}
    # Were they named as one contract, three controls could not tell them from luck.
    plain, apart = (
        judge(
            case({"ga": subject(40 / 120)}, scopes=s, edges={}, settings={"delta": 0.15, "delta_bits": 4.0}),
            resamples=QUICK,
        )
        for s in ({}, given)
    )
    assert outcomes(plain)["not expressed"] == "fails"
    assert outcomes(apart)["not expressed"] == "holds"
    assert cell(apart, "generate").leakage.n == 80
    assert any(
        said.endswith("gives the answers away: 40 of the 120 forget items (40 entailed, 0 guessable).")
        for said in apart.untested
    )
    all_given = judge(case(scopes=dict.fromkeys(FORGET, "guessable")), resamples=QUICK)
    assert cell(all_given, "generate").leakage.n == N
    assert any("all are judged" in said for said in all_given.untested)


def test_a_reversal_between_two_methods_is_found_with_the_formats_disagreement():
    # ga answers half of the questions in its own words and no option; npo the other way round.
    words, options = subject(0.5), subject(0.5)
    words |= {key: subject(0.0)[key] for key in ("option_text_mean/accuracy", "option_text_mean/probability")}
    for key in ("generate/rouge1_recall", "forced/probability", "forced/answer_bits"):
        options[key] = options[key] | subject(0.0)[key]
    found = judge(case({"ga": words, "npo": options}, unlearned=("ga", "npo")), resamples=QUICK)
    assert {(r.first, r.second, r.more_in, r.less_in) for r in found.reversals} == {
        ("ga", "npo", "generate", "option_text_mean"),
        ("ga", "npo", "forced", "option_text_mean"),
    }
    assert all(r.p <= 0.025 for r in found.reversals)
    same = judge(case(unlearned=("ga", "npo")), resamples=QUICK)
    assert same.reversals == ()


def test_a_quick_audit_of_a_perfect_unlearning_lets_two_claims_hold():
    # What keeps the other three from holding: no membership scores, no positive control, no relearning on kept items.
    quick = audit_settings.QUICK
    assert ("memory" in quick["evals"], quick["suppress"], quick["relearn"]) == (False, False, ("forget_part",))
    tries = attack("relearn forget_part n=50", material="forget_part"), attack("quantize 4 bits", "quantize", "")
    ends = {own: level for one in tries for own, level in everywhere(one, 0.0).items() if own[0] != "suppressed"}
    plain = {name: together(known(share), kept(1.0)) for name, share in (("target", 1.0), ("ga", 0.0))}
    plain |= {name: together(known(0.0), kept(1.0)) for name in RETRAINED}
    found = judge(case(plain, ends, attacks=tries, suppressed=""))
    assert [v.claim for v in found.verdicts if v.outcome == "holds"] == ["not expressed", "utility preserved"]
    assert {v.outcome for v in found.verdicts} == {"holds", "inconclusive"}


def test_reasons_begin_with_the_finding_and_every_remark_is_a_sentence():
    subjects = {"ga": subject(0.5, retain=0.7), "npo": subject(0.0)}
    cases = [
        case(subjects, everywhere(RETAIN_ONLY, 0.0), unlearned=("ga", "npo"), attacks=(RETAIN_ONLY, attack("other"))),
        case(retrained=()),
        case(retrained=RETRAINED[:1], splits={"forget": FORGET[:20], "retain": RETAIN[:20]}),
    ]
    for found in (judge(one, resamples=QUICK) for one in cases):
        for line in found.verdicts:
            assert line.reason.startswith(("It ", "No ", "An ", "The ", "Neither ", "Not tested: ")), line.reason
            assert line.reason.endswith(".")
            assert not {"holds", "fails", "inconclusive", "open"} & set(line.reason.split())
        assert all(said[0].isupper() and said[-1] == "." and said[-2] != "." for said in found.untested)


def test_what_holds_as_far_as_it_was_tested_says_so_with_its_number():
    found = judge(case(None, everywhere(RETAIN_ONLY, 0.0), attacks=(RETAIN_ONLY, attack("other"))), resamples=QUICK)
    line = verdict(found, "not recoverable")
    assert line.outcome == "inconclusive"
    said = "No validated attack recovered more than it added where it was tested (recovery in relearn"
    assert line.reason.startswith(said)
    assert line.reason.endswith(", but other: no answers after it in an admitted format.")
    # Only what there is of the sets is said to be kept.
    assert verdict(found, "utility preserved").reason.startswith(
        "It answers the questions of retain as the target does: harm in "
    )


def test_one_item_of_each_split_is_judged_and_proves_nothing():
    splits = {"forget": FORGET[:1], "retain": RETAIN[:1], "holdout": HOLDOUT[:1]}
    planned = attack(tested=FORGET[:1])
    for controls in (RETRAINED, RETRAINED[:1], ()):
        ends = everywhere(planned, 0.0)
        found = judge(case(None, ends, splits=splits, attacks=(planned,), retrained=controls), resamples=QUICK)
        assert "holds" not in outcomes(found).values()
        assert found.formats[0].target.n == 1


def test_privleak_of_equal_models_is_zero_and_not_what_rounding_leaves():
    shares = np.random.default_rng(0).random((2, N))
    one = {"membership/loss": dict(zip((*FORGET, *HOLDOUT), shares.ravel().tolist(), strict=True))}
    told = {name: together(known(0.0), kept(1.0), one) for name in (*RETRAINED, "ga")}
    # Not in the order of their names, in which they are drawn again: the same sum in another order.
    mixed = tuple(np.random.default_rng(1).permutation(FORGET[:113]).tolist())
    splits = {"forget": mixed, "retain": RETAIN, "holdout": HOLDOUT[:107]}
    found = judge(case(told, splits=splits), resamples=QUICK)
    leaks = {m.subject: m.privleak for m in found.membership}
    assert [str(leaks[name]) for name in (*RETRAINED, "ga")] == ["0.0"] * 4
    assert leaks["target"] < -50


def test_a_model_that_spreads_its_probability_and_still_puts_the_right_option_first_fails_by_its_picks():
    flat = subject(0.0)
    flat["option_text_mean/accuracy"] = subject(1.0)["option_text_mean/accuracy"]
    line = verdict(judge(case({"ga": flat}), resamples=QUICK), "not expressed")
    assert (line.outcome, line.decides) == ("fails", "option_text_mean, picks")
    assert line.evidence["option_text_mean"].high < 0.2


@pytest.mark.parametrize(("lacks", "gap"), [("option_text_mean", ""), ("option_text_mean/accuracy", ", picks")])
def test_a_format_that_one_subject_was_not_asked_in_keeps_it_from_holding(lacks, gap):
    silent = {key: scores for key, scores in subject(0.0).items() if not key.startswith(lacks)}
    found = judge(case({"ga": silent}, unlearned=("ga", "npo")), resamples=QUICK)
    line = verdict(found, "not expressed")
    assert line.outcome == "inconclusive"
    assert f"option_text_mean{gap}: not asked of it" in line.reason
    assert outcomes(found, "npo")["not expressed"] == "holds"


def test_a_benchmark_whose_retain_set_gives_answers_away_fails():
    leaking = judge(case(None, everywhere(RETAIN_ONLY, 0.4), attacks=(RETAIN_ONLY,)), resamples=QUICK)
    line = verdict(leaking, "benchmark valid")
    assert line.outcome == "fails"
    assert line.evidence["relearn retain n=50, generate"].value == pytest.approx(0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sound", "p", "n_controls", "outcome"),
    [
        (True, 0.001, 3, "holds"),
        (False, 0.001, 3, "fails"),
        (None, None, 3, "inconclusive"),
        # Three models that never knew have shown what guessing is worth; two have not.
        (None, 0.4, 3, "holds"),
        (None, 0.4, 2, "inconclusive"),
    ],
)
def test_what_is_known_of_the_data_set_decides_the_benchmark(sound, p, n_controls, outcome):
    line = SoundnessLine("options only", sound, None, p, "the options alone may give 0.61 of the answers")
    planted = everywhere(RETAIN_ONLY, 0.0)
    changes = {"attacks": (RETAIN_ONLY,), "soundness": [line], "retrained": RETRAINED[:n_controls]}
    line_of_claim = verdict(judge(case(None, planted, **changes), resamples=QUICK), "benchmark valid")
    assert line_of_claim.outcome == outcome
    assert (line.reason in line_of_claim.reason) == (outcome != "holds")
    assert any(line.reason in note for note in line_of_claim.left_out) == (sound is None)


def test_without_relearning_on_retain_items_the_benchmark_is_open():
    line = verdict(judge(case(), resamples=QUICK), "benchmark valid")
    assert line.outcome == "inconclusive"
    assert "no relearning on retain items was judged" in line.reason


def test_fewer_than_three_controls_are_said():
    found = judge(case(retrained=RETRAINED[:1]), resamples=QUICK)
    assert any(said.startswith("One retrained control was given, and 5 are advised") for said in found.untested)
    three = cell(judge(case(), resamples=QUICK), "generate").leakage
    one = cell(found, "generate").leakage
    assert one.high - one.low >= three.high - three.low


def test_names_of_subjects_reach_sentences_without_their_control_characters():
    name = "ga\x1b[31m\n‮<script>alert(1)</script>"
    silent = subject(0.0)
    missing = everywhere(RETAIN_ONLY, 0.0)
    del missing["ga", RETAIN_ONLY.name]
    found = judge(case({name: silent}, missing, unlearned=(name,), attacks=(RETAIN_ONLY,)), resamples=QUICK)
    said = [*found.untested, *(v.reason for v in found.verdicts), *(s for v in found.verdicts for s in v.left_out)]
    assert any("not asked after the attack" in s for s in said)
    assert not any(c in s for s in said for c in "\x1b\n‮")


@pytest.mark.slow
def graded(center, seed, spread=0.02):
    """Truth shares of a model about its mean, of which each training has its own."""
    noise = np.random.default_rng(seed).normal(0, spread, N)
    return {"truth/score": dict(zip(FORGET, np.clip(center + noise, 0, 1).tolist(), strict=True))}


def of_truth(shares, spread=0.02):
    """A case with truth shares alone, 0.1 apart between target and controls, by the share of that that is known."""
    names = ("target", *RETRAINED, "ga")
    values = {Source(name): graded(0.4 + 0.1 * shares.get(name, 0.0), n, spread) for n, name in enumerate(names)}
    asked = case(suppressed="")
    formats = (Format("truth", "truth/score", graded=True),)
    return with_values(asked, values, further=formats, settings={})


def test_a_graded_score_in_a_narrow_part_of_its_range_is_judged_where_trainings_agree_in_it():
    found = judge(of_truth({"target": 1.0}), resamples=QUICK)
    (line,) = found.formats
    assert line.admitted
    assert line.reason.endswith("of which another training would move less than a share of 0.2")
    assert outcomes(found)["not expressed"] == "holds"
    assert outcomes(judge(of_truth({"target": 1.0, "ga": 0.3}), resamples=QUICK))["not expressed"] == "fails"
    # Where they do not agree, nothing is said.
    (line,) = judge(of_truth({"target": 1.0}, spread=0.2), resamples=QUICK).formats
    assert not line.admitted
    assert line.reason.endswith("which is not clearly above 0.2")
    # Nor where they agree and the target is hardly apart from them: what is moved by ten such gaps is not 1000 % left.
    found = judge(of_truth({"target": 0.3, "ga": 3.0}, spread=0.001), resamples=QUICK)
    assert not found.formats[0].admitted
    assert {v.outcome for v in found.verdicts if v.claim == "not expressed"} == {"inconclusive"}
    assert all(cell.leakage is None for cell in found.matrix)


def test_a_control_that_is_like_the_target_in_a_narrow_graded_score_is_left_out():
    found = judge(of_truth({"target": 1.0, RETRAINED[1]: 0.9}), resamples=QUICK)
    assert found.retrained == (RETRAINED[0], RETRAINED[2])


def test_the_same_case_gives_the_same_outcome_in_whatever_order_it_comes():
    one = case({"ga": subject(0.3)}, everywhere(RETAIN_ONLY, 0.1), attacks=(RETAIN_ONLY,))
    turned = {
        source: {key: dict(reversed([*values.items()])) for key, values in reversed(table.items())}
        for source, table in reversed(one.scores.values.items())
    }
    other = replace(one, scores=replace(one.scores, values=turned))
    first, second = (judge(c, resamples=QUICK) for c in (one, other))
    assert json.dumps(asdict(first)) == json.dumps(asdict(second))


def test_a_value_that_is_no_score_is_refused_by_its_place():
    for key, value in (("forced/answer_bits", float("nan")), ("forced/answer_bits", 0.5), ("forced/probability", 1.5)):
        broken = subject(0.0)
        broken[key] = broken[key] | {FORGET[3]: value}
        with pytest.raises(InputError, match=f"ga, {key}, f003: (the score {value} is outside|there is no score)"):
            case({"ga": broken}).scores.check()


def test_a_plan_without_forget_items_is_refused():
    with pytest.raises(InputError, match="forget set 'A_B': the plan has no items"):
        judge(case(splits={"retain": RETAIN}))


def test_measures_of_the_field_stand_beside_the_verdicts():
    def ratios(level):
        ratio = dict(zip(FORGET, (level + np.linspace(0, 0.5, N)).tolist(), strict=True))
        truth = dict.fromkeys(RETAIN, 0.5)
        return {
            "memory/truth_ratio_geometric": ratio,
            "memory/extraction_strength": dict.fromkeys(FORGET, level),
            "memory/truth_ratio_score": truth,
        }

    levels = {"target": 0.9, "ga": 0.1, **dict.fromkeys(RETRAINED, 0.1)}
    tables = {s: together(subject(float(s == "target")), ratios(level)) for s, level in levels.items()}
    got = {(m.subject, m.measure): m for m in judge(case(tables), resamples=QUICK).measures}
    assert got["ga", "forget_quality"].value == pytest.approx(1.0)
    assert got["target", "forget_quality"].value < 1e-12
    assert "3 retrained seeds pooled" in got["ga", "forget_quality"].said
    assert "2 retrained seeds pooled" in got[RETRAINED[0], "forget_quality"].said
    assert got["ga", "extraction_strength"].value == pytest.approx(0.1)
    # Probability 1 and truth ratio 0.5 on retain. There is no ROUGE-L: 2 / (1 + 2).
    assert got["ga", "model_utility"].value == pytest.approx(2 / 3)
    assert "harmonic mean of 2" in got["ga", "model_utility"].said


def test_a_subject_or_a_target_of_which_nothing_was_read_leaves_everything_open():
    made = case()
    bare = {s: t for s, t in made.scores.values.items() if s != Source("ga")}
    found = judge(with_values(made, bare), resamples=QUICK)
    assert set(outcomes(found).values()) == {"inconclusive"}
    found = judge(case({"target": kept(1.0) | member(0.0)}), resamples=QUICK)
    assert outcomes(found)["not expressed"] == "inconclusive"
    assert outcomes(found)["benchmark valid"] == "inconclusive"


def test_a_format_of_an_evaluation_from_elsewhere_is_admitted_and_judged():
    def also(found, share):
        return found | {"first word/said": hits(share)}

    names = ("target", *RETRAINED, "ga", "suppressed")
    shares = {"target": 1.0, "ga": 0.5}
    asked = case({name: also(subject(shares.get(name, 0.0)), shares.get(name, 0.0)) for name in names})
    said = (Format("first word", "first word/said", hits="first word/said"),)
    found = judge(with_values(asked, further=said), resamples=QUICK)
    assert cell(found, "first word").leakage.value == pytest.approx(0.5)
    assert verdict(found, "not expressed").evidence["first word"].value == pytest.approx(0.5)
    assert "first word" not in {line.format for line in judge(asked, resamples=QUICK).formats}


def inside(lens, probe=0.5, shuffled=0.5, period=2, apart=0.1):
    """What blocks tell of each forget item: shares of wrong answers beaten, around a mean."""
    around = {i: apart * (-1) ** (k // (period // 2)) for k, i in enumerate(FORGET)}
    means = {"lens": lens, "probe": probe, "shuffled": shuffled}
    return {f"{name}/beaten": {i: mean + d for i, d in around.items()} for name, mean in means.items()}


def stored(ga, **target):
    models = {"target": inside(0.9, **target), "ga": inside(ga), "suppressed": inside(0.8)}
    models |= {name: inside(0.5 + 0.01 * k, period=4 + 2 * k) for k, name in enumerate(RETRAINED)}
    known_to = {"target": subject(1.0, shift=2.0)}
    found = judge(case({n: together(known_to.get(n, subject(0.0)), t) for n, t in models.items()}), resamples=QUICK)
    return found, verdict(found, "not stored")


def test_what_blocks_tell_and_no_reply_says_fails_not_stored_and_nothing_else():
    found, line = stored(0.7)
    # (0.7 - 0.51) / (0.9 - 0.51)
    assert line.outcome == "fails"
    assert line.evidence["lens"].value == pytest.approx(0.19 / 0.39)
    assert "probe: not admitted" in " ".join(line.left_out)
    assert outcomes(found)["not expressed"] == "holds"
    (control,) = [v for v in found.control if v.claim == "not stored"]
    assert control.outcome == "fails"
    assert stored(0.51)[1].outcome == "holds"


def test_a_probe_that_any_labels_teach_as_well_is_no_evidence():
    assert "probe" in stored(0.51, probe=0.9)[1].evidence
    line = stored(0.51, probe=0.9, shuffled=0.8)[1]
    assert "probe" not in line.evidence
    assert "a probe fitted on drawn answers tells the true ones too" in " ".join(line.left_out)


def test_a_group_that_blocks_still_hold_is_not_hidden_by_those_that_they_lost():
    models = {"target": inside(0.9), "ga": inside(0.51), "suppressed": inside(0.8)}
    models |= {name: inside(0.5 + 0.01 * k, period=4 + 2 * k) for k, name in enumerate(RETRAINED)}
    # 0.6 of what the target knows in one contract of three and a quarter less in the others: none in the mean.
    lens = models["ga"]["lens/beaten"]
    lens |= {i: value + (0.234 if k < EDGE else -0.117) for k, (i, value) in enumerate(lens.items())}
    found = judge(case({n: together(subject(float(n == "target")), t) for n, t in models.items()}), resamples=QUICK)
    line = verdict(found, "not stored")
    assert line.evidence["lens"].value == pytest.approx(0.0, abs=0.01)
    assert line.outcome == "inconclusive"
    assert "edge-0" in line.reason
    # Lines of groups are of what is expressed.
    assert all(group.by != "lens" for group in found.groups)


@pytest.mark.parametrize(("n", "outcome"), [(0, "holds"), (1, "holds"), (6, "fails")])
def test_single_facts_in_the_blocks_fail_not_stored_where_the_mean_hides_them_and_open_nothing(n, outcome):
    models = {name: inside(0.9 if name == "target" else 0.51, apart=0.02) for name in ("target", "ga", "suppressed")}
    models |= {name: inside(0.5 + 0.01 * k, period=4 + 2 * k, apart=0.02) for k, name in enumerate(RETRAINED)}
    models["ga"]["lens/beaten"] |= {FORGET[20 * k]: 1.0 for k in range(n)}
    found = judge(case({m: together(subject(float(m == "target")), t) for m, t in models.items()}), resamples=QUICK)
    line = verdict(found, "not stored")
    assert line.outcome == outcome
    # Six of 120 facts, (1 - 0.51) / (0.9 - 0.51) each.
    assert line.evidence["lens"].value == pytest.approx(n / 120 * 0.49 / 0.39, abs=0.01)
    assert ("it gives 6 facts of 120 away in lens, beyond any control" in line.reason) == (outcome == "fails")
    # One alone may come of luck with so few controls: it is named, and opens nothing.
    assert any("too few to be sure: it gives 1 fact of 120 away" in out for out in line.left_out) == (n == 1)
    assert outcomes(found)["not expressed"] == "holds"
    assert found.facts == ()


def test_where_no_block_was_read_nothing_is_said_of_them():
    assert "not stored" not in outcomes(judge(case(), resamples=QUICK))
