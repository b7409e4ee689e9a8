"""How the cells of a study are made: each by the step that its command runs, in a folder that its key names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from vestige.artifacts.layout import EvalFolder, StudyFolder, SubjectFolder
from vestige.artifacts.records import read_records, read_training_log
from vestige.attacks import ATTACKS
from vestige.attacks.planning import attack_of, find_attack, plan_all
from vestige.auditing import judge as judging
from vestige.auditing.request import AuditedModel, AuditRequest, check_request, within_reach
from vestige.auditing.run import conduct
from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json
from vestige.core.ids import changed_keys
from vestige.core.items import Item
from vestige.core.seeds import derive_seed
from vestige.core.settings import Settings
from vestige.data.alternatives import with_alternatives
from vestige.data.corpus import NamedSplits, everything, named_splits
from vestige.data.folder import CompileSettings, compile_to_folder
from vestige.data.loaders import published_of
from vestige.evals import find_eval
from vestige.evals.qa import QASettings
from vestige.methods import build_method
from vestige.models.load import ModelSettings
from vestige.steps import attack as attacking
from vestige.steps import finetune as finetuning
from vestige.steps import unlearn as unlearning
from vestige.steps.attack import AttackRequest, attack_evaluations, run_attack
from vestige.steps.evaluate import (
    EvaluateRequest,
    Subject,
    check_published,
    evaluate_together,
    finished_subject,
    view_of,
)
from vestige.steps.finetune import finetune, finetune_request
from vestige.steps.making import pick_form, read_done
from vestige.steps.subjects import any_subject
from vestige.steps.unlearn import UnlearnRequest, unlearn, unlearn_request
from vestige.studies import calibrate as calibrating
from vestige.studies.calibrate import CalibrateRequest, CalibrateSettings, calibrate
from vestige.studies.cells import CellPoint, Study, corpus_of, folder_of, place_of, rate_name, splits_named, splits_of
from vestige.studies.engine import StudyCell
from vestige.studies.settings import StudyModel, StudySettings


@lru_cache(maxsize=1)
def open_study(settings: str, folder: str) -> Study:
    """The study of these settings (JSON), read once in a process."""
    torch.set_num_threads(1)
    return Study(StudySettings.model_validate_json(settings), StudyFolder(Path(folder)))


def make_cell(cell: StudyCell, *, settings: str, folder: str) -> Mapping[str, Any]:
    """Make one cell; gives back where its results lie within the study's folder."""
    kinds = {"data": _data, "target": _taught, "retrained": _taught, "given": _given, "unlearned": _unlearned}
    kinds |= {"evaluate": _evaluated, "attack": _attacked, "calibrate": _calibrated, "audit": _audited}
    return kinds.get(cell.kind, _of_holes)(open_study(settings, folder), cell)


def plan_cells(settings: str, folder: str) -> tuple[StudyCell, ...]:
    """The cells, in a process of its own."""
    return Study(StudySettings.model_validate_json(settings), StudyFolder(Path(folder))).cells


def check_study(study: Study) -> None:
    """Refuse what would fail only after something has been trained, and a folder that other code has worked in."""
    for method in (m for m in study.settings.methods if m.method):
        build_method(method.method, method.settings)
    for name in study.settings.evaluate.evals:
        find_eval(name).SETTINGS.build(
            study.settings.evaluate.settings.get(name, {}), where=f"evaluate.settings.{name}"
        )
    strange = set(study.settings.evaluate.settings) - set(study.settings.evaluate.evals)
    if strange:
        raise InputError(f"evaluate.settings has {min(strange)!r}, which is none of evals")
    for model in study.settings.models:
        pick_form(model.save)
    if study.settings.holes is not None:
        from vestige.models.embedder import HUB_ID, embedder_folder
        from vestige.studies.holes import hole_settings

        embedder_folder(hole_settings(study).embedder or HUB_ID)
    ours, path = versions(study), study.folder.state.path / "versions.json"
    theirs = read_json(path) if path.exists() else {}
    changed = [name for name in changed_keys(ours, {**ours, **theirs}) if name in ours]
    if changed:
        raise InputError(
            f"{study.folder.path} was made by another version of {', '.join(changed)}, so new cells would not compare "
            "with old ones; choose another --output-dir"
        )
    write_json(path, {**theirs, **ours})


