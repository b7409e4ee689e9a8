"""Rows of a table become items: which columns hold question, answer and options, and which values are valid.

A column that the user names wins over a recognised one. Recognised names match in any case (`Paraphrased Question`).
Text is not trimmed or repaired. A number is the text that writes it. Parquet stores no such text, so a number from
Parquet is Python's shortest form (1.1 for 1.10).

Multiple-choice rows become items whose answer is the text of the right option. The options may be

- a list, a list of {label, text}, or {label: [...], text: [...]} in `choices` or `options` (MMLU, MMLU-Pro, WMDP, ARC)
- columns such as choice0, choice1 or option1, option2 or opa, opb or A, B (MMLU as CSV, TOFU, MedMCQA)
- TruthfulQA's columns: the best answer against the wrong ones (MC1), with the other right answers with it (MC2)

The right option may be a number, a letter, a label or a text.
"""

import ast
import contextlib
import json
import logging
import math
import re
import string
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.core.errors import InputError
from vestige.core.items import Item, ItemTuple, Options
from vestige.core.text import (
    Fields,
    Record,
    TextByName,
    TextTuple,
    begins_with_thought,
    half_character,
    one_line,
    with_system,
    without_thoughts,
)
from vestige.data.mcq import MOST_OPTIONS
from vestige.data.tables import SourceTable, TableRow, kind_of, shown

_LOG = logging.getLogger(__name__)

QUESTION, ANSWER, OPTIONS = "question", "answer", "options"
PAIRS = (
    (QUESTION, ANSWER),
    ("prompt", "completion"),
    ("instruction", "output"),
    ("query", "response"),
    ("input", "output"),
)
"""Recognised columns of question and answer. The first pair that a table has is used, and a chat only without one."""
CHATS = ("messages", "conversations")
"""A list of turns: {"role": ..., "content": ...}, or {"from": ..., "value": ...} (ShareGPT)."""
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "model": "assistant", "developer": "system"}
CONTEXT = "input"
"""In addition to `instruction`: text that belongs to the question and follows it after a blank line."""
OPTIONAL = {
    "edge": ("edge", "contract", "person"),
    "group": ("group", "type"),
    "paraphrase": ("paraphrase", "paraphrased_question"),
    "perturbed": ("perturbed_answer", "perturbed"),
    "paraphrased_answer": ("paraphrased_answer",),
    "fact": ("fact",),
    "accepted": ("accepted", "answer_aliases", "accepted_answers"),
    "alias": ("alias",),
    "khop": ("khop",),
    "khop_answer": ("khop_answer",),
}
"""Further parts of an item and their columns. The first column that a table has is used."""
_OPTION_LISTS = ("choices", OPTIONS)
_RIGHT = (ANSWER, "label", "answerkey", "cop", "answer_index", "answer_idx")
"""Columns that name the right option, in the order in which they are looked for."""
_AGREEING = ("answer_index", "answer_idx")
"""These must name the same option as another such column."""
_PREFIXES = ("choice", "choice_", "option", "option_", "op", "ending", "")
_TRUTHFUL = ("best answer", "correct answers", "incorrect answers")

RECOGNISED = frozenset({*CHATS, CONTEXT}.union(*PAIRS, *OPTIONAL.values()))
"""Columns of questions. Columns of options have no meaning by themselves: other tables have a `label` too."""

PUBLISHED_TWICE = ("What is the full name of the author?",)
"""Questions that a published data set asks twice on purpose. TOFU asks this one about two authors."""

Keys = Mapping[str, str]
"""The columns that the user named, by part: question, answer, edge or group."""


def known_name(name: str) -> str:
    """The recognised column that `name` equals except for case, blanks and hyphens. Otherwise, `name` itself."""
    plain = "_".join(name.casefold().replace("-", " ").split())
    if plain in RECOGNISED or plain in _OPTION_LISTS or plain in _RIGHT:
        return plain
    return name


