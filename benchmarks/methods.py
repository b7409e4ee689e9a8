"""The table of all methods: PISTOL's sample dataset 1, the built-in tiny model, calibrated rates, three seeds.

`python -m benchmarks.methods --run runs/methods` fills the run and writes benchmarks/results/methods.md; stopped, the
same command goes on. With `--methods npo kl` only these; `--table` writes the table from what is there.

Every method forgets each of two contracts. Its learning rate is calibrated for each (seed 0, validation items), then
it unlearns at that rate with three seeds, each from the target of that seed, and is reported on the items that
nothing was chosen on. `none` is the target as it is, `retrain` a model taught in the same way without the contract.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from vestige.artifacts.layout import RunFolder, SubjectFolder
from vestige.artifacts.records import read_summary
from vestige.core.errors import InputError
from vestige.core.files import locked, read_jsonl, write_text
from vestige.core.ids import slug
from vestige.core.seeds import derive_seed
from vestige.data.corpus import (
    HeldOutSplits,
    NamedSplits,
    SourceSettings,
    held_apart,
    named_splits,
    open_corpus,
)
from vestige.data.folder import CompileSettings, compile_to_folder
from vestige.methods import METHODS
from vestige.metrics.intervals import interval_over_seeds
from vestige.requests import tiny_unlearning
from vestige.steps.runner import Report, Task, run_tasks
from vestige.studies.calibrate import (
    CalibrateRequest,
    CalibrateSettings,
    Calibration,
    CalibrationFolder,
    GridPoint,
    calibration_tasks,
    read_calibration,
)
from vestige.studies.demo import Demo, DemoSettings
from vestige.studies.goals import log_grid
from vestige.training.settings import UnlearningSettings

PAGE = Path(__file__).parents[1] / "benchmarks" / "results" / "methods.md"
FORGET = ("edge:A_B", "edge:A_C")
SEEDS = (0, 1, 2)
CONTROLS = ("none", "retrain")
METRIC = "rouge1_recall"
SETTINGS = CalibrateSettings(goal="forget<=0.3", metric=METRIC, rates=log_grid(1e-5, 2e-3, 8))
STRENGTHS = {"rmu": ("alpha", (0.01, 0.1, 1.0)), "task_arithmetic": ("scale", (1.0, 3.0, 10.0))}
"""Settings that belong to a model as rates do, and that the papers choose for each: searched with the rate.

From an alpha of 10 on, no rate up to 2e-3 makes the tiny model forget anything by RMU.
"""
MAX_NEW_TOKENS = 32
COLUMNS = (("forget", "all"), ("forget", "free"), ("retain", "all"), ("independent", "all"), ("factual", "all"))


@dataclass(frozen=True)
class Cell:
    """One row of the table: a method, a forget set."""

    method: str
    forget: str

    @property
    def name(self) -> str:
        """What its tasks are called after."""
        return f"{self.method} {self.forget}"


@cache
def _splits(run: RunFolder, forget: str) -> NamedSplits:
    corpus = open_corpus(SourceSettings(data=str(run.data), factual="builtin"))
    return named_splits(corpus, forget)


@cache
def _apart(run: RunFolder, forget: str) -> HeldOutSplits:
    """Validation and test items; the same for every method and seed."""
    return held_apart(_splits(run, forget), most=SETTINGS.validation_items, seed=0)


def _target(run: RunFolder, seed: int) -> SubjectFolder:
    return run.control(f"target seed {seed}")


def _retrained(run: RunFolder, forget: str, seed: int) -> SubjectFolder:
    return run.control(f"retrained {forget} seed {seed}")


def _calibration(run: RunFolder, cell: Cell) -> CalibrationFolder:
    return CalibrationFolder(run.path / "calibrations" / slug(cell.name))


def _request(run: RunFolder, cell: Cell, seed: int) -> CalibrateRequest:
    """The calibration of a cell as it would be from the target of a seed; that of seed 0 is made."""
    from vestige.evals.qa import QASettings
    from vestige.models.load import ModelSettings
    from vestige.steps.unlearn import unlearn_request

    splits = _splits(run, cell.forget)
    target, training = _target(run, seed), UnlearningSettings.build(tiny_unlearning(cell.method))
    model = ModelSettings(model=str(target.model), device="cpu")
    unlearning = unlearn_request(model, splits, cell.method, lambda _: training, seed=seed)
    strength, strengths = STRENGTHS.get(cell.method, ("", ()))
    settings = SETTINGS.model_copy(update={"strength": strength, "strengths": strengths})
    return CalibrateRequest(unlearning, splits, QASettings(max_new_tokens=MAX_NEW_TOKENS), settings)


def _chosen(cell: Cell, found: Calibration) -> GridPoint:
    if found.rate is None:
        raise InputError(f"{cell.name}: training broke down at every rate that was tried to the end")
    return GridPoint(found.rate, found.strength)


def _unlearned(run: RunFolder, cell: Cell, chosen: GridPoint, seed: int) -> SubjectFolder:
    """The subject of a seed at the calibrated rate; that of seed 0 is the calibration's own."""
    own = _calibration(run, cell).candidate(*chosen)
    return own if seed == SEEDS[0] else run.cell(f"{cell.name} seed {seed}", own.path.name)


