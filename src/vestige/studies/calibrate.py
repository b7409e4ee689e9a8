"""Calibration: the learning rate, and one strength of a method if asked, at which a stated goal is met best.

Results at one shared learning rate say little (PISTOL, 2406.16810): a rate that one method hardly notices ruins
another. So each method gets its own, for each forget set, by one rule: every candidate of a grid is trained to its end
as `vestige unlearn` would, and scored on validation items; the best for the goal is reported on the other items.
Scores of trainings that are under way would be cheaper and favour rates that are too high, the first to forget.

::

    asked.json                    the identity: everything that can change the result
    target/score.json             how the target itself scores on the validation items
    candidates/<rate>[-<strength>]/   a subject's folder with the whole model, and its score.json
    calibration.json              written last: every candidate, the choice, and the estimates on test items

Everything but provenance is the same bytes after a run that was killed and resumed.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.artifacts.layout import Entry, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import read_summary, read_training_log, result_rows
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import locked, read_json
from vestige.core.ids import content_id
from vestige.core.settings import Settings
from vestige.core.store import OR_FRESH, claim, load, save
from vestige.core.text import closest
from vestige.data.corpus import CHOSEN_ON, HeldOutSplits, NamedSplits, everything, held_apart
from vestige.evals.qa import QASettings
from vestige.methods import build_method
from vestige.methods.base import FromStart
from vestige.models.load import LoadedModel
from vestige.steps.evaluate import Subject, evaluate, evaluate_versions, finished_subject, loaded_subject, requests_of
from vestige.steps.runner import Report, Task, run_tasks, workers_for
from vestige.steps.subjects import load_checked
from vestige.steps.trajectory import AnswerScores
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_spec
from vestige.studies.goals import Goal, log_grid, parse_goal

VERSION = 2
"""Raised when the same request would come out as another calibration."""
METRICS = ("rouge1_recall", "rougeL_recall", "exact_match", "probability", "mrr", "top_hit", "answer_bits")
"""What a goal can be stated in: those metrics of `qa` of which more means more is still answered."""
_TIMES = "score-provenance.json"


def calibrate_versions() -> dict[str, int]:
    """The versions in the identity of a calibration, but for those of unlearning, by name."""
    return {"calibrate": VERSION, **evaluate_versions([QASettings.name])}


class GridPoint(NamedTuple):
    """One candidate; `strength` is None where only rates are searched."""

    rate: float
    strength: float | None


@dataclass(frozen=True)
class CalibrationFolder:
    """One calibration: one target, forget set and method."""

    path: Path

    asked = Entry("asked.json")
    """The identity."""
    result = Entry("calibration.json")
    """Written last."""
    lock = Entry(".lock")
    """Held by the command that works on the calibration."""

    def candidate(self, rate: float, strength: float | None) -> SubjectFolder:
        """The subject that is trained at this rate and strength."""
        name = f"{rate:g}" if strength is None else f"{rate:g}-{strength:g}"
        return SubjectFolder(self.path / "candidates" / name)

    def score(self, point: GridPoint | None) -> Path:
        """Where the validation score of a candidate lies, or the target's."""
        return (self.candidate(*point).path if point else self.path / "target") / "score.json"

    def cpu_seconds(self) -> float:
        """Processor seconds of all training and scoring that was brought to its end, the losers' too."""
        return sum(float(read_json(path)["times"]["cpu_seconds"]) for path in sorted(self.path.rglob(_TIMES)))


@dataclass(frozen=True)
class Score:
    """Mean validation scores after `steps` steps; None where training broke down, for the reason in `broke_down`."""

    steps: int
    n_tokens: int
    forget: float | None
    retain: float | None
    broke_down: str


@dataclass(frozen=True)
class CandidateResult:
    """One point of the grid and what became of it; `strength` is None where only rates were searched."""

    rate: float
    strength: float | None
    score: Score
    fate: Literal["broke down", "chosen", "not chosen"]


@dataclass(frozen=True)
class Calibration:
    """What a calibration found.

    `strength_name` is the method's setting that was searched besides the rate, or empty. `reached` says whether the
    chosen candidate is within the goal's bound on the validation items; if not, it is the nearest to it. `rate` is
    None where every training broke down. `start` is the target's own score, `n_steps` and `n_tokens` what all
    candidates together were trained for, `n_validation` the items chosen on. `test` holds estimates of the chosen
    candidate on the other items, as rows of tables/results.csv.
    """

    method: str
    forget: str
    goal: str
    metric: str
    strength_name: str
    reached: bool
    rate: float | None
    strength: float | None
    start: Score
    candidates: tuple[CandidateResult, ...]
    n_steps: int
    n_tokens: int
    n_validation: dict[str, int]
    test: tuple[dict[str, Any], ...]

    @property
    def end(self) -> Score | None:
        """The validation score of the candidate that was chosen."""
        return next((c.score for c in self.candidates if c.fate == "chosen"), None)

    @property
    def chosen(self) -> str:
        """The chosen rate in words, and the strength where one was searched."""
        strength = "" if self.strength is None else f", {self.strength_name} {self.strength:g}"
        return f"learning rate {self.rate:g}{strength}"


