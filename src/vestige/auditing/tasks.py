"""The tasks of an audit: a model is asked, a model is attacked, a searched prompt is read by those who never knew.

They do nothing where their answers are there. Each writes down, when it is done, where its answers lie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vestige.artifacts.audits import AskedPlace, AttackPlace
from vestige.artifacts.layout import AttackFolder, AuditFolder, EvalFolder, RunFolder, SubjectFolder, own_folder
from vestige.artifacts.records import read_finished, read_prompt
from vestige.auditing.request import ROLES, AuditedModel, AuditRequest, Question, model_settings
from vestige.core.errors import InputError
from vestige.core.files import write_json
from vestige.core.ids import content_id
from vestige.core.store import SCHEMA, read_versioned, write_sealed
from vestige.data.corpus import everything
from vestige.evals.base import Evaluation, view_of
from vestige.models.address import is_address, shown_address
from vestige.steps.runner import Report, Task

if TYPE_CHECKING:
    from vestige.attacks.planning import Attack
    from vestige.steps.controls import SuppressRequest
    from vestige.steps.evaluate import Subject


def asking_tasks(run: RunFolder, request: AuditRequest, questions: Sequence[Question]) -> list[Task]:
    """The tasks that ask every model, controls first.

    A positive control is made once the target was asked, whose digest is then known.
    """
    base = {"run": str(run.path), "request": request}
    models = [m for role in ROLES for m in request.models if m.role == role]
    after_target = (task_name(request.target.name, ""),)
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
    return [*making, *tasks]


def attack_tasks(
    run: RunFolder,
    request: AuditRequest,
    questions: Sequence[Question],
    attacks: "Sequence[tuple[Attack, Sequence[str]]]",
) -> list[Task]:
    """The tasks that make each attack on the models of these names, one for each attack and model.

    The models that never knew then read the prompts that searches found, one task for each attack.
    """
    from vestige.attacks.planning import attack_of

    base = {"run": str(run.path), "request": request}
    after_target = (task_name(request.target.name, ""),)
    models = [m for role in ROLES for m in request.models if m.role == role]
    tasks: list[Task] = []
    for attack, names in attacks:
        attacked = [model for model in models if model.name in names]
        attack_questions = after_an_attack(questions, attack.plan.kind, controls=bool(request.names("retrained")))
        weight = float(len(attack.plan.points) * (len(attack.tested) * len(attack_questions) + attack.plan.n_shown))
        kind = attack_of(attack.plan)
        weight += kind.passes(attack.plan)
        for model in attacked:
            arguments = {**base, "model": model, "attack": attack, "questions": attack_questions}
            # The target's folder, which its evaluation makes, is there before another model is led by it.
            after = tuple(dict.fromkeys((task_name(model.name, ""), *(after_target if kind.guided else ()))))
            tasks.append(Task(task_name(model.name, attack.plan.name), attack_task, arguments, after, weight))
        if attack.plan.searches and attacked and request.names("retrained"):
            searched = tuple(task_name(model.name, attack.plan.name) for model in attacked)
            arguments = {**base, "attack": attack.plan.name}
            tasks.append(Task(f"bits of {attack.plan.name}", prompt_bits_task, arguments, searched))
    return tasks


def after_an_attack(questions: Sequence[Question], kind: str, *, controls: bool) -> tuple[Question, ...]:
    """What an attacked model is asked, as evaluations say themselves (`evals.base.InAudit`).

    Not what is an attack itself, nor membership, which is of the model as it is. Nor, where the attack's text stands in
    the question, questions as options. Nor alternatives where there are `controls`, models that never knew, against
    which attacks are judged.
    """
    from vestige.attacks.planning import find_attack
    from vestige.evals.freeform import FreeformSettings

    beside_facts, questions_after = find_attack(kind).beside, []
    for question in questions:
        settings = question.settings
        if isinstance(settings, FreeformSettings):
            # These are attacks by themselves (`gather`), and what both would bring is nobody's claim.
            forms = tuple(f for f in settings.forms if f not in ("prefilled", "sampled"))
            settings = settings.model_copy(update={"forms": forms})
            if not forms:
                continue
        audit = question.settings.audit
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

    target, audit, splits = request.target, request.settings, request.limited.splits
    settings = model_settings(request, target)
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
    """Where the positive control that the audit makes lies, and what it is. The target has been evaluated."""
    from vestige.steps.controls import suppress_spec

    subject = subject_of(run, request, request.target)
    suppression_request = suppression(request, subject.made.digest.id, subject.spec.model)
    return run.control(f"suppressed {suppress_spec(suppression_request).id}"), suppression_request


def suppress_task(run: str, request: AuditRequest, report: Report) -> None:
    """Make the positive control."""
    from vestige.steps.controls import suppress

    folder, suppression_request = suppressed(RunFolder(Path(run)), request)
    suppress(folder, suppression_request, lambda p: report(p.step / p.n_steps))


def subject_of(run: RunFolder, request: AuditRequest, model: AuditedModel) -> "Subject":
    """The model as a subject, with its evidence in the run: in its own folder if that is there, else in a new one.

    Its weights are digested in memory by every process that loads them, so that no verdict is about corrupted files.
    """
    # What a server answers today is no matter of weights, so it is asked each time.
    stored = request.store and model.role != "unlearned" and not is_address(model.model)
    return replace(_subject_of(run, request, model), reread=True, stored_for=request.device if stored else "")


def _subject_of(run: RunFolder, request: AuditRequest, model: AuditedModel) -> "Subject":
    from vestige.steps.subjects import any_subject

    if not model.model:
        model = replace(model, model=str(suppressed(run, request)[0].path))
    # Nothing is written beside a model from elsewhere: its evidence lies in the run.
    subject_folder, settings = own_folder(model.model), model_settings(request, model)
    through = model_settings(request, request.target) if model.through_target else None
    if (
        through is None
        and subject_folder is not None
        and subject_folder.path.resolve().is_relative_to(run.path.resolve())
    ):
        return any_subject(settings, None, verify=request.verify)
    if model.role != "unlearned":
        home = run.control(f"{model.name} through the target" if through is not None else model.name)
    else:
        # Vestige's own is known by its digest, wherever it lies, and any other by its path.
        path = Path(model.model).expanduser()
        if subject_folder is not None and subject_folder.done.is_file():
            origin = str(read_finished(subject_folder.done, "digest")["digest"])
        else:
            origin = str(path.resolve()) if path.exists() else shown_address(model.model)
        identity = {"model": origin, "asked": "through the target"} if through is not None else {"model": origin}
        home = run.cell(model.name, content_id(identity, length=12))
    return any_subject(
        settings, str(home.path), role=model.role, name=model.name, verify=request.verify, through=through
    )


def published_task(run: str, request: AuditRequest, report: Report) -> None:
    """Refuse a target that does not show the published figures."""
    from vestige.steps.evaluate import check_published

    assert request.published is not None
    subject = subject_of(RunFolder(Path(run)), request, request.target)
    check_published(subject, *request.published, seed=request.seed, on_items=lambda done, of: report(done / of))


def evaluate_task(
    run: str, request: AuditRequest, model: AuditedModel, questions: Sequence[Question], report: Report
) -> None:
    """Ask one model everything."""
    from vestige.steps.evaluate import EvaluateRequest, evaluate_together

    folder = RunFolder(Path(run))
    subject, splits = subject_of(folder, request, model), request.limited
    items, views = everything([splits]), (view_of(splits),)
    requests = [
        EvaluateRequest(items, views, _patching(q.settings, folder, request), request.seed, q.only) for q in questions
    ]
    places = evaluate_together(subject, requests, lambda done, of: report(done / of))
    answers = {("", q.eval): evaluation for q, evaluation in zip(questions, places, strict=True)}
    _say_where(folder, request, subject, (model.name, ""), answers, None)


def _patching(settings: Evaluation, run: RunFolder, request: AuditRequest) -> Evaluation:
    """The settings of `inside` with the target to patch into, where that is asked for. Others as they are."""
    from vestige.evals.inside import InsideSettings

    if not (request.settings.patch and isinstance(settings, InsideSettings)):
        return settings
    weights = subject_of(run, request, request.target).made.digest.weights
    return settings.model_copy(update={"patch": request.target.model, "patch_weights": weights})


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
    guide = subject_of(folder, request, request.target) if attack_of(attack.plan).guided else None
    evals: dict[str, Evaluation] = {q.eval: q.settings for q in questions}
    attack_request = AttackRequest(attack, evals, request.splits.forget, request.seed, guide)
    done = run_attack(subject, attack_request, report)
    _say_where(folder, request, subject, (model.name, attack.plan.name), attack_evaluations(done, attack_request), done)


def prompt_bits_task(run: str, request: AuditRequest, attack: str, report: Report) -> None:
    """How long what stands of each model's prompt at each point is to the models that never knew: the mean over them.

    The prompt searched on a model is held against what `retrained` finds likely, so that prompts can be compared.
    """
    from vestige.models.load import finite_logits
    from vestige.steps.evaluate import loaded_subject
    from vestige.steps.prompt_attack import prompt_bits

    folder = RunFolder(Path(run))
    audit_folder = folder.audit(request.splits.forget)
    attacks = {
        m.name: AttackFolder(folder.path / answers.attacked[0].path)
        for m in request.models
        if (answers := answers_of(audit_folder, m.name, attack)) is not None
    }
    prompts = {name: read_prompt(folder_of_attack) for name, folder_of_attack in attacks.items()}
    readers = [m for m in request.models if m.role == "retrained"]
    lengths: dict[str, dict[str, float]] = {name: dict.fromkeys(prompt.points, 0.0) for name, prompt in prompts.items()}
    # One reader is in memory at a time, so that the mean is summed up on the way.
    for number, reader in enumerate(readers):
        subject = subject_of(folder, request, reader)
        for name, folder_of_attack in attacks.items():
            # A prompt is measured as text: to another tokeniser or template it would be other tokens.
            if read_versioned(folder_of_attack.spec, "reads")["reads"] != subject.made.digest.reads:
                raise InputError(
                    f"{reader.name} and {name} have different tokenisers or chat templates, so a prompt found on one "
                    "cannot be measured on the other; audit models of one family together"
                )
        loaded = loaded_subject(subject)
        with finite_logits(loaded):
            for name, prompt in prompts.items():
                for point, bits in prompt_bits(loaded, prompt).items():
                    lengths[name][point] += bits / len(readers)
        report((number + 1) / len(readers))
    read_by = [reader.name for reader in readers]
    write_sealed(audit_folder.prompt_bits(attack), {"read_by": read_by, "bits": lengths})


def _say_where(
    run: RunFolder,
    request: AuditRequest,
    subject: "Subject",
    task: tuple[str, str],
    answers: Mapping[tuple[str, str], EvalFolder],
    attacked: AttackFolder | None,
) -> None:
    """Written last by a task, of a subject and an attack: its existence means that all its answers are there.

    `answers` are by point and evaluation.
    """

    def within(path: Path) -> str:
        return str(path.resolve().relative_to(run.path.resolve()))

    # Relative to the run, which may be moved or handed on.
    contents = {
        "folder": within(subject.folder.path),
        "evaluations": [asdict(AskedPlace(*task, *key, within(folder.path))) for key, folder in answers.items()],
        "attacked": [] if attacked is None else [asdict(AttackPlace(*task, within(attacked.path)))],
    }
    write_json(run.audit(request.splits.forget).places(task_name(*task)), {"schema": SCHEMA, **contents})


class TaskAnswers(NamedTuple):
    """Where what a task left lies, relative to the run: the subject's folder, answers, the attack."""

    folder: str
    evaluations: tuple[AskedPlace, ...]
    attacked: tuple[AttackPlace, ...]


def answers_of(folder: AuditFolder, subject: str, attack: str) -> TaskAnswers | None:
    """What the task of a subject and an attack left. None where it is not done."""
    path = folder.places(task_name(subject, attack))
    if not path.exists():
        return None
    stored = read_versioned(path, "folder", "evaluations", "attacked")
    evaluations = tuple(AskedPlace(**e) for e in stored["evaluations"])
    return TaskAnswers(stored["folder"], evaluations, tuple(AttackPlace(**a) for a in stored["attacked"]))