def versions(study: Study) -> dict[str, int]:
    """The versions of all code that can change what the study's cells hold."""
    methods = {m.method: build_method(m.method, m.settings).version for m in study.settings.methods if m.method}
    audit, asked = study.settings.audits(), study.settings.evaluate.evals
    evals = {name: find_eval(name).COLLECT_VERSION for name in (*asked, *(audit.evals if audit else ()))}
    made = audit or study.settings.attacks()
    attacks = [*(name for name in ATTACKS if getattr(made, name)), *(one.split()[0] for one in made.further)]
    return {
        "finetune": finetuning.VERSION,
        "unlearn": unlearning.VERSION,
        **({"calibrate": calibrating.VERSION} if any(r.goal for r in study.settings.rates) else {}),
        **({"attack": attacking.VERSION} if study.settings.attack or study.settings.audit is not None else {}),
        **({"judge": judging.VERSION} if study.settings.audit is not None else {}),
        **{f"attack {name}": find_attack(name).version for name in attacks},
        **_versions_of_holes(study),
        **{f"method {name}": version for name, version in methods.items()},
        **{f"evaluation {name}": version for name, version in evals.items()},
    }


def _versions_of_holes(study: Study) -> dict[str, int]:
    if study.settings.holes is None:
        return {}
    from vestige import probes
    from vestige.judges import grounded
    from vestige.probes import latent, mitigation

    parts = {"probe": probes, "mitigation": mitigation, "grounded judge": grounded}
    versions = {name: int(part.VERSION) for name, part in parts.items()}
    return {**versions, "search": latent.SEARCH_VERSION}


