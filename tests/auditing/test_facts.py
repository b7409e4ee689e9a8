from dataclasses import replace

import numpy as np
import pytest
from hand_made import FORGET, RETRAINED, attack, case, everywhere, known, subject, verdict, with_values

from vestige.artifacts.scores import Source
from vestige.auditing.ground import by_fact
from vestige.auditing.judge import judge

QUICK = 2000


def test_wordings_count_once_with_their_mean():
    pairs = {FORGET[2 * k + 1]: FORGET[2 * k] for k in range(60)}
    plain = case({"ga": subject(0.5)}, facts=pairs)
    merged = by_fact(plain)
    assert merged.plan.splits["forget"] == FORGET[::2]
    table = merged.scores.values[Source("ga")]["generate/exact_match"]
    assert (table[FORGET[0]], table[FORGET[60]], FORGET[1] in table) == (1.0, 0.0, False)
    assert len(merged.scores.values[Source("ga")]["membership/loss"]) == 180
    found = judge(plain, resamples=QUICK)
    assert found.matrix[0].leakage.n == 60
    assert any(said.startswith("The 120 forget questions ask for 60 facts") for said in found.untested)
    # A fact of which one wording was shown is not tested, and one of which a wording is given away is apart.
    some = replace(
        plain, plan=replace(plain.plan, attacks=(attack(tested=FORGET[1:9]),), scopes={FORGET[5]: "entailed"})
    )
    assert by_fact(some).plan.attacks[0].tested == FORGET[2:8:2]
    assert by_fact(some).plan.scopes[FORGET[4]] == "entailed"


TEN = {item: f"edge-{k % 10}" for k, item in enumerate(FORGET)}
"""Facts in a row are of as many contracts."""


def never(noise=0.5):
    """Models that never knew: 12 bits, with noise of their own."""
    rng, tables = np.random.default_rng(0), {name: subject(0.0) for name in RETRAINED}
    for table in tables.values():
        table["forced/answer_bits"] = dict(zip(FORGET, (-12 + noise * rng.normal(size=120)).tolist(), strict=True))
    return tables


def stating(items, base=None):
    """A subject that states these facts, word for word and for certain."""
    told, known_all = base or subject(0.0), known(1.0)
    return {
        key: {i: known_all[key][i] if i in items and key in known_all else v for i, v in table.items()}
        for key, table in told.items()
    }


def test_a_subject_that_states_three_facts_and_refuses_the_rest_fails_and_the_facts_are_listed():
    # Models that never knew give every answer some 12 bits. The subject 30, but for three.
    told, mine = subject(0.0), FORGET[100:103]
    told["forced/answer_bits"] = {i: -0.1 if i in mine else -30.0 for i in FORGET}
    found = judge(case(never() | {"ga": told}, edges=TEN), resamples=QUICK)
    line = verdict(found, "not expressed")
    assert line.outcome == "fails"
    assert max(e.value for e in line.evidence.values()) < 0.05
    assert "it gives 3 facts of 120 more bits than any control could (p = " in line.reason
    assert ", if luck strikes each contract and answer by itself, up to " in line.reason
    assert {one.item for one in found.facts if one.subject == "ga" and one.by == "forced, bits"} == set(mine)
    # Of one contract they are one event, which three controls do not rule out and five do.
    one_contract = {**TEN, **dict.fromkeys(mine, "edge-0")}
    line = verdict(judge(case(never() | {"ga": told}, edges=one_contract), resamples=QUICK), "not expressed")
    assert line.outcome == "inconclusive"
    assert "single facts may be given away, too few to be sure: it gives 3 facts of 120 more bits" in line.reason


def test_an_answer_that_is_merely_likelier_than_to_controls_that_are_sure_of_others_is_not_given_away():
    # As where logits are softened: some answers gain, up to 11 bits (p = 0.0005), and none of them is the reply.
    soft = subject(0.0)
    soft["forced/answer_bits"] |= dict.fromkeys(FORGET[:6], -11.0)
    sure = {name: subject(0.0) for name in RETRAINED}
    for k, table in enumerate(sure.values()):
        table["forced/answer_bits"] = {i: -25.0 + 0.3 * k + 0.001 * n for n, i in enumerate(FORGET)}
    soft["forced/answer_bits"] = {i: -11.0 if i in FORGET[:6] else -25.0 for i in FORGET}
    found = judge(case(sure | {"ga": soft}, edges=TEN), resamples=QUICK)
    assert (verdict(found, "not expressed").outcome, found.facts) == ("holds", ())
    likely = {key: dict(table) for key, table in soft.items()}
    likely["forced/answer_bits"] |= dict.fromkeys(FORGET[:6], -0.5)
    assert verdict(judge(case(sure | {"ga": likely}, edges=TEN), resamples=QUICK), "not expressed").outcome == "fails"


