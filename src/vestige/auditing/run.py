"""The audit of one forget set: every model gets the same questions and attacks, and the answers are judged.

An audit is a plan of tasks. A finished task is skipped, so the same command resumes. Each task records the location of
its answers in a file. The judged plan is made from those files, not from the order of the tasks. Failed tasks are
listed in it by name, and no claim that needs them passes. Judging needs no model, and `rejudge` repeats it with other
margins.

The tasks of an audit: evaluations of models, attacks, and the controls' reading of searched prompts.

A finished task is skipped. Each task records the location of its answers when it is done.
"""

import contextlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from vestige.artifacts.audits import (
    AskedPlace,
    AttackPlace,
    AuditOutcome,
    AuditPlan,
    DatedJudgement,
    FailedTask,
    PlannedAttack,
    SealedPlan,
    read_judgements,
    read_outcome,
    read_plan,
    read_sealed_plan,
    sealed_digest,
    write_judgements,
    write_outcome,
    write_plan,
)
from vestige.artifacts.layout import AttackFolder, AuditFolder, EvalFolder, RunFolder, SubjectFolder, own_folder
from vestige.artifacts.provenance import code_digest, odd_tokens_told, read_provenance
from vestige.artifacts.records import read_finished, read_prompt
from vestige.artifacts.scores import Format, ScoreTable, is_current, write_table
from vestige.artifacts.verdicts import write_verdicts
from vestige.auditing.claims import drop_failed_evidence
from vestige.auditing.gather import (
    FORMATS_OF,
    freeform_attacks,
    read_answers,
    read_table_of,
    with_replies,
    with_soundness,
)
from vestige.auditing.ground import Case
from vestige.auditing.judge import RULES as JUDGE_RULES
from vestige.auditing.judge import VERSION as JUDGE_VERSION
from vestige.auditing.judge import judge
from vestige.auditing.origins import Origins, Readings, asked_alike, verified_readings, with_readings
from vestige.auditing.recovery import relearns_retained
from vestige.auditing.request import (
    ROLES,
    AuditedModel,
    AuditRequest,
    Question,
    beyond_context,
    check_request,
    model_settings,
    not_asked_for,
    questions_of,
    within_reach,
)
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import locked
from vestige.core.ids import content_id, file_digest
from vestige.core.items import Item, questions_digest
from vestige.core.progress import OnShare, Show
from vestige.core.settings import read_settings, write_settings
from vestige.core.store import load, read_sealed, read_versioned, save, write_sealed
from vestige.core.text import Fields, Names, Record, Sentences, closest, grouped, listed, one_line, sentence
from vestige.data.corpus import everything
from vestige.data.facts import facts_of, luck_of
from vestige.evals.base import Evaluation, view_of
from vestige.metrics.answers import normalised
from vestige.metrics.intervals import RESAMPLES
from vestige.metrics.verdicts import Thresholds
from vestige.models.address import is_address, shown_address
from vestige.steps.runner import Task, kept_workers, run_tasks, workers_for

if TYPE_CHECKING:
    from vestige.attacks.planning import Attack
    from vestige.steps.controls import SuppressRequest
    from vestige.steps.evaluate import Subject


def asking_tasks(run: RunFolder, request: AuditRequest) -> list[Task]:
    """Return the tasks that evaluate every model, controls first.

    A positive control is trained after the target's evaluation, when its digest is known.
    """
    base = {"run": str(run.path), "request": request}
    after_target = (task_name(request.target.name, ""),)
    by_target = "indirect" in request.settings.evals
    # In the displayed progress, this training counts as much as a hundred questions.
    making = [
        Task(making_name(m.name), suppress_task, base, after_target, 100.0) for m in request.in_order if not m.model
    ]
    tasks = [
        Task(
            task_name(model.name, ""),
            evaluate_task,
            {**base, "model": model},
            tuple(task.name for task in making if not model.model)
            # The digest of the target's weights is part of the identity of the questions that it writes.
            + (after_target if by_target and model.role != "target" else ()),
            weight=float(sum(q.n_items for q in request.questions)),
        )
        for model in request.in_order
    ]
    return [*making, *tasks]


def attack_tasks(
    run: RunFolder, request: AuditRequest, attacks: "Sequence[tuple[Attack, Sequence[str]]]"
) -> list[Task]:
    """Return the tasks that make each attack on the named models, one for each attack and model.

    The unexposed models then read the prompts that searches found, in one task for each attack.
    """
    from vestige.attacks.planning import attack_of

    base = {"run": str(run.path), "request": request}
    after_target = (task_name(request.target.name, ""),)
    tasks: list[Task] = []
    for attack, names in attacks:
        attacked = [model for model in request.in_order if model.name in names]
        n_questions = len(attack.tested) * len(after_an_attack(request.questions, attack.plan.kind))
        weight = float(len(attack.plan.points) * (n_questions + attack.plan.n_shown))
        kind = attack_of(attack.plan)
        weight += kind.passes(attack.plan)
        for model in attacked:
            arguments = {**base, "model": model, "attack": attack}
            # The target's evaluation makes its folder, so it comes before attacks on other models that the target
            # guides.
            after = tuple(dict.fromkeys((task_name(model.name, ""), *(after_target if kind.guided else ()))))
            tasks.append(Task(task_name(model.name, attack.plan.name), attack_task, arguments, after, weight))
        if attack.plan.searches and attacked and request.names("retrained"):
            searched = tuple(task_name(model.name, attack.plan.name) for model in attacked)
            arguments = {**base, "attack": attack.plan.name}
            tasks.append(Task(f"bits of {attack.plan.name}", prompt_bits_task, arguments, searched))
    return tasks


