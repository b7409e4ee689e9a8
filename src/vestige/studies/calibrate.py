"""Calibration: the learning rate, and one strength of a method if asked, at which a stated goal is met best.

Results at one shared learning rate say little (PISTOL, 2406.16810): a rate that one method hardly notices
ruins another. So each method gets its own, for each forget set, by one rule and one budget: successive halving over a
log grid (`halving`), on validation items; the chosen one is reported on the other items. A candidate is paused at a
rung and goes on from there, never restarted; every rung's scores and decision are kept, the losers' too.

The plan is a list of tasks, which does nothing where its files are there. Candidates that dropped out have tasks
too: those see from the scores before them that there is nothing to do.

::

    asked.json                    the identity: everything that can change the result
    target/                       a rung folder: how the target itself scores on the validation items
    candidates/<rate>[-<strength>]/   a subject's folder; those of the last rung hold a whole model
        rungs/<n>/                records.jsonl, provenance.json, and score.json, written last
    calibration.json              written last: every candidate, rung and decision, and the estimates on test items

Everything but provenance.json is the same bytes after a run that was killed and resumed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from vestige.artifacts.layout import Entry, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import read_summary, read_training_log, result_rows
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import locked, read_json, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.core.store import OR_FRESH, claim, load, save
from vestige.core.text import closest
from vestige.data.corpus import CHOSEN_ON, Apart, NamedSplits, everything, held_apart
from vestige.evals import qa
from vestige.evals.qa import QASettings
from vestige.methods import build_method
from vestige.methods.base import FromStart
from vestige.models.load import LoadedModel
from vestige.steps.evaluate import CHUNK, evaluate, evaluate_versions, finished_subject, requests_of
from vestige.steps.runner import Report, State, Task, run_tasks, workers_for
from vestige.steps.subjects import load_checked
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_part, unlearn_spec
from vestige.studies.halving import (
    Candidate,
    Goal,
    Point,
    Rung,
    chosen,
    foreseen,
    log_grid,
    parse_goal,
    promoted,
    rung_sizes,
)
from vestige.training.batching import UnlearnPlan
from vestige.training.checkpoints import Checkpoints
from vestige.training.loop import learning_rate, total_steps

Fate = Literal["goes on", "dropped", "broke down", "chosen", "not chosen"]


@dataclass(frozen=True)
class RungFolder:
    """One candidate's validation at one rung."""

    path: Path

    records = Entry("records.jsonl")
    """One line a validation item."""
    provenance = Entry("provenance.json")
    """Versions, hardware and the times of training and scoring at this rung."""
    score = Entry("score.json")
    """Written last: the mean scores, or that training broke down."""


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

    @property
    def target(self) -> RungFolder:
        """The target's own validation."""
        return RungFolder(self.path / "target")

    def candidate(self, rate: float, strength: float | None) -> SubjectFolder:
        """The subject that is trained at this rate and strength."""
        name = f"{rate:g}" if strength is None else f"{rate:g}-{strength:g}"
        return SubjectFolder(self.path / "candidates" / name)

    def rung(self, candidate: SubjectFolder, number: int) -> RungFolder:
        """The candidate's validation at rung 1, 2, ..."""
        return RungFolder(candidate.path / "rungs" / str(number))

    def cpu_seconds(self) -> float:
        """Processor seconds of all training and scoring that was brought to its end, the losers' too."""
        places = ("target/provenance.json", "candidates/*/rungs/*/provenance.json")
        paths = [path for place in places for path in sorted(self.path.glob(place))]
        return sum(float(read_json(path)["times"]["cpu_seconds"]) for path in paths)


@dataclass(frozen=True)
class Score:
    """Mean validation scores after `steps` steps; None where training broke down, for the reason in `broke_down`."""

    steps: int
    n_tokens: int
    forget: float | None
    retain: float | None
    broke_down: str


@dataclass(frozen=True)
class RungResult:
    """One candidate at one rung: its score, where it was foreseen to end, and what became of it."""

    score: Score
    foreseen_forget: float | None
    foreseen_retain: float | None
    fate: Fate


@dataclass(frozen=True)
class CandidateResult:
    """One point of the grid and its rungs; `strength` is None where only rates were searched."""

    rate: float
    strength: float | None
    rungs: tuple[RungResult, ...]


