"""Enhanced GCG: its objective, its moves, and the search for one prefix for many questions.

Enhanced GCG: one prefix for many questions, under which an unlearned model says and thinks what its target does. J.
Łucki et al., An adversarial perspective on machine unlearning for AI safety, 2409.18025, and their code, built on FLRT
(T. B. Thompson, M. Sklar, 2407.17447). The objective is below. Differs from the code in what that says, in the moves,
and: what a move yields is drawn again until `candidates` prompts stay the same tokens as text; the best prompt seen is
returned, and not the first of the last buffer.

A move decides which change a step makes, how long a prompt may be by then, and where tokens come from. The rules are
FLRT's, with two differences. No
prompt ever grows longer than is granted, so that what it can carry is bounded; and a prompt that lacks several tokens
gets up to four in one step, since a short search would be all insertions else. Pure; every draw comes from a generator.

Axes: T tokens of a prompt, V vocabulary, N places.

Enhanced GCG's objective over prompts: what a subject and its target make of them, as one loss with its gradient. Every
prompt goes through the subject once, and the texts go on from there; the target goes no higher than the streams that
are compared.

The terms are pure functions of what two models made of a prompt. J. Łucki et al., An adversarial perspective on machine
unlearning for AI safety, 2409.18025, as their code has it, built on FLRT (T. B. Thompson, M. Sklar, 2407.17447). Where
a term differs from the code, its docstring says so.

Axes: W prompts, T tokens of a prompt, K tokens that are forced, V vocabulary, P places behind the prompt, L layers, D
hidden width. Losses are in nats, one a prompt, but for the distance, which is in the streams' own unit.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import PreTrainedTokenizerBase

from vestige.artifacts.audits import PlannedAttack
from vestige.attacks import Meter
from vestige.attacks.gcg import (
    DRAWS,
    FoundPrompt,
    Keeper,
    SearchSettings,
    drawn_start,
    search,
    tell_nobody,
    tokens_read,
)
from vestige.attacks.placement import (
    Place,
    PromptSettings,
    Vocabulary,
    admissible,
    around,
    as_texts,
    best_tokens,
    ids_in,
    inner_texts,
    kept_in,
    places_of,
    without_repeats,
)
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.core.text import one_line
from vestige.models.blocks import embedding_table
from vestige.models.forward import within_memory
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, context_tokens
from vestige.models.scoring import TOKEN_BUDGET, logits_budget
from vestige.models.streams import Prompts, Streams, one_hot_gradient, streams_of, text_logp
from vestige.models.variants import Around, Ids, Scored


def forcing(logp: Float[Tensor, "W K"], clamp: float) -> Float[Tensor, " W"]:
    """Mean over the tokens of max(-log p, -ln clamp): a token as likely as `clamp` is not pushed any further.

    A clamp of 1 bounds nothing. The code of 2409.18025 bounds the mean; FLRT's own loss, as here, each token.
    """
    return (-logp).clamp(min=-math.log(clamp)).mean(-1)


def distance(
    subject: Float[Tensor, "W L P D"], target: Float[Tensor, "W L P D"], *, scaled: bool
) -> Float[Tensor, " W"]:
    """Mean over layers and places of the Euclidean distance between two residual streams.

    With `scaled` it is times 100 and by the square of the target's mean norm in that layer. 0 where both are the same.
    """
    apart: Tensor = torch.linalg.vector_norm(subject - target, dim=-1)
    if scaled:
        norm = torch.linalg.vector_norm(target, dim=-1).mean(-1, keepdim=True)
        apart = 100 * apart / norm.square()
    return apart.mean((-2, -1))


def turned_away(subject: Float[Tensor, "W L P D"], without: Float[Tensor, "L P D"]) -> Float[Tensor, " W"]:
    """Mean of 1 - cos between a stream and what the target's is at the same tokens `without` any prompt: 0 to 2."""
    return (1 - cosine_similarity(subject, without.expand_as(subject), dim=-1)).mean((-2, -1))


def repetition(prompts: Sequence[Ids], power: float) -> Float[Tensor, " W"]:
    """Sum over the tokens used of (how often - 1) to the `power`, by the prompt's length. It has no gradient.

    FLRT counts over the chat template and the question as well, which the attack does not choose.
    """
    return torch.tensor([sum((n - 1) ** power for n in Counter(p).values()) / len(p) for p in prompts])


