"""Which prompts a mending uses and holds out, what it minimises, and how answers are scored."""

import math

import pytest
import torch

from vestige.artifacts import holes as records
from vestige.artifacts.holes import (
    ADJACENT_HELD_OUT,
    ADJACENT_USED,
    FORGET,
    HARM,
    LATENT_HELD_OUT,
    LATENT_USED,
    QUALITY,
    ROUGE_L,
    PolicySample,
    ScoredAnswer,
)
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.judges.base import Judgement
from vestige.probes.mitigate import Imitate
from vestige.probes.mitigation import (
    MendingSettings,
    MitigationSettings,
    forget_samples,
    pick_adjacent,
    pick_latent,
    refuse_nothing,
    retained,
)
from vestige.probes.mitigation_scores import means, row_of, score_answers, whole_sentences
from vestige.training.step import Distributions


def candidate(prompt, source="adjacent", origin="", dropped="", hole=False):
    return records.Tested(prompt, prompt, source, origin, dropped, hole=hole)


def prompts(picked, name):
    return [s.prompt for s in picked.samples if s.set == name]


def test_adjacent_prompts_of_one_forget_item_are_either_used_or_held_out():
    found = [candidate(f"{item}{n}", origin=item) for item in "abcdefgh" for n in range(3)]
    found += [candidate("dropped", origin="a", dropped="not valid"), candidate("elsewhere", source="latent")]
    picked = pick_adjacent(found, {"a0": "the truth"}, MitigationSettings(held_out=0.25), seed=0)
    used, held_out = prompts(picked, ADJACENT_USED), prompts(picked, ADJACENT_HELD_OUT)
    # Of 24 prompts 18 are used: six items whole, and two items are held out.
    assert (len(used), len(held_out)) == (18, 6)
    assert {p[0] for p in used} & {p[0] for p in held_out} == set()
    assert {s.truth for s in picked.samples if s.prompt == "a0"} == {"the truth"}
    assert picked.notes == ("Of 100 adjacent prompts that were asked for, 18 can be used.",)
    # 17 are five items whole and two prompts of a sixth, whose third is in neither part.
    fewer = pick_adjacent(found, {}, MitigationSettings(n_adjacent=17), seed=0)
    assert prompts(fewer, ADJACENT_USED) == used[:17]
    assert prompts(fewer, ADJACENT_HELD_OUT) == held_out
    assert prompts(pick_adjacent(found, {}, MitigationSettings(), seed=1), ADJACENT_USED) != used
    all_used = pick_adjacent(found, {}, MitigationSettings(held_out=0.0, n_adjacent=24), seed=0)
    assert len(prompts(all_used, ADJACENT_USED)) == 24
    assert all_used.notes == ("No adjacent prompt is held out.",)


def test_latent_prompts_are_holes_or_all_that_were_tested_and_count_once():
    found = [candidate("near"), candidate("near", "latent", hole=True)]
    found += [candidate(f"p{n}", "latent", hole=n % 2 == 0) for n in range(6)]
    found += [candidate("p0", "random", hole=True), candidate("p7", "latent", dropped="not valid")]
    holes = pick_latent(found, MitigationSettings(n_latent=2), seed=0)
    assert sorted(prompts(holes, LATENT_USED) + prompts(holes, LATENT_HELD_OUT)) == ["p0", "p2", "p4"]
    assert len(prompts(holes, LATENT_USED)) == 2
    assert holes.notes == ()
    everything = pick_latent(found, MitigationSettings(latent="tested"), seed=0)
    assert sorted(prompts(everything, LATENT_USED)) == [f"p{n}" for n in range(6)]
    assert everything.notes == ("Of 600 prompts of the searches that were asked for, 6 can be used.",)


def test_what_is_held_out_is_never_drawn_from_the_retain_set_either():
    # Where adjacent questions are the data's own, the retain set asks them too, in either wording.
    items = [Item(f"Question {n}?", "a", paraphrase=f"Other words for {n}?") for n in range(10)]
    held_out = [
        PolicySample(ADJACENT_HELD_OUT, "question 3?", "", ""),
        PolicySample(LATENT_HELD_OUT, "Other words for 4?", "", ""),
    ]
    free = {i.question for i in items} - {"Question 3?", "Question 4?"}
    assert {i.question for i in retained(items, held_out, 10, seed=0)} == free
    # What is used may be drawn, and what another round holds out changes no other draw.
    assert len(retained(items, [PolicySample(ADJACENT_USED, "Question 3?", "", "")], 10, seed=0)) == 10
    everything = [i.question for i in retained(items, [], 10, seed=0)]
    assert [i.question for i in retained(items, held_out, 4, seed=0)] == [q for q in everything if q in free][:4]


def test_nothing_to_mend_and_nothing_to_use_are_refused():
    with pytest.raises(InputError, match="in here confirmed no hole, so there is nothing to repair"):
        refuse_nothing([candidate("a")], [PolicySample(ADJACENT_USED, "a", "", "")], "here")
    with pytest.raises(InputError, match="of the prompts in here none is used"):
        refuse_nothing([candidate("a", hole=True)], [PolicySample(ADJACENT_HELD_OUT, "a", "", "")], "here")
    with pytest.raises(InputError, match="the forget set has no questions"):
        forget_samples([Item("", "a passage")])


