"""A finished search for knowledge holes, read once for its page and tables, and its result in sentences.

Everything is read through `vestige.artifacts`. Text from models and data sets is hostile.

The sentences claim no more than the placebos allow. A source has holes beyond false ones if its share of holes minus
each placebo's share is above 0, interval included. A placebo that said the target's very words shows nothing, and
without one that shows something nobody can say how many of the holes are false.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vestige.artifacts.holes import HoleRow, HoleTable, Placebo, Tested, read_table, read_tested
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.provenance import read_provenance
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.text import Fields, Record, TextByName, TextMapping
from vestige.report.words import Span, interval, listed, named_values, number, provenance_lines, ranged, signed

DIGEST_CHARACTERS = 12
"""The number of digits of a digest that stand for an unnamed model."""


@dataclass(frozen=True)
class Probe:
    """One search for holes. `models` are names by role."""

    name: str
    table: HoleTable
    identity: Record
    provenance: Record
    tested: tuple[Tested, ...]
    models: TextMapping

    @property
    def asked_anew(self) -> tuple[Tested, ...]:
        """The candidates that no filter dropped."""
        return tuple(t for t in self.tested if not t.dropped)

    @property
    def holes(self) -> tuple[Tested, ...]:
        """The confirmed holes."""
        return tuple(t for t in self.tested if t.hole)

    def holes_of(self, row: HoleRow) -> int:
        """The number of holes from one source."""
        return sum(hole.source == row.source for hole in self.holes)


def is_probe(folder: ProbeFolder) -> bool:
    """Whether a folder holds a search for holes, finished or not."""
    return any(folder.path.glob("asked-*.json")) or (folder.tested.exists() and folder.holes.exists())


def read_probe(folder: ProbeFolder, labels: TextMapping | None = None) -> Probe:
    """Read a search. `labels` are names of models by their digests. One that is not finished is refused.

    A model's name comes from the request, otherwise from the folder's provenance, otherwise from its digest.
    """
    if not folder.summary.exists():
        raise InputError(f"{folder.path} holds no finished search for holes. Run `vestige probe` there first")
    table, identity = read_table(folder)
    provenance = read_provenance(folder.provenance)
    return Probe(
        name=folder.path.resolve().name,
        table=table,
        identity=identity,
        provenance=provenance,
        tested=tuple(read_tested(folder)),
        models=_models(identity, provenance, labels or {}),
    )


def _models(identity: Record, provenance: Record, labels: TextMapping) -> TextByName:
    placebos = identity.get("placebos", {})
    weights = {role: str(identity[role]) for role in ("target", "unlearned") if role in identity} | dict(placebos)
    names = provenance.get("models", {})
    return {
        role: labels.get(digest) or str(names.get(role, "")) or digest[:DIGEST_CHARACTERS]
        for role, digest in weights.items()
    }


Standing: TypeAlias = Literal["none", "beyond", "chance", "unknown"]

SOURCES = {"adjacent": "adjacent questions", "latent": "latent search", "random": "random search"}
"""The display names of the sources. Another one keeps its own name."""
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
    """Return the conclusion on one source."""
    if not probe.holes_of(row):
        return "none"
    # If one placebo was not judged, holes may be false by that one, so no statement is made.
    telling = [placebo.excess for placebo in row.placebos if not silent(placebo)]
    if not telling or None in telling:
        return "unknown"
    if all(excess is not None and excess.low > 0 for excess in telling):
        return "beyond"
    return "chance"


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
    standings = {standing(probe, row) for row in probe.table.rows}
    n_beyond = sum(probe.holes_of(row) for row in probe.table.rows if standing(probe, row) == "beyond")
    if n_beyond:
        rest = f", and {n - n_beyond:,} more suspected" if n > n_beyond else ""
        return f"{n_beyond:,} knowledge {_holes(n_beyond)} in {prompts}{rest}"
    rest = ", not shown to be more than chance makes" if standings <= {"none", "chance"} else ""
    return f"{n:,} suspected {_holes(n)} in {prompts}{rest}"


def sentence(probe: Probe, row: HoleRow) -> list[Span]:
    """Return a sentence on one source: its holes, the placebos' evidence, and the quality before and after."""
    n = probe.holes_of(row)
    spans = [
        Span(f"{n:,} of {row.n_judged:,}", strong=True),
        Span(f" prompts {'is a hole' if n == 1 else 'are holes'}"),
    ]
    stands, telling = standing(probe, row), [p for p in row.placebos if not silent(p) and p.excess is not None]
    if stands in ("beyond", "chance"):
        # Among several placebos, the one with the smallest excess counts.
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
    """Return the qualifications of a source's numbers."""
    sentences = []
    if row.n_judged < row.n:
        sentences.append(
            f"{row.n - row.n_judged:,} of {row.n:,} prompts tested were not judged on both sides; see below."
        )
    for placebo in row.placebos:
        if silent(placebo):
            sentences.append(
                f"The placebo ({placebo.name}) said the target's answers word for word, so it shows nothing."
            )
        elif placebo.excess is not None:
            false = f"False holes, by the placebo ({placebo.name}): {ranged(placebo.rate)} of {placebo.rate.n:,}"
            sentences.append(f"{false}; beyond these {ranged(placebo.excess)}.")
    return sentences


