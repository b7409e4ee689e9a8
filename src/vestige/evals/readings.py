"""What evaluations ask of a model at once: a role, and collecting from one reading for one of them or for several.

Whether another evaluation asked along changes a record by rounding alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from vestige.core.settings import Settings
from vestige.models.load import LoadedModel
from vestige.models.reading import Asking, Prompted, Reading

S = TypeVar("S", bound=Settings, contravariant=True)
T = TypeVar("T", contravariant=True)


@dataclass(frozen=True)
class ToRead:
    """What is to be read, and how records are made of the readings, which come in that order."""

    wanted: list[Prompted]
    records: Callable[[Sequence[Reading]], list[dict[str, Any]]]


@runtime_checkable
class Reads(Protocol[S, T]):
    """An evaluation whose records are made of readings, so that several can be collected from the same."""

    def to_read(self, subject: LoadedModel, asked: Sequence[T], settings: S) -> ToRead:
        """What is to be read of these, and their records, in order."""


def readings(subject: LoadedModel, wanted: Sequence[Prompted]) -> list[Reading]:
    """What is wanted of the subject, in order."""
    asking = Asking(subject.prompter.end_ids, subject.prompter.max_tokens)
    return subject.engine.read(wanted, asking)


def collected(subject: LoadedModel, parts: Sequence[ToRead]) -> list[list[dict[str, Any]]]:
    """The records of each part, from one reading of all of them."""
    found = iter(readings(subject, [w for part in parts for w in part.wanted]))
    return [part.records([next(found) for _ in part.wanted]) for part in parts]
