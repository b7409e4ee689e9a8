"""What a trial of prevention leaves on disk, and how it is read.

::

    asked.json                    the identity: everything that can change what is found
    risk.jsonl                    each benign item: its part, and its risk by every score, higher being more at risk
    target/                       the target's answers, where it is not asked in a folder of its own
    arms/<arm>-<seed>/            an unlearned subject, with its answers in evals/
        added.jsonl               the items that the arm added to the retain set
    probes/<arm>-<seed>/          fresh probes of that subject, where they were asked for: a folder of `vestige probe`
    harms.jsonl                   each item asked of each subject: what the target answered better, by measure
    prevention.csv                the table's rows
    provenance.json prevention.json   versions and times; written last: the table

Harm is the target's score less the unlearned model's: `logp`, the mean log-probability of the true answer's tokens
(nats a token), and `rougeL`, the recall of the true answer by a greedy reply (a share).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import ProbeFolder, SubjectFolder
from vestige.artifacts.records import SCHEMA, read_versioned, write_csv
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import read_jsonl, write_json, write_jsonl

MEASURES = ("logp", "rougeL")
"""What harm is measured in."""


@dataclass(frozen=True)
class PreventionFolder:
    """One trial of prevention: one target, forget set and method."""

    path: Path

    @property
    def asked(self) -> Path:
        """The identity."""
        return self.path / "asked.json"

    @property
    def risk(self) -> Path:
        """One line for each benign item."""
        return self.path / "risk.jsonl"

    @property
    def target(self) -> Path:
        """Where the target's answers go."""
        return self.path / "target"

    @property
    def harms(self) -> Path:
        """One line for each item and subject."""
        return self.path / "harms.jsonl"

    @property
    def rows(self) -> Path:
        """The table's rows as CSV."""
        return self.path / "prevention.csv"

    @property
    def table(self) -> Path:
        """Written last."""
        return self.path / "prevention.json"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times."""
        return self.path / "provenance.json"

    @property
    def lock(self) -> Path:
        """Held by the command that works on the trial."""
        return self.path / ".lock"

    def arm(self, name: str, seed: int) -> SubjectFolder:
        """The model that one arm made at one seed."""
        return SubjectFolder(self.path / "arms" / f"{name}-{seed}")

    def added(self, name: str, seed: int) -> Path:
        """One line for each item that the arm added to the retain set."""
        return self.arm(name, seed).path / "added.jsonl"

    def probe(self, name: str, seed: int) -> ProbeFolder:
        """The fresh probes of the model of one arm and seed."""
        return ProbeFolder(self.path / "probes" / f"{name}-{seed}")


@dataclass(frozen=True)
class RiskRow:
    """One benign item: `part` is pool (arms may add it) or evaluated (none may); `scores` by name."""

    item: str
    question: str
    edge: str | None
    part: str
    scores: Mapping[str, float]


@dataclass(frozen=True)
class HarmRow:
    """One item asked of one arm's model at one seed: target less unlearned, by measure."""

    arm: str
    seed: int
    item: str
    harm: Mapping[str, float]


@dataclass(frozen=True)
class ArmRow:
    """One number of one arm, over its seeds.

    `what` is `at risk` or `all` (mean harm of the evaluated items that lost most `logp` without protection at the
    other seeds; of all of them), `forget` (the same of the forget set: how much is forgotten), `holes` or `probes` (of
    fresh probes of the first seed's model: the share that are holes, the change in quality from 1 to 10). `against` is
    empty, or the arm whose number is taken off, item by item at the same seed.
    """

    arm: str
    what: str
    measure: str
    against: str
    estimate: Estimate


@dataclass(frozen=True)
class Prediction:
    """How well one risk score tells beforehand which items lose most `logp` without protection.

    `auroc` is the probability that an item of the most harmed quarter has a higher risk than one of the others.
    `score` is the name of a risk score, or `harm at other seeds`, which has seen what the unlearning does and says what
    can be hoped for.
    """

    score: str
    auroc: Estimate


