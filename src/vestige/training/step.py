"""What an objective is given at each step, and what it must declare to be given it.

Axes: B rows, T positions, V vocabulary. Log-probabilities are in nats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from vestige.models.forward import logits_at, padded_width, right_padded
from vestige.training.batching import Row, Split


@dataclass(frozen=True)
class Needs:
    """What an objective reads, by split.

    Log-probabilities of the answers' tokens under the policy and under the frozen reference, and whole next-token
    distributions under both (`distributions`) or under the policy alone (`policy_distributions`).
    """

    policy: frozenset[Split] = frozenset()
    reference: frozenset[Split] = frozenset()
    distributions: frozenset[Split] = frozenset()
    policy_distributions: frozenset[Split] = frozenset()

    @property
    def of_policy(self) -> frozenset[Split]:
        """The splits that the policy has to be run on."""
        return self.policy | self.distributions | self.policy_distributions

    @property
    def splits(self) -> tuple[Split, ...]:
        """All splits that are read, in a fixed order."""
        order: tuple[Split, ...] = ("train", "forget", "retain", "idk")
        return tuple(s for s in order if s in self.of_policy | self.reference)

    @property
    def uses_reference(self) -> bool:
        """Whether a frozen reference is read at all."""
        return bool(self.reference | self.distributions)


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


@runtime_checkable
class Step(Protocol):
    """What an objective is given. Asking for what was not declared is an error."""

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


@runtime_checkable
class Objective(Protocol):
    """What is minimised: declared needs, and the named, weighted terms whose sum is the loss."""

    needs: ClassVar[Needs]

    def terms(self, step: Step) -> dict[str, Float[Tensor, ""]]:
        """The terms of the loss by name."""
        ...


@dataclass(frozen=True)
class ReferenceRow:
    """What the frozen reference said of one row: a value, and if asked for a distribution, for each loss token."""

    logp: Float[Tensor, " T"]
    distribution: Callable[[], Float[Tensor, "T V"]] | None = None


@dataclass(frozen=True)
class Slice:
    """The rows of one split in a batch, and the sizes of the effective batch that they are part of."""

    rows: Sequence[Row]
    n_rows: int
    n_tokens: int


@dataclass
class ForwardStep:
    """A step whose policy quantities come from one forward pass over the rows of all splits together."""

    needs: Needs
    slices: dict[Split, Slice]
    references: dict[str, ReferenceRow]
    logits: dict[Split, Float[Tensor, "B T V"]]
    targets: dict[Split, Tensor]
    masks: dict[Split, Bool[Tensor, "B T"]]
    first: dict[Split, int] = field(default_factory=dict)

    @classmethod
    def run(
        cls,
        model: PreTrainedModel,
        needs: Needs,
        slices: dict[Split, Slice],
        references: dict[str, ReferenceRow],
    ) -> "ForwardStep":
        """Run the policy once over all rows that it is read on."""
        read = [s for s in slices if s in needs.of_policy]
        rows = [row for s in read for row in slices[s].rows]
        ids = right_padded([r.ids for r in rows], padded_width(max(len(r.ids) for r in rows)), model.device)
        first, last = min(r.start for r in rows) - 1, max(r.stop for r in rows) - 1
        positions = torch.arange(first, last, device=ids.device)
        logits = logits_at(model, ids, positions)
        at = positions + 1
        mask = torch.stack([(at >= r.start) & (at < r.stop) for r in rows])
        counts = [len(slices[s].rows) for s in read]
        return cls(
            needs,
            slices,
            references,
            dict(zip(read, logits.split(counts), strict=True)),
            dict(zip(read, ids[:, at].split(counts), strict=True)),
            dict(zip(read, mask.split(counts), strict=True)),
            dict.fromkeys(read, first + 1),
        )

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
        values = [self.references[r.key].logp for r in whole.rows]
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
            distribution = self.references[row.key].distribution
            assert distribution is not None
            place = row.start - self.first[split]
            logp[i, place : place + row.n_tokens] = distribution()
        return Distributions(logp, self.masks[split], whole.n_tokens, self.targets[split])

    def _declared(self, split: Split, declared: frozenset[Split], what: str) -> None:
        if split not in declared:
            raise KeyError(f"{what} of {split!r} was not declared in needs; declared: {sorted(declared)}")
