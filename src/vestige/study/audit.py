"""The audit of one forget set: every model is asked and attacked in the same way, and what they answered is judged.

A plan of tasks that do nothing where their answers are there, so the same command resumes. Each task says in a file
where its answers lie; those files, and not the order of what ran, make the plan that is judged. What failed is in it
by name, and no claim holds that would rest on it. Judging needs no model, and `rejudge` does it again at other margins.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vestige.artifacts.audits import (
    AskedPlace,
    AttackPlace,
    AuditOutcome,
    AuditPlan,
    FailedTask,
    PlannedAttack,
    read_outcome,
    read_plan,
    verdict_rows,
    write_outcome,
    write_plan,
)
from vestige.artifacts.layout import AuditFolder, RunFolder, own_folder
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.audit.gather import freeform_attacks, read_case
from vestige.audit.incomplete import without_what_failed
from vestige.audit.judge import judge
from vestige.audit.settings import AuditSettings
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import locked, write_json, write_text
from vestige.core.ids import content_id
from vestige.core.items import Item, digest_of
from vestige.core.settings import closest, read_toml, to_toml
from vestige.core.text import one_line, sentence
from vestige.data.corpus import everything
from vestige.metrics.verdicts import Thresholds
from vestige.study.audit_request import (
    ROLES,
    AuditedModel,
    AuditRequest,
    Question,
    check_request,
    limited,
    not_asked_for,
    questions_of,
)
from vestige.study.runner import Report, State, Task, run_tasks

if TYPE_CHECKING:
    from vestige.attacks.planning import Attack
    from vestige.steps.evaluate import Subject

LOCK_SECONDS = 10.0
"""How long to wait for another command in the same folder."""


class Planned(NamedTuple):
    """All that an audit does: the questions, the attacks, and in sentences what is not even tried."""

    questions: tuple[Question, ...]
    attacks: "tuple[Attack, ...]"
    untested: tuple[str, ...]


@dataclass(frozen=True)
class Audited:
    """A judged audit, the failures by task name, and how many tasks there were."""

    outcome: AuditOutcome
    failed: Mapping[str, Exception]
    n_tasks: int


def run_audit(
    run: Path | str, request: AuditRequest, *, workers: int = 1, show: Callable[[State], None] = lambda _: None
) -> Audited:
    """Ask, attack and judge; the evidence and the verdicts lie in `run`. Resumes.

    Work is done in processes of its own, as `run_tasks` has it.
    """
    folder = RunFolder(Path(run))
    check_request(request)
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        _keep_settings(folder, request)
        return conduct(folder, request, workers=workers, show=show)


def _keep_settings(run: RunFolder, request: AuditRequest) -> None:
    """Write what was asked as the run's settings, unless the run is another command's, as a demo's is."""
    if run.settings.exists() and read_toml(run.settings).get("command") != "audit":
        return
    asked: dict[str, Any] = {"command": "audit", "forget": request.splits.forget, "seed": request.seed}
    asked |= {role: [m.model for m in request.models if m.role == role] for role in ROLES}
    write_text(run.settings, to_toml({**asked, **request.settings.identity()}))


def conduct(
    run: RunFolder, request: AuditRequest, *, workers: int, show: Callable[[State], None] = lambda _: None
) -> Audited:
    """`run_audit` for a caller that holds the run's lock and has checked the request."""
    place = run.audit(request.splits.forget)
    # What an earlier audit with other settings left must not be taken for an answer to this one.
    shutil.rmtree(place.asked, ignore_errors=True)
    planned = plan_audit(request)
    tasks = audit_tasks(run, request, planned)
    failed = run_tasks(tasks, workers=workers, show=show)
    plan = _plan(run, request, planned, failed)
    write_plan(place, plan)
    return Audited(_judged(run, place, plan), failed, len(tasks))


def plan_audit(request: AuditRequest) -> Planned:
    """What is asked and which attacks are made; no model is loaded."""
    from vestige.attacks.planning import AttackSettings, plan_all

    questions = questions_of(request)
    # The same items as the questions are drawn from, so that a question has the same wrong options before and after.
    splits = limited(request.splits, request.settings.kept_items, seed=request.seed).splits
    attacks = plan_all(AttackSettings.among(request.settings.model_dump()), splits, seed=request.seed)
    said = (*request.untested, *not_asked_for(request.settings), *questions.left_out, *attacks.untested)
    return Planned(questions.asked, attacks.attacks, tuple(sentence(one_line(s, width=500)) for s in said))


def audit_tasks(run: RunFolder, request: AuditRequest, planned: Planned) -> list[Task]:
    """Every model is asked, controls first, and then attacked: one task a model, and one a model and attack."""
    base = {"run": str(run.path), "request": request}
    models = [m for role in ROLES for m in request.models if m.role == role]
    tasks = [
        Task(
            f"evaluate {model.name}",
            evaluate_task,
            {**base, "model": model, "questions": planned.questions},
            weight=float(sum(q.n_items for q in planned.questions)),
        )
        for model in models
    ]
    asked = after_an_attack(planned.questions)
    for attack in planned.attacks:
        weight = float(len(attack.plan.points) * (len(attack.tested) * len(asked) + attack.plan.n_shown))
        for model in models:
            arguments = {**base, "model": model, "attack": attack, "questions": asked}
            name = _task_name(model.name, attack.plan.name)
            tasks.append(Task(name, attack_task, arguments, (f"evaluate {model.name}",), weight))
    return tasks


