"""The evidence of a run: its subjects, their estimates by forget set, and the missing parts.

Everything here is read through `vestige.artifacts`. Nothing is computed but names.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from vestige.artifacts.layout import EvalFolder, RunFolder, SubjectFolder, check_there
from vestige.artifacts.provenance import odd_tokens_told, read_provenance
from vestige.artifacts.records import (
    ROLES,
    SubjectSpec,
    Summary,
    evaluation_number,
    evaluations_of,
    read_finished,
    read_scored_records,
    read_spec,
    read_summary,
)
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import read_json
from vestige.core.settings import read_settings
from vestige.core.store import read_sealed
from vestige.core.text import Record, TextMapping, TextTuple, first_of, one_line

QUESTIONS = "qa"
"""The evaluation whose records hold one greedy answer an item."""


class EstimatePlace(NamedTuple):
    """The position of an estimate: split, answers, format and metric."""

    split: str
    scope: str
    format: str
    attack: str
    metric: str


def greedy_rouge(scope: str) -> EstimatePlace:
    """The place of the forget set's mean ROUGE-1 recall of greedy answers, the measure that the report leads with."""
    return EstimatePlace("forget", scope, "generate", "", "rouge1_recall")


@dataclass(frozen=True)
class RunModel:
    """One model of the run.

    `path` is relative to the run. `label` is unique among the subjects of one forget set. `results` maps a forget set
    to its estimates, `made_of` each estimate to its evaluation, `views` a forget set to the ids of the items in each
    split, `asked_ids` to the ids of the evaluated forget items. `done`, `provenance` and `answers` are None where the
    run has none yet. `outdated` marks evaluations of an earlier model, which are left out. `notes` are sentences on
    oddities.
    """

    path: str
    label: str
    spec: SubjectSpec
    done: Record | None
    provenance: Record
    answers: EvalFolder | None
    results: Mapping[str, Mapping[EstimatePlace, Estimate]]
    views: Mapping[str, Mapping[str, TextTuple]]
    asked_ids: Mapping[str, frozenset[str]]
    made_of: Mapping[tuple[str, EstimatePlace], EvalFolder] = field(default_factory=dict)
    outdated: bool = False
    notes: TextTuple = ()

    @property
    def digest(self) -> str:
        """The digest of the model's files. It is "" for an unfinished model, or if its folder lacks it."""
        return str((self.done or {}).get("digest", ""))


@dataclass(frozen=True)
class RunEvidence:
    """A run as the report sees it. `missing` lists in sentences the missing parts.

    `asked_ids` has for each forget set the ids of its items: those that most subjects answered.
    """

    name: str
    settings: Record
    provenance: Record
    subjects: tuple[RunModel, ...]
    forgets: TextTuple
    missing: TextTuple
    asked_ids: Mapping[str, frozenset[str]]

    def of(self, role: str, forget: str) -> tuple[RunModel, ...]:
        """The subjects of one role that have estimates for one forget set, by its items whatever its name.

        A model that left out, or was made to forget, something different represents nothing here: it knows this set.
        """
        return tuple(
            s
            for s in self.subjects
            if s.spec.subject == role
            and forget in s.results
            and s.asked_ids[forget] == self.asked_ids[forget]
            and not s.spec.not_forgotten(s.asked_ids[forget])
        )


def read_evidence(run: RunFolder, *, verify: bool = False) -> RunEvidence:
    """Return everything in the run's summaries. A run without a subject is rejected.

    A model whose files changed since it was finished is also rejected. `verify` reads every file.
    """
    read = [_read_subject(run, folder, verify=verify) for folder in run.subjects()]
    if not read and not run.audits():
        raise InputError(
            f"{run.path}: no subject to report on (no models/*/spec.json or cells/*/spec.json)."
            " Give the folder of a run"
        )
    subjects = _labelled(read)
    forgets = tuple(sorted({f for s in subjects for f in (*s.results, unasked(s)) if f}))
    asked_ids: dict[str, frozenset[str]] = {}
    for forget in forgets:
        # The set is the one with the most models. A model with other items is listed and not compared.
        times = Counter(s.asked_ids[forget] for s in subjects if forget in s.asked_ids)
        asked_ids[forget] = times.most_common(1)[0][0] if times else frozenset()
    # A run.toml that is read has a checksum, and so has all that was written after it.
    settings = read_settings(run.settings)
    if settings and run.provenance.exists():
        read_sealed(run.provenance)
    return RunEvidence(
        name=run.path.resolve().name,
        settings=settings,
        provenance=read_provenance(run.provenance),
        subjects=subjects,
        forgets=forgets,
        missing=(
            *_missing(run, subjects, forgets),
            *_strange(subjects, asked_ids),
            *(note for subject in read for note in subject.notes),
        ),
        asked_ids=asked_ids,
    )


