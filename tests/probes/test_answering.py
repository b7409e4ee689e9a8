"""How models answer a probe, and which names are the forget set's own."""

from functools import partial

import pytest
import torch
from tests.judges.faulty_server import completion, serving
from tests.planted_tables import Manner, planted
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.judges.spec import judge_spec
from vestige.models.load import ModelSettings, load
from vestige.models.tiny import tiny_tokenizer
from vestige.probes.answering import Answerer, AnswerSettings, KeptAnswers, LocalAnswerer, Participants
from vestige.probes.questions import forgotten_names, names_one
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


def test_at_temperature_0_the_seed_does_not_matter(loaded):
    answerer = LocalAnswerer(loaded, AnswerSettings(temperature=0.0))
    assert answerer.answer(QUESTIONS, seed=1) == answerer.answer(QUESTIONS, seed=2)


def test_a_prompt_that_does_not_fit_has_no_answer_rather_than_an_empty_one(loaded):
    answerer = LocalAnswerer(loaded)
    assert answerer.answer(["word " * 200, QUESTIONS[0]], seed=0)[0] is None


def served(log, folder, **settings):
    """The answers of a served model, kept in `folder`."""
    query = {"silent": "yes", "concurrency": 2, "first_wait_seconds": 0, **settings}
    words = "&".join(f"{name}={value}" for name, value in query.items())
    model = load(ModelSettings(model=f"{log.url}?{words}#nano"))
    return KeptAnswers(LocalAnswerer(model, AnswerSettings(temperature=0.0, max_tokens=4)), folder, {})


def questions(log):
    """What a server was asked of the questions here, in order."""
    return [q for body in log.bodies if (q := body["messages"][-1]["content"]) in QUESTIONS]


@pytest.mark.parametrize("wrong", ["400", "413", "422", "filtered"])
def test_a_prompt_that_a_server_refuses_has_no_answer_and_costs_no_other_its_own(tmp_path, wrong):
    def refused(body):
        return body["messages"][-1]["content"] == QUESTIONS[3]

    def trouble(call, body):
        return wrong if wrong != "filtered" and refused(body) else ""

    def raw(body):
        return completion("red", finish_reason="content_filter" if wrong == "filtered" and refused(body) else "stop")

    with serving(trouble=trouble, raw=raw) as log:
        first = served(log, tmp_path).answer(QUESTIONS, seed=1)
        assert [n for n, answer in enumerate(first) if answer is None] == [3]
        assert sorted(questions(log)) == QUESTIONS
        assert served(log, tmp_path).answer(QUESTIONS, seed=1) == first
        # Only that one is asked for again.
        assert questions(log)[len(QUESTIONS) :] == [QUESTIONS[3]]


def test_a_server_that_refuses_plain_questions_too_is_refused(tmp_path):
    with serving(trouble=lambda call, body: "400" if body["max_tokens"] == 4 else "") as log:
        asked = served(log, tmp_path)
        with pytest.raises(InputError, match="rejects a request"):
            asked.answer(QUESTIONS, seed=1)


def test_what_came_before_a_bound_or_a_fault_is_kept_and_paid_for_once(tmp_path):
    for bound, trouble in ((8, lambda call, body: ""), (100, lambda call, body: "401" if call % 10 == 9 else "")):
        folder, runs, found = tmp_path / str(bound), 0, None
        with serving(lambda body: "red", trouble) as log:
            while found is None:
                runs += 1
                try:
                    found = served(log, folder, most_requests=bound).answer(QUESTIONS, seed=1)
                except InputError:
                    assert runs < 10
            answered = [body for body in log.paid if any(q in body for q in QUESTIONS)]
        assert None not in found
        assert runs > 1
        assert len(answered) == len(QUESTIONS)


def test_nobody_is_in_memory_whom_nobody_asks(tmp_path):
    def load(name):
        loaded.append(name)
        return name

    loaded, served = list[str](), judge_spec("http://localhost:1/v1#judge")
    cast = Participants(
        partial(load, "target"),
        partial(load, "unlearned"),
        lambda everybody: everybody.graded_by(served, tmp_path),
        partial(load, "embedder"),
        AnswerSettings(),
        0,
    )
    # What a search takes from it; only the filters and the grounded judge ask the target.
    assert (cast.grader.identity["judge"], cast.unlearned) == ("server", "unlearned")
    assert loaded == ["unlearned"]


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


FORGOTTEN = [
    "Where was Basil Al-Kuwaiti born? Basil Al-Kuwaiti was born in Kuwait City.",
    "What did Basil write? He wrote The Promise, of which Americans say much.",
    "Who is Basil's father? The father of Basil Al-Kuwaiti is a florist.",
    "What award did he win? It is the Prix Goncourt, which Americans know.",
]
RETAINED = ["What do Americans read? Many Americans read novels.", "Who is Jaime? Jaime is a painter."]


def test_a_name_of_half_the_texts_and_of_no_retained_one_is_the_forget_sets():
    # Basil stands in 3 of 4 texts and Al-Kuwaiti in 2; Kuwait, Prix and Goncourt in 1, Americans in a retained one too.
    assert forgotten_names(FORGOTTEN, RETAINED, share=0.5) == {"basil", "al-kuwaiti"}
    assert forgotten_names(FORGOTTEN, RETAINED, share=0.75) == {"basil"}
    # However small the share, a name of one text may be anything.
    assert forgotten_names(FORGOTTEN, RETAINED, share=0.0) == {"basil", "al-kuwaiti"}


def test_without_anything_retained_no_name_is_only_the_forget_sets():
    assert forgotten_names(FORGOTTEN, [], share=0.5) == frozenset()


def test_a_word_that_is_also_written_small_is_no_name():
    texts = ["They met Rose there.", "We saw Rose and a rose."]
    assert forgotten_names(texts, RETAINED, share=0.5) == frozenset()
    assert forgotten_names(texts[:1] * 2, RETAINED, share=0.5) == {"rose"}


def test_a_prompt_has_a_name_in_any_writing_and_not_inside_another_word():
    names = frozenset({"basil", "al-kuwaiti"})
    assert names_one("Can you tell me about the Al-Kuwaiti family?", names)
    assert names_one("what did basil's father do", names)
    assert not names_one("What is Basilica architecture, in Kuwait City?", names)