def _data(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    data = study.data(cell.name)
    place = study.folder.dataset(f"{cell.name}-{cell.key}")
    own = CompileSettings(seed=data.seed, temporal=data.temporal, contract_types=data.contract_types)
    compile_to_folder(data.compile, place, own)
    return {"path": str(place.relative_to(study.folder.path))}


def _of_holes(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    from vestige.studies.holes import Maker, make_hole_cell

    by_key = {c.key: c for c in study.cells}

    def settings(key: str) -> ModelSettings:
        if by_key[key].kind == "given":
            return _given_settings(study, by_key[key].point)
        return _settings_of(study, study.model(cell.point.model), place_of(study, key))

    return make_hole_cell(study, cell, Maker(settings, lambda cell, rate: _unlearning(study, cell, rate)))


def _settings_of(study: Study, model: StudyModel, path: Path | None = None) -> ModelSettings:
    return ModelSettings(
        model=str(path) if path else model.model,
        dtype=model.dtype,
        device=study.settings.device,
        trust_remote_code=model.trust_remote_code,
        chat_template="" if path else model.chat_template,
    )


def _taught(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """A target, or a model that never sees a forget set."""
    point: CellPoint = cell.point
    model, corpus = study.model(point.model), corpus_of(study, point.data)
    data = study.data(point.data)
    request = finetune_request(
        _settings_of(study, model),
        corpus,
        splits_named(study, point) if point.role == "retrained" else None,
        study.settings.teaching(model, data),
        name=point.role,
        seed=derive_seed(point.seed, "control", point.step) if point.step else point.seed,
        factual=data.train_factual and bool(corpus.factual),
    )
    request = replace(request, forget=point.member)
    place = folder_of("models", point, cell.key)
    made = finetune(SubjectFolder(study.folder.path / place), request)
    return {"path": place, "steps": made.steps, "stopped": made.stopped, "tokens": _tokens(study, place)}


def _tokens(study: Study, place: str) -> int:
    """How many tokens a training has read."""
    return sum(row["n_tokens"] for row in read_training_log(SubjectFolder(study.folder.path / place).training_log))


def _given(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """A model that knows already: its folder is for evidence, and its weights stay where they are."""
    place = folder_of("models", cell.point, cell.key)
    subject = _from_elsewhere(study, study.folder.path / place, cell.point)
    if cell.point.role == "target":
        data, known = study.data(cell.point.data).data, study.settings.published or None
        if (figures := published_of(data, study.model(cell.point.model).model, known)) is not None:
            check_published(subject, *figures, seed=cell.point.seed)
    return {"path": place, "digest": subject.made.digest.id}


def _from_elsewhere(study: Study, folder: Path, point: CellPoint) -> Subject:
    settings = _given_settings(study, point)
    return any_subject(settings, str(folder), role=point.role, name=point.method or point.model)


def _given_settings(study: Study, point: CellPoint) -> ModelSettings:
    """How a target or an unlearned model is read that was there before the study."""
    settings = _settings_of(study, study.model(point.model))
    own = study.method(point.method).model if point.method else ""
    return settings.model_copy(update={"model": own}) if own else settings


def _unlearned(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    point: CellPoint = cell.point
    rate = read_json(study.folder.state.done / cell.after[-1])["made"]["rate"] if point.goal else point.rate
    request, _ = _unlearning(study, cell, rate)
    place = folder_of("cells", point, cell.key)
    made = unlearn(SubjectFolder(study.folder.path / place), request)
    told = {"steps": made.steps, "stopped": made.stopped, "tokens": _tokens(study, place)}
    return {"path": place, "rate": rate, **told}


def _calibrated(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Find the rate for a goal, in this process."""
    point: CellPoint = cell.point
    model, method, data = study.model(point.model), study.method(point.method), study.data(point.data)
    forget = next(f for f in study.settings.forget if f.label == point.forget)
    tried = next(t for t in study.settings.rates_of(model, method, data, forget) if t.goal == point.goal)
    request, splits = _unlearning(study, cell, tried.grid[0])
    questions = QASettings.build(study.settings.evaluate.settings.get("qa", {}), where="qa")
    settings = CalibrateSettings(goal=point.goal, rates=tried.grid)
    place = folder_of("calibrations", point, cell.key)
    found = calibrate(study.folder.path / place, CalibrateRequest(request, splits, questions, settings), workers=0)
    if found.rate is None:
        raise InputError(f"training broke down at every rate of {list(tried.grid)}")
    return {"path": place, "rate": found.rate, "reached": found.reached, "tokens": found.n_tokens}


def _unlearning(study: Study, cell: StudyCell, rate: float) -> tuple[UnlearnRequest, NamedSplits]:
    """What is asked of a method at a rate, and the splits that it is asked with."""
    point: CellPoint = cell.point
    model, method, data = study.model(point.model), study.method(point.method), study.data(point.data)
    corpus, member = corpus_of(study, point.data), study.member(point.data, point.forget, point.member)
    done = tuple(named_splits(corpus, step).resolved for step in member.steps[: point.step])
    named = named_splits(corpus, member.steps[point.step], retain=data.retain, before=done)
    request = unlearn_request(
        _parent(study, cell, model),
        named,
        method.method,
        lambda _: study.settings.training(model, method, rate),
        method_settings=method.settings,
        seed=point.seed,
        save=model.save,
    )
    return replace(request, forget=member.steps[point.step], before=done), named


def _parent(study: Study, cell: StudyCell, model: StudyModel) -> ModelSettings:
    """The model that unlearning starts from."""
    if not model.teach and cell.point.step == 0:
        return _settings_of(study, model)
    folder = SubjectFolder(place_of(study, cell.after[0]))
    if read_done(folder) is None:
        raise InputError(f"{folder.path} holds no finished model; delete its mark in state/done and run again")
    return _settings_of(study, model, folder.model)


def _attacked(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Attack a model in every way, and ask it again; by attack where its last answers lie, and what stands for what."""
    point: CellPoint = cell.point
    seed, splits = study.data(point.data).seed, splits_of(study, point.data, point.forget, point.member)
    planned = plan_all(study.settings.attacks().model_dump(), splits.splits, seed=seed)
    subject = _subject(study, point, place_of(study, cell.after[0]))
    target = _subject(study, point._replace(role="target"), place_of(study, cell.after[-1]))
    evals = {name: own for name, own in _questions(study).items() if name not in ("acr", "reversed")}
    found = {}
    for attack in planned.attacks:
        request = AttackRequest(
            attack, evals, splits.forget, seed, guide=target if attack_of(attack.plan).guided else None
        )
        folder = run_attack(subject, request)
        places = attack_evaluations(folder, request)
        last = {name: places[attack.plan.points[-1], name] for name in evals}
        found[attack.plan.name] = {
            "evals": {name: str(place.path.relative_to(study.folder.path)) for name, place in last.items()},
            "asked": {k: v for place in last.values() for k, v in _stands_for(place, attack.tested).items()},
        }
    return {"attacks": found, "untested": list(planned.untested)}


def _audited(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Audit a forget set; what became of each claim about each method and rate."""
    point: CellPoint = cell.point
    model, data, settings = study.model(point.model), study.data(point.data), study.settings.audits()
    assert settings is not None, "planned where audits are asked for"
    target, by_key = place_of(study, cell.after[0]), {c.key: c for c in study.cells}
    # Evidence about a model from elsewhere lies in a folder of the model's name.
    models = [AuditedModel("target", "target", str(target)) if model.teach
              else AuditedModel(target.name, "target", model.model)]  # fmt: skip
    subjects: dict[str, CellPoint] = {}
    for made in (by_key[key] for key in cell.after[1:]):
        own: CellPoint = made.point
        if made.kind == "retrained":
            models.append(AuditedModel(f"retrained {own.step + 1}", "retrained", str(place_of(study, made.key))))
        elif made.kind in ("unlearned", "given"):
            name = f"{own.method} {rate_name(own)}".strip()
            given = _given_settings(study, own).model if made.kind == "given" else str(place_of(study, made.key))
            models.append(AuditedModel(name, "unlearned", given))
            subjects[name] = own
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
    found = conduct(study.folder, within_reach(request), workers=0)
    verdicts = [
        {"method": own.method, "rate": rate_name(own), "claim": v.claim, "outcome": v.outcome, "reason": v.reason}
        for v in found.outcome.verdicts
        for own in [subjects[v.subject]]
    ]
    path = study.folder.audit(request.splits.forget).path
    return {"path": str(path.relative_to(study.folder.path)), "verdicts": verdicts}


def _stands_for(place: EvalFolder, tested: Sequence[Item]) -> dict[str, str]:
    """By the id of each item as it was asked, with a text beside its question, the forget item that it is."""
    by_content: dict[tuple[Any, ...], str] = {(i.edge, i.attribute, i.answer): i.id for i in tested}
    own = {i.id for i in tested}
    rows = {r["item"]: (r.get("edge"), r.get("attribute"), _answer(r)) for r in read_records(place)}
    missing = [i for i, content in rows.items() if i not in own and content not in by_content]
    if missing or len(by_content) < len(own):
        raise InputError(f"{place.path}: the attacked model was asked items that cannot be told from one another")
    return {i: i if i in own else by_content[content] for i, content in rows.items()}


def _answer(record: Mapping[str, Any]) -> Any:
    """The right answer as a text; multiple choice has its place among the options."""
    answer = record.get("answer")
    return record["options"][answer] if "options" in record else answer


def _questions(study: Study) -> dict[str, Settings]:
    """The evaluations with their settings."""
    asked = study.settings.evaluate
    return {n: find_eval(n).SETTINGS.build(asked.settings.get(n, {}), where=n) for n in asked.evals}


def _subject(study: Study, point: CellPoint, place: Path) -> Subject:
    """A model that the study made, or one that was given."""
    model = study.model(point.model)
    if (point.role == "target" and not model.teach) or (point.method and study.method(point.method).model):
        return _from_elsewhere(study, place, point)
    trusted = model.trust_remote_code
    return finished_subject(SubjectFolder(place), device=study.settings.device, trust_remote_code=trusted)


def _evaluated(study: Study, cell: StudyCell) -> Mapping[str, Any]:
    """Ask a model; what it scores on each item lies in the folders that are named by evaluation."""
    point: CellPoint = cell.point
    asked = study.settings.evaluate
    if point.member:
        seen = [splits_of(study, point.data, point.forget, point.member)]
    else:
        places = [(forget, m.name) for (data, forget), own in study.members.items() if data == point.data for m in own]
        seen = [splits_of(study, point.data, *place) for place in places]
    items, views = everything(seen), tuple(view_of(s) for s in seen)
    seed = study.data(point.data).seed
    requests = [EvaluateRequest(items, views, own, seed, n, summed=False) for n, own in _questions(study).items()]
    found = evaluate_together(_subject(study, point, place_of(study, cell.after[0])), requests)
    paths = (str(f.path.relative_to(study.folder.path)) for f in found)
    return {"evals": dict(zip(asked.evals, paths, strict=True))}
