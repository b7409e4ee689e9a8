"""Texts without a question: papers of the WMDP bio corpus, paragraphs of Wikitext, anything with a column of text.

Lengths are in characters. What cannot be used as text is passed over and counted: a public corpus of thousands of
rows has some, and one of them must not stop a run.

Rows that are not taken are counted by the reason. A sample is chosen by the digest of its content and the seed, so that
the order of the rows and the rows beside it change nothing, and the first n are among the first n + 1.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.seeds import derive_seed
from vestige.data.loaders import source_table
from vestige.data.tables import Row, shown, streamed


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


BIO_CORPUS = "cais/wmdp-bio-forget-corpus"
"""Papers with the columns title, abstract and text; the hub gives them to those who accept its terms."""
LEAST = 50
"""A text of as many characters, or fewer, is passed over, as in RMU's code (2403.03218)."""
TOO_SHORT, NO_TEXT = "too short", "no text"


@dataclass(frozen=True)
class Passage:
    """One text, with the title of the paper or article that it is from where the data has one."""

    text: str
    title: str = ""

    @cached_property
    def id(self) -> str:
        """Content id of both."""
        return content_id({"text": self.text, "title": self.title})


def load_passages(
    source: str | Path,
    *,
    n: int | None = None,
    seed: int = 0,
    text_key: str = "text",
    title_key: str = "title",
    split: str = "train",
    config: str | None = None,
) -> Sampled[Passage]:
    """`n` passages of a file, a folder or a data set on the hub: one a row, the text as it stands."""
    rows: Iterable[Row]
    if path := local_file(source):
        name, rows = str(path), streamed(path)
    else:
        table = source_table(source, split=split, config=config, wanted=frozenset((text_key, title_key)))
        name, rows = table.source, table.rows

    def candidates() -> Iterator[Passage | str]:
        names: dict[str, None] = {}
        for row in rows:
            names |= dict.fromkeys(row.values)
            title = row.values.get(title_key)
            yield passage(row.values.get(text_key), str(title) if usable(title) else "")
        if text_key not in names:
            has = f"no column {shown([text_key])}; it has {shown(names)}" if names else "holds no rows"
            raise InputError(f"{name}: {has}")

    return sampled(name, candidates(), n=n, seed=seed)


def local_file(source: str | Path) -> Path | None:
    """The file of that name here, if there is one."""
    try:
        path = Path(source).expanduser()
        return path if path.is_file() else None
    except ValueError:  # A NUL in the name.
        return None


def passage(text: Any, title: str) -> Passage | str:
    """The passage, or why there is none."""
    if not usable(text):
        return NO_TEXT
    return Passage(text, title) if len(text.strip()) > LEAST else TOO_SHORT


def usable(value: Any) -> bool:
    """Whether a cell is a text with something in it that a file can hold."""
    return (
        isinstance(value, str)
        and bool(value.strip())
        and "\0" not in value
        and not any("\ud800" <= c <= "\udfff" for c in value)
    )
