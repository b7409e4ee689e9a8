"""Vestige from Python: a function for each command, and results that a notebook shows.

A model is a folder of Vestige, a result of these functions, a Hugging Face folder or id, or a transformers model in
memory with its tokeniser: `(model, tokenizer)`. Data is a path, a hub id, rows in memory (a list of dicts, a DataFrame,
a `datasets.Dataset`), or `SourceSettings` where columns have to be named. Settings are given by their names; those of
`ModelSettings` (`device`, `dtype`, `trust_remote_code`, `chat_template`) go with every model. What a command would
refuse raises InputError; what it would print as a note is in `notes`. Each function goes on where a stopped one ended.
"""

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from vestige.core.errors import InputError
from vestige.core.text import one_line

if TYPE_CHECKING:
    from typing import Unpack

    from pandas import DataFrame

    from vestige.artifacts.audits import AuditOutcome, Soundness
    from vestige.artifacts.holes import HoleTable
    from vestige.artifacts.records import ItemScores
    from vestige.auditing.compare import ComparedScore
    from vestige.auditing.forecast import AuditPower
    from vestige.auditing.request import AuditRequest
    from vestige.data.corpus import Corpus, SourceSettings
    from vestige.keys import (
        AttackKeys,
        AuditKeys,
        CheckKeys,
        CompileKeys,
        FinetuneKeys,
        MarginKeys,
        ModelKeys,
        ProbeKeys,
        UnlearnKeys,
    )

Named: TypeAlias = str | PathLike[str]
"""A model, a data set, a folder: by path or name."""
# A model in memory is whatever transformers makes, and rows are whatever pandas or datasets hold.
AnyModel: TypeAlias = Any
Data: TypeAlias = Any


