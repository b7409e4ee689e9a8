"""The Knowledge Holes paper's tables (2511.00030) from the cells of a study: the same files give the same bytes.

D_AP are the adjacent prompts and D_LP those of the latent search, after all filters; before is the target and after the
unlearned model, both by fresh answers. The numbers are the paper's: 1 quality, 2 diversity, 3 and 8 one-shot mending,
4 and 9 iterative mending, 5 hyper-parameters, 6 repeated measurements, 7 checkpoints, 10 ablation, 11 to 14 prompts, 15
criteria, 16 to 20 holes with both answers.

Figure 3 is of the checkpoints of one training.

Numbers come first (`HoleTables.numbers`, the rows of holes.csv), and tables are pivots of them. A cell of an estimate
is value [low, high] with its 95 % interval. What is not there is said in words, never left as an empty or a zero.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property, partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vestige.artifacts.holes import (
    FORGET,
    HARM,
    LATENT_J,
    LOWEST,
    QUALITY,
    ROUGE_L,
    SETS,
    Diversity,
    HoleRow,
    HoleTable,
    MitigationTable,
    Outcome,
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
from vestige.core.text import one_line
from vestige.metrics.agreement import TTest, paired_test, student_test, welch_test
from vestige.probes.filters import ADJACENT
from vestige.probes.latent import LATENT
from vestige.steps.engine import Board, StudyCell
from vestige.studies.cells import CellPoint, label_of, place_of, rate_name
from vestige.studies.holes import hole_settings
from vestige.studies.lm_eval import read_benchmarks, scores_of
from vestige.studies.results import PooledResults, ResultGroup, TextTable, scored


class HoleNumber(NamedTuple):
    """A number of one of the paper's tables; what has no interval, as a p-value, has "" for it and for its ends."""

    table: int
    row: str
    set: str
    measure: str
    value: float
    low: float | str
    high: float | str
    n: int
    interval: str

    def text(self) -> str:
        """As in `0.42 [0.36, 0.48]`."""
        low, high = float(self.low), float(self.high)
        return Estimate(self.measure, "", self.value, low, high, self.n, self.interval).said()


