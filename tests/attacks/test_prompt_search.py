"""The loop: traces by hand, and searches that are killed at any place and go on to the same end."""

import dataclasses
import math
from types import MappingProxyType

import numpy as np
import pytest

from vestige.attacks.gcg import SearchSettings, nothing_spent, search
from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed, generator
from vestige.models.variants import Scored

LOSSES = MappingProxyType({0: 5.0, 1: 4.0, 2: 6.0, 3: 1.0, 4: 2.0, 5: 3.0})


@dataclasses.dataclass
class Table:
    """The loss of a prompt of one token is in a table, and those in `wanted` reach it."""

    losses: dict = dataclasses.field(default_factory=lambda: LOSSES)
    wanted: tuple = ()

    def leaders(self, prompts, n):
        scored = [Scored(i, self.losses[p[0]]) for i, p in enumerate(prompts)]
        return sorted(scored, key=lambda s: s.loss)[:n]

    def reached(self, prompt):
        return prompt[0] in self.wanted


@dataclasses.dataclass
class Script:
    """Proposes what is written, and notes the prompts that it was given."""

    lines: list
    given: list = dataclasses.field(default_factory=list)

    def __call__(self, prompt, step, rng):
        self.given.append(prompt[0])
        return [(i,) for i in self.lines[step]]


class Memory:
    def __init__(self):
        self.states = []

    def load(self):
        return self.states[-1] if self.states else None

    def save(self, state):
        self.states.append(state)


def found(lines, objective=None, *, start=0, keeper=None, **settings):
    script = Script(lines)
    state = search(
        (start,),
        objective or Table(),
        script,
        SearchSettings(**{"steps": len(lines), **settings}),
        seed=0,
        spent=nothing_spent(),
        keeper=keeper,
    )
    return state, script.given


def test_without_a_buffer_the_winner_takes_over_even_if_it_is_worse_and_the_best_is_kept():
    # From 0: of 1 (loss 4) and 2 (6) the first wins; then 2 is alone; then 4 (2) beats 5 (3); then 1 is alone.
    state, given = found([[1, 2], [2], [5, 4], [1]])
    assert given == [0, 1, 2, 4]
    assert state.losses == (4.0, 6.0, 2.0, 4.0)
    assert (state.best, state.buffer, state.ended, state.step) == (((4,), 2.0), (((1,), 4.0),), "steps", 4)
    # The start and six proposals were scored.
    assert state.spent == {"steps": 4, "candidates": 7, "gradients": 0, "tokens_read": 0}


def test_a_buffer_of_two_goes_on_from_the_best_of_two():
    # {0: 5} -> {1: 4, 0: 5} -> 2 (6) is worse than both -> {4: 2, 1: 4} -> 1 is in it -> {4: 2, 5: 3}.
    state, given = found([[1, 2], [2], [5, 4], [1], [5]], buffer=2)
    assert given == [0, 1, 1, 4, 4]
    assert state.buffer == (((4,), 2.0), ((5,), 3.0))
    assert state.losses == (4.0, 6.0, 2.0, 4.0, 3.0)


def test_a_buffer_of_one_changes_only_for_the_better():
    state, given = found([[2], [1], [1], [0]], buffer=1)
    assert given == [0, 0, 1, 1]
    assert state.buffer == (((1,), 4.0),)


def test_the_draws_of_a_step_follow_from_seed_and_step_alone():
    drawn = []

    def propose(prompt, step, rng):
        drawn.append(rng.random())
        return [(1,)]

    settings = SearchSettings(steps=2)
    search((0,), Table(), propose, settings, seed=7, spent=nothing_spent())
    assert drawn == [generator(7, "prompt search", 0, step).random() for step in (0, 1)]
    assert len(set(drawn)) == 2


def test_the_start_can_be_the_best():
    state, _ = found([[1], [2]], start=3)
    assert state.best == ((3,), 1.0)


def test_the_search_ends_with_the_prompt_that_reached_even_if_another_had_less_loss():
    state, given = found([[4], [1], [3]], Table(wanted=(1,)))
    assert (state.ended, state.best, state.step, given) == ("reached", ((1,), 4.0), 2, [0, 4])
    state, _ = found([[4], [1], [3]], Table(wanted=(1,)), stop_when_reached=False)
    assert (state.ended, state.best) == ("steps", ((3,), 1.0))


def test_a_start_that_reaches_needs_no_step():
    keeper = Memory()
    state, given = found([[4]], Table(wanted=(0,)), keeper=keeper)
    assert (state.ended, state.step, given) == ("reached", 0, [])
    assert keeper.load() == state


def test_a_loss_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="the loss of a searched prompt is nan"):
        found([[1]], Table({0: 1.0, 1: math.nan}))


def test_progress_is_told_step_by_step():
    told = []
    search(
        (0,),
        Table(),
        Script([[1], [2]]),
        SearchSettings(steps=2),
        seed=0,
        spent=nothing_spent(),
        on_step=lambda done, of: told.append((done, of)),
    )
    assert told == [(1, 2), (2, 2)]


@dataclasses.dataclass
class Hashed:
    """Losses that nothing but the prompt decides, spread like noise."""

    fuse: "Fuse"

    def leaders(self, prompts, n):
        self.fuse.burn()
        scored = [Scored(i, derive_seed(0, "loss", *p) / 2**32) for i, p in enumerate(prompts)]
        return sorted(scored, key=lambda s: s.loss)[:n]

    def reached(self, prompt):
        self.fuse.burn()
        return False


@dataclasses.dataclass
class Fuse:
    """Goes off after so many calls."""

    left: int

    def burn(self):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@dataclasses.dataclass
class Fused:
    """A keeper that is cut off like all the rest: before or after a state is kept."""

    memory: Memory
    fuse: Fuse

    def load(self):
        return self.memory.load()

    def save(self, state):
        self.fuse.burn()
        self.memory.save(state)
        self.fuse.burn()


def shuffled_proposals(prompt, step, rng):
    tokens = rng.integers(0, 50, (8, len(prompt)))
    return [tuple(row) for row in np.where(rng.random((8, len(prompt))) < 0.3, tokens, prompt).tolist()]


def run(memory, fuse):
    return search(
        (1, 2, 3, 4),
        Hashed(fuse),
        shuffled_proposals,
        SearchSettings(steps=24, buffer=2),
        seed=5,
        spent=nothing_spent(),
        keeper=Fused(memory, fuse),
    )


def test_a_search_killed_again_and_again_ends_as_if_never_killed():
    whole, memory, killed = run(Memory(), Fuse(10**9)), Memory(), 0
    while True:
        try:
            # Seven calls are enough for a step.
            state = run(memory, Fuse(7))
        except KeyboardInterrupt:
            killed += 1
            continue
        break
    assert killed >= 20
    assert state == whole
    assert run(memory, Fuse(10**9)) == whole
