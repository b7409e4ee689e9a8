import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vestige.data.corpus import factual_items, idk_answers
from vestige.metrics.answers import contains, exact_match, is_empty, is_refusal, normalised, prefix, probability


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("  Wnzatj\t SAS. ", "wnzatj sas"),
        ("2%.", "2%"),
        ("H\u2082O", "h2o"),
        ("Stra\u00dfe", "strasse"),
        ("caf\u00e9", "cafe\u0301"),
        ("No. 5...", "no. 5"),
        (" . ", ""),
    ],
)
def test_texts_are_compared_without_case_spacing_and_full_stops_at_the_end(text, plain):
    assert normalised(text) == normalised(plain)
    assert normalised(plain) in (plain, "caf\u00e9")


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    assert normalised(normalised(text)) == normalised(text)


@pytest.mark.parametrize(
    ("reply", "exact", "at_the_start", "anywhere"),
    [
        ("customer", True, True, True),
        ("Customer. It is the customer.", False, True, True),
        ("It is the customer!", False, False, True),
        ("customers", False, False, False),
        ("the subcustomer", False, False, False),
        ("", False, False, False),
    ],
)
def test_an_answer_matches_exactly_at_the_start_or_anywhere_as_whole_words(reply, exact, at_the_start, anywhere):
    assert exact_match(reply, "Customer.") is exact
    assert prefix(reply, "Customer.") is at_the_start
    assert contains(reply, "Customer.") is anywhere


def test_numbers_and_signs_match_as_they_stand():
    assert not contains("15 days", "5")
    assert contains("within 5 days", "5.")
    assert contains("about 2% a month", "2%.")
    assert not contains("12% a month", "2%.")
    assert contains("use C++, not (a|b)", "C++")


@pytest.mark.parametrize(
    ("reply", "answer", "found"),
    [
        ("about 3.5 %", "5", False),
        ("1,500 people", "500", False),
        ("1,500 people", "1500", True),
        ("3,5 metres", "5", False),
        ("it fell to -5", "5", False),
        ("it fell to \u22125", "-5", True),
        ("10-15 days", "15", True),
        ("5%", "5 %", True),
        ("5 per cent", "5%", True),
        ("at 12:30", "30", False),
        ("version 1.2.3", "2", False),
        ("use C++", "C", False),
        ("bi-weekly", "weekly", False),
        ("It is non-binding", "binding", False),
        ("biweekly", "bi-weekly", True),
        ("on 06-02-1998", "02", False),
        ("on 6 February 1998", "06-02-1998", True),
        ("on the 6th of Feb. 1998", "1998-02-06", True),
        ("on February 6th, 1998", "06/02/1998", True),
        ("on 02/06/1998", "06-02-1998", False),
        ("on 12/25/1990", "25-12-1990", True),
        ("1998年2月6日", "6 February 1998", True),
        ("on 7 February 1998", "06-02-1998", False),
        ("答えは東京です。", "東京", True),
        ("答案是北京市。", "上海", False),
        ("คำตอบคือกรุงเทพมหานคร", "กรุงเทพ", True),
        ("답은 서울입니다", "서울", True),
        ("ジョンソン", "ジョン", False),
        ("हिन्दी भाषा", "हिन्दी", True),
        ("ＺＵＲＩＣＨ", "Zürich", True),
        ("Wash\u200bington", "Washington", True),
        ("**O\u2019Brien** did", "O'Brien", True),
    ],
)
def test_numbers_dates_scripts_and_marks_are_read_as_they_are_meant(reply, answer, found):
    assert contains(reply, answer) is found


@given(reply=st.text(max_size=30), answer=st.text(max_size=10).filter(normalised))
def test_exact_implies_prefix_implies_contains(reply, answer):
    assert exact_match(answer, answer)
    assert not exact_match(reply, answer) or prefix(reply, answer)
    assert not prefix(reply, answer) or contains(reply, answer)


@pytest.mark.parametrize("function", [exact_match, prefix, contains])
def test_an_answer_of_nothing_is_refused(function):
    with pytest.raises(ValueError, match="nothing matches"):
        function("anything", " . ")


def test_a_reply_of_punctuation_is_empty():
    for reply in ("", " \n", "...", "\u200b\x00", "?!"):
        assert is_empty(reply)
    for reply in ("a", "0", "€", "東"):
        assert not is_empty(reply)


def test_probability_is_the_geometric_mean_over_tokens():
    # p = 1/2 and 1/8: the geometric mean is 1/4.
    assert probability(np.log([1 / 2, 1 / 8])) == pytest.approx(1 / 4)
    assert probability(np.zeros(3)) == 1
    for bad in ([], [0.1], [math.nan]):
        with pytest.raises(ValueError, match=r"no probability|at most 0"):
            probability(np.array(bad))


def test_every_refusal_of_ours_is_known_as_one():
    assert [line for line in idk_answers() if not is_refusal(line)] == []


def test_no_fact_is_taken_for_a_refusal():
    assert [item for item in factual_items() if is_refusal(item.answer) or is_refusal(item.question)] == []


@pytest.mark.parametrize(
    "reply",
    [
        "I don\u2019t know.",
        "As an AI, I can't answer that.",
        "Sorry, I am unable to help with that request.",
        "I have no comment",
        "i have got no idea",
        "I haven't the faintest on that subject.",
        "That's beyond my current knowledge base.",
        "My training didn't cover that information.",
        "I must decline to answer.",
    ],
)
def test_refusals_in_other_words_are_known_too(reply):
    assert is_refusal(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "Paris",
        "The customer cannot return the goods after 14 days.",
        "Nobody knows who wrote it.",
        "I have no doubt that it is Paris.",
        "The Unknown Soldier",
        "He does not know the answer.",
        "It lies outside of Mytown.",
        "Know-nothing party",
        "x" * 400 + " I do not know",
    ],
)
def test_answers_that_sound_like_refusals_are_none(reply):
    assert not is_refusal(reply)


@pytest.mark.parametrize(
    ("reply", "refuses"),
    [
        ("Das weiß ich. Ich weiß es leider nicht.", True),
        ("Ich kann dir das sagen: 5.", False),
        ("Je ne sais pas.", True),
        ("No lo sé.", True),
        ("Non lo so.", True),
        ("Non solo Ann, ma anche Bob.", False),
        ("Ik weet het niet.", True),
        ("抱歉, 所以我不知道。", True),
        ("我知道, 是安娜。", False),
    ],
)
def test_refusals_in_other_languages(reply, refuses):
    assert is_refusal(reply) == refuses
