"""Streams and log-probabilities behind a prompt: against whole rows in one pass, and gradients against differences."""

import copy

import pytest
import torch
from families import FAMILIES, small_model

from vestige.core.errors import InputError
from vestige.models.blocks import blocks, embedding_table
from vestige.models.reading import way_of
from vestige.models.streams import Prompts, Streams, one_hot_gradient, streams_of, text_logp
from vestige.models.variants import Around

# Tails of 5, 3 and 6 tokens, out of order, so that texts are sorted and padded.
TEXTS = (
    Around((1, 5), (7, 8, 9), (11, 12)),
    Around((1, 5), (21, 22), (23,)),
    Around((1, 5), (31, 32), (33, 34, 35, 36)),
)
PROMPTS = [(40, 41, 42, 43), (44, 45, 46, 47), (40, 40, 40, 40)]


def whole(model, prompt, text, layers):
    """Log-probabilities of the prompt's own and the target's tokens, and streams behind the prompt, from one row."""
    ids = text.before + prompt + text.after + text.target
    # What a block gives, and not transformers' hidden_states, whose last one is normed.
    kept = {}
    handles = [
        blocks(model)[n].register_forward_hook(
            lambda _m, _g, out, n=n: kept.update({n: out if isinstance(out, torch.Tensor) else out[0]})
        )
        for n in layers
    ]
    with torch.no_grad():
        logp = model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)
    for handle in handles:
        handle.remove()
    said = logp[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    n_before, n_target = len(text.before) + len(prompt), len(text.target)
    streams = torch.stack([kept[n][0, n_before:] for n in layers])
    return said[len(text.before) - 1 : n_before - 1], said[-n_target:], streams


@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("plain", [False, True])
def test_what_is_read_is_what_one_pass_over_the_whole_row_gives(family, plain):
    model = small_model(family)
    streams = Streams(model, "plain" if plain else way_of(model), TEXTS, (0, 2))
    with torch.no_grad():
        logits, stem = streams.read(streams.prompts(PROMPTS))
        found = {f.text: f for f in streams.follow(stem)}
    assert sorted(found) == [0, 1, 2]
    own = text_logp(logits[:, :-1], torch.tensor(PROMPTS))
    for row, prompt in enumerate(PROMPTS):
        for n, text in enumerate(TEXTS):
            expected_own, expected_target, expected_streams = whole(model, prompt, text, (0, 2))
            torch.testing.assert_close(own[row], expected_own, rtol=0, atol=2e-5)
            torch.testing.assert_close(found[n].target_logp[row], expected_target, rtol=0, atol=2e-5)
            torch.testing.assert_close(found[n].residual[row], expected_streams, rtol=0, atol=2e-5)


def test_texts_in_passes_of_their_own_give_the_same_as_together():
    model = small_model("llama")
    found = []
    for budget in (1, 10**6):
        streams = Streams(model, way_of(model), TEXTS, (1,), token_budget=budget)
        with torch.no_grad():
            found.append(list(streams.follow(streams.read(streams.prompts(PROMPTS))[1])))
    assert [f.text for f in found[0]] == [f.text for f in found[1]] == [1, 0, 2]
    for alone, together in zip(*found, strict=True):
        torch.testing.assert_close(alone.residual, together.residual, rtol=0, atol=2e-6)
        torch.testing.assert_close(alone.target_logp, together.target_logp, rtol=0, atol=2e-5)


def test_a_token_is_first_where_greedy_decoding_says_it():
    model, prompt, text = small_model("llama"), PROMPTS[0], TEXTS[0]
    with torch.no_grad():
        said = model(input_ids=torch.tensor([text.before + prompt + text.after])).logits[0, -1].argmax().item()
    streams = Streams(model, way_of(model), (Around(text.before, text.after, (said, (said + 1) % 67)),), ())
    with torch.no_grad():
        (found,) = streams.follow(streams.read(streams.prompts([prompt]))[1])
        again = model(input_ids=torch.tensor([text.before + prompt + text.after + (said,)])).logits[0, -1].argmax()
    assert found.first.tolist() == [[True, again.item() == (said + 1) % 67]]


@pytest.mark.parametrize("plain", [False, True])
def test_where_streams_alone_are_asked_for_no_block_above_them_is_computed(plain):
    model = small_model("llama")
    streams = Streams(model, "plain" if plain else way_of(model), TEXTS, (0, 1), logits=False)
    above = blocks(model)[2].register_forward_hook(lambda *_: pytest.fail("the third block was computed"))
    with torch.no_grad():
        _, stem = streams.read(streams.prompts(PROMPTS))
        found = list(streams.follow(stem))
    above.remove()
    _, _, expected = whole(model, PROMPTS[1], TEXTS[2], (0, 1))
    assert found[-1].text == 2
    torch.testing.assert_close(found[-1].residual[1], expected, rtol=0, atol=2e-6)


def test_nothing_before_the_prompt_leaves_its_first_token_unsaid():
    model = small_model("llama")
    text = Around((), (7, 8), (9,))
    streams = Streams(model, way_of(model), (text,), ())
    with torch.no_grad():
        logits, _ = streams.read(streams.prompts(PROMPTS))
        expected = model(input_ids=torch.tensor(PROMPTS)).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("family", ["llama", "gemma2", "granite", "gpt2"])
@pytest.mark.parametrize("plain", [False, True])
def test_a_gradient_through_two_models_is_what_differences_of_one_hot_vectors_are(family, plain):
    first, second = small_model(family), small_model(family)
    with torch.no_grad():
        for weight in second.parameters():
            weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(3))
    way = "plain" if plain else way_of(first)
    readers = [Streams(first, way, TEXTS, (0, 1)), Streams(second, way, TEXTS, (0, 1), logits=False)]
    prompt = PROMPTS[0]

    def loss(given):
        logits, stem = readers[0].read(given[0])
        _, other = readers[1].read(given[1])
        value = -text_logp(logits[:, :-1], given[0].ids).mean()
        for one, two in zip(readers[0].follow(stem), readers[1].follow(other), strict=True):
            value = value - one.target_logp.mean() + (one.residual - two.residual).norm(dim=-1).mean()
        return value

    found = one_hot_gradient([first, second], prompt, loss)
    assert found.shape == (4, 67)
    tables = [embedding_table(model) for model in (first, second)]
    direction = torch.randn(4, 67, generator=torch.Generator().manual_seed(1))
    h = 2e-3
    with torch.no_grad():
        one_hot = torch.nn.functional.one_hot(torch.tensor(prompt), 67).float()
        at = [
            loss([Prompts(torch.tensor([prompt]), ((one_hot + sign * h * direction) @ t)[None]) for t in tables])
            for sign in (1, -1)
        ]
    slope = (at[0] - at[1]) / (2 * h)
    # Losses near 10 in float32 are known to 1e-6, so slopes to 1e-6 / 2e-3.
    torch.testing.assert_close((found * direction).sum(), slope, rtol=2e-3, atol=2e-3)
    assert all(weight.grad is None for model in (first, second) for weight in model.parameters())