class Rows:
    """What is a table: `rows` are its rows, of which a notebook shows `columns`."""

    columns: ClassVar[tuple[str, ...]] = ()
    if TYPE_CHECKING:  # A field or a property; dataclasses would take a property of this class for a field's default.

        @property
        def rows(self) -> Sequence[Mapping[str, Any]]: ...

    def to_frame(self) -> "DataFrame":
        """The rows as a DataFrame."""
        from pandas import DataFrame

        return DataFrame(list(self.rows))

    def _repr_html_(self) -> str:
        """A table in HTML; every text in it, which may come from a model or a data set, is escaped."""
        rows = self.rows
        columns = self.columns or tuple(rows[0] if rows else ())
        head = "".join(f"<th>{_safe(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(f'<td>{_safe(row.get(c))}</td>' for c in columns)}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _safe(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(one_line(f"{value:.3g}" if isinstance(value, float) else str(value), width=300))


@dataclass(frozen=True)
class Model(Rows):
    """A model that was made: its folder, steps trained, why training stopped, and what was noted on the data."""

    path: Path
    steps: int
    stopped: str
    notes: tuple[str, ...] = ()

    # So that what one call made is given to the next wherever a path is.
    def __fspath__(self) -> str:
        return str(self.path)

    def log(self) -> list[dict[str, Any]]:
        """The log of its training, a row a step: loss and its terms in nats."""
        from vestige.artifacts.layout import SubjectFolder
        from vestige.artifacts.records import read_training_log

        return read_training_log(SubjectFolder(self.path).training_log)

    rows = property(log)

    def _repr_html_(self) -> str:
        return f"<p>{_safe(self.path)}: {self.steps} steps, {_safe(self.stopped)}</p>"


@dataclass(frozen=True, repr=False)
class Results(Rows):
    """Estimates of one model or of an attack on it: a row each, with interval and n, and where the evidence lies."""

    columns = ("split", "scope", "format", "attack", "metric", "value", "low", "high", "n")
    rows: tuple[dict[str, Any], ...]
    evidence: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    answers: "tuple[ItemScores, ...]" = ()

    def items(self) -> "DataFrame":
        """The score of each question, to be pooled over trainings by `vestige.pool`.

        Returns:
            A row per question, split and metric: `split` (`forget:free` has the questions that the retained contracts
            do not answer), `item`, `edge`, `attribute`, `attack` (empty before one), `metric`
            (`qa.rouge1_recall`) and `value`.
        """
        from pandas import DataFrame

        from vestige.artifacts.records import item_rows

        return DataFrame([row for asked in self.answers for row in item_rows(asked)])

    def __repr__(self) -> str:
        """One line: how many estimates there are, and where their evidence lies."""
        return f"Results({len(self.rows)} estimates; evidence: {', '.join(map(str, self.evidence))})"


@dataclass(frozen=True, repr=False)
class Audit(Rows):
    """The verdicts of a run. `failed` names tasks that failed, on which no claim rests that holds."""

    columns = ("subject", "claim", "verdict", "bound")
    path: Path
    outcomes: "tuple[AuditOutcome, ...]"
    failed: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        """The rows of verdicts.json: `subject`, `claim`, `verdict`, `bound`, `reason`, and what they rest on."""
        from vestige.artifacts.verdicts import verdict_rows

        return verdict_rows(self.outcomes)

    def regressions(self, baseline: Named) -> list[dict[str, Any]]:
        """The verdicts that are worse than in an earlier run (its folder or verdicts.json), each with `was`."""
        from vestige.artifacts.verdicts import read_baseline, regressions

        return [{**row, "was": was} for row, was in regressions(self.verdicts, read_baseline(Path(baseline)))]

    @property
    def untested(self) -> tuple[str, ...]:
        """What the verdicts say nothing about, in sentences."""
        return tuple(dict.fromkeys(sentence for outcome in self.outcomes for sentence in outcome.untested))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each verdict."""
        columns = ("subject", "forget", "claim", "verdict", "bound", "at_least", "at_most", "against", "reason")
        return [{column: row[column] for column in columns} for row in self.verdicts]

    def __repr__(self) -> str:
        """One line: the folder, and how many claims of how many models pass, fail or stay open."""
        counts = Counter(row["verdict"] for row in self.verdicts)
        subjects = len({row["subject"] for row in self.verdicts})
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "inconclusive"))
        return f"Audit({str(self.path)!r}: {subjects} {'model' if subjects == 1 else 'models'}, claims: {verdicts})"

    def report(self) -> Path:
        """Write the report's page and tables; where the page is."""
        from vestige.report import build_report

        return build_report(self.path)

    def _repr_html_(self) -> str:
        untested = "".join(f"<li>{_safe(sentence)}</li>" for sentence in self.untested)
        return f"{super()._repr_html_()}<details><summary>not tested</summary><ul>{untested}</ul></details>"


@dataclass(frozen=True)
class Holes(Rows):
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
        from pandas import DataFrame

        return DataFrame(self.holes)


def compile_data(
    graph: Named,
    *,
    output_dir: Named,
    fresh: bool = False,
    **settings: "Unpack[CompileKeys]",
) -> dict[str, Any]:
    """Compile a graph of contracts (`sample1`, `star:20`, a file) into questions and answers; gives the manifest.

    `settings` are `CompileSettings`.
    """
    from vestige.data.folder import CompileSettings, compile_to_folder

    return compile_to_folder(fspath(graph), Path(output_dir), CompileSettings.build(settings), fresh=fresh)


def finetune(
    model: AnyModel,
    *,
    data: Data,
    output_dir: Named,
    forget: Data | None = None,
    name: str | None = None,
    seed: int = 0,
    train_factual: bool = False,
    save: str = "merged",
    imitate: AnyModel | None = None,
    **settings: "Unpack[FinetuneKeys]",
) -> Model:
    """Teach a model the answers of a data set; with `forget` all but those, as a `retrained` control.

    With `imitate` it is taught that model's distributions on the answers, by KL, in place of the answers themselves.

    `builtin:tiny` gets the settings that were found for it, any other PISTOL's; `settings` are `TrainingSettings`.
    """
    from vestige import requests
    from vestige.artifacts.layout import SubjectFolder
    from vestige.steps.finetune import finetune as train

    read, training = _apart(settings)
    corpus = _corpus(data)
    splits = None if forget is None else requests.questions(corpus, _selector(forget))
    start = requests.model_settings(_path(model), read)
    request = requests.finetuning(
        start,
        corpus,
        splits,
        training,
        name=name,
        seed=seed,
        factual=train_factual,
        save=save,
        imitate=None if imitate is None else _path(imitate),
    )
    trained = train(SubjectFolder(Path(output_dir)), request)
    return Model(Path(output_dir), trained.steps, trained.stopped, splits.told if splits else ())


def unlearn(
    target: AnyModel,
    *,
    method: str,
    data: Data,
    forget: Data,
    output_dir: Named,
    retain: Data | None = None,
    reference: AnyModel | None = None,
    base: Named | None = None,
    method_settings: Mapping[str, Any] | None = None,
    trajectory: Mapping[str, Any] | None = None,
    seed: int = 0,
    save: str = "merged",
    **settings: "Unpack[UnlearnKeys]",
) -> Model:
    """Make a model forget a part of the data by one method.

    `trajectory` says how the model is scored while it trains and when to stop: settings of `TrajectorySettings` and
    `ValidationSettings`, and `harm_judge`, the language model that grades harm.

    `method_settings` are the method's own (`{"beta": 0.2}`); `settings` are `UnlearningSettings`. A target that began
    as `builtin:tiny` has the rates that were found for it. `method="retrain"` makes a target of Vestige's again, as it
    was made, less the forget set; one from elsewhere needs the model that it began with, `base`.
    """
    from vestige import requests
    from vestige.artifacts.layout import SubjectFolder
    from vestige.steps.unlearn import unlearn as train

    request, splits = _unlearning(
        target, method, data, forget, retain, reference, settings,
        base=None if base is None else fspath(base), method_settings=method_settings, seed=seed, save=save,
    )  # fmt: skip
    if trajectory:
        read, _ = _apart(settings)
        watch = requests.watched(request.target, splits, trajectory, Path(output_dir), read, seed=seed)
        request = replace(request, trajectory=watch)
    trained = train(SubjectFolder(Path(output_dir)), request)
    return Model(Path(output_dir), trained.steps, trained.stopped, splits.told)


def _unlearning(
    target: AnyModel,
    method: str,
    data: Data,
    forget: Data,
    retain: Data | None,
    reference: AnyModel | None,
    settings: Mapping[str, Any],
    **how: Any,
) -> Any:
    """The request of an unlearning, and the splits of the data."""
    from vestige import requests

    read, training = _apart(settings)
    start = requests.model_settings(_path(target), read, as_made=True)
    corpus, kept_back = _corpus(data), _selector(retain)
    splits = requests.questions(corpus, _selector(forget), kept_back, models=[start.model])
    frozen = None if reference is None else _path(reference)
    request = requests.unlearning(start, corpus, splits, method, training, retain=kept_back, reference=frozen, **how)
    return request, splits


def evaluate(
    model: AnyModel,
    *,
    data: Data,
    forget: Data | None = None,
    retain: Data | None = None,
    evals: Sequence[str] | Mapping[str, Mapping[str, Any]] = ("qa",),
    output_dir: Named | None = None,
    role: str = "base",
    seed: int = 0,
    splits: Sequence[str] | None = None,
    most_items: int | None = None,
    summarize: bool = True,
    **read: "Unpack[ModelKeys]",
) -> Results:
    """Ask a model every question; without `forget` everything is one split.

    `splits` names those to ask beside the forget set (`retain`, `factual`, ...; all by default). Of the other splits at
    most `most_items` questions with a contract or person, and as many without, are asked: the same for every model and
    forget set. Without `summarize` there are no estimates, and `items()` has the scores alone.

    `evals` are names of evaluations, or their settings by name: `{"choices": {"options": 6}}`. The evidence about a
    model from elsewhere goes into `output_dir`, that about one of Vestige's into its own folder. `read` are
    `ModelSettings`.
    """
    from vestige import requests
    from vestige.artifacts.records import ItemScores, read_summary, result_rows
    from vestige.steps.evaluate import evaluate as collect
    from vestige.steps.evaluate import requests_of

    reading, unknown = _apart(read)
    path, settings = _path(model), requests.evaluations(evals)
    corpus = _corpus(data)
    asked = requests.questions(corpus, _selector(forget), _selector(retain), models=[path])
    asked = requests.fewer(corpus, asked, splits, most_items)
    if unknown:
        raise InputError(f"evaluate takes no setting {next(iter(unknown))!r}; those of an evaluation go into evals")
    subject = requests.subject(path, reading, None if output_dir is None else fspath(output_dir), role=role)
    plans = [replace(plan, summed=summarize) for plan in requests_of(asked, settings, seed)]
    folders = [collect(subject, plan) for plan in plans]
    summaries = []
    if summarize:
        summaries = [read_summary(folder.summary(asked.forget)) for folder in folders]
    answers = [ItemScores("", name, folder, asked) for name, folder in zip(settings, folders, strict=True)]
    evidence = tuple(folder.path for folder in folders)
    return Results(tuple(result_rows(summaries)), evidence, asked.told, tuple(answers))


def attack(
    subject: AnyModel,
    kind: str,
    *,
    data: Data,
    forget: Data,
    output_dir: Named | None = None,
    n: int | None = None,
    target: AnyModel | None = None,
    retain: Data | None = None,
    evals: Sequence[str] | Mapping[str, Mapping[str, Any]] = ("qa",),
    role: str = "base",
    seed: int = 0,
    **settings: "Unpack[AttackKeys]",
) -> Results:
    """Attack a model in memory, and ask it before and after what it was made to forget.

    `kind` is `relearn` (on `n` items of `material="retain"`), `quantize` (to `n` bits), `ablate`, `latent` or `damage`
    (led by `n` forget items), `in_context` (`n` retained items before each question), `gcg`, or `prefix`, which needs
    the `target` (a prompt searched on `n` items).
    `settings` are those of the relearning or the search. In the rows `attack` is empty before, and after names attack
    and point. A gain shows a recovery only beside the same attack on a model that never knew: `audit` makes both.
    """
    from vestige import requests
    from vestige.artifacts.records import ItemScores, read_summary, result_rows
    from vestige.attacks.planning import find_attack
    from vestige.core.files import read_json
    from vestige.steps.attack import attack_summaries, run_attack
    from vestige.steps.evaluate import evaluate_together, requests_of

    attacker, (read, options) = find_attack(kind), _apart(settings)
    amount = {} if n is None else {attacker.amount or "n": n}
    planned = attacker.build({**amount, **options}, where=f"attack {kind}")
    path, evidence = _path(subject), None if output_dir is None else fspath(output_dir)
    # Before any model is loaded, so that a mistake in the data or the names costs no time.
    corpus, asked_by = _corpus(data), requests.evaluations(evals)
    splits = requests.questions(corpus, _selector(forget), _selector(retain), models=[path])

    guide = None if target is None else partial(requests.guide, _path(target), read, evidence)
    request = requests.attack(planned, splits, asked_by, seed=seed, guide=guide)
    attacked = requests.subject(path, read, evidence, role=role)
    folder = run_attack(attacked, request)
    originals = read_json(folder.asked)
    before = evaluate_together(attacked, requests_of(splits, request.evals, seed, request.attack.tested))
    levels = [("", evaluation, read_summary(evaluation.summary(splits.forget))) for evaluation in before]
    answers = [ItemScores("", n, f, splits) for n, f in zip(request.evals, before, strict=True)]
    for (point, name), (evaluation, summary) in attack_summaries(attacked, folder, request).items():
        label = f"{request.attack.plan.name}, {point}"
        levels.append((label, evaluation, summary))
        answers.append(ItemScores(label, name, evaluation, splits, originals))
    rows = [{**row, "attack": label} for label, _, summary in levels for row in result_rows([summary])]
    notes = (*splits.told, *request.attack.notes)
    evidence_of = (folder.path, *(evaluation.path for _, evaluation, _ in levels))
    return Results(tuple(rows), evidence_of, notes, tuple(answers))


def audit(
    *,
    target: AnyModel,
    unlearned: AnyModel,
    data: Data,
    forget: Data,
    output_dir: Named,
    retrained: AnyModel = (),
    suppressed: AnyModel | None = None,
    retain: Data | None = None,
    holdout: Data | None = None,
    alternatives: Data | None = None,
    published: str | None = None,
    quick: bool = False,
    seed: int = 0,
    workers: int | None = None,
    **settings: "Unpack[AuditKeys]",
) -> Audit:
    """Say of each unlearned model whether it has forgotten: six claims, a verdict on each, with the evidence.

    `unlearned` and `retrained` are a model each, or a list. Every model is asked and attacked in the same way and
    compared with the `retrained` ones, which never knew; five of them are advised. `settings` are `AuditSettings`, the
    margins `delta` and `delta_wide` among them. `quick` makes the smallest audit that can still fail a claim, which
    says what it cannot decide. Of a pack the target must show the figures `published` of a model, by default of its
    name ("none": of none). The work is done in `workers` processes. Raises PartialFailure where so much failed that
    nothing can be judged.
    """
    from vestige.auditing.run import run_audit

    request = _auditing(
        target, unlearned, data, forget, retrained=retrained, suppressed=suppressed, retain=retain, holdout=holdout,
        alternatives=alternatives, published=published, quick=quick, seed=seed, **settings,
    )  # fmt: skip
    judged = run_audit(Path(output_dir), request, workers=workers)
    failed = {name: str(error) for name, error in judged.failed.items()}
    return Audit(Path(output_dir), (judged.outcome,), failed, request.splits.told)


def plan(
    *,
    data: Data,
    forget: Data,
    controls: int = 3,
    target: AnyModel = "target",
    unlearned: AnyModel = "unlearned",
    retrained: AnyModel | None = None,
    suppressed: AnyModel | None = None,
    retain: Data | None = None,
    holdout: Data | None = None,
    alternatives: Data | None = None,
    quick: bool = False,
    seed: int = 0,
    seal_in: Named | None = None,
    **settings: "Unpack[AuditKeys]",
) -> "AuditPower":
    """What an audit of these data with so many retrained models could decide, before anything is trained or asked.

    All else is what `audit` takes; `controls` counts where no `retrained` are named. With `seal_in`, the folder of the
    audit, plan and margins are written there with a digest (`sealed.json`), and the audit says what of them it did
    otherwise.
    """
    from vestige.auditing.forecast import foresee_audit
    from vestige.auditing.run import seal_plan

    if controls < 1:
        raise InputError(f"controls = {controls}: of none nothing is foreseen; give at least 1")
    # Names alone: a plan counts its controls and looks for none.
    models = [f"retrained {number}" for number in range(1, controls + 1)] if retrained is None else retrained
    request = _auditing(
        target, unlearned, data, forget, retrained=models, suppressed=suppressed, retain=retain, holdout=holdout,
        alternatives=alternatives, quick=quick, seed=seed, **settings,
    )  # fmt: skip
    if seal_in is not None:
        seal_plan(Path(seal_in), request)
    return foresee_audit(request)


def _auditing(
    target: AnyModel,
    unlearned: AnyModel,
    data: Data,
    forget: Data,
    *,
    retrained: AnyModel = (),
    suppressed: AnyModel | None = None,
    quick: bool = False,
    **settings: Any,
) -> "AuditRequest":
    """The request of what `audit` takes."""
    from vestige import requests
    from vestige.auditing.request import named_models

    read, options = _apart(settings)
    # What is selected is no setting of the audit, which would refuse it as an unknown key.
    selectors = {name: _selector(options.pop(name, None)) for name in ("retain", "holdout", "alternatives")}
    further = {name: options.pop(name) for name in ("published", "seed") if name in options}
    control = None if suppressed is None else _path(suppressed)
    built, untested = requests.audit_settings(options, quick=quick, suppressed=control is not None)
    models = named_models(_path(target), _paths(unlearned), _paths(retrained), control)
    return requests.audit(
        models, _corpus(data), _selector(forget), built, read, untested=untested, **selectors, **further
    )


def judge(
    table: Any, *, output_dir: Named = "runs/judged", forget: str = "the forget set", **margins: "Unpack[MarginKeys]"
) -> Audit:
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


def read_audit(run: Named) -> Audit:
    """The verdicts that a run holds, as they were judged; no model is loaded."""
    from vestige.artifacts.audits import read_outcome, read_plan
    from vestige.artifacts.layout import RunFolder

    folders = list(RunFolder(Path(run)).audits())
    if not folders:
        raise InputError(f"{one_line(str(run), width=200)} holds no audit")
    failed = {
        f"{f.subject}, {f.attack or 'as it is'}": f.reason
        for audit_folder in folders
        for f in read_plan(audit_folder).failed
    }
    return Audit(Path(run), tuple(map(read_outcome, folders)), failed)


def rejudge(run: Named, **margins: "Unpack[MarginKeys]") -> Audit:
    """Every audit in a run judged again from its answers, by other margins; no model is loaded."""
    from vestige.auditing.run import rejudge as judge_again

    judge_again(Path(run), margins)
    return read_audit(run)


def check_data(
    *,
    data: Data,
    forget: Data,
    output_dir: Named,
    retain: Data | None = None,
    alternatives: Data | None = None,
    seed: int = 0,
    **settings: "Unpack[CheckKeys]",
) -> "Soundness":
    """Check whether the forget set can be answered without having seen it; `settings` are `SoundnessSettings`.

    The result has a line for each check, and lies in soundness.json, where an audit of the folder reads it.
    """
    from vestige import requests
    from vestige.artifacts.layout import RunFolder
    from vestige.steps.check_data import check_data as check

    corpus = _corpus(data)
    request = requests.data_check(
        corpus, _selector(forget), settings, retain=_selector(retain), alternatives=_selector(alternatives), seed=seed
    )
    return check(RunFolder(Path(output_dir)), request)


def probe(
    target: AnyModel,
    unlearned: AnyModel,
    *,
    data: Data,
    forget: Data,
    output_dir: Named,
    retain: Data | None = None,
    searches: Sequence[str] = ("latent",),
    placebos: Mapping[str, AnyModel] | None = None,
    forget_n: int | None = None,
    seed: int = 0,
    **settings: "Unpack[ProbeKeys]",
) -> Holes:
    """Look for knowledge holes: harmless questions that `target` answers well and `unlearned` badly.

    `settings` are `ProbeSettings` (`asks`, `judge`, `truth`, `embedder`, `k`, `by`, `answers`, `latent`, `policy`,
    `filter`): `latent={"n_iterations": 6}`, `judge="http://host/v1#name"`. Adjacent questions are
    made, the `searches` among latent, random, paraphrase and enumeration begin from them, and what both brought is
    asked anew. `placebos` are models, by name, that know what the target knows.
    """
    from vestige import requests
    from vestige.artifacts.layout import ProbeFolder
    from vestige.artifacts.records import forgotten_by
    from vestige.core.text import closest
    from vestige.data.probe_sources import probe_sources
    from vestige.probes.adjacent import make_adjacent
    from vestige.probes.holes import FilterRequest, filter_holes
    from vestige.probes.latent import SEARCHES, search
    from vestige.probes.settings import ProbeSettings
    from vestige.steps.subjects import Asked, asked_model

    read, options = _apart(settings)
    for name in searches:
        if name not in SEARCHES:
            raise InputError(f"no search {one_line(str(name))!r}; {closest(str(name), list(SEARCHES))}")
    probing = ProbeSettings.build(options, where="settings of the probe")
    probing.check()
    # What either forgot before is no hole: it was to go, and both may be bad at it.
    before = tuple(dict.fromkeys(gone for model in (target, unlearned) for gone in forgotten_by(_path(model))))
    sources = probe_sources(
        _source(data), _selector(forget), retain=_selector(retain), n_forget=forget_n, before=before
    )

    def loaded(model: AnyModel) -> Asked:
        return asked_model(requests.model_settings(_path(model), read), dtype=read.get("dtype"))

    folder, corpus, device = ProbeFolder(Path(output_dir)), sources.corpus, read.get("device", "auto")
    models = probing.participants(
        folder,
        target=lambda: loaded(target),
        unlearned=lambda: loaded(unlearned),
        corpus=corpus,
        seed=seed,
        device=device,
    )
    make_adjacent(folder, probing.adjacent(sources, replies=folder.judge, seed=seed, device=device))
    for name in searches:
        search(folder, models, name, probing.searching(tuple(searches), device=device))
    controls = {name: loaded(model) for name, model in (placebos or {}).items()}
    table = filter_holes(folder, FilterRequest(models, sources.forget, probing.filter, sources.retain, controls))
    return Holes(folder.path, table, sources.splits.told)


def _apart(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that say how a model is read, those that are given, and all others."""
    from vestige.models.load import ModelSettings

    reading = ModelSettings.model_fields.keys() - {"model"}
    read = {name: value for name, value in settings.items() if name in reading and value is not None}
    return read, {name: value for name, value in settings.items() if name not in reading}


def _paths(models: AnyModel) -> list[str]:
    """One model or a list of them, as paths; a text is one model and not a sequence of letters."""
    # A tuple is one model with its tokeniser; only the empty one, a default, means none.
    return [_path(model) for model in models] if isinstance(models, list) or models == () else [_path(models)]


def _path(model: AnyModel) -> str:
    """The name of a model; one in memory is written to the cache once, under its digest."""
    if isinstance(model, str | PathLike):
        return fspath(model)
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vestige.core.files import new_folder
    from vestige.models.cache import cache_folder
    from vestige.models.load import LoadedModel

    # A pipeline and a loaded model hold both; a bare model does not say how text becomes tokens.
    pair = model if isinstance(model, tuple) else (getattr(model, "model", None), getattr(model, "tokenizer", None))
    network, tokenizer = pair if len(pair) == 2 else (None, None)
    if not isinstance(network, PreTrainedModel) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise InputError(
            f"a model is {type(model).__name__}; give its folder, its id on the hub, or a transformers model in memory "
            "with its tokenizer: (model, tokenizer). Of a PEFT model give merge_and_unload()"
        )
    # By its digest: the same model is written once, and what was stored of it is found again.
    folder = cache_folder() / "in-memory" / LoadedModel(network, tokenizer, "", "").digest().id[:16]
    if not folder.exists():
        with new_folder(folder) as written:
            network.save_pretrained(written)
            tokenizer.save_pretrained(written)
    return str(folder)


def _selector(items: Data | None) -> Any:
    """What `forget`, `retain` and the like name: selectors, a file, or rows in memory, which become a file."""
    return items if items is None else _file(items)


def _file(rows: Data) -> str:
    """A path or name as it is; rows in memory as a file of the cache, which is named by what it holds."""
    if isinstance(rows, str | PathLike):
        return fspath(rows)
    from vestige.core.files import write_text
    from vestige.core.ids import content_id
    from vestige.models.cache import cache_folder

    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):  # a DataFrame
        if len({*rows.columns}) < len(rows.columns):
            raise InputError(f"a column's name comes twice in {one_line(', '.join(map(str, rows.columns)), width=200)}")
        rows = rows.to_dict("records")
    if hasattr(rows, "to_list"):  # a datasets.Dataset
        rows = rows.to_list()
    if not (isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows)):
        raise InputError(
            f"data is {type(rows).__name__}; give a path, a dataset id of the hub, rows (a list of dicts, a DataFrame, "
            "a datasets.Dataset), or SourceSettings"
        )
    text = "".join(_row_line(row, number) for number, row in enumerate(rows, 1))
    path = cache_folder() / "in-memory" / f"rows-{content_id(text)}.jsonl"
    if not path.exists():
        write_text(path, text)
    return str(path)


def _row_line(row: Mapping[Any, Any], number: int) -> str:
    """A row as a line of JSON Lines; what is missing in pandas' or NumPy's way is null."""
    from vestige.core.files import json_line

    cells = {}
    for name, value in row.items():
        # NumPy's scalars print as numbers and are none to JSON.
        plain = value.item() if hasattr(value, "dtype") and getattr(value, "ndim", 0) == 0 else value
        missing = type(plain).__name__ in ("NAType", "NaTType") or (isinstance(plain, float) and math.isnan(plain))
        cells[str(name)] = None if missing else plain
        try:
            # Each by itself, so that the one that is none is named; encoded, since half a surrogate has no bytes.
            json_line(cells[str(name)]).encode()
        except (TypeError, ValueError) as error:
            where = f"row {number}, {one_line(repr(name), width=60)}"
            raise InputError(f"{where}: {type(plain).__name__} is no JSON value; give text or a number") from error
    return json_line(cells)


def _source(data: Data) -> "SourceSettings":
    from vestige.data.corpus import SourceSettings

    return data if isinstance(data, SourceSettings) else SourceSettings(data=_file(data))


def _corpus(data: Data) -> "Corpus":
    from vestige.data.corpus import open_corpus

    return open_corpus(_source(data))


@dataclass(frozen=True, repr=False)
class Comparison(Rows):
    """Models compared with the first on the same questions: a row for each model, task and score."""

    scores: "tuple[ComparedScore, ...]"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return [asdict(score) for score in self.scores]

    @property
    def markdown(self) -> str:
        """A Markdown table, for a pull request."""
        from vestige.auditing.compare import markdown

        return markdown(self.scores)


def compare(
    first: Named,
    *others: Named,
    clusters: Mapping[str, str] | None = None,
    difference: float | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare models on the same questions by their logs or tables of scores; no control is needed.

    Args:
        first: A log, a folder of logs of one model, or a table of scores. The other models are compared with it.
        others: The logs or tables of the other models. They may be left out if the first is a table of several models.
        clusters: By question id or question text, the document or group that it shares with others.
        difference: The difference for which the needed number of questions is given; the observed one by default.
        seed: Seed of the resamples.

    Returns:
        Paired differences with 95 % intervals, p-values corrected by Holm's method over all rows, and the number of
        questions that would show the difference.

    Raises:
        InputError: A log cannot be read, or two models have no question or score in common.

    Example:
        >>> vestige.compare("base/samples_arc.jsonl", "mine/samples_arc.jsonl").to_frame()  # doctest: +SKIP
    """
    from vestige.auditing.compare import compare as compare_models

    paths = [Path(path) for path in (first, *others)]
    names = short_names(paths)
    scores = compare_models(dict(zip(names, paths, strict=True)), clusters=clusters, difference=difference, seed=seed)
    return Comparison(scores)


def short_names(paths: Sequence[Path]) -> list[str]:
    """The shortest endings of paths that tell them apart, without the suffix of a file."""
    parts = [path.with_suffix("").parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise InputError("two of the logs are the same file. Give the logs of different models.")
