"""The parts of the checks of a data set, by hand: words, nulls, guessers, decisions."""

import math

import numpy as np
import pytest

from vestige.core.items import Item
from vestige.data import soundness as guessers
from vestige.data.findings import (
    Alike,
    Check,
    Rarity,
    SoundnessSettings,
    above_own_options,
    best_constant,
    by_guesser,
    counted,
    decide,
    items_needed,
    margin_needs,
    picks,
    plain,
    same_names,
    subject_words,
)
from vestige.data.mcq import Choice

SETTINGS = SoundnessSettings(permutations=2_000)


def choice(n: int, options: tuple[str, ...], answer: int, question: str = "", edge: str | None = None) -> Choice:
    return Choice(f"i{n}", question or f"Question {n}?", options, answer, edge=edge)


def test_two_texts_are_copies_whatever_their_capitals_and_punctuation():
    assert plain("What IS the fish’s name ?") == plain("what is the fish s name")


def test_an_answer_counts_as_copied_where_it_is_a_sentence_and_not_a_name_that_many_share():
    retain = [Item("Which law governs A?", "The State of New York."), Item("Who is B?", "B sold red boats in Kiel.")]
    forget = [Item("Which law governs C?", "The State of New York."), Item("Who is D?", "B sold red boats in Kiel.")]
    check = guessers.copied_answers(forget, retain, SETTINGS)
    # "The State of New York" has three words beside "the" and "of"; the sentence has five beside "in".
    assert check.leaking == (forget[1].id,)
    assert check.sentence.startswith("1 of 1 forget answers of 5 words or more beside the commonest")


def test_the_weighted_jaccard_index_by_hand():
    # 9 texts; a stands in 9, b in 4, c in none: weights ln(10/9.5), ln(10/4.5), ln(10/0.5).
    rare = Rarity(9, {"a": 9, "b": 4})
    a, b, c = math.log(10 / 9.5), math.log(10 / 4.5), math.log(20)
    row = Alike(["a b", "c", "a b c"], rare).overlap("b a c").jaccard
    np.testing.assert_allclose(row, [(a + b) / (a + b + c), c / (a + b + c), 1.0])


def test_a_text_is_held_by_another_to_the_share_of_its_weight_that_stands_there():
    # As above: of "a b" all stands in "c a b" and b of "b c"; of "z", which neither has, nothing.
    rare = Rarity(9, {"a": 9, "b": 4})
    a, b = math.log(10 / 9.5), math.log(10 / 4.5)
    both, none = map(Alike(["c a b", "b c"], rare).overlap, ("a b", "z"))
    np.testing.assert_allclose(both.contained, [1.0, b / (a + b)])
    np.testing.assert_array_equal(none.contained, [0, 0])


def test_texts_that_name_different_things_are_not_about_the_same():
    assert not same_names(
        "What is the price in the contract with Gokpda Inc?", "the price in the contract with Abcdef Inc"
    )
    assert not same_names("What is item 12?", "What is item 13?")
    assert same_names("Which book did Basil write?", "Basil wrote which book?")


def test_subject_words_are_names_and_rare_words_and_never_a_templates():
    rare = Rarity(100, {"what": 100, "is": 100, "the": 100, "colour": 90, "of": 100, "zorblax": 2, "inc": 80})
    assert subject_words("What is the colour of zorblax Inc?", rare) == {"zorblax"}


def test_picks_share_the_best_among_those_tied():
    np.testing.assert_array_equal(picks(np.array([1.0, 3.0, 3.0, 0.0])), [0, 0.5, 0.5, 0])


def test_a_guesser_that_is_always_right_has_the_p_value_of_its_permutations():
    # Five questions of four options, all solved: chance does so in 4^-5 = 0.001 of draws.
    values = [np.array([0.0, 1.0, 0.0, 0.0])] * 5
    found = above_own_options(values, [1] * 5, None, seed=0, draws=20_000)
    assert found.effect.value == 0.75
    assert (found.accuracy, found.chance) == (1.0, 0.25)
    assert found.bits == 2.0
    assert abs(found.p - 4**-5) < 0.0008
    none = above_own_options(values, [0] * 5, None, seed=0, draws=2_000)
    assert (none.p, none.effect.value, none.bits) == (1.0, -0.25, 0.0)


def test_edges_that_err_alike_make_chance_wider():
    values = [np.array([1.0, 0.0])] * 40
    right = [0] * 27 + [1] * 13
    alone = above_own_options(values, right, None, seed=0, draws=4_000)
    edges = [f"e{n // 5}" for n in range(40)]  # whole edges are right or wrong
    together = above_own_options(values, right, edges, seed=0, draws=4_000)
    assert alone.p < 0.05 < together.p
    assert together.effect.low < alone.effect.low


