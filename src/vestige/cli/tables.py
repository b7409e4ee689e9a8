"""Tables of estimates for the terminal: `0.42 [0.36, 0.48], n = 240`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.records import Result, Summary

HEADLINE = "rouge1_recall"
ORDER = ("target", "retrained", "unlearned", "base")
COLUMNS = (("forget", "all"), ("forget", "free"), ("retain", "all"), ("independent", "all"), ("factual", "all"))


def print_results(summary: "Summary") -> None:
    """One subject's estimates: splits down, metrics across; edges left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = [r for r in summary.results if not r.split.startswith("edge:")]
    metrics = list(dict.fromkeys((r.format, r.estimate.metric) for r in shown))
    places = list(dict.fromkeys((r.split, r.scope) for r in shown))
    at = {(r.split, r.scope, r.format, r.estimate.metric): r for r in shown}
    table = Table(title=Text(one_line(f"{summary.subject.name}, forget set {summary.forget}")))
    for column in ("format", "metric", *(split if scope == "all" else f"{split}, {scope}" for split, scope in places)):
        table.add_column(Text(column))
    for form, metric in metrics:
        found = [at.get((split, scope, form, metric)) for split, scope in places]
        table.add_row(Text(form), Text(metric), *(Text(_short(r)) for r in found))
    Console().print(table)


def print_comparison(summaries: "Sequence[Summary]") -> None:
    """All subjects of a run, a table a forget set: ROUGE-1 recall by split."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    for forget in dict.fromkeys(s.forget for s in summaries):
        rows = sorted((s for s in summaries if s.forget == forget), key=lambda s: ORDER.index(s.subject.subject))
        found = [{(r.split, r.scope): r for r in s.results if r.estimate.metric == HEADLINE} for s in rows]
        columns = [c for c in COLUMNS if any(c in at for at in found)]
        table = Table(title=Text(one_line(f"{forget}: ROUGE-1 recall of greedy answers, 95 % intervals")))
        table.add_column("subject", no_wrap=True)
        for split, scope in columns:
            n = next(at[split, scope].estimate.n for at in found if (split, scope) in at)
            table.add_column(Text(f"{split if scope == 'all' else f'{split}, {scope}'} (n = {n})"))
        for s, at in zip(rows, found, strict=True):
            values = (_interval(at[c]) if c in at else "" for c in columns)
            table.add_row(Text(one_line(s.subject.method or s.subject.subject)), *(Text(v) for v in values))
        Console().print(table)


def _interval(result: "Result") -> str:
    e = result.estimate
    return f"{e.value:.2f} [{e.low:.2f}, {e.high:.2f}]"


def _short(result: "Result | None") -> str:
    return "" if result is None else str(result.estimate)
