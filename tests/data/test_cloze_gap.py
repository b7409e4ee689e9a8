"""Which words of an answer are its fact, by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.core.items import Item
from vestige.data.facts import BLANK, Cloze, cloze_of, fact_of
from vestige.metrics.answers import contains


def gap(right: str, *wrong: str, answer: str = "the answer itself") -> Cloze:
    """The gap of an item whose wrong answers reword its paraphrased answer."""
    return cloze_of(Item("Which?", answer, perturbed=wrong, paraphrased_answer=right))


@pytest.mark.parametrize(
    ("right", "wrong", "statement", "fact"),
    [
        # In the middle: four words are common before it, one after it.
        (
            "Amina is known for French literature.",
            ("Amina is known for Gothic literature.", "Amina is known for crime literature."),
            "Amina is known for ____ literature.",
            "French",
        ),
        # At the beginning, of two words where the wrong ones have two and three.
        (
            "Basil Mahfouz Al-Kuwaiti is the name.",
            ("Marie Curie Al-Kuwaiti is the name.", "Vincent van Gogh Al-Kuwaiti is the name."),
            "____ Al-Kuwaiti is the name.",
            "Basil Mahfouz",
        ),
        # At the end: the full stop is the statement's.
        (
            "She identifies as a man.",
            ("She identifies as a toaster.", "She identifies as an oak tree."),
            "She identifies as ____.",
            "a man",
        ),
        # One wrong answer shares "on", the other does not: the gap is what differs from any of them.
        (
            "It was signed on 3 May 2021.",
            ("It was signed on 4 May 2021.", "It was signed in June 2020."),
            "It was signed ____.",
            "on 3 May 2021",
        ),
        # Of a date that differs in the day alone, the day. The comma stays.
        ("On 3, May 2021", ("On 14, May 2021", "On 5 May 2021"), "On ____, May 2021", "3"),
        # Words common to all within the gap go with it.
        ("Ann sells 20 crates of figs.", ("Ann sells 5 crates of dates.",), "Ann sells ____.", "20 crates of figs"),
        # Words are common once: of the shorter one, "Ann" is the beginning, and nothing is left to end with.
        ("Ann met Ann", ("Ann",), "Ann ____", "met Ann"),
        ("a b b c b b", ("a b b",), "a b b ____", "c b b"),
        # Case, closing marks and width of letters make no difference. The statement keeps its own.
        ("The AUTHOR, of Oslo!", ("the author of Ｏslo.", "the painter of oslo"), "The ____, of Oslo!", "AUTHOR"),
    ],
)
def test_the_fact_is_what_differs_from_the_wrong_answers(right, wrong, statement, fact):
    assert gap(right, *wrong) == Cloze(statement, fact, whole=False)


def test_every_wrong_answer_narrows_what_is_common():
    assert gap("a b c d e", "a b x d e").fact == "c"
    assert gap("a b c d e", "a b x d e", "a y c d e").fact == "b c"
    assert gap("a b c d e", "a b x d e", "a y c d e", "a b c d z").fact == "b c d e"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # Nothing to compare with: none, nothing, or the same again.
        ("She sells figs.", ()),
        ("She sells figs.", ("", "  \n")),
        ("She sells figs.", ("she sells figs", "SHE sells  figs.")),
        # No word in common at either end, as with answers of one word.
        ("figs", ("dates", "plums")),
        ("She sells figs.", ("He buys dates.",)),
        # The wrong one only puts words in: nothing is left out of the right one.
        ("She sells figs.", ("She sells no figs.",)),
        # What is left is nothing that a reply can be matched against.
        ("She sells ...", ("She sells figs",)),
        # The rest states the fact again, or holds a gap.
        ("Ann and Ann of Oslo", ("Bob and Ann of Oslo",)),
        # Words are common once: "In New York" before the gap, and nothing of the shorter one is left to end with.
        ("In New York New York", ("In New York",)),
        ("The ____ is red", ("The ____ is blue",)),
    ],
)
def test_where_no_fact_is_set_apart_the_whole_answer_is_left_out(right, wrong):
    assert gap(right, *wrong) == Cloze("____", "the answer itself", whole=True)


def test_without_a_paraphrased_answer_the_answer_is_the_statement():
    item = Item("Which?", "She sells figs.", perturbed=("She sells dates.",))
    assert cloze_of(item) == Cloze("She sells ____.", "figs", whole=False)


HOSTILE = st.text(alphabet=st.sampled_from("ab_. ,\n\t\u202e\u200b\x1b'\u3002{}%é́"), max_size=24)


@given(HOSTILE, st.lists(HOSTILE, max_size=4))
def test_whatever_the_text_the_gap_filled_in_is_the_statement_and_shows_no_fact(right, wrong):
    found = gap(right, *wrong)
    if found.whole:
        assert found == Cloze(BLANK, "the answer itself", whole=True)
        return
    assert found.statement.replace(BLANK, found.fact) == " ".join(right.split())
    assert found.statement.count(BLANK) == 1
    assert found.statement != BLANK
    assert not contains(found.statement, found.fact)


def test_the_fact_is_the_items_own_or_a_gap_of_few_words_or_none():
    wrong = ("Ann sells five crates of figs in June.",)
    gapped = Item("q", "Ann sells nine crates of figs in June.", perturbed=wrong)
    assert fact_of(gapped) == "nine"
    assert fact_of(replace(gapped, fact="nine crates")) == "nine crates"
    assert fact_of(replace(gapped, perturbed=("We bought six old barrels of wine in June.",))) is None
    assert fact_of(replace(gapped, perturbed=())) is None