def with_known_names(table: SourceTable, unchanged: Collection[str] = ()) -> SourceTable:
    """The table with recognised columns under their standard names.

    A column in `unchanged` keeps its name. So does a column whose standard name is taken.
    """
    names: TextByName = {}
    for name in table.names:
        standard = known_name(name)
        taken = standard in table.names or standard in names.values()
        names[name] = name if taken or name in unchanged else standard
    rows = []
    for row in table.rows:
        rows.append(TableRow(row.place, {names[name]: value for name, value in row.values.items()}))
    return SourceTable(table.source, tuple(names.values()), tuple(rows))


def items_in_table(table: SourceTable, keys: Keys, *, keep_duplicates: bool) -> ItemTuple:
    """The items of a table, one for each row.

    Args:
        table: the rows.
        keys: columns that the user named, by part.
        keep_duplicates: accept a question twice if the answers differ.

    Raises:
        InputError: a column is missing, a cell has no valid value, or two rows ask the same question.
    """
    table = with_known_names(table, keys.values())
    # A named answer column means a question without options.
    if "answer" not in keys:
        table = _with_right_answers(table, keys.get("question", QUESTION))
    columns = _chosen_columns(table.source, table.names, keys)
    reader = _ItemReader(columns, [*_option_columns(table.names).values()])
    items: list[Item] = []
    places: TextByName = {}
    for row in table.rows:
        item = reader.item(Cells(table.source, row))
        # An id covers the answer, so two answers to one question have two ids.
        distinct = keep_duplicates or item.question in PUBLISHED_TWICE
        key = item.question
        if distinct:
            key = item.id
        if key in places:
            way_out = ", or set keep_duplicates where their answers differ on purpose"
            if distinct:
                way_out = ""
            raise InputError(
                f"{table.source}: {places[key]} and {row.place} ask the same question "
                f"({one_line(repr(item.question), width=80)}). Remove one of them{way_out}"
            )
        places[key] = row.place
        items.append(item)
    if reader.n_thoughts:
        _LOG.warning("%s: %d answers begin with a block of thought, which is left out", table.source, reader.n_thoughts)
    return tuple(items)


def _chosen_columns(source: str, names: Collection[str], keys: Keys) -> TextByName:
    """The columns to read, by part. A chat is the part `messages` in place of question and answer."""
    for part, key in keys.items():
        if key not in names:
            raise InputError(f"{source}: no column {shown([key])}. Set --{part}-key to one of {shown(names)}")
    columns = {}
    for part, candidates in OPTIONAL.items():
        present = [name for name in candidates if name in names]
        if present:
            columns[part] = present[0]
    columns |= keys
    if not keys.keys() & {"question", "answer"}:
        for question, answer in PAIRS:
            if question in names and answer in names:
                if question == "instruction" and CONTEXT in names:
                    columns["context"] = CONTEXT
                return columns | {"question": question, "answer": answer}
        for chat in CHATS:
            if chat in names:
                return columns | {"messages": chat}
    # The user named one of the two columns. The other may be recognised.
    for place, part in enumerate(("question", "answer")):
        recognised = [pair[place] for pair in PAIRS if pair[place] in names]
        if part not in columns and recognised:
            columns[part] = recognised[0]
    missing = [part for part in ("question", "answer") if part not in columns]
    if missing == ["answer"] and {"chosen", "rejected"} <= {*names}:
        raise InputError(
            f"{source}: has preferences (chosen, rejected), and the known answer is not marked. "
            "Set --answer-key chosen or --answer-key rejected"
        )
    if missing:
        raise InputError(
            f"{source}: no column is known for the {' and the '.join(missing)}. "
            f"Set {' and '.join(f'--{part}-key' for part in missing)} to one column: {shown(names)}"
        )
    return columns


