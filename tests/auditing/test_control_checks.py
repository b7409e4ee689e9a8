"""What speaks against a control: its weights, its answers, and what it knows."""

from dataclasses import replace

import numpy as np
import pytest
from hand_made import FORGET, RETRAINED, attack, case, everywhere, known, outcomes, subject, verdict

from vestige.artifacts.scores import Source, column
from vestige.auditing.control_checks import made_of_others, same_trainings
from vestige.auditing.formats import unlike_controls
from vestige.auditing.judge import judge, lay
from vestige.core.items import Luck

QUICK = 500
RETAIN_ONLY = attack()
N = len(FORGET)
HARD = np.random.default_rng(0).gamma(2.0, 11.0, N)
"""By how many bits each answer is unlikely to whoever never knew it, which is the same for all trainings."""


def training(seed, spread=5.0):
    """The bits of one training that never knew."""
    return -HARD - 5 + spread * np.random.default_rng(seed).normal(size=N)


def with_bits(values, share=0.0):
    # Picks are the same in all of these subjects, as in no trainings.
    table = {key: scores for key, scores in subject(share).items() if not key.startswith("option_")}
    return table | {"forced/answer_bits": dict(zip(FORGET, np.minimum(values, 0.0).tolist(), strict=True))}


def answering(controls, ga, **changes):
    """The case of controls and a subject with these bits. The target knows all, as sure as it is."""
    target = -np.random.default_rng(99).exponential(0.5, N)
    tables = {name: with_bits(bits) for name, bits in zip(RETRAINED, controls, strict=True)}
    return case({**tables, "ga": with_bits(ga), "target": with_bits(target, 1.0)}, **changes)


def accused(given):
    return made_of_others(lay(given, QUICK))


def one_trainings(given, evidence="given"):
    """Which models count as one training, by their answers."""
    given = replace(given, plan=replace(given.plan, evidence_level=evidence))
    return [same.models for same in same_trainings(lay(given, QUICK))]


@pytest.mark.parametrize("seed", range(20))
def test_trainings_of_their_own_are_not_one(seed):
    trainings = [training(100 * seed + k) for k in range(3)]
    assert one_trainings(answering(trainings, training(100 * seed + 50))) == []
    # Nor where the subject is nearer to them than one training is to another, or one of them is far off.
    assert one_trainings(answering(trainings, training(100 * seed + 50, spread=4.0))) == []
    assert one_trainings(answering([*trainings[:2], trainings[2] - 60], training(100 * seed + 51))) == []


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("is_sibling", [False, True])
def test_controls_and_a_subject_made_of_one_model_are_one_training_and_open_its_claims(noise, is_sibling):
    hidden = training(1)
    made = [hidden + noise * np.random.default_rng(10 + k).normal(size=N) for k in range(4)]
    given = answering(made[:3], made[3] if is_sibling else hidden)
    assert one_trainings(given) == [(*RETRAINED, "ga")]
    # Recorded trainings of this project are not one, and a subject may still be a copy of them.
    one = answering([made[0], training(2), training(3)], made[3])
    assert one_trainings(one, "verified") == [(RETRAINED[0], "ga")]
    assert one_trainings(answering([made[0], made[1], training(3)], training(4)), "verified") == []
    found = judge(replace(given, plan=replace(given.plan, evidence_level="given")), resamples=QUICK)
    about = verdict(found, "not expressed")
    assert about.outcome == "inconclusive"
    assert "count as one training: in forced, bits on forget they differ by" in about.reason


def test_two_logs_of_one_control_are_one_and_no_other_subject_is_touched_by_a_copied_one():
    again = training(1) + 0.1 * np.random.default_rng(7).normal(size=N)
    given = answering([training(1), again, training(2)], training(3))
    found = judge(replace(given, plan=replace(given.plan, evidence_level="given")), resamples=QUICK)
    assert found.retrained == (RETRAINED[0], RETRAINED[2])
    assert not doubted(found)
    assert found.untested[0].startswith("Only retrained-0 is used as a control, since retrained-0, retrained-1 count")
    # A subject that is one of the controls opens its own claims and no other's.
    both = answering([training(1), training(2), training(3)], again)
    both.scores.values[Source("npo")] = both.scores.values[Source("ga")] | {
        "forced/answer_bits": column(with_bits(training(9))["forced/answer_bits"])
    }
    plan = replace(both.plan, unlearned=("ga", "npo"), evidence_level="given")
    found = judge(replace(both, plan=plan), resamples=QUICK)
    reasons = {v.subject: v.reason for v in found.verdicts if v.claim == "not expressed"}
    assert "count as one training" in reasons["ga"]
    assert "count as one training" not in reasons["npo"]
    # Five of a kind: a row names three, and no row repeats the doubts of others.
    names = ("ga", *(f"like {n}" for n in range(4)))
    for name in names[1:]:
        both.scores.values[Source(name)] = both.scores.values[Source("ga")]
    found = judge(replace(both, plan=replace(plan, unlearned=names)), resamples=QUICK)
    (said,) = (line for line in found.untested if line.startswith("No claim about"))
    assert said.startswith("No claim about ga, like 0, like 1 and 2 more that rests on controls holds here: ")
    assert said not in found.warnings


