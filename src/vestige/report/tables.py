"""The tables of a run as rows of CSV: estimates, answers side by side, its audits, its searches for holes.

Numbers are written in full. Text from models and data sets has what acts unseen spelt out (`visible`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from vestige.artifacts.audits import CLAIMS, AuditOutcome, VerdictLine
from vestige.artifacts.holes import HoleRow, Placebo
from vestige.artifacts.layout import RunFolder
from vestige.artifacts.records import COLUMNS, read_summaries, result_rows, write_csv
from vestige.artifacts.verdicts import WORDS, bound_said
from vestige.core.estimates import Estimate, end
from vestige.core.ids import content_id
from vestige.core.text import Fields, TextTuple
from vestige.report.contents import Contents
from vestige.report.evidence import split_of
from vestige.report.holes import STANDING_WORDS, Probe, standing

_BOUNDS = ("value", "low", "high", "n")


def _bound_columns(names: Iterable[str]) -> list[str]:
    columns: list[str] = []
    for name in names:
        columns += [f"{name}_{bound}" for bound in _BOUNDS]
    return columns


RESULT_COLUMNS = (*COLUMNS, "evaluation", "items")
"""The columns of tables/results.csv: at the end the evaluation's folder, and the content id of the items it asked."""

ITEM_COLUMNS = ("forget", "item", "edge", "group", "attribute", "split", "question", "answer")
"""The first columns of tables/items.csv. Then `<label>_reply` and `<label>_rouge1_recall`."""


def write_tables(folder: Path, run: RunFolder, contents: Contents, replaced: Callable[[str], str] = str) -> None:
    """Write results.csv and items.csv into `folder`, and the audits' results, with each text `replaced`."""
    results = []
    for evaluation, s in read_summaries(run):
        # Rows with the same questions have the same id, and may be compared.
        asked: set[str] = set()
        for ids in s.splits.values():
            asked.update(ids)
        items = content_id(sorted(asked))
        for row in result_rows([s]):
            texts = {column: replaced(value) for column, value in row.items() if isinstance(value, str)}
            results.append({"evaluation": evaluation.path.name, "items": items} | row | texts)
    write_csv(folder / "results.csv", RESULT_COLUMNS, results)
    columns, rows = item_rows(contents)
    write_csv(folder / "items.csv", columns, rows)
    if contents.audits:
        for name, (fixed, lines) in audit_tables(contents.audits).items():
            write_csv(folder / f"{name}.csv", fixed, lines)


def _bounds(name: str, estimate: Estimate | None) -> Fields:
    if estimate is None:
        return {f"{name}_{bound}": "" for bound in _BOUNDS}
    numbers = (estimate.value, end(estimate.low), end(estimate.high), estimate.n)
    return {f"{name}_{bound}": number for bound, number in zip(_BOUNDS, numbers, strict=True)}


def item_rows(contents: Contents) -> tuple[TextTuple, list[Fields]]:
    """Return the columns, and a row a forget set and item with each subject's reply."""
    rows, labels = [], []
    for forget_set in contents.forget_sets:
        subjects = [s for s in contents.evidence.subjects if forget_set.forget in s.results]
        labels += [s.label for s in subjects if s.label not in labels]
        for item in contents.answers.questions:
            row: Fields = {**vars(item), "forget": forget_set.forget, "split": split_of(item, forget_set)}
            row["item"] = row.pop("id")
            for subject in subjects:
                reply = contents.answers.replies.get(subject.path, {}).get(item.id)
                if reply:
                    row[f"{subject.label}_reply"] = reply.text
                    row[f"{subject.label}_rouge1_recall"] = "" if reply.rouge is None else reply.rouge
            rows.append(row)
    columns = list(ITEM_COLUMNS)
    for label in labels:
        columns += [f"{label}_reply", f"{label}_rouge1_recall"]
    return tuple(columns), rows


