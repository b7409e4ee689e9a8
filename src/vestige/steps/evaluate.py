"""Evaluation as a step: records of one subject, kept item by item, then a summary for each forget set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vestige.artifacts.layout import EvalFolder, SubjectFolder
from vestige.artifacts.provenance import Stopwatch, write_provenance
from vestige.artifacts.records import SCHEMA, SubjectSpec, Summary, read_records, read_versioned, write_summary
from vestige.core.errors import InputError
from vestige.core.files import append_lines, drop_torn_line, file_digest, json_line, read_jsonl, write_json, write_jsonl
from vestige.core.ids import content_id
from vestige.core.items import Item
from vestige.evals import qa
from vestige.models.load import LoadedModel
from vestige.steps.finetune import items_digest
from vestige.steps.making import Made, locked

CHUNK = 64


@dataclass(frozen=True)
class EvaluateRequest:
    """Which items to ask, how, and for which forget sets to sum up. `spec` says who the subject is in its run."""

    spec: SubjectSpec
    items: tuple[Item, ...]
    views: tuple[qa.View, ...]
    settings: qa.QASettings
    seed: int


def evaluate(
    folder: SubjectFolder,
    request: EvaluateRequest,
    made: Made,
    load_subject: Callable[[], LoadedModel],
    on_items: Callable[[int, int], None] = lambda done, of: None,
) -> EvalFolder:
    """The evaluation's folder with its summaries; asks the model only for what is not there yet.

    The digests of `made`, of the weights that `load_subject` loads and of how they are asked, are part of the
    evaluation's name, so that no model is ever given the numbers of another.
    """
    if not request.items:
        raise InputError("there are no items to evaluate on")
    identity = _identity(request, made)
    place = folder.evaluation(qa.NAME, content_id(identity, length=12))
    with locked(place.path / ".lock"):
        if not place.collected.exists():
            _collect(place, identity, request, load_subject(), on_items)
        records = read_records(place)
        if file_digest(place.records) != read_versioned(place.collected)["digest"]:
            raise InputError(f"{place.records} was changed after it was written; delete {place.path} and run again")
        scores = [qa.score(r) for r in records]
        write_jsonl(place.scores, ({"item": r["item"], **s} for r, s in zip(records, scores, strict=True)))
        for view in request.views:
            results = qa.summarize(records, scores, view, seed=request.seed)
            write_summary(place, Summary(qa.NAME, qa.SUMMARY_VERSION, request.spec, view.forget, results))
    return place


def _identity(request: EvaluateRequest, made: Made) -> dict[str, Any]:
    """Everything that can change a record."""
    return {
        "eval": qa.NAME,
        "version": qa.COLLECT_VERSION,
        "weights": made.weights,
        "prompts": made.prompts,
        "dtype": request.spec.settings.get("dtype", "float32"),
        "items": items_digest(request.items),
        "settings": request.settings.identity(),
    }


def _collect(
    place: EvalFolder,
    identity: dict[str, Any],
    request: EvaluateRequest,
    subject: LoadedModel,
    on_items: Callable[[int, int], None],
) -> None:
    watch = Stopwatch()
    write_json(place.identity, {"schema": SCHEMA, **identity})
    drop_torn_line(place.unfinished)
    kept = {r["item"]: r for r in read_jsonl(place.unfinished)} if place.unfinished.exists() else {}
    items = request.items
    for chunk in qa.chunks(subject, items, size=CHUNK):
        part = [items[i] for i in chunk]
        # A portion that a kill cut short is asked again as a whole, in the batch that it always has.
        if any(i.id not in kept for i in part):
            records = qa.collect(subject, part, request.settings)
            append_lines(place.unfinished, [json_line(r) for r in records])
            kept |= {r["item"]: r for r in records}
        on_items(len(kept), len(items))
    write_jsonl(place.records, (kept[i.id] for i in items))
    write_provenance(place.provenance, watch, device=str(subject.model.device))
    write_json(
        place.collected, {"schema": SCHEMA, "n": len(items), "digest": file_digest(place.records)}
    )
    place.unfinished.unlink(missing_ok=True)


def view_of(forget: str, splits: dict[str, Sequence[Item]], scopes: dict[str, Any]) -> qa.View:
    """The view of one forget set, by the items' ids."""
    return qa.View(forget, {name: tuple(i.id for i in items) for name, items in splits.items()}, scopes)

