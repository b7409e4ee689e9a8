"""The contracts of a run: their ids and the names of their parties."""

import csv
import io
from dataclasses import dataclass

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.core.files import open_input, read_json
from vestige.core.ids import file_digest


@dataclass(frozen=True)
class NamedEdge:
    """A contract. `name` has both parties as in the data, such as `Gokpda Inc and Oradfa Corp`, `names` each party.

    Names that the data do not have are empty.
    """

    id: str
    name: str = ""
    names: tuple[str, str] = ("", "")


def read_edges(run: RunFolder) -> tuple[NamedEdge, ...]:
    """The run's contracts, from the compiler's table with the columns edge, first and second. None without a table."""
    path = run.edges
    if not path.exists():
        return ()
    _check_compiled(run)
    names = _party_names(run)
    edges = []
    with io.TextIOWrapper(open_input(path), encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                first, second = row["first"], row["second"]
                if not (row["edge"] and first and second):
                    raise ValueError("an edge without an id or a party")
                parties = names.get(first, ""), names.get(second, "")
                # A name needs both parties: half of one would read as another contract.
                name = " and ".join(parties) if all(parties) else ""
                edges.append(NamedEdge(row["edge"], name, parties))
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise InputError(
                f"{path}, line {reader.line_num}: no row of the compiler's table ({error}). Compile the data again"
            ) from error
    return tuple(edges)


def _check_compiled(run: RunFolder) -> None:
    """Refuse a table of edges or a graph that was changed after it was compiled."""
    manifest = run.data / "manifest.json"
    stored = read_json(manifest) if manifest.exists() else {}
    files = stored.get("files") if isinstance(stored, dict) else None
    for path in (run.edges, run.graph):
        noted = files.get(path.name) if isinstance(files, dict) else None
        if isinstance(noted, dict) and path.exists() and file_digest(path) != noted.get("sha256"):
            raise InputError(f"{path} was changed after it was compiled. Compile the data again.")


def _party_names(run: RunFolder) -> dict[str, str]:
    """Return the parties' names by id, as far as the data set's graph has names."""
    if not run.graph.exists():
        return {}
    graph = read_json(run.graph)
    try:
        return {node["id"]: node["name"] for node in graph["nodes"] if isinstance(node.get("name"), str)}
    except (TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{run.graph}: no graph with nodes. Compile the data again") from error