_MEASURES = ("before", "after", "change", "lowest_before", "lowest_after", "holes")
HOLE_COLUMNS = tuple(
    ["probe", "id", "prompt", "source", "target_score", "unlearned_score", "target_answer", "unlearned_answer"]
)
"""The columns of tables/holes.csv, a row a hole."""
SOURCE_COLUMNS = (
    *("probe", "source", "placebo", "tested", "verdict"),
    *_bound_columns((*_MEASURES, "false_holes", "beyond")),
)
"""The columns of tables/hole_sources.csv, a row a source and placebo. A source without a placebo has one row."""


def write_hole_tables(folder: Path, probes: Sequence[Probe]) -> None:
    """Write holes.csv and hole_sources.csv of some searches into `folder`."""
    holes, rows = [], []
    for probe in probes:
        for hole in probe.holes:
            cells = {"probe": probe.name, **vars(hole)}
            holes.append({column: cells[column] for column in HOLE_COLUMNS})
        for row in probe.table.rows:
            for placebo in row.placebos or (None,):
                rows.append(_source(probe, row, placebo))
    write_csv(folder / "holes.csv", HOLE_COLUMNS, holes)
    write_csv(folder / "hole_sources.csv", SOURCE_COLUMNS, rows)


def _source(probe: Probe, row: HoleRow, placebo: Placebo | None) -> Fields:
    standings: Fields = {
        "probe": probe.name,
        "source": row.source,
        "placebo": placebo.name if placebo else "",
        "tested": row.n,
        "verdict": STANDING_WORDS[standing(probe, row)],
    }
    for name in _MEASURES:
        standings |= _bounds(name, getattr(row, name))
    false = _bounds("false_holes", placebo.rate if placebo else None)
    return standings | false | _bounds("beyond", placebo.excess if placebo else None)


def _triple(*names: str) -> TextTuple:
    columns: list[str] = []
    for name in names:
        columns += [name, f"{name}_low", f"{name}_high"]
    return tuple(columns)


VERDICT_COLUMNS = (
    *("forget", "subject", "claim", "statement", "verdict", "bound", "at_least", "at_most", "reason", "margin"),
    *("wide", "unit", "items_needed", "detectable", "n_numbers", "left_out"),
)
"""The columns of tables/verdicts.csv, a row a subject and claim."""

LEAKAGE_COLUMNS = (
    *("forget", "subject", "format", "metric", "admitted", "why"),
    *_triple("level", "leakage"),
    *("band_low", "band_high", "leakage_metric", "over_forgotten", "n"),
    *_triple("target", "retrained", "admission"),
)
"""The columns of tables/leakage.csv, a row a subject and format. The worst case over formats is the format `worst`."""

GAIN_COLUMNS = (
    *("forget", "subject", "attack", "format", "unit"),
    *_triple("gain", "injection", "repair", "recovery", "before", "after", "saturation"),
    *("n", "saturated", "evidence", "why_not"),
)
"""The columns of tables/gains.csv, a row a subject, attack and format."""

CURVE_COLUMNS = (
    *("forget", "subject", "role", "attack", "format", "unit", "point"),
    *_triple("level"),
    *("n", "prompt_bits"),
)
"""The columns of tables/curves.csv, a row a subject, attack, format and point. The bits are under `retrained`."""

BUDGET_COLUMNS = ("forget", "subject", "attack", "capacity_bits", "bound", "ratio")
"""The first columns of tables/budget.csv. Then `bound_`, `need_` and `input_` columns by name."""


PANEL_TABLES = ("facts", "groups", "membership", "kept", "measures", "able", "soundness", "stored")
"""Further parts of an outcome, each with a CSV of all its fields if the audit has it."""
_RANGES = ("never",)
"""Fields that hold the least and the greatest value of the controls."""


