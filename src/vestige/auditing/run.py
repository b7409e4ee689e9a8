"""The audit of one forget set: every model is asked and attacked in the same way, and what they answered is judged.

A plan of tasks that do nothing where their answers are there, so the same command resumes. Each task says in a file
where its answers lie; those files, and not the order of what ran, make the plan that is judged. What failed is in it
by name, and no claim holds that would rest on it. Judging needs no model, and `rejudge` does it again at other margins.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vestige.artifacts.audits import (
    GIVEN,
    AuditOutcome,
    AuditPlan,
    FailedTask,
    Format,
    Judgement,
    PlannedAttack,
    read_judgements,
    read_outcome,
    read_plan,
    write_judgements,
    write_outcome,
    write_plan,
)
from vestige.artifacts.layout import AuditFolder, EvalFolder, RunFolder, SubjectFolder
from vestige.artifacts.provenance import odd_tokens_told
from vestige.artifacts.records import read_spec
from vestige.artifacts.verdicts import verdict_rows
from vestige.auditing.claims import without_what_failed
from vestige.auditing.formats import FORMATS_OF
from vestige.auditing.gather import freeform_attacks, read_case, with_replies
from vestige.auditing.judge import judge
from vestige.auditing.origins import (
    asked_otherwise,
    copied_controls,
    distances,
    evidence_level,
    other_recipes,
    with_targets_weights,
)
from vestige.auditing.request import (
    ROLES,
    AuditedModel,
    AuditRequest,
    Question,
    beyond_context,
    check_request,
    limited,
    not_asked_for,
    questions_of,
    within_reach,
)
from vestige.auditing.settings import AuditSettings
from vestige.auditing.tasks import (
    Found,
    after_an_attack,
    audit_tasks,
    found_by,
    making_name,
    published_task,
    task_name,
)
from vestige.core.errors import InputError, PartialFailure
from vestige.core.files import locked, write_json, write_text
from vestige.core.ids import content_id
from vestige.core.items import Item, digest_of
from vestige.core.settings import read_toml, to_toml
from vestige.core.store import read_versioned
from vestige.core.text import closest, one_line, sentence
from vestige.data.alternatives import NO_ALTERNATIVES
from vestige.data.corpus import NamedSplits
from vestige.data.facts import facts_of, luck_of, said_of_facts, said_of_rewordings
from vestige.metrics.answers import normalised
from vestige.metrics.verdicts import Thresholds
from vestige.models.address import is_address
from vestige.steps.runner import State, Task, run_tasks, workers_for

if TYPE_CHECKING:
    from vestige.attacks.planning import Attack


class Planned(NamedTuple):
    """All that an audit does: the questions, the attacks, and in sentences what is not even tried.

    `facts` names the fact of each forget question that asks for one in other words.
    """

    questions: tuple[Question, ...]
    attacks: "tuple[Attack, ...]"
    untested: tuple[str, ...]
    facts: dict[str, str]


@dataclass(frozen=True)
class Audited:
    """A judged audit, the failures by task name, and how many tasks there were."""

    outcome: AuditOutcome
    failed: Mapping[str, Exception]
    n_tasks: int


def run_audit(
    run: Path | str,
    request: AuditRequest,
    *,
    workers: int | None = None,
    show: Callable[[State], None] = lambda _: None,
) -> Audited:
    """Ask, attack and judge; the evidence and the verdicts lie in `run`. Resumes.

    Work is done in processes of its own, as `run_tasks` has it: two by default, or as many as there are GPUs.
    """
    folder = RunFolder(Path(run))
    check_request(request)
    request = within_reach(request)
    with locked(folder.lock):
        workers = workers_for(request.device, workers, on_cpu=2)
        _keep_settings(folder, request)
        if request.published is not None:
            first = Task("published figures", published_task, {"run": str(folder.path), "request": request})
            for error in run_tasks([first], workers=1, show=show).values():
                raise error
        return conduct(folder, request, workers=workers, show=show)


def _keep_settings(run: RunFolder, request: AuditRequest) -> None:
    """Write what was asked as the run's settings, unless the run is another command's, as a demo's is."""
    if run.settings.exists() and read_toml(run.settings).get("command") != "audit":
        return
    asked: dict[str, Any] = {"command": "audit", "forget": request.splits.forget, "seed": request.seed}
    asked |= {role: [m.model for m in request.models if m.role == role] for role in ROLES}
    write_text(run.settings, to_toml({**asked, **request.settings.identity()}))


