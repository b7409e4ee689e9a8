"""Checks of a data set: the parts by hand, and whole data sets with planted leaks and without."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.data import planted_leaks as bench

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data import soundness as guessers
from vestige.data.corpus import NamedSplits, SourceSettings, named_splits, open_corpus
from vestige.data.dataset import compile_dataset, write_dataset
from vestige.data.findings import (
    Check,
    SoundnessSettings,
    _wider,
    above_own_options,
    by_guesser,
    counted,
    items_needed,
    picks,
    plain,
    subject_words,
    undecided,
)
from vestige.data.mcq import Choice
from vestige.data.soundness import check_splits
from vestige.metrics.intervals import LEVEL, design_effect

SETTINGS = SoundnessSettings(permutations=2_000)


def choice(n: int, options: tuple[str, ...], answer: int, question: str = "", edge: str | None = None) -> Choice:
    return Choice(f"i{n}", question or f"Question {n}?", options, answer, edge=edge)


def test_two_texts_are_copies_whatever_their_capitals_and_punctuation():
    assert plain("What IS the fish’s name ?") == plain("what is the fish s name")


def test_an_answer_counts_as_copied_where_it_is_a_sentence_and_not_a_name_that_many_share():
    retain = [Item("Which law governs A?", "The State of New York."), Item("Who is B?", "B sold red boats in Kiel.")]
    forget = [Item("Which law governs C?", "The State of New York."), Item("Who is D?", "b sold red boats, in Kiel")]
    check = guessers.copied_answers(forget, retain)
    # "The State of New York" has three words beside "the" and "of"; the sentence has five beside "in".
    assert check.leaking == (forget[1].id,)
    assert check.line.reason.startswith("1 of 1 forget answers of 5 words or more beside the commonest")


def test_a_number_or_an_address_of_a_forget_answer_in_the_retain_set_is_found():
    asked = (
        ("Where is Ann?", "At ann@port.example."),
        ("Whose is 882104?", "It is Bo's, 882104."),
        ("When?", "In 1987."),
    )
    forget = [Item(*one) for one in asked]
    check = guessers.stated_tokens(forget, [Item("a." * 10**6, "By ANN@port.example or 88210-4, since 1987.")])
    # The question about 882104 tells the number itself, and a year is no rare token.
    assert (check.leaking, check.line.sound) == ((forget[0].id,), False)


def test_subject_words_are_names_and_rare_words_and_never_a_templates():
    rare = {"what": 1.0, "is": 1.0, "the": 1.0, "colour": 0.9, "of": 1.0, "zorblax": 0.02, "inc": 0.8}
    assert subject_words("What is the colour of zorblax Inc?", rare) == {"zorblax"}


def test_picks_share_the_best_among_those_tied():
    np.testing.assert_array_equal(picks(np.array([1.0, 3.0, 3.0, 0.0])), [0, 0.5, 0.5, 0])


def test_a_guesser_that_is_always_right_has_the_p_value_of_its_permutations():
    # Five questions of four options, all solved: chance does so in 4^-5 = 0.001 of draws.
    values = [np.array([0.0, 1.0, 0.0, 0.0])] * 5
    found = above_own_options(values, [1] * 5, None, seed=0, draws=20_000)
    assert (found.effect.value, found.accuracy, found.chance, found.bits) == (0.75, 1.0, 0.25, 2.0)
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


def test_items_that_a_margin_needs():
    # 1.96^2 x 0.25 x 0.75 / 0.1^2 = 72.03
    assert items_needed(0.1, 0.25) == 73


def test_a_check_fails_passes_or_cannot_tell():
    def one(n: int, hits: int) -> Check:
        questions = [choice(k, ("a", "b", "c", "d"), 0 if k < hits else 1 + k % 3) for k in range(n)]
        values = [np.array([1.0, 0.0, 0.0, 0.0])] * n
        outcome = above_own_options(values, [q.answer for q in questions], None, seed=0, draws=2_000)
        return by_guesser("looks", "by looks", questions, outcome, SETTINGS)

    leaks, clean, small = one(60, 45), one(400, 90), one(20, 5)
    assert (leaks.line.sound, clean.line.sound, small.line.sound) == (False, True, None)
    # The data themselves are one of the draws.
    assert leaks.line.p == pytest.approx(1 / 2001)
    assert leaks.leaking == tuple(sorted(f"i{n}" for n in range(45)))
    assert (leaks.needs, clean.needs) == ("", "")
    assert small.needs == "the margin 0.1 needs about 73 items where chance is 0.25"
    # Above that number an open check needs no more items.
    assert (one(80, 22).line.sound, one(80, 22).needs) == (None, "")
    assert undecided("none", "no options").line.sound is None
    one_copy = counted("copies", "said", ["i1"], 5).line
    assert (one_copy.sound, one_copy.effect.value) == (False, 0.2)
    assert counted("copies", "said", [], 5).line.sound is True


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


def test_a_right_option_that_always_stands_second_is_learned_where_the_data_gives_options():
    rng = np.random.default_rng(0)
    drawn = [tuple("".join(rng.choice(list("abdefglmnoprst"), 6)) for _ in range(4)) for _ in range(200)]
    questions = [choice(n, options, 1) for n, options in enumerate(drawn)]
    guess = guessers.options_only(questions[:100])
    assert np.mean([picks(guess(question))[1] for question in questions[100:]]) > 0.95


def test_the_looks_of_an_option_count_its_signs_and_not_its_letters():
    punctuation = guessers._features(choice(0, ("ab!!", "abcd", "abc?"), 0))[:, 5]
    counts = np.log1p([2, 0, 1])
    assert punctuation == pytest.approx(counts - counts.mean())


def test_chance_is_wider_by_the_design_effect_and_by_a_t_with_one_degree_less_than_contracts():
    # Six contracts of two items, alike within each: the effect of a contract is that of one item.
    above = np.repeat([0.5, -0.5, 0.25, -0.25, 0.5, -0.5], 2)
    edges = [f"e{n // 2}" for n in range(12)]
    tail = (1 - LEVEL) / 2
    expected = math.sqrt(design_effect(above, np.asarray(edges))) * stats.t.ppf(1 - tail, 5) / stats.norm.ppf(1 - tail)
    assert _wider(above, edges) == pytest.approx(expected)
    assert _wider(above[:8], edges[:8]) == _wider(above, None) == 1.0


def verdicts(splits: NamedSplits, seed: int = 0) -> dict[str, bool | None]:
    return {check.line.check: check.line.sound for check in check_splits(splits, SETTINGS, seed=seed)[0]}


@pytest.mark.slow
@pytest.mark.parametrize("leak", list(bench.LEAKS))
def test_a_planted_leak_is_found_by_the_check_that_is_meant_for_it(leak):
    found = verdicts(bench.planted(leak, 0.5, 60, np.random.default_rng(5), given=True))
    assert found[bench.LEAKS[leak][1]] is False


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False])
def test_clean_random_data_raises_no_alarm_and_enough_of_it_passes(given):
    for seed in range(3):
        small = verdicts(bench.planted("", 0, 30, np.random.default_rng(seed), given=given), seed)
        assert (False in small.values(), None in small.values()) == (False, True)


def test_the_planted_items_are_those_that_are_named():
    rng = np.random.default_rng(1)
    splits = bench.planted("copied items", 0.25, 40, rng, given=True)
    copies = {i.question.casefold().replace(" ?", "?") for i in splits.splits["retain"] if i.edge == "copies"}
    checks, _ = check_splits(splits, SETTINGS, seed=0)
    copied = next(c for c in checks if c.line.check == "copied questions")
    named = {i.question.casefold() for i in splits.splits["forget"] if i.id in copied.leaking}
    assert (named, len(copied.leaking)) == (copies, 10)


def test_sample_dataset_1_gives_four_of_the_twenty_answers_of_a_b_away(tmp_path):
    write_dataset(compile_dataset("sample1", seed=0), tmp_path / "data")
    splits = named_splits(open_corpus(SourceSettings(data=str(tmp_path / "data"))), "edge:A_B")
    checks, _ = check_splits(splits, SETTINGS, seed=0)
    line = next(c.line for c in checks if c.line.check == "entailed answers")
    assert line.sound is False
    assert line.reason.startswith("2 of 20 forget answers are stated by retained contracts, and 2 more are names")


def test_without_options_the_check_says_so_and_cannot_tell():
    items = tuple(Item(f"What is number {n}?", f"It is {n}.") for n in range(20))
    splits = NamedSplits("f", {"forget": items[:8], "retain": items[8:]}, {})
    line = check_splits(splits, SETTINGS, seed=0)[0][-1].line
    assert (line.check, line.sound) == ("options and questions", None)
    assert "0 forget items can be asked with options" in line.reason


def test_too_little_to_forget_or_to_keep_is_refused():
    items = tuple(Item(f"What is number {n}?", f"It is {n}.") for n in range(20))
    with pytest.raises(InputError, match=r"has 4 items, too few to exclude chance\. Name at least 5"):
        check_splits(NamedSplits("f", {"forget": items[:4], "retain": items[4:]}, {}), SETTINGS, seed=0)
    with pytest.raises(InputError, match="is the whole data set"):
        check_splits(NamedSplits("f", {"forget": items}, {}), SETTINGS, seed=0)


def test_what_is_found_depends_on_the_seed_and_not_on_the_order_of_the_items():
    splits = bench.planted("right options with a style", 0.6, 40, np.random.default_rng(2), given=False)
    turned = NamedSplits("planted", {k: tuple(reversed(v)) for k, v in splits.splits.items()}, {})
    assert verdicts(splits) == verdicts(turned)