def after_an_attack(questions: Sequence[Question]) -> tuple[Question, ...]:
    """What an attacked model is asked: not what is an attack itself, nor membership, which is of the model as it is."""
    from vestige.evals.freeform import FreeformSettings

    found = []
    for question in questions:
        settings = question.settings
        if isinstance(settings, FreeformSettings):
            forms = tuple(f for f in settings.forms if f not in ("prefilled", "sampled"))
            settings = settings.model_copy(update={"forms": forms})
            if not forms:
                continue
        if question.eval != "memory":
            found.append(question._replace(settings=settings))
    return tuple(found)


def _task_name(subject: str, attack: str) -> str:
    return f"{attack}: {subject}" if attack else f"evaluate {subject}"


def subject_of(run: RunFolder, request: AuditRequest, model: AuditedModel) -> "Subject":
    """The model as a subject, with its evidence in the run: in its own folder if that is there, else in a new one."""
    from vestige.models.load import ModelSettings
    from vestige.steps.subjects import any_subject

    own = own_folder(model.model)
    settings = ModelSettings(
        model=model.model, device=request.device, dtype=request.dtype, trust_remote_code=request.trust_remote_code
    )
    if own is not None and own.path.resolve().is_relative_to(run.path.resolve()):
        return any_subject(settings, None)
    if model.role == "unlearned":
        home = run.cell(model.name, content_id({"model": model.model}, length=12))
    else:
        home = run.control(model.name)
    return any_subject(settings, str(home.path), role=model.role, name=model.name)


def evaluate_task(
    run: str, request: AuditRequest, model: AuditedModel, questions: Sequence[Question], report: Report
) -> None:
    """Ask one model everything."""
    from vestige.steps.evaluate import EvaluateRequest, evaluate_together, view_of

    folder = RunFolder(Path(run))
    subject = subject_of(folder, request, model)
    shown = limited(request.splits, request.settings.kept_items, seed=request.seed)
    items, views = everything([shown]), (view_of(shown),)
    asked = [EvaluateRequest(items, views, q.settings, request.seed, q.eval, q.only) for q in questions]
    places = evaluate_together(subject, asked, lambda done, of: report(done / of))
    found = [
        AskedPlace(model.name, "", "", q.eval, _within(folder, place.path))
        for q, place in zip(questions, places, strict=True)
    ]
    _say_where(folder, request, _task_name(model.name, ""), _within(folder, subject.folder.path), found, [])


def attack_task(
    run: str,
    request: AuditRequest,
    model: AuditedModel,
    attack: "Attack",
    questions: Sequence[Question],
    report: Report,
) -> None:
    """Make one attack on one model, and ask what is left of it."""
    from vestige.steps.attack import AttackRequest, attack_evaluations, run_attack

    folder = RunFolder(Path(run))
    subject = subject_of(folder, request, model)
    asked = AttackRequest(attack, {q.eval: q.settings for q in questions}, request.splits.forget, request.seed)
    done = run_attack(subject, asked, report)
    name = attack.plan.name
    found = [
        AskedPlace(model.name, name, point, eval_name, _within(folder, place.path))
        for (point, eval_name), place in attack_evaluations(done, asked).items()
    ]
    here = _within(folder, subject.folder.path)
    attacked = [AttackPlace(model.name, name, _within(folder, done.path))]
    _say_where(folder, request, _task_name(model.name, name), here, found, attacked)


def _within(run: RunFolder, path: Path) -> str:
    return str(path.resolve().relative_to(run.path.resolve()))


def _say_where(
    run: RunFolder,
    request: AuditRequest,
    task: str,
    folder: str,
    evaluations: Sequence[AskedPlace],
    attacked: Sequence[AttackPlace],
) -> None:
    """Written last by a task: its existence means that all its answers are there."""
    places = {"evaluations": [asdict(e) for e in evaluations], "attacked": [asdict(a) for a in attacked]}
    write_json(run.audit(request.splits.forget).places(task), {"schema": SCHEMA, "folder": folder, **places})


class _Found(NamedTuple):
    folder: str
    evaluations: tuple[AskedPlace, ...]
    attacked: tuple[AttackPlace, ...]


def _found(place: AuditFolder, subject: str, attack: str) -> _Found | None:
    path = place.places(_task_name(subject, attack))
    if not path.exists():
        return None
    stored = read_versioned(path, "folder", "evaluations", "attacked")
    evaluations = tuple(AskedPlace(**e) for e in stored["evaluations"])
    return _Found(stored["folder"], evaluations, tuple(AttackPlace(**a) for a in stored["attacked"]))


