"""Evaluation as a step: records of one subject, kept item by item, then a summary for each forget set.

Answers of target and controls, stored by content under VESTIGE_HOME, so that a second audit does not ask again.

Their scores and summaries are stored too, and the positive control. An entry's name covers everything that can change
its bytes: the weights, the items, the attack, the seed, the versions, the processor and the device. So no entry is ever
given for another.
"""

import contextlib
import json
import math
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import torch

from vestige.artifacts.layout import EvalFolder, SubjectFolder, check_files, note_seen
from vestige.artifacts.provenance import Stopwatch, code_digest, processor_name, read_provenance, write_provenance
from vestige.artifacts.records import (
    SubjectSpec,
    Summary,
    follows,
    next_number,
    read_records,
    read_spec,
    write_collected,
    write_scores,
    write_spec,
    write_summary,
)
from vestige.core.errors import InputError, VestigeError
from vestige.core.files import (
    append_lines,
    begun,
    drop_torn_line,
    json_line,
    read_jsonl,
    refuse_links,
    replacing,
    write_bytes,
    write_json,
    write_jsonl,
)
from vestige.core.ids import content_id, file_digest
from vestige.core.items import Item, ItemTuple
from vestige.core.store import SCHEMA, read_sealed, write_sealed
from vestige.core.text import Fields, Record, TextByName, TextTuple
from vestige.data.corpus import NamedSplits, everything
from vestige.data.loaders import Pack, Published
from vestige.evals import find_eval
from vestige.evals.base import Evaluation, Reads, View, collected, view_of
from vestige.metrics.intervals import RESAMPLES
from vestige.models.cache import cache_folder
from vestige.models.forward import GPU_TOKENS
from vestige.models.load import LoadedModel, ModelSettings, finite_logits, load
from vestige.models.prompts import Prompter
from vestige.steps.making import Made, read_done, same_model, same_subject, stored_done, write_done

_FILES = "files"
LIMIT = 10_000_000_000
"""The maximum size of the store, in bytes. A tenth of it is the maximum of an entry."""


def entry_key(kind: str, identity: Any, device: str) -> str:
    """The name of an entry.

    Args:
        kind: `evaluation`, `scores`, `attack` or `control`.
        identity: All that can change the answers, except for this machine.
        device: The device that the model goes to.

    Returns:
        64 hexadecimal digits.
    """
    return content_id([kind, identity, _where(device), processor_name(), code_digest()], length=64)


def _where(device: str) -> str:
    """Return the actual device: `auto` on a machine with a new GPU differs."""
    if device == "auto":
        device = "cpu"
        if torch.cuda.is_available():
            device = "cuda"
    kind = device.partition(":")[0]
    if kind == "cuda":
        return f"{kind} {torch.cuda.get_device_name(device)}"
    return kind


def restore(folder: Path, key: str) -> bool:
    """Copy an entry into a folder.

    Args:
        folder: Where the files go. The caller holds its lock.
        key: The entry.

    Returns:
        Whether the entry was there. A damaged entry is deleted and counts as absent, so that the model is queried.
    """
    entry = _entry(key)
    if not (entry / "entry.json").is_file():
        return False
    try:
        stored = read_sealed(entry / "entry.json", "key", "names")
        if stored["key"] != key:
            raise InputError(f"{entry} is another entry")
        contents = {name: (entry / _FILES / name).read_bytes() for name in stored["names"]}
        os.utime(entry)
    except (VestigeError, OSError):
        shutil.rmtree(entry, ignore_errors=True)
        return False
    for name, content in contents.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, content)
    return True


def keep(folder: Path, key: str, files: Iterable[Path]) -> None:
    """Store files of a folder as an entry. A store that cannot be written, on a full disk say, stops no audit.

    Args:
        folder: The folder.
        key: The entry.
        files: The files, in the order in which they are copied back. With the last one the others count as whole.
    """
    entry, stored = _entry(key), list(files)
    if (entry / "entry.json").is_file() or sum(file.stat().st_size for file in stored) > LIMIT / 10:
        return
    names = [file.relative_to(folder).as_posix() for file in stored]
    try:
        with replacing(entry, patience_seconds=0.0):
            for name in names:
                place = entry / _FILES / name
                place.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(place, (folder / name).read_bytes())
            # This file is written last: an entry without it does not count.
            write_sealed(entry / "entry.json", {"key": key, "names": names}, [entry / _FILES / name for name in names])
    except (VestigeError, OSError):
        shutil.rmtree(entry, ignore_errors=True)


