"""How far scores of a probe vary over models, generations and judges: what lies on disk of it, and its table.

A run is one generation of one model: all prompts answered once. Quality is 1..10, criteria are 1..5, higher is better.
`before` is the target, `after` the unlearned models together. Shares lie in [0, 1].

::

    variance/answers.jsonl          one line for each prompt, model and generation: the answer, and all judges' scores
    variance/judged/<id>.jsonl      what a judge said, a file for each judge
    variance/provenance.json        versions, hardware, command and times
    variance/summary.json           the table and the identity of what it was made from; written last
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vestige.artifacts.probe_layout import ProbeFolder
from vestige.artifacts.records import SCHEMA, read_versioned
from vestige.core.errors import InputError
from vestige.core.estimates import Estimate
from vestige.core.files import write_json, write_jsonl


@dataclass(frozen=True)
class VarianceFolder:
    """The part of a probe's folder that the measurement of variance has."""

    path: Path

    @property
    def answers(self) -> Path:
        """One line for each answer, with all scores that it got."""
        return self.path / "answers.jsonl"

    @property
    def judged(self) -> Path:
        """What judges said, kept before it is used."""
        return self.path / "judged"

    @property
    def provenance(self) -> Path:
        """Versions, hardware, command and times."""
        return self.path / "provenance.json"

    @property
    def summary(self) -> Path:
        """Written last: the table, and the identity of what it was made from."""
        return self.path / "summary.json"


@dataclass(frozen=True)
class ScoredAnswer:
    """One answer with what each judge made of it: a grade in `scores`, or in `failures` the reason why there is none.

    `origin` is what the prompt was made from. `criteria` are a judge's five, where they were asked for and given,
    `criteria_failures` why not.
    """

    id: str
    source: str
    origin: str
    prompt: str
    model: str
    generation: int
    answer: str | None
    scores: Mapping[str, float]
    failures: Mapping[str, str] = field(default_factory=dict)
    criteria: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    criteria_failures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Runs:
    """Scores of one side over its runs: mean and standard deviation (n - 1) of run means; `sd` is None of one run.

    `lowest` is the share of answers at the lowest score.
    """

    n_runs: int
    mean: float
    sd: float | None
    lowest: float


@dataclass(frozen=True)
class Outcome:
    """A two-sided t-test of after minus before, or in `why_not` the reason why there is none; then all else is None."""

    difference: float | None = None
    low: float | None = None
    high: float | None = None
    t: float | None = None
    dof: float | None = None
    p: float | None = None
    why_not: str = ""


@dataclass(frozen=True)
class ChangeTests:
    """Four tests of one change. `student` and `welch` are over run means, as the paper does (2511.00030, appendix C.1).

    They take generations of one model for independent trainings. `over_models` tests the unlearned models' changes
    from the target: whether another training of the kind would do it too. `over_prompts` tests the changes of
    prompts, those made from one thing counted once: whether these models do it on other prompts too.
    """

    student: Outcome
    welch: Outcome
    over_models: Outcome
    over_prompts: Outcome


@dataclass(frozen=True)
class VarianceParts:
    """Variance of one answer's score by source, of the unlearned models; below 0 means that none was found.

    Where there is a single model, what the models bring is None; where there is no estimate at all, `why_not` says so.
    """

    model: float | None = None
    prompt: float | None = None
    model_by_prompt: float | None = None
    generation: float | None = None
    why_not: str = ""


@dataclass(frozen=True)
class CriterionRow:
    """One criterion (1..5) of one judge, over the answers that it graded by all five."""

    criterion: str
    n_before: int
    n_after: int
    before: float
    after: float


@dataclass(frozen=True)
class VarianceRow:
    """One source's prompts by one judge: the form of the paper's Table 6, with Table 15's criteria where asked for.

    Of `n` prompts `n_judged` were graded in every run, and all numbers are over those. `change` is the mean over
    prompts of after minus before. `failures_before` and `failures_after` count answers without a grade, by reason.
    """

    source: str
    judge: str
    n: int
    n_judged: int
    before: Runs
    after: Runs
    change: Estimate
    tests: ChangeTests
    parts: VarianceParts
    failures_before: Mapping[str, int]
    failures_after: Mapping[str, int]
    criteria: tuple[CriterionRow, ...]
    criteria_failures: Mapping[str, int]


@dataclass(frozen=True)
class JudgePair:
    """How far two judges agree on the same answers, of the target and of the unlearned models together.

    `difference` is the mean of second minus first, kappa has squared weights; None where a judge gave one score only.
    """

    first: str
    second: str
    n: int
    equal: float
    within_one: float
    difference: float
    spearman: float | None
    kappa: float | None


@dataclass(frozen=True)
class JudgeParts:
    """Variance of a run's score after unlearning, by source, where there are two judges or more (else `why_not`)."""

    source: str
    model: float | None = None
    generation: float | None = None
    judge: float | None = None
    model_by_judge: float | None = None
    rest: float | None = None
    why_not: str = ""


@dataclass(frozen=True)
class VarianceTable:
    """Everything that came of it. `probed` names the model that the prompts were chosen on; "" if it is not here.

    `unjudged` counts, by source and judge, the failures of judges that graded no prompt in every run: they have no row.
    """

    models: tuple[str, ...]
    probed: str
    generations: int
    judges: tuple[str, ...]
    rows: tuple[VarianceRow, ...]
    pairs: tuple[JudgePair, ...]
    judge_parts: tuple[JudgeParts, ...]
    unjudged: Mapping[str, Mapping[str, Mapping[str, int]]]


def variance_folder(folder: ProbeFolder) -> VarianceFolder:
    """Where the measurement of variance lies in a probe's folder."""
    return VarianceFolder(folder.path / "variance")


def write_variance(
    folder: VarianceFolder, answers: Iterable[ScoredAnswer], table: VarianceTable, identity: Mapping[str, Any]
) -> None:
    """Write what was measured; the summary, last, says by being there that all is whole."""
    folder.summary.unlink(missing_ok=True)
    write_jsonl(folder.answers, map(asdict, answers))
    write_json(folder.summary, {"schema": SCHEMA, "identity": dict(identity), "table": asdict(table)})


def read_variance(folder: VarianceFolder) -> tuple[VarianceTable, dict[str, Any]]:
    """The table, with the identity of what it was made from."""
    stored = read_versioned(folder.summary, "identity", "table")
    try:
        return TypeAdapter(VarianceTable).validate_python(stored["table"]), stored["identity"]
    except ValidationError as error:
        raise InputError(f"{folder.summary} is damaged; delete it and run the same command again") from error
