"""Builds the report of a run from what its evaluations left, and the evidence bundle for a privacy office.

Tables are written first, the page last. A search for knowledge holes has its table in the form of the paper's Table 1,
and every hole. Numbers are in full. Text from models and data sets has what acts unseen spelt out (`visible`).

The bundle's evidence.html begins with a page for the privacy officer: about whom, which models, the answer, its meaning
and the next steps. Findings, untested parts, scope and threat model follow, and the findings that bear on laws and
frameworks (`page/frameworks.json`: a table of our reading, not legal advice). The bundle also has the report, the
verdicts, the tables, the questions and settings, manifest.json with the SHA-256 of every model and of every
evaluation's scores, and SHA256SUMS of all files, which can be signed.

Parts of an evidence bundle in addition to its files: digests in place of texts, and a third party's timestamp.
"""

import hashlib
import hmac
import html
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from vestige.artifacts.audits import CLAIMS, AuditOutcome, FactLine, GroupLine, read_outcome, read_plan
from vestige.artifacts.layout import EvalFolder, ProbeFolder, RunFolder, SubjectFolder, is_own, is_report
from vestige.artifacts.records import read_finished
from vestige.artifacts.verdicts import WORDS, bound_said, controls_said, write_verdicts
from vestige.core.errors import InputError
from vestige.core.files import (
    machine_errors,
    new_folder,
    read_bytes,
    read_text,
    refuse_links,
    remove_folder,
    replacing,
    write_bytes,
    write_json,
    write_text,
)
from vestige.core.ids import file_digest
from vestige.core.text import Fields, Record, TextMapping, TextTuple, one_line
from vestige.report.audit import first_screen, margins_said
from vestige.report.contents import Contents, NamedEdge, read_contents, scores_digest
from vestige.report.evidence import AskedItem, GreedyReply
from vestige.report.holes import is_probe, read_probe
from vestige.report.page import page_file, page_headline, page_title, render, render_holes, render_static
from vestige.report.tables import write_hole_tables, write_tables
from vestige.report.words import listed, method_name, named_values, next_steps, plain_sentence

_T = TypeVar("_T")
_SHORTEST = 4
"""The minimum length of a text that is searched for inside others. Shorter texts are replaced only if they are the
whole text.
"""


def redaction_key(path: Path) -> bytes:
    """The secret that digests of texts are made with, read from `path` or made there.

    Without a key anybody could find a short text, such as a name, by trying.
    """
    if not path.exists():
        write_text(path, secrets.token_hex(32) + "\n")
        path.chmod(0o600)
    return read_text(path).strip().encode()


