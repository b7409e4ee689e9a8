"""Content ids: the same content has the same name, on every machine and in every order of keys.

An id is the leading hexadecimal digits of a SHA-256 over canonical JSON (sorted keys, no spaces, UTF-8).
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from vestige.core.files import open_input
from vestige.core.text import Record

# With its prefixes and suffixes, a name stays within the 255 bytes of file systems.
_LONGEST = 48
_UNSAFE = re.compile(r"[^A-Za-z0-9._=-]+")
# On Windows these are devices, whatever follows the full stop.
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no spaces. NaN and infinities are refused, since JSON has none."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def content_id(value: Any, *, length: int = 16) -> str:
    """The first `length` hexadecimal digits of the SHA-256 of `value`'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open_input(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_keys(first: Record, second: Record) -> list[str]:
    """The names, sorted, under which two identities differ."""
    return sorted(k for k in first.keys() | second.keys() if first.get(k) != second.get(k))


def slug(name: str) -> str:
    """Return `name` as a safe file name: letters, digits, '.', '_', '-' and '='. Never empty, hidden or '..'.

    A colon becomes '='. A name that is changed otherwise, has a '=', or is a device of Windows, ends with eight digits
    of its content id.
    """
    safe = _UNSAFE.sub("-", name.replace(":", "=")).strip("-.=")
    if _DEVICE.match(safe):
        safe = f"name-{safe}"
    if safe == name.replace(":", "=") and "=" not in name and 0 < len(safe) <= _LONGEST:
        return safe
    return f"{safe[: _LONGEST - 9].strip('-.=') or 'unnamed'}-{content_id(name, length=8)}"