@dataclass(frozen=True)
class Cells:
    """The cells of one row. Every error names source, place and column."""

    source: str
    row: TableRow

    def wrong(self, column: str, problem: str) -> InputError:
        """The error about a cell."""
        return InputError(f"{self.source}, {self.row.place}, column {shown([column])}: {problem}")

    def text(self, column: str) -> str:
        """A cell that must hold a text."""
        if column not in self.row.values:
            raise InputError(
                f"{self.source}, {self.row.place}: no column {shown([column])}. The row has {shown(self.row.values)}"
            )
        return self.checked(column, self.row.values[column])

    def checked(self, column: str, value: Any) -> str:
        """`value` as a text. Refused: other types, blanks, NUL and halves of surrogate pairs."""
        # In Python, True and NaN are numbers, but they are not answers.
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return str(value)
        if not isinstance(value, str):
            raise self.wrong(column, f"is {kind_of(value)} where a text belongs")
        if not value.strip():
            raise self.wrong(column, "is empty; fill it or remove the row")
        if "\0" in value:
            raise self.wrong(column, "holds a NUL character; remove it")
        if half_character(value):
            raise self.wrong(column, "holds half of a surrogate pair, which is no character; repair the text")
        return value

    def value(self, column: str | None) -> Any:
        """An optional cell. None for null, a blank text and no column."""
        if column is None:
            return None
        value = self.row.values.get(column)
        if isinstance(value, str) and not value.strip():
            return None
        return value

    def optional_text(self, column: str | None) -> str | None:
        """An optional cell that holds a text if it holds anything."""
        value = self.value(column)
        if column is None or value is None:
            return None
        return self.checked(column, value)

    def findable(self, column: str, texts: Sequence[str]) -> TextTuple:
        """Texts that are searched for in replies. A text of punctuation alone is refused."""
        for text in texts:
            if _is_punctuation(text):
                raise self.wrong(column, "holds a text of nothing but punctuation, which no reply could meet")
        return tuple(texts)

    def texts(self, column: str | None) -> TextTuple:
        """A list of texts, a single text, or a list written as JSON (CSV has no lists)."""
        value = self.value(column)
        if column is None or value is None:
            return ()
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = _parsed(value)
            if isinstance(value, str):
                raise self.wrong(column, 'is no list in JSON; write it as ["...", "..."]')
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            raise self.wrong(column, f"is {kind_of(value)} where a list of texts belongs")
        return tuple(self.checked(column, text) for text in value)


def _is_punctuation(text: str) -> bool:
    return all(unicodedata.category(sign)[0] in "CPZ" for sign in text)