def unasked(subject: RunModel) -> str:
    """Return the name of the subject's forget set if no evaluation covers it under any name, otherwise ""."""
    forgotten = set(chain.from_iterable(forget.items for forget in subject.spec.forgotten))
    if not forgotten and subject.spec.forget in subject.asked_ids:
        return ""  # It was trained to refuse on the set, and forgot nothing.
    if any(forgotten & ids for ids in subject.asked_ids.values()):
        return ""
    return subject.spec.forget


def _strange(subjects: Sequence[RunModel], asked_ids: Mapping[str, frozenset[str]]) -> list[str]:
    """List in sentences the subjects that are compared with no other, because their items differ."""
    notes = []
    for subject in subjects:
        for forget, ids in subject.asked_ids.items():
            n = subject.spec.not_forgotten(ids)
            if ids != asked_ids[forget]:
                notes.append(
                    f"{subject.path} was asked other questions of {forget_label(forget)} than the other models "
                    f"({len(ids)} and {len(asked_ids[forget])}, {len(ids & asked_ids[forget])} in common), so it is "
                    "not compared there."
                )
            elif n:
                notes.append(
                    f"{subject.path} forgot {forget_label(subject.spec.forget)}, and {n} of the {len(ids)} questions "
                    f"of {forget_label(forget)} are not among that, so it is not compared there."
                )
    return notes


def forget_parts(forget: str) -> list[str]:
    """The names in a forget set's selector, without `edge:` and `person:`."""
    return [part.strip().removeprefix("edge:").removeprefix("person:") for part in forget.split(",")]


def forget_label(forget: str, parties: TextMapping = MappingProxyType({})) -> str:
    """A forget set's selector as people say it: `edge:A_B,edge:A_C` is `A_B + A_C`.

    `parties` has the names of contracts by their ids. Of more than two named contracts the first represents all.
    """
    parts = forget_parts(forget)
    names = [parties.get(part) or part for part in parts]
    if names != parts and len(parts) > 2:
        return f"{names[0]} + {len(parts) - 1} more"
    return " + ".join(names)


def _read_subject(run: RunFolder, folder: SubjectFolder, *, verify: bool) -> RunModel:
    spec = read_spec(folder.spec)
    path = folder.path.relative_to(run.path).as_posix()
    if spec.subject not in ROLES:
        raise InputError(f"{folder.spec}: unknown role {spec.subject!r}. Known: {', '.join(ROLES)}")
    evaluations, outdated = evaluations_of(folder)
    stored = [(evaluation, read_summary(summary)) for evaluation in evaluations for summary in evaluation.summaries()]
    summaries, notes = _newest(path, stored)
    results: dict[str, dict[EstimatePlace, Estimate]] = {summary.forget: {} for _, summary in summaries}
    made_of: dict[tuple[str, EstimatePlace], EvalFolder] = {}
    for evaluation, summary in summaries:
        for r in summary.results:
            cell = EstimatePlace(r.split, r.scope, r.format, r.attack, r.estimate.metric)
            results[summary.forget][cell], made_of[summary.forget, cell] = r.estimate, evaluation
    odd = dict.fromkeys(odd_tokens_told(evaluation.provenance) for evaluation in evaluations)
    notes += [f"{path}: {note}" for note in odd if note]
    bare = sorted({evaluation.path.name for evaluation, _ in stored if "seal" not in read_json(evaluation.collected)})
    if bare:
        notes.append(f"{path}: no checksum verifies the answers in {first_of(bare)}, as in files of earlier versions.")
    done = read_finished(folder.done, "files") if folder.done.exists() else None
    # Earlier versions wrote it without a checksum.
    if done is not None and done.get("provenance"):
        read_sealed(folder.provenance, remedy="Restore it, or make the model again with --fresh")
    if done is not None and not check_there(folder, done["files"], verify=verify):
        notes.append(f"The model of {path} is not there, so nothing says that its evaluations are of it.")
    asked_ids: dict[str, frozenset[str]] = {}
    for _, summary in summaries:
        # The items of the largest evaluation, since some cover only a part.
        ids = frozenset(summary.splits.get("forget", ()))
        asked_ids[summary.forget] = max(asked_ids.get(summary.forget, ids), ids, key=len)
    return RunModel(
        path=path,
        label=spec.method if spec.subject == "unlearned" else spec.subject,
        spec=spec,
        done=done,
        provenance=read_provenance(folder.provenance),
        answers=next((folder for folder, s in reversed(summaries) if s.eval == QUESTIONS), None),
        results=results,
        made_of=made_of,
        views={s.forget: s.splits for _, s in summaries if s.eval == QUESTIONS},
        asked_ids=asked_ids,
        outdated=bool(outdated),
        notes=tuple(notes),
    )


