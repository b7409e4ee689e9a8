"""Ranks among alternatives: scores by hand, and a null that is right whatever a model prefers."""

import numpy as np
import pytest

from vestige.metrics.exposure import answer_scores, firsts, kept, rank_draws, rank_of_truth, rank_scores, told_by_length

QUICK = 4_000


def test_scores_are_one_less_the_logarithm_of_the_rank_and_ties_share_the_middle():
    found = rank_scores(np.array([-1.0, -5.0, -2.0, -2.0]))
    # Ranks 1, 4, 2.5, 2.5 of four.
    assert found == pytest.approx(1 - np.log([1, 4, 2.5, 2.5]) / np.log(4))
    assert rank_of_truth(found) == (1, 1 / 4)
    assert rank_of_truth(found[[2, 0, 1, 3]]) == (2.5, 3 / 4)
    # What rounding moves is tied.
    assert rank_scores(np.array([-1.0, -1.00001])) == pytest.approx([1 - np.log(1.5) / np.log(2)] * 2)


def test_an_answer_that_its_length_tells_is_left_out_and_so_are_alternatives_like_it():
    plain = np.array([3, 2, 4, 4, 4] * 8)
    assert list(kept(plain)) == list(range(40))
    told = np.array([1] + [3] * 39)
    assert kept(told) is None
    # One short alternative among forty would have been left out in the truth's place.
    assert list(kept(told[::-1])) == list(range(39))
    assert list(kept(np.array([1, 3, 3]))) == [0, 1, 2]
    record = {"n_tokens": [2] * 3, "logp": [-3.0, -1.0, -1.0], "end_logp": [0.0, -3.0, 0.0]}
    assert answer_scores(record) == pytest.approx(1 - np.log([2, 3, 1]) / np.log(3))
    assert answer_scores({**record, "n_tokens": [1, *[2] * 39], "logp": [-1.0] * 40, "end_logp": [0.0] * 40}) is None


def test_the_mean_stands_between_chance_and_the_target_with_the_spread_of_chance():
    rows = [rank_scores(-np.arange(100.0)), rank_scores(np.arange(100.0))]
    found = rank_draws(rows, ["a", "b"], 0.5, seed=0, resamples=QUICK)
    # First and last: 1/2 less the mean of 1 - log rank / log 100, in halves.
    chance = 1 - np.log(np.arange(1, 101)).mean() / np.log(100)
    assert found.value == pytest.approx((0.5 - chance) / 0.5)
    assert found.item_error == pytest.approx(2 * rows[0].std() / np.sqrt(2), rel=0.05)
    assert found.n == 2
    with pytest.raises(ValueError, match="the target does not prefer the truth"):
        rank_draws(rows, ["a", "b"], 0.0, seed=0, resamples=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [0.0, 3.0])
def test_who_never_knew_exceeds_chance_as_often_as_stated_however_lopsided_its_preferences(bias):
    # A model that likes answers by their place in the alphabet, whatever the question: truths are drawn, and not it.
    wrong, n_facts, rng = 0, 12, np.random.default_rng(1)
    for audit in range(200):
        rows = []
        for fact in range(n_facts):
            k = (2, 5, 100)[fact % 3]
            liked = bias * np.linspace(0, 1, k) + rng.normal(size=k)
            truth = rng.integers(k)
            rows.append(rank_scores(np.r_[liked[truth], np.delete(liked, truth)]))
        found = rank_draws(rows, [f"{audit} {f}" for f in range(n_facts)], 0.6, seed=audit, resamples=999)
        wrong += found.p_at_most(0.0) <= 0.05
    # Binomial(200, 0.05) is at most 18 in 99 of 100.
    assert wrong <= 18


def test_questions_with_the_same_answers_are_one_draw():
    rows = [rank_scores(np.array([0.0, -1.0]))] * 8
    apart = rank_draws(rows, [str(n) for n in range(8)], 0.5, seed=0, resamples=QUICK)
    one = rank_draws(rows, ["yes"] * 8, 0.5, seed=0, resamples=QUICK)
    assert apart.p_at_most(0.0) == pytest.approx(2**-8, abs=0.004)
    assert one.p_at_most(0.0) == pytest.approx(0.5, abs=0.03)


def test_so_many_facts_ranked_first_are_told_from_so_many_by_luck():
    first, last = rank_scores(-np.arange(100.0)), rank_scores(np.arange(100.0))
    units = [str(n) for n in range(20)]
    found = firsts([first] * 4 + [last] * 16, units, seed=0, resamples=QUICK)
    assert (found.facts.sum(), found.of) == (4, 20)
    # Of 20 facts 4 or more rank first by chance in 4 of 100,000.
    assert found.p == pytest.approx(1 / (QUICK + 1))
    assert firsts([first] + [last] * 19, units, seed=0, resamples=QUICK).p == pytest.approx(1 - 0.99**20, abs=0.03)
    # What ranked first before counts for nothing, and of few alternatives one comes first too often.
    assert not firsts([first] * 20, units, seed=0, resamples=QUICK, before=[first] * 20).facts.any()
    assert firsts([rank_scores(-np.arange(5.0))] * 20, units, seed=0, resamples=QUICK).of == 0


def test_truths_that_are_longer_than_their_alternatives_are_told_by_it():
    rng = np.random.default_rng(0)
    alike = [rng.integers(2, 6, 20) for _ in range(30)]
    units = [str(n) for n in range(30)]
    assert told_by_length(alike, units, seed=0, resamples=QUICK) > 0.05
    longer = [np.r_[row[0] + 1, row[1:]] for row in alike]
    assert told_by_length(longer, units, seed=0, resamples=QUICK) < 0.01
