"""The loop that searches over prompts share: propose, score, take over, keep. It knows nothing of models.

A step proposes prompts from the current one, scores them, and puts the one of least loss into the buffer. A buffer of
0 means that the winner always takes the current prompt's place, even if it is worse (as nanoGCG 0.3.0 and the ACR
reference do); a buffer of n keeps the n best winners and the start, and the best of them is the current one. The best
prompt seen is kept in any case.

Losses are in nats. All that a step depends on is the state before it, the seed, the restart and the step's number, so
a search goes on from a kept state as if it had never stopped.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import Field, PositiveInt

from vestige.attacks import Meter, OverBudget
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.models.variants import Ids, Scored

Ended = Literal["", "reached", "steps", "budget"]


class SearchSettings(Settings):
    """How long a search goes on and what it keeps. `steps` are those of one start; `buffer` see the module.

    `reopens`: the current prompt stays in the buffer until better ones fill it (nanoGCG). Else it leaves as it is
    proposed from, and not the winner alone but all prompts scored go in (FLRT), so the next one is always another.
    """

    steps: PositiveInt = 250
    buffer: int = Field(default=0, ge=0)
    stop_when_reached: bool = True
    reopens: bool = True


@runtime_checkable
class Objective(Protocol):
    """What is searched for. It charges the tokens that it reads to the meter itself, before it reads them."""

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` prompts of least loss, least first."""
        ...

    def reached(self, prompt: Ids) -> bool:
        """Whether the prompt does all that is wanted."""
        ...


@runtime_checkable
class Proposer(Protocol):
    """What to look at next: at least one prompt, none twice. It charges the passes that it makes itself, before."""

    def __call__(self, prompt: Ids, step: int, rng: np.random.Generator) -> Sequence[Ids]:
        """Prompts to score at this step of this start, from the current one."""
        ...


@dataclass(frozen=True)
class SearchState:
    """A search between two steps. `losses` has the winner's of each step; `ended` is empty while it is under way.

    `best` is the prompt of least loss, or the one that reached what was wanted. `step` counts over all starts.
    """

    step: int
    buffer: tuple[tuple[Ids, float], ...]
    best: tuple[Ids, float]
    ended: Ended
    spent: Mapping[str, int]
    losses: tuple[float, ...]


@runtime_checkable
class Keeper(Protocol):
    """Where a search is kept between steps; written whole or not at all."""

    def load(self) -> SearchState | None:
        """The state kept last; None where there is none."""
        ...

    def save(self, state: SearchState) -> None:
        """Keep this state in place of the last."""
        ...


def tell_nobody(done: int, of: int) -> None:
    """Tell nobody."""


def search(
    start: Ids,
    objective: Objective,
    propose: Proposer,
    settings: SearchSettings,
    *,
    seed: int,
    meter: Meter,
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
    restarts: Sequence[Ids] = (),
) -> SearchState:
    """Search from `start`, then from each of `restarts` with the same meter; the best of all is what is found.

    Charged here: `steps`, and `candidates` for every prompt scored. A budget that is used up ends the search; one
    too small to score the start is refused.
    """
    starts = (start, *restarts)
    total = settings.steps * len(starts)
    state = keeper.load() if keeper is not None else None
    if state is None:
        state = _begun(start, objective, settings, meter, None)
    else:
        meter.spent = dict(state.spent)
    while True:
        if not state.ended and state.step == total:
            state = replace(state, ended="steps")
        if keeper is not None:
            keeper.save(state)
        if state.ended:
            return state
        state = _after(state, starts, objective, propose, settings, seed, meter)
        on_step(state.step, total)


def _after(
    state: SearchState,
    starts: Sequence[Ids],
    objective: Objective,
    propose: Proposer,
    settings: SearchSettings,
    seed: int,
    meter: Meter,
) -> SearchState:
    """The state one step on, or the same one as ended where the budget has no more."""
    restart, step = divmod(state.step, settings.steps)
    try:
        if restart and not step:
            state = _begun(starts[restart], objective, settings, meter, state)
            if state.ended:
                return state
        prompts = propose(state.buffer[0][0], step, generator(seed, "prompt search", restart, step))
        leaders = _leaders(prompts, objective, meter, {"steps": 1}, 1 if settings.reopens else max(settings.buffer, 1))
        winner, left = leaders[0], state.buffer if settings.reopens else state.buffer[1:]
        reached = settings.stop_when_reached and objective.reached(winner[0])
    except OverBudget:
        return replace(state, ended="budget", spent=dict(meter.spent))
    return SearchState(
        step=state.step + 1,
        buffer=_taken_in(left, leaders, settings.buffer),
        best=winner if reached or winner[1] < state.best[1] else state.best,
        ended="reached" if reached else "",
        spent=dict(meter.spent),
        losses=(*state.losses, winner[1]),
    )


def _begun(
    start: Ids, objective: Objective, settings: SearchSettings, meter: Meter, before: SearchState | None
) -> SearchState:
    """The state at a start, before its first step; what an earlier start found stays the best unless this is better."""
    (scored,) = _leaders([start], objective, meter, {}, 1)
    reached = settings.stop_when_reached and objective.reached(start)
    better = before is None or reached or scored[1] < before.best[1]
    return SearchState(
        step=before.step if before is not None else 0,
        buffer=(scored,),
        best=scored if before is None or better else before.best,
        ended="reached" if reached else "",
        spent=dict(meter.spent),
        losses=before.losses if before is not None else (),
    )


def _leaders(
    prompts: Sequence[Ids], objective: Objective, meter: Meter, besides: Mapping[str, int], n: int
) -> list[tuple[Ids, float]]:
    """The `n` prompts of least loss. What is charged `besides` the candidates is booked with them or not at all."""
    meter.charge({**besides, "candidates": len(prompts)})
    found = [(prompts[index], loss) for index, loss in objective.leaders(prompts, n)]
    if not all(math.isfinite(loss) for _, loss in found):
        raise InputError(
            f"the loss of a searched prompt is {found[-1][1]}, so no prompt can be told from another; load the model "
            "in float32 and look whether its weights are whole"
        )
    return found


def _taken_in(
    buffer: tuple[tuple[Ids, float], ...], leaders: Sequence[tuple[Ids, float]], size: int
) -> tuple[tuple[Ids, float], ...]:
    """The buffer with the leaders in it, the least loss first; of equal ones the earlier."""
    if size == 0:
        return (leaders[0],)
    known = {ids for ids, _ in buffer}
    new = [entry for entry in leaders if entry[0] not in known]
    return tuple(sorted((*buffer, *new), key=lambda entry: entry[1])[:size])
