"""`vestige export`: the verdicts of a run in the forms that others read."""

import json
from pathlib import Path
from typing import Annotated

import typer

from vestige.cli.options import AsJson
from vestige.core.errors import InputError


def export_command(
    run: Annotated[Path, typer.Argument(help="The folder of an audited run.")],
    to: Annotated[
        str, typer.Option(help="junit (one XML file, for CI), card (Markdown for model cards), eee (Every Eval Ever).")
    ],
    output_dir: Annotated[Path | None, typer.Option(help="Where the files go; RUN/exports by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the verdicts of RUN for a CI system, a model card or Every Eval Ever, and print the files' names.

    Verdicts are written as they were judged; no model is loaded.
    """
    from vestige.artifacts.audits import read_outcome, read_plan
    from vestige.artifacts.exports import FORMS, ModelFacts, card, eee, junit
    from vestige.artifacts.layout import RunFolder, SubjectFolder
    from vestige.artifacts.provenance import installed_versions
    from vestige.artifacts.records import read_spec
    from vestige.core.files import write_json, write_text
    from vestige.core.ids import slug
    from vestige.core.settings import closest
    from vestige.core.store import read_versioned

    if to not in FORMS:
        raise InputError(f"--to {to!r}: {closest(to, list(FORMS))}")
    folder = RunFolder(run)
    places = folder.audits()
    if not places:
        raise InputError(f"{run} holds no finished audit; run `vestige audit --output-dir {run}` first")
    outcomes = [read_outcome(place) for place in places]
    home = output_dir or run / "exports"
    written: list[Path] = []
    if to == "junit":
        written.append(home / "junit.xml")
        write_text(written[0], junit(outcomes))
    for place, outcome in zip(places, outcomes, strict=True) if to != "junit" else ():
        held = read_plan(place).folders
        for subject in dict.fromkeys(v.subject for v in outcome.verdicts if v.subject in held):
            own = SubjectFolder(folder.path / held[subject])
            digest = read_versioned(own.done, "digest")["digest"]
            facts = ModelFacts(read_spec(own.spec).model, digest, installed_versions()["vestige"])
            name = slug(f"{subject} {outcome.forget}")
            path = home / f"{name}.{'md' if to == 'card' else 'json'}"
            if to == "card":
                write_text(path, card([outcome], subject, facts))
            else:
                write_json(path, eee(outcome, subject, facts, str(int(place.outcome.stat().st_mtime))))
            written.append(path)
    if as_json:
        typer.echo(json.dumps([str(path) for path in written], indent=2))
        return
    for path in written:
        typer.echo(str(path))