def _parsed(value: Any) -> Any:
    """A list or an object that a cell of CSV writes as JSON, or as Python does. Any other value unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
        # pandas writes lists in single quotes. Only literals are parsed, and no code runs.
        if len(value) < _LONGEST_LITERAL:
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                return ast.literal_eval(value.strip())
    return value


_LONGEST_LITERAL = 100_000


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)


class _ItemReader:
    """Makes an item of each row. Counts the answers whose block of thought was left out."""

    def __init__(self, columns: Mapping[str, str], options: list[str]) -> None:
        """Read these columns, by part. `options` are the columns that hold an option each."""
        self._columns, self._options = columns, options
        self.n_thoughts = 0

    def item(self, cells: Cells) -> Item:
        """The item of one row."""
        column = self._columns.get
        question, answer, accepted = self._asked(cells)
        answer_column = column("messages") or self._columns["answer"]
        answer = self._without_thoughts(cells, answer_column, answer)
        accepted = tuple(self._without_thoughts(cells, answer_column, text) for text in accepted)
        if _is_punctuation(answer):
            raise cells.wrong(answer_column, "has an answer of nothing but punctuation, which no reply could meet")
        options = cells.row.values.get(OPTIONS)
        if not isinstance(options, Options):
            # This is a user's column that happens to have this name.
            options = None
            self._refuse_letter(cells, answer_column, answer)
        perturbed = cells.texts(column("perturbed"))
        if answer in perturbed:
            raise cells.wrong(self._columns["perturbed"], "holds the answer among the wrong answers; remove it")
        if accepted_column := column("accepted"):
            accepted += cells.findable(accepted_column, cells.texts(accepted_column))
        return Item(
            question=question,
            answer=answer,
            edge=cells.optional_text(column("edge")),
            group=cells.optional_text(column("group")),
            paraphrase=cells.optional_text(column("paraphrase")),
            alias=cells.optional_text(column("alias")),
            khop=cells.optional_text(column("khop")),
            khop_answer=self._findable_text(cells, "khop_answer"),
            perturbed=perturbed,
            paraphrased_answer=cells.optional_text(column("paraphrased_answer")),
            fact=self._findable_text(cells, "fact"),
            accepted=tuple(dict.fromkeys(accepted)),
            options=options,
        )

    def _findable_text(self, cells: Cells, part: str) -> str | None:
        column = self._columns.get(part)
        text = cells.optional_text(column)
        if column is not None and text is not None:
            cells.findable(column, [text])
        return text

    def _asked(self, cells: Cells) -> tuple[str, str, TextTuple]:
        """The question, the answer and further accepted answers."""
        if chat := self._columns.get("messages"):
            return (*_chat(cells, chat, cells.row.values.get(chat)), ())
        question_column, answer_column = self._columns["question"], self._columns["answer"]
        asked, said = cells.row.values.get(question_column), cells.row.values.get(answer_column)
        if _are_turns(asked) or _are_turns(said):
            return (*_chat(cells, answer_column, _joined_turns(asked, said)), ())
        question = cells.text(question_column)
        if context := cells.optional_text(self._columns.get("context")):
            question = f"{question}\n\n{context}"
        answer, *accepted = _answers(cells, answer_column)
        return question, answer, tuple(accepted)

    def _without_thoughts(self, cells: Cells, column: str, answer: str) -> str:
        """The answer without the trace that a reasoning model wrote before it."""
        if not begins_with_thought(answer):
            return answer
        self.n_thoughts += 1
        reply = without_thoughts(answer).lstrip()
        if wrapped := _WRAPPED.fullmatch(reply):
            reply = (wrapped[1] or wrapped[2] or "").strip()
        if not reply:
            raise cells.wrong(column, "is a block of thought without an answer behind it; add the answer")
        return reply

    def _refuse_letter(self, cells: Cells, column: str, answer: str) -> None:
        """Reject a letter or a number as the answer if another column has as many texts, which are its options."""
        plain = answer.strip().strip("().").upper()
        if len(plain) == 1 and plain in string.ascii_uppercase:
            kind, place = "letter", string.ascii_uppercase.index(plain)
        elif len(plain) < 3 and _INDEX.fullmatch(plain):
            kind, place = "number", int(plain)
        else:
            return
        values = dict(cells.row.values)
        if self._options:
            values[self._options[0]] = [str(values.get(name, "")) for name in self._options]
        for name, value in values.items():
            texts = _parsed(value)
            if isinstance(texts, str) and kind == "letter":
                texts = _APART.split(texts)
            listed = _is_list_of_texts(texts) and 1 < len(texts) > place and answer not in texts
            listed = listed and max(map(len, texts)) <= _LONGEST_OPTION
            # Many answers are numbers, but few are letters.
            listed = listed and (kind == "letter" or name in _OPTION_NAMES or (name in self._options and len(name) > 1))
            listed = listed or (kind == "letter" and name in _OPTION_LISTS and value)
            if listed and name not in self._columns.values():
                raise cells.wrong(
                    column,
                    f"is the {kind} {plain}, and {shown([name])} holds options. Ask with them: leave --answer-key out "
                    "and give a list in the column options. Or name a column whose answers are texts (--answer-key)",
                )


_WRAPPED = re.compile(
    r"\s*(?:<answer>(.*)</answer>|<\|begin_of_solution\|>(.*)<\|end_of_solution\|>)\s*", re.DOTALL | re.IGNORECASE
)
"""The marks around the answer that follows a reasoning trace (R1-Zero, OpenThinker)."""
_INDEX = re.compile(r"\d+")
_APART = re.compile(r"[|;]")
"""The separators of options within one text."""
_LONGEST_OPTION = 200
_OPTION_NAMES = ("candidates", "alternatives", "endings", "answer_options", "possible_answers", "choices", "options")
"""Columns that hold options by their name, next to a number as the answer."""


def _answers(cells: Cells, column: str) -> TextTuple:
    """Return the answer, followed by further accepted answers if the cell lists several."""
    value = _parsed(cells.row.values.get(column))
    if isinstance(value, dict):
        # TriviaQA has {value, aliases}, SQuAD {text: [...]}.
        value = [value["value"], *value.get("aliases", ())] if "value" in value else value.get("text")
    elif not isinstance(value, list) or (isinstance(cells.row.values[column], str) and not _is_list_of_texts(value)):
        return (cells.text(column),)
    if not isinstance(value, list) or not value:
        raise cells.wrong(column, 'holds no answer; write a text, or a list of answers as ["...", "..."]')
    texts = tuple(dict.fromkeys(cells.checked(column, text) for text in value))
    return cells.findable(column, texts)


def _are_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) for turn in value)


def _joined_turns(asked: Any, said: Any) -> list[Any]:
    """Join a prompt and a completion, each a list of turns or a text, into one chat (TRL)."""
    if _are_turns(said) and _turn_role(said[0]) != "assistant":
        # The answer repeats the prompt.
        return list(said)
    turns: list[Any] = []
    for value, role in ((asked, "user"), (said, "assistant")):
        if _are_turns(value):
            turns += value
        else:
            turns.append({"role": role, "content": value})
    return turns


def _turn_role(turn: Record) -> str:
    name = str(turn.get("role", turn.get("from")))
    return _ROLES.get(name, name)


def _chat(cells: Cells, column: str, turns: Any) -> tuple[str, str]:
    """Question and answer of a chat: the last turn is the answer, and all turns before it are the question.

    A system turn is kept separately from the question, and the model's chat template puts it. Several user turns each
    get their speaker as a header, because a question is one text.
    """
    if not _are_turns(turns):
        raise cells.wrong(column, 'is no list of messages like {"role": "user", "content": "..."}')
    roles = [_turn_role(turn) for turn in turns]
    first = 0
    if roles[0] == "system":
        first = 1
    if len(roles) < first + 2 or roles[first:] != ["user", "assistant"] * ((len(roles) - first) // 2):
        raise cells.wrong(
            column,
            f"has the turns {shown(roles)}; after a system turn, if any, a user and an assistant take turns, and the "
            "assistant's last turn is the answer: split or cut the chat",
        )
    *before, answer = [_content(cells, column, turn) for turn in turns]
    if len(before) > first + 1:
        for n in range(first, len(before)):
            before[n] = f"{roles[n].capitalize()}: {before[n]}"
    question = "\n\n".join(before[first:])
    if first:
        question = with_system(before[0], question)
    return question, answer


_THOUGHT_PARTS = ("thinking", "reasoning", "redacted_thinking")
"""Types of parts that hold a reasoning trace."""


def _content(cells: Cells, column: str, turn: Record) -> str:
    """The text of one turn. Parts of a text are joined, and any other part is refused by its type."""
    content = turn.get("content", turn.get("value"))
    if not isinstance(content, list):
        return cells.checked(column, content)
    texts = []
    for part in content:
        kind = "text"
        text = part
        if isinstance(part, dict):
            kind = part.get("type", "text")
            text = part.get("text")
        if kind in _THOUGHT_PARTS:
            continue
        if kind != "text" or not isinstance(text, str):
            raise cells.wrong(
                column, f"has a part of type {one_line(repr(kind), width=40)}; only parts of type 'text' can be asked"
            )
        texts.append(text)
    return cells.checked(column, "".join(texts))


# Multiple-choice rows


def _with_right_answers(table: SourceTable, question: str) -> SourceTable:
    """A multiple-choice table with the text of the right option as `answer`. Any other table unchanged."""
    read = _option_reader(table, question)
    if read is None:
        return table
    rows = []
    for row in table.rows:
        rows.append(TableRow(row.place, {**row.values, **read(_OptionCells(table.source, row))}))
    names = dict.fromkeys((QUESTION, ANSWER, OPTIONS, *table.names))
    return SourceTable(table.source, tuple(names), tuple(rows))


_Reader = Callable[["_OptionCells"], Fields]


def _option_reader(table: SourceTable, question: str) -> _Reader | None:
    """Return the reader of a table's options, or None for a table without options."""
    by_plain_name = {name.casefold(): name for name in table.names}
    if {QUESTION, "mc1_targets"} <= by_plain_name.keys():
        return _targets
    if {QUESTION, *_TRUTHFUL} <= by_plain_name.keys():
        return lambda cells: cells.truthful([by_plain_name[name] for name in _TRUTHFUL])
    if question not in table.names:
        return None
    right = [name for name in _RIGHT if name in table.names]
    for column in _OPTION_LISTS:
        cells = (_parsed(row.values.get(column)) for row in table.rows)
        if column not in table.names or not any(isinstance(cell, list | dict) for cell in cells):
            continue
        if not right:
            raise InputError(
                f"{table.source}: {shown([column])} holds options, and no column names the right one. Call it answer "
                "(a number from 0, a letter or the text)"
            )
        return lambda cells: cells.listed_options(column, right)
    columns = _option_columns(table.names)
    if not right or not columns:
        return None
    stated = _numbers_stated(table, right[0], list(columns))
    return lambda cells: cells.columns_of_options(dict(zip(stated, columns.values(), strict=True)), right)


