"""`vestige compile`: a graph becomes a folder of contracts, questions and answers."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from vestige.core.ids import slug
from vestige.core.text import one_line

_SECONDS_BETWEEN_LINES = 2.0


def compile_command(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH",
            help="sample1, sample2, a family with its number of contracts (star:50, ring, chain, tree, "
            "grid, complete, "
            "scale-free, small-world), or a file (.csv, .tsv, .txt, .graphml, .json).",
        ),
    ],
    seed: Annotated[int, typer.Option(help="Everything that is drawn depends on it.")] = 0,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", help="Where to write; data/GRAPH unless given.")
    ] = None,
    temporal: Annotated[
        bool,
        typer.Option("--temporal", help="Let later contracts of the same parties supersede earlier ones."),
    ] = False,
    contract_types: Annotated[
        Path | None,
        typer.Option("--contract-types", help="A folder of further contract types: NAME.toml, NAME.txt.j2."),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Write questions and edges alone, in bounded memory; the default above 10,000 contracts.",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the data set that is in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as one JSON document.")] = False,
) -> None:
    """Compile a graph of contracts into questions and answers."""
    # Imported here, so that the command line's help need not load NumPy.
    from vestige.data.build import CompileSettings, compile_to_folder

    settings = CompileSettings(seed=seed, temporal=temporal, contract_types=contract_types, stream=stream)
    folder = Path("data") / slug(Path(graph).stem) if output_dir is None else output_dir
    manifest = compile_to_folder(graph, folder, settings, fresh=fresh, progress=_Lines())
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **manifest}, indent=2, ensure_ascii=False))
    else:
        for line in _summary(manifest, folder):
            typer.echo(line)


class _Lines:
    """Progress as plain lines on stderr, one every two seconds; a quick compilation prints none."""

    def __init__(self) -> None:
        """Start the clock."""
        self._next = time.monotonic() + _SECONDS_BETWEEN_LINES

    def __call__(self, done: int, of: int) -> None:
        """Print a line if it is time for one."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
            typer.echo(f"compiled {done:,} of {of:,} contracts", err=True)


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
    if manifest["left_out"]:
        lines.append(f"  a stream, without {', '.join(manifest['left_out'])}")
    return [*lines, f"written to {one_line(str(folder), width=400)}"]
