"""What others read of a run: `export` and `evidence` (a bundle)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.options import AsJson
from vestige.core.errors import InputError


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
    from vestige.artifacts.audits import read_outcome, read_plan
    from vestige.artifacts.exports import FORMS, ModelFacts, card, eee, hub_results, junit
    from vestige.artifacts.layout import RunFolder, SubjectFolder
    from vestige.artifacts.provenance import installed_versions
    from vestige.artifacts.records import read_spec
    from vestige.core.files import refuse_links, write_text
    from vestige.core.ids import slug
    from vestige.core.store import read_versioned
    from vestige.core.text import closest

    if to not in FORMS:
        raise InputError(f"--to {to!r}: {closest(to, list(FORMS))}")
    if (to == "hf") != (dataset is not None):
        raise InputError("--dataset ORG/NAME goes with --to hf, which needs it: the Hub files results by data set")
    if fail_on_inconclusive and to != "junit":
        raise InputError("--fail-on-inconclusive goes with --to junit; the other forms say what is inconclusive")
    folder = RunFolder(run)
    places = folder.audits()
    if not places:
        raise InputError(f"{run} holds no finished audit; run `vestige audit --output-dir {run}` first")
    outcomes = [read_outcome(place) for place in places]
    refuse_links(run)
    home = output_dir or run / "exports"
    files: dict[Path, str] = (
        {home / "junit.xml": junit(outcomes, fail_open=fail_on_inconclusive)} if to == "junit" else {}
    )
    for place, outcome in zip(places, outcomes, strict=True) if to != "junit" else ():
        held = {name: SubjectFolder(folder.path / own) for name, own in read_plan(place).folders.items()}
        digests = {
            name: read_versioned(own.done, "digest")["digest"] for name, own in held.items() if own.done.exists()
        }
        when = datetime.fromtimestamp(place.outcome.stat().st_mtime, tz=UTC)
        for subject in dict.fromkeys(v.subject for v in outcome.verdicts if v.subject in held):
            others = {name: digest for name, digest in digests.items() if name in (outcome.target, *outcome.retrained)}
            version = installed_versions()["vestige"]
            facts = ModelFacts(read_spec(held[subject].spec).model, digests[subject], version, others)
            name = slug(f"{subject} {outcome.forget}")
            if to == "card":
                files[home / f"{name}.md"] = card([outcome], subject, facts)
            elif to == "hf":
                tags = "---\ntags:\n- machine-unlearning\n---\n\n"
                files[home / name / "README.md"] = tags + card([outcome], subject, facts)
                results = hub_results(outcome, subject, facts, str(dataset), when)
                files[home / name / ".eval_results" / "vestige.yaml"] = results
            else:
                found = eee(outcome, subject, facts, when)
                files[home / f"{name}.json"] = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    for path, text in files.items():
        write_text(path, text)
    if as_json:
        typer.echo(json.dumps([str(path) for path in files], indent=2))
        return
    for path in files:
        typer.echo(str(path))


def evidence_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run with a finished audit.")],
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    sign_with: Annotated[
        Path | None, typer.Option("--sign-with", help="The file of an SSH key to sign with; needs ssh-keygen.")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who makes it: a name or an office, as the page states it.")] = "",
    on_behalf_of: Annotated[str, typer.Option("--for", help="On whose behalf.")] = "",
) -> None:
    """Write a bundle for a privacy office: what was not tested, scope, threat model, findings, and digests of all.

    Findings stand beside what Article 17 of the GDPR, EDPB Opinion 28/2024, Article 15 of the AI Act and the NIST
    AI RMF ask. No legal advice.
    """
    from vestige.report.build import SUMS, build_bundle

    page = build_bundle(run, out, sign_with=sign_with, by=by, on_behalf_of=on_behalf_of)
    typer.echo(f"evidence: {page}")
    signed = f"signed: {SUMS}.sig" if sign_with else "not signed"
    typer.echo(f"digests of all files: {page.with_name(SUMS)} ({signed})")