def _newest(
    path: str, stored: Sequence[tuple[EvalFolder, Summary]]
) -> tuple[list[tuple[EvalFolder, Summary]], list[str]]:
    """Return one summary for each evaluation and forget set, and a note on each that represents several.

    It is the newest, so that no older answer is displayed after a change of the data. Unless the newest asks only a
    part of the items of another. Evaluations are numbered as they are made, so that a clock that was set back changes
    nothing. Of those without a number the time decides.
    """
    chosen: dict[tuple[str, str], tuple[EvalFolder, Summary]] = {}
    unused: dict[tuple[str, str], list[tuple[EvalFolder, Summary]]] = defaultdict(list)

    # By name too, where times are unknown: the page must not hang on the order of a folder.
    def order(pair: tuple[EvalFolder, Summary]) -> tuple[int, str, str]:
        return evaluation_number(pair[0]), _started(pair[0]), pair[0].path.name

    for folder, summary in sorted(stored, key=order):
        key = summary.eval, summary.forget
        before = chosen.get(key)
        # A later evaluation of a part of the items (`--limit`) does not replace the whole.
        part = before is not None and _items(summary) < _items(before[1])
        if before is not None:
            unused[key].append((folder, summary) if part else before)
        if not part:
            chosen[key] = (folder, summary)
    notes = [_why_shown(path, *chosen[key], rest) for key, rest in unused.items()]
    return list(chosen.values()), notes


def _why_shown(path: str, folder: EvalFolder, summary: Summary, unused: Sequence[tuple[EvalFolder, Summary]]) -> str:
    """Return a sentence on the displayed evaluation among several, and on the others' differences."""
    differences = []
    shown_items = _items(summary)
    for unused_folder, unused_summary in unused:
        items = _items(unused_summary)
        differing = len(items - shown_items)
        if differing:
            how = f"{differing} of its {len(items)} items are others, so that the data were changed"
        elif items < shown_items:
            how = "it asked fewer items"
        else:
            how = "of the same items with other settings"
        differences.append(f"{unused_folder.path.name} of {_started(unused_folder)[:19] or 'unknown date'} ({how})")
    date = _started(folder)[:19] or "unknown date"
    return (
        f"{path} was evaluated more than once on {forget_label(summary.forget)}: shown is {folder.path.name} of "
        f"{date}, and not {', '.join(differences)}; tables/results.csv holds all."
    )


def _items(summary: Summary) -> frozenset[str]:
    return frozenset(chain.from_iterable(summary.splits.values()))


def _started(folder: EvalFolder) -> str:
    """When an evaluation was begun, by its provenance. "" where that is not there."""
    times = read_provenance(folder.provenance).get("times", {})
    return one_line(str(times.get("started", "")), width=40)


def _labelled(subjects: Sequence[RunModel]) -> tuple[RunModel, ...]:
    """Return subjects in display order, with twins distinguished by their different settings."""
    labelled = []
    for subject in subjects:
        twins = [s.spec for s in subjects if (s.label, s.spec.forget) == (subject.label, subject.spec.forget)]
        described = [{**spec.settings, "seed": spec.seed, "model": spec.model} for spec in twins]
        values = {**subject.spec.settings, "seed": subject.spec.seed, "model": subject.spec.model}
        keys = sorted({key for settings in described for key in settings})
        differing = [key for key in keys if any(settings.get(key) != values.get(key) for settings in described)]
        words = [f"{key} {values[key]}" for key in differing if key in values]
        if sum(all(settings.get(key) == values.get(key) for key in differing) for settings in described) > 1:
            # All settings are equal, so only the folder distinguishes them.
            words.append(Path(subject.path).name)
        labelled.append(replace(subject, label=f"{subject.label} ({', '.join(words)})" if words else subject.label))
    return tuple(sorted(labelled, key=lambda s: (ROLES.index(s.spec.subject), s.label, s.path)))


def _missing(run: RunFolder, subjects: Sequence[RunModel], forgets: Sequence[str]) -> list[str]:
    missing = []
    if not run.settings.exists():
        missing.append("The run has no run.toml, so what was asked is not shown.")
    for subject in subjects:
        if subject.outdated:
            missing.append(f"{subject.path} holds evaluations of another model. The report leaves them out.")
        if subject.done is None:
            missing.append(f"{subject.path} is not finished: it has no done.json.")
        elif subject.spec.forget and unasked(subject):
            missing.append(f"{subject.path} is made but not evaluated on {forget_label(subject.spec.forget)}.")
        elif not subject.results:
            missing.append(f"{subject.path} is made but not evaluated.")
    for forget in forgets:
        for role in ("target", "retrained"):
            if not any(s.spec.subject == role and forget in s.results for s in subjects):
                missing.append(f"{forget_label(forget)} has no evaluated {role} model to compare with.")
    return missing


