"""A study's tables and figures, rebuilt from its scores: Markdown, LaTeX, CSV, Parquet, and SVG for print."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from vestige.artifacts.records import write_csv
from vestige.core.errors import InputError
from vestige.core.files import new_file, write_text
from vestige.core.ids import slug
from vestige.core.text import one_line
from vestige.studies.cells import Study
from vestige.studies.dose import DoseRow, doses
from vestige.studies.results import (
    ContrastRow,
    Ends,
    PooledResults,
    RankRow,
    ResultGroup,
    ScoreRow,
    TextTable,
    VerdictRow,
    scored,
)

_SHORT = {"rouge1_recall": "ROUGE-1", "mrr": "MRR", "top_hit": "top hit", "exact_match": "exact"}
# Names come from files of others: whatever would begin a mark-up or a tag is escaped.
_MARK = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|~"})
_TEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {c: f"\\{c}" for c in "&%$#_{}"}
)


def write_report(study: Study) -> list[Path]:
    """Write all tables and figures of a study from what is there, and give back their paths."""
    results = PooledResults(study)
    if not results.rows:
        raise InputError(f"{study.folder.path} holds no finished result of {study.settings.name!r}; run it first")
    tables, figures = study.folder.tables_of(study.settings.name), study.folder.figures_of(study.settings.name)
    paths = [tables / name for name in ("tables.md", "tables.tex", "results.csv", "items.parquet")]
    for path, render in ((paths[0], markdown), (paths[1], latex)):
        write_text(path, "\n".join(map(render, tables_of(results))))
    with new_file(paths[3]) as file:
        pd.DataFrame(results.item_rows()).to_parquet(file, index=False)
    lists: dict[str, tuple[Any, Sequence[Any]]] = {
        "results": (ScoreRow, results.rows),
        "dose": (DoseRow, doses(results)),
        "ranks": (RankRow, results.ranks),
        "verdicts": (VerdictRow, results.verdicts),
    }
    if results.verdicts:
        from vestige.auditing.run import write_verdicts

        write_verdicts(study.folder)
    if study.settings.holes is not None:
        from vestige.studies.hole_tables import HoleNumber, HoleTables

        holes = HoleTables(results)
        lists["holes"] = HoleNumber, holes.numbers
        paths += holes.write_figures(figures)
    lists["contrasts"] = ContrastRow, results.contrasts
    for name, (kind, rows) in lists.items():
        path = tables / f"{name}.csv"
        # Of comparisons there is a file even where there are none.
        if rows or name in ("contrasts", "holes"):
            write_csv(path, kind._fields, (row._asdict() for row in rows))
            paths += [path] * (path not in paths)
    return [*paths, *write_figures(figures, results)]


def tables_of(results: PooledResults) -> list[TextTable]:
    """A table of scores for each data set, and one of the differences in each score, under what it says."""
    tables = [_scores(results, data) for data in results.study.settings.names()["data"]]
    tables.append(_ranks(results))
    scores = dict.fromkeys((c.metric, c.split) for c in results.contrasts)
    tables += [_differences([c for c in results.contrasts if (c.metric, c.split) == score]) for score in scores]
    tables += [_doses(doses(results)), _verdicts(results.verdicts)]
    if results.study.settings.holes is not None:
        from vestige.studies.hole_tables import HoleTables

        tables += HoleTables(results).all()
    return [table for table in tables if table.rows]


def _scores(results: PooledResults, data: str) -> TextTable:
    """All scores on one data set, as the papers print them: a row a model, a column for each split and metric."""
    at = {(r.group, r.split, r.metric): r for r in results.rows if r.data == data}
    groups = [g for g in results.groups if any(key[0] == g for key in at)]
    report = results.study.settings.report
    columns = [(s, m) for s in report.splits for m in report.metrics if any((g, s, m) in at for g in groups)]
    several, attacked = len({g.model for g in groups}) > 1, any(g.attack for g in groups)
    names = [f"{_named_split(split)}: {metric_name(metric)}" for split, metric in columns]
    head = [*["model"] * several, "forget set", "method", "rate", *["after"] * attacked, *names, "seeds"]
    rows = []
    for group in groups:
        scores = [at.get((group, *column)) for column in columns]
        rate, attack = results.rate_said(group), [group.attack] * attacked
        cells = [*[group.model] * several, group.forget, group.method, rate, *attack]
        seeds = ", ".join(str(n) for n in sorted({r.seeds for r in scores if r}))
        rows.append((*cells, *("" if r is None else scored(r) for r in scores), seeds))
    title = f"{data}: mean ± SD over seeds [95 % interval over items and seeds]"
    return TextTable(title, tuple(head), tuple(rows), results.warnings)


def metric_name(metric: str) -> str:
    """`ROUGE-1` for `qa.rouge1_recall`; of other evaluations the name goes first."""
    evaluation, _, name = metric.partition(".")
    short = _SHORT.get(name, name)
    return short if evaluation == "qa" else f"{evaluation}: {short}"


def _named_split(split: str) -> str:
    return split.replace(":", ", ").replace("_", " ")


def _differences(contrasts: Sequence[ContrastRow]) -> TextTable:
    """Those of one score."""
    head = ("model", "method", "rate", "at", "second less first", "difference", "t (df)", "p", "p (Holm)")
    rows = []
    for c in contrasts:
        test = ("no spread", "", "") if c.t is None else (f"{c.t:.2f} ({c.df:.1f})", _p(c.p), _p(c.p_holm))
        size = f"{c.difference:+.3f} [{c.low:+.2f}, {c.high:+.2f}]"
        # A test over items of one training says nothing of the next training: that stands in its row.
        at = f"{c.at}, one training" if "one seed" in c.method_of_test else c.at
        rows.append((c.model, c.method, c.rates, at, f"{c.second} less {c.first}", size, *test))
    score = f"{metric_name(contrasts[0].metric)}, {_named_split(contrasts[0].split)}"
    title = f"Differences in {score}; Holm's p counts all tests of this table"
    return TextTable(title, head, tuple(rows), lead=_answer(contrasts))


def _doses(slopes: Sequence[DoseRow]) -> TextTable:
    """What one neighbour more changes, by method, rate, split and score."""
    rows = [
        (
            row.model,
            row.data,
            f"{row.method} {row.rate}".strip(),
            f"{_named_split(row.split)}: {metric_name(row.metric)}",
            f"{row.slope:+.4f} [{row.low:.4f}, {row.high:.4f}]",
            "" if row.t is None else f"{row.t:.2f} ({row.df:.0f})",
            *map(_p, (row.p, row.p_holm)),
            f"{row.contracts} ({row.least:g} to {row.most:g}), {row.trainings}",
        )
        for row in slopes
    ]
    return TextTable(
        "Connectivity as a dose: the change by one neighbour [95 % interval over contracts]",
        ("model", "data", "method", "score", "slope", "t (df)", "p", "p (Holm)", "contracts (neighbours), trainings"),
        tuple(rows),
        ("Each contract was forgotten alone; contracts are at random, and their means over trainings are regressed.",),
    )


def _ranks(results: PooledResults) -> TextTable:
    """The methods of each forget set, best first, under which of them cannot be told from the first."""
    report, sentences, rows = results.study.settings.report, [], []
    for where in dict.fromkeys(row[:3] for row in results.ranks):
        first, *rest = (row for row in results.ranks if row[:3] == where)
        tied = [
            f"{row.method} {row.chosen}" for row in rest if row.p_against_first is None or row.p_against_first >= 0.05
        ]
        behind = f"not told apart from it: {', '.join(tied)}" if tied else "told apart from all others"
        sentences.append(f"{', '.join(where)}: {first.method} {first.chosen} comes first, {behind}.")
    for r in results.ranks:
        places = str(r.rank) if r.rank_low == r.rank_high else f"{r.rank} ({r.rank_low} to {r.rank_high})"
        p = "" if r.rank == 1 else "one seed" if r.seeds < 2 else _p(r.p_against_first) or "no spread"
        scores = (f"{r.leak:.3f}", f"{r.utility:.3f}", f"{r.balance:+.3f}")
        rows.append((r.model, r.data, r.forget, r.method, r.chosen, *scores, places, p, str(r.seeds)))
    notes = ("Places in brackets are those that no test excludes; p is of the test that a method equals the first.",)
    score = metric_name(report.rank)
    title = f"Methods by {score} kept less left, paired by seed; Holm's p counts all pairs of a forget set"
    about = ("model", "data", "forget set", "method", "rate", "forget", _named_split(report.utility), "kept less left")
    head = (*about, "place", "p (Holm) against the first", "seeds")
    return TextTable(title, head, tuple(rows), notes, lead=" ".join(sentences))


def _answer(contrasts: Sequence[ContrastRow]) -> str:
    """What a table of differences says, in a sentence for each pair that it compares."""
    sentences = []
    for first, second in dict.fromkeys((c.first, c.second) for c in contrasts):
        pair = [c for c in contrasts if (c.first, c.second) == (first, second)]
        above, below = (sum(sign * c.difference > 0 for c in pair) for sign in (1, -1))
        tests = ([c.p for c in pair], [c.p_holm for c in pair])
        alone, corrected = (sum(p is not None and p < 0.05 for p in values) for values in tests)
        sentences.append(
            f"{second} less {first}: above 0 in {above} of {len(pair)} comparisons and below in {below}; p < 0.05 in "
            f"{alone}, after Holm's correction in {corrected}."
        )
    return " ".join(sentences)


def _verdicts(verdicts: Sequence[VerdictRow]) -> TextTable:
    """How many trainings of a method pass each claim, fail it and stay open."""
    claims = list(dict.fromkeys(v.claim for v in verdicts))
    counts: dict[tuple[str, ...], dict[str, Counter[str]]] = {}
    for v in verdicts:
        counts_of = counts.setdefault((v.model, v.data, v.forget, v.method, v.rate), {c: Counter() for c in claims})
        counts_of[v.claim][v.outcome] += 1
    rows = [
        (*where, *(", ".join(f"{n} {outcome}" for outcome, n in sorted(counts_of[c].items())) for c in claims))
        for where, counts_of in counts.items()
    ]
    about = "Audits: how many trainings pass each claim"
    return TextTable(about, ("model", "data", "forget set", "method", "rate", *claims), tuple(rows))


def _p(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def markdown(table: TextTable) -> str:
    """The table in Markdown, where no text acts."""

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(one_line(c).translate(_MARK) for c in cells) + " |"

    lead, *notes = (one_line(text, width=1000).translate(_MARK) for text in (table.lead, *table.notes))
    lines = [f"## {one_line(table.title).translate(_MARK)}", "", *([lead, ""] if lead else []), row(table.head)]
    lines += ["|" + " --- |" * len(table.head), *map(row, table.rows), ""]
    return "\n".join([*lines, *(line for note in notes for line in (note, ""))])


def latex(table: TextTable) -> str:
    """The table for booktabs."""

    def row(cells: Sequence[str]) -> str:
        return " & ".join(one_line(c).translate(_TEX).replace("±", r"$\pm$") for c in cells) + r" \\"

    lead, *notes = (one_line(text, width=1000).translate(_TEX) + r"\par" for text in (table.lead, *table.notes))
    caption, columns = one_line(table.title).translate(_TEX), "l" * len(table.head)
    lines = [*([lead] if table.lead else []), r"\begin{table}", rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", row(table.head), r"\midrule", *map(row, table.rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes, r"\end{table}", ""])


def write_figures(folder: Path, results: PooledResults) -> list[Path]:
    """For each model and data set scores by method and forget set, and against connectivity where sets differ in it.

    Where methods are ranked, also what each keeps against what it leaves; the best lie in the upper left corner.
    """
    from vestige.studies.plots import Panel, draw_panels

    report, paths = results.study.settings.report, []
    score = metric_name(report.metrics[0])
    rows = [r for r in results.rows if r.metric == report.metrics[0] and r.rate and not r.attack]
    for model, data in dict.fromkeys((r.model, r.data) for r in rows):
        figure_rows = [r for r in rows if (r.model, r.data) == (model, data)]
        name, sets = slug(f"{model} {data}"), list(dict.fromkeys(r.forget for r in figure_rows))
        by_split: dict[str, list[ScoreRow]] = {}
        for r in figure_rows:
            by_split.setdefault(r.split, []).append(r)
        places = {forget: n for n, forget in enumerate(sets)}
        panels = [Panel(_lines(scores, places), _named_split(split), places=sets) for split, scores in by_split.items()]
        paths.append(folder / f"scores-{name}.svg")
        draw_panels(paths[-1], (1.2 + 2.1 * len(panels), 3.4), panels, score)
        points: dict[str, list[tuple[Ends, Ends]]] = {}
        for rank in (r for r in results.ranks if (r.model, r.data) == (model, data)):
            pooled = (results.row(ResultGroup(*rank[:5]), split, report.rank) for split in ("forget", report.utility))
            leak, utility = ((r.value, r.low, r.high) for r in pooled if r is not None)
            points[f"{rank.method} {rank.rate}, {rank.forget}"] = [(leak, utility)]
        if points:
            paths.append(folder / f"tradeoff-{name}.svg")
            panel = Panel(points, metric_name(report.rank), "forget: less is better")
            draw_panels(paths[-1], (4.6, 3.6), [panel], f"{_named_split(report.utility)}: more is better")
        degrees = {r.forget: r.connectivity for r in figure_rows if r.connectivity is not None}
        if len(set(degrees.values())) > 1:
            paths.append(folder / f"connectivity-{name}.svg")
            split, scores = next(iter(by_split.items()))
            of_set = "connectivity of the forget set (mean over its edges)"
            draw_panels(paths[-1], (4.6, 3.4), [Panel(_lines(scores, degrees), _named_split(split), of_set)], score)
    return paths


def _lines(rows: Sequence[ScoreRow], places: Mapping[str, float]) -> dict[str, list[tuple[Ends, Ends]]]:
    """The scores of each method and rate at the places of their forget sets."""
    names = list(dict.fromkeys(f"{r.method} {r.rate}" for r in rows))
    lines = {name: list[tuple[Ends, Ends]]() for name in names}
    for r in sorted((r for r in rows if r.forget in places), key=lambda r: places[r.forget]):
        name = f"{r.method} {r.rate}"
        # Beside each other, so that whiskers do not hide one another.
        at = places[r.forget] + 0.06 * (names.index(name) - (len(names) - 1) / 2)
        lines[name].append(((at, at, at), (r.value, r.low, r.high)))
    return lines
