"""The Knowledge Holes paper's tables (2511.00030) from the cells of a study: the same files give the same bytes.

D_AP are the adjacent prompts and D_LP those of the latent search, after all filters; before is the target and after the
unlearned model, both by fresh answers. The numbers are the paper's: 1 quality, 2 diversity, 3 and 8 one-shot mending,
4 and 9 iterative mending, 5 hyper-parameters, 6 repeated measurements, 7 checkpoints, 10 ablation, 11 to 14 prompts, 15
criteria, 16 to 20 holes with both answers.

Figure 3 is of the checkpoints of one training.

Numbers come first (`HoleTables.numbers`, the rows of holes.csv), and tables are pivots of them: a row for each model
and set of prompts, a column for each measure. What is not there is said in words, never left as an empty or a zero.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import ttest_1samp, ttest_ind

from vestige.artifacts.holes import (
    LATENT_J,
    Diversity,
    HoleRow,
    HoleTable,
    RepeatedScore,
    estimates_of,
    numbers_of,
    read_attempts,
    read_holes,
    read_mitigation,
    read_table,
    read_tested,
)
from vestige.artifacts.layout import MitigationFolder, ProbeFolder, SubjectFolder
from vestige.artifacts.records import read_spec
from vestige.core.estimates import Estimate
from vestige.core.files import read_json, read_jsonl
from vestige.core.ids import slug
from vestige.core.store import read_rows
from vestige.core.text import one_line
from vestige.probes.filters import ADJACENT
from vestige.probes.hole_table import CHANGE, SCALE, mean_estimate
from vestige.probes.latent import LATENT
from vestige.probes.repeats import Runs, runs_of
from vestige.steps.engine import Board, StudyCell
from vestige.studies.cells import CellPoint, label_of, place_of, rate_name
from vestige.studies.holes import hole_settings
from vestige.studies.lm_eval import read_benchmarks, scores_of
from vestige.studies.results import Ends, PooledResults, ResultGroup, TextTable


class HoleNumber(NamedTuple):
    """A number of one of the paper's tables; one without an interval, as a p-value, has "" for it and for its ends.

    What could not be measured is NaN, and `interval` says why.
    """

    table: int
    row: str
    set: str
    measure: str
    value: float
    low: float | str = ""
    high: float | str = ""
    n: int = 0
    interval: str = ""

    def text(self) -> str:
        """As in `0.42 [0.36, 0.48], n = 240`, a plain number, or why there is none."""
        if isinstance(self.low, str) or isinstance(self.high, str):
            return self.interval or f"{self.value:.4g}"
        # Of a benchmark the number of items is not known.
        estimate = Estimate(self.measure, "", self.value, self.low, self.high, max(1, self.n), self.interval)
        return f"{estimate.said()}, n = {self.n}" if self.n else estimate.said()


MISSING = "not made"
SOURCES = {ADJACENT: "D_AP", LATENT: "D_LP"}
"""The paper's names of the sources."""
RETAINED = "retained questions"
ASKED = {True: "the retained data ask it", False: "no data ask it"}
DISTANCES = 0
"""The number of the table that is ours."""
RECALL, SPLITS = "qa.rouge1_recall", {"forget": "forget", "retain": "retained", "factual": "factual"}
TITLES = {
    DISTANCES: (
        "quality by distance from the forgotten",
        "Ours: of the prompts of Table 1 those that the retained data ask, as a static benchmark does, and the "
        "others. The distance is to the nearest forgotten contract: at 1 they share a party.",
    ),
    1: (
        "quality before and after unlearning",
        "Quality is the judge's mean, 1 to 10. ROUGE-1 recall is of greedy answers to the data's own questions, over "
        "all seeds. p-values are of t-tests over prompts: the paired one counts what was made from one thing once, and "
        "the intervals allow for it; Welch's and Student's take all prompts, and both sides, for independent. False "
        "holes are those of the target asked at another seed.",
    ),
    2: (
        "diversity of the prompts",
        "Both measures fall as a set grows, Vendi / n above all: compare sets of like n. The retained questions are "
        "the data's own, as TruthfulQA is in the paper.",
    ),
    3: ("one-shot mitigation (with Table 8), by steps", "Held-out prompts were not trained on; the others were."),
    4: ("iterative mitigation (with Table 9), by rounds", "Held-out prompts were not trained on; the others were."),
    6: (
        "the same prompts answered and graded again",
        "A run is one generation of one model: the target's before, those of all seeds' models after. The tests over "
        "runs are the paper's; generations of one model are not independent, so that over prompts stands beside them. "
        "Prompts that the judge did not grade in every run are left out.",
    ),
    7: (
        "checkpoints of one training",
        "Each checkpoint is searched anew; the mean is over its runs. The one without a step is the whole training.",
    ),
    10: (
        "ablation of the search",
        "One hyper-parameter of the search at a time. One seed each: between two settings lies chance as well.",
    ),
    15: ("criteria of quality, 1 to 5", "Of the answers by which holes were told; Table 1 has their quality."),
}
_SHOWN = 5
"""Prompts and holes of a model that are shown as text."""


