"""`vestige evidence`: digests of what is there, the open first, and nothing said of a run that was not audited."""

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_audit import FACTS, hostile, outcome, with_control, write_audit
from synthetic_run import IMAGE, SCRIPT, write_run

from vestige.artifacts.audits import CLAIMS
from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.report.build import NAMESPACE, build_bundle, frameworks
from vestige.report.words import plain_sentence

pytestmark = pytest.mark.slow


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_bundle_names_every_file_by_digest_and_is_the_same_again(tmp_path):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    found = with_control(replace(outcome(), facts=FACTS))
    write_audit(run, found)
    people = {"by": "Ann <b>Lee</b>", "on_behalf_of": "the office"}
    page = build_bundle(run, tmp_path / "one", **people).read_text(encoding="utf-8")
    first = contents(tmp_path / "one")
    manifest = json.loads(first.pop("manifest.json"))
    assert {"evidence.html", "report.html", "run.toml", "tables/items.csv"} <= first.keys()
    sums = dict(reversed(line.split("  ")) for line in first.pop("SHA256SUMS").decode().splitlines())
    assert sums.pop("manifest.json") == hashlib.sha256((tmp_path / "one/manifest.json").read_bytes()).hexdigest()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in first.items()}
    assert manifest["files"] == sums == digests
    assert manifest["models"].keys() == {p.parent.relative_to(run).as_posix() for p in run.glob("*/*/spec.json")}
    assert all(len(digest) == 64 for digest in manifest["models"].values())
    stored = RunFolder(run).audit("edge:A_B").outcome.read_bytes()
    assert manifest["audits"] == {"edge:A_B": hashlib.sha256(stored).hexdigest()}
    build_bundle(run, tmp_path / "two", **people)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    heads = [re.sub("<[^>]*>", "", h) for h in re.findall("<h2>(.*?)</h2>", page)]
    assert heads[:5] == ["Meaning and limits", "Next steps", "Findings", "What was not tested", "Scope"]
    first_page = page[: page.index("<h2>Findings")]
    assert "<dt>about</dt><dd><bdi>A_B</bdi></dd>" in first_page
    assert "GA: do not release as forgotten." in first_page
    assert "DPO: open are not expressed, not recoverable and indistinguishable." in first_page
    assert "Not legal advice." in page
    assert manifest["by"] == people["by"]
    assert "<dt>made by</dt><dd><bdi>Ann &lt;b&gt;Lee&lt;/b&gt;</bdi></dd>" in page
    assert "It ends as soon as one of these is so" in page
    assert all(plain_sentence(line, {}) in page for line in found.untested)
    assert "<li>utility preserved: <bdi>pass: DPO, IDK + GD and KL; fail: GA</bdi></li>" in page


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_signature_holds_for_these_sums_and_no_others_and_a_key_that_cannot_sign_leaves_nothing(tmp_path):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(run, outcome())
    key, signers, out = tmp_path / "key", tmp_path / "signers", tmp_path / "out"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    signers.write_text("office " + key.with_suffix(".pub").read_text(encoding="utf-8"), encoding="utf-8")
    build_bundle(run, out, sign_with=key)

    def verifies(signed):
        who = ["-f", signers, "-I", "office", "-n", NAMESPACE, "-s", out / "SHA256SUMS.sig"]
        return subprocess.run(["ssh-keygen", "-Y", "verify", *who], input=signed, capture_output=True).returncode == 0

    sums = (out / "SHA256SUMS").read_bytes()
    assert (verifies(sums), verifies(sums + b"\n")) == (True, False)
    signers.write_text("not a key", encoding="utf-8")
    for bad, message in ((signers, "not an SSH key that can"), (tmp_path / "none", "Make one: ssh-keygen")):
        with pytest.raises(InputError, match=message):
            build_bundle(run, tmp_path / "other", sign_with=bad)
        assert not (tmp_path / "other").exists()


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
    with pytest.raises(InputError, match=r"exists\. Name a new folder"):
        build_bundle(run, tmp_path)


@pytest.mark.parametrize("name", ["provenance.json", "run.toml"])
def test_a_bundle_takes_no_file_that_a_link_in_the_run_leads_to(tmp_path, name):
    run = write_run(tmp_path / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(run, outcome())
    secret = tmp_path / "key.json"
    secret.write_text("{}")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    with pytest.raises(InputError, match=f"{name} is a link, and a bundle contains only files of the run"):
        build_bundle(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_every_text_that_is_cited_bears_on_claims_and_says_what_is_open():
    assert {e["source"].split()[0] for e in frameworks()} == {"GDPR,", "EDPB", "AI", "NIST"}
    assert {claim for e in frameworks() for claim in e["claims"]} == set(CLAIMS)
    assert all(e["asks"] and e["answered"] and e["open"] for e in frameworks())