def _option_columns(names: Iterable[str]) -> TextByName:
    """The columns that hold an option each, by label."""
    by_plain_name = {name.casefold(): name for name in names}
    for prefix in _PREFIXES:
        for labels in (tuple(string.ascii_lowercase), _numbers_from(0), _numbers_from(1)):
            columns = {label: by_plain_name[prefix + label] for label in labels if prefix + label in by_plain_name}
            if {*labels[:2]} <= columns.keys() and not (prefix == "" and labels[0] != "a"):
                return columns
    return {}


def _numbers_from(first: int) -> TextTuple:
    return tuple(str(first + n) for n in range(MOST_OPTIONS))


def _numbers_stated(table: SourceTable, right: str, labels: list[str]) -> list[str]:
    """The labels by which `right` names the columns. MedMCQA's `cop` counts from 0 on the hub and from 1 elsewhere."""
    if right != "cop":
        return labels
    numbers = {str(row.values.get(right)) for row in table.rows}
    if "0" in numbers and str(len(labels)) not in numbers:
        return [str(n) for n in range(len(labels))]
    if "0" not in numbers and str(len(labels)) in numbers:
        return [str(n + 1) for n in range(len(labels))]
    raise InputError(
        f"{table.source}: nothing shows whether 'cop' counts the options from 0 or from 1. Add a column answer with "
        "the letter of the right option"
    )


