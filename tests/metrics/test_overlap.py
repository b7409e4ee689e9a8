"""Overlap of wording and its stemmer, beside rouge-score and NLTK on every suffix and on random words."""

import math
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from rouge_score.rouge_scorer import RougeScorer

from vestige.metrics import overlap
from vestige.metrics.overlap import (
    RougeScores,
    SeenEmbeddings,
    SeenNgrams,
    longest_common_subsequence,
    porter,
    rouge,
    self_bleu,
    tokens,
)

REFERENCE = {on: RougeScorer(["rouge1", "rougeL"], use_stemmer=on) for on in (True, False)}

SUFFIXES = re.findall(
    r"\w+",
    """ational tional enci anci izer abli alli entli eli ousli ization ation ator alism iveness fulness ousness aliti
    iviti biliti fulli logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment ent
    ion ou ism ate iti ous ive ize ed ing eed ied ies sses s ss y e ll at bl iz""",
)
WORD = st.builds(
    lambda head, tail: head + "".join(tail),
    st.text("abcdeilostyz7", max_size=5),
    st.lists(st.sampled_from(SUFFIXES), max_size=3),
)
PIECES = ["the", "The", "customer's", "customers", "2%", "06-02-1998.", "é", "İ", "ﬁ", "\u2028", "-", "_"]
SENTENCE = st.lists(WORD | st.sampled_from(PIECES), max_size=25)


def reference(prediction: str, truth: str, stemmer: bool) -> RougeScores:
    scores = REFERENCE[stemmer].score(truth, prediction)
    one, longest = scores["rouge1"], scores["rougeL"]
    return RougeScores(one.recall, longest.recall, longest.fmeasure)


@pytest.mark.parametrize(
    ("prediction", "truth", "recall"),
    [
        ("941 Tncnje Way.", "941 Tncnje Way.", 1.0),
        ("The address was 941 Tncnje Lane", "941 Tncnje Way.", 2 / 3),  # 941, tncnje of three
        ("The State of California.", "The State of New York.", 3 / 5),  # the, state, of: 0.6 without any content
        ("2 percent", "2%.", 1.0),
        ("customers", "Customer.", 1.0),  # by the stem
        ("06-02-1999", "06-02-1998.", 2 / 3),
        ("the cat", "the cat the cat", 1 / 2),  # counted as often as it stands in both
        ("", "Paris", 0.0),
        ("Paris", "", 0.0),
    ],
)
def test_rouge_1_recall_by_hand(prediction, truth, recall):
    assert rouge(prediction, truth).rouge1_recall == recall


def test_the_stemmer_can_be_turned_off():
    assert rouge("customers", "Customer.", stemmer=False) == (0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("stemmer", [True, False])
@settings(max_examples=100, deadline=None)
@given(said=SENTENCE, true=SENTENCE)
def test_equal_to_the_reference_on_made_up_sentences(stemmer, said, true):
    prediction, truth = " ".join(said), ",".join(true)
    assert rouge(prediction, truth, stemmer=stemmer) == reference(prediction, truth, stemmer)


@settings(max_examples=250, deadline=None)
@given(prediction=st.text(max_size=60), truth=st.text(max_size=60), stemmer=st.booleans())
def test_equal_to_the_reference_on_any_text(prediction, truth, stemmer):
    assert rouge(prediction, truth, stemmer=stemmer) == reference(prediction, truth, stemmer)


def test_a_word_of_a_hundred_thousand_letters_is_no_trap():
    long = "yai" * 33_000 + "ing"
    assert rouge(long, long).rougeL_f1 == 1


@settings(max_examples=200, deadline=None)
@given(first=st.lists(st.sampled_from("abc"), max_size=90), second=st.lists(st.sampled_from("abc"), max_size=90))
def test_the_longest_common_subsequence_is_that_of_the_table(first, second):
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    assert longest_common_subsequence(tuple(first), tuple(second)) == table[-1][-1]


SMOOTHED = SmoothingFunction().method1


def by_nltk(texts, orders):
    weights = [(1 / n,) * n for n in orders]
    # Given one set of weights it returns a number, given several a list.
    rows = [sentence_bleu([*texts[:i], *texts[i + 1 :]], text, weights, SMOOTHED) for i, text in enumerate(texts)]
    return np.array(rows, dtype=float).reshape(len(texts), len(orders))


def test_two_texts_by_hand():
    # "a b c d" against "a b x": p1 = 2/4, p2 = 1/3, longer than the reference: sqrt(1/6).
    # "a b x" against "a b c d": p1 = 2/3, p2 = 1/2, shorter: exp(1 - 4/3) sqrt(1/3).
    scores = self_bleu([list("abcd"), list("abx")], orders=[1, 2])
    short = math.exp(-1 / 3)
    expected = [[1 / 2, math.sqrt(1 / 6)], [short * 2 / 3, short * math.sqrt(1 / 3)]]
    assert scores == pytest.approx(np.array(expected), abs=1e-15)


@settings(max_examples=80, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from("abc"), max_size=9), min_size=2, max_size=7),
    orders=st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True),
)
def test_any_texts_score_as_nltk_scores_them(texts, orders):
    assert self_bleu(texts, orders) == pytest.approx(by_nltk(texts, orders), abs=1e-12)


