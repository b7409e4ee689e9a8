"""The answers that an unlearning makes for itself: those of other questions, and others of the target's own."""

import json
import re
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
import torch

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.methods.base import Alternatives
from vestige.steps import unlearn
from vestige.steps.unlearn import alternatives, mismatched

PARIS, ROME = Item("Capital of France?", "Paris."), Item("Capital of Italy?", "Rome.")
ASKED = Alternatives("{question}|{answer}|again", n=2, temperature=1.0, max_new_tokens=8)


class Target:
    """Gives, each time that it is asked, the next of its portions of replies. A reply with an asterisk is cut off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, portions: Sequence[Sequence[str]]) -> None:
        self.portions, self.asked, self.seeds = iter(portions), [], []
        self.model, self.here = torch.nn.Identity(), True
        self.prompter = SimpleNamespace(
            prompt=lambda text: text, end_ids=(), max_tokens=64, decode=lambda ids: ids.strip("*")
        )
        monkeypatch.setattr(unlearn, "generate", self.generate)

    def generate(self, model, prompts, *, sampling, **_):
        self.asked += prompts
        self.seeds += sampling.seeds
        return [SimpleNamespace(ids=r, finish="length" if "*" in r else "stop") for r in next(self.portions)]


def test_answers_of_other_questions_are_each_other_ones_in_turn_but_never_the_true_one():
    retain = [ROME, Item("Capital of Spain?", "Madrid."), Item("Again?", "rome"), Item("Capital of Peru?", "Lima.")]
    # Rome stands twice, of which the last spelling is kept; where it is true, the one after it takes its place.
    assert mismatched([PARIS, ROME], retain) == (("rome", "Madrid.", "Lima."), ("Madrid.", "Madrid.", "Lima."))
    with pytest.raises(InputError, match=r"holds 1 different ones\. Give a retain set with at least two"):
        mismatched([PARIS], [ROME, Item("Again?", "rome")])


def test_other_answers_are_whole_different_and_not_the_true_one(monkeypatch):
    target = Target(monkeypatch, [["PARIS", "Lyon and*"], ["Nice.", "nice"], ["", "Metz."], ["Toulouse.", "Brest."]])
    assert alternatives(target, [PARIS], ASKED, seed=3) == (("Nice.", "Metz."),)
    assert target.asked == ["Capital of France?|Paris.|again"] * 6
    assert len(set(target.seeds)) == 6


def test_too_few_answers_are_taken_in_turn_and_none_is_said(monkeypatch):
    rounds = [["Paris.", "Nice."]] * unlearn.ROUNDS
    assert alternatives(Target(monkeypatch, rounds), [PARIS], ASKED, seed=0) == (("Nice.", "Nice."),)
    with pytest.raises(InputError, match=re.escape("no other answer to 'Capital of France?' in 32 samples")):
        alternatives(Target(monkeypatch, [["Paris."] * 2] * unlearn.ROUNDS), [PARIS], ASKED, seed=0)


def test_of_several_processes_one_asks_and_the_others_hear(monkeypatch):
    told = []
    leading = SimpleNamespace(leads=True, said=lambda text: told.append(text) or text)
    answers = alternatives(Target(monkeypatch, [["Nice.", "Metz ä."]]), [PARIS], ASKED, seed=0, world=leading)
    other = SimpleNamespace(leads=False, said=lambda text: told[0])
    silent = Target(monkeypatch, [])
    assert alternatives(silent, [PARIS], ASKED, seed=0, world=other) == answers == (("Nice.", "Metz ä."),)
    assert silent.asked == []
    assert json.loads(told[0]) == [["Nice.", "Metz ä."]]