class Redactor:
    """Replaces the texts of a run by keyed digests: questions, answers, replies, persons, groups and contracts."""

    def __init__(self, key: bytes, contents: Contents) -> None:
        """Collect the texts of a run."""
        self._key = key
        self._everything = frozenset(text for text in _texts(contents) if text.strip())
        # A reply may be `all` or `target`, which elsewhere name a part of the run. Forgotten persons have no such
        # names.
        subjects = (replace(s, spec=replace(s.spec, forgotten=())) for s in contents.evidence.subjects)
        texts = self._everything - frozenset(_strings(replace(contents.evidence, subjects=tuple(subjects))))
        # A sentence has the hidden characters of a text as dots.
        self._texts = {form: text for text in sorted(texts) for form in (one_line(text, width=len(text)), text)}
        ordered = sorted(self._texts, key=lambda text: (-len(text), text))
        spelled = "|".join(re.escape(text) for text in ordered if len(text) >= _SHORTEST) or "(?!)"
        short = "|".join(re.escape(text) for text in ordered if len(text) < _SHORTEST) or "(?!)"
        # Only whole words match, so that a name does not split a longer word. A short name is found in a selector.
        self._inside = re.compile(rf"(?<!\w)(?:{spelled})(?!\w)|(?:(?<=person:)|(?<=edge:))(?:{short})(?!\w)")
        # A sentence may also cut a text off. Everything from its first letters on goes.
        begun = "|".join({re.escape(text[:_SHORTEST]) for text in ordered if len(text) > _SHORTEST}) or "(?!)"
        self._cut = re.compile(rf"(?<!\w)(?:{begun})[^…]*…")

    def digest(self, text: str) -> str:
        """Return the code of a text: the first 24 hexadecimal digits of its HMAC-SHA256."""
        text = self._texts.get(text, text)
        return f"[text {hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:24]}]"

    def text(self, text: str) -> str:
        """Return a text without the run's texts."""
        if text in self._texts:
            return self.digest(text)
        for pattern in (self._inside, self._cut):
            text = pattern.sub(lambda found: self.digest(found[0]), text)
        return text

    def __call__(self, value: _T) -> _T:
        """Return the same record, mapping or list with every text in it replaced, including keys."""
        changed: Any = value
        if isinstance(value, str):
            changed = self.text(value)
        elif is_dataclass(value) and not isinstance(value, type):
            parts = {f.name: self(getattr(value, f.name)) for f in fields(value) if f.init}
            for name in _TEXT_FIELDS.get(type(value), ()):
                if getattr(value, name) in self._everything:
                    parts[name] = self.digest(getattr(value, name))
            changed = replace(value, **parts)
        elif isinstance(value, Mapping):
            changed = {self(key): self(part) for key, part in value.items()}
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            changed = type(value)(*map(self, value))
        elif isinstance(value, list | tuple | frozenset):
            changed = type(value)(map(self, value))
        return cast("_T", changed)

    def refuse_left(self, folder: Path) -> None:
        """Raise InputError if a file of the bundle still holds a text of the run."""
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            # The text is checked in its HTML and JSON spelling too.
            content = html.unescape(read_bytes(path).decode(errors="replace"))
            for spelled in (content, content.replace('\\"', '"').replace("\\n", "\n")):
                if found := self._inside.search(spelled):
                    raise InputError(
                        f"{path.name} would still hold the text {one_line(self.digest(found[0]), width=60)} of the "
                        "run, so no redacted bundle was made. Report this as a fault of Vestige."
                    )


def _texts(contents: Contents) -> Iterator[str]:
    """The texts that a run took from its data and its models."""
    ids = {item.id for item in contents.answers.questions}
    for item in contents.answers.questions:
        yield from (item.question, item.answer, item.group)
        if not contents.edges:
            # The column `person` of the user's data. In compiled data the edge is the id of a contract.
            yield item.edge
    for replies in contents.answers.replies.values():
        for reply in replies.values():
            yield reply.text
    for outcome in contents.audits:
        for fact in outcome.facts:
            ids.add(fact.item)
            yield from (fact.question, fact.answer, fact.reply)
    # The user's own ids may contain names. Others are digests or numbers.
    yield from (name for name in ids if not re.fullmatch("[0-9a-f]+", name))
    for people in contents.people:
        yield from people
    for edge in contents.edges:
        yield from (edge.name, *edge.names)


_TEXT_FIELDS: Mapping[type, TextTuple] = {
    AskedItem: ("question", "answer", "group"),
    GreedyReply: ("text",),
    FactLine: ("question", "answer", "reply"),
    GroupLine: ("group",),
    NamedEdge: ("name",),
}
"""Fields that hold texts, whatever words they are."""