def conduct(
    run: RunFolder,
    request: AuditRequest,
    *,
    workers: int,
    show: Callable[[State], None] = lambda _: None,
) -> Audited:
    """`run_audit` for a caller that holds the run's lock and has checked the request."""
    place = run.audit(request.splits.forget)
    # What an earlier audit with other settings left must not be taken for an answer to this one.
    shutil.rmtree(place.asked, ignore_errors=True)
    planned = plan_audit(request)
    request = with_control(request, planned)
    tasks = audit_tasks(run, request, planned.questions, planned.attacks)
    failed = run_tasks(tasks, workers=workers, show=show)
    plan = _plan(run, request, planned, failed)
    write_plan(place, plan)
    return Audited(judge_plan(run, place, plan), failed, len(tasks))


def plan_audit(request: AuditRequest) -> Planned:
    """What is asked and which attacks are made; no model is loaded."""
    from vestige.attacks.planning import plan_all

    questions = questions_of(request)
    # The same items as the questions are drawn from, so that a question has the same wrong options before and after.
    splits = limited(request.splits, request.settings.kept_items, seed=request.seed).splits
    attacks = plan_all(request.settings.model_dump(), splits, seed=request.seed)
    controls = bool(request.names("retrained"))
    reasons = {
        a.plan.name: beyond_context(request, a, after_an_attack(questions.asked, a.plan.kind, controls=controls))
        for a in attacks.attacks
    }
    beyond = [f"{name} was not tried: {reason}" for name, reason in reasons.items() if reason]
    ranked = "exposure" in request.settings.evals
    without = (said for said in request.splits.told if ranked and said.startswith(NO_ALTERNATIVES))
    facts, reworded = _facts(splits, request)
    said = (
        *request.untested,
        *reworded,
        *without,
        *_uncounted(request.settings.wordings, splits["forget"]),
        *not_asked_for(request.wanted or request.settings),
        *questions.left_out,
        *attacks.untested,
        *beyond,
    )
    tried = tuple(a for a in attacks.attacks if not reasons[a.plan.name])
    return Planned(questions.asked, tried, tuple(sentence(one_line(s, width=500)) for s in said), facts)


def with_control(request: AuditRequest, planned: Planned) -> AuditRequest:
    """The request with a positive control to be made, where one is wanted, none is given and something rests on it."""
    attacked = planned.attacks or attacks_of_freeform(planned, request.splits.splits["forget"])
    against = request.names("retrained") or any(q.eval == "exposure" for q in planned.questions)
    if not (request.settings.suppress and attacked and against) or request.names("suppressed"):
        return request
    taken = {m.name for m in request.models}
    called = ("suppressed", *(f"suppressed {k}" for k in range(2, len(taken) + 3)))
    name = next(n for n in called if n not in taken)
    return replace(request, models=(*request.models, AuditedModel(name, "suppressed", "")))


def _plan(run: RunFolder, request: AuditRequest, planned: Planned, failed: Mapping[str, Exception]) -> AuditPlan:
    """The plan of what is there to judge; what is not, is in it as failed."""
    place = run.audit(request.splits.forget)
    attacks = ["", *(a.plan.name for a in planned.attacks)]
    done = {(m.name, a): found_by(place, m.name, a) for m in request.models for a in attacks}
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
    others = (target, *unlearned)
    copies = copied_controls(run, folders, others, request.names("retrained"))
    splits = limited(request.splits, request.settings.kept_items, seed=request.seed).splits
    items = {i.id: i for split in splits.values() for i in split}
    retrained = tuple(n for n in request.names("retrained") if n in folders and n not in copies)
    level, unverified = evidence_level(run, folders, target, retrained, request.splits)
    unchanged, nothing_forgotten = with_targets_weights(run, folders, target, unlearned)
    compared = {m.name: m.model for m in request.models if m.name in (*others, *retrained)} if retrained else {}
    apart, unseen = distances(place, run, folders, compared)
    return AuditPlan(
        forget=request.splits.forget,
        target=target,
        unlearned=unlearned,
        retrained=retrained,
        suppressed=next((n for n in request.names("suppressed") if n in folders), ""),
        folders=folders,
        splits={name: tuple(i.id for i in split) for name, split in splits.items()},
        edges={i.id: i.edge for i in items.values() if i.edge is not None},
        scopes=dict(request.splits.scopes),
        attacks=(*(a.plan for a in planned.attacks), *attacks_of_freeform(planned, splits["forget"])),
        settings=request.settings.identity(),
        seed=request.seed,
        evaluations=tuple(e for found in here.values() for e in found.evaluations),
        attacked=tuple(a for found in here.values() for a in found.attacked),
        failed=tuple(missing),
        untested=(
            *nothing_forgotten,
            *planned.untested,
            *copies.values(),
            *unverified,
            *unseen,
            *made_from_others(run, folders, target, unlearned),
            *asked_otherwise(run, folders, target),
            *_odd_tokens(run, here),
        ),
        data=digest_of(request.splits.splits["forget"], request.splits.splits.get("retain", ())),
        facts=planned.facts,
        alternatives=_whence(request.splits),
        groups={i.id: i.group for i in splits["forget"] if i.edge is None and i.group is not None},
        alike=_alike(splits["forget"]),
        sizes={name: len({i.id for i in items}) for name, items in request.splits.splits.items()},
        references=retrained_among(run, folders, unlearned),
        evidence_level=level,
        unchanged=unchanged,
        apart=apart,
        unseen=tuple(name for name, model in compared.items() if is_address(model)),
        recipes=other_recipes(run, folders, target, retrained),
        luck=luck_of(request.splits.splits["forget"], request.splits.splits.get("retain", ())),
    )


