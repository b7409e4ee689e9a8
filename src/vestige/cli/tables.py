"""Tables of estimates for the terminal: `0.42 [0.36, 0.48], n = 240`."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.core.estimates import Estimate
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome, FactLine
    from vestige.artifacts.records import Result, Summary

HEADLINE = "rouge1_recall"
_MOST_FACTS = 10


def print_results(summary: "Summary") -> None:
    """One subject's estimates: metrics down, splits across; no edges.

    Where all estimates of a split have one n it stands at the head of its column.
    """
    results = [r for r in summary.results if not r.split.startswith("edge:")]
    metrics = list(dict.fromkeys((r.format, r.estimate.metric) for r in results))
    # What people look for first stands first, the rest as it was measured.
    metrics.sort(key=lambda metric: metric[1] not in ("exact_match", HEADLINE))
    fixed = [["format", *(form for form, _ in metrics)], ["metric", *(metric for _, metric in metrics)]]
    columns = [_column(results, split, metrics) for split in dict.fromkeys((r.split, r.scope) for r in results)]
    of = "" if summary.forget in summary.splits else f", forget set {summary.forget}"
    print_columns(f"{summary.subject.name}{of}", fixed, columns, across="split")


def _column(
    results: "Sequence[Result]", split_and_scope: tuple[str, str], metrics: Sequence[tuple[str, str]]
) -> list[str]:
    """A split's head and its estimates, one for each metric."""
    split, scope = split_and_scope
    at = {(r.format, r.estimate.metric): r for r in results if (r.split, r.scope) == split_and_scope}
    ns = {r.estimate.n for r in at.values()}
    head = f"{split if scope == 'all' else f'{split}, {scope}'}" + (f"\nn = {next(iter(ns))}" if len(ns) == 1 else "")
    show = Estimate.said if len(ns) == 1 else str
    return [head, *(show(at[m].estimate) if m in at else "" for m in metrics)]


def print_columns(
    title: str, fixed: Sequence[Sequence[str]], columns: Sequence[list[str]], *, across: str = ""
) -> None:
    """One table: columns of a head and its cells, beside the fixed ones.

    Where they do not fit beside one another they stand below one another, with their heads in a first column, which
    `across` names.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # As Text: in a plain string rich would take [brackets] for markup.
    console, table = Console(), Table(title=Text(one_line(title)))
    # In cells: characters of some scripts are two cells wide.
    widest = (max(cell_len(line) for text in column for line in text.split("\n")) for column in (*fixed, *columns))
    if 1 + sum(3 + width for width in widest) <= console.width:  # a border and a blank on either side of each
        for head, *_ in (*fixed, *columns):
            table.add_column(Text(head), no_wrap=True)
        for n in range(1, len(fixed[0])):
            if any(column[n] for column in columns):
                table.add_row(*(Text(column[n]) for column in (*fixed, *columns)))
        return console.print(table)
    table.add_column(across)
    for head in (*(column[0] for column in fixed), ""):
        table.add_column(Text(head), no_wrap=True)
    for head, *cells in columns:
        rows = [n for n, cell in enumerate(cells, 1) if cell]
        for n in rows:
            first = head if n == rows[0] else ""
            table.add_row(
                *map(Text, (first, *(column[n] for column in fixed), cells[n - 1])), end_section=n == rows[-1]
            )
    console.print(table)


def print_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], *, no_wrap: Sequence[str] = ()
) -> None:
    """One table; titles and cells may be hostile text."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(one_line(title)))
    for head in heads:
        table.add_column(Text(one_line(head)), no_wrap=head in no_wrap)
    for row in rows:
        table.add_row(*(Text(one_line(cell, width=300)) for cell in row))
    Console().print(table)


def print_json(value: Any) -> None:
    """What was found, as JSON for programs."""
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    print(json.dumps(plain, indent=2))


def print_counts(counts: Mapping[str, int]) -> None:
    """Counts of what a command would take, a line each."""
    for noun, n in counts.items():
        print(f"  {n:>12,} {noun}")


