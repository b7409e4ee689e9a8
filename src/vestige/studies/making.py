"""How the cells of a study are made: each by the step that its command runs, in a folder that its key names.

Keys hold no versions of code, so a study's folder holds those of all code that its cells come from, and refuses others.
Each step names its own (`steps/*.py`, functions in `_versions`); a test raises every version and sees the refusal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from vestige import requests
from vestige.artifacts.layout import StudyFolder, SubjectFolder
from vestige.artifacts.records import read_training_log
from vestige.attacks import ATTACKS
from vestige.attacks.planning import attack_of, plan_all
from vestige.auditing import judge as judging
from vestige.auditing.request import AuditedModel, AuditRequest, check_request, within_reach
from vestige.auditing.run import conduct
from vestige.auditing.settings import AuditSettings
from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json
from vestige.core.ids import changed_keys
from vestige.core.seeds import derive_seed
from vestige.core.text import one_line
from vestige.data import folder as compiling
from vestige.data.alternatives import with_alternatives
from vestige.data.corpus import NamedSplits, everything, named_splits
from vestige.data.folder import CompileSettings, compile_to_folder
from vestige.data.loaders import published_of
from vestige.evals.base import view_of
from vestige.evals.qa import QASettings
from vestige.judges.local import grader_of
from vestige.judges.spec import BY_MODEL, judge_spec
from vestige.models import endpoint
from vestige.models.load import ModelSettings
from vestige.steps.attack import AttackRequest, attack_evaluations, attack_versions, run_attack
from vestige.steps.controls import suppress_versions
from vestige.steps.engine import StudyCell
from vestige.steps.evaluate import (
    EvaluateRequest,
    Subject,
    check_published,
    evaluate_together,
    evaluate_versions,
)
from vestige.steps.finetune import finetune, finetune_versions
from vestige.steps.making import pick_form, read_done
from vestige.steps.subjects import any_subject
from vestige.steps.trajectory import TrajectoryRequest, ValidationSettings, answered_trajectory
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_request, unlearn_versions
from vestige.studies.calibrate import CalibrateRequest, CalibrateSettings, calibrate, calibrate_versions
from vestige.studies.cells import (
    CellKind,
    CellPoint,
    Study,
    cell_kind,
    corpus_of,
    folder_of,
    place_of,
    rate_name,
    splits_named,
    splits_of,
)
from vestige.studies.settings import StudyModel, StudySettings
from vestige.training.trajectory import TrajectorySettings


@lru_cache(maxsize=1)
def open_study(settings: str, folder: str) -> Study:
    """The study of these settings (JSON), read once in a process."""
    torch.set_num_threads(1)
    return Study(StudySettings.model_validate_json(settings), StudyFolder(Path(folder)))


def make_cell(cell: StudyCell, *, settings: str, folder: str) -> Mapping[str, Any]:
    """Make one cell; gives back where its results lie within the study's folder."""
    return cell_kind(cell.kind).make(open_study(settings, folder), cell)


def plan_cells(settings: str, folder: str) -> tuple[StudyCell, ...]:
    """The cells, in a process of its own."""
    return Study(StudySettings.model_validate_json(settings), StudyFolder(Path(folder))).cells


def check_study(study: Study) -> None:
    """Refuse what would fail only after something has been trained, and a folder that other code has worked in."""
    for model in study.settings.models:
        pick_form(model.save)
    _rules(study)
    for kind in _kinds(study):
        kind.check(study)
    hold_versions(study)


def hold_versions(study: Study) -> None:
    """Write down of which versions the cells are; refuse a folder whose cells are of others, naming the code."""
    current, path = versions(study), study.folder.state.path / "versions.json"
    # Audits that lie where no judge is named were judged before it had a version.
    stored = ({"judge": 1} if study.folder.audits() else {}) | (read_json(path) if path.exists() else {})
    changed = [name for name in changed_keys(current, {**current, **stored}) if name in current]
    if changed:
        raise InputError(
            f"{study.folder.path} was made by another version of {', '.join(changed)}, so new cells would not compare "
            "with old ones; choose another --output-dir"
        )
    write_json(path, {**stored, **current})


def versions(study: Study) -> dict[str, int]:
    """The versions of all code that can change what the study's cells hold, as the steps that make them say."""
    return {name: number for kind in _kinds(study) for name, number in kind.versions(study).items()}


def _kinds(study: Study) -> set[CellKind]:
    return {cell_kind(name) for name in {cell.kind for cell in study.cells}}


def _unlearned_by(study: Study) -> dict[str, int]:
    methods = (m for m in study.settings.methods if m.method)
    return {name: n for m in methods for name, n in unlearn_versions(m.method, m.settings).items()}


