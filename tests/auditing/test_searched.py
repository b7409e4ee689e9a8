"""Relearning that is searched over runs and epochs: chosen on one half of the facts, judged on the other."""

import numpy as np
import pytest
from hand_made import FORGET, RETRAINED, attack, case, known, subject, verdict, with_values

from vestige.artifacts.scores import Source
from vestige.auditing.ground import by_fact
from vestige.auditing.judge import judge
from vestige.auditing.recovery import CHOSEN, searches, with_searches

QUICK = 2000
RUNS = (attack(), attack("relearn retain n=50 rate=0.001"))
SEARCH = "relearn retain n=50, searched"
STAGES = [(run.name, point) for run in RUNS for point in run.points]
MODELS = ("target", "ga", "suppressed", *RETRAINED)


def levels(**of_models):
    """Scores at every stage of both runs: by model a level for each of the six stages, or 0 everywhere."""
    plain = {"target": [1.0] * 6, "suppressed": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]}
    ends = {}
    for name in MODELS:
        for (run, point), level in zip(STAGES, of_models.get(name, plain.get(name, [0.0] * 6)), strict=True):
            ends.setdefault((name, run), {})[point] = float(level)
    return ends


def judged(ends, runs=RUNS, **changes):
    return judge(case(None, ends, attacks=runs, **changes), resamples=QUICK)


def gain(found, name, form="generate", who="ga"):
    (line,) = [g for g in found.gains if (g.attack, g.format, g.subject) == (name, form, who)]
    return line


@pytest.mark.slow
def test_the_best_epoch_of_the_best_run_counts_though_the_last_epochs_show_nothing():
    found = judged(levels(ga=[0.0, 0.0, 0.0, 0.1, 0.6, 0.0]))
    line = verdict(found, "not recoverable")
    assert line.outcome == "fails"
    assert line.evidence[f"{SEARCH}, generate"].value == pytest.approx(0.6)
    # The runs are shown beside it, and are no quantities of their own.
    assert {name.rpartition(", ")[0].removesuffix(", forced") for name in line.evidence} == {SEARCH}
    for run in RUNS:
        one = gain(found, run.name)
        assert (one.evidence, one.gain.value) == (False, pytest.approx(0.0))
        assert one.why_not == f"it counts as a part of {SEARCH}"
    assert {name.rpartition(", ")[0] for name in verdict(found, "benchmark valid").evidence} == {SEARCH}
    assert {c.attack for c in found.curves} == {run.name for run in RUNS}
    assert [one.attack for one in found.able] == [SEARCH]
    assert {f.attack for f in found.facts} <= {SEARCH}


def test_a_form_in_which_one_fact_was_asked_has_no_half_to_choose_on():
    made = case(None, levels(), attacks=RUNS)
    lone = {
        source: {key: own if key.startswith("forced") else {FORGET[0]: own[FORGET[0]]} for key, own in tables.items()}
        for source, tables in made.scores.values.items()
    }
    found = with_searches(with_values(made, lone)).scores.values[Source("ga", SEARCH, CHOSEN)]
    assert found
    assert all(key.startswith("forced") for key in found)


def test_what_a_search_carries_in_is_searched_on_models_that_never_knew():
    # Each control has its best stage elsewhere, and at every one of these it gains what the subject gains at its own.
    ends = levels(
        ga=[0.4, 0, 0, 0, 0, 0],
        **{name: [0.4 if n == k + 1 else 0.0 for n in range(6)] for k, name in enumerate(RETRAINED)},
    )
    found = judged(ends)
    one = gain(found, SEARCH)
    assert (one.gain.value, one.injection.value) == (pytest.approx(0.4), pytest.approx(0.4))
    assert one.recovery.value == pytest.approx(0.0, abs=1e-9)
    assert verdict(found, "not recoverable").outcome != "fails"


def random_case(seed, n_points=20):
    """A model that answers at random at every stage, by hits that no stage has more of than another."""
    rng = np.random.default_rng(seed)
    run = attack(points=tuple(map(str, range(n_points))))
    values = {}
    for name in MODELS:
        for point in run.points:
            row = dict(zip(FORGET, (rng.random(len(FORGET)) < 0.5).astype(float).tolist(), strict=True))
            values[Source(name, run.name, point)] = {"generate/exact_match": row}
    made = case(attacks=(run,))
    return with_values(made, {**made.scores.values, **values})


def test_noise_alone_is_not_found():
    found, naive = [], []
    for seed in range(20):
        made = with_searches(random_case(seed))
        found.append(np.mean(list(made.scores.values[Source("ga", SEARCH, CHOSEN)]["generate/exact_match"].values())))
        stages = [t for s, t in made.scores.values.items() if (s.subject, s.attack) == ("ga", "relearn retain n=50")]
        naive.append(max(np.mean(list(t["generate/exact_match"].values())) for t in stages))
    # 20 x 120 draws of a half: the mean's standard deviation is 0.01. The best of 20 stages is 0.08 too high.
    assert abs(np.mean(found) - 0.5) < 0.04
    assert np.mean(naive) > 0.56