def after_an_attack(questions: Sequence[Question], kind: str) -> tuple[Question, ...]:
    """Return the evaluations of an attacked model, as declared in `evals.base.InAudit`.

    Attacks and membership, which concern the unattacked model, are excluded. So are questions as options if the attack
    puts text into the question.
    """
    from vestige.attacks.planning import find_attack
    from vestige.evals.freeform import FreeformSettings

    beside_facts, questions_after = find_attack(kind).beside, []
    for question in questions:
        settings = question.settings
        if isinstance(settings, FreeformSettings):
            # These forms are attacks themselves (`gather`), and no claim is about their combination.
            forms = tuple(f for f in settings.forms if f not in ("prefilled", "sampled"))
            settings = settings.model_copy(update={"forms": forms})
            if not forms:
                continue
        audit = question.settings.audit
        if audit.after == "attacks" and (audit.with_texts or not beside_facts):
            questions_after.append(question._replace(settings=settings))
    return tuple(questions_after)


def task_name(subject: str, attack: str) -> str:
    """Return the name of the task that attacks a subject, or that evaluates it if `attack` is empty."""
    if attack:
        return f"{attack}: {subject}"
    return f"evaluate {subject}"


def making_name(control: str) -> str:
    """Return the name of the task that makes the positive control."""
    return f"make {control}"


def suppression(request: AuditRequest, digest: str, start: str) -> "SuppressRequest":
    """Return the recipe of the positive control, given the digest and the initial model of the target."""
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
    """Return the place and the spec of the audit's own positive control. The target has been evaluated."""
    from vestige.steps.controls import suppress_spec

    subject = subject_of(run, request, request.target)
    suppression_request = suppression(request, subject.made.digest.id, subject.spec.model)
    return run.control(f"suppressed {suppress_spec(suppression_request).id}"), suppression_request


def suppress_task(run: str, request: AuditRequest, report: OnShare) -> None:
    """Make the positive control, unless an earlier audit of the same target and questions made it."""
    from vestige.steps.controls import suppress, suppress_spec
    from vestige.steps.evaluate import entry_key, keep, restore

    folder, suppression_request = suppressed(RunFolder(Path(run)), request)
    key = entry_key("control", asdict(suppress_spec(suppression_request)), request.read.device)
    with locked(folder.lock):
        if request.store and not folder.done.exists() and restore(folder.path, key):
            return
    suppress(folder, suppression_request, lambda p: report(p.step / p.n_steps))
    if request.store:
        weights = [path for path in folder.model.rglob("*") if path.is_file()]
        keep(folder.path, key, [folder.spec, folder.provenance, folder.training_log, *weights, folder.done])


def subject_of(run: RunFolder, request: AuditRequest, model: AuditedModel) -> "Subject":
    """Return the model as a subject. Its evidence is in its own folder if that is in the run, otherwise in a new one.

    Every process that loads its weights digests them in memory, so that no verdict is about corrupted files.
    """
    from vestige.steps.subjects import any_subject

    if not model.model:
        model = replace(model, model=str(suppressed(run, request)[0].path))
    folder, settings = own_folder(model.model), model_settings(request, model)
    through = model_settings(request, request.target) if model.through_target else None
    home = None
    # The folder of an external model is read only: the run contains its evidence.
    if through is not None or folder is None or not folder.path.resolve().is_relative_to(run.path.resolve()):
        home = str(_home(run, model, folder).path)
    subject = any_subject(settings, home, role=model.role, name=model.name, verify=request.verify, through=through)
    # A server's answers do not follow from known weights, so it is evaluated each time.
    stored = request.store and model.role != "unlearned" and not is_address(model.model)
    return replace(subject, reread=True, stored_for=request.read.device if stored else "")


def _home(run: RunFolder, model: AuditedModel, folder: SubjectFolder | None) -> SubjectFolder:
    """Return the location of a model's evidence in the run."""
    if model.role != "unlearned":
        return run.control(f"{model.name} through the target" if model.through_target else model.name)
    # The digest identifies Vestige's own models, wherever they are. The path identifies any other.
    path = Path(model.model).expanduser()
    if folder is not None and folder.done.is_file():
        origin = str(read_finished(folder.done, "digest")["digest"])
    else:
        origin = str(path.resolve()) if path.exists() else shown_address(model.model)
    identity = {"model": origin, "asked": "through the target"} if model.through_target else {"model": origin}
    return run.cell(model.name, content_id(identity, length=12))


