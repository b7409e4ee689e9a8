"""What others read of a run: `export` and `evidence` (a bundle)."""

from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.options import AsJson
from vestige.core.errors import InputError
from vestige.report.text import print_json


def export_command(
    run: Annotated[Path, typer.Argument(help="The folder of an audited run.")],
    to: Annotated[
        str,
        typer.Option(
            help="junit (one XML file, for CI), card (Markdown for model cards), hf (README.md and .eval_results/ for "
            "the model's repository on the Hugging Face Hub), eee (Every Eval Ever), inspect, lm-eval, open-unlearning "
            "(a log for each model), dataset (a folder for datasets.load_dataset)."
        ),
    ],
    model_id: Annotated[
        list[str] | None,
        typer.Option(help="The unlearned model's public name: ORG/NAME, or MODEL=ORG/NAME for each."),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="hf: the Hub's id of the benchmark that the results belong to (ORG/NAME).")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="junit: only verdicts that are worse than in this run fail.")
    ] = None,
    fail_on_inconclusive: Annotated[
        bool, typer.Option("--fail-on-inconclusive", help="junit: an inconclusive claim is a failure, not skipped.")
    ] = False,
    output_dir: Annotated[Path | None, typer.Option(help="Where the files go; RUN/exports/FORMAT by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export the verdicts or all scores of RUN to another tool's format, and print the file names.

    Verdicts are written as they were judged; no model is loaded. `vestige audit --logs` reads every format with scores.
    """
    from vestige.api import export

    given = model_id or []
    by_model: dict[str, str] = {}
    for word in given:
        name, equals, public = word.rpartition("=")
        if equals:
            by_model[name] = public
        elif len(given) > 1:
            raise InputError("--model-id stands there several times. Give MODEL=ORG/NAME for each model.")
    files = export(
        run,
        to,
        output_dir=output_dir,
        model_id=by_model or (given[0] if given else ""),
        dataset=dataset,
        baseline=baseline,
        fail_on_inconclusive=fail_on_inconclusive,
    )
    paths = [str(path) for path in files]
    if as_json:
        return print_json(paths)
    typer.echo("\n".join(paths))


def export_task_command(
    data: Annotated[str, typer.Argument(help="The questions that were to be forgotten: a file, or a hub id.")],
    to: Annotated[str, typer.Option(help="lm-eval or inspect.")],
    output_dir: Annotated[Path, typer.Option(help="The folder of the task.")] = Path("vestige_task"),
) -> None:
    """Write DATA as a task that lm-eval or Inspect runs, and whose log `vestige audit --logs` judges."""
    from vestige.api import export_task

    for path in export_task(data, to, output_dir=output_dir):
        typer.echo(str(path))


def evidence_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run with a finished audit.")],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    sign_with: Annotated[
        Path | None, typer.Option("--sign-with", help="The file of an SSH key to sign with; needs ssh-keygen.")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who makes it: a name or an office, as the page states it.")] = "",
    on_behalf_of: Annotated[str, typer.Option("--for", help="On whose behalf.")] = "",
    redact: Annotated[
        Path | None,
        typer.Option(
            "--redact",
            metavar="KEYFILE",
            help="Put keyed digests in the place of questions, answers, replies and names. The key is read from this "
            "file, or made there; keep it.",
        ),
    ] = None,
    timestamp: Annotated[
        Path | None,
        typer.Option(
            "--timestamp",
            metavar="FILE.tsr",
            help="An RFC 3161 timestamp of this bundle's SHA256SUMS, to check and to store; needs openssl.",
        ),
    ] = None,
) -> None:
    """Write a bundle for a privacy office: what was not tested, scope, threat model, findings, and digests of all.

    Findings stand beside what Article 17 of the GDPR, EDPB Opinion 28/2024, Article 15 of the AI Act and the NIST
    AI RMF ask. No legal advice.
    """
    from vestige.report.build import SUMS, build_bundle

    page = build_bundle(
        run, out, sign_with=sign_with, by=by, on_behalf_of=on_behalf_of, redact=redact, timestamp=timestamp
    )
    typer.echo(f"evidence: {page}")
    signed = f"signed: {SUMS}.sig" if sign_with else "not signed"
    typer.echo(f"digests of all files: {page.with_name(SUMS)} ({signed})")
