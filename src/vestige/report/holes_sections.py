"""A search for holes on the page: its plain HTML, and the data that the script draws.

The HTML holds the answer with its table, what was dropped, and what was run. Everything in it is text and numbers for
the template, which escapes them. Quality is 1..10, shares are 0..1.

The script draws the map and every candidate with its answers. Scores are rounded to four significant digits;
tables/holes.csv and tested.jsonl have them in full.

Mending has one table for the page, and rows of CSV. A row is a model at a step or a round. Of the forget set it has a
score by metric, of each set of prompts the mean quality, 1..10, and the share at the lowest score.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.holes import FORGET, SETS, HoleRow, MitigationRow, MitigationTable, Placebo, Tested, Way
from vestige.core.estimates import Estimate
from vestige.report.holes import (
    DIGEST_CHARACTERS,
    STANDFIRST,
    STANDING_TONES,
    STANDING_WORDS,
    Probe,
    about,
    caveat,
    headline,
    qualifiers,
    sentence,
    silent,
    source_name,
    standing,
)
from vestige.report.verdict_words import Span
from vestige.report.words import interval, named_values, number, provenance_lines

WAY_WORDS: dict[Way, str] = {
    "gd": "one tuning on the target's own answers (gd)",
    "kl": "one tuning towards the target's distributions (kl)",
    "iterative": "unlearning anew with the holes in the retain set, round by round",
}
METRIC_WORDS = {"rougeL_recall": "ROUGE-L recall"}
"""Names of metrics that people say otherwise."""
MENDING_COLUMNS = (
    *("probe", "mending", "way", "arm", "at", "kept", "set", "metric", "value", "low", "high"),
    *("n", "n_asked"),
)
"""The columns of tables/mitigation.csv, a row a model, set and metric."""


@dataclass(frozen=True)
class MendedCell:
    """A number in the table, with its interval and a note; empty where it was not measured."""

    value: str
    range: str
    note: str


@dataclass(frozen=True)
class MendedRow:
    """A model of the table."""

    name: str
    kept: bool
    cells: tuple[MendedCell, ...]


@dataclass(frozen=True)
class Mended:
    """One mending: how, its columns and rows, and in sentences what was asked for and not had."""

    how: str
    heads: tuple[tuple[str, str], ...]
    rows: tuple[MendedRow, ...]
    notes: tuple[str, ...]


def mended_blocks(probe: Probe) -> list[Mended]:
    """The mendings of a search, laid out."""
    return [_block(table) for _, table in probe.mendings]


def mending_rows(probe: Probe) -> list[dict[str, Any]]:
    """Every number of the mendings, in full."""
    return [
        {
            "probe": probe.name,
            "mending": name,
            "way": table.way,
            "arm": row.arm,
            "at": row.at,
            "kept": row.kept,
            **found,
        }
        for name, table in probe.mendings
        for row in table.rows
        for found in _numbers(row)
    ]


def _block(table: MitigationTable) -> Mended:
    metrics = list(dict.fromkeys(metric for row in table.rows for metric in row.forget))
    sets = [name for name in SETS if any(name in row.sets for row in table.rows)]
    heads = [("forget set", METRIC_WORDS.get(metric, metric)) for metric in metrics]
    heads += [(name, f"{table.sizes[name]:,} prompts" if name in table.sizes else "") for name in sets]
    unit = "round" if table.way == "iterative" else "step"
    rows = [
        MendedRow(
            f"{row.arm}, {unit} {row.at:,}",
            row.kept,
            (*(_cell(row.forget.get(metric)) for metric in metrics), *(_set_cell(row, name) for name in sets)),
        )
        for row in table.rows
    ]
    return Mended(WAY_WORDS[table.way], tuple(heads), tuple(rows), table.notes)


def _cell(estimate: Estimate | None, note: str = "") -> MendedCell:
    if estimate is None:
        return MendedCell("–", "", "")
    return MendedCell(number(estimate.value), interval(estimate), note)


def _set_cell(row: MitigationRow, name: str) -> MendedCell:
    found = row.sets.get(name)
    if found is None:
        return _cell(None)
    judged = f", {found.n_judged:,} of {found.n:,} judged" if found.n_judged < found.n else ""
    return _cell(found.quality, f"{number(found.lowest.value)} at 1{judged}")


def _numbers(row: MitigationRow) -> list[dict[str, Any]]:
    found = [(FORGET, metric, estimate, estimate.n) for metric, estimate in row.forget.items()]
    for name, score in row.sets.items():
        found += [(name, "quality", score.quality, score.n), (name, "lowest", score.lowest, score.n)]
    return [
        {"set": name, "metric": metric, "value": e.value, "low": e.low, "high": e.high, "n": e.n, "n_asked": n}
        for name, metric, e, n in found
    ]


COLOURS = 8
"""How many groups have a colour of their own; those after begin again with another sign."""
_SCORES, _SHARES = (1.0, 10.0), (0.0, 1.0)


@dataclass(frozen=True)
class Cell:
    """An estimate in the table, with the ends of the scale that it is drawn on; None where nothing was measured."""

    estimate: Estimate | None
    scale: tuple[float, float] | None

    def place(self, value: float) -> float:
        """Where a value lies on the scale, 0..1."""
        low, high = self.scale or _SHARES
        return min(max((value - low) / (high - low), 0.0), 1.0)


@dataclass(frozen=True)
class SourceRow:
    """One source on the first screen: its sentence, what qualifies it, the verdict in words, and its numbers."""

    name: str
    n: str
    spans: tuple[Span, ...]
    qualifiers: tuple[str, ...]
    verdict: str
    tone: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Group:
    """A group of holes, its size and its colour."""

    name: str
    n: int
    css: str


HEADS = (
    ("quality", "before"),
    ("quality", "after"),
    ("change", ""),
    ("lowest score", "before"),
    ("lowest score", "after"),
    ("holes", ""),
    ("false holes", ""),
    ("beyond these", ""),
)
"""The columns of the table: what is measured, and of which answers."""


def holes_block(probe: Probe) -> dict[str, Any]:
    """The template's variables for one search."""
    table = probe.table
    return {
        "name": probe.name,
        "headline": headline(probe),
        "standfirst": STANDFIRST,
        "facts": _facts(probe),
        "heads": HEADS,
        "rows": [_row(probe, row) for row in table.rows],
        "about": about(probe),
        "caveat": caveat(probe),
        "groups": [Group(g.name, g.n, f"method-{i % COLOURS}") for i, g in enumerate(table.groups)],
        "shown": "" if probe.map is None or not probe.map.points else f"{100 * probe.map.shown:.0f}",
        "dropped": [(source_name(s), sorted(d.items(), key=_count)) for s, d in table.dropped.items() if d],
        "failures": [(stage, sorted(found.items(), key=_count)) for stage, found in table.failures.items() if found],
        "diversity": [
            (source_name(s), d.n, *("–" if x is None else number(x) for x in (d.vendi_share, d.distinct_ngrams)))
            for s, d in table.diversity.items()
        ],
        "selection": [(source_name(s), words) for s, words in table.selection.items()],
        "mended": mended_blocks(probe),
        "n_candidates": len(probe.tested),
        "calls": (table.target_calls, table.unlearned_calls),
        "asked": _asked(probe),
        "made_by": provenance_lines(probe.provenance),
    }