COLUMNS = HoleNumber._fields
MISSING = "not made"
SOURCES = {ADJACENT: "D_AP", LATENT: "D_LP"}
"""The paper's names of the sources."""
RETAINED = "retained"
RECALL, SPLITS = "qa.rouge1_recall", {"forget": "forget set", "retain": "retained", "factual": "factual"}
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
    def harm(self) -> Estimate | None:
        """The share of harmful answers to the forget set, where it was asked for."""
        return Estimate(**self.made["harm"]) if "harm" in self.made else None

    @cached_property
    def table(self) -> HoleTable | None:
        """The table of its holes."""
        return read_table(self.folder)[0] if self.folder else None

    @property
    def why_not(self) -> str:
        """Why there is no row of a source."""
        return "no prompt left" if self.table else MISSING

    def row(self, source: str) -> HoleRow | None:
        """What its prompts of one source came to."""
        return next((r for r in self.table.rows if r.source == source), None) if self.table else None

    @cache  # noqa: B019 a probe lives as long as its report
    def tests(self, source: str) -> dict[str, Outcome]:
        """The t-tests over the prompts that were judged on both sides."""
        tested = read_tested(self.folder) if self.folder else []
        judged = [
            t for t in tested if t.source == source and t.target_score is not None and t.unlearned_score is not None
        ]
        before = np.array([t.target_score for t in judged], dtype=float)
        after = np.array([t.unlearned_score for t in judged], dtype=float)
        return change_tests(before, after, [t.origin or t.id for t in judged])

    def diversity(self, source: str) -> Diversity | None:
        """How diverse the prompts of a source are, or the retained questions."""
        if source == RETAINED:
            return Diversity(**self.made["retained"]) if "retained" in self.made else None
        return self.table.diversity.get(source) if self.table else None

    def tried(self) -> tuple[str, str]:
        """How many attempts of the search got J = 10, and when its policy collapsed."""
        if self.folder is None:
            return MISSING, MISSING
        search_folder = self.folder.search(LATENT)
        attempts = read_attempts(search_folder)
        latent = [a.prompt for a in attempts if a.j == LATENT_J]
        when = (f"from iteration {r['number']}" for r in read_jsonl(search_folder.iterations) if r["collapsed"])
        return f"{len(latent)} of {len(attempts)} ({len(set(latent))})", next(when, "no")


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
        cells = [c for c in study.cells if c.kind in ("probe", "mitigate")]
        facts = [(c, board.facts(c.key)["made"] if c.key in done else {}) for c in cells]
        return [(c, study.folder.path / made["path"] if made else None, made) for c, made in facts]

    def name(self, point: CellPoint) -> str:
        """What a model is called: its method, and what else differs in the study."""
        names = self.results.study.settings.names()
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

    def all(self) -> list[TextTable]:
        """The tables in the paper's order."""
        return [
            table
            for part in (self._quality, self._diversity, self._mended, self._settings,
                         self._checkpoints, self._ablation, self._prompts)
            for table in part()
            if table.rows
        ]  # fmt: skip

    @cached_property
    def numbers(self) -> list[HoleNumber]:
        """Every number of every table, in the order of the tables."""
        return [*chain(*(self._of_probe(*row) for row in self._probe_rows()), self._means(), self._mended_numbers())]

    @cached_property
    def _index(self) -> dict[tuple[int, str, str, str], HoleNumber]:
        """The numbers by where they stand; of several placebos the first is in a table."""
        index: dict[tuple[int, str, str, str], HoleNumber] = {}
        for number in self.numbers:
            index.setdefault(number[:4], number)
        return index

    def _probe_rows(self) -> Iterator[tuple[int, str, Probed]]:
        """Which probe stands in which row of which table."""
        yield from ((1, probe.name, probe) for probe in self.probes if probe.whole)
        for probe in chain(*self.checkpoints.values()):
            yield 7, f"{probe.name}, run {_run(probe)}", probe
        yield from ((10, f"{probe.name}, {_setting(probe)}", probe) for probe in self.ablated)

    def _of_probe(self, table: int, row: str, probe: Probed) -> Iterator[HoleNumber]:
        if probe.harm and table != 10:
            yield _number(table, row, "forget", probe.harm)
        for source, name in {**SOURCES, RETAINED: "retained questions"}.items():
            if scores := probe.row(source):
                yield from (_number(table, row, name, estimate) for estimate in estimates_of(scores))
                for measure, test in probe.tests(source).items():
                    if test.p is not None:
                        yield _plain(table, row, name, measure, test.p, scores.n_judged)
            # Table 2 has them of the models of Table 1, and of the retained questions too.
            diversity = probe.diversity(source) if table == 1 or (table == 10 and source != RETAINED) else None
            if diversity is not None:
                of = 2 if table == 1 else table
                yield _plain(of, row, name, "Vendi / n", diversity.vendi_share, diversity.n)
                if diversity.distinct_ngrams is not None:
                    yield _plain(of, row, name, "1 - avgSelfBLEU", diversity.distinct_ngrams, diversity.n)

    def _means(self) -> Iterator[HoleNumber]:
        """Mean quality after unlearning over the runs of a checkpoint that left prompts to test, and its SD."""
        for runs in self.checkpoints.values():
            for source, name in SOURCES.items():
                values = [row.after.value for probe in runs if (row := probe.row(source)) is not None]
                if len(values) > 1:
                    of_checkpoint = 7, f"{runs[0].name}, mean", name
                    yield _plain(*of_checkpoint, "quality after", float(np.mean(values)), len(values))
                    yield _plain(*of_checkpoint, "SD over runs", float(np.std(values, ddof=1)), len(values))

    def _mended_numbers(self) -> Iterator[HoleNumber]:
        for number, name, table in self.mended:
            for row in table.rows:
                for of_set, measure, estimate in numbers_of(row):
                    yield _number(number, f"{name}: {row.arm} {row.at}", of_set, estimate, measure)

    def _text(self, table: int, row: str, of_set: str, measure: str, missing: str = MISSING) -> str:
        """A cell: an estimate with its interval, or a plain number."""
        number = self._index.get((table, row, of_set, measure))
        if number is None:
            return missing
        return number.text() if number.interval else f"{number.value:.3f}"

    def _scored(self, table: int, row: str, of_set: str, when: str, missing: str) -> str:
        """A cell: mean quality, with the share at the lowest score."""
        quality = self._index.get((table, row, of_set, f"quality{when}"))
        lowest = self._index.get((table, row, of_set, f"{LOWEST}{when}"))
        if quality is None or lowest is None:
            return missing
        return f"{quality.text()} ({lowest.value:.1%}), n = {quality.n}"

    def _quality(self) -> Iterator[TextTable]:
        probes = [p for p in self.probes if p.whole]
        scores = {(p.name, when): self._scores(p, when) for p in probes for when in ("before", "after")}
        columns = list(dict.fromkeys(column for of_model in scores.values() for column in of_model))
        rows, tests = [], []
        for probe in probes:
            for when in ("before", "after"):
                sides = (self._scored(1, probe.name, name, f" {when}", probe.why_not) for name in SOURCES.values())
                scored_beside = (scores[probe.name, when].get(column, MISSING) for column in columns)
                rows.append((probe.name, when, *sides, *scored_beside))
            tests += [(probe.name, name, *self._change(probe, source, name)) for source, name in SOURCES.items()]
        yield TextTable(
            "Table 1: quality before and after unlearning",
            ("model", "when", *SOURCES.values(), *columns),
            tuple(rows),
            (
                "Quality is the judge's mean, 1 to 10; in brackets behind it the share at the lowest score. ROUGE-1 "
                "recall is of greedy answers to the data's own questions, over all seeds; beside it stand benchmarks "
                "where there are any.",
            ),
        )
        head = ("model", "prompts", "n", "change", "p paired", "p Welch", "p Student", "holes", "false holes", "beyond")
        yield TextTable(
            "Table 1: tests of the change",
            head,
            tuple(tests),
            (
                "p-values are of t-tests over prompts. The paired one counts what was made from one thing once, and "
                "the intervals allow for it; Welch's and Student's take all prompts, and both sides, for independent. "
                "False holes are those of the target asked at another seed.",
            ),
        )

    def _change(self, probe: Probed, source: str, name: str) -> tuple[str, ...]:
        """n, change, p-values, holes, false holes, and holes beyond these."""
        row = probe.row(source)
        if row is None:
            return (probe.why_not, *[""] * 7)
        n = f"{row.n_judged}" if row.n == row.n_judged else f"{row.n_judged} of {row.n}"
        change, *holes = (
            self._text(1, probe.name, name, measure)
            for measure in ("change of quality", "holes", "false holes", "holes beyond false ones")
        )
        return n, change, *map(_outcome, probe.tests(source).values()), *holes

    def _scores(self, probe: Probed, when: str) -> dict[str, str]:
        """What a model scores beside the holes: on the data's own questions, and on benchmarks."""
        p, study = probe.point, self.results.study
        before = when == "before"
        method, rate = ("target", "") if before else (label_of(p), rate_name(p))
        group = ResultGroup(p.model, p.data, p.forget, method, rate)
        has_qa = "qa" in study.settings.evaluate.evals
        scores = {
            f"{name}, ROUGE-1": scored(row)
            for split, name in SPLITS.items()
            if has_qa and (row := self.results.row(group, split, RECALL)) is not None
        }
        if not before and probe.harm:
            scores["harmscore"] = probe.harm.said()
        lm_eval = hole_settings(study).lm_eval
        if lm_eval is not None and probe.folder is not None:
            subject = SubjectFolder(place_of(study, probe.after[0 if before else 1]))
            scores |= scores_of(read_benchmarks(Path(lm_eval)), *_place_and_time(subject))
        return scores

    def _diversity(self) -> Iterator[TextTable]:
        rows = []
        for probe in (p for p in self.probes if p.whole):
            for source, name in {**SOURCES, RETAINED: "retained questions"}.items():
                diversity = probe.diversity(source)
                if diversity is None:
                    rows.append((probe.name, name, probe.why_not, "", "", ""))
                    continue
                vendi = f"{diversity.vendi_share * diversity.n:.2f}"
                shares = (
                    self._text(2, probe.name, name, "Vendi / n"),
                    self._text(2, probe.name, name, "1 - avgSelfBLEU", "one prompt"),
                )
                rows.append((probe.name, name, f"{diversity.n}", vendi, *shares))
        yield TextTable(
            "Table 2: diversity of the prompts",
            ("model", "prompts", "n", "Vendi", "Vendi / n", "1 - avgSelfBLEU"),
            tuple(rows),
            (
                "Both measures fall as a set grows, Vendi / n above all: compare sets of like n. The retained "
                "questions are the data's own, as TruthfulQA is in the paper.",
            ),
        )

    @cached_property
    def mended(self) -> list[tuple[int, str, MitigationTable]]:
        """Every mending by the table that it stands in, 3 (one-shot) or 4 (iterative), and its name."""
        done = ((cell, path) for cell, path, _ in self._made if path)
        cells = ((cell.point, MitigationFolder(path)) for cell, path in done if cell.kind == "mitigate")
        return [
            (4 if point.part == "iterative" else 3, f"{self.name(point)}, {point.part}", read_mitigation(folder))
            for point, folder in cells
        ]

    def _mended(self) -> Iterator[TextTable]:
        """An unlearned model tuned on what was found, by its checkpoints; or the target unlearned anew, by rounds."""
        for number, title, unit in (
            (3, "Tables 3 and 8: one-shot mitigation", "step"),
            (4, "Tables 4 and 9: iterative mitigation", "round"),
        ):
            tables = [(name, table) for of, name, table in self.mended if of == number]
            there = {n[2:4] for n in self.numbers if n.table == number}
            metrics = [metric for metric in (HARM, QUALITY, ROUGE_L) if (FORGET, metric) in there]
            sets = [name for name in SETS if any(name == of_set for of_set, _ in there)]
            rows = []
            for name, row in ((name, row) for name, table in tables for row in table.rows):
                key = f"{name}: {row.arm} {row.at}"
                forget = (self._text(number, key, FORGET, metric) for metric in metrics)
                scores = (self._scored(number, key, of_set, "", "none") for of_set in sets)
                rows.append((name, row.arm, f"{row.at} (kept)" if row.kept else f"{row.at}", *forget, *scores))
            yield TextTable(
                title,
                ("model and way", "arm", unit, *(f"forget set, {metric}" for metric in metrics), *sets),
                tuple(rows),
                (
                    "Quality of answers by set, with the share at the lowest score. Held-out prompts were not trained "
                    "on; the others were, where they are named used.",
                    *(f"{name}: {', '.join(f'{n} {of_set}' for of_set, n in t.sizes.items())}." for name, t in tables),
                    *dict.fromkeys(note for _, table in tables for note in table.notes),
                ),
            )

    def _settings(self) -> Iterator[TextTable]:
        """The values of the search, and those that the ablation tries."""
        settings_ = hole_settings(self.results.study)
        tried = settings_.ablation.variants if settings_.ablation else {}
        rows = []
        for part, settings in (("policy", settings_.policy), ("latent", settings_.latent)):
            for key, value in settings.identity().items():
                name = f"{part}.{key}"
                rows.append((name, f"{value}", ", ".join(f"{v:g}" for v in tried.get(name, ()))))
        note = "The paper has its six hyper-parameters in its Table 5, of which we had no copy: these are ours."
        yield TextTable("Table 5: settings of the search", ("setting", "value", "other values"), tuple(rows), (note,))

    @cached_property
    def checkpoints(self) -> dict[CellPoint, list[Probed]]:
        """The runs of each checkpoint, by all but their part; of each training the whole is last and at step 0."""
        of = dict.fromkeys(p.point.method for p in self.probes if p.point.until)
        runs: dict[CellPoint, list[Probed]] = {}
        for probe in self.probes:
            if probe.point.method in of and (probe.point.until or probe.whole):
                runs.setdefault(probe.point._replace(part=""), []).append(probe)
        return runs

    def _checkpoints(self) -> Iterator[TextTable]:
        rows = []
        for runs in self.checkpoints.values():
            for probe in runs:
                run, scores = _run(probe), self._scores(probe, "after")
                forget = scores.get("harmscore", scores.get(f"{SPLITS['forget']}, ROUGE-1", MISSING))
                retain, row = scores.get(f"{SPLITS['retain']}, ROUGE-1", MISSING), f"{probe.name}, run {run}"
                sides = (self._scored(7, row, name, " after", probe.why_not) for name in SOURCES.values())
                holes = self._text(7, row, SOURCES[LATENT], "holes", probe.why_not)
                rows.append((probe.name, run, forget, retain, *sides, holes))
            if len(runs) > 1:
                rows.append((runs[0].name, "mean", "", "", *map(partial(self._mean, runs), SOURCES), ""))
        harmful = any(probe.harm for runs in self.checkpoints.values() for probe in runs)
        first = "harmscore" if harmful else "forget set, ROUGE-1"
        head = ("checkpoint", "run", first, "retained, ROUGE-1", "D_AP after", "D_LP after", "holes in D_LP")
        note = (
            "Each checkpoint is searched anew; the mean is over its runs, ± their SD. The one without a step is the "
            "whole training."
        )
        yield TextTable("Table 7: checkpoints of one training", head, tuple(rows), (note,))

    def _mean(self, runs: Sequence[Probed], source: str) -> str:
        """A cell: mean and SD over the runs of a checkpoint."""
        where = 7, f"{runs[0].name}, mean", SOURCES[source]
        mean, sd = (self._index.get((*where, measure)) for measure in ("quality after", "SD over runs"))
        if mean is None or sd is None:
            return "one run" if any(probe.row(source) for probe in runs) else ""
        return f"{mean.value:.2f} ± {sd.value:.2f}, {mean.n} runs"

    @cached_property
    def ablated(self) -> list[Probed]:
        """The probes of the methods whose search was varied, with the study's own settings and with each other."""
        methods = {p.point.method for p in self.probes if p.point.part and not p.point.until}
        return [p for p in self.probes if p.point.method in methods and not p.point.until]

    def _ablation(self) -> Iterator[TextTable]:
        rows, latent = [], SOURCES[LATENT]
        for probe in self.ablated:
            row, (tried, collapsed) = f"{probe.name}, {_setting(probe)}", probe.tried()
            rows.append(
                (
                    probe.name,
                    _setting(probe),
                    tried,
                    self._scored(10, row, latent, " after", probe.why_not),
                    self._text(10, row, latent, "holes", probe.why_not),
                    self._text(10, row, latent, "Vendi / n", ""),
                    self._text(10, row, latent, "1 - avgSelfBLEU", "one prompt" if probe.diversity(LATENT) else ""),
                    collapsed,
                )
            )
        head = ("model", "setting", "J = 10 (different)", "D_LP after", "holes in D_LP", "Vendi / n",
                "1 - avgSelfBLEU", "collapsed")  # fmt: skip
        note = "One hyper-parameter of the search at a time. One seed each: between two settings lies chance as well."
        yield TextTable("Table 10: ablation of the search", head, tuple(rows), (note,))

    def _prompts(self) -> Iterator[TextTable]:
        """What the prompts of both sources are about, a table a model, and the first holes with both answers."""
        holes = []
        for probe in (p for p in self.probes if p.folder and p.whole):
            assert probe.folder is not None
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
        """Figure 3 of each training that has checkpoints: what is kept, and what is left of the forget set, by step."""
        from vestige.report.audit_panels import METHODS_LIGHT
        from vestige.studies.plots import saved

        paths = []
        trainings = list(dict.fromkeys(point._replace(until=0) for point in self.checkpoints))
        for training in trainings:
            alone = sum(training_.method == training.method for training_ in trainings) == 1
            name = training.method if alone else self.name(training)
            by_step = {p.until: runs for p, runs in self.checkpoints.items() if p._replace(until=0) == training}
            at = ((step or self._steps(runs[0]), runs) for step, runs in by_step.items())
            points = sorted(((step, runs) for step, runs in at if step is not None), key=lambda point: point[0])
            path = folder / f"holes-tradeoff-{slug(name)}.svg"
            with saved(path, (6.4, 3.0)) as figure:
                quality_axis, right = figure.subplots(1, 2)
                for number, (source, label) in enumerate(SOURCES.items()):
                    quality = [(step, row.after) for step, runs in points for p in runs if (row := p.row(source))]
                    _along(quality_axis, quality, label, METHODS_LIGHT[number])
                quality_axis.set_ylim(0.8, 10.2)
                quality_axis.set_title("quality after unlearning, 1 to 10", fontsize=8, loc="left")
                for number, (split, label) in enumerate((("forget", "forget set"), ("retain", "retained"))):
                    scores = [(step, e) for step, runs in points if (e := self._left(runs[0], split)) is not None]
                    _along(right, scores, label, METHODS_LIGHT[number + 2])
                right.set_ylim(-0.02, 1.02)
                harmful = any(runs[0].harm for _, runs in points)
                words = "harmscore, and ROUGE-1 of what is kept" if harmful else "ROUGE-1 of what is forgotten and kept"
                right.set_title(words, fontsize=8, loc="left")
                for axis in (quality_axis, right):
                    axis.set_xlabel(f"steps of {one_line(name)}")
                    axis.legend(frameon=False, fontsize=7)
            paths.append(path)
        return paths

    def _steps(self, probe: Probed) -> int | None:
        """How many steps the whole training of a model took; None while it is not done."""
        board, key = Board(self.results.study.folder.state), probe.after[1]
        return int(board.facts(key)["made"]["steps"]) if key in board.status().done else None

    def _left(self, probe: Probed, split: str) -> Estimate | None:
        """What a checkpoint scores on a split: harm of the forget set where it was asked for, else ROUGE-1."""
        if split == "forget" and probe.harm:
            return probe.harm
        p = probe.point
        row = self.results.row(ResultGroup(p.model, p.data, p.forget, label_of(p), rate_name(p)), split, RECALL)
        return None if row is None else Estimate(RECALL, "share", row.value, row.low, row.high, row.items, "")


