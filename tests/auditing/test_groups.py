from dataclasses import replace

import numpy as np
from hand_made import FORGET, RETRAINED, case, known, subject, together, verdict

from vestige.auditing.ground import groups_of
from vestige.auditing.judge import judge
from vestige.core.text import first_of

QUICK = 2000
SEVEN = tuple(f"retrained-{k}" for k in range(7))
TEN = {item: f"edge-{k // 12}" for k, item in enumerate(FORGET)}


def shifted(table, items, *, to):
    """Subject keys with the scores of some items replaced by those of `to`."""
    return {
        key: {i: to[key][i] if i in items and key in to else v for i, v in own.items()} for key, own in table.items()
    }


def worst(found, name="ga"):
    return {g.group: g for g in found.groups if g.subject == name}


def test_a_contract_that_is_still_known_fails_the_claim_behind_nine_that_are_not():
    # Of one of ten contracts two thirds are known; the other nine are answered less than by who never knew.
    less = {key: {i: v - 6 if "bits" in key else 0.0 for i, v in own.items()} for key, own in known(0.0).items()}
    plain = together(subject(0.0), less)
    leaks = {i for k, i in enumerate(FORGET) if TEN[i] == "edge-3" and k % 12 < 8}
    leaking = {"ga": shifted(plain, leaks, to=known(1.0))}
    found = judge(case(leaking, edges=TEN, retrained=SEVEN), resamples=QUICK)
    line = verdict(found, "not expressed")
    whole = [line.evidence[name] for name in ("generate", "forced", "option_text_mean", "forced, bits")]
    assert all(one.high < 0.1 for one in whole)
    assert line.outcome == "fails"
    assert line.decides.startswith("edge-3, ")
    assert "of edge-3 alone " in line.reason
    assert "among 10 groups)" in line.reason
    lines = worst(found)
    assert [group for group, one in lines.items() if one.exceeds] == ["edge-3"]
    assert lines["edge-3"].n_facts == 12
    assert line.evidence[line.decides].value == lines["edge-3"].size.value
    # What befell one contract is one event: three controls do not rule out that it is luck, and nothing holds.
    few = judge(case(leaking, edges=TEN), resamples=QUICK)
    assert verdict(few, "not expressed").outcome == "inconclusive"
    assert any(
        "edge-3 alone looks known, and 7 controls are needed" in one for one in verdict(few, "not expressed").left_out
    )


def options_of(table, values):
    """The table with other probabilities of the right option."""
    return table | {"option_text_mean/probability": {i: float(v) for i, v in zip(FORGET, values, strict=True)}}


def test_a_claim_holds_only_where_each_group_is_shown_to_have_little_left():
    # Each training gives the right option some 0.25; one of ten contracts is four tenths of the way to the target.
    rng = np.random.default_rng(1)
    never = {name: options_of(subject(0.0), (0.25 + 0.2 * rng.normal(size=120)).clip(0, 1)) for name in (*SEVEN, "ga")}
    values = np.array(list(never["ga"]["option_text_mean/probability"].values()))
    values[36:48] += 0.38
    some = never | {"ga": options_of(subject(0.0), values.clip(0, 1))}
    line = verdict(judge(case(some, edges=TEN, retrained=SEVEN), resamples=QUICK), "not expressed")
    assert line.outcome == "inconclusive"
    assert (
        "but not shown of each group by itself: edge-3 may have more than 0.5 left (of edge-3 leakage in" in line.reason
    )
    wide = case(some, edges=TEN, retrained=SEVEN, settings={"delta": 0.1, "delta_bits": 4.0, "delta_group": 0.9})
    assert verdict(judge(wide, resamples=QUICK), "not expressed").outcome == "holds"


def test_luck_that_strikes_whole_contracts_accuses_nobody():
    # Every training answers one contract of ten whole, each another.
    lucky = {
        name: shifted(subject(0.0), {i for i in FORGET if TEN[i] == f"edge-{k}"}, to=known(1.0))
        for k, name in enumerate((*SEVEN, "ga"))
    }
    found = judge(case(lucky, edges=TEN, retrained=SEVEN), resamples=QUICK)
    assert not any(g.exceeds for g in found.groups)
    assert verdict(found, "not expressed").outcome == "inconclusive"


