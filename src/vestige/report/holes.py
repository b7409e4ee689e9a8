"""A finished search for knowledge holes, read once for its page, its tables and its figure.

Everything is read through `vestige.artifacts`; what models and data sets wrote in it is hostile text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.holes import (
    Hole,
    HoleMap,
    HoleRow,
    HoleTable,
    MitigationTable,
    Tested,
    read_holes,
    read_map,
    read_mitigation,
    read_table,
    read_tested,
)
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.provenance import read_provenance
from vestige.core.errors import InputError

DIGEST_CHARACTERS = 12
"""How much of a digest stands for a model whose name nobody wrote down."""


@dataclass(frozen=True)
class Probe:
    """One search for holes. `models` are names by role; `map` is None in a folder of before there was one.

    `mendings` are what was tried to mend the unlearned model with what was found, by the folder's name.
    """

    name: str
    table: HoleTable
    identity: Mapping[str, Any]
    provenance: Mapping[str, Any]
    tested: tuple[Tested, ...]
    holes: tuple[Hole, ...]
    map: HoleMap | None
    models: Mapping[str, str]
    mendings: tuple[tuple[str, MitigationTable], ...]

    @property
    def asked_anew(self) -> tuple[Tested, ...]:
        """The candidates that no filter dropped."""
        return tuple(t for t in self.tested if not t.dropped)

    def holes_of(self, row: HoleRow) -> int:
        """How many holes one source brought."""
        return sum(hole.source == row.source for hole in self.holes)


def is_probe(folder: ProbeFolder) -> bool:
    """Whether a folder holds a search for holes, finished or not."""
    return any(folder.path.glob("asked-*.json")) or (folder.tested.exists() and folder.holes.exists())


def read_probe(folder: ProbeFolder, labels: Mapping[str, str] | None = None) -> Probe:
    """Read a search. `labels` are names of models by their digests; one that is not finished is refused.

    A model has its name from there, else from the folder's provenance, else it is called by its digest.
    """
    if not folder.summary.exists():
        raise InputError(f"{folder.path} holds no finished search for holes; run `vestige probe filter` there first")
    table, identity = read_table(folder)
    provenance = read_provenance(folder.provenance) if folder.provenance.exists() else {}
    return Probe(
        name=folder.path.resolve().name,
        table=table,
        identity=identity,
        provenance=provenance,
        tested=tuple(read_tested(folder)),
        holes=tuple(read_holes(folder)),
        map=read_map(folder),
        models=_models(identity, provenance, labels or {}),
        mendings=tuple((mended.path.name, read_mitigation(mended)) for mended in folder.mitigations()),
    )


def _models(identity: Mapping[str, Any], provenance: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    placebos = identity.get("placebos", {})
    weights = {role: str(identity[role]) for role in ("target", "unlearned") if role in identity} | dict(placebos)
    names = provenance.get("models", {})
    return {
        role: labels.get(digest) or str(names.get(role, "")) or digest[:DIGEST_CHARACTERS]
        for role, digest in weights.items()
    }