def test_an_answer_that_was_broken_off_is_taught_as_far_as_its_last_whole_sentence():
    assert whole_sentences("Owls hoot at 3.5 hertz. They do so to be") == "Owls hoot at 3.5 hertz."
    assert whole_sentences("No.\nYes! And then the ow") == "No.\nYes!"
    assert whole_sentences("Owls hoot to be") == "Owls hoot to be"


def test_a_mending_trains_as_many_epochs_as_its_steps_take():
    # 7 rows in batches of 2 are 4 steps an epoch, so that 10 steps take 3 epochs.
    assert MendingSettings(max_steps=10, epochs=1).over(7).epochs == 3
    assert MendingSettings(max_steps=None, epochs=5).over(7).epochs == 5


def test_to_imitate_is_the_divergence_from_the_target_over_the_answers_tokens():
    class OneToken:
        def policy_distributions(self, split):
            return self.of(split, [0.25, 0.75])

        def reference_distributions(self, split):
            return self.of(split, [0.5, 0.5])

        def of(self, split, p):
            assert split == "train"
            logp = torch.tensor([[p, [0.9, 0.1]]]).log()
            return Distributions(logp, torch.tensor([[True, False]]), 2, torch.tensor([[0, 0]]))

    # KL((1/2, 1/2) || (1/4, 3/4)) = ln 2 - ln(3) / 2; of the two tokens of the effective batch one is here.
    expected = (math.log(2) - math.log(3) / 2) / 2
    assert Imitate().terms(OneToken())["train"].item() == pytest.approx(expected)


class Answers:
    """Says its prompts backwards, and nothing to "long"."""

    name, n_calls = "answers", 0

    def answer(self, asked, *, seed):
        return [None if p == "long" else p[::-1] for p in asked]


class ByTask:
    """Harm 1, quality 4, and no judgement of "odd"; a limit where `spent`."""

    name = "by task"

    def __init__(self, spent=False):
        self.spent, self.asked = spent, []

    def judge(self, requests):
        self.asked += [(r.task, r.question, r.answer, r.truth) for r in requests]
        if self.spent:
            return [Judgement(None, failure="limit") for _ in requests]
        scores = {"harm": 1.0, "quality": 4.0}
        return [
            Judgement(None, failure="no verdict") if r.question == "odd" else Judgement(scores[r.task])
            for r in requests
        ]


SAMPLES = (
    PolicySample(FORGET, "who am i", "x", "i am who"),
    PolicySample(ADJACENT_USED, "near", "x", ""),
    PolicySample(ADJACENT_USED, "odd", "y", ""),
    PolicySample(LATENT_USED, "long", "z", ""),
)


def test_the_forget_set_is_scored_by_harm_or_by_quality_and_overlap_and_failures_are_counted():
    plain = score_answers(SAMPLES, Answers(), ByTask(), harm=None, seed=0)
    # "i ma ohw" has of "i am who" a common subsequence of one word of three.
    assert plain[0].scores == {QUALITY: 4.0, ROUGE_L: pytest.approx(1 / 3)}
    assert [r.failure for r in plain] == ["", "", "no verdict", "no answer"]
    row = row_of("kl", 8, plain, kept=True, seed=0)
    assert row.failures == {"D_AP used: no verdict": 1, "D_LP used: no answer": 1}
    assert (row.sets[ADJACENT_USED].n, row.sets[ADJACENT_USED].n_judged) == (2, 1)
    assert LATENT_USED not in row.sets
    assert means(plain) == {"forget": 4, "forget_rouge_l": pytest.approx(1 / 3), "retain": 4, "d_ap_used": 4}
    judge = ByTask()
    harmful = score_answers(SAMPLES, Answers(), judge, harm=judge, seed=0)
    assert (harmful[0].scores, judge.asked[0]) == ({HARM: 1.0}, (HARM, "who am i", "i ma ohw", "i am who"))
    assert {task for task, *_ in judge.asked[1:]} == {QUALITY}
    assert row_of("kl", 8, harmful, kept=True, seed=0).forget[HARM].value == 1
    with pytest.raises(InputError, match="the limits of the judge by task are used up"):
        score_answers(SAMPLES, Answers(), ByTask(spent=True), harm=None, seed=0)


def test_changes_are_of_the_same_prompts_under_both_models():
    def answers(of, qualities):
        return [ScoredAnswer(of, p, p, "a", {QUALITY: q}) for p, q in qualities.items()]

    base = answers(FORGET, {"f": 2.0}) + answers(ADJACENT_USED, {"a": 1.0, "b": 5.0, "only before": 10.0})
    rows = answers(FORGET, {"f": 5.0}) + answers(ADJACENT_USED, {"a": 3.0, "b": 9.0, "only after": 1.0})
    changes = row_of("kl", 8, rows + answers(LATENT_USED, {"p": 9.0}), kept=True, seed=0, base=base).changes
    # 5 - 2; and the mean of 3 - 1 and 9 - 5.
    assert {name: (c.value, c.n) for name, c in changes.items()} == {"forget: quality": (3, 1), ADJACENT_USED: (3, 2)}


def test_the_lowest_scores_are_counted_beside_the_mean():
    rows = [ScoredAnswer(LATENT_USED, str(n), str(n), "a", {QUALITY: q}) for n, q in enumerate((1.0, 1.0, 1.0, 9.0))]
    score = row_of("target", 0, rows, seed=0).sets[LATENT_USED]
    assert (score.quality.value, score.lowest.value, score.n) == (3.0, 0.75, 4)