@dataclass(frozen=True, eq=False)
class Probed:
    """One probe's files, as far as they are there; `name` is the unlearned model's."""

    name: str
    point: CellPoint
    folder: ProbeFolder | None
    after: tuple[str, ...]
    made: Mapping[str, Any]
    """What its cell told besides; nothing in a study of before it told that."""

    @property
    def whole(self) -> bool:
        """Whether it is of the whole training, with the study's own settings."""
        return not self.point.until and not self.point.part

    @property
    def run(self) -> str:
        """Its row in Table 7, where a checkpoint is searched several times."""
        return f"{self.name}, run {self.point.part.removeprefix('run ') or '1'}"

    @cached_property
    def table(self) -> HoleTable | None:
        """The table of its holes."""
        return read_table(self.folder)[0] if self.folder else None

    def row(self, source: str) -> HoleRow | None:
        """What its prompts of one source came to."""
        return next((r for r in self.table.rows if r.source == source), None) if self.table else None

    def tests(self, source: str) -> dict[str, float | str]:
        """The p-values of t-tests over the prompts that were judged on both sides."""
        # Paired, so that a prompt counts only where a judge graded both answers.
        scores = [
            (t.target_score, t.unlearned_score, t.origin or t.id)
            for t in (read_tested(self.folder) if self.folder else ())
            if t.source == source and t.target_score is not None and t.unlearned_score is not None
        ]
        before, after, origins = zip(*scores, strict=True) if scores else ((), (), ())
        return change_tests(np.array(before, dtype=float), np.array(after, dtype=float), origins)


