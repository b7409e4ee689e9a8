"""Samples of a source: which of its rows are taken, and what became of the others.

A sample is chosen by the digest of its content and the seed, so that the order of the rows and the rows beside it
change nothing, and the first n are among the first n + 1.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from vestige.core.errors import InputError
from vestige.core.seeds import derive_seed


class _Named(Protocol):
    @property
    def id(self) -> str: ...


S = TypeVar("S", bound=_Named)


@dataclass(frozen=True)
class Sampled(Generic[S]):
    """The samples in the order of the source, the number of its rows, and how many were passed over, by reason."""

    samples: tuple[S, ...]
    n_rows: int
    dropped: Mapping[str, int]


def sampled(source: str, candidates: Iterable[S | str], *, n: int | None, seed: int) -> Sampled[S]:
    """`n` of the candidates, or all; a candidate that is a text is a row passed over, and the text is the reason.

    Equal candidates count once. Fewer than `n` are refused: a smaller sample would be another experiment.
    """
    found: dict[str, S] = {}
    dropped: Counter[str] = Counter()
    n_rows = 0
    for candidate in candidates:
        n_rows += 1
        if isinstance(candidate, str):
            dropped[candidate] += 1
        elif candidate.id in found:
            dropped["the same as an earlier row"] += 1
        else:
            found[candidate.id] = candidate
    kept = list(found.values())
    if n is not None and not 1 <= n <= len(kept):
        raise InputError(
            f"{source}: {n} samples are asked for, and it holds {len(kept)} that can be used{_told(dropped)}; set n "
            "from 1 to that"
        )
    if n is not None and n < len(kept):
        chosen = {s.id for s in sorted(kept, key=lambda s: (derive_seed(seed, "sample", s.id), s.id))[:n]}
        dropped["not drawn"] = len(kept) - n
        kept = [s for s in kept if s.id in chosen]
    return Sampled(tuple(kept), n_rows, dict(sorted(dropped.items())))


def _told(dropped: Mapping[str, int]) -> str:
    passed = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
    return f" (passed over: {passed})" if passed else ""
