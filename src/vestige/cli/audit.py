"""`vestige audit`: verdicts on models or logs. `vestige demo`: a complete run in a few minutes."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vestige import api
from vestige.api.inputs import PathLikeStr
from vestige.artifacts.layout import RunFolder
from vestige.attacks import ATTACKS
from vestige.cli.command import Call, Part, command
from vestige.cli.data import SOURCE
from vestige.cli.logs import OUTPUT, Taken, judge_taken, left_out_of, show, take, with_bank
from vestige.core.errors import InputError, PartialFailure
from vestige.core.progress import progress_bar, say
from vestige.core.text import Record, TextTuple, closest, listed, one_line
from vestige.report.text import print_audit, print_audit_forecast, print_json, print_plan

if TYPE_CHECKING:
    from vestige.artifacts.audits import AuditOutcome
    from vestige.artifacts.verdicts import Earlier

FAILS, OPEN = 3, 4
"""Exit codes: a claim fails. None fails, and one is inconclusive."""

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
)
DEMO = Part("vestige.api.selection:DemoSettings", "Settings")


@command(
    api.audit,
    positional=(),
    parts={"settings": AUDIT, "data": SOURCE},
    repeated=("unlearned", "retrained", "logs", "controls", "require"),
    optional=("target", "unlearned", "data", "forget", "output_dir"),
    without=("margins",),
    common="target unlearned retrained data forget holdout logs output_dir quick plan why config",
)
def audit_command(
    call: Call,
    rejudge: Path | None = None,
    logs: Sequence[str] = (),
    controls: Sequence[str] = (),
    without_controls: bool = False,
    require: Sequence[str] = (),
    dry_run: bool = False,
    plan: bool = False,
    seal: bool = False,
    why: bool = False,
    as_json: bool = False,
) -> None:
    """Test whether each UNLEARNED model has forgotten, with evidence: six claims, a verdict on each.

    Vestige queries every model in several formats, attacks all models in the same way (relearning, rounded weights,
    facts in the prompt, prefilled and sampled answers; with --attacks also searched prompts), and compares them with
    RETRAINED models, which never saw the forget set. An attack without a finding counts only if it recovers half of the
    knowledge that a positive control hides: SUPPRESSED, or otherwise a target trained to refuse.

    Exit code 0: every claim passes, or with --logs every claim that was tested. 3: a claim fails. 4: none fails, one is
    inconclusive. 5: a task failed.

    Args:
        rejudge: Judge this run's audits again with other margins. Queries no model.
        logs: Judge the logs of other tools, without a model: a folder (OpenUnlearning's saves/), ROLE:NAME=FILE
            with target, retrained or unlearned, a table of scores, or `example`. Repeatable.
        controls: With --logs: models that never saw the facts, from public logs, as in bank:tofu/llama-3.2-3b/forget01
            (`vestige list controls`). --target accepts the same.
        without_controls: With --logs on TOFU: predict the scores of a model that never saw the forget set from the
            public models of other bases. A model can fail by this prediction and cannot pass.
        require: With --logs: use the exit code of this claim alone, such as not_expressed or utility_preserved.
            Repeatable.
        dry_run: Print the tasks and their cost, and exit.
        plan: Print what these facts, controls and attacks can decide. The models need not exist.
        seal: With --plan: write plan and margins with a digest into --output-dir, before any model is scored.
        why: Print the reasons for each verdict, and the missing tests. With --output-dir alone, print the stored
            verdicts without loading a model.
    """
    from vestige.api.output import refuse_torchrun
    from vestige.artifacts.verdicts import read_baseline
    from vestige.cli.doctor import matrix_rates

    refuse_torchrun("audit")
    options = {name: value for name, value in call.arguments.items() if value}
    earlier = None
    if "baseline" in options:
        if rejudge is not None or plan or dry_run:
            raise InputError(
                "--baseline compares new verdicts with earlier ones, so it goes with models or --logs, and not with "
                "--rejudge, --plan or --dry-run"
            )
        earlier = read_baseline(Path(options["baseline"]))
    if rejudge is not None:
        return _print_and_end(_judged_again(rejudge, call, options), why=why, as_json=as_json)
    if logs:
        taken = _taken(options, logs, controls, without_controls=without_controls, plan=plan)
        required = _required(require)
        if dry_run:
            return show(taken)
        outcomes = judge_taken(
            taken,
            RunFolder(Path(options.get("output_dir", OUTPUT))),
            forget=options.get("forget"),
            margins=call.given.of(AUDIT),
            why=why,
            as_json=as_json,
        )
        end_with(outcomes, earlier, required)
        if earlier is None and (unjudged := left_out_of(taken, outcomes)):
            say(f"not judged, so the exit code is {OPEN}: {listed(unjudged)}")
            raise typer.Exit(OPEN)
        return None
    for used, problem in ((require, _NO_LOGS), (without_controls, _NO_BANK), (controls, _NO_CONTROLS)):
        if used:
            raise InputError(problem)
    if seal and not plan:
        raise InputError("--seal needs --plan and the models. Give them, then run the audit")
    if why and not plan and not dry_run and not call.given.values and _names_only(options, ("output_dir",)):
        return _print_and_end(api.read_audit(options["output_dir"]), earlier, why=why, as_json=as_json)
    # Without --data, the two files are the data.
    options.setdefault("data", options.get("retain"))
    _refuse_missing(options, only_planned=plan and not seal)
    if plan or dry_run:
        return _foretell({**call.arguments, **options}, plan=plan, seal=seal, as_json=as_json)
    audit = call.run(data=options["data"], unlearned=options.get("unlearned", ()))
    matrix_rates()
    audit.report()
    _print_and_end(audit, earlier, why=why, as_json=as_json)


_MODELS = ("target", "unlearned", "retrained", "suppressed")
_QUESTIONS = ("data", "forget", "retain", "holdout", "published")
_HOW = ("attacks", "quick", "verify", "no_cache")
_NO_LOGS = "--require goes with --logs. Without it every claim decides the exit code"
_NO_BANK = (
    "--without-controls predicts controls from public logs of TOFU, so it goes with --logs: no bank has other data. "
    "Retrain models, or leave the option out: multiple choice is then compared with guessing."
)
_NO_CONTROLS = "--controls takes controls from public logs, which go with --logs. Give --retrained"


def _names_only(options: Record, names: Sequence[str]) -> bool:
    """Whether of models, questions and attacks exactly these options are typed."""
    return options.keys() & {*_MODELS, *_QUESTIONS, *_HOW, *names} == {*names}


def _judged_again(run: Path, call: Call, options: Record) -> api.Audit:
    """Judge the audits of a run at the margins of the call."""
    from vestige.auditing.run import rejudge

    if options.keys() & {*_MODELS}:
        raise InputError("--rejudge uses a finished audit and no model. Leave the models out")
    if options.keys() & {"attacks", "quick"}:
        raise InputError("--rejudge judges the attacks that were made. Leave --attacks and --quick out")
    # Settings are passed by name, so that one which is not a margin is rejected by name.
    rejudge(run, call.given.of(AUDIT))
    audit = api.read_audit(run)
    audit.report()
    return audit


def _taken(
    options: Record, logs: Sequence[str], controls: Sequence[str], *, without_controls: bool, plan: bool
) -> Taken:
    """The logs, with controls of the bank. A target of the bank is a log too."""
    target = str(options.get("target", ""))
    bank, named = None, ["forget"]
    if target.startswith("bank:"):
        bank = target
        named.append("target")
    if plan or not _names_only(options, [name for name in named if name in options]):
        raise InputError("--logs judges logs and needs no model. Only --forget, --output-dir and margins go with it")
    if without_controls and controls:
        raise InputError(
            "--without-controls predicts the controls that --controls takes from the bank. Give one of the two."
        )
    taken = take(logs, options.get("forget"), without_controls=without_controls, without_target=bank is not None)
    return with_bank(taken, controls, bank)


def _foretell(options: Record, *, plan: bool, seal: bool, as_json: bool) -> None:
    """Print the power of an audit, or its tasks and their cost. The models of a plan need not exist."""
    from vestige.api.auditing import audit_request
    from vestige.api.auditing import seal as write_seal
    from vestige.api.inputs import reading
    from vestige.auditing.forecast import forecast_audit, foresee_audit
    from vestige.auditing.request import numbered
    from vestige.cli.doctor import said_of_rates, stored_rates

    request = audit_request(
        target=options.get("target") or "target",
        unlearned=options.get("unlearned") or (),
        retrained=options.get("retrained") or (),
        suppressed=options.get("suppressed"),
        data=options["data"],
        forget=options["forget"],
        retain=options.get("retain"),
        holdout=options.get("holdout"),
        published=options.get("published"),
        attacks=options.get("attacks"),
        settings=options.get("settings"),
        quick=options["quick"],
        seed=options["seed"],
        verify=options["verify"],
        fetch=seal,
        reading=reading(options),
    )
    say(said_of_rates(stored_rates()))
    forget = request.splits.forget
    if not plan:
        return print_audit_forecast(forecast_audit(request), forget, numbered(request.models), as_json=as_json)
    print_plan(foresee_audit(request), forget, as_json=as_json)
    if seal:
        run = options["output_dir"]
        sealed = write_seal(Path(run), request)
        say(
            f"sealed in {run}: {sealed.digest}; give this digest now to whoever is to trust it, then run the same audit"
        )


def _refuse_missing(options: Record, *, only_planned: bool) -> None:
    """Report everything that an audit lacks at once. A plan writes nothing, and its models need not exist."""
    needed = {"--data (or a file with --retain)": "data", "--forget": "forget"}
    if not only_planned:
        needed |= {"--target": "target", "--output-dir": "output_dir"}
    missing = [option for option, name in needed.items() if not options.get(name)]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}. See `vestige audit --help`")


def _required(names: Sequence[str]) -> TextTuple:
    """The claims of --require. A name that is none is refused."""
    from vestige.artifacts.audits import CLAIMS

    claims = []
    for name in names:
        claim = name.strip().lower().replace("_", " ")
        if claim not in CLAIMS:
            raise InputError(f"--require {one_line(name, width=60)!r} is not a claim. {closest(claim, list(CLAIMS))}")
        claims.append(claim)
    return tuple(claims)


def demo(
    *, output_dir: PathLikeStr = "runs/demo", workers: int | None = None, fresh: bool = False, settings: Any = None
) -> api.Audit:
    """Run the demo.

    Args:
        output_dir: The run's folder.
        workers: Processes, with one thread each. At most 4 by default.
        fresh: Start over. Files of Vestige are deleted once the new ones are complete; others stay.
        settings: The settings of the demo.
    """
    from vestige.api.output import output_in, refuse_torchrun
    from vestige.api.selection import DemoSettings
    from vestige.experiments.demo import run_demo

    refuse_torchrun("demo")
    folder = Path(output_dir)
    run = RunFolder(folder)
    with output_in(folder, fresh=fresh, made_by=("run.toml",)):
        with progress_bar("demo") as show:
            end = run_demo(run, settings or DemoSettings(), workers=workers or min(4, os.cpu_count() or 1), show=show)
        failed = {name: str(error) for name, error in end.failed.items()}
        for name, reason in failed.items():
            say(f"failed: {one_line(name)}: {one_line(reason, width=500)}")
        # A report without a model would end with exit code 2, as if the command had been wrong.
        if not any(run.subjects()):
            raise PartialFailure("nothing could be made. See above")
    return api.Audit(folder, tuple(end.outcomes), failed, (), end.n_tasks)


@command(demo, positional=(), parts={"settings": DEMO})
def demo_command(call: Call, why: bool = False, as_json: bool = False) -> None:
    """Compile, train, unlearn, audit and report: PISTOL's sample dataset 1 on the built-in tiny model.

    After Ctrl-C the same command resumes the run. The exit code is 0 for any verdicts.

    Args:
        why: Print the reasons for each verdict, and the missing tests.
    """
    from vestige.artifacts.records import read_summaries, result_rows
    from vestige.artifacts.verdicts import verdict_rows

    audit = call.run()
    report = audit.report()
    if as_json:
        results = result_rows(summary for _, summary in read_summaries(RunFolder(audit.path)))
        print_json({"report": str(report), "results": results, "verdicts": verdict_rows(audit.outcomes)})
    else:
        print_audit(audit.path, audit.outcomes, {}, why=why, as_json=False)
    if audit.failed:
        raise PartialFailure(f"{len(audit.failed)} of {audit.n_tasks} tasks failed. The same command tries them again")


def _print_and_end(audit: api.Audit, baseline: "Earlier | None" = None, *, why: bool, as_json: bool) -> None:
    """Print the verdicts and end with their exit code."""
    from vestige.auditing.request import numbered

    if audit.request is not None and not as_json:
        # The folder of each numbered name, on stdout next to the verdicts with these names.
        for line in (*numbered(audit.request.models), *audit.request.untested):
            typer.echo(one_line(line, width=500))
    print_audit(audit.path, audit.outcomes, audit.failed, why=why, as_json=as_json)
    if audit.failed and audit.request is None:
        raise PartialFailure(
            f"{len(audit.failed)} tasks of the audit had failed, so what rests on them is inconclusive. Run the audit "
            "again"
        )
    if audit.failed:
        raise PartialFailure(
            f"{len(audit.failed)} of {audit.n_tasks} tasks failed, so what rests on them is inconclusive. The same "
            "command tries them again"
        )
    end_with(audit.outcomes, baseline)


def end_with(
    outcomes: "Sequence[AuditOutcome]", baseline: "Earlier | None" = None, required: Sequence[str] = ()
) -> None:
    """End with the exit code of the verdicts.

    With a `baseline`, only verdicts worse than in the baseline count, and they are printed.
    """
    from vestige.artifacts.verdicts import UNTESTED, regressions, verdict_rows

    rows: Sequence[Record] = verdict_rows(outcomes)
    if baseline is not None:
        worse = regressions(rows, baseline)
        for row, was in worse:
            subject = one_line(row["subject"], width=60)
            say(f"worse than the baseline: {subject}, {row['claim']}: {was} -> {row['verdict']}")
        say(f"{len(worse)} of {len(rows)} verdicts are worse than the baseline's")
        # A baseline may contain other forget sets, which are not judged here.
        judged = {row["forget"] for row in rows}
        gone = {name for forget, name, _ in baseline if forget in judged}
        gone -= {row["subject"] for row in rows}
        # A single model under another name is the same model (`regressions`), and not missing.
        if gone and len(gone) < len({name for _, name, _ in baseline}):
            say(f"audited in the baseline and not here: {', '.join(one_line(n, width=60) for n in sorted(gone))}")
        rows = [row for row, _ in worse]
    # Only these claims count. An untested one is open.
    if required:
        rows = [row for row in rows if row["claim"] in required]
    verdicts = {row["verdict"] for row in rows}
    if "fail" in verdicts:
        raise typer.Exit(FAILS)
    if "inconclusive" in verdicts or (required and UNTESTED in verdicts):
        raise typer.Exit(OPEN)