def published_task(run: str, request: AuditRequest, report: OnShare) -> None:
    """Reject a target that does not reproduce the published figures."""
    from vestige.steps.evaluate import check_published

    assert request.published is not None
    subject = subject_of(RunFolder(Path(run)), request, request.target)
    check_published(subject, *request.published, seed=request.seed, on_items=lambda done, of: report(done / of))


def evaluate_task(run: str, request: AuditRequest, model: AuditedModel, report: OnShare) -> None:
    """Run all evaluations on one model."""
    from vestige.steps.evaluate import EvaluateRequest, evaluate_together

    folder = RunFolder(Path(run))
    subject, splits = subject_of(folder, request, model), request.limited
    items, views = everything([splits]), (view_of(splits),)
    requests = [
        EvaluateRequest(items, views, _with_target(q.settings, folder, request), request.seed, q.only)
        for q in request.questions
    ]
    places = evaluate_together(subject, requests, lambda done, of: report(done / of))
    answers = {("", q.eval): evaluation for q, evaluation in zip(request.questions, places, strict=True)}
    _say_where(folder, request, subject, (model.name, ""), answers, None)


def _with_target(settings: Evaluation, run: RunFolder, request: AuditRequest) -> Evaluation:
    """Return the settings with the target, which writes the questions of `indirect`."""
    from vestige.evals.indirect import IndirectSettings

    # A served target has no weights to load next to a model.
    if not isinstance(settings, IndirectSettings) or not Path(request.target.model).expanduser().is_dir():
        return settings
    weights = subject_of(run, request, request.target).made.digest.weights
    return settings.model_copy(update={"target": request.target.model, "target_weights": weights})


def attack_task(run: str, request: AuditRequest, model: AuditedModel, attack: "Attack", report: OnShare) -> None:
    """Attack one model, then evaluate it."""
    from vestige.attacks.planning import attack_of
    from vestige.steps.attack import AttackRequest, attack_evaluations, run_attack

    folder = RunFolder(Path(run))
    subject = subject_of(folder, request, model)
    guide = subject_of(folder, request, request.target) if attack_of(attack.plan).guided else None
    evals: dict[str, Evaluation] = {q.eval: q.settings for q in after_an_attack(request.questions, attack.plan.kind)}
    attack_request = AttackRequest(attack, evals, request.splits.forget, request.seed, guide)
    done = run_attack(subject, attack_request, report)
    _say_where(folder, request, subject, (model.name, attack.plan.name), attack_evaluations(done, attack_request), done)


