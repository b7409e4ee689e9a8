"""From a graph to a folder: the whole data set in memory, or for large graphs its rows as a stream.

Both write the same question rows and the same edges; a stream leaves out what needs all contracts at hand.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from vestige.core.files import new_folder, replacing
from vestige.core.settings import Settings
from vestige.data.dataset import compile_planned, n_entailed, plan
from vestige.data.drawing import Drawing, chunk_bounds
from vestige.data.folder import (
    EDGES,
    PISTOL,
    FilesWritten,
    already_there,
    edges_csv,
    identity,
    write_dataset,
    write_types,
)
from vestige.data.graph import Graph
from vestige.data.pistol import pistol_text
from vestige.data.rows import rows_of_chunk

STREAM_ABOVE = 10_000
"""Graphs with more edges are written as a stream unless told otherwise."""


LEFT_OUT = ("paraphrase", "perturbed", "text", "holdout", "khop", "graph")
"""What a stream does not write."""

_PIECE = 64
"""Contracts whose rows are written together: 0.2 MB, which fit the processor's cache."""


class CompileSettings(Settings):
    """How a graph is compiled."""

    seed: int = 0
    """Seed of everything that is drawn."""
    temporal: bool = False
    """Let later contracts of the same parties supersede earlier ones."""
    contract_types: Path | None = None
    """A folder of further contract types: NAME.toml, NAME.txt.j2."""
    stream: bool | None = None
    """Write questions and edges only, in bounded memory; the default above 10,000 contracts."""


class Progress(Protocol):
    """Told how far the writing of rows has come."""

    def __call__(self, done: int, of: int) -> None:
        """`done` of `of` contracts are written."""


def compile_to_folder(
    source: str | Path | Graph,
    folder: Path,
    settings: CompileSettings,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Compile a graph into a folder and give back the manifest.

    A folder that holds just that already is checked and left alone; another data set is replaced only with
    `fresh`.
    """
    drawing, graph = plan(source, seed=settings.seed, temporal=settings.temporal, own_types=settings.contract_types)
    stream = graph.n_edges > STREAM_ABOVE if settings.stream is None else settings.stream
    about = identity(graph, settings.seed, temporal=settings.temporal, stream=stream, types=drawing.used_types)
    with replacing(folder):
        manifest = already_there(folder, about, fresh=fresh)
        if manifest is not None:
            return manifest
        if not stream:
            return write_dataset(compile_planned(drawing, graph), folder)
        return _write_stream(drawing, graph, folder, about, progress)


def _write_stream(
    drawing: Drawing, graph: Graph, folder: Path, about: dict[str, Any], progress: Progress | None
) -> dict[str, Any]:
    """Rows and edges, a chunk at a time."""
    signing = drawing.signing
    entailed = n_entailed(graph, drawing.used_types, signing.parties[: graph.n_edges]).tolist()
    earlier: list[str | None] = [None] * graph.n_edges
    if signing.supersedes is not None:
        replaced = signing.supersedes[: graph.n_edges].tolist()
        earlier = [None if n < 0 else graph.edge_ids(n, n + 1)[0] for n in replaced]
    sizes = [len(type_.spec.attributes) for type_ in drawing.used_types]
    counts = {
        "entities": graph.n_nodes,
        "contracts": graph.n_edges,
        "items": sum(size * int((graph.type_of == t).sum()) for t, size in enumerate(sizes)),
    }
    with new_folder(folder) as partial:
        files = FilesWritten(partial)
        files.write(PISTOL, pistol_text(_rows(drawing, graph, progress)))
        files.write(EDGES, edges_csv(graph, entailed, earlier))
        write_types(files, drawing.used_types)
        about = {**about, "left_out": list(LEFT_OUT), "unknown": [], "counts": counts}
        return files.finish({**about, "connectivity": graph.connectivity_by_type()})


def _rows(drawing: Drawing, graph: Graph, progress: Progress | None) -> Iterator[str]:
    """The question rows of each chunk, in the order of the edges."""
    for start, stop in chunk_bounds(graph.n_edges):
        rows = [""] * (stop - start)
        for sheet, of_contracts in rows_of_chunk(drawing, start, stop):
            for number, text in zip((sheet.edges - start).tolist(), of_contracts, strict=True):
                rows[number] = text
        for first in range(0, len(rows), _PIECE):
            yield ",\n".join(rows[first : first + _PIECE])
        if progress is not None:
            progress(stop, graph.n_edges)
