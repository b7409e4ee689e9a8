"""Texts and harmful answers in files and data sets: sources without questions, or with special columns.

The columns of a file decide its kind: a `text` without a question is a text in each row (the WMDP bio corpus), and an
answer with a safety label is harmful data (PKU-SafeRLHF). Of the hub's data sets only the paper's are known. The rest
is items, as everywhere.

Harmful answers are items of a prompt and an unsafe response. Two forms are read:

- `prompt`, `response_0`, `response_1`, `is_response_0_safe`, `is_response_1_safe`: PKU-SafeRLHF
- `prompt`, `response`, `is_safe`: BeaverTails, PKU-SafeRLHF-QA

(Ji et al., PKU-SafeRLHF, 2406.15513.) LLMU's code takes every unsafe response of a prompt (2310.10683). Here a prompt
is one sample, with the first unsafe response, so that 50 samples are 50 questions. An error never repeats a row's
content, only its position.

Texts without a question: papers of the WMDP bio corpus, anything with a column of text. Lengths
are in characters. Unusable rows are skipped: a public corpus of thousands of rows has some, and one row must not stop a
run. A sample is chosen by the digest of its content and the seed, so that the order of the rows and the rows with it
change nothing, and the first n are among the first n + 1.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from vestige.core.errors import InputError
from vestige.core.ids import content_id
from vestige.core.items import Item, ItemTuple
from vestige.core.seeds import derive_seed
from vestige.core.text import half_character
from vestige.data.columns import RECOGNISED
from vestige.data.loaders import source_table
from vestige.data.tables import FORMS, TableRow, column_names, shown, streamed

S = TypeVar("S", Item, "Passage")


def sampled(source: str, candidates: Iterable[S | None], *, n: int | None, seed: int) -> tuple[S, ...]:
    """`n` of the candidates, or all, in their order. None and what equals an earlier one is passed over.

    Fewer than `n` are refused: a smaller sample would be another experiment.
    """
    ids: set[str] = set()

    def usable() -> Iterator[tuple[int, str, int, S]]:
        for number, candidate in enumerate(candidates):
            if candidate is not None and candidate.id not in ids:
                ids.add(candidate.id)
                yield derive_seed(seed, "sample", candidate.id), candidate.id, number, candidate

    # Of a corpus of gigabytes no more is held than the sample. No two have one id, so that no samples are compared.
    if n is None:
        entries = list(usable())
    else:
        entries = heapq.nsmallest(max(n, 1), usable())
    if n is not None and not 1 <= n <= len(ids):
        raise InputError(f"{source}: n = {n}, and it has {len(ids)} usable samples. Set n from 1 to {len(ids)}")
    return tuple(sample for *_, sample in sorted(entries, key=lambda entry: entry[2]))


BIO_CORPUS = "cais/wmdp-bio-forget-corpus"
"""Papers with the columns title, abstract and text. The hub gives them to those who accept its terms."""
LEAST = 50
"""A text of as many characters, or fewer, is passed over, as in RMU's code (2403.03218)."""
_TEXT = "text"


@dataclass(frozen=True)
class Passage:
    """One text, with the title of the paper or article that it is from where the data has one."""

    text: str
    title: str = ""

    @cached_property
    def id(self) -> str:
        """Content id of both."""
        return content_id({"text": self.text, "title": self.title})


def load_passages(source: str | Path, *, n: int | None = None, seed: int = 0) -> tuple[Passage, ...]:
    """`n` passages of a file, a folder or a data set on the hub: one a row, its `text` unchanged."""
    rows: Iterable[TableRow]
    if path := local_file(source):
        name, rows = str(path), streamed(path)
    else:
        table = source_table(source, split="train", config=None)
        name, rows = table.source, table.rows

    def candidates() -> Iterator[Passage | None]:
        names: dict[str, None] = {}
        for row in rows:
            names |= dict.fromkeys(row.values)
            title = row.values.get("title")
            yield _passage(row.values.get(_TEXT), str(title) if usable(title) else "")
        # Only after the last row: a column may be missing in some.
        if _TEXT not in names:
            has = "holds no rows"
            if names:
                has = f"no column {shown([_TEXT])}; it has {shown(names)}"
            raise InputError(f"{name}: {has}")

    return sampled(name, candidates(), n=n, seed=seed)