def seed_task(run: str, method: str, forget: str, seed: int, report: Report) -> None:
    """Unlearn with one more seed at the calibrated rate, and evaluate."""
    from vestige.steps.unlearn import unlearn

    place, cell = RunFolder(Path(run)), Cell(method, forget)
    chosen = _chosen(cell, read_calibration(_calibration(place, cell)))
    folder = _unlearned(place, cell, chosen, seed)
    unlearn(folder, _request(place, cell, seed).of(chosen), lambda p: report(0.5 * p.step / p.n_steps))
    _evaluate(place, folder, forget)


def control_task(run: str, method: str, forget: str, seed: int, report: Report) -> None:
    """Evaluate a control."""
    place = RunFolder(Path(run))
    _evaluate(place, _target(place, seed) if method == "none" else _retrained(place, forget, seed), forget)


def _evaluate(run: RunFolder, folder: SubjectFolder, forget: str) -> None:
    from vestige.evals.qa import QASettings
    from vestige.steps.evaluate import evaluate, finished_subject, requests_of

    test = _apart(run, forget).test
    (asked,) = requests_of(test, {"qa": QASettings(max_new_tokens=MAX_NEW_TOKENS)}, 0)
    evaluate(finished_subject(folder, device="cpu"), asked)


def made_first(run: RunFolder) -> list[Task]:
    """The targets, which everything else starts from."""
    return [_teach(run, f"target seed {seed}", "", seed) for seed in SEEDS]


def _teach(run: RunFolder, name: str, forget: str, seed: int) -> Task:
    demo = Demo(run, DemoSettings(seed=seed, factual=True))
    return Task(name, demo.finetune, {"name": name, "forget": forget, "seed": seed}, weight=110)


def plan(run: RunFolder, methods: Sequence[str]) -> list[Task]:
    """Everything after the targets, so that what is finished first makes the first rows of the table."""
    tasks = [t for forget in FORGET for seed in SEEDS for t in _control(run, Cell("none", forget), seed, ())]
    cells = [Cell(method, forget) for method in methods if method not in CONTROLS for forget in FORGET]
    for cell in cells:
        calibration = calibration_tasks(_calibration(run, cell), _request(run, cell, SEEDS[0]), name=cell.name)
        tasks += calibration
        for seed in SEEDS[1:]:
            arguments = {"run": str(run.path), "method": cell.method, "forget": cell.forget, "seed": seed}
            tasks.append(Task(f"{cell.name} seed {seed}", seed_task, arguments, (calibration[-1].name,), 8))
    for seed in SEEDS:
        for forget in FORGET:
            taught = _teach(run, f"retrained {forget} seed {seed}", forget, seed)
            tasks += [taught, *_control(run, Cell("retrain", forget), seed, (taught.name,))]
    return tasks