def _odd_tokens(run: RunFolder, found: Mapping[tuple[str, str], Found]) -> tuple[str, ...]:
    """That a model was asked questions with control tokens in them, in a sentence each."""
    places = {who: one.evaluations[0].path for (who, attack), one in found.items() if not attack and one.evaluations}
    told = {who: odd_tokens_told(EvalFolder(run.path / path).provenance) for who, path in places.items()}
    return tuple(f"{one_line(who, width=60)}: {said}" for who, said in told.items() if said)


def _facts(splits: Mapping[str, Sequence[Item]], request: AuditRequest) -> tuple[dict[str, str], tuple[str, ...]]:
    """Which forget questions ask for the fact of another, as the setting has it: by words, by an embedder, or none.

    An embedder also sees kept questions that ask for what is forgotten, which is said.
    """
    how, forget = request.settings.wordings, splits["forget"]
    if how in ("words", "off"):
        return (facts_of(forget) if how == "words" else {}), ()
    from vestige.models.embedder import load_embedder

    embed = load_embedder(how, device=request.device).embed
    reworded = said_of_rewordings(forget, splits.get("retain", ()), embed)
    return facts_of(forget, embed), (reworded,) if reworded else ()


def _alike(forget: Sequence[Item]) -> dict[str, dict[str, str]]:
    """What forget items can be guessed together by, where more than one has it: the answer, the attribute."""
    found = {}
    for what, labels in (
        ("answer", {i.id: content_id(normalised(i.answer), length=12) for i in forget}),
        ("attribute", {i.id: i.attribute for i in forget if i.attribute is not None}),
    ):
        times = Counter(labels.values())
        if len(times) > 1:
            found[what] = {item: label for item, label in labels.items() if times[label] > 1}
    return found


def _uncounted(wordings: str, forget: Sequence[Item]) -> tuple[str, ...]:
    """That questions in several wordings count each by itself, where it was asked for and there are such."""
    facts = said_of_facts(forget) if wordings == "off" else ""
    return (
        (f"each of the {len(forget)} forget questions counts by itself (wordings=off), and {facts}",) if facts else ()
    )


def _whence(splits: NamedSplits) -> str:
    """Where the alternatives to the forget questions come from."""
    some = [i.id for i in splits.splits["forget"] if i.alternatives]
    return "" if not some else "drawn" if splits.drawn.issuperset(some) else GIVEN


def retrained_among(run: RunFolder, folders: Mapping[str, str], unlearned: Sequence[str]) -> tuple[str, ...]:
    """The subjects that were trained without the forget set, where their folders (relative to the run) say so."""
    specs = {one: read_spec(SubjectFolder(run.path / folders[one]).spec) for one in unlearned}
    return tuple(one for one, spec in specs.items() if spec.subject == "retrained" or spec.method == "retrain")


