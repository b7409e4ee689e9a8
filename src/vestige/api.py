"""Vestige from Python: a function for each main command, and results that a notebook shows.

Models are folders of Vestige, results of these functions, Hugging Face folders or ids. Data is a path, a hub id, or
`SourceSettings` where columns have to be named. Settings are given by their names: those of the training to `finetune`
and `unlearn`, of the audit and its margins to `audit`. What a command would refuse raises InputError; what it would
print as a note is in `notes`. Each function goes on where a stopped one ended, and does nothing where all is done.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from pandas import DataFrame

    from vestige.artifacts.audits import AuditOutcome
    from vestige.artifacts.holes import HoleTable
    from vestige.auditing.settings import AuditSettings
    from vestige.core.settings import Settings
    from vestige.data.corpus import Corpus, NamedSplits, SourceSettings
    from vestige.models.load import ModelSettings
    from vestige.steps.subjects import Asked

Named = str | PathLike[str]
"""A model, a data set, a folder: by path or name."""


@dataclass(frozen=True)
class Model:
    """A model that was made: its folder, steps trained, why training stopped, and what was noted on the data."""

    path: Path
    steps: int
    stopped: str
    notes: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return str(self.path)

    def log(self) -> list[dict[str, Any]]:
        """The log of its training, a row a step: loss and its terms in nats."""
        from vestige.artifacts.layout import SubjectFolder
        from vestige.artifacts.records import read_training_log

        return read_training_log(SubjectFolder(self.path).training_log)

    def to_frame(self) -> "DataFrame":
        """The log of its training as a table."""
        return _frame(self.log())

    def _repr_html_(self) -> str:
        return f"<p>{_safe(self.path)}: {self.steps} steps, {_safe(self.stopped)}</p>"


@dataclass(frozen=True)
class Results:
    """Estimates of one model or of an attack on it: a row each, with interval and n, and where the evidence lies."""

    rows: tuple[dict[str, Any], ...]
    evidence: tuple[Path, ...]
    notes: tuple[str, ...] = ()

    def to_frame(self) -> "DataFrame":
        """A row for each estimate."""
        return _frame(self.rows)

    def __repr__(self) -> str:
        """One line: how many estimates there are, and where their evidence lies."""
        return f"Results({len(self.rows)} estimates; evidence: {', '.join(map(str, self.evidence))})"

    def _repr_html_(self) -> str:
        columns = ("split", "scope", "format", "attack", "metric", "value", "low", "high", "n")
        return _table(columns, [[row.get(c) for c in columns] for row in self.rows])


@dataclass(frozen=True)
class Audit:
    """The verdicts of a run. `failed` names tasks that failed, on which no claim rests that holds."""

    path: Path
    outcomes: "tuple[AuditOutcome, ...]"
    failed: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        """The rows of verdicts.json: `subject`, `claim`, `verdict`, `bound`, `reason`, and what they rest on."""
        from vestige.artifacts.verdicts import verdict_rows

        return verdict_rows(self.outcomes)

    @property
    def untested(self) -> tuple[str, ...]:
        """What the verdicts say nothing about, in sentences."""
        return tuple(dict.fromkeys(said for outcome in self.outcomes for said in outcome.untested))

    def to_frame(self) -> "DataFrame":
        """A row for each verdict."""
        columns = ("subject", "forget", "claim", "verdict", "bound", "at_least", "at_most", "against", "reason")
        return _frame([{c: row[c] for c in columns} for row in self.verdicts])

    def __repr__(self) -> str:
        """One line: the folder, and how many claims of how many models pass, fail or stay open."""
        counts = Counter(row["verdict"] for row in self.verdicts)
        subjects = len({row["subject"] for row in self.verdicts})
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("holds", "fails", "inconclusive"))
        return f"Audit({str(self.path)!r}: {subjects} {'model' if subjects == 1 else 'models'}, claims: {verdicts})"

    def report(self) -> Path:
        """Write the report's page and tables; where the page is."""
        from vestige.report import build_report

        return build_report(self.path)

    def _repr_html_(self) -> str:
        columns = ("subject", "claim", "verdict", "bound")
        rows = [[row[c] for c in columns] for row in self.verdicts]
        untested = "".join(f"<li>{_safe(said)}</li>" for said in self.untested)
        return f"{_table(columns, rows)}<details><summary>not tested</summary><ul>{untested}</ul></details>"