def _control(run: RunFolder, cell: Cell, seed: int, after: tuple[str, ...]) -> Iterator[Task]:
    arguments = {"run": str(run.path), "method": cell.method, "forget": cell.forget, "seed": seed}
    yield Task(f"evaluate {cell.name} seed {seed}", control_task, arguments, after, 4)


def scores_of(run: RunFolder, cell: Cell) -> tuple[dict[str, dict[str, float]], ...]:
    """For each seed that is there, its scores by item and metric."""
    found = []
    for seed in SEEDS:
        folder = _subject(run, cell, seed)
        for place in folder.evaluations() if folder is not None else ():
            summary = place.summary(cell.forget)
            if summary.exists() and set(read_summary(summary).splits["forget"]) == _tested(run, cell.forget):
                found.append({row["item"]: row for row in read_jsonl(place.scores)})
    return tuple(found)


def _tested(run: RunFolder, forget: str) -> set[str]:
    return {i.id for i in _apart(run, forget).test.splits["forget"]}


def _subject(run: RunFolder, cell: Cell, seed: int) -> SubjectFolder | None:
    if cell.method in CONTROLS:
        return _target(run, seed) if cell.method == "none" else _retrained(run, cell.forget, seed)
    place = _calibration(run, cell)
    if not place.result.exists() or (found := read_calibration(place)).rate is None:
        return None
    return _unlearned(run, cell, _chosen(cell, found), seed)


def estimates(run: RunFolder, cell: Cell) -> list[str]:
    """The cells of COLUMNS: mean and interval over the items that all seeds answered; empty before the first seed."""
    seeds = scores_of(run, cell)
    test = _apart(run, cell.forget).test
    shown = []
    for split, scope in COLUMNS if seeds else ():
        items = [i for i in test.splits.get(split, ()) if scope == "all" or test.scopes.get(i.id) == scope]
        scores = np.array([[at[i.id][METRIC] for i in items] for at in seeds])
        edges = [i.edge for i in items if i.edge is not None]
        clusters = edges if len(edges) == len(items) and len(set(edges)) > 1 else None
        seed = derive_seed(0, "table", cell.name, split, scope)
        interval = interval_over_seeds(scores, clusters=clusters, bounds=(0.0, 1.0), seed=seed)
        shown.append(f"{scores.mean():.2f} [{interval.low:.2f}, {interval.high:.2f}]")
    return shown


def page(run: RunFolder, methods: Sequence[str]) -> str:
    """benchmarks/results/methods.md from what is there; rows that are not there yet are left out."""
    order = [*CONTROLS, *(m for m in methods if m not in CONTROLS)]
    cells = [Cell(method, forget) for forget in FORGET for method in order]
    rows = [(cell, values) for cell in cells if (values := estimates(run, cell))]
    return "\n".join(
        [
            *_introduction(run),
            "",
            _row("method", "forget set", "rate", *(f"{s}, {c}" for s, c in COLUMNS), "seeds"),
            _row(*["---"] * (4 + len(COLUMNS))),
            *(
                _row(cell.method, cell.forget, _rate(run, cell), *values, str(len(scores_of(run, cell))))
                for cell, values in rows
            ),
            "",
            "## What the calibrations found and cost",
            "",
            "Forget and retain score of the chosen rate on the validation items; steps, tokens and processor seconds "
            "of all candidates together. `not reached`: no rate tried met the goal, and the nearest was taken.",
            "",
            _row("method", "forget set", "rate", "forget", "retain", "", "steps", "tokens", "processor seconds"),
            _row(*["---"] * 9),
            *(_calibrated(run, cell) for cell in cells if _calibration(run, cell).result.exists()),
            "",
        ]
    )


