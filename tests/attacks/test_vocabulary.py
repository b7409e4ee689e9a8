"""Which tokens a prompt may use, and which prompts stay the same tokens as text."""

import math

import pytest

from vestige.attacks.gcg import admissible, as_ids, inner_texts
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.models.tiny import tiny_tokenizer


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