@dataclass(frozen=True)
class Calibration:
    """What a calibration found.

    `strength_name` is the method's setting that was searched besides the rate, or empty. `reached` says whether the
    chosen candidate is within the goal's bound on the validation items; if not, it is the nearest to it. `rate` is
    None where every finalist's training broke down. `start` is the target's own score, `n_steps` and `n_tokens` what
    all candidates together were trained for, `n_validation` the items chosen on. `test` holds estimates of the chosen
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
    def end(self) -> Score:
        """The validation score of the candidate that was chosen, at its end."""
        own = (c for c in self.candidates if (c.rate, c.strength) == (self.rate, self.strength))
        return next(own).rungs[-1].score

    @property
    def chosen(self) -> str:
        """The chosen rate in words, and the strength where one was searched."""
        strength = "" if self.strength is None else f", {self.strength_name} {self.strength:g}"
        return f"learning rate {self.rate:g}{strength}"


def read_score(folder: RungFolder) -> Score | None:
    """A rung's score; None while it is not there."""
    return load(folder.score, Score) if folder.score.exists() else None


def read_calibration(folder: CalibrationFolder) -> Calibration:
    """The result of a finished calibration."""
    if not folder.result.exists():
        raise InputError(f"{folder.path} holds no finished calibration; run the command that was making it again")
    return load(folder.result, Calibration)


VERSION = 1
"""Raised when the same request would come out as another calibration."""


def calibrate_versions() -> dict[str, int]:
    """The versions in the identity of a calibration, but for those of unlearning, by name."""
    return {"calibrate": VERSION, **evaluate_versions([qa.NAME])}


METRICS = ("rouge1_recall", "rougeL_recall", "exact_match", "probability", "mrr", "top_hit", "answer_bits")
"""What a goal can be stated in: those metrics of `qa` of which more means more is still answered."""


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
    rungs: PositiveInt = 3
    """How often candidates are compared; 1 trains all to the end."""
    keep_one_in: int = Field(default=2, ge=2)
    """One in this many candidates is kept at each comparison, and trained this many times as far."""
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
    def candidates(self) -> tuple[Candidate, ...]:
        """The grid, lowest rate first."""
        strengths = self.settings.strengths or (None,)
        return tuple(Candidate(rate, strength) for rate in sorted(self.settings.rates) for strength in strengths)

    @property
    def apart(self) -> Apart:
        """The items to choose on and those to report on."""
        return held_apart(self.splits, most=self.settings.validation_items, seed=self.unlearning.seed)

    def rungs(self) -> tuple[Rung, ...]:
        """Steps, progress and size of each rung."""
        asked = self.unlearning
        plan = UnlearnPlan(len(asked.forget_items), 0, {}, asked.training.batch_size, asked.seed)
        per_epoch = plan.steps_per_epoch
        n_steps = total_steps(asked.training, steps_per_epoch=per_epoch)
        rates = [learning_rate(asked.training, step, steps_per_epoch=per_epoch) for step in range(n_steps)]
        settings = self.settings
        sizes = rung_sizes(len(self.candidates), n_steps, settings.rungs, settings.keep_one_in)
        return tuple(Rung(steps, sum(rates[:steps]) / sum(rates), n) for steps, n in sizes)

    def of(self, candidate: Candidate) -> UnlearnRequest:
        """What is asked of one candidate: what `vestige unlearn` would be asked for at its rate."""
        training = self.unlearning.training.model_copy(update={"learning_rate": candidate.rate})
        if candidate.strength is None:
            return replace(self.unlearning, training=training)
        own = {**self.unlearning.method_settings, self.settings.strength: candidate.strength}
        return replace(self.unlearning, training=training, method_settings=own)


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
    for candidate in request.candidates:
        build_method(method, request.of(candidate).method_settings)
    names = [CalibrationFolder(Path()).candidate(*c).path.name for c in request.candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"the candidate {twice[0]} is in the grid more than once; give each rate and strength once")
    _ = request.apart


def request_identity(request: CalibrateRequest) -> dict[str, Any]:
    """Everything that can change the result, flat."""
    # The rate and the strength of the request itself are replaced, so they must not count.
    spec = asdict(unlearn_spec(request.of(request.candidates[0])))
    own = {f"unlearning.{k}": v for k, v in spec["settings"].items()}
    apart = request.apart
    return {
        "version": VERSION,
        **request.settings.identity(),
        **{k: v for k, v in spec.items() if k not in {"settings", "settings_id", "version"}},
        **own,
        "unlearning.version": spec["version"],
        **{f"questions.{k}": v for k, v in request.questions.identity().items()},
        "questions.version": qa.COLLECT_VERSION,
        "validation": content_id([i.id for i in everything([apart.validation])], length=32),
        "test": content_id({n: [i.id for i in items] for n, items in apart.test.splits.items()}, length=32),
    }


