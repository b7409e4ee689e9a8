import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from vestige.metrics.bleu import SeenEmbeddings, SeenNgrams

SMOOTHED = SmoothingFunction().method1
WORDS = st.lists(st.sampled_from("abcd"), max_size=9)

# The example in fast-bleu's README: three references, two texts.
REFERENCES = [
    "It is a guide to action that ensures that the military will forever heed Party commands",
    "It is the guiding principle which guarantees the military forces always being under the command of the Party",
    "It is the practical guide for the army always to heed the directions of the party",
]
TEXTS = [
    "It is a guide to action which ensures that the military always obeys the commands of the party",
    "he read the book because he was interested in world history",
]


def test_the_example_that_fast_bleu_prints():
    seen = SeenNgrams(orders=[2, 3])
    seen.add([text.split() for text in REFERENCES])
    expected = [[0.745356, 0.624073], [0.019138, 0.013721]]
    found = seen.bleu([text.split() for text in TEXTS])
    assert found == pytest.approx(np.array(expected), abs=5e-7)
    assert seen.likeness([TEXTS[0].split()]) == pytest.approx([(0.745356 + 0.624073) / 2], abs=5e-7)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(WORDS, max_size=4), min_size=1, max_size=4), new=st.lists(WORDS, max_size=4))
def test_texts_added_in_batches_are_the_references_of_one_computation(batches, new):
    seen, orders = SeenNgrams(), (3, 4, 5)
    for batch in batches:
        seen.add(batch)
    references = [text for batch in batches for text in batch]
    weights = [(1 / n,) * n for n in orders]
    expected = [sentence_bleu(references, text, weights, SMOOTHED) if references else [0] * 3 for text in new]
    assert seen.bleu(new) == pytest.approx(np.array(expected, dtype=float).reshape(len(new), 3), abs=1e-12)


def test_scoring_adds_nothing_and_the_order_of_adding_does_not_matter():
    one, other = SeenNgrams(), SeenNgrams()
    texts = [list("abcabd"), list("abcabe"), list("aabb"), list("abc")]
    one.add(texts)
    for text in reversed(texts):
        other.bleu([list("abcabf")])
        other.add([text])
    assert (one.bleu([list("abcabf"), list("bbaa")]) == other.bleu([list("abcabf"), list("bbaa")])).all()


def test_nothing_found_so_far_is_like_nothing():
    assert (SeenNgrams().bleu([["a", "b"], []]) == np.zeros((2, 3))).all()
    assert (SeenEmbeddings(2).likeness(np.ones((1, 2))) == [0]).all()


def test_the_mean_cosine_by_hand():
    # (1, 0) has the cosines 1, 0 and 0.6 to (5, 0), (0, 2) and (3, 4): 1.6 / 3.
    seen = SeenEmbeddings(2)
    seen.add(np.array([[5.0, 0.0], [0.0, 2.0]]))
    seen.add(np.array([[3.0, 4.0]]))
    assert seen.likeness(np.array([[0.5, 0.0]])) == pytest.approx([1.6 / 3], abs=1e-15)


def test_the_mean_cosine_equals_that_over_all_pairs():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(500, 24)).astype(np.float32), rng.normal(size=(7, 24)).astype(np.float32)
    seen = SeenEmbeddings(24)
    for start in range(0, 500, 32):
        seen.add(old[start : start + 32])
    lengths = np.outer(np.linalg.norm(new.astype(float), axis=1), np.linalg.norm(old.astype(float), axis=1))
    assert seen.likeness(new) == pytest.approx((new.astype(float) @ old.T.astype(float) / lengths).mean(axis=1))


def test_an_embedding_without_a_length_is_refused():
    with pytest.raises(ValueError, match="embedding 1 has the length 0"):
        SeenEmbeddings(2).add(np.array([[1.0, 0.0], [0.0, 0.0]]))