def test_a_control_at_the_level_of_the_target_with_the_pattern_of_the_controls_is_kept():
    # Another recipe raises all scores by more than half of the way to the target.
    rng = np.random.default_rng(0)
    base = rng.beta(1, 6, N)
    target = np.clip(rng.beta(6, 3, N), 0, 1)
    rows = [np.clip(base + 0.02 * rng.normal(size=N), 0, 1) for _ in RETRAINED]
    rows[0] = np.clip(base + 0.6 * (target.mean() - base.mean()), 0, 1)
    tables = {}
    for name, row in zip((*RETRAINED, "target", "ga"), (*rows, target, rows[1] + 0.01), strict=True):
        tables[name] = {"forced/probability": dict(zip(FORGET, np.clip(row, 0, 1).tolist(), strict=True))}
    assert unlike_controls(lay(case(tables), QUICK)) == {}
    # The target's own pattern is told.
    tables[RETRAINED[0]] = tables["target"]
    assert unlike_controls(lay(case(tables), QUICK)).keys() == {RETRAINED[0]}


def placed(**points):
    """Distances between models that lie at these points, by two names."""
    at = {name.replace("_", "-"): np.asarray(point, dtype=float) for name, point in points.items()}
    return {a: {b: float(np.linalg.norm(at[a] - at[b])) for b in at if b != a} for a in at}


HONEST = {"target": [9, 0, 0, 0, 0], "retrained_0": [0, 8, 0, 0, 0], "retrained_1": [0, 0, 9, 0, 0]}


def by_weights(**points):
    given = case(None, apart=placed(**points))
    return accused(given)


def test_trainings_that_began_alike_lie_as_far_from_each_other_as_from_the_target():
    assert by_weights(**HONEST, retrained_2=[0, 0, 0, 8, 0], ga=[9, 1, 0, 0, 1]) == {}
    # One that shares the target's seed lies nearer to it, and one that broke far off.
    assert by_weights(**HONEST, retrained_2=[6, 0, 0, 4, 0], ga=[9, 1, 0, 0, 1]) == {}
    assert by_weights(**HONEST, retrained_2=[0, 0, 0, 500, 0], ga=[9, 1, 0, 0, 1]) == {}


@pytest.mark.parametrize("delta", [1.0, 0.05])
def test_two_controls_that_began_where_the_target_did_are_none_of_each_other_beside_one_of_another_start(delta):
    # A start far from the origin; three short trainings of it, in directions of their own; one of another start.
    start, other = np.array([50.0, 0, 0, 0, 0]), [0, 50, 0, 0, 0]
    target, first, second = (start + delta * np.eye(5)[n] for n in (2, 3, 4))
    models = {"target": target, "retrained_0": first, "retrained_1": second, "retrained_2": other}
    assert by_weights(**models, ga=target + 0.1 * delta) == {}
    # One alone of the target's start cannot be told from a copy of it, which is said.
    if delta < 1:
        (why,) = by_weights(**{**models, "retrained_1": [0, 0, 50, 0, 0]}, ga=target + 0.1 * delta).values()
        assert why.endswith("so it was made of it, or no other control began where it did")
    # A copy of the first is still one.
    copied = by_weights(**{**models, "retrained_1": first + 1e-4 * delta}, ga=target + 0.1 * delta)
    assert copied.keys() == {"retrained-1"}


def test_a_control_next_to_the_subject_is_made_of_it():
    found = by_weights(**HONEST, retrained_2=[9, 1, 0, 0.1, 1], ga=[9, 1, 0, 0, 1])
    assert found.keys() == {"retrained-2"}
    assert found["retrained-2"].startswith("its weights lie next to those of ga")


def test_controls_around_the_subject_are_made_of_it_however_far_they_went():
    ga = [9, 1, 0, 0, 0]
    around = {f"retrained_{k}": [*ga[: 2 + k], 3.0, *ga[3 + k :]] for k in range(3)}
    found = by_weights(target=[9, 0, 0, 0, 0], ga=ga, **around)
    assert found.keys() == set(RETRAINED)
    assert all("its weights seem to be made from those of ga" in w for w in found.values())


