"""The files that a model is read from, by which a folder sees whether the model beside its evidence is still the same.

`done.json` holds the SHA-256 of each file: evidence. `seen.json` holds size, times and inode of each as they were when
this machine last knew the files to be the model of `done.json`'s digest: never evidence, and of no use elsewhere, since
a copied file has another inode and time of change. Files that are as they were seen need not be read again.
"""

import contextlib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from vestige.artifacts.layout import SubjectFolder
from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json
from vestige.core.ids import file_digest

_READ = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "adapter_config.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.jinja", "*.py"),
    *("chat_template.json", "ensemble.json"),
)
_FOLDERS = ("shard-*", "additional_chat_templates")

Files = Mapping[str, Mapping[str, str]]
"""SHA-256 by file and place: a folder, with the files' paths in it, or a file that is a model by itself, under ''.

A place in the subject's folder is named by its path there, any other by where it lies on this machine.
"""

_ADVICE = ", so what is kept about the model is not about these files; restore them, or start over with --fresh"


class OtherModelError(InputError):
    """The files of a model are not those that its folder speaks of."""


def digests_of(subject: SubjectFolder, places: Iterable[Path]) -> dict[str, dict[str, str]]:
    """The digests of the files that a model is read from, where `places` are its folders or files."""
    home, found = subject.path.resolve(), {}
    for place in places:
        whole = place.resolve()
        name = whole.relative_to(home).as_posix() if whole.is_relative_to(home) else str(whole)
        found[name] = {file: file_digest(whole / file) for file in _listed(whole)}
    return found


def _listed(place: Path) -> list[str]:
    if not place.is_dir():
        return [""]
    folders = [place, *(f for kind in _FOLDERS for f in place.glob(kind) if f.is_dir())]
    files = [p for folder in folders for p in folder.iterdir() if p.is_file()]
    return sorted(str(p.relative_to(place)) for p in files if any(fnmatch(p.name, kind) for kind in _READ))


def note_seen(subject: SubjectFolder, files: Files) -> None:
    """Put down that the files, as they are now, are the model that the folder speaks of.

    Where nothing may be written, they are read again each time.
    """
    with contextlib.suppress(PermissionError):
        write_json(subject.seen, _states(subject, files))


def check_files(subject: SubjectFolder, files: Files, *, verify: bool = False) -> bool:
    """Whether every file is as it was last seen here. One with another digest, one gone and one added are refused.

    Where one has another size, time or inode all are read, and with `verify` in any case.
    """
    held = _digests(subject, files)
    listed = {(subject.path / place).resolve() / file for place in files for file in _listed(subject.path / place)}
    for path in sorted({path for path in listed if path.exists()} ^ held.keys()):
        how = "is gone" if path in held else "was added"
        raise OtherModelError(f"{path} {how} since the model was recorded{_ADVICE}")
    seen = read_json(subject.seen) if subject.seen.exists() else {}
    states = _states(subject, files)
    unchanged = seen == states and not verify
    for path, digest in () if unchanged else held.items():
        if file_digest(path) != digest:
            raise OtherModelError(f"{path} was changed since the model was recorded{_ADVICE}")
    return bool(files) and bool(seen == states)


def check_there(subject: SubjectFolder, files: Files, *, verify: bool) -> bool:
    """Whether the model is there at all; if it is, `check_files` of it."""
    if files and not any(path.exists() for path in _digests(subject, files)):
        return False
    check_files(subject, files, verify=verify)
    return True


def _digests(subject: SubjectFolder, files: Files) -> dict[Path, str]:
    """The digest of each file by its path."""
    return {
        (subject.path / place).resolve() / file: digest for place, own in files.items() for file, digest in own.items()
    }


def _states(subject: SubjectFolder, files: Files) -> dict[str, list[int]]:
    """Of each file its size, the times of the last change of its content and of itself, and its inode."""
    found = {f"{place}/{file}": (subject.path / place / file).stat() for place, own in files.items() for file in own}
    return {name: [at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino] for name, at in found.items()}