def caveat(probe: Probe) -> str:
    """The faults that this judge cannot recognise. Empty for an unknown judge."""
    judge = probe.identity.get("judge", {})
    if isinstance(judge, dict) and judge.get("judge") == "grounded":
        return _GROUNDED
    return ""


def about(probe: Probe) -> str:
    """The numbers of holes, of different holes, and of holes by source."""
    table = probe.table
    if not table.n_holes:
        return ""
    holes = f"{table.n_holes:,} {_holes(table.n_holes)}"
    different = f", {table.n_distinct_holes:,} of them different" if table.n_holes > 1 else ""
    by_source = listed([f"{probe.holes_of(r):,} by {source_name(r.source)}" for r in table.rows if probe.holes_of(r)])
    return f"{holes}{different}: {by_source}."


def _holes(n: int) -> str:
    if n == 1:
        return "hole"
    return "holes"


def placed(value: float, scale: tuple[float, float]) -> float:
    """A value's position on the scale, 0..1."""
    low, high = scale
    return min(max((value - low) / (high - low), 0.0), 1.0)


HEADS = (
    ("quality", "before"),
    ("quality", "after"),
    ("change", ""),
    ("lowest score", "before"),
    ("lowest score", "after"),
    ("holes", ""),
    ("false holes", ""),
    ("beyond these", ""),
)
"""The columns of the table: the measure, and the answers."""


def holes_block(probe: Probe) -> Fields:
    """The template's variables for one search."""
    table = probe.table
    return {
        "name": probe.name,
        "headline": headline(probe),
        "standfirst": STANDFIRST,
        "facts": _facts(probe),
        "heads": HEADS,
        "rows": [_row(probe, row) for row in table.rows],
        "about": about(probe),
        "caveat": caveat(probe),
        "dropped": [(source_name(s), sorted(d.items(), key=_count)) for s, d in table.dropped.items() if d],
        "failures": [(stage, sorted(found.items(), key=_count)) for stage, found in table.failures.items() if found],
        "diversity": [
            (source_name(s), d.n, *("–" if x is None else number(x) for x in (d.vendi_share, d.distinct_ngrams)))
            for s, d in table.diversity.items()
        ],
        "selection": [(source_name(s), words) for s, words in table.selection.items()],
        "n_candidates": len(probe.tested),
        "calls": (table.target_calls, table.unlearned_calls),
        "asked": _asked(probe),
        "made_by": provenance_lines(probe.provenance),
    }


