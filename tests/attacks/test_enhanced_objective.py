"""The whole objective against whole rows of both models, and its gradient against one-hot autograd."""

import copy
import dataclasses
import math
from collections import Counter

import torch

from vestige.attacks.enhanced import EnhancedSettings
from vestige.attacks.enhanced_objective import PrefixObjective
from vestige.models.blocks import blocks
from vestige.models.load import LoadedModel
from vestige.models.streams import Streams, streams_of
from vestige.models.variants import Around

# Of the first text two tokens are forced and one is read along.
TEXTS = (Around((1, 2), (30, 31, 3), (40, 41, 42)), Around((1, 2), (33, 3), (43,)))
FORCED = (2, 1)
PROMPTS = [(50, 51, 52, 53), (54, 50, 54, 54)]
SETTINGS = EnhancedSettings(distance=0.7, representation=10.0, fluency=1.5, repetition=3.0)
FLUENT = EnhancedSettings(distance=0.0)


def objective(subject, guide, settings=SETTINGS, texts=TEXTS, forced=FORCED):
    layers = (0, 1)
    without = [streams_of(guide.model, (1, 2, 60, 3, *t.target), layers, last=len(t.target) + 1) for t in texts]
    return PrefixObjective(
        Streams(subject.model, subject.way, texts, layers),
        None if guide is subject else Streams(guide.model, guide.way, texts, layers, logits=False),
        forced,
        tuple(without) if settings.representation else (),
        settings,
        Counter(),
    )


def row(model, vectors):
    """Log-probabilities and streams after both blocks, of one whole row."""
    kept = {}
    handles = [blocks(model)[n].register_forward_hook(lambda _m, _g, out, n=n: kept.update({n: out})) for n in (0, 1)]
    logp = model(inputs_embeds=vectors[None]).logits[0].log_softmax(-1)
    for handle in handles:
        handle.remove()
    return logp, torch.stack([kept[0][0], kept[1][0]])


def naive(subject, guide, prompt, one_hot, settings=SETTINGS):
    """The loss as its definition reads, every text from its beginning on in both models."""
    parts = []
    for text, n_forced in zip(TEXTS, FORCED, strict=True):
        found = []
        for model in (subject.model, guide.model):
            table = model.get_input_embeddings().weight.detach()
            tail = torch.tensor(text.after + text.target)
            found.append(row(model, torch.cat([table[list(text.before)], one_hot @ table, table[tail]])))
        (logp, own), (_, theirs) = found
        ids = text.before + prompt + text.after + text.target
        n_target, behind = len(text.target), len(text.before) + len(prompt)
        nll = [-logp[len(ids) - n_target + k - 1, text.target[k]] for k in range(n_forced)]
        forced = torch.stack([x.clamp(min=-math.log(0.6)) for x in nll]).mean()
        apart = torch.stack([(own[n, p] - theirs[n, p]).norm() for n in (0, 1) for p in range(behind, len(ids))])
        alone = row(guide.model, guide.model.get_input_embeddings().weight[[1, 2, 60, 3, *text.target]])[1].detach()
        last = n_target + 1
        cos = torch.nn.functional.cosine_similarity(own[:, -last:], alone[:, -last:], dim=-1)
        parts.append(forced + 0.7 * apart.mean() + 10.0 * (1 - cos).mean())
        fluent = torch.stack([-logp[len(text.before) + k - 1, prompt[k]] for k in range(len(prompt))]).mean()
    again = sum((n - 1) ** 1.5 for n in Counter(prompt).values()) / len(prompt)
    return torch.stack(parts).mean() + 1.5 * fluent + 3.0 * again


def one_hot_of(prompt):
    return torch.nn.functional.one_hot(torch.tensor(prompt), 400).float()