def read_calibration(folder: CalibrationFolder) -> Calibration:
    """The result of a finished calibration."""
    if not folder.result.exists():
        raise InputError(f"{folder.path} holds no finished calibration; run the command that was making it again")
    return load(folder.result, Calibration)


class CalibrateSettings(Settings):
    """What is searched, for which goal.

    At most `validation_items`, and at most half, of the forget and of the retain set are chosen on.
    """

    goal: str
    """forget<=0.3 or retain>=0.95, in the metric's unit."""
    rates: tuple[PositiveFloat, ...] = Field(default=log_grid(1e-6, 1e-3, 8), min_length=1)
    """Learning rates."""
    strength: str = ""
    """Setting of the method that is searched too."""
    strengths: tuple[float, ...] = ()
    """Its values."""
    metric: str = "rouge1_recall"
    """Metric of the goal."""
    validation_items: PositiveInt = 64
    """At most this many items of a split are used to choose."""


@dataclass(frozen=True)
class CalibrateRequest:
    """An unlearning whose learning rate is sought, what it is judged on, and how.

    `splits` are those of the forget set, with what else is to be reported on; `questions` says how the models are
    asked. The rate in `unlearning` itself is never used.
    """

    unlearning: UnlearnRequest
    splits: NamedSplits
    questions: QASettings
    settings: CalibrateSettings

    @property
    def goal(self) -> Goal:
        """What is to be reached."""
        return parse_goal(self.settings.goal)

    @property
    def candidates(self) -> tuple[GridPoint, ...]:
        """The grid, lowest rate first."""
        strengths = self.settings.strengths or (None,)
        return tuple(GridPoint(rate, strength) for rate in sorted(self.settings.rates) for strength in strengths)

    @property
    def apart(self) -> HeldOutSplits:
        """The items to choose on and those to report on."""
        return held_apart(self.splits, most=self.settings.validation_items, seed=self.unlearning.seed)

    def of(self, point: GridPoint) -> UnlearnRequest:
        """What is asked of one candidate: what `vestige unlearn` would be asked for at its rate."""
        # The rate alone differs, so that a candidate is what `vestige unlearn` makes at that rate.
        training = self.unlearning.training.model_copy(update={"learning_rate": point.rate})
        if point.strength is None:
            return replace(self.unlearning, training=training)
        method_settings = {**self.unlearning.method_settings, self.settings.strength: point.strength}
        return replace(self.unlearning, training=training, method_settings=method_settings)

    def scores(self, model: LoadedModel) -> dict[str, float]:
        """The model's mean scores on the validation items of the forget and the retain set."""
        splits = self.apart.validation.splits
        items = {name: splits[name] for name in CHOSEN_ON}
        return AnswerScores(items, self.settings.metric, self.questions)(model)


def check_request(request: CalibrateRequest) -> None:
    """Refuse what would fail only after something has been trained."""
    settings, method = request.settings, request.unlearning.method
    built = build_method(method, request.unlearning.method_settings)
    if isinstance(built, FromStart) or not built.needs.splits:
        raise InputError(f"method {method!r} does not train the target, so there is no rate to be found for it")
    parse_goal(settings.goal)
    if settings.metric not in METRICS:
        raise InputError(
            f"no goal can be stated in the metric {settings.metric!r}; {closest(settings.metric, list(METRICS))}"
        )
    if bool(settings.strength) != bool(settings.strengths):
        raise InputError("strength and strengths go together: the name of one of the method's settings, and its values")
    for point in request.candidates:
        build_method(method, request.of(point).method_settings)
    # By the folders' names, which have six digits of a rate.
    names = Counter(CalibrationFolder(Path()).candidate(*point).path.name for point in request.candidates)
    if names.most_common(1)[0][1] > 1:
        twice = min(name for name, n in names.items() if n > 1)
        raise InputError(f"the candidate {twice} is in the grid more than once; give each rate and strength once")
    # Refuses splits that are too small to be parted, before anything is trained.
    _ = request.apart


def request_identity(request: CalibrateRequest) -> dict[str, Any]:
    """Everything that can change the result, flat."""
    # The rate and the strength of the request itself are replaced, so they must not count.
    spec = asdict(unlearn_spec(request.of(request.candidates[0])))
    apart = request.apart
    return {
        "version": VERSION,
        **request.settings.identity(),
        **{k: v for k, v in spec.items() if k not in {"settings", "settings_id", "version"}},
        **{f"unlearning.{k}": v for k, v in spec["settings"].items()},
        "unlearning.version": spec["version"],
        **{f"questions.{k}": v for k, v in request.questions.identity().items()},
        "questions.version": QASettings.collect_version,
        "validation": content_id([i.id for i in everything([apart.validation])], length=32),
        "test": content_id({n: [i.id for i in items] for n, items in apart.test.splits.items()}, length=32),
    }