@dataclass(frozen=True, eq=False)
class HoleTables:
    """All numbers of a study of holes, and the tables that they make."""

    results: PooledResults

    @cached_property
    def _made(self) -> list[tuple[StudyCell, Path | None, Mapping[str, Any]]]:
        """The cells of holes, in their order, with where those that are done lie, and what they told."""
        study = self.results.study
        board = Board(study.folder.state)
        done = board.status().done
        cells = [c for c in study.cells if c.kind in ("probe", "repeat", "mitigate")]
        facts = [(c, board.facts(c.key)["made"] if c.key in done else {}) for c in cells]
        return [(c, study.folder.path / made["path"] if made else None, made) for c, made in facts]

    def name(self, point: CellPoint) -> str:
        """What a model is called: its method, and what else differs in the study."""
        names = self.results.study.settings.names()
        # What is the same in all rows would only make their names long.
        parts = [v for v, axis in ((point.model, "models"), (point.data, "data")) if len(names[axis]) > 1]
        points = (c.point for c, *_ in self._made if c.point.method == point.method)
        places = {(p.forget, p.member, p.rate, p.goal) for p in points}
        parts += [point.member, rate_name(point)] if len(places) > 1 else []
        return ", ".join([label_of(point), *parts])

    @cached_property
    def probes(self) -> list[Probed]:
        """Every probe of the study."""
        return [
            Probed(self.name(c.point), c.point, ProbeFolder(path) if path else None, c.after, made)
            for c, path, made in self._made
            if c.kind == "probe"
        ]

    @cached_property
    def checkpoints(self) -> dict[CellPoint, list[Probed]]:
        """The runs of each checkpoint, by all but their part; of each training the whole is last and at step 0."""
        of = dict.fromkeys(p.point.method for p in self.probes if p.point.until)
        runs: dict[CellPoint, list[Probed]] = {}
        for probe in self.probes:
            if probe.point.method in of and (probe.point.until or probe.whole):
                runs.setdefault(probe.point._replace(part=""), []).append(probe)
        return runs

    @cached_property
    def numbers(self) -> list[HoleNumber]:
        """Every number of every table, in the order of the tables."""
        ablated = {p.point.method for p in self.probes if p.point.part and not p.point.until}
        rows = [
            *((1, probe.name, probe) for probe in self.probes if probe.whole),
            *((7, probe.run, probe) for probe in chain(*self.checkpoints.values())),
            *(
                (10, f"{probe.name}, {probe.point.part or 'default'}", probe)
                for probe in self.probes
                if probe.point.method in ablated and not probe.point.until
            ),
        ]
        of_probes = chain(*(self._of_probe(*row) for row in rows))
        return [*of_probes, *self._means(), *self._mended(), *self._repeated()]

    def _of_probe(self, table: int, row: str, probe: Probed) -> Iterator[HoleNumber]:
        if table != 10:
            yield from self._scores(table, row, probe)
        for source, name in SOURCES.items():
            scores = probe.row(source)
            if scores is None:
                yield _number(table, row, name, "no prompt left" if probe.table else MISSING, "quality after")
                continue
            yield from (_number(table, row, name, estimate) for estimate in estimates_of(scores))
            for measure, p in probe.tests(source).items() if table == 1 else ():
                yield _number(1, row, name, p, measure, scores.n_judged)
        for place in probe.made.get("distances", ()) if table == 1 else ():
            steps = "no contract" if place["distance"] is None else f"distance {place['distance']}"
            of_set = f"{SOURCES.get(place['source'], place['source'])}, {ASKED[place['asked']]}, {steps}"
            yield from (_number(DISTANCES, row, of_set, Estimate(**estimate)) for estimate in place["estimates"])
        diverse = dict(probe.table.diversity) if probe.table and table != 7 else {}
        if table == 1 and "retained" in probe.made:
            diverse[RETAINED] = Diversity(**probe.made["retained"])
        for source, name in {**SOURCES, RETAINED: RETAINED}.items():
            for estimate in probe.made.get("criteria", {}).get(source, ()) if table == 1 else ():
                yield _number(15, row, name, Estimate(**estimate))
            if diversity := diverse.get(source):
                # Table 2 has the diversity of the models of Table 1.
                where, n = (2 if table == 1 else table, row, name), diversity.n
                yield _number(*where, diversity.vendi_share * n, "Vendi", n)
                yield _number(*where, diversity.vendi_share, "Vendi / n", n)
                ngrams = diversity.distinct_ngrams
                yield _number(*where, "one prompt" if ngrams is None else ngrams, "1 - avgSelfBLEU", n)
        if table == 10 and probe.folder is not None:
            where, search = (10, row, SOURCES[LATENT]), probe.folder.search(LATENT)
            attempts = read_attempts(search)
            latent = [a.prompt for a in attempts if a.j == LATENT_J]
            yield _number(*where, len(latent), "J = 10", len(attempts))
            yield _number(*where, len(set(latent)), "J = 10, different", len(attempts))
            # A search whose prompts have become one another finds nothing after that, however long it goes on.
            collapsed = [r["number"] for r in read_jsonl(search.iterations) if r["collapsed"]]
            yield _number(*where, collapsed[0] if collapsed else "no", "collapsed from iteration", len(attempts))

    def _scores(self, table: int, row: str, probe: Probed) -> Iterator[HoleNumber]:
        """What a model scores beside the holes: on the data's own questions, and on benchmarks."""
        p, study = probe.point, self.results.study
        lm_eval = hole_settings(study).lm_eval
        if "harm" in probe.made:
            # The share of harmful answers to the forget set.
            yield _number(table, row, "forget", Estimate(**probe.made["harm"]))
        for when in ("before", "after") if table == 1 else ("after",):
            # The target is no model of a rate, so its scores stand under its role.
            method, rate = ("target", "") if when == "before" else (label_of(p), rate_name(p))
            for split, name in SPLITS.items() if "qa" in study.settings.evaluate.evals else ():
                score = self.results.row(ResultGroup(p.model, p.data, p.forget, method, rate), split, RECALL)
                if score is not None:
                    ends = (score.value, score.low, score.high, score.items, score.interval)
                    yield HoleNumber(table, row, name, f"ROUGE-1 {when}", *ends)
            if lm_eval is not None and probe.folder is not None:
                subject = SubjectFolder(place_of(study, probe.after[when == "after"]))
                for task, benchmark in scores_of(read_benchmarks(Path(lm_eval)), *_place_and_time(subject)).items():
                    yield HoleNumber(table, row, task, f"benchmark {when}", benchmark.value, *benchmark.ends())

    def _repeated(self) -> Iterator[HoleNumber]:
        """The runs of every model whose prompts were answered again, by judge and set of prompts."""
        for cell, path, _ in self._made:
            if cell.kind != "repeat" or path is None:
                continue
            groups: dict[tuple[str, str], list[RepeatedScore]] = {}
            for score in read_rows(ProbeFolder(path).repeats, RepeatedScore):
                groups.setdefault((score.judge, score.source), []).append(score)
            for (judge, source), scores in groups.items():
                where = 6, f"{self.name(cell.point)}, {judge}", SOURCES.get(source, source)
                yield from repeat_numbers(*where, runs_of(scores), seed=cell.point.seed)

    def _means(self) -> Iterator[HoleNumber]:
        """Mean quality after unlearning over the runs of a checkpoint that left prompts to test, and its SD."""
        for runs in self.checkpoints.values():
            for source, name in SOURCES.items():
                # A run that left no prompt has no quality; it is not one of quality 0.
                values = [row.after.value for probe in runs if (row := probe.row(source)) is not None]
                if len(values) > 1:
                    where, n = (7, f"{runs[0].name}, mean", name), len(values)
                    yield _number(*where, float(np.mean(values)), "quality after", n)
                    yield _number(*where, float(np.std(values, ddof=1)), "SD over runs", n)

    @cached_property
    def mended(self) -> list[tuple[int, str, MitigationFolder]]:
        """Every mending by the table that it stands in, 3 (one-shot) or 4 (iterative), and its name."""
        done = ((cell.point, path) for cell, path, _ in self._made if path and cell.kind == "mitigate")
        return [
            (4 if p.part == "iterative" else 3, f"{self.name(p)}, {p.part}", MitigationFolder(path)) for p, path in done
        ]

    def _mended(self) -> Iterator[HoleNumber]:
        """An unlearned model tuned on what was found, by its checkpoints; or the target unlearned anew, by rounds."""
        for table, name, folder in sorted(self.mended, key=lambda mended: mended[0]):
            for row in read_mitigation(folder).rows:
                of = f"{name}: {row.arm} {row.at}{' (kept)' if row.kept else ''}"
                yield from (_number(table, of, set_, estimate, measure) for set_, measure, estimate in numbers_of(row))

    def all(self) -> list[TextTable]:
        """The tables in the paper's order."""
        pivots = {number: self._pivot(number) for number in TITLES}
        tables = [pivots[n] for n in (1, DISTANCES, 2, 3, 4)] + [self._settings()] + [pivots[n] for n in (6, 7, 10, 15)]
        return [table for table in (*tables, *self._prompts()) if table.rows]

    def _pivot(self, number: int) -> TextTable:
        """A row for each model and set of prompts, a column for each measure; of several placebos the first."""
        numbers = [n for n in self.numbers if n.table == number]
        # Reversed, so that of several placebos, whose numbers share a place, the first is shown.
        cells = {(n.row, n.set, n.measure): n.text() for n in reversed(numbers)}
        measures = list(dict.fromkeys(n.measure for n in numbers))
        # In the order in which they were found, which is that of the study's file.
        rows = dict.fromkeys((n.row, n.set) for n in numbers)
        title, note = TITLES[number]
        notes = [note]
        for table, name, folder in self.mended:
            if table == number:
                mended = read_mitigation(folder)
                notes += [f"{name}: {', '.join(f'{n} {of_set}' for of_set, n in mended.sizes.items())}.", *mended.notes]
        return TextTable(
            f"Table {number}: {title}" if number else title.capitalize(),
            ("model", "set", *measures),
            tuple((*row, *(cells.get((*row, measure), "none") for measure in measures)) for row in rows),
            tuple(dict.fromkeys(notes)),
        )

    def _settings(self) -> TextTable:
        """The values of the search, and those that the ablation tries."""
        settings = hole_settings(self.results.study)
        variants = settings.ablation.variants if settings.ablation else {}
        rows = tuple(
            (f"{part}.{key}", f"{value}", ", ".join(f"{v:g}" for v in variants.get(f"{part}.{key}", ())))
            for part, values in (("policy", settings.policy), ("latent", settings.latent))
            for key, value in values.identity().items()
        )
        note = "The paper has its six hyper-parameters in its Table 5, whose values its text lacks: these are ours."
        return TextTable("Table 5: settings of the search", ("setting", "value", "other values"), rows, (note,))

    def _prompts(self) -> Iterator[TextTable]:
        """What the prompts of both sources are about, a table a model, and the first holes with both answers."""
        holes: list[tuple[str, ...]] = []
        for probe in self.probes:
            if probe.folder is None or not probe.whole:
                continue
            topics = probe.made.get("topics", {})
            columns = [[f"{name} ({n})" for name, n in topics.get(source, ())] for source in SOURCES]
            yield TextTable(
                f"Tables 11 to 14: what the prompts are about, {probe.name}",
                tuple(SOURCES.values()),
                tuple(zip_longest(*columns, fillvalue="")),
                ("Groups of all prompts tested, holes or not, with how many prompts each has.",),
            )
            holes += [
                (probe.name, SOURCES.get(h.source, h.source), h.prompt, h.target_answer, h.unlearned_answer)
                for h in read_holes(probe.folder)[:_SHOWN]
            ]
        head = ("model", "prompts", "prompt", "target", "unlearned")
        yield TextTable("Tables 16 to 20: holes with both answers", head, tuple(holes))

    def write_figures(self, folder: Path) -> list[Path]:
        """Figure 2 of each model, the diversity of what searches found by size, and Figure 3 of each training.

        Figure 3 needs checkpoints: what is kept, and what is left of the forget set, by step.
        """
        from vestige.studies.plots import Panel, draw_panels

        paths = []
        for probe in self.probes:
            curves = {s: c for s, c in probe.table.curves.items() if c.sizes} if probe.whole and probe.table else {}
            if not curves:
                continue
            lines: dict[str, list[tuple[Ends, Ends]]] = {}
            for source, curve in curves.items():
                by_size = zip(curve.sizes, curve.shares, strict=True)
                lines[f"{source}, {curve.kept} kept"] = [((n, n, n), (v, v, v)) for n, v in by_size]
                # One number, drawn as a line to compare with.
                level = (curve.adjacent, curve.adjacent, curve.adjacent)
                lines[f"adjacent, beside {source}"] = [((n, n, n), level) for n in (curve.sizes[0], curve.sizes[-1])]
            paths.append(folder / f"holes-diversity-{slug(probe.name)}.svg")
            panel = Panel(lines, f"{one_line(probe.name)}: Vendi / n", "the first n prompts")
            draw_panels(paths[-1], (3.6, 3.0), [panel])
        numbers = {n[:4]: n for n in self.numbers}
        trainings = list(dict.fromkeys(point._replace(until=0) for point in self.checkpoints))
        for training in trainings:
            # A file's name is short where it can be.
            alone = sum(t.method == training.method for t in trainings) == 1
            name = training.method if alone else self.name(training)
            probes = chain(*(runs for p, runs in self.checkpoints.items() if p._replace(until=0) == training))
            points = sorted((step, p.run) for p in probes if (step := self._step(p)) is not None)
            harm = next((n.measure for n in self.numbers if n.table == 7 and n.set == "forget"), "ROUGE-1 after")
            measured = {
                "quality after unlearning, 1 to 10": [(name, "quality after") for name in SOURCES.values()],
                "forget and retained set, as shares": [("forget", harm), ("retained", "ROUGE-1 after")],
            }
            panels = []
            for title, measures in measured.items():
                lines = {
                    f"{of_set}, {measure}": [
                        ((step, step, step), (n.value, float(n.low), float(n.high)))
                        for step, run in points
                        if (n := numbers.get((7, run, of_set, measure))) is not None and n.low != ""
                    ]
                    for of_set, measure in measures
                }
                panels.append(Panel(lines, title, f"steps of {one_line(name)}"))
            paths.append(folder / f"holes-tradeoff-{slug(name)}.svg")
            draw_panels(paths[-1], (6.4, 3.0), panels, same_y=False)
        return paths

    def _step(self, probe: Probed) -> int | None:
        """How many steps a model was trained; None while its whole training is not done."""
        board, key = Board(self.results.study.folder.state), probe.after[1]
        if probe.point.until or key not in board.status().done:
            return probe.point.until or None
        return int(board.facts(key)["made"]["steps"])