def audit_tables(outcomes: Sequence[AuditOutcome]) -> dict[str, tuple[TextTuple, list[Fields]]]:
    """Columns and rows of each table, by the name of its file."""
    rows: dict[str, list[Fields]] = {"verdicts": [], "leakage": [], "gains": [], "curves": [], "budget": []}
    extra: list[str] = []
    for outcome in outcomes:
        of_set = {"forget": outcome.forget}
        for verdict in outcome.verdicts:
            rows["verdicts"].append(_verdict(outcome, verdict))
        rows["leakage"] += _leakage(outcome)
        for gain in outcome.gains:
            rows["gains"].append(_flat(gain) | of_set | {"n": gain.gain.n})
        rows["curves"] += _curves(outcome)
        for line in outcome.budget:
            rows["budget"].append(_flat(line) | of_set)
    for row in rows["budget"]:
        for column in row:
            if column.startswith(("bound_", "need_", "input_")) and column not in extra:
                extra.append(column)
    columns = {
        "verdicts": VERDICT_COLUMNS,
        "leakage": LEAKAGE_COLUMNS,
        "gains": GAIN_COLUMNS,
        "curves": CURVE_COLUMNS,
        "budget": (*BUDGET_COLUMNS, *extra),
    }
    tables = {}
    for name, own in columns.items():
        tables[name] = (own, [{column: row[column] for column in own if column in row} for row in rows[name]])
    for name in PANEL_TABLES:
        panel: list[Fields] = []
        for outcome in outcomes:
            for line in getattr(outcome, name):
                panel.append({"forget": outcome.forget} | _flat(line))
        if panel:
            tables[name] = (_columns_of(panel), panel)
    return tables


def _columns_of(rows: Sequence[Fields]) -> TextTuple:
    """Return all columns of the rows, in order of appearance."""
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    return tuple(columns)


def _flat(line: Any) -> Fields:
    """The fields of a line of an audit: an estimate as value, low and high, bits and inputs by name a column each."""
    row: Fields = {}
    for field in fields(line):
        name, value = field.name, getattr(line, field.name)
        if isinstance(value, Estimate):
            row |= {name: value.value, f"{name}_low": end(value.low), f"{name}_high": end(value.high)}
        elif isinstance(value, tuple) and field.name in _RANGES:
            row |= {f"{name}_low": value[0], f"{name}_high": value[1]}
        elif isinstance(value, Mapping):
            kind, _, unit = name.partition("_")
            for key, amount in value.items():
                row["_".join(filter(None, (kind.removesuffix("s"), key, unit)))] = amount
        else:
            row[name] = "" if value is None else value
    return row


def _verdict(outcome: AuditOutcome, v: VerdictLine) -> Fields:
    return _flat(v) | {
        "forget": outcome.forget,
        "statement": CLAIMS[v.claim],
        "verdict": WORDS[v.outcome],
        "bound": bound_said(outcome, v),
        "n_numbers": len(v.evidence),
        "left_out": "; ".join(v.left_out),
    }


def _leakage(outcome: AuditOutcome) -> Iterator[Fields]:
    formats = {f.format: f for f in outcome.formats}
    for c in outcome.matrix:
        row = _flat(c) | {"n": c.level.n, "leakage_metric": ""}
        if c.leakage is not None:
            row["leakage_metric"] = c.leakage.metric
        # Each row contains the level of the controls that it is compared with.
        if c.format in formats:
            line = formats[c.format]
            row |= _flat(line) | {"why": line.reason}
        yield row | {"forget": outcome.forget}
    for w in outcome.worst:
        worst = {"forget": outcome.forget, "format": "worst", "n": w.leakage.n, "leakage_metric": w.leakage.metric}
        yield _flat(w) | worst


def _curves(outcome: AuditOutcome) -> Iterator[Fields]:
    for c in outcome.curves:
        for p in c.points:
            yield _flat(c) | _flat(p) | {"forget": outcome.forget, "n": p.level.n, "prompt_bits": _flat(p)["bits"]}
