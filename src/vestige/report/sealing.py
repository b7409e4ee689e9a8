"""Parts of an evidence bundle in addition to its files: digests in place of texts, and a third party's timestamp."""

import hashlib
import hmac
import html
import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from vestige.artifacts.audits import FactLine, GroupLine
from vestige.core.errors import InputError
from vestige.core.files import read_bytes, read_text, write_text
from vestige.core.text import TextTuple, one_line
from vestige.report.contents import Contents
from vestige.report.edges import NamedEdge
from vestige.report.evidence import AskedItem, GreedyReply

_T = TypeVar("_T")
_SHORTEST = 4
"""Characters of a text that is looked for inside others. Shorter ones are replaced where they are the whole text."""


def redaction_key(path: Path) -> bytes:
    """The secret that digests of texts are made with, read from `path` or made there.

    Without a key anybody could find a short text, such as a name, by trying.
    """
    if not path.exists():
        write_text(path, secrets.token_hex(32) + "\n")
        path.chmod(0o600)
    return read_text(path).strip().encode()


class Redactor:
    """Replaces the texts of a run by keyed digests: questions, answers, replies, groups and names of contracts."""

    def __init__(self, key: bytes, contents: Contents) -> None:
        """Collect the texts of a run."""
        self._key = key
        self._everything = frozenset(text for text in _texts(contents) if text.strip())
        # A reply may be `all` or `target`: elsewhere such a word names a part of the run.
        self._texts = self._everything - frozenset(_strings(contents.evidence))
        inside = sorted((text for text in self._texts if len(text) >= _SHORTEST), key=lambda text: (-len(text), text))
        spelled = "|".join(re.escape(text) for text in inside)
        # Words of their own, so that a name does not cut a longer word.
        self._inside = re.compile(rf"(?<!\w)(?:{spelled})(?!\w)") if inside else None

    def digest(self, text: str) -> str:
        """What represents a text: the first 24 hexadecimal digits of its HMAC-SHA256."""
        return f"[text {hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()[:24]}]"

    def text(self, text: str) -> str:
        """Return a text without the run's texts."""
        if text in self._texts:
            return self.digest(text)
        if self._inside is None:
            return text
        return self._inside.sub(lambda found: self.digest(found[0]), text)

    def __call__(self, value: _T) -> _T:
        """The same record, mapping or list with every text in it replaced, keys too."""
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
        if self._inside is None:
            return
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            # As HTML and JSON write it too.
            content = html.unescape(read_bytes(path).decode(errors="replace"))
            for spelled in (content, content.replace('\\"', '"').replace("\\n", "\n")):
                if found := self._inside.search(spelled):
                    raise InputError(
                        f"{path.name} would still hold the text {one_line(self.digest(found[0]), width=60)} of the "
                        "run, so no redacted bundle was made. Report this as a fault of Vestige."
                    )


def _texts(contents: Contents) -> Iterator[str]:
    """The texts that a run took from its data and its models."""
    for item in contents.answers.questions:
        yield from (item.question, item.answer, item.group)
    for replies in contents.answers.replies.values():
        for reply in replies.values():
            yield reply.text
    for outcome in contents.audits:
        for fact in outcome.facts:
            yield from (fact.question, fact.answer, fact.reply)
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
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    printed = run(["openssl", "ts", "-reply", "-in", str(reply), "-text"]).stdout
    name = re.search(r"^Hash Algorithm: (sha256|sha384|sha512)\s*$", printed, re.MULTILINE)
    time = re.search(r"^Time stamp: (.+)$", printed, re.MULTILINE)
    if "Status: Granted" not in printed or name is None or time is None:
        raise InputError(f"{reply} is not a granted RFC 3161 timestamp. Ask the authority again.")
    dump = printed.partition("Message data:")[2].partition("Serial number:")[0]
    # A line is `0000 - 2c f2 4d-ba 5f   ,.M._`: the place, up to sixteen bytes, and the same as characters.
    lines = re.findall(r"^\s+[0-9a-f]{4} - ((?:[0-9a-f]{2}[ -]){1,16})", dump, re.MULTILINE)
    stamped = "".join(re.findall("[0-9a-f]{2}", "".join(lines)))
    if stamped != hashlib.new(name[1], read_bytes(sums)).hexdigest():
        raise InputError(
            f"{reply} is a timestamp of another file than this bundle's SHA256SUMS. Make the bundle with the same "
            "options as the one that was stamped."
        )
    return one_line(time[1], width=60)