def _number(
    table: int, row: str, of_set: str, value: Estimate | float | str, measure: str = "", n: int = 0
) -> HoleNumber:
    """An estimate, a plain number, or the reason why there is none."""
    if isinstance(value, Estimate):
        e = value
        return HoleNumber(table, row, of_set, measure or e.metric, e.value, e.low, e.high, e.n, e.interval)
    if isinstance(value, str):
        return HoleNumber(table, row, of_set, measure, float("nan"), interval=value)
    return HoleNumber(table, row, of_set, measure, value, n=n)


def _place_and_time(subject: SubjectFolder) -> tuple[str, float | None]:
    """Where the model lies that the subject is, and when it was finished, which is not known of one that was given."""
    if not subject.model.exists():
        return read_spec(subject.spec).model, None
    times = read_json(subject.provenance)["times"]
    return str(subject.model), datetime.fromisoformat(times["started"]).timestamp() + times["wall_seconds"]


def change_tests(
    before: Float[np.ndarray, " N"], after: Float[np.ndarray, " N"], origins: Sequence[str]
) -> dict[str, float | str]:
    """The two-sided p-values of the same prompts' scores, after minus before, or why there is none.

    In the paired one what was made from one thing counts once; the other two take all prompts for independent.
    """
    sides = (before, after)
    return _p_values(
        {"p, paired t": (_by_origin(after - before, origins),), "p, Welch t": sides, "p, Student t": sides}
    )


