"""Settings of searches for a prompt, and how a found prompt is put to a question. `gcg` and `enhanced` search.

A searched prompt precedes the question (`prefix`) or follows it (`suffix`), a space away from the question's words. It
is sent as text. A prompt that the tokeniser would cut into other tokens was never seen by the search, so it is left
out.

Questions use the whole prompt, a share of its tokens, or its shuffled tokens. A cut prompt is the first of its tokens,
so its bits in any code from left to right are part of the bits of the whole prompt.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from vestige.artifacts.audits import PlannedAttack
from vestige.artifacts.records import SHUFFLED
from vestige.attacks.planning import Attack, AttackSettings, Ended, Splits, Work
from vestige.attacks.relearn import planned_on_part
from vestige.core.items import Item
from vestige.core.seeds import generator
from vestige.core.text import Record, TextMapping

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel

Placement = Literal["prefix", "suffix"]


def deployed(question: str, prompt: str, placement: Placement) -> str:
    """The question as it is sent. Without a prompt it is the question itself."""
    parts = (prompt, question) if placement == "prefix" else (question, prompt)
    return " ".join(filter(None, parts))


_SHARES: Mapping[str, int] = {f"{percent} %": percent for percent in range(0, 101, 10)}
POINTS = (SHUFFLED, *_SHARES)
"""The points of an attack by a searched prompt, in order. The last, the whole prompt, is judged."""


class PromptSettings(AttackSettings):
    """A search for one prompt on some forget items, which is tested on others that do not follow from those."""

    amount: ClassVar[str] = "items"
    beside: ClassVar[bool] = True
    audited: ClassVar[TextMapping]
    """The audit setting behind each field."""

    items: PositiveInt = Field(default=7, exclude=True)
    """Search on this many forget items. The others are tested."""
    steps: PositiveInt = 250
    """Steps of the search."""
    ascii_only: bool = True
    """Search ASCII tokens only."""
    initial: str = ""
    """Text to start from, in place of random tokens."""

    @classmethod
    def in_audit(cls, asked: Record) -> Iterable[Self]:
        """One for each number of items. Search settings outside the audit's keep their defaults."""
        values = {name: asked[key] for name, key in cls.audited.items() if asked[key] is not None}
        return [cls.build({**values, "items": n}, where=f"settings of {cls.kind}") for n in asked[cls.kind]]

    def plan(self, splits: Splits, *, seed: int) -> Attack:
        """Use a part of the forget set for the search, and test the rest with the whole prompt and with parts."""
        return planned_on_part(self, self.items, splits, seed=seed, points=POINTS)

    def run(self, work: Work, loaded: "LoadedModel") -> Ended:
        """Search, and ask."""
        return work.searched(loaded, self.steps)


def tokens_at(ids: Sequence[int], point: str, *, seed: int) -> tuple[int, ...]:
    """Return a prompt's tokens at a stage: a share, rounded down, or all shuffled."""
    if point == SHUFFLED:
        order = generator(seed, "shuffled prompt").permutation(len(ids))
        return tuple(ids[n] for n in order.tolist())
    return tuple(ids[: len(ids) * _SHARES[point] // 100])


def asked_with_prompt(items: Sequence[Item], text: str, placement: Placement) -> dict[str, Item]:
    """Return, by item id, the item with the prompt, in all wordings.

    An empty prompt leaves each item as it is.
    """
    return {
        item.id: replace(
            item,
            question=deployed(item.question, text, placement),
            paraphrase=None if item.paraphrase is None else deployed(item.paraphrase, text, placement),
        )
        for item in items
    }


class GcgSettings(PromptSettings):
    """The settings of a GCG search for a prompt that makes the model give the true answers."""

    weights: ClassVar[str] = "a searched suffix"
    kind: ClassVar[str] = "gcg"
    audited: ClassVar[TextMapping] = {"tokens": "prompt_tokens", "steps": "prompt_steps", "width": "prompt_candidates"}

    placement: Placement = "suffix"
    """The prompt's place: before or after the question."""
    tokens: PositiveInt = 20
    """Length of the prompt in tokens."""
    width: PositiveInt = 512
    """Prompts scored in a step."""
    topk: PositiveInt = 256
    """Tokens of least gradient that proposals come from."""
    replaced: PositiveInt = 1
    """Tokens replaced in a proposal."""
    buffer: int = Field(default=0, ge=0)
    """Keep this many best prompts; 0 goes on with each step's best, even if it is worse."""
    stop_when_reached: bool = True
    """Stop when every target token is the first choice."""

    def passes(self, plan: PlannedAttack) -> int:
        """At each step all candidates, a gradient and a look at the winner. At the start two looks at it."""
        return (self.steps * (self.width + 2) + 2) * plan.n_shown


class EnhancedSettings(PromptSettings):
    """Settings of a search for a prefix that makes the model reply like its target.

    Weights multiply the terms of the loss. A weight of 0 leaves a term out.
    """

    weights: ClassVar[str] = "a searched prefix"
    guided: ClassVar[bool] = True
    kind: ClassVar[str] = "prefix"
    version: ClassVar[int] = 2
    audited: ClassVar[Mapping[str, str]] = {
        "tokens": "prompt_tokens",
        "steps": "prompt_steps",
        "candidates": "prompt_candidates",
    }

    # The defaults are those of the released code, where it has them. Its prefixes begin with 32 tokens.
    tokens: PositiveInt = 32
    """Length of the prefix in tokens."""
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
    clamp: float = Field(default=0.6, gt=0, le=1)
    """Probability beyond which a token is not pushed; 1 for none."""
    layers: tuple[NonNegativeInt, ...] = ()
    """Blocks, from 0, after which hidden states are compared. The default is the depth of the code's 7, 8, 9 of 32."""
    distance: NonNegativeFloat = 1.0
    """Weight of the distance of hidden states."""
    fluency: NonNegativeFloat = 1.5
    """Weight of fluency."""
    repetition: NonNegativeFloat = 3.0
    """Weight against repetition."""
    repetition_power: PositiveFloat = 1.5
    """Power of the repetition term."""

    def passes(self, plan: PlannedAttack) -> int:
        """At each step all candidates and a gradient, by the subject and by the target. At the start one more."""
        return 2 * (self.steps * (self.candidates + 1) + 1) * plan.n_shown