def print_cost(cost: float | None) -> None:
    """What it would cost, if prices were given."""
    print("  its cost: unknown without prices" if cost is None else f"  {cost:>12,.2f} for it, by your prices")


def counted(counts: Mapping[str, int]) -> str:
    """As in `3 empty, 1 cut short`."""
    return ", ".join(f"{n:,} {noun}" for noun, n in counts.items())


def print_summaries(outcomes: "Sequence[AuditOutcome]") -> None:
    """The last lines of an audit, one a forget set: how many models passed, and what the others failed."""
    for outcome in outcomes:
        states = {subject: _state(outcome, subject) for subject in outcome.unlearned}
        judged = [f"{name} {state}" for name, state in states.items() if name not in outcome.references]
        controls = [f"{name} {states[name]}" for name in outcome.references]
        passed = sum(word.endswith(" PASS") for word in judged)
        models = f"{len(judged)} model{'s' * (len(judged) != 1)}"
        line = f"{outcome.forget}: " if len(outcomes) > 1 else ""
        surplus = f"; and {len(judged) - _MOST_MODELS} more" if len(judged) > _MOST_MODELS else ""
        sentences = [f"{passed} of {models} passed: {'; '.join(judged[:_MOST_MODELS])}{surplus}"] if judged else []
        sentences += [f"Controls, which should pass: {'; '.join(controls)}"] if controls else []
        line += ". ".join(sentences)
        print(one_line(line, width=2000))


def _state(outcome: "AuditOutcome", subject: str) -> str:
    # A claim that fails decides, whatever else is open.
    lines = [v for v in outcome.verdicts if v.subject == subject]
    failed = [v.claim for v in lines if v.outcome == "fails"]
    undecided = [v.claim for v in lines if v.outcome != "holds"]
    return f"FAIL ({', '.join(failed)})" if failed else f"OPEN ({', '.join(undecided)})" if undecided else "PASS"


_MOST_MODELS = 12


def print_verdicts(
    outcomes: "Sequence[AuditOutcome]", run: Path, *, why: bool = False, report: Path | None = None
) -> None:
    """Every claim about every unlearned model and the control with its verdict and bound, a table a forget set.

    Before it stand what models say word for word, copies of the target, and controls that are none. With `why` also the
    reason for each verdict, what the attacks could have found, and what was not tested. The last line says which models
    passed.
    """
    from vestige.artifacts.audits import CLAIMS, never_knew
    from vestige.artifacts.layout import RunFolder
    from vestige.artifacts.verdicts import (
        BOUNDS_SAID,
        UNCHANGED,
        bound_said,
        controls_said,
        percentage,
        reversal_said,
        tested_said,
        verdict_word,
    )
    from vestige.report.contents import plain_outcome, verbatim_of

    # In the words of the page.
    for outcome in (plain_outcome(outcome, {}) for outcome in outcomes):
        target = "" if outcome.target == "target" else f", target {outcome.target}"
        verbatim = verbatim_of(RunFolder(run), RunFolder(run).audit(outcome.forget))
        first = [f"{subject} {words}" for subject, words in verbatim.items()]
        first += [f"{subject} {UNCHANGED}." for subject in outcome.unchanged]
        for text in (*first, *outcome.warnings):
            print(one_line(text, width=1000))
        verdicts = (*outcome.verdicts, *outcome.control)
        rows, reasons = [], []
        for subject in dict.fromkeys(v.subject for v in verdicts):
            lines = {v.claim: v for v in verdicts if v.subject == subject}
            is_control = subject == outcome.suppressed or subject in outcome.references
            name = f"{subject} (control)" if is_control else subject
            # A heading of its own: beside the claims it would leave a terminal of 80 columns no room for the numbers.
            rows.append([name, "", ""])
            for line in (lines[claim] for claim in CLAIMS if claim in lines):
                # What was not tested has no bound, and its reason says why.
                rows.append([f"  {line.claim}", verdict_word(line), bound_said(outcome, line) or line.reason])
                reasons.append(f"{name}, {line.claim}: {line.reason}")
        heads = ["model and claim", "verdict", "what is shown"]
        print_table(f"{outcome.forget}: verdicts{target}", heads, rows, no_wrap=heads[:2])
        print(f"tested: {tested_said(outcome)}")
        print(f"evidence level: {controls_said(outcome)}")
        for line in outcome.reversals:
            print(reversal_said(line))
        print(BOUNDS_SAID)
        facts = [fact_in_words(fact) for fact in outcome.facts[:_MOST_FACTS]]
        if len(outcome.facts) > _MOST_FACTS:
            facts.append(f"and {len(outcome.facts) - _MOST_FACTS} more, in the report")
        _print_list(f"Single facts that no {never_knew(outcome.evidence_level, 0)} gives away:", facts)
        _print_list("Each contract or person, with intervals that hold all of them at once:", groups_in_words(outcome))
        if not why:
            notes = f", and {len(outcome.untested)} notes on what was not tested" if outcome.untested else ""
            words = shlex.join(["vestige", "audit", "--why", "--output-dir", one_line(str(run), width=500)])
            print(f"`{words}` prints the reasons{notes}; all numbers are in report.html and verdicts.json.")
            continue
        _print_list("Reasons:", reasons)
        _print_list(
            "Facts in the weights, by relearning others:",
            [
                f"{s.subject}: {s}; recalls {percentage(s.recalled)} after {s.attack}, controls at most "
                f"{percentage(max(s.controls))}"
                for s in outcome.stored
            ],
        )
        _print_list(
            "Could the attacks have found anything? What they brought of what the control held back:",
            [
                f"{a.attack}: yes: {a.brought.said()} in {a.format}"
                if a.able and a.brought
                else f"{a.attack}: no: {a.why_not}"
                for a in outcome.able
            ],
        )
        untested = [line for line in outcome.untested if line not in outcome.warnings]
        _print_list("What was not tested, and what to know of the rest:", untested)
    if report is not None:
        print(f"report: {report}")
    print_summaries(outcomes)


