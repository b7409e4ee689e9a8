"""Which questions of a forget set ask for one fact in other words."""

import random

from vestige.core.items import Item
from vestige.data.corpus import Corpus, SourceSettings, named_splits
from vestige.data.facts import _Questions, facts_of, said_of_facts


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