@dataclass(frozen=True)
class PreventionTable:
    """All that came of a trial.

    Arms added `n_added` items to `n_retain`; `n_pool` could be added and `n_evaluated` could not. `rule` says where
    training stopped ("" for the end of all steps), `steps` after how many at each seed, and `reached` at how many of
    the seeds an arm met the rule. `risk_by` is the score that the arm `predicted` went by, and `n_at_risk` the number
    of evaluated items that count as at risk at each seed; `probe_k` the fresh probes of each forget item, or 0.
    """

    method: str
    forget: str
    seeds: tuple[int, ...]
    n_forget: int
    n_retain: int
    n_added: int
    n_pool: int
    n_evaluated: int
    n_at_risk: int
    rule: str
    risk_by: str
    probe_k: int
    steps: Mapping[str, tuple[int, ...]]
    reached: Mapping[str, int]
    arms: tuple[ArmRow, ...]
    predictions: tuple[Prediction, ...]

    def of(self, arm: str, what: str, measure: str, against: str = "") -> Estimate | None:
        """One number of one arm; None where it was not measured."""
        asked = (arm, what, measure, against)
        return next((r.estimate for r in self.arms if (r.arm, r.what, r.measure, r.against) == asked), None)


def write_risks(folder: PreventionFolder, rows: Iterable[RiskRow]) -> None:
    """Write the risk of every benign item."""
    write_jsonl(folder.risk, (asdict(row) for row in rows))


def read_risks(folder: PreventionFolder) -> list[RiskRow]:
    """The risk of every benign item, in the order of the data."""
    return [RiskRow(**_fields(folder.risk, RiskRow, row)) for row in read_jsonl(folder.risk)]


def write_harms(folder: PreventionFolder, rows: Iterable[HarmRow]) -> None:
    """Write what every subject lost, item by item."""
    write_jsonl(folder.harms, (asdict(row) for row in rows))


def read_harms(folder: PreventionFolder) -> Iterator[HarmRow]:
    """What every subject lost, item by item."""
    return (HarmRow(**_fields(folder.harms, HarmRow, row)) for row in read_jsonl(folder.harms))


_COLUMNS = ("arm", "what", "measure", "against", "value", "low", "high", "n", "unit", "interval")


def write_table(folder: PreventionFolder, table: PreventionTable) -> None:
    """Write the table, as CSV and last as JSON; its existence means that the trial is done."""
    numbers = [{**asdict(row.estimate), **_place(row)} for row in table.arms]
    auroc = [
        {**asdict(p.auroc), "arm": p.score, "what": "auroc", "measure": "logp", "against": ""}
        for p in table.predictions
    ]
    write_csv(folder.rows, _COLUMNS, ({c: row[c] for c in _COLUMNS} for row in [*numbers, *auroc]))
    write_json(folder.table, {"schema": SCHEMA, **asdict(table)})


def _place(row: ArmRow) -> dict[str, str]:
    return {"arm": row.arm, "what": row.what, "measure": row.measure, "against": row.against}


def read_table(folder: PreventionFolder) -> PreventionTable:
    """The table of a finished trial."""
    if not folder.table.exists():
        raise InputError(f"{folder.path} holds no finished trial of prevention; run `vestige probe prevent` again")
    path = folder.table
    stored = _fields(path, PreventionTable, read_versioned(path))
    arms = [_fields(path, ArmRow, row) for row in stored["arms"]]
    predictions = [_fields(path, Prediction, row) for row in stored["predictions"]]
    return PreventionTable(
        **{
            **stored,
            "seeds": tuple(stored["seeds"]),
            "steps": {arm: tuple(steps) for arm, steps in stored["steps"].items()},
            "arms": tuple(ArmRow(**{**a, "estimate": _estimate(path, a["estimate"])}) for a in arms),
            "predictions": tuple(Prediction(**{**p, "auroc": _estimate(path, p["auroc"])}) for p in predictions),
        }
    )


def _estimate(path: Path, stored: Any) -> Estimate:
    try:
        return Estimate(**_fields(path, Estimate, stored))
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: holds what is no estimate ({error}); delete it and run again") from error


def _fields(path: Path, kind: type[Any], stored: Any) -> dict[str, Any]:
    names: Sequence[str] = tuple(kind.__dataclass_fields__)
    missing = [n for n in names if not isinstance(stored, dict) or n not in stored]
    if missing:
        raise InputError(f"{path}: no field {missing[0]!r}, so another version of Vestige made it; delete it")
    return {n: stored[n] for n in names}