class _OptionCells(Cells):
    """The cells of one multiple-choice row."""

    def listed_options(self, column: str, right: Sequence[str]) -> Fields:
        """Options in one column: a list, a list of objects, or an object."""
        value = _parsed(self.value(column))
        if value is None:
            # A question without options in a table that has options.
            return {}
        labels: list[Any] = []
        texts: Any = value
        if isinstance(value, dict) and {"label", "text"} <= value.keys():
            labels, texts = value["label"], value["text"]
        elif isinstance(value, dict):
            labels, texts = list(value), list(value.values())
        elif _are_turns(value):
            labels = [option.get("label", option.get("key")) for option in value]
            texts = [option.get("text", option.get("value")) for option in value]
        if not _is_list_of_texts(texts) or not all(text.strip() for text in texts):
            raise self.wrong(column, 'is no list of texts; write it as ["...", "..."]')
        if labels and (not isinstance(labels, list) or len(labels) != len(texts)):
            raise self.wrong(column, "has a number of labels that is not the number of its options")
        places: dict[str, int] = {}
        for n, label in enumerate(labels or range(len(texts))):
            places[str(label).upper()] = n
        if not labels:
            places |= _letters(texts)
            texts = self.without_labels(column, texts)
        return self.options(column, texts, self.right_option(right, texts, places))

    def columns_of_options(self, columns: Mapping[str, str], right: Sequence[str]) -> Fields:
        """Options in a column each, up to the first that is empty: CSV pads shorter rows, Parquet with nulls."""
        texts: list[str] = []
        places: dict[str, int] = {}
        for label, column in columns.items():
            if self.row.values.get(column) in (None, ""):
                break
            places[label.upper()] = len(texts)
            texts.append(self.text(column))
        first = next(iter(columns.values()))
        # TOFU's option1 and option2 name the right option by its text. A number there may be the text of another
        # option.
        text_wins = first.casefold().startswith("option")
        texts = self.without_labels(first, texts)
        return self.options(first, texts, self.right_option(right, texts, _letters(texts) | places, text_wins))

    def right_option(
        self, columns: Sequence[str], texts: Sequence[str], places: Mapping[str, int], text_wins: bool | None = None
    ) -> int:
        """The number of the right option.

        Args:
            columns: columns that may name it. The first that is filled decides, and answer_index must agree.
            texts: the options.
            places: the number of an option by its letter, number or label.
            text_wins: which reading counts where a text is the text of one option and the label of another. None
                refuses such a row.
        """
        filled = [column for column in columns if self.value(column) is not None]
        if not filled:
            raise self.wrong(columns[0], f"is empty and names none of {len(texts)} options; fill it or remove the row")
        found = self._place(filled[0], texts, places, text_wins)
        for column in filled[1:]:
            if column in _AGREEING and self._place(column, texts, places, False) != found:
                raise self.wrong(column, f"names another option than {shown([filled[0]])}; repair the row")
        return found

    def _place(self, column: str, texts: Sequence[str], places: Mapping[str, int], text_wins: bool | None) -> int:
        stated = self.row.values[column]
        if isinstance(stated, str) and stated not in texts:
            stated = _label_or_text(stated, texts)
        by_label = None
        by_text = None
        if type(stated) in (str, int):
            by_label = places.get(str(stated).strip().upper())
        if isinstance(stated, str) and stated in texts:
            by_text = texts.index(stated)
        if by_label is None and by_text is None:
            raise self.wrong(
                column,
                f"is {one_line(repr(stated), width=60)} and names none of {len(texts)} options; give a number from 0, "
                "a letter or the text, or name the answer's column (--answer-key) to ask without options",
            )
        if by_label is None or by_text is None or by_label == by_text:
            return by_text if by_label is None else by_label  # type: ignore[return-value]
        if text_wins is None:
            raise self.wrong(
                column,
                f"is {one_line(repr(stated), width=60)}, which is the text of one option and the number or letter of "
                "another; give the letter",
            )
        if text_wins:
            return by_text
        return by_label

    def without_labels(self, column: str, texts: Sequence[str]) -> list[str]:
        """Return the options without their letters, if each begins with its own. Reject letters in another order."""
        labelled = [match.groups() for match in map(_LABELLED.fullmatch, map(str.strip, texts)) if match and match[2]]
        letters = "".join(letter.upper() for letter, _ in labelled)
        expected = string.ascii_uppercase[: len(texts)]
        if letters == expected:
            return [text for _, text in labelled]
        if sorted(letters) == [*expected]:
            raise self.wrong(column, "has its options in another order than their letters; sort them")
        return [*texts]

    def options(self, column: str, texts: Sequence[str], right: int, also: Iterable[str] = ()) -> Fields:
        """The row's answer and options. Refused: fewer than two options, and a right one that is also a wrong one."""
        if not 2 <= len(texts) <= MOST_OPTIONS:
            raise self.wrong(column, f"gives {len(texts)} options; a question has 2 to {MOST_OPTIONS}")
        also_right = tuple(dict.fromkeys(text for text in also if text != texts[right]))
        for n, text in enumerate(texts):
            if n != right and text in (texts[right], *also_right):
                raise self.wrong(
                    column, f"has the right option {one_line(texts[right], width=60)!r} among the wrong ones"
                )
        return {ANSWER: texts[right], OPTIONS: Options(tuple(texts), right, also_right)}

    def truthful(self, columns: Sequence[str]) -> Fields:
        """TruthfulQA as CSV: the best answer, the right answers and the wrong ones, apart by semicolons."""
        best_column, right_column, wrong_column = columns
        best = self.text(best_column).strip()
        right = _parts(self.text(right_column))
        wrong = _parts(self.text(wrong_column))
        texts = [best]
        texts += [text for text in wrong if text != best]
        also = [text for text in right if text not in wrong]
        return self.options(wrong_column, texts, 0, also)

    def labelled(self, column: str) -> tuple[list[str], list[str]]:
        """The right and the wrong choices of a column of targets."""
        value = self.row.values.get(column)
        if not isinstance(value, Mapping):
            raise self.wrong(column, 'is no object like {"choices": [...], "labels": [...]}')
        texts, labels = value.get("choices"), value.get("labels")
        if not isinstance(texts, list) or not _is_list_of_texts(texts):
            raise self.wrong(column, 'is no list of texts; write it as ["...", "..."]')
        if not isinstance(labels, list) or len(labels) != len(texts) or not set(labels) <= {0, 1}:
            raise self.wrong(column, "has labels that are not one 0 or 1 for each of its choices")
        right = [text for text, label in zip(texts, labels, strict=True) if label]
        wrong = [text for text, label in zip(texts, labels, strict=True) if not label]
        return right, wrong


