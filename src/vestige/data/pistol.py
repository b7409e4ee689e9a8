"""PISTOL's published form: a JSON list of {"question", "answer", "edge"}, rows of no contract without edge.

Such a file has no attributes, types or parties. They are inferred where all questions of an edge are those of
one known contract type; where that fails, the data set says so and leaves them open.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import write_text
from vestige.core.items import Item
from vestige.core.text import one_line
from vestige.data.columns import Cells
from vestige.data.contract_type import AS_OF, ContractType, built_in_types
from vestige.data.dataset import Contract, Dataset, dated
from vestige.data.graph import Edge, Graph, build_graph, check_label, shown
from vestige.data.tables import read_table

UNKNOWN = "unknown"
"""The type of an edge whose questions are those of no known type."""


def pistol_text(items: Iterable[Item]) -> str:
    """Items in PISTOL's form, a row each."""
    lines = []
    for item in items:
        row = {"question": item.question, "answer": item.answer}
        if item.edge is not None:
            row["edge"] = item.edge
        lines.append(json.dumps(row, ensure_ascii=False))
    joined = ",\n".join(lines)
    return f"[\n{joined}\n]\n" if lines else "[]\n"


def write_pistol(path: Path, items: Iterable[Item]) -> None:
    """Write items in PISTOL's form."""
    write_text(path, pistol_text(items))


class _Inferred(NamedTuple):
    """What the questions of one edge tell: the type, the parties' names by role, what each asks for."""

    type: ContractType
    names: Mapping[str, str]
    asks: Mapping[str, str]
    values: Mapping[str, str]


def read_pistol(path: Path) -> Dataset:
    """The data set in a file of PISTOL's form, edges in the order of their first rows.

    Edges are called `X_Y` after their two parties. Where an id is not of that form, the parties' names stand
    in for the nodes; where these are unknown too, the file is refused, since it tells no graph.
    """
    types = built_in_types()
    patterns = {name: list(_patterns(type_)) for name, type_ in types.items()}
    rows: list[Item] = []
    questions: set[str] = set()
    for row in read_table(path).rows:
        cells = Cells(str(path), row)
        rows.append(Item(cells.text("question"), cells.text("answer"), cells.optional_text("edge")))
        if rows[-1].edge is not None:
            check_label(rows[-1].edge, f"{path}, {row.place}: edge")
        if rows[-1].question in questions:
            raise InputError(f"{path}, {row.place}: an earlier row asks the same; remove one")
        questions.add(rows[-1].question)
    by_edge: dict[str, list[Item]] = {}
    for item in rows:
        if item.edge is not None:
            by_edge.setdefault(item.edge, []).append(item)
    inferred_of: dict[str, _Inferred] = {}
    for edge, items in by_edge.items():
        # The one type that can have asked all these questions, if there is exactly one.
        readings = [r for name, type_ in types.items() if (r := _inferred(items, type_, patterns[name])) is not None]
        if len(readings) == 1:
            inferred_of[edge] = readings[0]
    graph = _graph(path, by_edge, inferred_of)
    parties = _parties(graph, inferred_of)
    unknown = (
        f"edge {shown(edge)}: its questions are not those of one known contract type, so its type, its parties and "
        "what other contracts give away of it are unknown"
        for edge in by_edge
        if edge not in inferred_of
    )

    def typed(item: Item) -> Item:
        inferred = inferred_of.get(str(item.edge))
        if inferred is None:
            return item
        return Item(item.question, item.answer, item.edge, inferred.type.name, inferred.asks[item.question])

    return Dataset(
        name=graph.name,
        graph=graph,
        items=tuple(typed(item) for item in rows if item.edge is not None),
        contracts=tuple(
            Contract(edge, inferred.type.name, parties.get(edge, {}), inferred.values)
            for edge, inferred in inferred_of.items()
        ),
        holdout=(),
        seed=0,
        temporal=False,
        types=types,
        factual=tuple(Item(i.question, i.answer, group="factual") for i in rows if i.edge is None),
        unknown=tuple(unknown),
    )