def test_streams_without_a_prompt_are_those_of_the_last_places():
    model = small_model("llama")
    _, _, expected = whole(model, PROMPTS[0], TEXTS[0], (0, 2))
    ids = TEXTS[0].before + PROMPTS[0] + TEXTS[0].after + TEXTS[0].target
    torch.testing.assert_close(streams_of(model, ids, (0, 2), last=5), expected)


def test_what_cannot_be_read_is_refused():
    model = small_model("llama")
    with pytest.raises(InputError, match="unlike beginnings"):
        Streams(model, "plain", (TEXTS[0], Around((1,), (2,), (3,))), ())
    with pytest.raises(InputError, match="no target"):
        Streams(model, "plain", (Around((1,), (2,), ()),), ())
    with pytest.raises(InputError, match=r"layers \[1, 3\] of a model of 3 blocks; give some of 0 to 2"):
        Streams(model, "plain", TEXTS, (1, 3))
    with pytest.raises(ValueError, match=r"prompts of \[1, 2\] tokens"):
        Streams(model, "plain", TEXTS, ()).prompts([(1,), (1, 2)])


def test_reading_leaves_the_model_as_it_was():
    model = small_model("llama")
    before = copy.deepcopy(model.state_dict())
    streams = Streams(model, way_of(model), TEXTS, (0,), logits=False)
    with torch.no_grad():
        list(streams.follow(streams.read(streams.prompts(PROMPTS))[1]))
    assert not blocks(model)[0]._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
