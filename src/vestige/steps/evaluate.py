"""Evaluation as a step: records of one subject, kept item by item, then a summary for each forget set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.layout import EvalFolder, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import (
    SCHEMA,
    SubjectSpec,
    Summary,
    read_records,
    read_spec,
    read_versioned,
    write_summary,
)
from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, json_line, locked, read_jsonl, write_json, write_jsonl
from vestige.core.ids import content_id, file_digest
from vestige.core.items import Item
from vestige.core.settings import Settings
from vestige.data.corpus import NamedSplits
from vestige.evals import EVALS, find_eval
from vestige.evals.base import Evaluation, View
from vestige.models.load import LoadedModel, ModelSettings, load
from vestige.steps.making import LOCK_SECONDS, Made, read_done, same_weights

CHUNK = 64
PROBE = 8
"""Items on which every evaluation looks whether numbers depend on the batch; provenance.json says what it saw."""


@dataclass(frozen=True)
class EvaluateRequest:
    """Which items to ask, how, and from which forget sets to sum up; `eval` is a name of `EVALS`."""

    items: tuple[Item, ...]
    views: tuple[View, ...]
    settings: Settings
    seed: int
    eval: str = next(iter(EVALS))


@dataclass(frozen=True)
class Subject:
    """Who is evaluated: where its evidence goes, its identity in the run, its digests, and how to load it."""

    folder: SubjectFolder
    spec: SubjectSpec
    made: Made
    load: Callable[[], LoadedModel]


def finished_subject(folder: SubjectFolder, *, device: str = "auto", trust_remote_code: bool = False) -> Subject:
    """The subject that a finished folder holds, in the number format it was made in.

    Whether code that a model brings may run is for the caller to say, never for the folder.
    """
    made = read_done(folder)
    if made is None:
        raise InputError(f"{folder.path} holds no finished model; make it first, or run what was making it again")
    spec = read_spec(folder.spec)
    settings = ModelSettings(
        model=str(folder.model),
        dtype=str(spec.settings.get("dtype", "float32")),
        device=device,
        trust_remote_code=trust_remote_code,
    )
    return Subject(folder, spec, made, lambda: load(settings))


def evaluate(
    subject: Subject, request: EvaluateRequest, on_items: Callable[[int, int], None] = lambda done, of: None
) -> EvalFolder:
    """The evaluation's folder with its summaries; asks the model only for what is not there yet.

    The digests of the weights and of how they are asked are part of the evaluation's name, so that no model is ever
    given the numbers of another.
    """
    if not request.items:
        raise InputError("there are no items to evaluate on")
    evaluation = find_eval(request.eval)
    if not isinstance(request.settings, evaluation.SETTINGS):
        raise InputError(f"the evaluation {request.eval!r} was given {type(request.settings).__name__}")
    asked = evaluation.asked(request.items, request.views, request.settings)
    identity = _identity(evaluation, asked, request, subject)
    place = subject.folder.evaluation(evaluation.NAME, content_id(identity, length=12))
    with locked(place.lock, patience_seconds=LOCK_SECONDS):
        if not place.collected.exists():
            _collect(place, identity, _Plan(evaluation, asked, request.settings), _loaded(subject), on_items)
        place.unfinished.unlink(missing_ok=True)
        digest = read_versioned(place.collected, "digest")["digest"]
        if not place.records.exists() or file_digest(place.records) != digest:
            raise InputError(f"{place.records} was changed after it was written; delete {place.path} and run again")
        records = read_records(place)
        scores = [evaluation.score(r) for r in records]
        write_jsonl(place.scores, ({"item": r["item"], **s} for r, s in zip(records, scores, strict=True)))
        for view in request.views:
            results = evaluation.summarize(records, scores, view, seed=request.seed)
            splits = {name: tuple(ids) for name, ids in view.splits.items()}
            summary = Summary(evaluation.NAME, evaluation.SUMMARY_VERSION, subject.spec, view.forget, splits, results)
            write_summary(place, summary)
    return place


def _loaded(subject: Subject) -> LoadedModel:
    """The subject's model, if its weights are still those that its folder speaks of."""
    loaded = subject.load()
    same_weights(loaded, subject.made.weights, subject.spec.name)
    return loaded


def _identity(
    evaluation: Evaluation[Any, Any], asked: Mapping[str, Any], request: EvaluateRequest, subject: Subject
) -> dict[str, Any]:
    """Everything that can change a record."""
    return {
        "eval": evaluation.NAME,
        "version": evaluation.COLLECT_VERSION,
        "weights": subject.made.weights,
        "prompts": subject.made.prompts,
        "dtype": subject.spec.settings.get("dtype", "float32"),
        "items": evaluation.digest(asked),
        "settings": request.settings.identity(),
    }


@dataclass(frozen=True)
class _Plan:
    """One evaluation with what it asks, by item id."""

    evaluation: Evaluation[Any, Any]
    asked: Mapping[str, Any]
    settings: Settings


def _collect(
    place: EvalFolder,
    identity: dict[str, Any],
    plan: _Plan,
    subject: LoadedModel,
    on_items: Callable[[int, int], None],
) -> None:
    watch = Stopwatch()
    write_json(place.identity, {"schema": SCHEMA, **identity})
    drop_torn_line(place.unfinished)
    kept = {r["item"]: r for r in read_jsonl(place.unfinished)} if place.unfinished.exists() else {}
    ids, asked = list(plan.asked), list(plan.asked.values())
    for chunk in plan.evaluation.chunks(subject, asked, size=CHUNK):
        # A portion that a kill cut short is asked again as a whole, in the batch that it always has.
        if any(ids[i] not in kept for i in chunk):
            records = plan.evaluation.collect(subject, [asked[i] for i in chunk], plan.settings)
            append_lines(place.unfinished, [json_line(r) for r in records])
            kept |= {r["item"]: r for r in records}
        on_items(len(kept), len(ids))
    write_jsonl(place.records, (kept[i] for i in ids))
    invariant = plan.evaluation.invariant(subject, asked[:PROBE], plan.settings)
    write_provenance(place.provenance, watch, device=str(subject.model.device), batch_invariant=invariant)
    write_json(place.collected, {"schema": SCHEMA, "n": len(ids), "digest": file_digest(place.records)})


def view_of(splits: NamedSplits) -> View:
    """The view of one forget set, by the items' ids."""
    return View(splits.forget, {n: tuple(i.id for i in items) for n, items in splits.splits.items()}, splits.scopes)
