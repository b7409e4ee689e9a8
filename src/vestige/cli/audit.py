"""`vestige audit`: has a model forgotten? Five claims, each with a verdict, from any models on disk."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.asked import pairs, refuse_torchrun, say, settings_from
from vestige.cli.data_words import DataWords, forgotten_by, say_notes
from vestige.cli.options import (
    SAMPLES,
    Alternatives,
    AsJson,
    ChatTemplate,
    Config,
    Device,
    Seed,
    Set,
    TrustRemoteCode,
    Verify,
    Workers,
)
from vestige.cli.output import output_in
from vestige.cli.progress import progress_bar
from vestige.cli.spread import spread
from vestige.cli.tables import print_verdicts
from vestige.core.errors import InputError, PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome
    from vestige.audit.settings import AuditSettings
    from vestige.data.corpus import NamedSplits, SourceSettings
    from vestige.study.audit_request import AuditRequest

FAILS, OPEN = 3, 4
"""Exit codes: a claim fails; none fails, and one is inconclusive."""

_MADE_BY = ("run.toml", "models/*/spec.json", "cells/*/spec.json", "soundness.json", "data/manifest.json")

ATTACKS = ("relearn", "quantize", "in_context", "gcg", "prefix")
"""The settings that say how much there is of each kind of attack."""


@spread
def audit_command(
    output_dir: Annotated[
        Path | None, typer.Option(help="The run's folder: evidence, verdicts, report. The same command resumes.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The model that knows: a folder of Vestige, or any model.")] = None,
    unlearned: Annotated[
        list[str] | None, typer.Option(help="A model that was made to forget; may be given several times.")
    ] = None,
    retrained: Annotated[
        list[str] | None,
        typer.Option(help="A model that never saw the forget set, once for each seed; three are advised."),
    ] = None,
    suppressed: Annotated[
        str | None,
        typer.Option(help="Your own positive control: a target that knows and keeps silent. Left out: one is made."),
    ] = None,
    forget: Annotated[str | None, typer.Option(help="Selector (edge:A_B, node:A, ...) or a file of items.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A compiled folder, a file, or a hub dataset id; left out: the two files."),
    ] = None,
    holdout: Annotated[
        str | None,
        typer.Option(help="File of items that no model was taught; compiled data has its own."),
    ] = None,
    alternatives: Alternatives = None,
    rejudge: Annotated[
        Path | None, typer.Option(help="Judge the audits of this run again, with thresholds by --set; no model.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be asked and trained, and do nothing.")
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Print what these facts, controls and attacks can decide; no model has to be there."
        ),
    ] = False,
    workers: Workers = None,
    attacks: Annotated[
        str | None,
        typer.Option(help="Only these, apart by commas: relearn, quantize, in-context, gcg, prefix."),
    ] = None,
    config: Config = None,
    assignments: Set = None,
    seed: Seed = 0,
    device: Device = "auto",
    dtype: Annotated[
        str, typer.Option(help="Number format of models from elsewhere; Vestige's own have theirs.")
    ] = "float32",
    trust_remote_code: TrustRemoteCode = False,
    chat_template: ChatTemplate = "",
    verify: Verify = False,
    as_json: AsJson = False,
    *,
    rows: DataWords,
) -> None:
    """Say of each UNLEARNED model whether it has forgotten, with the evidence: five claims, a verdict on each.

    Every model is asked in several formats and attacked in the same way (relearning, rounded weights, facts in the
    prompt, prefilled and sampled answers; with --attacks also searched prompts), and compared with RETRAINED models,
    which never knew. An attack that finds nothing counts where it brings back what a positive control holds back: a
    target that is taught to keep silent, unless SUPPRESSED is one. Settings, margins among them, are set with --set:
    delta=0.1, relearn_epochs=5, 'quantize=[8]'.

    Exit code 0: every claim holds. 3: a claim fails. 4: none fails, one is inconclusive. 5: a task failed.
    """
    refuse_torchrun("audit")
    if rejudge is not None:
        _refuse_models((target, unlearned, retrained, suppressed), attacks)
        _rejudged(rejudge, pairs(assignments), as_json=as_json)
        return
    source = rows.source(data or _given("--data, or a file with --retain,", rows.retain))
    if plan:
        # Nothing is written, and of the models only the number of controls counts.
        output_dir, target = output_dir or Path(), target or "target"
    run = Path(_given("--output-dir", None if output_dir is None else str(output_dir)))
    models = (_given("--target", target), *(unlearned or ()), *(retrained or ()), *([suppressed] if suppressed else ()))
    from vestige.audit.settings import AuditSettings
    from vestige.study.audit_request import AuditRequest, check_request, named_models

    settings = _only(attacks, settings_from(AuditSettings, config, assignments), assignments)
    splits = _splits(source, _given("--forget", forget), rows.retain, (holdout, alternatives), models, settings)

    request = AuditRequest(
        models=named_models(models[0], unlearned or [], retrained or [], suppressed),
        splits=splits,
        settings=settings,
        seed=seed,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        chat_template=chat_template,
        verify=verify,
    )
    if plan:
        from vestige.cli.foreseen import print_plan
        from vestige.study.audit_forecast import foresee_audit

        print_plan(splits.forget, foresee_audit(request), as_json=as_json)
        return
    check_request(request)
    if dry_run:
        _foretell(run, request, as_json=as_json)
        return
    _audited(run, request, workers=workers, as_json=as_json)


def _given(option: str, value: str | None) -> str:
    if not value:
        raise InputError(f"{option} is missing; `vestige audit --help` says what an audit needs")
    return value


def _refuse_models(models: Sequence[str | Sequence[str] | None], attacks: str | None) -> None:
    if any(models):
        raise InputError("--rejudge reads what a finished audit left and asks no model; leave the models out")
    if attacks:
        raise InputError("--rejudge judges the attacks that were made; leave --attacks out")


def _only(attacks: str | None, settings: "AuditSettings", assignments: Sequence[str] | None) -> "AuditSettings":
    """The settings with the attacks that are named alone, each as set, or by default, or on `SAMPLES` items."""
    from vestige.core.settings import closest

    if attacks is None:
        return settings
    named = [name.strip().replace("-", "_") for name in attacks.split(",")]
    unknown = next((name for name in named if name not in ATTACKS), None)
    if unknown is not None:
        raise InputError(f"--attacks names {one_line(unknown)!r}; {closest(unknown, list(ATTACKS))}")
    unasked = next((name for name in pairs(assignments) if name in ATTACKS and name not in named), None)
    if unasked is not None:
        raise InputError(f"--set {unasked} is of an attack that --attacks leaves out; name it there too")
    values, defaults = settings.model_dump(), type(settings)().model_dump()
    own = {name: (values[name] or defaults[name] or (SAMPLES,)) if name in named else () for name in ATTACKS}
    return settings.build({**values, **own}, where="settings of the audit")


def _splits(
    source: "SourceSettings",
    forget: str,
    retain: str | None,
    files: tuple[str | None, str | None],
    models: Sequence[str],
    settings: "AuditSettings",
) -> "NamedSplits":
    """The splits of the data, with the holdout file's items if there is one, and alternatives to the forget questions.

    `files` are those of the holdout items and of alternatives.
    """
    from dataclasses import replace

    from vestige.data.alternatives import with_alternatives
    from vestige.data.corpus import items_of, named_splits, open_corpus, refuse_nothing_kept, without

    corpus = open_corpus(source)
    # One retain set for all models, so that they are asked the same: nothing that any of them forgot besides.
    before = tuple(dict.fromkeys(one for model in models for one in forgotten_by(model)))
    holdout, alternatives = files
    found = named_splits(corpus, forget, retain=retain, before=before)
    splits = say_notes(with_alternatives(corpus, found, alternatives, n=settings.alternatives))
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


def _foretell(run: Path, request: "AuditRequest", *, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from vestige.study.audit_forecast import forecast_audit
    from vestige.study.audit_request import numbered

    found = forecast_audit(run, request)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
        return
    table = Table(title=Text(one_line(f"audit of {request.splits.forget}: for each of {found.n_models} models")))
    columns = {
        "task": [row.task for row in found.each],
        "items shown": [row.shown for row in found.each],
        "training steps": [row.steps for row in found.each],
        **({"passes, at most": [row.passes for row in found.each]} if found.n_passes else {}),
        "questions asked": [row.questions for row in found.each],
    }
    for head in columns:
        table.add_column(Text(head))
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(Text(one_line(str(cell), width=200)) for cell in cells))
    Console().print(table)
    for sentence in (*numbered(request.models), *found.untested, found.said):
        typer.echo(one_line(sentence, width=500))


def _audited(run: Path, request: "AuditRequest", *, workers: int | None, as_json: bool) -> None:
    from vestige.study.audit import run_audit
    from vestige.study.audit_request import numbered

    before = _audited_before(run, request.splits.forget)
    with output_in(run, fresh=False, made_by=_MADE_BY), progress_bar("audit") as show:
        found = run_audit(run, request, workers=workers, show=lambda s: show(s.share, s.at_work))
    for name, error in found.failed.items():
        say(f"failed: {one_line(name)}: {one_line(str(error), width=500)}")
    _tell(run, [found.outcome], found.failed, as_json=as_json)
    if not as_json:
        for line in numbered(request.models):
            typer.echo(one_line(line, width=500))
    gone = [name for name in before if name not in request.names("unlearned")]
    if gone:
        names, it = one_line(", ".join(gone), width=200), "it" if len(gone) == 1 else "them"
        say(f"the verdicts on {names}, of an earlier audit here, are replaced; give {it} again to keep {it}")
    if found.failed:
        raise PartialFailure(
            f"{len(found.failed)} of {found.n_tasks} tasks failed, so what rests on them is inconclusive; the same "
            "command tries them again"
        )
    _end([found.outcome])


def _audited_before(run: Path, forget: str) -> tuple[str, ...]:
    """The unlearned models of the last audit of the same forget set in this folder; its verdicts are replaced."""
    from vestige.artifacts.audits import read_outcome
    from vestige.artifacts.layout import RunFolder

    place = RunFolder(run).audit(forget)
    try:
        return read_outcome(place).unlearned if place.outcome.exists() else ()
    except InputError:
        return ()  # Another version's, which no report can show either: this audit makes it readable again.


def _rejudged(run: Path, changes: Mapping[str, object], *, as_json: bool) -> None:
    from vestige.artifacts.audits import read_plan
    from vestige.artifacts.layout import RunFolder
    from vestige.study.audit import rejudge

    outcomes = rejudge(run, changes)
    failed = [one for place in RunFolder(run).audits() for one in read_plan(place).failed]
    _tell(run, outcomes, {}, as_json=as_json)
    if failed:
        raise PartialFailure(
            f"of the audit that is judged again {len(failed)} tasks had failed, so what rests on them is inconclusive; "
            "run the audit again"
        )
    _end(outcomes)


def _tell(run: Path, outcomes: "Sequence[AuditOutcome]", failed: Mapping[str, Exception], *, as_json: bool) -> None:
    """Rebuild the report and print the verdicts."""
    from vestige.artifacts.verdicts import verdict_rows
    from vestige.report import build_report

    report = build_report(run)
    if as_json:
        untested = {o.forget: list(o.untested) for o in outcomes}
        reasons = {name: str(error) for name, error in failed.items()}
        found = {"report": str(report), "verdicts": verdict_rows(outcomes), "untested": untested, "failed": reasons}
        typer.echo(json.dumps(found, indent=2))
        return
    print_verdicts(outcomes)
    typer.echo(f"report: {report}")


def _end(outcomes: "Sequence[AuditOutcome]") -> None:
    verdicts = {v.outcome for o in outcomes for v in o.verdicts}
    if "fails" in verdicts:
        raise typer.Exit(FAILS)
    if "inconclusive" in verdicts:
        raise typer.Exit(OPEN)
