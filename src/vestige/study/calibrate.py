"""Calibration: the learning rate, and one strength of a method if asked, at which a stated goal is met best.

Results at one shared learning rate say little (PISTOL, 2406.16810): a rate that one method hardly notices
ruins another. So each method gets its own, for each forget set, by one rule and one budget: successive halving over a
log grid (`halving`), on validation items; the chosen one is reported on the other items. A candidate is paused at a
rung and goes on from there, never restarted; every rung's scores and decision are kept, the losers' too.

The plan is a list of tasks, which does nothing where its files are there. Candidates that dropped out have tasks
too: those see from the scores before them that there is nothing to do.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vestige.artifacts.calibration import (
    Calibration,
    CalibrationFolder,
    CandidateResult,
    Fate,
    RungFolder,
    RungResult,
    Score,
    read_calibration,
    read_score,
    write_calibration,
    write_score,
)
from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SCHEMA, read_summary, read_versioned, result_rows
from vestige.core.errors import InputError, NotFinite
from vestige.core.files import locked, read_jsonl, write_json, write_jsonl
from vestige.core.ids import changed_keys
from vestige.core.items import Item
from vestige.data.corpus import everything
from vestige.data.validation import CHOSEN_ON, Apart
from vestige.study.calibrate_request import CalibrateRequest, check_request, request_identity
from vestige.study.halving import Point, chosen, foreseen, promoted
from vestige.study.runner import Report, State, Task, run_tasks, workers_for

if TYPE_CHECKING:
    from vestige.models.load import LoadedModel

LOCK_SECONDS = 10.0
"""How long to wait for another command in the same folder."""


def calibrate(
    folder: Path,
    request: CalibrateRequest,
    *,
    workers: int | None = None,
    show: Callable[[State], None] = lambda _: None,
) -> Calibration:
    """The finished calibration in `folder`; resumes, and does nothing when it is there.

    Work is done in processes of its own, as `run_tasks` has it: one by default, or as many as there are GPUs.
    """
    place = CalibrationFolder(folder)
    check_request(request)
    workers = workers_for(request.unlearning.target.device, workers, on_cpu=1)
    with locked(place.lock, patience_seconds=LOCK_SECONDS):
        _same_request(place, request)
        failed = run_tasks(calibration_tasks(place, request), workers=workers, show=show)
        for error in failed.values():
            raise error
    return read_calibration(place)


def _same_request(place: CalibrationFolder, request: CalibrateRequest) -> None:
    ours = request_identity(request)
    if place.asked.exists():
        changed = changed_keys(ours, {k: v for k, v in read_versioned(place.asked).items() if k != "schema"})
        if changed:
            raise InputError(
                f"{place.path} holds another calibration (it differs in {', '.join(changed)}); choose another folder "
                "or start over with --fresh"
            )
    write_json(place.asked, {"schema": SCHEMA, **ours})


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
    from vestige.steps.subjects import load_checked

    folder = CalibrationFolder(Path(place)).target
    if read_score(folder) is None:
        watch = Stopwatch()
        target = load_checked(request.unlearning.target, request.unlearning.target_digest, "the target")
        _keep(folder, request, watch, target, _Spent(0, 0))


def rung_task(place: str, request: CalibrateRequest, rung: int, candidate: int, report: Report) -> None:
    """Train one candidate up to a rung and score it, or clear up after it if it has dropped out."""
    from vestige.steps.evaluate import finished_subject
    from vestige.steps.unlearn import unlearn, unlearn_part
    from vestige.training.checkpoints import Checkpoints

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
        write_score(scored, Score(*_spent(subject), None, None, str(error)))
        return
    _keep(scored, request, watch, model, _spent(subject))


class _Spent(NamedTuple):
    steps: int
    n_tokens: int


def _spent(subject: SubjectFolder) -> _Spent:
    """What a candidate has been trained for so far."""
    rows = list(read_jsonl(subject.training_log)) if subject.training_log.exists() else []
    return _Spent(len(rows), sum(row["n_tokens"] for row in rows))


def _keep(folder: RungFolder, request: CalibrateRequest, watch: Stopwatch, model: "LoadedModel", spent: _Spent) -> None:
    """Ask a model the validation questions; keep the records and the mean scores."""
    from vestige.evals import qa
    from vestige.steps.evaluate import CHUNK

    validation = request.apart.validation
    items = everything([validation])
    records = {}
    for chunk in qa.chunks(model, items, size=CHUNK):
        found = qa.collect(model, [items[i] for i in chunk], request.questions)
        records.update({r["item"]: r for r in found})
    write_jsonl(folder.records, (records[i.id] for i in items))
    values = {id_: qa.score(r) for id_, r in records.items()}
    means = {name: _mean(validation.splits[name], values, request.settings.metric) for name in CHOSEN_ON}
    write_provenance(folder.provenance, watch, **model.provenance())
    write_score(folder, Score(spent.steps, spent.n_tokens, means["forget"], means["retain"], ""))


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
    write_calibration(folder, found)


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
    from vestige.steps.evaluate import EvaluateRequest, evaluate, finished_subject, view_of

    asked = request.unlearning
    subject = finished_subject(
        folder.candidate(*request.candidates[best]),
        device=asked.target.device,
        trust_remote_code=asked.target.trust_remote_code,
    )
    test = EvaluateRequest(everything([apart.test]), (view_of(apart.test),), request.questions, asked.seed)
    place = evaluate(subject, test, lambda done, of: report(done / of))
    return tuple(result_rows([read_summary(place.summary(asked.forget))]))
