"""`compile_data` and `check_data`: data before any model."""

from os import fspath
from pathlib import Path
from typing import Any

import vestige
from vestige.api.inputs import DataLike, PathLikeStr, corpus_of, selector, verb


@verb
def compile_data(
    graph: PathLikeStr, *, output_dir: PathLikeStr | None = None, seed: int = 0, fresh: bool = False
) -> dict[str, Any]:
    """Compile a graph of contracts into questions and answers.

    Args:
        graph: sample1, sample2, a family with its number of contracts (star:50, chain, tree, complete, scale-free), or
            a table of contracts (.csv, .tsv).
        output_dir: The folder of the data set; data/GRAPH by default.
        seed: Seed of everything that is drawn.
        fresh: Replace the data set in the folder.

    Returns:
        The manifest: the name, the seed, `counts`, `connectivity`, and `folder`.

    Raises:
        InputError: The graph cannot be read, or the folder holds another data set.

    Example:
        >>> vestige.compile_data("star:20", output_dir="data/star")
    """
    from vestige.core.ids import slug
    from vestige.data.dataset import compile_to_folder

    name = fspath(graph)
    # A file gives its own name, and `star:50` becomes a name that is valid on any system.
    folder = Path(output_dir or f"data/{slug(Path(name).stem)}")
    manifest = compile_to_folder(name, folder, seed=seed, fresh=fresh)
    return {"folder": str(folder), **manifest}


@verb
def check_data(
    *,
    data: DataLike,
    forget: DataLike,
    output_dir: PathLikeStr = "runs/check",
    retain: DataLike | None = None,
    checks: "vestige.Checks | None" = None,
    seed: int = 0,
) -> "vestige.Soundness":
    """Check whether the forget set can be answered without having seen it: from the retain set, or by answer style.

    Args:
        data: A compiled folder, a file (JSONL, JSON, CSV, Parquet), a pack, or a hub dataset id.
        forget: A file of items, or comma-separated selectors: edge:A_B, person:NAME, node:A, component:2,
            type:sales, random:3.
        output_dir: The folder of soundness.json, where an audit of the folder reads it.
        retain: Items to keep: a file or selectors. By default all other items.
        checks: The settings of the checks.
        seed: Seed of everything random.

    Returns:
        A line for each check: `sound` is True, False, or None where it cannot tell.

    Raises:
        InputError: The data cannot be used, or nothing is kept.

    Example:
        >>> found = vestige.check_data(data="data.csv", forget="forget.csv", checks=vestige.Checks(alpha=0.01))
        >>> [line.check for line in found.lines if line.sound is False]
    """
    from vestige.api.output import say_notes
    from vestige.artifacts.layout import RunFolder
    from vestige.data.corpus import named_splits, refuse_nothing_kept
    from vestige.data.findings import SoundnessSettings
    from vestige.data.soundness import check_data as check

    corpus = corpus_of(data)
    splits = named_splits(corpus, selector(forget), retain=selector(retain))
    refuse_nothing_kept(corpus, splits)
    say_notes(splits)
    return check(RunFolder(Path(output_dir)), splits, checks or SoundnessSettings(), seed=seed)
