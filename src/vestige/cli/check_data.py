"""`vestige check-data`: whether a data set can tell forgetting from guessing."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import refuse_torchrun, settings_from, split_method_settings
from vestige.cli.data_words import RowWords, told
from vestige.cli.options import (
    Alternatives,
    AsJson,
    ChatTemplate,
    Data,
    Device,
    Dtype,
    Forget,
    OutputDir,
    Retain,
    Seed,
    TrustRemoteCode,
)
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import SoundnessLine
    from vestige.artifacts.soundness import Soundness
    from vestige.core.items import Item
    from vestige.models.load import ModelSettings
    from vestige.steps.soundness import TrainedSettings

EPOCHS = 20
"""For builtin:tiny: enough to learn most of the retain set of sample dataset 1, in about a minute a training."""


@spread
def check_data_command(
    data: Data,
    forget: Forget,
    output_dir: OutputDir,
    retain: Retain = None,
    alternatives: Alternatives = None,
    model: Annotated[
        str | None,
        typer.Option(help="Teach this model the retain set and ask it the forget set: builtin:tiny, or any model."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="With --model: trainings on the retain set, and as many controls.")] = 3,
    splits: Annotated[int, typer.Option(help="With --model: random splits of the same size, a training each.")] = 20,
    unrelated: Annotated[
        Path | None, typer.Option(help="With --model: items of the control's training; general facts by default.")
    ] = None,
    sanitize: Annotated[
        Path | None, typer.Option(help="Write the data without the items that leak here, and check it again.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting: margin=0.05, or of the trainings: training.epochs=10."
        ),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Dtype = "float32",
    trust_remote_code: TrustRemoteCode = False,
    chat_template: ChatTemplate = "",
    as_json: AsJson = False,
    *,
    rows: RowWords,
) -> None:
    """Say whether the forget set can be answered by whoever never saw it: through the retain set, or by looks.

    Exit code 0: every check passed; 3: one failed; 4: none failed and one cannot tell. The result is soundness.json in
    the output folder, where `vestige audit` finds it.
    """
    refuse_torchrun("check-data")
    from vestige.artifacts.layout import RunFolder
    from vestige.artifacts.soundness import exit_code
    from vestige.data.alternatives import with_alternatives
    from vestige.data.corpus import named_splits, open_corpus, refuse_nothing_kept
    from vestige.data.soundness.settings import SoundnessSettings

    own, others = split_method_settings("training", assignments)
    if model is None and (own or unrelated):
        raise InputError("--set training... and --unrelated are for a trained check, and no --model is given")
    source = rows.source(data)
    corpus = open_corpus(source)
    wanted = told(with_alternatives(corpus, named_splits(corpus, forget, retain=retain), alternatives))
    refuse_nothing_kept(corpus, wanted)
    settings = settings_from(SoundnessSettings, None, others)

    from vestige.steps.check_data import CheckRequest, check_data

    trained = None
    if model is not None:
        from vestige.models.load import ModelSettings

        asked = ModelSettings(
            model=model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, chat_template=chat_template
        )
        trained = _trained(asked, own, _control(unrelated), seeds=seeds, splits=splits)
    request = CheckRequest(wanted, settings, seed, corpus.dataset, trained, sanitize)
    with progress_bar("checking") as show:
        found = check_data(RunFolder(output_dir), request, show)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        _print(found, output_dir, sanitize)
    raise typer.Exit(exit_code(found.lines))


def _control(source: Path | None) -> "tuple[Item, ...]":
    from vestige.data.factual import factual_items
    from vestige.data.loaders import load_items

    return factual_items() if source is None else load_items(source)


def _trained(
    model: "ModelSettings", own: dict[str, object], unrelated: "tuple[Item, ...]", *, seeds: int, splits: int
) -> "TrainedSettings":
    from vestige.steps.soundness import TrainedSettings
    from vestige.study.presets import TINY_FINETUNE
    from vestige.training.settings import TrainingSettings

    tiny = {**TINY_FINETUNE.identity(), "epochs": EPOCHS} if model.model == "builtin:tiny" else {}
    training = TrainingSettings.build({**tiny, **own}, where="settings of the trainings")
    return TrainedSettings(model, training, unrelated, seeds, splits)


def _print(found: "Soundness", output_dir: Path, sanitize: Path | None) -> None:
    _table(f"{found.forget}: can this data set tell?", found.lines)
    if found.needs:
        typer.echo(found.needs)
    for sentence in found.left_out:
        typer.echo(f"does not apply: {one_line(sentence, width=300)}")
    if sanitize is not None and found.sanitized is not None:
        _table(f"{sanitize}: without what leaks, on a seed of its own", found.sanitized)
        typer.echo(f"what went and why: {sanitize / 'removed.jsonl'}")
    typer.echo(f"result in {output_dir / 'soundness.json'}")


def _table(title: str, lines: "Sequence[SoundnessLine]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(one_line(title)))
    for column in ("check", "", "effect", "p"):
        table.add_column(column, no_wrap=True)
    for line in lines:
        verdict = {True: "passes", False: "fails", None: "cannot tell"}[line.sound]
        p = "" if line.p is None else f"{line.p:.2g}"
        cells = (line.check, verdict, "" if line.effect is None else str(line.effect), p)
        table.add_row(*(Text(one_line(c)) for c in cells))
    Console().print(table)
    for line in lines:
        if line.sound is not True:
            typer.echo(f"{line.check}: {one_line(line.reason, width=600)}")