def _plan(run: RunFolder, request: AuditRequest, planned: Planned, failed: Mapping[str, Exception]) -> AuditPlan:
    """The plan of what is there to judge; what is not, is in it as failed."""
    place = run.audit(request.splits.forget)
    attacks = ["", *(a.plan.name for a in planned.attacks)]
    done = {(m.name, a): _found(place, m.name, a) for m in request.models for a in attacks}
    here = {who: found for who, found in done.items() if found is not None}
    folders = {subject: found.folder for (subject, attack), found in here.items() if not attack}
    missing = [
        FailedTask(m.name, m.role, attack, _why(failed, m.name, attack))
        for m in request.models
        for attack in attacks
        if (m.name, attack) not in here and (not attack or m.name in folders)
    ]
    (target,) = request.names("target")
    unlearned = tuple(n for n in request.names("unlearned") if n in folders)
    if target not in folders or not unlearned:
        first = next(f for f in missing if not f.attack)
        raise PartialFailure(f"nothing can be judged: {first.subject} could not be evaluated: {first.reason}")
    splits = limited(request.splits, request.settings.kept_items, seed=request.seed).splits
    items = {i.id: i for split in splits.values() for i in split}
    return AuditPlan(
        forget=request.splits.forget,
        target=target,
        unlearned=unlearned,
        retrained=tuple(n for n in request.names("retrained") if n in folders),
        folders=folders,
        splits={name: tuple(i.id for i in split) for name, split in splits.items()},
        edges={i.id: i.edge for i in items.values() if i.edge is not None},
        scopes=dict(request.splits.scopes),
        attacks=(*(a.plan for a in planned.attacks), *_freeform_attacks(planned, splits["forget"])),
        settings=request.settings.identity(),
        seed=request.seed,
        evaluations=tuple(e for found in here.values() for e in found.evaluations),
        attacked=tuple(a for found in here.values() for a in found.attacked),
        failed=tuple(missing),
        untested=planned.untested,
        data=digest_of(request.splits.splits["forget"], request.splits.splits.get("retain", ())),
    )


def _why(failed: Mapping[str, Exception], subject: str, attack: str) -> str:
    """Why a task left nothing: its own error, or that of the evaluation it waited for."""
    for name in (_task_name(subject, attack), _task_name(subject, "")):
        if name in failed:
            return str(failed[name])
    return "it left no answers"


def _freeform_attacks(planned: Planned, forget: Sequence[Item]) -> tuple[PlannedAttack, ...]:
    """The attacks that the evaluation `freeform` makes on the way, if it is asked the plain question too."""
    from vestige.evals.freeform import LEAKS, FreeformSettings

    own = next((q.settings for q in planned.questions if isinstance(q.settings, FreeformSettings)), None)
    if own is None or "plain" not in own.forms:
        return ()
    return freeform_attacks(
        prefilled=own.prefill_tokens if "prefilled" in own.forms else None,
        leaks=[k for k in LEAKS if k <= own.samples] if "sampled" in own.forms else (),
        samples=own.samples,
        tested=[i.id for i in forget],
    )


def _judged(run: RunFolder, place: AuditFolder, plan: AuditPlan) -> AuditOutcome:
    """Judge what the plan says is there; write the outcome, and the verdicts of all audits of the run."""
    found = without_what_failed(judge(read_case(run, plan)), plan)
    outcome = replace(found, untested=(*plan.untested, *found.untested))
    write_outcome(place, outcome)
    write_verdicts(run)
    return outcome


def write_verdicts(run: RunFolder) -> list[AuditOutcome]:
    """Write verdicts.json from the outcomes of all audits of the run, which are returned."""
    outcomes = [read_outcome(place) for place in run.audits()]
    write_json(run.verdicts, verdict_rows(outcomes))
    return outcomes


def rejudge(run: Path | str, changes: Mapping[str, Any] | None = None) -> list[AuditOutcome]:
    """Every audit in `run` judged anew from its answers, with other thresholds if given; no model is loaded."""
    folder = RunFolder(Path(run))
    unknown = sorted(set(changes or {}) - set(Thresholds.model_fields))
    if unknown:
        raise InputError(
            f"{one_line(unknown[0], width=40)} is no threshold, and nothing else can change once models were asked; "
            f"{closest(unknown[0], list(Thresholds.model_fields))}"
        )
    places = [AuditFolder(p.parent) for p in sorted(folder.path.glob("audit/*/plan.json"))]
    if not places:
        raise InputError(f"{run} holds no audit; run `vestige audit --output-dir {run}` first")
    with locked(folder.lock, patience_seconds=LOCK_SECONDS):
        for place in places:
            plan = read_plan(place)
            settings = AuditSettings.build({**plan.settings, **(changes or {})}, where=str(place.plan))
            plan = replace(plan, settings=settings.identity())
            write_plan(place, plan)
            _judged(folder, place, plan)
        return write_verdicts(folder)