def test_no_fact_chooses_for_itself():
    made = random_case(0)
    key, where = "generate/exact_match", Source("ga", SEARCH, CHOSEN)
    plain = with_searches(made).scores.values[where][key]
    for fact in FORGET[:6]:
        values = {s: dict(t) for s, t in made.scores.values.items()}
        at = {}
        for number, source in enumerate(s for s in values if (s.subject, s.attack) == ("ga", "relearn retain n=50")):
            values[source] = {key: {**values[source][key], fact: 100.0 + number}}
            at[100.0 + number] = made.scores.values[source][key][fact]
        found = with_searches(with_values(made, values)).scores.values[where][key]
        # However much it scores at the last stage, it is read where the others are best.
        assert at[found[fact]] == plain[fact]
        assert found[fact] < 119.0


def test_facts_are_halved_by_the_seed_and_wordings_stay_together():
    facts = {f"f{k:03}": f"f{k - 1:03}" for k in range(1, 120, 2)}
    runs = (attack(points=("1", "2")),)
    # At the first stage the first sixty questions are known, at the second the others.
    stages = {"1": known(0.5), "2": known(0.5, start=60)}
    ends = {(name, runs[0].name): stages for name in MODELS}
    made = with_searches(by_fact(case(None, ends, attacks=runs, facts=facts)))
    table = made.scores.values[Source("ga", SEARCH, CHOSEN)]["generate/exact_match"]
    assert set(table) == {f"f{k:03}" for k in range(0, 120, 2)}
    assert made == with_searches(by_fact(case(None, ends, attacks=runs, facts=facts)))
    others = [
        with_searches(by_fact(case(None, ends, attacks=runs, facts=facts, seed=seed))).scores.values[
            Source("ga", SEARCH, CHOSEN)
        ]["generate/exact_match"]
        for seed in range(1, 4)
    ]
    assert any(other != table for other in others)


def test_a_run_that_one_model_lacks_counts_by_itself():
    ends = levels(ga=[0.0, 0.0, 0.0, 0.0, 0.0, 0.6])
    del ends[RETRAINED[0], RUNS[1].name]["1"]
    found = judged(ends)
    line = verdict(found, "not recoverable")
    assert line.outcome == "fails"
    assert {f"{SEARCH}, generate", f"{RUNS[1].name}, generate"} <= set(line.evidence)


def test_what_is_searched_is_relearning_in_several_stages_that_shows_no_answers():
    ceiling = attack("relearn forget n=50", material="forget", shows_answers=True)
    once = attack("relearn related n=50", material="related", points=("1",))
    rounded = attack("quantize 4 bits", "quantize", "nothing")
    fewer = attack("relearn retain n=5", n_shown=5)
    made = case(attacks=(*RUNS, ceiling, once, rounded, fewer))
    assert searches(made.plan) == {SEARCH: RUNS, "relearn retain n=5, searched": (fewer,)}
    # What nothing can be told from is said of the search alone.
    two = tuple(attack(run.name, tested=FORGET[:2]) for run in RUNS)
    said = [s for s in judged(levels(), two).untested if "on its tested items" in s]
    assert said
    assert all(s.startswith("Relearn retain n=50, searched, ") for s in said)
    # Without two facts there is no other half.
    few = tuple(attack(run.name, tested=FORGET[:1]) for run in RUNS)
    assert with_searches(case(None, levels(), attacks=few)).plan.attacks == few


def test_a_null_search_lets_nothing_hold():
    found = judged(levels(suppressed=[0.0] * 6))
    assert verdict(found, "not recoverable").outcome == "inconclusive"
    assert found.able[0].why_not.startswith("of what the positive control held back it brought back 0.00 [")


@pytest.mark.slow
def test_a_search_carries_what_its_greatest_run_does_and_the_choice():
    from hand_made import spent

    carried = {(run.name, name): spent(bits) for run, bits in zip(RUNS, (100.0, 300.0), strict=True) for name in MODELS}
    found = judged(levels(), carried=carried)
    (line,) = [b for b in found.budget if b.attack == SEARCH]
    assert line.capacity_bits == pytest.approx(300.0 + 2 * np.log2(6))


@pytest.mark.slow
def test_single_facts_that_a_search_brings_are_told_of_the_search():
    # Every twentieth fact, so that three contracts are concerned and no luck that one of them shares explains it.
    told = subject(0.0)
    for key in ("generate/rouge1_recall", "generate/exact_match"):
        told[key] = told[key] | {item: 1.0 for item in FORGET[::20]}
    ends = levels()
    ends["ga", RUNS[1].name]["2"] = {key: values for key, values in told.items() if "membership" not in key}
    found = judged(ends)
    assert {f.attack for f in found.facts} == {SEARCH}
    assert verdict(found, "not recoverable").outcome == "fails"
