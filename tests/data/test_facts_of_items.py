"""Which words of an answer are its fact, and which questions ask for one fact in other words."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.core.items import Item
from vestige.data.corpus import Corpus, SourceSettings, named_splits
from vestige.data.facts import BLANK, Cloze, _Questions, cloze_of, fact_of, facts_of, said_of_facts
from vestige.metrics.answers import contains


def test_wordings_of_one_fact_are_told_by_edge_answer_and_question_or_attribute():
    items = (
        Item("What is the unit price of A and B?", "10 dollars", edge="A_B"),
        Item("What is the unit price in the contract of A and B?", "10 Dollars.", edge="A_B"),
        Item("When is the first payment due?", "10 dollars", edge="A_B"),
        Item("What is the unit price of A and B?", "10 dollars", edge="A_C"),
        Item("Who wrote it?", "It was written by Hsiao Yun-Hwa", edge="A_B"),
        Item("Name the author.", "It was written by Hsiao Yun-Hwa", edge="A_B"),
    )
    assert facts_of(items) == {items[1].id: items[0].id, items[5].id: items[4].id}
    # Where both name an attribute, it decides, whatever the words.
    named = (
        Item("How much is one?", "10", edge="A_B", attribute="price"),
        Item("What do they charge?", "10", edge="A_B", attribute="price"),
        Item("How much is one?  ", "10", edge="A_B", attribute="days"),
    )
    assert facts_of(named) == {named[1].id: named[0].id}


TOWNS = ("Oslo", "Rome", "Lima", "Bonn", "Kyiv")
PEOPLE = ("Ann Lee", "Bo Kay", "Cy Dow", "Ed Fox", "Gil Hay")


def test_rewordings_without_edges_are_told_by_who_they_are_about_and_what_answers_them():
    asked = ("Where was {} born?", "In which city did the life of {} begin?", "Name the birthplace of {}.")
    items = [Item(text.format(who), f"{town}.") for text in asked for who, town in zip(PEOPLE, TOWNS, strict=True)]
    found = facts_of(items)
    assert found == {items[n].id: items[n % 5].id for n in range(5, 15)}
    assert said_of_facts(items) == "they ask for 5 facts"
    # Two people of one town are two facts, and answers that many give need like questions.
    same = [Item("Where was Ann Lee born?", "Oslo."), Item("Where was Bo Kay born?", "Oslo.")]
    assert facts_of(same) == {}
    yes = [Item(f"{a} {who} {b}?", "Yes.") for who in PEOPLE for a, b in (("Is", "a widow"), ("Does", "own horses"))]
    assert facts_of(yes) == {}
    again = [*yes, Item("Is Ann Lee really a widow?", "Yes.")]
    assert facts_of(again) == {again[-1].id: again[0].id}


def test_answers_of_one_contract_that_say_the_same_in_other_words_are_one():
    items = (
        Item("Where was the seller born?", "Oslo.", edge="p"),
        Item("Where was the seller really born?", "In Oslo.", edge="p"),
        Item("Where was the seller truly born?", "In Rome.", edge="p"),
    )
    assert facts_of(items) == {items[1].id: items[0].id}


def drawn(rng):
    """Questions of few words and names, with few answers, of a contract or of none."""
    asked = ("Is {} a widow", "is it true that {} owns it", "Does {} own {}", "who is {}", "", "do they pay", "{} {}")
    answers = ("Yes.", "No", "The State of New York", "It was signed by Hsiao Yun in the hall of Taipei")
    who = lambda: rng.choice((*PEOPLE, "ann", "it", "New York 7"))  # noqa: E731
    items = (
        Item(
            rng.choice(asked).format(who(), who()) + rng.choice(("?", " then?", " really, in the end?")),
            rng.choice(answers),
            edge=rng.choice((None, None, None, "p")),
            attribute=rng.choice((None, None, "a", "b")),
        )
        for _ in range(30)
    )
    return list({item.id: item for item in items}.values())


def test_a_question_is_compared_with_few_and_none_that_asks_for_its_fact_is_missed():
    for seed in range(60):
        items = drawn(random.Random(seed))
        every, blocks, expected = _Questions(items), {}, {}
        for number, item in enumerate(items):
            block = blocks.setdefault(item.edge or every.answers[number], [])
            first = next((n for n in block if every.one_fact(n, number)), None)
            if first is None:
                block.append(number)
            else:
                expected[item.id] = items[first].id
        assert facts_of(items) == expected


def test_how_many_facts_a_forget_set_asks_for_is_told_with_its_questions(tmp_path):
    path = tmp_path / "forget.jsonl"
    rows = [
        ("Where was Ann Lee born?", "Oslo."),
        ("In which city was Ann Lee born?", "Oslo."),
        ("Who sells tea?", "Bo."),
    ]
    lines = [f'{{"question": "{question}", "answer": "{answer}"}}' for question, answer in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    items = tuple(Item(q, a) for q, a in (*rows, ("What is tea?", "A drink.")))
    corpus = Corpus("own", SourceSettings(data="own"), items, (), None)
    assert named_splits(corpus, str(path)).told[0].endswith("; they ask for 2 facts; 1 kept")


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
