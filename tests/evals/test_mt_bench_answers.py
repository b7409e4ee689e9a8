"""MT-bench's answers: two turns, each category at its temperature, each conversation for itself."""

from dataclasses import replace

import pytest
from tests.probed import ITEMS, saying

from vestige.data.bench_rows import Conversation
from vestige.evals.mt_bench import TEMPERATURES, MtBenchSettings, answer, conversation_ids, scored, turns_of
from vestige.judges.base import Judgement
from vestige.models.load import LoadedModel
from vestige.models.prompts import Prompter
from vestige.models.tiny import tiny_tokenizer

ASKED = tuple(
    Conversation(str(n), category, (ITEMS[n % 6].question, ITEMS[(n + 1) % 6].question))
    for n, category in enumerate(["writing", "math", "stem", "unheard of"])
)
SETTINGS = MtBenchSettings(max_tokens=6)


@pytest.fixture(scope="module")
def subject():
    tokenizer = tiny_tokenizer(ITEMS)
    words = [i for token, i in tokenizer.get_vocab().items() if token.startswith("\u0120") and len(token) > 4]
    return LoadedModel(saying(sorted(words)).eval(), tokenizer, "nano", "")


@pytest.mark.slow
def test_an_answer_depends_on_its_conversation_and_the_seed_alone(subject):
    together = answer(subject, ASKED, SETTINGS)
    for n, conversation in enumerate(ASKED):
        assert answer(subject, [conversation], SETTINGS) == [together[n]]
    assert all(len(text.split()) > 1 for one in together for text in one.answers)
    other = answer(subject, ASKED, SETTINGS.model_copy(update={"seed": 1}))
    # Of the greedy category another seed changes nothing.
    assert [a == b for a, b in zip(together, other, strict=True)] == [False, True, False, False]


def test_temperatures_are_those_of_the_released_code():
    assert sorted(TEMPERATURES.items()) == [
        ("coding", 0.0),
        ("extraction", 0.0),
        ("humanities", 0.1),
        ("math", 0.0),
        ("reasoning", 0.0),
        ("roleplay", 0.7),
        ("stem", 0.1),
        ("writing", 0.7),
    ]


def test_the_second_turn_is_asked_after_the_first_answer(subject, monkeypatch):
    asked = []

    def spy(prompter, said):
        asked.append(tuple(said))
        return conversation_ids(prompter, said)

    monkeypatch.setattr("vestige.evals.mt_bench.conversation_ids", spy)
    (found,) = answer(subject, ASKED[:1], SETTINGS)
    first, second = ASKED[0].turns
    assert asked == [(first,), (first, found.answers[0], second)]
    single = Prompter(subject.tokenizer, 512).prompt(first)
    assert conversation_ids(subject.prompter, [first]) == single


def test_what_the_model_cannot_read_has_no_answer_and_no_score(subject):
    long = replace(ASKED[1], turns=("word " * 5000, "Why?"))
    (found,) = answer(subject, [long], SETTINGS)
    assert found.answers == (None, None)
    assert turns_of(long, found, None) == [None, None]


def test_ratings_are_summed_over_all_over_turns_and_over_categories(subject):
    answered = answer(subject, ASKED[:2], SETTINGS)
    judged = [[Judgement(8.0), Judgement(4.0)], [Judgement(2.0), Judgement(None, failure="timeout")]]
    run = scored(ASKED[:2], answered, judged)
    means = {name: [item.values[name] for item in run.items if name in item.values] for name in run.units}
    assert means == {
        "score": [8, 4, 2],
        "score/turn 1": [8, 2],
        "score/turn 2": [4],
        "score/writing": [8, 4],
        "score/math": [2],
    }
    assert run.failures == {"timeout": 1}
    assert [item.cluster for item in run.items] == ["0", "0", "1", "1"]
    assert run.bounds["score"] == (1.0, 10.0)
