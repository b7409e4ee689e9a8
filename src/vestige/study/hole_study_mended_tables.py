"""Tables 3, 4 and 6 from the files of a study: what mending costs and brings, and how far scores vary."""

from collections.abc import Mapping, Sequence
from typing import Any

from vestige.artifacts.hole_study import HoleStudyFolder
from vestige.artifacts.holes import (
    SETS,
    MitigationRow,
    MitigationTable,
    Outcome,
    Runs,
    VarianceRow,
    VarianceTable,
    Way,
    read_mitigation,
    read_variance,
)
from vestige.artifacts.layout import MitigationFolder
from vestige.core.files import read_json
from vestige.probes.filters import ADJACENT
from vestige.probes.latent import LATENT
from vestige.study.hole_study_request import HoleStudySettings
from vestige.study.hole_tables import MISSING, PaperTable, Part, bare_number, cell, named, number

SOURCES = {ADJACENT: "D_AP", LATENT: "D_LP"}
"""The paper's names of the sources."""
_KEPT = "(kept)"


def one_shot(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    """Table 3 (and 8): an unlearned model tuned on what was found, by its checkpoints."""
    return _mended(place, settings, 3, "one-shot mitigation", ("gd", "kl"), "step")


def iterative(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    """Table 4 (and 9): the target unlearned anew with what was found among what is kept, round after round."""
    return _mended(place, settings, 4, "iterative mitigation", ("iterative",), "round")


def _mended(
    place: HoleStudyFolder, settings: HoleStudySettings, n: int, title: str, ways: Sequence[Way], at: str
) -> PaperTable:
    asked = settings.mitigation
    if asked is None:
        return PaperTable(n, f"{title} was not asked for", (), (), ())
    found = {way: table for way in ways if (table := _mitigation(place, way)) is not None}
    rows = [(way, row) for way, table in found.items() for row in table.rows]
    metrics = list(dict.fromkeys(metric for _, row in rows for metric in row.forget))
    sets = [name for name in SETS if any(name in row.sets for _, row in rows)]
    head = ("way", "model", at, *(f"forget set, {metric}" for metric in metrics), *sets)
    missing = tuple((way, MISSING, *("" for _ in head[2:])) for way in ways if way not in found)
    sizes = [f"{way}: {_sizes(table.sizes)}." for way, table in found.items()]
    notes = [note for table in found.values() for note in table.notes]
    return PaperTable(
        n,
        f"{title} of {named(asked.of)}",
        (Part(head, (*(_cells(way, row, metrics, sets) for way, row in rows), *missing)),),
        (
            "Quality of answers by set, with the share at the lowest score. Held-out "
            "prompts were not trained on; the others were, where they are named used.",
            *sizes,
            *dict.fromkeys(map(named, notes)),
        ),
        tuple(entry for way, row in rows for entry in _numbers(way, row)),
    )


def _mitigation(place: HoleStudyFolder, way: Way) -> MitigationTable | None:
    if not place.mended(way).exists():
        return None
    table = place.path / read_json(place.mended(way))["table"]
    return read_mitigation(MitigationFolder(table.parent))


def _cells(way: str, row: MitigationRow, metrics: Sequence[str], sets: Sequence[str]) -> tuple[str, ...]:
    forget = [cell(row.forget[m]) if m in row.forget else MISSING for m in metrics]
    scores = [
        f"{cell(s.quality)} ({s.lowest.value:.1%}), n = {s.n_judged}" if (s := row.sets.get(name)) else "none"
        for name in sets
    ]
    at = f"{row.at} {_KEPT}" if row.kept else f"{row.at}"
    return way, named(row.arm), at, *forget, *scores


def _numbers(way: str, row: MitigationRow) -> list[dict[str, Any]]:
    name = f"{way}: {row.arm} {row.at}"
    found = [number(name, "forget", estimate) for estimate in row.forget.values()]
    for set_, score in row.sets.items():
        found += [number(name, set_, score.quality), number(name, set_, score.lowest)]
    return found


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in sizes.items())


def variation(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    """Table 6: the same prompts answered by several models, several times, and graded by several judges."""
    asked = settings.variance
    if asked is None:
        return PaperTable(6, "repeated measurements were not asked for", (), (), ())
    folder = place.probe(asked.of).variance
    title = f"{named(asked.of)} over seeds, generations and judges"
    if not folder.summary.exists():
        return PaperTable(6, title, (), (f"{MISSING}.",), ())
    table, _ = read_variance(folder)
    head = ("prompts", "judge", "n", "before", "after", "change", "p Student", "p Welch", "p models", "p prompts")
    pairs = [
        (named(p.first), named(p.second), f"{p.n}", f"{p.equal:.2f}", f"{p.within_one:.2f}", _or_none(p.spearman))
        for p in table.pairs
    ]
    agreement = Part(("judge", "judge", "answers", "equal", "within one", "Spearman"), tuple(pairs))
    return PaperTable(
        6,
        title,
        (Part(head, tuple(_variance_cells(row) for row in table.rows)), *((agreement,) if pairs else ())),
        (
            f"{len(table.models)} unlearned models ({', '.join(map(named, table.models))}) and the target answered "
            f"each prompt {table.generations} times. Means and SD are over runs, in brackets the share at the lowest "
            "score. The first two tests are the paper's, over runs; generations of one model are not independent, so "
            "those over models and over prompts stand beside them.",
        ),
        tuple(entry for row in table.rows for entry in _variance_numbers(row, table)),
    )


def _variance_cells(row: VarianceRow) -> tuple[str, ...]:
    n = f"{row.n_judged}" if row.n == row.n_judged else f"{row.n_judged} of {row.n}"
    tests = (row.tests.student, row.tests.welch, row.tests.over_models, row.tests.over_prompts)
    called = SOURCES.get(row.source, named(row.source))
    sides = _runs(row.before), _runs(row.after)
    return called, named(row.judge), n, *sides, cell(row.change), *map(_outcome, tests)


def _runs(runs: Runs) -> str:
    spread = "" if runs.sd is None else f" ± {runs.sd:.2f}"
    return f"{runs.mean:.2f}{spread} ({runs.lowest:.1%}), {runs.n_runs} runs"


def _outcome(test: Outcome) -> str:
    if test.p is None:
        return f"none: {named(test.why_not)}"
    return "< 0.0001" if test.p < 1e-4 else f"{test.p:.4f}"


def _or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _variance_numbers(row: VarianceRow, table: VarianceTable) -> list[dict[str, Any]]:
    name, called = row.judge, SOURCES.get(row.source, row.source)
    found = [number(name, called, row.change)]
    for when, runs in (("before", row.before), ("after", row.after)):
        found.append(bare_number(name, called, f"mean over runs {when}", runs.mean, runs.n_runs))
        if runs.sd is not None:
            found.append(bare_number(name, called, f"SD over runs {when}", runs.sd, runs.n_runs))
    tests = {"p, Student t": row.tests.student, "p, Welch t": row.tests.welch}
    tests |= {"p over models": row.tests.over_models, "p over prompts": row.tests.over_prompts}
    return [*found, *(bare_number(name, called, m, t.p, row.n_judged) for m, t in tests.items() if t.p is not None)]
