"""The paper's tables from the files of a study: nothing is asked here, so that the same files give the same bytes.

D_AP are the adjacent prompts and D_LP those of the latent search, after all filters; before is the target and after the
unlearned model, both by fresh answers (2511.00030, Tables 1, 2, 7 and 10). What mending costs and brings are Tables 3
and 4, how far scores vary Table 6.

Tables are Markdown for people and rows of single numbers for programs. A cell of an estimate is value [low, high] with
its 95 % interval. What is not there is said in words, never left as an empty or a zero.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vestige.artifacts.bench import BenchFolder, read_bench
from vestige.artifacts.holes import (
    LATENT_J,
    SETS,
    HoleRow,
    HoleTable,
    MitigationRow,
    MitigationTable,
    Outcome,
    Runs,
    VarianceRow,
    VarianceTable,
    Way,
    read_attempts,
    read_mitigation,
    read_table,
    read_tested,
    read_variance,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder
from vestige.artifacts.records import write_csv
from vestige.core.estimates import Estimate
from vestige.core.files import read_json, read_jsonl, write_text
from vestige.core.text import one_line
from vestige.metrics.agreement import paired_test, student_test, welch_test
from vestige.probes.filters import ADJACENT
from vestige.probes.latent import LATENT
from vestige.probes.variance import by_origin, outcome_of
from vestige.studies.hole_study_settings import TABLES, TARGET, HoleStudyFolder, HoleStudySettings, read_general

COLUMNS = ("row", "set", "measure", "value", "low", "high", "n", "interval")
"""Of every CSV file. `low`, `high` and `interval` are empty for what has no interval, as a count or a p-value."""
MISSING = "not made"
_MARKUP = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~"})


@dataclass(frozen=True)
class Part:
    """One grid of a table: a heading for each column, and rows of as many cells."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables: grids, remarks in sentences, and single numbers by `COLUMNS`."""

    number: int
    title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    numbers: tuple[Mapping[str, Any], ...]


def page(title: str, facts: Sequence[str], tables: Sequence[PaperTable]) -> str:
    """All tables as one page of Markdown; `facts` are what they were made from."""
    return "\n\n".join([f"# {title}", *facts, *(block for table in tables for block in _blocks(table))]) + "\n"


def _blocks(table: PaperTable) -> Iterator[str]:
    yield f"## Table {table.number}: {table.title}"
    for part in table.parts:
        rule = tuple("---" for _ in part.head)
        yield "\n".join(f"| {' | '.join(cells)} |" for cells in (part.head, rule, *part.rows))
    yield from table.notes


def named(text: str) -> str:
    """A name that a person gave, as a cell: one line, in which no mark acts."""
    return one_line(text).translate(_MARKUP)


def cell(estimate: Estimate) -> str:
    """An estimate as a cell."""
    return estimate.said()


def number(row: str, set_: str, estimate: Estimate) -> dict[str, Any]:
    """An estimate as a row of numbers."""
    return {"row": row, "set": set_, "measure": estimate.metric, **{c: getattr(estimate, c) for c in COLUMNS[3:]}}


def bare_number(row: str, set_: str, measure: str, value: float, n: int) -> dict[str, Any]:
    """A number without an interval as a row."""
    empty = {"low": "", "high": "", "interval": ""}
    return {"row": row, "set": set_, "measure": measure, "value": value, "n": n, **empty}


def change_tests(
    before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"], origins: Sequence[str]
) -> dict[str, Outcome]:
    """The t-tests of the same prompts' scores, after minus before.

    In the paired one what was made from one thing counts once; the other two take all prompts for independent.
    """
    return {
        "p, paired t": outcome_of(lambda: paired_test(by_origin(before, origins), by_origin(after, origins))),
        "p, Welch t": outcome_of(lambda: welch_test(before, after)),
        "p, Student t": outcome_of(lambda: student_test(before, after)),
    }


SOURCES = {ADJACENT: "D_AP", LATENT: "D_LP"}
"""The paper's names of the sources."""
_KEPT = "(kept)"


