"""PISTOL's published form: a JSON list of {"question", "answer", "edge"}, rows of no contract without edge.

Such a file defines the graph by its edges' names, without types, attributes or parties. So the information in other
contracts about an answer is unknown.
"""

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from vestige.core.errors import InputError
from vestige.core.files import write_text
from vestige.core.items import Item
from vestige.core.text import one_line
from vestige.data.columns import Cells
from vestige.data.dataset import Dataset
from vestige.data.graph import Edge, Graph, build_graph, check_label, shown
from vestige.data.tables import read_table

UNKNOWN = "unknown"
"""The type of every edge."""


def pistol_text(items: Iterable[Item]) -> str:
    """Items in PISTOL's form, a row each."""
    lines = []
    for item in items:
        row = {"question": item.question, "answer": item.answer}
        if item.edge is not None:
            row["edge"] = item.edge
        lines.append(json.dumps(row, ensure_ascii=False))
    joined = ",\n".join(lines)
    if lines:
        return f"[\n{joined}\n]\n"
    return "[]\n"


def write_pistol(path: Path, items: Iterable[Item]) -> None:
    """Write items in PISTOL's form."""
    write_text(path, pistol_text(items))


def read_pistol(path: Path) -> Dataset:
    """Read the data set in a file of PISTOL's form, edges in the order of their first rows.

    Raises:
        InputError: A row has no question or answer, repeats an earlier question, or has an edge name other than `X_Y`
            with its two parties.
    """
    items: list[Item] = []
    factual: list[Item] = []
    questions: set[str] = set()
    edges: dict[str, None] = {}
    for row in read_table(path).rows:
        cells = Cells(str(path), row)
        question, answer, edge = cells.text("question"), cells.text("answer"), cells.optional_text("edge")
        if question in questions:
            raise InputError(f"{path}, {row.place}: an earlier row asks the same. Remove one")
        questions.add(question)
        if edge is None:
            factual.append(Item(question, answer, group="factual"))
        else:
            check_label(edge, f"{path}, {row.place}: edge")
            items.append(Item(question, answer, edge))
            edges[edge] = None
    return Dataset(
        name=one_line(path.name, width=60),
        graph=_graph(path, edges),
        items=tuple(items),
        contracts=(),
        holdout=(),
        seed=0,
        factual=tuple(factual),
        unknown=(f"{one_line(path.name, width=60)} does not tell what other contracts give away of an answer",),
    )


def _graph(path: Path, edges: Collection[str]) -> Graph:
    name, rows = one_line(path.name, width=60), []
    for edge in edges:
        first, _, second = edge.partition("_")
        base, tilde, occurrence = second.rpartition("~")
        # X_Y~2 is a further contract of X and Y, where they have another; else Y~2 is a name.
        if tilde and occurrence.isdigit() and (f"{first}_{base}" in edges or f"{base}_{first}" in edges):
            second = base
        if not (first and second) or "_" in second:
            raise InputError(f"{path}: edge {shown(edge)} is not called X_Y after its parties. Rename the edges")
        rows.append(Edge(first, second, UNKNOWN, edge))
    if rows:
        return build_graph(name, rows)
    return Graph(name, (), {})
