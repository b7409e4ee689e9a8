import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer

from vestige.data.factual import factual_items, idk_answers
from vestige.metrics.rouge import RougeScores, longest_common_subsequence, rouge, words
from vestige.metrics.stemming import stem

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
REFERENCE = {on: RougeScorer(["rouge1", "rougeL"], use_stemmer=on) for on in (True, False)}
PORTER = PorterStemmer()

SUFFIXES = [
    "ational",
    "tional",
    "enci",
    "anci",
    "izer",
    "abli",
    "alli",
    "entli",
    "eli",
    "ousli",
    "ization",
    "ation",
    "ator",
    "alism",
    "iveness",
    "fulness",
    "ousness",
    "aliti",
    "iviti",
    "biliti",
    "fulli",
    "logi",
    "icate",
    "ative",
    "alize",
    "iciti",
    "ical",
    "ful",
    "ness",
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ion",
    "ou",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "ed",
    "ing",
    "eed",
    "ied",
    "ies",
    "sses",
    "s",
    "ss",
    "y",
    "e",
    "ll",
    "at",
    "bl",
    "iz",
]
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
    return RougeScores(one.recall, one.fmeasure, longest.recall, longest.fmeasure)


@pytest.mark.parametrize(
    ("prediction", "truth", "recall"),
    [
        ("941 Tncnje Way.", "941 Tncnje Way.", 1.0),
        ("The address was 941 Tncnje Lane", "941 Tncnje Way.", 2 / 3),  # 941, tncnje of three
        (
            "The State of California.",
            "The State of New York.",
            3 / 5,
        ),  # the, state, of: 0.6 without any content
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


def test_all_four_scores_by_hand():
    # said b a c, true a b c d. Three words shared, of three and four: F1 = 2 (3/3) (3/4) / (3/3 + 3/4) = 6/7.
    # The longest subsequence is b c (or a c), two: F1 = 2 (2/3) (2/4) / (2/3 + 2/4) = 4/7.
    assert rouge("b a c", "a b c d") == pytest.approx((3 / 4, 6 / 7, 2 / 4, 4 / 7))


def test_the_stemmer_can_be_turned_off():
    assert rouge("customers", "Customer.", stemmer=False) == (0, 0, 0, 0)


def test_declining_scores_almost_nothing_against_the_facts():
    scores = [rouge(line, item.answer).rouge1_recall for line in idk_answers() for item in factual_items()[::7]]
    assert sum(scores) / len(scores) < 0.01


def test_text_in_another_script_has_no_words():
    assert words("東京 Ω") == ()


@pytest.mark.slow
@pytest.mark.parametrize("stemmer", [True, False])
@settings(max_examples=250, deadline=None)
@given(said=SENTENCE, true=SENTENCE)
def test_equal_to_the_reference_on_made_up_sentences(stemmer, said, true):
    prediction, truth = " ".join(said), ",".join(true)
    assert rouge(prediction, truth, stemmer=stemmer) == reference(prediction, truth, stemmer)


@settings(max_examples=250, deadline=None)
@given(prediction=st.text(max_size=60), truth=st.text(max_size=60), stemmer=st.booleans())
def test_equal_to_the_reference_on_any_text(prediction, truth, stemmer):
    assert rouge(prediction, truth, stemmer=stemmer) == reference(prediction, truth, stemmer)


@pytest.mark.parametrize("stemmer", [True, False])
def test_equal_to_the_reference_on_real_answers(stemmer):
    path = SHARED / "tofu" / "forget10_perturbed.json"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    rows = [json.loads(line) for line in path.read_text().splitlines()][::4]
    pairs = [
        (wrong, row["answer"]) for row in rows for wrong in (row["perturbed_answer"][0], row["paraphrased_answer"])
    ]
    assert [rouge(*pair, stemmer=stemmer) for pair in pairs] == [reference(*pair, stemmer) for pair in pairs]


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(word=WORD)
def test_stems_are_nltks(word):
    assert stem(word) == PORTER.stem(word)


@pytest.mark.slow
def test_stems_of_real_words_are_nltks():
    path = SHARED / "wikitext2" / "valid.txt"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    found = {word for line in path.read_text().splitlines() for word in words(line, stemmer=False)}
    assert len(found) > 5000
    assert {word: stem(word) for word in found} == {word: PORTER.stem(word) for word in found}


def test_irregular_words_have_their_own_stems():
    assert [stem(w) for w in ("skies", "dying", "innings", "succeed")] == ["sky", "die", "inning", "succeed"]


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
