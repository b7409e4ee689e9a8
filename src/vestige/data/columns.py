"""From a row's columns to an item: which column is the question, which the answer, and what both must be.

Named keys win over recognised columns, and those are recognised in any case (`Paraphrased Question`). Text is taken as
it stands: no trimming, no repair; a number is the text that writes it. Parquet stores no such text, and there
it is the shortest that Python has for the number (1.1 for 1.10), in Excel without the point of a whole one.
"""

import json
import math
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.core.errors import InputError
from vestige.core.items import Item, Options
from vestige.core.text import half_character, one_line
from vestige.data.tables import SourceTable, TableRow, shown

PAIRS = (
    *(("question", "answer"), ("prompt", "completion"), ("instruction", "output")),
    *(("query", "response"), ("input", "output")),
)
"""Question and answer columns that are recognised; the first pair that is there is taken, chats last."""
CHATS = ("messages", "conversations")
"""A list of turns: {"role": ..., "content": ...}, or as ShareGPT has it {"from": ..., "value": ...}."""
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant"}
CONTEXT = "input"
"""Beside `instruction`: text that belongs to the question and follows it after a blank line."""
ALTERNATIVES = "alternatives"
"""Answers that whoever never knew the true one cannot tell from it: a list of texts."""
OPTIONAL = {
    "edge": ("edge", "contract", "person"),
    "group": ("group", "type"),
    "paraphrase": ("paraphrase", "paraphrased_question"),
    "perturbed": ("perturbed_answer", "perturbed"),
    "paraphrased_answer": ("paraphrased_answer",),
    # What gives the answer away, and other ways to say it: a text, or a list of them.
    "fact": ("fact",),
    "accepted": ("accepted",),
    ALTERNATIVES: (ALTERNATIVES,),
    # The question with another name of its subject; one that takes a further fact, and its answer if another.
    "alias": ("alias",),
    "khop": ("khop",),
    "khop_answer": ("khop_answer",),
}
"""Further parts of an item, and the columns that they are recognised by; the first that is there is taken."""

RECOGNISED = frozenset((*(name for names in (*PAIRS, *OPTIONAL.values()) for name in names), *CHATS, CONTEXT))

Keys = Mapping[str, str]
"""The columns that a person named, by part: question, answer, edge or group."""


def known_name(name: str) -> str:
    """The recognised column that `name` is but for case, blanks and hyphens; else `name` itself."""
    plain = "_".join(name.casefold().replace("-", " ").split())
    return plain if plain in RECOGNISED else name


def with_known_names(source: SourceTable, unchanged: Collection[str] = ()) -> SourceTable:
    """The table with recognised columns under their own names, but for those `unchanged` or there already."""
    names: dict[str, str] = {}
    for name in source.names:
        standard = known_name(name)
        free = name not in unchanged and standard not in source.names and standard not in names.values()
        names[name] = standard if free else name
    rows = (TableRow(row.place, {names[k]: v for k, v in row.values.items()}) for row in source.rows)
    return SourceTable(source.source, tuple(names.values()), tuple(rows))


def choose_columns(source: str, names: Collection[str], keys: Keys) -> dict[str, str]:
    """The columns to use of `names`, by part. One that was named, or is needed, and is not there is refused.

    A chat is the part `messages` in place of question and answer.
    """
    for part, key in keys.items():
        if key not in names:
            raise InputError(f"{source}: no column {shown([key])}; set --{part}-key to one of {shown(names)}")
    columns = {part: next((n for n in candidates if n in names), "") for part, candidates in OPTIONAL.items()}
    columns = {part: column for part, column in columns.items() if column} | dict(keys)
    if not keys.keys() & {"question", "answer"}:
        for question, answer in PAIRS:
            if question in names and answer in names:
                context = {"context": CONTEXT} if question == "instruction" and CONTEXT in names else {}
                return {**columns, "question": question, "answer": answer, **context}
        if chat := next((name for name in CHATS if name in names), None):
            return {**columns, "messages": chat}
    # One of the two was named: the other may be recognised.
    for part, candidates in (("question", [q for q, _ in PAIRS]), ("answer", [a for _, a in PAIRS])):
        if part not in columns and (column := next((name for name in candidates if name in names), None)):
            columns[part] = column
    if missing := [part for part in ("question", "answer") if part not in columns]:
        raise InputError(
            f"{source}: no column is known for the {' and the '.join(missing)}; "
            f"set {' and '.join(f'--{part}-key' for part in missing)} to one of {shown(names)}"
        )
    return columns