def repeat_numbers(table: int, row: str, of_set: str, runs: Runs, *, seed: int) -> Iterator[HoleNumber]:
    """The numbers of one judge and set of prompts: means over runs with their SD, and whether they differ."""
    n_prompts = len(runs.origins)
    if not n_prompts:
        yield _number(table, row, of_set, "no prompt was graded in every run", "quality after")
        return
    for when, scores in (("before", runs.before), ("after", runs.after)):
        # The interval is over prompts and the SD over runs: they answer different questions.
        by_prompt, by_run = scores.mean(axis=0), scores.mean(axis=1)
        estimate = mean_estimate(f"quality {when}", by_prompt, "score", SCALE, runs.origins, seed=seed)
        yield _number(table, row, of_set, estimate)
        spread = float(by_run.std(ddof=1)) if len(by_run) > 1 else "none: one run"
        yield _number(table, row, of_set, spread, f"SD over runs {when}", len(by_run))
        yield _number(table, row, of_set, float((scores <= SCALE[0]).mean()), f"lowest score {when}", scores.size)
    gaps = runs.after.mean(axis=0) - runs.before.mean(axis=0)
    means = runs.before.mean(axis=1), runs.after.mean(axis=1)
    yield _number(table, row, of_set, mean_estimate("change", gaps, "score", CHANGE, runs.origins, seed=seed))
    tests = _p_values({"p, Student t": means, "p, Welch t": means, "p over prompts": (_by_origin(gaps, runs.origins),)})
    for measure, p in tests.items():
        yield _number(table, row, of_set, p, measure, runs.n)


def _by_origin(values: Float[np.ndarray, " N"], origins: Sequence[str]) -> Float[np.ndarray, " K"]:
    """The mean over what was made from each thing."""
    _, indices = np.unique(np.asarray(origins, dtype=str), return_inverse=True)
    means: Float[np.ndarray, " K"] = np.bincount(indices, values) / np.bincount(indices)
    return means


def _p_values(samples: Mapping[str, tuple[Float[np.ndarray, " N"], ...]]) -> dict[str, float | str]:
    """Of one sample against 0, or of the second of two less the first: Student's t where the name says so."""
    p_values: dict[str, float | str] = {}
    for name, sides in samples.items():
        if min(map(len, sides)) < 2:
            p_values[name] = "none: a t-test needs two values"
        # Rounding leaves a spread of some 1e-16 where values are equal; a difference is not tested against that.
        elif max(map(np.ptp, sides)) <= 1e-12:
            p_values[name] = "none: all values are equal, so there is no spread to test against"
        elif len(sides) == 1:
            p_values[name] = float(ttest_1samp(sides[0], 0.0).pvalue)
        else:
            p_values[name] = float(ttest_ind(sides[1], sides[0], equal_var="Student" in name).pvalue)
    return p_values
