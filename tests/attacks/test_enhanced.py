"""The search for a prefix: its loss by hand and against whole passes, on an untrained model and a changed copy."""

import copy
import math
from collections import Counter

import pytest
import torch

from vestige.attacks.enhanced import (
    GuideReply,
    PrefixObjective,
    distance,
    find_prefix,
    forcing,
    layers_at_depth,
    repetition,
    samples_of,
)
from vestige.attacks.gcg import around
from vestige.attacks.prompts import EnhancedSettings, deployed
from vestige.core.errors import InputError
from vestige.models.blocks import blocks
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_tokenizer
from vestige.models.variants import Around

QUESTIONS = ["What is the alpha of beta?", "What is the gamma of mu?"]
SHORT = {"tokens": 5, "steps": 6, "candidates": 4, "topk": 8, "buffer": 3, "forced_tokens": 2}
TEXTS = (Around((1, 2), (30, 31, 3), (40, 41, 42)), Around((1, 2), (33, 3), (43,)))
PROMPTS = [(50, 51, 52, 53), (54, 50, 54, 54)]
WEIGHED = EnhancedSettings(distance=0.7, fluency=1.5, repetition=3.0)


def settings(**changed):
    return EnhancedSettings(**{**SHORT, **changed})


class Kept:
    """Keeps the last state in memory, and raises once, when it is handed the state of a given step."""

    def __init__(self, fails_at=None):
        self.state, self.fails_at = None, fails_at

    def load(self):
        return self.state

    def save(self, state):
        if state.step == self.fails_at:
            self.fails_at = None
            raise RuntimeError("killed")
        self.state = state


def test_forcing_bounds_each_token_and_not_their_mean():
    # p = 0.9 is past the clamp of 0.6 and counts as -ln 0.6; p = 0.1 counts as -ln 0.1.
    logp = torch.tensor([[0.9, 0.1], [0.7, 0.6]]).log().requires_grad_()
    found = forcing(logp, 0.6)
    torch.testing.assert_close(found, torch.tensor([(-math.log(0.6) - math.log(0.1)) / 2, -math.log(0.6)]))
    found[0].backward()
    assert logp.grad[0].tolist() == [0.0, -0.5]
    torch.testing.assert_close(forcing(logp, 1.0)[0], torch.tensor(-(math.log(0.9) + math.log(0.1)) / 2))