def calibrate(
    folder: Path,
    request: CalibrateRequest,
    *,
    workers: int | None = None,
    show: Callable[[State], None] = lambda _: None,
) -> Calibration:
    """The finished calibration in `folder`; resumes, and does nothing when it is there.

    Work is done in processes of its own, as `run_tasks` has it: one by default, or as many as there are GPUs; with 0
    in this one.
    """
    place = CalibrationFolder(folder)
    check_request(request)
    if workers != 0:
        workers = workers_for(request.unlearning.target.device, workers, on_cpu=1)
    with locked(place.lock):
        claim(place.asked, request_identity(request), "calibration", out=OR_FRESH)
        for error in run_tasks(calibration_tasks(place, request), workers=workers, show=show).values():
            raise error
    return read_calibration(place)


def calibration_tasks(
    place: CalibrationFolder, request: CalibrateRequest, *, name: str = "calibrate", after: Sequence[str] = ()
) -> list[Task]:
    """The plan: the target's own score, each rung's candidates, and the choice, which is the last task.

    `name` is put before the names of the tasks; `after` are tasks to wait for.
    """
    base = {"place": str(place.path), "request": request}
    tasks = [Task(f"{name}: target", target_task, base, tuple(after))]
    before: tuple[str, ...] = (tasks[0].name,)
    steps = 0
    for number, rung in enumerate(request.rungs()):
        this = [
            Task(
                f"{name}: rung {number + 1}, {place.candidate(*candidate).path.name}",
                rung_task,
                {**base, "rung": number, "candidate": n},
                before,
                # As if all went on: which ones do is not known yet.
                float(rung.steps - steps) * rung.n_candidates / len(request.candidates),
            )
            for n, candidate in enumerate(request.candidates)
        ]
        tasks += this
        before, steps = tuple(task.name for task in this), rung.steps
    return [*tasks, Task(f"{name}: choose", choose_task, base, before)]


def target_task(place: str, request: CalibrateRequest, report: Report) -> None:
    """How the target scores on the validation items."""
    folder = CalibrationFolder(Path(place)).target
    if read_score(folder) is None:
        watch = Stopwatch()
        target = load_checked(request.unlearning.target, request.unlearning.target_digest, "the target")
        _keep(folder, request, watch, target, (0, 0))


def rung_task(place: str, request: CalibrateRequest, rung: int, candidate: int, report: Report) -> None:
    """Train one candidate up to a rung and score it, or clear up after it if it has dropped out."""
    folder, rungs = CalibrationFolder(Path(place)), request.rungs()
    subject = folder.candidate(*request.candidates[candidate])
    scored = folder.rung(subject, rung + 1)
    if read_score(scored) is not None:
        return
    if candidate not in _history(folder, request, rung).left:
        Checkpoints(subject.checkpoints).clear()
        return
    watch, asked = Stopwatch(), request.of(request.candidates[candidate])
    try:
        if rung + 1 < len(rungs):
            model, _ = unlearn_part(subject, asked, rungs[rung].steps, lambda p: report(p.step / rungs[rung].steps))
        else:
            unlearn(subject, asked, lambda p: report(p.step / p.n_steps))
            own = asked.target
            model = finished_subject(subject, device=own.device, trust_remote_code=own.trust_remote_code).load()
    except NotFinite as error:
        Checkpoints(subject.checkpoints).clear()
        write_provenance(scored.provenance, watch)
        save(scored.score, Score(*_spent(subject), None, None, str(error)))
        return
    _keep(scored, request, watch, model, _spent(subject))


def _spent(subject: SubjectFolder) -> tuple[int, int]:
    """How many steps and tokens a candidate has been trained for so far."""
    rows = read_training_log(subject.training_log)
    return len(rows), sum(row["n_tokens"] for row in rows)


def _keep(
    folder: RungFolder, request: CalibrateRequest, watch: Stopwatch, model: LoadedModel, spent: tuple[int, int]
) -> None:
    """Ask a model the validation questions; keep the records and the mean scores."""
    records, means = _asked(request, model)
    write_jsonl(folder.records, records)
    write_provenance(folder.provenance, watch, **model.provenance())
    save(folder.score, Score(*spent, means["forget"], means["retain"], ""))


