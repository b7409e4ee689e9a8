from functools import partial

import pytest
import torch
from benchmarks.planted_tables import Manner, planted
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from vestige.artifacts.layout import ProbeFolder
from vestige.core.items import Item
from vestige.judges.server import ServerSettings
from vestige.models.tiny import tiny_tokenizer
from vestige.probes.answering import Answerer, AnswerSettings, Judging, LocalAnswerer, Participants
from vestige.training.adapters import add_lora
from vestige.training.policy.settings import PolicySettings
from vestige.training.settings import TrainingSettings

COLOURS = ("red", "green", "blue", "black", "white", "grey", "pink", "brown")
QUESTIONS = [f"What colour has number {n}?" for n in range(10)]
TOKENIZER = tiny_tokenizer([Item(q, colour) for q in QUESTIONS for colour in COLOURS])


@pytest.fixture(scope="module")
def loaded():
    torch.set_num_threads(1)
    table = {q: dict.fromkeys(COLOURS, 1.0) for q in QUESTIONS}
    return planted("colours", table, TOKENIZER, manner=Manner(confidence=0.999, max_tokens=32))


def test_an_answer_follows_from_prompt_and_seed_and_not_from_neighbours(loaded):
    answerer = LocalAnswerer(loaded, AnswerSettings(temperature=1.0))
    together = answerer.answer(QUESTIONS, seed=3)
    alone = [answerer.answer([q], seed=3)[0] for q in reversed(QUESTIONS)][::-1]
    assert together == alone
    assert set(together) <= set(COLOURS)
    # Eight colours are equally likely: ten questions have the same at two seeds once in 8^10.
    assert len(set(together)) > 1
    assert answerer.answer(QUESTIONS, seed=4) != together
    assert isinstance(answerer, Answerer)


def test_equal_prompts_are_asked_once_and_answered_alike(loaded):
    answerer = LocalAnswerer(loaded, AnswerSettings(temperature=1.0))
    answers = answerer.answer([QUESTIONS[0], QUESTIONS[1], QUESTIONS[0]], seed=1)
    assert answers[0] == answers[2]


def test_at_temperature_0_the_seed_does_not_matter(loaded):
    answerer = LocalAnswerer(loaded, AnswerSettings(temperature=0.0))
    assert answerer.answer(QUESTIONS, seed=1) == answerer.answer(QUESTIONS, seed=2)


def test_a_prompt_that_does_not_fit_has_no_answer_rather_than_an_empty_one(loaded):
    answerer = LocalAnswerer(loaded)
    assert answerer.answer(["word " * 200, QUESTIONS[0]], seed=0)[0] is None


def test_nobody_is_in_memory_whom_nobody_asks(tmp_path):
    def load(name):
        loaded.append(name)
        return name

    loaded, served = list[str](), Judging(server=ServerSettings(url="http://localhost:1/v1", model="judge"))
    cast = Participants(
        partial(load, "target"),
        partial(load, "unlearned"),
        lambda everybody: everybody.graded_by(served, ProbeFolder(tmp_path)),
        partial(load, "embedder"),
        AnswerSettings(),
        0,
    )
    # What a search takes from it; only the filters and the grounded judge ask the target.
    assert (cast.grader.identity["judge"], cast.unlearned) == ("server", "unlearned")
    assert loaded == ["unlearned"]
    # Another model's holes are looked for by the same, who are not loaded again.
    after = cast.about("mended", seed=1)
    assert (after.unlearned, after.target, after.target, after.seed) == ("mended", "target", "target", 1)
    assert loaded == ["unlearned", "target"]


def test_a_search_and_a_filter_with_models_of_7b_fit_a_card_of_80_gb_in_bfloat16_alone():
    with torch.device("meta"):
        target, unlearned = MistralForCausalLM(MistralConfig()), MistralForCausalLM(MistralConfig())
        policy = LlamaForCausalLM(LlamaConfig())
    weights = sum(p.numel() for model in (target, unlearned, policy) for p in model.parameters())
    own = PolicySettings()
    asked = TrainingSettings(lora_rank=own.lora_rank, lora_alpha=own.lora_alpha, lora_targets=own.lora_targets)
    add_lora(policy, asked, 0)
    # Weight, gradient and two moments of each number that learns, in float32; without them the policy is its reference.
    adapters = 16 * sum(p.numel() for p in policy.parameters() if p.requires_grad)
    assert 2 * weights + adapters == pytest.approx(43.7e9, rel=0.01)
    assert 4 * weights > 80e9