def items_of(source: SourceTable, columns: Mapping[str, str], *, keep_duplicates: bool) -> tuple[Item, ...]:
    """An item for each row.

    Two rows that ask the same have no one right answer, so they are refused; `keep_duplicates` keeps them
    where their answers differ. Rows that are equal altogether are always refused: an item counts once.
    """
    items: list[Item] = []
    first: dict[str, str] = {}
    for row in source.rows:
        item = _item(Cells(source.source, row), columns)
        # An id holds the answer, so that only rows that are equal in both are met.
        key = item.id if keep_duplicates else item.question
        if key in first:
            way_out = "" if keep_duplicates else ", or set keep_duplicates where their answers differ on purpose"
            raise InputError(
                f"{source.source}: {first[key]} and {row.place} ask the same question "
                f"({one_line(repr(item.question), width=80)}); remove one of them{way_out}"
            )
        first[key] = row.place
        items.append(item)
    return tuple(items)


def alternatives_in(source: SourceTable) -> dict[str, tuple[str, ...]]:
    """By question the alternatives of a table with the columns `question` and `alternatives`; no question twice."""
    source = with_known_names(source)
    for column in ("question", ALTERNATIVES):
        if column not in source.names:
            raise InputError(f"{source.source}: no column {column!r}; a row is a question and a list of alternatives")
    texts_of: dict[str, tuple[str, ...]] = {}
    for row in source.rows:
        cells = Cells(source.source, row)
        question = cells.text("question")
        if question in texts_of:
            raise cells.wrong("question", "is asked in an earlier row; put its alternatives into one list")
        texts_of[question] = tuple(dict.fromkeys(cells.texts(ALTERNATIVES)))
    return texts_of


@dataclass(frozen=True)
class Cells:
    """One row's cells; errors name their place."""

    source: str
    row: TableRow

    def wrong(self, column: str, problem: str) -> InputError:
        return InputError(f"{self.source}, {self.row.place}, column {shown([column])}: {problem}")

    def text(self, column: str) -> str:
        """A cell that must be there and be a text with something in it."""
        if column not in self.row.values:
            raise InputError(
                f"{self.source}, {self.row.place}: no column {shown([column])}; the row has {shown(self.row.values)}"
            )
        return self.checked(column, self.row.values[column])

    def checked(self, column: str, value: Any) -> str:
        # True and NaN are no answers, though they are numbers to Python.
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return str(value)
        if not isinstance(value, str):
            raise self.wrong(column, f"is {_kind(value)} where a text belongs")
        if not value.strip():
            raise self.wrong(column, "is empty; fill it or remove the row")
        if "\0" in value:
            raise self.wrong(column, "holds a NUL character; remove it")
        if half_character(value):
            raise self.wrong(column, "holds half of a surrogate pair, which is no character; repair the text")
        return value

    def value(self, column: str | None) -> Any:
        """An optional cell; null and blank text mean that there is nothing."""
        value = None if column is None else self.row.values.get(column)
        return None if isinstance(value, str) and not value.strip() else value

    def optional_text(self, column: str | None) -> str | None:
        value = self.value(column)
        return None if column is None or value is None else self.checked(column, value)

    def findable(self, column: str | None, texts: Sequence[str]) -> tuple[str, ...]:
        """Texts that are looked for in replies, and so must hold more than punctuation."""
        if column is not None and any(map(_is_punctuation, texts)):
            raise self.wrong(column, "holds a text of nothing but punctuation, which no reply could meet")
        return tuple(texts)

    def texts(self, column: str | None) -> tuple[str, ...]:
        """A list of texts; also one text alone, or a list written as JSON (CSV has no lists)."""
        value = self.value(column)
        if column is None or value is None:
            return ()
        if isinstance(value, str) and value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise self.wrong(column, 'is no list in JSON; write it as ["...", "..."]') from error
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list):
            raise self.wrong(column, f"is {_kind(value)} where a list of texts belongs")
        return tuple(self.checked(column, v) for v in values)


