"""What is printed of a trial of prevention: what each arm lost and forgot, and how well harm was foretold."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from vestige.core.estimates import Estimate
    from vestige.probes.prevention_table import PreventionTable

_PLACES = (
    ("at risk, lost", "at risk", "logp", ""),
    ("against none", "at risk", "logp", "none"),
    ("against random", "at risk", "logp", "random"),
    ("all, lost", "all", "logp", ""),
    ("at risk, ROUGE-L", "at risk", "rougeL", ""),
    ("forgotten, ROUGE-L", "forget", "rougeL", ""),
    ("against none", "forget", "rougeL", "none"),
    ("forgotten, nats", "forget", "logp", ""),
    ("against none", "forget", "logp", "none"),
    ("holes, fresh probes", "holes", "quality", ""),
    ("their quality", "probes", "quality", ""),
)


def print_prevention(table: "PreventionTable") -> None:
    """The table for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from vestige.cli.tables import side_by_side

    console = Console()
    arms = list(table.steps)
    places = [place for place in _PLACES if any(table.of(arm, *place[1:]) for arm in arms)]
    names = ["", *(head for head, *_ in places), "steps", "rule met"]
    columns = [[arm, *(_cell(table.of(arm, *place)) for _, *place in places), *_training(table, arm)] for arm in arms]
    for group in side_by_side([names], columns, console.width):
        shown = Table(title=Text("lost: target less unlearned, nats a token"))
        for head, *_ in (names, *group):
            shown.add_column(Text(head), no_wrap=True)
        for cells in zip(*(cells for _, *cells in (names, *group)), strict=True):
            shown.add_row(*map(Text, cells))
        console.print(shown)
    rule = f"; training ends at {table.rule}" if table.rule else ""
    typer.echo(
        f"{table.n_added} items added to {table.n_retain} by each arm but none, of {table.n_pool}; at risk: the "
        f"{table.n_at_risk} of {table.n_evaluated} others that lost most without protection at the other "
        f"{len(table.seeds) - 1} seeds{rule}"
    )
    if table.probe_k and not any(row.what == "holes" for row in table.arms):
        typer.echo("of the fresh probes none was left to be tested; probes/ARM-SEED/tested.jsonl has the reasons")
    typer.echo("AUROC of each risk score for the quarter of all items that lost most without protection:")
    for one in table.predictions:
        typer.echo(f"  {one.score:<20} {_cell(one.auroc)}")


def _training(table: "PreventionTable", arm: str) -> tuple[str, str]:
    met = f"{table.reached[arm]} of {len(table.seeds)}" if table.rule else "-"
    return ", ".join(map(str, table.steps[arm])), met


def _cell(estimate: "Estimate | None") -> str:
    return "-" if estimate is None else estimate.said()
