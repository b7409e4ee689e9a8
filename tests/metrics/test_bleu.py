import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from vestige.metrics.bleu import avg_self_bleu, self_bleu, tokens

SMOOTHED = SmoothingFunction().method1


def by_nltk(texts, orders):
    weights = [(1 / n,) * n for n in orders]
    # Given one set of weights it returns a number, given several a list.
    rows = [sentence_bleu([*texts[:i], *texts[i + 1 :]], text, weights, SMOOTHED) for i, text in enumerate(texts)]
    return np.array(rows, dtype=float).reshape(len(texts), len(orders))


def test_three_questions_as_nltk_scores_them():
    texts = [
        "what is the capital of france ?",
        "what is the capital of spain ?",
        "who wrote the old man and the sea ?",
    ]
    split = [text.split() for text in texts]
    expected = [[0.699903, 0.643459, 0.564147], [0.699903, 0.643459, 0.564147], [0.034109, 0.028518, 0.026564]]
    assert self_bleu(split) == pytest.approx(np.array(expected), abs=5e-7)
    assert 1 - avg_self_bleu(split) == pytest.approx(0.566199, abs=5e-7)


def test_two_texts_by_hand():
    # "a b c d" against "a b x": p1 = 2/4, p2 = 1/3, longer than the reference: sqrt(1/6).
    # "a b x" against "a b c d": p1 = 2/3, p2 = 1/2, shorter: exp(1 - 4/3) sqrt(1/3).
    scores = self_bleu([list("abcd"), list("abx")], orders=[1, 2])
    short = math.exp(-1 / 3)
    expected = [[1 / 2, math.sqrt(1 / 6)], [short * 2 / 3, short * math.sqrt(1 / 3)]]
    assert scores == pytest.approx(np.array(expected), abs=1e-15)


def test_a_word_counts_at_most_as_often_as_one_other_text_has_it():
    # "the" stands twice in the second and once in the third: two of three match, not three.
    assert self_bleu([["the"] * 3, ["the", "the", "cat"], ["the", "dog", "ran"]], orders=[1])[0, 0] == 2 / 3


def test_the_nearest_length_is_the_shorter_of_two_and_never_the_text_s_own():
    # Four tokens between three and five: r = 3, no penalty. Without that the penalty would be exp(1 - 5/4).
    lengths = self_bleu([list("abcd"), list("abc"), list("abcde")], orders=[1])
    assert lengths[0, 0] == 1
    # The shortest text has only longer ones: exp(1 - 4/3).
    assert lengths[1, 0] == pytest.approx(math.exp(-1 / 3), abs=1e-15)


def test_the_same_text_twice_is_1_and_one_without_a_common_word_is_0():
    scores = self_bleu([list("abcdef"), list("abcdef"), list("uvwxyz")])
    assert scores[:2] == pytest.approx(np.ones((2, 3)), abs=1e-15)
    assert (scores[2] == 0).all()


@settings(max_examples=80, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from("abc"), max_size=9), min_size=2, max_size=7),
    orders=st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True),
)
def test_any_texts_score_as_nltk_scores_them(texts, orders):
    assert self_bleu(texts, orders) == pytest.approx(by_nltk(texts, orders), abs=1e-12)


def test_sentences_with_a_large_vocabulary_score_as_nltk_scores_them():
    rng = np.random.default_rng(3)
    texts = [[f"w{t}" for t in rng.zipf(1.4, rng.integers(1, 25)) % 900] for _ in range(120)]
    assert self_bleu(texts) == pytest.approx(by_nltk(texts, (3, 4, 5)), abs=1e-12)


def test_one_text_and_no_order_are_refused():
    with pytest.raises(ValueError, match="there is 1"):
        self_bleu([["a", "b"]])
    for orders in ([], [3, 0]):
        with pytest.raises(ValueError, match="from 1 up"):
            self_bleu([["a"], ["b"]], orders)


def test_signs_are_tokens_and_an_apostrophe_stays_in_its_word():
    assert tokens("What's the UK's GDP-growth, 3.5?") == (
        *("What's", "the", "UK's", "GDP", "-", "growth", ",", "3", ".", "5", "?"),
    )
    assert tokens(" \n") == ()
