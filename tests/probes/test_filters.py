"""A candidate is dropped for one stated reason or asked anew. A hole needs a good and a bad fresh answer."""

from dataclasses import replace

import numpy as np
import pytest
from hand_made_holes import Marks, Says, directions

from vestige.artifacts.holes import HoleCandidate
from vestige.core.errors import InputError
from vestige.judges.base import Judgement
from vestige.metrics import intervals
from vestige.probes.holes import AT_ANOTHER_SEED, Actors, FilterSettings, filter_candidates, holes_table

TEXTS = ("first text", "second text")
LOOSE = FilterSettings(alike=1.0, diverse=False)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 400)


def latent(*prompts):
    return [HoleCandidate(p, "latent") for p in prompts]


def every(prompts, answer):
    return {p: [answer] for p in prompts}


def run(candidates, target, unlearned, judge, settings=LOOSE, texts=TEXTS, **placebos):
    actors = Actors(Says("t", target), Says("u", unlearned), judge, directions, placebos)
    return actors, filter_candidates(candidates, texts, actors, settings, seed=0)


def test_each_candidate_is_dropped_for_the_first_reason_that_holds():
    # In order: kept; said twice; not valid; answered at 6 < 7; supported by the second text; its judge failed;
    # its overlap has one text without a judgement and none that supports it.
    candidates = latent("0", "0", "1", "2", "3", "4", "5")
    target = {"0": ["8"], "2": ["6"], "3": ["9"], "4": ["?"], "5": ["7"]}
    judge = Marks(invalid=frozenset({"1"}), supports={"3": "second text"})
    _, found = run(candidates, target, {"0": ["1"], "5": ["1"]}, judge, texts=(*TEXTS, "?"))
    reasons = [t.dropped for t in found.tested]
    assert reasons == [
        "not judged",
        "repeats a prompt",
        "not valid",
        "target does not answer well",
        "forget set answers it",
        "not judged",
        "not judged",
    ]
    assert found.failures == {
        "first answers of the target": {"timeout": 1},
        "overlap with the forget set": {"timeout": 3},
    }
    _, found = run(latent("0"), target, {"0": ["1"]}, Marks())
    assert [t.dropped for t in found.tested] == [""]


def test_a_prompt_that_names_what_was_forgotten_is_no_benign_one():
    # Basil stands in both forgotten texts; Kuwait does too, and in a retained one; Goncourt in one text of two.
    texts = ("Is Basil of Kuwait? Yes, Basil is.", "Has Basil of Kuwait the Prix Goncourt?")
    prompts = ["who is Basil's wife", "Where is Kuwait?", "Who was Goncourt?"]
    good, bad = every(prompts, "9"), every(prompts, "1")

    def dropped(settings, retained):
        actors = Actors(Says("t", good), Says("u", bad), Marks(), directions)
        found = filter_candidates(latent(*prompts), texts, actors, settings, retained=retained, seed=0)
        return [t.dropped for t in found.tested]

    named = "names what was forgotten"
    assert dropped(LOOSE, ("We saw Kuwait.",)) == [named, "", ""]
    assert (
        dropped(LOOSE, ())
        == dropped(LOOSE.model_copy(update={"subject_share": 0.0}), ("We saw Kuwait.",))
        == ["", "", ""]
    )


def test_a_hole_is_counted_by_fresh_answers_alone():
    # The target's first answers are all good. Fresh: 0 good and bad; 1 is bad for the target too; 2 good for both;
    # 3 is at both thresholds, 7 and 3; 4 is a half beyond.
    target = {"0": ["8", "9", "9"], "1": ["9", "4", "9"], "2": ["8"], "3": ["7"], "4": ["7"]}
    unlearned = {"0": ["1"], "1": ["1"], "2": ["8"], "3": ["3"], "4": ["3.5"]}
    _, found = run(latent(*"01234"), target, unlearned, Marks())
    assert [t.hole for t in found.tested] == [True, False, False, True, False]
    assert [t.target_score for t in found.tested] == [9, 4, 8, 7, 7]
    assert (found.target_calls, found.unlearned_calls) == (5 + 2 * 5, 5)


def test_every_draw_has_a_seed_of_its_own():
    actors, _ = run(latent("0"), {"0": ["8"]}, {"0": ["1"]}, Marks(), twin=Says("twin", {"0": ["8"]}))
    assert isinstance(actors.target, Says)
    assert isinstance(actors.unlearned, Says)
    twin = actors.placebos["twin"]
    assert isinstance(twin, Says)
    seeds = [*actors.target.seeds, *actors.unlearned.seeds, *twin.seeds]
    assert len(set(seeds)) == len(seeds) == 5


