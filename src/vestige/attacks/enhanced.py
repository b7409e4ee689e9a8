"""Enhanced GCG: one prefix for many questions, under which an unlearned model says and thinks what its target does.

J. Łucki et al., An adversarial perspective on machine unlearning for AI safety, 2409.18025, and their code, built on
FLRT (T. B. Thompson, M. Sklar, 2407.17447). Differs from the code in what `enhanced_objective` and `enhanced_moves`
say, and: what a move yields is drawn again until `candidates` prompts stay the same tokens as text; the best prompt
seen is returned, and not the first of the last buffer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.artifacts.audits import PlannedAttack
from vestige.attacks.enhanced_moves import ByMoves, Lengths, Move, Rules
from vestige.attacks.enhanced_objective import PrefixObjective, Shape, TermWeights
from vestige.attacks.gcg import (
    FoundPrompt,
    Keeper,
    SearchSettings,
    drawn_start,
    found_prompt,
    nothing_spent,
    search,
    tell_nobody,
)
from vestige.attacks.placement import (
    PromptSettings,
    Vocabulary,
    admissible,
    around,
    check_topk,
    ids_in,
    places_of,
)
from vestige.core.errors import InputError
from vestige.core.seeds import generator
from vestige.models.blocks import embedding_table
from vestige.models.generation import generate
from vestige.models.load import LoadedModel, context_tokens
from vestige.models.streams import Streams, streams_of
from vestige.models.variants import Around, Ids

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
        weights = TermWeights(self.distance, self.representation, self.fluency, self.repetition)
        return Shape(weights, self.clamp, self.scaled, self.repetition_power)


@dataclass(frozen=True)
class GuideReply:
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


def samples_of(guide: LoadedModel, questions: Sequence[str], settings: EnhancedSettings) -> list[GuideReply]:
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
    return [GuideReply(question, ids[:n], ids[n:]) for question, ids in zip(questions, samples, strict=True)]


def find_prefix(
    loaded: LoadedModel,
    guide: LoadedModel,
    samples: Sequence[GuideReply],
    settings: EnhancedSettings,
    *,
    seed: int,
    keeper: Keeper | None = None,
    on_step: Callable[[int, int], None] = tell_nobody,
) -> FoundPrompt:
    """The prefix under which `loaded` comes nearest to its target `guide`.

    The search goes on when all that is forced is said, since the other terms can still fall; at the end it is looked
    at once, uncounted. Where `guide` is `loaded` itself no distance lies between them and none is computed.
    """
    texts = _texts(loaded, guide, samples)
    n_rows = min(len(embedding_table(model)) for model in (loaded.model, guide.model))
    vocabulary = admissible(loaded.tokenizer, n_rows, ascii_only=settings.ascii_only)
    places = places_of(loaded.tokenizer, texts)
    if settings.initial:
        start = vocabulary.check(ids_in(loaded.tokenizer, settings.initial, places))
    else:
        rng = generator(seed, "start of a prefix search")
        start = drawn_start(loaded, places, vocabulary, settings.rules.lengths.first, rng)
    objective = _objective(loaded, guide, samples, texts, settings)
    _check(objective.subject, vocabulary, len(start), settings)
    state = search(
        start,
        objective,
        ByMoves(objective, loaded.tokenizer, vocabulary, places, settings.rules),
        SearchSettings(steps=settings.steps, buffer=settings.buffer, stop_when_reached=False, reopens=False),
        seed=seed,
        keeper=keeper,
        spent=objective.spent,
        on_step=on_step,
    )
    return found_prompt(state, loaded, places, vocabulary, reached=objective.says(state.best[0]))


def _texts(loaded: LoadedModel, guide: LoadedModel, samples: Sequence[GuideReply]) -> tuple[Around, ...]:
    if not samples:
        raise InputError("a prefix is searched for questions, and none are given; give at least one")
    if loaded.prompter.digest != guide.prompter.digest:
        raise InputError(
            f"{guide.name} has another tokeniser or chat template than {loaded.name}, so their streams under one "
            "prefix cannot be compared; give the model that was unlearned as the target"
        )
    return tuple(around(loaded.prompter, s.question, s.said, "prefix") for s in samples)


def _objective(
    loaded: LoadedModel,
    guide: LoadedModel,
    samples: Sequence[GuideReply],
    texts: tuple[Around, ...],
    settings: EnhancedSettings,
) -> PrefixObjective:
    compared = settings.distance > 0 and guide.model is not loaded.model
    layers: tuple[int, ...] = ()
    if compared or settings.representation > 0:
        configs = [model.model.config.get_text_config() for model in (loaded, guide)]
        (depth, width), (guide_depth, guide_width) = ((c.num_hidden_layers, c.hidden_size) for c in configs)
        if (depth, width) != (guide_depth, guide_width):
            raise InputError(
                f"{loaded.name} has {depth} layers of width {width} and {guide.name} {guide_depth} of {guide_width}, "
                "so their streams cannot be compared; set distance=0 and representation=0"
            )
        layers = settings.layers or layers_at_depth(depth)
    without = [
        streams_of(guide.model, guide.prompter.prompt(s.question) + s.said, layers, last=len(s.said) + 1)
        for s in samples
        if settings.representation > 0
    ]
    return PrefixObjective(
        subject=Streams(loaded.model, loaded.way, texts, layers),
        guide=Streams(guide.model, guide.way, texts, layers, logits=False) if compared else None,
        forced=tuple(len(s.forced) for s in samples),
        without=tuple(without),
        shape=settings.shape,
        spent=nothing_spent(),
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
    check_topk(settings.topk, vocabulary)
    if not any(settings.rules.shares.values()):
        raise InputError("all four shares of moves are 0, so the prefix would never change; raise gcg_share")
