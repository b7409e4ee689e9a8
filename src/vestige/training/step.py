"""What an objective is given at each step, and what it must declare to be given it.

Axes: B rows, T positions, D hidden width, V vocabulary. Log-probabilities are in nats.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.models.blocks import block_output
from vestige.models.forward import logits_at, padded_width, right_padded
from vestige.training.batching import SPLITS, Row, Split

T = TypeVar("T")


@dataclass(frozen=True)
class Needs:
    """What an objective reads, by split.

    Log-probabilities of the answers' tokens under the policy and under the frozen reference; whole next-token
    distributions under both (`distributions`) or under the policy alone (`policy_distributions`); the output of one
    block under the policy (`activations`) and under the reference.
    """

    policy: frozenset[Split] = frozenset()
    reference: frozenset[Split] = frozenset()
    distributions: frozenset[Split] = frozenset()
    policy_distributions: frozenset[Split] = frozenset()
    activations: frozenset[Split] = frozenset()
    reference_activations: frozenset[Split] = frozenset()

    @property
    def of_logits(self) -> frozenset[Split]:
        """The splits on which the policy's logits are read."""
        return self.policy | self.distributions | self.policy_distributions

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits that are read, in a fixed order."""
        read = self.of_logits | self.activations | self.reference | self.reference_activations
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
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Answers:
    """The answers of one split in a batch: the log-probability of each token, and which tokens count.

    `n_rows` and `n_tokens` count over the effective batch, of which the tensors may hold a part.
    """

    logp: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    n_rows: int
    n_tokens: int


@dataclass(frozen=True)
class Distributions:
    """Next-token log-probabilities at the answers' positions, which positions count, and the answers' own tokens.

    Where the mask is False a token is some id of the vocabulary, never a sign such as -100.
    """

    logp: Float[Tensor, "B T V"]
    mask: Bool[Tensor, "B T"]
    n_tokens: int
    tokens: Int[Tensor, "B T"]


@dataclass(frozen=True)
class Activations:
    """The output of one block at every token of the rows of one split, and what each row is about.

    `n_rows` counts over the effective batch.
    """

    hidden: Float[Tensor, "B T D"]
    mask: Bool[Tensor, "B T"]
    n_rows: int
    topics: tuple[str, ...]


@runtime_checkable
class Step(Protocol):
    """What an objective is given. Asking for what was not declared is an error."""

    state: Mapping[str, float]

    def observe(self, name: str, value: Float[Tensor, ""]) -> None:
        """Report a number that is logged and not minimised; the parts of an effective batch are added up."""
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
        """The same under the frozen reference; no gradient."""
        ...


@runtime_checkable
class Objective(Protocol):
    """What is minimised: declared needs, and the named, weighted terms whose sum is the loss."""

    needs: ClassVar[Needs]

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        """The terms of the loss by name."""
        ...


@runtime_checkable
class ReadsLayer(Protocol):
    """What an objective on activations says besides: which block it reads, and which it trains."""

    def layers(self, n_blocks: int, output_projection: str) -> Layers:
        """The layers, in a model of `n_blocks` blocks whose MLP ends with `output_projection`."""
        ...


@runtime_checkable
class KeepsState(Protocol):
    """What an objective says besides if it carries numbers from step to step."""

    def start(self) -> dict[str, float]:
        """The state before the first step."""
        ...

    def advance(self, state: Mapping[str, float], observed: Mapping[str, float]) -> dict[str, float]:
        """The state after a step, from what was observed in it."""
        ...


@dataclass(frozen=True)
class ReferenceRow:
    """What the frozen reference said of one row: values at its loss tokens, activations at all its tokens."""

    logp: Float[Tensor, " N"] | None = None
    distribution: Callable[[], Float[Tensor, "N V"]] | None = None
    activations: Float[Tensor, "T D"] | None = None


@dataclass(frozen=True)
class Slice:
    """The rows of one split in a batch, and the sizes of the effective batch that they are part of."""

    rows: Sequence[Row]
    n_rows: int
    n_tokens: int


@dataclass
class ForwardStep:
    """A step whose policy quantities come from one forward pass over the rows of all splits together.

    `layer` is the block whose output is kept, for an objective on activations.
    """

    needs: Needs
    slices: dict[Split, Slice]
    references: Mapping[str, ReferenceRow]
    state: Mapping[str, float] = field(default_factory=dict)
    observed: dict[str, float] = field(default_factory=dict)
    logits: dict[Split, Float[Tensor, "B T V"]] = field(default_factory=dict)
    targets: dict[Split, Tensor] = field(default_factory=dict)
    masks: dict[Split, Bool[Tensor, "B T"]] = field(default_factory=dict)
    first: int = 0
    hidden: dict[Split, Float[Tensor, "B T D"]] = field(default_factory=dict)
    tokens: dict[Split, Bool[Tensor, "B T"]] = field(default_factory=dict)

    def run(self, model: PreTrainedModel, layer: int | None = None) -> "ForwardStep":
        """Run the policy once over all rows that it is read on."""
        if self.needs.of_logits:
            self._read_logits(model)
        if self.needs.activations:
            assert layer is not None
            self._read_block(model, layer)
        return self

    def _read_logits(self, model: PreTrainedModel) -> None:
        read = [s for s in self.slices if s in self.needs.of_logits]
        rows, counts, ids = self._batch(read, model)
        self.first = min(r.start for r in rows)
        positions = torch.arange(self.first - 1, max(r.stop for r in rows) - 1, device=ids.device)
        logits = logits_at(model, ids, positions)
        at = positions + 1
        mask = torch.stack([(at >= r.start) & (at < r.stop) for r in rows])
        self.logits = dict(zip(read, logits.split(counts), strict=True))
        self.targets = dict(zip(read, ids[:, at].split(counts), strict=True))
        self.masks = dict(zip(read, mask.split(counts), strict=True))

    def _read_block(self, model: PreTrainedModel, layer: int) -> None:
        read = [s for s in self.slices if s in self.needs.activations]
        rows, counts, ids = self._batch(read, model)
        hidden = block_output(model, ids, layer)
        lengths = torch.tensor([len(r.ids) for r in rows], device=ids.device)
        mask = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        self.hidden = dict(zip(read, hidden.split(counts), strict=True))
        self.tokens = dict(zip(read, mask.split(counts), strict=True))

    def _batch(self, read: list[Split], model: PreTrainedModel) -> tuple[list[Row], list[int], Int[Tensor, "B T"]]:
        rows = [row for s in read for row in self.slices[s].rows]
        ids = right_padded([r.ids for r in rows], padded_width(max(len(r.ids) for r in rows)), model.device)
        return rows, [len(self.slices[s].rows) for s in read], ids

    def observe(self, name: str, value: Float[Tensor, ""]) -> None:
        self.observed[name] = self.observed.get(name, 0.0) + value.item()

    def policy(self, split: Split) -> Answers:
        self._declared(split, self.needs.policy, "policy")
        logits = self.logits[split]
        chosen = logits.gather(-1, self.targets[split][..., None]).squeeze(-1)
        whole = self.slices[split]
        return Answers(chosen - logits.logsumexp(-1), self.masks[split], whole.n_rows, whole.n_tokens)

    def policy_distributions(self, split: Split) -> Distributions:
        self._declared(split, self.needs.distributions | self.needs.policy_distributions, "policy's distributions")
        whole = self.slices[split]
        return Distributions(self.logits[split].log_softmax(-1), self.masks[split], whole.n_tokens, self.targets[split])

    def reference(self, split: Split) -> Answers:
        self._declared(split, self.needs.reference, "reference")
        whole = self.slices[split]
        values = [known(self.references[r.key].logp) for r in whole.rows]
        width = max(len(v) for v in values)
        logp = torch.stack([torch.nn.functional.pad(v, (0, width - len(v))) for v in values])
        mask = torch.stack([torch.arange(width, device=v.device) < len(v) for v in values])
        return Answers(logp, mask, whole.n_rows, whole.n_tokens)

    def reference_distributions(self, split: Split) -> Distributions:
        """The rows stand where the policy's stand, so that the two can be compared position by position."""
        self._declared(split, self.needs.distributions, "distributions")
        whole, like = self.slices[split], self.logits[split]
        logp = torch.zeros_like(like, requires_grad=False)
        for i, row in enumerate(whole.rows):
            distribution = known(self.references[row.key].distribution)
            place = row.start - self.first
            logp[i, place : place + row.n_tokens] = distribution()
        return Distributions(logp, self.masks[split], whole.n_tokens, self.targets[split])

    def activations(self, split: Split) -> Activations:
        self._declared(split, self.needs.activations, "activations")
        return self._activations(split, self.hidden[split])

    def reference_activations(self, split: Split) -> Activations:
        self._declared(split, self.needs.reference_activations, "the reference's activations")
        rows, width = self.slices[split].rows, self.tokens[split].shape[1]
        kept = [known(self.references[r.key].activations) for r in rows]
        hidden = torch.stack([torch.nn.functional.pad(h, (0, 0, 0, width - len(h))) for h in kept])
        return self._activations(split, hidden)

    def _activations(self, split: Split, hidden: Float[Tensor, "B T D"]) -> Activations:
        whole = self.slices[split]
        return Activations(hidden, self.tokens[split], whole.n_rows, tuple(r.topic for r in whole.rows))

    def _declared(self, split: Split, declared: frozenset[Split], what: str) -> None:
        if split not in declared:
            raise KeyError(f"{what} of {split!r} was not declared in needs; declared: {sorted(declared)}")


def known(value: T | None) -> T:
    """A reference quantity that was declared, and so was computed."""
    assert value is not None
    return value