def finetune(
    model: Named,
    *,
    data: "Named | SourceSettings",
    output_dir: Named,
    forget: str | None = None,
    name: str | None = None,
    seed: int = 0,
    train_factual: bool = False,
    save: str = "merged",
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
    chat_template: str = "",
    **settings: Any,
) -> Model:
    """Teach a model the answers of a data set; with `forget` all but those, as a `retrained` control.

    `builtin:tiny` gets the settings that were found for it, any other PISTOL's; `settings` are `TrainingSettings`.
    """
    from vestige.artifacts.layout import SubjectFolder
    from vestige.data.corpus import named_splits
    from vestige.steps.finetune import finetune as made_by_training
    from vestige.steps.finetune import finetune_request
    from vestige.studies.presets import TINY_FINETUNE
    from vestige.training.settings import TrainingSettings

    base = TINY_FINETUNE.identity() if _path(model) == "builtin:tiny" else {}
    corpus = _corpus(data)
    splits = named_splits(corpus, forget) if forget else None
    training = TrainingSettings.build({**base, **settings})
    start = _model(model, device, dtype, trust_remote_code, chat_template)
    request = finetune_request(start, corpus, splits, training, name=name, seed=seed, factual=train_factual, save=save)
    made = made_by_training(SubjectFolder(Path(output_dir)), request)
    return Model(Path(output_dir), made.steps, made.stopped, splits.told if splits else ())


def unlearn(
    target: "Named | Model",
    *,
    method: str,
    data: "Named | SourceSettings",
    forget: str,
    output_dir: Named,
    retain: str | None = None,
    reference: "Named | Model | None" = None,
    method_settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    save: str = "merged",
    device: str = "auto",
    dtype: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str = "",
    **settings: Any,
) -> Model:
    """Make a model forget a part of the data by one method.

    `method_settings` are the method's own (`{"beta": 0.2}`); `settings` are `UnlearningSettings`. A target that began
    as `builtin:tiny` has the rates that were found for it. `method="retrain"` makes a target of Vestige's again, as it
    was made, less the forget set.
    """
    from vestige.artifacts.layout import SubjectFolder
    from vestige.artifacts.records import forgotten_by
    from vestige.data.corpus import named_splits, refuse_nothing_found
    from vestige.methods import find_method
    from vestige.methods.base import FromStart
    from vestige.steps.controls import recipe_without
    from vestige.steps.subjects import own_dtype
    from vestige.steps.unlearn import unlearn as made_by_unlearning
    from vestige.steps.unlearn import unlearn_request
    from vestige.training.settings import UnlearningSettings

    again, corpus = isinstance(find_method(method), FromStart), _corpus(data)
    splits = named_splits(corpus, forget, retain=retain, before=forgotten_by(_path(target)))
    refuse_nothing_found(corpus, splits, retain)
    start = _model(target, device, dtype or own_dtype(_path(target)) or "float32", trust_remote_code, chat_template)
    if again and settings:
        raise InputError(f"{method} trains as the target was trained, so its settings are the target's; leave them out")
    request = unlearn_request(
        start,
        splits,
        method,
        lambda began: UnlearningSettings.build({**unlearning_defaults(began, method), **settings}),
        method_settings=method_settings,
        seed=seed,
        reference=None if reference is None else _path(reference),
        recipe=recipe_without(start, corpus, splits) if again else None,
        save=save,
    )
    made = made_by_unlearning(SubjectFolder(Path(output_dir)), request)
    return Model(Path(output_dir), made.steps, made.stopped, splits.told)


def unlearning_defaults(start: str, method: str) -> Mapping[str, Any]:
    """What replaces the defaults of an unlearning: a model that began as `builtin:tiny` has settings of its own."""
    from vestige.studies.presets import tiny_unlearning

    return tiny_unlearning(method) if start == "builtin:tiny" else {}


