"""`vestige probe prevent`: predict which benign items an unlearning puts at risk, protect them, see what it helps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SOURCE,
    UNLEARNING,
    AsJson,
    Data,
    DryRun,
    Embedder,
    Fresh,
    OutputDir,
    Retrained,
    Save,
    Seed,
    Target,
    Unlearning,
)
from vestige.cli.output import output_in, refuse_torchrun
from vestige.cli.probe import JudgeOptions
from vestige.cli.progress import progress_bar
from vestige.cli.requests import model_from, source_from, unlearning_from
from vestige.cli.tables import print_columns, print_counts, print_json

if TYPE_CHECKING:
    from vestige.core.estimates import Estimate
    from vestige.probes.prevent import PreventRequest
    from vestige.probes.prevention_table import PreventionTable


_FIRST = ("add", "seeds", "stop_when", "every")
PREVENT = Part(
    "vestige.probes.prevent:PreventSettings",
    "Protection",
    "prevent",
    first=_FIRST,
    spelled={name: name for name in _FIRST},
)


@command(PREVENT, UNLEARNING, SOURCE, MODEL)
def prevent_command(
    target: Target,
    data: Data,
    output_dir: OutputDir,
    arms: Annotated[
        str,
        typer.Option(
            help="Comma-separated: random, adjacent (nearest to the forget set), predicted (highest risk), oracle "
            "(most harmed at other seeds). none, which adds nothing, is always included."
        ),
    ] = "none,random,adjacent,predicted,oracle",
    retrained: Retrained = None,
    embedder: Embedder = None,
    seed: Seed = 0,
    save: Save = "merged",
    dry_run: DryRun = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
    *,
    words: Unlearning,
    given: Given,
) -> None:
    """Unlearn with and without protecting what is at risk, and say what protection was worth.

    Before training, every benign item gets a risk by the target's gradients, its embedding and the graph. Then each arm
    adds as many items to the retain set (without --retain a quarter of the benign items, drawn), and the same
    unlearning is made at several seeds. Settings of the method and the training are those of `vestige unlearn`.
    """
    refuse_torchrun("probe prevent")
    request = _request(given, target, data, words, arms, retrained, embedder, seed, save, read=not dry_run)
    if dry_run:
        from vestige.models.load import look_for
        from vestige.probes.prevent import foreseen

        look_for(request.unlearning.target)
        counts = foreseen(request)
        if as_json:
            return print_json(counts)
        typer.echo("at most; nothing was done:")
        print_counts(counts)
        return
    from vestige.probes.prevent import prevent
    from vestige.probes.prevention_table import PreventionFolder

    inputs: Sequence[str | None] = (target, data, words.forget, words.retain, retrained)
    with output_in(output_dir, fresh=fresh, made_by=("asked.json",), inputs=inputs), progress_bar("prevention") as show:
        table = prevent(PreventionFolder(output_dir), replace(request, on_stage=show))
    if as_json:
        return print_json(table)
    print_prevention(table)
    typer.echo(f"all numbers in {PreventionFolder(output_dir).rows}")


def _request(
    given: Given,
    target: str,
    data: str,
    words: Unlearning,
    arms: str,
    retrained: str | None,
    embedder: str | None,
    seed: int,
    save: str,
    *,
    read: bool,
) -> "PreventRequest":
    """What is asked for; what can be wrong with it is said before anything is trained.

    With `read` False no weights are read, and what is asked for can be foreseen but not made.
    """
    from vestige.data.corpus import open_corpus
    from vestige.probes.prevent import PreventRequest, PreventSettings, check_request, kept_and_candidates
    from vestige.probes.prevention_table import arms_named
    from vestige.steps.making import pick_form
    from vestige.steps.subjects import origin_of

    named, settings = arms_named(arms), given.build(PreventSettings)
    model = model_from(given, target, as_made=True)
    asked = unlearning_from(given, model, data, words, seed=seed, read=read).unlearning
    corpus = open_corpus(source_from(given, data))
    forgotten = {i.question for i in asked.forget_items}
    benign = tuple(i for i in corpus.items if i.question not in forgotten)
    kept, candidates = kept_and_candidates(benign, asked.retain_items if words.retain else None, settings, seed=seed)
    control = None if retrained is None else model_from(given, retrained, as_made=True)
    request = PreventRequest(
        unlearning=replace(asked, retain_items=kept, save=pick_form(save)),
        candidates=candidates,
        dataset=corpus.dataset,
        embeds=lambda: JudgeOptions(embedder=embedder).embeds(model.device),
        arms=named,
        settings=settings,
        retrained=None if control is None else (control, origin_of(control, read=read).digest),
    )
    check_request(request)
    return request


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
    arms = list(table.steps)
    places = [place for place in _PLACES if any(table.of(arm, *place[1:]) for arm in arms)]
    names = ["", *(head for head, *_ in places), "steps", "rule met"]
    columns = [[arm, *(_cell(table.of(arm, *place)) for _, *place in places), *_training(table, arm)] for arm in arms]
    print_columns("lost: target less unlearned, nats a token", [names], columns)
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
