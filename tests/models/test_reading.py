"""Readings: equal to the plain way but for rounding, alone, together and beside anything else, for every family."""

import random

import pytest
import torch
from families import FAMILIES, small_model
from tests.near import near
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DynamicCache

from vestige.models.keys_values import cache_arguments
from vestige.models.load import LoadedModel
from vestige.models.reading import Asking, Prompted, read, way_of

pytestmark = pytest.mark.portable

# With a window that is shorter than most prompts.
KINDS = [(name, {}) for name in FAMILIES] + [("mistral", {"sliding_window": 6}), ("gemma2", {"sliding_window": 6})]
ASKING = Asking((2,), 64)


def prompted(seed: int = 0, n: int = 12) -> list[Prompted]:
    """Prompts of 1 to 40 tokens, around the widths' steps, with texts of 1 to 17, some twice; some want a reply."""
    draw = random.Random(seed)

    def tokens(lengths: list[int]) -> tuple[int, ...]:
        return tuple(draw.randrange(3, 67) for _ in range(draw.choice(lengths)))

    found = []
    for number in range(n):
        texts = [tokens([1, 2, 8, 9, 10, 17]) for _ in range(number % 4)]
        found.append(Prompted(tokens([1, 2, 7, 8, 9, 15, 16, 40]), (*texts, *texts[:1]), (0, 6, 12)[number % 3]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("family", "settings"), KINDS)
def test_a_reading_is_what_the_plain_way_says(family, settings):
    model, wanted = small_model(family, **settings), prompted()
    assert way_of(model) == "shared"
    shared, plain = read(model, wanted, ASKING, layout="shared"), read(model, wanted, ASKING, layout="plain")
    for one, ours, theirs in zip(wanted, shared, plain, strict=True):
        assert len(ours.texts) == len(one.texts)
        assert (ours.reply is None) == (one.most_new == 0)
        for text, a, b in zip(one.texts, ours.texts, theirs.texts, strict=True):
            assert len(a.logp) == len(a.ranks) == len(text)
            assert a.logp == pytest.approx(b.logp, abs=1e-4)
            assert a.ranks == b.ranks
        if ours.reply is not None and theirs.reply is not None:
            assert (ours.reply.ids, ours.reply.finish) == (theirs.reply.ids, theirs.reply.finish)
            assert ours.reply.margin == pytest.approx(theirs.reply.margin, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "settings"), [KINDS[0], *KINDS[-3:]])
def test_a_reading_depends_on_its_prompt_and_text_but_for_rounding(family, settings):
    model, wanted = small_model(family, **settings), prompted()
    together = read(model, wanted, ASKING, layout="shared")
    assert read(model, wanted, ASKING, layout="shared") == together, "the same call gives the same bytes"
    assert near([read(model, [one], ASKING, layout="shared")[0] for one in wanted], together)
    assert near(read(model, wanted[::-1], ASKING, layout="shared")[::-1], together)
    assert near(read(model, wanted, ASKING, layout="shared", token_budget=100), together)
    # Beside other texts and replies of the same prompts.
    more = [Prompted(one.prompt, ((5, 6, 7), *one.texts[:1]), 9) for one in wanted]
    assert near(read(model, [*more, *wanted], ASKING, layout="shared")[len(more) :], together)


def test_a_text_is_scored_token_by_token_as_one_pass_says():
    model = small_model("llama")
    prompt, text = (3, 9, 4), (8, 20, 2)
    (found,) = read(model, [Prompted(prompt, (text,))], ASKING, layout="shared")
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *text]])).logits[0].double()
    # The token at place 3 is what the logits at place 2 speak of.
    expected = [logits[2 + k].log_softmax(-1)[token].item() for k, token in enumerate(text)]
    assert found.texts[0].logp == pytest.approx(expected, abs=1e-5)
    ranks = [logits[2 + k].argsort(descending=True).tolist().index(token) + 1 for k, token in enumerate(text)]
    assert list(found.texts[0].ranks) == ranks


def test_a_reply_ends_where_the_context_does():
    model = small_model("llama")
    asking = Asking((), 12)
    replies = [r.replied for r in read(model, [Prompted((3,) * n, (), 8) for n in (2, 6, 11)], asking, layout="shared")]
    # 12 - 2 = 10 places for at most 8 tokens, then 6, then 1.
    assert [(len(r.ids), r.finish) for r in replies] == [(8, "length"), (6, "length"), (1, "length")]


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_keys_and_values_go_in_under_the_name_that_the_model_has_for_them(name):
    model = type("Named", (torch.nn.Module,), {"forward": eval(f"lambda self, input_ids, {name}=None: None")})()
    stored = DynamicCache()
    assert cache_arguments(model, stored) == {name: stored, "use_cache": True}
    adapted = torch.nn.Module()
    adapted.get_base_model = lambda: model
    assert cache_arguments(adapted, None) == {name: None, "use_cache": False}


def forgetful(model):
    """The model's forward pass as if it kept nothing of what went before, but for the first pass."""
    forward = model.forward

    def forgets(**given):
        (name,) = given.keys() & {"cache", "past_key_values"} or {""}
        if name and given[name] is not None and given[name].get_seq_length():
            given[name], given["attention_mask"] = None, None
            given["use_cache"] = False
        return forward(**given)

    return forgets


def test_a_model_that_answers_otherwise_from_its_cache_is_read_the_plain_way(monkeypatch):
    model = small_model("llama")
    assert way_of(model) == "shared"
    monkeypatch.setattr(model, "forward", forgetful(model))
    assert way_of(model) == "plain"
    assert LoadedModel(model, None, "x", "").way == "plain"


def test_a_model_that_is_no_longer_finite_is_read_as_any_other():
    model = small_model("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(float("nan"))
    assert way_of(model) == "shared"


@pytest.mark.slow
def test_a_model_that_keeps_no_keys_and_values_is_read_the_plain_way():
    config = CONFIG_MAPPING["rwkv"](vocab_size=67, hidden_size=32, num_hidden_layers=2, context_length=64)
    assert way_of(AutoModelForCausalLM.from_config(config).eval()) == "plain"


def test_a_model_that_turns_a_long_text_otherwise_is_read_the_plain_way():
    # The probe is shorter than the 32 tokens from which all positions are turned otherwise.
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "factor": 2.0, "rope_theta": 10000.0}
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 32, **factors}
    assert way_of(small_model("llama", rope_parameters=rope)) == "plain"


def test_large_logits_in_bfloat16_are_read_the_shared_way_unless_the_cache_is_wrong(monkeypatch):
    model = small_model("llama").bfloat16()
    with torch.no_grad():
        model.lm_head.weight.mul_(120)
    ids = torch.tensor([[3, 10, 17, 24, 31, 38, 45, 52]])
    # A logit between 16 and 32 is rounded to 1/8.
    assert 16 < model(ids).logits.abs().max() < 64
    assert way_of(model) == "shared"
    monkeypatch.setattr(model, "forward", forgetful(model))
    assert way_of(model) == "plain"
