"""`vestige sisa`: train a model in shards, so that it can be made to forget exactly, and make it forget."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import refuse_torchrun, settings_from
from vestige.cli.data_words import SourceWords, TaughtWords, forgotten_by, say_notes
from vestige.cli.options import (
    AsJson,
    ChatTemplate,
    Config,
    Data,
    Device,
    Dtype,
    Forget,
    Fresh,
    OutputDir,
    Seed,
    Set,
    TrustRemoteCode,
)
from vestige.cli.output import output_in
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.cli.tables import print_json

if TYPE_CHECKING:
    from vestige.artifacts.layout import SubjectFolder
    from vestige.steps.making import Made

sisa_app = typer.Typer(
    help="Exact unlearning: train a model in shards, and train again those that hold what is to be forgotten.",
    no_args_is_help=True,
)


@sisa_app.command("train")
@spread
def train_command(
    model: Annotated[str, typer.Argument(help="Hub id, local folder, folder with adapter, .gguf file, or built-in.")],
    data: Data,
    output_dir: OutputDir,
    shards: Annotated[int | None, typer.Option(help="Models to train, each on its own part of the items.")] = None,
    slices: Annotated[int | None, typer.Option(help="Parts of a shard, with the weights kept after each.")] = None,
    together: Annotated[str | None, typer.Option(help="What shares a slice: the items of an edge, or item.")] = None,
    forget: Annotated[str | None, typer.Option(help="Leave these items out: a `retrained` control.")] = None,
    config: Config = None,
    assignments: Set = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: TrustRemoteCode = False,
    chat_template: ChatTemplate = "",
    fresh: Fresh = False,
    as_json: AsJson = False,
    *,
    rows: TaughtWords,
) -> None:
    """Teach MODEL the answers of a data set in shards: one model a shard, which answer as one.

    Which shard an item is in follows from the item and the seed. Memory and time to answer grow with the shards, and
    what is kept on the disk with shards times slices. Training settings are those of `vestige finetune`.
    """
    refuse_torchrun("sisa")
    from vestige.data.corpus import named_splits, open_corpus
    from vestige.study.presets import TINY_FINETUNE
    from vestige.training.settings import TrainingSettings

    base = TINY_FINETUNE.identity() if model == "builtin:tiny" else {}
    asked = settings_from(TrainingSettings, config, assignments, defaults=base)
    source = rows.source(data)
    corpus = open_corpus(source)
    everything = (*corpus.items, *corpus.factual)
    splits = say_notes(named_splits(corpus, forget)) if forget else None
    left = splits.forget if splits else ""

    from vestige.artifacts.layout import SubjectFolder
    from vestige.models.load import ModelSettings
    from vestige.steps.finetune import FinetuneRequest
    from vestige.steps.sisa import SisaSettings, train_in_shards

    given = {"shards": shards, "slices": slices, "together": together}
    settings = SisaSettings.build({k: v for k, v in given.items() if v is not None}, where="options")
    request = FinetuneRequest(
        model=ModelSettings(
            model=model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, chat_template=chat_template
        ),
        items=rows.taught(corpus, splits),
        vocabulary=everything,
        training=asked,
        seed=seed,
        role="retrained" if left else "target",
        name=f"retrained {left} in shards" if left else "target in shards",
        forget=left,
        forgotten=(splits.resolved,) if splits else (),
    )
    folder = SubjectFolder(output_dir)
    with (
        output_in(output_dir, fresh=fresh, made_by=("spec.json",), inputs=(model, data, forget)),
        progress_bar("training in shards") as show,
    ):
        made = train_in_shards(
            folder, request, settings, lambda p: show(p.step / p.n_steps, f"step {p.step}, loss {p.loss:.3f}")
        )
    _tell(folder, made, as_json)


@sisa_app.command("forget")
@spread
def forget_command(
    target: Annotated[Path, typer.Argument(help="A folder of `vestige sisa train`, or of an earlier forgetting.")],
    data: Data,
    forget: Forget,
    output_dir: OutputDir,
    device: Device = "auto",
    trust_remote_code: TrustRemoteCode = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
    *,
    rows: SourceWords,
) -> None:
    """Make TARGET what training it without the forget set would have made it, byte for byte.

    DATA is what TARGET was trained on; what TARGET forgot before stays forgotten. Only shards that hold items to
    forget are trained again, from the slice at which the first of them came in. TARGET itself still knows everything:
    delete it when it is no longer needed.
    """
    refuse_torchrun("sisa")
    from vestige.data.corpus import left_out, named_splits, open_corpus, without

    source = rows.source(data)
    corpus = open_corpus(source)

    from vestige.artifacts.layout import SubjectFolder
    from vestige.steps.controls import Taught
    from vestige.steps.sisa import SisaForgetting, forget_in_shards

    before = forgotten_by(str(target))
    splits = say_notes(named_splits(corpus, forget, before=before))
    gone = {i for one in before for i in one.items}
    taught = without(corpus.items, [i for i in corpus.items if i.id in gone])
    known = {i.id for i in taught}
    kept = (i for i in left_out(corpus, splits) if i.id in known)
    request = SisaForgetting(
        target=SubjectFolder(target),
        forget=splits.forget,
        taught=Taught(taught, (*corpus.items, *corpus.factual), corpus.factual),
        kept=(*kept, *corpus.factual),
        device=device,
        trust_remote_code=trust_remote_code,
    )
    folder = SubjectFolder(output_dir)
    with (
        output_in(output_dir, fresh=fresh, made_by=("spec.json",), inputs=(str(target), data, forget)),
        progress_bar("training shards again") as show,
    ):
        made = forget_in_shards(
            folder, request, lambda p: show(p.step / p.n_steps, f"step {p.step}, loss {p.loss:.3f}")
        )
    _tell(folder, made, as_json)


def _tell(folder: "SubjectFolder", made: "Made", as_json: bool) -> None:
    from vestige.steps.sisa import read_cost

    cost = read_cost(folder)
    if as_json:
        told = {
            "output_dir": str(folder.path),
            "digest": made.digest.id,
            "steps": cost.steps_trained,
            "steps_from_the_start": cost.steps,
            "slices": cost.slices_trained,
            "slices_in_all": cost.slices,
        }
        return print_json(told)
    typer.echo(
        f"{folder.path}: {cost.steps_trained} of the {cost.steps} steps that it takes from the start "
        f"({cost.slices_trained} of {cost.slices} slices); model {made.digest.id[:12]}"
    )