class Weights(NamedTuple):
    """By how much each term counts; the forcing loss counts once."""

    distance: float
    representation: float
    fluency: float
    repetition: float


class Terms(NamedTuple):
    """The terms of prompts before they are weighed. `fluency` is the prompt's own nats a token under the subject."""

    forcing: Float[Tensor, " W"]
    distance: Float[Tensor, " W"]
    representation: Float[Tensor, " W"]
    fluency: Float[Tensor, " W"]
    repetition: Float[Tensor, " W"]

    def weighed(self, weights: Weights) -> Float[Tensor, " W"]:
        """The loss of each prompt. A term of weight 0 is left out, whatever it is."""
        loss = self.forcing
        for weight, term in zip(weights, self[1:], strict=True):
            loss = loss + weight * term if weight else loss
        return loss


@dataclass(frozen=True)
class Shape:
    """How the terms are formed: `clamp` is a probability, `scaled` divides the distance by the target's norm."""

    weights: Weights
    clamp: float
    scaled: bool
    repetition_power: float


@dataclass(frozen=True)
class Apart:
    """How far a prompt is from making `subject` say and think what the target does; charges what is read for it.

    `forced` is how many of each text's target tokens are forced. `guide` is the target, read in the same texts; None
    where nothing can lie between the two. `without` has the target's streams at each text's target tokens, and at the
    place before them, with no prompt there; empty where nothing is compared with them.
    """

    subject: Streams
    guide: Streams | None
    forced: tuple[int, ...]
    without: tuple[Float[Tensor, "L P D"], ...]
    shape: Shape
    meter: Meter

    def leaders(self, prompts: Sequence[Ids], n: int) -> list[Scored]:
        """The prompts of least loss; those of one call have one length."""
        self.meter.charge({"tokens_read": self.cost(prompts)})
        losses = self.losses(prompts)
        return [Scored(int(i), float(losses[i])) for i in losses.argsort(stable=True)[:n]]

    def reached(self, prompt: Ids) -> bool:
        """Whether every forced token is the likeliest one."""
        self.meter.charge({"tokens_read": tokens_read(self.subject.texts, [prompt])})
        return self.says(prompt)

    def cost(self, prompts: Sequence[Ids]) -> int:
        """Tokens that one look at the prompts reads, by subject and target, as if nothing were shared."""
        return tokens_read(self.subject.texts, prompts) * (1 if self.guide is None else 2)

    @torch.inference_mode()
    def says(self, prompt: Ids) -> bool:
        """The same as `reached`, uncharged."""
        with self.subject.products():
            _, stem = self.subject.read(self.subject.prompts([prompt]))
            return all(bool(f.first[0, : self.forced[f.text]].all()) for f in self.subject.follow(stem))

    def losses(self, prompts: Sequence[Ids]) -> Float[Tensor, " W"]:
        """The loss of each prompt."""
        return self._losses(prompts, token_budget=self.subject.token_budget)

    @within_memory
    @torch.inference_mode()
    def _losses(self, prompts: Sequence[Ids], *, token_budget: int = TOKEN_BUDGET) -> Float[Tensor, " W"]:
        n_tokens = len(self.subject.texts[0].before) + len(prompts[0]) + 1
        step = max(1, logits_budget(self.subject.model, token_budget) // n_tokens)
        terms = []
        with ExitStack() as stack:
            for streams in self._readers():
                stack.enter_context(streams.products())
            for start in range(0, len(prompts), step):
                parts = [streams.prompts(prompts[start : start + step]) for streams in self._readers()]
                terms.append(self.terms(parts).weighed(self.shape.weights))
        return torch.cat(terms)

    def gradient(self, prompt: Ids) -> Float[Tensor, "T V"]:
        """The loss's gradient with respect to the prompt's one-hot tokens, through subject and target."""
        self.meter.charge({"gradients": 1, "tokens_read": self.cost([prompt])})
        weights = self.shape.weights
        models = [streams.model for streams in self._readers()]
        return one_hot_gradient(models, prompt, lambda inputs: self.terms(inputs).weighed(weights)[0])

    @torch.inference_mode()
    def next_logits(self, prompt: Ids) -> Float[Tensor, "N V"]:
        """The subject's logits of the token at each place of the prompt and behind it.

        Where nothing stands before the prompt, nothing says its first token, and N is T and not T + 1.
        """
        self.meter.charge({"tokens_read": len(self.subject.texts[0].before) + len(prompt)})
        with self.subject.products():
            return self.subject.read(self.subject.prompts([prompt]))[0][0]

    def terms(self, inputs: Sequence[Prompts]) -> Terms:
        """The terms of prompts, as the subject reads them and, where there is a guide, as that does."""
        logits, stem = self.subject.read(inputs[0])
        pairs = self.subject.follow(stem)
        forced, apart, away = [], [], []
        guides = None if self.guide is None else self.guide.follow(self.guide.read(inputs[1])[1])
        for pair in pairs:
            forced.append(forcing(pair.target_logp[:, : self.forced[pair.text]], self.shape.clamp))
            if guides is not None:
                guide = next(guides)
                assert guide.text == pair.text, "both go through the texts by length"
                apart.append(distance(pair.residual, guide.residual.to(pair.residual.device), scaled=self.shape.scaled))
            if self.without:
                without = self.without[pair.text].to(pair.residual.device)
                away.append(turned_away(pair.residual[:, :, -without.shape[1] :], without))
        return Terms(
            forcing=torch.stack(forced).mean(0),
            distance=_mean(apart, forced[0]),
            representation=_mean(away, forced[0]),
            fluency=_fluency(logits, inputs[0]),
            repetition=repetition([tuple(row) for row in inputs[0].ids.tolist()], self.shape.repetition_power).to(
                logits.device
            ),
        )

    def _readers(self) -> list[Streams]:
        return [self.subject] if self.guide is None else [self.subject, self.guide]


def _mean(values: Sequence[Float[Tensor, " W"]], like: Float[Tensor, " W"]) -> Float[Tensor, " W"]:
    """Over texts; 0 where nothing was compared."""
    return torch.stack(list(values)).mean(0) if values else torch.zeros_like(like)


def _fluency(logits: Float[Tensor, "W N V"], prompts: Prompts) -> Float[Tensor, " W"]:
    """Nats a token of the prompt itself; of a lone first token that nothing stands before, 0."""
    next_ids = prompts.ids[:, prompts.ids.shape[1] + 1 - logits.shape[1] :]
    if not next_ids.shape[1]:
        return torch.zeros(len(next_ids), device=logits.device)
    return -text_logp(logits[:, :-1], next_ids).mean(-1)


Move = Literal["gcg", "delete", "insert", "swap"]

MOST_AT_ONCE = 4
"""Of more tokens inserted at once hardly a draw stays the same tokens as text."""


class Lengths(NamedTuple):
    """The least number of tokens rises from `first` to `last` within `ramp_steps`, and stays; `last` is the most."""

    first: int
    last: int
    ramp_steps: int

    def least(self, step: int) -> float:
        """What a prompt should have at this step, counted from 0; on its way a fraction."""
        share = min(step / self.ramp_steps, 1.0) if self.ramp_steps else 1.0
        return self.first + (self.last - self.first) * share

    def to_insert(self, n_tokens: int, step: int) -> int:
        """How many tokens an insertion puts in: those that are lacking, `MOST_AT_ONCE` at most, one at least."""
        return min(max(math.ceil(self.least(step)) - n_tokens, 1), MOST_AT_ONCE)


class Rules(NamedTuple):
    """How often each move is made and how long prompts may be; how many a step makes, and out of how many tokens."""

    shares: Mapping[Move, float]
    lengths: Lengths
    candidates: int
    topk: int


def move_shares(shares: Mapping[Move, float], n_tokens: int, step: int, lengths: Lengths) -> dict[Move, float]:
    """How likely each move is, by what the prompt's length allows; they add up to 1.

    Shorter than the least: insert. As long as is granted: anything else; the place that a deletion leaves is filled
    by the insertion after it. One token is not deleted.
    """
    if n_tokens < lengths.least(step):
        return {"insert": 1.0}
    allowed = {
        move: share
        for move, share in shares.items()
        if share > 0
        and not (move == "insert" and n_tokens >= lengths.last)
        and not (move == "delete" and n_tokens == 1)
    }
    # Where only insertions were to be made and none fits any more, tokens are swapped.
    allowed = allowed or {"swap": 1.0}
    total = sum(allowed.values())
    return {move: share / total for move, share in allowed.items()}


def drawn_order(shares: Mapping[Move, float], rng: np.random.Generator) -> list[Move]:
    """All moves, drawn one after the other: the first is the step's, the next stand in where it yields nothing."""
    moves = sorted(shares)
    order = rng.choice(len(moves), size=len(moves), replace=False, p=[shares[move] for move in moves])
    return [moves[int(n)] for n in order]


def deleted(prompt: Ids, places: Sequence[int]) -> list[Ids]:
    """The prompt without the token at each of the places in turn."""
    return [prompt[:at] + prompt[at + 1 :] for at in places]


def inserted(prompt: Ids, additions: Iterable[Iterable[tuple[int, int]]]) -> list[Ids]:
    """The prompt once for each group of places and tokens, each token before its place; place T is behind the last."""
    prompts_longer = []
    for group in additions:
        longer = prompt
        for at, token in sorted(group, reverse=True):
            longer = (*longer[:at], token, *longer[at:])
        prompts_longer.append(longer)
    return prompts_longer


def exchanged(prompt: Ids, places: Sequence[int], tokens: Sequence[int]) -> list[Ids]:
    """The prompt with another token at each of the places in turn."""
    return [(*prompt[:at], token, *prompt[at + 1 :]) for at, token in zip(places, tokens, strict=True)]


def sampled_tokens(
    logits: Float[np.ndarray, "T V"],
    ids: Int[np.ndarray, " V"],
    places: Int[np.ndarray, " N"],
    k: int,
    rng: np.random.Generator,
) -> list[int]:
    """A token for each place: one, uniformly, of `k` that the model's distribution there gives without replacement.

    The columns of `logits` stand for the tokens `ids`. Two draws at one place are from the same `k`.
    """
    sampled: dict[int, Int[np.ndarray, " K"]] = {}
    for at in np.unique(places).tolist():
        # The k largest of logits with Gumbel noise are k draws without replacement (Vieira, 2014).
        noisy = logits[at] + rng.gumbel(size=len(ids))
        best = np.argpartition(-noisy, k - 1)[:k]
        sampled[at] = ids[best[np.argsort(-noisy[best], kind="stable")]]
    ranks = rng.integers(0, k, len(places)).tolist()
    return [int(sampled[at][rank]) for at, rank in zip(places.tolist(), ranks, strict=True)]


Share = Annotated[float, Field(ge=0, le=1)]


class EnhancedSettings(PromptSettings):
    """Settings of a search for a prefix that brings what the target says.

    Weights multiply the terms of the loss; 0 leaves one out. Without `layers`, streams are compared at the depth of the
    code's 7, 8, 9 of 32. The prefix is made longer until `ramp_steps`, at most two thirds of all `steps`.
    """

    weights: ClassVar[str] = "a searched prefix"
    guided: ClassVar[bool] = True
    kind: ClassVar[str] = "prefix"
    audited: ClassVar[Mapping[str, str]] = {
        "tokens": "prompt_tokens",
        "steps": "prompt_steps",
        "candidates": "prompt_candidates",
    }

    tokens: PositiveInt = 100
    """Longest prefix, in tokens."""
    first_tokens: PositiveInt = 32
    """Length of the prefix at the start."""
    ramp_steps: NonNegativeInt = 1000
    """The prefix grows for this many steps."""
    steps: PositiveInt = 1500
    """Steps of the search."""
    candidates: PositiveInt = 16
    """Prefixes scored in a step."""
    topk: PositiveInt = 64
    """Tokens of least gradient that proposals come from."""
    buffer: PositiveInt = 16
    """Keep this many best prefixes."""
    forced_tokens: PositiveInt = 10
    """Tokens of the target's reply that the prefix has to bring."""
    matched_tokens: NonNegativeInt = 0
    """Tokens behind them that are compared, but not forced."""
    clamp: float = Field(default=0.6, gt=0, le=1)
    """Probability beyond which a token is not pushed; 1 for none."""
    layers: tuple[NonNegativeInt, ...] = ()
    """Blocks, from 0, after which hidden states are compared."""
    distance: NonNegativeFloat = 1.0
    """Weight of the distance of hidden states."""
    scaled: bool = False
    """Divide that distance by the target's norm."""
    representation: NonNegativeFloat = 0.0
    """Weight of the representation term."""
    fluency: NonNegativeFloat = 1.5
    """Weight of fluency."""
    repetition: NonNegativeFloat = 3.0
    """Weight against repetition."""
    repetition_power: PositiveFloat = 1.5
    """Power of the repetition term."""
    gcg_share: Share = 0.7
    """Share of moves by gradient."""
    delete_share: Share = 0.1
    """Share of deletions."""
    insert_share: Share = 0.1
    """Share of insertions."""
    swap_share: Share = 0.1
    """Share of swaps."""
    ascii_only: bool = True
    """Search ASCII tokens only."""
    initial: str = ""
    """Text to start from, in place of random tokens."""

    @property
    def most_steps(self) -> int:
        """There is one start."""
        return self.steps

    def passes(self, plan: PlannedAttack) -> int:
        """At each step all candidates and a pass for each of four moves, by the subject and by the target."""
        return 2 * (self.steps * (self.candidates + 4) + 1) * plan.n_shown

    @property
    def rules(self) -> Rules:
        """How often each move is made, and how long a prefix is to be at each step."""
        ramp = Lengths(min(self.first_tokens, self.tokens), self.tokens, min(self.ramp_steps, 2 * self.steps // 3))
        shares: dict[Move, float] = {
            "gcg": self.gcg_share,
            "delete": self.delete_share,
            "insert": self.insert_share,
            "swap": self.swap_share,
        }
        return Rules(shares, ramp, self.candidates, self.topk)

    @property
    def shape(self) -> Shape:
        """How the loss is formed."""
        weights = Weights(self.distance, self.representation, self.fluency, self.repetition)
        return Shape(weights, self.clamp, self.scaled, self.repetition_power)


@dataclass(frozen=True)
class Sample:
    """A question and what the target says to it: `forced` is to be said, `matched` goes on from there, read along."""

    question: str
    forced: Ids
    matched: Ids = ()

    @property
    def said(self) -> Ids:
        """All that the search hears the target say."""
        return self.forced + self.matched


def layers_at_depth(n_blocks: int) -> tuple[int, ...]:
    """The blocks after which streams are compared where none are named: a fifth to a quarter of the way up.

    The code hooks what goes into its layers 7, 8 and 9 of 32, counted from 1, so 6, 7 and 8 blocks lie below. Here as
    many of `n_blocks`, rounded, one at least: blocks 5, 6, 7 of 32, 4, 5 of 24, block 0 of 4 or fewer.
    """
    below = {max(1, (2 * k * n_blocks + 32) // 64) for k in (6, 7, 8)}
    return tuple(sorted(n - 1 for n in below))


def samples_of(guide: LoadedModel, questions: Sequence[str], settings: EnhancedSettings) -> list[Sample]:
    """What the target says to each question, greedily and without a prefix, the token that ends a reply included."""
    prompter = guide.prompter
    most = settings.forced_tokens + settings.matched_tokens
    replies = generate(
        guide.model,
        [prompter.prompt(question) for question in questions],
        end_ids=prompter.end_ids,
        max_new_tokens=most,
        context=prompter.max_tokens,
    )
    samples = [(*r.ids, *prompter.end_ids[:1])[:most] if r.finish == "stop" else r.ids for r in replies]
    n = settings.forced_tokens
    return [Sample(question, ids[:n], ids[n:]) for question, ids in zip(questions, samples, strict=True)]


def find_prefix(
    loaded: LoadedModel,
    guide: LoadedModel,
    samples: Sequence[Sample],
    settings: EnhancedSettings,
    *,
    seed: int,
    keeper: Keeper | None = None,
    meter: Meter | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> FoundPrompt:
    """The prefix under which `loaded` comes nearest to its target `guide`. Without a meter nothing is short.

    The search goes on when all that is forced is said, since the other terms can still fall; at the end it is looked
    at once, uncharged. Where `guide` is `loaded` itself no distance lies between them and none is computed.
    """
    texts = _texts(loaded, guide, samples, settings)
    n_rows = min(len(embedding_table(model)) for model in (loaded.model, guide.model))
    vocabulary = admissible(loaded.tokenizer, n_rows, ascii_only=settings.ascii_only)
    places = places_of(loaded.tokenizer, texts)
    start = _start(loaded, places, vocabulary, settings, seed)
    meter = meter or Meter(largest_cost(texts, settings))
    objective = _objective(loaded, guide, samples, texts, settings, meter)
    _check(objective.subject, vocabulary, len(start), settings)
    state = search(
        start,
        objective,
        ByMoves(objective, loaded.tokenizer, vocabulary, places, settings.rules),
        SearchSettings(steps=settings.steps, buffer=settings.buffer, stop_when_reached=False, reopens=False),
        seed=seed,
        keeper=keeper,
        meter=meter,
        on_step=on_step,
    )
    ids, loss = state.best
    return FoundPrompt(
        ids=ids,
        text=inner_texts(loaded.tokenizer, [ids], spaced=places[0].spaced)[0],
        loss=loss,
        reached=objective.says(ids),
        ended=state.ended,
        steps=state.step,
        spent=state.spent,
        admissible_bits=vocabulary.bits,
    )


def largest_cost(texts: Sequence[Around], settings: EnhancedSettings) -> dict[str, int]:
    """The most that a search can spend, by name: a budget that stops no search."""
    each = 2 * tokens_read(texts, [(0,) * settings.tokens])
    candidates = 1 + settings.steps * settings.candidates
    # A step scores its candidates; where its moves yield nothing, each of the four makes a pass.
    reads = each * (candidates + 4 * settings.steps)
    return {"steps": settings.steps, "gradients": settings.steps, "candidates": candidates, "tokens_read": reads}


def _texts(
    loaded: LoadedModel, guide: LoadedModel, samples: Sequence[Sample], settings: EnhancedSettings
) -> tuple[Around, ...]:
    if not samples:
        raise InputError("a prefix is searched for questions, and none are given; give at least one")
    if loaded.prompter.digest != guide.prompter.digest:
        raise InputError(
            f"{guide.name} has another tokeniser or chat template than {loaded.name}, so their streams under one "
            "prefix cannot be compared; give the model that was unlearned as the target"
        )
    return tuple(around(loaded.prompter, s.question, s.said, "prefix") for s in samples)


def _start(
    loaded: LoadedModel, places: Sequence[Place], vocabulary: Vocabulary, settings: EnhancedSettings, seed: int
) -> Ids:
    if settings.initial:
        return vocabulary.check(ids_in(loaded.tokenizer, settings.initial, places))
    rng = generator(seed, "start of a prefix search")
    return drawn_start(loaded, places, vocabulary, settings.rules.lengths.first, rng)


def _objective(
    loaded: LoadedModel,
    guide: LoadedModel,
    samples: Sequence[Sample],
    texts: tuple[Around, ...],
    settings: EnhancedSettings,
    meter: Meter,
) -> Apart:
    compared = settings.distance > 0 and guide.model is not loaded.model
    layers: tuple[int, ...] = ()
    if compared or settings.representation > 0:
        shapes = [
            (c.num_hidden_layers, c.hidden_size)
            for c in (model.model.config.get_text_config() for model in (loaded, guide))
        ]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"{loaded.name} has {shapes[0][0]} layers of width {shapes[0][1]} and {guide.name} {shapes[1][0]} of "
                f"{shapes[1][1]}, so their streams cannot be compared; set distance=0 and representation=0"
            )
        layers = settings.layers or layers_at_depth(shapes[0][0])
    without = [
        streams_of(guide.model, guide.prompter.prompt(s.question) + s.said, layers, last=len(s.said) + 1)
        for s in samples
        if settings.representation > 0
    ]
    return Apart(
        subject=Streams(loaded.model, loaded.way, texts, layers),
        guide=Streams(guide.model, guide.way, texts, layers, logits=False) if compared else None,
        forced=tuple(len(s.forced) for s in samples),
        without=tuple(without),
        shape=settings.shape,
        meter=meter,
    )


def _check(subject: Streams, vocabulary: Vocabulary, n_start: int, settings: EnhancedSettings) -> None:
    if n_start > settings.tokens:
        raise InputError(f"the initial text has {n_start} tokens and a prefix {settings.tokens} at most; raise tokens")
    longest, context = subject.longest(settings.tokens), context_tokens(subject.model)
    if longest > context:
        raise InputError(
            f"a prefix of {settings.tokens} tokens and its longest question take {longest} tokens and the model reads "
            f"{context}; lower tokens"
        )
    if settings.topk > len(vocabulary.ids):
        raise InputError(
            f"topk is {settings.topk}, and only {len(vocabulary.ids)} tokens of the vocabulary may stand in the "
            "prefix; lower topk or set ascii_only=false"
        )
    if not any(settings.rules.shares.values()):
        raise InputError("all four shares of moves are 0, so the prefix would never change; raise gcg_share")


@dataclass(frozen=True)
class ByMoves:
    """Proposes changes of one kind a step, of which those stay that are the same tokens again once they are text."""

    objective: Apart
    tokenizer: PreTrainedTokenizerBase
    vocabulary: Vocabulary
    places: tuple[Place, ...]
    rules: Rules

    def __call__(self, prompt: Ids, step: int, rng: np.random.Generator) -> list[Ids]:
        """At most `candidates` prompts. Where the step's move yields none, the next one that is drawn stands in."""
        shares = move_shares(self.rules.shares, len(prompt), step, self.rules.lengths)
        for move in dict.fromkeys((*drawn_order(shares, rng), "gcg", "swap")):
            valid = self._kept(prompt, self._draws(move, prompt, step), rng)
            if valid:
                return valid
        raise InputError(
            f"step {step + 1}: no change of the prefix {one_line(as_texts(self.tokenizer, [prompt])[0], width=60)!r} "
            "that was drawn is the same tokens again once it is text; start from another `initial` text"
        )

    def _kept(
        self, prompt: Ids, draw: Callable[[np.random.Generator], list[Ids]], rng: np.random.Generator
    ) -> list[Ids]:
        valid: dict[Ids, None] = {}
        for _ in range(DRAWS):
            new = [p for p in without_repeats(draw(rng)) if p != prompt and p not in valid]
            valid.update(dict.fromkeys(kept_in(self.tokenizer, new, self.places)))
            if len(valid) >= self.rules.candidates:
                break
        return list(valid)[: self.rules.candidates]

    def _draws(self, move: Move, prompt: Ids, step: int) -> Callable[[np.random.Generator], list[Ids]]:
        """How prompts are drawn by this move; the pass that it needs is made here, once."""
        n, n_tokens, k = self.rules.candidates, len(prompt), self.rules.topk
        if move == "delete":
            return lambda rng: deleted(prompt, rng.permutation(n_tokens)[:n].tolist())
        if move == "gcg":
            best = best_tokens(self.objective.gradient(prompt), self.vocabulary, k)

            def by_gradient(rng: np.random.Generator) -> list[Ids]:
                places = rng.integers(0, n_tokens, n)
                return exchanged(prompt, places.tolist(), best[places, rng.integers(0, k, n)].tolist())

            return by_gradient
        logits = self.objective.next_logits(prompt)
        ids = np.array(self.vocabulary.ids)
        rows = logits[:, torch.tensor(self.vocabulary.ids, device=logits.device)].cpu().numpy()
        first = n_tokens + 1 - len(rows)
        if move == "insert":
            each = self.rules.lengths.to_insert(n_tokens, step)

            def longer(rng: np.random.Generator) -> list[Ids]:
                places = rng.integers(first, n_tokens + 1, n * each)
                added = list(zip(places.tolist(), sampled_tokens(rows, ids, places - first, k, rng), strict=True))
                return inserted(prompt, [added[i * each : (i + 1) * each] for i in range(n)])

            return longer

        def swapped(rng: np.random.Generator) -> list[Ids]:
            if first == n_tokens:
                # A lone token that nothing stands before: the model says nothing of its place.
                return []
            places = rng.integers(first, n_tokens, n)
            return exchanged(prompt, places.tolist(), sampled_tokens(rows, ids, places - first, k, rng))

        return swapped
