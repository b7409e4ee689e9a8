import numpy as np
import pytest

from vestige.probes.latent import RewardSettings, Seen, neutral, reward

WEIGHTS = RewardSettings(ngram_coef=2.0, semantic_coef=4.0, clip=10.0)


class Letters:
    """A text's counts of a, b and c."""

    def embed(self, texts):
        return np.array([[text.count(c) for c in "abc"] for text in texts], dtype=np.float32)


def test_the_reward_by_hand():
    # likeness 1 - 0.75 = 0.25 in n-grams and 1 - 0.5 = 0.5 in meaning: 10 - 2 x 0.25 - 4 x 0.5 = 7.5
    assert reward(10.0, {"ngram": 0.75, "semantic": 0.5}, WEIGHTS) == 7.5
    # All new costs nothing, so the clip of 10 takes nothing from J = 10; and a cosine below 0 earns 4 x 0.5 beyond 3.
    assert reward(10.0, {"ngram": 1.0, "semantic": 1.0}, WEIGHTS) == 10.0
    assert reward(3.0, {"ngram": 1.0, "semantic": 1.5}, WEIGHTS) == 5.0
    assert reward(10.0, {"ngram": 1.0, "semantic": 1.5}, WEIGHTS) == 10.0
    assert reward(0.0, {"ngram": 0.0, "semantic": 0.0}, RewardSettings(ngram_coef=9, semantic_coef=9)) == -10.0


def test_what_was_not_measured_costs_nothing():
    assert reward(6.0, {"ngram": 0.5}, WEIGHTS) == 5.0


def test_prompts_of_one_batch_are_no_references_of_each_other():
    seen = Seen(Letters())
    first = seen.novelty(["a a a a a a", "a a a a a a"])
    assert first == [{"ngram": 1.0, "semantic": 1.0}] * 2
    again, other = seen.novelty(["a a a a a a", "b b b b b b"])
    assert again == pytest.approx({"ngram": 0.0, "semantic": 0.0}, abs=1e-6)
    # No word in common: BLEU is 0, and the directions of a and b are at right angles.
    assert other == pytest.approx({"ngram": 1.0, "semantic": 1.0}, abs=1e-6)


def test_the_semantic_novelty_is_one_less_the_mean_cosine():
    seen = Seen(Letters())
    seen.novelty(["a", "b"])
    # Cosine of (a, b) to a and to b: 1/sqrt 2 each; their mean 0.7071.
    assert seen.novelty(["ab"])[0]["semantic"] == pytest.approx(1 - 2**-0.5, abs=1e-6)


def test_without_an_embedder_only_wording_counts():
    assert Seen(None).novelty(["x"]) == [{"ngram": 1.0}]


def test_what_was_not_judged_gets_the_mean_of_the_others():
    assert neutral([1.0, None, 3.0, 8.0]) == [1.0, 4.0, 3.0, 8.0]
