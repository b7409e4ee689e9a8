"""Several processes that train one model: who computes which part of an effective batch, and how it is added up.

Each process has the whole model, and gradients are added up (`DistributedDataParallel`). The effective batch is the
same whatever the number of processes: it is cut into parts, and the parts are dealt out. Random numbers belong to a
part, not to a process. torchrun starts the processes. `joined` finds the others.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from vestige.core.errors import InputError, Interrupted
from vestige.core.text import NumberByName, NumberMapping, one_line

T = TypeVar("T")
WAIT = timedelta(hours=2)
"""The time limit for other processes: the first may be saving or scoring a large model."""


@dataclass(frozen=True)
class World:
    """The processes that train one model together, seen from one."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and speaks."""
        return self.rank == 0

    def agreed(self, flag: bool) -> bool:
        """Return the first process's value: clocks and files may differ elsewhere."""
        return bool(self.led({"flag": float(flag)})["flag"])

    def led(self, values: NumberMapping) -> NumberByName:
        """The leading process's numbers, by name. Every process has the same names."""
        return self.summed({name: value if self.leads else 0.0 for name, value in values.items()})

    def said(self, text: str) -> str:
        """The leading process's text."""
        if self.size == 1:
            return text
        content = text.encode()
        n = round(self.led({"bytes": float(len(content))})["bytes"])
        sent = torch.tensor([*content] if self.leads else [0] * n, dtype=torch.uint8)
        with _others_alive():
            dist.broadcast(sent, src=0)
        return bytes(sent.tolist()).decode()

    def summed(self, values: NumberMapping) -> NumberByName:
        """Sums over all processes, by name. Every process has the same names."""
        # Only numbers are sent, so all processes must have them in the same order.
        names = sorted(values)
        if self.size == 1 or not names:
            return dict(values)
        # float64 represents counts of tokens and bytes exactly.
        total = torch.tensor([values[n] for n in names], dtype=torch.float64)
        with _others_alive():
            dist.all_reduce(total)
        sums = dict(zip(names, total.tolist(), strict=True))
        return {n: sums[n] for n in values}

    def wait(self) -> None:
        """Go on when all processes have come here."""
        self.agreed(True)

    def rows_at_a_time(self, batch_size: int, most: int | None) -> int:
        """Return the rows of a part: `most`, or fewer if that leaves a process without any."""
        return min(most or batch_size, math.ceil(batch_size / self.size))

    def deal(self, parts: Sequence[T]) -> list[tuple[int, T, float]]:
        """This process's parts of an effective batch, each with its number and weight.

        Gradients are added up in the last pass of each process, so each makes as many passes. A process that is dealt
        too few parts computes the last part too, with weight 0.
        """
        rounds = math.ceil(len(parts) / self.size)
        places = range(self.rank, rounds * self.size, self.size)
        last = len(parts) - 1
        return [(min(p, last), parts[min(p, last)], float(p <= last)) for p in places]


ALONE = World()


def _place() -> tuple[int, int]:
    """This process's rank, and how many torchrun started. Surroundings that torchrun would not leave are refused."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    way_out = "Start several processes with torchrun, or unset WORLD_SIZE for one"
    size = os.environ["WORLD_SIZE"]
    if not size.isdecimal() or int(size) == 0:
        raise InputError(f"WORLD_SIZE is {one_line(size)!r}, which is not a number of processes. {way_out}")
    if int(size) == 1:
        return 0, 1
    missing = [n for n in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if n not in os.environ]
    if missing:
        raise InputError(f"WORLD_SIZE is {size}, and {', '.join(missing)} is not set. {way_out}")
    for name, least, most in (("RANK", 0, int(size) - 1), ("LOCAL_RANK", 0, int(size) - 1), ("MASTER_PORT", 1, 65535)):
        text = os.environ[name]
        if not text.isdecimal() or not least <= int(text) <= most:
            raise InputError(f"{name} is {one_line(text)!r} and not a number from {least} to {most}. {way_out}")
    return int(os.environ["RANK"]), int(size)


@contextlib.contextmanager
def _others_alive() -> Iterator[None]:
    """A communication error means that another process has ended with its own message."""
    try:
        yield
    except RuntimeError as error:
        raise Interrupted(
            "another process of this training has ended; what it said is the reason, and the same command goes on "
            "from here"
        ) from error


@contextlib.contextmanager
def joined() -> Iterator[World]:
    """The processes that torchrun started, for as long as they work together. Without torchrun, this one alone.

    Each process on a machine with CUDA takes the device of its local rank.
    """
    _, size = _place()
    if size == 1:
        yield ALONE
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    try:
        # Messages between processes are on the CPU, and nccl only transfers GPU tensors.
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=WAIT)
    except dist.DistError as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise InputError(
            f"cannot meet the other processes at {one_line(address)} ({one_line(str(error), width=200)}). Start them "
            "with torchrun"
        ) from error
    try:
        yield World(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


class _Within(nn.Module):
    """A model, called through whatever is to be computed with it: DDP then sees any objective as one forward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
        return compute()


@dataclass(frozen=True)
class Spread:
    """A model on the processes of a world. `replica` adds up gradients if there are several processes."""

    world: World
    model: PreTrainedModel
    replica: DistributedDataParallel | None = None

    @cached_property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are trained."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def add_gradients(
        self, compute: Callable[[], dict[str, Tensor]], *, weight: float, last: bool
    ) -> dict[str, Tensor]:
        """The terms that `compute` gives for a part. The gradient of their weighted sum is added to the others'.

        With `last`, a replica's gradients are added up over the processes.
        """
        held_back = self.replica.no_sync() if self.replica is not None and not last else contextlib.nullcontext()
        with held_back:
            if self.replica is None:
                terms = compute()
            else:
                terms = self.replica(compute)
            # DDP averages over the processes, but a loss already counts for the whole effective batch.
            (_sum(terms.values()) * (weight * self.world.size)).backward()
        return dict(terms)

    def clip_gradients(self, most: float) -> float:
        """Scale the gradients down to norm `most` over all parameters and processes. The norm before that."""
        norm: float = nn.utils.clip_grad_norm_(self.trained, most).item()
        return norm


@contextlib.contextmanager
def spread_over(model: PreTrainedModel, world: World) -> Iterator[Spread]:
    """`model` on the processes of `world` while it trains."""
    if world.size == 1:
        yield Spread(world, model)
        return
    # Buffers follow from the config and are equal in all processes. Gradients are views of the communication buffers,
    # which saves a second copy.
    replica = DistributedDataParallel(_Within(model), broadcast_buffers=False, gradient_as_bucket_view=True)
    yield Spread(world, model, replica)


def _sum(values: Iterable[Tensor]) -> Tensor:
    total, *rest = values
    for value in rest:
        total = total + value
    return total
