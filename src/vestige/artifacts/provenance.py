"""The provenance of an output: command, versions, hardware, times. Never part of an identity."""

import os
import platform
import shlex
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vestige.core.errors import InputError
from vestige.core.files import read_json
from vestige.core.ids import content_id, file_digest
from vestige.core.text import Fields, TextByName, one_line

_PACKAGES = ("vestige", "torch", "transformers", "peft", "tokenizers", "safetensors", "numpy")


happened: Counter[str] = Counter()
"""Record an event that changed no result beyond rounding, by name. Outputs written afterwards mention it."""


@dataclass(frozen=True)
class Stopwatch:
    """Wall and processor time since it was made."""

    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    # Clocks that nobody can set while they run, unlike that of `started`.
    wall: float = field(default_factory=time.perf_counter)
    cpu: float = field(default_factory=time.process_time)

    def read(self) -> Fields:
        """Start (UTC), wall seconds and processor seconds of this process so far."""
        return {
            "started": self.started,
            "wall_seconds": round(time.perf_counter() - self.wall, 3),
            "cpu_seconds": round(time.process_time() - self.cpu, 3),
        }


@cache
def installed_versions() -> TextByName:
    """Versions of the packages that can change a number. A missing package is listed as missing."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


@cache
def code_digest() -> str:
    """Content id of what numbers come from: all files of this package but the page's, and the packages beneath it."""
    package = Path(__file__).parents[1]
    # Compiled modules appear on import and are not separate code.
    files = {p.relative_to(package): p for p in sorted(package.rglob("*")) if p.is_file() and p.suffix != ".pyc"}
    digests = {name.as_posix(): file_digest(path) for name, path in files.items() if "page" not in name.parts}
    return content_id([digests, installed_versions()], length=64)


@cache
def source_commit() -> str:
    """The commit of the source tree that the package runs from, '+changed' if it differs. Empty when installed.

    It is read once in a process: what changes later is not what this process runs.
    """
    package = Path(__file__).parent
    try:
        top = _git("rev-parse", "--show-toplevel", cwd=package)
        # This is a virtual environment within another repository.
        if not package.is_relative_to(Path(top) / "src"):
            return ""
        return _git("rev-parse", "HEAD", cwd=package) + (
            "+changed" if _git("status", "--porcelain", cwd=package) else ""
        )
    # There is no git or no repository: the package was installed.
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str, cwd: Path) -> str:
    done = subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_provenance(path: Path, watch: Stopwatch, **details: Any) -> None:
    """Record what made an output: this process's command, versions and hardware, its times, and `details`."""
    # `vestige --help` needs this module, and not the slow pydantic.
    from vestige.core.store import write_sealed

    write_sealed(
        path,
        {
            "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "commit": source_commit(),
            "versions": installed_versions(),
            "hardware": {
                "machine": platform.machine(),
                "system": platform.system(),
                "processor": processor_name(),
                "cores": os.cpu_count(),
            },
            "times": watch.read(),
            **happened,
            **details,
        },
    )


def odd_tokens_told(path: Path) -> str:
    """How many items of an evaluation its model reads otherwise than they are written, in sentences. "" for none."""
    stored = read_provenance(path)
    control, unknown = stored.get("control_tokens"), stored.get("unknown_tokens")
    sentences = []
    if isinstance(control, dict) and isinstance(control.get("tokens"), list) and isinstance(control.get("items"), int):
        marks = one_line(" ".join(map(str, control["tokens"])), width=80)
        sentences.append(
            f"{control['items']} of the items hold special tokens of the model ({marks}), which it reads as signs and "
            "not as text, so that what it says there may be no answer to what was asked; take them out of the data."
        )
    if isinstance(unknown, int):
        sentences.append(
            f"{unknown} of the items hold signs or words for which the model has no token, so that it reads others "
            "than are written."
        )
    return " ".join(sentences)


def read_provenance(path: Path) -> Fields:
    """What `write_provenance` put down, nothing without a file. One that was changed is refused, since pages show it.

    So is one whose parts are of other kinds. Earlier versions wrote it without a checksum.
    """
    from vestige.core.store import remade, unsealed

    if not path.exists():
        return {}
    stored = read_json(path, remedy=remade(path))
    parts = {"command": str, "versions": dict, "hardware": dict, "times": dict, "models": dict, "number": int}
    if isinstance(stored, dict):
        stored = unsealed(path, stored)
        if all(isinstance(stored[name], kind) for name, kind in parts.items() if name in stored):
            return stored
    raise InputError(f"{path} is not a file that Vestige wrote. Delete it")


def processor_name() -> str:
    """The processor's name as the system gives it, or its architecture."""
    # On Linux, `platform` only knows the architecture.
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
