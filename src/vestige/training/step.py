"""The input of an objective at each step, and its declaration.

Axes: B rows, T positions, D hidden width, V vocabulary. Log-probabilities are in nats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from vestige.core.text import NumberByName, NumberMapping, TextTuple
from vestige.training.batching import SPLITS, Row, Split


@dataclass(frozen=True)
class Needs:
    """The inputs of an objective, by split.

    Log-probabilities of the answers' tokens under the policy and under the frozen reference. Whole next-token
    distributions under both (`distributions`) or under the policy alone (`policy_distributions`). The output of one
    block under the policy (`activations`) and under the reference. The answers' token ids alone (`answer_ids`).
    """

    policy: frozenset[Split] = frozenset()
    reference: frozenset[Split] = frozenset()
    distributions: frozenset[Split] = frozenset()
    policy_distributions: frozenset[Split] = frozenset()
    activations: frozenset[Split] = frozenset()
    reference_activations: frozenset[Split] = frozenset()
    answer_ids: frozenset[Split] = frozenset()

    @property
    def of_logits(self) -> frozenset[Split]:
        """The splits on which the policy's logits are read."""
        return self.policy | self.distributions | self.policy_distributions

    @property
    def splits(self) -> tuple[Split, ...]:
        """Return all splits in use, in a fixed order."""
        read = self.of_logits | self.activations | self.reference | self.reference_activations | self.answer_ids
        return tuple(s for s in SPLITS if s in read)

    @property
    def uses_reference(self) -> bool:
        """Whether a frozen reference is read at all."""
        return bool(self.reference | self.distributions | self.reference_activations)


@dataclass(frozen=True)
class Layers:
    """The block whose output is read, the blocks that are trained, and their trained modules by name."""

    read: int
    update: tuple[int, ...]
    parameters: TextTuple


@dataclass(frozen=True)
class Answers:
    """The answers of one split in a batch: the log-probability of each token, and which tokens count.

    `n_rows` and `n_tokens` are totals over the effective batch, which the tensors may hold only in part.
    """

    logp: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    n_rows: int
    n_tokens: int


@dataclass(frozen=True)
class Distributions:
    """Next-token log-probabilities at the answers' positions, which positions count, and the answers' own tokens.

    If the mask is False a token is some id of the vocabulary, never a special value such as -100.
    """

    logp: Float[Tensor, "B T V"]
    mask: Bool[Tensor, "B T"]
    n_tokens: int
    tokens: Int[Tensor, "B T"]


@dataclass(frozen=True)
class Activations:
    """The output of one block at every token of the rows of one split, and each row's topic.

    `n_rows` counts over the effective batch.
    """

    hidden: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]
    n_rows: int
    topics: TextTuple


@runtime_checkable
class Step(Protocol):
    """The input of an objective. Access to an undeclared input is an error."""

    state: NumberMapping

    def observe(self, name: str, value: Float[Tensor, ""]) -> None:
        """Report a number that is logged and not minimised. The parts of an effective batch are added up."""
        ...

    def policy(self, split: Split) -> Answers:
        """The answers under the model being trained."""
        ...

    def reference(self, split: Split) -> Answers:
        """The answers under the frozen reference; no gradient."""
        ...

    def policy_distributions(self, split: Split) -> Distributions:
        """Distributions under the model being trained."""
        ...

    def reference_distributions(self, split: Split) -> Distributions:
        """Distributions under the frozen reference; no gradient."""
        ...

    def activations(self, split: Split) -> Activations:
        """The output of the block that `ReadsLayer.layers` names, under the model being trained."""
        ...

    def reference_activations(self, split: Split) -> Activations:
        """Return the activations under the frozen reference, without a gradient."""
        ...

    def answer_ids(self, split: Split) -> Sequence[Int[Tensor, " _"]]:
        """The token ids of each row's answer, the end of the turn too, on the CPU."""
        ...


@runtime_checkable
class Objective(Protocol):
    """A loss: declared needs, and the named, weighted terms whose sum is minimised."""

    needs: ClassVar[Needs]

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        """The terms of the loss by name."""
        ...


@runtime_checkable
class ReadsLayer(Protocol):
    """An objective on activations also names the block that it reads, and the blocks that it trains."""

    def layers(self, n_blocks: int, output_projection: str) -> Layers:
        """The layers, in a model of `n_blocks` blocks whose MLP ends with `output_projection`."""
        ...


@runtime_checkable
class KeepsState(Protocol):
    """The additional interface of an objective that carries numbers from step to step."""

    def start(self) -> NumberByName:
        """The state before the first step."""
        ...

    def advance(self, state: NumberMapping, observed: NumberMapping) -> NumberByName:
        """Return the state after a step, from its observations."""
        ...


Finish = Callable[[Float[Tensor, "N D"]], Float[Tensor, "N V"]]
"""Return log-probabilities over the vocabulary from a stored distribution."""


@dataclass(frozen=True)
class KeptDistributions:
    """Next-token distributions, as the head's input, or whole if the head alone does not explain them."""

    states: Float[Tensor, "N D"]
    finish: Finish


@dataclass(frozen=True)
class ReferenceRow:
    """The frozen reference's values of one row: at its loss tokens, and activations at all its tokens."""

    logp: Float[Tensor, " N"] | None = None
    distributions: KeptDistributions | None = None
    activations: Float[Tensor, "T D"] | None = None


@dataclass(frozen=True)
class Slice:
    """The rows of one split in a batch, and the sizes of the effective batch that they are part of."""

    rows: Sequence[Row]
    n_rows: int
    n_tokens: int