def test_losses_are_what_their_definition_gives(nano, target):
    with torch.no_grad():
        expected = torch.stack([naive(nano, target, prompt, one_hot_of(prompt)) for prompt in PROMPTS])
    torch.testing.assert_close(objective(nano, target).losses(PROMPTS), expected, rtol=1e-5, atol=1e-5)


def test_the_gradient_is_that_of_one_hot_tokens_through_both_models(nano, target):
    for prompt in PROMPTS:
        one_hot = one_hot_of(prompt).requires_grad_()
        naive(nano, target, prompt, one_hot).backward()
        found = objective(nano, target).gradient(prompt)
        scale = one_hot.grad.abs().max().item()
        torch.testing.assert_close(found, one_hot.grad, rtol=0, atol=1e-4 * scale)


def test_a_target_of_the_same_weights_is_at_no_distance(nano):
    twin = LoadedModel(copy.deepcopy(nano.model), nano.tokenizer, "twin", "")
    settings = EnhancedSettings(distance=1.0)
    apart = objective(nano, twin, settings)
    with torch.no_grad():
        terms = apart.terms([streams.prompts(PROMPTS) for streams in (apart.subject, apart.guide)])
    # The same sums in another order of computation: rounding, of streams with a norm near 30.
    assert terms.distance.abs().max() < 1e-3
    alone = objective(nano, nano, settings)
    torch.testing.assert_close(apart.losses(PROMPTS), alone.losses(PROMPTS), rtol=0, atol=1e-3)


def test_prompts_in_passes_of_their_own_lose_as_much_as_together(nano, target):
    apart = objective(nano, target)
    small = dataclasses.replace(apart, subject=dataclasses.replace(apart.subject, token_budget=1))
    torch.testing.assert_close(small.losses(PROMPTS), apart.losses(PROMPTS), rtol=1e-5, atol=1e-5)


def test_leaders_are_the_least_losses_in_order(nano, target):
    apart = objective(nano, target)
    losses = apart.losses(PROMPTS).tolist()
    found = apart.leaders(PROMPTS, 2)
    assert [f.index for f in found] == sorted((0, 1), key=lambda n: losses[n])
    assert [f.loss for f in found] == sorted(losses)
    assert len(apart.leaders(PROMPTS, 1)) == 1


def test_a_prompt_says_what_is_forced_where_greedy_decoding_does_and_not_what_is_read_along(nano):
    prompt, head = PROMPTS[0], TEXTS[0].before + PROMPTS[0] + TEXTS[0].after
    with torch.no_grad():
        first = nano.model(input_ids=torch.tensor([head])).logits[0, -1].argmax().item()
        second = nano.model(input_ids=torch.tensor([(*head, first)])).logits[0, -1].argmax().item()
    text = Around(TEXTS[0].before, TEXTS[0].after, (first, (second + 1) % 400))
    assert objective(nano, nano, FLUENT, (text,), (1,)).reached(prompt)
    assert not objective(nano, nano, FLUENT, (text,), (2,)).reached(prompt)


def test_what_is_read_is_charged_before_it_is_read(nano, target):
    apart = objective(nano, target)
    # Two texts of 8 + 4 and 5 + 4 tokens: 21 a prompt and model.
    apart.leaders(PROMPTS, 1)
    assert apart.spent["tokens_read"] == 2 * 2 * 21
    apart.gradient(PROMPTS[0])
    assert apart.spent == {"tokens_read": 84 + 42, "gradients": 1}
    apart.next_logits(PROMPTS[0])
    assert apart.spent["tokens_read"] == 126 + 6
    apart.reached(PROMPTS[0])
    assert apart.spent["tokens_read"] == 132 + 21


def test_next_logits_are_those_of_each_place_and_of_the_one_behind(nano):
    with torch.no_grad():
        expected = nano.model(input_ids=torch.tensor([(1, 2, *PROMPTS[0])])).logits[0, 1:]
    torch.testing.assert_close(objective(nano, nano, FLUENT).next_logits(PROMPTS[0]), expected, rtol=0, atol=1e-4)
