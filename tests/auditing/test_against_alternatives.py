"""Verdicts where no model that never knew is given: planted ranks of the true answers, whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks import alternatives
from hand_made import FORGET, RETRAINED, attack, case, hits, outcomes, verdict, with_values

from vestige.artifacts.audits import GIVEN, SoundnessLine
from vestige.artifacts.scores import Ranked, Source
from vestige.auditing.judge import judge
from vestige.metrics.membership import rank_scores

QUICK = 2_000
K = 100
RELEARN = attack()
RETAIN = attack(name="quantize 4 bits", kind="quantize", material="nothing")


def ranked(share, seed, *, k=K, start=0):
    """A subject that ranks the truth first in a share of the facts, and anywhere in the others."""
    rng, known = np.random.default_rng(seed), round(share * len(FORGET))
    found = {}
    for n, item in enumerate(FORGET):
        values = rng.normal(size=k)
        if (n - start) % len(FORGET) < known:
            values[0] = values.max() + 1
        found[item] = rank_scores(values)
    return found


def planted(shares, attacked=None, *, lengths=None, units=None, told=(), **changes):
    """A case without controls in which subjects rank so; `attacked` is by (subject, attack) the share after it."""
    tables = {Source(name): ranked(share, n) for n, (name, share) in enumerate({"target": 1.0, **shares}.items())}
    for n, ((name, of), share) in enumerate((attacked or {}).items(), start=100):
        tables[Source(name, of, "3")] = ranked(share, n)
    base = case(None, None, **{"retrained": (), "alternatives": "drawn", **changes})
    values = {source: dict(table) for source, table in base.scores.values.items()}
    for source, table in tables.items():
        own = values.setdefault(source, {})
        own["exposure/score"] = {i: float(row[0]) for i, row in table.items() if i not in told}
    lengths = dict.fromkeys(FORGET, np.full(K, 3)) if lengths is None else lengths
    found = Ranked(tables, units or {i: i for i in FORGET}, lengths, frozenset(told))
    return with_values(base, values, ranked=found)


def everywhere(share):
    """The unlearned model and the target after both attacks."""
    return {
        (name, one.name): 1.0 if name == "target" else share for one in (RELEARN, RETAIN) for name in ("ga", "target")
    }


def test_who_never_knew_holds_what_can_be_judged_and_the_verdict_says_against_what():
    found = judge(planted({"ga": 0.0}, everywhere(0.0), attacks=(RELEARN, RETAIN)), resamples=QUICK)
    line = verdict(found, "not expressed")
    assert (line.outcome, line.against, line.unit) == ("holds", "alternatives", "leakage_vs_alternatives")
    said = "Against alternatives, it answers no more than a model that never knew: leakage against alternatives in"
    assert line.reason.startswith(said)
    assert verdict(found, "benchmark valid").outcome == "holds"
    assert verdict(found, "benchmark valid").reason.startswith("Against alternatives, the target prefers the true")
    # Nothing showed that the attacks could have found anything, which keeps it open, and not the lack of controls.
    recovered = verdict(found, "not recoverable")
    assert (recovered.outcome, recovered.against) == ("inconclusive", "alternatives")
    assert "no retrained control was given" not in recovered.reason
    assert outcomes(found)["indistinguishable"] == "inconclusive"
    assert any("claims are judged against alternatives" in s for s in found.untested)


def test_an_able_attack_that_brings_nothing_back_lets_the_second_claim_hold():
    subjects, after = {"ga": 0.0, "silent": 0.0}, everywhere(0.0)
    after |= {("silent", one.name): 0.9 for one in (RELEARN, RETAIN)}
    found = judge(planted(subjects, after, attacks=(RELEARN, RETAIN), suppressed="silent"), resamples=QUICK)
    assert [line.able for line in found.able] == [True, True]
    assert outcomes(found)["not recoverable"] == "holds"
    assert {v.claim: v.outcome for v in found.control}["not recoverable"] == "fails"


@pytest.mark.parametrize(("share", "outcome"), [(0.8, "holds"), (0.4, "inconclusive")])
def test_a_control_that_refuses_and_still_ranks_the_truth_first_shows_by_its_words_what_attacks_can(share, outcome):
    # Refusing hides no likelihoods, so that all that comes back are answers in the model's own words.
    after = everywhere(0.0) | {("silent", RELEARN.name): 1.0}
    made = planted({"ga": 0.0, "silent": 1.0}, after, attacks=(RELEARN,), suppressed="silent")
    values = {source: dict(tables) for source, tables in made.scores.values.items()}
    for (name, of), known in {("target", ""): 1.0, ("silent", ""): 0.0, ("silent", RELEARN.name): share}.items():
        values[Source(name, of, "3" if of else "")]["generate_plain/leaked"] = hits(known)
    found = judge(with_values(made, values), resamples=QUICK)
    assert outcomes(found)["not recoverable"] == outcome
    (line,) = found.able
    assert (line.format, line.able) == ("generate_plain", outcome == "holds")
    assert (line.suppressed.value, line.brought.value) == (pytest.approx(1.0), pytest.approx(share))


def test_a_model_that_knows_some_fails_by_leakage_and_by_how_many_rank_first():
    found = judge(planted({"ga": 0.3}), resamples=QUICK)
    line = verdict(found, "not expressed")
    assert line.outcome == "fails"
    assert line.evidence["exposure"].value == pytest.approx(0.3, abs=0.05)
    assert line.evidence["exposure"].metric == "leakage_vs_alternatives"
    assert "before all alternatives (p = " in line.reason
    assert {f.by for f in found.facts} == {"ranked first"}
    assert {f.item for f in found.facts} >= set(FORGET[:36])


def test_five_facts_of_120_are_a_leak_that_the_mean_does_not_show():
    low = planted({"ga": 5 / 120})
    found = judge(low, resamples=QUICK)
    line = verdict(found, "not expressed")
    assert line.evidence["exposure"].low < 0.1
    assert line.outcome == "fails"
    assert {f.item for f in found.facts} >= set(FORGET[:5])


def test_what_an_attack_brings_back_is_found_and_a_ceiling_is_not():
    found = judge(planted({"ga": 0.0}, everywhere(0.5), attacks=(RELEARN, RETAIN)), resamples=QUICK)
    line = verdict(found, "not recoverable")
    assert line.outcome == "fails"
    assert line.evidence[f"{RELEARN.name}, exposure"].value == pytest.approx(0.5, abs=0.08)
    (gain,) = [g for g in found.gains if g.attack == RELEARN.name]
    assert (gain.injection.value, gain.injection.low, gain.injection.high) == (0.0, 0.0, 0.0)
    ceiling = replace(RELEARN, shows_answers=True)
    found = judge(planted({"ga": 0.0}, everywhere(0.9), attacks=(ceiling,)), resamples=QUICK)
    assert verdict(found, "not recoverable").outcome == "inconclusive"
    # What was there before came back with nothing, and fails without an attack.
    kept = judge(planted({"ga": 0.4}, everywhere(0.4), attacks=(RELEARN,)), resamples=QUICK)
    assert verdict(kept, "not recoverable").decides == "without any attack, exposure"


def test_an_attack_that_was_not_asked_is_a_gap_and_those_that_cannot_be_ranked_are_told():
    sampling = attack(name="sampling", kind="sampling", material="nothing", points=("k=10",))
    found = judge(planted({"ga": 0.0}, attacks=(RELEARN, sampling)), resamples=QUICK)
    line = verdict(found, "not recoverable")
    assert any(RELEARN.name in gap and "no answers after it" in gap for gap in line.left_out)
    assert not any("sampling: no answers" in gap for gap in line.left_out)
    assert any(said.startswith("Sampling: of so many replies as of the likelihoods") for said in found.untested)


def test_formats_that_have_chance_alone_decide_nothing_beside_alternatives():
    # It answers half of the questions in its own words: who never knew might as well, for all that is known.
    base = planted({"ga": 0.0})
    values = {s: dict(t) for s, t in base.scores.values.items()}
    values[Source("ga")]["generate/exact_match"] = {i: float(n % 2) for n, i in enumerate(FORGET)}
    found = judge(with_values(base, values), resamples=QUICK)
    assert outcomes(found)["not expressed"] == "holds"
    reasons = {f.format: f.reason for f in found.formats if not f.admitted}
    assert "a model that never knew may do better; alternatives are used" in reasons["generate"]


def test_truths_that_can_be_told_by_looks_or_by_their_tokens_are_no_evidence():
    longer = {i: np.r_[4, np.full(K - 1, 3)] for i in FORGET}
    found = judge(planted({"ga": 0.9}, lengths=longer), resamples=QUICK)
    assert verdict(found, "not expressed").against != "alternatives"
    assert any("can be told from alternatives: their numbers of tokens" in said for said in found.untested)
    line = SoundnessLine("alternatives: looks", False, None, 0.001, "Accuracy 0.9 where chance is 0.25.")
    told = judge(with_values(planted({"ga": 0.9}), soundness=(line,)), resamples=QUICK)
    assert verdict(told, "not expressed").against != "alternatives"
    assert verdict(told, "benchmark valid").outcome == "fails"


def test_given_alternatives_have_to_be_checked_before_the_benchmark_can_tell():
    given = planted({"ga": 0.0}, alternatives=GIVEN)
    line = verdict(judge(given, resamples=QUICK), "benchmark valid")
    assert line.outcome == "inconclusive"
    assert "nothing checked whether" in line.reason
    sound = SoundnessLine("alternatives: looks", True, None, 0.5, "Accuracy 0.25.")
    assert verdict(judge(with_values(given, soundness=(sound,)), resamples=QUICK), "benchmark valid").outcome == "holds"


def test_retrained_models_say_how_far_from_chance_the_ranks_are_and_are_judged_against_as_ever():
    rows = {name: 0.0 for name in RETRAINED}
    with_them = planted({**rows, "ga": 0.0}, retrained=RETRAINED)
    found = judge(with_them, resamples=QUICK)
    assert verdict(found, "not expressed").against == "retrained"
    assert "exposure" not in {f.format for f in found.formats}
    assert found.exposure_error.low < 0 < found.exposure_error.high
    assert any("Against alternatives the retrained models have a leakage of" in said for said in found.untested)
    # A bias that all of them share is no smaller for there being several.
    tilted = planted({**dict.fromkeys(RETRAINED, 0.3), "ga": 0.0}, retrained=RETRAINED)
    assert judge(tilted, resamples=QUICK).exposure_error.low > 0.1


def test_a_contract_that_is_still_ranked_first_fails_by_itself():
    base = planted({"ga": 0.0})
    rows = dict(base.scores.ranked.scores)
    rows[Source("ga")] = {
        i: rank_scores(np.r_[1.0 if base.plan.edges[i] == "edge-2" and n % 2 else -9.0, np.zeros(K - 1)])
        for n, i in enumerate(FORGET)
    }
    values = {s: dict(t) for s, t in base.scores.values.items()}
    values[Source("ga")]["exposure/score"] = {i: float(row[0]) for i, row in rows[Source("ga")].items()}
    found = judge(with_values(base, values, ranked=replace(base.scores.ranked, scores=rows)), resamples=QUICK)
    assert [g.group for g in found.groups if g.exceeds] == ["edge-2"]


def test_facts_that_the_tokeniser_tells_are_named():
    told = FORGET[:20]
    found = judge(planted({"ga": 0.0}, told=told), resamples=QUICK)
    assert any(said.startswith("20 of 120 judged facts are not ranked among alternatives") for said in found.untested)
    assert verdict(found, "not expressed").evidence["exposure"].n == 100


@pytest.mark.slow
def test_planted_audits_come_out_alike_against_alternatives_and_against_retrained_models():
    # A few fixed ones; how often either errs is counted by `benchmarks.alternatives`.
    world = alternatives.World("20 facts", (100,) * 20)
    never = [alternatives.audited(world, 0.0, spread=False, seed=seed).outcome for seed in range(10)]
    known = [alternatives.audited(world, 0.3, spread=False, seed=seed).outcome for seed in range(10)]
    assert "fails" not in never
    assert set(known) == {"fails"}
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in alternatives.agreement(2, 40, 5)[2:]}
    assert rows["knows 0.5"][:2] == ["0 / 2 / 0", "0 / 2 / 0"]
    assert " / 0 / " in rows["never knew"][0]
    assert " / 0 / " in rows["never knew"][1]
