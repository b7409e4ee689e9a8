"""What a calibration leaves on disk, and how it is read.

::

    asked.json                    the identity: everything that can change the result
    target/                       a rung folder: how the target itself scores on the validation items
    candidates/<rate>[-<strength>]/   a subject's folder; those of the last rung hold a whole model
        rungs/<n>/                records.jsonl, provenance.json, and score.json, written last
    calibration.json              written last: every candidate, rung and decision, and the estimates on test items

Everything but provenance.json is the same bytes after a run that was killed and resumed.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from vestige.artifacts.layout import SubjectFolder
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.core.errors import InputError
from vestige.core.files import read_json, write_json

Fate = Literal["goes on", "dropped", "broke down", "chosen", "not chosen"]


@dataclass(frozen=True)
class RungFolder:
    """One candidate's validation at one rung."""

    path: Path

    @property
    def records(self) -> Path:
        """One line a validation item."""
        return self.path / "records.jsonl"

    @property
    def provenance(self) -> Path:
        """Versions, hardware and the times of training and scoring at this rung."""
        return self.path / "provenance.json"

    @property
    def score(self) -> Path:
        """Written last: the mean scores, or that training broke down."""
        return self.path / "score.json"


@dataclass(frozen=True)
class CalibrationFolder:
    """One calibration: one target, forget set and method."""

    path: Path

    @property
    def asked(self) -> Path:
        """The identity."""
        return self.path / "asked.json"

    @property
    def target(self) -> RungFolder:
        """The target's own validation."""
        return RungFolder(self.path / "target")

    @property
    def result(self) -> Path:
        """Written last."""
        return self.path / "calibration.json"

    @property
    def lock(self) -> Path:
        """Held by the command that works on the calibration."""
        return self.path / ".lock"

    def candidate(self, rate: float, strength: float | None) -> SubjectFolder:
        """The subject that is trained at this rate and strength."""
        name = f"{rate:g}" if strength is None else f"{rate:g}-{strength:g}"
        return SubjectFolder(self.path / "candidates" / name)

    def rung(self, candidate: SubjectFolder, number: int) -> RungFolder:
        """The candidate's validation at rung 1, 2, ..."""
        return RungFolder(candidate.path / "rungs" / str(number))

    def cpu_seconds(self) -> float:
        """Processor seconds of all training and scoring that was brought to its end, the losers' too."""
        return sum(float(read_json(p)["times"]["cpu_seconds"]) for p in self._provenances())

    def _provenances(self) -> Iterator[Path]:
        yield from sorted(self.path.glob("target/provenance.json"))
        yield from sorted(self.path.glob("candidates/*/rungs/*/provenance.json"))


@dataclass(frozen=True)
class Score:
    """Mean validation scores after `steps` steps; None where training broke down, for the reason in `broke_down`."""

    steps: int
    n_tokens: int
    forget: float | None
    retain: float | None
    broke_down: str


@dataclass(frozen=True)
class RungResult:
    """One candidate at one rung: its score, where it was foreseen to end, and what became of it."""

    score: Score
    foreseen_forget: float | None
    foreseen_retain: float | None
    fate: Fate


@dataclass(frozen=True)
class CandidateResult:
    """One point of the grid and its rungs; `strength` is None where only rates were searched."""

    rate: float
    strength: float | None
    rungs: tuple[RungResult, ...]


@dataclass(frozen=True)
class Calibration:
    """What a calibration found.

    `strength_name` is the method's setting that was searched besides the rate, or empty. `reached` says whether the
    chosen candidate is within the goal's bound on the validation items; if not, it is the nearest to it. `rate` is
    None where every finalist's training broke down. `start` is the target's own score, `n_steps` and `n_tokens` what
    all candidates together were trained for, `n_validation` the items chosen on. `test` holds estimates of the chosen
    candidate on the other items, as rows of tables/results.csv.
    """

    method: str
    forget: str
    goal: str
    metric: str
    strength_name: str
    reached: bool
    rate: float | None
    strength: float | None
    start: Score
    candidates: tuple[CandidateResult, ...]
    n_steps: int
    n_tokens: int
    n_validation: dict[str, int]
    test: tuple[dict[str, Any], ...]


def write_score(folder: RungFolder, score: Score) -> None:
    """Write a rung's score; its existence means that the rung is done for this candidate."""
    write_json(folder.score, {"schema": SCHEMA, **asdict(score)})


def read_score(folder: RungFolder) -> Score | None:
    """A rung's score; None while it is not there."""
    if not folder.score.exists():
        return None
    stored = read_versioned(folder.score, *Score.__dataclass_fields__)
    return Score(**{name: stored[name] for name in Score.__dataclass_fields__})


def write_calibration(folder: CalibrationFolder, found: Calibration) -> None:
    """Write the result; its existence means that the calibration is done."""
    write_json(folder.result, {"schema": SCHEMA, **asdict(found)})


def read_calibration(folder: CalibrationFolder) -> Calibration:
    """The result of a finished calibration."""
    if not folder.result.exists():
        raise InputError(f"{folder.path} holds no finished calibration; run the command that was making it again")
    stored = read_versioned(folder.result, *Calibration.__dataclass_fields__)
    fields = {name: stored[name] for name in Calibration.__dataclass_fields__}
    candidates = tuple(
        CandidateResult(c["rate"], c["strength"], tuple(_rung_result(r) for r in c["rungs"]))
        for c in fields["candidates"]
    )
    return Calibration(
        **{**fields, "start": Score(**fields["start"]), "candidates": candidates, "test": tuple(fields["test"])}
    )


def _rung_result(stored: dict[str, Any]) -> RungResult:
    return RungResult(**{**stored, "score": Score(**stored["score"])})