def _asked(request: CalibrateRequest, model: LoadedModel) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A record of each validation question, and the mean scores of the forget and the retain set."""
    validation = request.apart.validation
    items = everything([validation])
    records = {}
    for chunk in qa.chunks(model, items, size=CHUNK):
        found = qa.collect(model, [items[i] for i in chunk], request.questions)
        records.update({r["item"]: r for r in found})
    values = {id_: qa.score(r) for id_, r in records.items()}
    means = {name: _mean(validation.splits[name], values, request.settings.metric) for name in CHOSEN_ON}
    return [records[i.id] for i in items], means


def check_reach(request: CalibrateRequest, retrained: LoadedModel) -> None:
    """Refuse a goal on the forget set that a model which never knew it does not meet; its score is offered instead."""
    goal = request.goal
    if goal.split != "forget":
        return
    score = _asked(request, retrained)[1]["forget"]
    if score > goal.bound:
        raise InputError(
            f"{goal} asks for less than the retrained model has, which never knew the forget set: it scores "
            f"{score:.3f} in {request.settings.metric}; set --reach 'forget<={math.ceil(1000 * score) / 1000:g}'"
        )


def _mean(items: Sequence[Item], values: Mapping[str, Mapping[str, float]], metric: str) -> float:
    found = [values[i.id][metric] for i in items if metric in values[i.id]]
    if not found:
        raise InputError(
            f"no validation item has the metric {metric!r}, which sees the letters a to z and digits only; choose "
            "another, such as exact_match"
        )
    return sum(found) / len(found)


class _History(NamedTuple):
    """The scores of the rungs so far, by candidate, and the candidates that the next rung is for."""

    scores: list[dict[int, Score]]
    left: tuple[int, ...]

    @property
    def points(self) -> list[dict[int, Point | None]]:
        return [{n: _point(score) for n, score in at.items()} for at in self.scores]


def _point(score: Score) -> Point | None:
    return None if score.forget is None or score.retain is None else Point(score.forget, score.retain)


def _history(folder: CalibrationFolder, request: CalibrateRequest, n_rungs: int) -> _History:
    """What the first `n_rungs` rungs say; every decision is made anew from the scores, and so always the same."""
    candidates, rungs = request.candidates, request.rungs()
    history = _History([], tuple(range(len(candidates))))
    for number in range(n_rungs):
        at = {}
        for n in history.left:
            score = read_score(folder.rung(folder.candidate(*candidates[n]), number + 1))
            assert score is not None, "a rung is waited for by the next"
            at[n] = score
        last = number + 1 == len(rungs)
        points = {n: _point(score) for n, score in at.items()}
        left = (
            ()
            if last
            else promoted(request.goal, candidates, rungs[number].progress, points, rungs[number + 1].n_candidates)
        )
        history = _History([*history.scores, at], left)
    return history


def choose_task(place: str, request: CalibrateRequest, report: Report) -> None:
    """Choose among the finalists, report on the test items, and write down everything."""
    folder = CalibrationFolder(Path(place))
    if folder.result.exists():
        return
    rungs, goal, start = request.rungs(), request.goal, read_score(folder.target)
    assert start is not None, "the target is scored first"
    history = _history(folder, request, len(rungs))
    ends = history.points[-1]
    best = chosen(goal, ends)
    end = None if best is None else ends[best]
    last = {n: score for at in history.scores for n, score in at.items()}
    apart = request.apart
    found = Calibration(
        method=request.unlearning.method,
        forget=request.unlearning.forget,
        goal=str(goal),
        metric=request.settings.metric,
        strength_name=request.settings.strength,
        reached=end is not None and goal.shortfall(end) == 0,
        rate=None if best is None else request.candidates[best].rate,
        strength=None if best is None else request.candidates[best].strength,
        start=start,
        candidates=_candidates(request, history, best),
        n_steps=sum(score.steps for score in last.values()),
        n_tokens=sum(score.n_tokens for score in last.values()),
        n_validation={name: len(items) for name, items in apart.validation.splits.items()},
        test=() if best is None else _reported(folder, request, apart, best, report),
    )
    save(folder.result, found)


def _candidates(request: CalibrateRequest, history: _History, best: int | None) -> tuple[CandidateResult, ...]:
    rungs, points = request.rungs(), history.points
    results: dict[int, list[RungResult]] = {n: [] for n in range(len(request.candidates))}
    for number, at in enumerate(history.scores):
        ends = foreseen(request.candidates, rungs[number].progress, points[number])
        for n, score in at.items():
            end = ends[n]
            fate: Fate
            if end is None:
                fate = "broke down"
            elif number + 1 == len(rungs):
                fate = "chosen" if n == best else "not chosen"
            else:
                fate = "goes on" if n in history.scores[number + 1] else "dropped"
            results[n].append(RungResult(score, end and end.forget, end and end.retain, fate))
    return tuple(CandidateResult(*c, tuple(results[n])) for n, c in enumerate(request.candidates))


def _reported(
    folder: CalibrationFolder, request: CalibrateRequest, apart: Apart, best: int, report: Report
) -> tuple[dict[str, Any], ...]:
    """Estimates of the chosen candidate on the test items; its records lie in its own folder."""
    asked = request.unlearning
    subject = finished_subject(
        folder.candidate(*request.candidates[best]),
        device=asked.target.device,
        trust_remote_code=asked.target.trust_remote_code,
    )
    (test,) = requests_of(apart.test, {qa.NAME: request.questions}, asked.seed)
    place = evaluate(subject, test, lambda done, of: report(done / of))
    return tuple(result_rows([read_summary(place.summary(asked.forget))]))
