"""Harmful answers to forget: PKU-SafeRLHF and data of its two forms, as items of a prompt and an unsafe response.

- `prompt`, `response_0`, `response_1`, `is_response_0_safe`, `is_response_1_safe`, and in later releases
  `response_0_harm_category` and its like (an object with true or false for each category): PKU-SafeRLHF
- `prompt`, `response`, `is_safe`, and `category` or `harm_category`: BeaverTails, PKU-SafeRLHF-QA

(Ji et al., PKU-SafeRLHF, 2406.15513.) LLMU's code takes every unsafe response of a prompt (2310.10683); here a prompt
is one sample, with the first unsafe response, so that 50 samples are 50 questions. What a row says is never repeated
in an error: only where it stands.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vestige.core.errors import InputError
from vestige.core.items import Item
from vestige.core.settings import closest
from vestige.core.text import one_line
from vestige.data.loaders import source_table
from vestige.data.passages import NO_TEXT, usable
from vestige.data.sampling import Sampled, sampled
from vestige.data.tables import Row, Table, shown

SAFE_RLHF = "PKU-Alignment/PKU-SafeRLHF"
GROUP = "harmful"
ALL_SAFE, OTHER_CATEGORY, SAME_PROMPT = "no unsafe response", "of another category", "a prompt that was met before"


class _Columns(NamedTuple):
    """Where a response, its label and its categories lie; the last may be missing."""

    response: str
    safe: str
    categories: tuple[str, ...]


_FORMS = (
    (
        _Columns("response_0", "is_response_0_safe", ("response_0_harm_category",)),
        _Columns("response_1", "is_response_1_safe", ("response_1_harm_category",)),
    ),
    (_Columns("response", "is_safe", ("category", "harm_category")),),
)
_PROMPT = "prompt"
_WANTED = frozenset((_PROMPT, *(name for form in _FORMS for c in form for name in (c.response, c.safe, *c.categories))))


def load_harmful(
    source: str | Path = SAFE_RLHF,
    *,
    n: int | None = None,
    seed: int = 0,
    categories: Collection[str] = (),
    split: str = "train",
    config: str | None = None,
) -> Sampled[Item]:
    """`n` prompts with an unsafe response each, of the harm `categories` that are named, or of all."""
    table = source_table(source, split=split, config=config, wanted=_WANTED)
    responses = _form(table)
    if categories:
        _check_categories(table, responses, categories)

    def candidates() -> Iterator[Item | str]:
        seen: set[str] = set()
        for row in table.rows:
            found = _item(table.source, row, responses, categories)
            if isinstance(found, Item) and found.question in seen:
                found = SAME_PROMPT
            if isinstance(found, Item):
                seen.add(found.question)
            yield found

    return sampled(table.source, candidates(), n=n, seed=seed)


def is_form(names: Collection[str]) -> bool:
    """Whether columns of these names are those of harmful data."""
    return any({_PROMPT, *(name for c in form for name in (c.response, c.safe))} <= set(names) for form in _FORMS)


def _form(table: Table) -> tuple[_Columns, ...]:
    for form in _FORMS:
        if {_PROMPT, *(name for c in form for name in (c.response, c.safe))} <= set(table.names):
            return form
    raise InputError(
        f"{table.source}: the columns are neither PKU-SafeRLHF's (prompt, response_0, response_1, is_response_0_safe, "
        f"is_response_1_safe) nor BeaverTails' (prompt, response, is_safe); it has {shown(table.names)}"
    )


def _item(source: str, row: Row, responses: tuple[_Columns, ...], categories: Collection[str]) -> Item | str:
    prompt, reason = row.values.get(_PROMPT), ALL_SAFE
    if not usable(prompt):
        return NO_TEXT
    for columns in responses:
        safe = row.values.get(columns.safe)
        if not isinstance(safe, bool):
            raise InputError(f"{source}, {row.place}: {columns.safe} is not true or false; give JSON Lines or Parquet")
        if safe:
            continue
        if categories and not any(_flags(row, columns).get(name) is True for name in categories):
            reason = OTHER_CATEGORY
        elif not usable(row.values.get(columns.response)):
            reason = NO_TEXT
        else:
            return Item(str(prompt), str(row.values[columns.response]), group=GROUP)
    return reason


def _flags(row: Row, columns: _Columns) -> Mapping[str, Any]:
    found: Any = next((row.values[name] for name in columns.categories if row.values.get(name) is not None), {})
    return found if isinstance(found, Mapping) else {}


def _check_categories(table: Table, responses: tuple[_Columns, ...], categories: Collection[str]) -> None:
    """Refuse a category that the data does not know; of older releases, that they have none."""
    known = sorted(
        {one_line(str(name)) for row in table.rows for columns in responses for name in _flags(row, columns)}
    )
    if not known:
        raise InputError(f"{table.source}: its responses have no harm category; leave the categories out")
    for name in categories:
        if name not in known:
            raise InputError(f"{table.source}: no harm category {one_line(name)!r}; {closest(name, known)}")
