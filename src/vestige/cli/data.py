"""Commands about data: `vestige compile` and `vestige check-data`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    SOURCE,
    Alternatives,
    AsJson,
    Data,
    Forget,
    OutputDir,
    Retain,
    Seed,
    corpus_from,
    data_words,
    say_notes,
)
from vestige.cli.output import refuse_torchrun, say_next
from vestige.cli.tables import print_json, print_table
from vestige.core.ids import slug
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import Soundness


COMPILE = Part("vestige.data.folder:CompileSettings", "Settings")
ROWS = SOURCE._replace(renamed={**SOURCE.renamed, "factual": ""})
CHECKS = Part("vestige.data.findings:SoundnessSettings", "Checks")


@command(COMPILE, common="output_dir seed temporal contract_types fresh as_json config")
def compile_command(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH",
            help="sample1, sample2, a family with its number of contracts (star:50, chain, tree, complete, "
            "scale-free), or a file (.csv, .tsv, .json).",
        ),
    ],
    output_dir: Annotated[Path | None, typer.Option(help="Where to write; data/GRAPH by default.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the data set in the folder.")] = False,
    as_json: AsJson = False,
    *,
    typed: Given,
) -> None:
    """Compile a graph of contracts into questions and answers."""
    # Imported here, so that the command line's help need not load NumPy.
    from vestige.api import compile_data
    from vestige.data.folder import CompileSettings

    typed.refuse_others()
    # A file is called by its name; `star:50` becomes a name that any system takes.
    folder = Path("data") / slug(Path(graph).stem) if output_dir is None else output_dir
    settings = typed.build(CompileSettings)
    manifest = compile_data(graph, output_dir=folder, fresh=fresh, **dict(settings))
    if as_json:
        print_json({"folder": str(folder), **manifest})
    else:
        typer.echo("\n".join(_summary(manifest, folder)))
        say_next("finetune", "MODEL", "--data", folder, "--output-dir", "TARGET")


def _summary(manifest: dict[str, Any], folder: Path) -> list[str]:
    counts = manifest["counts"]
    lines = [
        f"{one_line(manifest['name'])}, seed {manifest['seed']}: {counts['contracts']:,} contracts of "
        f"{counts['entities']:,} entities, {counts['items']:,} questions"
    ]
    for name, c in manifest["connectivity"].items():
        lines.append(
            f"  {name}: {c['contracts']:,} contracts, connectivity {c['mean']:.2f} ({c['least']} to {c['greatest']})"
        )
    return [*lines, f"written to {one_line(str(folder), width=400)}"]


@command(
    CHECKS, ROWS, common="data forget output_dir retain alternatives seed as_json edge_key alpha margin options config"
)
def check_data_command(
    data: Data,
    forget: Forget,
    output_dir: OutputDir,
    retain: Retain = None,
    alternatives: Alternatives = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    *,
    typed: Given,
) -> None:
    """Check whether the forget set can be answered without having seen it: from the retain set, or by answer style.

    Exit code 0: every check passed; 3: one failed; 4: none failed and one cannot tell. The result is soundness.json in
    the output folder, where `vestige audit` finds it.
    """
    refuse_torchrun("check-data")
    from vestige import requests
    from vestige.artifacts.audits import exit_code
    from vestige.artifacts.layout import RunFolder
    from vestige.data.findings import SoundnessSettings
    from vestige.steps.check_data import check_data

    typed.refuse_others()
    corpus, settings = corpus_from(typed, data), typed.of(SoundnessSettings)
    request = requests.data_check(corpus, forget, settings, retain=retain, alternatives=alternatives, seed=seed)
    say_notes(request.splits, alternatives=alternatives is not None)
    soundness = check_data(RunFolder(output_dir), request)
    if as_json:
        print_json(soundness)
    else:
        _print(soundness, output_dir)
        say_next("audit", "--plan", *data_words(typed, data, forget))
    raise typer.Exit(exit_code(soundness.lines))


def _print(soundness: "Soundness", output_dir: Path) -> None:
    rows = []
    for line in soundness.lines:
        verdict = {True: "passes", False: "fails", None: "cannot tell"}[line.sound]
        effect = "" if line.effect is None else str(line.effect)
        rows.append([line.check, verdict, effect, "" if line.p is None else f"{line.p:.2g}"])
    heads = ["check", "", "effect", "p"]
    print_table(f"{soundness.forget}: can this data set tell?", heads, rows, no_wrap=heads)
    for line in soundness.lines:
        if line.sound is not True:
            typer.echo(f"{line.check}: {one_line(line.reason, width=600)}")
    if soundness.needs:
        typer.echo(soundness.needs)
    for sentence in soundness.left_out:
        typer.echo(f"does not apply: {one_line(sentence, width=300)}")
    typer.echo(f"result in {output_dir / 'soundness.json'}")