def _passage(text: Any, title: str) -> Passage | None:
    if usable(text) and len(text.strip()) > LEAST:
        return Passage(text, title)
    return None


def local_file(source: str | Path) -> Path | None:
    """The file of that name here, if there is one."""
    try:
        path = Path(source).expanduser()
        if path.is_file():
            return path
        return None
    except ValueError:  # A NUL in the name.
        return None


def usable(value: Any) -> bool:
    """Whether a cell is a text with something in it that a file can hold."""
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value and not half_character(value)


SAFE_RLHF = "PKU-Alignment/PKU-SafeRLHF"
HARMFUL_GROUP = "harmful"
_PROMPT = "prompt"
_RESPONSES = ((("response_0", "is_response_0_safe"), ("response_1", "is_response_1_safe")), (("response", "is_safe"),))
"""The columns of a response and of its label, in each of the two forms."""


def load_harmful(source: str | Path = SAFE_RLHF, *, n: int | None = None, seed: int = 0) -> ItemTuple:
    """`n` prompts with an unsafe response each."""
    table = source_table(source, split="train", config=None)
    responses = _responses(table.names)
    if not responses:
        raise InputError(
            f"{table.source}: the columns are neither PKU-SafeRLHF's (prompt, response_0, response_1, "
            f"is_response_0_safe, is_response_1_safe) nor BeaverTails' (prompt, response, is_safe). It has "
            f"{shown(table.names)}"
        )
    items: dict[str, Item] = {}
    for row in table.rows:
        if item := _unsafe(table.source, row, responses):
            items.setdefault(item.question, item)
    return sampled(table.source, items.values(), n=n, seed=seed)


def _responses(names: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the columns of responses and labels if the names match harmful data, otherwise none."""
    return next((form for form in _RESPONSES if {_PROMPT, *chain(*form)} <= {*names}), ())


def _unsafe(source: str, row: TableRow, responses: tuple[tuple[str, str], ...]) -> Item | None:
    """The prompt with its first unsafe response that is a text, if it has one."""
    prompt = row.values.get(_PROMPT)
    for response, label in responses if usable(prompt) else ():
        safe, text = row.values.get(label), row.values.get(response)
        if not isinstance(safe, bool):
            raise InputError(f"{source}, {row.place}: {label} is not true or false. Give JSON Lines or Parquet")
        if not safe and usable(text):
            return Item(str(prompt), str(text), group=HARMFUL_GROUP)
    return None


Form: TypeAlias = Literal["items", "harmful", "texts"]
_HUB: dict[str, Form] = {BIO_CORPUS: "texts", SAFE_RLHF: "harmful"}


def form_of(name: str) -> Form:
    """Return the kind of data in a file or hub data set. Other names, such as selectors, are "items"."""
    path = local_file(name)
    if path is None:
        return _HUB.get(name.partition("@")[0], "items")
    if path.suffix.lower() in FORMS:
        names = column_names(path)
    else:
        names = frozenset()
    if _responses(names):
        return "harmful"
    if _TEXT in names and not names & RECOGNISED:
        return "texts"
    return "items"


_BEGINNING = 8
"""The number of words of a text in the prompt for the rest."""


def items_in(name: str) -> ItemTuple | None:
    """Return harmful answers or texts of a file as items, or None if it contains questions or is not a file.

    The prompt is a text's title and first words, and the answer is the rest.
    """
    if local_file(name) is None:
        return None
    try:
        form = form_of(name)
    except InputError:
        return None  # The loader of questions says better what is wrong.
    if form == "harmful":
        return load_harmful(name)
    if form == "items":
        return None
    return tuple(map(_continued, texts_in(name, form, n=None, seed=0)))


def _continued(passage: Passage) -> Item:
    words = passage.text.split()
    n = min(_BEGINNING, len(words) // 2)
    if n:
        beginning = " ".join(words[:n])
        rest = passage.text.split(maxsplit=n)[-1]
    else:
        beginning = passage.text[:LEAST]
        rest = passage.text[LEAST:]
    return Item(f"{passage.title}: {beginning}" if passage.title else beginning, rest)


def texts_in(name: str, form: Form, *, n: int | None, seed: int) -> tuple[Passage, ...]:
    """Return `n` or all texts of a file or data set of that form. None of questions and harmful answers."""
    if form == "texts":
        return load_passages(name, n=n, seed=seed)
    return ()
