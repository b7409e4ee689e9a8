"""`vestige probe prevent`: predict which benign items an unlearning puts at risk, protect them, see what it helps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vestige.cli.asked import refuse_torchrun, split_method_settings
from vestige.cli.data_words import DataWords
from vestige.cli.forgetting import ForgetWords, asked_unlearning
from vestige.cli.options import (
    AsJson,
    ChatTemplate,
    Config,
    Data,
    Device,
    DryStudy,
    Forget,
    Fresh,
    Method,
    OutputDir,
    OwnDtype,
    Save,
    Seed,
    Set,
    Target,
    TrustRemoteCode,
)
from vestige.cli.output import output_in
from vestige.cli.probe_words import JudgeWords
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.cli.tables import print_columns, print_counts, print_json
from vestige.cli.trajectory import Retrained

if TYPE_CHECKING:
    from vestige.core.estimates import Estimate
    from vestige.models.load import ModelSettings
    from vestige.probes.prevent import PreventRequest
    from vestige.probes.prevention_table import PreventionTable


@dataclass(frozen=True)
class TrainWords:
    """How the models are trained and read."""

    config: Config = None
    assignments: Set = None
    save: Save = "merged"
    seed: Seed = 0
    device: Device = "auto"
    dtype: OwnDtype = None
    trust_remote_code: TrustRemoteCode = False
    chat_template: ChatTemplate = ""

    def model(self, name: str) -> "ModelSettings":
        """How the model called `name` is read: in the number format that it was made in, unless another is asked."""
        from vestige.models.load import ModelSettings
        from vestige.steps.subjects import own_dtype

        dtype = self.dtype or own_dtype(name) or "float32"
        return ModelSettings(
            model=name,
            device=self.device,
            dtype=dtype,
            trust_remote_code=self.trust_remote_code,
            chat_template=self.chat_template,
        )


@dataclass(frozen=True)
class ProtectWords:
    """Which arms there are, how much each adds, at how many seeds, and where training stops."""

    arms: Annotated[
        str,
        typer.Option(
            help="Apart by commas: random, adjacent (nearest to the forget set), predicted (highest risk), oracle "
            "(most harmed at other seeds). none, which adds nothing, is always there."
        ),
    ] = "none,random,adjacent,predicted,oracle"
    add: Annotated[int | None, typer.Option(min=1, help="So many items does an arm add to the retain set.")] = None
    seeds: Annotated[int | None, typer.Option(min=1, help="Trainings of each arm, 3 at least.")] = None
    stop_when: Annotated[
        str | None,
        typer.Option(
            help="Each training ends at the first point that meets it, as 'forget<=0.5*target'; '' trains to the end."
        ),
    ] = None
    every: Annotated[str | None, typer.Option(help="How often that is looked at: '1 epoch', '5 steps'.")] = None
    retrained: Retrained = None
    embedder: Annotated[
        str | None, typer.Option(help="Folder or hub id of the sentence embedder; all-MiniLM-L6-v2 by default.")
    ] = None

    def values(self) -> dict[str, object]:
        """What was typed of the settings."""
        typed = {"add": self.add, "seeds": self.seeds, "stop_when": self.stop_when, "every": self.every}
        return {name: value for name, value in typed.items() if value is not None}


@spread
def prevent_command(
    target: Target,
    data: Data,
    forget: Forget,
    method: Method,
    output_dir: OutputDir,
    dry_run: DryStudy = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
    *,
    rows: DataWords,
    protect: ProtectWords,
    train: TrainWords,
) -> None:
    """Unlearn with and without protecting what is at risk, and say what protection was worth.

    Before training, every benign item gets a risk by the target's gradients, its embedding and the graph. Then each arm
    adds as many items to the retain set (without --retain a quarter of the benign items, drawn), and the same
    unlearning is made at several seeds. Other settings go by --set prevent.KEY=VALUE (retain_share, metric, risk_by),
    those of method and training as in `vestige unlearn`.
    """
    refuse_torchrun("probe prevent")
    request = _request(_Asked(target, data, forget, method), rows, protect, train, read=not dry_run)
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

    inputs: Sequence[str | None] = (target, data, forget, rows.retain, protect.retrained)
    with output_in(output_dir, fresh=fresh, made_by=("asked.json",), inputs=inputs), progress_bar("prevention") as show:
        table = prevent(PreventionFolder(output_dir), replace(request, on_stage=show))
    if as_json:
        return print_json(table)
    print_prevention(table)
    typer.echo(f"all numbers in {PreventionFolder(output_dir).rows}")


class _Asked(NamedTuple):
    target: str
    data: str
    forget: str
    method: str


def _request(
    words: _Asked, rows: DataWords, protect: ProtectWords, train: TrainWords, *, read: bool
) -> "PreventRequest":
    """What the words ask for; what can be wrong with them is said before anything is trained.

    With `read` False no weights are read, and what is asked for can be foreseen but not made.
    """
    from vestige.data.corpus import open_corpus
    from vestige.probes.prevent import PreventRequest, PreventSettings, check_request, kept_and_candidates
    from vestige.probes.prevention_table import arms_named
    from vestige.steps.making import pick_form
    from vestige.steps.subjects import origin_of

    arms = arms_named(protect.arms)
    own, others = split_method_settings("prevent", train.assignments)
    settings = PreventSettings.build({**own, **protect.values()}, where="settings of prevent")
    source = rows.source(words.data)
    to_forget = ForgetWords(words.method, words.forget, rows.retain, None, None, train.config, others, train.seed)
    asked = asked_unlearning(train.model(words.target), source, to_forget, read=read).unlearning
    corpus = open_corpus(source)
    forgotten = {i.question for i in asked.forget_items}
    benign = tuple(i for i in corpus.items if i.question not in forgotten)
    given = asked.retain_items if rows.retain else None
    kept, candidates = kept_and_candidates(benign, given, settings, seed=train.seed)
    control = None if protect.retrained is None else train.model(protect.retrained)
    unlearning = replace(asked, retain_items=kept, save=pick_form(train.save))
    request = PreventRequest(
        unlearning=unlearning,
        candidates=candidates,
        dataset=corpus.dataset,
        embeds=lambda: JudgeWords(embedder=protect.embedder).embeds(train.device),
        arms=arms,
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