def made_from_others(
    run: RunFolder, folders: Mapping[str, str], target: str, unlearned: Sequence[str]
) -> tuple[str, ...]:
    """That subjects began with another model than the target, where their folders (relative to the run) say so.

    Models from elsewhere do not say what they began with, and one that was trained from the start never had a target.
    """
    digest = read_versioned(SubjectFolder(run.path / folders[target]).done, "digest")["digest"]
    specs = {one: read_spec(SubjectFolder(run.path / folders[one]).spec) for one in unlearned}
    retrained = retrained_among(run, folders, unlearned)
    others = [one for one, spec in specs.items() if spec.parent not in ("", digest) and one not in retrained]
    if not others:
        return ()
    names = ", ".join(one_line(one, width=60) for one in others)
    return (
        f"Made from another model than the target ({one_line(target, width=60)}) that this audit compares with: "
        f"{names}; what differs between the two targets counts as lost, left or brought back.",
    )


def _why(failed: Mapping[str, Exception], subject: str, attack: str) -> str:
    """Why a task left nothing: its own error, or that of the evaluation it waited for."""
    for name in (task_name(subject, attack), task_name(subject, ""), making_name(subject)):
        if name in failed:
            return str(failed[name])
    return "it left no answers"


def attacks_of_freeform(planned: Planned, forget: Sequence[Item]) -> tuple[PlannedAttack, ...]:
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


def _further_formats(plan: AuditPlan) -> tuple[Format, ...]:
    """Those of evaluations that are not Vestige's own, whose modules say them, and those of a table of scores."""
    from vestige.evals import find_eval
    from vestige.evals.base import audit_of

    others = [name for name in plan.settings.get("evals", ()) if name not in FORMATS_OF]
    return (*(form for name in others for form in audit_of(find_eval(name)).formats), *plan.formats)


def judge_plan(run: RunFolder, place: AuditFolder, plan: AuditPlan) -> AuditOutcome:
    """Judge what the plan says is there; write the outcome, and the verdicts of all audits of the run."""
    case = replace(read_case(run, plan), formats=_further_formats(plan))
    found = without_what_failed(judge(case), plan)
    facts = with_replies(run, plan, found.facts)
    # First what bears on every verdict, since a report shows few at once.
    untested = tuple(dict.fromkeys([*filter(None, [case.told_by]), *plan.untested, *found.untested]))
    outcome = _beside_the_first(place, plan, replace(found, untested=untested, facts=facts))
    write_outcome(place, outcome)
    write_verdicts(run)
    return outcome


def _beside_the_first(place: AuditFolder, plan: AuditPlan, outcome: AuditOutcome) -> AuditOutcome:
    """The outcome with the first judgement of the same answers, if that was at other thresholds; both are kept.

    At the same thresholds the same answers get other verdicts only by other rules, which is said too.
    """
    places = [asdict(one) for one in plan.evaluations] + [asdict(one) for one in plan.attacked]
    answers = content_id(places, length=32)
    verdicts = tuple((v.subject, v.claim, v.outcome) for v in outcome.verdicts)
    before = read_judgements(place, answers)
    if not before or (before[-1].thresholds, before[-1].verdicts) != (outcome.thresholds, verdicts):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        before = (*before, Judgement(now, outcome.thresholds, verdicts))
        write_judgements(place, answers, before)
    same = before[0].thresholds == outcome.thresholds
    if same and before[0].verdicts == verdicts:
        return outcome
    others = [f"{s}, {c}: {said}" for s, c, said in before[0].verdicts if (s, c, said) not in verdicts]
    why = "The rules of judging changed" if same else "Margins changed"
    said = f"{why} after the answers were seen. The first judgement was of {before[0]}" + (
        f"; there {'; '.join(others)}." if others else ", with the same verdicts."
    )
    return replace(outcome, first=None if same else before[0], untested=(said, *outcome.untested))


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
            f"{one_line(unknown[0], width=40)} is not a threshold, and only thresholds can change now; "
            f"{closest(unknown[0], list(Thresholds.model_fields))}"
        )
    places = [AuditFolder(p.parent) for p in sorted(folder.path.glob("audit/*/plan.json"))]
    if not places:
        raise InputError(f"{run} holds no audit; run `vestige audit --output-dir {run}` first")
    with locked(folder.lock):
        for place in places:
            plan = read_plan(place)
            settings = AuditSettings.build({**plan.settings, **(changes or {})}, where=str(place.plan))
            plan = replace(plan, settings=settings.identity())
            write_plan(place, plan)
            judge_plan(folder, place, plan)
        return write_verdicts(folder)
