"""Options are read as lm-evaluation-harness reads them: its algorithm written anew always, itself where installed."""

from importlib.util import find_spec

import pytest
from benchmarks.harness import by_its_algorithm, by_lm_eval, compared, requests_of

from vestige.core.items import Item
from vestige.data.mcq import Choice
from vestige.evals import choices
from vestige.models.load import LoadedModel
from vestige.models.tiny import tiny_model, tiny_tokenizer

PLACES = ["Rome", "New York State", "the small town of Ulm", "Berlin", "Lagos in the south"]
ASKED = tuple(
    Choice(f"i{n}", f"Where {'exactly ' * (n % 5)}does contract {n} hold?", tuple(PLACES[n % 2 :][:4]), 3 * n // 2 % 4)
    for n in range(20)
)
needs_lm_eval = pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm_eval is not installed")


@pytest.fixture(scope="module")
def subject() -> LoadedModel:
    texts = [Item(c.question, " A B C D Answer: ".join(c.options)) for c in ASKED]
    return LoadedModel(tiny_model(3).eval(), tiny_tokenizer(texts), "builtin:tiny", "")


@pytest.mark.parametrize("form", ["choose", "text"])
@pytest.mark.parametrize("way", [by_its_algorithm, pytest.param(by_lm_eval, marks=needs_lm_eval)])
def test_log_likelihoods_and_accuracy_are_the_harnesss(subject, form, way):
    found = compared(subject, ASKED, form, way)
    assert found["nats_apart"] <= 1e-4
    assert found["ours"] == found["theirs"]
    assert found["n"] == len(ASKED)
    # Not all right and not all wrong, or the accuracies would be equal whatever was read.
    assert 0 < found["ours"] < 1


def test_a_prompt_that_differs_by_a_word_is_noticed(subject, monkeypatch):
    monkeypatch.setattr(choices, "plain_question", lambda question: f"Question: Well, {question}\nAnswer:")
    assert compared(subject, ASKED, "text", by_its_algorithm)["nats_apart"] > 1e-4


def test_contexts_are_the_plain_prompts_of_the_benchmarks():
    question = Choice("i", "Which one?", ("red", "blue"), 0)
    assert requests_of([question], "text") == [
        [("Question: Which one?\nAnswer:", " red"), ("Question: Which one?\nAnswer:", " blue")]
    ]
    lettered = "Which one?\nA. red\nB. blue\nAnswer:"
    assert requests_of([question], "choose") == [[(lettered, " A"), (lettered, " B")]]
