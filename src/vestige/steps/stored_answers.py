"""Answers of target and controls, stored by content under VESTIGE_HOME, so that a second audit does not ask again.

Their scores and summaries are stored too, and the positive control. An entry's name covers everything that can change
its bytes: the weights, the items, the attack, the seed, the versions, the processor and the device. So no entry is ever
given for another.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from vestige.artifacts.provenance import code_digest, processor_name
from vestige.core.errors import InputError, VestigeError
from vestige.core.files import replacing, write_bytes
from vestige.core.ids import content_id
from vestige.core.store import read_sealed, write_sealed
from vestige.models.cache import cache_folder

_FILES = "files"
LIMIT = 10_000_000_000
"""The maximum size of the store, in bytes. A tenth of it is the maximum of an entry."""


def entry_key(kind: str, identity: Any, device: str) -> str:
    """The name of an entry.

    Args:
        kind: `evaluation`, `scores`, `attack` or `control`.
        identity: All that can change the answers, except for this machine.
        device: The device that the model goes to.

    Returns:
        64 hexadecimal digits.
    """
    return content_id([kind, identity, _where(device), processor_name(), code_digest()], length=64)


def _where(device: str) -> str:
    """Return the actual device: `auto` on a machine with a new GPU differs."""
    if device == "auto":
        device = "cpu"
        if torch.cuda.is_available():
            device = "cuda"
    kind = device.partition(":")[0]
    if kind == "cuda":
        return f"{kind} {torch.cuda.get_device_name(device)}"
    return kind


def restore(folder: Path, key: str) -> bool:
    """Copy an entry into a folder.

    Args:
        folder: Where the files go. The caller holds its lock.
        key: The entry.

    Returns:
        Whether the entry was there. A damaged entry is deleted and counts as absent, so that the model is queried.
    """
    entry = _entry(key)
    if not (entry / "entry.json").is_file():
        return False
    try:
        stored = read_sealed(entry / "entry.json", "key", "names")
        if stored["key"] != key:
            raise InputError(f"{entry} is another entry")
        contents = {name: (entry / _FILES / name).read_bytes() for name in stored["names"]}
        os.utime(entry)
    except (VestigeError, OSError):
        shutil.rmtree(entry, ignore_errors=True)
        return False
    for name, content in contents.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, content)
    return True


def keep(folder: Path, key: str, files: Iterable[Path]) -> None:
    """Store files of a folder as an entry. A store that cannot be written, on a full disk say, stops no audit.

    Args:
        folder: The folder.
        key: The entry.
        files: The files, in the order in which they are copied back. With the last one the others count as whole.
    """
    entry, stored = _entry(key), list(files)
    if (entry / "entry.json").is_file() or sum(file.stat().st_size for file in stored) > LIMIT / 10:
        return
    names = [file.relative_to(folder).as_posix() for file in stored]
    try:
        with replacing(entry, patience_seconds=0.0):
            for name in names:
                place = entry / _FILES / name
                place.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(place, (folder / name).read_bytes())
            # Last: an entry without it is absent.
            write_sealed(entry / "entry.json", {"key": key, "names": names}, [entry / _FILES / name for name in names])
    except (VestigeError, OSError):
        shutil.rmtree(entry, ignore_errors=True)


def trim(limit: int = LIMIT) -> None:
    """Remove the entries that were not used for the longest time, until the store has at most `limit` bytes."""
    entries = []
    with contextlib.suppress(OSError):
        for entry in _folder().glob("*/*/"):
            size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
            entries.append((entry.stat().st_mtime, size, entry))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total <= limit:
            return
        shutil.rmtree(entry, ignore_errors=True)
        total -= size


def _entry(key: str) -> Path:
    return _folder() / key[:2] / key


def _folder() -> Path:
    return cache_folder() / "answers"
