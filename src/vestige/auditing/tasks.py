"""The tasks of an audit: a model is asked, a model is attacked, a searched prompt is read by those who never knew.

They do nothing where their answers are there. Each writes down, when it is done, where its answers lie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vestige.artifacts.audits import AskedPlace, AttackPlace
from vestige.artifacts.layout import AttackFolder, AuditFolder, RunFolder, SubjectFolder, own_folder
from vestige.artifacts.records import read_prompt
from vestige.auditing.request import ROLES, AuditedModel, AuditRequest, Question, limited, model_settings
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.ids import content_id
from vestige.core.settings import Settings
from vestige.core.store import SCHEMA, read_versioned, write_sealed
from vestige.data.corpus import everything
from vestige.models.address import shown_address
from vestige.steps.runner import Report, Task

if TYPE_CHECKING:
    from vestige.attacks.planning import Attack
    from vestige.steps.controls import SuppressRequest
    from vestige.steps.evaluate import Subject


def audit_tasks(
    run: RunFolder, request: AuditRequest, questions: Sequence[Question], attacks: "Sequence[Attack]"
) -> list[Task]:
    """Every model is asked, controls first, and then attacked: one task a model, and one a model and attack.

    A positive control is made once the target was asked, whose digest is then known. What searches found is then read
    by the models that never knew, one task an attack.
    """
    from vestige.attacks.planning import attack_of

    base = {"run": str(run.path), "request": request}
    models = [m for role in ROLES for m in request.models if m.role == role]
    after_target = tuple(task_name(target, "") for target in request.names("target"))
    # In the progress that is shown this training counts as much as a hundred questions.
    making = [Task(making_name(m.name), suppress_task, base, after_target, 100.0) for m in models if not m.model]
    tasks = [
        Task(
            task_name(model.name, ""),
            evaluate_task,
            {**base, "model": model, "questions": questions},
            tuple(task.name for task in making if not model.model)
            # The digest of the target's weights is in the identity of what is patched into it.
            + (after_target if request.settings.patch and model.role != "target" else ()),
            weight=float(sum(q.n_items for q in questions)),
        )
        for model in models
    ]
    tasks = [*making, *tasks]
    for attack in attacks:
        attack_questions = after_an_attack(questions, attack.plan.kind, controls=bool(request.names("retrained")))
        weight = float(len(attack.plan.points) * (len(attack.tested) * len(attack_questions) + attack.plan.n_shown))
        kind = attack_of(attack.plan)
        weight += kind.passes(attack.plan)
        for model in models:
            arguments = {**base, "model": model, "attack": attack, "questions": attack_questions}
            name = task_name(model.name, attack.plan.name)
            # The target's folder, which its evaluation makes, is there before another model is led by it.
            led = request.names("target") if kind.guided else ()
            after = tuple(dict.fromkeys(task_name(subject, "") for subject in (model.name, *led)))
            tasks.append(Task(name, attack_task, arguments, after, weight))
        if attack.plan.searches and request.names("retrained"):
            searched = tuple(task_name(model.name, attack.plan.name) for model in models)
            arguments = {**base, "attack": attack.plan.name}
            tasks.append(Task(f"bits of {attack.plan.name}", prompt_bits_task, arguments, searched))
    return tasks


def after_an_attack(questions: Sequence[Question], kind: str, *, controls: bool) -> tuple[Question, ...]:
    """What an attacked model is asked, as evaluations say themselves (`evals.base.InAudit`).

    Not what is an attack itself, nor membership, which is of the model as it is. Nor, where the attack's text stands
    in the question, questions as options; nor alternatives where there are `controls`, models that never knew, against
    which attacks are judged.
    """
    from vestige.attacks.planning import find_attack
    from vestige.evals import find_eval
    from vestige.evals.base import audit_of
    from vestige.evals.freeform import FreeformSettings

    beside_facts, questions_after = find_attack(kind).beside, []
    for question in questions:
        settings = question.settings
        if isinstance(settings, FreeformSettings):
            forms = tuple(f for f in settings.forms if f not in ("prefilled", "sampled"))
            settings = settings.model_copy(update={"forms": forms})
            if not forms:
                continue
        audit = audit_of(find_eval(question.eval))
        is_asked = audit.after == "attacks" or (audit.after == "uncontrolled" and not controls)
        if is_asked and (audit.with_texts or not beside_facts):
            questions_after.append(question._replace(settings=settings))
    return tuple(questions_after)


def task_name(subject: str, attack: str) -> str:
    """The task that attacks a subject, or that evaluates it where `attack` is empty."""
    return f"{attack}: {subject}" if attack else f"evaluate {subject}"


def making_name(control: str) -> str:
    """The task that makes the positive control."""
    return f"make {control}"


def suppression(request: AuditRequest, digest: str, start: str) -> "SuppressRequest":
    """How the positive control is made of the target, whose digest and beginning these are."""
    from vestige.steps.controls import SuppressRequest
    from vestige.steps.subjects import own_dtype

    (target,) = (m for m in request.models if m.role == "target")
    settings, audit = model_settings(request, target), request.settings
    splits = limited(request.splits, audit.kept_items, seed=request.seed).splits
    return SuppressRequest(
        target=settings.model_copy(update={"dtype": own_dtype(target.model) or settings.dtype}),
        target_digest=digest,
        start=start,
        forget=request.splits.forget,
        forget_items=splits["forget"],
        retain_items=splits["retain"],
        epochs=audit.suppress_epochs,
        rate=audit.suppress_rate,
        rank=audit.suppress_rank,
        seed=request.seed,
    )


def suppressed(run: RunFolder, request: AuditRequest) -> "tuple[SubjectFolder, SuppressRequest]":
    """Where the positive control that the audit makes lies, and what it is; the target has been evaluated."""
    from vestige.steps.controls import suppress_spec

    (target,) = (m for m in request.models if m.role == "target")
    subject = subject_of(run, request, target)
    suppression_request = suppression(request, subject.made.digest.id, subject.spec.model)
    return run.control(f"suppressed {suppress_spec(suppression_request).id}"), suppression_request


def suppress_task(run: str, request: AuditRequest, report: Report) -> None:
    """Make the positive control."""
    from vestige.steps.controls import suppress

    folder, suppression_request = suppressed(RunFolder(Path(run)), request)
    suppress(folder, suppression_request, lambda p: report(p.step / p.n_steps))


def subject_of(run: RunFolder, request: AuditRequest, model: AuditedModel) -> "Subject":
    """The model as a subject, with its evidence in the run: in its own folder if that is there, else in a new one."""
    from vestige.steps.subjects import any_subject

    if not model.model:
        model = replace(model, model=str(suppressed(run, request)[0].path))
    own_path = own_folder(model.model)
    settings = model_settings(request, model)
    if own_path is not None and own_path.path.resolve().is_relative_to(run.path.resolve()):
        return any_subject(settings, None, verify=request.verify)
    if model.role == "unlearned":
        home = run.cell(model.name, content_id({"model": _known_by(model.model, own_path)}, length=12))
    else:
        home = run.control(model.name)
    return any_subject(settings, str(home.path), role=model.role, name=model.name, verify=request.verify)


def _known_by(model: str, folder: SubjectFolder | None) -> str:
    """What a model outside the run is known by: Vestige's own by its digest, wherever it lies, others by their path."""
    if folder is not None and folder.done.is_file():
        return str(read_versioned(folder.done, "digest")["digest"])
    path = Path(model).expanduser()
    return str(path.resolve()) if path.exists() else shown_address(model)


