"""`vestige evidence`: what a run shows, for a privacy office, in one folder whose files are named by digest.

evidence.html begins with what was not tested; then scope, threat model, findings, and which of them bear on what laws
and frameworks ask (`page/frameworks.json`: a table of our reading, not legal advice). Beside it lie the report, the
verdicts, the tables, what was asked and run, and manifest.json with the SHA-256 of every file, of every model and of
the scores of every evaluation. The manifest is not signed: whoever answers for the bundle signs it.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from vestige.artifacts.audits import CLAIMS, AuditOutcome, read_plan
from vestige.artifacts.layout import EvalFolder, RunFolder
from vestige.artifacts.verdicts import bound_said
from vestige.core.errors import InputError
from vestige.core.files import new_folder, write_json, write_text
from vestige.core.ids import file_digest
from vestige.report.audit_sections import audit_block
from vestige.report.build import build_report
from vestige.report.contents import Contents, read_contents, scores_digest
from vestige.report.first_screen import WORDS, margins_said
from vestige.report.page import render_bundle
from vestige.report.sections import headline
from vestige.report.verdict_words import audited, methods_of
from vestige.report.words import attack_name, attacks_in_words, format_name, listed, method_name, named_values

MANIFEST, PAGE = "manifest.json", "evidence.html"


def build_bundle(run: Path, out: Path) -> Path:
    """Write the bundle of an audited run into the folder `out`, which must not exist; say where its page is.

    The report is made anew first, and every file of the run's models is read, so that digests are of what is there.
    The same run gives the same bytes.
    """
    if out.exists():
        raise InputError(f"{out} exists; name a folder that does not")
    folder = RunFolder(run)
    contents = read_contents(folder, verify=True)
    if not contents.audits:
        raise InputError(f"{run}: no finished audit, so there is nothing to give evidence of; run vestige audit first")
    build_report(run, verify=False)
    with new_folder(out) as partial:
        for source in (folder.report, folder.verdicts, folder.settings, folder.provenance):
            if source.exists():
                shutil.copyfile(source, partial / source.name)
        shutil.copytree(folder.tables, partial / folder.tables.name)
        write_text(partial / PAGE, render_bundle(_variables(folder, contents)))
        write_json(partial / MANIFEST, _manifest(folder, contents, partial))
    return out / PAGE


def _manifest(folder: RunFolder, contents: Contents, partial: Path) -> dict[str, Any]:
    bundled = sorted(p for p in partial.rglob("*") if p.is_file())
    evaluations = sorted({path for sources in contents.sources for _, _, path, _ in sources})
    return {
        "schema": 1,
        "run": contents.evidence.name,
        "vestige": contents.evidence.provenance.get("versions", {}).get("vestige", ""),
        "files": {p.relative_to(partial).as_posix(): file_digest(p) for p in bundled},
        "models": {s.path: str((s.done or {}).get("digest", "")) for s in contents.evidence.subjects},
        "scores": {path: scores_digest(EvalFolder(folder.path / path)) for path in evaluations},
        "audits": {o.forget: file_digest(folder.audit(o.forget).outcome) for o in contents.audits},
    }


def _variables(folder: RunFolder, contents: Contents) -> dict[str, Any]:
    return {
        "headline": headline(contents),
        "run_name": contents.evidence.name,
        "audits": [_audit(folder, contents, i, outcome) for i, outcome in enumerate(contents.audits)],
        "missing": (*contents.evidence.missing, *contents.unjudged),
        "settings": named_values(contents.evidence.settings),
    }


def _audit(folder: RunFolder, contents: Contents, index: int, outcome: AuditOutcome) -> dict[str, Any]:
    screen = audit_block(index, outcome, contents.colours, contents.parties).screen
    plan = folder.audit(outcome.forget).plan
    attacks = read_plan(folder.audit(outcome.forget)).attacks if plan.exists() else ()
    able = {line.attack: line.able for line in outcome.able}
    return {
        "screen": screen,
        "untested": [attacks_in_words(line) for line in outcome.untested],
        "attacks": [
            (attack_name(a.name), a.material, len(a.tested), _could(able.get(a.name)), named_values(a.settings))
            for a in attacks
        ],
        "findings": [
            (method_name(v.subject), v.claim, WORDS[v.outcome], bound_said(outcome, v), attacks_in_words(v.reason))
            for v in outcome.verdicts
        ],
        "formats": [format_name(f.format) for f in outcome.formats],
        "margins": " ".join(margins_said(outcome)),
        "claims": CLAIMS,
        "mapped": [{**entry, "found": _found(outcome, entry["claims"])} for entry in frameworks()],
    }


def _could(able: bool | None) -> str:
    return {True: "yes", False: "no: finding nothing with it proves nothing", None: "not known"}[able]


def frameworks() -> Sequence[Mapping[str, Any]]:
    """What laws and frameworks ask, and which claims bear on it, as this version reads them."""
    text = (files("vestige.report") / "page" / "frameworks.json").read_text(encoding="utf-8")
    entries: Sequence[Mapping[str, Any]] = json.loads(text)
    return entries


def _found(outcome: AuditOutcome, claims: Sequence[str]) -> list[tuple[str, str]]:
    """For each claim, which of the models that should have forgotten pass, fail, or are not decided."""
    said = {(v.subject, v.claim): WORDS[v.outcome] for v in outcome.verdicts}
    methods = [s for s in audited(outcome) if s in methods_of(outcome)]
    found = []
    for claim in claims:
        words = [
            f"{word}: {listed(names)}"
            for word in (*WORDS.values(), "not judged")
            if (names := [method_name(s) for s in methods if said.get((s, claim), "not judged") == word])  # type: ignore[arg-type]
        ]
        found.append((claim, "; ".join(words)))
    return found