def test_distance_is_the_mean_norm_over_layers_and_places():
    # Two layers, two places: distances 5 and 0, then 13 and 2; mean (5 + 0 + 13 + 2) / 4 = 5.
    subject = torch.tensor([[[[3.0, 4.0], [1.0, 1.0]], [[5.0, 12.0], [2.0, 0.0]]]])
    target = torch.tensor([[[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]])
    torch.testing.assert_close(distance(subject, target), torch.tensor([5.0]))
    same = subject.clone().requires_grad_()
    distance(same, subject).sum().backward()
    assert not same.grad.any()


def test_repetition_counts_what_comes_again_and_divides_by_the_length():
    # Token 7 three times: 2 ** 1.5; token 8 twice: 1; token 9 once: 0; six tokens.
    found = repetition([(7, 8, 7, 9, 7, 8), (1, 2, 3, 4, 5, 6)], 1.5)
    torch.testing.assert_close(found, torch.tensor([(2**1.5 + 1) / 6, 0.0]))


def objective(subject, guide, asked=WEIGHED, texts=TEXTS):
    return PrefixObjective(subject.model, guide and guide.model, texts, (0, 1), asked, Counter())


def row(model, vectors):
    """Log-probabilities and streams after both blocks, of one whole row."""
    kept = {}
    handles = [blocks(model)[n].register_forward_hook(lambda _m, _g, out, n=n: kept.update({n: out})) for n in (0, 1)]
    logp = model(inputs_embeds=vectors[None]).logits[0].log_softmax(-1)
    for handle in handles:
        handle.remove()
    return logp, torch.stack([kept[0][0], kept[1][0]])


def naive(subject, guide, prompt, one_hot):
    """The loss as its definition reads, every text from its beginning on in both models."""
    parts, fluent = [], []
    for text in TEXTS:
        found = []
        for model in (subject.model, guide.model):
            table = model.get_input_embeddings().weight.detach()
            tail = torch.tensor(text.after + text.target)
            found.append(row(model, torch.cat([table[list(text.before)], one_hot @ table, table[tail]])))
        (logp, own), (_, theirs) = found
        ids = text.before + prompt + text.after + text.target
        n_target, behind = len(text.target), len(text.before) + len(prompt)
        nll = [-logp[len(ids) - n_target + k - 1, token] for k, token in enumerate(text.target)]
        forced = torch.stack([x.clamp(min=-math.log(0.6)) for x in nll]).mean()
        apart = torch.stack([(own[n, p] - theirs[n, p]).norm() for n in (0, 1) for p in range(behind, len(ids))])
        parts.append(forced + 0.7 * apart.mean())
        fluent.append(torch.stack([-logp[len(text.before) + k - 1, prompt[k]] for k in range(len(prompt))]).mean())
    again = sum((n - 1) ** 1.5 for n in Counter(prompt).values()) / len(prompt)
    return torch.stack(parts).mean() + 1.5 * fluent[0] + 3.0 * again


def test_the_loss_and_its_gradient_are_those_of_whole_rows_of_both_models(nano, target):
    found = objective(nano, target).losses(PROMPTS)
    for prompt, loss in zip(PROMPTS, found, strict=True):
        one_hot = torch.nn.functional.one_hot(torch.tensor(prompt), 400).float().requires_grad_()
        expected = naive(nano, target, prompt, one_hot)
        assert float(loss) == pytest.approx(expected.item(), rel=1e-5)
        expected.backward()
        scale = one_hot.grad.abs().max().item()
        torch.testing.assert_close(objective(nano, target).gradient(prompt), one_hot.grad, rtol=0, atol=1e-4 * scale)


def test_prompts_in_passes_of_their_own_lose_as_much_as_together(nano, target):
    apart = objective(nano, target)
    alone = torch.cat([apart.losses([prompt]) for prompt in PROMPTS])
    torch.testing.assert_close(alone, apart.losses(PROMPTS), rtol=1e-5, atol=1e-5)
    small = apart.losses(PROMPTS, token_budget=1)
    torch.testing.assert_close(small, apart.losses(PROMPTS), rtol=1e-5, atol=1e-5)


def test_where_nothing_stands_before_the_prompt_its_first_token_has_no_loss(nano):
    text = Around((), (30, 3), (40,))
    with torch.no_grad():
        logp = nano.model(input_ids=torch.tensor([(*PROMPTS[0], 30, 3, 40)])).logits[0].log_softmax(-1)
    own = -torch.stack([logp[k, PROMPTS[0][k + 1]] for k in range(3)]).mean()
    expected = max(-float(logp[5, 40]), -math.log(0.6)) + 2 * float(own)
    asked = EnhancedSettings(distance=0.0, fluency=2.0, repetition=0.0)
    assert float(objective(nano, None, asked, (text,)).losses(PROMPTS[:1])[0]) == pytest.approx(expected, rel=1e-5)


def test_leaders_are_the_least_losses_in_order_and_what_is_read_is_counted(nano, target):
    apart = objective(nano, target)
    losses = apart.losses(PROMPTS).tolist()
    found = apart.leaders(PROMPTS, 2)
    assert [f.index for f in found] == sorted((0, 1), key=lambda n: losses[n])
    assert [f.loss for f in found] == sorted(losses)
    # Two models read two prompts in texts of 2 + 4 + 3 + 3 and 2 + 4 + 2 + 1 tokens.
    assert apart.spent["tokens_read"] == 2 * 2 * (12 + 9)


def test_a_prompt_says_what_is_forced_where_greedy_decoding_does(nano):
    prompt, head = PROMPTS[0], TEXTS[0].before + PROMPTS[0] + TEXTS[0].after
    with torch.no_grad():
        first = nano.model(input_ids=torch.tensor([head])).logits[0, -1].argmax().item()
        second = nano.model(input_ids=torch.tensor([(*head, first)])).logits[0, -1].argmax().item()
    said = Around(TEXTS[0].before, TEXTS[0].after, (first, second))
    other = Around(TEXTS[0].before, TEXTS[0].after, (first, (second + 1) % 400))
    assert objective(nano, None, texts=(said,)).reached(prompt)
    assert not objective(nano, None, texts=(said, other)).reached(prompt)


def test_the_defaults_are_those_of_the_code():
    found = EnhancedSettings()
    assert (found.tokens, found.steps, found.candidates, found.topk, found.buffer) == (32, 1500, 16, 64, 16)
    assert (found.forced_tokens, found.clamp) == (10, 0.6)
    assert (found.distance, found.fluency, found.repetition, found.repetition_power) == (1.0, 1.5, 3.0, 1.5)


@pytest.mark.parametrize(
    ("n", "layers"), [(32, (5, 6, 7)), (24, (4, 5)), (30, (5, 6, 7)), (4, (0,)), (3, (0,)), (1, (0,)), (16, (2, 3))]
)
def test_layers_lie_as_deep_as_7_8_9_of_32_do(n, layers):
    # 6, 7 and 8 of 32 blocks lie below: of 24 that is 4.5, 5.25, 6, so 5, 5, 6; of 16 it is 3, 3.5, 4, so 3, 4, 4.
    assert layers_at_depth(n) == layers


def test_samples_are_what_the_target_says_greedily_with_its_end(nano):
    prompter, n = nano.prompter, 4
    (sample,) = samples_of(nano, QUESTIONS[:1], settings(forced_tokens=4))
    ids = list(prompter.prompt(QUESTIONS[0]))
    said = []
    with torch.no_grad():
        while len(said) < n and (not said or said[-1] not in prompter.end_ids):
            said.append(nano.model(input_ids=torch.tensor([ids + said])).logits[0, -1].argmax().item())
    assert sample == GuideReply(QUESTIONS[0], tuple(said))


def test_the_end_of_a_reply_is_forced_too(nano):
    silent = copy.deepcopy(nano.model)
    with torch.no_grad():
        # Every hidden state leads to the end of the turn alone.
        silent.get_output_embeddings().weight.zero_()
        end = nano.prompter.end_ids[0]
        silent.model.norm.weight.zero_()
        head = torch.nn.Linear(32, 400)
        head.weight.zero_()
        head.bias.zero_()
        head.bias[end] = 1.0
    silent.set_output_embeddings(head)
    mute = LoadedModel(silent, nano.tokenizer, "mute", "")
    assert samples_of(mute, QUESTIONS[:1], settings()) == [GuideReply(QUESTIONS[0], (end,))]


def test_a_search_finds_a_prefix_that_loses_less_than_its_start_and_is_kept_as_text(nano, target):
    samples = samples_of(target, QUESTIONS, settings())
    keeper = Kept()
    found = find_prefix(nano, target, samples, settings(), seed=3, keeper=keeper)
    assert found.ended == "steps"
    assert found.steps == 6 == len(keeper.state.losses)
    assert found.loss <= min(keeper.state.losses)
    assert len(found.ids) == 5
    # What is sent is what was searched: the text in its place is the tokens that were found.
    for sample in samples:
        place = around(nano.prompter, sample.question, sample.forced, "prefix")
        sent = nano.prompter.prompt(deployed(sample.question, found.text, "prefix"))
        assert sent == place.before + found.ids + place.after
    assert found.spent["candidates"] <= 1 + 6 * 4
    assert (found.spent["steps"], found.spent["gradients"]) == (6, 6)


def test_the_target_itself_as_the_subject_is_read_once(nano):
    samples = samples_of(nano, QUESTIONS, settings())
    twin = LoadedModel(copy.deepcopy(nano.model), nano.tokenizer, "twin", "")
    alone = find_prefix(nano, nano, samples, settings(), seed=3)
    other = find_prefix(nano, twin, samples, settings(), seed=3)
    # Nothing lies between equal weights.
    assert alone.ids == other.ids
    assert alone.loss == pytest.approx(other.loss, abs=1e-3)
    assert alone.spent["tokens_read"] == other.spent["tokens_read"] / 2


def test_what_cannot_be_searched_is_refused(nano, target):
    samples = samples_of(target, QUESTIONS, settings())
    other = LoadedModel(target.model, tiny_tokenizer(()), "other", "")
    wide = LoadedModel(copy.deepcopy(target.model), nano.tokenizer, "wide", "")
    wide.model.config.num_hidden_layers = 7
    for guide, changed, said in (
        (other, {}, "other has another tokeniser or chat template than nano"),
        (wide, {}, "nano has 2 layers of width 32 and wide 7 of 32"),
        (target, {"tokens": 60}, "takes? .* tokens and the model reads 64. Lower tokens"),
        (
            target,
            {"initial": "the \u00e9"},
            "the initial text has [0-9]+ tokens that are not allowed in a searched prompt",
        ),
        (target, {"topk": 1000}, "topk is 1000"),
        (target, {"layers": (0, 2)}, "layer 2 is not in a model of 2"),
    ):
        with pytest.raises(InputError, match=said):
            find_prefix(nano, guide, samples, settings(**changed), seed=0)
    with pytest.raises(InputError, match="Give at least one"):
        find_prefix(nano, target, [], settings(), seed=0)