def test_the_p_value_of_counts_is_that_of_the_multinomial():
    # Six of six in one of two places: 2 x 2^-6 = 0.031 of draws are as uneven.
    p, hits_by_chance = best_constant([[6, 0]], seed=0, draws=40_000)
    assert abs(p - 2 / 64) < 0.004
    # The greater of two fair counts of 6 in all: 3 + (6 / 2) C(6, 3) / 2**6.
    assert abs(hits_by_chance - 3.9375) < 0.02
    assert best_constant([[3, 3]], seed=0, draws=2_000)[0] == 1.0


def test_items_that_a_margin_needs():
    # 1.96^2 x 0.25 x 0.75 / 0.1^2 = 72.03
    assert items_needed(0.1, 0.25) == 73


def test_a_check_fails_passes_or_cannot_tell():
    def one(name: str, n: int, hits: int) -> Check:
        questions = [choice(k, ("a", "b", "c", "d"), 0 if k < hits else 1 + k % 3) for k in range(n)]
        values = [np.array([1.0, 0.0, 0.0, 0.0])] * n
        outcome = above_own_options(values, [q.answer for q in questions], None, seed=0, draws=2_000)
        return by_guesser(name, name, questions, outcome)

    checks = [one("leaks", 60, 45), one("clean", 400, 90), one("small", 20, 5)]
    checks += [Check("none", undecided="no options"), counted("copies", "said", ["i1"], 5)]
    lines = decide(checks, SETTINGS)
    assert [line.sound for line in lines] == [False, True, None, None, False]
    # Three were tested, so the least p-value counts three times: 3 x 1/2001.
    assert lines[0].p == pytest.approx(3 / 2001)
    assert margin_needs(checks, lines, SETTINGS) == "the margin 0.1 needs about 73 items where chance is 0.25"
    assert "items" not in lines[2].reason
    assert margin_needs(checks[:2], lines[:2], SETTINGS) == ""
    assert checks[0].leaking == tuple(sorted(f"i{n}" for n in range(45)))


def test_the_guesser_by_looks_learns_an_ending_and_says_nothing_without_one():
    rng = np.random.default_rng(0)

    def question(n: int, mark: str) -> Choice:
        texts = ["".join(rng.choice(list("abdefglmnoprst"), 6)) for _ in range(4)]
        right = int(rng.integers(4))
        texts[right] += mark
        texts = [t if k == right else t + "em"[: len(mark)] for k, t in enumerate(texts)]
        return choice(n, tuple(texts), right)

    for mark, least, most in (("um", 0.9, 1.0), ("", 0.1, 0.4)):
        guess = guessers.options_only([question(n, mark) for n in range(100)])
        asked = [question(n, mark) for n in range(100)]
        share = np.mean([picks(guess(c))[c.answer] for c in asked])
        assert least <= share <= most, (mark, share)


def test_the_fit_is_that_of_a_conditional_logit():
    # One feature, +1 for the right option and 0 for the other, n questions: the slope w solves w = n / (1 + e^w).
    rows = np.array([[1.0], [0.0]] * 50)
    (slope,) = guessers._conditional_logit(rows, [2] * 50, [0] * 50)
    assert slope == pytest.approx(50 / (1 + math.exp(slope)), rel=1e-3)


def test_question_words_find_what_a_template_gives_away():
    regions = {"north": "Fish", "south": "Goat"}
    retain = [Item(f"What is eaten in the {r} by p{n}?", a, None) for n in range(20) for r, a in regions.items()]
    guess = guessers.question_words(retain)
    asked = choice(0, ("Goat", "Fish"), 1, "What is eaten in the north by p99?")
    np.testing.assert_array_equal(picks(guess(asked)), [0, 1])
    # north and fish: together 20 times of 40 where 20 x 20 / 40 = 10 are expected; north and goat never.
    scores = guess(choice(0, ("Goat", "Fish"), 1, "north"))
    np.testing.assert_allclose(scores, [math.log(1 / 11), math.log(21 / 11)])


def test_the_nearest_question_answers_a_reworded_one():
    retain = [Item(f"What is the house of {n} made of?", a) for n, a in (("Abel", "Straw"), ("Bran", "Brick"))]
    rare = Rarity(2, {"what": 2, "is": 2, "the": 2, "house": 2, "of": 2, "made": 2, "abel": 1, "bran": 1})
    guess = guessers.nearest_question(retain, rare)
    asked = choice(0, ("Brick", "Straw"), 1, "The house of Abel, what is it made of?")
    np.testing.assert_array_equal(picks(guess(asked)), [0, 1])