SPLITS = ("forget", "independent", "factual", "retain")
"""The displayed splits of an item. The first split with the item counts."""


@dataclass(frozen=True)
class AskedItem:
    """A question of the run, with its gold answer and its place in the graph."""

    id: str
    question: str
    answer: str
    edge: str
    group: str
    attribute: str


@dataclass(frozen=True)
class GreedyReply:
    """One greedy answer: its text, ROUGE-1 recall, the gold answer's probability per token, and its oddities.

    `rouge` is None if the gold answer has none of the letters and digits that ROUGE reads, `probability` if the server
    scores no answers.
    """

    text: str
    rouge: float | None
    probability: float | None
    refused: bool
    empty: bool
    truncated: bool


@dataclass(frozen=True)
class RunAnswers:
    """All questions in order, and the replies of each subject (by its path) by item id."""

    questions: tuple[AskedItem, ...]
    replies: Mapping[str, Mapping[str, GreedyReply]]


@dataclass(frozen=True)
class ForgetView:
    """Each item's split, seen from one forget set.

    `split` names one split an item, by its id. An item that is in none, or in different ones in different evaluations,
    is left out. `edges` are its forget items' edges, or None if no evaluation records the items. `dispute` describes
    the differences between evaluations, if any. `scope` names the displayed answers: `free` (not revealed by the retain
    set) if the run distinguishes these answers for every model, otherwise `all`.
    """

    forget: str
    scope: str
    split: TextMapping
    edges: frozenset[str] | None
    dispute: str


def read_answers(subjects: Sequence[RunModel]) -> RunAnswers:
    """The records of all subjects, joined by item."""
    questions: dict[str, AskedItem] = {}
    replies: dict[str, dict[str, GreedyReply]] = {}
    # The target has all questions, so they are in the order of the data.
    ordered = sorted(subjects, key=lambda s: s.spec.subject != "target")
    for subject in ordered:
        if subject.answers is None:
            continue
        by_item = replies.setdefault(subject.path, {})
        for number, row in enumerate(read_scored_records(subject.answers), 1):
            item, reply = _parsed(subject.answers, number, row)
            questions.setdefault(item.id, item)
            by_item[item.id] = reply
    return RunAnswers(tuple(questions.values()), replies)


def _parsed(folder: EvalFolder, number: int, row: Record) -> tuple[AskedItem, GreedyReply]:
    try:
        return (
            AskedItem(
                id=row["item"],
                question=row["question"],
                answer=row["answer"],
                edge=row.get("edge") or "",
                group=row.get("group") or "",
                attribute=row.get("attribute") or "",
            ),
            GreedyReply(
                text=row["reply"],
                rouge=float(row["rouge1_recall"]) if "rouge1_recall" in row else None,
                probability=float(row["probability"]) if "probability" in row else None,
                refused=bool(row["share_refused"]),
                empty=bool(row["share_empty"]),
                truncated=bool(row["share_truncated"]),
            ),
        )
    except KeyError as error:
        raise InputError(f"{folder.path}, record {number}: no field {error}. Evaluate again with --fresh") from error


def forget_set(evidence: RunEvidence, answers: RunAnswers, forget: str) -> ForgetView:
    """Return the items' splits in the summaries of all subjects, seen from `forget`."""
    views = [s.views[forget] for s in evidence.subjects if forget in s.views]
    splits: dict[str, set[str]] = defaultdict(set)
    for view in views:
        # If two splits contain an item, the first in SPLITS counts.
        names = {item: name for name in reversed(SPLITS) for item in view.get(name, ())}
        for item, name in names.items():
            splits[item].add(name)
    split = {item: names.pop() for item, names in splits.items() if len(names) == 1}
    # The match uses items, since the selector's name may be that of a file.
    edges = frozenset(a.edge for a in answers.questions if a.edge and split.get(a.id) == "forget")
    dispute = (
        f"{len(splits) - len(split)} questions stand in one split for one model and in another for another, so these"
        " scores do not compare. Evaluate all models on one data set with one seed."
    )
    roles = {role: evidence.of(role, forget) for role in ("target", "retrained", "unlearned")}
    # All models need the scope: a model without it would be compared on other questions.
    free = greedy_rouge("free")
    scope = "free" if all(free in s.results[forget] for role in roles.values() for s in role) else "all"
    return ForgetView(forget, scope, split, edges if views else None, dispute if len(split) < len(splits) else "")


def split_of(item: AskedItem, forget: ForgetView) -> str:
    """The split of an item under a forget set, or `unknown`. An independent item is of the retain set too."""
    return forget.split.get(item.id, "unknown")
