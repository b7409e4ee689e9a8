"""The tables of a run's audits as rows of CSV: verdicts, leakage, gains, information budget. Numbers are in full."""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.artifacts.audits import CLAIMS, AuditOutcome
from vestige.artifacts.verdicts import bound_said
from vestige.core.estimates import Estimate, end

Row = dict[str, Any]


def _triple(*names: str) -> tuple[str, ...]:
    return tuple(column for name in names for column in (name, f"{name}_low", f"{name}_high"))


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
"""The columns of tables/leakage.csv, a row a subject and format; the worst case over formats is the format `worst`."""

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
"""The columns of tables/curves.csv, a row a subject, attack, format and point; the bits are under `retrained`."""

BUDGET_COLUMNS = ("forget", "subject", "attack", "capacity_bits", "bound", "ratio")
"""The first columns of tables/budget.csv; then `bound_`, `need_` and `input_` columns by name."""


def audit_tables(outcomes: Sequence[AuditOutcome]) -> dict[str, tuple[tuple[str, ...], list[Row]]]:
    """Columns and rows of each table, by the name of its file."""
    budget = [row for outcome in outcomes for row in _budget(outcome)]
    extra = dict.fromkeys(column for row in budget for column in row if column not in BUDGET_COLUMNS)
    return {
        "verdicts": (VERDICT_COLUMNS, [row for outcome in outcomes for row in _verdicts(outcome)]),
        "leakage": (LEAKAGE_COLUMNS, [row for outcome in outcomes for row in _leakage(outcome)]),
        "gains": (GAIN_COLUMNS, [row for outcome in outcomes for row in _gains(outcome)]),
        "curves": (CURVE_COLUMNS, [row for outcome in outcomes for row in _curves(outcome)]),
        "budget": ((*BUDGET_COLUMNS, *extra), budget),
    }


def _verdicts(outcome: AuditOutcome) -> list[Row]:
    return [
        {
            "forget": outcome.forget,
            "subject": v.subject,
            "claim": v.claim,
            "statement": CLAIMS[v.claim],
            "verdict": v.outcome,
            "bound": bound_said(outcome, v),
            "at_least": "" if v.at_least is None else v.at_least,
            "at_most": "" if v.at_most is None else v.at_most,
            "reason": v.reason,
            "margin": v.margin,
            "wide": v.wide,
            "unit": v.unit,
            "items_needed": "" if v.items_needed is None else v.items_needed,
            "detectable": "" if v.detectable is None else v.detectable,
            "n_numbers": len(v.evidence),
            "left_out": "; ".join(v.left_out),
        }
        for v in outcome.verdicts
    ]


def _leakage(outcome: AuditOutcome) -> list[Row]:
    formats = {f.format: f for f in outcome.formats}
    rows = []
    for c in outcome.matrix:
        row: Row = {
            "forget": outcome.forget,
            "subject": c.subject,
            "format": c.format,
            "over_forgotten": c.over_forgotten,
            "n": c.level.n,
            "leakage_metric": c.leakage.metric if c.leakage else "",
            **_numbers({"level": c.level, "leakage": c.leakage, "band": c.band}),
        }
        f = formats.get(c.format)
        if f:
            row |= {"metric": f.metric, "admitted": f.admitted, "why": f.reason}
            row |= _numbers({"target": f.target, "retrained": f.retrained, "admission": f.admission})
        # The band has the value of the leakage: its own columns are its ends.
        row.pop("band", None)
        rows.append(row)
    for w in outcome.worst:
        row = {"forget": outcome.forget, "subject": w.subject, "format": "worst", "n": w.leakage.n}
        rows.append(row | {"leakage_metric": w.leakage.metric, **_numbers({"leakage": w.leakage})})
    return rows


def _gains(outcome: AuditOutcome) -> list[Row]:
    return [
        {
            "forget": outcome.forget,
            "subject": g.subject,
            "attack": g.attack,
            "format": g.format,
            "unit": g.unit,
            "n": g.gain.n,
            "saturated": g.saturated,
            "evidence": g.evidence,
            "why_not": g.why_not,
            **_numbers(
                {
                    "gain": g.gain,
                    "injection": g.injection,
                    "repair": g.repair,
                    "recovery": g.recovery,
                    "before": g.before,
                    "after": g.after,
                    "saturation": g.saturation,
                }
            ),
        }
        for g in outcome.gains
    ]


def _curves(outcome: AuditOutcome) -> list[Row]:
    return [
        {
            "forget": outcome.forget,
            "subject": c.subject,
            "role": c.role,
            "attack": c.attack,
            "format": c.format,
            "unit": c.unit,
            "point": p.point,
            **_numbers({"level": p.level}),
            "n": p.level.n,
            "prompt_bits": p.bits,
        }
        for c in outcome.curves
        for p in c.points
    ]


def _budget(outcome: AuditOutcome) -> list[Row]:
    return [
        {
            "forget": outcome.forget,
            "subject": b.subject,
            "attack": b.attack,
            "capacity_bits": b.capacity_bits,
            "bound": b.bound,
            "ratio": "" if b.ratio is None else b.ratio,
            **{f"bound_{name}_bits": bits for name, bits in b.bounds_bits.items()},
            **{f"need_{name}_bits": bits for name, bits in b.need_bits.items()},
            **{f"input_{name}": number for name, number in b.inputs.items()},
        }
        for b in outcome.budget
    ]


def _numbers(estimates: Mapping[str, Estimate | None]) -> Row:
    row: Row = {}
    for name, e in estimates.items():
        if e:
            row |= {name: e.value, f"{name}_low": end(e.low), f"{name}_high": end(e.high)}
    return row