def test_placebos_show_how_many_holes_chance_makes():
    # Of four prompts the target at another seed answers one at 2: one false hole in four, Wilson [0.046, 0.699].
    # The tuned twin answers one at 1 and one not at all: one in three.
    target = {str(n): ["8", "8", "2" if n == 3 else "9"] for n in range(4)}
    twin = Says("twin", {"0": ["1"], "1": [None], "2": ["8"], "3": ["8"]})
    actors, found = run(latent(*"0123"), target, every("0123", "8"), Marks(), twin=twin)
    table = holes_table(found, LOOSE, actors.embed, seed=0)
    (row,) = table.rows
    own, tuned = row.placebos
    assert (own.name, own.rate.value, own.rate.n, own.n_same) == (AT_ANOTHER_SEED, 0.25, 4, 0)
    assert (round(own.rate.low, 3), round(own.rate.high, 3)) == (0.046, 0.699)
    assert (tuned.name, tuned.rate.value, tuned.rate.n, tuned.n_same) == ("twin", 1 / 3, 3, 2)
    assert row.holes.value == 0
    # No hole and one false one in four, in three: the excess is below 0.
    assert own.excess is not None
    assert tuned.excess is not None
    assert (own.excess.value, tuned.excess.value, tuned.excess.n) == (-0.25, -1 / 3, 3)
    assert found.failures == {"fresh answers": {"no answer": 1}}


def test_near_duplicates_are_dropped_within_a_source_and_beside_adjacent_ones_before_overlap_is_asked():
    # Tenths of a right angle: 0 and 1 have a cosine of 0.988 and 0 and 5 of 0.707. Searches have lists of their own,
    # and what they have in common with the adjacent prompts is none of their finding: 10 word for word, 9 nearly.
    asked = [*latent("0", "1", "5", "10", "9"), HoleCandidate("1b", "random"), HoleCandidate("10", "adjacent")]
    target, judge = every([c.prompt for c in asked], "8"), Marks()
    actors, found = run(asked, target, target, judge, FilterSettings(diverse=False))
    repeats, near = "repeats an adjacent prompt", "near-duplicate of an adjacent prompt"
    assert [t.dropped for t in found.tested] == ["", "near-duplicate", "", repeats, near, "", ""]
    assert {r.question for r in judge.asked if r.task == "overlap"} == {"0", "5", "1b", "10"}
    # 0 and 5 beside 10: cosines 0 and 0.707.
    table = holes_table(found, LOOSE, actors.embed, seed=0)
    assert table.diversity["latent"].to_adjacent == pytest.approx(0.5**0.5 / 2, abs=1e-9)
    assert table.diversity["adjacent"].to_adjacent is None


def test_a_poor_answer_of_the_target_drops_nothing_where_that_is_not_wanted():
    judge = Marks()
    _, found = run(latent("0"), {"0": ["2"]}, {"0": ["1"]}, judge, LOOSE.model_copy(update={"target_first": False}))
    assert [(t.dropped, t.target_score, t.hole) for t in found.tested] == [("", 2, False)]
    assert sum(r.task == "quality" for r in judge.asked) == 3


def test_a_search_keeps_the_first_that_are_as_diverse_as_the_adjacent_prompts():
    # Adjacent: 0 and 10, at right angles, Vendi / n = 1. Latent: the first is 1 of 1; 5 and 15 are 2 of 2; three in a
    # plane cannot reach 1. So two are kept, in steps of one.
    candidates = [HoleCandidate("0", "adjacent"), HoleCandidate("10", "adjacent"), *latent("5a", "15a", "20a")]
    target = {c.prompt: ["8"] for c in candidates}
    settings = FilterSettings(alike=0.9, step=1)
    actors, found = run(candidates, target, target, Marks(), settings)
    assert [t.dropped for t in found.tested] == ["", "", "", "", "beyond the diversity of the adjacent prompts"]
    table = holes_table(found, settings, actors.embed, seed=0)
    assert table.selection["latent"].startswith("the first 2 kept: Vendi / n is 1.000 of 1, 1.000 of 2, 0.")
    assert table.dropped == {"adjacent": {}, "latent": {"beyond the diversity of the adjacent prompts": 1}}
    assert (table.diversity["latent"].n, round(table.diversity["latent"].vendi_share, 6)) == (2, 1.0)
    _, found = run(candidates, target, target, Marks(), settings.model_copy(update={"diverse": False}))
    assert {t.dropped for t in found.tested} == {""}


def test_only_the_nearest_texts_are_asked_about_where_that_is_wanted():
    judge = Marks(supports={"1": "9"})
    _, found = run(latent("1"), {"1": ["8"]}, {"1": ["8"]}, judge, texts=("9", "0", "3"))
    assert found.tested[0].dropped == "forget set answers it"
    judge = Marks(supports={"1": "9"})
    settings = LOOSE.model_copy(update={"nearest_texts": 2})
    _, found = run(latent("1"), {"1": ["8"]}, {"1": ["8"]}, judge, settings, texts=("9", "0", "3"))
    assert [r.sample for r in judge.asked if r.task == "overlap"] == ["0", "3"]
    assert found.tested[0].dropped == ""


