"""`vestige evidence`: digests of what is there, the open first, and nothing said of a run that was not audited."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_audit import FACTS, hostile, outcome, with_control, write_audit
from synthetic_run import IMAGE, SCRIPT, write_run

from vestige.artifacts.audits import CLAIMS
from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.report.bundle import build_bundle, frameworks

pytestmark = pytest.mark.slow


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_bundle_names_every_file_by_digest_and_is_the_same_again(tmp_path):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    found = with_control(replace(outcome(), facts=FACTS))
    write_audit(run, found)
    page = build_bundle(run, tmp_path / "one").read_text(encoding="utf-8")
    first = contents(tmp_path / "one")
    manifest = json.loads(first.pop("manifest.json"))
    assert {"evidence.html", "report.html", "run.toml", "tables/items.csv"} <= first.keys()
    assert manifest["files"] == {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}
    assert manifest["models"].keys() == {p.parent.relative_to(run).as_posix() for p in run.glob("*/*/spec.json")}
    assert all(len(digest) == 64 for digest in manifest["models"].values())
    stored = RunFolder(run).audit("edge:A_B").outcome.read_bytes()
    assert manifest["audits"] == {"edge:A_B": hashlib.sha256(stored).hexdigest()}
    build_bundle(run, tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    heads = [re.sub("<[^>]*>", "", h) for h in re.findall("<h2>(.*?)</h2>", page)]
    assert heads[:4] == ["What was not tested", "Scope", "Threat model", "Findings"]
    assert "Not legal advice." in page
    assert all(line in page for line in found.untested)
    assert "<li>kept: <bdi>pass: DPO, IDK + GD and KL; fail: GA</bdi></li>" in page


def test_names_that_are_markup_stay_names_in_it(tmp_path):
    run = write_run(tmp_path / "demo", forgets=("edge:A_B",))
    write_audit(run, hostile())
    page = build_bundle(run, tmp_path / "out").read_text(encoding="utf-8")
    assert SCRIPT not in page
    assert IMAGE not in page
    assert "&lt;script&gt;window.pwned" in page


def test_a_run_without_an_audit_and_a_folder_that_exists_are_refused(tmp_path):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    with pytest.raises(InputError, match="no finished audit"):
        build_bundle(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write_audit(run, outcome())
    with pytest.raises(InputError, match="exists; name a folder that does not"):
        build_bundle(run, tmp_path)


def test_every_text_that_is_cited_bears_on_claims_and_says_what_is_open():
    assert {e["source"].split()[0] for e in frameworks()} == {"EDPB", "AI", "NIST"}
    assert {claim for e in frameworks() for claim in e["claims"]} == set(CLAIMS)
    assert all(e["asks"] and e["answered"] and e["open"] for e in frameworks())
