"""The paper's tables from the files of a study: nothing is asked here, so that the same files give the same bytes.

D_AP are the adjacent prompts and D_LP those of the latent search, after all filters; before is the target and after the
unlearned model, both by fresh answers (2511.00030, Tables 1, 2, 7 and 10).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vestige.artifacts.bench import BenchFolder, read_bench
from vestige.artifacts.hole_study import GeneralScore, HoleStudyFolder, read_general
from vestige.artifacts.holes import LATENT_J, HoleRow, HoleTable, Tested, read_attempts, read_table
from vestige.artifacts.layout import ProbeFolder
from vestige.artifacts.records import read_rows, write_csv
from vestige.core.estimates import Estimate
from vestige.core.files import read_jsonl, write_text
from vestige.probes.latent import LATENT
from vestige.study.hole_study_mended_tables import SOURCES, iterative, one_shot, variation
from vestige.study.hole_study_request import TARGET, HoleStudySettings
from vestige.study.hole_tables import (
    COLUMNS,
    MISSING,
    ChangeTests,
    PaperTable,
    Part,
    bare_number,
    cell,
    change_tests,
    named,
    number,
    page,
)

_EMPTY = "no prompt left"
_SPLIT_WORDS = {"forget": "forget set", "retain": "retained", "factual": "factual"}


def write_tables(place: HoleStudyFolder, settings: HoleStudySettings, tables: Sequence[int]) -> None:
    """Write a CSV for each table, and last the page of all."""
    makers = {1: _quality, 2: _diversity, 3: one_shot, 4: iterative, 6: variation, 7: _checkpoints, 10: _ablation}
    made = [makers[n](place, settings) for n in tables]
    for table in made:
        write_csv(place.table(table.number), COLUMNS, (dict(row) for row in table.numbers))
    write_text(place.page, page("Tables of knowledge holes", _facts(settings), made))


@dataclass(frozen=True)
class _Probe:
    """One probe's files, as far as they are there."""

    folder: ProbeFolder

    @cached_property
    def table(self) -> HoleTable | None:
        return read_table(self.folder)[0] if self.folder.summary.exists() else None

    def row(self, source: str) -> HoleRow | None:
        return next((r for r in self.table.rows if r.source == source), None) if self.table else None

    @property
    def why_not(self) -> str:
        """Why there is no row of a source."""
        return _EMPTY if self.table else MISSING

    def tests(self, source: str) -> ChangeTests:
        """The t-tests over the prompts that were judged on both sides."""
        judged = [
            t
            for t in read_rows(self.folder.tested, Tested)
            if t.source == source and t.target_score is not None and t.unlearned_score is not None
        ]
        before = np.array([t.target_score for t in judged], dtype=float)
        after = np.array([t.unlearned_score for t in judged], dtype=float)
        return change_tests(before, after, [t.origin or t.id for t in judged])