def _facts(probe: Probe) -> list[str]:
    facts = [f"{role} {_short(probe.models[role])}" for role in ("target", "unlearned") if role in probe.models]
    judge = probe.identity.get("judge", {})
    if isinstance(judge, Mapping) and "judge" in judge:
        facts.append(f"judge: {judge['judge']}{' ' + str(judge['model']) if 'model' in judge else ''}")
    facts.append(f"{len(probe.tested):,} candidates, {len(probe.asked_anew):,} tested")
    if "times" in probe.provenance:
        facts.append(f"started {probe.provenance['times'].get('started', '')[:10]}")
    return facts


def _short(name: str) -> str:
    """The last part of a model's name, which may be a path; a subject is called by its folder, not by `model` in it."""
    parts = [part for part in name.split("/") if part]
    if len(parts) > 1 and parts[-1] == "model":
        parts.pop()
    return parts[-1] if parts else name


def _row(probe: Probe, row: HoleRow) -> SourceRow:
    stands = standing(probe, row)
    placebo = next((p for p in row.placebos if not silent(p)), None)
    return SourceRow(
        name=source_name(row.source),
        n=f"n = {row.n_judged:,}" if row.n_judged == row.n else f"n = {row.n_judged:,} of {row.n:,}",
        spans=tuple(sentence(probe, row)),
        qualifiers=tuple(qualifiers(probe, row)),
        verdict=STANDING_WORDS[stands],
        tone=STANDING_TONES[stands],
        cells=(
            Cell(row.before, _SCORES),
            Cell(row.after, _SCORES),
            Cell(row.change, None),
            *(Cell(share, _SHARES) for share in (row.lowest_before, row.lowest_after, row.holes)),
            *_false(placebo),
        ),
    )


