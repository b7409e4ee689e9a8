"""What others read of a run: `export` and `evidence` (a bundle)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vestige.cli.options import AsJson
from vestige.core.errors import InputError
from vestige.report.text import print_json

if TYPE_CHECKING:
    from vestige.artifacts.layout import AuditFolder, RunFolder


def export_command(
    run: Annotated[Path, typer.Argument(help="The folder of an audited run.")],
    to: Annotated[
        str,
        typer.Option(
            help="junit (one XML file, for CI), card (Markdown for model cards), eee (Every Eval Ever), hf (README.md "
            "and .eval_results/ for the model's repository on the Hugging Face Hub)."
        ),
    ],
    dataset: Annotated[
        str | None, typer.Option(help="hf: the Hub's id of the benchmark that the results belong to (ORG/NAME).")
    ] = None,
    fail_on_inconclusive: Annotated[
        bool, typer.Option("--fail-on-inconclusive", help="junit: an inconclusive claim is a failure, not skipped.")
    ] = False,
    output_dir: Annotated[Path | None, typer.Option(help="Where the files go; RUN/exports by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export the verdicts of RUN to other formats, and print the file names.

    Verdicts are written as they were judged; no model is loaded.
    """
    from vestige.artifacts.audits import read_outcome
    from vestige.artifacts.exports import FORMS, junit
    from vestige.artifacts.layout import RunFolder
    from vestige.core.files import refuse_links, write_text
    from vestige.core.text import closest

    if to not in FORMS:
        raise InputError(f"--to {to!r}: {closest(to, list(FORMS))}")
    if (to == "hf") != (dataset is not None):
        raise InputError("--to hf needs --dataset ORG/NAME, by which the Hub files results, and nothing else takes it")
    if fail_on_inconclusive and to != "junit":
        raise InputError("--fail-on-inconclusive goes with --to junit; the other forms say what is inconclusive")
    folder = RunFolder(run)
    audits = folder.audits()
    if not audits:
        raise InputError(f"{run} holds no finished audit; run `vestige audit --output-dir {run}` first")
    # What is handed to others must be of the run, and no file that a link leads to.
    refuse_links(run)
    home = output_dir or run / "exports"
    files: dict[Path, str] = {}
    if to == "junit":
        outcomes = [read_outcome(audit) for audit in audits]
        files[home / "junit.xml"] = junit(outcomes, fail_open=fail_on_inconclusive)
    else:
        for audit in audits:
            files |= {home / path: text for path, text in _of_models(folder, audit, to, dataset).items()}
    for path, text in files.items():
        write_text(path, text)
    paths = [str(path) for path in files]
    if as_json:
        return print_json(paths)
    typer.echo("\n".join(paths))


def _of_models(run: "RunFolder", audit: "AuditFolder", form: str, dataset: str | None) -> dict[str, str]:
    """The files of each model of one audit, by path within the folder of exports."""
    from vestige.artifacts.audits import read_outcome, read_plan
    from vestige.artifacts.exports import ModelFacts, card, eee, hub_results
    from vestige.artifacts.layout import SubjectFolder
    from vestige.artifacts.provenance import installed_versions
    from vestige.artifacts.records import read_finished, read_spec
    from vestige.core.ids import slug

    outcome = read_outcome(audit)
    folders = {name: SubjectFolder(run.path / path) for name, path in read_plan(audit).folders.items()}
    digests = {name: read_finished(f.done, "digest")["digest"] for name, f in folders.items() if f.done.exists()}
    # Without the controls' digests nobody could say against what the model was judged.
    compared = {name: digest for name, digest in digests.items() if name in (outcome.target, *outcome.retrained)}
    version = installed_versions()["vestige"]
    # When it was judged: an export that is made later is no later judgement.
    when = datetime.fromtimestamp(audit.outcome.stat().st_mtime, tz=UTC)
    files: dict[str, str] = {}
    for subject in dict.fromkeys(v.subject for v in outcome.verdicts if v.subject in folders):
        facts = ModelFacts(read_spec(folders[subject].spec).model, digests[subject], version, compared)
        # With the forget set: two audits of a run may be of the same model.
        name = slug(f"{subject} {outcome.forget}")
        if form == "card":
            files[f"{name}.md"] = card([outcome], subject, facts)
        elif form == "hf":
            # The Hub takes such a block, at the very beginning, for the metadata of the card.
            tags = "---\ntags:\n- machine-unlearning\n---\n\n"
            files[f"{name}/README.md"] = tags + card([outcome], subject, facts)
            results = hub_results(outcome, subject, facts, str(dataset), when)
            files[f"{name}/.eval_results/vestige.yaml"] = results
        else:
            entry = eee(outcome, subject, facts, when)
            files[f"{name}.json"] = json.dumps(entry, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return files


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
