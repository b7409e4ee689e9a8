"""`vestige audit`: has a model forgotten? Five claims, each with a verdict, from any models on disk.

`vestige demo` shows the whole idea on PISTOL's sample dataset 1, in some minutes.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.api import read_audit
from vestige.attacks import ATTACKS
from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
    SAMPLES,
    SOURCE,
    Alternatives,
    AsJson,
    DryRun,
    Fresh,
    PublishedAs,
    Retain,
    Seed,
    Verify,
    Workers,
    model_from,
    say_notes,
    source_from,
)
from vestige.cli.output import output_in, progress_bar, refuse_torchrun, say
from vestige.cli.tables import print_comparison, print_json, print_table, print_verdicts
from vestige.core.errors import InputError, PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome
    from vestige.artifacts.layout import RunFolder
    from vestige.auditing.request import AuditedModel, AuditRequest
    from vestige.auditing.settings import AuditSettings
    from vestige.data.corpus import NamedSplits
    from vestige.studies.demo import DemoEnd

FAILS, OPEN = 3, 4
"""Exit codes: a claim fails; none fails, and one is inconclusive."""

_MADE_BY = ("run.toml", "models/*/spec.json", "cells/*/spec.json", "soundness.json", "data/manifest.json")

AUDIT = Part(
    "vestige.auditing.settings:AuditSettings",
    "Questions",
    first=("delta", "delta_wide", "delta_bits", "delta_wide_bits", "evals", "forms", "options", "max_new_tokens"),
    panels={
        **dict.fromkeys(("delta", "admission", "saturation", "scope", "seed_"), "Margins"),
        **dict.fromkeys((*ATTACKS, "prompt_", "further"), "Attacks"),
        "suppress": "Positive control",
        "judge": "Judge of leaks",
    },
    # --alternatives is the file of them.
    spelled={"alternatives": "most_alternatives"},
)
DEMO = Part("vestige.studies.demo:DemoSettings", "Settings")
Quick = Annotated[
    bool,
    typer.Option("--quick", help="The smallest audit that decides something: claims can fail, and only two can hold."),
]
Why = Annotated[
    bool,
    typer.Option(
        "--why",
        help="Print the reasons for each verdict, and what was not tested; with --output-dir alone, of the verdicts "
        "there, and no model is asked.",
    ),
]


@dataclass(frozen=True)
class Models:
    """The models of an audit in their roles."""

    target: Annotated[str | None, typer.Option(help="The target model: a Vestige folder, or any model.")] = None
    unlearned: Annotated[list[str] | None, typer.Option(help="An unlearned model; may be given several times.")] = None
    retrained: Annotated[
        list[str] | None,
        typer.Option(help="A model that never saw the forget set, once for each seed; three are advised."),
    ] = None
    suppressed: Annotated[
        str | None,
        typer.Option(help="Your positive control: a target that withholds what it knows. By default one is made."),
    ] = None

    def named(self) -> "tuple[AuditedModel, ...]":
        """All of them with names of their own; the target comes first."""
        from vestige.auditing.request import named_models

        target = _given("--target", self.target)
        return named_models(target, self.unlearned or [], self.retrained or [], self.suppressed)


@dataclass(frozen=True)
class Questions:
    """What the models are asked about."""

    data: Annotated[
        str | None,
        typer.Option(
            help="A compiled folder, a file, or a hub dataset id; not needed with --forget and --retain files."
        ),
    ] = None
    forget: Annotated[str | None, typer.Option(help="A file of items or selectors (edge:A_B, node:A, ...).")] = None
    retain: Retain = None
    holdout: Annotated[
        str | None, typer.Option(help="File of items that no model was taught; compiled data has its own.")
    ] = None
    alternatives: Alternatives = None
    published: PublishedAs = None

    def splits(self, given: Given, models: "Sequence[AuditedModel]", settings: "AuditSettings") -> "NamedSplits":
        """The items in their splits; prints what was noted on them."""
        from vestige.data.corpus import open_corpus
        from vestige.requests import audit_questions

        source = source_from(given, self.data or _given("--data, or a file with --retain,", self.retain))
        corpus, forget = open_corpus(source), _given("--forget", self.forget)
        names = [m.model for m in models]
        return say_notes(audit_questions(corpus, forget, names, settings, self.retain, self.holdout, self.alternatives))


@command(AUDIT, SOURCE, MODEL)
def audit_command(
    *,
    models: Models,
    questions: Questions,
    output_dir: Annotated[
        Path | None, typer.Option(help="The run's folder: evidence, verdicts, report. The same command resumes.")
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(help="Only these, comma-separated: relearn, quantize, in-context, gcg, prefix, or another."),
    ] = None,
    quick: Quick = False,
    rejudge: Annotated[
        Path | None, typer.Option(help="Judge this run's audits again with other margins; queries no model.")
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[ROLE:NAME=]FILE",
            help="Judge by logs that other tools left, without a model: a folder (OpenUnlearning's saves/), "
            "ROLE:NAME=FILE with target, retrained or unlearned, a TOML list, a table of scores, or `example`; may be "
            "given several times.",
        ),
    ] = None,
    controls: Annotated[
        list[str] | None,
        typer.Option(
            metavar="bank:KEY:FOLDER",
            help="With --logs: models that never knew from public logs, as in bank:tofu/llama-3.2-3b/forget01:FOLDER "
            "(`vestige list controls`); FOLDER is a clone of their repository.",
        ),
    ] = None,
    dry_run: DryRun = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Print what these facts, controls and attacks can decide; the models need not exist."
        ),
    ] = False,
    why: Why = False,
    workers: Workers = None,
    seed: Seed = 0,
    verify: Verify = False,
    as_json: AsJson = False,
    given: Given,
) -> None:
    """Test whether each UNLEARNED model has forgotten, with evidence: five claims, a verdict on each.

    Every model is queried in several formats, attacked in the same way (relearning, rounded weights, facts in the
    prompt, prefilled and sampled answers; with --attacks also searched prompts), and compared with RETRAINED models,
    which never saw the forget set. A failed attack counts only if it recovers what a positive control withholds:
    SUPPRESSED, or else a target trained to refuse.

    Exit code 0: every claim holds. 3: a claim fails. 4: none fails, one is inconclusive. 5: a task failed.
    """
    refuse_torchrun("audit")
    given.refuse_others()
    if rejudge is not None:
        return _rejudged(rejudge, given, models, attacks, quick=quick, as_json=as_json, why=why)
    if logs:
        return _judged_logs(
            logs,
            given,
            models,
            questions,
            output_dir,
            (attacks, quick, plan, verify),
            controls=controls or (),
            dry_run=dry_run,
            as_json=as_json,
            why=why,
        )
    if controls:
        raise InputError("--controls takes controls from public logs, which go with --logs; give --retrained")
    others = (attacks, quick, plan, dry_run, verify, *vars(models).values(), *vars(questions).values(), *given.values)
    if why and output_dir is not None and not any(others):
        found = read_audit(output_dir)
        return _told(output_dir, found.outcomes, found.failed, as_json=as_json, why=True)
    if plan:
        # Nothing is written, and of the models only the number of controls counts.
        output_dir, models = output_dir or Path(), replace(models, target=models.target or "target")
    run = Path(_given("--output-dir", None if output_dir is None else str(output_dir)))
    settings, untested = _settings(attacks, given, models, quick=quick)
    request = _requested(models.named(), questions, given, settings, seed=seed, verify=verify, untested=untested)
    if plan:
        return print_plan(request, as_json=as_json)
    if dry_run:
        return _foretell(run, request, as_json=as_json)
    _audited(run, request, workers=workers, as_json=as_json, why=why)


def _judged_logs(
    logs: Sequence[str],
    given: Given,
    models: Models,
    questions: Questions,
    output_dir: Path | None,
    others: Sequence[object],
    *,
    controls: Sequence[str],
    dry_run: bool,
    as_json: bool,
    why: bool,
) -> None:
    from vestige.artifacts.layout import RunFolder
    from vestige.auditing.settings import AuditSettings
    from vestige.cli.logs import OUTPUT, judge_taken, show, take, with_bank

    about = (value for name, value in vars(questions).items() if name != "forget")
    if any((*vars(models).values(), *about, *others)):
        raise InputError(
            "--logs judges what was logged and asks no model; only --forget, --output-dir and margins go with it"
        )
    taken = with_bank(take(logs, questions.forget), controls)
    if dry_run:
        return show(taken)
    run = RunFolder(output_dir or OUTPUT)
    margins = given.of(AuditSettings)
    _end(judge_taken(taken, run, forget=questions.forget, margins=margins, as_json=as_json, why=why))


def _requested(
    models: "tuple[AuditedModel, ...]", questions: Questions, given: Given, settings: "AuditSettings", **own: Any
) -> "AuditRequest":
    from vestige.auditing.request import AuditRequest
    from vestige.data.loaders import pack_named, published_of
    from vestige.models.address import shown_address

    splits, read = questions.splits(given, models, settings), model_from(given, models[0].model)
    told = published_of(questions.data or "", models[0].model, questions.published)
    pack = pack_named(questions.data or "")
    if told is None and questions.published is None and pack is not None and pack.published:
        known = ", ".join(row.model for row in pack.published)
        say(
            f"the pack has no figures of {one_line(shown_address(models[0].model))} to compare with; it has those of "
            f"{known}"
        )
    how = read.model_dump(include={"device", "dtype", "trust_remote_code", "chat_template"})
    return AuditRequest(models=models, splits=splits, settings=settings, published=told, **how, **own)


@command(DEMO)
def demo_command(
    output_dir: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, with one thread each; at most 4 by default.")
    ] = None,
    why: Why = False,
    fresh: Fresh = False,
    as_json: AsJson = False,
    *,
    given: Given,
) -> None:
    """Compile, train, unlearn, audit and report: PISTOL's sample dataset 1 on the built-in tiny model.

    Ctrl-C leaves a run that the same command resumes. Ends with 0 whatever was found.
    """
    refuse_torchrun("demo")
    from vestige.artifacts.layout import RunFolder
    from vestige.studies.demo import DemoSettings, run_demo

    given.refuse_others()
    settings = given.build(DemoSettings)
    run = RunFolder(output_dir)
    with output_in(output_dir, fresh=fresh, made_by=("run.toml",)):
        with progress_bar("demo") as show:
            end = run_demo(run, settings, workers=workers or min(4, os.cpu_count() or 1), show=show)
        _tell_demo(run, end, as_json=as_json, why=why)


def _given(option: str, value: str | None) -> str:
    if not value:
        raise InputError(f"{option} is missing; `vestige audit --help` says what an audit needs")
    return value


def _settings(
    attacks: str | None, given: Given, models: Models, *, quick: bool
) -> "tuple[AuditSettings, tuple[str, ...]]":
    """The settings, and what a quick audit cannot decide.

    With `attacks` those alone are made that it names: each as set, or by default, or on `SAMPLES` items.
    """
    from vestige.attacks import known_attacks
    from vestige.auditing.settings import QUICK, AuditSettings, check_quick
    from vestige.core.text import closest

    if quick:
        others = {"--attacks": attacks, "--suppressed": models.suppressed}
        return given.build(AuditSettings, QUICK), check_quick([*given.of(AuditSettings), *filter(others.get, others)])
    settings = given.build(AuditSettings)
    if attacks is None:
        return settings, ()
    named = [name.strip().replace("-", "_") for name in attacks.split(",")]
    unknown = next((name for name in named if name not in known_attacks()), None)
    if unknown is not None:
        raise InputError(f"--attacks names {one_line(unknown)!r}; {closest(unknown, list(known_attacks()))}")
    counted = [name for name in ATTACKS if name in AuditSettings.model_fields]
    unasked = next((name for name in given.of(AuditSettings) if name in counted and name not in named), None)
    if unasked is not None:
        raise InputError(f"{given.shown.get(unasked, unasked)} is of an attack that --attacks leaves out; add it there")
    unnamed = next((one for one in settings.further if one.split()[0] not in named), None)
    if unnamed is not None:
        raise InputError(f"--further {one_line(unnamed)!r} is of an attack that --attacks leaves out; add it there")
    values, defaults = settings.model_dump(), type(settings)().model_dump()
    sizes = {name: (values[name] or defaults[name] or (SAMPLES,)) if name in named else () for name in counted}
    asked = [one.split()[0] for one in settings.further]
    more = [name for name in named if name not in counted and name not in asked]
    return settings.build({**values, **sizes, "further": (*settings.further, *more)}, where="settings of the audit"), ()


def _foretell(run: Path, request: "AuditRequest", *, as_json: bool) -> None:
    from vestige.auditing.forecast import forecast_audit
    from vestige.auditing.request import check_request, numbered

    check_request(request)
    found = forecast_audit(run, request)
    if as_json:
        return print_json(found.as_json())
    columns = {
        "task": [row.task for row in found.each],
        "items shown": [row.shown for row in found.each],
        "training steps": [row.steps for row in found.each],
        **({"passes, at most": [row.passes for row in found.each]} if found.n_passes else {}),
        "questions asked": [row.questions for row in found.each],
    }
    title = f"audit of {request.splits.forget}: for each of {found.n_models} models"
    print_table(title, list(columns), [[str(cell) for cell in row] for row in zip(*columns.values(), strict=True)])
    first = (f"published figures: {found.published} questions to the target",) if found.published else ()
    for sentence in (*first, *numbered(request.models), *found.untested, found.said):
        typer.echo(one_line(sentence, width=500))


def _audited(run: Path, request: "AuditRequest", *, workers: int | None, as_json: bool, why: bool) -> None:
    from vestige.auditing.request import numbered
    from vestige.auditing.run import run_audit
    from vestige.report import build_report

    before = _audited_before(run, request.splits.forget)
    with output_in(run, fresh=False, made_by=_MADE_BY), progress_bar("audit") as show:
        found = run_audit(run, request, workers=workers, show=lambda s: show(s.share, s.at_work))
    failed = {name: str(error) for name, error in found.failed.items()}
    _say_failed(failed)
    build_report(run)
    _tell(run, [found.outcome], failed, as_json=as_json, why=why)
    if not as_json:
        for line in (*numbered(request.models), *request.untested):
            typer.echo(one_line(line, width=500))
    gone = [name for name in before if name not in request.names("unlearned")]
    if gone:
        names, it = one_line(", ".join(gone), width=200), "it" if len(gone) == 1 else "them"
        say(f"the verdicts on {names}, of an earlier audit here, are replaced; give {it} again to keep {it}")
    if failed:
        raise PartialFailure(
            f"{len(failed)} of {found.n_tasks} tasks failed, so what rests on them is inconclusive; the same "
            "command tries them again"
        )
    _end([found.outcome])


def _say_failed(failed: Mapping[str, object]) -> None:
    for name, why in failed.items():
        say(f"failed: {one_line(name)}: {one_line(str(why), width=500)}")


def _audited_before(run: Path, forget: str) -> tuple[str, ...]:
    """The unlearned models of the last audit of the same forget set in this folder; its verdicts are replaced."""
    from vestige.artifacts.audits import read_outcome
    from vestige.artifacts.layout import RunFolder

    place = RunFolder(run).audit(forget)
    try:
        return read_outcome(place).unlearned if place.outcome.exists() else ()
    except InputError:
        return ()  # Another version's, which no report can show either: this audit makes it readable again.


def _rejudged(
    run: Path, given: Given, models: Models, attacks: str | None, *, quick: bool, as_json: bool, why: bool
) -> None:
    from vestige.auditing.run import rejudge
    from vestige.auditing.settings import AuditSettings
    from vestige.report import build_report

    if any(vars(models).values()):
        raise InputError("--rejudge reads what a finished audit left and asks no model; leave the models out")
    if attacks or quick:
        raise InputError("--rejudge judges the attacks that were made; leave --attacks and --quick out")
    outcomes = rejudge(run, given.of(AuditSettings))
    build_report(run)
    _told(run, outcomes, read_audit(run).failed, as_json=as_json, why=why)


def _told(run: Path, outcomes: "Sequence[AuditOutcome]", failed: Mapping[str, str], **how: bool) -> None:
    """Print the verdicts of audits that were made before, and end as they do."""
    _tell(run, outcomes, {}, **how)
    if failed:
        raise PartialFailure(
            f"{len(failed)} tasks of the audit had failed, so what rests on them is inconclusive; run the audit again"
        )
    _end(outcomes)


def _tell(
    run: Path, outcomes: "Sequence[AuditOutcome]", failed: Mapping[str, str], *, as_json: bool, why: bool
) -> None:
    """Print the verdicts, and where the report is."""
    from vestige.artifacts.layout import RunFolder
    from vestige.artifacts.verdicts import verdict_rows

    report = RunFolder(run).report
    if as_json:
        untested = {o.forget: list(o.untested) for o in outcomes}
        found = {"report": str(report), "verdicts": verdict_rows(outcomes), "untested": untested, "failed": failed}
        return print_json(found)
    print_verdicts(outcomes, run, why=why)
    typer.echo(f"report: {report}")


def _end(outcomes: "Sequence[AuditOutcome]") -> None:
    verdicts = {v.outcome for o in outcomes for v in o.verdicts}
    if "fails" in verdicts:
        raise typer.Exit(FAILS)
    if "inconclusive" in verdicts:
        raise typer.Exit(OPEN)


def print_plan(request: "AuditRequest", *, as_json: bool) -> None:
    """Print what an audit can decide, for people or as one JSON document."""
    from vestige.auditing.forecast import foresee_audit

    found, forget = foresee_audit(request), request.splits.forget
    if as_json:
        return print_json(found)
    held = [
        (str(c.claim), str(c.quantities), c.claim in found.cannot_hold, (c.holds, c.unsteady)) for c in found.claims
    ]
    held.append(("all of them", "", bool(found.cannot_hold), (found.holds, found.unsteady)))
    rows = [[what, n, *("cannot hold" if never else _percent(x) for x in xs)] for what, n, never, xs in held]
    first = next(line for line in found.claims if line.claim == "not expressed")
    seen = [f"{first.leakage:.2f} of what the target knows, in one format"] if first.leakage is not None else []
    seen += [f"{first.bits:.0f} bits an answer"] if first.bits is not None else []
    controls = ", ".join(f"{m}: {_percent(share)}" for m, share in found.by_controls.items())
    lines = [
        f"plan for {one_line(forget, width=60)}: {found.facts} facts, {found.wordings:.2g} wordings each, "
        f"{found.controls} controls, {len(found.formats)} formats, {found.attacks} attacks",
        f"margins: fails above {found.margins.narrow:g} ({found.margins_bits.narrow:g} bits), holds below "
        f"{found.margins.wide:g} ({found.margins_bits.wide:g} bits)",
    ]
    after = [
        f"seen in 80 % of audits: {' or '.join(seen) or 'no leakage in one format alone'}",
        "too few controls to test single facts, which takes 3"
        if found.given_away is None
        else f"{found.given_away} single facts given away, clear of all controls, fail a claim whatever the mean is",
        "" if found.cannot_hold else f"all of them hold by number of controls: {controls}",
        f"for 80 %: {found.needed}" if found.needed else "",
        f"without any control, {found.ranked} facts are ranked among alternatives: not expressed would hold in "
        f"{_percent(found.ranked_holds)}, with leakage known to within {found.ranked_arm:.2f}"
        if found.ranked_holds is not None
        else "",
        "assumed: trainings vary as those of the built-in tiny model, most of which prefer the same options: where "
        "each prefers others, multiple choice decides less (docs/verdicts.md); an audit says it of its own",
    ]
    typer.echo("\n".join(lines))
    print_table("", ["claim", "quantities", "a perfect unlearning holds", "with unsteady seeds"], rows)
    for sentence in (*filter(None, after), *found.untested):
        typer.echo(one_line(sentence, width=500))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _tell_demo(run: "RunFolder", end: "DemoEnd", *, as_json: bool, why: bool) -> None:
    """Build the report and print what was found; raises PartialFailure where a task failed."""
    from vestige.artifacts.records import read_summaries, result_rows
    from vestige.artifacts.verdicts import verdict_rows

    _say_failed(end.failed)
    if not any(run.subjects()):
        raise PartialFailure("nothing could be made; see above")

    from vestige.report import build_report

    report = build_report(run.path)
    summaries = [summary for _, summary in read_summaries(run)]
    if as_json:
        verdicts = verdict_rows(end.outcomes)
        print_json({"report": str(report), "results": result_rows(summaries), "verdicts": verdicts})
    else:
        print_comparison(summaries)
        print_verdicts(end.outcomes, run.path, why=why)
        typer.echo(f"report: {report}")
    if end.failed:
        raise PartialFailure(f"{len(end.failed)} of {end.n_tasks} tasks failed; the same command tries them again")