def published_task(run: str, request: AuditRequest, report: Report) -> None:
    """Refuse a target that does not show the published figures."""
    from vestige.steps.evaluate import check_published

    assert request.published is not None
    (target,) = (m for m in request.models if m.role == "target")
    subject = subject_of(RunFolder(Path(run)), request, target)
    check_published(subject, *request.published, seed=request.seed, on_items=lambda done, of: report(done / of))


def evaluate_task(
    run: str, request: AuditRequest, model: AuditedModel, questions: Sequence[Question], report: Report
) -> None:
    """Ask one model everything."""
    from vestige.steps.evaluate import EvaluateRequest, evaluate_together, view_of

    folder = RunFolder(Path(run))
    subject = subject_of(folder, request, model)
    splits = limited(request.splits, request.settings.kept_items, seed=request.seed)
    items, views = everything([splits]), (view_of(splits),)
    requests = [
        EvaluateRequest(items, views, _patching(q.settings, folder, request), request.seed, q.eval, q.only)
        for q in questions
    ]
    places = evaluate_together(subject, requests, lambda done, of: report(done / of))
    answers = [
        AskedPlace(model.name, "", "", q.eval, _within(folder, evaluation.path))
        for q, evaluation in zip(questions, places, strict=True)
    ]
    _say_where(folder, request, task_name(model.name, ""), _within(folder, subject.folder.path), answers, [])