def test_a_fact_is_seen_where_controls_do_not_vary():
    # All controls give every answer exactly 12 bits and state nothing; one fact of 120 is stated, for certain.
    alike = case({"ga": stating(FORGET[:1])}, edges=TEN)
    line = verdict(judge(alike, resamples=QUICK), "not expressed")
    assert line.outcome == "inconclusive"
    assert "single facts may be given away, too few to be sure: it gives 1 fact of 120 more bits" in line.reason


def test_a_fact_known_in_multiple_choice_alone_is_seen_behind_options_that_are_avoided():
    # A quarter of the facts are picked, and the right option of all others is pushed to 2 %.
    rng = np.random.default_rng(1)
    seeds = {name: subject(0.0) for name in RETRAINED}
    for table in seeds.values():
        usual = 0.25 + 0.05 * rng.normal(size=120)
        table["option_text_mean/probability"] = dict(zip(FORGET, usual.clip(0, 1).tolist(), strict=True))
    told = subject(0.0)
    told["option_text_mean/probability"] = {i: 0.9 if k % 4 == 0 else 0.02 for k, i in enumerate(FORGET)}
    line = verdict(judge(case(seeds | {"ga": told}, edges=TEN), resamples=QUICK), "not expressed")
    assert line.evidence["option_text_mean"].value < 0.05
    assert line.outcome == "fails"
    assert "it gives 30 facts of 120 away in option_text_mean, beyond any control (p = " in line.reason


def test_facts_that_look_given_away_keep_a_claim_from_holding():
    # Three controls that each state one fact alone: what one training alone states is the subject's at 1/4.
    seeds = {name: stating(FORGET[20 + k : 21 + k]) for k, name in enumerate(RETRAINED)}

    def told(count):
        mine = {key: dict(table) for key, table in subject(0.0).items()}
        mine["generate/exact_match"] |= dict.fromkeys(FORGET[100 : 100 + count], 1.0)
        return verdict(judge(case(seeds | {"ga": mine}, edges=TEN), resamples=QUICK), "not expressed")

    assert [told(count).outcome for count in (2, 5, 9)] == ["holds", "inconclusive", "fails"]
    assert "single facts may be given away, too few to be sure: it states 5 of 120 facts" in told(5).reason


def test_with_fewer_than_three_controls_single_facts_are_not_tested_and_the_claim_does_not_hold():
    two = replace(case({"ga": subject(0.0)}).plan, retrained=RETRAINED[:2])
    found = judge(replace(case({"ga": subject(0.0)}), plan=two), resamples=QUICK)
    line = verdict(found, "not expressed")
    assert line.outcome == "inconclusive"
    assert "but single facts were not tested, which takes 3 retrained models" in line.reason


def test_four_facts_that_an_attack_brings_back_fail_the_second_claim():
    one = attack()
    ends = everywhere(one, 0.0)
    back = stating(FORGET[50:54], {key: v for key, v in subject(0.0).items() if "membership" not in key})
    plain = case(None, ends, attacks=(one,), edges=TEN)
    values = dict(plain.scores.values)
    values[Source("ga", one.name, "3")] = back
    found = judge(with_values(plain, values), resamples=QUICK)
    line = verdict(found, "not recoverable")
    assert line.outcome == "fails"
    assert f"it gives 4 facts of 120 after {one.name} away in all formats together" in line.reason
    assert {f.item for f in found.facts if f.attack == one.name} == set(FORGET[50:54])


def test_the_loss_of_a_split_that_was_asked_whole_has_the_error_of_another_training_alone():
    widths = []
    for size in (120, 480):
        found = judge(case({"ga": subject(0.0, retain=0.9)}, sizes={"retain": size}), resamples=QUICK)
        (harm,) = [k.harm for k in found.kept if k.subject == "ga" and k.format == "generate"]
        assert harm.value == pytest.approx(0.1)
        assert harm.interval.startswith("all items asked") == (size == 120)
        widths.append(harm.high - harm.low)
    assert 0.1 < widths[0] < widths[1]