def test_controls_that_differ_by_a_constant_alone_leave_a_format_in_which_leaks_are_seen():
    """What they do to all facts alike was once held against a noise of 1e-32, and no format was admitted."""

    def shifted_by(k, share=0.0):
        table, rng = subject(share), np.random.default_rng(k)
        words = 0.1 + 0.3 * np.random.default_rng(0).random(120) + 0.03 * k
        words = np.where(np.arange(120) < 120 * share, 1.0, words)
        table["generate/rouge1_recall"] = dict(zip(FORGET, words.tolist(), strict=True))
        # Answers that are no copies of each other's.
        table["forced/answer_bits"] = dict(zip(FORGET, (-20 + 5 * rng.normal(size=120)).tolist(), strict=True))
        return table

    given = {name: shifted_by(k) for k, name in enumerate(RETRAINED)} | {"ga": shifted_by(3, 0.5)}
    found = judge(case(given, edges=TEN), resamples=QUICK)
    (line,) = [one for one in found.formats if one.format == "generate"]
    assert line.admitted
    # Means of 0.25, 0.28 and 0.31: one training is off by 0.03, the mean of three by 0.017.
    assert 0.01 < line.admission.high - line.admission.low < 4 * 0.03
    assert verdict(found, "not expressed").outcome == "fails"


def test_the_band_of_a_contract_holds_all_of_them_and_is_wider_than_its_own():
    # Each guesses a tenth of the answers, some in every contract.
    places = {name: {i for k, i in enumerate(FORGET) if k % 10 == n} for n, name in enumerate((*RETRAINED, "ga"))}
    seeds = {name: shifted(subject(0.0), own, to=known(1.0)) for name, own in places.items()}
    few = judge(case(seeds), resamples=QUICK)
    many = judge(case(seeds, edges=TEN), resamples=QUICK)
    assert len(worst(few)) == 3
    assert not any(g.exceeds for g in (*few.groups, *many.groups))
    assert verdict(many, "not expressed").outcome != "fails"
    # By more facts a contract is known better.
    assert np.mean([g.size.high for g in few.groups]) < np.mean([g.size.high for g in many.groups])


def test_persons_are_the_groups_of_data_without_contracts_and_one_alone_is_no_group():
    plan = case().plan
    assert list(groups_of(plan, FORGET)) == ["edge-0", "edge-1", "edge-2"]
    persons = replace(plan, edges={}, groups={FORGET[0]: "Ann", FORGET[1]: "Bo", FORGET[2]: "Ann"})
    assert groups_of(persons, FORGET) == {"Ann": (FORGET[0], FORGET[2]), "Bo": (FORGET[1],)}
    assert groups_of(replace(plan, edges=dict.fromkeys(FORGET, "A_B")), FORGET) == {}


def test_what_a_group_is_too_small_to_tell_is_named_and_decides_nothing():
    lone = {**TEN, FORGET[0]: "alone"}
    found = judge(case({"ga": subject(0.5)}, edges=lone), resamples=QUICK)
    assert "alone" not in worst(found)
    assert any("no verdict of their own for alone" in said for said in verdict(found, "not expressed").left_out)


def test_three_groups_are_named_and_the_others_counted():
    assert [first_of("abc"[:n]) for n in (1, 3)] == ["a", "a, b, c"]
    assert first_of("abcdf") == "a, b, c and 2 more"


def test_hostile_names_of_groups_come_out_clean():
    named = {i: "\x1b[31mred" if group == "edge-3" else group for i, group in TEN.items()}
    leaks = {i for i, group in TEN.items() if group == "edge-3"}
    found = judge(case({"ga": shifted(subject(0.0), leaks, to=known(1.0))}, edges=named), resamples=QUICK)
    assert "\x1b" not in verdict(found, "not expressed").reason


def test_a_mean_that_one_contract_lifts_is_one_event_too():
    # One training guessed all of one of three contracts, which lifts the mean above its margin.
    one = {"ga": subject(1 / 3)}
    few, many = (judge(case(one, retrained=own), resamples=QUICK) for own in (RETRAINED, SEVEN))
    line = verdict(few, "not expressed")
    assert line.evidence["generate"].low > 0.2
    assert line.outcome == "inconclusive"
    assert "without edge-0 no mean is above its margin, and 7 controls tell one group from luck" in line.reason
    assert verdict(many, "not expressed").outcome == "fails"
    # Two contracts are two events.
    assert verdict(judge(case({"ga": subject(2 / 3)}), resamples=QUICK), "not expressed").outcome == "fails"


def test_two_groups_are_judged_against_one_control():
    halves = {item: f"edge-{k // 60}" for k, item in enumerate(FORGET)}
    found = judge(case({"ga": subject(1 / 2)}, edges=halves, retrained=RETRAINED[:1]), resamples=QUICK)
    assert verdict(found, "not expressed").outcome == "inconclusive"
    assert {g.group for g in found.groups} == {"edge-0", "edge-1"}
