"""Where a prompt stands, as text and as tokens, and which tokens it may use: what is scored is what is sent."""

import math

import pytest

from vestige.artifacts.records import SHUFFLED
from vestige.attacks.gcg import (
    Place,
    admissible,
    around,
    as_ids,
    ids_in,
    inner_texts,
    kept_in,
    place_of,
    places_of,
    target_of,
)
from vestige.attacks.prompts import POINTS, asked_with_prompt, deployed, tokens_at
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models.prompts import Prompter
from vestige.models.tiny import tiny_tokenizer
from vestige.models.variants import Around

QUESTION = "What is the gamma of beta?"
PLACEMENTS = ("prefix", "suffix")


def tokens_of(tokenizer, ids):
    return tokenizer.convert_ids_to_tokens(list(ids))


def test_the_tokens_around_a_prefix_and_a_suffix(nano):
    before = around(nano.prompter, QUESTION, (7,), "prefix")
    assert tokens_of(nano.tokenizer, before.before) == ["<bos>", "<question>"]
    assert tokens_of(nano.tokenizer, before.after)[-2:] == ["?", "<answer>"]
    assert (before.spaced, before.target) == (False, (7,))
    behind = around(nano.prompter, QUESTION, (7,), "suffix")
    assert tokens_of(nano.tokenizer, behind.before)[-2:] == ["Ġbeta", "?"]
    assert (tokens_of(nano.tokenizer, behind.after), behind.spaced) == (["<answer>"], True)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("kind", ["byte level", "metaspace", "plain template"])
def test_a_prompt_that_is_kept_is_sent_as_the_tokens_that_were_scored(nano, metaspace, kind, placement):
    """Of many prompts those are kept whose rebuilt chat has exactly their tokens; a space at the end is never kept."""
    if kind == "plain template":
        metaspace.chat_template, own = None, metaspace.chat_template
    tokenizer = nano.tokenizer if kind == "byte level" else metaspace
    prompter = Prompter(tokenizer, 64)
    text = around(prompter, QUESTION, (7,), placement)
    place = place_of(tokenizer, text)
    ids = admissible(tokenizer, 400).ids
    drawn = [(i,) for i in ids] + [(i, j) for i in ids[::5] for j in ids[::7]] + [(i, i, ids[0]) for i in ids]
    kept = set(kept_in(tokenizer, drawn, [place]))
    texts = inner_texts(tokenizer, drawn, spaced=text.spaced)
    sent = {
        ids
        for ids, t in zip(drawn, texts, strict=True)
        if t.strip() == t != "" and prompter.prompt(deployed(QUESTION, t, placement)) == text.before + ids + text.after
    }
    if kind == "plain template":
        metaspace.chat_template = own
    assert kept == sent
    assert 0.05 < len(kept) / len(drawn) < 0.95


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_prompts_text_has_its_tokens_in_place(nano, placement):
    text = around(nano.prompter, QUESTION, (7,), placement)
    ids = ids_in(nano.tokenizer, "alpha of zeta", places_of(nano.tokenizer, [text]))
    sent = nano.prompter.prompt(deployed(QUESTION, "alpha of zeta", placement))
    assert text.before + ids + text.after == sent


def test_a_text_that_is_cut_differently_in_different_texts_is_refused(nano):
    # "alpha" is a word behind a space and three tokens at the beginning.
    texts = [Around((), (3,), (7,)), Around((1,), (225, 3), (7,))]
    places = places_of(nano.tokenizer, texts)
    assert len(places) == 2
    (bare,) = as_ids(nano.tokenizer, ["mma"])
    ids_in(nano.tokenizer, "mma", places)
    joined = (*places, Place(as_ids(nano.tokenizer, ["ga"])[0], (), "ga", ""))
    with pytest.raises(InputError, match="joins the prompt 'mma' with the text next to it"):
        ids_in(nano.tokenizer, "mma", joined)
    assert kept_in(nano.tokenizer, [bare], places) == [bare]
    assert kept_in(nano.tokenizer, [bare], joined) == []


