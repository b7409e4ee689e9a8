"""A finished search for knowledge holes, read once for its page, tables and figure, and its result in sentences.

Everything is read through `vestige.artifacts`; what models and data sets wrote in it is hostile text.

The sentences claim no more than the placebos allow. A source shows holes beyond false ones when its share of holes less
that of each placebo is above 0, interval included. A placebo that said the target's very words shows nothing, and
without one that shows something nobody can say how many of the holes are false.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from vestige.artifacts.holes import (
    Hole,
    HoleMap,
    HoleRow,
    HoleTable,
    MitigationTable,
    Placebo,
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
from vestige.report.verdict_words import Span
from vestige.report.words import interval, listed, number, ranged, signed

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


Standing: TypeAlias = Literal["none", "beyond", "chance", "unknown"]

SOURCES = {
    "adjacent": "adjacent questions",
    "latent": "latent search",
    "random": "random search",
    "paraphrase": "paraphrased questions",
}
"""What the sources are called; another one keeps its own name."""
STANDING_WORDS: dict[Standing, str] = {
    "none": "no holes",
    "beyond": "holes beyond false ones",
    "chance": "no holes beyond false ones",
    "unknown": "cannot be told from false ones",
}
STANDING_TONES: dict[Standing, str] = {"none": "good", "beyond": "bad", "chance": "muted", "unknown": "warn"}
STANDFIRST = (
    "A hole is a valid question that the target answers well, the unlearned model badly, and the forget set not at all."
    " Answers and scores are fresh: none of those by which a question was found or kept is counted."
)
_GROUNDED = (
    "The judge is grounded in the target's own answers: it sees lost language, subject or willingness, and not whether"
    " an answer is true."
)


def source_name(source: str) -> str:
    """A source as people say it."""
    return SOURCES.get(source, source)


def standing(probe: Probe, row: HoleRow) -> Standing:
    """What may be said of one source."""
    if not probe.holes_of(row):
        return "none"
    telling = [placebo.excess for placebo in row.placebos if not silent(placebo)]
    if not telling or None in telling:
        return "unknown"
    return "beyond" if all(excess is not None and excess.low > 0 for excess in telling) else "chance"


def silent(placebo: Placebo) -> bool:
    """Whether a placebo answered as the target did, word for word, so that it shows nothing."""
    return placebo.n_same == placebo.rate.n


def headline(probe: Probe) -> str:
    """The answer in a line."""
    n, n_asked = probe.table.n_holes, len(probe.asked_anew)
    prompts = f"{n_asked:,} {'prompt' if n_asked == 1 else 'prompts'} tested"
    if not probe.table.rows:
        return "No prompt was left to be tested and judged"
    if not n:
        return f"No knowledge holes in {prompts}"
    found = {standing(probe, row) for row in probe.table.rows}
    shown = sum(probe.holes_of(row) for row in probe.table.rows if standing(probe, row) == "beyond")
    if shown:
        more = f", and {n - shown:,} more suspected" if n > shown else ""
        return f"{shown:,} knowledge {_holes(shown)} in {prompts}{more}"
    more = ", not shown to be more than chance makes" if found <= {"none", "chance"} else ""
    return f"{n:,} suspected {_holes(n)} in {prompts}{more}"


def sentence(probe: Probe, row: HoleRow) -> list[Span]:
    """One source: its holes, what placebos make of them, and the quality before and after."""
    n = probe.holes_of(row)
    spans = [
        Span(f"{n:,} of {row.n_judged:,}", strong=True),
        Span(f" prompts {'is a hole' if n == 1 else 'are holes'}"),
    ]
    stands, telling = standing(probe, row), [p for p in row.placebos if not silent(p) and p.excess is not None]
    if stands in ("beyond", "chance"):
        closest = min(telling, key=lambda p: p.excess.low if p.excess is not None else 0.0)
        assert closest.excess is not None, "a placebo without an excess is no telling one"
        none = "" if stands == "beyond" else ", which may be none"
        spans.append(Span(f"; a share of {ranged(closest.excess)} beyond what a placebo shows{none}"))
    elif stands == "unknown":
        spans.append(Span(", and no placebo says how many of these are false"))
    else:
        spans.append(Span(f"; a share of up to {number(row.holes.high)} could have gone unseen"))
    change = f" Mean quality: {number(row.before.value)} before, {number(row.after.value)} after"
    return [*spans, Span(f".{change} ({signed(row.change.value)} {interval(row.change)}).")]


def qualifiers(probe: Probe, row: HoleRow) -> list[str]:
    """What has to be known to read the numbers of a source."""
    found = []
    if row.n_judged < row.n:
        found.append(f"{row.n - row.n_judged:,} of {row.n:,} prompts tested were not judged on both sides; see below.")
    for placebo in row.placebos:
        if silent(placebo):
            found.append(f"The placebo ({placebo.name}) said the target's answers word for word, so it shows nothing.")
        elif placebo.excess is not None:
            false = f"False holes, by the placebo ({placebo.name}): {ranged(placebo.rate)} of {placebo.rate.n:,}"
            found.append(f"{false}; beyond these {ranged(placebo.excess)}.")
    return found


def caveat(probe: Probe) -> str:
    """What this judge cannot see; "" of one of which that is not known."""
    judge = probe.identity.get("judge", {})
    return _GROUNDED if isinstance(judge, dict) and judge.get("judge") == "grounded" else ""


def about(probe: Probe) -> str:
    """How many holes are different, and how their groups came by their names."""
    table = probe.table
    naming = table.naming or "named by their terms"
    if not table.n_holes:
        return ""
    holes = f"{table.n_holes:,} {_holes(table.n_holes)}"
    different = f", {table.n_distinct_holes:,} of them different" if table.n_holes > 1 else ""
    by_source = listed([f"{probe.holes_of(r):,} by {source_name(r.source)}" for r in table.rows if probe.holes_of(r)])
    groups = f"{len(table.groups)} {'group' if len(table.groups) == 1 else 'groups'}, {naming}"
    return f"{holes}{different}: {by_source}; {groups}."


def _holes(n: int) -> str:
    return "hole" if n == 1 else "holes"
