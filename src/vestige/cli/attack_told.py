"""An attack on one subject from end to end: asked before, attacked, asked after, and what of it is printed.

For a searched prompt it prints the levels by share of it, its text, what was claimed and what was seen.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, TypeAlias

import typer

from vestige.cli.progress import progress_bar
from vestige.cli.tables import side_by_side
from vestige.core.estimates import to_json
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.layout import AttackFolder, EvalFolder
    from vestige.attacks.planning import Attack
    from vestige.core.estimates import Estimate
    from vestige.data.corpus import NamedSplits
    from vestige.steps.attack import AttackRequest
    from vestige.steps.evaluate import Subject

    Levels: TypeAlias = Mapping[str, Mapping[str, Estimate]]
    """By point, the estimates over the tested items by `format/metric`."""
    from vestige.artifacts.prompts import KeptPrompt, SampleReply
    from vestige.core.estimates import Estimate


NO_EVIDENCE = (
    "without the same attack on a model that never knew (retrained), a gain does not show that anything was "
    "recovered: `vestige audit` runs both"
)

METRICS = ("rouge1_recall", "exact_match", "contains_match", "leaked", "probability", "answer_bits", "accuracy")
"""What the table shows; everything else is in the evidence."""


def attack_and_tell(subject: "Subject", splits: "NamedSplits", request: "AttackRequest", *, as_json: bool) -> None:
    """Attack the subject, ask it as it is too, and say what changed; `splits` are all items, seen from the forget set.

    The attack comes first: what it refuses is refused before anything is asked or written.
    """
    from vestige.artifacts.audits import SEARCHES
    from vestige.artifacts.prompts import read_prompt
    from vestige.steps.attack import read_spent, run_attack

    attack = request.attack
    with progress_bar(attack.plan.name) as show:
        folder = run_attack(subject, request, lambda share: show(share, ""))
    levels = {"before": _asked_before(subject, splits, request), **_levels_after(folder, request)}
    spent = read_spent(folder)
    prompt = read_prompt(folder) if attack.plan.kind in SEARCHES else None
    if as_json:
        found = {"attack": asdict(attack.plan), "evidence": str(folder.path), **spent, "notes": attack.notes}
        found |= {} if prompt is None else {"prompt": asdict(prompt)}
        rows = {p: {k: to_json(e) for k, e in at.items()} for p, at in levels.items()}
        typer.echo(json.dumps({**found, "levels": rows}, indent=2))
        return
    if prompt is None:
        _print_levels(attack, levels)
    else:
        print_by_share(attack, prompt, levels)
    for note in attack.notes:
        typer.echo(note)
    for name, bits in spent["bounds_bits"].items():
        typer.echo(f"carried in, at most: {bits_at_most(bits)} ({name})")
    typer.echo(NO_EVIDENCE)
    typer.echo(f"evidence in {folder.path}")


def _asked_before(subject: "Subject", splits: "NamedSplits", request: "AttackRequest") -> "Mapping[str, Estimate]":
    """What the subject answers to the tested items without the attack."""
    from vestige.data.corpus import everything
    from vestige.steps.evaluate import EvaluateRequest, evaluate_together, view_of

    tested = frozenset(i.id for i in request.attack.tested)
    items, views = everything([splits]), (view_of(splits),)
    asked = [EvaluateRequest(items, views, own, request.seed, name, tested) for name, own in request.evals.items()]
    return _results(evaluate_together(subject, asked), request.forget)


def _levels_after(folder: "AttackFolder", request: "AttackRequest") -> "Levels":
    from vestige.steps.attack import attack_evaluations

    places = attack_evaluations(folder, request)
    points = request.attack.plan.points
    return {point: _results([places[point, name] for name in request.evals], request.forget) for point in points}


def _results(places: "Sequence[EvalFolder]", forget: str) -> "dict[str, Estimate]":
    """The estimates over the tested items, by `format/metric`."""
    from vestige.artifacts.records import read_summary

    return {
        f"{r.format}/{r.estimate.metric}": r.estimate
        for place in places
        for r in read_summary(place.summary(forget)).results
        if (r.split, r.scope) == ("forget", "all") and r.estimate.metric in METRICS
    }


def _print_levels(attack: "Attack", levels: "Levels") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals"))
    trained = attack.plan.kind == "relearn"
    table.add_column("format/metric", no_wrap=True)
    for point in levels:
        table.add_column(f"epoch {point}" if trained and point != "before" else point.replace("given", "after"))
    for key in levels["before"]:
        cells = [found[key] for found in levels.values()]
        table.add_row(Text(key), *(e.said() for e in cells))
    Console().print(table)


def print_by_share(attack: "Attack", prompt: "KeptPrompt", levels: "Mapping[str, Mapping[str, Estimate]]") -> None:
    """The levels before and with each part of the prompt beside the part's bits, then the whole prompt."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    bits = [at_most(prompt.points[point].bits) if point in prompt.points else "" for point in levels]
    fixed = [["of the prompt", *levels], ["bits", *bits]]
    columns = [[key, *(found[key].said() for found in levels.values())] for key in levels["before"]]
    for group in side_by_side(fixed, columns, console.width):
        table = Table(title=Text(f"{attack.plan.name}: {len(attack.tested)} forget items, 95 % intervals"))
        for head, *_ in (*fixed, *group):
            table.add_column(Text(head), no_wrap=True)
        for row in zip(*(cells for _, *cells in (*fixed, *group)), strict=True):
            table.add_row(*map(Text, row))
        console.print(table)
    for line in said_of(prompt):
        typer.echo(line)