def _mended(
    place: HoleStudyFolder, settings: HoleStudySettings, *, n: int, title: str, ways: Sequence[Way], at: str
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
    sizes = [f"{way}: {', '.join(f'{n} {name}' for name, n in table.sizes.items())}." for way, table in found.items()]
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


_one_shot = partial(_mended, n=3, title="one-shot mitigation", ways=("gd", "kl"), at="step")
"""Table 3 (and 8): an unlearned model tuned on what was found, by its checkpoints."""
_iterative = partial(_mended, n=4, title="iterative mitigation", ways=("iterative",), at="round")
"""Table 4 (and 9): the target unlearned anew with what was found among what is kept, round after round."""


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
        (named(p.first), named(p.second), f"{p.n}", *("none" if x is None else f"{x:.2f}" for x in shown))
        for p in table.pairs
        for shown in [(p.equal, p.within_one, p.spearman)]
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


def _variance_numbers(row: VarianceRow, table: VarianceTable) -> list[dict[str, Any]]:
    name, called = row.judge, SOURCES.get(row.source, row.source)
    found = [number(name, called, row.change)]
    for when, runs in (("before", row.before), ("after", row.after)):
        found.append(bare_number(name, called, f"mean over runs {when}", runs.mean, runs.n_runs))
        if runs.sd is not None:
            found.append(bare_number(name, called, f"SD over runs {when}", runs.sd, runs.n_runs))
    tests = {"p, Student t": row.tests.student, "p, Welch t": row.tests.welch}
    tests |= {"p over models": row.tests.over_models, "p over prompts": row.tests.over_prompts}
    return [*found, *_test_numbers(name, called, tests, row.n_judged)]


def _test_numbers(row: str, set_: str, tests: Mapping[str, Outcome], n: int) -> list[dict[str, Any]]:
    """The p-values that there are, as rows of numbers."""
    return [bare_number(row, set_, measure, test.p, n) for measure, test in tests.items() if test.p is not None]


_EMPTY = "no prompt left"
_SPLIT_WORDS = {"forget": "forget set", "retain": "retained", "factual": "factual"}


def write_tables(place: HoleStudyFolder, settings: HoleStudySettings, tables: Sequence[int]) -> None:
    """Write a CSV for each table, and last the page of all."""
    each: tuple[Callable[[HoleStudyFolder, HoleStudySettings], PaperTable], ...]
    each = (_quality, _diversity, _one_shot, _iterative, variation, _checkpoints, _ablation)
    made = [make(place, settings) for n, make in zip(TABLES, each, strict=True) if n in tables]
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

    def tests(self, source: str) -> dict[str, Outcome]:
        """The t-tests over the prompts that were judged on both sides."""
        judged = [
            t
            for t in read_tested(self.folder)
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
    return n, cell(row.change), *map(_outcome, probe.tests(source).values()), cell(row.holes), rate, beyond


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
    yield from _test_numbers(name, SOURCES[source], probe.tests(source), row.n_judged)


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
    runs = range(1, settings.runs + 1)
    probes = [(label, run, place.checkpoint(label, run)) for label in settings.steps() for run in runs]
    probes += [(whole, 1, place.probe(whole))] if whole else []
    rows, numbers = [], []
    for label, run, folder in probes:
        path, probe = place.general(label), _Probe(folder)
        scores = {score.split: score for score in read_general(path)[1]} if path.exists() else {}
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


def _holes(probe: _Probe, source: str) -> str:
    row = probe.row(source)
    return probe.why_not if row is None else cell(row.holes)


def _ablation(place: HoleStudyFolder, settings: HoleStudySettings) -> PaperTable:
    of = settings.ablation.of if settings.ablation else None
    probes = [("default", place.probe(of))] if of else []
    probes += [(v.name, place.variant(v.name)) for v in settings.variants()]
    rows, numbers = [], []
    for name, folder in probes:
        probe, (n, latent, collapsed) = _Probe(folder), _search(folder)
        (_, _, vendi, ngrams), spread = _spread(name, probe, LATENT)
        tried = f"{len(latent)} of {n} ({len(set(latent))})"
        cells = (tried, _side(probe, LATENT, "after"), _holes(probe, LATENT), vendi, ngrams, collapsed)
        rows.append((named(name), *cells))
        numbers += [bare_number(name, "D_RL", "prompts", len(latent), n), *spread]
        numbers += _row_numbers(name, probe, LATENT)
    head = ("setting", "J = 10 (different)", "D_LP after", "holes in D_LP", "Vendi / n", "1 - avgSelfBLEU", "collapsed")
    title = f"one hyper-parameter of the search at a time, on {named(of)}" if of else "no ablation was asked for"
    notes = (
        "The paper publishes neither the values nor all the names of its six hyper-parameters; these are ours. One "
        "seed each: between two settings lies chance as well.",
    )
    return PaperTable(10, title, (Part(head, tuple(rows)),), notes, tuple(numbers))


def _search(folder: ProbeFolder) -> tuple[int, list[str], str]:
    """How many attempts a search made, the prompts with J = 10, and when the policy collapsed."""
    place = folder.search(LATENT)
    attempts = read_attempts(place)
    iterations = list(read_jsonl(place.iterations)) if place.iterations.exists() else []
    when = next((f"from iteration {row['number']}" for row in iterations if row["collapsed"]), "no")
    return len(attempts), [a.prompt for a in attempts if a.j == LATENT_J], when if attempts else MISSING


def _facts(settings: HoleStudySettings) -> list[str]:
    latent, policy = settings.latent, settings.policy
    judge = f"{settings.judge.kind} judge" + (", told the data's true answers" if settings.judge.truth else "")
    return [
        f"Forgotten: {named(settings.forget)}. Searches of {latent.n_iterations} iterations of {policy.n_rollouts} "
        f"prompts. Judge: {judge}. Seed {settings.seed}. Intervals are 95 %. `study.json` has every setting."
    ]
