"""What a policy draws: from which distribution, with which bytes, and what is said of it."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TemperatureLogitsWarper, TopPLogitsWarper

from vestige.core.errors import InputError
from vestige.models import forward as passes
from vestige.training.policy.rollouts import Rollouts, draw, judged, sample
from vestige.training.policy.updates import Policy, PolicySettings

VOCABULARY, STOP = 24, 0
PROMPTS = [(3, 4, 5), (6, 7), (8, 9, 10, 11, 12, 13, 14, 15, 16), (3, 4, 5)]


def nano(seed: int = 0) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, initializer_range=0.3, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def policy() -> Policy:
    """One that has learnt a little, so that it and its reference differ and values are not 0."""
    torch.set_num_threads(1)
    found = Policy.of(nano(), PolicySettings(learning_rate=0.01, epochs=1, lora_rank=4), seed=1)
    found.step(drawn(found, PROMPTS * 4), [float(n % 3) for n in range(16)])
    return found


def drawn(policy: Policy, prompts: list, *, seed: int = 0, n_tokens: int = 6, **sampling: float) -> Rollouts:
    asked = {"temperature": 0.9, "top_p": 0.95, **sampling}
    return sample(policy.actor, prompts, n_tokens=n_tokens, stop_ids=[STOP], seed=seed, **asked)


def warped(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """The distribution that transformers samples from."""
    scores = TemperatureLogitsWarper(temperature)(None, logits)
    return (TopPLogitsWarper(top_p)(None, scores) if top_p < 1 else scores).softmax(-1)


@pytest.mark.portable
@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, 0.92), (1.0, 1.0), (1.5, 0.5), (0.3, 0.05)])
@pytest.mark.parametrize("width", [40, 600])
def test_tokens_are_drawn_from_transformers_distribution(temperature, top_p, width):
    logits = 3 * torch.randn(1, width, generator=torch.Generator().manual_seed(width))
    # Even shares in place of random ones: a token of probability p gets 4,000 p of them, but for one at each end.
    n = 4000
    shares = (np.arange(n) + 0.5) / n
    found = (
        draw(logits.expand(n, -1), torch.from_numpy(shares), temperature=temperature, top_p=top_p).bincount(
            minlength=width
        )
        / n
    )
    expected = warped(logits, temperature, top_p)[0]
    assert (found - expected).abs().max().item() <= 2 / n
    assert not found[expected == 0].any()


def test_of_equally_likely_tokens_the_first_are_in_the_nucleus():
    # 552 of 600 equal ones hold 0.92.
    shares = (np.arange(6000) + 0.5) / 6000
    tokens = draw(torch.zeros(6000, 600), torch.from_numpy(shares), temperature=1.0, top_p=0.9199)
    assert sorted(set(tokens.tolist())) == list(range(552))


def test_the_greatest_share_stays_in_the_nucleus():
    logits = torch.tensor([[0.0, -0.1, -40.0]])
    assert draw(logits, torch.tensor([1 - 2**-53], dtype=torch.float64), temperature=1.0, top_p=0.9).item() == 1


def test_first_tokens_are_as_often_as_the_model_says(policy):
    n = 1024
    found = drawn(policy, [PROMPTS[0]] * n, n_tokens=1, temperature=0.7, top_p=0.92)
    counts = found.ids[:, 0].bincount(minlength=VOCABULARY)
    with torch.no_grad():
        expected = warped(policy.actor.model(torch.tensor([PROMPTS[0]])).logits[:, -1], 0.7, 0.92)[0]
    allowed = expected > 0
    assert not counts[~allowed].any()
    chi_square = ((counts - n * expected)[allowed] ** 2 / (n * expected[allowed])).sum().item()
    degrees = int(allowed.sum()) - 1
    # Mean and variance of chi-square are d and 2d; four deviations.
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees)


@pytest.mark.portable
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(policy):
    first, again, other = drawn(policy, PROMPTS), drawn(policy, PROMPTS), drawn(policy, PROMPTS, seed=1)
    assert first.replies == again.replies != other.replies
    for name in ("logp", "reference_logp", "values", "entropy"):
        assert torch.equal(vars(first)[name], vars(again)[name])
    # Equal prompts draw on their own.
    assert first.replies[0] != first.replies[3]


@pytest.mark.portable
def test_a_row_does_not_depend_on_its_neighbours_but_for_rounding(policy):
    alone, among = drawn(policy, PROMPTS[:1]), drawn(policy, PROMPTS)
    n = len(alone.replies[0])
    assert alone.replies[0] == among.replies[0]
    torch.testing.assert_close(alone.logp[0], among.logp[0, :n], atol=1e-4, rtol=0)
    torch.testing.assert_close(alone.values[0], among.values[0, :n], atol=1e-4, rtol=0)


def test_replies_end_at_a_stop_or_at_their_length(policy):
    found = drawn(policy, PROMPTS * 16, n_tokens=8, temperature=1.5, top_p=1.0)
    assert {True, False} == set(found.stopped)
    for reply, stopped, mask, ids in zip(found.replies, found.stopped, found.mask, found.ids, strict=True):
        assert STOP not in reply[:-1]
        assert (reply[-1] == STOP) == stopped
        assert stopped or len(reply) == 8
        assert ids[mask].tolist() == list(reply)
    assert not found.ids[~found.mask].any()


@pytest.mark.portable
def test_what_is_said_of_replies_is_what_plain_passes_say(policy):
    found = drawn(policy, PROMPTS)
    untouched = nano()
    for i, (prompt, reply) in enumerate(zip(found.prompts, found.replies, strict=True)):
        n, places = len(reply), slice(len(prompt) - 1, -1)
        ids = torch.tensor([prompt + reply])
        with torch.no_grad():
            out = policy.actor.model(ids, output_hidden_states=True)
            logp = (out.logits[0, places] / 0.9).log_softmax(-1)
            reference = (untouched(ids).logits[0, places] / 0.9).log_softmax(-1)
            values = policy.actor.value_head(out.hidden_states[-1][0, places]).squeeze(-1)
        chosen = torch.tensor(reply)[:, None]
        close = {"atol": 1e-5, "rtol": 0}
        torch.testing.assert_close(found.logp[i, :n], logp.gather(1, chosen).squeeze(1), **close)
        torch.testing.assert_close(found.reference_logp[i, :n], reference.gather(1, chosen).squeeze(1), **close)
        torch.testing.assert_close(found.entropy[i, :n], -(logp.exp() * logp).sum(-1), **close)
        torch.testing.assert_close(found.values[i, :n], values, **close)
        assert not found.logp[i, n:].any()
    # It has learnt something, so the two are to be told apart here.
    assert (found.logp - found.reference_logp).abs().max() > 1e-3
    assert found.values.abs().max() > 1e-3


def test_what_memory_does_not_hold_is_drawn_and_read_in_smaller_passes(policy, monkeypatch):
    monkeypatch.setattr(passes, "happened", Counter())
    words = {"n_tokens": 6, "temperature": 1.0, "top_p": 1.0, "stop_ids": [STOP], "seed": 1}
    expected = sample(policy.actor, PROMPTS * 8, **words)
    model, tried = policy.actor.model, []
    forward = model.forward

    def small(input_ids, **given):
        tried.append(input_ids.numel())
        if input_ids.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **given)

    monkeypatch.setattr(model, "forward", small)
    found = sample(policy.actor, PROMPTS * 8, **words)
    assert max(tried) > 100 >= tried[-1]
    assert found.replies == expected.replies
    torch.testing.assert_close(found.logp, expected.logp, atol=1e-4, rtol=0)


def test_replies_that_were_kept_are_read_as_when_they_were_drawn(policy):
    found = drawn(policy, PROMPTS)
    again = judged(policy.actor, found.prompts, found.replies, [STOP], found.temperature)
    for name, value in vars(found).items():
        other = vars(again)[name]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


@pytest.mark.parametrize(
    ("prompts", "sentence"),
    [
        ([(3,) * 27], "a prompt of 27 tokens and a reply of 6 tokens are more than the policy's context of 32"),
        ([(3,), ()], "there is no prompt, or an empty one"),
        ([], "there is no prompt, or an empty one"),
    ],
)
def test_prompts_that_cannot_be_replied_to_are_refused(policy, prompts, sentence):
    with pytest.raises(InputError, match=sentence):
        drawn(policy, prompts)


def test_without_a_nucleus_nothing_is_sorted(monkeypatch):
    def sorting(*_, **__):
        raise AssertionError("sorted")

    for name in ("sort", "argsort", "topk"):
        monkeypatch.setattr(torch.Tensor, name, sorting)
        monkeypatch.setattr(torch, name, sorting)
    logits, uniform = torch.zeros(3, 300), torch.tensor([0.0, 0.5, 0.999])
    assert draw(logits, uniform, temperature=1.0, top_p=1.0).tolist() == [0, 150, 299]
    with pytest.raises(AssertionError, match="sorted"):
        draw(logits, uniform, temperature=1.0, top_p=0.9)