def evaluate(
    model: "Named | Model",
    *,
    data: "Named | SourceSettings",
    forget: str | None = None,
    retain: str | None = None,
    evals: "Sequence[str] | Mapping[str, Mapping[str, Any]]" = ("qa",),
    output_dir: Named | None = None,
    role: str = "base",
    seed: int = 0,
    device: str = "auto",
    dtype: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str = "",
) -> Results:
    """Ask a model every question; without `forget` everything is one split.

    `evals` are names of evaluations, or their settings by name: `{"choices": {"options": 6}}`. The evidence about a
    model from elsewhere goes into `output_dir`, that about one of Vestige's into its own folder.
    """
    from vestige.artifacts.records import forgotten_by, read_summary, result_rows
    from vestige.data.corpus import named_splits, undivided
    from vestige.steps.evaluate import evaluate as answered
    from vestige.steps.evaluate import requests_of
    from vestige.steps.subjects import any_subject

    corpus = _corpus(data)
    if forget is None and retain is not None:
        raise InputError("retain goes with forget; without it everything is one split")
    before = forgotten_by(_path(model))
    splits = undivided(corpus) if forget is None else named_splits(corpus, forget, retain=retain, before=before)
    settings = _evals(evals)
    asked = _model(model, device, dtype or "float32", trust_remote_code, chat_template)
    subject = any_subject(asked, None if output_dir is None else fspath(output_dir), role=role, dtype=dtype)
    places = [answered(subject, request) for request in requests_of(splits, settings, seed)]
    summaries = [read_summary(place.summary(splits.forget)) for place in places]
    return Results(tuple(result_rows(summaries)), tuple(place.path for place in places), splits.told)


def attack(
    subject: "Named | Model",
    kind: str,
    *,
    data: "Named | SourceSettings",
    forget: str,
    output_dir: Named | None = None,
    n: int | None = None,
    target: "Named | Model | None" = None,
    retain: str | None = None,
    evals: "Sequence[str] | Mapping[str, Mapping[str, Any]]" = ("qa",),
    role: str = "base",
    seed: int = 0,
    device: str = "auto",
    dtype: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str = "",
    **settings: Any,
) -> Results:
    """Attack a model in memory, and ask it before and after what it was made to forget.

    `kind` is `relearn` (on `n` items of `material="retain"`), `quantize` (to `n` bits), `in_context` (`n` retained
    items before each question), `gcg`, or `prefix`, which needs the `target` (a prompt searched on `n` items).
    `settings` are those of the relearning or the search. In the rows `attack` is empty before, and after names attack
    and point. A gain shows a recovery only beside the same attack on a model that never knew: `audit` makes both.
    """
    from vestige.artifacts.records import forgotten_by, read_summary, result_rows
    from vestige.attacks.planning import check_kind, find_attack
    from vestige.data.corpus import named_splits
    from vestige.steps.attack import AttackRequest, attack_summaries, run_attack
    from vestige.steps.evaluate import evaluate_together, requests_of
    from vestige.steps.subjects import any_subject

    found = find_attack(kind)
    if found.guided != (target is not None):
        raise InputError(
            "only a prefix search takes a target, and it needs one: the prefix is searched to bring the target's words"
        )
    if n is not None:
        settings = {found.amount or "n": n, **settings}
    before, asked = forgotten_by(_path(subject)), _evals(evals)
    splits = named_splits(_corpus(data), forget, retain=retain, before=before)
    asked_for = found.build(settings, where=f"attack {kind}")
    planned = asked_for.plan(splits.splits, seed=seed)
    check_kind(asked_for, planned.plan)
    model = _model(subject, device, dtype or "float32", trust_remote_code, chat_template)
    attacked = any_subject(model, None if output_dir is None else fspath(output_dir), role=role, dtype=dtype)
    guide = None
    if target is not None:
        beside = None if output_dir is None else f"{fspath(output_dir)}/target"
        guide = any_subject(model.model_copy(update={"model": _path(target)}), beside, role="target")
    request = AttackRequest(planned, asked, splits.forget, seed, guide=guide)
    folder = run_attack(attacked, request)
    before_it = requests_of(splits, asked, seed, planned.tested)
    places = evaluate_together(attacked, before_it)
    levels = [("", place, read_summary(place.summary(splits.forget))) for place in places]
    after = attack_summaries(attacked, folder, request).items()
    levels += [(f"{planned.plan.name}, {point}", place, summary) for (point, _), (place, summary) in after]
    rows = [{**row, "attack": at} for at, _, summary in levels for row in result_rows([summary])]
    notes = (*splits.told, *planned.notes)
    return Results(tuple(rows), (folder.path, *(place.path for _, place, _ in levels)), notes)