def check_reach(request: CalibrateRequest, retrained: LoadedModel) -> None:
    """Refuse a goal on the forget set that a model which never knew it does not meet; its score is offered instead."""
    goal = request.goal
    if goal.split != "forget":
        return
    # Nobody can be made to know less of something than one who never heard of it.
    score = request.scores(retrained)["forget"]
    if score > goal.bound:
        raise InputError(
            f"{goal} asks for less than the retrained model has, which never knew the forget set: it scores "
            f"{score:.3f} in {request.settings.metric}; set --reach 'forget<={math.ceil(1000 * score) / 1000:g}'"
        )


def calibrate(
    folder: Path,
    request: CalibrateRequest,
    *,
    workers: int | None = None,
    show: Callable[[float, str], None] = lambda _share, _note: None,
) -> Calibration:
    """The finished calibration in `folder`; resumes, and does nothing when it is there.

    Work is done in processes of its own, as `run_tasks` has it: one by default, or as many as there are GPUs; with 0
    in this one.
    """
    calibration = CalibrationFolder(folder)
    check_request(request)
    if workers != 0:
        workers = workers_for(request.unlearning.target.device, workers, on_cpu=1)
    with locked(calibration.lock):
        claim(calibration.asked, request_identity(request), "calibration", out=OR_FRESH)
        for error in run_tasks(calibration_tasks(calibration, request), workers=workers, show=show).values():
            raise error
    return read_calibration(calibration)


def calibration_tasks(
    calibration: CalibrationFolder, request: CalibrateRequest, *, name: str = "calibrate"
) -> list[Task]:
    """The target's score, every candidate's, and the choice, which is the last task; `name` begins their names."""
    base = {"folder": calibration, "request": request}
    tasks = [
        Task(f"{name}: {calibration.score(point).parent.name}", score_task, {**base, "point": point}, weight=weight)
        # Scoring alone takes about a tenth of a training.
        for point, weight in ((None, 0.1), *((point, 1.0) for point in request.candidates))
    ]
    return [*tasks, Task(f"{name}: choose", choose_task, base, tuple(task.name for task in tasks), 0.1)]


def score_task(folder: CalibrationFolder, request: CalibrateRequest, point: GridPoint | None, report: Report) -> None:
    """Train one candidate and score it on the validation items; without a point, score the target."""
    watch, unlearning = Stopwatch(), request.unlearning
    outcome: tuple[float | None, float | None, str]
    if (path := folder.score(point)).exists():
        return
    try:
        if point is None:
            model = load_checked(unlearning.target, unlearning.target_digest, "the target")
        else:
            unlearn(folder.candidate(*point), request.of(point), lambda p: report(p.step / p.n_steps))
            model = loaded_subject(_finished(folder, request, point))
        means = request.scores(model)
        outcome = means["forget"], means["retain"], ""
    except NotFinite as error:
        if point is None:
            raise
        # That a rate is too high is a finding about it, and no failure of the search.
        outcome = None, None, str(error)
    steps = read_training_log(folder.candidate(*point).training_log) if point else []
    write_provenance(path.with_name(_TIMES), watch)
    save(path, Score(len(steps), sum(row["n_tokens"] for row in steps), *outcome))


def _finished(folder: CalibrationFolder, request: CalibrateRequest, point: GridPoint) -> Subject:
    target = request.unlearning.target
    return finished_subject(folder.candidate(*point), device=target.device, trust_remote_code=target.trust_remote_code)


def choose_task(folder: CalibrationFolder, request: CalibrateRequest, report: Report) -> None:
    """Choose the candidate that meets the goal best, report on the test items, and write down everything."""
    if folder.result.exists():
        return
    goal, unlearning, apart = request.goal, request.unlearning, request.apart
    scores = {point: load(folder.score(point), Score) for point in request.candidates}
    ranks = {
        point: goal.rank(score.forget, score.retain)
        for point, score in scores.items()
        if score.forget is not None and score.retain is not None
    }
    # Of equals the first of the grid, the lowest rate.
    best = min(ranks, key=lambda point: ranks[point], default=None)
    test: list[dict[str, Any]] = []
    if best is not None:
        (questions,) = requests_of(apart.test, {QASettings.name: request.questions}, unlearning.seed)
        answers = evaluate(_finished(folder, request, best), questions, lambda done, of: report(done / of))
        # By what the items are called: a study calls a file that is forgotten by its name alone.
        test = result_rows([read_summary(answers.summary(apart.test.forget))])
    candidates = (
        CandidateResult(
            *point, score, "broke down" if point not in ranks else "chosen" if point == best else "not chosen"
        )
        for point, score in scores.items()
    )
    calibration = Calibration(
        method=unlearning.method,
        forget=unlearning.forget,
        goal=str(goal),
        metric=request.settings.metric,
        strength_name=request.settings.strength,
        reached=best is not None and ranks[best][0] == 0,
        rate=None if best is None else best.rate,
        strength=None if best is None else best.strength,
        start=load(folder.score(None), Score),
        candidates=tuple(candidates),
        n_steps=sum(score.steps for score in scores.values()),
        n_tokens=sum(score.n_tokens for score in scores.values()),
        n_validation={name: len(items) for name, items in apart.validation.splits.items()},
        test=tuple(test),
    )
    save(folder.result, calibration)