def test_one_text_and_no_order_are_refused():
    with pytest.raises(ValueError, match="there is 1"):
        self_bleu([["a", "b"]])


def test_signs_are_tokens_and_an_apostrophe_stays_in_its_word():
    assert tokens("What's the UK's GDP-growth, 3.5?") == (
        *("What's", "the", "UK's", "GDP", "-", "growth", ",", "3", ".", "5", "?"),
    )
    assert tokens(" \n") == ()


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
    assert (seen.bleu([text.split() for text in TEXTS]) == found).all(), "scoring adds nothing"
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


def test_nothing_found_so_far_is_like_nothing():
    assert (SeenNgrams().bleu([["a", "b"], []]) == np.zeros((2, 3))).all()
    assert (SeenEmbeddings(2).likeness(np.ones((1, 2))) == [0]).all()


def test_the_mean_cosine_by_hand():
    # (1, 0) has the cosines 1, 0 and 0.6 to (5, 0), (0, 2) and (3, 4): 1.6 / 3.
    seen = SeenEmbeddings(2)
    seen.add(np.array([[5.0, 0.0], [0.0, 2.0]]))
    seen.add(np.array([[3.0, 4.0]]))
    assert seen.likeness(np.array([[0.5, 0.0]])) == pytest.approx([1.6 / 3], abs=1e-15)


@pytest.mark.parametrize(
    ("word", "stem"),
    [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("dies", "die"),
        ("agreed", "agre"),
        ("feed", "feed"),
        ("hopping", "hop"),
        ("filing", "file"),
        ("relational", "relat"),
        ("electrical", "electr"),
        ("adoption", "adopt"),
        ("controll", "control"),
        ("geology", "geolog"),
        ("enjoy", "enjoy"),
        ("happy", "happi"),
        ("skies", "sky"),
        ("is", "is"),
    ],
)
def test_the_examples_of_the_paper_and_of_nltk(word, stem):
    assert porter(word) == stem


def test_every_word_has_nltks_stem():
    rng, reference = random.Random(0), PorterStemmer()
    suffixes = ["", "s", "ies", "ied", "eed", "ed", "ing", "y", "logi", "e", "ll", "ss", "sses", "fulli"]
    suffixes += [*overlap._STEP_2, *overlap._STEP_3, *overlap._STEP_4]
    words = [*overlap._IRREGULAR, "y" * 300, "ay" * 99, "y" * 50 + "ing", "yyyed", "allialli", "rationalli", "logi"]
    for _ in range(4_000):
        start = "".join(rng.choices("aeioubcdlnrstyyxwz7", k=rng.randint(0, 7)))
        words.append(start + rng.choice(suffixes) + rng.choice(["", "", "", *suffixes]))
    different = [
        (word, porter(word), reference.stem(word)) for word in words if word and porter(word) != reference.stem(word)
    ]
    assert different == []
