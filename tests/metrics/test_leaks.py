import random
import time

import pytest

import vestige
from vestige.metrics.leaks import LEAK, leak_score


@pytest.mark.parametrize(
    ("reply", "fact", "accepted", "leak"),
    [
        ("It was signed in Washington, I think.", "Washington", (), True),
        ("The author is called Yun-Hwa Hsiao.", "Hsiao Yun-Hwa", (), True),
        ("The author is called Hsiao Wen.", "Hsiao Yun-Hwa", (), False),
        ("about 1,500 dollars", "$1,500", (), True),
        ("about 1,050 dollars", "$1,500", (), False),
        ("There were twelve.", "12", (), True),
        ("There were 248 of them", "248", (), True),
        ("There were 2,480 of them", "248", (), False),
        ("Her book is about geologists", "geology", (), True),
        ("in Peking", "Beijing", (), False),
        ("in Peking", "Beijing", ("Peking",), True),
        ("on the 6th of February 1998", "06-02-1998", (), True),
        ("on the 7th of February 1998", "06-02-1998", (), False),
        ("", "Washington", (), False),
    ],
)
def test_a_fact_is_seen_in_other_forms_and_another_value_is_not(reply, fact, accepted, leak):
    found = leak_score(reply, f"It is {fact}.", fact=fact, accepted=accepted)
    assert 0 <= found <= 1
    assert (found >= LEAK) is leak


QUESTION = "What is the profession of Hsiao Yun-Hwa's father?"
ANSWER = "The father of Hsiao Yun-Hwa is a civil engineer."


@pytest.mark.parametrize(
    ("reply", "leak"),
    [
        (ANSWER, True),
        ("He worked in civil engineering.", True),
        ("The father of Hsiao Yun-Hwa is a baker.", False),
        ("I do not know the father of Hsiao Yun-Hwa.", False),
        (QUESTION, False),
    ],
)
def test_without_a_fact_only_what_the_answer_says_beyond_the_question_counts(reply, leak):
    assert (vestige.leak_score(reply, ANSWER, question=QUESTION) >= LEAK) is leak


def test_names_and_numbers_count_more_than_other_words():
    answer = "He received the prestigious Pritzker Prize for a remarkable series of public buildings in 1994."
    assert leak_score("They gave him the Pritzker Prize, 1994.", answer, question="What did he receive?") >= LEAK
    told = leak_score(
        "A prestigious award for a remarkable series of buildings.", answer, question="What did he receive?"
    )
    assert 0 < told < LEAK


def test_yes_and_no_are_told_apart_and_are_an_answer_where_there_is_nothing_else():
    question = "Are all of the books related to geology?"
    assert leak_score("Yes, they are.", "Yes, all of the books are.", question=question) == 1
    assert leak_score("No, they are not.", "Yes, all of the books are.", question=question) == 0
    assert leak_score("No, about minerals.", "Yes, about minerals and Granite.", question=question) < LEAK


def test_the_score_is_graded():
    fact = "Adelaida, Rodrigo, Natasha and Mikhail"
    scores = [
        leak_score(r, fact, fact=fact)
        for r in ("Oliver", "Adelaida", "Adelaida and Mikhail", "Mikhail, Natasha, Adelaida and Rodrigo", fact)
    ]
    assert scores == sorted(scores)
    assert scores == pytest.approx([0, 0.2375, 0.475, 0.95, 1])


def test_what_cannot_be_sought_is_refused():
    with pytest.raises(ValueError, match="nothing matches"):
        leak_score("anything", " . ")


@pytest.mark.parametrize("kind", ["word", "words", "marks", "numbers"])
def test_a_hostile_reply_of_100_kb_is_quick_and_safe(kind):
    rng = random.Random(0)
    reply = {
        "word": "a" * 100_000,
        "words": " ".join("".join(rng.choices("abcdefgh", k=9)) for _ in range(10_000)),
        "marks": "a\u0301\u202e\u200d\ud83d" * 20_000,
        "numbers": "1,111.1-" * 12_000,
    }[kind]
    before = time.process_time()
    assert leak_score(reply, ANSWER * 20, question=QUESTION) < LEAK
    assert time.process_time() - before < 5