def _quality(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    names = (TARGET, *settings.unlearned)
    benchmarks = {name: _benchmarks(place, settings, name) for name in names}
    columns = list(dict.fromkeys(column for found in benchmarks.values() for column in found))
    rows, tests = [], []
    numbers = [number(name, column, e) for name, found in benchmarks.items() for column, e in found.items()]
    for name in settings.unlearned:
        probe = _Probe(place.probe(name))
        for when, own in (("before", TARGET), ("after", name)):
            cells = [_side(probe, source, when) for source in SOURCES]
            cells += [cell(benchmarks[own][c]) if c in benchmarks[own] else MISSING for c in columns]
            rows.append((named(name) if when == "before" else "", when, *cells))
        for source in SOURCES:
            tests.append((named(name), SOURCES[source], *_change(probe, source)))
            numbers += _row_numbers(name, probe, source)
    return PaperTable(
        1,
        "quality before and after unlearning",
        (Part(("model", "", *SOURCES.values(), *map(named, columns)), tuple(rows)), Part(_TEST_HEAD, tuple(tests))),
        (
            "Quality is the judge's mean, 1 to 10; in brackets behind it the share at the lowest score. ROUGE-1 recall "
            "is of greedy answers to the data's own questions, beside which benchmarks stand where there are any.",
            "p-values are of t-tests over prompts. The paired one counts what was made from one thing once, and the "
            "intervals allow for it; Welch's and Student's take all prompts, and both sides, for independent. "
            "False holes are those of the target asked at another seed.",
        ),
        tuple(numbers),
    )


def _benchmarks(place: HoleStudyFolder, settings: HoleStudySettings, name: str) -> dict[str, Estimate]:
    """What one model scores beside the holes, by column; of `vestige bench` what is of the same model."""
    path = place.general(name)
    if not path.exists():
        return {}
    digest, scores = read_general(path)
    found = {f"{_SPLIT_WORDS[score.split]}, ROUGE-1": score.estimate for score in scores}
    if settings.bench is None:
        return found
    results = read_bench(BenchFolder(Path(settings.bench)))
    return found | {f"{r.task}, {r.metric}": r.value for r in results if r.digest == digest and not r.part_of}


_TEST_HEAD = ("model", "prompts", "n", "change", "p paired", "p Welch", "p Student", "holes", "false holes", "beyond")


def _side(probe: _Probe, source: str, when: str) -> str:
    row = probe.row(source)
    if row is None:
        return probe.why_not
    score, lowest = (row.before, row.lowest_before) if when == "before" else (row.after, row.lowest_after)
    return f"{cell(score)} ({lowest.value:.1%}), n = {row.n_judged}"


def _change(probe: _Probe, source: str) -> tuple[str, ...]:
    row = probe.row(source)
    if row is None:
        return (probe.why_not, *("" for _ in range(7)))
    false = next(iter(row.placebos), None)
    rate = cell(false.rate) if false else MISSING
    beyond = cell(false.excess) if false and false.excess else MISSING
    n = f"{row.n_judged}" if row.n == row.n_judged else f"{row.n_judged} of {row.n}"
    return n, cell(row.change), *probe.tests(source).cells(), cell(row.holes), rate, beyond


def _row_numbers(name: str, probe: _Probe, source: str) -> Iterator[dict[str, Any]]:
    row = probe.row(source)
    if row is None:
        return
    for estimate in (row.before, row.after, row.change, row.lowest_before, row.lowest_after, row.holes):
        yield number(name, SOURCES[source], estimate)
    for placebo in row.placebos:
        yield number(name, SOURCES[source], placebo.rate)
        if placebo.excess:
            yield number(name, SOURCES[source], placebo.excess)
    yield from probe.tests(source).numbers(name, SOURCES[source], row.n_judged)


def _diversity(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    rows, numbers = [], []
    for name in settings.unlearned:
        probe = _Probe(place.probe(name))
        for source, called in SOURCES.items():
            cells, own = _spread(name, probe, source)
            rows.append((named(name), called, *cells))
            numbers += own
    return PaperTable(
        2,
        "diversity of the prompts",
        (Part(("model", "prompts", "n", "Vendi", "Vendi / n", "1 - avgSelfBLEU"), tuple(rows)),),
        ("Both measures fall as a set grows, Vendi / n above all: compare sets of like n.",),
        tuple(numbers),
    )


def _spread(name: str, probe: _Probe, source: str) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """n, Vendi, Vendi / n and 1 - avgSelfBLEU as cells and as numbers."""
    found = probe.table.diversity.get(source) if probe.table else None
    if found is None:
        return (probe.why_not, "", "", ""), []
    vendi = found.vendi_share * found.n
    ngrams = "one prompt" if found.distinct_ngrams is None else f"{found.distinct_ngrams:.3f}"
    numbers = [bare_number(name, SOURCES[source], "Vendi / n", found.vendi_share, found.n)]
    if found.distinct_ngrams is not None:
        numbers.append(bare_number(name, SOURCES[source], "1 - avgSelfBLEU", found.distinct_ngrams, found.n))
    return (f"{found.n}", f"{vendi:.2f}", f"{found.vendi_share:.3f}", ngrams), numbers


def _checkpoints(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    whole = settings.making.checkpoints_of if settings.making else None
    probes = [(label, run, place.checkpoint(label, run)) for label in settings.steps() for run in _runs(settings)]
    probes += [(whole, 1, place.probe(whole))] if whole else []
    rows, numbers = [], []
    for label, run, folder in probes:
        probe, scores = _Probe(folder), _general(place, label)
        forgot = cell(scores["forget"].estimate) if "forget" in scores else MISSING
        kept = cell(scores["retain"].estimate) if "retain" in scores else MISSING
        sides = [_side(probe, source, "after") for source in SOURCES]
        rows.append((named(label), f"{run}", forgot, kept, *sides, _holes(probe, LATENT)))
        if run == 1:
            numbers += [number(label, n, score.estimate) for n, score in scores.items()]
        for source in SOURCES:
            numbers += _row_numbers(f"{label}, run {run}", probe, source)
    head = (
        "checkpoint",
        "run",
        "forget set, ROUGE-1",
        "retained, ROUGE-1",
        "D_AP after",
        "D_LP after",
        "holes in D_LP",
    )
    notes = ("Each checkpoint is searched anew. The last row is the whole training.",) if whole else ()
    return PaperTable(7, "checkpoints of one training", (Part(head, tuple(rows)),), notes, tuple(numbers))


def _runs(settings: HoleStudySettings) -> range:
    return range(1, settings.runs + 1)


def _holes(probe: _Probe, source: str) -> str:
    row = probe.row(source)
    return probe.why_not if row is None else cell(row.holes)


def _ablation(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    of = settings.ablation.of if settings.ablation else None
    probes = [("default", place.probe(of))] if of else []
    probes += [(v.name, place.variant(v.name)) for v in settings.variants()]
    rows, numbers = [], []
    for name, folder in probes:
        probe, found = _Probe(folder), _search(folder)
        (_, _, vendi, ngrams), spread = _spread(name, probe, LATENT)
        tried = f"{found.n_latent} of {found.n} ({found.n_distinct})"
        cells = (tried, _side(probe, LATENT, "after"), _holes(probe, LATENT), vendi, ngrams, found.collapsed)
        rows.append((named(name), *cells))
        numbers += [bare_number(name, "D_RL", "prompts", found.n_latent, found.n), *spread]
        numbers += _row_numbers(name, probe, LATENT)
    head = ("setting", "J = 10 (different)", "D_LP after", "holes in D_LP", "Vendi / n", "1 - avgSelfBLEU", "collapsed")
    title = f"one hyper-parameter of the search at a time, on {named(of)}" if of else "no ablation was asked for"
    notes = (
        "The paper publishes neither the values nor all the names of its six hyper-parameters; these are ours. One "
        "seed each: between two settings lies chance as well.",
    )
    return PaperTable(10, title, (Part(head, tuple(rows)),), notes, tuple(numbers))


@dataclass(frozen=True)
class _Search:
    """What a search brought: attempts, those with J = 10, the different ones, and when the policy collapsed."""

    n: int
    n_latent: int
    n_distinct: int
    collapsed: str


def _search(folder: ProbeFolder) -> _Search:
    place = folder.search(LATENT)
    attempts = read_attempts(place)
    found = [a.prompt for a in attempts if a.j == LATENT_J]
    iterations = list(read_jsonl(place.iterations)) if place.iterations.exists() else []
    when = next((f"from iteration {row['number']}" for row in iterations if row["collapsed"]), "no")
    return _Search(len(attempts), len(found), len(set(found)), when if attempts else MISSING)


def _general(place: HoleStudyFolder, name: str) -> dict[str, GeneralScore]:
    path = place.general(name)
    return {score.split: score for score in read_general(path)[1]} if path.exists() else {}


def _facts(settings: HoleStudySettings) -> list[str]:
    latent, policy = settings.latent, settings.policy
    judge = f"{settings.judge.kind} judge" + (", told the data's true answers" if settings.judge.truth else "")
    return [
        f"Forgotten: {named(settings.forget)}. Searches of {latent.n_iterations} iterations of {policy.n_rollouts} "
        f"prompts. Judge: {judge}. Seed {settings.seed}. Intervals are 95 %. `study.json` has every setting."
    ]