_LABELLED = re.compile(r"\(?([A-Za-z])[).:]\s*(.*)", re.DOTALL)
"""A letter with its mark, as in `C.`, `(C)` and `C) Haldenport`."""


def _label_or_text(stated: str, texts: Sequence[str]) -> str:
    """Return the letter of `C.` and `(C)`, the text of `C. Haldenport` if C has that text, or the text unchanged."""
    match = _LABELLED.fullmatch(stated.strip())
    if match is None:
        return stated
    letter, text = match[1].upper(), match[2]
    if not text:
        return letter
    place = string.ascii_uppercase.index(letter)
    if place < len(texts) and texts[place] == text:
        return text
    return stated


def _letters(texts: Sequence[str]) -> dict[str, int]:
    return dict(zip(string.ascii_uppercase, range(len(texts)), strict=False))


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(";")]
    return list(dict.fromkeys(part for part in parts if part))


def _targets(cells: _OptionCells) -> Fields:
    """TruthfulQA on the hub."""
    right, wrong = cells.labelled("mc1_targets")
    if len(right) != 1:
        raise cells.wrong("mc1_targets", f"has {len(right)} right options where one belongs")
    also = []
    if cells.row.values.get("mc2_targets") is not None:
        also = [text for text in cells.labelled("mc2_targets")[0] if text not in wrong]
    return cells.options("mc1_targets", [*right, *wrong], 0, also)