def trim(limit: int = LIMIT) -> None:
    """Remove the entries that were not used for the longest time, until the store has at most `limit` bytes."""
    entries = []
    with contextlib.suppress(OSError):
        for entry in _folder().glob("*/*/"):
            size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
            entries.append((entry.stat().st_mtime, size, entry))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total <= limit:
            return
        shutil.rmtree(entry, ignore_errors=True)
        total -= size


def _entry(key: str) -> Path:
    return _folder() / key[:2] / key


def _folder() -> Path:
    return cache_folder() / "answers"


CHUNK = 64
"""The batch of items on a CPU. A GPU takes more."""

_NEAR_TIE = 1e-3
"""Nats between the two likeliest tokens of a reply below which rounding can choose the other."""


@dataclass(frozen=True)
class EvaluateRequest:
    """The items, the settings, and the forget sets to summarise.

    With `only`, only those items are evaluated. The other items serve as wrong options and example questions. Without
    `summed` there are only item scores, and a summary is made on demand (`summary_of`): its intervals take longer than
    querying a small model.
    """

    items: ItemTuple
    views: tuple[View, ...]
    settings: Evaluation
    seed: int
    only: frozenset[str] | None = None
    summed: bool = True


def requests_of(
    splits: NamedSplits, evals: Mapping[str, Evaluation], seed: int, only: Iterable[Item] | None = None
) -> list[EvaluateRequest]:
    """Return one request for each evaluation of the splits' items, or the items in `only`.

    Summed up from the splits.
    """
    ids = None if only is None else frozenset(i.id for i in only)
    items, views = everything([splits]), (view_of(splits),)
    return [EvaluateRequest(items, views, settings, seed, ids) for settings in evals.values()]


@dataclass(frozen=True)
class Subject:
    """The evaluated model: the folder of its evidence, its identity in the run, its digest, and its loader.

    Each `load` returns a new model, since an attack changes it. An attacked model is identified by its origin: the
    digest of `made` covers the original weights, the attack and the stage. With `elsewhere` the folder has only
    evidence, with the model's name (`announce`). With `verify` all files of the model are read, and a part of the
    stored answers is queried again. With `reread` the weights are digested in memory the first time that a process
    loads them: a disk may give other bytes for a file that nobody changed. With `stored_for`, the device, answers are
    shared with other audits.
    """

    folder: SubjectFolder
    spec: SubjectSpec
    made: Made
    load: Callable[[], LoadedModel]
    attacked: bool = False
    elsewhere: bool = False
    verify: bool = False
    reread: bool = False
    stored_for: str = ""


_READ: set[tuple[Path, str]] = set()
"""The folders and digests of models whose weights this process has digested in memory."""


def announce(subject: Subject) -> None:
    """Write the model's identity into the folder of its evidence. Reject a folder with another model's."""
    folder = subject.folder
    if not subject.elsewhere:
        return
    same_subject(folder, subject.spec)
    stored = stored_done(folder)
    if not folder.spec.exists() or stored is None or (stored, stored.files) != (subject.made, subject.made.files):
        write_spec(folder.spec, subject.spec)
        write_done(folder, subject.made)


def finished_subject(
    folder: SubjectFolder, *, device: str = "auto", trust_remote_code: bool = False, verify: bool = False
) -> Subject:
    """The subject that a finished folder holds, in the number format it was made in.

    Whether code that a model brings may run is for the caller to say, never for the folder.
    """
    saved = read_done(folder, verify=verify)
    if saved is None:
        raise InputError(f"{folder.path} holds no finished model. Run the command that makes it")
    spec = read_spec(folder.spec)
    settings = ModelSettings(
        model=str(folder.model),
        dtype=str(spec.settings.get("dtype", "float32")),
        device=device,
        trust_remote_code=trust_remote_code,
    )
    return Subject(folder, spec, saved, lambda: load(settings), verify=verify)


Progress = Callable[[int, int], None]
"""A callback that gets the number of finished records and of all records."""


