"""Letters and texts of options: against one plain pass an option, against each other, and in any company."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.near import near
from tokenizers import normalizers

from vestige.core.errors import InputError
from vestige.models.prompts import Prompter
from vestige.models.reading import (
    LetterPrompt,
    LetterScore,
    choose,
    encode_plain,
    letter_prompt,
    option_text_mean,
    option_text_sum,
    option_vocab,
    score_letters,
    score_options,
)

pytestmark = pytest.mark.portable

LETTERS = ("A", "B", "C", "D")


@pytest.fixture(scope="module")
def questions(tiny, items):
    """Of two to five options, of unlike lengths."""
    return [
        [tiny.prompter.encode(item.question, other.answer) for other in items[n : n + 2 + n % 4]]
        for n, item in enumerate(items[:16])
    ]


@pytest.fixture(scope="module")
def prompts(tiny, items):
    return [tiny.prompter.prompt(i.question) for i in items]


@pytest.fixture(scope="module")
def exact(tiny):
    """The same model in float64."""
    return copy.deepcopy(tiny.model).double()


def plain_pass(model, encoded):
    """Log-probabilities of an option's tokens and its end, from a pass of its own."""
    with torch.inference_mode():
        logp = model(torch.tensor([encoded.ids])).logits[0].log_softmax(-1)
    return [logp[j - 1, encoded.ids[j]].item() for j in range(encoded.start, encoded.end + 1)]


# methods.md 3.2: next-token probabilities A .20, B .10, C .05, D .05, "The" .60, and A is right.
THE = LetterScore(tuple(math.log(p) for p in (0.20, 0.10, 0.05, 0.05)), top=7, top_logp=math.log(0.60), n_top=1)


def test_a_letter_first_among_letters_is_chosen_though_a_word_comes_before_it():
    assert choose(THE) == [1.0, 0.0, 0.0, 0.0]
    assert option_vocab(THE) == [0.0, 0.0, 0.0, 0.0]


def test_the_sum_prefers_the_shorter_text_and_the_mean_the_likelier_token():
    # Right [-1, -1], wrong [-1.5]: -2 < -1.5, and -1 > -1.5.
    assert option_text_sum([[-1.0, -1.0], [-1.5]]) == [0.0, 1.0]
    assert option_text_mean([[-1.0, -1.0], [-1.5]]) == [1.0, 0.0]


def test_options_that_cannot_be_told_apart_share_the_pick():
    assert option_text_sum([[-2.0], [-1.0, -1.0], [-3.0]]) == [0.5, 0.5, 0.0]
    uniform = LetterScore((-2.0,) * 4, top=0, top_logp=-2.0, n_top=8)
    assert choose(uniform) == [0.25] * 4
    assert option_vocab(uniform) == [0.125] * 4


@given(st.lists(st.integers(-3, 0), min_size=6, max_size=12))
def test_the_letter_first_in_the_vocabulary_is_first_among_letters(logits):
    logp = torch.tensor(logits, dtype=torch.float64).log_softmax(-1).tolist()
    best = max(logp)
    letters = LetterScore(tuple(logp[:4]), logp.index(best), best, logp.count(best))
    assert all(vocabulary <= chosen for vocabulary, chosen in zip(option_vocab(letters), choose(letters), strict=True))


def test_texts_score_as_in_a_pass_of_their_own(tiny, questions, exact):
    for options, scores in zip(questions, score_options(tiny.model, questions), strict=True):
        for option, score in zip(options, scores, strict=True):
            assert [*score.logp, score.end_logp] == pytest.approx(plain_pass(exact, option), abs=2e-5)


