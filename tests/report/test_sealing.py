"""Bundles without texts, and timestamps of others."""

import hashlib
import hmac
import html
import shutil
import subprocess
from dataclasses import replace

import pytest
from synthetic_audit import FACTS, outcome, write_audit
from synthetic_run import write_run

from vestige.artifacts.layout import RunFolder
from vestige.core.errors import InputError
from vestige.report.build import SUMS, Redactor, build_bundle, check_timestamp, redaction_key
from vestige.report.contents import read_contents

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("run") / "demo", hostile=False, forgets=("edge:A_B",))
    write_audit(folder, replace(outcome(), facts=FACTS))
    return folder


def test_a_redacted_bundle_holds_no_text_of_the_run_and_verifies(run, tmp_path):
    build_bundle(run, tmp_path / "plain")
    out, key = tmp_path / "out", tmp_path / "key"
    build_bundle(run, out, redact=key)
    assert "quotes facts" not in (out / "evidence.html").read_text()
    contents = read_contents(RunFolder(run))
    texts = {item.question for item in contents.answers.questions}
    texts |= {reply.text for replies in contents.answers.replies.values() for reply in replies.values()}
    texts = {text for text in texts if len(text) >= 4}
    assert texts
    files = {p.relative_to(out).as_posix(): html.unescape(p.read_text(errors="replace")) for p in out.rglob("*.*")}
    plain = "".join(html.unescape(p.read_text(errors="replace")) for p in (tmp_path / "plain").rglob("*.*"))
    held = {text for text in texts if text in plain}
    assert len(held) == len(texts)
    assert not {(name, text) for name, content in files.items() for text in texts if text in content}
    question = contents.answers.questions[0].question
    digest = hmac.new(key.read_text().strip().encode(), question.encode(), hashlib.sha256).hexdigest()[:24]
    assert digest in files["tables/items.csv"]
    subprocess.run(["sha256sum", "--quiet", "-c", SUMS], cwd=out, capture_output=True, check=True)
    # With the same key the same bytes.
    build_bundle(run, tmp_path / "again", redact=key)
    assert (tmp_path / "again" / SUMS).read_bytes() == (out / SUMS).read_bytes()
    assert key.stat().st_mode & 0o077 == 0


def test_names_of_persons_are_codes_in_selectors_and_lists_too(run, tmp_path):
    # The column `person` is the edge of an item, and a forgotten one is in the spec of every model without it.
    contents = read_contents(RunFolder(run))
    first, second, third, *others = contents.answers.questions
    named = (replace(first, edge="Ana Ruiz"), replace(second, edge="Bo"), replace(third, edge="Zo\u200ce Lim"), *others)
    subjects = []
    for subject in contents.evidence.subjects:
        sets = tuple(replace(each, edges=("Ana Ruiz", "Bo")) for each in subject.spec.forgotten)
        subjects.append(replace(subject, spec=replace(subject.spec, forgotten=sets)))
    assert any(subject.spec.forgotten for subject in subjects)
    evidence = replace(contents.evidence, subjects=tuple(subjects))
    people = replace(contents, edges=(), evidence=evidence, answers=replace(contents.answers, questions=named))
    redactor = Redactor(b"key", people)
    ana, bo, zoe, cut = map(redactor.digest, ("Ana Ruiz", "Bo", "Zo\u200ce Lim", "Zo·e L…"))
    assert redactor.text("known: Zo·e Lim, Bo, Zo·e L…") == f"known: {zoe}, Bo, {cut}"
    assert redactor.text("retrained without person:Ana Ruiz,person:Bo") == f"retrained without person:{ana},person:{bo}"
    assert redactor({"edges": ["Bo", "Ana Ruiz"], "split": "edge:Bo"}) == {"edges": [bo, ana], "split": f"edge:{bo}"}
    assert redactor.text("Bob left") == "Bob left"
    assert "Ana Ruiz" not in repr(redactor(people).evidence)
    # Ids of compiled contracts name nobody. The user's own ids may.
    facts = (replace(FACTS[0], item="ana-ruiz-1"), replace(FACTS[0], item="17"))
    named = Redactor(b"key", replace(contents, audits=(replace(contents.audits[0], facts=facts),)))
    assert named.text("edge:A_B, ana-ruiz-1, 17") == f"edge:A_B, {named.digest('ana-ruiz-1')}, 17"


def test_a_text_that_would_stay_is_refused(run, tmp_path):
    contents = read_contents(RunFolder(run))
    redactor = Redactor(redaction_key(tmp_path / "key"), contents)
    question = contents.answers.questions[0].question
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "page.html").write_text(f"<p>{html.escape(question)}</p>")
    with pytest.raises(InputError, match=r"page\.html would still hold the text"):
        redactor.refuse_left(tmp_path / "bundle")


CONFIG = """
[tsa]
default_tsa = one
[one]
serial = serial
signer_cert = cert.pem
signer_key = key.pem
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
"""


def stamped(folder, sums, digest="sha256"):
    """The reply of an authority that is made here for one file."""

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    (folder / "tsa.cnf").write_text(CONFIG)
    (folder / "serial").write_text("01\n")
    subject = ["-subj", "/CN=tsa", "-addext", "extendedKeyUsage=critical,timeStamping"]
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", *subject)
    openssl("ts", "-query", "-data", str(sums), f"-{digest}", "-out", "query.tsq")
    openssl("ts", "-reply", "-queryfile", "query.tsq", "-config", "tsa.cnf", "-section", "one", "-out", "reply.tsr")
    return folder / "reply.tsr"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_a_timestamp_is_stored_if_it_is_of_these_sums_and_no_others(run, tmp_path, digest):
    build_bundle(run, tmp_path / "first")
    reply = stamped(tmp_path, tmp_path / "first" / SUMS, digest)
    build_bundle(run, tmp_path / "second", timestamp=reply)
    assert (tmp_path / "second" / "SHA256SUMS.tsr").read_bytes() == reply.read_bytes()
    assert "GMT" in check_timestamp(reply, tmp_path / "second" / SUMS)
    with pytest.raises(InputError, match="a timestamp of another file"):
        build_bundle(run, tmp_path / "third", timestamp=reply, by="somebody else")
    assert not (tmp_path / "third").exists()
    broken = tmp_path / "broken.tsr"
    broken.write_bytes(reply.read_bytes()[:40])
    with pytest.raises(InputError, match="is not a granted RFC 3161 timestamp"):
        check_timestamp(broken, tmp_path / "second" / SUMS)