def groups_in_words(outcome: "AuditOutcome") -> list[str]:
    """Contracts and persons, those first against which most is shown; all of them stand in the report."""
    from vestige.report.words import group_said

    rows = sorted(outcome.groups, key=lambda g: (not g.exceeds, g.p))
    lines = []
    for g in rows[:_MOST_FACTS]:
        margin = ", above the margin" if g.exceeds else ""
        lines.append(f"{g.group} ({g.n_facts} facts), {g.subject}: {group_said(g)}{margin}")
    return [*lines, f"and {len(rows) - _MOST_FACTS} more, in the report"] if len(rows) > _MOST_FACTS else lines


def _print_list(title: str, lines: Sequence[str]) -> None:
    """A title and a line for each text, which may be hostile; nothing where there is none."""
    if lines:
        print(title)
    for line in lines:
        print(f"- {one_line(line, width=1000)}")


def fact_in_words(fact: "FactLine") -> str:
    """A single fact: what was asked, and what the model replies, favours among options, or finds likelier."""
    from vestige.report.words import attack_name, format_name

    after = f" after {attack_name(fact.attack)}" if fact.attack else ""
    bits = ""
    if fact.bits is not None and fact.never is not None:
        low, high = fact.never
        bits = f" ({fact.bits:.1f} bits; controls: {low:.1f} to {high:.1f})"
    reply = f"replies {fact.reply!r}" if fact.reply else ""
    if "stated" in fact.by:
        words = f": {reply}{bits}" if reply else bits
    else:
        # Among options an answer can come first that is likely by no count.
        among = "favours this answer among the options" if "option" in fact.by or "choose" in fact.by else ""
        likelier = "finds this answer likelier than any control does"
        does = "ranks this answer first" if fact.by.startswith("ranked") else among or likelier
        words = f": {does}: {fact.answer!r}{bits}{f', and {reply}' if reply else ''}"
    return f"{fact.subject}{after}, {format_name(fact.by)}: {fact.question or fact.item}{words}"