def _strings(value: Any) -> Iterator[str]:
    """Every string in a record, the keys of mappings too."""
    if isinstance(value, str):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _strings(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _strings(key)
            yield from _strings(part)
    elif isinstance(value, list | tuple | frozenset):
        for part in value:
            yield from _strings(part)


def without_texts(path: Path, redactor: Redactor) -> None:
    """Replace the texts of a run in a JSON or plain text file."""
    text = read_text(path)
    if path.suffix == ".json":
        text = json.dumps(redactor(json.loads(text)), indent=2, ensure_ascii=False) + "\n"
    else:
        text = redactor.text(text)
    write_text(path, text)


def check_timestamp(reply: Path, sums: Path) -> str:
    """Check that an RFC 3161 timestamp is of a bundle's SHA256SUMS.

    The signature of the authority is for the reader to check, who knows whose certificates to trust:
    `openssl ts -verify -data SHA256SUMS -in SHA256SUMS.tsr -CAfile CERTIFICATES`.

    Args:
        reply: The authority's reply (.tsr).
        sums: The file that was stamped.

    Returns:
        The time that it states, in the authority's words.

    Raises:
        InputError: The file is no granted timestamp, or belongs to other bytes.
    """
    if shutil.which("openssl") is None:
        raise InputError("A timestamp is read by openssl, which is not installed. Install it.")
    read_bytes(reply, most=2**20)
    command = ["openssl", "ts", "-reply", "-in", str(reply), "-text"]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    name = re.search(r"^Hash Algorithm: (sha256|sha384|sha512)\s*$", printed, re.MULTILINE)
    time = re.search(r"^Time stamp: (.+)$", printed, re.MULTILINE)
    if "Status: Granted" not in printed or name is None or time is None:
        raise InputError(f"{reply} is not a granted RFC 3161 timestamp. Ask the authority again.")
    dump = printed.partition("Message data:")[2].partition("Serial number:")[0]
    # A line is `0000 - 2c f2 4d-ba 5f   ,.M._`: the offset, up to sixteen bytes, and the same as characters.
    lines = re.findall(r"^\s+[0-9a-f]{4} - ((?:[0-9a-f]{2}[ -]){1,16})", dump, re.MULTILINE)
    stamped = "".join(re.findall("[0-9a-f]{2}", "".join(lines)))
    if stamped != hashlib.new(name[1], read_bytes(sums)).hexdigest():
        raise InputError(
            f"{reply} is a timestamp of another file than this bundle's SHA256SUMS. Make the bundle with the same "
            "options as the one that was stamped."
        )
    return one_line(time[1], width=60)


def build_report(
    run: Path,
    *,
    output_dir: Path | None = None,
    verify: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    redactor: Redactor | None = None,
) -> Path:
    """Write tables/, report.html and verdicts.json of a run, or of a search for holes.

    The same run gives the same bytes. An earlier report's files in the two folders are removed. Files of other names
    stay. verdicts.json is made anew from the sealed outcomes. An unfinished run gives a report that lists the missing
    parts. One report is written at a time.

    Args:
        run: The folder of the run or search.
        output_dir: Where the report goes. None writes it into `run`.
        verify: Read every file of the run's models, and not only files with a changed size, time or inode.
        tell: Called with each sentence on omitted parts.
        redactor: Replaces the texts of data and models. Searches for holes are then left out.

    Returns:
        The path of the page.

    Raises:
        InputError: The run has no subject, or a model's files are not those that its evaluations were made of.
    """
    source, search, folder = RunFolder(run), ProbeFolder(run), RunFolder(output_dir or run)
    refuse_links(run)
    if output_dir is not None:
        # A page written by Vestige may be replaced, with the tables next to it.
        if not is_report(folder.report):
            folder.refuse_others_files()
        output_dir.mkdir(parents=True, exist_ok=True)
    # A missing folder cannot have a lock, and is rejected when it is read.
    alone = replacing(folder.report) if run.is_dir() else nullcontext()
    with alone:
        contents = None if is_probe(search) else read_contents(source, verify=verify)
        sealed = () if contents is None else contents.audits
        if redactor is not None and contents is not None:
            contents = redactor(replace(contents, probes=()))
        probes = [read_probe(search)] if contents is None else contents.probes
        # Tables come first, so that an existing page always has its tables.
        with _renewed(folder.tables) as tables:
            if contents is not None:
                write_tables(tables, source, contents, replaced=str if redactor is None else redactor.text)
            if probes:
                write_hole_tables(tables, probes)
        if source.audits():
            # These are the outcomes as read from the sealed files, before any text is replaced.
            known = {audit.path: outcome for audit, outcome in zip(source.audits(), sealed, strict=False)}
            write_verdicts(source, folder.verdicts, known=known)
            if redactor is not None:
                without_texts(folder.verdicts, redactor)
        write_text(folder.report, render_holes(probes[0]) if contents is None else render(contents))
    for sentence in () if contents is None else (*contents.evidence.missing, *contents.unjudged):
        tell(sentence)
    return folder.report


@contextmanager
def _renewed(folder: Path) -> Iterator[Path]:
    """Fill a folder next to `folder`, and replace an earlier report's files with its files."""
    partial = folder.with_name(f".{folder.name}.partial")
    with machine_errors(folder):
        remove_folder(partial)
        partial.mkdir(parents=True)
        try:
            yield partial
            folder.mkdir(exist_ok=True)
            new = {file.name for file in partial.iterdir()}
            # Files are replaced one by one, since the folder may contain files of others.
            for name in sorted(new):
                os.replace(partial / name, folder / name)
            for old in sorted(folder.iterdir()):
                if old.is_file() and old.name not in new and is_own(Path(folder.name, old.name)):
                    old.unlink()
        finally:
            remove_folder(partial)


MANIFEST, PAGE, SUMS, STAMP = "manifest.json", "evidence.html", "SHA256SUMS", "SHA256SUMS.tsr"
NAMESPACE = "vestige-evidence"
"""The purpose of a signature, to which ssh-keygen binds it."""


def build_bundle(
    run: Path,
    out: Path,
    *,
    sign_with: Path | None = None,
    by: str = "",
    on_behalf_of: str = "",
    redact: Path | None = None,
    timestamp: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the bundle of an audited run into the folder `out`, which must not exist, and return its page.

    Report, tables and verdicts are made again from sealed files, and every file of the run's models is read, so that
    digests describe the actual files. SHA256SUMS names every file by digest. `by` and `on_behalf_of` name the author
    and the principal. With `sign_with`, the file of an SSH key, ssh-keygen signs it. The same run gives the same bytes,
    also with an Ed25519 signature. With `redact`, the file of a key that is made if it is absent, digests replace the
    texts of data and models. `timestamp` is an RFC 3161 reply for the SHA256SUMS of the same bundle. `tell` is called
    with each sentence on omitted parts.
    """
    if out.exists():
        raise InputError(f"{out} exists. Name a new folder")
    if sign_with is not None and not sign_with.is_file():
        raise InputError(f"{sign_with}: there is no such key. Make one: ssh-keygen -t ed25519 -f {sign_with}")
    if sign_with is not None and shutil.which("ssh-keygen") is None:
        raise InputError("ssh-keygen, which signs, is not installed. Install OpenSSH, or leave --sign-with out")
    folder = RunFolder(run)
    sources = (folder.settings, folder.provenance)
    # A bundle must contain only files of the run, and no file that a link leads to.
    linked = next((path for path in sources if path.is_symlink()), None)
    if linked is not None:
        raise InputError(
            f"{one_line(str(linked), width=300)} is a link, and a bundle contains only files of the run. Remove it"
        )
    contents = read_contents(folder, verify=True)
    if not contents.audits:
        raise InputError(f"{run}: there is no finished audit. Run `vestige audit` first")
    redactor = None if redact is None else Redactor(redaction_key(redact), contents)
    if redactor is not None:
        contents = redactor(replace(contents, probes=()))
    with new_folder(out) as partial:
        # The report is rebuilt and not copied, since the files in the run may have been edited. All evidence was
        # verified just before.
        build_report(run, output_dir=partial, redactor=redactor, tell=tell)
        for source in sources:
            if source.exists():
                write_bytes(partial / source.name, read_bytes(source))
                if redactor is not None:
                    without_texts(partial / source.name, redactor)
        people = {"by": one_line(by, width=200), "on_behalf_of": one_line(on_behalf_of, width=200)}
        variables = _variables(folder, contents) | {
            "signed": sign_with is not None,
            "redacted": redactor is not None,
            "people": people,
        }
        # The page is written before the manifest, which has the digest of each file.
        write_text(partial / PAGE, render_static("bundle.html.j2", (), variables))
        write_json(partial / MANIFEST, _manifest(folder, contents, partial) | people)
        if redactor is not None:
            redactor.refuse_left(partial)
        # The sums come last, since they list every file in the bundle.
        sums = {p.relative_to(partial).as_posix(): file_digest(p) for p in sorted(partial.rglob("*")) if p.is_file()}
        write_text(partial / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
        if timestamp is not None:
            check_timestamp(timestamp, partial / SUMS)
            write_bytes(partial / STAMP, read_bytes(timestamp))
        if sign_with is not None:
            # ssh-keygen writes SHA256SUMS.sig, and asks for a passphrase at the terminal.
            command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(sign_with), str(partial / SUMS)]
            done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=False)
            if done.returncode:
                why = one_line(done.stderr.strip().rpartition("\n")[2])
                raise InputError(f"{sign_with} is not an SSH key that can sign: {why}")
    return out / PAGE


def _manifest(folder: RunFolder, contents: Contents, partial: Path) -> Fields:
    bundled = sorted(p for p in partial.rglob("*") if p.is_file())
    evaluations = sorted({path for sources in contents.sources for _, _, path, _ in sources})
    return {
        "schema": 1,
        "run": contents.evidence.name,
        "vestige": contents.evidence.provenance.get("versions", {}).get("vestige", ""),
        "files": {p.relative_to(partial).as_posix(): file_digest(p) for p in bundled},
        "models": {s.path: s.digest for s in contents.evidence.subjects},
        "scores": {path: scores_digest(EvalFolder(folder.path / path)) for path in evaluations},
        # Audits are matched by order: redacted folders no longer have the name of the forget set.
        "audits": {
            outcome.forget: file_digest(audit.outcome)
            for audit, outcome in zip(folder.audits(), contents.audits, strict=True)
        },
    }


def _variables(folder: RunFolder, contents: Contents) -> Fields:
    times = contents.evidence.provenance.get("times", {})
    return {
        "started": str(times.get("started", ""))[:19] or "not recorded",
        "models": [(s.label, s.path, s.digest) for s in contents.evidence.subjects],
        "headline": page_headline(contents),
        "title": page_title(contents),
        "run_name": contents.evidence.name,
        "audits": [_audit(folder, contents, i, outcome) for i, outcome in enumerate(contents.in_words)],
        "missing": (*contents.evidence.missing, *contents.unjudged),
        "settings": named_values(contents.evidence.settings),
    }


def _digest(folder: RunFolder, place: str) -> str:
    """Return the digest of a model's files, or "" if the run has no finished model at this place."""
    done = SubjectFolder(folder.path / place).done
    return str(read_finished(done, "digest")["digest"]) if place and done.is_file() else ""


def _audit(folder: RunFolder, contents: Contents, index: int, outcome: AuditOutcome) -> Fields:
    audit = folder.audits()[index]
    plan = read_plan(audit) if audit.plan.exists() else None
    # A redacted bundle has codes in names and paths, so weights are found by the stored names.
    places = plan.folders if plan else {}
    digests = [_digest(folder, places.get(name, "")) for name in read_outcome(audit).audited]
    mapped = []
    for entry in frameworks():
        found = [(claim, _found(outcome, claim)) for claim in entry["claims"]]
        mapped.append({**entry, "answered": answered(outcome, entry["answered"]), "found": found})
    return {
        "screen": first_screen(
            index, outcome, contents.colours, contents.parties, contents.verbatim[index], contents.people[index]
        ),
        "outcome": outcome,
        "parties": contents.parties,
        "models": list(zip(outcome.audited, digests, strict=True)),
        "next_steps": next_steps(outcome),
        "attacks": plan.attacks if plan else (),
        "able": {line.attack: line.able for line in outcome.able},
        "words": WORDS,
        "bounds": [plain_sentence(bound_said(outcome, v), contents.parties) for v in outcome.verdicts],
        "level": controls_said(outcome),
        "margins": " ".join(margins_said(outcome)),
        "claims": CLAIMS,
        "mapped": mapped,
    }


def frameworks() -> Sequence[Record]:
    """Return the requirements of laws and frameworks, and the claims that bear on each, as this version reads them."""
    entries: Sequence[Record] = json.loads(page_file("frameworks.json"))
    return entries


def answered(outcome: AuditOutcome, parts: Sequence[TextMapping]) -> str:
    """Return for a text's requirements whether this audit covers each part."""
    subjects = {*outcome.unlearned}
    done = {
        "formats": any(line.admitted for line in outcome.formats),
        "membership": any(line.subject in subjects for line in outcome.membership),
        "attacks": bool(outcome.gains),
        "kept": any(line.subject in subjects for line in outcome.kept),
        "controls": bool(outcome.retrained),
    }
    return " ".join(part["then"] if done.get(part.get("where", ""), True) else part["otherwise"] for part in parts)


def _found(outcome: AuditOutcome, claim: str) -> str:
    """The passing, failing and inconclusive models among those that should have forgotten."""
    results = {(v.subject, str(v.claim)): WORDS[v.outcome] for v in outcome.verdicts}
    by_word: dict[str, list[str]] = {word: [] for word in (*WORDS.values(), "not judged")}
    for subject in outcome.audited:
        by_word[results.get((subject, claim), "not judged")].append(method_name(subject))
    return "; ".join(f"{word}: {listed(names)}" for word, names in by_word.items() if names)