def _is_punctuation(text: str) -> bool:
    return all(unicodedata.category(c)[0] in "CPZ" for c in text)


def _item(cells: Cells, columns: Mapping[str, str]) -> Item:
    column = columns.get
    if chat := column("messages"):
        question, answer = _turns(cells, chat)
    else:
        question, answer = cells.text(columns["question"]), cells.text(columns["answer"])
        if context := cells.optional_text(column("context")):
            question = f"{question}\n\n{context}"
    if _is_punctuation(answer):
        problem = "has an answer of nothing but punctuation, which no reply could meet"
        raise cells.wrong(chat or columns["answer"], problem)
    perturbed = cells.texts(column("perturbed"))
    if answer in perturbed:
        raise cells.wrong(columns["perturbed"], "holds the answer among the wrong answers; remove it")
    # `options` were put there by `loaders.as_questions`.
    fact, options = cells.optional_text(column("fact")), cells.row.values.get("options")
    # An "x" where there is no fact: any word passes, and nothing is refused.
    cells.findable(column("fact"), [fact or "x"])
    khop_answer = cells.optional_text(column("khop_answer"))
    cells.findable(column("khop_answer"), [khop_answer or "x"])
    return Item(
        question=question,
        answer=answer,
        edge=cells.optional_text(column("edge")),
        group=cells.optional_text(column("group")),
        paraphrase=cells.optional_text(column("paraphrase")),
        alias=cells.optional_text(column("alias")),
        khop=cells.optional_text(column("khop")),
        khop_answer=khop_answer,
        perturbed=perturbed,
        paraphrased_answer=cells.optional_text(column("paraphrased_answer")),
        fact=fact,
        accepted=cells.findable(column("accepted"), cells.texts(column("accepted"))),
        alternatives=tuple(dict.fromkeys(cells.texts(column(ALTERNATIVES)))),
        # Text of a person's own column of this name is no `Options`.
        options=options if isinstance(options, Options) else None,
    )


def _turns(cells: Cells, column: str) -> tuple[str, str]:
    """Question and answer of a chat: its last turn is the answer, and all before it the question.

    A system turn stands before the question, with a blank line between; of several user turns all but the text of the
    turns is lost, so each is headed by who speaks.
    """
    turns = cells.row.values.get(column)
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise cells.wrong(column, 'is no list of messages like {"role": "user", "content": "..."}')
    names = [str(turn.get("role", turn.get("from"))) for turn in turns]
    roles = [_ROLES.get(role, role) for role in names]
    first = 1 if roles[:1] == ["system"] else 0
    if len(roles) < first + 2 or roles[first:] != ["user", "assistant"] * ((len(roles) - first) // 2):
        raise cells.wrong(
            column,
            f"has the turns {shown(names)}; after a system turn, if any, a user and an assistant take turns, and the "
            "assistant's last turn is the answer: split or cut the chat",
        )
    *before, answer = [cells.checked(column, turn.get("content", turn.get("value"))) for turn in turns]
    if len(before) > first + 1:
        spoken = zip(roles[first:], before[first:], strict=False)
        before[first:] = [f"{role.capitalize()}: {text}" for role, text in spoken]
    return "\n\n".join(before), answer


def _kind(value: Any) -> str:
    return "null" if value is None else f"a value of type {type(value).__name__}"