def test_letters_score_as_in_a_pass_of_their_own(tiny, prompts, exact):
    ids = [(5 + n, 300, 17, 1000 + n) for n in range(len(prompts))]
    found = score_letters(tiny.model, [LetterPrompt(p, i) for p, i in zip(prompts, ids, strict=True)])
    with torch.inference_mode():
        expected = [exact(torch.tensor([p])).logits[0, -1].log_softmax(-1) for p in prompts]
    for letters, wanted, score in zip(ids, expected, found, strict=True):
        assert score.logp == pytest.approx([wanted[i].item() for i in letters], abs=2e-5)
        assert (score.top, score.n_top) == (wanted.argmax().item(), 1)
        assert score.top_logp == pytest.approx(wanted.max().item(), abs=2e-5)


@pytest.mark.slow
def test_an_options_numbers_do_not_depend_on_the_batch(tiny, questions):
    together = score_options(tiny.model, questions)
    assert near([score_options(tiny.model, [q])[0] for q in questions], together)
    assert near(score_options(tiny.model, questions[::-1])[::-1], together)
    assert near(score_options(tiny.model, questions, token_budget=100), together)


def test_a_letters_numbers_do_not_depend_on_the_batch(tiny, prompts):
    asked = [LetterPrompt(p, (5, 300, 17, 1000)) for p in prompts]
    together = score_letters(tiny.model, asked)
    assert near([score_letters(tiny.model, [a])[0] for a in asked], together)
    assert near(score_letters(tiny.model, asked, token_budget=100), together)


def test_a_plain_prompt_is_followed_by_a_space_and_no_template(tiny):
    encoded = encode_plain(tiny.prompter, "What is alpha?\nAnswer:", "beta gamma")
    text = tiny.tokenizer.decode(encoded.ids[:-1])
    assert text == "What is alpha?\nAnswer: beta gamma"
    assert tiny.tokenizer.decode(encoded.answer_ids) == " beta gamma"
    assert (encoded.end, encoded.ids[-1]) == (encoded.stop, tiny.prompter.end_ids[0])


def test_a_plain_prompt_that_the_tokeniser_rewrites_is_refused(tiny):
    tokenizer = copy.deepcopy(tiny.tokenizer)
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("alpha", "gamma")
    with pytest.raises(InputError, match="rewrites the prompt 'What is alpha"):
        encode_plain(Prompter(tokenizer, 64), "What is alpha?\nAnswer:", "beta")


def test_letters_of_one_token_are_found_and_others_refused(tiny):
    encoded = [tiny.prompter.encode("Which?", letter) for letter in LETTERS]
    found = letter_prompt(tiny.prompter, encoded, LETTERS)
    assert [tiny.prompter.decode([i]) for i in found.letters] == list(LETTERS)
    assert found.prompt == tiny.prompter.prompt("Which?")
    with pytest.raises(InputError, match="of the answer 'A', where one token is needed"):
        letter_prompt(tiny.prompter, [tiny.prompter.encode("Which?", "ABBA")], ["A"])
    mixed = [encoded[0], tiny.prompter.encode("Which?", "BA")]
    with pytest.raises(InputError, match="of the answer 'B', where one token is needed"):
        letter_prompt(tiny.prompter, mixed, ["A", "B"])


def test_tokens_that_all_letters_begin_with_belong_to_the_prompt(tiny):
    # This vocabulary has no " A": a space, then the letter.
    encoded = [encode_plain(tiny.prompter, "Which?\nAnswer:", letter) for letter in LETTERS]
    assert {len(e.answer_ids) for e in encoded} == {2}
    found = letter_prompt(tiny.prompter, encoded, LETTERS)
    assert tiny.tokenizer.decode(found.prompt) == "Which?\nAnswer: "
    assert [tiny.tokenizer.decode([i]) for i in found.letters] == list(LETTERS)


def test_options_of_different_prompts_are_no_question(tiny):
    mixed = [tiny.prompter.encode("What is alpha?", "beta"), tiny.prompter.encode("What is beta?", "beta")]
    with pytest.raises(InputError, match="2 different prompts"):
        score_options(tiny.model, [mixed])
    assert score_options(tiny.model, []) == score_letters(tiny.model, []) == []
