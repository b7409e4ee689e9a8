"""What a pass says of every token: by hand, beside whole distributions in double precision, gradients by autograd."""

import math

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from tests.near import near
from transformers import GPT2Config, GPT2LMHeadModel

from vestige.core.errors import InputError
from vestige.models import scoring
from vestige.models import scoring as module
from vestige.models.prompts import Prompter
from vestige.models.scoring import gradient_norm, moments, score_answers, score_texts, token_logp, token_scores
from vestige.models.tiny import tiny_tokenizer

pytestmark = pytest.mark.portable


@pytest.fixture(scope="module")
def encoded(tiny, items):
    return [tiny.prompter.encode(i.question, i.answer) for i in items]


def test_ranks_count_from_one_and_ties_share_the_mean():
    # Logits 3 2 2 1: ranks 1, 2.5, 2.5, 4. All equal: (1 + 4) / 2 = 2.5 for everyone.
    logits = torch.tensor([[[3.0, 2.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]]])
    for target, rank in enumerate([1.0, 2.5, 2.5, 4.0]):
        logp, ranks = token_scores(logits, torch.tensor([[target, target]]))
        assert ranks.tolist() == [[rank, 2.5]]
        assert logp[0, 1].item() == pytest.approx(math.log(1 / 4))


def test_scores_equal_a_plain_forward_pass_item_by_item(tiny, encoded):
    for code, score in zip(encoded, score_answers(tiny.model, encoded), strict=True):
        with torch.inference_mode():
            logits = tiny.model(torch.tensor([code.ids])).logits[0].double()
        for j in range(code.start, code.stop + 1):
            before, token = logits[j - 1], code.ids[j]
            expected = before.log_softmax(-1)[token].item()
            place = j - code.start
            measured = score.logp[place] if j < code.stop else score.end_logp
            assert measured == pytest.approx(expected, abs=1e-5)
            # An oracle by sorting: the target's place in descending order.
            rank = before.argsort(descending=True).tolist().index(token) + 1
            assert abs((score.ranks[place] if j < code.stop else score.end_rank) - rank) <= 1


def test_an_items_numbers_do_not_depend_on_its_batch(tiny, encoded):
    together = score_answers(tiny.model, encoded)
    assert near([score_answers(tiny.model, [e])[0] for e in encoded], together)
    assert near(score_answers(tiny.model, encoded[::-1])[::-1], together)
    assert near(score_answers(tiny.model, encoded, token_budget=100), together)
    assert score_answers(tiny.model, []) == []


def test_by_hand():
    # Logits 0 and ln 3 are probabilities 1/4 and 3/4; d log p(1) / d logits = (-p(0), 1 - p(1)) = (-1/4, 1/4).
    logits = torch.tensor([[0.0, math.log(3.0)]], requires_grad=True)
    found = token_logp(logits, torch.tensor([1]))
    torch.testing.assert_close(found, torch.tensor([math.log(3 / 4)]))
    found.sum().backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.25, 0.25]]))


def test_the_gradient_is_that_of_finite_differences_across_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    logits = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: token_logp(x, torch.tensor([0, 6, 3, 3, 1])), (logits,))


def test_bfloat16_logits_give_float32_values_to_their_own_precision():
    logits = torch.randn(40, 50, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    tokens = torch.arange(40)
    found = token_logp(logits, tokens)
    assert found.dtype == torch.float32
    wide = logits.detach().float().requires_grad_()
    expected = wide.log_softmax(-1).gather(-1, tokens[:, None]).squeeze(-1)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad.float(), wide.grad, atol=4e-3, rtol=1e-2)


def test_the_logits_are_left_as_they_were():
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    before = logits.detach().clone()
    token_logp(logits, torch.tensor([0, 1, 2])).sum().backward()
    assert torch.equal(logits, before)


def rows(tiny, items):
    encoded = [tiny.prompter.encode(i.question, i.answer) for i in items]
    return [e.ids[: e.stop] for e in encoded]


def test_moments_by_hand():
    p = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
    mean, variance = moments(torch.tensor(p).log() + 3.0)
    # .7 ln .7 + .2 ln .2 + .1 ln .1 = -.801819; .25 ln .25 * 2 + .5 ln .5 = -1.5 ln 2.
    assert mean.tolist() == pytest.approx([-0.801819, -1.5 * np.log(2)], abs=1e-6)
    # In the second row log2 p is -2 or -1 with one half each: variance (ln 2)^2 / 4.
    assert variance[1].item() == pytest.approx(np.log(2) ** 2 / 4)
    assert variance[0].item() == pytest.approx((p[0] * np.log(p[0]) ** 2).sum() - 0.801819**2, abs=1e-6)


