"""What the page carries as data: names, estimates, the drawn graph, and every answer once.

Numbers are rounded to six significant digits; tables/results.csv has them in full.
"""

import math
from collections.abc import Iterable
from typing import Any

from vestige.core.estimates import Estimate
from vestige.report.answers import Reply, split_of
from vestige.report.audit_payload import audit_payload
from vestige.report.contents import Contents
from vestige.report.evidence import Cell, Subject, forget_label, greedy_rouge
from vestige.report.holes_payload import holes_payload

_SPLITS = ("forget", "retain", "independent")
_SCOPES = ("free", "guessable", "entailed")


def payload(contents: Contents) -> dict[str, Any]:
    """The data of the page, as JSON values. Models and forget sets are named by their place in the lists."""
    subjects = contents.evidence.subjects
    cells = [c for s in subjects for places in s.results.values() for c in places]
    measures = _measures(subjects)
    return {
        "forgets": [_forget(contents, i) for i in range(len(contents.findings))],
        "subjects": [
            {
                "label": s.label,
                "role": s.spec.subject,
                "colour": contents.colours.get(s.label),
            }
            for s in subjects
        ],
        "splits": _splits(contents, {c.split for c in cells}),
        "scopes": [scope for scope in _SCOPES if any(c.scope == scope for c in cells)],
        "measures": [{"format": f, "attack": a, "metric": m, "unit": u} for (f, a, m), u in measures.items()],
        "leading": _leading(measures),
        "results": _results(contents, {place: i for i, place in enumerate(measures)}),
        "graph": _graph(contents),
        "items": _items(contents),
        "audits": [audit_payload(outcome, contents.colours) for outcome in contents.audits],
        "probes": [holes_payload(probe) for probe in contents.probes],
    }


def _measures(subjects: Iterable[Subject]) -> dict[tuple[str, str, str], str]:
    """Format, attack and metric of every estimate, as first seen, with the unit."""
    found: dict[tuple[str, str, str], str] = {}
    for subject in subjects:
        for places in subject.results.values():
            for cell, estimate in places.items():
                found.setdefault(cell[2:], estimate.unit)
    return found


def _leading(measures: dict[tuple[str, str, str], str]) -> int:
    """The place of the measure that the page opens with; -1 where nothing was measured by it."""
    places = list(measures)
    leading = greedy_rouge("forget")[2:]
    return places.index(leading) if leading in places else -1


def _splits(contents: Contents, found: set[str]) -> list[str]:
    edges = [f"edge:{e.id}" for e in contents.edges if f"edge:{e.id}" in found]
    named = [s for s in _SPLITS if s in found]
    others = sorted(s for s in found if s not in {*named, *edges} and not s.startswith("edge:"))
    strays = sorted(s for s in found if s.startswith("edge:") and s not in set(edges))
    return [*named, *others, *edges, *strays]


def _forget(contents: Contents, index: int) -> dict[str, Any]:
    finding, forget_set = contents.findings[index], contents.forget_sets[index]
    return {
        "index": index,
        "label": forget_label(finding.forget),
        "scope": finding.scope,
        "edges": None if forget_set.edges is None else sorted(forget_set.edges),
        "subjects": [i for i, s in enumerate(contents.evidence.subjects) if finding.forget in s.results],
        "splits": [split_of(item, forget_set) for item in contents.answers.asked],
    }


def _results(contents: Contents, measures: dict[tuple[str, str, str], int]) -> list[list[Any]]:
    def row(forget: int, subject: int, cell: Cell, e: Estimate) -> list[Any]:
        numbers = [None if math.isinf(x) else _short(x) for x in (e.value, e.low, e.high)]
        return [forget, subject, cell.split, cell.scope, measures[cell[2:]], *numbers, e.n]

    return [
        row(i, j, cell, estimate)
        for i, finding in enumerate(contents.findings)
        for j, subject in enumerate(contents.evidence.subjects)
        for cell, estimate in subject.results.get(finding.forget, {}).items()
    ]


def _graph(contents: Contents) -> dict[str, Any] | None:
    drawing = contents.drawing
    if drawing is None:
        return None
    nodes = list(drawing.positions)
    place = {node: i for i, node in enumerate(nodes)}
    types = sorted({e.type for e in drawing.edges})
    return {
        "width": drawing.width,
        "height": drawing.height,
        "types": types,
        "nodes": [{"id": n, "x": drawing.positions[n][0], "y": drawing.positions[n][1]} for n in nodes],
        "edges": [
            {
                "id": e.id,
                "a": place[e.first],
                "b": place[e.second],
                "type": types.index(e.type),
                "bend": bend,
                "connectivity": e.connectivity,
                "entailed": e.n_entailed,
            }
            for e, bend in zip(drawing.edges, drawing.bends, strict=True)
        ],
    }


def _items(contents: Contents) -> dict[str, Any]:
    answers = contents.answers
    texts: dict[str, int] = {}

    def packed(reply: Reply) -> list[Any]:
        place = texts.setdefault(reply.text, len(texts))
        odd = [int(x) for x in (reply.refused, reply.empty, reply.truncated)]
        return [place, None if reply.rouge is None else _short(reply.rouge), _short(reply.probability), *odd]

    replies = []
    for subject in contents.evidence.subjects:
        own = answers.replies.get(subject.path)
        replies.append(None if own is None else [packed(own[a.id]) if a.id in own else None for a in answers.asked])
    return {
        "rows": [
            {
                "question": a.question,
                "answer": a.answer,
                "edge": a.edge,
                "group": a.group,
                "attribute": a.attribute,
            }
            for a in answers.asked
        ],
        "replies": replies,
        "texts": list(texts),
    }


def _short(x: float) -> float:
    return float(f"{x:.6g}")