def audit(
    *,
    target: "Named | Model",
    unlearned: "Named | Model | Sequence[Named | Model]",
    data: "Named | SourceSettings",
    forget: str,
    output_dir: Named,
    retrained: "Named | Model | Sequence[Named | Model]" = (),
    suppressed: "Named | Model | None" = None,
    retain: str | None = None,
    holdout: str | None = None,
    alternatives: str | None = None,
    quick: bool = False,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
    chat_template: str = "",
    workers: int | None = None,
    published: str | None = None,
    **settings: Any,
) -> Audit:
    """Say of each unlearned model whether it has forgotten: five claims, a verdict on each, with the evidence.

    Every model is asked and attacked in the same way and compared with the `retrained` ones, which never knew; five of
    them are advised. `settings` are `AuditSettings`, the margins `delta` and `delta_wide` among them. `quick`
    makes the smallest audit that can still fail a claim, which says what it cannot decide. Of a pack the target must
    show the figures `published` of a model, by default of its name ("none": of none). The work is done in `workers`
    processes. Raises PartialFailure where so much failed that nothing can be judged.
    """
    from vestige.auditing.request import AuditRequest, named_models
    from vestige.auditing.run import run_audit
    from vestige.auditing.settings import QUICK, AuditSettings, check_quick
    from vestige.data.loaders import published_of

    subjects, controls = _paths(unlearned), _paths(retrained)
    control = _path(suppressed) if suppressed else None
    models = [_path(target), *subjects, *controls, *([control] if control else [])]
    untested = check_quick([*settings, *(["--suppressed"] if control else [])]) if quick else ()
    asked = AuditSettings.build({**(QUICK if quick else {}), **settings}, where="settings of the audit")
    corpus = _corpus(data)
    request = AuditRequest(
        models=named_models(models[0], subjects, controls, control),
        splits=audit_splits(corpus, forget, models, asked, retain, holdout, alternatives),
        settings=asked,
        seed=seed,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        chat_template=chat_template,
        untested=untested,
        published=published_of(corpus.settings.data, models[0], published),
    )
    found = run_audit(Path(output_dir), request, workers=workers)
    failed = {name: str(error) for name, error in found.failed.items()}
    return Audit(Path(output_dir), (found.outcome,), failed, request.splits.told)


def judge(table: Any, *, output_dir: Named = "runs/judged", forget: str = "the forget set", **margins: Any) -> Audit:
    """Judge models by scores that were made elsewhere: a row for each answer, in the columns that docs/logs.md names.

    `table` is a CSV, JSON Lines or Parquet file, a list of dicts, or a DataFrame. `margins` are those of `audit`
    (`delta`, `delta_wide`). No model is loaded.
    """
    from vestige.artifacts.layout import RunFolder
    from vestige.auditing.scored import read_scores
    from vestige.auditing.table import judge_table

    source = fspath(table) if isinstance(table, str | PathLike) else "a table of scores"
    outcome = judge_table(
        RunFolder(Path(output_dir)), read_scores(table), forget=forget, margins=margins, source=str(source)
    )
    return Audit(Path(output_dir), (outcome,), {})