def test_a_token_that_cannot_come_weighs_nothing_and_an_even_spread_is_none():
    mean, variance = moments(torch.tensor([[0.0, 0.0, -torch.inf], [5.0, 5.0, 5.0]]))
    assert mean.tolist() == pytest.approx([-np.log(2), -np.log(3)])
    assert variance.tolist() == pytest.approx([0.0, 0.0], abs=1e-10)


def test_scores_are_those_of_the_whole_distribution_at_each_token(tiny, items):
    texts = rows(tiny, items[:6])
    for text, score in zip(texts, score_texts(tiny.model, texts), strict=True):
        with torch.no_grad():
            logits = tiny.model(torch.tensor([text])).logits[0].double().numpy()[:-1]
        logp = log_softmax(logits, axis=-1)
        target = np.array(text[1:])[:, None]
        own = np.take_along_axis(logp, target, 1)[:, 0]
        mean = (np.exp(logp) * logp).sum(-1)
        assert len(score.logp) == len(text) - 1
        assert score.logp == pytest.approx(own, abs=1e-4)
        assert score.ranks == pytest.approx(1 + (logp > own[:, None]).sum(-1), abs=0)
        assert score.mean == pytest.approx(mean, abs=1e-4)
        assert score.variance == pytest.approx((np.exp(logp) * logp**2).sum(-1) - mean**2, abs=1e-4)


@pytest.mark.parametrize("most", [1, 40, 100_000])
def test_a_text_scores_the_same_alone_and_in_any_company(monkeypatch, tiny, items, most):
    texts = rows(tiny, items)
    together = score_texts(tiny.model, texts)
    assert near([score_texts(tiny.model, [t])[0] for t in texts], together)
    assert near(score_texts(tiny.model, texts, token_budget=most), together)
    # A large vocabulary is read in smaller parts.
    monkeypatch.setattr(scoring, "_LOGITS", 2048 * 48)
    monkeypatch.setattr(scoring, "_LOGITS_AT_ONCE", 2048 * 3)
    assert near(score_texts(tiny.model, texts), together)


@pytest.mark.parametrize("kind", ["tied llama", "gpt2"])
def test_the_gradients_norm_is_autograds_over_all_parameters(tiny, items, kind):
    model = tiny.model
    if kind == "gpt2":
        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=2048, n_embd=32, n_layer=2, n_head=2)).eval()
    text, places = rows(tiny, items[:1])[0], [3, 5, 6]
    model.zero_grad()
    ids = torch.tensor([text])
    logp = model(ids).logits[0].log_softmax(-1)
    (-sum(logp[p - 1, text[p]] for p in places) / 3).backward()
    expected = sum((p.grad.double() ** 2).sum().item() for p in model.parameters() if p.grad is not None) ** 0.5
    model.zero_grad()
    assert gradient_norm(model, text, places) == pytest.approx(expected, rel=1e-5)
    assert all(p.grad is None for p in model.parameters())


def test_frozen_parameters_count_in_the_gradient_and_stay_frozen(tiny, items):
    text = rows(tiny, items[:1])[0]
    whole = gradient_norm(tiny.model, text, [4, 5])
    frozen = list(tiny.model.parameters())[:-3]
    try:
        for p in frozen:
            p.requires_grad_(False)
        assert gradient_norm(tiny.model, text, [4, 5]) == whole
        assert not any(p.requires_grad for p in frozen)
    finally:
        for p in frozen:
            p.requires_grad_(True)


CHAT = (
    "{% for m in messages %}<bos>System: be brief and what is more be kind.\n{{ m.role }}\n{{ m.content | trim }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant\n{% endif %}"
)


@pytest.mark.parametrize("template", [None, CHAT])
def test_a_questions_own_tokens_are_found_inside_the_template(items, template):
    tokenizer = tiny_tokenizer(items)
    if template is not None:
        tokenizer.chat_template = template
    prompter = Prompter(tokenizer, 256)
    for question in (items[0].question, "  What is more? ", "be", "Déjà vu, 你好?"):
        first, last = prompter.question_span(question)
        ids = prompter.prompt(question)
        assert prompter.tokenizer.decode(list(ids[first:last])).strip() == question.strip()
        # What stands around it is what stands around every question.
        other = prompter.prompt("Other things?")
        start, stop = prompter.question_span("Other things?")
        around = [prompter.decode(part) for part in (ids[:first], ids[last:])]
        assert around == [prompter.decode(part) for part in (other[:start], other[stop:])]
    with pytest.raises(InputError, match="the rendered chat lacks"):
        prompter.question_span(" ")
