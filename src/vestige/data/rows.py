"""Question rows as text: the twenty rows of a contract come from one list of pieces, joined once.

A row is one line of JSON with the keys question, answer, edge, in PISTOL's order.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from string import Formatter
from typing import Any

from vestige.core.items import Item
from vestige.data.contract_type import AS_OF, EDGE, Choice, ContractType, Permutation
from vestige.data.drawing import Drawing, Sheet

DATED = f" as of {{{AS_OF}}}?"
"""How a question ends that is asked as of a day."""


def dated(template: str, type_: ContractType) -> str:
    """A question's template where contracts have successors: as of a day, unless the key date is in it."""
    return template if f"{{{type_.spec.date}}}" in template else template.removesuffix("?") + DATED


def json_text(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


@dataclass(frozen=True)
class _Pieces:
    """A template taken apart: literal texts and, between every two of them, the name of what stands there."""

    literals: list[str]
    names: list[str]

    @classmethod
    def of(cls, template: str, *, escape: Callable[[str], str] = str) -> "_Pieces":
        """A template with names in braces."""
        parts = (
            cls([escape(text), ""] if name else [escape(text)], [name] if name else [])
            for text, name, _, _ in Formatter().parse(template)
        )
        return cls.joined(parts)

    @classmethod
    def joined(cls, parts: "Iterable[_Pieces]") -> "_Pieces":
        """Several, one after the other."""
        literals, names = [""], []
        for part in parts:
            literals[-1] += part.literals[0]
            literals += part.literals[1:]
            names += part.names
        return cls(literals, names)

    def fill(self, columns: Mapping[str, list[str]]) -> list[str]:
        """A text for each row of the columns."""
        # One join a text sizes it once and copies; filling a %-format of 80 fields takes 1.7 times as long.
        between = ((repeat(text), columns[name]) for text, name in zip(self.literals, self.names, strict=False))
        parts = [part for pair in between for part in pair]
        return list(map("".join, zip(*parts, repeat(self.literals[-1]), strict=False)))


@dataclass(frozen=True)
class RowFormat:
    """All question rows of one contract type."""

    type: ContractType
    temporal: bool

    def _templates(self, question: Callable[[Any], str]) -> list[str]:
        """The questions' templates in order, dated where contracts have successors."""
        texts = [question(attribute) for attribute in self.type.spec.attributes.values()]
        return [dated(text, self.type) for text in texts] if self.temporal else texts

    @cached_property
    def _filled(self) -> "_Pieces":
        """All rows of a contract, with the columns that fill them."""
        parts: list[_Pieces] = []
        for template, (name, attribute) in zip(
            self._templates(lambda a: str(a.question)), self.type.spec.attributes.items(), strict=True
        ):
            parts.append(_Pieces([(",\n" if parts else "") + '{"question": "'], []))
            parts.append(_Pieces.of(template, escape=json_text))
            parts.append(_Pieces(['", "answer": "'], []))
            parts.append(_Pieces(_Pieces.of(attribute.answer, escape=json_text).literals, [name]))
            parts.append(_Pieces(['", "edge": "', '"}'], [EDGE]))
        return _Pieces.joined(parts)

    @cached_property
    def _to_escape(self) -> frozenset[str]:
        """Columns that can hold a quote or a backslash: those from lists of people's own, and edge ids."""
        lists = {
            name
            for name, attribute in self.type.spec.attributes.items()
            if isinstance(attribute.generator, Choice | Permutation)
            and any(json_text(value) != value for value in attribute.generator.values)
        }
        return frozenset(lists | {EDGE})

    def rows(self, columns: Mapping[str, list[str]]) -> list[str]:
        """The question rows of each contract, a line each, with `,` between them."""
        used = set(self._filled.names)
        return self._filled.fill({n: _escaped(columns[n]) if n in self._to_escape else columns[n] for n in used})

    def paraphrases(self, columns: Mapping[str, list[str]]) -> list[list[str]]:
        """The paraphrased questions of each contract."""
        texts = []
        for template in self._templates(lambda a: str(a.paraphrase)):
            texts.append(_Pieces.of(template).fill(columns))
        return [list(of_contract) for of_contract in zip(*texts, strict=True)]


def _escaped(texts: list[str]) -> list[str]:
    # Labels are printable, so that quotes and backslashes are all that JSON has to escape.
    together = "".join(texts)
    return texts if '"' not in together and "\\" not in together else [json_text(text) for text in texts]


def rows_of_chunk(drawing: Drawing, start: int, stop: int) -> Iterator[tuple[Sheet, list[str]]]:
    """The sheets of a chunk with the question rows of each contract."""
    for sheet in drawing.sheets(start, stop):
        yield sheet, RowFormat(sheet.type, drawing.temporal).rows(sheet.columns)


def items_of(sheet: Sheet, rows: list[str]) -> list[list[Item]]:
    """The items of each contract, read back from its question rows, so that there is one source of both."""
    attributes = list(sheet.type.spec.attributes)
    return [
        [Item(**row, group=sheet.type.name, attribute=name) for row, name in zip(contract, attributes, strict=True)]
        for contract in (json.loads(f"[{text}]") for text in rows)
    ]
