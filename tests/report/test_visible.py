from hypothesis import given
from hypothesis import strategies as st

from vestige.report.words import listed, number, signed, visible


def test_what_acts_unseen_is_spelt_out_and_the_rest_is_left():
    assert visible("a\x1b[31m\u202e\r\nb\tc\rd\x00é") == "a‹U+001B›[31m‹U+202E›\nb\tc‹U+000D›d‹U+0000›é"
    assert visible("\ud800") == "‹U+D800›"


@given(st.text(st.characters(codec=None)))
def test_no_text_keeps_a_control_character_and_all_of_it_can_be_encoded(text):
    shown = visible(text)
    shown.encode()
    assert not any(c < " " and c not in "\n\t" for c in shown)
    assert not {"\u202e", "\u2066", "\u2028", "\x7f", "\x9b"} & set(shown)


def test_numbers_have_two_decimals_a_real_minus_and_no_negative_zero():
    assert [number(x) for x in (0.125001, -0.07, -0.001, 1)] == ["0.13", "−0.07", "0.00", "1.00"]
    assert [signed(x) for x in (0.5, -0.5, 0.001)] == ["+0.50", "−0.50", "0.00"]


def test_names_are_joined_as_people_do():
    assert [listed(list("abc"[:n])) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