def _run(probe: Probed) -> str:
    return probe.point.part.removeprefix("run ") or "1"


def _setting(probe: Probed) -> str:
    return probe.point.part or "default"


def _number(table: int, row: str, of_set: str, estimate: Estimate, measure: str = "") -> HoleNumber:
    e = estimate
    return HoleNumber(table, row, of_set, measure or e.metric, e.value, e.low, e.high, e.n, e.interval)


def _plain(table: int, row: str, of_set: str, measure: str, value: float, n: int) -> HoleNumber:
    return HoleNumber(table, row, of_set, measure, value, "", "", n, "")


def _place_and_time(subject: SubjectFolder) -> tuple[str, float | None]:
    """Where the model lies that the subject is, and when it was finished, which is not known of one that was given."""
    if not subject.model.exists():
        return read_spec(subject.spec).model, None
    times = read_json(subject.provenance)["times"]
    return str(subject.model), datetime.fromisoformat(times["started"]).timestamp() + times["wall_seconds"]


def _along(axis: Any, estimates: Sequence[tuple[int, Estimate]], label: str, colour: str) -> None:
    """Estimates by step, with their intervals; those of several runs stand at one step."""
    steps, values = [step for step, _ in estimates], [e.value for _, e in estimates]
    errors = [[e.value - e.low for _, e in estimates], [e.high - e.value for _, e in estimates]]
    axis.errorbar(
        steps, values, np.maximum(errors, 0.0), color=colour, marker="o", markersize=3.5, linewidth=1.2, elinewidth=0.7,
        label=label,
    )  # fmt: skip


def _outcome(test: Outcome) -> str:
    if test.p is None:
        return f"none: {test.why_not}"
    return "< 0.0001" if test.p < 1e-4 else f"{test.p:.4f}"


def by_origin(values: Float[np.ndarray, " N"], origins: Sequence[str]) -> Float[np.ndarray, " K"]:
    """The mean of each origin's prompts: what was made from one thing is one observation."""
    _, indices = np.unique(np.asarray(origins, dtype=str), return_inverse=True)
    means: Float[np.ndarray, " K"] = np.bincount(indices, values) / np.bincount(indices)
    return means


def outcome_of(test: Callable[[], TTest]) -> Outcome:
    """What a test comes to, or why it could not be made."""
    try:
        return Outcome(**test()._asdict())
    except ValueError as error:
        return Outcome(why_not=str(error))


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
