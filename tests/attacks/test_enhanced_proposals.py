"""What a step proposes: the move that its draw and the prompt's length ask for, kept as text."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from vestige.attacks.enhanced import EnhancedSettings
from vestige.attacks.enhanced_moves import ByMoves
from vestige.attacks.enhanced_objective import PrefixObjective
from vestige.attacks.placement import Vocabulary, admissible, around, kept_in, places_of
from vestige.core.errors import InputError
from vestige.models.streams import Streams
from vestige.models.variants import Around


@pytest.fixture(scope="module")
def texts(nano):
    return (around(nano.prompter, "What is the alpha of beta?", (40, 41), "prefix"),)


@pytest.fixture(scope="module")
def prompt(nano, texts):
    ids = tuple(nano.tokenizer("the alpha of mu", add_special_tokens=False)["input_ids"])
    assert kept_in(nano.tokenizer, [ids], places_of(nano.tokenizer, texts)) == [ids]
    return ids


def proposer(nano, texts, first=1, last=20, vocabulary=None, **shares):
    moves = dict.fromkeys(("gcg", "delete", "insert", "swap"), 0.0) | shares
    settings = EnhancedSettings(
        **{f"{move}_share": share for move, share in moves.items()},
        **{"first_tokens": first, "tokens": last, "ramp_steps": 10**9, "steps": 10**10},
        **{"candidates": 6, "topk": 20, "distance": 0.0},
    )
    objective = PrefixObjective(Streams(nano.model, nano.way, texts, ()), None, (2,), (), settings, Counter())
    vocabulary = vocabulary or admissible(nano.tokenizer, 400)
    return ByMoves(objective, nano, vocabulary, places_of(nano.tokenizer, texts), settings)


@pytest.mark.parametrize(("move", "longer"), [("gcg", 0), ("swap", 0), ("insert", 1), ("delete", -1)])
def test_every_proposal_is_one_change_of_its_kind_and_stays_the_same_tokens(nano, texts, prompt, move, longer):
    propose = proposer(nano, texts, **{move: 1.0})
    found = propose(prompt, 0, np.random.default_rng(0))
    assert found
    assert len(set(found)) == len(found) <= 6
    assert all(len(p) == len(prompt) + longer for p in found)
    assert kept_in(nano.tokenizer, found, propose.places) == found
    if not longer:
        assert all(sum(a != b for a, b in zip(p, prompt, strict=True)) == 1 for p in found)
    assert propose.objective.spent["gradients"] == (move == "gcg")


def test_tokens_of_the_gradients_choice_are_the_best_of_their_place(nano, texts, prompt):
    propose = proposer(nano, texts, gcg=1.0)
    ids = list(propose.vocabulary.ids)
    best = (-propose.objective.gradient(prompt))[:, ids].topk(20).indices
    for changed in propose(prompt, 0, np.random.default_rng(1)):
        (at,) = [n for n, (a, b) in enumerate(zip(changed, prompt, strict=True)) if a != b]
        assert changed[at] in torch.tensor(ids)[best[at]].tolist()


def test_a_prefix_that_is_too_short_is_made_longer_whatever_the_shares(nano, texts, prompt):
    propose = proposer(nano, texts, len(prompt) + 2, gcg=1.0)
    assert {len(p) for p in propose(prompt, 0, np.random.default_rng(0))} == {len(prompt) + 2}


def test_where_a_move_yields_nothing_another_stands_in(nano, texts, prompt):
    # One token cannot be deleted, and nothing else is asked for.
    propose = proposer(nano, texts, delete=1.0)
    found = propose(prompt[:1], 0, np.random.default_rng(0))
    assert {len(p) for p in found} == {1}


def test_a_lone_token_that_nothing_stands_before_is_not_swapped_by_what_a_model_says(nano, texts, prompt):
    propose = proposer(nano, texts, swap=1.0)
    alone = (Around((), texts[0].after, texts[0].target),)
    objective = dataclasses.replace(propose.objective, subject=Streams(nano.model, nano.way, alone, ()))
    propose = dataclasses.replace(propose, objective=objective)
    found = propose(prompt[:1], 0, np.random.default_rng(0))
    # The gradient stands in.
    assert found
    assert objective.spent["gradients"] == 1
    longer = propose(prompt[:2], 0, np.random.default_rng(0))
    assert {p[0] for p in longer} == {prompt[0]}


def test_where_nothing_else_can_be_proposed_it_is_said(nano, texts, prompt):
    # The vocabulary is the prefix's one token, so every change leaves the prefix that it was.
    lone = prompt[:1]
    propose = proposer(nano, texts, 1, 1, Vocabulary(lone * 20), gcg=1.0)
    with pytest.raises(InputError, match="no change of the prefix"):
        propose(lone, 0, np.random.default_rng(0))
