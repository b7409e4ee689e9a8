"""The search loop over prompts, and greedy coordinate gradient (GCG).

The loop knows nothing of models: propose, score, take over, keep. A step proposes prompts from the current one, scores
all proposals and puts the one of least loss into the buffer. With a buffer of 0 the winner always replaces the current
prompt, even if it is worse, as in nanoGCG 0.3.0 and the reference code of ACR. A buffer of n stores the n best winners
and the start, and its best is the current prompt. The best prompt seen is kept in any case. A step depends on the state
before it, the seed, the start's number and the step's number only, so a search that was stopped goes on as if it never
was.

GCG searches for a prompt that makes a model produce a given target, in one text or in many. Source: A. Zou et al.,
Universal and transferable adversarial attacks on aligned language models, 2307.15043. A step takes the gradient of the
loss by the prompt's one-hot tokens, draws `width` prompts with `replaced` tokens swapped for one of the `topk` most
promising ones, drops prompts whose text has other tokens, and continues with the best. Differences to nanoGCG 0.3.0:
tokens are checked in their place and not alone, each prompt is scored once, the start is scored too, and without an
`initial` text the start is drawn at random from the tokens that a prompt may use.

Losses are in nats: the mean over a target's tokens, then over texts. Budgets count tokens as if nothing were shared.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor

from vestige.artifacts.audits import PlannedAttack
from vestige.attacks.placement import (
    Place,
    Placement,
    PromptSettings,
    Vocabulary,
    admissible,
    check_topk,
    ids_in,
    inner_texts,
    kept_in,
    places_of,
    swaps_by_gradient,
    without_repeats,
)
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.settings import Settings
from vestige.models.blocks import embedding_table
from vestige.models.load import LoadedModel
from vestige.models.variants import Around, Ids, Scored, Variants

Ended = Literal["", "reached", "steps"]


class SearchSettings(Settings):
    """The limits and the memory of a search. `steps` apply to one start. The module explains `buffer`."""

    steps: PositiveInt = 250
    buffer: int = Field(default=0, ge=0)
    stop_when_reached: bool = True


class PromptObjective(Protocol):
    """The goal of a search. It counts the tokens that it reads itself."""

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The `n` prompts of least loss, least first."""
        ...

    def reached(self, prompt: Ids) -> bool:
        """Whether the prompt does all that is wanted."""
        ...

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by the prompt's one-hot tokens."""
        ...


Propose = Callable[[Ids, int, np.random.Generator], Sequence[Ids]]
"""Prompts to score at a step of a start, from the current one: at least one, none twice."""


@dataclass(frozen=True)
class SearchState:
    """A search between two steps. `losses` has the winner's of each step. `ended` is empty while it is under way.

    `best` is the prompt of least loss, or the one that reached the goal. `step` counts over all starts.
    """

    step: int
    buffer: tuple[tuple[Ids, float], ...]
    best: tuple[Ids, float]
    ended: Ended
    spent: Mapping[str, int]
    losses: tuple[float, ...]


class Keeper(Protocol):
    """Where a search is kept between steps. Written whole or not at all."""

    def load(self) -> SearchState | None:
        """The state kept last. None where there is none."""
        ...

    def save(self, state: SearchState) -> None:
        """Keep this state in place of the last."""
        ...


def nothing_spent() -> Counter[str]:
    """Return the zero counts of a search."""
    return Counter(dict.fromkeys(("steps", "gradients", "candidates", "tokens_read"), 0))


def tell_nobody(done: int, of: int) -> None:
    """Tell nobody."""