def _patching(settings: Settings, run: RunFolder, request: AuditRequest) -> Settings:
    """The settings of `inside` with the target to patch into, where that is asked for; others as they are."""
    from vestige.evals.inside import InsideSettings

    if not (request.settings.patch and isinstance(settings, InsideSettings)):
        return settings
    (target,) = (m for m in request.models if m.role == "target")
    weights = subject_of(run, request, target).made.digest.weights
    return settings.model_copy(update={"patch": target.model, "patch_weights": weights})


def attack_task(
    run: str,
    request: AuditRequest,
    model: AuditedModel,
    attack: "Attack",
    questions: Sequence[Question],
    report: Report,
) -> None:
    """Make one attack on one model, and ask what is left of it."""
    from vestige.attacks.planning import attack_of
    from vestige.steps.attack import AttackRequest, attack_evaluations, run_attack

    folder = RunFolder(Path(run))
    subject = subject_of(folder, request, model)
    (target,) = (m for m in request.models if m.role == "target")
    guide = subject_of(folder, request, target) if attack_of(attack.plan).guided else None
    evals: dict[str, Settings] = {q.eval: q.settings for q in questions}
    attack_request = AttackRequest(attack, evals, request.splits.forget, request.seed, guide)
    done = run_attack(subject, attack_request, report)
    name = attack.plan.name
    answers = [
        AskedPlace(model.name, name, point, eval_name, _within(folder, evaluation.path))
        for (point, eval_name), evaluation in attack_evaluations(done, attack_request).items()
    ]
    subject_folder = _within(folder, subject.folder.path)
    attacked = [AttackPlace(model.name, name, _within(folder, done.path))]
    _say_where(folder, request, task_name(model.name, name), subject_folder, answers, attacked)


def prompt_bits_task(run: str, request: AuditRequest, attack: str, report: Report) -> None:
    """How long what stands of each model's prompt at each point is to the models that never knew: the mean over them.

    The prompt searched on a model is held against what `retrained` finds likely, so that prompts can be compared.
    """
    from vestige.models.load import finite_logits
    from vestige.steps.evaluate import loaded_subject
    from vestige.steps.prompt_attack import prompt_bits

    folder = RunFolder(Path(run))
    audit_folder = folder.audit(request.splits.forget)
    where = {
        m.name: answers for m in request.models if (answers := answers_of(audit_folder, m.name, attack)) is not None
    }
    prompts = {
        name: read_prompt(AttackFolder(folder.path / answers.attacked[0].path)) for name, answers in where.items()
    }
    readers = [m for m in request.models if m.role == "retrained"]
    lengths: dict[str, dict[str, float]] = {name: dict.fromkeys(prompt.points, 0.0) for name, prompt in prompts.items()}
    for number, reader in enumerate(readers):
        subject = subject_of(folder, request, reader)
        _check_reads_alike(reader.name, subject.made.digest.reads, folder, where)
        loaded = loaded_subject(subject)
        with finite_logits(loaded):
            for name, prompt in prompts.items():
                for point, bits in prompt_bits(loaded, prompt).items():
                    lengths[name][point] += bits / len(readers)
        report((number + 1) / len(readers))
    read_by = [reader.name for reader in readers]
    write_sealed(audit_folder.prompt_bits(attack), {"read_by": read_by, "bits": lengths})


def _check_reads_alike(reader: str, reads: str, run: RunFolder, where: "Mapping[str, TaskAnswers]") -> None:
    """Refuse models whose prompts are other tokens to the reader."""
    for name, answers in where.items():
        spec = AttackFolder(run.path / answers.attacked[0].path).spec
        if read_versioned(spec, "reads")["reads"] != reads:
            raise InputError(
                f"{reader} and {name} have different tokenisers or chat templates, so a prompt found on one cannot "
                "be measured on the other; audit models of one family together"
            )


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


class TaskAnswers(NamedTuple):
    """Where what a task left lies, relative to the run: the subject's folder, answers, the attack."""

    folder: str
    evaluations: tuple[AskedPlace, ...]
    attacked: tuple[AttackPlace, ...]


def answers_of(folder: AuditFolder, subject: str, attack: str) -> TaskAnswers | None:
    """What the task of a subject and an attack left; None where it is not done."""
    path = folder.places(task_name(subject, attack))
    if not path.exists():
        return None
    stored = read_versioned(path, "folder", "evaluations", "attacked")
    evaluations = tuple(AskedPlace(**e) for e in stored["evaluations"])
    return TaskAnswers(stored["folder"], evaluations, tuple(AttackPlace(**a) for a in stored["attacked"]))