def prompt_bits_task(run: str, request: AuditRequest, attack: str, report: OnShare) -> None:
    """Measure the code length of each model's prompt at each stage under the controls, as a mean.

    A prompt searched on the model is compared with the code length under `retrained`, so that prompts can be compared.
    """
    from vestige.models.load import finite_logits
    from vestige.steps.attack import prompt_bits
    from vestige.steps.evaluate import loaded_subject

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
    # One reader is in memory at a time, so the mean is accumulated.
    for number, reader in enumerate(readers):
        subject = subject_of(folder, request, reader)
        for name, folder_of_attack in attacks.items():
            # A prompt is measured as text: another tokeniser or template would give other tokens.
            if read_versioned(folder_of_attack.spec, "reads")["reads"] != subject.made.digest.reads:
                raise InputError(
                    f"{reader.name} and {name} have different tokenisers or chat templates, so a prompt found on one "
                    "cannot be measured on the other. Audit models of one family together"
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
    """Record a finished task of a subject and an attack. Written last: if it exists, all its answers exist.

    `answers` are by point and evaluation.
    """

    def within(path: Path) -> str:
        return str(path.resolve().relative_to(run.path.resolve()))

    # Paths are relative to the run, which may be moved or shared.
    done = TaskAnswers(
        within(subject.folder.path),
        tuple(AskedPlace(*task, *key, within(folder.path)) for key, folder in answers.items()),
        () if attacked is None else (AttackPlace(*task, within(attacked.path)),),
    )
    save(run.audit(request.splits.forget).places(task_name(*task)), done)


@dataclass(frozen=True)
class TaskAnswers:
    """Paths of a task's output, relative to the run: the subject's folder, answers, attack."""

    folder: str
    evaluations: tuple[AskedPlace, ...]
    attacked: tuple[AttackPlace, ...]


def answers_of(folder: AuditFolder, subject: str, attack: str) -> TaskAnswers | None:
    """Return the output of a task and an attack for one model, or None if it is unfinished."""
    path = folder.places(task_name(subject, attack))
    if path.exists():
        return load(path, TaskAnswers)
    return None


@dataclass(frozen=True)
class Audited:
    """A judged audit, the failures by task name, and how many tasks there were."""

    outcome: AuditOutcome
    failed: Mapping[str, Exception]
    n_tasks: int


def run_audit(
    run: Path | str, request: AuditRequest, *, workers: int | None = None, show: Show = lambda _share, _note: None
) -> Audited:
    """Evaluate, attack and judge. The evidence and the verdicts are in `run`. The audit resumes if it is repeated.

    Worker processes do the work, as in `run_tasks`: two by default, or one for each GPU.
    """
    folder = RunFolder(Path(run))
    check_request(request)
    request = within_reach(request)
    folder.refuse_others_files()
    with locked(folder.lock):
        workers = workers_for(request.read.device, workers)
        _write_settings(folder, request)
        if request.published is not None:
            first = Task("published figures", published_task, {"run": str(folder.path), "request": request})
            for error in run_tasks([first], workers=1, show=show).values():
                raise error
        return conduct(folder, request, workers=workers, show=show)


def seal_plan(run: Path | str, request: AuditRequest) -> SealedPlan:
    """Write the questions and margins of `run_audit` with this request. The models need not exist yet.

    Raises InputError where an audit of this forget set was begun in the run.
    """
    root = RunFolder(Path(run))
    folder = root.audit(request.splits.forget)
    with locked(root.lock):
        # The first answer makes `asked`. The plan is written once all tasks have ended.
        if folder.plan.exists() or folder.asked.exists():
            raise InputError(
                f"{folder.path} already has answers, and a plan must be sealed before. Give a new --output-dir"
            )
        contents, settings = _to_seal(request), request.settings.identity()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        sealed = SealedPlan(sealed_digest(contents, settings), now, contents, settings)
        _write_settings(root, request)
        write_sealed(folder.sealed, asdict(sealed))
    return sealed


def _to_seal(request: AuditRequest) -> Fields:
    """Return everything in a request, except its settings, that can change a verdict. Models have role and name."""
    splits = request.splits.splits
    return {
        "forget set": request.splits.forget,
        "questions": {name: questions_digest(items) for name, items in sorted(splits.items())},
        # The models' locations are not part of the plan, since the models need not exist yet.
        "models": {role: list(request.names(role)) for role in ROLES},
        "seed": request.seed,
        "number format and template": [request.read.dtype or "float32", content_id(request.read.chat_template)],
        JUDGE_RULES: JUDGE_VERSION,
    }


def _write_settings(run: RunFolder, request: AuditRequest) -> None:
    """Write the request as the run's settings, unless the run belongs to another command, such as demo."""
    if run.settings.exists() and read_settings(run.settings).get("command") != "audit":
        return
    record: Fields = {"command": "audit", "forget": request.splits.forget, "seed": request.seed}
    record |= {role: [m.model for m in request.models if m.role == role] for role in ROLES}
    write_settings(run.settings, {**record, **request.settings.identity()})


def conduct(run: RunFolder, request: AuditRequest, *, workers: int, show: Show) -> Audited:
    """`run_audit` for a caller that holds the run's lock and has checked the request."""
    folder = run.audit(request.splits.forget)
    # Results of an earlier audit with other settings must not count as results of this one.
    shutil.rmtree(folder.asked, ignore_errors=True)
    sealed, contents = read_sealed_plan(folder), _to_seal(request)
    if sealed is not None:
        # A sealed plan is proven only by answers that are later than the seal.
        request = replace(request, store=False)
    request, readings = asked_alike(request)
    audit = _Audit(run, with_control(plan_audit(request)), readings, workers, show)
    with kept_workers():
        audit.work()
    if request.store:
        from vestige.steps.evaluate import trim

        trim()
    plan = audit.plan()
    if sealed is not None:
        changed = [name for name in contents if contents[name] != sealed.plan.get(name)]
        records = [read_provenance(EvalFolder(run.path / place.path).provenance) for place in plan.evaluations]
        # A plan that was sealed after an answer proves nothing about that answer.
        if early := sum(str(record["times"]["started"]) < sealed.time for record in records):
            changed.append(f"{early} of {len(records)} evaluations are older than the seal")
        plan = replace(plan, sealed=replace(sealed, changed=tuple(changed)))
    plan = write_scores(run, *_answers(run, plan))
    return Audited(judge_plan(run, folder, plan), audit.failed, audit.n_tasks)


@dataclass
class _Audit:
    """A running audit: it evaluates every model, then attacks those on which an attack can still change a verdict.

    `made` has, by attack, the models that were attacked.
    """

    run: RunFolder
    request: AuditRequest
    readings: Readings
    workers: int
    show: Show
    made: dict[str, Names] = field(default_factory=dict)
    failed: dict[str, Exception] = field(default_factory=dict)
    n_tasks: int = 0
    done: float = 0.0

    def work(self) -> None:
        """Evaluate, then run the attacks, the cheapest first, on the undecided models.

        An undecided model does not fail "not recoverable" yet. Controls and the positive control are attacked as well.
        """
        everyone = tuple(model.name for model in self.request.models)
        on_everyone = [(attack, everyone) for attack in self.request.attacks]
        asking = asking_tasks(self.run, self.request)
        attacking = attack_tasks(self.run, self.request, on_everyone)
        whole = sum(task.weight for task in (*asking, *attacking)) or 1.0
        self._run(asking, whole)
        if self.request.settings.all_attacks:
            self.made = {attack.plan.name: everyone for attack in self.request.attacks}
            self._run_attacks(self.request.attacks, whole)
            return
        undecided: Names = ()
        for attacks in cheapest_first(self.request.attacks):
            plan = self.plan()
            undecided = _undecided(plan, _outcome(*_answers(self.run, plan)))
            if not undecided:
                break
            control = tuple(filter(None, [plan.suppressed]))
            for attack in attacks:
                names = attacked_models(attack.plan, plan.target, plan.retrained, undecided, control)
                self.made[attack.plan.name] = names
            self._run_attacks(attacks, whole)
        if not undecided:
            self._relearn_controls(whole)

    def plan(self) -> AuditPlan:
        """Return the plan of the finished tasks."""
        plan = with_soundness(self.run, _plan(self.run, self.request, self.failed, self.made))
        return verified_readings(self.run, plan, self.readings)

    def _relearn_controls(self, whole: float) -> None:
        """Tune the controls on retained items, on which the claim about the benchmark rests.

        The plain relearning comes first. The others run only if the claim passes with it.
        """
        not_made = [a for a in self.request.attacks if relearns_retained(a.plan) and not self.made.get(a.plan.name)]
        outcomes = {"holds", "inconclusive"}
        for attacks in (not_made[:1], not_made[1:]):
            plan = self.plan()
            if not attacks or not plan.retrained:
                return
            # Skipped attacks are judged as if they had not been planned.
            so_far = tuple(a for a in plan.attacks if a.name not in plan.skipped or self.made.get(a.name))
            outcome = _outcome(*_answers(self.run, replace(plan, attacks=so_far, skipped={})))
            if not any(v.outcome in outcomes for v in outcome.verdicts if v.claim == "benchmark valid"):
                return
            self.made |= {attack.plan.name: plan.retrained for attack in attacks}
            self._run_attacks(attacks, whole)
            outcomes = {"holds"}

    def _run_attacks(self, attacks: "Sequence[Attack]", whole: float) -> None:
        # A model whose evaluation failed is not attacked, so its failure is reported once.
        folder = self.run.audit(self.request.splits.forget)
        asked = {model.name for model in self.request.models if answers_of(folder, model.name, "") is not None}
        if self.request.target.name not in asked:
            return
        on_models = []
        for attack in attacks:
            on_models.append((attack, tuple(name for name in self.made[attack.plan.name] if name in asked)))
        self._run(attack_tasks(self.run, self.request, on_models), whole)

    def _run(self, tasks: Sequence[Task], whole: float) -> None:
        """Run tasks, which are this part of the whole weight."""
        before, share = self.done, sum(task.weight for task in tasks) / whole
        self.failed |= run_tasks(tasks, workers=self.workers, show=lambda s, note: self.show(before + share * s, note))
        self.n_tasks += len(tasks)
        self.done += share


def cheapest_first(attacks: "Sequence[Attack]") -> "list[list[Attack]]":
    """Return the attacks in rounds: prompts only, then training, then prompt searches. Empty rounds are omitted."""
    from vestige.attacks.planning import attack_of

    asking: list[Attack] = []
    training: list[Attack] = []
    searching: list[Attack] = []
    for attack in attacks:
        kind = attack_of(attack.plan)
        if kind.passes(attack.plan):
            searching.append(attack)
        elif kind.training_steps(attack.plan):
            training.append(attack)
        else:
            asking.append(attack)
    return [attacks for attacks in (asking, training, searching) if attacks]


def _undecided(plan: AuditPlan, outcome: AuditOutcome) -> Names:
    """Return the unlearned models that do not fail "not recoverable". Empty without controls."""
    if not plan.retrained:
        return ()
    failing = {v.subject for v in outcome.verdicts if v.claim == "not recoverable" and v.outcome == "fails"}
    return tuple(name for name in plan.unlearned if name not in failing)


def attacked_models(
    attack: PlannedAttack, target: str, retrained: Sequence[str], undecided: Sequence[str], control: Sequence[str]
) -> Names:
    """Return the models to attack because their claims are undecided.

    An upper bound counts for no claim and uses one model. Only searches, which the target guides, attack the target.
    """
    if attack.shows_answers:
        return (*control, *undecided)[:1]
    searched = (target,) if attack.searches else ()
    return (*searched, *retrained, *undecided, *control)


def _said_of_skipped(skipped: Mapping[str, Sequence[str]], attacks: Sequence[PlannedAttack]) -> Sentences:
    """Return a sentence for each group of unlearned models about the attacks that were skipped on them."""
    ceilings = [attack.name for attack in attacks if attack.name in skipped and attack.shows_answers]
    spared = [attack.name for attack in attacks if skipped.get(attack.name) and not attack.shows_answers]
    by_models = grouped(spared, lambda name: tuple(skipped[name]))
    sentences = [
        f"Not made on {listed(models)}: {', '.join(names)}. No verdict could change by them, and --all-attacks makes "
        "them."
        for models, names in by_models.items()
    ]
    if ceilings:
        sentences.append(f"Made on one model at most: {', '.join(ceilings)}, which shows the answers.")
    return tuple(sentences)


def plan_audit(request: AuditRequest, *, contexts: bool = True) -> AuditRequest:
    """Return the request with its questions and attacks. No model is loaded.

    With `contexts`, an attack whose prompts are too long for a model is left out. This needs the models' tokenisers.
    """
    from vestige.attacks.planning import plan_all

    questions, splits = questions_of(request), request.limited.splits
    attacks = plan_all(request.settings.model_dump(), splits, seed=request.seed)
    reasons: dict[str, str] = {}
    for attack in attacks.attacks if contexts else ():
        asked = after_an_attack(questions.evaluations, attack.plan.kind)
        reasons[attack.plan.name] = beyond_context(request, attack, asked)
    untested = (
        *request.untested,
        *not_asked_for(request.settings_before or request.settings),
        *questions.left_out,
        *attacks.untested,
        *(f"{name} was not tried: {reason}" for name, reason in reasons.items() if reason),
    )
    # An attack that one model cannot read is dropped for all, so that all have the same attacks.
    tried = tuple(a for a in attacks.attacks if not reasons.get(a.plan.name))
    sentences = tuple(sentence(one_line(text, width=500)) for text in untested)
    return replace(request, questions=questions.evaluations, attacks=tried, untested=sentences)


def with_control(request: AuditRequest) -> AuditRequest:
    """Return the planned request with a positive control to train, if it is enabled, missing and needed."""
    attacked = request.attacks or attacks_of_freeform(request)
    # Without controls, no gain can be interpreted, on a positive control neither.
    if not (request.settings.suppress and attacked and request.names("retrained")) or request.names("suppressed"):
        return request
    taken = [m.name for m in request.models]
    candidates = ("suppressed", *(f"suppressed {k}" for k in range(2, len(taken) + 3)))
    name = next(n for n in candidates if n not in taken)
    return replace(request, models=(*request.models, AuditedModel(name, "suppressed", "")))


def _plan(
    run: RunFolder, request: AuditRequest, failed: Mapping[str, Exception], made: Mapping[str, Sequence[str]]
) -> AuditPlan:
    """Return the plan of the finished tasks.

    Missing tasks are listed as failed, or as skipped if they were not tried.
    """
    folder = run.audit(request.splits.forget)
    attacks = ["", *(a.plan.name for a in request.attacks)]
    done = {(m.name, a): answers_of(folder, m.name, a) for m in request.models for a in attacks}
    answered = {key: answers for key, answers in done.items() if answers is not None}
    folders = {subject: answers.folder for (subject, attack), answers in answered.items() if not attack}
    missing = []
    for model in request.models:
        for attack in attacks:
            # If a subject was not evaluated, its attacks are not listed one by one.
            if (model.name, attack) in answered or (attack and model.name not in folders):
                continue
            if attack and model.name not in made.get(attack, ()):
                continue
            # The reason is its own error, or the error of the task that it waited for.
            tasks = (task_name(model.name, attack), task_name(model.name, ""), making_name(model.name))
            reason = next((str(failed[task]) for task in tasks if task in failed), "it left no answers")
            missing.append(FailedTask(model.name, model.role, attack, reason))
    (target,) = request.names("target")
    unlearned = tuple(n for n in request.names("unlearned") if n in folders)
    if target not in folders or not unlearned:
        # The relevant failure is the evaluation, and not an attack on another model.
        first = next(f for f in missing if not f.attack)
        raise PartialFailure(f"nothing can be judged: {first.subject} could not be evaluated: {first.reason}")
    models, origins = (target, *unlearned), Origins.read(run, folders, target)
    copies = origins.copied_controls(models, request.names("retrained"))
    splits = request.limited.splits
    items = {i.id: i for split in splits.values() for i in split}
    retrained = tuple(n for n in request.names("retrained") if n in folders and n not in copies)
    level, unverified = origins.evidence_level(retrained, request.splits)
    compared = {m.name: m.model for m in request.models if m.name in (*models, *retrained)} if retrained else {}
    apart, unseen = origins.distances(folder, compared)
    unchanged, nothing_forgotten = origins.unchanged(unlearned, apart)
    suppressed = tuple(name for name in request.names("suppressed") if name in folders)
    skipped: dict[str, Names] = {}
    for attack_plan in (a.plan for a in request.attacks):
        attacked = made.get(attack_plan.name, ())
        spared = tuple(name for name in (*retrained, *unlearned, *suppressed) if name not in attacked)
        if spared:
            skipped[attack_plan.name] = spared
    return AuditPlan(
        forget=request.splits.forget,
        target=target,
        unlearned=unlearned,
        retrained=retrained,
        suppressed=next(iter(suppressed), ""),
        folders=folders,
        skipped=skipped,
        splits={name: tuple(i.id for i in split) for name, split in splits.items()},
        edges={i.id: i.edge for i in items.values() if i.edge is not None},
        scopes=dict(request.splits.scopes),
        attacks=(*(a.plan for a in request.attacks), *attacks_of_freeform(request)),
        settings=request.settings.identity(),
        seed=request.seed,
        evaluations=tuple(e for answers in answered.values() for e in answers.evaluations),
        attacked=tuple(a for answers in answered.values() for a in answers.attacked),
        failed=tuple(missing),
        untested=(
            *nothing_forgotten,
            *_said_of_skipped(skipped, [a.plan for a in request.attacks]),
            *request.untested,
            *copies.values(),
            *unverified,
            *unseen,
            *origins.made_from_others(unlearned),
            *origins.asked_otherwise(),
            *_odd_tokens(run, answered),
        ),
        data=request.splits.digest,
        facts=facts_of(splits["forget"]),
        groups={i.id: i.group for i in splits["forget"] if i.edge is None and i.group is not None},
        alike=_shared_labels(splits["forget"]),
        sizes={name: len({i.id for i in items}) for name, items in request.splits.splits.items()},
        references=origins.retrained_among(unlearned),
        evidence_level=level,
        unchanged=unchanged,
        apart=apart,
        unseen=tuple(name for name, model in compared.items() if is_address(model)),
        recipes=origins.other_recipes(retrained),
        luck=luck_of(request.splits.splits["forget"], request.splits.splits.get("retain", ())),
    )


def _odd_tokens(run: RunFolder, task_answers: Mapping[tuple[str, str], TaskAnswers]) -> Sentences:
    """Report models whose questions contained control tokens, one sentence each."""
    sentences = []
    for (name, attack), answers in task_answers.items():
        if not attack and answers.evaluations:
            note = odd_tokens_told(EvalFolder(run.path / answers.evaluations[0].path).provenance)
            if note:
                sentences.append(f"{one_line(name, width=60)}: {note}")
    return tuple(sentences)


def _shared_labels(forget: Sequence[Item]) -> dict[str, dict[str, str]]:
    """Return labels that several forget items share and that can be guessed together: the answer, the attribute."""
    answers = {i.id: content_id(normalised(i.answer), length=12) for i in forget}
    attributes = {i.id: i.attribute for i in forget if i.attribute is not None}
    labels = {}
    for kind, by_item in {"answer": answers, "attribute": attributes}.items():
        times = Counter(by_item.values())
        # If all questions have the same answer, it does not distinguish facts.
        if len(times) > 1:
            labels[kind] = {item: label for item, label in by_item.items() if times[label] > 1}
    return labels


def attacks_of_freeform(request: AuditRequest) -> tuple[PlannedAttack, ...]:
    """Return the attacks inside the evaluation `freeform`, if it includes the plain question."""
    from vestige.evals.freeform import LEAKS, FreeformSettings

    freeform = next((q.settings for q in request.questions if isinstance(q.settings, FreeformSettings)), None)
    if freeform is None or "plain" not in freeform.forms:
        return ()
    return freeform_attacks(
        prefilled=freeform.prefill_tokens if "prefilled" in freeform.forms else None,
        leaks=[k for k in LEAKS if k <= freeform.samples] if "sampled" in freeform.forms else (),
        samples=freeform.samples,
        tested=[i.id for i in request.limited.splits["forget"]],
    )


def _answers(run: RunFolder, plan: AuditPlan) -> tuple[AuditPlan, ScoreTable]:
    """Return the result of `read_answers`. Evaluations of other packages define their own formats."""
    from vestige.evals import find_eval

    # Only evaluations of other packages are loaded: judging needs no torch.
    formats: list[Format] = []
    for name in plan.settings.get("evals", ()):
        if name not in FORMATS_OF:
            formats += find_eval(name).audit.formats
    return read_answers(run, plan, formats)


def judge_plan(
    run: RunFolder, folder: AuditFolder, plan: AuditPlan, table: ScoreTable | None = None, *, anew: bool = False
) -> AuditOutcome:
    """Judge the score table of a plan, and write the outcome and all verdicts. Without a table, use the stored one.

    Unless `anew` is set, an existing outcome of the same plan, scores and code is used.
    """
    basis = content_id([asdict(plan), code_digest(), RESAMPLES], length=64)
    # A damaged outcome, or one of an older version, is judged again and not rejected.
    with contextlib.suppress(InputError, OSError):
        if not anew and read_sealed(folder.outcome, "basis")["basis"] == basis:
            outcome = read_outcome(folder)
            write_verdicts(run)
            return outcome
    if table is None:
        table = read_table_of(run, plan)
    outcome = _outcome(plan, table)
    outcome = replace(outcome, facts=with_replies(run, plan, outcome.facts))
    outcome = _compare_with_first_judgement(folder, plan, outcome)
    write_outcome(folder, outcome, basis)
    write_verdicts(run, known={folder.path: outcome})
    return outcome


def write_scores(run: RunFolder, plan: AuditPlan, table: ScoreTable) -> AuditPlan:
    """Write the score table and its plan. Return the plan."""
    folder = run.audit(plan.forget)
    write_table(folder.scores, table)
    plan = replace(plan, table=file_digest(folder.scores))
    write_plan(folder, plan)
    return plan


def _outcome(plan: AuditPlan, table: ScoreTable) -> AuditOutcome:
    """Judge the scores and write nothing."""
    outcome = with_readings(drop_failed_evidence(judge(Case(plan, table)), plan), plan)
    # Sentences that affect every verdict come first, since a report shows only a few.
    untested = dict.fromkeys([*filter(None, [plan.told_by]), *plan.untested, *outcome.untested])
    return replace(outcome, untested=tuple(untested))


def _compare_with_first_judgement(folder: AuditFolder, plan: AuditPlan, outcome: AuditOutcome) -> AuditOutcome:
    """Return the outcome with the first judgement of the same answers, if its thresholds differed. Both are kept.

    With equal thresholds and answers, a different verdict means different rules, and a sentence reports this.
    Judgements of other answers under the same name are kept and shown as well.
    """
    places = [asdict(entry) for entry in plan.evaluations] + [asdict(entry) for entry in plan.attacked]
    # A path contains everything that can change its answers, so equal paths mean equal answers.
    answers = content_id(places, length=32) if places else plan.table
    verdicts = tuple((v.subject, v.claim, v.outcome) for v in outcome.verdicts)
    recorded = read_judgements(folder)
    before = [judgement for judgement in recorded if judgement.answers == answers]
    others = tuple(judgement for judgement in recorded if judgement.answers != answers)
    # A repeated judgement with the same result adds nothing, so the first time stays.
    if not before or (before[-1].thresholds, before[-1].verdicts) != (outcome.thresholds, verdicts):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        before.append(DatedJudgement(now, outcome.thresholds, verdicts, answers))
        write_judgements(folder, (*recorded, before[-1]))
    notes = []
    if others:
        outcome = replace(outcome, earlier=others)
        notes.append(f"Other scores were judged under this name before, first at {others[0].time}.")
    same = before[0].thresholds == outcome.thresholds
    if same and before[0].verdicts == verdicts:
        return replace(outcome, untested=(*notes, *outcome.untested))
    changed = [
        f"{s}, {c}: {outcome_then}" for s, c, outcome_then in before[0].verdicts if (s, c, outcome_then) not in verdicts
    ]
    why = "The rules of judging changed" if same else "Margins changed"
    notes.insert(
        0,
        f"{why} after the answers were seen. The first judgement was of {before[0]}"
        + (f"; there {'; '.join(changed)}." if changed else ", with the same verdicts."),
    )
    return replace(outcome, first=None if same else before[0], untested=(*notes, *outcome.untested))


def _without_exposure(plan: AuditPlan) -> AuditPlan:
    """Return the plan without the evaluation `exposure`, which earlier versions judged against alternatives."""
    evals = plan.settings.get("evals", ())
    if "exposure" not in evals:
        return plan
    note = "The scores of exposure are ignored: ranking answers among alternatives accused honest models."
    return replace(
        plan,
        settings={**plan.settings, "evals": tuple(name for name in evals if name != "exposure")},
        evaluations=tuple(place for place in plan.evaluations if place.eval != "exposure"),
        untested=(note, *plan.untested),
    )


def rejudge(run: Path | str, changes: Record | None = None) -> list[AuditOutcome]:
    """Judge every audit in `run` again from its answers, with other thresholds if given. No model is loaded."""
    folder = RunFolder(Path(run))
    unknown = sorted(set(changes or {}) - set(Thresholds.model_fields))
    if unknown:
        raise InputError(
            f"{one_line(unknown[0], width=40)} is not a threshold, and only thresholds can change now. "
            f"{closest(unknown[0], list(Thresholds.model_fields))}"
        )
    places = [AuditFolder(p.parent) for p in sorted(folder.path.glob("audit/*/plan.json"))]
    if not places:
        raise InputError(f"{run} holds no audit. Run `vestige audit --output-dir {run}` first")
    with locked(folder.lock):
        for audit_folder in places:
            plan = read_plan(audit_folder)
            # Settings that earlier versions had chose questions or attacks and do not affect the judgement.
            known = {name: value for name, value in plan.settings.items() if name in AuditSettings.model_fields}
            settings = AuditSettings.build({**known, **(changes or {})}, where=str(audit_folder.plan))
            # The plan has the margins of the last judgement. Those of the first are in `judgements`.
            plan = _without_exposure(replace(plan, settings=settings.identity()))
            if plan.evaluations:
                plan = with_soundness(folder, plan)
            if plan.evaluations and not is_current(audit_folder.scores):
                # The audit is older than these score tables.
                plan = write_scores(folder, *_answers(folder, plan))
            else:
                write_plan(audit_folder, plan)
            judge_plan(folder, audit_folder, plan, anew=True)
        return write_verdicts(folder)