def evaluate(subject: Subject, request: EvaluateRequest, on_items: Progress = lambda done, of: None) -> EvalFolder:
    """The evaluation's folder with its summaries. Only missing records query the model.

    The model's digest is part of the evaluation's name, so that no model is ever given the numbers of another.
    """
    return evaluate_together(subject, [request], on_items)[0]


def evaluate_together(
    subject: Subject, requests: Sequence[EvaluateRequest], on_items: Progress = lambda done, of: None
) -> list[EvalFolder]:
    """Return the folder of each evaluation, in order. Except for rounding, the results equal those of `evaluate`.

    The model is loaded once, and evaluations of the same items share their readings (`evals.base`). A greedy reply in
    an earlier one of `requests` is not decoded again. Both depend on `requests` and not on stored results, so that the
    same call gives the same bytes after a kill.
    """
    plans = [_planned(subject, request) for request in requests]
    refuse_links(subject.folder.path)
    with ExitStack() as locks:
        # Locks are taken in one order, so that two processes never wait for each other.
        for folder in {plan.place.path: plan.place for plan in sorted(plans, key=lambda p: p.place.path)}.values():
            locks.enter_context(begun(folder.lock, [folder.identity.name]))
        missing = {plan.place.path: plan for plan in plans if not plan.place.collected.exists()}
        keys = _stored_keys(subject, plans)
        for path in [path for path in missing if path in keys and _restored(missing[path].place, keys[path])]:
            del missing[path]
        if missing:
            loaded = loaded_subject(subject)
            questions: TextByName = {}
            for plan in missing.values():
                questions |= {i.id: i.question for i in plan.request.items if i.id in plan.asked}
            loaded.prompter.check_questions(questions.values())
            groups = _groups({plan.place.path: plan for plan in plans}.values(), missing)
            of = sum(len(plan.asked) for plan in chain.from_iterable(groups))
            before = 0

            def tell(done: int, _: int) -> None:
                on_items(before + done, of)

            _ = loaded.way  # Looked for before, since it is looked for by a text of nobody's.
            loaded.replies.clear()
            with finite_logits(loaded):
                for group in groups:
                    replies = []
                    # Earlier plans in `requests` are done by now, here or by an earlier call.
                    for plan in takewhile(lambda plan: plan.place != group[0].place, plans):  # noqa: B023
                        if texts := plan.request.settings.known_replies(loaded, read_records(plan.place)):
                            loaded.replies.update(texts)
                            replies.append(plan.place.path.name)
                    _collect(group, loaded, replies, tell)
                    before += sum(len(plan.asked) for plan in group)
            for path in [path for path in missing if path in keys]:
                place = missing[path].place
                keep(path, keys[path], [place.identity, place.records, place.provenance, place.collected])
        else:
            check_known(subject)
        if subject.verify and not subject.attacked:
            _ask_again([plan for plan in plans if plan.place.path not in missing], subject)
        announce(subject)
        for plan in plans:
            _sum_up(plan, subject)
    return [plan.place for plan in plans]


@dataclass(frozen=True)
class _Plan:
    """One evaluation with its questions, by item id, and the path of its records."""

    asked: Record
    request: EvaluateRequest
    identity: Record
    place: EvalFolder


def _planned(subject: Subject, request: EvaluateRequest) -> _Plan:
    if not request.items:
        raise InputError("there are no items to evaluate on. Give data with questions")
    settings = request.settings
    questions = settings.build_questions(request.items, request.views)
    chosen = {i: question for i, question in questions.items() if request.only is None or i in request.only}
    if not chosen:
        raise InputError("the requested items are not among the items. Give ids of the data")
    # The identity covers everything that can change a record and nothing else: seeds and views belong to the summary.
    identity = {
        "eval": settings.name,
        "version": settings.collect_version,
        "model": subject.made.digest.id,
        "dtype": subject.spec.settings.get("dtype", "float32"),
        "items": settings.digest(chosen),
        "settings": settings.identity(),
    }
    folder = subject.folder.evaluation(settings.name, content_id(identity, length=12))
    return _Plan(chosen, request, identity, folder)


