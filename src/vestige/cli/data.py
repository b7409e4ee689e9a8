"""`vestige compile` and `vestige check-data`, and how every command reads data."""

from pathlib import Path

import typer

from vestige import api
from vestige.cli.command import Call, Part, command
from vestige.core.text import Fields, one_line
from vestige.report.text import print_json, print_soundness

SOURCE = Part(
    "vestige.data.corpus:SourceSettings",
    "Data",
    first=("question_key", "answer_key", "edge_key", "group_key", "limit"),
    # `--config` is the settings file, so the hub's configurations have another option.
    renamed={"data": "", "config": "data_config"},
)
ROWS = SOURCE._replace(renamed={**SOURCE.renamed, "factual": ""})
CHECKS = Part("vestige.data.findings:SoundnessSettings", "Checks")


@command(api.compile_data, positional=("graph",))
def compile_command(call: Call, as_json: bool = False) -> None:
    """Compile a graph of contracts into questions and answers."""
    from vestige.api.output import say_next

    manifest = call.run()
    if as_json:
        return print_json(manifest)
    typer.echo("\n".join(_summary(manifest)))
    say_next("finetune", "MODEL", "--data", manifest["folder"], "--output-dir", "TARGET")


def _summary(manifest: Fields) -> list[str]:
    counts = manifest["counts"]
    lines = [
        f"{one_line(manifest['name'])}, seed {manifest['seed']}: {counts['contracts']:,} contracts of "
        f"{counts['entities']:,} entities, {counts['items']:,} questions"
    ]
    for name, c in manifest["connectivity"].items():
        lines.append(
            f"  {name}: {c['contracts']:,} contracts, connectivity {c['mean']:.2f} ({c['least']} to {c['greatest']})"
        )
    return [*lines, f"written to {one_line(manifest['folder'], width=400)}"]


@command(
    api.check_data,
    positional=(),
    parts={"checks": CHECKS, "data": ROWS},
    common="data forget output_dir retain seed json edge_key alpha margin options config",
)
def check_data_command(call: Call, as_json: bool = False) -> None:
    """Check whether retained data or the style of the answers give the forget set away.

    Exit code 0: every check passed. 3: one failed. 4: none failed and one is inconclusive. The output folder gets
    soundness.json, which `vestige audit` reads there.
    """
    from vestige.api.output import say_next
    from vestige.artifacts.audits import exit_code

    soundness = call.run()
    if as_json:
        print_json(soundness)
    else:
        print_soundness(soundness, Path(call.arguments["output_dir"]))
        say_next("audit", "--plan", *call.data_words())
    raise typer.Exit(exit_code(soundness.lines))