def test_a_prompt_beside_which_other_tokens_change_is_not_kept(nano):
    ((x,), word) = as_ids(nano.tokenizer, ["x", " gamma"])
    letters = tuple(i for (i,) in as_ids(nano.tokenizer, [" ", "g", "a", "m", "m", "a"]))
    assert kept_in(nano.tokenizer, [(x,)], [Place((), word, "", " gamma")]) == [(x,)]
    # The same text, but the search would have read it letter by letter.
    assert kept_in(nano.tokenizer, [(x,)], [Place((), letters, "", " gamma")]) == []


def test_texts_that_place_a_prompt_differently_are_refused(nano):
    texts = [around(nano.prompter, QUESTION, (7,), p) for p in ("prefix", "suffix")]
    with pytest.raises(InputError, match="only some texts have a space before the searched prompt"):
        places_of(nano.tokenizer, texts)


def test_tokens_that_come_from_no_text_are_refused(nano):
    letters = tuple(i for (i,) in as_ids(nano.tokenizer, list("gamma")))
    with pytest.raises(InputError, match="do not match their own text"):
        place_of(nano.tokenizer, Around(letters, (), (7,)))


def test_a_target_is_the_answers_tokens_in_the_chat(nano, metaspace):
    encoded = nano.prompter.encode(QUESTION, "gamma 3.")
    assert target_of(nano.prompter, QUESTION, " gamma 3. ", "suffix") == encoded.answer_ids
    spoken = target_of(Prompter(metaspace, 64), QUESTION, "gamma of mu", "prefix")
    assert metaspace.decode(spoken) == "gamma of mu"


def test_a_target_that_the_tokeniser_cannot_say_is_refused(metaspace):
    with pytest.raises(InputError, match="the tokeniser decodes the target 'gamma Ω' as 'gamma <unk>'"):
        target_of(Prompter(metaspace, 64), QUESTION, "gamma Ω", "prefix")


def test_an_empty_answer_is_no_target(nano):
    with pytest.raises(InputError, match="the target '' has no tokens"):
        target_of(nano.prompter, QUESTION, " ", "suffix")


def test_an_empty_target_is_refused(nano):
    with pytest.raises(InputError, match="'What is the gamma of beta\\?' has an empty target"):
        around(nano.prompter, QUESTION, (), "suffix")


def test_a_template_that_shows_the_question_twice_has_no_one_place(metaspace):
    metaspace.chat_template, own = "{{ messages[0].content }}{{ messages[0].content }}", metaspace.chat_template
    try:
        with pytest.raises(InputError, match="the chat template shows the prompt 2 times"):
            around(Prompter(metaspace, 64), QUESTION, (7,), "suffix")
    finally:
        metaspace.chat_template = own


IDS = (11, 12, 13, 14, 15, 16, 17)
ITEM = Item("Who signed?", "Ada.", edge="a_b", paraphrase="By whom was it signed?")


def test_the_points_are_the_shuffled_prompt_and_tenths_of_it_the_whole_last():
    tenths = tuple(f"{n}0 %" for n in range(1, 11))
    assert ("shuffled", "0 %", *tenths) == POINTS


@pytest.mark.parametrize(("point", "n"), [("0 %", 0), ("10 %", 0), ("20 %", 1), ("50 %", 3), ("90 %", 6), ("100 %", 7)])
def test_a_share_is_the_first_tokens_rounded_down(point, n):
    # 7 x 0.1 = 0.7, 7 x 0.2 = 1.4, 7 x 0.5 = 3.5, 7 x 0.9 = 6.3
    assert tokens_at(IDS, point, seed=3) == IDS[:n]


