"""Where the tables of a study of holes lie, and what of it is kept beside its probes.

::

    study.json                          what was asked, fully resolved
    data/  models/<name>/               where the study makes its own
    probes/<unlearned>/                 Tables 1 and 2: a `ProbeFolder` each, as all below
    checkpoints/<label>/<run>/          Table 7
    ablation/<variant>/                 Table 10
    mitigation/<way>.json               where the tables behind Tables 3 and 4 lie
    general/<name>.json                 what a model scores on the data's own questions
    evidence/<name>/                    the answers of models from elsewhere
    tables.md tables/table-<n>.csv      written last
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vestige.artifacts.layout import ProbeFolder, SubjectFolder
from vestige.artifacts.records import AGAIN, SCHEMA, read_versioned, typed
from vestige.core.estimates import Estimate
from vestige.core.files import write_json
from vestige.core.ids import slug


@dataclass(frozen=True)
class HoleStudyFolder:
    """One study of holes."""

    path: Path

    @property
    def asked(self) -> Path:
        """What was asked, fully resolved."""
        return self.path / "study.json"

    @property
    def data(self) -> Path:
        """The data that the study makes."""
        return self.path / "data"

    def model(self, name: str) -> SubjectFolder:
        """A model that the study makes."""
        return SubjectFolder(self.path / "models" / slug(name))

    def probe(self, unlearned: str) -> ProbeFolder:
        """The probe of one unlearned model."""
        return ProbeFolder(self.path / "probes" / slug(unlearned))

    def checkpoint(self, label: str, run: int) -> ProbeFolder:
        """One of the probes of one checkpoint; runs are counted from 1."""
        return ProbeFolder(self.path / "checkpoints" / slug(label) / f"run-{run}")

    def variant(self, name: str) -> ProbeFolder:
        """The probe with one hyper-parameter changed."""
        return ProbeFolder(self.path / "ablation" / slug(name))

    def mended(self, way: str) -> Path:
        """Where, in the folder of a probe, the table of one mending lies; written when it is done."""
        return self.path / "mitigation" / f"{slug(way)}.json"

    def evidence(self, name: str) -> Path:
        """The answers of a model from elsewhere to the data's own questions."""
        return self.path / "evidence" / slug(name)

    def general(self, name: str) -> Path:
        """What a model scores on the data's own questions."""
        return self.path / "general" / f"{slug(name)}.json"

    @property
    def page(self) -> Path:
        """All tables, for people."""
        return self.path / "tables.md"

    def table(self, number: int) -> Path:
        """One table's numbers."""
        return self.path / "tables" / f"table-{number}.csv"

    @property
    def lock(self) -> Path:
        """Held by the process that works here."""
        return self.path / ".lock"


@dataclass(frozen=True)
class GeneralScore:
    """What a model scores on one split of the data's own questions: ROUGE-1 recall of greedy answers."""

    split: str
    estimate: Estimate


def write_general(path: Path, digest: str, scores: tuple[GeneralScore, ...]) -> None:
    """Put down the scores of the model of this digest."""
    write_json(path, {"schema": SCHEMA, "digest": digest, "scores": [asdict(score) for score in scores]})


def read_general(path: Path) -> tuple[str, tuple[GeneralScore, ...]]:
    """The digest of one model, and its scores."""
    stored: dict[str, Any] = read_versioned(path, "digest", "scores")
    return str(stored["digest"]), tuple(typed(path, GeneralScore, one, again=AGAIN) for one in stored["scores"])
