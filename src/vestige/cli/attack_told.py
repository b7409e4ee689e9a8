"""An attack on one subject from end to end: asked before, attacked, asked after, and what of it is printed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

import typer

from vestige.cli.progress import progress_bar
from vestige.cli.prompt_told import bits_at_most, print_by_share
from vestige.core.estimates import to_json

if TYPE_CHECKING:
    from vestige.artifacts.layout import AttackFolder, EvalFolder
    from vestige.attacks.planning import Attack
    from vestige.core.estimates import Estimate
    from vestige.data.corpus import NamedSplits
    from vestige.steps.attack import AttackRequest
    from vestige.steps.evaluate import Subject

    Levels: TypeAlias = Mapping[str, Mapping[str, Estimate]]
    """By point, the estimates over the tested items by `format/metric`."""

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