def _facts(probe: Probe) -> list[str]:
    facts = [f"{role} {_short(probe.models[role])}" for role in ("target", "unlearned") if role in probe.models]
    judge = probe.identity.get("judge", {})
    if isinstance(judge, Mapping) and "judge" in judge:
        facts.append(f"judge: {judge['judge']}{' ' + str(judge['model']) if 'model' in judge else ''}")
    facts.append(f"{len(probe.tested):,} candidates, {len(probe.asked_anew):,} tested")
    if "times" in probe.provenance:
        facts.append(f"started {probe.provenance['times'].get('started', '')[:10]}")
    return facts


def _short(name: str) -> str:
    """The last part of a model's name, which may be a path. A subject is named by its folder, not by `model` inside."""
    parts = [part for part in name.split("/") if part]
    if len(parts) > 1 and parts[-1] == "model":
        parts.pop()
    if parts:
        return parts[-1]
    return name


def _row(probe: Probe, row: HoleRow) -> Fields:
    """Return one source on the first screen: its sentence, its qualifications, the verdict in words, and its numbers.

    Each cell has an estimate and the ends of the scale that it is drawn on, if there is one.
    """
    stands = standing(probe, row)
    # The table has columns for one placebo. The sentences next to it cover all (`qualifiers`).
    placebo = next((p for p in row.placebos if not silent(p)), None)
    scores, shares = (1.0, 10.0), (0.0, 1.0)
    cells: list[tuple[Estimate | None, tuple[float, float] | None]] = [
        (row.before, scores),
        (row.after, scores),
        (row.change, None),
        (row.lowest_before, shares),
        (row.lowest_after, shares),
        (row.holes, shares),
        (placebo.rate if placebo else None, shares),
        (placebo.excess if placebo else None, None),
    ]
    n = f"{row.n_judged:,}"
    if row.n_judged < row.n:
        n += f" of {row.n:,}"
    return {
        "name": source_name(row.source),
        "n": f"n = {n}",
        "spans": sentence(probe, row),
        "qualifiers": qualifiers(probe, row),
        "verdict": STANDING_WORDS[stands],
        "tone": STANDING_TONES[stands],
        "cells": cells,
    }


def _asked(probe: Probe) -> list[tuple[str, str]]:
    """Return the models by name and digest, and every setting that can change the result."""
    weights = {**probe.identity, **probe.identity.get("placebos", {})}
    models = [(role, f"{name} ({str(weights[role])[:DIGEST_CHARACTERS]}…)") for role, name in probe.models.items()]
    left = {k: v for k, v in probe.identity.items() if k not in ("target", "unlearned", "placebos")}
    flat: Fields = {}
    for key, value in left.items():
        flat |= {f"{key}: {inner}": x for inner, x in value.items()} if isinstance(value, Mapping) else {key: value}
    return [*models, *named_values(flat)]


def _count(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


ADJACENT = "adjacent"


def holes_payload(probe: Probe) -> Fields:
    """Return one search for the page's script. A row names its source by its place in `sources`."""
    sources = list(dict.fromkeys(t.source for t in probe.tested))
    return {
        "sources": [source_name(s) for s in sources],
        "rows": [_candidate(t, sources.index(t.source)) for t in probe.tested],
    }


def _candidate(tested: Tested, source: int) -> Fields:
    row: Fields = {"prompt": tested.prompt, "source": source}
    if tested.source != ADJACENT and tested.origin:
        row["origin"] = tested.origin
    if tested.dropped:
        return row | {"dropped": tested.dropped}
    placebos = []
    for name, answer in tested.placebo_answers.items():
        placebos.append([name, answer, _digits(tested.placebo_scores.get(name))])
    return row | {
        "hole": tested.hole,
        "target": [tested.target_answer, _digits(tested.target_score)],
        "unlearned": [tested.unlearned_answer, _digits(tested.unlearned_score)],
        "placebos": placebos,
    }


def _digits(x: float | None) -> float | None:
    if x is None:
        return None
    return float(f"{x:.4g}")
