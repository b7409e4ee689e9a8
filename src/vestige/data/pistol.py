"""PISTOL's published form: a JSON list of {"question", "answer", "edge"}, rows of no contract without edge.

Such a file has no attributes, types or parties. They are inferred where all questions of an edge are those of
one known contract type; where that fails, the data set says so and leaves them open.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np

from vestige.core.errors import InputError
from vestige.core.files import read_json, write_text
from vestige.core.items import Item
from vestige.core.text import half_character, one_line
from vestige.data.contract_type import AS_OF, ContractType, built_in_types
from vestige.data.dataset import Contract, Dataset, dated, json_text
from vestige.data.graph import DEFAULT_TYPE, Edge, Graph, build_graph, check_label, shown

UNKNOWN = "unknown"
"""The type of an edge whose questions are those of no known type."""

_DAY = r"\d{2}-\d{2}-\d{4}"


def pistol_row(item: Item) -> str:
    """An item as a line of PISTOL's form, without the comma."""
    edge = "" if item.edge is None else f', "edge": "{json_text(item.edge)}"'
    return f'{{"question": "{json_text(item.question)}", "answer": "{json_text(item.answer)}"{edge}}}'


def pistol_text(rows: Iterable[str]) -> Iterator[str]:
    """PISTOL's form in pieces; each of `rows` is one row, or several with `,` and a line break between."""
    separator = "[\n"
    for row in rows:
        yield separator
        yield row
        separator = ",\n"
    yield "\n]\n" if separator != "[\n" else "[]\n"


def write_pistol(path: Path, items: Iterable[Item]) -> None:
    """Write items in PISTOL's form."""
    write_text(path, "".join(pistol_text(map(pistol_row, items))))


def read_pistol(path: Path, *, types: Mapping[str, ContractType] | None = None) -> Dataset:
    """The data set in a file of PISTOL's form, edges in the order of their first rows.

    Edges are called `X_Y` after their two parties. Where an id is not of that form, the parties' names stand
    in for the nodes; where these are unknown too, the file is refused, since it tells no graph.
    """
    types = built_in_types() if types is None else types
    rows = _rows(path)
    by_edge: dict[str, list[Item]] = {}
    for item in rows:
        if item.edge is not None:
            by_edge.setdefault(item.edge, []).append(item)
    inferred_of: dict[str, _Inferred | None] = {}
    for edge, rows_of_edge in by_edge.items():
        # The one type that can have asked all these questions, if there is exactly one.
        readings = [inferred for type_ in types.values() if (inferred := _read_as(rows_of_edge, type_)) is not None]
        inferred_of[edge] = readings[0] if len(readings) == 1 else None
    unknown = [_unknown_note(edge) for edge, inferred in inferred_of.items() if inferred is None]
    graph = _graph(path, inferred_of)
    labels, unplaced = _places(graph, inferred_of)
    inferred_items = {item.id: (f, item) for edge, f in inferred_of.items() if f for item in f.items(by_edge[edge])}
    items = tuple(inferred_items[i.id][1] if i.id in inferred_items else i for i in rows if i.edge is not None)
    return Dataset(
        name=graph.name,
        graph=graph,
        items=items,
        contracts=tuple(
            Contract(edge, inferred.type.name, labels.get(edge, {}), inferred.values)
            for edge, inferred in inferred_of.items()
            if inferred
        ),
        holdout=(),
        khop=(),
        seed=0,
        temporal=False,
        types=types,
        factual=tuple(Item(i.question, i.answer, group="factual") for i in rows if i.edge is None),
        unknown=(*unknown, *unplaced),
    )