def _introduction(run: RunFolder) -> list[str]:
    names = dict.fromkeys(split for split, _ in COLUMNS)
    sizes = {forget: _apart(run, forget).test.splits for forget in FORGET}
    counts = "; ".join(f"{f}: {', '.join(f'{name} {len(at[name])}' for name in names)}" for f, at in sizes.items())
    searched = ", ".join(f"{name} of {method}" for method, (name, _) in STRENGTHS.items())
    return [
        "# All methods at calibrated rates",
        "",
        "PISTOL's sample dataset 1 with the built-in factual questions, the built-in tiny model, all parameters, 20 "
        "epochs, batch 4. `python -m benchmarks.methods` makes this page. ROUGE-1 recall of greedy answers, mean over "
        f"{len(SEEDS)} seeds of target and unlearning, with 95 % intervals, on items that nothing was chosen on "
        f"({counts}).",
        "",
        f"The rate of each row was calibrated for `{SETTINGS.goal}` on seed 0 and validation items (docs/training.md) "
        f"among {len(SETTINGS.rates)} rates from {SETTINGS.rates[0]:g} to {SETTINGS.rates[-1]:g}. Other settings are "
        "the methods' defaults; searched with the rate were those that the papers too choose for each model: "
        f"{searched}.",
        "",
        "An interval counts the choice of items (clustered by contract) and the luck of the seeds (Student's t over "
        "their means), added in quadrature; the forget items are those of one contract, so there it speaks of "
        "questions about this contract. The table shows what a method does to a model of 1.7 million parameters, and "
        "says nothing of what is left in its weights.",
        "",
        "Rows did not all reach the same forgetting: the grid is coarse (each rate is some twice the one before), and "
        "the half of a contract's 20 questions that chose is not the half that reports. Where one half holds the "
        "answers that go last, its goal is met when the other has long been forgotten, at a cost in what is kept: "
        "compare the forget scores of the two tables below. Two rows tell methods apart where both of their intervals "
        "do.",
    ]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rate(run: RunFolder, cell: Cell) -> str:
    if cell.method in CONTROLS:
        return ""
    found = read_calibration(_calibration(run, cell))
    strength = "" if found.strength is None else f", {found.strength_name} {found.strength:g}"
    return f"{found.rate:g}{strength}{'' if found.reached else ' (not reached)'}"


def _calibrated(run: RunFolder, cell: Cell) -> str:
    place = _calibration(run, cell)
    found = read_calibration(place)
    end = found.end
    score = ("", "") if end is None else (f"{end.forget:.3f}", f"{end.retain:.3f}")
    said = "" if found.reached else "not reached" if end is not None else "broke down"
    rate = "" if found.rate is None else _rate(run, cell).removesuffix(" (not reached)")
    spent = (f"{found.n_steps}", f"{found.n_tokens}", f"{place.cpu_seconds():.0f}")
    return _row(cell.method, cell.forget, rate, *score, said, *spent)


def progress(*, terminal: bool) -> Callable[[float, str], None]:
    """Shows a plan on stderr: one line that is written over on a terminal, elsewhere one where other tasks run."""
    shown = [""]

    def show(share: float, note: str) -> None:
        line = f"{share:.0%}; {note}"
        if terminal:
            print(f"\r{line[:118]:118}", end="", file=sys.stderr, flush=True)
        elif note != shown[0]:
            print(line, file=sys.stderr, flush=True)
        shown[0] = note

    return show


def main() -> None:
    """Fill the run and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/methods"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--table", action="store_true", help="write the page from what is there")
    parser.add_argument("--page", type=Path, default=PAGE)
    words = parser.parse_args()
    run = RunFolder(words.run)
    failed: dict[str, Exception] = {}
    terminal = sys.stderr.isatty()
    if not words.table:
        with locked(run.lock, patience_seconds=10):
            compile_to_folder("sample1", run.data, CompileSettings(seed=0))
            failed = run_tasks(made_first(run), workers=words.workers, show=progress(terminal=terminal))
            if not failed:
                show = progress(terminal=terminal)
                failed = run_tasks(plan(run, words.methods), workers=words.workers, show=show)
    write_text(words.page, page(run, words.methods))
    for name, error in failed.items():
        print(f"\nfailed: {name}: {error}", file=sys.stderr)
    if failed:
        raise SystemExit(5)


if __name__ == "__main__":
    main()
