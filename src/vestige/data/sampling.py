"""Samples of a source: which of its rows are taken, and what became of the others.

A sample is chosen by the digest of its content and the seed, so that the order of the rows and the rows beside it
change nothing, and the first n are among the first n + 1.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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
    seen: set[str] = set()
    dropped: Counter[str] = Counter()
    n_rows = 0

    def usable() -> Iterator[tuple[int, str, int, S]]:
        nonlocal n_rows
        for candidate in candidates:
            n_rows += 1
            if isinstance(candidate, str):
                dropped[candidate] += 1
            elif candidate.id in seen:
                dropped["the same as an earlier row"] += 1
            else:
                seen.add(candidate.id)
                yield derive_seed(seed, "sample", candidate.id), candidate.id, n_rows, candidate

    # Of a corpus of gigabytes no more is held than the sample. No two have one id, so that no samples are compared.
    drawn = list(usable()) if n is None else heapq.nsmallest(max(n, 1), usable())
    if n is not None and not 1 <= n <= len(seen):
        raise InputError(
            f"{source}: {n} samples are asked for, and it holds {len(seen)} that can be used{_told(dropped)}; set n "
            "from 1 to that"
        )
    if len(drawn) < len(seen):
        dropped["not drawn"] = len(seen) - len(drawn)
    kept = [sample for *_, sample in sorted(drawn, key=lambda entry: entry[2])]
    return Sampled(tuple(kept), n_rows, dict(sorted(dropped.items())))


def _told(dropped: Mapping[str, int]) -> str:
    passed = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
    return f" (passed over: {passed})" if passed else ""