def _stored_keys(subject: Subject, plans: Sequence[_Plan]) -> dict[Path, str]:
    """Return the key of each evaluation's answers in the store, by folder. None without a store.

    The key includes the whole batch, since rounding depends on it.
    """
    if not subject.stored_for or subject.verify:
        return {}
    together = [plan.identity for plan in plans]
    return {plan.place.path: entry_key("evaluation", [plan.identity, together], subject.stored_for) for plan in plans}


def _restored(place: EvalFolder, key: str) -> bool:
    """Whether the answers were in the store, and are now in the evaluation's folder."""
    number = next_number(place)
    if not restore(place.path, key):
        return False
    write_sealed(place.provenance, {**read_provenance(place.provenance), "number": number, "from_store": key})
    return True


def _groups(plans: Iterable[_Plan], missing: Container[Path]) -> list[list[_Plan]]:
    """Return evaluations that share readings, if one is missing."""
    groups: dict[TextTuple, list[_Plan]] = {}
    for number, plan in enumerate(plans):
        # Evaluations with equal readings of the same items share a pass. Others stay alone.
        ids = tuple(plan.asked) if isinstance(plan.request.settings, Reads) else (str(number),)
        groups.setdefault(ids, []).append(plan)
    due = []
    for group in groups.values():
        if any(plan.place.path in missing for plan in group):
            due.append(group)
    return due


def _sum_up(plan: _Plan, subject: Subject) -> None:
    request, folder = plan.request, plan.place
    evaluation = type(request.settings)
    folder.unfinished.unlink(missing_ok=True)
    views = []
    if request.summed:
        views = [_restricted(view, request.only) for view in request.views]
    records = read_records(folder)
    basis = _basis(plan, subject, views)
    if follows(folder, folder.scores, basis) and all(follows(folder, folder.summary(v.forget), basis) for v in views):
        return
    key = ""
    if basis and subject.stored_for and not subject.verify:
        key = entry_key("scores", [plan.identity, basis], subject.stored_for)
    if key and restore(folder.path, key):
        return
    scores = [evaluation.score(r) for r in records]
    write_scores(folder, ({"item": r["item"], **s} for r, s in zip(records, scores, strict=True)), basis)
    for view in views:
        write_summary(folder, _summary(evaluation, subject.spec, view, records, scores, request.seed), basis)
    if key:
        keep(folder.path, key, [folder.scores, *(folder.summary(view.forget) for view in views), folder.collected])


def _restricted(view: View, only: frozenset[str] | None) -> View:
    """The view with these items alone. A split that is left empty is gone."""
    if only is None:
        return view
    splits = {}
    for name, ids in view.splits.items():
        kept = tuple(i for i in ids if i in only)
        if kept:
            splits[name] = kept
    return View(view.forget, splits, view.scopes)


def _basis(plan: _Plan, subject: Subject, views: Sequence[View]) -> str:
    """Content id of all that scores and summaries follow from. Empty where the evaluation's code cannot be read."""
    module = getattr(sys.modules[type(plan.request.settings).__module__], "__file__", None)
    if module is None:
        return ""
    code = [code_digest(), file_digest(Path(module)), RESAMPLES, plan.request.seed]
    return content_id(
        [code, file_digest(plan.place.records), asdict(subject.spec), [asdict(v) for v in views]], length=64
    )


def summary_of(folder: EvalFolder, name: str, spec: SubjectSpec, view: View, seed: int) -> Summary:
    """The summary of an evaluation that was collected without one, made from its records. Nothing is written."""
    evaluation, records = find_eval(name), read_records(folder)
    return _summary(evaluation, spec, view, records, [evaluation.score(r) for r in records], seed)


def _summary(
    evaluation: type[Evaluation],
    spec: SubjectSpec,
    view: View,
    records: Sequence[Any],
    scores: Sequence[Any],
    seed: int,
) -> Summary:
    splits = {name: tuple(ids) for name, ids in view.splits.items()}
    results = evaluation.summarize(records, scores, view, seed=seed)
    return Summary(evaluation.name, evaluation.summary_version, spec, view.forget, splits, results)


