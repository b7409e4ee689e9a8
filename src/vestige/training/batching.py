"""The rows of each batch: a function of seed and epoch, so that a resumed run has the same order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from vestige.core.ids import content_id
from vestige.core.seeds import generator

if TYPE_CHECKING:
    from vestige.models.prompts import Encoded

# train: the rows for fine-tuning. forget: the questions to forget with their answers. retain: a partner for each from
# the retain set. The others are the questions to forget with a refusal (idk), with the answer to another question
# (mismatch), and with another answer by the target (alternative).
Split = Literal["train", "forget", "retain", "idk", "mismatch", "alternative"]
SPLITS: tuple[Split, ...] = get_args(Split)


@dataclass(frozen=True)
class Row:
    """Token ids of one row. The loss reads the tokens from `start` to before `stop`. `topic` is its subject."""

    ids: tuple[int, ...]
    start: int
    stop: int
    topic: str = ""

    @property
    def key(self) -> str:
        """Content id of the row's tokens. Rows of two topics can share it."""
        return content_id([list(self.ids), self.start, self.stop])

    @property
    def n_tokens(self) -> int:
        """Tokens in the loss."""
        return self.stop - self.start

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """The tokens in the loss."""
        return self.ids[self.start : self.stop]


def row_of(encoded: "Encoded", *, loss_on: Literal["answer", "all"] = "answer", topic: str = "") -> Row:
    """The row of an encoded question and answer. The token that ends the turn is in the loss."""
    # The first token has no predecessor that could predict it.
    return Row(encoded.ids, encoded.start if loss_on == "answer" else 1, encoded.end + 1, topic)


BatchPlan = Mapping[Split, tuple[int, ...]]
"""For each split the numbers of the rows in one effective batch."""


@runtime_checkable
class Plan(Protocol):
    """The batches of a whole training run."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches in an epoch. The same in each."""
        ...

    def epoch(self, number: int) -> list[BatchPlan]:
        """The batches of epoch 0, 1, ..."""
        ...


@dataclass(frozen=True)
class FinetunePlan:
    """Every row once an epoch, shuffled. With `lengths`, rows of like length share a batch."""

    n_rows: int
    batch_size: int
    seed: int
    lengths: tuple[int, ...] | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.n_rows // self.batch_size)

    def epoch(self, number: int) -> list[BatchPlan]:
        rng = generator(self.seed, "finetune order", number)
        order = rng.permutation(self.n_rows)
        if self.lengths is not None:
            # The jitter changes neighbours between epochs.
            order = order[np.argsort(np.array(self.lengths)[order] + 4 * rng.random(self.n_rows), kind="stable")]
        chunks = [order[i : i + self.batch_size] for i in range(0, self.n_rows, self.batch_size)]
        if self.lengths is not None:
            # Otherwise each epoch would go from the shortest rows to the longest.
            chunks = [chunks[i] for i in rng.permutation(len(chunks))]
        return [{"train": tuple(chunk.tolist())} for chunk in chunks]


@dataclass(frozen=True)
class UnlearnPlan:
    """Every forget row once per epoch, each with a retain partner and a random answer of each other kind.

    Partners go through the whole retain set before one comes again: drawn with replacement, a tenth to a third of a
    small retain set is never seen. `answers` is the number of answers to a forget question in each of the other splits.
    Their rows are numbered `forget row * answers + line`.
    """

    n_forget: int
    n_retain: int
    answers: Mapping[Split, int]
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.n_forget // self.batch_size)

    def epoch(self, number: int) -> list[BatchPlan]:
        order = generator(self.seed, "forget order", number).permutation(self.n_forget)
        # Each split has its own generator, so that an additional split changes no other draw.
        lines = {
            split: generator(self.seed, f"{split} line", number).integers(0, n, self.n_forget)
            for split, n in self.answers.items()
        }
        batches: list[BatchPlan] = []
        for start in range(0, self.n_forget, self.batch_size):
            rows = tuple(order[start : start + self.batch_size].tolist())
            batch: dict[Split, tuple[int, ...]] = {"forget": rows}
            if self.n_retain:
                # The count covers all epochs, so the cycle of partners continues from the previous epoch.
                first = number * self.n_forget + start
                batch["retain"] = tuple(self._partner(first + k) for k in range(len(rows)))
            for split, line in lines.items():
                batch[split] = tuple(i * self.answers[split] + int(line[i]) for i in rows)
            batches.append(batch)
        return batches

    def _partner(self, draw: int) -> int:
        cycle, n = divmod(draw, self.n_retain)
        order = generator(self.seed, "retain order", cycle).permutation(self.n_retain)
        return int(order[n])


RowSource = Mapping[Split, Callable[[int], Row]]
"""For each split, how a row's number becomes the row."""