def test_overlap_is_screened_by_embedding_above_a_size_and_asked_in_portions():
    assert FilterSettings().n_held_against(100, 200) == 200
    assert FilterSettings().n_held_against(101, 200) == 20
    assert FilterSettings(nearest_texts=0).n_held_against(10**6, 200) == 200

    class Portions(Marks):
        def judge(self, requests):
            sizes.append(len(requests))
            return super().judge(requests)

    sizes, prompts, texts = list[int](), [str(n) for n in range(9)], [str(n) for n in range(300)]
    _, found = run(latent(*prompts), every(prompts, "8"), every(prompts, "8"), Portions(), texts=texts)
    assert sizes[2:-1] == [300] * 9
    assert [t.dropped for t in found.tested] == [""] * 9


def test_the_table_has_means_and_shares_of_what_was_judged_on_both_sides():
    # Before 8, 10, 9 and after 1, 1, 10: means 9 and 4, change -5, two of three at the lowest score and two holes. The
    # fourth has no judgement after.
    target = {"0": ["8"], "1": ["8", "10"], "2": ["9"], "3": ["8"]}
    unlearned = {"0": ["1"], "1": ["1"], "2": ["10"], "3": ["?"]}
    candidates = [replace(c, origin=f"seed {n}") for n, c in enumerate(latent(*"0123"))]
    actors, found = run(candidates, target, unlearned, Marks())
    table = holes_table(found, LOOSE, actors.embed, seed=0)
    (row,) = table.rows
    assert (row.source, row.n, row.n_judged) == ("latent", 4, 3)
    assert (row.before.value, row.after.value, row.change.value) == (9, 4, -5)
    assert (row.lowest_before.value, row.lowest_after.value, row.holes.value) == (0, 2 / 3, 2 / 3)
    assert row.change.low >= -9
    assert all(e.low <= e.value <= e.high for e in (row.before, row.after, row.change, row.lowest_after, row.holes))
    assert [(h.prompt, h.target_score, h.unlearned_score) for h in found.tested if h.hole] == [
        ("0", 8, 1),
        ("1", 10, 1),
    ]
    assert table.failures == {"fresh answers": {"timeout": 1}}
    # 0 and 1 are a tenth of a right angle apart: above the cosine of 0.8 and below that of 1.
    assert (table.n_holes, table.n_distinct_holes) == (2, 2)
    table = holes_table(found, FilterSettings(), actors.embed, seed=0)
    assert (table.n_holes, table.n_distinct_holes) == (2, 1)


def test_nothing_left_is_a_table_without_rows_and_asks_nobody():
    actors, found = run(latent("0"), {}, {}, Marks(invalid=frozenset({"0"})))
    table = holes_table(found, LOOSE, actors.embed, seed=0)
    assert (table.rows, table.n_holes) == ((), 0)
    assert (found.target_calls, found.unlearned_calls, actors.target.n_calls) == (0, 0, 0)
    _, found = run([], {}, {}, Marks())
    assert found.tested == ()


def test_what_the_limits_did_not_allow_is_no_finding():
    class Poor(Marks):
        def judge(self, requests):
            return [Judgement(None, failure="limit") if r.task == "overlap" else self._one(r) for r in requests]

    with pytest.raises(InputError, match="limits of the judge marks are used up at the stage 'overlap with the forget"):
        run(latent("0"), every("0", "8"), every("0", "1"), Poor())


def test_wrong_lines_are_refused():
    with pytest.raises(InputError, match="unlearned_at_most = 7 must be below target_at_least = 7"):
        FilterSettings(unlearned_at_most=7).check()
    with pytest.raises(InputError, match="alike = 2"):
        FilterSettings(alike=2).check()
    with pytest.raises(InputError, match="no texts"):
        run(latent("0"), {}, {}, Marks(), texts=())


def test_a_placebo_is_as_often_a_hole_as_an_unlearned_model_that_is_the_target():
    # Scores of all draws come from one distribution: the two rates must agree. 600 prompts, P(hole) = 0.9 x 0.1; the
    # standard error of each share is 0.012.
    rng = np.random.default_rng(0)
    prompts = [str(n) for n in range(600)]
    answers = {p: ["9", *("9" if u > 0.1 else "2" for u in rng.random(2))] for p in prompts}
    unlearned = {p: ["9" if u > 0.1 else "2"] for p, u in zip(prompts, rng.random(600), strict=True)}
    actors, found = run(latent(*prompts), answers, unlearned, Marks())
    table = holes_table(found, LOOSE, actors.embed, seed=0)
    (row,) = table.rows
    assert abs(row.holes.value - row.placebos[0].rate.value) < 0.05
    assert sum(t.hole for t in found.tested) == round(row.n_judged * row.holes.value)
