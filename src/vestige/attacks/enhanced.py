"""Enhanced GCG: one prefix for many questions, under which an unlearned model says and thinks what its target does.

J. Łucki et al., An adversarial perspective on machine unlearning for AI safety, 2409.18025, and their code, built on
FLRT (T. B. Thompson, M. Sklar, 2407.17447). Differs from the code in what `enhanced_objective` and `enhanced_moves`
say, and: what a move yields is drawn again until `candidates` prompts stay the same tokens as text; the best prompt
seen is returned, and not the first of the last buffer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.artifacts.audits import PlannedAttack
from vestige.attacks.placement import PromptSettings
from vestige.models.generation import generate
from vestige.models.load import LoadedModel
from vestige.models.variants import Ids

Share = Annotated[float, Field(ge=0, le=1)]


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

    # Values are those of the released code, where it has them; the tests hold them to it.
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
    def lengths(self) -> Lengths:
        """How long a prefix is to be at each step."""
        return Lengths(min(self.first_tokens, self.tokens), self.tokens, min(self.ramp_steps, 2 * self.steps // 3))

    @property
    def shares(self) -> dict[Move, float]:
        """How often each move is made."""
        return {
            "gcg": self.gcg_share,
            "delete": self.delete_share,
            "insert": self.insert_share,
            "swap": self.swap_share,
        }


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
    # Halves are rounded up, in whole numbers: `round` would take them to the even neighbour.
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
    # Where the target ends its reply, the end is to be said as well.
    samples = [(*r.ids, *prompter.end_ids[:1])[:most] if r.finish == "stop" else r.ids for r in replies]
    n = settings.forced_tokens
    return [GuideReply(question, ids[:n], ids[n:]) for question, ids in zip(questions, samples, strict=True)]
