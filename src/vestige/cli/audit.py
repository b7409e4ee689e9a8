"""`vestige audit`: has a model forgotten? Five claims, each with a verdict, from any models on disk.

`vestige demo` shows the whole idea on PISTOL's sample dataset 1, in some minutes.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vestige.api import read_audit
from vestige.attacks import ATTACKS
from vestige.cli.command import Given, Part, command
from vestige.cli.options import (
    MODEL,
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
    corpus_from,
    reading,
    say_notes,
)
from vestige.cli.output import output_in, progress_bar, refuse_torchrun, say
from vestige.cli.tables import (
    print_json,
    print_table,
    print_verdicts,
)
from vestige.core.errors import InputError, PartialFailure
from vestige.core.text import one_line

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome
    from vestige.artifacts.verdicts import Earlier
    from vestige.auditing.request import AuditRequest

FAILS, OPEN = 3, 4
"""Exit codes: a claim fails; none fails, and one is inconclusive."""

# An audit may go into the folder where its models were trained and its data checked, as `init` plans it.
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
DEMO = Part("vestige.experiments.demo:DemoSettings", "Settings")
Quick = Annotated[
    bool,
    typer.Option(
        "--quick",
        help="A first look: five claims can fail, and two of them (not expressed, utility preserved) can pass.",
    ),
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
class ModelOptions:
    """The models of an audit in their roles."""

    target: Annotated[str | None, typer.Option(help="The target model: a Vestige folder, or any model.")] = None
    unlearned: Annotated[list[str] | None, typer.Option(help="An unlearned model; may be given several times.")] = None
    retrained: Annotated[
        list[str] | None,
        typer.Option(help="A model that never saw the forget set, once for each seed; five are advised."),
    ] = None
    suppressed: Annotated[
        str | None,
        typer.Option(help="Your positive control: a target that withholds what it knows. By default one is made."),
    ] = None


@dataclass(frozen=True)
class QuestionOptions:
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


@dataclass(frozen=True)
class PrintOptions:
    """How verdicts are printed."""

    why: Why = False
    as_json: AsJson = False

    def verdicts(self, run: Path, outcomes: "Sequence[AuditOutcome]", failed: Mapping[str, str]) -> None:
        """Print the verdicts, and where the report is."""
        from vestige.artifacts.layout import RunFolder
        from vestige.artifacts.verdicts import verdict_rows
        from vestige.report.contents import verbatim_of

        folder = RunFolder(run)
        report = folder.report
        if self.as_json:
            untested = {o.forget: list(o.untested) for o in outcomes}
            verbatim = {o.forget: verbatim_of(folder, folder.audit(o.forget)) for o in outcomes}
            read = {"verdicts": verdict_rows(outcomes), "untested": untested, "verbatim": verbatim}
            return print_json({"report": str(report), **read, "failed": dict(failed)})
        print_verdicts(outcomes, run, why=self.why, report=report)

    def earlier(
        self,
        run: Path,
        outcomes: "Sequence[AuditOutcome]",
        failed: Mapping[str, str],
        baseline: "Earlier | None" = None,
    ) -> None:
        """Print the verdicts of audits that were made before, and end as they do."""
        self.verdicts(run, outcomes, {})
        if failed:
            raise PartialFailure(
                f"{len(failed)} tasks of the audit had failed, so what rests on them is inconclusive; run the audit "
                "again"
            )
        end_with(outcomes, baseline)


@command(
    AUDIT,
    SOURCE,
    MODEL,
    common="target unlearned retrained data forget retain holdout output_dir quick plan why config",
)
def audit_command(
    *,
    models: ModelOptions,
    questions: QuestionOptions,
    output_dir: Annotated[
        Path | None, typer.Option(help="The run's folder: evidence, verdicts, report. The same command resumes.")
    ] = None,
    attacks: Annotated[
        str | None,
        typer.Option(help="Only these, comma-separated, such as relearn,ablate (`vestige list attacks`)."),
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
            "ROLE:NAME=FILE with target, retrained or unlearned, a table of scores, or `example`; may be "
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
    seal: Annotated[
        bool,
        typer.Option(
            "--seal",
            help="With --plan: write plan and margins with a digest into --output-dir, before models are asked.",
        ),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="An earlier run's folder or verdicts.json: the exit code is 0 unless a verdict is worse than there."
        ),
    ] = None,
    workers: Workers = None,
    seed: Seed = 0,
    verify: Verify = False,
    printing: PrintOptions,
    typed: Given,
) -> None:
    """Test whether each UNLEARNED model has forgotten, with evidence: six claims, a verdict on each.

    Every model is queried in several formats, attacked in the same way (relearning, rounded weights, facts in the
    prompt, prefilled and sampled answers; with --attacks also searched prompts), and compared with RETRAINED models,
    which never saw the forget set. An attack that finds nothing counts only if it recovers half of what a positive
    control hides: SUPPRESSED, or else a target trained to refuse.

    Exit code 0: every claim passes. 3: a claim fails. 4: none fails, one is inconclusive. 5: a task failed.
    """
    refuse_torchrun("audit")
    from vestige.artifacts.verdicts import read_baseline

    typed.refuse_others()
    if baseline is not None and (rejudge is not None or plan or dry_run):
        raise InputError(
            "--baseline compares new verdicts with earlier ones, so it goes with models or --logs, and not with "
            "--rejudge, --plan or --dry-run"
        )
    # Before the audit, which may write into the same folder.
    earlier = None if baseline is None else read_baseline(baseline)
    if rejudge is not None:
        return _rejudge(rejudge, typed, models, printing, attacks=attacks, quick=quick)
    if logs:
        if any((*vars(models).values(), *(v for k, v in vars(questions).items() if k != "forget"))) or any(
            (attacks, quick, plan, verify)
        ):
            raise InputError(
                "--logs judges what was logged and asks no model; only --forget, --output-dir and margins go with it"
            )
        return _judge_logs(
            logs, typed, questions.forget, output_dir, printing, controls=controls, dry_run=dry_run, baseline=earlier
        )
    if controls:
        raise InputError("--controls takes controls from public logs, which go with --logs; give --retrained")
    if seal and not plan:
        raise InputError("--seal writes what --plan prints; give both, and the models, then run the audit")
    options = (attacks, quick, plan, dry_run, verify, *vars(models).values(), *vars(questions).values(), *typed.values)
    if printing.why and output_dir is not None and not any(options):
        shown = read_audit(output_dir)
        return printing.earlier(output_dir, shown.outcomes, shown.failed, earlier)
    # What is sealed is a plan for models by name, and it lies in the folder of the run.
    _refuse_missing(models, questions, output_dir, only_planned=plan and not seal)
    # Only a plan that is printed gets here without a folder, and that writes nothing.
    run = output_dir or Path()
    request = _request(typed, models, questions, attacks, quick=quick, seed=seed, verify=verify)
    if plan:
        print_plan(request, as_json=printing.as_json)
        return _seal(run, request) if seal else None
    if dry_run:
        return _print_forecast(run, request, as_json=printing.as_json)
    _audit(run, request, printing, workers=workers, baseline=earlier)


def _refuse_missing(
    models: ModelOptions, questions: QuestionOptions, output_dir: Path | None, *, only_planned: bool
) -> None:
    """Refuse at once all that an audit lacks; what is only planned writes nothing, and its models need not be there."""
    needed: dict[str, object] = {
        "--data (or a file with --retain)": questions.data or questions.retain,
        "--forget": questions.forget,
    }
    needed |= {} if only_planned else {"--target": models.target, "--output-dir": output_dir}
    if missing := [option for option, value in needed.items() if not value]:
        are = "is" if len(missing) == 1 else "are"
        raise InputError(f"{', '.join(missing)} {are} missing; `vestige audit --help` says what an audit needs")


def _request(
    typed: Given,
    models: ModelOptions,
    questions: QuestionOptions,
    attacks: str | None,
    *,
    quick: bool,
    **how: Any,
) -> "AuditRequest":
    """What is asked of the audit; prints what was noted on the data."""
    from vestige import requests
    from vestige.auditing.request import named_models
    from vestige.auditing.settings import AuditSettings
    from vestige.data.loaders import pack_named
    from vestige.models.address import shown_address

    # Settings first: they are wrong more often than data, and cost nothing to check.
    settings, untested = requests.audit_settings(
        typed.of(AuditSettings), attacks=attacks, quick=quick, suppressed=models.suppressed is not None
    )
    # Of a plan the target need not be named.
    audited = named_models(models.target or "target", models.unlearned or [], models.retrained or [], models.suppressed)
    forget, data = questions.forget or "", questions.data or questions.retain or ""
    files = {name: value for name, value in vars(questions).items() if name not in ("data", "forget")}
    request = requests.audit(
        audited, corpus_from(typed, data), forget, settings, reading(typed), untested=untested, **files, **how
    )
    say_notes(request.splits)
    pack = pack_named(data)
    if request.published is None and questions.published is None and pack is not None and pack.published:
        say(
            f"the pack has no figures of {one_line(shown_address(audited[0].model))} to compare with; it has those of "
            f"{', '.join(row.model for row in pack.published)}"
        )
    return request


def _seal(run: Path, request: "AuditRequest") -> None:
    from vestige.auditing.run import seal_plan

    with output_in(run, fresh=False, made_by=_MADE_BY):
        sealed = seal_plan(run, request)
    say(f"sealed in {run}: {sealed.digest}; give this digest now to whoever is to trust it, then run the same audit")


def _judge_logs(
    logs: Sequence[str],
    typed: Given,
    forget: str | None,
    output_dir: Path | None,
    printing: PrintOptions,
    *,
    controls: Sequence[str] | None,
    dry_run: bool,
    baseline: "Earlier | None",
) -> None:
    from vestige.artifacts.layout import RunFolder
    from vestige.auditing.settings import AuditSettings
    from vestige.cli.logs import OUTPUT, judge_taken, show, take, with_bank

    taken = with_bank(take(logs, forget), controls or ())
    if dry_run:
        return show(taken)
    run, margins = RunFolder(output_dir or OUTPUT), typed.of(AuditSettings)
    whole = printing.verdicts if printing.as_json or printing.why else None
    shows = not printing.as_json
    outcomes = judge_taken(taken, run, forget=forget, margins=margins, shows=shows, print_whole=whole)
    end_with(outcomes, baseline)


@command(DEMO)
def demo_command(
    output_dir: Annotated[Path, typer.Option(help="The run's folder.")] = Path("runs/demo"),
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, with one thread each; at most 4 by default.")
    ] = None,
    fresh: Fresh = False,
    *,
    printing: PrintOptions,
    typed: Given,
) -> None:
    """Compile, train, unlearn, audit and report: PISTOL's sample dataset 1 on the built-in tiny model.

    Ctrl-C leaves a run that the same command resumes. Ends with 0 whatever was forecast.
    """
    refuse_torchrun("demo")
    from vestige.artifacts.layout import RunFolder
    from vestige.artifacts.records import read_summaries, result_rows
    from vestige.artifacts.verdicts import verdict_rows
    from vestige.experiments.demo import DemoSettings, run_demo
    from vestige.report import build_report

    typed.refuse_others()
    settings = typed.build(DemoSettings)
    run = RunFolder(output_dir)
    with output_in(output_dir, fresh=fresh, made_by=("run.toml",)):
        with progress_bar("demo") as show:
            end = run_demo(run, settings, workers=workers or min(4, os.cpu_count() or 1), show=show)
        _say_failed(end.failed)
        # A report of no model would be refused with exit code 2, as if the command had been wrong.
        if not any(run.subjects()):
            raise PartialFailure("nothing could be made; see above")
        report = build_report(output_dir)
        if printing.as_json:
            results = result_rows(summary for _, summary in read_summaries(run))
            print_json({"report": str(report), "results": results, "verdicts": verdict_rows(end.outcomes)})
        else:
            print_verdicts(end.outcomes, output_dir, why=printing.why, report=report)
        if end.failed:
            raise PartialFailure(f"{len(end.failed)} of {end.n_tasks} tasks failed; the same command tries them again")


def _print_forecast(run: Path, request: "AuditRequest", *, as_json: bool) -> None:
    from vestige.auditing.forecast import forecast_audit
    from vestige.auditing.request import check_request, numbered

    check_request(request)
    forecast = forecast_audit(run, request)
    if as_json:
        return print_json(forecast.as_json())
    # Passes are of searches for prompts alone, which most audits do not make.
    heads = {"task": "task", "shown": "items shown", "steps": "training steps"}
    heads |= {"passes": "passes, at most"} if forecast.n_passes else {}
    heads["questions"] = "questions asked"
    rows = [[str(getattr(row, name)) for name in heads] for row in forecast.each]
    print_table(f"audit of {request.splits.forget}: for each of {forecast.n_models} models", list(heads.values()), rows)
    first = (f"published figures: {forecast.published} questions to the target",) if forecast.published else ()
    for sentence in (*first, *numbered(request.models), *forecast.untested, forecast.said):
        typer.echo(one_line(sentence, width=500))


def _audit(
    run: Path, request: "AuditRequest", printing: PrintOptions, *, workers: int | None, baseline: "Earlier | None"
) -> None:
    from vestige.artifacts.verdicts import comparable
    from vestige.auditing.judge import VERSION
    from vestige.auditing.request import numbered
    from vestige.auditing.run import run_audit
    from vestige.metrics.verdicts import Thresholds
    from vestige.report import build_report

    if baseline is not None:
        # Before hours of asking: verdicts at other margins or by other rules could not be held against it.
        margins = {name: getattr(request.settings, name) for name in Thresholds.model_fields}
        comparable(baseline, request.splits.forget, margins, VERSION)
    # Read now, since the audit replaces it.
    before = _audited_before(run, request.splits.forget)
    with output_in(run, fresh=False, made_by=_MADE_BY), progress_bar("audit") as show:
        audited = run_audit(run, request, workers=workers, show=show)
    failed = {name: str(error) for name, error in audited.failed.items()}
    _say_failed(failed)
    build_report(run)
    # Which folder each numbered name stands for: on stdout, beside the verdicts that use the names.
    if not printing.as_json:
        for line in (*numbered(request.models), *request.untested):
            typer.echo(one_line(line, width=500))
    printing.verdicts(run, [audited.outcome], failed)
    gone = [name for name in before if name not in request.names("unlearned")]
    if gone:
        names, it = one_line(", ".join(gone), width=200), "it" if len(gone) == 1 else "them"
        say(f"the verdicts on {names}, of an earlier audit here, are replaced; give {it} again to keep {it}")
    if failed:
        raise PartialFailure(
            f"{len(failed)} of {audited.n_tasks} tasks failed, so what rests on them is inconclusive; the same "
            "command tries them again"
        )
    end_with([audited.outcome], baseline)


def _say_failed(failed: Mapping[str, object]) -> None:
    for name, why in failed.items():
        say(f"failed: {one_line(name)}: {one_line(str(why), width=500)}")


def _audited_before(run: Path, forget: str) -> tuple[str, ...]:
    """The unlearned models of the last audit of the same forget set in this folder; its verdicts are replaced."""
    from vestige.artifacts.audits import read_outcome
    from vestige.artifacts.layout import RunFolder

    folder = RunFolder(run).audit(forget)
    try:
        return read_outcome(folder).unlearned if folder.outcome.exists() else ()
    except InputError:
        return ()  # Another version's, which no report can show either: this audit makes it readable again.


def _rejudge(
    run: Path, typed: Given, models: ModelOptions, printing: PrintOptions, *, attacks: str | None, quick: bool
) -> None:
    from vestige.api import rejudge
    from vestige.auditing.settings import AuditSettings

    if any(vars(models).values()):
        raise InputError("--rejudge reads what a finished audit left and asks no model; leave the models out")
    if attacks or quick:
        raise InputError("--rejudge judges the attacks that were made; leave --attacks and --quick out")
    audit = rejudge(run, **typed.of(AuditSettings))
    audit.report()
    printing.earlier(run, audit.outcomes, audit.failed)


def end_with(outcomes: "Sequence[AuditOutcome]", baseline: "Earlier | None" = None) -> None:
    """End with the exit code of the verdicts; with a `baseline` of those that are worse than there, which are named."""
    from vestige.artifacts.verdicts import regressions, verdict_rows

    rows: Sequence[Mapping[str, Any]] = verdict_rows(outcomes)
    if baseline is not None:
        worse = regressions(rows, baseline)
        for row, was in worse:
            subject = one_line(row["subject"], width=60)
            say(f"worse than the baseline: {subject}, {row['claim']}: {was} -> {row['verdict']}")
        say(f"{len(worse)} of {len(rows)} verdicts are worse than the baseline's")
        # A baseline may hold other forget sets too, and of these nothing was asked here.
        gone = {name for forget, name, _ in baseline if forget in {row["forget"] for row in rows}}
        gone -= {row["subject"] for row in rows}
        # A single model is the same one under another name (`regressions`), and not gone.
        if gone and len(gone) < len({name for _, name, _ in baseline}):
            say(f"audited in the baseline and not here: {', '.join(one_line(n, width=60) for n in sorted(gone))}")
        rows = [row for row, _ in worse]
    verdicts = {row["verdict"] for row in rows}
    if "fail" in verdicts:
        raise typer.Exit(FAILS)
    if "inconclusive" in verdicts:
        raise typer.Exit(OPEN)


def print_plan(request: "AuditRequest", *, as_json: bool) -> None:
    """Print what an audit can decide, for people or as one JSON document."""
    from vestige.auditing.forecast import foresee_audit

    foreseen, forget = foresee_audit(request), request.splits.forget
    if as_json:
        return print_json(foreseen)
    rows = []
    for name, quantities, shares in (
        *((c.claim, str(c.quantities), (c.holds, c.unsteady)) for c in foreseen.claims),
        ("all of them", "", (foreseen.holds, foreseen.unsteady)),
    ):
        # All of them cannot pass where one of them cannot.
        never = foreseen.cannot_hold and name in ("all of them", *foreseen.cannot_hold)
        rows.append([name, quantities, *("cannot pass" if never else _percent(share) for share in shares)])
    first = next(line for line in foreseen.claims if line.claim == "not expressed")
    of = "of what the target knows, in one form of question"
    leaks = [f"{_percent(first.leakage)} {of}"] if first.leakage is not None else []
    leaks += [f"{first.bits:.0f} bits an answer"] if first.bits is not None else []
    controls = ", ".join(f"{m}: {_percent(share)}" for m, share in foreseen.by_controls.items())
    margins, bits = foreseen.margins, foreseen.margins_bits
    wordings = f"{foreseen.wordings:.2g} wording{'' if foreseen.wordings == 1 else 's'}"
    lines = [
        f"plan for {one_line(forget, width=60)}: {foreseen.facts} facts in {wordings} each, {foreseen.controls} "
        f"controls, {len(foreseen.formats)} forms of question, {foreseen.attacks} attacks",
        f"a claim fails where a leak is shown to exceed {_percent(margins.narrow)} ({bits.narrow:g} bits an answer), "
        f"and passes where all are shown to be below {_percent(margins.wide)} ({bits.wide:g} bits); where the target "
        "knows more than 30 bits of an answer, those in bits are the same shares of these",
    ]
    after = [
        "the least leak that 80 % of such audits would show: "
        f"{', or '.join(leaks) or 'none, if it is in one form of question alone'}",
        "single facts cannot be tested, which takes three controls"
        if foreseen.given_away is None
        else f"facts given away that no control gives away, of which so many fail a claim alone: {foreseen.given_away}",
        "" if foreseen.cannot_hold else f"all of these claims pass, by number of controls: {controls}",
        f"to bring this to 80 %, one of these: {foreseen.needed}" if foreseen.needed else "",
        f"without any control, {foreseen.ranked} facts are ranked among alternatives: not expressed would pass in "
        f"{_percent(foreseen.ranked_holds)} of audits, and what is left be known to {_percent(foreseen.ranked_arm)}"
        if foreseen.ranked_holds is not None and foreseen.ranked_arm is not None
        else "",
        "not foreseen: utility preserved, which compares two models that are there, and not stored",
        "assumed: trainings vary as those of the built-in tiny model, most of which prefer the same options: where "
        "each prefers others, multiple choice decides less (docs/verdicts.md); an audit says it of its own",
    ]
    typer.echo("\n".join(lines))
    heads = ["claim", "numbers tested", "a perfect unlearning passes in", "if seeds vary more"]
    print_table("", heads, rows)
    for sentence in (*filter(None, after), *foreseen.untested):
        typer.echo(one_line(sentence, width=500))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
