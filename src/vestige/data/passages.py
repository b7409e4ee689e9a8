"""Texts without a question: papers of the WMDP bio corpus, paragraphs of Wikitext, anything with a column of text.

Lengths are in characters. What cannot be used as text is passed over and counted: a public corpus of thousands of
rows has some, and one of them must not stop a run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.data.loaders import source_table
from vestige.data.sampling import Sampled, sampled
from vestige.data.tables import Row, shown, streamed

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