def loaded_subject(subject: Subject) -> LoadedModel:
    """The subject's model, if it is still the one that its folder speaks of.

    Weights in memory are digested where files are not as this machine last saw them, with `verify`, and once in a
    process with `reread`.
    """
    made = subject.made
    known = made.seen and bool(made.files) and not subject.verify
    if subject.reread and (subject.folder.path, made.digest.weights) not in _READ:
        known = False
    weights = ""
    if known:
        weights = made.digest.weights
    loaded = subject.load()
    if not subject.attacked:
        same_model(loaded, made.digest, subject.spec.name, weights)
        if not known:
            _READ.add((subject.folder.path, made.digest.weights))
        if not made.seen:
            note_seen(subject.folder, made.files)
    return loaded


def _portion(loaded: LoadedModel) -> int:
    """Return the batch size in items."""
    return CHUNK * (GPU_TOKENS if loaded.here and loaded.model.device.type != "cpu" else 1)


def check_known(subject: Subject) -> None:
    """Reject stored answers of a model that this machine has not verified. The model is loaded once for this.

    A copied folder's own name for its model could be wrong.
    """
    if not (subject.attacked or subject.made.seen or check_files(subject.folder, subject.made.files)):
        loaded_subject(subject)


def _ask_again(plans: Sequence[_Plan], subject: Subject) -> None:
    """Reject stored records that the model does not reproduce: one random portion of each evaluation is checked.

    A checksum shows that records are as they were written, and not that the model said so.
    """
    if not plans:
        return
    loaded = loaded_subject(subject)
    for plan in plans:
        stored = {r["item"]: r for r in read_records(plan.place)}
        ids = list(plan.asked)
        chunks = plan.request.settings.chunks(loaded, list(plan.asked.values()), size=_portion(loaded))
        # The choice is random and not seeded: nobody who forged a record could predict the checked ones.
        portion = secrets.choice(list(chunks))
        for record in _ask([plan], loaded, [ids[i] for i in portion])[0]:
            reread = json.loads(json_line(record))
            # Rounding decides between the two likeliest tokens of a near-tie, and so the reply.
            tie = (reread.get("margin") or 1.0) < _NEAR_TIE
            if not tie and not alike(reread, stored.get(reread["item"])):
                raise InputError(
                    f"{plan.place.records}: the model does not reproduce the stored record of item "
                    f"{reread['item']}, which it answered again. Delete {plan.place.path} and run the same command to "
                    "evaluate all items"
                )


def alike(first: Any, second: Any) -> bool:
    """Return whether two records agree: numbers within 1e-4, in nats or relative, all other values exactly."""
    if isinstance(first, dict) and isinstance(second, dict):
        # High ranks change with rounding. The log-probabilities are checked as well.
        names = [name for name in first if not name.endswith("ranks")]
        return first.keys() == second.keys() and all(alike(first[name], second[name]) for name in names)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(alike, first, second))
    if isinstance(first, float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=1e-4, abs_tol=1e-4)
    return bool(first == second)


def _collect(plans: Sequence[_Plan], subject: LoadedModel, replies: Sequence[str], on_items: Progress) -> None:
    """Collect the missing records of all plans, which share the same items.

    `replies` are the evaluations whose replies the model knows.
    """
    watch = Stopwatch()
    size = _portion(subject)
    together = {"together": [plan.place.path.name for plan in plans], "portion": size}
    together |= {"replies": list(replies)} if replies else {}
    begun = {n: _begun(plan, together) for n, plan in enumerate(plans) if not plan.place.collected.exists()}
    ids = list(plans[0].asked)
    for chunk in plans[0].request.settings.chunks(subject, list(plans[0].asked.values()), size=size):
        # An incomplete portion is repeated as a whole, since rounding depends on the batch.
        portion = [ids[i] for i in chunk]
        due = [n for n, have in begun.items() if not have.keys() >= set(portion)]
        records = _ask(plans, subject, portion) if due else []
        for n in due:
            path = plans[n].place.unfinished
            # The plan is written with the first records, so that rejected work leaves nothing.
            append_lines(path, [json_line(r) for r in ([] if path.exists() else [together]) + records[n]])
            begun[n] |= {r["item"]: r for r in records[n]}
        on_items(sum(map(len, begun.values())), len(ids) * len(plans))
    for n, have in begun.items():
        folder = plans[n].place
        write_jsonl(folder.records, [have[i] for i in ids])
        notes: Fields = {"reading": subject.way} if isinstance(plans[n].request.settings, Reads) else {}
        notes |= _odd_tokens([i for i in plans[n].request.items if i.id in have], subject.prompter)
        notes["number"] = next_number(folder)
        write_provenance(folder.provenance, watch, **subject.provenance(), plan=together, **notes)
        # Written last, because it marks the records as complete.
        write_collected(folder, len(ids))


