"""The search for a prefix, on an untrained model and a changed copy of it."""

import copy

import pytest
import torch

from vestige.attacks.enhanced import EnhancedSettings, GuideReply, layers_at_depth, samples_of
from vestige.attacks.enhanced_moves import find_prefix
from vestige.attacks.gcg import SearchSettings, nothing_spent, search
from vestige.attacks.placement import around, deployed
from vestige.core.errors import InputError
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_tokenizer
from vestige.models.variants import Scored

QUESTIONS = ["What is the alpha of beta?", "What is the gamma of mu?"]
SHORT = {"tokens": 5, "first_tokens": 3, "steps": 6, "candidates": 4, "topk": 8, "buffer": 3, "forced_tokens": 2}
FULL = {"representation": 10.0, "matched_tokens": 1}


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


def test_the_defaults_are_those_of_the_code():
    found = EnhancedSettings()
    assert (found.tokens, found.first_tokens, found.ramp_steps, found.steps) == (100, 32, 1000, 1500)
    assert (found.candidates, found.topk, found.buffer, found.forced_tokens, found.clamp) == (16, 64, 16, 10, 0.6)
    assert (found.distance, found.representation, found.fluency, found.repetition) == (1.0, 0.0, 1.5, 3.0)
    assert found.shares == {"gcg": 0.7, "delete": 0.1, "insert": 0.1, "swap": 0.1}


def test_the_ramp_is_the_codes_and_two_thirds_of_fewer_steps():
    assert EnhancedSettings().lengths == (32, 100, 1000)
    assert EnhancedSettings(steps=150).lengths == (32, 100, 100)
    assert EnhancedSettings(steps=3000).lengths == (32, 100, 1000)
    assert EnhancedSettings(tokens=24).lengths == (24, 24, 1000)


@pytest.mark.parametrize(
    ("n", "layers"), [(32, (5, 6, 7)), (24, (4, 5)), (30, (5, 6, 7)), (4, (0,)), (3, (0,)), (1, (0,)), (16, (2, 3))]
)
def test_layers_lie_as_deep_as_7_8_9_of_32_do(n, layers):
    # 6, 7 and 8 of 32 blocks lie below: of 24 that is 4.5, 5.25, 6, so 5, 5, 6; of 16 it is 3, 3.5, 4, so 3, 4, 4.
    assert layers_at_depth(n) == layers


def test_samples_are_what_the_target_says_greedily_with_its_end(nano):
    prompter, n = nano.prompter, 4
    (sample,) = samples_of(nano, QUESTIONS[:1], settings(forced_tokens=3, matched_tokens=1))
    ids = list(prompter.prompt(QUESTIONS[0]))
    said = []
    with torch.no_grad():
        while len(said) < n and (not said or said[-1] not in prompter.end_ids):
            said.append(nano.model(input_ids=torch.tensor([ids + said])).logits[0, -1].argmax().item())
    assert sample == GuideReply(QUESTIONS[0], tuple(said[:3]), tuple(said[3:]))
    assert sample.said == tuple(said)


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


@pytest.mark.parametrize("move", ["gcg", "delete", "insert", "swap", "all"])
def test_a_search_finds_a_prefix_that_loses_less_than_its_start_and_is_kept_as_text(nano, target, move):
    shares = {} if move == "all" else {f"{m}_share": float(m == move) for m in ("gcg", "delete", "insert", "swap")}
    asked = settings(**shares, **FULL)
    samples = samples_of(target, QUESTIONS, asked)
    keeper = Kept()
    found = find_prefix(nano, target, samples, asked, seed=3, keeper=keeper)
    assert found.ended == "steps"
    assert found.steps == 6 == len(keeper.state.losses)
    assert found.loss <= min(keeper.state.losses)
    assert 2 <= len(found.ids) <= 5
    # What is sent is what was searched: the text in its place is the tokens that were found.
    for sample in samples:
        place = around(nano.prompter, sample.question, sample.said, "prefix")
        sent = nano.prompter.prompt(deployed(sample.question, found.text, "prefix"))
        assert sent == place.before + found.ids + place.after
    assert found.spent["candidates"] <= 1 + 6 * 4
    assert found.spent["steps"] == 6


def test_a_prefix_grows_to_its_full_length_and_never_past_it(nano, target):
    asked = settings(steps=12)
    keeper = Kept()
    find_prefix(nano, target, samples_of(target, QUESTIONS, asked), asked, seed=1, keeper=keeper)
    lengths = [len(ids) for ids, _ in keeper.state.buffer]
    assert max(lengths) == 5
    assert min(lengths) >= 4