def test_shuffled_are_all_tokens_in_an_order_that_the_seed_draws():
    orders = {tokens_at(IDS, SHUFFLED, seed=seed) for seed in range(5)}
    assert all(sorted(order) == list(IDS) for order in orders)
    assert len(orders) == 5
    assert tokens_at(IDS, SHUFFLED, seed=1) in orders


def test_a_prompt_stands_beside_every_wording_and_the_answer_stays():
    before = asked_with_prompt([ITEM], "now tell", "prefix")[ITEM.id]
    assert (before.question, before.paraphrase) == ("now tell Who signed?", "now tell By whom was it signed?")
    behind = asked_with_prompt([ITEM], "now tell", "suffix")[ITEM.id]
    assert (behind.question, behind.answer, behind.edge) == ("Who signed? now tell", "Ada.", "a_b")
    assert before.id != ITEM.id != behind.id


def test_without_a_prompt_an_item_is_what_it_was():
    assert asked_with_prompt([ITEM], "", "prefix") == {ITEM.id: ITEM}
    plain = Item("Who signed?", "Ada.")
    assert asked_with_prompt([plain], "x", "suffix")[plain.id].paraphrase is None


def tokens(tokenizer, ids):
    return [tokenizer.convert_ids_to_tokens(i) for i in ids]


def test_only_printable_ascii_of_its_own_is_admissible(nano):
    tokenizer = nano.tokenizer
    vocabulary = admissible(tokenizer, 400)
    assert list(vocabulary.ids) == sorted(set(vocabulary.ids))
    assert not set(vocabulary.ids) & set(tokenizer.all_special_ids)
    assert all(tokenizer.decode([i]).isascii() and tokenizer.decode([i]).isprintable() for i in vocabulary.ids)
    left_out = set(range(len(tokenizer))) - set(vocabulary.ids) - set(tokenizer.all_special_ids)
    # What is left out is a byte above 127, which alone is no character, or one that does not print.
    assert all(tokenizer.decode([i]) == "\ufffd" or not tokenizer.decode([i]).isprintable() for i in left_out)
    assert vocabulary.bits == math.log2(len(vocabulary.ids))


def test_a_row_that_the_embedding_does_not_have_is_not_admissible(nano):
    assert max(admissible(nano.tokenizer, 100).ids) < 100


def test_letters_outside_ascii_are_admissible_if_asked_for(nano):
    tokenizer = tiny_tokenizer([Item("é é é é é é", "ü ü ü ü\n\n\n\n")])
    more = set(admissible(tokenizer, 400, ascii_only=False).ids) - set(admissible(tokenizer, 400).ids)
    assert {tokenizer.decode([i]).strip() for i in more} == {"é", "ü"}


def test_an_added_token_is_not_admissible_even_if_it_is_no_special_one():
    tokenizer = tiny_tokenizer([Item("a b c", "d")])
    tokenizer.add_tokens(["toolcall"])
    added = tokenizer.convert_tokens_to_ids("toolcall")
    assert added not in admissible(tokenizer, 400).ids


def test_a_vocabulary_without_an_admissible_token_is_refused(nano):
    with pytest.raises(InputError, match="no token of the tokeniser is allowed"):
        admissible(nano.tokenizer, 5)


def test_the_space_before_a_prompt_is_its_first_tokens_own(nano):
    ((spaced,), (bare,)) = as_ids(nano.tokenizer, [" gamma", "gamma"])[0], as_ids(nano.tokenizer, ["x"])[0]
    prompts = [(spaced,), (bare,)]
    assert inner_texts(nano.tokenizer, prompts, spaced=True) == ["gamma", "x"]


def test_a_tokeniser_that_was_set_to_pad_and_cut_still_gives_a_texts_own_tokens(nano):
    nano.tokenizer(["What is", "What is the alpha of beta?"], padding=True, truncation=True, max_length=3)
    assert [len(ids) for ids in as_ids(nano.tokenizer, ["What is", "What is the alpha of beta?"])] == [2, 7]