@dataclass(frozen=True)
class Holes:
    """What a probe found: the table by source, the confirmed holes, and what was noted on the data."""

    path: Path
    table: "HoleTable"
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each number of each source, with interval and n; false holes are those of the placebos."""
        from vestige.artifacts.holes import estimates_of

        return [
            {"source": row.source, **{name: getattr(e, name) for name in ("metric", "value", "low", "high", "n")}}
            for row in self.table.rows
            for e in estimates_of(row)
        ]

    @property
    def holes(self) -> list[dict[str, Any]]:
        """The confirmed holes: prompt, source, both answers and scores, group."""
        from vestige.artifacts.holes import read_holes
        from vestige.artifacts.layout import ProbeFolder

        return [asdict(hole) for hole in read_holes(ProbeFolder(self.path))]

    def to_frame(self) -> "DataFrame":
        """A row for each confirmed hole."""
        return _frame(self.holes)

    def _repr_html_(self) -> str:
        columns = ("source", "metric", "value", "low", "high", "n")
        return _table(columns, [[row[c] for c in columns] for row in self.rows])


def probe(
    target: "Named | Model",
    unlearned: "Named | Model",
    *,
    data: "Named | SourceSettings",
    forget: str,
    output_dir: Named,
    retain: str | None = None,
    searches: Sequence[str] = ("latent",),
    placebos: "Mapping[str, Named | Model] | None" = None,
    forget_n: int | None = None,
    seed: int = 0,
    device: str = "auto",
    dtype: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str = "",
    **settings: Any,
) -> Holes:
    """Look for knowledge holes: harmless questions that `target` answers well and `unlearned` badly.

    `settings` are those of a probe in `[holes]` of a study (`asks`, `judge`, `truth`, `embedder`, `k`, `by`, `answers`,
    `latent`, `policy`, `filter`): `latent={"n_iterations": 6}`, `judge="http://host/v1#name"`. Adjacent
    questions are made, the `searches` among latent, random, paraphrase and enumeration begin from them, and what both
    found is asked anew. `placebos` are models, by name, that know what the target knows.
    """
    from vestige.artifacts.layout import ProbeFolder
    from vestige.core.text import closest
    from vestige.data.corpus import SourceSettings
    from vestige.data.probe_sources import probe_sources
    from vestige.probes.adjacent import make_adjacent
    from vestige.probes.holes import FilterRequest, filter_holes
    from vestige.probes.latent import SEARCHES, search
    from vestige.steps.subjects import asked_model
    from vestige.studies.holes import OF_A_PROBE, HolesSettings

    for key in settings:
        if key not in (*OF_A_PROBE, "embedder"):
            raise InputError(f"settings of the probe: unknown key {key!r}; {closest(key, [*OF_A_PROBE, 'embedder'])}")
    for name in searches:
        if name not in SEARCHES:
            raise InputError(f"no search {one_line(str(name))!r}; {closest(str(name), list(SEARCHES))}")
    own = HolesSettings.build(settings, where="settings of the probe")
    own.check()
    source = data if isinstance(data, SourceSettings) else SourceSettings(data=fspath(data))
    sources = probe_sources(source, forget, retain=retain, n_forget=forget_n)

    def asked(model: "Named | Model") -> "Asked":
        return asked_model(_model(model, device, dtype or "float32", trust_remote_code, chat_template), dtype=dtype)

    folder, corpus = ProbeFolder(Path(output_dir)), sources.corpus
    who = own.taking_part(
        folder, lambda: asked(target), lambda: asked(unlearned), lambda: corpus, seed=seed, device=device
    )
    make_adjacent(folder, own.near(sources.splits, corpus.dataset, seed, sources.forget_texts, sources.retain_texts))
    for name in searches:
        search(folder, who, name, own.searching(tuple(searches), device))
    known = {name: asked(model) for name, model in (placebos or {}).items()}
    table = filter_holes(folder, FilterRequest(who, sources.forget, own.filter, sources.retain, known))
    return Holes(folder.path, table, sources.splits.told)


@dataclass(frozen=True)
class StudyResults:
    """What a study has come to: cells made and planned, why some failed, and its scores pooled over seeds."""

    path: Path
    done: int
    cells: int
    failed: Mapping[str, str]
    rows: tuple[dict[str, Any], ...]

    def to_frame(self) -> "DataFrame":
        """A row for each pooled score: mean, 95 % interval, SD over seeds."""
        return _frame(self.rows)

    def _repr_html_(self) -> str:
        columns = tuple(self.rows[0]) if self.rows else ()
        said = f"<p>{_safe(self.path)}: {self.done} of {self.cells} cells, {len(self.failed)} failed</p>"
        return said + _table(columns, [[row[c] for c in columns] for row in self.rows])


def study(
    file: "Named | Mapping[str, Any]", *, output_dir: Named | None = None, jobs: int | None = None, run: bool = True
) -> StudyResults:
    """Make every cell of a study that is not there, or with `run=False` none, and read what there is.

    `file` is a TOML file, or what stands in one as a mapping, which needs `output_dir`.
    """
    from vestige.artifacts.layout import StudyFolder
    from vestige.studies import studies
    from vestige.studies.cells import Study
    from vestige.studies.results import PooledResults
    from vestige.studies.settings import StudySettings

    folder = None if output_dir is None else Path(output_dir)
    if isinstance(file, Mapping):
        if folder is None:
            raise InputError("a study that is no file needs output_dir, where its cells go")
        settings = StudySettings.build(dict(file), where="the study")
        settings.check()
        opened = Study(settings, StudyFolder(folder))
    else:
        opened = studies.open_study_file(Path(file), folder)
    failed = studies.run(opened, jobs=jobs) if run else dict(studies.status(opened).failed)
    now = studies.status(opened)
    rows = tuple(row._asdict() for row in PooledResults(opened).rows)
    return StudyResults(opened.folder.path, now.done, now.cells, failed, rows)


def read_audit(run: Named) -> Audit:
    """The verdicts that a run holds, as they were judged; no model is loaded."""
    from vestige.artifacts.audits import read_outcome, read_plan
    from vestige.artifacts.layout import RunFolder

    places = list(RunFolder(Path(run)).audits())
    if not places:
        raise InputError(f"{one_line(str(run), width=200)} holds no audit")
    failed = {f"{f.subject}, {f.attack or 'as it is'}": f.reason for place in places for f in read_plan(place).failed}
    return Audit(Path(run), tuple(map(read_outcome, places)), failed)


def audit_splits(
    corpus: "Corpus",
    forget: str,
    models: Sequence[str],
    settings: "AuditSettings",
    retain: str | None = None,
    holdout: str | None = None,
    alternatives: str | None = None,
) -> "NamedSplits":
    """What an audit of `models` asks: one retain set for all, without what any of them forgot besides.

    `holdout` is a file of items that no model was taught, `alternatives` one of other answers to the forget questions.
    """
    from vestige.artifacts.records import forgotten_by
    from vestige.data.alternatives import with_alternatives
    from vestige.data.corpus import items_of, named_splits, refuse_nothing_kept, without

    before = tuple(dict.fromkeys(one for model in models for one in forgotten_by(model)))
    found = named_splits(corpus, forget, retain=retain, before=before)
    splits = with_alternatives(corpus, found, alternatives, n=settings.alternatives)
    refuse_nothing_kept(corpus, splits)
    if holdout is None:
        return splits
    items = items_of(corpus, holdout)
    taught = [i for name, own in splits.splits.items() if name != "holdout" for i in own]
    new = {i.id for i in without(items, taught)}
    known = next((i for i in items if i.id not in new), None)
    if known is not None:
        raise InputError(
            f"the question {one_line(known.question, width=60)!r} is in the holdout file and in another split; a "
            "holdout item is one that no model was taught"
        )
    return replace(splits, splits={**splits.splits, "holdout": items})


def _paths(models: "Named | Model | Sequence[Named | Model]") -> list[str]:
    """One model or several, as paths; a text is one model and not a sequence of letters."""
    return [_path(models)] if isinstance(models, str | PathLike | Model) else [_path(model) for model in models]


def _path(model: "Named | Model") -> str:
    if not isinstance(model, str | PathLike):
        raise InputError(
            f"a model is {type(model).__name__}; give its folder or its id on the hub. A model in memory goes into a "
            "folder first, with its tokenizer: model.save_pretrained(folder), tokenizer.save_pretrained(folder)"
        )
    return fspath(model)


def _corpus(data: "Named | SourceSettings") -> "Corpus":
    from vestige.data.corpus import SourceSettings, open_corpus

    if not isinstance(data, SourceSettings | str | PathLike):
        raise InputError(
            f"data is {type(data).__name__}; give a path, a dataset id of the hub, or SourceSettings. Rows in memory "
            "go into a file first: pandas' to_json(path, orient='records', lines=True), datasets' to_json(path)"
        )
    return open_corpus(data if isinstance(data, SourceSettings) else SourceSettings(data=fspath(data)))


def _evals(evals: "Sequence[str] | Mapping[str, Mapping[str, Any]]") -> "dict[str, Settings]":
    from vestige.evals import find_eval

    if not evals:
        raise InputError("evals names no evaluation, so nothing would be asked")
    given = evals if isinstance(evals, Mapping) else {name: {} for name in evals}
    return {name: find_eval(name).SETTINGS.build(own, where=f"settings of {name}") for name, own in given.items()}


def _model(
    name: "Named | Model", device: str, dtype: str, trust_remote_code: bool, chat_template: str
) -> "ModelSettings":
    from vestige.models.load import ModelSettings

    return ModelSettings(
        model=_path(name),
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        chat_template=chat_template,
    )


def _frame(rows: Sequence[Mapping[str, Any]]) -> "DataFrame":
    from pandas import DataFrame

    return DataFrame(list(rows))


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in HTML; every text in it, which may come from a model or a data set, is escaped."""
    head = "".join(f"<th>{_safe(c)}</th>" for c in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _safe(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(one_line(f"{value:.3g}" if isinstance(value, float) else str(value), width=300))
