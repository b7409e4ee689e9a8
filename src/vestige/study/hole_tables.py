"""Tables of a study of holes as text: Markdown for people, rows of single numbers for programs.

A cell of an estimate is value [low, high] with its 95 % interval, followed by n. What is not there is said in words,
never left as an empty or a zero.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from vestige.core.estimates import Estimate
from vestige.core.text import one_line
from vestige.metrics.t_tests import TTest, paired_test, student_test, welch_test
from vestige.probes.variance import by_origin

COLUMNS = ("row", "set", "measure", "value", "low", "high", "n", "interval")
"""Of every CSV file. `low`, `high` and `interval` are empty for what has no interval, as a count or a p-value."""
MISSING = "not made"
_MARKUP = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~"})


@dataclass(frozen=True)
class Part:
    """One grid of a table: a heading for each column, and rows of as many cells."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: grids, remarks in sentences, and single numbers by `COLUMNS`."""

    number: int
    title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    numbers: tuple[Mapping[str, Any], ...]


def page(title: str, facts: Sequence[str], tables: Sequence[PaperTable]) -> str:
    """All tables as one page of Markdown; `facts` are what they were made from."""
    return "\n\n".join([f"# {title}", *facts, *(block for table in tables for block in _blocks(table))]) + "\n"


def _blocks(table: PaperTable) -> Iterator[str]:
    yield f"## Table {table.number}: {table.title}"
    for part in table.parts:
        rule = tuple("---" for _ in part.head)
        yield "\n".join(f"| {' | '.join(cells)} |" for cells in (part.head, rule, *part.rows))
    yield from table.notes


def named(text: str) -> str:
    """A name that a person gave, as a cell: one line, in which no mark acts."""
    return one_line(text).translate(_MARKUP)


def cell(estimate: Estimate, *, n: bool = False) -> str:
    """An estimate as a cell."""
    return str(estimate) if n else estimate.said()


def number(row: str, set_: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate as a row of numbers."""
    return {
        "row": row,
        "set": set_,
        "measure": estimate.metric,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "n": estimate.n,
        "interval": estimate.interval,
    }


def bare_number(row: str, set_: str, measure: str, value: float, n: int) -> dict[str, Any]:
    """A number without an interval as a row."""
    empty = {"low": "", "high": "", "interval": ""}
    return {"row": row, "set": set_, "measure": measure, "value": value, "n": n, **empty}


@dataclass(frozen=True)
class ChangeTests:
    """The t-tests of after minus before: paired, Welch's and Student's; a reason where there is none.

    In the paired one what was made from one thing counts once; the other two take all prompts for independent.
    """

    paired: TTest | str
    welch: TTest | str
    student: TTest | str

    def cells(self) -> tuple[str, str, str]:
        """The p-values as cells."""
        return _p(self.paired), _p(self.welch), _p(self.student)

    def numbers(self, row: str, set_: str, n: int) -> list[dict[str, Any]]:
        """The p-values that there are, as rows of numbers."""
        found = (("p, paired t", self.paired), ("p, Welch t", self.welch), ("p, Student t", self.student))
        return [bare_number(row, set_, name, test.p, n) for name, test in found if isinstance(test, TTest)]


def change_tests(
    before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"], origins: Sequence[str]
) -> ChangeTests:
    """The three tests of the same prompts' scores; a test of nothing is its reason."""
    paired = _tested(paired_test, by_origin(before, origins), by_origin(after, origins))
    return ChangeTests(paired, *(_tested(test, before, after) for test in (welch_test, student_test)))


def _tested(test: Any, before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"]) -> TTest | str:
    try:
        found = test(before, after)
    except ValueError as error:
        return str(error)
    assert isinstance(found, TTest)
    return found


def _p(test: TTest | str) -> str:
    if isinstance(test, str):
        return f"none: {test}"
    return "< 0.0001" if test.p < 1e-4 else f"{test.p:.4f}"
