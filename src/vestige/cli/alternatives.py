"""`vestige alternatives`: have a language model write other answers, for audits where nobody can retrain."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import refuse_torchrun
from vestige.cli.data_words import RowWords, told
from vestige.cli.options import Data, Forget
from vestige.cli.probe_words import JudgeWords, PlaceWords
from vestige.cli.spread import spread
from vestige.core.errors import InputError, PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vestige.judges.alternatives import Alternatives

FILE = "alternatives.jsonl"


@spread
def alternatives_command(
    data: Data,
    forget: Forget,
    n: Annotated[int, typer.Option("-n", min=1, help="Alternatives to each answer.")] = 99,
    *,
    rows: RowWords,
    who: JudgeWords,
    place: PlaceWords,
) -> None:
    """Write alternatives.jsonl: for each forget question false answers that cannot be told from the true one by looks.

    It takes --judge local or server. What states the truth, repeats, or is much longer or shorter is refused. Read the
    file, mend it, and give it to `vestige check-data` and `vestige audit` as --alternatives. Compiled data need none.
    """
    refuse_torchrun("alternatives")
    if who.judge not in ("local", "server"):
        raise InputError("alternatives are written by a language model; give --judge local or --judge server")
    from vestige.core.files import write_jsonl
    from vestige.data.corpus import named_splits, open_corpus
    from vestige.judges.alternatives import write_alternatives

    items = told(named_splits(open_corpus(rows.source(data)), forget)).splits["forget"]
    found, spend = write_alternatives(items, who.writer(who.judge, place), n)
    path = place.output_dir / FILE
    place.output_dir.mkdir(parents=True, exist_ok=True)
    write_jsonl(path, ({"question": f.item.question, "alternatives": list(f.kept)} for f in found))
    if not any(f.kept for f in found):
        raise PartialFailure(f"{who.judge} wrote no alternative that can be used to any of {len(found)} questions")
    if place.as_json:
        sums = {"refused": sum(f.refused for f in found), "failed": sum(f.failed for f in found), "calls": spend.calls}
        typer.echo(json.dumps({"file": str(path), "n": {f.item.id: len(f.kept) for f in found}, **sums}, indent=2))
        return
    for sentence in _said(found, n):
        typer.echo(sentence)
    typer.echo(f"written to {path}")


def _said(found: "Sequence[Alternatives]", n: int) -> list[str]:
    """What came of it: how many questions have all alternatives, and which have the fewest."""
    whole = sum(len(f.kept) >= n for f in found)
    said = [
        f"{whole} of {len(found)} questions have {n} alternatives; {sum(f.refused for f in found)} were refused: they "
        "state the true answer, are there already, or stand out by length",
    ]
    fewest = min(found, key=lambda f: len(f.kept))
    if whole < len(found):
        said.append(f"the fewest, {len(fewest.kept)}, has: {one_line(fewest.item.question, width=200)}")
    failed = sum(f.failed for f in found)
    return [*said, f"{failed} replies held no list"] if failed else said