def at_most(bits: float) -> str:
    """An upper bound rounded up, so that it stays one: below 10 to a tenth, above to a whole."""
    rounded = Decimal(str(bits)).quantize(Decimal("0.1" if bits < 10 else "1"), ROUND_CEILING)
    return f"{int(rounded) if rounded == int(rounded) else rounded:,}"


def bits_at_most(bits: float) -> str:
    """The same with its unit, as in `1 bit` or `0.4 bits`."""
    said = at_most(bits)
    return f"{said} bit{'' if said == '1' else 's'}"


def said_of(prompt: "KeptPrompt") -> tuple[str, ...]:
    """The prompt in lines for a terminal. Its text comes from a model's vocabulary, so it is hostile."""
    n, brought = len(prompt.samples), sum(s.verified for s in prompt.samples)
    claimed = "all" if prompt.claimed else "not all"
    altered = sum(not s.same_tokens for s in prompt.samples)
    steps, total = _counted(prompt.steps, "step"), _counted(n, "sample")
    lines = [
        f"{prompt.placement} of {_counted(len(prompt.ids), 'token')}: {one_line(prompt.text, width=1000)!r}",
        f"loss {prompt.loss:.3f} after {steps} (ended: {prompt.ended}); spent: {_amounts(prompt.spent)}",
        f"claimed by the search: {claimed} of its {total}; verified by replies to its text: {brought} of {n}",
    ]
    lines.append(_beside_plain(prompt.samples))
    lines += [
        f"{one_line(s.question, width=60)!r}: wanted {one_line(s.wanted, width=60)!r}, with the prompt "
        f"{one_line(s.replied, width=60)!r}, without it {one_line(s.plain, width=60)!r}"
        for s in prompt.samples
    ]
    if altered:
        lines.append(f"in {altered} of {n} samples the text is read as other tokens than the search scored")
    if prompt.earlier:
        lines.append(f"it began with the prompt of an earlier search, which had spent {_amounts(prompt.earlier)}")
    if prompt.seen_bits is None:
        lines.append(
            "the search saw more than answers (the target's inner states, or another model by the prompt it began "
            "with): what that tells has no bound here"
        )
    return tuple(lines)


def _beside_plain(samples: "Sequence[SampleReply]") -> str:
    """What of the replies is the prompt's doing."""
    n, plain, brought = len(samples), sum(s.plain_right for s in samples), sum(s.brought for s in samples)
    lost = sum(s.plain_right and not s.verified for s in samples)
    by_it, with_it = (f"{k} {'is' if k == 1 else 'are'}" for k in (brought, lost))
    return f"without the prompt: {plain} of {n} already; so {by_it} brought by it, and {with_it} lost with it"


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _amounts(spent: Mapping[str, int]) -> str:
    return ", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in spent.items())
