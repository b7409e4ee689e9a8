"""What the checks of a data set leave on disk: one line a check, and everything that they were made with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vestige.artifacts.audits import SoundnessLine
from vestige.artifacts.records import read_record, write_record


@dataclass(frozen=True)
class Soundness:
    """The checks of one data set seen from one forget set.

    `digest` is that of the items of both splits in their order. `left_out` says in sentences which checks do not apply
    to this data; `leaking` has, by failed check, the ids of the forget items that it found, or that its guesser solves;
    `figures` are further numbers, and `needs` says how many items the margin takes, where open checks have fewer.
    `sanitized` are the lines of the data without what leaks, on seeds of their own,
    where such data was asked for.
    """

    forget: str
    lines: tuple[SoundnessLine, ...]
    settings: dict[str, Any]
    digest: str
    left_out: tuple[str, ...] = ()
    leaking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    needs: str = ""
    sanitized: tuple[SoundnessLine, ...] | None = None


def exit_code(lines: tuple[SoundnessLine, ...]) -> int:
    """0 where every check passed, 3 where one failed, 4 where none failed and one cannot tell."""
    if any(line.sound is False for line in lines):
        return 3
    return 4 if not lines or any(line.sound is None for line in lines) else 0


def write_soundness(path: Path, found: Soundness) -> None:
    """Write what the checks found."""
    write_record(path, found)


def read_soundness(path: Path) -> Soundness:
    """What the checks found; a file that lacks something is refused by file and field."""
    return read_record(path, Soundness, again="run vestige check-data again")
