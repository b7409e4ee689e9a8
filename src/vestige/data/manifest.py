"""The manifest of a compiled folder: what made it, what it holds, and the digest of every file.

It is written last, and reading starts with it: a file that is missing or was changed is refused by name.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vestige.artifacts.own_files import refuse_strangers
from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json
from vestige.core.ids import changed_keys, file_digest

SCHEMA = 1
"""Version of the folder's files. Another one is refused, never guessed at."""

COMPILER = 1
"""Version of the compiler: the same settings give the same bytes as long as it stays the same."""

MANIFEST = "manifest.json"


@dataclass
class FilesWritten:
    """Writes the files of one folder and remembers size and digest of each."""

    folder: Path
    files: dict[str, dict[str, int | str]] = field(default_factory=dict)

    def write(self, name: str, pieces: Iterable[str]) -> None:
        """Write pieces of UTF-8 text one after the other, without holding them all."""
        digest, size = hashlib.sha256(), 0
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for piece in pieces:
                content = piece.encode()
                digest.update(content)
                size += len(content)
                file.write(content)
        self.files[name] = {"sha256": digest.hexdigest(), "bytes": size}

    def finish(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Write the manifest, and give it back."""
        manifest = {
            "schema": SCHEMA,
            **about,
            "vestige": _version(),
            "files": dict(sorted(self.files.items())),
        }
        write_json(self.folder / MANIFEST, manifest)
        return manifest


def _version() -> str:
    try:
        return version("vestige")
    except PackageNotFoundError:
        return "not installed"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a compiled folder."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder}: not a compiled data set (no {MANIFEST}); make one with `vestige compile`")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise InputError(f"{path}: made by another version of Vestige (its schema is not {SCHEMA}); compile again")
    return manifest


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Compare every file with its digest; the first that is missing or was changed is named."""
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise InputError(f"{folder / MANIFEST}: lists no files; compile again")
    for name, facts in files.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not isinstance(facts, dict):
            raise InputError(f"{folder / MANIFEST}: {name!r} is no file of this folder; compile again")
        if not path.is_file():
            raise InputError(f"{path}: missing, though {MANIFEST} lists it; compile again with --fresh")
        if file_digest(path) != facts.get("sha256"):
            raise InputError(f"{path}: changed since it was compiled; compile again with --fresh")


def already_there(folder: Path, identity: Mapping[str, Any], *, fresh: bool) -> dict[str, Any] | None:
    """The manifest, if the folder holds just what is asked for; None if there is room to write it.

    A folder that holds files of others is never replaced, and another data set only where `fresh` says so.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not folder.is_dir():
        raise InputError(f"{folder}: a file of that name is in the way; give another --output-dir")
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder}: holds other files and no compiled data set; give another --output-dir")
    if fresh:
        refuse_strangers(folder, folder.iterdir())
        return None
    manifest = read_manifest(folder)
    changed = changed_keys(identity, {key: manifest.get(key) for key in identity})
    if changed:
        raise InputError(
            f"{folder}: holds another data set (it differs in {', '.join(changed)}); give another "
            "--output-dir, or "
            "replace it with --fresh"
        )
    check_files(folder, manifest)
    return manifest