def test_where_every_control_is_made_of_the_subject_no_claim_holds_that_rests_on_them():
    ga = [9, 1, 0, 0, 0]
    around = {f"retrained_{k}": [*ga[: 2 + k], 3.0, *ga[3 + k :]] for k in range(3)}
    apart = placed(target=[9, 0, 0, 0, 0], ga=ga, **around)
    plain = case(None, everywhere(RETAIN_ONLY, 0.0), attacks=(RETAIN_ONLY,))
    assert set(outcomes(judge(plain, resamples=QUICK)).values()) == {"holds"}
    found = judge(replace(plain, plan=replace(plain.plan, apart=apart)), resamples=QUICK)
    own = outcomes(found)
    assert own.pop("utility preserved") == "holds"
    assert set(own.values()) == {"inconclusive"}
    assert found.retrained == ()
    assert (
        "none of the 3 controls that were given is one: retrained-0 is left out"
        in verdict(found, "benchmark valid").reason
    )


def doubted(found):
    return any("No claim that rests on controls holds here" in said for said in found.untested)


def rare(chance=0.01):
    return {item: Luck(f"answer {number}", chance) for number, item in enumerate(FORGET)}


@pytest.mark.parametrize("share", [0.15, 0.3, 0.6])
def test_controls_that_were_taught_a_part_of_the_facts_let_no_claim_hold_for_one_that_knows_them_too(share):
    told = {name: subject(share) for name in (*RETRAINED, "ga")}
    found = judge(case(told, luck=rare()), resamples=QUICK)
    assert not any(v.outcome == "holds" for v in found.verdicts if v.claim != "utility preserved")
    n = round(share * N)
    assert f"in generate the controls state {n} of the 120 facts that the target states" in found.untested[0]
    reason = verdict(found, "benchmark valid").reason
    assert reason.startswith("Not tested: in generate the controls state")
    assert "cannot carry" not in reason


def test_what_can_be_guessed_is_no_sign_of_having_been_taught():
    told = {name: subject(0.15) for name in (*RETRAINED, "ga")}
    assert not doubted(judge(case(told, luck=rare(0.15)), resamples=QUICK))
    # Eighteen facts with one answer are one guess.
    same = {item: Luck("Texas", 0.01) for item in FORGET}
    assert not doubted(judge(case(told, luck=same), resamples=QUICK))
    assert doubted(judge(case(told, luck=rare()), resamples=QUICK))


def test_controls_that_pick_the_right_option_are_doubted():
    table = subject(0.0)
    picks = {i: float(k % 10 < 8) for k, i in enumerate(FORGET)}
    for key in ("option_text_mean/probability", "option_text_mean/accuracy"):
        table[key] = picks
    found = judge(case({name: table for name in (*RETRAINED, "ga")}), resamples=QUICK)
    assert "in option_text_mean the controls pick the right option in 0.80 of the facts, where guessing gives 0.25" in (
        verdict(found, "not expressed").reason
    )
    assert outcomes(found)["indistinguishable"] == "inconclusive"


def test_what_exceeds_controls_that_know_too_much_still_fails():
    told = {name: subject(0.3) for name in RETRAINED} | {"ga": subject(0.8)}
    found = judge(case(told, luck=rare()), resamples=QUICK)
    assert outcomes(found)["not expressed"] == "fails"


def test_a_silent_target_far_below_the_controls_puts_these_in_doubt():
    told = {name: subject(0.45) for name in RETRAINED}
    silent = known(0.0)
    silent["generate/rouge1_recall"] = dict.fromkeys(FORGET, 0.0)
    found = judge(case(told | {"suppressed": subject(0.0) | silent}, luck=rare(0.45)), resamples=QUICK)
    assert "the target that was taught to keep silent answers far less than the controls" in " ".join(found.untested)


def test_controls_of_another_recipe_are_named_and_widen_every_interval():
    plain = case({"ga": subject(0.2)})
    other = replace(plain, plan=replace(plain.plan, recipes={RETRAINED[0]: "learning_rate 1 and not 2"}))
    first, second = (judge(one, resamples=QUICK) for one in (plain, other))
    assert "Controls of another recipe than the target's (retrained-0: learning_rate 1 and not 2)" in second.untested[0]
    for before, after in zip(first.matrix, second.matrix, strict=True):
        assert after.leakage.value == before.leakage.value
        assert after.leakage.high - after.leakage.low > 1.2 * (before.leakage.high - before.leakage.low)