def search(
    starts: Sequence[Ids],
    objective: PromptObjective,
    propose: Propose,
    settings: SearchSettings,
    *,
    seed: int,
    spent: Counter[str],
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> SearchState:
    """Search from each of `starts` in turn. The best of all starts is the result.

    Counted in `spent` here: `steps`, and `candidates` for every prompt scored.
    """
    run = _Search(starts=starts, objective=objective, propose=propose, settings=settings, seed=seed, spent=spent)
    total = settings.steps * len(starts)
    state = keeper.load() if keeper is not None else None
    if state is None:
        state = run.begun(starts[0], None)
    else:
        # In place: the objective and what proposes hold this very counter, and go on counting into it.
        spent.clear()
        spent.update(state.spent)
    while True:
        if not state.ended and state.step == total:
            state = replace(state, ended="steps")
        # A search that has ended is kept too, so that a later run takes its prompt and does not search again.
        if keeper is not None:
            keeper.save(state)
        if state.ended:
            return state
        state = run.after(state)
        on_step(state.step, total)


@dataclass(frozen=True)
class _Search:
    starts: Sequence[Ids]
    objective: PromptObjective
    propose: Propose
    settings: SearchSettings
    seed: int
    spent: Counter[str]

    def after(self, state: SearchState) -> SearchState:
        """The state one step on."""
        settings = self.settings
        restart, step = divmod(state.step, settings.steps)
        if restart and not step:
            state = self.begun(self.starts[restart], state)
            if state.ended:
                return state
        prompts = self.propose(state.buffer[0][0], step, generator(self.seed, "prompt search", restart, step))
        self.spent.update({"steps": 1})
        winner = self._least(prompts)
        reached = settings.stop_when_reached and self.objective.reached(winner[0])
        buffer = [winner]
        if settings.buffer:
            buffer = list(state.buffer)
            # A prompt that is in the buffer twice would keep another one out.
            if winner[0] not in dict(buffer):
                buffer.append(winner)
            # The least loss comes first; of equal ones the earlier.
            buffer = sorted(buffer, key=lambda entry: entry[1])[: settings.buffer]
        return SearchState(
            step=state.step + 1,
            buffer=tuple(buffer),
            best=winner if reached or winner[1] < state.best[1] else state.best,
            ended="reached" if reached else "",
            spent=dict(self.spent),
            losses=(*state.losses, winner[1]),
        )

    def begun(self, start: Ids, before: SearchState | None) -> SearchState:
        """The state at a start, before its first step. An earlier start's best stays unless this is better."""
        scored = self._least([start])
        reached = self.settings.stop_when_reached and self.objective.reached(start)
        ended: Ended = "reached" if reached else ""
        if before is None:
            return SearchState(0, (scored,), scored, ended, dict(self.spent), ())
        if reached or scored[1] < before.best[1]:
            best = scored
        else:
            best = before.best
        return replace(before, buffer=(scored,), best=best, ended=ended, spent=dict(self.spent))

    def _least(self, prompts: Sequence[Ids]) -> tuple[Ids, float]:
        """The prompt of least loss."""
        self.spent.update({"candidates": len(prompts)})
        (leader,) = self.objective.leaders(prompts, 1)
        if not math.isfinite(leader.loss):
            raise InputError(
                f"the loss of a searched prompt is {leader.loss}, so prompts cannot be compared. Load the "
                "model in float32 and check its weights"
            )
        return prompts[leader.index], leader.loss


DRAWS = 8
"""The number of redraws in a step if no prompt keeps its tokens as text."""
# Tokens drawn for a place of the start, read back in one call of the tokeniser instead of a call each.
_TRIED = 32


class GcgSettings(PromptSettings):
    """The settings of a GCG search for a prompt that brings the answers in the data."""

    weights: ClassVar[str] = "a searched suffix"
    kind: ClassVar[str] = "gcg"
    audited: ClassVar[Mapping[str, str]] = {
        "tokens": "prompt_tokens",
        "steps": "prompt_steps",
        "width": "prompt_candidates",
    }

    placement: Placement = "suffix"
    """The prompt's place: before or after the question."""
    tokens: PositiveInt = 20
    """Length of the prompt in tokens."""
    steps: PositiveInt = 250
    """Steps of each start."""
    width: PositiveInt = 512
    """Prompts scored in a step."""
    topk: PositiveInt = 256
    """Tokens of least gradient that proposals come from."""
    replaced: PositiveInt = 1
    """Tokens replaced in a proposal."""
    buffer: int = Field(default=0, ge=0)
    """Keep this many best prompts; 0 goes on with each step's best, even if it is worse."""
    restarts: PositiveInt = 1
    """Number of starts."""
    ascii_only: bool = True
    """Search ASCII tokens only."""
    stop_when_reached: bool = True
    """Stop when every target token is the first choice."""
    initial: str = ""
    """Text to start from, in place of random tokens."""

    @property
    def most_steps(self) -> int:
        """Those of all starts."""
        return self.restarts * self.steps

    def passes(self, plan: PlannedAttack) -> int:
        """At each step all candidates, a gradient and a look at the winner. At each start the start, twice."""
        return (self.most_steps * (self.width + 2) + 2 * self.restarts) * plan.n_shown


@dataclass(frozen=True)
class FoundPrompt:
    """The best prompt of a search. `reached` is the search's claim: every target token is the first choice.

    `ended` is `reached` or `steps`. `admissible_bits` is the capacity of one token.
    """

    ids: Ids
    text: str
    loss: float
    reached: bool
    ended: str
    steps: int
    spent: Mapping[str, int]
    admissible_bits: float


@dataclass(frozen=True)
class Targets:
    """The objective of a search on all texts' targets, by one model. It counts what that reads."""

    variants: Variants
    texts: tuple[Around, ...]
    spent: Counter[str]

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The prompts of least loss."""
        self.charge(prompts)
        return self.variants.leaders(prompts, n)

    def reached(self, prompt: Ids) -> bool:
        """Whether every token of every target is the model's first choice."""
        self.charge([prompt])
        return all(self.variants.reached(prompt))

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The derivative of the loss by the prompt's one-hot tokens."""
        self.spent.update({"gradients": 1})
        self.charge([prompt])
        return self.variants.gradient(prompt)

    def charge(self, prompts: Sequence[Ids]) -> None:
        """Book the tokens of the prompts in their texts."""
        self.spent.update({"tokens_read": tokens_read(self.texts, prompts)})


@dataclass(frozen=True)
class ByGradient:
    """Proposes swaps of tokens that the gradient promises most of and that stay the same tokens as text."""

    objective: PromptObjective
    where: "PromptSearch"
    width: int
    replaced: int = 1

    def __call__(self, prompt: Ids, step: int, rng: np.random.Generator) -> list[Ids]:
        """At most `width` prompts. Drawn anew, `DRAWS` times at most, where none stays the same tokens."""
        gradient = self.objective.gradient(prompt)
        for _ in range(DRAWS):
            swaps = swaps_by_gradient(
                prompt,
                gradient,
                self.where.vocabulary,
                width=self.width,
                topk=self.where.topk,
                replaced=self.replaced,
                rng=rng,
            )
            valid = self.where.kept(without_repeats(swaps))
            if valid:
                return valid
        raise InputError(
            f"step {step + 1}: of {DRAWS} times {self.width} drawn prompts none is the same tokens again once it "
            "is text. Start from another `initial` text, or raise topk"
        )


def tokens_read(texts: Sequence[Around], prompts: Sequence[Ids]) -> int:
    """How many tokens are read to score each prompt in each text, as if nothing were shared."""
    n_read = 0
    for text in texts:
        n_read += sum(text.length(len(prompt)) for prompt in prompts)
    return n_read


def find_prompt(
    loaded: LoadedModel,
    texts: Sequence[Around],
    settings: GcgSettings,
    *,
    seed: int,
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> FoundPrompt:
    """The prompt that makes `loaded` say the target of every text, or comes nearest.

    If the search did not check its goal, the best prompt is checked once, uncounted.
    """
    variants = Variants(loaded.model, texts)
    targets = Targets(variants, tuple(texts), nothing_spent())
    searching = PromptSearch(
        loaded=loaded,
        texts=tuple(texts),
        n_rows=len(embedding_table(loaded.model)),
        ascii_only=settings.ascii_only,
        topk=settings.topk,
    )
    state = search(
        searching.starts(settings.tokens, settings.initial, settings.restarts, seed=seed),
        targets,
        ByGradient(objective=targets, where=searching, width=settings.width, replaced=settings.replaced),
        SearchSettings(steps=settings.steps, buffer=settings.buffer, stop_when_reached=settings.stop_when_reached),
        seed=seed,
        keeper=keeper,
        spent=targets.spent,
        on_step=on_step,
    )
    # A search that does not stop at it has not looked.
    if settings.stop_when_reached:
        reached = state.ended == "reached"
    else:
        reached = all(variants.reached(state.best[0]))
    return searching.found(state, reached=reached)


@dataclass(frozen=True)
class PromptSearch:
    """The domain of a prompt search: a model's texts, and the allowed tokens.

    `n_rows` is the number of tokens that have an embedding. `topk` is how many tokens proposals choose from.
    """

    loaded: LoadedModel
    texts: tuple[Around, ...]
    n_rows: int
    ascii_only: bool
    topk: int

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokens that the prompt may use. Refused where they are fewer than `topk`."""
        vocabulary = admissible(self.loaded.tokenizer, self.n_rows, ascii_only=self.ascii_only)
        check_topk(self.topk, vocabulary)
        return vocabulary

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The prompt's places."""
        return places_of(self.loaded.tokenizer, self.texts)

    def kept(self, prompts: Sequence[Ids]) -> list[Ids]:
        """Those of the prompts that stay the same tokens as text."""
        return kept_in(self.loaded.tokenizer, prompts, self.places)

    def starts(self, n_tokens: int, initial: str, n: int, *, seed: int) -> list[Ids]:
        """The `n` prompts that a search begins with: the `initial` text if there is one, others drawn by the seed."""
        starts: list[Ids] = []
        if initial:
            starts.append(self.vocabulary.check(ids_in(self.loaded.tokenizer, initial, self.places)))
            n_tokens = len(starts[0])
        for number in range(len(starts), n):
            starts.append(self._drawn(n_tokens, generator(seed, "start of a prompt search", number)))
        return starts

    def _drawn(self, n_tokens: int, rng: np.random.Generator) -> Ids:
        """A prompt of that many tokens, drawn one after the other such that all before stay the same tokens as text."""
        ids = self.vocabulary.ids
        prompt: Ids = ()
        while len(prompt) < n_tokens:
            for _ in range(DRAWS):
                valid = self.kept([(*prompt, ids[i]) for i in rng.integers(0, len(ids), _TRIED)])
                if valid:
                    prompt = valid[0]
                    break
            else:
                raise InputError(
                    f"no token drawn for place {len(prompt) + 1} of the first prompt is the same tokens again once it "
                    "is text. Give an `initial` text"
                )
        return prompt

    def found(self, state: SearchState, *, reached: bool) -> FoundPrompt:
        """The best prompt of a search that has ended."""
        ids, loss = state.best
        return FoundPrompt(
            ids=ids,
            text=inner_texts(self.loaded.tokenizer, [ids], spaced=self.places[0].spaced)[0],
            loss=loss,
            reached=reached,
            ended=state.ended,
            steps=state.step,
            spent=state.spent,
            admissible_bits=self.vocabulary.bits,
        )
