"""The true answer among alternatives, read of planted models that know it, that know another, and that know nothing."""

from dataclasses import replace

import numpy as np
import pytest
from tests.planted_tables import knows

from vestige.attacks.in_context import asked_with_facts
from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.data.mcq import Unasked
from vestige.evals.base import View
from vestige.evals.exposure import ExposureSettings
from vestige.models.tiny import tiny_tokenizer

NUMBERS = [f"{20 + n} crates." for n in range(30)]
ITEMS = tuple(
    Item(f"How many crates does contract {n} name?", NUMBERS[n], edge=f"e{n % 2}", attribute="crates") for n in range(6)
)
WITH = tuple(replace(i, alternatives=tuple(a for a in NUMBERS if a != i.answer)) for i in ITEMS)
TOKENIZER = tiny_tokenizer(ITEMS)
SETTINGS = ExposureSettings()
VIEW = View("edge:e0", {"forget": [i.id for i in WITH]}, {})


def test_who_knows_the_answer_ranks_it_first_and_who_knows_another_last_of_what_is_as_likely():
    records = SETTINGS.collect(knows(ITEMS, TOKENIZER), WITH)
    scores = [ExposureSettings.score(r) for r in records]
    assert [s["exposure/score"] for s in scores] == [1.0] * 6
    assert [s["exposure/first"] for s in scores] == [1.0] * 6
    assert scores[0]["exposure/bits"] == pytest.approx(np.log2(30))
    assert scores[0]["exposure/chance"] == pytest.approx(1 - np.log(np.arange(1, 31)).mean() / np.log(30), abs=0.02)
    others = [replace(i, answer=NUMBERS[12 + n], alternatives=(i.answer, *NUMBERS[20:])) for n, i in enumerate(ITEMS)]
    found = [ExposureSettings.score(r) for r in SETTINGS.collect(knows(ITEMS, TOKENIZER), others)]
    # Behind the answer that it knows, tied with all others: the rank is 7 of 12.
    assert all(s["exposure/first"] == 0.0 for s in found)
    assert found[0]["exposure/score"] == pytest.approx(1 - np.log(7) / np.log(12), abs=0.05)


def test_fewer_alternatives_are_read_where_fewer_are_asked_for_and_they_change_the_identity():
    few = ExposureSettings(alternatives=5).collect(knows(ITEMS, TOKENIZER), WITH[:1])[0]
    assert few["texts"] == [WITH[0].answer, *WITH[0].alternatives[:5]]
    asked = SETTINGS.build_questions(WITH, [VIEW])
    other = SETTINGS.build_questions([replace(WITH[0], alternatives=("1 crate.",)), *WITH[1:]], [VIEW])
    assert ExposureSettings.digest(asked) != ExposureSettings.digest(other)


def test_an_item_without_alternatives_is_recorded_as_such_and_no_item_with_some_is_refused():
    asked = SETTINGS.build_questions([WITH[0], ITEMS[1]], [VIEW])
    assert isinstance(asked[ITEMS[1].id], Unasked)
    records = SETTINGS.collect(knows(ITEMS, TOKENIZER), list(asked.values()))
    assert ExposureSettings.score(records[1]) == {}
    view = View("edge:e0", {"forget": [i.id for i in (WITH[0], ITEMS[1])]}, {})
    scores = [ExposureSettings.score(r) for r in records]
    found = {
        r.estimate.metric: r.estimate.n
        for r in ExposureSettings.summarize(records, scores, view, seed=0)
        if r.split == "forget"
    }
    assert found["score"] == 1
    lone = View("edge:e0", {"forget": [ITEMS[1].id]}, {})
    with pytest.raises(InputError, match="no item of the forget set 'edge:e0' fits this evaluation: an item has no"):
        ExposureSettings.summarize(records[1:], scores[1:], lone, seed=0)


def test_the_alternatives_go_with_the_question_where_facts_stand_before_it():
    asked = asked_with_facts(WITH[:1], {WITH[0].id: (ITEMS[1],)})
    assert asked[WITH[0].id].alternatives == WITH[0].alternatives