def test_a_prefix_that_was_changed_leaves_the_buffer_and_all_that_were_scored_go_in():
    losses = {(1,): 5.0, (2,): 7.0, (3,): 6.0, (4,): 9.0, (5,): 8.0, (6,): 7.5, (7,): 9.5}
    children = {(1,): [(2,), (3,)], (3,): [(4,), (5,)], (2,): [(6,), (7,)]}

    class Table:
        def leaders(self, prompts, n):
            order = sorted(range(len(prompts)), key=lambda i: losses[prompts[i]])
            return [Scored(i, losses[prompts[i]]) for i in order[:n]]

        def reached(self, prompt):
            return False

    parents = []

    def propose(prompt, step, rng):
        parents.append(prompt)
        return children[prompt]

    loop = SearchSettings(steps=3, buffer=2, stop_when_reached=False, reopens=False)
    found = search((1,), Table(), propose, loop, seed=0, spent=nothing_spent())
    # 5 gives 6 and 7; 6 gives 8 and 9, of which 8 stays beside 7; 7 gives 7.5 and 9.5, of which 7.5 stays beside 8.
    assert parents == [(1,), (3,), (2,)]
    assert found.buffer == (((6,), 7.5), ((5,), 8.0))
    assert (found.best, found.losses) == (((1,), 5.0), (6.0, 8.0, 7.5))


@pytest.mark.slow
def test_a_search_killed_at_any_step_goes_on_to_the_same_prefix(nano, target):
    asked = settings(**FULL)
    samples = samples_of(target, QUESTIONS, asked)
    unbroken = Kept()
    expected = find_prefix(nano, target, samples, asked, seed=2, keeper=unbroken)
    for step in range(1, 7):
        keeper = Kept(fails_at=step)
        with pytest.raises(RuntimeError, match="killed"):
            find_prefix(nano, target, samples, asked, seed=2, keeper=keeper)
        assert find_prefix(nano, target, samples, asked, seed=2, keeper=keeper) == expected
        assert keeper.state == unbroken.state


def test_the_target_itself_as_the_subject_is_read_once(nano):
    asked = settings()
    samples = samples_of(nano, QUESTIONS, asked)
    twin = LoadedModel(copy.deepcopy(nano.model), nano.tokenizer, "twin", "")
    assert twin.way == nano.way
    calls = []
    handle = nano.model.register_forward_hook(lambda *_: calls.append(1))
    alone = find_prefix(nano, nano, samples, asked, seed=3)
    n_alone = len(calls)
    other = find_prefix(nano, twin, samples, asked, seed=3)
    handle.remove()
    # A target is read in a model of its own; the subject's passes are as many, and nothing lies between equal weights.
    assert len(calls) - n_alone == n_alone
    assert alone.ids == other.ids
    assert alone.spent["tokens_read"] < other.spent["tokens_read"]


def test_what_cannot_be_searched_is_refused(nano, target):
    samples = samples_of(target, QUESTIONS, settings())
    other = LoadedModel(target.model, tiny_tokenizer(()), "other", "")
    wide = LoadedModel(copy.deepcopy(target.model), nano.tokenizer, "wide", "")
    wide.model.config.num_hidden_layers = 7
    for guide, changed, said in (
        (other, {}, "other has another tokeniser or chat template than nano"),
        (wide, {}, "nano has 2 layers of width 32 and wide 7 of 32"),
        (target, {"tokens": 60}, "takes? .* tokens and the model reads 64; lower tokens"),
        (target, {"initial": "the alpha of beta gamma mu zeta eta theta"}, "a prefix 5 at most; raise tokens"),
        (
            target,
            {"initial": "the \u00e9"},
            "the initial text has [0-9]+ tokens that may not stand in a searched prompt",
        ),
        (target, {"topk": 1000}, "topk is 1000"),
        (target, {"layers": (0, 2)}, r"layers \[0, 2\] of a model of 2"),
        (target, {f"{m}_share": 0.0 for m in ("gcg", "delete", "insert", "swap")}, "raise gcg_share"),
    ):
        with pytest.raises(InputError, match=said):
            find_prefix(nano, guide, samples, settings(**changed), seed=0)
    with pytest.raises(InputError, match="give at least one"):
        find_prefix(nano, target, [], settings(), seed=0)


def test_after_one_step_from_an_initial_text_only_what_came_of_it_is_in_the_buffer(nano, target):
    asked = settings(initial="the alpha", steps=1, first_tokens=1, tokens=2, insert_share=0.0, delete_share=0.0)
    keeper = Kept()
    find_prefix(nano, target, samples_of(target, QUESTIONS, asked), asked, seed=0, keeper=keeper)
    place = around(nano.prompter, QUESTIONS[0], (40,), "prefix")
    start = nano.prompter.prompt(deployed(QUESTIONS[0], "the alpha", "prefix"))[len(place.before) : -len(place.after)]
    found = [ids for ids, _ in keeper.state.buffer]
    assert len(found) == 3
    # Each is the start with one token changed.
    assert all(len(ids) == len(start) and sum(a != b for a, b in zip(ids, start, strict=True)) == 1 for ids in found)