def _begun(plan: _Plan, together: Record) -> Fields:
    """The records that an interrupted run left, by item. Those of a run that put other batches together are dropped."""
    folder = plan.place
    write_json(folder.identity, {"schema": SCHEMA, **plan.identity})
    drop_torn_line(folder.unfinished)
    records = list(read_jsonl(folder.unfinished)) if folder.unfinished.exists() else []
    if records[:1] != [together]:
        folder.unfinished.unlink(missing_ok=True)
    if records[:1] == [together]:
        return {r["item"]: r for r in records[1:]}
    return {}


def _ask(plans: Sequence[_Plan], subject: LoadedModel, ids: Sequence[str]) -> list[list[Fields]]:
    """The records of each plan about these items."""
    parts = []
    for plan in plans:
        questions, settings = [plan.asked[i] for i in ids], plan.request.settings
        if len(plans) == 1:
            return [settings.collect(subject, questions)]
        assert isinstance(settings, Reads), "only evaluations that read are asked together"
        parts.append(settings.to_read(subject, questions))
    return collected(subject, parts)


def _odd_tokens(items: Sequence[Item], prompter: Prompter) -> Fields:
    """Count the items that contain the model's special tokens: their text is not changed, as is usual.

    Count also the items with characters outside the model's vocabulary, so that it reads another question.
    """
    all_marks: set[str] = set()
    marked = unknown = 0
    for item in items:
        texts = (item.question, item.paraphrase or "", item.answer, *item.perturbed)
        # No mark contains a null character, so none matches across two texts.
        marks = {mark for mark in prompter.control_marks if mark in "\0".join(texts)}
        all_marks |= marks
        marked += bool(marks)
        unknown += any(map(prompter.unknown, texts))
    notes: Fields = {}
    if all_marks:
        notes["control_tokens"] = {"items": marked, "tokens": sorted(all_marks)}
    if unknown:
        notes["unknown_tokens"] = unknown
    return notes


def check_published(
    subject: Subject, pack: Pack, row: Published, *, seed: int, on_items: Progress = lambda done, of: None
) -> None:
    """Measure a model's published figures before it was unlearned. InputError if ours is beyond the tolerance.

    Figures that this model or these settings do not give say that every later number is of something different.
    """
    requests = published_requests(pack, row, seed)
    places = evaluate_together(subject, requests, on_items)
    off = []
    for figure, request, folder in zip(row.figures, requests, places, strict=True):
        results = summary_of(folder, figure.eval, subject.spec, request.views[0], seed).results
        whole = [r for r in results if (r.split, r.scope) == ("forget", "all")]
        values = {f"{r.format}/{r.estimate.metric}": r.estimate.value for r in whole}
        if (value := values.get(figure.metric)) is None:
            raise InputError(f"{figure.eval} gives no {figure.metric} of {figure.split}. It has {', '.join(values)}")
        # The condition also catches NaN.
        if not abs(value - figure.value) <= row.tolerance:
            off.append(f"{figure.metric} of {figure.split} is {value:.3g} here and {figure.value:g} there")
    if off:
        raise InputError(
            f"{subject.spec.name} is not as published: {'. '.join(off)} ({row.source}. Tolerance {row.tolerance:g}). "
            "Look at the weights, the chat template and the number format, or go on without the comparison by "
            "--published none"
        )


def published_requests(pack: Pack, row: Published, seed: int) -> list[EvaluateRequest]:
    """Return the request for each figure. No summary is kept: a report would take the split for a forget set."""
    requests = []
    for figure in row.figures:
        items = pack.items([figure.split])
        settings = find_eval(figure.eval).build(figure.settings, where=f"figures of {figure.split}")
        view = View(f"pack {figure.split}", {"forget": tuple(i.id for i in items)}, {})
        requests.append(EvaluateRequest(items, (view,), settings, seed, summed=False))
    return requests