def _false(placebo: Placebo | None) -> tuple[Cell, Cell]:
    if placebo is None:
        return Cell(None, None), Cell(None, None)
    return Cell(placebo.rate, _SHARES), Cell(placebo.excess, None)


def _asked(probe: Probe) -> list[tuple[str, str]]:
    """The models by name and digest, and every setting that can change what is found."""
    weights = {**probe.identity, **probe.identity.get("placebos", {})}
    models = [(role, f"{name} ({str(weights[role])[:DIGEST_CHARACTERS]}…)") for role, name in probe.models.items()]
    left = {k: v for k, v in probe.identity.items() if k not in ("target", "unlearned", "placebos")}
    flat: dict[str, Any] = {}
    for key, value in left.items():
        flat |= {f"{key}: {inner}": x for inner, x in value.items()} if isinstance(value, Mapping) else {key: value}
    return [*models, *named_values(flat)]


def _count(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


ADJACENT = "adjacent"


def holes_payload(probe: Probe) -> dict[str, Any]:
    """One search; sources and groups are named by their places in the lists."""
    sources = list(dict.fromkeys(t.source for t in probe.tested))
    groups = [group.name for group in probe.table.groups]
    group_of = {hole.id: groups.index(hole.group) for hole in probe.holes if hole.group in groups}
    places = {} if probe.map is None else {p.id: (p.x, p.y) for p in probe.map.points}
    return {
        "sources": [source_name(s) for s in sources],
        "groups": [{"name": name, "colour": i % COLOURS, "sign": i // COLOURS} for i, name in enumerate(groups)],
        "mapped": probe.map is not None,
        "rows": [_candidate(t, sources.index(t.source), group_of.get(t.id, -1), places) for t in probe.tested],
    }


def _candidate(tested: Tested, source: int, group: int, places: dict[str, tuple[float, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt": tested.prompt, "source": source}
    if tested.source != ADJACENT and tested.origin:
        row["origin"] = tested.origin
    if tested.dropped:
        return row | {"dropped": tested.dropped}
    return row | {
        "hole": tested.hole,
        "group": group,
        "at": places.get(tested.id),
        "target": [tested.target_answer, _digits(tested.target_score)],
        "unlearned": [tested.unlearned_answer, _digits(tested.unlearned_score)],
        "placebos": [
            [name, answer, _digits(tested.placebo_scores.get(name))] for name, answer in tested.placebo_answers.items()
        ],
    }


def _digits(x: float | None) -> float | None:
    return None if x is None else float(f"{x:.4g}")