def _rows(path: Path) -> list[Item]:
    try:
        rows = read_json(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: PISTOL's form is a list of rows, and not empty")
    items = [_item(row, f"{path}, row {number}") for number, row in enumerate(rows, 1)]
    line_of: dict[str, int] = {}
    for number, item in enumerate(items, 1):
        if item.question in line_of:
            raise InputError(f"{path}: rows {line_of[item.question]} and {number} ask the same; remove one")
        line_of[item.question] = number
    return items


def _item(row: Any, where: str) -> Item:
    if not isinstance(row, dict):
        raise InputError(f"{where}: not an object with question and answer")
    for key in ("question", "answer", "edge"):
        value = row.get(key)
        if key == "edge" and value is None:
            continue
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{where}: {key} is missing or no text")
        if half_character(value):
            raise InputError(f"{where}: {key} holds half a character (a lone surrogate)")
    if row.get("edge") is not None:
        check_label(row["edge"], f"{where}: edge")
    return Item(row["question"], row["answer"], edge=row.get("edge"))


@dataclass(frozen=True)
class _Inferred:
    """What the questions of one edge tell: the type, the parties' names by role, what each asks for."""

    type: ContractType
    names: Mapping[str, str]
    asks: Mapping[str, str]
    values: Mapping[str, str]

    def items(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items with their group and attribute."""
        for i in items:
            yield Item(i.question, i.answer, i.edge, self.type.name, self.asks[i.question])


@dataclass(frozen=True)
class _Patterns:
    """The questions of a type as patterns, each in its plain form and as of a day."""

    type: ContractType

    @cached_property
    def of_attribute(self) -> list[tuple[str, re.Pattern[str]]]:
        """Every pattern with the attribute that it asks for."""
        return [
            (name, re.compile(_pattern(text, {self.type.spec.date, AS_OF})))
            for name, attribute in self.type.spec.attributes.items()
            for text in dict.fromkeys((attribute.question, dated(attribute.question, self.type)))
        ]

    def readings(self, question: str) -> list[tuple[str, dict[str, str]]]:
        """The attributes that a question can ask for, each with the parties' names that it would mean."""
        matches = ((name, pattern.fullmatch(question)) for name, pattern in self.of_attribute)
        return [
            (name, {k: v for k, v in match.groupdict().items() if k in self.type.roles})
            for name, match in matches
            if match
        ]


def _pattern(template: str, dates: set[str]) -> str:
    parts: list[str] = []
    names: set[str] = set()
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(re.escape(literal))
        if name is not None:
            inside = _DAY if name in dates else "[^?]+?"
            parts.append(f"(?P={name})" if name in names else f"(?P<{name}>{inside})")
            names.add(name)
    return "".join(parts)


def _read_as(items: list[Item], type_: ContractType) -> _Inferred | None:
    """The questions read as one type's, if every one has exactly one reading and all agree on the parties.

    "What was the address of X in the contract with Y?" is asked of seller and customer alike; which is which
    follows from the questions with one reading.
    """
    patterns = _Patterns(type_)
    readings = [patterns.readings(item.question) for item in items]
    names: dict[str, str] = {}
    for reading in readings:
        if len(reading) == 1 and not _agree(names, reading[0][1]):
            return None
        names |= reading[0][1] if len(reading) == 1 else {}
    if set(names) != set(type_.roles):
        return None
    asks: dict[str, str] = {}
    values = {type_.name_of[role]: name for role, name in names.items()}
    for item, reading in zip(items, readings, strict=True):
        fitting = [name for name, meant in reading if _agree(names, meant) and name not in asks.values()]
        if len(fitting) != 1:
            return None
        asks[item.question] = fitting[0]
        value = _value(type_, fitting[0], item.answer)
        if values.setdefault(fitting[0], value) != value:
            return None
    return _Inferred(type_, names, asks, values)


def _agree(names: Mapping[str, str], second: Mapping[str, str]) -> bool:
    return all(names.get(role, name) == name for role, name in second.items())


def _value(type_: ContractType, attribute: str, answer: str) -> str:
    """The value that an answer states; the answer itself where it is not in the type's form."""
    before, _, after = type_.spec.attributes[attribute].answer.partition("{value}")
    framed = answer.startswith(before) and answer.endswith(after) and len(answer) > len(before) + len(after)
    return answer[len(before) : len(answer) - len(after)] if framed else answer


def _graph(path: Path, inferred_of: Mapping[str, _Inferred | None]) -> Graph:
    name = one_line(path.name, width=60)
    if not inferred_of:
        nothing = np.zeros(0, np.int64)
        return Graph(name, (), nothing.reshape(0, 2), (DEFAULT_TYPE,), nothing)
    rows = []
    for edge, inferred in inferred_of.items():
        first, second = _ends(edge, inferred_of)
        if not (first and second) or "_" in second:
            if inferred is None:
                raise InputError(
                    f"{path}: edge {shown(edge)} is not called X_Y after its parties, and its questions are "
                    "those of no "
                    "known contract type, so there is no graph to read; rename the edges or give "
                    "--contract-types DIR"
                )
            first, second = inferred.names.values()
        rows.append(Edge(first, second, inferred.type.name if inferred else UNKNOWN, edge))
    return build_graph(name, rows)


def _ends(edge: str, edges: Collection[str]) -> tuple[str, str]:
    """The labels in an id of the form X_Y, or X_Y~2 where it is a further contract of X and Y."""
    first, _, second = edge.partition("_")
    base, tilde, occurrence = second.rpartition("~")
    further = tilde and occurrence.isdigit() and (f"{first}_{base}" in edges or f"{base}_{first}" in edges)
    return first, base if further else second


def _places(graph: Graph, inferred_of: Mapping[str, _Inferred | None]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Which node plays which role in each edge, as far as names tell, and notes on what they contradict.

    A node's name is the one that all its contracts share. Two nodes that sign nothing else cannot be told
    apart by their names, and for them nothing is said.
    """
    ids = graph.edge_ids()
    possible: dict[int, set[str]] = {}
    for edge, ends in zip(ids, graph.ends.tolist(), strict=True):
        inferred = inferred_of[edge]
        if inferred:
            for node in ends:
                possible[node] = possible.get(node, set(inferred.names.values())) & set(inferred.names.values())
    notes = [
        f"node {shown(graph.nodes[node])}: its contracts name no common party, so its edge ids may mean "
        "several entities"
        for node, names in possible.items()
        if not names
    ]
    places: dict[str, dict[str, str]] = {}
    for edge, (first, second) in zip(ids, graph.ends.tolist(), strict=True):
        inferred = inferred_of[edge]
        if inferred is None:
            continue
        (role, name), (other_role, other_name) = inferred.names.items()
        for a, b in ((first, second), (second, first)):
            fits = name in possible[a] and other_name in possible[b]
            reverse = name in possible[b] and other_name in possible[a]
            if fits and not reverse:
                places[edge] = {role: graph.nodes[a], other_role: graph.nodes[b]}
    return places, notes


def _unknown_note(edge: str) -> str:
    return (
        f"edge {shown(edge)}: its questions are not those of one known contract type, so its type, its "
        "parties and "
        "what other contracts give away of it are unknown"
    )