def _versions_of(settings: AuditSettings, evals: Sequence[str]) -> dict[str, int]:
    """Of the attacks that are set, with the evaluations that ask the attacked models."""
    names = [name for name in ATTACKS if getattr(settings, name, ())]
    return attack_versions([*names, *(line.split()[0] for line in settings.further)], evals)


def _audited_by(study: Study) -> dict[str, int]:
    settings = study.settings.audits()
    assert settings is not None, "planned where audits are asked for"
    return {"judge": judging.VERSION, **suppress_versions(), **_versions_of(settings, settings.evals)}


def _compile(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    data, path = study.data(cell.name), study.folder.dataset(f"{cell.name}-{cell.key}")
    settings = CompileSettings(seed=data.seed, temporal=data.temporal, contract_types=data.contract_types)
    compile_to_folder(data.compile, path, settings)
    return {"path": _within(study, path)}


def _within(study: Study, path: Path) -> str:
    """A folder as results name it, so that a study can be moved."""
    return str(path.relative_to(study.folder.path))


def settings_of(study: Study, key: str) -> ModelSettings:
    """How the model of a finished cell is loaded."""
    cell = next(c for c in study.cells if c.key == key)
    if cell.kind == "given":
        return _given_settings(study, cell.point)
    return _model_settings(study, study.model(cell.point.model), place_of(study, key))


def _model_settings(study: Study, model: StudyModel, path: Path | None = None) -> ModelSettings:
    return ModelSettings(
        model=str(path) if path else model.model,
        dtype=model.dtype,
        device=study.settings.device,
        trust_remote_code=model.trust_remote_code,
        chat_template="" if path else model.chat_template,
    )


def _teach(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """A target, or a model that never sees a forget set."""
    point: CellPoint = cell.point
    model, data, corpus = study.model(point.model), study.data(point.data), corpus_of(study, point.data)
    request = requests.finetuning(
        _model_settings(study, model),
        corpus,
        splits_named(study, point) if point.role == "retrained" else None,
        study.settings.teaching(model, data),
        name=point.role,
        # The first control has its target's own seed, so that they differ in what they were taught alone.
        seed=derive_seed(point.seed, "control", point.step) if point.step else point.seed,
        factual=data.train_factual and bool(corpus.factual),
    )
    path = folder_of("models", point, cell.key)
    saved = finetune(SubjectFolder(study.folder.path / path), replace(request, forget=point.member))
    return {"path": path, "steps": saved.steps, "stopped": saved.stopped, "tokens": _tokens(study, path)}


def _tokens(study: Study, path: str) -> int:
    """How many tokens a training has read."""
    return sum(row["n_tokens"] for row in read_training_log(SubjectFolder(study.folder.path / path).training_log))


def _look_at(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """A model that knows already: its folder is for evidence, and its weights stay where they are."""
    path = folder_of("models", cell.point, cell.key)
    subject = _given_subject(study, study.folder.path / path, cell.point)
    if cell.point.role == "target":
        data, row = study.data(cell.point.data).data, study.settings.published or None
        if (figures := published_of(data, study.model(cell.point.model).model, row)) is not None:
            check_published(subject, *figures, seed=cell.point.seed)
    return {"path": path, "digest": subject.made.digest.id}


def _given_subject(study: Study, folder: Path, point: CellPoint) -> Subject:
    return any_subject(_given_settings(study, point), str(folder), role=point.role, name=point.method or point.model)


def _given_settings(study: Study, point: CellPoint) -> ModelSettings:
    """How a target or an unlearned model is read that was there before the study."""
    settings = _model_settings(study, study.model(point.model))
    path = study.method(point.method).model if point.method else ""
    return settings.model_copy(update={"model": path}) if path else settings


def _unlearn(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    point: CellPoint = cell.point
    # Known only when the search for it is done, which the cell waited for.
    rate = read_json(study.folder.state.done / cell.after[-1])["made"]["rate"] if point.goal else point.rate
    request, _ = unlearning_of(study, cell, rate)
    path = folder_of("cells", point, cell.key)
    saved = unlearn(SubjectFolder(study.folder.path / path), request)
    return {"path": path, "rate": rate, "steps": saved.steps, "stopped": saved.stopped, "tokens": _tokens(study, path)}


def _calibrate(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Find the rate for a goal, in this process."""
    point: CellPoint = cell.point
    model, method, data = study.model(point.model), study.method(point.method), study.data(point.data)
    forget = next(f for f in study.settings.forget if f.label == point.forget)
    grid = next(r.grid for r in study.settings.rates_of(model, method, data, forget) if r.goal == point.goal)
    request, splits = unlearning_of(study, cell, grid[0])
    # A rate is sought by trainings to their end.
    request = replace(request, trajectory=None)
    questions = QASettings.build(study.settings.evaluate.settings.get("qa", {}), where="qa")
    settings = CalibrateSettings(goal=point.goal, rates=grid)
    path = folder_of("calibrations", point, cell.key)
    result = calibrate(study.folder.path / path, CalibrateRequest(request, splits, questions, settings), workers=0)
    if result.rate is None:
        raise InputError(f"training broke down at every rate of {list(grid)}")
    return {"path": path, "rate": result.rate, "reached": result.reached, "tokens": result.n_tokens}


def unlearning_of(study: Study, cell: StudyCell, rate: float) -> tuple[UnlearnRequest, NamedSplits]:
    """What is asked of a method at a rate, and the splits that it is asked with."""
    point: CellPoint = cell.point
    model, method, data = study.model(point.model), study.method(point.method), study.data(point.data)
    corpus, member = corpus_of(study, point.data), study.member(point.data, point.forget, point.member)
    before = tuple(named_splits(corpus, step).resolved for step in member.steps[: point.step])
    splits = named_splits(corpus, member.steps[point.step], retain=data.retain, before=before)
    request = unlearn_request(
        _parent(study, cell, model),
        splits,
        method.method,
        lambda _: study.settings.training(model, method, rate),
        method_settings=method.settings,
        seed=point.seed,
        save=model.save,
    )
    trajectory = _trajectory(study, cell, splits) if study.settings.trajectory else None
    return replace(request, forget=member.steps[point.step], before=before, trajectory=trajectory), splits


def _trajectory(study: Study, cell: StudyCell, splits: NamedSplits) -> TrajectoryRequest:
    """How the training is watched; replies of a judge of harm lie beside its log."""
    (settings, validation, judge), harm = _rules(study), None
    if judge:
        folder = study.folder.path / folder_of("cells", cell.point, cell.key)
        grader = grader_of(judge_spec(judge), folder / "train" / "judge", study.settings.device)
        harm = grader.judge, grader.identity
    return answered_trajectory(settings, validation, splits, seed=cell.point.seed, harm=harm)


def _rules(study: Study) -> tuple[TrajectorySettings, ValidationSettings, str]:
    """When a training is scored, stopped and chosen from, by what, and who judges harm, if anybody."""
    entries = dict(study.settings.trajectory)
    judge = str(entries.pop("harm_judge", ""))
    if judge and not judge_spec(judge).by_model:
        raise InputError(f"trajectory.harm_judge = {one_line(judge)!r}: takes a language model; {BY_MODEL}")
    # One table in the file for both: a person sets when a training is looked at and by what at one place.
    rules = {key: entries.pop(key) for key in [*entries] if key in TrajectorySettings.model_fields}
    # Conditions to stop add to those that always hold.
    rules["stop_when"] = (*TrajectorySettings().stop_when, *rules.get("stop_when", ()))
    settings = TrajectorySettings.build(rules, where="trajectory")
    return settings, ValidationSettings.build(entries, where="trajectory"), judge


def _parent(study: Study, cell: StudyCell, model: StudyModel) -> ModelSettings:
    """The model that unlearning starts from."""
    if not model.teach and cell.point.step == 0:
        return _model_settings(study, model)
    folder = SubjectFolder(place_of(study, cell.after[0]))
    # The mark of a cell may outlive what somebody deleted.
    if read_done(folder) is None:
        raise InputError(f"{folder.path} holds no finished model; delete its mark in state/done and run again")
    return _model_settings(study, model, folder.model)


def _attack(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Attack a model in every way, and ask it again; by attack where its last answers lie, and what stands for what."""
    point: CellPoint = cell.point
    seed, splits = study.data(point.data).seed, splits_of(study, point.data, point.forget, point.member)
    # Of the data's seed: every model is attacked with the same items.
    planned = plan_all(study.settings.attacks().model_dump(), splits.splits, seed=seed)
    subject = _subject(study, point, place_of(study, cell.after[0]))
    target = _subject(study, point._replace(role="target"), place_of(study, cell.after[-1]))
    # These ask the model in a way of their own, or would have a fact from beside the question among their options.
    evals = {n: s for n, s in study.settings.questions().items() if n not in ("acr", "reversed")}
    answers = {}
    for attack in planned.attacks:
        guide = target if attack_of(attack.plan).guided else None
        request = AttackRequest(attack, evals, splits.forget, seed, guide=guide)
        folder = run_attack(subject, request)
        places, last = attack_evaluations(folder, request), attack.plan.points[-1]
        answers[attack.plan.name] = {
            "evals": {name: _within(study, places[last, name].path) for name in evals},
            "asked": read_json(folder.asked),
        }
    return {"attacks": answers, "untested": list(planned.untested)}


def _audit(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Audit a forget set; what became of each claim about each method and rate."""
    point: CellPoint = cell.point
    model, data, settings = study.model(point.model), study.data(point.data), study.settings.audits()
    assert settings is not None, "planned where audits are asked for"
    models = dict(_audited_models(study, cell))
    splits = splits_named(study, point)
    if "exposure" in settings.evals:
        splits = with_alternatives(corpus_of(study, point.data), splits)
    request = AuditRequest(
        models=tuple(models),
        splits=replace(splits, forget=cell.name.removeprefix("audit ")),
        settings=settings,
        seed=data.seed,
        device=study.settings.device,
        dtype=model.dtype,
        trust_remote_code=model.trust_remote_code,
        chat_template="" if model.teach else model.chat_template,
    )
    check_request(request)
    # In this process: a worker that started others would take the place of several.
    outcome = conduct(study.folder, within_reach(request), workers=0).outcome
    points = {audited.name: of_model for audited, of_model in models.items()}
    verdicts = [
        {"method": p.method, "rate": rate_name(p), "claim": v.claim, "outcome": v.outcome, "reason": v.reason}
        for v in outcome.verdicts
        for p in [points[v.subject]]
    ]
    return {"path": _within(study, study.folder.audit(request.splits.forget).path), "verdicts": verdicts}


def _audited_models(study: Study, cell: StudyCell) -> Iterator[tuple[AuditedModel, CellPoint]]:
    """The target, the controls and the unlearned models that an audit is about, each with its place in the study."""
    model, target = study.model(cell.point.model), place_of(study, cell.after[0])
    # Evidence about a model from elsewhere lies in a folder of the model's name.
    name, path = ("target", str(target)) if model.teach else (target.name, model.model)
    yield AuditedModel(name, "target", path), cell.point
    by_key = {c.key: c for c in study.cells}
    for key in cell.after[1:]:
        kind, point = by_key[key].kind, by_key[key].point
        if kind == "retrained":
            yield AuditedModel(f"retrained {point.step + 1}", "retrained", str(place_of(study, key))), point
        elif kind in ("unlearned", "given"):
            path = _given_settings(study, point).model if kind == "given" else str(place_of(study, key))
            yield AuditedModel(f"{point.method} {rate_name(point)}".strip(), "unlearned", path), point


def _subject(study: Study, point: CellPoint, folder: Path) -> Subject:
    """A model that the study made, or one that was given."""
    model = study.model(point.model)
    if (point.role == "target" and not model.teach) or (point.method and study.method(point.method).model):
        return _given_subject(study, folder, point)
    return any_subject(_model_settings(study, model, folder), None)


def _evaluate(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Ask a model; what it scores on each item lies in the folders that are named by evaluation."""
    point: CellPoint = cell.point
    if point.member:
        sets = [(point.forget, point.member)]
    else:
        # A target answers for every forget set of its data.
        members = study.members.items()
        sets = [(forget, m.name) for (data, forget), of_set in members if data == point.data for m in of_set]
    splits = [splits_of(study, point.data, *names) for names in sets]
    items, views, seed = everything(splits), tuple(map(view_of, splits)), study.data(point.data).seed
    questions = study.settings.questions()
    requests = [EvaluateRequest(items, views, settings, seed, summed=False) for settings in questions.values()]
    folders = evaluate_together(_subject(study, point, place_of(study, cell.after[0])), requests)
    return {"evals": {n: _within(study, folder.path) for n, folder in zip(questions, folders, strict=True)}}


DATA = CellKind(_compile, lambda _: {"compiler": compiling.COMPILER})
TAUGHT = CellKind(_teach, lambda _: finetune_versions())
GIVEN = CellKind(_look_at, lambda _: {"served model": endpoint.VERSION})
UNLEARNED = CellKind(_unlearn, _unlearned_by)
CALIBRATED = CellKind(_calibrate, lambda study: {**_unlearned_by(study), **calibrate_versions()})
EVALUATED = CellKind(_evaluate, lambda study: evaluate_versions(study.settings.evaluate.evals))
ATTACKED = CellKind(_attack, lambda study: _versions_of(study.settings.attacks(), study.settings.evaluate.evals))
AUDITED = CellKind(_audit, _audited_by)
