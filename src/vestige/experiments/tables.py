"""The tables of an experiment: pooled scores, differences next to the paper's, and ranking reversals."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.metrics.pooling import pool, reversals

if TYPE_CHECKING:
    from pandas import DataFrame

PLACE = ("model", "set", "method", "rate", "attack", "split", "metric")
"""The columns that tell one pooled score from another."""


@dataclass(frozen=True)
class Comparison:
    """Two values of a column whose scores are compared, second less first. `match` is as in `vestige.pool`."""

    column: str
    first: str
    second: str
    match: str | None = "item"
    splits: Sequence[str] = ()
    """The splits that are compared. All by default."""


@dataclass(frozen=True)
class Report:
    """The report of an experiment's scores: metrics, splits and comparisons, next to a paper's numbers."""

    paper: str
    metrics: Sequence[str]
    splits: Sequence[str]
    comparisons: Sequence[Comparison] = ()
    ranked: Sequence[str] = ()
    """The metrics on the forget set that rank methods. Pairs with opposite orders are displayed."""
    bits: bool = False
    """Whether to display the bits of each attack."""
    holes: bool = False
    """Whether to display the tables of the probes."""


def tables(scores: "DataFrame", report: Report) -> "dict[str, DataFrame]":
    """The tables of a report by title.

    Args:
        scores: The rows of `Lab.scores`.
        report: The contents.

    Returns:
        Pooled scores. A table of differences per comparison, with the paper's and, where controls were retrained, the
        difference above the controls'; and reversals.
    """
    import pandas

    shown = scores[scores["metric"].isin(report.metrics) & scores["split"].isin(report.splits)]
    # A set of several members is their mean: each question's mean over the models that have it.
    identity = [*PLACE, "seed", "item", "edge", "attribute"]
    shown = shown.groupby(identity, sort=False, dropna=False)["value"].mean().reset_index()
    means = pool(shown, by=PLACE)
    found = {"Scores": _beside_paper(means, report.paper, ("set", "method", "split", "metric"), "mean")}
    for comparison in report.comparisons:
        rows = shown[shown[comparison.column].isin([comparison.first, comparison.second])]
        if comparison.column == "method" and (rows.groupby("method")["rate"].nunique() == 1).all():
            # Each method has its own rate.
            rows = rows.assign(rate="")
        if comparison.splits:
            rows = rows[rows["split"].isin(comparison.splits)]
        if rows[comparison.column].nunique() < 2:
            continue
        by = [name for name in PLACE if name != comparison.column]
        differences = pool(_in_order(rows, comparison), by=by, compare=comparison.column, match=comparison.match)
        differences = _above_controls(differences)
        key = tuple(name for name in ("set", "first", "second", "method", "split", "metric") if name in differences)
        title = f"{comparison.second} less {comparison.first}"
        differences = _beside_paper(differences, report.paper, key, "difference")
        # The splits of one pair can be matched in different ways.
        found[title] = pandas.concat([found[title], differences]) if title in found else differences
    for name in shown.loc[shown["attack"] != "", "attack"].unique():
        # Scores before and after an attack, over the questions in both.
        before = shown[(shown["attack"] == "") & (shown["split"] == "forget")].assign(attack="before")
        after = shown[(shown["attack"] == name) & (shown["split"] == "forget")]
        rows = _in_order(pandas.concat([before, after]), Comparison("attack", "before", name))
        found[f"Gain by {name}"] = pool(rows, by=[p for p in PLACE if p != "attack"], compare="attack")
    if report.ranked:
        ranked = means[(means["split"] == "forget") & (means["attack"] == "") & means["metric"].isin(report.ranked)]
        ranked = ranked[~ranked["method"].isin(["target", "retrained"])]
        found["Rankings that metrics reverse"] = _reversed(ranked)
    return found


def _in_order(rows: "DataFrame", comparison: Comparison) -> "DataFrame":
    """Return the rows of the first value before those of the second, for groups with both."""
    first = rows[rows[comparison.column] == comparison.first]
    second = rows[rows[comparison.column] == comparison.second]
    import pandas

    both = pandas.concat([first, second])
    by = [name for name in PLACE if name != comparison.column]
    sides = both.groupby(by, dropna=False)[comparison.column].transform("nunique")
    return both[sides == 2]


def _above_controls(differences: "DataFrame") -> "DataFrame":
    """The differences, with `above_controls`: less the difference of the controls."""
    if "method" not in differences or not (differences["method"] == "retrained").any():
        return differences
    key = [name for name in ("model", "set", "attack", "split", "metric") if name in differences]
    controls = differences[differences["method"] == "retrained"][[*key, "difference"]]
    merged = differences.merge(controls.rename(columns={"difference": "of_controls"}), on=key, how="left")
    merged["above_controls"] = merged["difference"] - merged.pop("of_controls")
    return merged


def _reversed(means: "DataFrame") -> "DataFrame":
    import pandas

    frames = []
    for (model, name), group in means.groupby(["model", "set"], sort=False):
        group = group.assign(method=group["method"] + " " + group["rate"])
        turned = reversals(group, of="method", across="metric")
        turned["model"], turned["set"] = str(model), str(name)
        frames.append(turned)
    return pandas.concat(frames, ignore_index=True)


def _beside_paper(table: "DataFrame", paper: str, key: Sequence[str], value: str) -> "DataFrame":
    """The table with a column of the paper's numbers for each of its models."""
    import pandas

    if not paper:
        return table
    path = resources.files("vestige.experiments") / f"{paper}.csv"
    with resources.as_file(path) as file:
        known = pandas.read_csv(file, dtype={"set": str}, keep_default_na=False)
    known = known[known["kind"] == value]
    known["value"] = known["value"].astype(float)
    for model, numbers in known.groupby("model", sort=False):
        wide = numbers[[*key, "value"]].rename(columns={"value": f"paper: {model}"})
        table = table.merge(wide, on=list(key), how="left")
    return table


def write(found: "dict[str, DataFrame]", folder: Path) -> None:
    """Write each table as CSV, and all tables into tables.md."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for title, table in found.items():
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        table.to_csv(folder / f"{slug}.csv", index=False)
        parts.append(f"## {title}\n\n{as_markdown(table)}\n")
    (folder / "tables.md").write_text("\n".join(parts), encoding="utf-8")


def as_markdown(table: "DataFrame") -> str:
    """A table in Markdown: numbers to three digits, and columns without any value left out."""
    if table.empty:
        return "None."
    kept = [name for name in table.columns if not (table[name].isna() | (table[name] == "")).all()]
    lines = ["| " + " | ".join(map(str, kept)) + " |", "|" + " --- |" * len(kept)]
    for _, row in table[kept].iterrows():
        lines.append("| " + " | ".join(_cell(row[name]) for name in kept) + " |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if abs(value) >= 1000:
            return f"{value:,.0f}"
        return f"{value:.3f}"
    return str(value).replace("|", "\\|")
