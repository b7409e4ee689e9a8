"""Outputs for other tools and readers: `export`, `export-task` and `evidence` (a bundle)."""

from functools import partial
from pathlib import Path

import typer

from vestige import api
from vestige.api.exporting import SCORES, judging_commands
from vestige.cli.command import Call, command, itself
from vestige.core.errors import InputError
from vestige.core.progress import say
from vestige.report.text import print_json


@command(api.export, positional=("run",), repeated=("model_id",))
def export_command(call: Call, as_json: bool = False) -> None:
    """Export the verdicts or all scores of RUN to another tool's format, and print the file names.

    Verdicts are written as they were judged. No model is loaded. `vestige audit --logs` reads every format with scores.

    Args:
        model_id: The unlearned model's public name: ORG/NAME, or MODEL=ORG/NAME for each.
    """
    given = call.arguments.get("model_id") or []
    by_model: dict[str, str] = {}
    for word in given:
        name, equals, public = word.rpartition("=")
        if equals:
            by_model[name] = public
        elif len(given) > 1:
            raise InputError("--model-id repeats a model. Give MODEL=ORG/NAME for each model.")
    paths = [str(path) for path in call.run(model_id=by_model or "".join(given))]
    to = call.arguments["to"]
    if to in SCORES:
        folder = call.arguments.get("output_dir")
        for line in judging_commands(Path(call.arguments["run"]), to, folder and Path(folder)):
            say(f"to judge these scores at the same margins: {line}")
    if as_json:
        return print_json(paths)
    typer.echo("\n".join(paths))


@command(api.export_task, positional=("data",))
def export_task_command(call: Call) -> None:
    """Write DATA as a task that lm-eval or Inspect runs, and whose log `vestige audit --logs` judges."""
    for path in call.run():
        typer.echo(str(path))


@itself(positional=("run", "out"), spelled={"on_behalf_of": "for"})
def evidence_command(
    run: Path,
    out: Path,
    sign_with: Path | None = None,
    by: str = "",
    on_behalf_of: str = "",
    redact: Path | None = None,
    timestamp: Path | None = None,
) -> None:
    """Write a bundle for a privacy office: missing tests, scope, threat model, findings, and digests of all files.

    Findings appear next to the questions of Article 17 of the GDPR, EDPB Opinion 28/2024, Article 15 of the AI Act and
    the NIST AI RMF. No legal advice.

    Args:
        run: The folder of a run with a finished audit.
        out: The folder to make.
        sign_with: The file of an SSH key to sign with; needs ssh-keygen.
        by: The author on the page: a name or an office.
        on_behalf_of: On whose behalf.
        redact: A file with a key, which is made there if it is missing. Questions, answers, replies and names are
            replaced by digests with this key; keep it.
        timestamp: An RFC 3161 timestamp (FILE.tsr) of this bundle's SHA256SUMS, to check and to store; needs openssl.
    """
    from vestige.report.build import SUMS, build_bundle

    page = build_bundle(
        run,
        out,
        sign_with=sign_with,
        by=by,
        on_behalf_of=on_behalf_of,
        redact=redact,
        timestamp=timestamp,
        tell=partial(typer.echo, err=True),
    )
    typer.echo(f"evidence: {page}")
    signed = f"signed: {SUMS}.sig" if sign_with else "not signed"
    typer.echo(f"digests of all files: {page.with_name(SUMS)} ({signed})")