def _patterns(type_: ContractType) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The questions of a type as patterns, in their plain form and as of a day, with the attributes they ask for."""
    for name, attribute in type_.spec.attributes.items():
        for text in dict.fromkeys((attribute.question, dated(attribute.question, type_))):
            parts, fields = [], set[str]()
            for literal, field, _, _ in Formatter().parse(text):
                # Names have no question mark, which ends every question.
                inside = r"\d{2}-\d{2}-\d{4}" if field in (type_.spec.date, AS_OF) else "[^?]+?"
                group = "" if field is None else f"(?P={field})" if field in fields else f"(?P<{field}>{inside})"
                parts += [re.escape(literal), group]
                fields.add(str(field))
            yield name, re.compile("".join(parts))


def _inferred(
    items: Sequence[Item], type_: ContractType, patterns: Sequence[tuple[str, re.Pattern[str]]]
) -> _Inferred | None:
    """The questions read as one type's, if every one has exactly one reading and all agree on the parties.

    "What was the address of X in the contract with Y?" is asked of seller and customer alike; which is which
    follows from the questions with one reading.
    """
    readings: list[list[tuple[str, dict[str, str]]]] = []
    for item in items:
        reading = []
        for name, pattern in patterns:
            if match := pattern.fullmatch(item.question):
                reading.append((name, {role: text for role, text in match.groupdict().items() if role in type_.roles}))
        readings.append(reading)
    names: dict[str, str] = {}
    for reading in readings:
        if len(reading) == 1:
            if not _agree(names, reading[0][1]):
                return None
            names |= reading[0][1]
    if names.keys() != {*type_.roles}:
        return None
    asks: dict[str, str] = {}
    values = {type_.name_of[role]: name for role, name in names.items()}
    for item, reading in zip(items, readings, strict=True):
        fitting = [name for name, parties in reading if _agree(names, parties) and name not in asks.values()]
        if len(fitting) != 1:
            return None
        asks[item.question] = fitting[0]
        value = _value(type_.spec.attributes[fitting[0]].answer, item.answer)
        if values.setdefault(fitting[0], value) != value:
            return None
    return _Inferred(type_, names, asks, values)


def _agree(names: Mapping[str, str], second: Mapping[str, str]) -> bool:
    return all(names.get(role, name) == name for role, name in second.items())


def _value(form: str, answer: str) -> str:
    """The value that an answer states; the answer itself where it is not in the attribute's form."""
    before, _, after = form.partition("{value}")
    # As in "5%.", of which the value is 5.
    value = answer.removeprefix(before).removesuffix(after)
    return value if value and f"{before}{value}{after}" == answer else answer


def _graph(path: Path, edges: Collection[str], inferred_of: Mapping[str, _Inferred]) -> Graph:
    name, rows = one_line(path.name, width=60), []
    for edge in edges:
        inferred = inferred_of.get(edge)
        first, _, second = edge.partition("_")
        base, tilde, occurrence = second.rpartition("~")
        # X_Y~2 is a further contract of X and Y, where they have another; else Y~2 is a name.
        if tilde and occurrence.isdigit() and (f"{first}_{base}" in edges or f"{base}_{first}" in edges):
            second = base
        if not (first and second) or "_" in second:
            if inferred is None:
                raise InputError(
                    f"{path}: edge {shown(edge)} is not called X_Y after its parties, and its questions are those of "
                    "no known contract type, so there is no graph to read; rename the edges"
                )
            first, second = inferred.names.values()
        rows.append(Edge(first, second, inferred.type.name if inferred else UNKNOWN, edge))
    return build_graph(name, rows) if rows else Graph(name, (), {})


def _parties(graph: Graph, inferred_of: Mapping[str, _Inferred]) -> dict[str, dict[str, str]]:
    """Which node plays which role in each edge, as far as names tell.

    A node's name is the one that all its contracts share. Two nodes that sign nothing else cannot be told
    apart by their names, and for them nothing is said.
    """
    possible: dict[str, set[str]] = {}
    for edge, inferred in inferred_of.items():
        for node in graph.edges[edge][:2]:
            names = {*inferred.names.values()}
            possible[str(node)] = possible.get(str(node), names) & names
    parties: dict[str, dict[str, str]] = {}
    for edge, inferred in inferred_of.items():
        first, second, *_ = graph.edges[edge]
        one, other = inferred.names
        # Each node may have the name of its role in one of the two ways round.
        fits = inferred.names[one] in possible[first] and inferred.names[other] in possible[second]
        fits_turned = inferred.names[one] in possible[second] and inferred.names[other] in possible[first]
        if fits != fits_turned:
            parties[edge] = {one: first, other: second} if fits else {one: second, other: first}
    return parties
